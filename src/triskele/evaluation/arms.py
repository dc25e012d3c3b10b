"""Arms: the ways to rank that a benchmark sets side by side, declared by what differs and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from triskele.errors import BadInput
from triskele.recall.fusion import METHODS, SHARES
from triskele.recall.plan import CROSS, DEFAULT, LEGS, Plan
from triskele.types import Sort

FTS = "fts"
_EXACT_BONUS = 0.1
_WORDS = frozenset({"lexical"})
_NEARNESS = frozenset({"dense"})
_BOTH = _WORDS | _NEARNESS
_GRAPH = frozenset({"graph"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One way to rank; everything that is not named here is the same for all arms."""

    name: str
    about: str
    plan: Plan | None
    sort: Sort = Sort.RELEVANCE

    @property
    def tells_confidence(self) -> bool:
        """Whether its best score says how sure the answer is: only shares of what was possible do."""
        return self.plan is not None and self.plan.fusion == DEFAULT and self.sort is Sort.RELEVANCE

    def to_json(self) -> dict[str, Any]:
        """The arm with its whole plan as plain values."""
        plan = asdict(self.plan) | {"legs": sorted(self.plan.legs)} if self.plan is not None else None
        return {"about": self.about, "plan": plan, "sort": str(self.sort)}


def _textbook(name: str, about: str, *, legs: frozenset[str] = _BOTH, **plan: Any) -> Arm:
    """A method as it was published, over words and meaning: without the weight of importance, which is recall's own."""
    return Arm(name=name, about=about, plan=Plan(legs=legs, prior=0.0, **plan))


ARMS = {
    arm.name: arm
    for arm in (
        Arm(name=FTS, about="plain FTS5: all words, else any, blended with importance", plan=None),
        _textbook("lexical", "the lexical leg alone", legs=_WORDS),
        Arm(name="importance", about="the lexical leg by importance", plan=Plan(legs=_WORDS), sort=Sort.IMPORTANCE),
        _textbook("dense", "the dense leg alone", legs=_NEARNESS, fusion="cc"),
        *(
            _textbook(method, f"words and meaning fused by {method}", fusion=method, rerank="off")
            for method in METHODS
            if method != "share"
        ),
        _textbook("late", "rrf with late interaction mixed in", fusion="rrf", rerank="late"),
        _textbook("graph", "rrf with the graph as a third leg", legs=_BOTH | _GRAPH, fusion="rrf", rerank="off"),
        Arm(name="default", about="what recall does", plan=Plan()),
        Arm(name="default-lexical", about="the default without words", plan=Plan(legs=_NEARNESS | _GRAPH)),
        Arm(
            name="default-dense",
            about="the default without the dense leg",
            plan=Plan(legs=_WORDS | _GRAPH, rerank="late"),
        ),
        Arm(
            name="default-graph",
            about="the default without walks; a title in the question counts",
            plan=Plan(walk="off"),
        ),
        Arm(name="default-late", about="the default without late interaction", plan=Plan(rerank="off")),
        Arm(name="default-context", about="the default blind to neighbouring turns", plan=Plan(context=False)),
        Arm(name="default-prior", about="the default blind to importance", plan=Plan(prior=0.0)),
        Arm(name=CROSS, about="the default, its head read again by the cross-encoder", plan=Plan(rerank=CROSS)),
        Arm(name="default+exact", about="the default with a bonus for all words", plan=Plan(exact=_EXACT_BONUS)),
    )
}


def arm(name: str) -> Arm:
    """The arm of this name; `rrf:k=10` or `cc:alpha=0.6:rerank=late` changes single values of its plan."""
    base, *changes = name.split(":")
    if base not in ARMS:
        raise BadInput(f"unknown arm {base!r}: choose from {', '.join(ARMS)}")
    found = ARMS[base]
    if not changes:
        return found
    if found.plan is None:
        raise BadInput(f"the arm {base!r} has nothing to change: {changes[0]!r}")
    plan = found.plan
    for change in changes:
        plan = _changed(plan, change)
    return replace(found, name=name, about=f"{found.about}, {', '.join(changes)}", plan=plan)


def _changed(plan: Plan, change: str) -> Plan:
    key, _, value = change.partition("=")
    if key not in _CHANGES:
        raise BadInput(f"nothing of an arm is called {key!r}: choose from {', '.join(_CHANGES)}")
    try:
        return _CHANGES[key](plan, value)
    except ValueError:
        raise BadInput(f"{change!r} is not a value that an arm can take: give {key}=NUMBER") from None


def _with_k(plan: Plan, value: str) -> Plan:
    return replace(plan, k=dict.fromkeys(LEGS, float(value)))


def _with_alpha(plan: Plan, value: str) -> Plan:
    """The share of meaning; words have the rest."""
    if plan.fusion == DEFAULT:
        raise BadInput("alpha belongs to the methods that fuse two legs: for the default name the legs, dense=0.4")
    share = float(value)
    if not 0 <= share <= 1:
        raise BadInput(f"alpha must lie between 0 and 1, not {value}")
    return replace(plan, weights={"lexical": 1 - share, "dense": share})


def _with_weight(leg: str) -> Callable[[Plan, str], Plan]:
    """The weight of one leg; in the default, legs that are not named count nothing, the graph as usual."""

    def change(plan: Plan, value: str) -> Plan:
        before = plan.weights or ({} if plan.fusion == DEFAULT else SHARES[plan.fusion])
        return replace(plan, weights={**before, leg: float(value)})

    return change


_CHANGES: Mapping[str, Callable[[Plan, str], Plan]] = {
    "k": _with_k,
    "alpha": _with_alpha,
    "rescored": lambda plan, value: replace(plan, rescored=int(value)),
    "prior": lambda plan, value: replace(plan, prior=float(value)),
    "exact": lambda plan, value: replace(plan, exact=float(value)),
    "rerank": lambda plan, value: replace(plan, rerank=value),
    "walk": lambda plan, value: replace(plan, walk=value),
    **{leg: _with_weight(leg) for leg in (*LEGS, "late")},
}
