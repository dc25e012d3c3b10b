"""Judging by hand: the pooled candidates of every arm, blind and shuffled, one grade at a time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from triskele.evaluation.datasets import UNRANKED_TYPES
from triskele.evaluation.own import labels, questions
from triskele.evaluation.own.ground import OwnGround
from triskele.evaluation.own.labels import Label
from triskele.evaluation.own.measuring import NOW, own_arm
from triskele.evaluation.own.questions import MULTI_HOP, Question
from triskele.evaluation.own.sampling import is_open
from triskele.types import Memory

POOLED = ("fts", "lexical", "dense", "rrf", "default", NOW)
POOL_DEPTH = 10


def pool(ground: OwnGround, question: Question, seed: int) -> list[str]:
    """What any arm brings among its first ten, and what the question was made of, in an order that tells nothing."""
    arms = [own_arm(name, ground.engine) for name in POOLED]
    found = {id for one in arms for id in ground.ranked(one, question)[:POOL_DEPTH]}
    ids = sorted((found | set(question.sources)) & ground.memories.keys())
    random.Random(f"{seed} {question.id}").shuffle(ids)
    return ids


def to_export(ground: OwnGround, seed: int) -> Iterator[dict[str, str]]:
    """Pairs for an outside judge; nothing private leaves, and multi-hop questions are judged by hand."""
    for question in questions.load(ground.engine.store).values():
        named = (ground.memories.get(id) for id in question.about)
        if question.type == MULTI_HOP or any(memory is not None and not is_open(memory) for memory in named):
            continue
        for memory in (ground.memories[id] for id in pool(ground, question, seed)):
            if is_open(memory):
                yield {
                    "question": question.id,
                    "text": question.text,
                    "memory": memory.id,
                    "content": memory.content,
                }


@dataclass(frozen=True, slots=True)
class Card:
    """What the judge sees: one question, one candidate, and how far it has come."""

    question: Question
    memory: Memory
    place: int
    places: int
    questions_left: int


class Sitting:
    """One sitting of a judge; every grade is durable when `grade` returns, and undo reaches back to its start."""

    def __init__(self, ground: OwnGround, seed: int) -> None:
        self._ground = ground
        self._seed = seed
        self._store = ground.engine.store
        self._questions = questions.load(self._store)
        self._labels = labels.load(self._store)
        self._queue = [id for id, each in self._questions.items() if is_waiting(each)]
        self._at = 0
        self._pools: dict[str, list[str]] = {}
        self._trail: list[tuple[str, str]] = []

    @property
    def given(self) -> int:
        """How many grades this sitting has given."""
        return len(self._trail)

    def card(self) -> Card | None:
        """The next pair to judge; None when there is none left."""
        while self._at < len(self._queue):
            id = self._queue[self._at]
            waiting = self._waiting(id)
            if waiting:
                ids, memory = self._pool(id), self._ground.memories[waiting[0]]
                left = len(self._queue) - self._at
                return Card(self._questions[id], memory, ids.index(memory.id) + 1, len(ids), left)
            self._mark(id, labels.HAND)
            self._at += 1
        return None

    def grade(self, grade: int) -> None:
        """Give the present pair its grade."""
        card = self._present()
        label = Label(card.question.id, card.memory.id, grade)
        labels.save(self._store, [label], self._questions)
        self._labels[label.pair] = label
        self._trail.append(label.pair)
        if not self._waiting(label.question):
            self._mark(label.question, labels.HAND)

    def undo(self) -> bool:
        """Take the last grade back and return to its pair; False where this sitting has given none."""
        if not self._trail:
            return False
        pair = self._trail.pop()
        labels.remove(self._store, [pair])
        del self._labels[pair]
        self._mark(pair[0], None)
        self._at = self._queue.index(pair[0])
        return True

    def skip(self) -> None:
        """Leave the present question for another sitting."""
        self._present()
        self._at += 1

    def _present(self) -> Card:
        card = self.card()
        assert card is not None, "there is nothing left to judge"
        return card

    def _pool(self, id: str) -> list[str]:
        if id not in self._pools:
            self._pools[id] = pool(self._ground, self._questions[id], self._seed)
        return self._pools[id]

    def _waiting(self, id: str) -> list[str]:
        return [memory for memory in self._pool(id) if (id, memory) not in self._labels]

    def _mark(self, id: str, by: str | None) -> None:
        if self._questions[id].judged != by:
            self._questions[id] = replace(self._questions[id], judged=by)
            questions.save(self._store, [self._questions[id]])


def is_waiting(question: Question) -> bool:
    """Whether a question still wants a judge."""
    return question.judged is None and question.type not in UNRANKED_TYPES
