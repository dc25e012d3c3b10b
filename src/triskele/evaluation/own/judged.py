"""The judged questions: those that count, their labels on memories that still stand, and why others do not."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from triskele.evaluation.datasets import UNRANKED_TYPES, BenchQuery, Qrels
from triskele.evaluation.own import labels, questions
from triskele.evaluation.own.ground import OwnGround
from triskele.evaluation.own.questions import Question


@dataclass(frozen=True, slots=True)
class JudgedSet:
    """Questions with an answer among the memories in use, in the order of their ids."""

    questions: tuple[Question, ...]
    qrels: Qrels
    left_out: dict[str, int]

    @property
    def ids(self) -> list[str]:
        """The ids of the questions."""
        return [question.id for question in self.questions]

    def only(self, holds: Callable[[Question], bool], reason: str) -> JudgedSet:
        """The questions for which something holds; how many go is noted under the reason."""
        kept = tuple(question for question in self.questions if holds(question))
        gone = len(self.questions) - len(kept)
        return replace(self, questions=kept, left_out=self.left_out | ({reason: gone} if gone else {}))

    def strata(self) -> dict[str, list[int]]:
        """The places of the questions of each type."""
        types = sorted({question.type for question in self.questions})
        return {type: [at for at, each in enumerate(self.questions) if each.type == type] for type in types}

    def queries(self) -> list[BenchQuery]:
        """The questions as a benchmark knows them."""
        return [BenchQuery(each.id, each.text, each.type, each.project) for each in self.questions]

    def sha256(self) -> str:
        """A name for exactly these questions with these labels."""
        told = [[each.id, sorted(self.qrels[each.id].items())] for each in self.questions]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def judged_set(ground: OwnGround) -> JudgedSet:
    """What the store's shelf and its memories give now."""
    qrels: dict[str, dict[str, int]] = {}
    for label in labels.load(ground.engine.store).values():
        if label.memory in ground.memories:
            qrels.setdefault(label.question, {})[label.memory] = label.grade
    left_out: Counter[str] = Counter()
    kept: list[Question] = []
    for question in questions.load(ground.engine.store).values():
        reason = _reason(question, list(qrels.get(question.id, {}).values()))
        if reason is None:
            kept.append(question)
        else:
            left_out[reason] += 1
    return JudgedSet(tuple(kept), qrels, dict(left_out))


def _reason(question: Question, grades: Sequence[int]) -> str | None:
    """Why a question does not count; None where it does."""
    if question.type in UNRANKED_TYPES:
        return "unanswerable"
    if question.judged is None:
        return "not judged yet"
    return None if any(grade > 0 for grade in grades) else "no memory in use answers"
