"""Tuning: adopted on proof alone, refused with its evidence, and never on too few questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from triskele.bench.arms import Arm, arm
from triskele.bench.harness import in_use
from triskele.bench.own import tune as tuning
from triskele.bench.own.judge import import_grades, import_questions
from triskele.bench.own.questions import JudgedSet, make_question, save_questions
from triskele.bench.own.run import NOW
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput, Unavailable
from triskele.recall import plan as plans
from triskele.recall.plan import Plan

pytestmark = pytest.mark.slow

JudgedOf = Callable[..., JudgedSet]
WriteLines = Callable[..., Path]

RIVAL, OTHER = tuning.GRID[0], tuning.GRID[5]
N = 120


@pytest.fixture
def judged(judged_of: JudgedOf) -> JudgedSet:
    return judged_of({f"q{number:03d}": {f"m{number}": 3} for number in range(N)})


def _decide(judged: JudgedSet, quality: Mapping[str, Any], mrr: Mapping[str, Any] | None = None) -> tuning.TuningResult:
    arms = [Arm(name=NOW, about="", plan=Plan()), *(arm(name) for name in quality if name != NOW)]
    return tuning.decide(quality, mrr or quality, judged, arms, seed=1)


def _noise(scale: float, seed: int = 1) -> Any:
    return np.random.default_rng(seed).normal(0, scale, N)


def test_what_is_better_by_construction_is_adopted(judged: JudgedSet) -> None:
    now = 0.5 + _noise(0.1)
    found = _decide(judged, {NOW: now, OTHER: now - 0.05, RIVAL: now + 0.05 + _noise(0.05, 2)})
    assert found.adopted and found.chosen == RIVAL
    assert found.plan == {"weights": {"lexical": 0.2, "dense": 0.4, "late": 0.4}}
    assert found.ci95 is not None and 0 < found.ci95[0] < 0.05 < found.ci95[1]
    assert set(found.by_fold) == {RIVAL}
    assert found.by_type is not None and found.by_type.keys() == {"paraphrase"}


def test_what_is_the_same_is_not_adopted(judged: JudgedSet) -> None:
    now = 0.5 + _noise(0.1)
    found = _decide(judged, {NOW: now, RIVAL: now, OTHER: now - 0.1})
    assert not found.adopted and found.chosen == NOW
    assert "better than what recall does now" in found.reason


def test_luck_is_not_adopted(judged: JudgedSet) -> None:
    now = 0.5 + _noise(0.1)
    table = {NOW: now} | {name: now + _noise(0.2, seed) for seed, name in enumerate(tuning.GRID, start=5)}
    found = _decide(judged, table)
    assert found.chosen != NOW and not found.adopted
    assert "does not exclude a loss" in found.reason


def test_a_gain_that_costs_reciprocal_rank_is_not_adopted(judged: JudgedSet) -> None:
    now = 0.5 + _noise(0.1)
    quality = {NOW: now, RIVAL: now + 0.05}
    refused = _decide(judged, quality, {NOW: now, RIVAL: now * 0.97})
    assert not refused.adopted and "MRR" in refused.reason
    assert _decide(judged, quality, {NOW: now, RIVAL: now * 0.985}).adopted


def test_the_choice_of_a_fold_does_not_see_its_questions(judged: JudgedSet) -> None:
    folds = tuning.split(judged, seed=1)
    now = np.full(N, 0.5)
    table = {NOW: now}
    # Each rival is right on one fold only: a choice that saw it would look like a gain.
    for name, fold in zip(tuning.GRID, folds, strict=False):
        table[name] = np.full(N, 0.49)
        table[name][fold] = 0.55
    found = _decide(judged, table)
    assert found.delta is not None and found.delta < 0.0


def test_folds_are_even_and_keep_questions_about_one_memory_together(judged_of: JudgedOf) -> None:
    judged = judged_of({f"q{number:03d}": {f"m{number // 3}": 3, f"other{number}": 1} for number in range(N)})
    folds = tuning.split(judged, seed=1)
    assert sorted(place for fold in folds for place in fold) == list(range(N))
    assert max(map(len, folds)) - min(map(len, folds)) <= 3
    for fold in folds:
        assert {place // 3 for place in fold} == {place // 3 for place in fold if place % 3 == 0}


def test_every_plan_of_the_grid_is_another_one() -> None:
    grid = [str(sorted(plans.values_of(arm(name).plan or Plan()).items())) for name in tuning.GRID]
    assert len(set(grid)) == len(grid)


def test_what_recall_does_now_is_not_its_own_rival(team: LocalEngine) -> None:
    semantic = team.semantic()
    assert semantic is not None
    for plan in (Plan(), arm(RIVAL).plan):
        assert plan is not None
        plans.adopt(team.store, plan, fingerprint=semantic.embedder.fingerprint, questions=60)
        now, *rivals = tuning.configurations(team, budget=len(tuning.GRID))
        assert now.plan == replace(plan, prior=0.3)
        assert now.plan not in [rival.plan for rival in rivals]
    assert Plan() in [rival.plan for rival in rivals]


@pytest.fixture
def fifty(team: LocalEngine, write_lines: WriteLines) -> LocalEngine:
    """A store with forty-nine judged questions, and more that may not decide."""
    memories = list(in_use(team).values())[:49]
    rows = [{"text": f"what about {each.content[:40]}", "ids": [each.id]} for each in memories]
    import_questions(team, write_lines(*rows))
    circular = make_question("own words", "exact", "phrase", sources=(memories[0].id,), circular=("words",))
    save_questions(team.store, [circular])
    import_grades(team, write_lines({"question": "own words", "memory": memories[0].id, "grade": 3}))
    return team


def test_fewer_than_fifty_questions_are_refused_with_what_is_missing(
    fifty: LocalEngine, write_lines: WriteLines
) -> None:
    found = tuning.tune(fifty, budget=1)
    assert not found.adopted
    assert found.reason == "49 judged questions may decide, 50 are needed: 1 more"
    assert found.left_out == {"made of the memories' own words: would favour words": 1}
    more = list(in_use(fifty).values())[49]
    import_questions(fifty, write_lines({"text": "one more question", "ids": [more.id]}))
    found = tuning.tune(fifty, budget=1)
    assert (found.questions, found.configurations) == (50, 2)
    assert found.adopted == (plans.adopted(fifty.store) is not None)


def test_tune_keeps_the_evidence_of_an_adopted_plan(fifty: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def decide(*_: object) -> tuning.TuningResult:
        return tuning.TuningResult(adopted=True, reason="it is better", questions=60, left_out={}, chosen=RIVAL)

    monkeypatch.setattr(tuning, "decide", decide)
    monkeypatch.setattr(tuning, "MIN_QUESTIONS", 1)
    tuning.tune(fifty, budget=1)
    adopted = plans.adopted(fifty.store)
    assert adopted is not None and adopted.plan == replace(arm(RIVAL).plan or Plan(), prior=Plan().prior)
    assert fifty.store.documents.get(plans.PLANS, "adopted")["evidence"]["reason"] == "it is better"


@pytest.mark.parametrize("budget", [0, len(tuning.GRID) + 1])
def test_a_budget_must_make_sense(engine: LocalEngine, budget: int) -> None:
    with pytest.raises(BadInput, match="budget"):
        tuning.tune(engine, budget=budget)


def test_without_a_model_there_is_nothing_to_tune(engine: LocalEngine) -> None:
    with pytest.raises(Unavailable, match="model"):
        tuning.tune(engine)
