"""The user's questions and their grades, as stored."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from triskele.bench.datasets import UNRANKED_TYPES, BenchQuery, Qrels
from triskele.bench.harness import OwnHarness
from triskele.engine.local import LocalEngine
from triskele.store.owner import OwnerStore
from triskele.store.values import Document

QUESTION, LABEL = "question", "label"
EXACT, PARAPHRASE, MULTI_HOP, PROMPT = "exact", "paraphrase", "multi-hop", "prompt"
TYPES = (EXACT, PARAPHRASE, MULTI_HOP)
# What a question was made from, and may therefore not judge.
FROM_WORDS, FROM_LINKS = "words", "links"
# 0 unrelated, 1 related, 2 answers in part, 3 answers.
GRADES = (0, 1, 2, 3)
# From this grade on a memory counts as an answer.
ANSWERS = 2
HAND = "hand"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnQuestion:
    """A question with its origin and the arms it may not judge."""

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

    @property
    def is_waiting(self) -> bool:
        """Whether a judge still has to grade it."""
        return self.judged is None and self.type not in UNRANKED_TYPES

    def to_json(self) -> dict[str, Any]:
        """The question as plain values."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def make_question(text: str, type: str, generator: str, *, project: str | None = None, **details: Any) -> OwnQuestion:
    """A question with an id from its words and project."""
    words = " ".join(text.split())
    digest = hashlib.sha256(f"{project}\n{words.casefold()}".encode()).hexdigest()[:12]
    question = OwnQuestion(id=digest, text=words, type=type, generator=generator, project=project, **details)
    return replace(question, about=question.about or question.sources)


def save_questions(store: OwnerStore, questions: Iterable[OwnQuestion]) -> None:
    """Keep questions; one with a stored id replaces the stored one."""
    store.documents.put(QUESTION, {each.id: _document(each) for each in questions})


def delete_questions(store: OwnerStore, ids: Iterable[str]) -> None:
    """Delete questions."""
    store.documents.delete(QUESTION, ids)


def _document(question: OwnQuestion) -> Document:
    value = question.to_json()
    del value["id"]
    return Document(value, about=question.about)


def _question(id: str, value: dict[str, Any]) -> OwnQuestion:
    listed = {name: tuple(value[name]) for name in ("sources", "about", "circular")}
    return OwnQuestion(id=id, **{**value, **listed})


@dataclass(frozen=True, slots=True)
class Label:
    """The grade of one memory for one question by one judge."""

    question: str
    memory: str
    grade: int
    by: str = HAND

    @property
    def pair(self) -> tuple[str, str]:
        """The question and the memory."""
        return self.question, self.memory


Labels = dict[tuple[str, str], Label]


def questions_of(engine: LocalEngine) -> dict[str, OwnQuestion]:
    """Every question by its id."""
    return {id: _question(id, value) for id, value in engine.store.documents.all(QUESTION).items()}


@dataclass(frozen=True, slots=True)
class JudgingState:
    """Counts of questions, judged and waiting ones, and labels by judge."""

    questions: int
    judged: int
    waiting: int
    labels: Mapping[str, int]


def judging_state(engine: LocalEngine) -> JudgingState:
    """Count the questions and labels of a memory."""
    questions = questions_of(engine).values()
    return JudgingState(
        questions=len(questions),
        judged=sum(question.judged is not None for question in questions),
        waiting=sum(question.is_waiting for question in questions),
        labels=dict(Counter(label.by for label in load_labels(engine.store).values())),
    )


def load_labels(store: OwnerStore) -> Labels:
    """Every label by question and memory."""
    labels = (Label(**value) for value in store.documents.all(LABEL).values())
    return {label.pair: label for label in labels}


def save_labels(store: OwnerStore, labels: Iterable[Label], questions: Mapping[str, OwnQuestion]) -> None:
    """Keep labels, one per pair, erased with their question's memories."""
    documents = {
        _key(label.pair): Document(asdict(label), about=[label.memory, *questions[label.question].about])
        for label in labels
    }
    store.documents.put(LABEL, documents)


def delete_labels(store: OwnerStore, pairs: Iterable[tuple[str, str]]) -> None:
    """Delete labels."""
    store.documents.delete(LABEL, map(_key, pairs))


def _key(pair: tuple[str, str]) -> str:
    return ":".join(pair)


@dataclass(frozen=True, slots=True)
class JudgedSet:
    """Judged questions with an answer among memories in use, by id."""

    questions: tuple[OwnQuestion, ...]
    qrels: Qrels
    left_out: dict[str, int]

    @property
    def ids(self) -> list[str]:
        """The ids of the questions."""
        return [question.id for question in self.questions]

    def only(self, holds: Callable[[OwnQuestion], bool], reason: str) -> JudgedSet:
        """Keep questions that satisfy a condition; count others by reason."""
        questions = tuple(question for question in self.questions if holds(question))
        gone = len(self.questions) - len(questions)
        return replace(self, questions=questions, left_out=self.left_out | ({reason: gone} if gone else {}))

    def queries(self) -> list[BenchQuery]:
        """The questions as queries of a benchmark."""
        return [BenchQuery(each.id, each.text, each.type, each.project) for each in self.questions]

    def sha256(self) -> str:
        """A digest of these questions with these labels."""
        values = [[each.id, sorted(self.qrels[each.id].items())] for each in self.questions]
        return hashlib.sha256(json.dumps(values).encode()).hexdigest()


def judged_set(harness: OwnHarness) -> JudgedSet:
    """The judged questions of a store, with labels of memories in use."""
    qrels: dict[str, dict[str, int]] = {}
    for label in load_labels(harness.engine.store).values():
        if label.memory in harness.memories:
            qrels.setdefault(label.question, {})[label.memory] = label.grade
    left_out: Counter[str] = Counter()
    questions: list[OwnQuestion] = []
    for question in questions_of(harness.engine).values():
        reason = _reason_to_leave_out(question, list(qrels.get(question.id, {}).values()))
        if reason is None:
            questions.append(question)
        else:
            left_out[reason] += 1
    return JudgedSet(tuple(questions), qrels, dict(left_out))


def _reason_to_leave_out(question: OwnQuestion, grades: Sequence[int]) -> str | None:
    if question.type in UNRANKED_TYPES:
        return "unanswerable"
    if question.judged is None:
        return "not judged yet"
    return None if any(grade > 0 for grade in grades) else "no memory in use answers"
