"""Arms: the rankings that a benchmark compares, as changes of the default."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from triskele.errors import BadInput
from triskele.recall.fusion import METHODS
from triskele.recall.plan import CROSS, DEFAULT, GATED, LEGS, Plan
from triskele.types import Sort

FTS = "fts"
_EXACT_BONUS = 0.1
_WORDS = frozenset({"lexical"})
_NEARNESS = frozenset({"dense"})
_BOTH = _WORDS | _NEARNESS
_GRAPH = frozenset({"graph"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A way to rank; what it does not set, all arms share."""

    name: str
    about: str
    plan: Plan | None
    sort: Sort = Sort.RELEVANCE

    @property
    def has_confidence(self) -> bool:
        """Whether its confidence has a meaning: that of textbook fusions has none."""
        return self.plan is not None and self.plan.fusion == DEFAULT and self.sort is Sort.RELEVANCE

    def to_json(self) -> dict[str, Any]:
        """The arm with its plan as plain values."""
        plan = self.plan
        sets = {} if plan is None else {"legs": sorted(plan.legs), "evidence": sorted(plan.evidence)}
        return {"about": self.about, "plan": asdict(plan) | sets if plan else None, "sort": str(self.sort)}


def _textbook(name: str, about: str, *, legs: frozenset[str] = _BOTH, **plan: Any) -> Arm:
    """A published method over lexical and dense legs, without importance."""
    return Arm(name=name, about=about, plan=Plan(legs=legs, prior=0.0, **plan))


ARMS = {
    arm.name: arm
    for arm in (
        Arm(name=FTS, about="plain FTS5: all words, else any word, blended with importance", plan=None),
        _textbook("lexical", "the lexical leg alone", legs=_WORDS),
        Arm(name="importance", about="the lexical leg by importance", plan=Plan(legs=_WORDS), sort=Sort.IMPORTANCE),
        _textbook("dense", "the dense leg alone", legs=_NEARNESS, fusion="cc"),
        *(
            _textbook(method, f"the lexical and the dense leg fused by {method}", fusion=method, rerank="off")
            for method in METHODS
            if method != "share"
        ),
        _textbook("late", "rrf with late interaction mixed in", fusion="rrf", rerank="late"),
        _textbook("graph", "rrf with the graph as a third leg", legs=_BOTH | _GRAPH, fusion="rrf", rerank="off"),
        Arm(name="default", about="what recall does", plan=Plan()),
        Arm(name="default-lexical", about="the default without the lexical leg", plan=Plan(legs=_NEARNESS | _GRAPH)),
        Arm(
            name="default-dense",
            about="the default without the dense leg",
            plan=Plan(legs=_WORDS | _GRAPH, rerank="late"),
        ),
        Arm(name="default-graph", about="the default without the graph", plan=Plan(legs=_BOTH)),
        Arm(name="default-late", about="the default without late interaction", plan=Plan(rerank="off")),
        Arm(name="default-context", about="the default without neighbouring turns", plan=Plan(context=False)),
        Arm(
            name="default-speaker",
            about="the default without evidence of speaker and role",
            plan=Plan(evidence=frozenset({"time"})),
        ),
        Arm(
            name="default-time",
            about="the default without evidence of time",
            plan=Plan(evidence=frozenset({"speaker"})),
        ),
        Arm(name="default-prior", about="the default without the importance prior", plan=Plan(prior=0.0)),
        Arm(name=CROSS, about="the default with its top reranked by the cross-encoder", plan=Plan(rerank=CROSS)),
        Arm(
            name="default+cross",
            about="the default with the bundled cross-encoder as a gated second stage",
            plan=Plan(rerank=GATED),
        ),
        Arm(
            name="default+exact",
            about="the default with a bonus for memories with all query terms",
            plan=Plan(exact=_EXACT_BONUS),
        ),
    )
}


def arm(name: str) -> Arm:
    """The arm of a name; `rrf:k=10` changes a value of its plan."""
    base, *changes = name.split(":")
    if base not in ARMS:
        raise BadInput(f"unknown arm {base!r}: choose from {', '.join(ARMS)}")
    declared = ARMS[base]
    if not changes:
        return declared
    if declared.plan is None:
        raise BadInput(f"the arm {base!r} has no values to change: {changes[0]!r}")
    plan = declared.plan
    for change in changes:
        plan = _changed(plan, change)
    return replace(declared, name=name, about=f"{declared.about}, {', '.join(changes)}", plan=plan)


def _changed(plan: Plan, change: str) -> Plan:
    key, _, value = change.partition("=")
    if key not in _CHANGES:
        raise BadInput(f"unknown value {key!r} of an arm: choose from {', '.join(_CHANGES)}")
    try:
        return _CHANGES[key](plan, value)
    except ValueError:
        raise BadInput(f"{change!r} is not a value of an arm: give {key}=NUMBER") from None


def _with_alpha(plan: Plan, value: str) -> Plan:
    """The weight of the dense leg; the lexical leg has the rest."""
    if plan.fusion == DEFAULT:
        raise BadInput("alpha applies to methods that fuse two legs: for the default name the legs, dense=0.4")
    share = float(value)
    if not 0 <= share <= 1:
        raise BadInput(f"alpha must lie between 0 and 1, not {value}")
    return replace(plan, weights={"lexical": 1 - share, "dense": share})


def _with_weight(leg: str) -> Callable[[Plan, str], Plan]:
    """Set a leg's weight; unnamed legs get 0, except the graph."""

    def change(plan: Plan, value: str) -> Plan:
        before = plan.weights or ({} if plan.fusion == DEFAULT else METHODS[plan.fusion].weights)
        return replace(plan, weights={**before, leg: float(value)})

    return change


_CHANGES: Mapping[str, Callable[[Plan, str], Plan]] = {
    "k": lambda plan, value: replace(plan, k=dict.fromkeys(LEGS, float(value))),
    "alpha": _with_alpha,
    "rescored": lambda plan, value: replace(plan, rescored=int(value)),
    "prior": lambda plan, value: replace(plan, prior=float(value)),
    "exact": lambda plan, value: replace(plan, exact=float(value)),
    "rerank": lambda plan, value: replace(plan, rerank=value),
    **{leg: _with_weight(leg) for leg in (*LEGS, "late")},
}
