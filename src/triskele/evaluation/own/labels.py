"""Grades that somebody gave to pairs of question and memory: 0 nothing, 1 related, 2 answers in part, 3 answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from triskele.engine import Engine
from triskele.errors import BadInput
from triskele.evaluation.own import lines
from triskele.evaluation.own.questions import Question
from triskele.stores.protocols import Document, OwnerStore

KIND = "label"
GRADES = (0, 1, 2, 3)
# From here on a memory counts as an answer.
ANSWERS = 2
HAND = "hand"


@dataclass(frozen=True, slots=True)
class Label:
    """One grade by one judge."""

    question: str
    memory: str
    grade: int
    by: str = HAND

    @property
    def pair(self) -> tuple[str, str]:
        """What was judged."""
        return self.question, self.memory


Labels = dict[tuple[str, str], Label]


def load(store: OwnerStore) -> Labels:
    """Every label by what it judges."""
    found = (Label(**value) for value in store.documents.all(KIND).values())
    return {label.pair: label for label in found}


def save(store: OwnerStore, given: Iterable[Label], questions: Mapping[str, Question]) -> None:
    """Keep labels over those of the same pair; each goes with the memories of its question."""
    store.documents.put(
        KIND,
        {
            _key(label.pair): Document(asdict(label), about=[label.memory, *questions[label.question].about])
            for label in given
        },
    )


def remove(store: OwnerStore, pairs: Iterable[tuple[str, str]]) -> None:
    """Take labels back."""
    store.documents.delete(KIND, map(_key, pairs))


def read_file(path: Path, engine: Engine, questions: Mapping[str, Question], *, by: str) -> list[Label]:
    """The labels of a file; a question may be named by its id or its words, a memory by the beginning of its id."""
    by_words = {question.text.casefold(): question.id for question in questions.values()}
    found: Labels = {}
    for place, row in lines.read(path):
        named = lines.text_of(row, "question", place)
        question = named if named in questions else by_words.get(" ".join(named.split()).casefold())
        if question is None:
            raise BadInput(f"{place}: no question {named[:60]!r} (see `triskele eval build --json`)")
        grade = row.get("grade")
        if isinstance(grade, bool) or grade not in GRADES:
            raise BadInput(f"{place}: a grade is 0, 1, 2 or 3, not {grade!r}")
        label = Label(question, named_memory(lines.text_of(row, "memory", place), engine, place), int(grade), by)
        found[label.pair] = label
    if not found:
        raise BadInput(f"{path} holds no labels")
    return list(found.values())


def named_memory(named: str, engine: Engine, place: str) -> str:
    """The id that somebody wrote into a file, whole or in part."""
    try:
        return engine.resolve(named)
    except BadInput as error:
        raise BadInput(f"{place}: {error}") from error


def _key(pair: tuple[str, str]) -> str:
    return ":".join(pair)
