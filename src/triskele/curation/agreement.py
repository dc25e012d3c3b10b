"""How often a cross-encoder saw it as the ranking did, over all questions that it was asked."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass

from triskele.errors import StoreUnavailable
from triskele.stores.protocol import Document, Store
from triskele.types import Answer

_KIND, _KEY = "agreement", "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreed:
    """Questions asked and answered in time, and the means of what `Agreement` tells."""

    asked: int = 0
    answered: int = 0
    tau: float = 0.0
    kept: float = 0.0


def agreed(store: Store) -> Agreed | None:
    """What was counted so far; None where no cross-encoder was ever asked."""
    found = store.shelved(_KIND).get(_KEY)
    return Agreed(**found) if found else None


def note(store: Store, answer: Answer) -> None:
    """Count one question; a store that cannot be written at once counts nothing."""
    before, said = agreed(store) or Agreed(), answer.agreement
    answered = before.answered + (said is not None)
    tau, kept = before.tau, before.kept
    if said is not None:
        tau, kept = tau + (said.tau - tau) / answered, kept + (said.kept - kept) / answered
    after = Agreed(asked=before.asked + 1, answered=answered, tau=tau, kept=kept)
    with suppress(StoreUnavailable):
        store.shelve(_KIND, {_KEY: Document(asdict(after))}, hurry=True)
