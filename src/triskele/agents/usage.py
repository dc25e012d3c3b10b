"""What an answer leaves to write: counts of recalled and injected memories, and the queue that writes them later."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from triskele.agents import echo
from triskele.errors import StoreClosed
from triskele.store.derived import Use
from triskele.store.protocols import OwnerStore
from triskele.text.words import tokens_of
from triskele.types import Answer, Memory

MOST = 1000
_DELAY_S = 0.05
_LEAVING_S = 5.0


class AfterAnswer:
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
                self._thread = threading.Thread(target=self._run, name="triskele-after-answer", daemon=True)
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


def note_recall(store: OwnerStore, answer: Answer, *, to_agent: bool = False) -> None:
    """Count the memories of an answer, with fingerprints for agents."""
    memories = [*(hit.memory for hit in answer.hits), *answer.resolutions]
    if memories:
        uses = [Use(each.id, tokens_of(each.content) * to_agent, each.content_hash) for each in memories]
        pairs = zip(uses, memories, strict=True)
        store.usage.recalled(
            [use._replace(fingerprints=echo.fingerprints(each.content)) for use, each in pairs] if to_agent else uses
        )


def note_injection(
    store: OwnerStore,
    memories: Iterable[Memory],
    *,
    conversation: str | None,
    tokens: Mapping[str, int],
    labels: Mapping[str, str] | None = None,
    client: str = "",
    project: str = "",
) -> None:
    """Count injected memories, with fingerprints of texts and labels."""
    labelled = {id: (echo.label_fingerprint(label),) for id, label in (labels or {}).items()}
    injected = [
        Use(each.id, tokens[each.id], each.content_hash, (*echo.fingerprints(each.content), *labelled.get(each.id, ())))
        for each in memories
    ]
    if injected:
        store.usage.injected(conversation, injected, client=client, project=project)
