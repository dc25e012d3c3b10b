"""The account of what left this machine: to whom, when, how much and of which memories; never what it said."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from triskele.base import timestamps
from triskele.errors import StoreUnavailable
from triskele.models.egress import Bill, Departure
from triskele.stores.protocol import Document, Store

_DAYS, _SENT = "departures", "sent"
_ATTEMPTS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """What one endpoint got on one day."""

    day: str
    endpoint: str
    host: str
    requests: int = 0
    texts: int = 0
    characters: int = 0
    tokens: int = 0
    cost: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """That the text of a memory went to a machine, first and last."""

    host: str
    first: str
    last: str


class StoreLedger:
    """A Ledger that keeps its account in the store; written before anything leaves."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def leaving(self, departure: Departure) -> None:
        """Texts are about to be sent."""
        self._count(departure.endpoint, departure.host, 1, departure.texts, departure.characters, 0, 0.0)
        self._note(departure)

    def billed(self, bill: Bill) -> None:
        """An answer told how many tokens it took."""
        # It is sent already: an account that cannot be written now costs no answer.
        with suppress(StoreUnavailable):
            self._count(bill.endpoint, bill.host, 0, 0, 0, bill.tokens, bill.cost or 0.0)

    def _count(self, endpoint: str, host: str, *added: float) -> None:
        day = timestamps.now().date().isoformat()
        key = f"{day} {endpoint} {host}"
        # Others may count at the same time: each adds to what the one before left.
        for _ in range(_ATTEMPTS):
            before = self._store.shelved(_DAYS).get(key)
            values = before or asdict(Day(day=day, endpoint=endpoint, host=host))
            names = ("requests", "texts", "characters", "tokens", "cost")
            after = values | {name: values[name] + more for name, more in zip(names, added, strict=True)}
            if self._store.swap(_DAYS, key, before, after):
                return
        raise StoreUnavailable("the account of what leaves cannot be written: nothing is sent")

    def _note(self, departure: Departure) -> None:
        if not departure.memories:
            return
        known, at = self._store.shelved(_SENT), timestamps.to_text(departure.at)
        noted = {}
        for id in departure.memories:
            key = f"{id} {departure.host}"
            first = known.get(key, {}).get("first", at)
            # About no memory, so that it outlives a sealing: what was sent stays sent.
            noted[key] = Document({"host": departure.host, "first": first, "last": at})
        self._store.shelve(_SENT, noted)


def days(store: Store) -> list[Day]:
    """What left, by day and endpoint, oldest first; nothing unless the user's settings name somebody."""
    return [Day(**values) for values in store.shelved(_DAYS).values()]


def sent(store: Store, id: str) -> list[Sent]:
    """To whom the text of a memory went."""
    found: dict[str, Any] = store.shelved(_SENT)
    return [Sent(**values) for key, values in found.items() if key.startswith(f"{id} ")]
