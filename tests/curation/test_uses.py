"""Noting uses: what was asked for and what was given unasked, without standing in anybody's way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw

from triskele.curation import usage
from triskele.engine import Engine
from triskele.stores.sqlite.store import SqliteOwnerStore
from triskele.types import LinkKind

OpenEngine = Callable[..., Engine]


def test_every_memory_of_an_answer_is_counted(open_engine: OpenEngine) -> None:
    engine = open_engine()
    problem = engine.remember("the kettle leaks").id
    solved = engine.remember("a new rubber ring was fitted").id
    engine.link(problem, LinkKind.RESOLVED_BY, solved)
    answer = engine.recall("kettle")
    usage.note_recall(engine.store, answer)
    usage.note_recall(engine.store, answer, to_agent=True)
    counts = engine.store.usage.counts([problem, solved])
    assert {id: count[1:4] for id, count in counts.items()} == {problem: (2, 0, 4), solved: (2, 0, 7)}


def test_an_answer_without_hits_counts_nothing(open_engine: OpenEngine) -> None:
    engine = open_engine()
    usage.note_recall(engine.store, engine.recall("kettle"))
    usage.note_injection(engine.store, [], conversation="talk", tokens={})
    assert engine.store.usage.days() == []


def test_a_store_that_others_hold_does_not_keep_anybody(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine()
    id = engine.remember("the kettle is red").id
    answer = engine.recall("kettle")
    other = apsw.Connection(str(tmp_path / "home" / "memories.db"))
    other.execute("BEGIN IMMEDIATE")
    store = engine.store
    assert isinstance(store, SqliteOwnerStore)
    # Whoever waited here would fail the test by its time limit.
    store._database._busy_timeout_s = 3600.0
    store._database.connection().set_busy_timeout(3_600_000)
    usage.note_recall(store, answer)
    assert store.usage.counts([id]) == {}
    other.close()
    usage.note_recall(store, answer)
    assert store.usage.counts([id])[id].recalled == 2


def test_an_injection_is_counted_with_what_it_takes_and_leaves_fingerprints(open_engine: OpenEngine) -> None:
    engine = open_engine()
    memory = engine.get(engine.remember("the kettle stands on the red shelf").id)
    usage.note_injection(engine.store, [memory], conversation="talk", tokens={memory.id: 33})
    assert engine.store.usage.counts([memory.id])[memory.id][1:4] == (0, 1, 33)
    assert [each.content_hash for each in engine.store.usage.given("talk")] == [memory.content_hash]
    connection = engine.store._database.connection()  # type: ignore[attr-defined]
    assert connection.execute("SELECT count(*) FROM echoes").get == 1
