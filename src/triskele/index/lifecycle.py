"""The lifecycle of a derived index: fresh or stale, catch up, damaged, rebuild, close; and its files of arrays.

A derived index is a copy of something in the store, in another shape. What the index keeps reaches up to a stamp (the
epoch of the store and a position in it); what came later is the tail, read from the store. A new index names what it
`follows`, implements the hooks `_open`, `_since` and `_join`, and with files also `_append` and `damaged`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import threading
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from triskele.errors import IndexUnavailable
from triskele.index.corpus import Ints
from triskele.store.owner import OwnerStore
from triskele.store.values import Heads
from triskele.text.files import disk_errors, file_lock

LOCK_TIMEOUT_S = 60.0
# A reader waits for the first index of a store only; afterwards the tail in memory serves.
FIRST_INDEX_TIMEOUT_S = 5.0

# The key of the only job of its kind.
_LEASE = "lease"
_LONGEST_STAMP = 4096

Kept = TypeVar("Kept")
Tail = TypeVar("Tail", bound=Sized)
View = TypeVar("View")


class DerivedIndex(ABC, Generic[Kept, Tail, View]):
    """A view of the store that is renewed when the store moves on."""

    # Of the model whose vectors the index holds or refers to.
    fingerprint = ""
    # The fields of `Heads` that differ after every change that the index has to read.
    follows: ClassVar[tuple[str, ...]] = ()

    def __init__(self, store: OwnerStore) -> None:
        self._store = store
        self._mutex = threading.RLock()
        self._view: View | None = None
        self._stamp: tuple[str, object] = ("", None)

    @abstractmethod
    def _open(self, epoch: str) -> Kept | None:
        """What the index keeps of this epoch; None if it keeps nothing or nothing usable."""

    @abstractmethod
    def _since(self, kept: Kept | None) -> Tail:
        """What the store has beyond the kept part."""

    @abstractmethod
    def _join(self, kept: Kept | None, tail: Tail) -> View:
        """The kept part and the tail as one."""

    def damaged(self) -> int:
        """The number of records that differ from what was written."""
        return 0

    def orphans(self, slots: Ints) -> int:  # noqa: ARG002 - only vectors have slots
        """The number of records that belong to none of the store's slots."""
        return 0

    def rebuild(self) -> None:
        """Make the index again from the store."""
        self.close()

    def close(self) -> None:
        """Release files and memory; the next read opens them again."""
        with self._mutex:
            self._view = None

    def view(self, heads: Heads | None = None) -> View:
        """The index as of now, or as of heads that the caller has read."""
        heads = heads or self._store.heads(self.fingerprint)
        with self._mutex:
            stamp = (heads.epoch, self._position(heads))
            view = self._view
            if view is None or stamp != self._stamp:
                view = self._load(stamp[0])
                self._view, self._stamp = view, stamp
            return view

    def _position(self, heads: Heads) -> object:
        """What the index follows, as of these heads."""
        return tuple([getattr(heads, name) for name in self.follows])

    def _load(self, epoch: str) -> View:
        kept = self._open(epoch)
        return self._join(kept, self._since(kept))


