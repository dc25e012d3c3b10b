"""The lexical index: tantivy on disk up to a stamp, and a small one in memory for what came after.

The two rank as one. Each is asked with every term's weight corrected to the rarity of the term in both together, and
the small one is padded with filler so that its average length is that of the large one. A memory therefore has the
same score right after the write as after the writer has caught up.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from triskele.errors import IndexUnavailable
from triskele.index.lifecycle import DiskIndex
from triskele.index.shard import FIELDS, FileMark, Found, Indexed, Shard, Stamp, damaged_files, memory_document
from triskele.store.owner import OwnerStore
from triskele.store.values import START, Cursor
from triskele.text.analysis import Analyzer
from triskele.types import Action, JournalEntry, Scope, Sort

MAX_TERMS = 256
# Rewriting this many takes seconds, in the background; more are rewritten after a longer pause, this many a second.
MOST_SETTLED = 20_000
SETTLED_PER_S = 500
_REMOVALS = 5
# Begins the name of an index that is kept because it reaches beyond the journal.
_AHEAD = "ahead-"

_ORDERS: dict[Sort, Callable[[Found], tuple[float, float, int]]] = {
    Sort.RELEVANCE: lambda hit: (-hit.score, 0.0, hit.row),
    Sort.IMPORTANCE: lambda hit: (-hit.importance, -hit.score, hit.row),
    Sort.RECENCY: lambda hit: (-hit.updated_at, -hit.score, hit.row),
}

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class _Changes:
    """The memories that changed after a cursor, the cursor after the last change, and whether any was erased."""

    ids: frozenset[str]
    cursor: Cursor
    has_erased: bool

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Shards:
    """What a search reads: both shards, and the memories that only the newer one may return."""

    disk: Shard | None
    tail: Shard | None
    masked: frozenset[str]

    @property
    def filled(self) -> list[Shard]:
        """The shards that there are."""
        return [shard for shard in (self.disk, self.tail) if shard is not None]

    def search(self, terms: Sequence[str], scope: Scope, *, limit: int, sort: Sort = Sort.RELEVANCE) -> list[Found]:
        """The best rows for any of the terms inside the scope, in the order asked for."""
        shards = self.filled
        results: list[Found] = []
        for shard, own in zip(shards, _weights(terms, shards), strict=True):
            masked = self.masked if shard is self.disk else frozenset[str]()
            results += shard.search(own, scope, masked, limit=limit, sort=sort)
        return sorted(results, key=_ORDERS[sort])[:limit]

    def rarity(self, terms: Iterable[str]) -> dict[str, float]:
        """The inverse document frequency of each term over both shards."""
        total = sum(shard.live for shard in self.filled)
        wanted = list(terms)
        return {
            term: _idf(total, min(total, frequency))
            for term, frequency in zip(wanted, self.frequencies(wanted), strict=True)
        }

    def rarest(self, terms: Iterable[str]) -> int:
        """The number of texts that contain the rarest of some terms."""
        return min(self.frequencies(list(terms)), default=0)

    def frequencies(self, terms: Sequence[str]) -> list[int]:
        """The number of texts that contain each term."""
        shards = self.filled
        return [sum([shard.frequency("content", term) for shard in shards]) for term in terms]


class LexicalIndex(DiskIndex[Shard, _Changes, Shards]):
    """Finds versions of memories by terms, as fresh as the journal."""

    kind, format, title, lock_name = "lexical", 1, "the lexical index", "writer.lock"
    follows = ("journal",)
    writes_at_once = True
    tail_cap = 256

    def __init__(self, folder: Path, store: OwnerStore, analyzer: Analyzer) -> None:
        super().__init__(folder, store, analyzer.language)
        self.analyzer = analyzer
        self._whole: set[FileMark] = set()

    def behind(self) -> int | None:
        """The number of journal entries that the index on disk lacks; None if there is no index."""
        disk = self._open(self._store.epoch())
        return None if disk is None else sum(1 for _ in self._entries_since(disk.stamp.cursor))

    def rebuild(self, progress: Progress | None = None) -> None:
        """Build the index again from the store and replace the old one."""
        self._write_alone(lambda: self._build(progress))

    def flush(self, quiet_s: float = math.inf) -> bool:
        """Rewrite the files in one go, so that scores depend only on the store and not on when it was read.

        A large index is only brought up to date where the store was quiet for less time than that is worth. False where
        that has to come later, or another process is writing.
        """
        with self._lock(0) as is_held:
            epoch = self._store.epoch()
            shard = self._open(epoch) if is_held else None
            is_current = shard is not None and not self._since(shard)
            if shard is None or (is_current and shard.is_of_one_piece):
                return is_held
            is_worth = shard.live <= max(MOST_SETTLED, quiet_s * SETTLED_PER_S)
            if is_current and not is_worth:
                return False
            self._build(None) if is_worth else self._append(epoch, shard)
        self.close()
        return is_worth

    def damaged(self) -> int:
        """The number of rows that only the index or only the store has, or of files that are not what was written."""
        damaged = damaged_files(self.path, set())
        disk = self._open(self._store.epoch())
        if disk is None or damaged:
            return damaged
        changed = self._since(disk).ids
        rows = {row for row, memory in self._store.versions() if memory.id not in changed}
        past = {row for row, memory in self._store.versions(sorted(changed))}
        return len(set(disk.rows()) - past ^ rows)

    def ahead(self) -> dict[Path, int]:
        """The indexes that reach beyond the journal, because writes were lost, and how many versions only they have."""
        paths = [path for path in (self.path, *self._folder.glob(f"{_AHEAD}*")) if self._is_ahead(path)]
        rows = {row for row, _ in self._store.versions()} if paths else set()
        shards = {path: Shard.open(path, set()) for path in paths}
        return {path: len(set(shard.rows()) - rows) for path, shard in shards.items() if shard is not None}

    def drop_ahead(self) -> list[Path]:
        """Remove kept indexes that reach beyond the journal: they hold words of lost and of erased memories."""
        paths = list(self._folder.glob(f"{_AHEAD}*"))
        for path in paths:
            shutil.rmtree(path, ignore_errors=True)
        return paths

    def _is_ahead(self, path: Path) -> bool:
        shard = Shard.open(path, set()) if path.exists() else None
        return (
            shard is not None and shard.stamp.epoch == self._store.epoch() and not self._store.holds(shard.stamp.cursor)
        )

    def _open(self, epoch: str) -> Shard | None:
        shard = Shard.open(self.path, self._whole)
        is_known = shard is not None and shard.stamp.epoch == epoch
        # A stamp that the journal does not have hides what is written under the same numbers again.
        return shard if shard is not None and is_known and self._store.holds(shard.stamp.cursor) else None

    def _since(self, disk: Shard | None) -> _Changes:
        cursor = disk.stamp.cursor if disk else START
        ids: set[str] = set()
        has_erased = False
        while (page := self._store.changes_since(cursor)).entries:
            ids |= {entry.id for entry in page.entries if entry.link_kind is None}
            has_erased |= any(entry.action is Action.ERASED for entry in page.entries)
            cursor = page.cursor
        return _Changes(frozenset(ids), cursor, has_erased)

    def _append(self, epoch: str, disk: Shard | None) -> None:
        tail = self._since(disk)
        if disk is None or tail.has_erased:
            # A merge would leave the terms of erased memories in the files; only a new index is free of them.
            self._build(None)
        elif tail.cursor != disk.stamp.cursor:
            try:
                disk.update(tail.ids, self._documents(sorted(tail.ids)), stamp=Stamp(epoch, tail.cursor))
            except IndexUnavailable:
                # A killed writer may have left a file with the name that this commit needs.
                self._build(None)

    def _join(self, disk: Shard | None, tail: _Changes) -> Shards:
        if not tail:
            return Shards(disk, None, frozenset())
        average = disk.statistics.average_lengths if disk and disk.live else None
        stamp = Stamp(self._store.epoch(), tail.cursor)
        shard = Shard.in_memory(self._documents(sorted(tail.ids)), stamp=stamp, average_lengths=average)
        return Shards(disk, shard, tail.ids)

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
        """Build next to the old index and rename, so that a crash leaves either the old or the new."""
        fresh = self.path.with_suffix(".new")
        stamp = Stamp(self._store.epoch(), self._store.position())
        Shard.build(fresh, self._documents(None, progress), stamp=stamp)
        if self._is_ahead(self.path):
            aside = self._folder / f"{_AHEAD}{self.path.name}"
            shutil.rmtree(aside, ignore_errors=True)
            self.path.rename(aside)
        for old in self.files(self._folder):
            if old != fresh:
                shutil.rmtree(old, ignore_errors=True)
        # A reader may put its lock file into the folder while that is being removed.
        for _ in range(_REMOVALS):
            with suppress(OSError):
                fresh.rename(self.path)
                return
            shutil.rmtree(self.path, ignore_errors=True)
        fresh.rename(self.path)


def _weights(terms: Sequence[str], shards: Sequence[Shard]) -> list[list[tuple[str, str, float]]]:
    """Per shard the (field, term, weight) to ask for, corrected to the rarity over all shards."""
    total = sum(shard.live for shard in shards)
    chosen: list[tuple[int, str, str, list[int]]] = []
    for term in terms:
        for field in FIELDS:
            frequencies = [shard.frequency(field, term) for shard in shards]
            if any(frequencies):
                chosen.append((sum(frequencies), term, field, frequencies))
    if len(chosen) > MAX_TERMS:
        # A very long query is cut to its rarest terms.
        chosen = sorted(chosen)[:MAX_TERMS]
    weights: list[list[tuple[str, str, float]]] = [[] for _ in shards]
    for overall, term, field, frequencies in chosen:
        rarity = _idf(total, min(overall, total))
        for position, frequency in enumerate(frequencies):
            if frequency:
                local = _idf(shards[position].statistics.documents, frequency)
                weights[position].append((field, term, FIELDS[field] * rarity / local))
    return weights


def _idf(documents: float, frequency: int) -> float:
    return math.log(1 + (documents - frequency + 0.5) / (frequency + 0.5))
