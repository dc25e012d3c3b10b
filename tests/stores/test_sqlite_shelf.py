"""What the SQLite file does with documents: bytes, hashes, and a store that others hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import apsw
import pytest

from triskele.engine import Engine
from triskele.errors import StoreDamaged, StoreUnavailable
from triskele.stores.protocol import Document

Traces = Callable[[Path, Iterable[str]], set[tuple[str, str]]]
OpenEngine = Callable[..., Engine]


def test_an_erasing_leaves_no_byte_of_a_document(
    open_engine: OpenEngine, tmp_path: Path, new_word: Callable[[], str], traces: Traces
) -> None:
    engine, word = open_engine(), new_word()
    id = engine.remember("the kettle is red").id
    engine.store.shelve("song", {"a": Document(f"all about {word}", about=[id])})
    assert traces(tmp_path, [word]) != set()
    engine.erase(id)
    assert traces(tmp_path, [word]) == set()


def test_a_document_that_somebody_changed_is_found(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine()
    engine.store.shelve("song", {"a": Document("x")})
    other = apsw.Connection(str(tmp_path / "home" / "memories.db"))
    other.execute("UPDATE shelf SET value = '\"y\"'")
    assert [finding.subject for finding in engine.store.check(deep=True)] == ["shelf a"]
    other.execute("UPDATE shelf SET value = 'no json'")
    other.close()
    with pytest.raises(StoreDamaged, match="song"):
        engine.store.shelved("song")


def test_who_cannot_wait_is_refused_at_once_and_others_wait_as_before(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine(busy_timeout_s=30.0)
    engine.remember("the kettle is red")
    other = apsw.Connection(str(tmp_path / "home" / "memories.db"))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="busy"):
        engine.store.shelve("song", {"a": Document("x")}, wait=False)
    other.close()
    engine.store.shelve("song", {"a": Document("x")}, wait=False)
    assert engine.store.shelved("song") == {"a": "x"}


def test_a_store_from_before_the_shelf_gets_one(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine()
    id = engine.remember("the kettle is red").id
    engine.close()
    older = apsw.Connection(str(tmp_path / "home" / "memories.db"))
    older.execute("DROP TABLE shelf")
    older.pragma("user_version", 2)
    older.close()
    again = open_engine()
    assert again.store.memories([id]).keys() == {id}
    assert again.store.shelved("song") == {}
