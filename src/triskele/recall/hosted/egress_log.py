"""The egress log: what left this machine, to which host, when, how much and of which memories; never the text."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from triskele.errors import StoreUnavailable
from triskele.models.egress import Bill, Departure
from triskele.store.owner import OwnerStore
from triskele.store.values import Document
from triskele.text import timestamps
from triskele.types import Sent

_DAYS, _SENT = "departures", "sent"
_ATTEMPTS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """What was sent to one endpoint on one day."""

    day: str
    endpoint: str
    host: str
    requests: int = 0
    texts: int = 0
    characters: int = 0
    tokens: int = 0
    cost: float = 0.0


class StoreLedger:
    """A Ledger in the store, written before anything is sent."""

    def __init__(self, store: OwnerStore) -> None:
        self._store = store

    def leaving(self, departure: Departure) -> None:
        """Note texts that are about to be sent."""
        self._count(departure.endpoint, departure.host, 1, departure.texts, departure.characters, 0, 0.0)
        self._note(departure)

    def billed(self, bill: Bill) -> None:
        """Note the tokens that an answer reports."""
        # It is sent already: a log that cannot be written now does not prevent the answer.
        with suppress(StoreUnavailable):
            self._count(bill.endpoint, bill.host, 0, 0, 0, bill.tokens, bill.cost or 0.0)

    def _count(self, endpoint: str, host: str, *added: float) -> None:
        day = timestamps.now().date().isoformat()
        key = f"{day} {endpoint} {host}"
        # Other processes may count at the same time: swap only what is still as it was read.
        for _ in range(_ATTEMPTS):
            before = self._store.documents.some(_DAYS, [key]).get(key)
            values = before or asdict(Day(day=day, endpoint=endpoint, host=host))
            names = ("requests", "texts", "characters", "tokens", "cost")
            after = values | {name: values[name] + more for name, more in zip(names, added, strict=True)}
            if self._store.documents.swap(_DAYS, key, before, after):
                return
        raise StoreUnavailable("the egress log cannot be written: nothing is sent")

    def _note(self, departure: Departure) -> None:
        if not departure.memories:
            return
        keys, at = [f"{id} {departure.host}" for id in departure.memories], timestamps.to_text(departure.at)
        known, noted = self._store.documents.some(_SENT, keys), {}
        for key in keys:
            first = known.get(key, {}).get("first", at)
            # About no memory, so that sealing the memory keeps the entry: what was sent stays sent.
            noted[key] = Document({"host": departure.host, "first": first, "last": at})
        self._store.documents.put(_SENT, noted)


def days(store: OwnerStore) -> list[Day]:
    """What was sent, by day and endpoint, oldest first; empty unless the settings name a hosted model."""
    return [Day(**values) for values in store.documents.all(_DAYS).values()]


def sent(store: OwnerStore, id: str) -> list[Sent]:
    """The hosts that the text of a memory was sent to."""
    found: dict[str, Any] = store.documents.all(_SENT)
    return [Sent(**values) for key, values in found.items() if key.startswith(f"{id} ")]