class DiskIndex(DerivedIndex[Kept, Tail, View]):
    """A derived index with files: a folder named by kind and format, and a lock for writers."""

    kind: ClassVar[str]
    format: ClassVar[int]
    title: ClassVar[str]
    lock_name: ClassVar[str]
    # Whether the first read writes the files, however short the tail.
    writes_at_once: ClassVar[bool] = False
    # The longest tail that a read leaves in memory.
    tail_cap: int = 0

    def __init__(self, folder: Path, store: OwnerStore, variant: str = "") -> None:
        super().__init__(store)
        self._folder = folder
        self.path = folder / "-".join(filter(None, (self.kind, str(self.format), variant.replace("/", "_"))))

    @abstractmethod
    def _append(self, epoch: str, kept: Kept | None) -> None:
        """Write what the store has beyond the kept part to the files; the caller holds the lock."""

    @abstractmethod
    def damaged(self) -> int:
        """The number of records that differ from what was written."""

    @classmethod
    def files(cls, folder: Path) -> list[Path]:
        """The folders of this kind of index, of any format, model or language."""
        return list(folder.glob(f"{cls.kind}-*"))

    def _other_formats(self) -> list[Path]:
        """The folders of the same index in other formats."""
        variant = self.path.name.removeprefix(f"{self.kind}-{self.format}")
        name = re.compile(rf"{self.kind}-\d+{re.escape(variant)}")
        return [path for path in self.files(self._folder) if path != self.path and name.fullmatch(path.name)]

    def catch_up(self, *, wait_s: float | None = None) -> bool:
        """Bring the files up to the store; False if another process holds the lock."""
        with self._lock(wait_s) as is_held:
            if is_held:
                # First, because other formats are looked for only until there are files of this one.
                for path in self._other_formats():
                    shutil.rmtree(path, ignore_errors=True)
                epoch = self._store.epoch()
                self._append(epoch, self._open(epoch))
        with self._mutex:
            self._view = None
        return is_held

    def flush(self) -> bool:
        """Write everything read so far to files, so that answers depend only on the store and not on when it was read.

        False if another process is writing.
        """
        return not self.path.exists() or self.catch_up(wait_s=0)

    def rebuild(self) -> None:
        """Write the files again from the store; nothing of the old ones is left."""
        self._write_alone(self._write_again)

    def _write_again(self) -> None:
        self._remove_files()
        self._append(self._store.epoch(), None)

    def _write_alone(self, write: Callable[[], None]) -> None:
        """Replace the files under the lock; IndexUnavailable if another process keeps it."""
        # Some systems cannot delete open files; other threads may open them again meanwhile.
        self.close()
        with self._lock() as is_held:
            if not is_held:
                raise IndexUnavailable(f"another process is writing {self.title}: try again")
            write()
        self.close()

    def _remove_files(self) -> None:
        for path in self.files(self._folder):
            shutil.rmtree(path, ignore_errors=True)

    def _load(self, epoch: str) -> View:
        kept = self._open(epoch)
        tail = self._since(kept)
        is_due = len(tail) > self.tail_cap
        if kept is None:
            # Files that cannot be used may hold what was erased: they are replaced however short the tail is.
            is_due = is_due or self.writes_at_once or self.path.exists() or bool(self._other_formats())
        if is_due and self._has_caught_up():
            kept = self._open(epoch)
            tail = self._since(kept)
        return self._join(kept, tail)

    def _has_caught_up(self) -> bool:
        """Catch up on behalf of a reader; False if the folder cannot be written, so that the tail stays in RAM."""
        try:
            return self.catch_up(wait_s=0 if self.path.exists() else FIRST_INDEX_TIMEOUT_S)
        except (OSError, IndexUnavailable):
            return False

    @contextmanager
    def _lock(self, wait_s: float | None = None) -> Iterator[bool]:
        wait_s = LOCK_TIMEOUT_S if wait_s is None else wait_s
        with disk_errors(self.title, IndexUnavailable), file_lock(self._lock_path(), timeout_s=wait_s) as is_held:
            yield is_held

    def _lock_path(self) -> Path:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._folder / self.lock_name


@contextmanager
def alone(store: OwnerStore, work: str, lease_s: float, *, wait: bool) -> Iterator[bool]:
    """Be the only process at some work for a while; False if another one is. The lease of a killed one runs out."""
    began = time.monotonic()
    is_alone = bool(store.jobs.claim(work, lease_s=lease_s, wait=wait))
    if not is_alone:
        # The first process makes the job; one that another has claimed stays as it is.
        store.jobs.add(work, [_LEASE])
        is_alone = bool(store.jobs.claim(work, lease_s=lease_s, wait=wait))
    try:
        yield is_alone
    finally:
        # After the lease it may be another's.
        if is_alone and time.monotonic() - began < lease_s:
            store.jobs.release(work, [_LEASE])


