"""The recall log: past questions with what they found; opt-in, local, and gone with the memories that it names."""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import dataclass

from triskele.base import timestamps
from triskele.errors import StoreUnavailable
from triskele.stores.protocol import Document, Store
from triskele.types import Answer

KIND = "recall"
MOST = 5000
LONGEST = 1000


@dataclass(frozen=True, slots=True)
class Asked:
    """A past question; `project` None is all of them, `hits` are ids, best first."""

    text: str
    project: str | None
    hits: tuple[str, ...]


def note(store: Store, text: str, answer: Answer) -> None:
    """Keep a question that tells of no secret, and what it found; a store that is being written keeps nothing."""
    if not text.strip() or len(text) > LONGEST:
        return
    now = timestamps.now()
    hits = [hit.memory.id for hit in answer.hits]
    value = {"text": text, "project": answer.project, "at": timestamps.to_text(now), "hits": hits}
    key = f"{timestamps.to_micros(now):017d}-{secrets.token_hex(3)}"
    with suppress(StoreUnavailable):
        store.shelve(KIND, {key: Document(value, about=hits)}, most=MOST, hurry=True)


def entries(store: Store) -> list[Asked]:
    """Past questions, newest first."""
    values = reversed(store.shelved(KIND).values())
    return [Asked(value["text"], value["project"], tuple(value["hits"])) for value in values]
