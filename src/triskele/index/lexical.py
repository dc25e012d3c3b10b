"""The lexical index: tantivy on disk up to a stamp, and a small one in memory for what came after.

The two rank as one. Each is asked with every term's weight corrected to the rarity of the term in both together, and
the small one is padded with filler so that its average length is that of the large one. A memory therefore scores the
same the moment it is written as it does after the writer has caught up.
"""

from __future__ import annotations

import math
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from triskele.base.files import disk_errors, file_lock
from triskele.errors import IndexUnavailable
from triskele.index.analysis import Analyzer
from triskele.index.shard import FIELDS, FileMark, Found, Indexed, Shard, Stamp, damaged_files, memory_document
from triskele.stores.protocols import START, Cursor, OwnerStore
from triskele.types import Action, JournalEntry, Scope, Sort

FORMAT = 4
MAX_TERMS = 256
_LOCK_TIMEOUT_S = 60.0
_WHAT = "the lexical index"
_PATIENCE_S = 5.0
_REMOVALS = 5

_ORDERS: dict[Sort, Callable[[Found], tuple[float, float, int]]] = {
    Sort.RELEVANCE: lambda hit: (-hit.score, 0.0, hit.row),
    Sort.IMPORTANCE: lambda hit: (-hit.importance, -hit.score, hit.row),
    Sort.RECENCY: lambda hit: (-hit.updated_at, -hit.score, hit.row),
}

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class _View:
    """What a search sees: both shards and the memories that the newer one answers for."""

    stamp: Stamp
    disk: Shard | None
    tail: Shard | None
    masked: frozenset[str]


