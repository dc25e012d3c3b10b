"""The adopted plan and the one before, under the model that they were measured with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from triskele import config
from triskele.engine.local import LocalEngine
from triskele.errors import NotFound
from triskele.recall import plan as plans
from triskele.recall.plan import Plan
from triskele.store.values import Document

WORDS = Plan(weights={"lexical": 1.0, "dense": 0.0, "late": 0.0}, rescored=50)
TEXTBOOK = Plan(fusion="rrf", rerank="late", k={"lexical": 20.0, "dense": 20.0})


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[LocalEngine]:
    with LocalEngine(config.load({"TRISKELE_HOME": str(tmp_path)}), tmp_path) as opened:
        yield opened


def _adopt(engine: LocalEngine, plan: Plan, fingerprint: str | None = None) -> None:
    semantic = engine.semantic()
    assert semantic is not None
    plans.adopt(engine.store, plan, fingerprint=fingerprint or semantic.embedder.fingerprint, questions=60)


def test_what_is_adopted_ranks_where_nothing_else_is_asked_for(engine: LocalEngine) -> None:
    assert engine.plan_in_force() == Plan()
    _adopt(engine, WORDS)
    assert engine.plan_in_force() == WORDS
    assert engine.plan_in_force(Plan()) == WORDS
    assert engine.plan_in_force(Plan(fusion="cc")) == Plan(fusion="cc")


def test_recall_ranks_by_it_and_says_so_in_its_evidence(engine: LocalEngine) -> None:
    engine.remember("the kettle in the kitchen is red")
    _adopt(engine, WORDS)
    assert set(engine.recall("kettle").hits[0].legs) == {"lexical"}
    assert set(engine.recall("kettle", fusion="rrf").hits[0].legs) == {"lexical", "dense", "graph"}
    plans.roll_back(engine.store)
    assert "late" in engine.recall("kettle").hits[0].legs


def test_every_value_of_a_plan_survives_the_store(engine: LocalEngine) -> None:
    for plan in (WORDS, TEXTBOOK, Plan(legs=frozenset({"dense"}))):
        _adopt(engine, plan)
        assert engine.plan_in_force() == plan


def test_rolling_back_returns_to_the_one_before(engine: LocalEngine) -> None:
    _adopt(engine, WORDS)
    _adopt(engine, TEXTBOOK)
    taken, present = plans.roll_back(engine.store)
    assert (taken.plan, present and present.plan) == (TEXTBOOK, WORDS)
    assert engine.plan_in_force() == WORDS
    assert plans.roll_back(engine.store)[1] is None
    with pytest.raises(NotFound, match="default plan"):
        plans.roll_back(engine.store)


def test_rollback_goes_back_one_plan(engine: LocalEngine) -> None:
    for depth in (50, 120, 140):
        _adopt(engine, Plan(rescored=depth))
    assert plans.roll_back(engine.store)[1] is not None and engine.plan_in_force().rescored == 120
    assert plans.roll_back(engine.store)[1] is None and engine.plan_in_force() == Plan()


def test_rollback_leaves_plans_of_another_model_alone(engine: LocalEngine) -> None:
    _adopt(engine, WORDS, fingerprint="another-model@1")
    _adopt(engine, TEXTBOOK)
    assert plans.roll_back(engine.store)[1] is None and engine.plan_in_force() == Plan()


def test_another_process_sees_it_at_once(engine: LocalEngine, tmp_path: Path) -> None:
    with LocalEngine(config.load({"TRISKELE_HOME": str(tmp_path)}), tmp_path) as other:
        _adopt(other, WORDS)
    assert engine.plan_in_force() == WORDS


def test_a_plan_of_another_model_is_not_used(engine: LocalEngine) -> None:
    _adopt(engine, WORDS, fingerprint="another-model@1")
    assert engine.adopted() is None
    assert engine.plan_in_force() == Plan()


@pytest.mark.parametrize("plan", [{"fusion": "magic"}, {"colour": "red"}])
def test_a_plan_that_this_version_does_not_understand_is_not_used(engine: LocalEngine, plan: dict[str, str]) -> None:
    _adopt(engine, WORDS)
    document = engine.store.documents.get(plans.PLANS, "adopted")
    document["now"]["plan"] = plan
    engine.store.documents.put(plans.PLANS, {"adopted": Document(document)})
    assert engine.plan_in_force() == Plan()
