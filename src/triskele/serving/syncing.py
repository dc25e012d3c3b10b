"""Sync with the server of the settings: over HTTP, one run at a time, and regularly while the resident process runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from triskele.base import timestamps
from triskele.base.files import expanded, file_lock
from triskele.config import SYNC_KEY_FILE, Settings
from triskele.errors import BadInput, Conflict, TriskeleError
from triskele.exchange.sync import Sync, SyncReport
from triskele.exchange.sync_notes import Notes
from triskele.exchange.sync_states import Outgoing, PulledPage, PushReply
from triskele.serving.chosen_memory import read_key
from triskele.serving.error_messages import error_line
from triskele.types import Sensitivity

if TYPE_CHECKING:
    from triskele.engine import Engine
    from triskele.serving.http.client import RemoteMemory

_LOCK_FILE = "sync.lock"
_LOCK_S = 30.0
_CLOSED = (Sensitivity.PRIVATE, Sensitivity.SECRET)
# A count has no end.
_ALL = 2**31


class HttpSyncServer:
    """A sync server over HTTP."""

    def __init__(self, memory: RemoteMemory) -> None:
        self._memory = memory

    def push(self, items: Sequence[Outgoing], actor: str, user: str) -> PushReply:
        """Push changes made by one actor; refused if the key is not the user's."""
        body = {"items": items, "actor": actor, "user": user}
        return self._memory.asked(PushReply, "POST", "/v1/sync", json=body)

    def pull(self, cursor: str, user: str = "") -> PulledPage:
        """Pull the changes since a cursor; refused if a user is named and the key is not theirs."""
        return self._memory.asked(PulledPage, "GET", "/v1/sync", params={"cursor": cursor, "user": user})


@dataclass(frozen=True, slots=True)
class SyncState:
    """What waits to be synced, and why; `left_here` counts memories that are private or secret."""

    url: str
    user: str
    at: str
    error: str
    unsent: tuple[str, ...]
    waiting: dict[str, str]
    conflicts: tuple[str, ...]
    left_here: int


def sync(engine: Engine, *, wait_s: float = _LOCK_S, is_elsewhere: bool = False) -> SyncReport:
    """Sync the engine's store once; an error is noted for `status` and raised."""
    settings = engine.settings
    with ExitStack() as stack:
        if not stack.enter_context(file_lock(settings.home / _LOCK_FILE, timeout_s=wait_s)):
            raise Conflict("another process syncs this store: try again in a moment")
        try:
            remote = _remote(settings)
            stack.callback(remote.close)
            report = Sync(engine, HttpSyncServer(remote), remote.url).run(is_elsewhere=is_elsewhere)
        except Exception as error:
            with suppress(Exception):
                Notes(engine.store).put_state(error=_reason(error))
            raise
        Notes(engine.store).put_state(error="")
        return report


def _reason(error: Exception) -> str:
    # The text of a fault of ours may quote a memory.
    return error_line(error) if isinstance(error, TriskeleError) else f"a fault: {type(error).__name__}"


def status(engine: Engine) -> SyncState:
    """What a sync would have to do, and what keeps the rest; nothing is asked of the server."""
    notes = Notes(engine.store)
    found, waiting = notes.state(), notes.waiting()
    return SyncState(
        url=engine.settings.sync.url,
        user=found.get("user", ""),
        at=found.get("at", ""),
        error=found.get("error", ""),
        unsent=tuple(id for id in notes.unsent() if id not in waiting),
        waiting=waiting,
        conflicts=tuple(notes.conflicts()),
        left_here=len(engine.browse(all_projects=True, sensitivities=_CLOSED, limit=_ALL)),
    )


@dataclass(frozen=True, slots=True)
class SyncedServer:
    """A server that this store is or was synced with; `sent` counts the changes pushed in all, if that is known."""

    url: str
    user: str
    at: datetime | None
    sent: int | None
    is_set: bool


def synced_servers(engine: Engine) -> list[SyncedServer]:
    """The server of the settings, and the one that the store was synced with."""
    found, url = Notes(engine.store).state(), engine.settings.sync.url.rstrip("/")
    noted = found.get("address", "")
    servers = [] if url in ("", noted) else [SyncedServer(url, "", None, None, is_set=True)]
    if noted:
        at = timestamps.parse(found["at"]) if found.get("at") else None
        sent = int(found["sent"]) if "sent" in found else None
        servers.append(SyncedServer(noted, found.get("user", ""), at, sent, is_set=noted == url))
    return servers


def _remote(settings: Settings) -> RemoteMemory:
    from triskele.serving.http.client import RemoteMemory

    if not settings.sync.url:
        raise BadInput("no server to sync with: `triskele config set sync.url https://…`, and its key in sync.key")
    path = expanded(settings.sync.key_file) if settings.sync.key_file else settings.home / SYNC_KEY_FILE
    return RemoteMemory(settings.sync.url, read_key(path, settings.sync.url))


class AutomaticSync:
    """Syncs in a thread of the resident process until it is stopped; a failed run is tried again in the next turn."""

    def __init__(self, open_engine: Callable[[], Engine], every_s: float) -> None:
        self._open_engine = open_engine
        self._every_s = every_s
        self._stopping = threading.Event()
        # A daemon: a server that does not answer must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="triskele-sync", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float = 2.0) -> None:
        """Start no further run, and wait a moment for the current one."""
        self._stopping.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stopping.is_set():
            # `sync` notes why a run failed; whatever it was, the next turn tries again.
            with suppress(Exception):
                sync(self._open_engine(), wait_s=0)
            self._stopping.wait(self._every_s)
