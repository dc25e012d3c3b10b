"""What the SQLite file does with the ledger: bytes, a store that others hold, and stores from before."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import apsw
import pytest

from triskele.agents import echo
from triskele.engine.local import LocalEngine
from triskele.store import usage
from triskele.store.values import Use

Traces = Callable[[Path, Iterable[str]], set[tuple[str, str]]]
OpenEngine = Callable[..., LocalEngine]


def _inject(engine: LocalEngine, id: str, conversation: str = "talk") -> None:
    memory = engine.get(id)
    engine.store.usage.injected(conversation, [Use(id, 1, memory.content_hash, echo.fingerprints(memory.content))])


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
    fingerprints = echo.fingerprints("the kettle stands on the red shelf")
    _inject(engine, id)
    assert {word for _, word in traces(tmp_path, fingerprints)} == set(fingerprints)
    getattr(engine, way)(id)
    assert traces(tmp_path, fingerprints) == set()
    tables = ("usage_counts", "given", "echoes")
    connection = engine.store._database.connection()  # type: ignore[attr-defined]
    assert [connection.execute(f"SELECT count(*) FROM {table}").get for table in tables] == [0, 0, 0]


def test_refused_use_is_written_with_the_next(open_engine: OpenEngine, writer: apsw.Connection) -> None:
    engine = open_engine()
    id = engine.remember("the kettle is red").id
    # Whoever waited here would fail the test by its time limit.
    engine.store._database._busy_timeout_s = 3600.0  # type: ignore[attr-defined]
    engine.store._database.connection().set_busy_timeout(3_600_000)  # type: ignore[attr-defined]
    writer.execute("BEGIN IMMEDIATE")
    _inject(engine, id)
    engine.store.usage.lose("talk")
    assert [(each.id, each.lost) for each in engine.store.usage.given("talk")] == [(id, True)]
    _inject(engine, id)
    assert [(each.id, each.lost) for each in engine.store.usage.given("talk")] == [(id, False)]
    _inject(engine, id, "other")
    engine.store.usage.forget("other")
    engine.store.usage.end("talk")
    assert engine.store.usage.given("other") == []
    assert engine.store.usage.counts([id]) == {}
    writer.execute("ROLLBACK")
    engine.store.usage.flush()
    assert engine.store.usage.counts([id])[id].injected == 3
    assert [(each.id, each.lost) for each in engine.store.usage.given("talk")] == [(id, False)]
    assert engine.store.usage.given("other") == []


def test_pending_uses_are_written_at_close(open_engine: OpenEngine, writer: apsw.Connection) -> None:
    engine = open_engine()
    id = engine.remember("the kettle is red").id
    writer.execute("BEGIN IMMEDIATE")
    _inject(engine, id)
    writer.execute("ROLLBACK")
    engine.close()
    assert open_engine().store.usage.counts([id])[id].injected == 1


def test_pending_uses_are_bounded(
    open_engine: OpenEngine, writer: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "_MOST_WAITING", 3)
    engine = open_engine()
    id = engine.remember("the kettle is red").id
    writer.execute("BEGIN IMMEDIATE")
    for number in range(5):
        _inject(engine, id, f"talk {number}")
    writer.execute("ROLLBACK")
    engine.store.usage.flush()
    assert engine.store.usage.counts([id])[id].injected == 3


def test_a_text_that_was_sealed_while_it_waited_leaves_nothing(
    open_engine: OpenEngine, writer: apsw.Connection
) -> None:
    engine = open_engine()
    id = engine.remember("the kettle stands on the red shelf").id
    writer.execute("BEGIN IMMEDIATE")
    _inject(engine, id)
    writer.execute("ROLLBACK")
    engine.seal(id)
    engine.store.usage.flush()
    assert engine.store.usage.echoed(echo.fingerprints("the kettle stands on the red shelf")) == {}
    assert engine.store.usage.given("talk") == []


def test_counting_inside_a_snapshot_waits_for_its_end(open_engine: OpenEngine) -> None:
    engine = open_engine()
    id = engine.remember("the kettle is red").id
    with engine.store.snapshot():
        _inject(engine, id)
    engine.store.usage.flush()
    assert engine.store.usage.counts([id])[id].injected == 1
    assert engine.store._database.connection().pragma("synchronous") == 2  # type: ignore[attr-defined]