# Arrays in files that only grow: records are appended past the last stamp, then the stamp moves. A crash leaves the old
# stamp and some bytes that the next append overwrites. Every record has a checksum.


class Descriptor:
    """A file open for reading at any offset; closed when the last reference to it ends."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __del__(self) -> None:
        os.close(self._number)

    def read(self, starts: Ints, stops: Ints) -> bytes:
        """Ranges of the file, one after the other; what a damaged file lacks is zero."""
        # Ranges that meet are read at once: turns of a conversation are adjacent.
        is_new = starts[1:] != stops[:-1]
        firsts, lasts = starts[np.append(True, is_new)], stops[np.append(is_new, True)]
        ranges = zip(firsts.tolist(), (lasts - firsts).tolist(), strict=True)
        return b"".join([os.pread(self._number, size, first).ljust(size, b"\0") for first, size in ranges])


@dataclass(frozen=True, slots=True)
class Records:
    """Slots with the values of each: `starts` says where a record begins in `values`, one more says where all end."""

    slots: Ints
    starts: Ints
    checks: NDArray[np.uint32]
    values: NDArray[Any]
    file: Descriptor | None = None
    state: object = None

    def read(self, places: Ints) -> NDArray[Any]:
        """The values of some records in a row.

        Read instead of mapped if the system supports it: access to a mapped page maps its neighbours too, and in time
        the whole file would count as memory of the process.
        """
        starts, stops = self.starts[places], self.starts[places + 1]
        if self.file is None or not len(places):
            stretches = [self.values[start:stop] for start, stop in zip(starts, stops, strict=True)]
            return np.concatenate([self.values[:0], *stretches])
        size = self.values.strides[0]
        found = np.frombuffer(self.file.read(starts * size, stops * size), dtype=self.values.dtype)
        return found.reshape(-1, self.values.shape[1])

    @property
    def last_slot(self) -> int:
        """The highest slot; 0 without records."""
        return int(self.slots.max()) if len(self.slots) else 0

    def others(self, slots: Ints) -> int:
        """The number of records outside these slots."""
        return len(np.setdiff1d(self.slots, slots))

    def damaged(self) -> Ints:
        """The slots whose values differ from what was written."""
        wrong = [
            slot
            for slot, start, stop, check in zip(self.slots, self.starts[:-1], self.starts[1:], self.checks, strict=True)
            if _check(slot, self.values[start:stop]) != check
        ]
        return np.array(wrong, dtype=np.int64)


def sound_records(records: Records | None, slots: set[int]) -> Iterator[tuple[int, NDArray[Any]]]:
    """The values of the records of some slots that are as they were written."""
    if records is None or not slots:
        return
    wanted = slots - set(records.damaged().tolist())
    for number, slot in enumerate(records.slots.tolist()):
        if slot in wanted:
            yield slot, records.values[records.starts[number] : records.starts[number + 1]]


@dataclass(frozen=True, slots=True)
class AppendFile:
    """A folder of such arrays for one epoch of the store."""

    path: Path
    dtype: str
    width: int

    def open(self, epoch: str) -> Records | None:
        """The records up to the stamp; None if the files are missing, cut short or of another epoch."""
        # Before the files: what changes meanwhile must not pass for what was read.
        state = self.state()
        try:
            stamp = json.loads((self.path / "stamp.json").read_text())
            if (stamp["epoch"], stamp["width"], stamp["dtype"]) != (epoch, self.width, self.dtype):
                return None
            records, rows = int(stamp["records"]), int(stamp["rows"])
            slots = np.fromfile(self.path / "slots", dtype="<i8", count=records)
            counts = np.fromfile(self.path / "counts", dtype="<i8", count=records)
            checks = np.fromfile(self.path / "checks", dtype="<u4", count=records)
            starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
            if {len(slots), len(counts), len(checks)} != {records} or starts[-1] != rows:
                return None
            return Records(slots, starts, checks, *self._map(rows), state)
        except (OSError, ValueError, KeyError, TypeError, MemoryError):
            return None

    def state(self) -> object:
        """A value that differs after every change: the clock may not advance between two changes."""
        try:
            # Every recall asks for it twice: a file object costs more than the reading.
            stamp = os.open(f"{self.path}/stamp.json", os.O_RDONLY)
        except OSError:
            return None
        try:
            return os.fstat(stamp).st_mtime_ns, os.read(stamp, _LONGEST_STAMP)
        finally:
            os.close(stamp)

    def damaged(self, epoch: str) -> int:
        """The number of records that differ from what was written."""
        records = self.open(epoch)
        return 0 if records is None else len(records.damaged())

    def others(self, epoch: str, slots: Ints) -> int:
        """The number of records outside these slots."""
        records = self.open(epoch)
        return 0 if records is None else records.others(slots)

    def append(self, epoch: str, vectors: Mapping[int, NDArray[Any]]) -> None:
        """Add records; files of another epoch are replaced."""
        known = self.open(epoch)
        if known is None:
            # Removed rather than cut short: another process may still read from them.
            shutil.rmtree(self.path, ignore_errors=True)
        records, rows = (len(known.slots), int(known.starts[-1])) if known else (0, 0)
        arrays = [np.ascontiguousarray(values, dtype=self.dtype).reshape(-1, self.width) for values in vectors.values()]
        counts = np.array([len(values) for values in arrays], dtype="<i8")
        checks = np.array([_check(*pair) for pair in zip(vectors, arrays, strict=True)], dtype="<u4")
        self.path.mkdir(parents=True, exist_ok=True)
        self._write("slots", records * 8, np.array(list(vectors), dtype="<i8").tobytes())
        self._write("counts", records * 8, counts.tobytes())
        self._write("checks", records * 4, checks.tobytes())
        size = np.dtype(self.dtype).itemsize * self.width
        self._write("values", rows * size, b"".join(values.tobytes() for values in arrays))
        stamp = {
            "epoch": epoch,
            "width": self.width,
            "dtype": self.dtype,
            "records": records + len(arrays),
            "rows": rows + int(counts.sum()),
        }
        fresh = self.path / "stamp.new"
        fresh.write_text(json.dumps(stamp))
        fresh.replace(self.path / "stamp.json")

    def _map(self, rows: int) -> tuple[NDArray[Any], Descriptor | None]:
        if rows == 0:
            return np.empty((0, self.width), dtype=self.dtype), None
        if sys.platform == "win32":
            # There a mapped file can be neither removed nor cut short.
            return np.fromfile(self.path / "values", self.dtype, rows * self.width).reshape(rows, self.width), None
        mapped = np.memmap(self.path / "values", dtype=self.dtype, mode="r", shape=(rows, self.width))
        # A plain view of the same pages: the subclass makes every slice several times slower.
        return np.asarray(mapped), Descriptor(os.open(self.path / "values", os.O_RDONLY))

    def _write(self, name: str, offset: int, content: bytes) -> None:
        path = self.path / name
        with open(path, "r+b" if path.exists() else "w+b") as file:
            file.truncate(offset)
            file.seek(offset)
            file.write(content)


class ArrayIndex(DiskIndex[Records, Tail, View]):
    """A derived index whose files are arrays that grow."""

    # Whether other processes add records that have no number in the store.
    watches_files: ClassVar[bool] = False

    def __init__(self, folder: Path, store: OwnerStore, dtype: str, width: int, variant: str = "") -> None:
        super().__init__(folder, store, variant)
        self._file = AppendFile(self.path, dtype, width)

    def damaged(self) -> int:
        """The number of records that differ from what was written."""
        return self._file.damaged(self._store.epoch())

    def _position(self, heads: Heads) -> object:
        position = super()._position(heads)
        return (position, self._file.state()) if self.watches_files else position

    def _open(self, epoch: str) -> Records | None:
        return self._file.open(epoch)


def _check(slot: int, values: NDArray[Any]) -> int:
    """A checksum over the slot and its values."""
    return zlib.crc32(np.ascontiguousarray(values).tobytes(), zlib.crc32(b"%d" % slot))
