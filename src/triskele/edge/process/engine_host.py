"""Keep one engine open in the background process, and reopen it when settings or triskele change."""

from __future__ import annotations

import hashlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from triskele import config
from triskele.config import CONFIG_FILE, Settings, file_of, is_same_store
from triskele.edge.install.config_files import TokenFile
from triskele.edge.process import connect
from triskele.errors import BadInput, StoreClosed, StoreUnavailable, TriskeleError
from triskele.models.bundled import MODEL_FOLDER
from triskele.models.manifest import MANIFEST_FILE

if TYPE_CHECKING:
    from triskele.edge.process.syncing import AutomaticSync
    from triskele.engine.local import LocalEngine
    from triskele.engine.protocol import Engine
    from triskele.store.values import Cursor

Memory = TypeVar("Memory", bound="Engine")

_CLOSE_S = 2.0
_INSTALLER_S = 3.0
# How many looks at new memories in a row may wait for their vectors.
_MOST_WAITED = 5
# What answers the first hook.
_ANSWERING = "triskele.agents.respond"
_QUESTION = "what is known"


class SettingsWatch:
    """Tells whether the settings file or the key for the server changed after it was read."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.file = file_of(os.environ, settings.home)
        self._stamp, self.key = self._now()

    def is_outdated(self) -> bool:
        """Whether there is a change since."""
        return self._now() != (self._stamp, self.key)

    def _now(self) -> tuple[tuple[int, ...] | None, bytes]:
        """The stamp of the file, and a digest of the key, which is empty if it cannot be read."""
        digest = b""
        with suppress(BadInput):
            digest = hashlib.sha256(os.fsencode(connect.key_of(self._settings, os.environ))).digest()
        return _stamp(self.file), digest


class PackageWatch:
    """Tells whether another build of triskele took the place of the one that this process runs."""

    def __init__(self, files: Sequence[Path] = (), clock: Callable[[], float] = time.monotonic) -> None:
        # An installer rewrites every file, even for the same version; weights may also be copied by hand.
        self._files = tuple(files) or (Path(config.__file__).with_name("__init__.py"), MODEL_FOLDER / MANIFEST_FILE)
        self._clock = clock
        self._first = self._last = self._now()
        self._changed_at = clock()

    def is_replaced(self) -> bool:
        """Whether the files are others, and have been for long enough that the installer is done."""
        now = self._now()
        if now != self._last:
            self._last, self._changed_at = now, self._clock()
        return now != self._first and self._clock() - self._changed_at >= _INSTALLER_S

    def _now(self) -> list[tuple[int, ...] | None]:
        return [_stamp(file) for file in self._files]


class _Users:
    """Held by an engine for requests and by every copy of it: it goes with the last one."""


def retire_when_unused(engine: Memory) -> Memory:
    """The engine for requests, closed in a thread when its last reference or copy goes.

    Requests may outlive their response, so their references decide.
    """
    shown, users = copy(engine), _Users()
    vars(shown)["_users"] = users
    # A request does not wait for the worker to finish its texts.
    closing = threading.Thread(target=engine.close, name="triskele-retire", daemon=True)
    # Not at the end of the process: a request may still hang in a locked store.
    weakref.finalize(users, closing.start).atexit = False
    return shown


class EngineHost:
    """Opens the engine on the first request and records when it was last used."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Callable[[], float] = time.monotonic,
        read_settings: Callable[[], Settings] = config.load,
    ) -> None:
        self._settings = settings
        self._read_settings = read_settings
        self._watch = SettingsWatch(settings)
        self._package = PackageWatch(clock=clock)
        self._of_file = _chosen_by_file()
        self._clock = clock
        self._mutex = threading.Lock()
        self._engine: Engine | None = None
        self._is_closed = False
        self._seen: Cursor | None = None
        self._waited = 0
        self._is_warm = False
        self._sync: AutomaticSync | None = None
        self._used_at = clock()

    def open_engine(self) -> Engine:
        """The engine, with the settings as they are now; a failed open is tried again on the next call."""
        with self._mutex:
            if self._is_closed:
                raise StoreClosed("triskele is stopping: try again in a moment")
            if self.is_outdated():
                # At once: the new settings may forbid what the old ones allowed.
                self._renew_settings()
            if self._engine is None:
                # The root folder has no project: every request names its own.
                engine = connect.open_engine(self._settings, os.environ, Path(Path.cwd().anchor))
                self._engine = retire_when_unused(engine)
                if (store := connect.local(self._engine)) is not None:
                    # Written with the next prompt, or with the next tick of the service.
                    store.deferred_writes.is_flushed_by_owner = True
                    store.background.is_loading = not self._is_warm
            return self._engine

    def _renew_settings(self) -> None:
        """Take over changed settings; refused where only another process can serve them."""
        watch, is_served = SettingsWatch(self._settings), False
        with suppress(TriskeleError, OSError):
            settings, of_file = self._read_settings(), _chosen_by_file()
            is_served = watch.key == self._watch.key and _agreed(settings) == _agreed(self._settings)
        if not is_served:
            raise StoreUnavailable("the settings have changed and triskele restarts: try again in a moment")
        # What was given counts for the next prompt.
        self.write_notes()
        # The old engine closes after the last request that uses it.
        self._engine = self._seen = None
        self._settings, self._of_file, self._watch = settings, of_file, watch

    def renew(self) -> bool:
        """Take over changed settings ahead of the next request; False if another process has to."""
        with suppress(TriskeleError, OSError):
            self.warm_up()
            return True
        return False

    @property
    def _store(self) -> LocalEngine | None:
        """The engine, if it is open and its store is here: a server does its own embedding and curation."""
        return None if self._engine is None else connect.local(self._engine)

    def warm_up(self) -> None:
        """Load what requests would wait for, first what answers by words, and run one query by each."""
        try:
            engine = self.open_engine()
            if (store := self._store) is None:
                # Its connection is open when the first hook comes.
                engine.stats()
                return
            import_module(_ANSWERING)
            store.answer(_QUESTION, limit=1, local_only=True)
            store.models.warm_up()
        finally:
            self._is_warm = True
            if (store := self._store) is not None:
                store.background.is_loading = False
        store.answer(_QUESTION, limit=1, local_only=True)
        import_module("triskele.edge.http.dispatch")
        sync = self._settings.sync
        if sync.url and sync.every_s and self._sync is None:
            from triskele.edge.process.syncing import AutomaticSync

            self._sync = AutomaticSync(lambda: connect.local(self.open_engine()), sync.every_s)

    def process_new_memories(self) -> None:
        """Embed and curate new memories of other processes, and learn from transcripts that hooks queued."""
        engine = self._store
        if engine is not None and engine.settings.curation.learn != "off":
            engine.upkeep.learn_queued()
        if engine is not None and (position := engine.upkeep.position()) != self._seen:
            engine.work_in_background()
            if engine.background.has_pending() and self._waited < _MOST_WAITED:
                # Vectors find more than words: curation follows the worker, unless that takes long.
                self._waited += 1
                return
            self._waited = 0
            # Its own changes come after the position, and need no second look.
            self._seen = position if engine.upkeep.curate_new() else None

    def has_notes(self) -> bool:
        """Whether an answer has left something to write."""
        return (store := self._store) is not None and len(store.deferred_writes) > 0

    def write_notes(self) -> None:
        """Write what answers have left."""
        if (store := self._store) is not None:
            store.deferred_writes.flush()

    def note_use(self) -> None:
        """Record a request: the idle time starts again."""
        self._used_at = self._clock()

    def is_idle(self) -> bool:
        """Whether there was no request for the idle time of the settings."""
        return self._clock() - self._used_at >= self.idle_s

    def is_outdated(self) -> bool:
        """Whether the settings file or the key for the server changed after it was read."""
        return self._watch.is_outdated()

    def is_replaced(self) -> bool:
        """Whether another build of triskele took the place of this one."""
        return self._package.is_replaced()

    @property
    def idle_s(self) -> float:
        """How long the process stays without a request."""
        return self._settings.agents.idle_minutes * 60

    def serves(self, choice: Sequence[str]) -> bool:
        """Whether this process serves what a client's environment chooses: store, owner, server, settings file."""
        named, served = self._of_file, self._settings
        if self.is_outdated():
            # The request that follows takes the new settings over, or is refused.
            with suppress(TriskeleError, OSError):
                named = _chosen_by_file()
        store, owner, server, file = choice
        if (Path(file).absolute() if file else served.home / CONFIG_FILE) != self._watch.file.absolute():
            return False
        if (owner or named.memory.owner) != served.memory.owner or (server or named.server.url) != served.server.url:
            return False
        try:
            return is_same_store(store or named.store.url, served.store.url)
        except BadInput:
            return False

    def state(self) -> dict[str, Any]:
        """The part of /health that describes the engine."""
        return {"store": connect.address_of(self._settings), "engine": "opening" if self._engine is None else "open"}

    def open_memories(self) -> list[LocalEngine]:
        """The memory of this process, if its store is open."""
        return [] if (store := self._store) is None else [store]

    def client_of(self, token: str) -> str | None:
        """The client that a token was installed for."""
        return TokenFile.of(self._settings.home).client_of(token)

    def close(self) -> None:
        """Close the engine; a thread that is still opening it ends with the process."""
        if self._sync is not None:
            self._sync.stop()
        self._is_closed = True
        if self._mutex.acquire(timeout=_CLOSE_S):
            with suppress(Exception):
                if self._engine is not None:
                    self._engine.close()
            self._engine = None
            self._mutex.release()


def _chosen_by_file() -> Settings:
    """The settings of a client whose environment chooses neither store nor owner nor server."""
    return config.load(config.without_choice(os.environ))


def _agreed(settings: Settings) -> tuple[object, ...]:
    """What clients agreed on when they connected, and what threads of the process hold."""
    return settings.home, settings.store, settings.index, settings.server, settings.sync, settings.memory.owner


def _stamp(file: Path) -> tuple[int, ...] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
