"""Creation, backup, restore and vault killed at their steps: nothing is lost, locked out or left behind."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from triskele import config
from triskele.engine.local import LocalEngine
from triskele.types import Sensitivity, is_secret

# Every step of every work with TRISKELE_KILL_STEPS=all; else so many of each, taken at random.
KILLS = os.environ.get("TRISKELE_KILL_STEPS", "6")
MOST_STEPS = 2000
TIMEOUT_S = 3600 if KILLS == "all" else 300 + 10 * int(KILLS)
# Letters alone: tantivy writes checksums as digits, which hold any short number by chance.
WORD = "Qxwvzkjhgfbcdprtml"
CODE = "kqzjvwxpgfdb"
MARKED = f"the pond is guarded by {WORD}"

Deaths = Callable[[str, Path, Path], Iterator[Path]]


@pytest.fixture
def deaths(tmp_path: Path, nursery: Any) -> Deaths:
    """Copies of a folder in which a work on its store was killed, each at another step."""

    def die(work: str, folder: Path, file: Path) -> Iterator[Path]:
        random, step = Random(f"{work} {KILLS}"), 0
        for number in range(MOST_STEPS):
            step = step + 1 if KILLS == "all" else random.randrange(1, 60)
            copy = tmp_path / f"killed-{number}"
            shutil.copytree(folder, copy)
            store = copy / "home" / "memories.db"
            ended = nursery.ended(nursery.spawn("die_at", store, work, step, copy / file))
            assert ended in (0, -signal.SIGKILL), nursery.said()
            yield copy
            shutil.rmtree(copy)
            if (KILLS == "all" and ended == 0) or (KILLS != "all" and number + 1 == int(KILLS)):
                return

    return die


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store with three memories; a backup knows two of them."""
    folder = tmp_path / "before"
    with _own(folder) as engine:
        engine.remember(MARKED)
        engine.remember("the heron fishes at dawn")
        engine.upkeep.backup(folder / "backup.db")
        engine.remember("the otter sleeps at noon")
    return folder


def _texts(engine: LocalEngine) -> set[str]:
    return {memory.content for _, memory in engine.store.versions()}


def _holds(folder: Path, word: str) -> list[Path]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if word.encode() in path.read_bytes() or word.lower().encode() in path.read_bytes()]


def _erased(engine: LocalEngine, folder: Path) -> None:
    """Erase the marked memory; nothing of it is left but in what the user keeps elsewhere."""
    for memory in list(engine.store.versions()):
        if WORD in memory[1].content:
            engine.erase(memory[1].id)
            break
    assert [path for path in _holds(folder, WORD) if path.parent != folder] == []
    staged = [*folder.rglob(".backup-*"), *folder.rglob(".restore-*")]
    assert [path for path in staged if any(path.iterdir())] == []


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S)
def test_a_backup(folder: Path, deaths: Deaths, open_engine: Callable[..., LocalEngine]) -> None:
    for copy in deaths("backup", folder, Path("new.db")):
        with _own(copy) as engine:
            assert engine.upkeep.inspect(deep=True, repair=False).is_whole
            assert len(_texts(engine)) == 3
            _erased(engine, copy)
        if (copy / "new.db").exists():
            with open_engine(copy / "new.db") as backup:
                assert len(_texts(backup)) == 3 and backup.maintenance.check(deep=True) == []


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S)
def test_a_restore(folder: Path, deaths: Deaths) -> None:
    for copy in deaths("restore", folder, Path("backup.db")):
        with _own(copy) as engine:
            assert len(_texts(engine)) in (2, 3)
            health = engine.upkeep.inspect(deep=True)
            assert health.findings == () and health.lost == ()
            assert [hit.memory.content for hit in engine.recall("heron").hits] == ["the heron fishes at dawn"]
            _erased(engine, copy)


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S)
def test_the_first_secret(folder: Path, deaths: Deaths) -> None:
    for copy in deaths("first secret", folder, Path("none")):
        with _own(copy) as engine:
            for row in engine.store.sealed():
                assert engine.vault.open(row) == f"the alarm code is {CODE}"
            id = engine.remember("the safe code is 4471", sensitivity=Sensitivity.SECRET, title="Safe").id
            assert engine.reveal(id).text == "the safe code is 4471"
            assert engine.upkeep.inspect(deep=True).is_whole
            assert len(_texts(engine)) >= 4
        assert _holds(copy, CODE) == []


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S)
def test_a_sealing(folder: Path, deaths: Deaths) -> None:
    (folder / "backup.db").unlink()
    for copy in deaths("seal", folder, Path("none")):
        with _own(copy) as engine:
            [memory] = [each for _, each in engine.store.versions() if each.content in (MARKED, "Pond")]
            assert engine.upkeep.inspect(deep=True).is_whole
            if is_secret(memory):
                assert engine.reveal(memory.id).text == MARKED
                assert _holds(copy, WORD) == []
            else:
                engine.seal(memory.id, title="Pond")
                assert engine.reveal(memory.id).text == MARKED
            assert _holds(copy, WORD) == []


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S)
def test_a_rotation(folder: Path, deaths: Deaths) -> None:
    texts = {f"the alarm code is {CODE}", "the safe code is 4471"}
    with _own(folder) as engine:
        for text in sorted(texts):
            engine.remember(text, sensitivity=Sensitivity.SECRET, title=text.split()[1])
    for copy in deaths("rotate", folder, Path("none")):
        with _own(copy) as engine:
            assert {engine.vault.open(row) for row in engine.store.sealed()} == texts
            engine.vault.rotate(renew=True)
            assert {engine.vault.open(row) for row in engine.store.sealed()} == texts
            assert engine.upkeep.inspect(deep=True).is_whole


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S)
def test_a_creation(tmp_path: Path, deaths: Deaths) -> None:
    (tmp_path / "empty" / "home").mkdir(parents=True)
    for copy in deaths("create", tmp_path / "empty", Path("none")):
        with _own(copy) as engine:
            engine.remember("the heron fishes at dawn")
            assert _texts(engine) == {"the heron fishes at dawn"}
            assert engine.maintenance.check(deep=True) == []


def _own(folder: Path) -> LocalEngine:
    """An engine whose vault key lies beside its store, as the workers have it."""
    home = folder / "home"
    names = {"HOME": str(home), "PROJECT": "crash", "RECALL_MODEL": "none", "PRIVACY_KEY": "file"}
    return LocalEngine(config.load({f"TRISKELE_{name}": value for name, value in names.items()}), home)
