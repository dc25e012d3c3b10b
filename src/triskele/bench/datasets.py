"""Data sets as values: documents, queries, labels, and windows of documents."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from triskele import validation
from triskele.config import MemorySettings
from triskele.errors import BadInput
from triskele.text import timestamps
from triskele.types import Role

# Queries of these types have no relevant document, so they stay out of ranked metrics.
UNRANKED_TYPES = frozenset({"adversarial", "unanswerable", "abstention", "idle"})
DEFAULT_TYPE = "all"
MAX_CHARACTERS = MemorySettings().max_characters
DEFAULT_IMPORTANCE = 0.5
# 7:31 pm on 21 January, 2022 · 29.12.2023, 22:42:04 · March-15-2024 · 2023/05/20 (Sat) 00:42
_DATE_FORMS = ("%I:%M %p on %d %B, %Y", "%d.%m.%Y, %H:%M:%S", "%B-%d-%Y", "%Y/%m/%d (%a) %H:%M")

Qrels = Mapping[str, Mapping[str, int]]
Half = Literal["tune", "test"]


@dataclass(frozen=True, slots=True)
class BenchDocument:
    """A text to retrieve, with its position in its session."""

    id: str
    text: str
    scope: str | None
    session: str | None
    position: int
    meta: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BenchQuery:
    """A query; a scope limits it to documents of that scope."""

    id: str
    text: str
    type: str
    scope: str | None
    meta: Mapping[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class Dataset:
    """Documents, queries and labels, with a digest of their files.

    `about` is the content of the set's manifest, `skipped` counts labels that cannot be used, by reason.
    """

    name: str
    documents: tuple[BenchDocument, ...]
    queries: tuple[BenchQuery, ...]
    qrels: Qrels
    sha256: str
    about: Mapping[str, Any] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)

    def ranked(self) -> tuple[BenchQuery, ...]:
        """Queries for ranked metrics: answerable, with a relevant document."""
        answered = {query for query, grades in self.qrels.items() if any(grade > 0 for grade in grades.values())}
        return tuple(q for q in self.queries if q.type not in UNRANKED_TYPES and q.id in answered)

    def unranked(self) -> tuple[BenchQuery, ...]:
        """The queries that have no relevant document by their type."""
        return tuple(q for q in self.queries if q.type in UNRANKED_TYPES)

    def left_out(self) -> dict[str, int]:
        """How many queries stay out of the ranked metrics, by reason."""
        unanswerable = len(self.unranked())
        return {"unanswerable": unanswerable, "unlabelled": len(self.queries) - len(self.ranked()) - unanswerable}


def half(query: BenchQuery) -> Half:
    """The fixed half of a query; queries of one scope stay together."""
    key = query.id if query.scope is None else query.scope
    return "test" if hashlib.sha256(key.encode()).digest()[0] & 1 else "tune"


def strata(queries: Iterable[BenchQuery]) -> dict[str, list[int]]:
    """The positions of the queries of each type, types in alphabetical order."""
    positions: dict[str, list[int]] = {}
    for position, query in enumerate(queries):
        positions.setdefault(query.type, []).append(position)
    return dict(sorted(positions.items()))


@dataclass(frozen=True, slots=True)
class Window:
    """A piece of a document as it is indexed."""

    document: str
    text: str
    scope: str | None
    session: str | None
    position: int | None
    importance: float
    created: datetime | None = None
    speaker: str | None = None
    role: Role | None = None


def windows(documents: Iterable[BenchDocument], limit: int = MAX_CHARACTERS) -> list[Window]:
    """Cut documents at sentence or word boundaries; empty ones have none."""
    rows: list[Window] = []
    positions: dict[tuple[str | None, str], int] = {}
    for document in documents:
        for text in _pieces(document.text, limit):
            position = None
            if document.session is not None:
                session = (document.scope, document.session)
                position = positions[session] = positions.get(session, -1) + 1
            details = (_importance(document), _created(document), *_said_by(document))
            rows.append(Window(document.id, text, document.scope, document.session, position, *details))
    return rows


def _pieces(text: str, limit: int) -> list[str]:
    if not text:
        return []
    return [text] if len(text) <= limit else validation.split_sentences(text, limit)


def _created(document: BenchDocument) -> datetime | None:
    """The date of a document, in ISO or a known form."""
    date = document.meta.get("created") or document.meta.get("date")
    if not isinstance(date, str):
        return None
    try:
        return timestamps.parse(date)
    except BadInput:
        pass
    for form in _DATE_FORMS:
        try:
            return datetime.strptime(date, form).replace(tzinfo=UTC)
        except ValueError:
            continue
    return None


def _said_by(document: BenchDocument) -> tuple[str | None, Role | None]:
    """The speaker and the role that a document names."""
    speaker, role = (document.meta.get(name) for name in ("speaker", "role"))
    return (
        validation.check_name(speaker, "the speaker") or None if isinstance(speaker, str) else None,
        validation.role_called(role) if isinstance(role, str) else None,
    )


def _importance(document: BenchDocument) -> float:
    importance = document.meta.get("importance")
    if isinstance(importance, bool) or not isinstance(importance, int | float) or not 0 <= importance <= 1:
        return DEFAULT_IMPORTANCE
    return float(importance)
