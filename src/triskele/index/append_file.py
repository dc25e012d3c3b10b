"""Arrays in files that only grow: records are appended past the last stamp, then the stamp moves.

A crash leaves the old stamp and some bytes that the next append overwrites. Every record has a checksum.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

_LONGEST_STAMP = 4096


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


def _check(slot: int, values: NDArray[Any]) -> int:
    """A checksum over the slot and its values."""
    return zlib.crc32(np.ascontiguousarray(values).tobytes(), zlib.crc32(b"%d" % slot))
