"""Restoring over a damaged store, from the library, and killed at every step."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from triskele.engine.local import LocalEngine
from triskele.engine.opening import restore_memory
from triskele.errors import StoreDamaged, StoreNewer, StoreUnavailable
from triskele.store.sqlite.store import SqliteStore

pytestmark = pytest.mark.slow

JUNK = b"no database " * 1000
_STEPS = ("rename", "replace", "link", "unlink", "mkdir", "fsync")


@pytest.fixture
def backup(open_engine: Callable[..., LocalEngine], tmp_path: Path) -> Path:
    """A backup of one memory; the store of the same engine has two."""
    engine = open_engine()
    engine.remember("the heron fishes at dawn")
    engine.upkeep.backup(tmp_path / "backup.db")
    engine.remember("the otter sleeps at noon")
    engine.close()
    return tmp_path / "backup.db"


def _texts(engine: LocalEngine) -> set[str]:
    return {memory.content for _, memory in engine.store.versions()}


def test_an_open_engine_restores_over_damage(open_engine: Callable[..., LocalEngine], backup: Path) -> None:
    engine = open_engine()
    path = engine.store._database.path  # type: ignore[attr-defined]
    data = path.read_bytes()
    path.write_bytes(data.replace(b"the otter sleeps", b"the otter sl\xc3\xc3ps"))
    copy = engine.upkeep.restore_backup(backup)
    assert copy is not None and (copy / path.name).is_file()
    assert _texts(engine) == {"the heron fishes at dawn"}
    assert [hit.memory.content for hit in engine.recall("heron").hits] == ["the heron fishes at dawn"]
    assert engine.recall("otter").hits == ()
    engine.remember("the crane arrives in March")
    assert engine.upkeep.inspect(deep=True).findings == ()
    assert str(copy) in engine.erase(engine.remember("the swan sleeps").id).remaining_copies


def test_a_store_that_cannot_be_opened_is_restored(open_engine: Callable[..., LocalEngine], backup: Path) -> None:
    engine = open_engine()
    settings, path = engine.settings, engine.store._database.path  # type: ignore[attr-defined]
    engine.close()
    path.write_bytes(JUNK)
    with pytest.raises(StoreUnavailable):
        open_engine()
    restored, copy = restore_memory(backup, settings=settings)
    with restored:
        assert copy is not None and (copy / path.name).read_bytes() == JUNK
        assert _texts(restored) == {"the heron fishes at dawn"}


def test_a_failed_opening_leaves_no_connection_behind(backup: Path, tmp_path: Path) -> None:
    path = tmp_path / "home" / "memories.db"
    path.write_bytes(JUNK)
    with pytest.raises(StoreUnavailable) as raised:
        SqliteStore(path)
    held = [os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if _is_open(name)]
    assert raised.value and str(path) not in held


def _is_open(name: str) -> bool:
    return os.path.exists(f"/proc/self/fd/{name}")


@pytest.mark.parametrize("is_damaged", [True, False], ids=["damaged", "sound"])
def test_killed_at_any_step_a_restore_leaves_the_old_files_or_the_restored_store(
    open_engine: Callable[..., LocalEngine], backup: Path, tmp_path: Path, is_damaged: bool
) -> None:
    home, pristine = tmp_path / "home", tmp_path / "pristine"
    if is_damaged:
        (home / "memories.db").write_bytes(JUNK)
        (home / "memories.db-wal").write_bytes(JUNK[:500])
    home.rename(pristine)
    states: list[str] = []
    for step in range(200):
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(pristine, home)
        is_over = _restored_and_killed(open_engine, backup, step)
        states.append(_state(open_engine, home))
        if is_over:
            break
    assert is_over
    assert states[0] == "old" and states[-1] == "restored"
    assert states == sorted(states)


def _restored_and_killed(open_engine: Callable[..., LocalEngine], backup: Path, step: int) -> bool:
    """Restore in a child that dies at a step; whether it came to the end."""
    child = os.fork()
    if child == 0:
        try:
            settings = _settings(backup)
            _die_at(step)
            restore_memory(backup, settings=settings)[0].close()
            os._exit(0)
        except BaseException:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status == 0


def _settings(backup: Path) -> Any:
    from triskele import config

    home = backup.parent / "home"
    environment = {"TRISKELE_HOME": str(home), "TRISKELE_PROJECT": "garden", "TRISKELE_RECALL_MODEL": "none"}
    return config.load(environment, store_url=f"sqlite:///{home / 'memories.db'}")


def _die_at(step: int) -> None:
    left = [step]

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return real(*arguments, **options)

        return call

    for name in _STEPS:
        setattr(os, name, counted(getattr(os, name)))


def _state(open_engine: Callable[..., LocalEngine], home: Path) -> str:
    """What a reader finds afterwards: the store of before, damaged or not, or the restored one."""
    assert (home / "memories.db").exists()
    try:
        engine = open_engine()
    except StoreUnavailable:
        assert (home / "memories.db").read_bytes() == JUNK
        assert (home / "memories.db-wal").read_bytes() == JUNK[:500]
        return "old"
    assert engine.maintenance.check(deep=True) == []
    texts = _texts(engine)
    engine.close()
    assert texts in ({"the heron fishes at dawn"}, {"the heron fishes at dawn", "the otter sleeps at noon"})
    if len(texts) == 1 and list(home.glob("memories.db.damaged-*")):
        [aside] = home.glob("memories.db.damaged-*")
        assert (aside / "memories.db").read_bytes() == JUNK
        assert (aside / "memories.db-wal").read_bytes() == JUNK[:500]
    return "old" if len(texts) == 2 else "restored"


# A database that is replaced while a process has it open


def test_a_database_replaced_under_a_live_process_is_opened_again(
    open_engine: Callable[..., LocalEngine], backup: Path
) -> None:
    engine = open_engine()
    path = engine.store._database.path  # type: ignore[attr-defined]
    engine.remember("written to the old file")
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink()
    shutil.copyfile(backup, path.with_name("new"))
    path.with_name("new").rename(path)
    engine.remember("written to the new file")
    assert _texts(engine) == {"the heron fishes at dawn", "written to the new file"}
    assert [hit.memory.content for hit in engine.recall("written").hits] == ["written to the new file"]
    with open_engine() as other:
        assert _texts(other) == _texts(engine)
        # The old file went without `restore`: what was acknowledged since is told.
        assert other.upkeep.inspect(deep=True).lost


def test_a_database_removed_under_a_live_process_takes_no_more_writes(open_engine: Callable[..., LocalEngine]) -> None:
    engine = open_engine()
    engine.remember("the heron fishes at dawn")
    path = engine.store._database.path  # type: ignore[attr-defined]
    path.rename(path.with_name("elsewhere.db"))
    with pytest.raises(StoreDamaged, match="was removed while it was open"):
        engine.remember("nobody would ever see this")
    assert not path.exists()


def test_a_newer_database_in_its_place_is_refused(open_engine: Callable[..., LocalEngine], backup: Path) -> None:
    engine = open_engine()
    path = engine.store._database.path  # type: ignore[attr-defined]
    connection = apsw.Connection(str(backup))
    connection.pragma("user_version", 99)
    connection.close()
    backup.rename(path)
    with pytest.raises(StoreNewer):
        engine.remember("too new for me")
