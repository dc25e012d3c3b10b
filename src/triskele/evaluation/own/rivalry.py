"""Two models over the same memories: the one in force and a rival, on judged questions and on past ones."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from triskele.curation import recall_log
from triskele.engine import Engine
from triskele.evaluation.own.gates import Gate, compare
from triskele.evaluation.own.ground import OwnGround, Step, quietly
from triskele.evaluation.own.judged import judged_set
from triskele.evaluation.own.measuring import NOW, may_judge, measure, own_arm, require_extra
from triskele.evaluation.own.questions import Question, make
from triskele.evaluation.own.tuning import LEAST_QUESTIONS
from triskele.index.semantic import SemanticIndex

MOST_PAST = 200
_TOP = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Rivalry:
    """How a rival did; `gate` is None where too few questions are judged, `shared` where none was ever asked.

    `shared` is the share of the first ten hits of past questions that both models find.
    """

    questions: int
    gate: Gate | None
    past: int
    shared: float | None

    @property
    def is_not_worse(self) -> bool:
        """Whether the judged questions say so."""
        return self.gate is not None and self.gate.passed

    def evidence(self) -> dict[str, Any]:
        """The figures, as they are kept with the switch."""
        return asdict(self)


def rivalry(engine: Engine, rival: SemanticIndex, step: Step = quietly) -> Rivalry:
    """Ask both models the same questions."""
    require_extra()
    now = own_arm(NOW, engine)
    here, there = OwnGround(engine, step), OwnGround(engine, step, rival=rival)
    judged = may_judge(judged_set(here), [now])
    gate = None
    if len(judged.questions) >= LEAST_QUESTIONS:
        before, after = (measure(ground, now, judged, step).ranked for ground in (here, there))
        gate = compare(judged, before, after, improve=False)
    past = _past(engine)
    return Rivalry(questions=len(judged.questions), gate=gate, past=len(past), shared=_shared(here, there, past, step))


def _past(engine: Engine) -> list[Question]:
    asked = {(each.text, each.project): each for each in recall_log.entries(engine.store)}
    return [make(each.text, "past", "recall log", project=each.project) for each in list(asked.values())[:MOST_PAST]]


def _shared(here: OwnGround, there: OwnGround, past: list[Question], step: Step) -> float | None:
    if not past:
        return None
    shares = []
    for done, question in enumerate(past, start=1):
        first, second = (set(ground.ranked(own_arm(NOW, here.engine), question)[:_TOP]) for ground in (here, there))
        shares.append(len(first & second) / len(first | second) if first | second else 1.0)
        step("past questions", done, len(past))
    return sum(shares) / len(shares)
