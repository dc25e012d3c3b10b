"""The lifecycle of a derived index: fresh or stale, catch up, damaged, rebuild, close.

A derived index is a copy of something in the store, in another shape. What the index keeps reaches up to a stamp (the
epoch of the store and a position in it); what came later is the tail, read from the store. A new index names what it
`follows`, implements the hooks `_open`, `_since` and `_join`, and with files also `_append` and `damaged`.
"""

from __future__ import annotations

import re
import shutil
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from triskele.errors import IndexUnavailable
from triskele.store.owner import OwnerStore
from triskele.store.values import Heads
from triskele.text.files import disk_errors, file_lock

if TYPE_CHECKING:
    # Numpy takes longer to import than most commands run, and the lexical index does without it.
    from triskele.index.corpus import Ints

LOCK_TIMEOUT_S = 60.0
# A reader waits for the first index of a store only; afterwards the tail in memory serves.
FIRST_INDEX_TIMEOUT_S = 5.0

# The key of the only job of its kind.
_LEASE = "lease"

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
