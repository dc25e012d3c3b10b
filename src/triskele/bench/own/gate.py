"""Compare two rankings of the same questions under today's labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from triskele.bench import metrics
from triskele.bench.arms import Arm
from triskele.bench.harness import OwnHarness, measure_arm
from triskele.bench.measure import Measured, Progress, quiet
from triskele.bench.own.questions import ANSWERS, JudgedSet, OwnQuestion, judged_set, make_question
from triskele.bench.own.run import MAX_MRR_DROP, MIN_QUESTIONS, NOW, judgeable, measure_own, own_arm
from triskele.curation import measures
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput
from triskele.recall import plan as plans
from triskele.store.values import Document
from triskele.text import timestamps

if TYPE_CHECKING:
    from triskele.bench.metrics import Scores
    from triskele.index.local import ModelIndexes

BASELINE = "baseline"
_KEY = "accepted"
MAX_RECALL_DROP = 0.02
MIN_GAIN = 0.03
# A question passes if a memory of grade 2 or 3 is among its first five.
PASS_DEPTH = 5
IMPROVABLE = ("recall@5", "recall@10", "ndcg@10", "mrr", "map")
MAX_PAST_QUESTIONS = 200
_TOP = 10
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
    """Result of the gate; `broken` questions passed before and fail now."""

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


def accept(engine: LocalEngine, progress: Progress = quiet) -> dict[str, Any]:
    """Keep the present ranking as the baseline."""
    judged, measured = _measured_now(engine, progress)
    value = {"at": timestamps.to_text(timestamps.now()), "plan": plans.values_of(engine.plan_in_force())}
    engine.store.documents.put(BASELINE, {_KEY: Document({**value, "ranked": measured.ranked()})})
    return {**value, "overall": metrics.summary(measured.scores, range(len(judged.ids)))}


def accepted_at(engine: LocalEngine) -> str:
    """When the baseline was accepted; empty without one."""
    baseline = engine.store.documents.all(BASELINE).get(_KEY)
    return str(baseline["at"]) if baseline else ""


def gate(engine: LocalEngine, *, improve: bool = False, progress: Progress = quiet) -> Gate:
    """Compare the present ranking with the baseline on shared questions."""
    baseline = engine.store.documents.all(BASELINE).get(_KEY)
    if baseline is None:
        raise BadInput("no baseline to compare with: accept the present state with `triskele eval gate --accept`")
    judged, measured = _measured_now(engine, progress)
    before: Ranked = baseline["ranked"]
    shared = judged.only(lambda question: question.id in before, "judged after the baseline was accepted")
    if not shared.questions:
        raise BadInput(
            "no question of the baseline is judged now: accept a new baseline with `triskele eval gate --accept`"
        )
    return replace(
        compare_rankings(shared, before, measured.ranked(), improve=improve),
        not_shared=len(judged.ids) - len(shared.ids),
        accepted=baseline["at"],
        adopted=engine.adopted() is not None,
    )


def compare_rankings(judged: JudgedSet, before: Ranked, now: Ranked, *, improve: bool) -> Gate:
    """Check two rankings of the same questions under the same labels."""
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


def _measured_now(engine: LocalEngine, progress: Progress) -> tuple[JudgedSet, Measured]:
    now = own_arm(NOW, engine)
    with OwnHarness(engine, progress) as harness:
        judged = judgeable(judged_set(harness), [now])
        return judged, measure_own(harness, [now], judged, progress)[NOW]


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
        detail = f"best is {best}, {_change(gains[best])}; one metric must gain {MIN_GAIN * 100:.0f} %"
        yield Check("improvement", gains[best] >= MIN_GAIN - _TOLERANCE, detail)


def _gain(before: float, after: float) -> float:
    return (after - before) / before if before else float(after > 0)


def _change(share: float) -> str:
    return f"{share * 100:+.1f} %"


# Two models


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelComparison:
    """Another model against the current; `gate` is None with few questions.

    `shared` is the share of the first ten hits of past questions that both models retrieve, None without past ones.
    """

    questions: int
    gate: Gate | None
    past: int
    shared: float | None

    @property
    def is_not_worse(self) -> bool:
        """Whether the judged questions show no loss."""
        return self.gate is not None and self.gate.passed

    def evidence(self) -> dict[str, Any]:
        """The figures as they are kept with the switch."""
        return asdict(self)


def compare_models(engine: LocalEngine, model: ModelIndexes, progress: Progress = quiet) -> ModelComparison:
    """Ask the current and another model the same questions."""
    current, other = OwnHarness(engine, progress), OwnHarness(engine, progress, model=model)
    # A plan that was adopted with one of them rests with the other.
    arms = own_arm(NOW, engine), own_arm(NOW, engine, model)
    judged = judgeable(judged_set(current), arms)
    gate = None
    if len(judged.questions) >= MIN_QUESTIONS:
        queries, qrels = judged.queries(), judged.qrels
        ranked = [
            measure_arm(harness, arm, queries, qrels, progress=progress).ranked()
            for harness, arm in zip((current, other), arms, strict=True)
        ]
        gate = compare_rankings(judged, *ranked, improve=False)
    past = _past_questions(engine)
    shared = _shared_hits((current, other), arms, past, progress)
    return ModelComparison(questions=len(judged.questions), gate=gate, past=len(past), shared=shared)


def _past_questions(engine: LocalEngine) -> list[OwnQuestion]:
    past = list({(each.text, each.project): each for each in measures.logged_queries(engine.store)}.values())
    return [make_question(each.text, "past", "recall log", project=each.project) for each in past[:MAX_PAST_QUESTIONS]]


def _shared_hits(
    harnesses: tuple[OwnHarness, OwnHarness], arms: tuple[Arm, Arm], past: list[OwnQuestion], progress: Progress
) -> float | None:
    if not past:
        return None
    both, shares = tuple(zip(harnesses, arms, strict=True)), []
    for done, question in enumerate(past, start=1):
        first, second = (set(each.ids(arm, question.text, question.project)[:_TOP]) for each, arm in both)
        shares.append(len(first & second) / len(first | second) if first | second else 1.0)
        progress("past questions", done, len(past))
    return sum(shares) / len(shares)
