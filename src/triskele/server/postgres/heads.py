"""Newest row numbers of an owner, read as a snapshot begins, and caches that hold until they rise.

Numbers of rows only rise within an epoch, and rows of one owner become visible in their order. So what was read of the
rows up to a number holds until a higher one is there. Erased rows begin another epoch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from triskele.server.postgres.replicas import OWNER_EPOCH
from triskele.store.statements import head_columns
from triskele.store.values import READ_BY_EVERY_RECALL, Cursor, Heads
from triskele.types import LinkKind, Memory

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Kept = TypeVar("Kept")
HEADS = ", ".join((OWNER_EPOCH, *head_columns("mentions")))
HEADS = HEADS.replace("?1", "%(owner)s").replace("?2", "%(model)s")
_KINDS = ", ".join(f"'{kind}'" for kind in READ_BY_EVERY_RECALL)
SNAPSHOT_START = (
    f"SELECT {HEADS}, (SELECT coalesce(max(row), 0) FROM links WHERE owner = %(owner)s),"
    " (SELECT coalesce(max(name), 0) FROM names WHERE owner = %(owner)s),"
    " (SELECT json_agg(json_build_array(kind, key, value) ORDER BY key) FROM documents"
    f" WHERE owner = %(owner)s AND kind IN ({_KINDS}))"
)
# Rows past a number, or none if there are more than `most`: then only the server has gone over them.
_UNLESS_MANY = (
    "SELECT {columns} {rows} AND (SELECT count(*) FROM (SELECT {rows} LIMIT %(most)s + 1) AS past) <= %(most)s"
)
_LINKS = _UNLESS_MANY.format(
    columns="source, target, kind", rows="FROM links WHERE owner = %(owner)s AND row > %(last)s"
)
_KEYS = _UNLESS_MANY.format(columns="key", rows="FROM names WHERE owner = %(owner)s AND name > %(last)s")
# An owner with more of them is asked for each time.
_MOST_LINKS = 20_000
_MOST_NAMES = 500_000
_NEVER = 2**62
# Of an owner so many versions are kept, none with a longer text: about half a megabyte.
_MOST_VERSIONS = 256
_LONGEST_KEPT = 4_000


@dataclass(frozen=True, slots=True)
class SnapshotStart:
    """What the first statement of a snapshot has read: the heads for one model, and what every recall asks for."""

    model: str
    heads: Heads
    link: int
    name: int
    documents: Mapping[str, Mapping[str, str]]

    @staticmethod
    def of(model: str, row: tuple[Any, ...]) -> SnapshotStart:
        """From the row of the statement."""
        epoch, journal, *numbers, link, name, listed = row
        documents: dict[str, dict[str, str]] = {kind: {} for kind in READ_BY_EVERY_RECALL}
        for kind, key, value in listed or ():
            documents[kind][key] = value
        return SnapshotStart(model, Heads(epoch, Cursor(journal), *numbers), link, name, documents)


class _Followed(ABC, Generic[Kept]):
    """Something small about the rows of a table, for one epoch and up to a number; None if there are too many rows.

    It is read in the second snapshot of an epoch: a process that asks once, or whose epochs are short, would read more
    than it saves. Threads replace it as a whole: one whose snapshot is older leaves less, and the next one reads on.
    """

    def __init__(self, read: Callable[..., list[Any]], owner: str) -> None:
        self._read = read
        self._owner = owner
        self._first: SnapshotStart | None = None
        self._kept: tuple[str, int, Kept | None] = ("", 0, None)

    def _up_to(self, newest: int, start: SnapshotStart, sql: str, most: int) -> Kept | None:
        epoch = start.heads.epoch
        epoch_before, last, value = self._kept
        if epoch_before != epoch:
            self._first, self._kept = start, (epoch, 0, None)
            return None
        if self._first is start:
            return None
        if last < newest:
            bindings = {"owner": self._owner, "last": last, "most": max(most - self._size(value), 0)}
            # The newest of them is past `last`: none means too many.
            rows = self._read(sql, bindings)
            value = self._joined(value, rows) if rows else None
            last = newest if rows else _NEVER
        elif value is None and last == 0:
            value = self._joined(None, [])
        self._kept = epoch, last, value
        return value

    @abstractmethod
    def _size(self, kept: Kept | None) -> int:
        """How much is kept."""

    @abstractmethod
    def _joined(self, kept: Kept | None, rows: list[Any]) -> Kept:
        """What is kept together with further rows."""


class _Ends(NamedTuple):
    """Memories with links, by whether one of them says what supersedes what; and whether one does so at all."""

    is_chained: Mapping[str, bool]
    has_chains: bool


class LinkEnds(_Followed[_Ends]):
    """The memories that ever had a link, and whether one of them says what supersedes what."""

    def among(self, ids: Iterable[str], kind: LinkKind | None, start: SnapshotStart) -> list[str]:
        """The memories that may have links of a kind, or of any kind."""
        followed = self._up_to(start.link, start, _LINKS, _MOST_LINKS)
        if followed is None:
            return list(ids)
        wants_chains, of = kind is LinkKind.SUPERSEDES, followed.is_chained
        return [id for id in ids if (is_chained := of.get(id)) is not None and (is_chained or not wants_chains)]

    def has_chains(self, start: SnapshotStart) -> bool:
        """Whether a memory may ever have replaced another."""
        followed = self._up_to(start.link, start, _LINKS, _MOST_LINKS)
        return followed is None or followed.has_chains

    def _size(self, kept: _Ends | None) -> int:
        return 0 if kept is None else len(kept.is_chained)

    def _joined(self, kept: _Ends | None, rows: list[Any]) -> _Ends:
        joined = {} if kept is None else dict(kept.is_chained)
        for source, target, kind in rows:
            for id in (source, target):
                joined[id] = joined.get(id, False) or kind == LinkKind.SUPERSEDES
        return _Ends(joined, any(joined.values()))


class KnownKeys(_Followed["NDArray[np.int64]"]):
    """The keys of all names, as hashes: most words of a question are no name."""

    def among(self, keys: Iterable[str], start: SnapshotStart) -> list[str]:
        """The keys that probably belong to a name; the others certainly do not."""
        listed = list(keys)
        followed = self._up_to(start.name, start, _KEYS, _MOST_NAMES)
        if followed is None or not listed:
            return listed
        if not len(followed):
            return []
        hashes = _hashes(listed)
        is_known = followed.take(followed.searchsorted(hashes), mode="clip") == hashes
        return [key for key, is_it in zip(listed, is_known, strict=True) if is_it]

    def _size(self, kept: NDArray[np.int64] | None) -> int:
        return 0 if kept is None else len(kept)

    def _joined(self, kept: NDArray[np.int64] | None, rows: list[Any]) -> NDArray[np.int64]:
        import numpy as np

        fresh = np.sort(_hashes([key for (key,) in rows]))
        return fresh if kept is None else np.insert(kept, kept.searchsorted(fresh), fresh)


class KeptVersions:
    """Versions that were read lately, for as long as neither the journal nor the epoch has moved on.

    Whatever changes a row writes an entry, and erasures and ended shares begin another epoch: the catalog of every
    index rests on the same.
    """

    def __init__(self, read: Callable[[list[int]], dict[int, Memory]]) -> None:
        self._read = read
        self._lock = Lock()
        self._kept: tuple[tuple[str, Cursor], dict[int, Memory]] = (("", Cursor("")), {})

    def of(self, rows: Iterable[int], start: SnapshotStart | None) -> dict[int, Memory]:
        """The versions behind some row numbers; what is not kept is read."""
        wanted = sorted(map(int, rows))
        if start is None:
            return self._read(wanted)
        position = start.heads.epoch, start.heads.journal
        position_before, recent = self._kept
        if position_before != position:
            recent = {}
            self._kept = position, recent
        versions = {row: recent.get(row) for row in wanted}
        if lacking := [row for row, memory in versions.items() if memory is None]:
            fresh = self._read(lacking)
            self._keep(recent, fresh)
            versions |= fresh
        return {row: memory for row, memory in versions.items() if memory is not None}

    def _keep(self, kept: dict[int, Memory], fresh: Mapping[int, Memory]) -> None:
        with self._lock:
            kept.update((row, memory) for row, memory in fresh.items() if len(memory.content) <= _LONGEST_KEPT)
            while len(kept) > _MOST_VERSIONS:
                # The oldest.
                del kept[next(iter(kept))]


def _hashes(keys: list[str]) -> NDArray[np.int64]:
    # Imported here: only recalls need it.
    import numpy as np

    return np.fromiter(map(hash, keys), dtype=np.int64, count=len(keys))
