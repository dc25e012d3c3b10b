"""The gate: what recall does now against the run that was accepted, both under the labels of today."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from triskele.base import timestamps
from triskele.curation import adoption
from triskele.engine import Engine
from triskele.errors import BadInput
from triskele.evaluation import metrics
from triskele.evaluation.own.ground import OwnGround, Step, quietly
from triskele.evaluation.own.judged import JudgedSet, judged_set
from triskele.evaluation.own.labels import ANSWERS
from triskele.evaluation.own.measuring import NOW, Measured, may_judge, measure, own_arm, refuse_empty, require_extra
from triskele.stores.protocols import Document

if TYPE_CHECKING:
    from triskele.recall.fusion import Scores

KIND = "baseline"
_KEY = "accepted"
MAX_MRR_DROP = 0.02
MAX_RECALL_DROP = 0.02
LEAST_GAIN = 0.03
# A case passes when a memory of grade 2 or 3 is among its first five.
PASS_DEPTH = 5
IMPROVABLE = ("recall@5", "recall@10", "ndcg@10", "mrr", "map")
_TOLERANCE = 1e-9


Ranked = Mapping[str, list[str]]


@dataclass(frozen=True, slots=True)
class Check:
    """One condition with its figures in words."""

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The verdict over the present configuration; `broken` are the ids of cases that passed before and fail now."""

    checks: tuple[Check, ...]
    broken: tuple[str, ...]
    questions: int
    before: Mapping[str, Any]
    now: Mapping[str, Any]
    not_shared: int = 0
    accepted: str = ""
    adopted: bool = False

    @property
    def passed(self) -> bool:
        """Whether every condition holds."""
        return all(check.passed for check in self.checks)


def accept(engine: Engine, step: Step = quietly) -> dict[str, Any]:
    """Make what recall does now the baseline."""
    judged, measured = _measured_now(engine, step)
    value = {
        "at": timestamps.to_text(timestamps.now()),
        "ranked": measured.ranked,
        "plan": adoption.values_of(engine.plan_in_force()),
    }
    engine.store.documents.put(KIND, {_KEY: Document(value)})
    return {
        "at": value["at"],
        "plan": value["plan"],
        "overall": metrics.summary(measured.scores, range(len(judged.ids))),
    }


def gate(engine: Engine, *, improve: bool = False, step: Step = quietly) -> Gate:
    """Compare what recall does now with the baseline on the questions that both know."""
    baseline = engine.store.documents.get(KIND, _KEY)
    if baseline is None:
        raise BadInput("no baseline to compare with: accept the present state with `triskele eval gate --accept`")
    judged, measured = _measured_now(engine, step)
    before: Ranked = baseline["ranked"]
    shared = judged.only(lambda question: question.id in before, "judged after the baseline was accepted")
    if not shared.questions:
        raise BadInput("no question of the baseline is judged any more: accept anew with `triskele eval gate --accept`")
    return replace(
        compare(shared, before, measured.ranked, improve=improve),
        not_shared=len(judged.ids) - len(shared.ids),
        accepted=baseline["at"],
        adopted=engine.adopted() is not None,
    )


def compare(judged: JudgedSet, before: Ranked, now: Ranked, *, improve: bool) -> Gate:
    """Two rankings of the same questions under the same labels."""
    ids = judged.ids
    then, today = (metrics.evaluate(ids, judged.qrels, {id: ranked[id] for id in ids}) for ranked in (before, now))
    broken = tuple(id for id in ids if passes(before[id], judged.qrels[id]) and not passes(now[id], judged.qrels[id]))
    return Gate(
        checks=tuple(_checks(then, today, broken, improve)),
        broken=broken,
        questions=len(ids),
        before=metrics.summary(then, range(len(ids))),
        now=metrics.summary(today, range(len(ids))),
    )


def passes(ranked: list[str], grades: Mapping[str, int]) -> bool:
    """Whether an answer is among the first five."""
    return any(grades.get(id, 0) >= ANSWERS for id in ranked[:PASS_DEPTH])


def _measured_now(engine: Engine, step: Step) -> tuple[JudgedSet, Measured]:
    require_extra()
    ground, now = OwnGround(engine, step), own_arm(NOW, engine)
    judged = may_judge(judged_set(ground), [now])
    refuse_empty(judged)
    ground.recite(judged.questions, step)
    return judged, measure(ground, now, judged, step)


def _checks(then: Scores, now: Scores, broken: tuple[str, ...], improve: bool) -> Iterator[Check]:
    before, after = float(then["mrr"].mean()), float(now["mrr"].mean())
    gain = _gain(before, after)
    detail = f"{before:.4f} → {after:.4f}, {_change(gain)}; a drop of at most {MAX_MRR_DROP * 100:.0f} % is allowed"
    yield Check("MRR", gain >= -MAX_MRR_DROP - _TOLERANCE, detail)
    before, after = float(then["recall@10"].mean()), float(now["recall@10"].mean())
    detail = f"{before:.4f} → {after:.4f}, {after - before:+.4f}; a drop of at most {MAX_RECALL_DROP} is allowed"
    yield Check("recall@10", before - after <= MAX_RECALL_DROP + _TOLERANCE, detail)
    detail = f"{len(broken)} had an answer among the first {PASS_DEPTH} before and have none now"
    yield Check("passing cases", not broken, detail)
    if improve:
        gains = {name: _gain(float(then[name].mean()), float(now[name].mean())) for name in IMPROVABLE}
        best = max(gains, key=lambda name: gains[name])
        detail = f"best is {best}, {_change(gains[best])}; one metric must gain {LEAST_GAIN * 100:.0f} %"
        yield Check("improvement", gains[best] >= LEAST_GAIN - _TOLERANCE, detail)


def _gain(before: float, after: float) -> float:
    return (after - before) / before if before else float(after > 0)


def _change(share: float) -> str:
    return f"{share * 100:+.1f} %"
