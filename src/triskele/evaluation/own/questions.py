"""Questions to one's own memories: what each is, who made it, and the shelf that they stand on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from triskele.stores.protocols import Document, OwnerStore

KIND = "question"
EXACT, PARAPHRASE, MULTI_HOP = "exact", "paraphrase", "multi-hop"
TYPES = (EXACT, PARAPHRASE, MULTI_HOP)
# What a question was made of, and may therefore not decide about.
FROM_WORDS, FROM_LINKS = "words", "links"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question with its origin; `circular` names what it may not judge, `judged` who labelled it."""

    id: str
    text: str
    type: str
    generator: str
    project: str | None = None
    sources: tuple[str, ...] = ()
    about: tuple[str, ...] = ()
    stratum: str = ""
    circular: tuple[str, ...] = ()
    judged: str | None = None


def make(text: str, type: str, generator: str, *, project: str | None = None, **details: Any) -> Question:
    """A question whose id follows from its words and place, so that the same one is never asked twice."""
    said = " ".join(text.split())
    digest = hashlib.sha256(f"{project}\n{said.casefold()}".encode()).hexdigest()[:12]
    made = Question(id=digest, text=said, type=type, generator=generator, project=project, **details)
    return replace(made, about=made.about or made.sources)


def load(store: OwnerStore) -> dict[str, Question]:
    """Every question by its id."""
    return {id: _question(id, value) for id, value in store.documents.all(KIND).items()}


def save(store: OwnerStore, questions: Iterable[Question]) -> None:
    """Keep questions over those of the same id."""
    store.documents.put(KIND, {each.id: _document(each) for each in questions})


def drop(store: OwnerStore, ids: Iterable[str]) -> None:
    """Take questions off the shelf."""
    store.documents.delete(KIND, ids)


def to_json(question: Question) -> dict[str, Any]:
    """A question as plain values."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(question).items()}


def _document(question: Question) -> Document:
    value = to_json(question)
    del value["id"]
    return Document(value, about=question.about)


def _question(id: str, value: dict[str, Any]) -> Question:
    listed = {name: tuple(value[name]) for name in ("sources", "about", "circular")}
    return Question(id=id, **{**value, **listed})
