"""Importance that decays with age: off by default, in the ranking alone, and explained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from triskele.engine.local import LocalEngine
from triskele.recall.supersession import Priors

OpenEngine = Callable[..., LocalEngine]
NOW = "2026-06-01T00:00:00Z"


def at_work(engine: LocalEngine, half_life_days: float) -> LocalEngine:
    settings = replace(engine.settings, recall=replace(engine.settings.recall, half_life_days=half_life_days))
    return LocalEngine(settings, engine.settings.home)


@pytest.fixture
def stored(open_engine: OpenEngine) -> LocalEngine:
    engine = open_engine(model="none")
    engine.remember("the kelp service runs on port 8080", created_at="2024-06-01T00:00:00Z")
    engine.remember("the kelp service runs on port 9090", created_at="2026-05-25T00:00:00Z")
    engine.remember("the kelp service runs on port 7070", created_at="2023-06-01T00:00:00Z", importance=1.0)
    return engine


def ports(engine: LocalEngine, **options: object) -> list[str]:
    hits = engine.recall("which port has the kelp service", as_of=NOW, **options).hits  # type: ignore[arg-type]
    return [hit.memory.content.rsplit(" ", 1)[1] for hit in hits]


def test_without_a_half_life_nothing_changes(stored: LocalEngine) -> None:
    plain = stored.recall("which port has the kelp service", as_of=NOW).hits
    with at_work(stored, 0.0) as other:
        same = other.recall("which port has the kelp service", as_of=NOW).hits
    assert [(hit.memory.id, hit.score, hit.prior, hit.decay) for hit in plain] == [
        (hit.memory.id, hit.score, hit.prior, 1.0) for hit in same
    ]
    assert not any("age" in hit.reason for hit in plain)


def test_an_old_memory_comes_after_a_new_one_and_says_why(stored: LocalEngine) -> None:
    with at_work(stored, 90.0) as engine:
        hits = engine.recall("which port has the kelp service", as_of=NOW).hits
        assert ports(engine) == ["7070", "9090", "8080"]
        old = hits[-1]
        assert 0 < old.decay < 0.01
        assert f"counts less for its age (importance ×{old.decay:.2f})" in old.reason
        assert hits[0].decay == 1.0 and hits[1].decay > 0.9
        assert "age" not in hits[0].reason and "age" not in hits[1].reason
        # The memory itself keeps what the user gave it.
        assert engine.get(old.memory.id).importance == 0.5
        answer = engine.why_not(old.memory.id, "which port has the kelp service", limit=2, as_of=NOW)
        assert "its age leaves ×0.00 of its importance" in answer.stopped_by.detail


def test_an_edit_makes_it_new_again_and_the_moment_asked_for_counts(stored: LocalEngine) -> None:
    old = next(memory for memory in stored.browse().memories if memory.content.endswith("8080"))
    priors, day = Priors(0.3, half_life_days=10.0), datetime(2024, 6, 11, tzinfo=UTC)
    assert priors.decay(replace(old, updated_at=old.created_at), day) == pytest.approx(0.5)
    assert priors.decay(replace(old, updated_at=day), day) == 1.0
    assert priors.decay(replace(old, updated_at=old.created_at), datetime(2020, 1, 1, tzinfo=UTC)) == 1.0


def test_other_orders_know_no_age(stored: LocalEngine) -> None:
    with at_work(stored, 1.0) as engine:
        assert ports(engine, sort="recency") == ports(stored, sort="recency")
