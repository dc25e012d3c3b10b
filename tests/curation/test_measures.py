"""The recall log: off unless asked for, bounded, silent, and gone with what it names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from triskele import config
from triskele.curation import measures
from triskele.engine.local import LocalEngine
from triskele.types import Sort


@pytest.fixture
def open_logging(tmp_path: Path) -> Callable[..., LocalEngine]:
    def open_one(log: str = "true") -> LocalEngine:
        environment = {
            "TRISKELE_HOME": str(tmp_path),
            "TRISKELE_PROJECT": "garden",
            "TRISKELE_RECALL_MODEL": "none",
            "TRISKELE_RECALL_LOG": log,
        }
        return LocalEngine(config.load(environment), tmp_path)

    return open_one


@pytest.fixture
def engine(open_logging: Callable[..., LocalEngine]) -> LocalEngine:
    return open_logging()


def _texts(engine: LocalEngine) -> list[str]:
    engine.deferred_writes.flush()
    return [asked.text for asked in measures.logged_queries(engine.store)]


def test_recall_log_is_off_by_default(open_engine: Callable[..., LocalEngine]) -> None:
    engine = open_engine()
    engine.remember("the kettle is red")
    engine.recall("kettle")
    assert _texts(engine) == []


def test_recall_log_holds_project_and_hits_newest_first(engine: LocalEngine) -> None:
    id = engine.remember("the kettle is red").id
    engine.recall("kettle colour")
    engine.recall("anything else", all_projects=True)
    assert measures.logged_queries(engine.store) == []
    engine.deferred_writes.flush()
    assert measures.logged_queries(engine.store) == [
        measures.LoggedQuery("anything else", None, ()),
        measures.LoggedQuery("kettle colour", "garden", (id,)),
    ]


def test_recall_log_holds_only_plain_questions(engine: LocalEngine) -> None:
    id = engine.remember("the kettle is red", tags=["kitchen"]).id
    engine.recall("kettle", sort=Sort.RECENCY)
    engine.recall("kettle", tags=["kitchen"])
    engine.recall("kettle", as_of="2999-01-01")
    engine.recall("kettle", show_superseded=True)
    engine.recall("  ")
    engine.recall("x" * (measures.MAX_LOGGED_CHARACTERS + 1))
    engine.why_not(id, "teapot")
    assert _texts(engine) == []


def test_the_log_is_bounded(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measures, "MAX_LOGGED", 3)
    for number in range(5):
        engine.recall(f"question {number}")
    assert _texts(engine) == ["question 4", "question 3", "question 2"]


def test_busy_store_answers_at_once_and_logs_nothing(engine: LocalEngine, tmp_path: Path) -> None:
    engine.remember("the kettle is red")
    engine.recall("kettle before")
    engine.deferred_writes.flush()
    other = apsw.Connection(str(tmp_path / "memories.db"))
    other.execute("BEGIN IMMEDIATE")
    # Whoever waited here would fail the test by its time limit.
    engine.store._database._busy_timeout_s = 3600.0  # type: ignore[attr-defined]
    engine.store._database.connection().set_busy_timeout(3_600_000)  # type: ignore[attr-defined]
    assert len(engine.recall("kettle meanwhile").hits) == 1
    engine.deferred_writes.flush()
    other.close()
    assert _texts(engine) == ["kettle before"]


def test_erase_removes_questions_with_the_memory_as_hit(engine: LocalEngine) -> None:
    id = engine.remember("the kettle is red").id
    engine.recall("kettle")
    engine.recall("nothing of the kind")
    engine.erase(id)
    assert _texts(engine) == ["nothing of the kind"]
