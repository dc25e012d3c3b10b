"""Sync with the server of the settings: over HTTP, one run at a time, and regularly while the resident process runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from triskele.edge.error_messages import error_line
from triskele.edge.process import connect
from triskele.errors import Conflict, TriskeleError
from triskele.server.operations import BY_METHOD, SyncRoom
from triskele.sync.loop import SyncReport
from triskele.sync.states import Outgoing, PulledPage, PushReply
from triskele.text.files import file_lock

if TYPE_CHECKING:
    from triskele.edge.http.client import RemoteEngine
    from triskele.engine.local import LocalEngine

_LOCK_FILE = "sync.lock"
_LOCK_S = 30.0


class HttpSyncServer:
    """A sync server over HTTP."""

    def __init__(self, server: RemoteEngine) -> None:
        self._server = server

    def push(self, items: Sequence[Outgoing], actor: str, user: str) -> PushReply:
        """Push changes made by one actor; refused if the key is not the user's."""
        options = {"items": items, "actor": actor, "user": user}
        reply: PushReply = self._server.send(BY_METHOD[SyncRoom.push], options)
        return reply

    def pull(self, cursor: str, user: str = "") -> PulledPage:
        """Pull the changes since a cursor; refused if a user is named and the key is not theirs."""
        page: PulledPage = self._server.send(BY_METHOD[SyncRoom.pull], {"cursor": cursor, "user": user})
        return page


def sync(engine: LocalEngine, *, wait_s: float = _LOCK_S, is_elsewhere: bool = False) -> SyncReport:
    """Sync the engine's store once; an error is kept for `Upkeep.sync_state` and raised."""
    settings = engine.settings
    with ExitStack() as stack:
        if not stack.enter_context(file_lock(settings.home / _LOCK_FILE, timeout_s=wait_s)):
            raise Conflict("another process syncs this store: try again in a moment")
        try:
            server = stack.enter_context(connect.open_sync_server(settings))
            return engine.upkeep.sync(HttpSyncServer(server), server.url, is_elsewhere=is_elsewhere)
        except Exception as error:
            # The text of a fault of ours may quote a memory.
            reason = error_line(error) if isinstance(error, TriskeleError) else f"a fault: {type(error).__name__}"
            with suppress(Exception):
                engine.upkeep.note_sync_error(reason)
            raise


class AutomaticSync:
    """Syncs in a thread of the resident process until it is stopped; a failed run is tried again in the next turn."""

    def __init__(self, open_store: Callable[[], LocalEngine | None], every_s: float) -> None:
        self._open_store = open_store
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
                if (store := self._open_store()) is not None:
                    sync(store, wait_s=0)
            self._stopping.wait(self._every_s)
