"""Documents of any length as rows of memory size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from triskele import validation
from triskele.base import timestamps
from triskele.config import MemorySettings
from triskele.errors import BadInput
from triskele.evaluation.datasets import Document

MAX_CHARACTERS = MemorySettings().max_characters
DEFAULT_IMPORTANCE = 0.5
_SPOKEN_DATE = "%I:%M %p on %d %B, %Y"


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of a document as it is indexed; `position` counts the windows of its session."""

    document: str
    text: str
    scope: str | None
    session: str | None
    position: int | None
    importance: float
    created: datetime | None = None


def windows(documents: Iterable[Document], limit: int = MAX_CHARACTERS) -> list[Window]:
    """Every document cut at sentence or word borders; an empty one has no window."""
    found: list[Window] = []
    places: dict[tuple[str | None, str], int] = {}
    for document in documents:
        for text in _pieces(document.text, limit):
            position = None
            if document.session is not None:
                session = (document.scope, document.session)
                position = places[session] = places.get(session, -1) + 1
            importance, created = _importance(document), _created(document)
            found.append(Window(document.id, text, document.scope, document.session, position, importance, created))
    return found


def best_documents(rows: Iterable[tuple[int, float]], windows: Sequence[Window], depth: int) -> list[tuple[str, float]]:
    """The documents behind ranked rows, each with its best window's score; ties go by id."""
    scores: dict[str, float] = {}
    for row, score in rows:
        document = windows[row].document
        scores[document] = max(score, scores.get(document, score))
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:depth]


def _pieces(text: str, limit: int) -> list[str]:
    if not text:
        return []
    return [text] if len(text) <= limit else validation.split_sentences(text, limit)


def _created(document: Document) -> datetime | None:
    """The date that a document carries, in ISO form or as conversations are dated (7:31 pm on 21 January, 2022)."""
    given = document.meta.get("created") or document.meta.get("date")
    if not isinstance(given, str):
        return None
    try:
        return timestamps.parse(given)
    except BadInput:
        pass
    try:
        return datetime.strptime(given, _SPOKEN_DATE).replace(tzinfo=UTC)
    except ValueError:
        return None


def _importance(document: Document) -> float:
    given = document.meta.get("importance")
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= 1:
        return DEFAULT_IMPORTANCE
    return float(given)
