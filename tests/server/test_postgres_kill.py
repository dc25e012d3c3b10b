"""Postgres killed under load: what was acknowledged stays, and the store works again by itself.

`TRISKELE_POSTGRES_KILLS` sets how often.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from postgres import PostgresProcess, running_server

from triskele import config
from triskele.engine.local import LocalEngine
from triskele.errors import StoreUnavailable
from triskele.server.postgres.connections import Connection, OwnerTransactions
from triskele.server.postgres.truth import PostgresStore
from triskele.types import Add, Memory

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("TRISKELE_POSTGRES_KILLS", "3"))
_BETWEEN = 15
OWNERS = ("alice", "alice", "bob")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresProcess]:
    """A server of its own: others must not feel the kills."""
    with running_server() as server:
        yield server


@pytest.fixture
def store(server: PostgresProcess, tmp_path: Path) -> Iterator[PostgresStore]:
    opened = PostgresStore(server.create_migrated(), folder=tmp_path)
    yield opened
    opened.close()


class _Writers:
    """Threads that write until told to stop, and note what was acknowledged."""

    def __init__(self, store: PostgresStore, make: Callable[..., Memory]) -> None:
        self.acknowledged: dict[str, list[str]] = {owner: [] for owner in OWNERS}
        self.refused: list[str] = []
        self._changed = threading.Condition()
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(store, owner, make)) for owner in OWNERS]
        self._threads.append(threading.Thread(target=self._read, args=(store,)))
        self.surprises: list[BaseException] = []
        for thread in self._threads:
            thread.start()

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def wait_for(self, more: int) -> None:
        """Until so many more writes were acknowledged."""
        with self._changed:
            wanted = self.count + more
            assert self._changed.wait_for(lambda: self.count >= wanted or self.surprises, timeout=60), self.refused
            assert not self.surprises

    def stop(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        assert not self.surprises

    def _write(self, store: PostgresStore, owner: str, make: Callable[..., Memory]) -> None:
        try:
            while not self._is_over.is_set():
                memory = make(owner=owner)
                memory = make(f"the memory called {memory.id}", owner=owner, id=memory.id)
                try:
                    store.for_owner(owner).apply([Add(memory)], batch=memory.id)
                except StoreUnavailable as error:
                    self.refused.append(str(error))
                    continue
                with self._changed:
                    self.acknowledged[owner].append(memory.id)
                    self._changed.notify_all()
        except BaseException as error:
            self._note(error)

    def _read(self, store: PostgresStore) -> None:
        try:
            while not self._is_over.is_set():
                # One statement is asked again until the server is back.
                assert store.for_owner("alice").census().memories >= 0
                with suppress(StoreUnavailable), store.for_owner("bob").snapshot():
                    rows = [row for row, _ in store.for_owner("bob").versions()]
                    assert rows == sorted(rows)
        except StoreUnavailable as error:
            self.refused.append(str(error))
        except BaseException as error:
            self._note(error)

    def _note(self, error: BaseException) -> None:
        with self._changed:
            self.surprises.append(error)
            self._changed.notify_all()


@pytest.mark.timeout(60 + 10 * KILLS)
def test_kill_loses_no_acknowledged_write(
    server: PostgresProcess, store: PostgresStore, make_memory: Callable[..., Memory]
) -> None:
    writers = _Writers(store, make_memory)
    try:
        for number in range(KILLS):
            writers.wait_for(_BETWEEN)
            (server.kill if number % 2 == 0 else server.stop)()
            server.start()
        writers.wait_for(_BETWEEN)
    finally:
        writers.stop()
    for owner, ids in writers.acknowledged.items():
        kept = {memory.id for _, memory in store.for_owner(owner).versions()}
        assert set(ids) - kept == set()
        numbers = [entry.seq for entry in store.for_owner(owner).journal(limit=100_000)]
        assert numbers == sorted(numbers)
    assert store.maintenance.check(deep=True) == []
    assert all("does not answer" in each or "during the commit" in each for each in writers.refused)


def _write(store: PostgresStore, *steps: Callable[[Connection], object]) -> None:
    with OwnerTransactions(store._connections, "alice").writing() as connection:
        for step in steps:
            step(connection)


def _insert(connection: Connection) -> None:
    connection.execute("INSERT INTO marks SELECT 'alice', gen_random_uuid(), ''")


def test_write_with_unanswered_commit_says_so(server: PostgresProcess, store: PostgresStore) -> None:
    with pytest.raises(StoreUnavailable, match="whether the change was written is unknown"):
        _write(store, _insert, lambda _: server.stop())
    server.start()
    assert OwnerTransactions(store._connections, "alice").all("SELECT name FROM marks") == []


def test_interrupted_write_says_that_nothing_was_written(server: PostgresProcess, store: PostgresStore) -> None:
    with pytest.raises(StoreUnavailable, match="nothing was written; try again"):
        _write(store, _insert, lambda _: server.stop(), _insert)
    server.start()
    assert OwnerTransactions(store._connections, "alice").all("SELECT name FROM marks") == []


def test_engine_reconnects_after_a_restart(server: PostgresProcess, tmp_path: Path) -> None:
    environment = {"TRISKELE_HOME": str(tmp_path), "TRISKELE_PROJECT": "garden", "TRISKELE_RECALL_MODEL": "none"}
    with LocalEngine(config.load(environment, store_url=server.create_migrated()), tmp_path) as engine:
        first = engine.remember("The heron fishes at dawn")
        for end in (server.kill, server.stop):
            end()
            server.start()
            assert [hit.memory.id for hit in engine.recall("heron").hits] == [first.id]
            engine.remember(f"written after {end.__name__}")
        assert engine.store.census().memories == 3


def test_missing_server_is_reported_in_time(server: PostgresProcess, tmp_path: Path) -> None:
    store = PostgresStore(server.create_migrated(), folder=tmp_path, busy_timeout_s=0.5)
    server.stop()
    try:
        with pytest.raises(StoreUnavailable, match="does not answer"):
            store.for_owner("alice").census()
        with pytest.raises(StoreUnavailable, match="does not answer"):
            store.for_owner("alice").documents.put("kind", {})
    finally:
        server.start()
        store.close()
