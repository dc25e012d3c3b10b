"""What the SQLite file does with the ledger: bytes, a store that others hold, and stores from before."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import apsw
import pytest

from triskele.curation import echo
from triskele.engine import Engine
from triskele.stores.sqlite import usage
from triskele.stores.sqlite.schema import MIGRATIONS
from triskele.stores.sqlite.store import SqliteStore
from triskele.stores.usage import Use
from triskele.types import Add, Memory

Traces = Callable[[Path, Iterable[str]], set[tuple[str, str]]]
OpenEngine = Callable[..., Engine]


def _inject(engine: Engine, id: str, conversation: str = "talk") -> None:
    memory = engine.get(id)
    engine.store.uses.injected(conversation, [Use(id, 1, memory.content_hash, echo.prints(memory.content))])


@pytest.fixture
def writer(open_engine: OpenEngine, tmp_path: Path) -> apsw.Connection:
    """Somebody else who writes into the store."""
    open_engine()
    return apsw.Connection(str(tmp_path / "home" / "memories.db"))


@pytest.mark.parametrize("way", ["erase", "seal"])
def test_no_byte_of_an_id_or_fingerprint_stays(
    open_engine: OpenEngine, tmp_path: Path, traces: Traces, way: str
) -> None:
    engine = open_engine()
    id = engine.remember("the kettle stands on the red shelf").id
    prints = echo.prints("the kettle stands on the red shelf")
    _inject(engine, id)
    assert {word for _, word in traces(tmp_path, prints)} == set(prints)
    getattr(engine, way)(id)
    assert traces(tmp_path, prints) == set()
    tables = ("uses", "given", "echoes")
    connection = engine.store._connection()  # type: ignore[attr-defined]
    assert [connection.execute(f"SELECT count(*) FROM {table}").get for table in tables] == [0, 0, 0]


def test_what_is_refused_goes_with_what_comes_next(open_engine: OpenEngine, writer: apsw.Connection) -> None:
    engine = open_engine()
    id = engine.remember("the kettle is red").id
    # Whoever waited here would fail the test by its time limit.
    engine.store._busy_timeout_s = 3600.0  # type: ignore[attr-defined]
    engine.store._connection().set_busy_timeout(3_600_000)  # type: ignore[attr-defined]
    writer.execute("BEGIN IMMEDIATE")
    _inject(engine, id)
    engine.store.uses.lose("talk")
    assert [(each.id, each.lost) for each in engine.store.uses.given("talk")] == [(id, True)]
    _inject(engine, id)
    assert [(each.id, each.lost) for each in engine.store.uses.given("talk")] == [(id, False)]
    _inject(engine, id, "other")
    engine.store.uses.forget("other")
    engine.store.uses.end("talk")
    assert engine.store.uses.given("other") == []
    assert engine.store.uses.counts([id]) == {}
    writer.execute("ROLLBACK")
    engine.store.uses.flush()
    assert engine.store.uses.counts([id])[id].injected == 3
    assert [(each.id, each.lost) for each in engine.store.uses.given("talk")] == [(id, False)]
    assert engine.store.uses.given("other") == []


def test_what_waits_is_written_at_the_end(open_engine: OpenEngine, writer: apsw.Connection) -> None:
    engine = open_engine()
    id = engine.remember("the kettle is red").id
    writer.execute("BEGIN IMMEDIATE")
    _inject(engine, id)
    writer.execute("ROLLBACK")
    engine.close()
    assert open_engine().store.uses.counts([id])[id].injected == 1


def test_what_waits_is_bounded(
    open_engine: OpenEngine, writer: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "_MOST_WAITING", 3)
    engine = open_engine()
    id = engine.remember("the kettle is red").id
    writer.execute("BEGIN IMMEDIATE")
    for number in range(5):
        _inject(engine, id, f"talk {number}")
    writer.execute("ROLLBACK")
    engine.store.uses.flush()
    assert engine.store.uses.counts([id])[id].injected == 3


def test_a_text_that_was_sealed_while_it_waited_leaves_nothing(
    open_engine: OpenEngine, writer: apsw.Connection
) -> None:
    engine = open_engine()
    id = engine.remember("the kettle stands on the red shelf").id
    writer.execute("BEGIN IMMEDIATE")
    _inject(engine, id)
    writer.execute("ROLLBACK")
    engine.seal(id)
    engine.store.uses.flush()
    assert engine.store.uses.echoed(echo.prints("the kettle stands on the red shelf")) == {}
    assert engine.store.uses.given("talk") == []


def test_counting_inside_a_snapshot_waits_for_its_end(open_engine: OpenEngine) -> None:
    engine = open_engine()
    id = engine.remember("the kettle is red").id
    with engine.store.snapshot():
        _inject(engine, id)
    engine.store.uses.flush()
    assert engine.store.uses.counts([id])[id].injected == 1
    assert engine.store._connection().pragma("synchronous") == 2  # type: ignore[attr-defined]


def test_a_store_from_before_the_ledger_gets_one(
    tmp_path: Path, make_memory: Callable[..., Memory], monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = make_memory()
    monkeypatch.setattr("triskele.stores.sqlite.schema.MIGRATIONS", MIGRATIONS[:5])
    older = SqliteStore(tmp_path / "older.db")
    older.apply([Add(memory)], batch="one")
    older.backup(tmp_path / "older.backup")
    older.close()
    monkeypatch.undo()
    store = SqliteStore(tmp_path / "older.db")
    for _ in range(2):
        assert store.uses.most_used() == []
        store.uses.injected("talk", [Use(memory.id, 1, memory.content_hash)])
        assert [each.id for each in store.uses.given("talk")] == [memory.id]
        store.restore(tmp_path / "older.backup")
    store.close()
