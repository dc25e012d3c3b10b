"""Adopted ranking plans: the one in force, the earlier ones, and the evidence for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from triskele.base import timestamps
from triskele.errors import BadInput, NotFound
from triskele.recall.plan import Plan
from triskele.stores.protocols import Document, OwnerStore

# The adopted plans, the one in force last; the evidence is stored apart because every recall reads the plans.
PLANS = "plan"
HISTORY = "tuning"
MOST_PLANS = 20
MOST_HISTORY = 50
TUNED = ("legs", "fusion", "rerank", "weights", "k", "rescored")


@dataclass(frozen=True, slots=True)
class Adopted:
    """An adopted plan with the fingerprint of the model that it was measured with."""

    key: str
    plan: Plan
    fingerprint: str
    since: str
    questions: int


def values_of(plan: Plan) -> dict[str, Any]:
    """The values that differ from the default plan, as JSON values."""
    default = Plan()
    values = {name: getattr(plan, name) for name in TUNED}
    changed = {name: value for name, value in values.items() if value != getattr(default, name)}
    return {name: _plain(value) for name, value in changed.items()}


def in_force(store: OwnerStore) -> Adopted | None:
    """The adopted plan; None without one, or if this version cannot read it."""
    for key, value in reversed(store.documents.all(PLANS).items()):
        try:
            plan = _plan(value["plan"])
        except (TypeError, BadInput):
            return None
        return Adopted(key, plan, value["fingerprint"], value["since"], value["questions"])
    return None


def adopt(store: OwnerStore, plan: Plan, *, fingerprint: str, questions: int) -> Adopted:
    """Put a plan in force; the earlier ones are kept for a rollback."""
    now = timestamps.now()
    adopted = Adopted(f"{timestamps.to_micros(now):017d}", plan, fingerprint, timestamps.to_text(now), questions)
    value = {
        "plan": values_of(plan),
        "fingerprint": fingerprint,
        "since": adopted.since,
        "questions": questions,
    }
    store.documents.put(PLANS, {adopted.key: Document(value)}, most=MOST_PLANS)
    return adopted


def roll_back(store: OwnerStore) -> tuple[Adopted, Adopted | None]:
    """Remove the plan in force; returns it and the plan that is in force now."""
    removed = in_force(store)
    if removed is None:
        raise NotFound("no adopted plan to roll back: recall uses the default plan")
    store.documents.delete(PLANS, [removed.key])
    keep_evidence(store, {"event": "rolled back", "plan": values_of(removed.plan), "adopted": removed.since})
    return removed, in_force(store)


def keep_evidence(store: OwnerStore, evidence: Mapping[str, Any]) -> None:
    """Add an entry to the history of tunings."""
    now = timestamps.now()
    entry = {"at": timestamps.to_text(now), **evidence}
    store.documents.put(HISTORY, {f"{timestamps.to_micros(now):017d}": Document(entry)}, most=MOST_HISTORY)


def history(store: OwnerStore) -> list[dict[str, Any]]:
    """The recorded tunings and rollbacks, oldest first."""
    return list(store.documents.all(HISTORY).values())


def _plain(value: Any) -> Any:
    if isinstance(value, frozenset):
        return sorted(value)
    return dict(value) if isinstance(value, Mapping) else value


def _plan(values: Mapping[str, Any]) -> Plan:
    legs = {"legs": frozenset(values["legs"])} if "legs" in values else {}
    return Plan(**{**values, **legs})
