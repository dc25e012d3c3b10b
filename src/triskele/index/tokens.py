"""Token vectors for late interaction: int8, memory-mapped, without stop words and punctuation."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from triskele.base.files import disk_errors, file_lock
from triskele.base.text import STOP_WORDS
from triskele.errors import IndexUnavailable
from triskele.index.append_file import AppendFile, Records
from triskele.index.catalog import Ints
from triskele.models.embedders import Encoding
from triskele.stores.protocols import OwnerStore

FORMAT = 1
SCALE = 127.0
_LOCK_TIMEOUT_S = 60.0
_WHAT = "the index of token vectors"

Bytes = NDArray[np.int8]


class TokenIndex:
    """The token vectors of every content that has been embedded."""

    def __init__(self, folder: Path, store: OwnerStore, fingerprint: str, dimensions: int) -> None:
        self._folder = folder
        self._store = store
        self._file = AppendFile(folder / f"tokens-{FORMAT}-{fingerprint.replace('/', '_')}", "i1", dimensions)
        self._mutex = threading.Lock()
        self._records: Records | None = None
        self._order: Ints = np.empty(0, dtype=np.int64)
        self._slots: Ints = np.empty(0, dtype=np.int64)
        self._seen: tuple[str, object] = ("", None)
        self._whole: tuple[Ints, Records | None] | None = None

    def add(self, encodings: Mapping[int, Bytes], *, wait: bool = True) -> None:
        """Append the token vectors of some slots; not of those that are there already or were erased meanwhile.

        Without `wait` nothing is added while another process is at it.
        """
        if not encodings:
            return
        timeout_s = _LOCK_TIMEOUT_S if wait else 0
        with disk_errors(_WHAT, IndexUnavailable), file_lock(self._lock_path(), timeout_s=timeout_s) as is_held:
            if is_held:
                lineage = self._store.epoch()
                records = self._file.open(lineage)
                fresh = np.setdiff1d(list(encodings), records.slots if records else [])
                # Asked inside the lock: whoever erases rewrites the file after this.
                standing = self._store.vectors.contents(fresh.tolist())
                self._file.append(lineage, {slot: encodings[slot] for slot in standing})

    def gather(self, slots: Ints) -> tuple[Bytes, Ints]:
        """The token vectors of some slots in one array, and how many each has; 0 where there are none yet."""
        records, order, known = self._fresh()
        if records is None or not len(known):
            return np.empty((0, self._file.width), dtype=np.int8), np.zeros(len(slots), dtype=np.int64)
        at = np.minimum(np.searchsorted(known, slots), len(known) - 1)
        is_there = known[at] == slots
        place = order[at]
        counts = np.where(is_there, records.starts[place + 1] - records.starts[place], 0)
        return records.read(place[is_there]), counts

    def missing(self, slots: Ints) -> Ints:
        """Those slots whose token vectors are not in the file, each once; negative ones are none."""
        if not len(slots):
            return slots
        records, _, known = self._fresh()
        if self._whole is not None and self._whole[0] is slots and self._whole[1] is records:
            return np.empty(0, dtype=np.int64)
        is_there = np.zeros(len(slots), dtype=np.bool_)
        if records is not None and len(known):
            is_there = known[np.minimum(np.searchsorted(known, slots), len(known) - 1)] == slots
        lost = np.unique(slots[(slots >= 0) & ~is_there])
        # Every recall asks: the same columns over the same file need no second look.
        self._whole = (slots, records) if not len(lost) else None
        return lost

    def damaged(self) -> int:
        """How many records of the file are not what was written."""
        records = self._fresh()[0]
        return 0 if records is None else len(records.damaged())

    def orphans(self, slots: Ints) -> int:
        """How many records of the file belong to none of these slots: an erasing was cut short."""
        records = self._fresh()[0]
        return 0 if records is None else records.others(slots)

    def remove_others(self) -> None:
        """Leave no file of another model: what was erased may still be in it, and the rest can be made again."""
        for path in self._folder.glob("tokens-*"):
            if path != self._file.path and path.is_dir():
                shutil.rmtree(path, ignore_errors=True)

    def keep_only(self, slots: Ints) -> None:
        """Rewrite the file with the sound records of some slots alone: what was erased leaves no byte."""
        with disk_errors(_WHAT, IndexUnavailable), file_lock(self._lock_path(), timeout_s=_LOCK_TIMEOUT_S):
            lineage = self._store.epoch()
            records = self._file.open(lineage)
            kept: dict[int, Bytes] = {}
            if records is not None:
                wanted = set(slots.tolist()) - set(records.damaged().tolist())
                for number, slot in enumerate(records.slots.tolist()):
                    if slot in wanted:
                        kept[slot] = np.array(records.values[records.starts[number] : records.starts[number + 1]])
            for old in self._folder.glob("tokens-*"):
                shutil.rmtree(old, ignore_errors=True)
            self._file.append(lineage, kept)
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        with self._mutex:
            self._records = None

    def _fresh(self) -> tuple[Records | None, Ints, Ints]:
        """The records, their order by slot, and the slots in that order."""
        with self._mutex:
            seen = (self._store.epoch(), self._file.state())
            if self._records is None or seen != self._seen:
                self._records = self._file.open(seen[0])
                if self._records is not None:
                    self._order = np.argsort(self._records.slots, kind="stable")
                    self._slots = self._records.slots[self._order]
                self._seen = seen
            return self._records, self._order, self._slots

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
