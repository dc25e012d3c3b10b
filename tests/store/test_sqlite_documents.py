"""What the SQLite file does with documents: bytes, hashes, and a store that others hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import apsw
import pytest

from triskele.engine.local import LocalEngine
from triskele.errors import StoreDamaged, StoreUnavailable
from triskele.store.values import Document

Traces = Callable[[Path, Iterable[str]], set[tuple[str, str]]]
OpenEngine = Callable[..., LocalEngine]


def test_an_erasing_leaves_no_byte_of_a_document(
    open_engine: OpenEngine, tmp_path: Path, new_word: Callable[[], str], traces: Traces
) -> None:
    engine, word = open_engine(), new_word()
    id = engine.remember("the kettle is red").id
    engine.store.documents.put("song", {"a": Document(f"all about {word}", about=[id])})
    assert traces(tmp_path, [word]) != set()
    engine.erase(id)
    assert traces(tmp_path, [word]) == set()


def test_check_reports_a_changed_document(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine()
    engine.store.documents.put("song", {"a": Document("x")})
    other = apsw.Connection(str(tmp_path / "home" / "memories.db"))
    other.execute("UPDATE documents SET value = '\"y\"'")
    assert [finding.subject for finding in engine.maintenance.check(deep=True)] == ["documents a"]
    other.execute("UPDATE documents SET value = 'no json'")
    other.close()
    with pytest.raises(StoreDamaged, match="song"):
        engine.store.documents.all("song")


def test_impatient_writer_is_refused_at_once_and_other_writers_wait(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine(busy_timeout_s=30.0)
    engine.remember("the kettle is red")
    other = apsw.Connection(str(tmp_path / "home" / "memories.db"))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="busy"):
        engine.store.documents.put("song", {"a": Document("x")}, durable=False)
    other.close()
    engine.store.documents.put("song", {"a": Document("x")}, durable=False)
    assert engine.store.documents.all("song") == {"a": "x"}
    connection = engine.store._database.connection()  # type: ignore[attr-defined]
    assert connection.pragma("synchronous") == 2
    assert connection.pragma("busy_timeout") == 30_000
