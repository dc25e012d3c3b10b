"""Tune the plan on judged questions by nested cross-validation."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from triskele.bench import comparison
from triskele.bench.arms import Arm, arm
from triskele.bench.datasets import strata
from triskele.bench.harness import OwnHarness
from triskele.bench.measure import Progress, quiet
from triskele.bench.own.questions import FROM_WORDS, JudgedSet, OwnQuestion, judged_set
from triskele.bench.own.run import MAX_MRR_DROP, MIN_QUESTIONS, NOW, measure_own, own_arm
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput, Unavailable
from triskele.recall import plan as plans
from triskele.recall.plan import Plan, adopt, values_of

Table = Mapping[str, NDArray[np.float64]]
FOLDS = 5
BUDGET = 16
DECIDES = "ndcg@10"
# The most promising plans first, for a small budget.
GRID = (
    "default:lexical=0.2:dense=0.4:late=0.4",
    "default:lexical=0.3:dense=0.3:late=0.4",
    "default:lexical=0.1:dense=0.3:late=0.6",
    "default:lexical=0.1:dense=0.6:late=0.3",
    "default:lexical=0.5:dense=0.2:late=0.3",
    "cc:alpha=0.8:rerank=late",
    "rrf:k=60:rerank=late",
    "default:graph=0",
    "default:rescored=50",
    "default:graph=0.5",
    "default:lexical=0.2:dense=0.6:late=0.2",
    "default:lexical=0.2:dense=0.2:late=0.6",
    "default:lexical=0.4:dense=0.4:late=0.2",
    "cc:alpha=0.6:rerank=late",
    "rrf:k=20:rerank=late",
    "default:rescored=150",
    "default:lexical=0.05:dense=0.15:late=0.8",
    "default:lexical=0.05:dense=0.45:late=0.5",
    "default:lexical=0.7:dense=0.1:late=0.2",
    "cc:alpha=0.7:rerank=late",
    "cc:alpha=0.5:rerank=late",
    "rrf:k=10:rerank=late",
    "default:lexical=0.3:dense=0.7:late=0",
    "cc:alpha=0.8:rerank=off",
    "cc:alpha=0.6:rerank=off",
    "rrf:k=60:rerank=off",
    "rrf:k=20:rerank=off",
    "rrf:k=100:rerank=late",
    "cc:alpha=0.9:rerank=late",
    "cc:alpha=0.4:rerank=late",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningResult:
    """A tuning with its evidence; `plan` is the chosen one."""

    adopted: bool
    reason: str
    questions: int
    left_out: Mapping[str, int]
    configurations: int = 0
    folds: int = FOLDS
    chosen: str | None = None
    plan: Mapping[str, Any] | None = None
    present: Mapping[str, Any] | None = None
    delta: float | None = None
    ci95: tuple[float, float] | None = None
    p: float | None = None
    mrr: tuple[float, float] | None = None
    by_type: Mapping[str, float] | None = None
    by_fold: Sequence[str] = ()
    fingerprint: str | None = None
    seed: int = 0


def tune(engine: LocalEngine, *, budget: int = BUDGET, seed: int = 7, progress: Progress = quiet) -> TuningResult:
    """Search a better plan; adopt it if held-out questions exclude a loss."""
    if not 1 <= budget <= len(GRID):
        raise BadInput(f"budget must be between 1 and {len(GRID)} configurations, not {budget}")
    harness = OwnHarness(engine, progress)
    if harness.fingerprint is None:
        raise Unavailable("there is nothing to tune without a model: recall uses words only")
    judged = judged_set(harness).only(
        lambda question: FROM_WORDS not in question.circular, "made of the memories' own words: would favour words"
    )
    if len(judged.questions) < MIN_QUESTIONS:
        return _too_few(judged)
    arms = configurations(engine, budget)
    scores_of = {name: one.scores for name, one in measure_own(harness, arms, judged, progress).items()}
    result = decide(
        {name: scores[DECIDES] for name, scores in scores_of.items()},
        {name: scores["mrr"] for name, scores in scores_of.items()},
        judged,
        arms,
        seed,
    )
    result = replace(result, fingerprint=harness.fingerprint)
    if result.adopted:
        plan = next(one.plan for one in arms if one.name == result.chosen)
        assert plan is not None
        evidence = asdict(result)
        adopt(engine.store, plan, fingerprint=harness.fingerprint, questions=result.questions, evidence=evidence)
    return result


def roll_back(engine: LocalEngine) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Revert the adopted plan; return it and the plan then in force."""
    taken, present = plans.roll_back(engine.store)
    return values_of(taken.plan), values_of(present.plan) if present else None


