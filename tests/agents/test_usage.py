"""Noting uses: what was asked for and what was given unasked, without blocking other work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import apsw
import pytest

from triskele.agents import echo
from triskele.engine.background import DeferredWrites
from triskele.engine.local import LocalEngine
from triskele.errors import StoreClosed, StoreUnavailable
from triskele.store.sqlite.store import SqliteOwnerStore
from triskele.types import LinkKind

OpenEngine = Callable[..., LocalEngine]


def test_every_memory_of_an_answer_is_counted(open_engine: OpenEngine) -> None:
    engine = open_engine()
    problem = engine.remember("the kettle leaks").id
    solved = engine.remember("a new rubber ring was fitted").id
    engine.link(problem, LinkKind.RESOLVED_BY, solved)
    answer = engine.answer("kettle")
    echo.note_recall(engine.store, answer)
    echo.note_recall(engine.store, answer, to_agent=True)
    counts = engine.store.usage.counts([problem, solved])
    numbers = {id: (count.recalled, count.injected, count.tokens) for id, count in counts.items()}
    assert numbers == {
        problem: (2, 0, 4),
        solved: (2, 0, 7),
    }


def test_an_answer_without_hits_counts_nothing(open_engine: OpenEngine) -> None:
    engine = open_engine()
    echo.note_recall(engine.store, engine.recall("kettle"))
    echo.note_injection(engine.store, [], conversation="talk", tokens={})
    assert engine.store.usage.days() == []


def test_busy_store_delays_no_answer(open_engine: OpenEngine, tmp_path: Path) -> None:
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
    echo.note_recall(store, answer)
    assert store.usage.counts([id]) == {}
    other.close()
    echo.note_recall(store, answer)
    assert store.usage.counts([id])[id].recalled == 2


def test_injection_counts_tokens_and_stores_fingerprints(open_engine: OpenEngine) -> None:
    engine = open_engine()
    memory = engine.store.history(engine.remember("the kettle stands on the red shelf").id)[-1]
    echo.note_injection(engine.store, [memory], conversation="talk", tokens={memory.id: 33})
    count = engine.store.usage.counts([memory.id])[memory.id]
    assert (count.recalled, count.injected, count.tokens) == (0, 1, 33)
    assert [each.content_hash for each in engine.store.usage.given("talk")] == [memory.content_hash]
    connection = engine.store._database.connection()  # type: ignore[attr-defined]
    assert connection.execute("SELECT count(*) FROM echoes").get == 1


def test_deferred_writes_follow_the_answer_in_order() -> None:
    written: list[int] = []
    after = DeferredWrites()
    for number in range(3):
        after.put(partial(written.append, number))
    assert (written, len(after)) == ([], 3)
    after.flush()
    assert (written, len(after)) == ([0, 1, 2], 0)


def test_a_refused_write_is_dropped_and_the_next_goes_on() -> None:
    written: list[int] = []

    def refuse() -> None:
        raise StoreUnavailable("busy")

    after = DeferredWrites()
    after.put(refuse)
    after.put(partial(written.append, 1))
    after.close()
    assert (written, len(after)) == ([1], 0)


def test_failed_deferred_write_hides_and_the_store_closes(open_engine: OpenEngine) -> None:
    engine = open_engine()
    id = engine.remember("the kettle is red").id
    answer = engine.answer("kettle")
    for write in (lambda: 1 // 0, partial(echo.note_recall, engine.store, answer)):
        engine.deferred_writes.put(write)
    engine.deferred_writes.flush()
    assert engine.store.usage.counts([id])[id].recalled == 1
    engine.deferred_writes.put(lambda: 1 // 0)
    engine.close()
    with pytest.raises(StoreClosed):
        engine.get(id)


def test_queue_that_its_owner_flushes_wakes_no_thread() -> None:
    written: list[int] = []
    after = DeferredWrites()
    after.is_flushed_by_owner = True
    after.start()
    after.put(partial(written.append, 1))
    time.sleep(0.2)
    assert written == []
    after.flush()
    assert written == [1]
    after.close()


def test_a_faulty_write_does_not_end_the_thread() -> None:
    done = threading.Event()
    after = DeferredWrites()
    after.put(lambda: 1 // 0)
    after.put(done.set)
    after.start()
    assert done.wait(30)
    after.close()


def _wait_for(event: threading.Event) -> None:
    assert event.wait(30)


def test_the_queue_is_bounded_and_a_full_one_is_written_by_a_thread() -> None:
    written: list[int] = []
    blocked = threading.Event()
    after = DeferredWrites(most=3)
    after.put(partial(_wait_for, blocked))
    after.put(partial(written.append, 0))
    assert after._thread is None
    for number in range(1, 8):
        after.put(partial(written.append, number))
    assert len(after) <= 3
    blocked.set()
    after.close()
    assert written[-1] == 7 and len(written) <= 8
    assert after._thread is not None and not after._thread.is_alive()


def test_a_thread_writes_shortly_after_the_answer(open_engine: OpenEngine) -> None:
    engine = open_engine()
    id = engine.remember("the kettle is red").id
    engine.deferred_writes.start()
    answer = engine.recall("kettle")
    engine.deferred_writes.put(partial(echo.note_recall, engine.store, answer))
    ends = time.monotonic() + 30
    while id not in engine.store.usage.counts([id]):
        assert time.monotonic() < ends
        time.sleep(0.005)
