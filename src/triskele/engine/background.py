"""Background work of an engine: deferred small writes, parts opened later, and a thread that embeds."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar

from triskele.config import DATABASE, NO_MODEL, Settings
from triskele.errors import StoreClosed
from triskele.recall.model_switch import chosen

if TYPE_CHECKING:
    from triskele.engine.models import Models
    from triskele.index.worker import Worker
    from triskele.store.owner import OwnerStore

MOST = 1000
_DELAY_S = 0.05
_LEAVING_S = 5.0
# So few are embedded before the clock is looked at again.
_STEP = 16

Value = TypeVar("Value")


class Once(Generic[Value]):
    """Opens a value when it is first needed, once for all threads."""

    def __init__(self, open: Callable[[], Value]) -> None:
        self._open = open
        self._lock = threading.Lock()
        self.opened: Value | None = None

    def __call__(self) -> Value:
        """The value, opened now if it is not yet."""
        if self.opened is None:
            with self._lock:
                self.opened = self._open() if self.opened is None else self.opened
        return self.opened


class BackgroundWork:
    """Embeds what was written and reads its names, in a thread or while a process has time to spare."""

    def __init__(self, models: Once[Models], store: OwnerStore, settings: Settings) -> None:
        self._models = models
        self._store = store
        self._settings = settings
        self._lock = threading.Lock()
        self._worker: Worker | None = None
        self.is_loading = False
        """whether a thread is loading the model, so that prompts are answered by words"""

    def start(self) -> None:
        """Process pending work, now and after every write, in a thread of this process."""
        with self._lock:
            self._worker = self._worker or self._models().open_worker()
        self._worker.wake()

    def wake(self) -> None:
        """Process what was just written."""
        if self._settings.store.corpus == DATABASE:
            self._models().index_writes()
        if self._worker is not None:
            self._worker.wake()

    def has_pending(self) -> bool:
        """Whether anything waits that the model in force can embed, or an update for its end."""
        if chosen(self._store, self._settings)[0] == NO_MODEL:
            return False
        return self._pending() > 0 or ((models := self._models.opened) is not None and models.is_unfinished())

    def _pending(self) -> int:
        """How many contents wait to be embedded or read for names."""
        heads = self._store.heads()
        return heads.unembedded + heads.unread

    def process(self, seconds: float) -> None:
        """Process pending work for at most this long, yielding to writers."""
        ends, left = time.monotonic() + seconds, -1
        while time.monotonic() < ends and left != (left := self._pending()) > 0:
            self._models().embed(limit=_STEP, wait=False, progress=None)
        while time.monotonic() < ends and self._models().advance_update(_STEP, wait=False):
            pass

    def stop(self) -> None:
        """End the thread."""
        if self._worker is not None:
            self._worker.stop()
            self._worker = None
            self._models().has_worker = False


class DeferredWrites:
    """A bounded queue of small writes; one that fails, as on a busy or read-only store, is dropped.

    They are written by `flush`, by `close`, or by a thread once `start` was called. A full queue starts the thread.
    """

    is_flushed_by_owner = False
    """Whether the process flushes it regularly; the thread then sleeps until the queue is full."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._writes: deque[Callable[[], None]] = deque(maxlen=most)
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._mutex = threading.Lock()
        self._flushing = threading.Lock()

    def __len__(self) -> int:
        return len(self._writes)

    def put(self, write: Callable[[], None]) -> None:
        """Queue a write; nothing is written now."""
        self._writes.append(write)
        if len(self._writes) == self._most:
            self._begin()
        elif self.is_flushed_by_owner:
            return
        self._wake.set()

    def start(self) -> None:
        """Write from now on in a thread, shortly after each answer."""
        self.refuse_closed()
        self._begin()

    def refuse_closed(self) -> None:
        """Raise once `close` was called."""
        if self._stop.is_set():
            raise StoreClosed("the memory was closed: open it again to use it")

    def _begin(self) -> None:
        with self._mutex:
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._run, name="triskele-deferred-writes", daemon=True)
                self._thread.start()

    def flush(self) -> None:
        """Write what waits; a write that fails is dropped."""
        with self._flushing:
            while self._writes:
                # A failed write must not stop the others, nor the prompt, write or close that flushes.
                with suppress(Exception):
                    self._writes.popleft()()

    def close(self) -> None:
        """End the thread and write the rest."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_LEAVING_S)
        self.flush()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.wait()
            self._wake.clear()
            # The answer leaves first.
            self._stop.wait(_DELAY_S)
            self.flush()
            if self._writes:
                self._wake.set()
