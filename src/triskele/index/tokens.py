"""Token vectors for late interaction: int8, memory-mapped, without stop words and punctuation."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from triskele.embed.protocol import Encoding
from triskele.index.analysis import STOP_WORDS
from triskele.index.catalog import Ints
from triskele.index.growing import GrowingFile, Records
from triskele.stores.locking import file_lock
from triskele.stores.protocol import Store

FORMAT = 1
SCALE = 127.0
_LOCK_TIMEOUT_S = 60.0

Bytes = NDArray[np.int8]


class TokenIndex:
    """The token vectors of every content that has been embedded."""

    def __init__(self, folder: Path, store: Store, fingerprint: str, dimensions: int) -> None:
        self._folder = folder
        self._store = store
        self._file = GrowingFile(folder / f"tokens-{FORMAT}-{fingerprint.replace('/', '_')}", "i1", dimensions)
        self._mutex = threading.Lock()
        self._records: Records | None = None
        self._order: Ints = np.empty(0, dtype=np.int64)
        self._stamp_time = 0

    def add(self, encodings: Mapping[int, Bytes]) -> None:
        """Append the token vectors of some slots."""
        if encodings:
            with file_lock(self._lock_path(), timeout_s=_LOCK_TIMEOUT_S) as is_held:
                if is_held:
                    self._file.append(self._store.lineage(), encodings)

    def gather(self, slots: Ints) -> tuple[Bytes, Ints]:
        """The token vectors of some slots in one array, and how many each has; 0 where there are none yet."""
        records, order = self._fresh()
        if records is None or not len(records.slots):
            return np.empty((0, self._file.width), dtype=np.int8), np.zeros(len(slots), dtype=np.int64)
        known = records.slots[order]
        at = np.minimum(np.searchsorted(known, slots), len(known) - 1)
        is_there = known[at] == slots
        place = order[at]
        counts = np.where(is_there, records.starts[place + 1] - records.starts[place], 0)
        starts = records.starts[place]
        ends = np.cumsum(counts)
        within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - counts, counts)
        return records.values[np.repeat(starts, counts) + within], counts

    def missing(self, slots: Ints) -> Ints:
        """Those slots whose token vectors are not in the file."""
        records, _ = self._fresh()
        return slots if records is None else np.setdiff1d(slots, records.slots)

    def damaged(self) -> int:
        """How many records of the file are not what was written."""
        records, _ = self._fresh()
        return 0 if records is None else len(records.damaged())

    def keep_only(self, slots: Ints) -> None:
        """Rewrite the file with some slots alone: what was erased leaves no byte."""
        records, _ = self._fresh()
        kept: dict[int, Bytes] = {}
        if records is not None:
            wanted = set(slots.tolist())
            for number, slot in enumerate(records.slots.tolist()):
                if slot in wanted:
                    kept[slot] = np.array(records.values[records.starts[number] : records.starts[number + 1]])
        with file_lock(self._lock_path(), timeout_s=_LOCK_TIMEOUT_S):
            for old in self._folder.glob("tokens-*"):
                shutil.rmtree(old, ignore_errors=True)
            self._file.append(self._store.lineage(), kept)
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        with self._mutex:
            self._records = None

    def _fresh(self) -> tuple[Records | None, Ints]:
        with self._mutex:
            changed = self._last_change()
            if self._records is None or changed != self._stamp_time:
                self._records = self._file.open(self._store.lineage())
                self._order = np.argsort(self._records.slots, kind="stable") if self._records else self._order
                self._stamp_time = changed
            return self._records, self._order

    def _last_change(self) -> int:
        try:
            return (self._file.path / "stamp.json").stat().st_mtime_ns
        except OSError:
            return 0

    def _lock_path(self) -> Path:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._folder / "tokens.lock"


def compressed(text: str, encoding: Encoding) -> Bytes:
    """The token vectors worth keeping of a text, as bytes."""
    telling = [_is_telling(text[start:stop]) for start, stop in encoding.spans]
    tokens = encoding.tokens[telling] if any(telling) else encoding.tokens
    return np.round(tokens * SCALE).astype(np.int8)


def _is_telling(token: str) -> bool:
    return any(character.isalnum() for character in token) and token.lower() not in STOP_WORDS
