"""Copies beside a store: those of killed processes are found, named and erased, and erasing reaches the others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from triskele.engine.local import LocalEngine

OpenEngine = Callable[..., LocalEngine]
Traces = Callable[[Path, Iterable[str]], set[tuple[str, str]]]

_DIE_AFTER_COPYING = """
import os, signal, sys
from pathlib import Path
from triskele import config
from triskele.engine.local import LocalEngine
from triskele.store.sqlite import maintenance

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

home, what, file = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
engine = LocalEngine(config.load({"TRISKELE_HOME": str(home), "TRISKELE_PRIVACY_KEY": "file"}), home)
maintenance.check = die
getattr(engine.upkeep, what)(file)
"""


def _die(home: Path, what: str, file: Path) -> None:
    died = subprocess.run([sys.executable, "-c", _DIE_AFTER_COPYING, str(home), what, str(file)], check=False)
    assert died.returncode == -signal.SIGKILL


@pytest.fixture
def word(new_word: Callable[[], str]) -> str:
    return new_word()


@pytest.fixture
def engine(open_engine: OpenEngine, word: str) -> LocalEngine:
    engine = open_engine()
    engine.remember(f"the pond is guarded by {word}")
    engine.remember("the heron fishes at dawn")
    return engine


def _id(engine: LocalEngine, word: str) -> str:
    return next(memory.id for _, memory in engine.store.versions() if word in memory.content)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["backup", "restore"])
@pytest.mark.parametrize("by", ["erase", "doctor"])
def test_remains_of_a_killed_backup_or_restore_are_named_and_erased(
    engine: LocalEngine, word: str, tmp_path: Path, traces: Traces, what: str, by: str
) -> None:
    file = tmp_path / "elsewhere" / "copy.db"
    file.parent.mkdir()
    if what == "restore":
        engine.upkeep.backup(file)
    home = Path(engine.settings.home)
    _die(home, "restore_backup" if what == "restore" else what, file)
    if what == "restore":
        file.unlink()
    [left] = [path for path in tmp_path.rglob(".*-*") if path.is_dir()]
    assert (".db", word) in traces(left, [word])
    if by == "doctor":
        assert engine.upkeep.inspect(repair=False).leftovers == (left,)
        health = engine.upkeep.inspect()
        assert [line for line in health.repaired if str(left) in line]
        assert health.leftovers == ()
    else:
        assert str(left) in engine.erase(_id(engine, word)).erased_copies
        assert traces(tmp_path, [word]) == set()
    assert not left.exists()


def test_a_backup_in_the_making_is_left_alone(engine: LocalEngine, tmp_path: Path) -> None:
    from triskele.store.sqlite import copies

    with copies.staging(copies.BACKUP, Path(engine.settings.home)) as folder:
        (folder / "copy.db").write_bytes(b"half of it")
        assert engine.upkeep.inspect().leftovers == ()
        assert (folder / "copy.db").exists()


def test_erase_reaches_copies_of_a_restore(
    engine: LocalEngine, open_engine: OpenEngine, word: str, tmp_path: Path, traces: Traces
) -> None:
    engine.upkeep.backup(tmp_path / "backup.db")
    copy = engine.upkeep.restore_backup(tmp_path / "backup.db")
    assert copy is not None
    erasure = engine.erase(_id(engine, word))
    assert erasure.erased_copies == (str(copy),)
    assert traces(Path(engine.settings.home), [word]) == set()
    # A backup that the user made is the user's: it is named, and so is nothing that was erased.
    assert erasure.remaining_copies == (str(tmp_path / "backup.db"),)
    with open_engine(copy) as old:
        assert [memory.content for _, memory in old.store.versions()] == ["the heron fishes at dawn"]
        assert old.upkeep.inspect(deep=True).findings == ()


def test_damaged_files_that_hold_an_erased_text_go(
    engine: LocalEngine, word: str, tmp_path: Path, traces: Traces
) -> None:
    engine.upkeep.backup(tmp_path / "backup.db")
    path = Path(engine.settings.home) / "memories.db"
    engine.close()
    data = path.read_bytes()
    path.write_bytes(data.replace(b"the heron fishes", b"the heron f\xc3\xc3hes"))
    from triskele.engine.opening import restore_memory

    again, copy = restore_memory(tmp_path / "backup.db", settings=engine.settings)
    with again:
        assert copy is not None and copy.is_dir()
        heron = next(memory.id for _, memory in again.store.versions() if "heron" in memory.content)
        assert str(copy) in again.erase(_id(again, word)).erased_copies
        assert not copy.exists()
        assert traces(Path(again.settings.home), [word]) == set()
        assert again.store.history(heron)


def test_the_users_own_backups_are_named(engine: LocalEngine, word: str, tmp_path: Path) -> None:
    engine.upkeep.backup(tmp_path / "mine.db")
    engine.upkeep.backup(tmp_path / "gone.db")
    os.unlink(tmp_path / "gone.db")
    assert engine.erase(_id(engine, word)).remaining_copies == (str(tmp_path / "mine.db"),)
    assert (tmp_path / "mine.db").exists()


@pytest.mark.slow
def test_sealing_reaches_the_copies_too(engine: LocalEngine, word: str, tmp_path: Path, traces: Traces) -> None:
    _die(Path(engine.settings.home), "backup", tmp_path / "home" / "copy.db")
    assert (".db", word) in traces(tmp_path, [word])
    assert engine.seal(_id(engine, word), title="Pond").erased_copies
    assert traces(tmp_path, [word]) == set()
