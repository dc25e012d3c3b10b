"""The lifecycle of a derived index, with a toy that implements only the hooks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from triskele.errors import IndexUnavailable
from triskele.index import lifecycle
from triskele.index.dense import DenseIndex
from triskele.index.lexical import LexicalIndex
from triskele.index.lifecycle import DerivedIndex, DiskIndex
from triskele.index.mentions import MentionIndex
from triskele.index.token_vectors import TokenIndex
from triskele.store.owner import OwnerStore
from triskele.store.values import Heads
from triskele.text.analysis import Analyzer
from triskele.text.files import file_lock


class ToyStore:
    """A list of lines in one epoch."""

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)
        self.name = "first epoch"
        self.reads = 0

    def epoch(self) -> str:
        return self.name

    def heads(self, fingerprint: str) -> Heads:
        assert not fingerprint
        return Heads(self.name)


class ToyIndex(DiskIndex[list[str], list[str], list[str]]):
    """The lines in upper case: one file that is written again at every append."""

    kind, format, title, lock_name = "toy", 3, "the toy index", "toy.lock"

    def __init__(self, folder: Path, store: ToyStore, tail_cap: int = 2) -> None:
        super().__init__(folder, cast(OwnerStore, store), "small/one")
        self.tail_cap = tail_cap
        self.toys = store

    @property
    def file(self) -> Path:
        return self.path / "lines.json"

    def kept(self) -> list[str] | None:
        return self._open(self._store.epoch())

    def damaged(self) -> int:
        stored = self._stored()
        return sum(zlib.crc32(line.encode()) != check for line, check in stored["lines"]) if stored else 0

    def _stored(self) -> dict[str, Any] | None:
        try:
            return dict(json.loads(self.file.read_text()))
        except (OSError, ValueError):
            return None

    def _position(self, heads: Heads) -> int:
        return len(self.toys.lines)

    def _open(self, epoch: str) -> list[str] | None:
        stored = self._stored()
        return [line for line, _ in stored["lines"]] if stored and stored["epoch"] == epoch else None

    def _since(self, kept: list[str] | None) -> list[str]:
        self.toys.reads += 1
        return [line.upper() for line in self.toys.lines[len(kept or []) :]]

    def _append(self, epoch: str, kept: list[str] | None) -> None:
        lines = [(line, zlib.crc32(line.encode())) for line in [*(kept or []), *self._since(kept)]]
        self.path.mkdir(parents=True, exist_ok=True)
        self.before_the_rename(self.path / "lines.new", json.dumps({"epoch": epoch, "lines": lines}))
        (self.path / "lines.new").replace(self.file)

    def before_the_rename(self, path: Path, content: str) -> None:
        path.write_text(content)

    def _join(self, kept: list[str] | None, tail: list[str]) -> list[str]:
        return [*(kept or []), *tail]


class KilledIndex(ToyIndex):
    """Its process is killed in the middle of a write, while it holds the lock."""

    def before_the_rename(self, path: Path, content: str) -> None:
        path.write_text(content[: len(content) // 2])
        os.kill(os.getpid(), signal.SIGKILL)


class MemoryIndex(DerivedIndex[list[str], list[str], list[str]]):
    """The smallest index: it keeps what it read last."""

    def __init__(self, store: ToyStore) -> None:
        super().__init__(cast(OwnerStore, store))
        self.toys = store

    def _position(self, heads: Heads) -> int:
        return len(self.toys.lines)

    def _open(self, epoch: str) -> list[str] | None:
        return self._view if self._stamp[0] == epoch else None

    def _since(self, kept: list[str] | None) -> list[str]:
        self.toys.reads += 1
        return self.toys.lines[len(kept or []) :]

    def _join(self, kept: list[str] | None, tail: list[str]) -> list[str]:
        return [*(kept or []), *tail]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "index"


def test_the_store_is_read_again_only_when_it_has_changed(folder: Path) -> None:
    store = ToyStore("one")
    for index in (ToyIndex(folder, store), MemoryIndex(store)):
        before = index.view()
        reads = store.reads
        assert index.view() is before
        assert store.reads == reads
        store.lines.append("more")
        assert len(index.view()) == len(before) + 1
        store.lines[:], store.name = ["two"], f"epoch after {store.name}"
        assert [line.lower() for line in index.view()] == ["two"]


def test_a_short_tail_stays_in_memory_and_a_long_one_is_written(folder: Path) -> None:
    store = ToyStore("one", "two")
    index = ToyIndex(folder, store, tail_cap=2)
    assert index.view() == ["ONE", "TWO"]
    assert index.kept() is None
    store.lines.append("three")
    assert index.view() == ["ONE", "TWO", "THREE"] == index.kept()
    store.lines.append("four")
    assert index.view() == ["ONE", "TWO", "THREE", "FOUR"]
    assert index.kept() == ["ONE", "TWO", "THREE"]
    before = index.view()
    assert index.catch_up()
    assert index.kept() == index.view() == ["ONE", "TWO", "THREE", "FOUR"]
    # The view with the tail in memory is released.
    assert index.view() is not before


@pytest.mark.parametrize("number", [1, 2, 4, 30])
def test_files_of_another_format_are_replaced_however_short_the_tail(folder: Path, number: int) -> None:
    index = ToyIndex(folder, ToyStore("one"))
    other, variant = folder / f"toy-{number}-small_one", folder / f"toy-{number}-large_one"
    for path in (other, variant):
        path.mkdir(parents=True)
    assert index.view() == ["ONE"]
    assert index.kept() == ["ONE"]
    assert sorted(ToyIndex.files(folder)) == sorted([index.path, variant])


def test_an_index_that_writes_at_once_has_no_first_tail(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ToyIndex, "writes_at_once", True)
    index = ToyIndex(folder, ToyStore("one"))
    assert index.view() == ["ONE"] == index.kept()


def die(folder: str, *lines: str) -> None:
    """What a process of these tests does."""
    KilledIndex(Path(folder), ToyStore(*lines)).catch_up()


@pytest.mark.slow
@pytest.mark.parametrize("first", [(), ("one", "two", "three")], ids=["first write", "later write"])
def test_a_kill_in_the_middle_of_a_write_loses_nothing(folder: Path, first: tuple[str, ...]) -> None:
    store = ToyStore(*first)
    ToyIndex(folder, store).view()
    store.lines += ["four", "five", "six"]
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import test_lifecycle"
    code += f"; test_lifecycle.die({str(folder)!r}, *{store.lines!r})"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    index = ToyIndex(folder, store, tail_cap=1000)
    assert (folder / "toy-3-small_one" / "lines.new").exists()
    assert index.kept() == ([line.upper() for line in first] or None)
    assert index.view() == [line.upper() for line in store.lines]
    # Without a wait: the lock of a killed process is free.
    assert index.catch_up(wait_s=0)
    assert index.kept() == index.view() == [line.upper() for line in store.lines]
    assert index.damaged() == 0


def test_damaged_index_is_rebuilt_and_other_formats_removed(folder: Path) -> None:
    store = ToyStore("one", "two", "three")
    index = ToyIndex(folder, store, tail_cap=0)
    index.view()
    older = folder / "toy-2-small_one"
    older.mkdir()
    index.file.write_text(index.file.read_text().replace("TWO", "TOO"))
    assert index.damaged() == 1
    assert ToyIndex(folder, store).view() == ["ONE", "TOO", "THREE"]
    index.rebuild()
    assert index.damaged() == 0
    assert index.view() == ["ONE", "TWO", "THREE"]
    assert ToyIndex.files(folder) == [index.path]


def test_a_view_read_during_a_rebuild_is_released(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = ToyIndex(folder, ToyStore("one", "two"))
    views: list[list[str]] = []

    def read_and_write(path: Path, content: str) -> None:
        views.append(index.view())
        path.write_text(content)

    monkeypatch.setattr(index, "before_the_rename", read_and_write)
    index.rebuild()
    assert index.view() == views[0] == ["ONE", "TWO"]
    assert index.view() is not views[0]


def test_a_file_of_another_epoch_is_not_used(folder: Path) -> None:
    store = ToyStore("one", "two", "three")
    index = ToyIndex(folder, store)
    index.view()
    store.name, store.lines[:] = "second epoch", ["another"]
    assert index.kept() is None
    assert index.view() == ["ANOTHER"]
    index.catch_up()
    assert index.kept() == ["ANOTHER"]


def test_where_the_folder_cannot_be_written_memory_serves(folder: Path) -> None:
    # A file in the place of the folder: permissions would not stop the root user.
    folder.write_text("in the way")
    store = ToyStore("one", "two", "three")
    index = ToyIndex(folder, store, tail_cap=0)
    assert index.view() == ["ONE", "TWO", "THREE"]
    store.lines.append("four")
    assert index.view()[-1] == "FOUR"
    for write in (index.catch_up, index.rebuild):
        with pytest.raises(IndexUnavailable, match="the toy index"):
            write()


def test_while_another_process_writes_readers_do_not_wait(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ToyStore("one", "two", "three")
    index = ToyIndex(folder, store)
    index.view()
    store.lines += ["four", "five", "six"]
    with file_lock(folder / "toy.lock", timeout_s=1) as is_held:
        assert is_held
        # A reader that waited would wait for as long as the test runs.
        monkeypatch.setattr(lifecycle, "FIRST_INDEX_TIMEOUT_S", 10_000)
        assert index.view()[-1] == "SIX"
        assert index.kept() == ["ONE", "TWO", "THREE"]
        assert not index.catch_up(wait_s=0)
        monkeypatch.setattr(lifecycle, "LOCK_TIMEOUT_S", 0.01)
        with pytest.raises(IndexUnavailable, match="another process is writing the toy index"):
            index.rebuild()
        assert index.kept() == ["ONE", "TWO", "THREE"]
    assert index.catch_up(wait_s=0)


def test_after_close_the_index_reads_again(folder: Path) -> None:
    store = ToyStore("one")
    for index in (ToyIndex(folder, store), MemoryIndex(store)):
        before = index.view()
        index.close()
        assert index.view() == before
        assert index.view() is not before
        index.rebuild()
        assert index.view() == before
        assert index.orphans(np.array([1])) == 0
    assert MemoryIndex(store).damaged() == 0


def test_folders_and_locks_have_fixed_names(folder: Path) -> None:
    store = cast(OwnerStore, ToyStore())
    indexes: dict[str, DiskIndex[Any, Any, Any]] = {
        "writer.lock": LexicalIndex(folder, store, Analyzer()),
        "dense.lock": DenseIndex(folder, store, "some/model@1", 4),
        "tokens.lock": TokenIndex(folder, store, "some/model@1", 4),
        "mentions.lock": MentionIndex(folder, store),
    }
    names = ["lexical-1-english", "dense-1-some_model@1", "tokens-1-some_model@1", "mentions-1"]
    assert [index.path.name for index in indexes.values()] == names
    assert [index._lock_path().name for index in indexes.values()] == list(indexes)
