"""The recall log: past queries with their hits; opt-in, local, and erased with the memories that it names."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime

from triskele.store.protocols import Document, OwnerStore
from triskele.text import timestamps
from triskele.types import Answer

KIND = "recall"
MOST = 5000
LONGEST = 1000


@dataclass(frozen=True, slots=True)
class LoggedQuery:
    """A past query; `project` None means all projects, `hits` are ids, best first."""

    text: str
    project: str | None
    hits: tuple[str, ...]


def note(store: OwnerStore, text: str, answer: Answer, at: datetime) -> None:
    """Log a query and its hits; a busy or read-only store refuses it."""
    if not text.strip() or len(text) > LONGEST:
        return
    hits = [hit.memory.id for hit in answer.hits]
    value = {"text": text, "project": answer.project, "at": timestamps.to_text(at), "hits": hits}
    key = f"{timestamps.to_micros(at):017d}-{secrets.token_hex(3)}"
    store.documents.put(KIND, {key: Document(value, about=hits)}, most=MOST, durable=False)


def entries(store: OwnerStore) -> list[LoggedQuery]:
    """Past queries, newest first."""
    values = reversed(store.documents.all(KIND).values())
    return [LoggedQuery(value["text"], value["project"], tuple(value["hits"])) for value in values]
