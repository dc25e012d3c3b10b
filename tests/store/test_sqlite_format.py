"""The format of a SQLite file: a new file has format 1, others are refused in one line and stay as they are."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from triskele.engine.local import LocalEngine
from triskele.engine.opening import restore_memory
from triskele.errors import BEFORE_RELEASE, BadInput, StoreDamaged, StoreNewer, StoreOlder, StoreUnavailable
from triskele.store.sqlite.schema import APPLICATION_ID, FORMAT, OLD_APPLICATION_ID, SCHEMA
from triskele.store.sqlite.store import SqliteStore
from triskele.types import Add, Memory

Make = Callable[..., Memory]
# The last format before the first release.
LAST_OLD = 15


def _database(path: Path, *statements: str) -> None:
    with closing(apsw.Connection(str(path))) as connection:
        for statement in statements:
            connection.execute(statement)


def _marked(path: Path, id: int, format: int) -> None:
    _database(path, f"PRAGMA application_id = {id}", f"PRAGMA user_version = {format}")


def _old_store(path: Path, format: int = LAST_OLD, *statements: str) -> None:
    """A store from before the first release, as far as its header and names of tables say."""
    tables = [f"CREATE TABLE {name} (name)" for name in ("versions", "links", "journal", "meta")]
    _database(path, *statements, *tables, "INSERT INTO versions VALUES ('the heron fishes at dawn')")
    _marked(path, OLD_APPLICATION_ID, format)


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _refusal(path: Path, kind: type[StoreUnavailable] = StoreUnavailable) -> str:
    """The line with which a file is refused; no file is changed or created."""
    before = _files(path.parent)
    with pytest.raises(kind) as raised:
        SqliteStore(path)
    assert "\n" not in str(raised.value)
    assert _files(path.parent) == before
    return str(raised.value)


def test_a_new_file_has_format_1(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "new.db").close()
    with closing(apsw.Connection(str(tmp_path / "new.db"))) as connection:
        assert connection.pragma("application_id") == APPLICATION_ID
        assert connection.pragma("user_version") == FORMAT == 1


@pytest.mark.parametrize("format", [1, 6, LAST_OLD])
@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_an_old_store_is_refused_with_the_way_out(tmp_path: Path, format: int, mode: str) -> None:
    path = tmp_path / "old.db"
    _old_store(path, format, f"PRAGMA journal_mode = {mode}")
    message = _refusal(path, StoreOlder)
    assert message == f"the store {path} {BEFORE_RELEASE}"
    for command in ("triskele export FILE --private --with-secrets", "triskele import FILE --keep-origin"):
        assert f"`{command}`" in message


def test_an_old_store_whose_header_is_only_in_its_log_is_refused(tmp_path: Path) -> None:
    _database(tmp_path / "live.db", "PRAGMA journal_mode = wal")
    live = apsw.Connection(str(tmp_path / "live.db"))
    for statement in ("CREATE TABLE versions (name)", f"PRAGMA application_id = {OLD_APPLICATION_ID}"):
        live.execute(statement)
    folder = tmp_path / "copy"
    folder.mkdir()
    for end in ("", "-wal"):
        shutil.copyfile(tmp_path / f"live.db{end}", folder / f"old.db{end}")
    live.close()
    before = _files(folder)
    with pytest.raises(StoreOlder):
        SqliteStore(folder / "old.db")
    after = _files(folder)
    assert {name: after[name] for name in before} == before


def test_a_backup_of_an_old_store_is_refused(tmp_path: Path, make_memory: Make) -> None:
    _old_store(tmp_path / "old.db")
    before = (tmp_path / "old.db").read_bytes()
    with closing(SqliteStore(tmp_path / "new" / "store.db")) as unbound:
        store = unbound.for_owner("me")
        store.apply([Add(make_memory("the otter sleeps at noon"))], batch="new")
        with pytest.raises(StoreOlder, match=r"the backup .* was written before the first release"):
            unbound.maintenance.restore(tmp_path / "old.db")
        assert [memory.content for _, memory in store.versions()] == ["the otter sleeps at noon"]
    assert (tmp_path / "old.db").read_bytes() == before


def test_a_restore_moves_an_old_store_aside(tmp_path: Path, open_engine: Callable[..., LocalEngine]) -> None:
    engine = open_engine()
    engine.remember("the otter sleeps at noon")
    engine.upkeep.backup(tmp_path / "backup.db")
    path = engine.store._database.path  # type: ignore[attr-defined]
    settings = engine.settings
    engine.close()
    path.unlink()
    _old_store(path)
    old = path.read_bytes()
    restored, copy = restore_memory(tmp_path / "backup.db", settings=settings)
    with restored:
        assert [memory.content for _, memory in restored.store.versions()] == ["the otter sleeps at noon"]
    assert copy is not None and (copy / path.name).read_bytes() == old


def test_a_newer_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "newer.db"
    SqliteStore(path).close()
    _marked(path, APPLICATION_ID, FORMAT + 1)
    with pytest.raises(StoreNewer, match="newer triskele"):
        SqliteStore(path)


def test_a_store_without_a_format_has_a_damaged_header(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    SqliteStore(path).close()
    _marked(path, APPLICATION_ID, 0)
    with pytest.raises(StoreDamaged, match="header"):
        SqliteStore(path)


def test_a_restore_of_an_empty_file_is_refused(tmp_path: Path) -> None:
    _database(tmp_path / "empty.db", "PRAGMA journal_mode = wal")
    with closing(SqliteStore(tmp_path / "store.db")) as unbound, pytest.raises(BadInput, match="nothing in it"):
        unbound.maintenance.restore(tmp_path / "empty.db")


# A format that changes while a store is open


@pytest.fixture
def overtaken(open_engine: Callable[..., LocalEngine], tmp_path: Path) -> LocalEngine:
    """An engine whose store a newer triskele has changed since it was opened."""
    engine = open_engine()
    engine.remember("the heron fishes at dawn")
    _database(tmp_path / "home" / "memories.db", f"PRAGMA user_version = {FORMAT + 1}")
    return engine


@pytest.mark.parametrize(
    "act",
    [
        lambda engine: engine.remember("the otter sleeps at noon"),
        lambda engine: engine.recall("heron"),
        lambda engine: engine.store.documents.delete("song", ["a"]),
        lambda engine: engine.store.vectors.use_model("model"),
    ],
    ids=["remember", "recall", "documents", "vectors"],
)
def test_a_program_that_was_overtaken_refuses_in_one_line(
    overtaken: LocalEngine, act: Callable[[LocalEngine], object]
) -> None:
    with pytest.raises(StoreNewer, match="newer triskele") as raised:
        act(overtaken)
    assert "\n" not in str(raised.value)
    assert len(list(overtaken.store.versions())) == 1


def test_tables_that_a_newer_program_has_changed_are_not_called_damaged(overtaken: LocalEngine, tmp_path: Path) -> None:
    _database(tmp_path / "home" / "memories.db", "ALTER TABLE versions RENAME COLUMN content TO body")
    with pytest.raises(StoreNewer, match="newer triskele"):
        list(overtaken.store.versions())


def test_an_old_store_copied_over_an_open_one_is_refused(
    open_engine: Callable[..., LocalEngine], tmp_path: Path
) -> None:
    engine = open_engine()
    engine.remember("the heron fishes at dawn")
    _old_store(tmp_path / "old.db")
    old, live = (apsw.Connection(str(path)) for path in (tmp_path / "old.db", tmp_path / "home" / "memories.db"))
    with live.backup("main", old, "main") as steps:
        steps.step(-1)
    old.close()
    live.close()
    with pytest.raises(StoreOlder):
        engine.remember("the otter sleeps at noon")


# Free pages


def _with_free_pages(path: Path) -> int:
    """Fill a store with rows that are deleted again; its size."""
    SqliteStore(path).close()
    rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400) INSERT INTO junk"
    _database(path, "CREATE TABLE junk (x)", f"{rows} SELECT zeroblob(3000) FROM n", "DROP TABLE junk")
    return os.stat(path).st_size


def test_opening_gives_back_many_free_pages(tmp_path: Path) -> None:
    size = _with_free_pages(tmp_path / "store.db")
    SqliteStore(tmp_path / "store.db").close()
    assert (tmp_path / "store.db").stat().st_size < size - 400 * 3000


def test_a_store_in_use_opens_with_its_free_pages(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    size = _with_free_pages(path)
    reader = apsw.Connection(str(path))
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM versions").fetchall()
    with closing(SqliteStore(path)) as unbound:
        assert path.stat().st_size >= size
        # Those who write wait as before.
        assert unbound.maintenance._database.connection().pragma("busy_timeout") == 30_000
    reader.close()


def test_a_crash_during_the_creation_leaves_an_empty_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "new.db"
    monkeypatch.setattr("triskele.store.sqlite.schema.SCHEMA", SCHEMA + "CREATE TABLE broken (;")
    with pytest.raises(StoreUnavailable):
        SqliteStore(path)
    monkeypatch.undo()
    with closing(SqliteStore(path)) as unbound:
        assert unbound.maintenance.check(deep=True) == []
