"""The one engine of the resident, and when somebody last asked for it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triskele.config import Settings, file_of
from triskele.errors import StoreUnavailable

if TYPE_CHECKING:
    from triskele.engine import Engine
    from triskele.stores.protocols import Cursor

_CLOSE_S = 2.0


class Household:
    """Opens the engine once, in the thread of whoever asks first, and tells when nobody has asked for long."""

    def __init__(self, settings: Settings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._file = file_of(os.environ, settings.home)
        self._stamp = _stamp(self._file)
        self._clock = clock
        self._mutex = threading.Lock()
        self._engine: Engine | None = None
        self._seen: Cursor | None = None
        self._asked_at = clock()

    def open_engine(self) -> Engine:
        """The engine; after a failure the next one who asks tries again, and after a change of settings another one."""
        if self.is_outdated():
            # What was allowed a moment ago may be allowed no more.
            raise StoreUnavailable("the settings have changed: triskele starts anew, ask again in a moment")
        with self._mutex:
            if self._engine is None:
                from triskele.engine import Engine

                # At the root there is no project: every request names its own.
                self._engine = Engine(self._settings, Path(Path.cwd().anchor))
            return self._engine

    def warm_up(self) -> None:
        """Load model and indexes, ask a first question, and begin to embed what waits."""
        engine = self.open_engine()
        engine.mind.warm_up()
        engine.recall("what is known", limit=1, logged=False, hurried=True)
        self.catch_up()

    def catch_up(self) -> None:
        """Embed what other processes have written since the last time."""
        engine = self._engine
        if engine is not None and (position := engine.store.position()) != self._seen:
            self._seen = position
            engine.work_in_background()

    def notice(self) -> None:
        """Somebody asked for something."""
        self._asked_at = self._clock()

    def is_idle(self) -> bool:
        """Whether nobody asked for as long as the settings allow."""
        return self._clock() - self._asked_at >= self.idle_s

    def is_outdated(self) -> bool:
        """Whether the settings file is not the one that was read any more."""
        return _stamp(self._file) != self._stamp

    @property
    def idle_s(self) -> float:
        """How long it stays without being asked."""
        return self._settings.agents.idle_minutes * 60

    def state(self) -> dict[str, Any]:
        """What may be told about it."""
        return {"store": self._settings.store.url, "engine": "opening" if self._engine is None else "open"}

    def close(self) -> None:
        """Let go of the store; what a thread still opens or reads is left to the end of the process."""
        if self._mutex.acquire(timeout=_CLOSE_S):
            with suppress(Exception):
                if self._engine is not None:
                    self._engine.close()
            self._engine = None
            self._mutex.release()


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
