"""The plan that the user's own judged questions have put in force, the ones below it, and how each got there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from triskele.base import timestamps
from triskele.errors import BadInput, NotFound
from triskele.recall.plan import Plan
from triskele.stores.protocol import Document, Store

# The plans that stand, the one in force last; their evidence lies apart because every recall reads the plans.
PLANS = "plan"
HISTORY = "tuning"
MOST_PLANS = 20
MOST_HISTORY = 50
TUNED = ("legs", "fusion", "rerank", "weights", "k", "rescored")


@dataclass(frozen=True, slots=True)
class Adopted:
    """A plan with the model that it was measured with."""

    key: str
    plan: Plan
    fingerprint: str
    since: str
    questions: int


def values_of(plan: Plan) -> dict[str, Any]:
    """What differs from the shipped plan, as plain values."""
    shipped = Plan()
    given = {name: getattr(plan, name) for name in TUNED}
    changed = {name: value for name, value in given.items() if value != getattr(shipped, name)}
    return {name: _plain(value) for name, value in changed.items()}


def in_force(store: Store) -> Adopted | None:
    """The adopted plan; None where there is none, or none that this version understands."""
    for key, value in reversed(store.shelved(PLANS).items()):
        try:
            plan = _plan(value["plan"])
        except (TypeError, BadInput):
            return None
        return Adopted(key, plan, value["fingerprint"], value["since"], value["questions"])
    return None


def adopt(store: Store, plan: Plan, *, fingerprint: str, questions: int) -> Adopted:
    """Put a plan in force, above the one that was."""
    now = timestamps.now()
    adopted = Adopted(f"{timestamps.to_micros(now):017d}", plan, fingerprint, timestamps.to_text(now), questions)
    value = {
        "plan": values_of(plan),
        "fingerprint": fingerprint,
        "since": adopted.since,
        "questions": questions,
    }
    store.shelve(PLANS, {adopted.key: Document(value)}, most=MOST_PLANS)
    return adopted


def roll_back(store: Store) -> tuple[Adopted, Adopted | None]:
    """Take the plan in force back; returns it and the one that is in force now."""
    taken = in_force(store)
    if taken is None:
        raise NotFound("no adopted plan is in force: recall ranks as shipped")
    store.unshelve(PLANS, [taken.key])
    keep_evidence(store, {"event": "rolled back", "plan": values_of(taken.plan), "adopted": taken.since})
    return taken, in_force(store)


def keep_evidence(store: Store, evidence: Mapping[str, Any]) -> None:
    """Add a line to the history of tunings."""
    now = timestamps.now()
    line = {"at": timestamps.to_text(now), **evidence}
    store.shelve(HISTORY, {f"{timestamps.to_micros(now):017d}": Document(line)}, most=MOST_HISTORY)


def history(store: Store) -> list[dict[str, Any]]:
    """Every tuning and rollback that is remembered, oldest first."""
    return list(store.shelved(HISTORY).values())


def _plain(value: Any) -> Any:
    if isinstance(value, frozenset):
        return sorted(value)
    return dict(value) if isinstance(value, Mapping) else value


def _plan(values: Mapping[str, Any]) -> Plan:
    legs = {"legs": frozenset(values["legs"])} if "legs" in values else {}
    return Plan(**{**values, **legs})
