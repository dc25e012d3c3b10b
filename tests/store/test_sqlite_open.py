"""Opening: what is no store of ours is told in one line and left as it was."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from triskele.engine.local import LocalEngine
from triskele.errors import StoreUnavailable
from triskele.store.sqlite.schema import FORMAT, OLD_APPLICATION_ID
from triskele.store.sqlite.store import SqliteStore
from triskele.store.values import Use
from triskele.text.files import file_lock
from triskele.types import Add, Memory

Make = Callable[..., Memory]


def _database(path: Path, *statements: str) -> None:
    connection = apsw.Connection(str(path))
    for statement in statements:
        connection.execute(statement)
    connection.close()


def _refusal(path: Path) -> str:
    """The one line with which a file is refused; the file stays as it was."""
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(StoreUnavailable) as raised:
        SqliteStore(path, busy_timeout_s=0.1)
    assert (path.read_bytes() if path.is_file() else None) == before
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("pragma", ["journal_mode = delete", "journal_mode = wal"])
def test_the_database_of_another_program_is_refused_unchanged(tmp_path: Path, pragma: str) -> None:
    path = tmp_path / "browser.db"
    _database(path, f"PRAGMA {pragma}", "CREATE TABLE cookies (name)", "INSERT INTO cookies VALUES ('mine')")
    assert "not one of triskele's" in _refusal(path)


def test_the_database_of_another_program_with_our_version_number_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "browser.db"
    _database(path, "CREATE TABLE versions (name)", f"PRAGMA user_version = {FORMAT}")
    assert "not one of triskele's" in _refusal(path)


@pytest.mark.parametrize("content", [b"just some notes\n" * 100, bytes(5000), b"\xff" * 5000], ids=["text", "0", "1"])
def test_open_refuses_other_files_unchanged(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    assert str(path) in _refusal(path)


def test_a_folder_is_no_store(tmp_path: Path) -> None:
    folder = tmp_path / "folder.db"
    folder.mkdir()
    assert str(folder) in _refusal(folder)


def test_a_path_through_a_file_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert str(tmp_path) in _refusal(tmp_path / "file" / "memories.db")


def test_open_refuses_an_incomplete_store(tmp_path: Path) -> None:
    path = tmp_path / "half.db"
    SqliteStore(path).close()
    _database(path, "DROP TABLE links")
    unbound = SqliteStore(path)
    store = unbound.for_owner("me")
    with pytest.raises(StoreUnavailable, match="damaged"):
        store.census()
    unbound.close()


@pytest.mark.parametrize("is_there", [True, False], ids=["empty file", "no file"])
def test_an_empty_file_becomes_a_store(tmp_path: Path, make_memory: Make, is_there: bool) -> None:
    path = tmp_path / "not" / "there" / "new.db"
    if is_there:
        path.parent.mkdir(parents=True)
        path.touch()
    unbound = SqliteStore(path)
    store = unbound.for_owner("me")
    store.apply([Add(make_memory())], batch="one")
    assert unbound.maintenance.check(deep=True) == []
    connection = apsw.Connection(str(path))
    assert connection.pragma("user_version") == FORMAT
    assert connection.pragma("journal_mode") == "wal"
    connection.close()
    unbound.close()


def test_every_connection_is_durable(tmp_path: Path) -> None:
    unbound = SqliteStore(tmp_path / "memories.db")
    store = unbound.for_owner("me")
    seen: list[tuple[str, int]] = []

    def look() -> None:
        connection = store._database.connection()
        seen.append((connection.pragma("journal_mode"), connection.pragma("synchronous")))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    look()
    unbound.close()
    assert seen == [("wal", 2), ("wal", 2)]


def test_open_waits_for_a_store_being_created_then_reports_it(tmp_path: Path) -> None:
    path = tmp_path / "memories.db"
    with file_lock(tmp_path / "memories.db.lock", timeout_s=0) as is_held:
        assert is_held
        assert "another process" in _refusal(path)
    SqliteStore(path, busy_timeout_s=0.1).close()


@pytest.mark.slow
def test_a_lock_is_exclusive_and_ends_with_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "some.lock"
    with file_lock(path, timeout_s=0) as first, file_lock(path, timeout_s=0) as second:
        assert (first, second) == (True, False)
    script = f"import fcntl, os; fcntl.flock(os.open({str(path)!r}, os.O_RDWR), fcntl.LOCK_EX); os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    with file_lock(path, timeout_s=0) as is_held:
        assert is_held


def test_busy_store_is_reported_and_reads_continue(open_engine: Callable[..., LocalEngine], tmp_path: Path) -> None:
    engine = open_engine(busy_timeout_s=0.1)
    engine.remember("kept")
    other = apsw.Connection(str(tmp_path / "home" / "memories.db"))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="busy"):
        engine.remember("refused")
    assert [hit.memory.content for hit in engine.recall("kept").hits] == ["kept"]
    other.close()
    engine.remember("accepted")
    assert engine.store.census().memories == 2


def test_a_connection_that_may_only_read_says_so(
    tmp_path: Path, make_memory: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, memory = tmp_path / "memories.db", make_memory()
    unbound = SqliteStore(path)
    writable = unbound.for_owner("me")
    writable.apply([Add(memory)], batch="one")
    reads_only = apsw.SQLITE_OPEN_READONLY
    real = apsw.Connection
    monkeypatch.setattr(apsw, "Connection", lambda name, **_: real(name, flags=reads_only))
    unbound = SqliteStore(path)
    store = unbound.for_owner("me")
    with pytest.raises(StoreUnavailable, match="read-only"):
        store.apply([Add(make_memory("more"))], batch="two")
    assert store.memories([memory.id]).keys() == {memory.id}
    unbound.close()
    unbound.close()


@pytest.fixture
def common_folder() -> Iterator[Path]:
    """A folder that other users may look into."""
    with tempfile.TemporaryDirectory(prefix="triskele-common-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.mark.slow
def test_a_store_in_a_folder_that_may_only_be_read_is_read_and_refuses_writes(
    common_folder: Path, make_memory: Make
) -> None:
    path, memory = common_folder / "memories.db", make_memory()
    unbound = SqliteStore(path)
    unbound.for_owner("me").apply([Add(memory)], batch="one")
    unbound.close()
    (common_folder / "memories.db.lock").unlink()
    for name in common_folder.iterdir():
        name.chmod(0o444)
    common_folder.chmod(0o555)

    def read_and_write() -> str:
        unbound = SqliteStore(path)
        store = unbound.for_owner("me")
        assert store.memories([memory.id]).keys() == {memory.id}
        store.usage.recalled([Use(memory.id, 1)])
        try:
            store.apply([Add(make_memory("more"))], batch="two")
        except StoreUnavailable as error:
            unbound.close()
            return str(error)
        return "written"

    output = _as_a_stranger(read_and_write)
    common_folder.chmod(0o755)
    assert output == f"the store {path} is read-only"
    assert {each.name for each in common_folder.iterdir()} == {"memories.db", "memories.db.ledger"}


@pytest.mark.slow
def test_log_beside_a_read_only_database_is_read_or_reported(common_folder: Path, make_memory: Make) -> None:
    path, memory = common_folder / "memories.db", make_memory()
    unbound = SqliteStore(path)
    unbound.for_owner("me").apply([Add(memory)], batch="one")

    def read() -> str:
        try:
            with closing(SqliteStore(path)) as unbound:
                return " ".join(unbound.for_owner("me").memories([memory.id]))
        except StoreUnavailable as error:
            return str(error)

    for name in common_folder.iterdir():
        name.chmod(0o444)
    common_folder.chmod(0o555)
    # Another process has it open: the files of its log are there.
    assert _as_a_stranger(read) == memory.id
    common_folder.chmod(0o755)
    (common_folder / "memories.db-shm").rename(common_folder / "aside")
    common_folder.chmod(0o555)
    assert "changes in memories.db-wal are not in it yet" in _as_a_stranger(read)
    common_folder.chmod(0o755)
    (common_folder / "aside").rename(common_folder / "memories.db-shm")
    unbound.close()


@pytest.mark.slow
def test_an_old_store_that_may_only_be_read_is_refused(common_folder: Path) -> None:
    path = common_folder / "memories.db"
    SqliteStore(path).close()
    _database(path, f"PRAGMA application_id = {OLD_APPLICATION_ID}")
    for name in common_folder.iterdir():
        name.chmod(0o444)
    common_folder.chmod(0o555)
    output = _as_a_stranger(lambda: _refusal(path))
    common_folder.chmod(0o755)
    assert "before the first release" in output


def _as_a_stranger(act: Callable[[], str]) -> str:
    """What an act gives in a child process that is not root; permissions do not bind root."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setuid(65534)
            os.write(writing, act().encode())
        except BaseException as error:
            os.write(writing, f"failed: {error!r}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        output = pipe.read()
    os.waitpid(child, 0)
    return output


def test_a_damaged_derived_page_does_not_keep_a_store_with_free_pages_from_opening(
    tmp_path: Path, make_memory: Make
) -> None:
    path = tmp_path / "store.db"
    with closing(SqliteStore(path)) as store:
        store.for_owner("me").apply([Add(make_memory(f"Leaf {number}")) for number in range(20)], batch="leaves")
    filled = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400) INSERT INTO junk"
    _database(path, "PRAGMA journal_mode = delete", "CREATE TABLE junk (x)", f"{filled} SELECT zeroblob(3000) FROM n")
    _database(path, "DROP TABLE junk")
    with closing(apsw.Connection(str(path))) as connection:
        page = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'vectors'").get
        size = connection.pragma("page_size")
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * 100)
    with closing(SqliteStore(path)) as store:
        assert len(list(store.for_owner("me").versions())) == 20
