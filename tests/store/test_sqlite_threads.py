"""One engine, many threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest

from triskele.config import sqlite_path
from triskele.engine.local import LocalEngine
from triskele.errors import StoreClosed, StoreUnavailable
from triskele.index.worker import Worker
from triskele.store.sqlite import maintenance, store_file
from triskele.store.values import Document, Use
from triskele.text.files import file_lock
from triskele.types import LinkKind

THREADS = 8


def test_threads_share_one_engine(open_engine: Callable[..., LocalEngine]) -> None:
    engine = open_engine(tail_cap=10)
    start = threading.Barrier(THREADS)

    def live(name: int) -> list[str]:
        start.wait()
        connections = []
        for number in range(8):
            id = engine.remember(f"heron number{name}x{number}").id
            assert [hit.memory.id for hit in engine.recall(f"number{name}x{number}").hits] == [id]
            engine.edit(id, importance=0.9)
            if number % 4 == 3:
                engine.forget(id)
            else:
                connections.append(id)
        return connections

    with ThreadPoolExecutor(THREADS) as pool:
        connections = [id for ids in pool.map(live, range(THREADS)) for id in ids]
    assert len(set(connections)) == THREADS * 6
    assert {memory.id for memory in engine.browse(limit=1000).memories} == set(connections)
    assert {hit.memory.id for hit in engine.recall("heron", limit=200).hits} == set(connections)
    assert engine.upkeep.inspect(deep=True).findings == ()


def test_threads_that_end_leave_no_connection_open(open_engine: Callable[..., LocalEngine]) -> None:
    engine = open_engine()
    engine.remember("kept")

    def visit() -> None:
        thread = threading.Thread(target=engine.store.census)
        thread.start()
        thread.join()

    visit()
    before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc") else 0
    for _ in range(20):
        visit()
    after = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc") else 0
    assert after <= before + 2


def test_an_engine_closed_by_one_thread_is_closed_for_all(open_engine: Callable[..., LocalEngine]) -> None:
    engine = open_engine()
    engine.remember("kept")
    with ThreadPoolExecutor(2) as pool:
        pool.submit(engine.store.census).result()
        engine.close()
        pool.submit(engine.close).result()
    assert open_engine().store.census().memories == 1


def test_a_closed_engine_refuses_instead_of_opening_its_file_again(open_engine: Callable[..., LocalEngine]) -> None:
    engine = open_engine(model="bundled")
    id = engine.remember("the harbour pilot is called Ida").id
    assert engine.recall("harbour pilot").hits
    path, other = sqlite_path(engine.settings.store.url), engine.acting_as("someone")
    engine.close()
    engine.close()
    uses: list[Callable[[], object]] = [
        lambda: engine.remember("written too late"),
        lambda: engine.recall("harbour pilot"),
        lambda: other.get(id),
        lambda: list(engine.store.versions()),
        engine.store.census,
        engine.lexical.behind,
        engine.upkeep.reindex,
        lambda: engine.upkeep.backup(path.with_name("late.db")),
    ]
    with ThreadPoolExecutor(1) as pool:
        for use in uses:
            for ran in (use, lambda use=use: pool.submit(use).result()):  # type: ignore[misc]
                with pytest.raises(StoreClosed, match="was closed: open it again"):
                    ran()
    # SQLite removes its log when the last connection goes.
    assert not path.with_name(path.name + "-wal").exists()
    assert [memory.id for memory in open_engine().browse().memories] == [id]


@pytest.mark.parametrize("inside", ["snapshot", "writing", "noting", "reading"])
def test_thread_with_a_closed_connection_gets_an_error(open_engine: Callable[..., LocalEngine], inside: str) -> None:
    engine = open_engine()

    def use() -> None:
        with getattr(engine.store._database, inside)(), ThreadPoolExecutor(1) as pool:  # type: ignore[attr-defined]
            pool.submit(engine.close).result()
            engine.store.census()

    with pytest.raises(StoreClosed):
        use()


def test_a_worker_of_a_closed_engine_ends_quietly(
    open_engine: Callable[..., LocalEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    engine = open_engine(model="bundled")
    worker = Worker(engine.store, engine.lexical, engine.models.semantic)
    engine.close()
    worker.wake()
    assert worker._thread is not None
    worker._thread.join(20)
    assert not worker._thread.is_alive() and not raised


def test_closing_waits_for_a_thread_that_still_reads(open_engine: Callable[..., LocalEngine]) -> None:
    engine = open_engine()
    began = threading.Event()

    def read() -> int:
        connection = engine.store._database.connection()  # type: ignore[attr-defined]
        connection.create_scalar_function("begin_reading", began.set)
        row = connection.execute(
            "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 400000)"
            " SELECT count(n + coalesce(begin_reading(), 0)) FROM r"
        ).fetchone()
        return int(row[0])

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        assert began.wait(20)
        engine.close()
        assert reading.result() == 400000


def test_a_store_that_another_process_sets_up_is_waited_for(
    open_engine: Callable[..., LocalEngine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, waits = tmp_path / "new.db", threading.Event()
    for name in ("new.db", "new.db-shm"):
        (tmp_path / name).touch()

    @contextmanager
    def noticed(lock: Path, *, timeout_s: float) -> Iterator[bool]:
        waits.set()
        with file_lock(lock, timeout_s=timeout_s) as is_held:
            yield is_held

    monkeypatch.setattr(store_file, "file_lock", noticed)
    with ThreadPoolExecutor(1) as pool:
        with file_lock(tmp_path / "new.db.lock", timeout_s=0) as is_held:
            assert is_held
            opening = pool.submit(open_engine, path)
            assert waits.wait(20)
            (tmp_path / "new.db-shm").unlink()
        assert opening.result().store.census().memories == 0


def test_a_check_finds_nothing_missing_while_another_process_writes(
    open_engine: Callable[..., LocalEngine], tmp_path: Path
) -> None:
    engine = open_engine(tmp_path / "store" / "memories.db")
    engine.remember("the heron fishes at dawn")
    writer = open_engine(tmp_path / "store" / "memories.db")
    connection = engine.store._database.connection()  # type: ignore[attr-defined]
    numbers = iter(range(1000))

    def write_before(_cursor: object, _sql: str, _bindings: object) -> bool:
        writer.remember(f"written between two statements {next(numbers)}")
        return True

    connection.exec_trace = write_before
    try:
        problems = maintenance.check(connection, deep=True)
    finally:
        connection.exec_trace = None
    assert problems == [] and next(numbers) > 3


def test_cached_answers_follow_every_writer(open_engine: Callable[..., LocalEngine]) -> None:
    engine, other = open_engine(), open_engine()
    first, second, third = (engine.remember(f"heron {number}").id for number in range(3))
    store, beside = engine.store, other.store
    assert (store.links([first]), store.documents.all("note"), beside.documents.all("note")) == ([], {}, {})
    heads = store.heads()
    # Of this connection.
    engine.link(first, LinkKind.SEE_ALSO, second)
    store.documents.put("note", {"own": Document(1)})
    assert len(store.links([first])) == len(beside.links([first])) == 1
    assert store.documents.all("note") == beside.documents.all("note") == {"own": 1}
    assert store.heads() != heads
    # Of another one, which a snapshot does not see.
    heads = store.heads()
    with store.snapshot():
        assert store.heads() == heads
        other.remember("written beside a snapshot")
        assert store.heads() == heads and beside.heads() != heads
    assert store.heads() == beside.heads()
    # Nothing stays of what was rolled back.
    heads, opened = store.heads(), cast("Any", store)._database
    with suppress(RuntimeError), opened.writing() as connection:
        connection.execute("DELETE FROM jobs")
        assert store.heads() != heads
        raise RuntimeError
    assert store.heads() == heads and third in {memory.id for memory in engine.browse().memories}


def test_cached_answers_outlive_counts_of_use(open_engine: Callable[..., LocalEngine]) -> None:
    engine, other = open_engine(), open_engine()
    id, store = engine.remember("heron").id, engine.store
    statements: list[str] = []

    def note(_cursor: object, sql: str, _bindings: object) -> bool:
        statements.append(sql)
        return True

    assert store.documents.all("note") == {}
    cast("Any", store)._database.connection().exec_trace = note
    store.usage.injected("talk", [Use(id, 1)])
    statements.clear()
    assert store.documents.all("note") == {} and statements == ["PRAGMA data_version"]
    # What another connection wrote before such a note is still found after it.
    other.store.documents.put("note", {"theirs": Document(1)})
    store.usage.injected("talk", [Use(id, 1)])
    assert store.documents.all("note") == {"theirs": 1}


def test_cached_answers_end_with_a_restore_of_an_unrecorded_backup(
    open_engine: Callable[..., LocalEngine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine()
    engine.remember("before the backup")
    engine.upkeep.backup(tmp_path / "copy.db")
    engine.remember("after the backup")
    store = engine.store
    before = store.heads()

    def refuse(*_: object) -> None:
        raise StoreUnavailable("busy")

    # As where another process writes at that moment: this connection has changed no row by itself.
    monkeypatch.setattr(maintenance.copies, "note_backup", refuse)
    engine.maintenance.restore(tmp_path / "copy.db")
    assert store.epoch() != before.epoch and store.heads().journal == store.position() != before.journal