def configurations(engine: LocalEngine, budget: int) -> list[Arm]:
    """The present plan and plans of the grid up to the budget."""
    now = own_arm(NOW, engine)
    shipped = Arm(name="shipped", about="what recall does as shipped", plan=Plan())
    plans = {one.name: one.plan for one in (shipped, *map(arm, GRID)) if one.plan is not None}
    candidates = [Arm(name=name, about=name, plan=plan) for name, plan in plans.items() if plan != now.plan]
    return [now, *candidates[:budget]]


def decide(quality: Table, mrr: Table, judged: JudgedSet, arms: Sequence[Arm], seed: int) -> TuningResult:
    """Choose plans by fold, score them held out, decide on the gain."""
    folds = split(judged, seed)
    everywhere = np.arange(len(judged.questions))
    by_fold = [_best(quality, np.setdiff1d(everywhere, fold)) for fold in folds]
    gains, before, after = (np.zeros(len(everywhere)) for _ in range(3))
    for name, fold in zip(by_fold, folds, strict=True):
        gains[fold] = quality[name][fold] - quality[NOW][fold]
        before[fold], after[fold] = mrr[NOW][fold], mrr[name][fold]
    paired = comparison.paired(gains[None], seed=seed)[0]
    chosen = _best(quality, everywhere)
    reciprocal = (float(before.mean()), float(after.mean()))
    reason = _reason(chosen, paired.delta, paired.ci95[0], reciprocal)
    plans = {one.name: one.plan for one in arms if one.plan is not None}
    return TuningResult(
        adopted=reason is None,
        reason=reason or f"the 95 % interval of the gain in {DECIDES} on held-out questions excludes a loss",
        questions=len(everywhere),
        left_out=judged.left_out,
        configurations=len(quality),
        chosen=chosen,
        plan=values_of(plans[chosen]),
        present=values_of(plans[NOW]),
        delta=paired.delta,
        ci95=paired.ci95,
        p=paired.p,
        mrr=reciprocal,
        by_type={type: float(gains[places].mean()) for type, places in strata(judged.queries()).items()},
        by_fold=by_fold,
        seed=seed,
    )


def split(judged: JudgedSet, seed: int) -> list[NDArray[np.int64]]:
    """Positions of questions in folds that keep memories together."""
    groups: dict[str, list[int]] = {}
    for position, question in enumerate(judged.questions):
        groups.setdefault(_subject(question, judged), []).append(position)
    ordered = [groups[name] for name in sorted(groups)]
    random.Random(seed).shuffle(ordered)
    folds: list[list[int]] = [[] for _ in range(FOLDS)]
    for group in sorted(ordered, key=len, reverse=True):
        min(folds, key=len).extend(group)
    return [np.array(sorted(fold), dtype=np.int64) for fold in folds if fold]


def _subject(question: OwnQuestion, judged: JudgedSet) -> str:
    """The memory that a question was made from or best answers it."""
    grades = judged.qrels[question.id]
    return min(question.sources or [id for id, grade in grades.items() if grade == max(grades.values())])


def _best(quality: Table, places: NDArray[np.int64]) -> str:
    """The configuration with the highest mean; the present one wins a tie."""
    return max(quality, key=lambda name: (float(quality[name][places].mean()), name == NOW))


def _reason(chosen: str, delta: float, low: float, mrr: tuple[float, float]) -> str | None:
    """Why nothing is adopted, None if the chosen plan is."""
    if chosen == NOW:
        return "no configuration of the grid is better than what recall does now"
    if low < 0 or delta <= 0:
        return f"the interval of the gain in {DECIDES} on held-out questions does not exclude a loss"
    before, after = mrr
    if before and (before - after) / before > MAX_MRR_DROP:
        return f"MRR on held-out questions falls from {before:.4f} to {after:.4f}, more than {MAX_MRR_DROP * 100:.0f} %"
    return None


def _too_few(judged: JudgedSet) -> TuningResult:
    there = len(judged.questions)
    return TuningResult(
        adopted=False,
        reason=f"{there} judged questions may decide, {MIN_QUESTIONS} are needed: {MIN_QUESTIONS - there} more",
        questions=there,
        left_out=judged.left_out,
    )