class LexicalIndex:
    """Finds versions of memories by words, as fresh as the journal."""

    def __init__(self, folder: Path, store: OwnerStore, analyzer: Analyzer, *, tail_cap: int = 256) -> None:
        self.analyzer = analyzer
        self._folder = folder
        self._store = store
        self._tail_cap = tail_cap
        self._mutex = threading.Lock()
        self._view: _View | None = None
        self._whole: set[FileMark] = set()

    @property
    def path(self) -> Path:
        """The folder of the index on disk; another format or language has another name."""
        return self._folder / f"lexical-{FORMAT}-{self.analyzer.language}"

    def search(self, terms: Sequence[str], scope: Scope, *, limit: int, sort: Sort = Sort.RELEVANCE) -> list[Found]:
        """The best rows for any of the terms inside the scope, in the order asked for."""
        view = self._fresh_view()
        shards = [shard for shard in (view.disk, view.tail) if shard is not None]
        weights = _weights(terms, shards)
        found: list[Found] = []
        for shard, own in zip(shards, weights, strict=True):
            masked = view.masked if shard is view.disk else frozenset[str]()
            found += shard.search(own, scope, masked, limit=limit, sort=sort)
        return sorted(found, key=_ORDERS[sort])[:limit]

    def rarity(self, terms: Iterable[str]) -> dict[str, float]:
        """How telling each term is: its inverse document frequency over the whole index."""
        view = self._fresh_view()
        shards = [shard for shard in (view.disk, view.tail) if shard is not None]
        total = sum(shard.live for shard in shards)
        wanted = list(terms)
        return {
            term: _idf(total, min(total, frequency))
            for term, frequency in zip(wanted, _frequencies(shards, wanted), strict=True)
        }

    def rarest(self, terms: Iterable[str]) -> int:
        """In how many texts the rarest of some terms stands."""
        view = self._fresh_view()
        shards = [shard for shard in (view.disk, view.tail) if shard is not None]
        return min(_frequencies(shards, list(terms)), default=0)

    def behind(self) -> int | None:
        """How many journal entries the index on disk has yet to take in; None where there is no index."""
        disk = self._open_disk()
        return None if disk is None else sum(1 for _ in self._entries_since(disk.stamp.cursor))

    def catch_up(self, *, wait_s: float = _LOCK_TIMEOUT_S) -> bool:
        """Bring the index on disk up to the journal; False where another process is at it."""
        with disk_errors(_WHAT, IndexUnavailable), file_lock(self._lock_path(), timeout_s=wait_s) as is_held:
            if not is_held:
                return False
            disk = self._open_disk()
            if disk is None or self._was_erased_since(disk.stamp.cursor):
                # A merge would leave the words of erased memories in the files; only a new index is free of them.
                self._build(None)
            else:
                changed, last = self._changed_since(disk.stamp.cursor)
                if last != disk.stamp.cursor:
                    disk.update(changed, self._documents(sorted(changed)), stamp=Stamp(disk.stamp.epoch, last))
        self._view = None
        return True

    def rebuild(self, progress: Progress | None = None) -> None:
        """Build the index anew from the store and put it in the place of the old one."""
        with disk_errors(_WHAT, IndexUnavailable), file_lock(self._lock_path(), timeout_s=_LOCK_TIMEOUT_S) as is_held:
            if not is_held:
                raise IndexUnavailable("another process is rebuilding the lexical index: try again")
            self._build(progress)
        self._view = None

    def faults(self) -> int:
        """How many rows only the index or only the store has, and how many files are not what was written."""
        damaged = damaged_files(self.path, set())
        disk = self._open_disk()
        if disk is None or damaged:
            return damaged
        changed, _ = self._changed_since(disk.stamp.cursor)
        known = {row for row, memory in self._store.versions() if memory.id not in changed}
        past = {row for row, memory in self._store.versions(sorted(changed))}
        return len(set(disk.rows()) - past ^ known)

    def close(self) -> None:
        """Let go of the files."""
        self._view = None

    def _fresh_view(self) -> _View:
        with self._mutex:
            view = self._view
            if view is None or view.stamp != self._present():
                view = self._view = self._make_view()
            return view

    def _present(self) -> Stamp:
        return Stamp(self._store.epoch(), self._store.position())

    def _make_view(self) -> _View:
        disk = self._open_disk()
        changed, last = self._changed_since(disk.stamp.cursor if disk else START)
        if disk is None or len(changed) > self._tail_cap:
            disk = self._catch_up_or_none() or disk
            changed, last = self._changed_since(disk.stamp.cursor if disk else START)
        stamp = Stamp(self._store.epoch(), last)
        if not changed:
            return _View(stamp, disk, None, frozenset())
        average = disk.statistics.average_lengths if disk and disk.live else None
        tail = Shard.in_memory(self._documents(sorted(changed)), stamp=stamp, average_lengths=average)
        return _View(stamp, disk, tail, frozenset(changed))

    def _catch_up_or_none(self) -> Shard | None:
        """The caught-up index, or None where the folder cannot be written: memory then serves alone."""
        try:
            self.catch_up(wait_s=0 if self.path.exists() else _PATIENCE_S)
            return self._open_disk()
        except (OSError, IndexUnavailable):
            return None

    def _open_disk(self) -> Shard | None:
        shard = Shard.open(self.path, self._whole)
        return shard if shard is not None and shard.stamp.epoch == self._store.epoch() else None

    def _was_erased_since(self, cursor: Cursor) -> bool:
        return any(entry.action is Action.ERASED for entry in self._entries_since(cursor))

    def _changed_since(self, cursor: Cursor) -> tuple[set[str], Cursor]:
        changed: set[str] = set()
        while (page := self._store.changes_since(cursor)).entries:
            changed |= {entry.id for entry in page.entries if entry.link_kind is None}
            cursor = page.cursor
        return changed, cursor

    def _entries_since(self, cursor: Cursor) -> Iterator[JournalEntry]:
        while (page := self._store.changes_since(cursor)).entries:
            yield from page.entries
            cursor = page.cursor

    def _documents(self, ids: Sequence[str] | None, progress: Progress | None = None) -> Iterator[Indexed]:
        for done, (row, memory) in enumerate(self._store.versions(ids), start=1):
            yield memory_document(row, memory, self.analyzer)
            if progress is not None:
                progress(done)

    def _build(self, progress: Progress | None) -> None:
        """Build beside the old index and rename, so that a crash leaves either the old or the new."""
        for leftover in self._folder.glob("lexical-*.new"):
            shutil.rmtree(leftover, ignore_errors=True)
        fresh = self.path.with_suffix(".new")
        stamp = Stamp(self._store.epoch(), self._store.position())
        Shard.build(fresh, self._documents(None, progress), stamp=stamp)
        for old in self._folder.glob("lexical-*"):
            if old != fresh:
                shutil.rmtree(old, ignore_errors=True)
        # A reader may put its lock file into the folder while that is being removed.
        for _ in range(_REMOVALS):
            with suppress(OSError):
                fresh.rename(self.path)
                return
            shutil.rmtree(self.path, ignore_errors=True)
        fresh.rename(self.path)

    def _lock_path(self) -> Path:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._folder / "writer.lock"


def _frequencies(shards: Sequence[Shard], terms: Sequence[str]) -> list[int]:
    """In how many texts of all shards each term stands."""
    if not shards:
        return [0] * len(terms)
    return [sum(each) for each in zip(*(shard.frequencies("content", terms) for shard in shards), strict=True)]


def _weights(terms: Sequence[str], shards: Sequence[Shard]) -> list[list[tuple[str, str, float]]]:
    """Per shard the (field, term, weight) to ask for, corrected to the rarity over all shards."""
    total = sum(shard.live for shard in shards)
    chosen: list[tuple[int, str, str, list[int]]] = []
    counted = {field: [shard.frequencies(field, terms) for shard in shards] for field in FIELDS}
    for place, term in enumerate(terms):
        for field in FIELDS:
            frequencies = [each[place] for each in counted[field]]
            if any(frequencies):
                chosen.append((sum(frequencies), term, field, frequencies))
    if len(chosen) > MAX_TERMS:
        # A very long question is asked by its rarest words.
        chosen = sorted(chosen)[:MAX_TERMS]
    weights: list[list[tuple[str, str, float]]] = [[] for _ in shards]
    for overall, term, field, frequencies in chosen:
        rarity = _idf(total, min(overall, total))
        for place, frequency in enumerate(frequencies):
            if frequency:
                local = _idf(shards[place].statistics.documents, frequency)
                weights[place].append((field, term, FIELDS[field] * rarity / local))
    return weights


def _idf(documents: float, frequency: int) -> float:
    return math.log(1 + (documents - frequency + 0.5) / (frequency + 0.5))
