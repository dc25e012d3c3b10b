"""How to rank, as a value: the legs, their fusion, and what reranks the best candidates; and adopted plans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, get_args

from triskele import validation
from triskele.errors import BadInput, NotFound
from triskele.requests import EvidenceName, FusionName, LegName, OrderName, RerankName
from triskele.text import timestamps
from triskele.types import PLANS

if TYPE_CHECKING:
    from triskele.store.owner import OwnerStore

DEFAULT = "default"
LEGS: tuple[str, ...] = get_args(LegName)
FUSIONS: tuple[str, ...] = get_args(FusionName)
OFF = "off"
# Candidates of a leg, unless an answer is longer than half of it.
LEG_DEPTH = 100
LATE = "late"
CROSS = "cross"
GATED = "gated"
RERANKS: tuple[str, ...] = get_args(RerankName)
# These order the best candidates again.
AGAIN = (LATE, CROSS, GATED)
# Evidence besides the legs: the person that a query asks for, and the time that it names.
EVIDENCE: tuple[str, ...] = get_args(EvidenceName)
# How long the gated cross-encoder may take while a prompt waits.
PROMPT_S = 0.15
AS_RANKED, DIVERSE, MENTIONED, NEAR = "ranked", "diverse", "mentioned", "near"
ORDERS: tuple[str, ...] = (*get_args(OrderName), NEAR)
# The one document: the plan in force and the one before, the model that they were measured with, and the evidence.
_KEY = "adopted"
TUNED = ("legs", "fusion", "rerank", "weights", "k", "rescored")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How to rank: the legs, their fusion and weights, reranking, context, evidence, priors and order.

    `patience_s` bounds the gated cross-encoder; None does not.
    """

    legs: frozenset[str] = frozenset(LEGS)
    fusion: str = DEFAULT
    rerank: str = DEFAULT
    weights: Mapping[str, float] | None = None
    k: Mapping[str, float] = field(default_factory=dict)
    rescored: int = 100
    context: bool = True
    evidence: frozenset[str] = frozenset(EVIDENCE)
    prior: float = 0.3
    exact: float = 0.0
    order: str = AS_RANKED
    patience_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse unknown names: a misspelt leg would silently find nothing."""
        chosen = ((self.legs, LEGS), ({str(self.fusion)}, FUSIONS), ({str(self.rerank)}, RERANKS))
        for given, known in (*chosen, (self.evidence, EVIDENCE), ({str(self.order)}, ORDERS)):
            if not given.issubset(known):
                unknown = sorted(given.difference(known))
                raise BadInput(f"unknown way to rank {unknown[0][:40]!r}: choose one of {', '.join(known)}")

    def for_prompt(self) -> Plan:
        """The plan for a prompt that waits: no cross-encoder of the settings, and little time for the bundled one."""
        return replace(self, rerank=DEFAULT if self.rerank == CROSS else self.rerank, patience_s=PROMPT_S)

    @property
    def needs_model(self) -> bool:
        """Whether the plan needs the model: the lexical leg does not, unless late interaction rescores it."""
        return "dense" in self.legs or self.rerank == LATE


def candidates_per_leg(limit: int) -> int:
    """How many candidates a leg returns for an answer of some length."""
    return max(LEG_DEPTH, 2 * limit)


SHIPPED = Plan()


def asked_for(legs: Iterable[str] | None, fusion: str = DEFAULT, rerank: str = DEFAULT) -> Plan:
    """The plan of a caller's choices; without legs all of them rank."""
    chosen = SHIPPED.legs if legs is None else frozenset(validation.check_texts(legs, "legs"))
    return Plan(legs=chosen, fusion=fusion, rerank=rerank)


@dataclass(frozen=True, slots=True)
class Adopted:
    """An adopted plan with the fingerprint of the model that it was measured with."""

    plan: Plan
    fingerprint: str
    since: str
    questions: int


def values_of(plan: Plan) -> dict[str, Any]:
    """The values that differ from the default plan, as JSON values."""
    values = {name: getattr(plan, name) for name in TUNED}
    changed = {name: value for name, value in values.items() if value != getattr(SHIPPED, name)}
    return {name: _plain(value) for name, value in changed.items()}


def adopted(store: OwnerStore) -> Adopted | None:
    """The adopted plan; None without one, or if this version cannot read it."""
    document = store.documents.all(PLANS).get(_KEY)
    try:
        return _adopted(document) if document else None
    except (KeyError, TypeError, BadInput):
        return None


def adopt(
    store: OwnerStore, plan: Plan, *, fingerprint: str, questions: int, evidence: Mapping[str, Any] | None = None
) -> None:
    """Put a plan in force; the one before is kept for a rollback if it was measured with the same model."""
    document = store.documents.all(PLANS).get(_KEY)
    now = {"plan": values_of(plan), "since": timestamps.to_text(timestamps.now()), "questions": questions}
    before = document["now"] if document and document["fingerprint"] == fingerprint else None
    _put(store, {"now": now, "before": before, "fingerprint": fingerprint, "evidence": dict(evidence or {})})


def roll_back(store: OwnerStore) -> tuple[Adopted, Adopted | None]:
    """Remove the plan in force; returns it and the plan that is in force now."""
    removed = adopted(store)
    if removed is None:
        raise NotFound("no adopted plan to roll back: recall uses the default plan")
    document = store.documents.all(PLANS)[_KEY]
    if document["before"]:
        _put(store, {**document, "now": document["before"], "before": None, "evidence": {}})
    else:
        store.documents.delete(PLANS, [_KEY])
    return removed, adopted(store)


def _adopted(document: Mapping[str, Any]) -> Adopted:
    now = document["now"]
    return Adopted(_plan(now["plan"]), document["fingerprint"], now["since"], now["questions"])


def _put(store: OwnerStore, value: Mapping[str, Any]) -> None:
    # The help of the command line reads the names of plans and must not load the stores.
    from triskele.store.values import Document

    store.documents.put(PLANS, {_KEY: Document(value)})


def _plain(value: Any) -> Any:
    if isinstance(value, frozenset):
        return sorted(value)
    return dict(value) if isinstance(value, Mapping) else value


def _plan(values: Mapping[str, Any]) -> Plan:
    legs = {"legs": frozenset(values["legs"])} if "legs" in values else {}
    return Plan(**{**values, **legs})
