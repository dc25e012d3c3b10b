"""The resident process: one per data folder, with model and indexes once for all hooks and MCP clients.

It serves the store and owner of the settings file, or in the foreground (`triskele serve`) of the environment.

The process that serves holds a kernel lock until it ends. A process that starts while an older version serves, or while
the serving one stops, listens first, replaces the socket paths and waits for the lock: there is always a listener.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

from triskele import __version__, config
from triskele.config import Settings
from triskele.edge import error_messages
from triskele.edge.hook import client
from triskele.edge.hook.client import Address
from triskele.edge.process.listener import ExtraListener, Listener, chosen_socket, listen, make_folders, tcp_socket
from triskele.errors import Conflict, ModelUnavailable, TriskeleError
from triskele.text.files import file_lock

_LOCK_S = 0.2
_M_ARENA_MAX = -8
_HEALTH_S = 10.0
_NEW_OBJECTS = 20_000


class ResidentLock:
    """Two kernel locks: one process at a time may start, and one may serve."""

    def __init__(self, address: Address, inherited: int | None = None) -> None:
        self._address = address
        self._starting = ExitStack()
        self._serving = ExitStack()
        self._may_start = inherited is not None
        if inherited is not None:
            self._starting.callback(os.close, inherited)
        self.is_held = False

    def begin_start(self) -> bool:
        """Take the start lock, unless it was inherited."""
        if not self._may_start:
            self._may_start = self._starting.enter_context(file_lock(Path(self._address.file("starting")), timeout_s=0))
        return self._may_start

    def acquire(self, timeout_s: float = 0.0) -> bool:
        """Take the serving lock if it is free."""
        with ExitStack() as attempt:
            if attempt.enter_context(file_lock(Path(self._address.file("lock")), timeout_s=timeout_s)):
                self._serving = attempt.pop_all()
                self.is_held = True
        return self.is_held

    def settle(self) -> None:
        """Release the start lock once the serving lock is held; called by a process that listens."""
        if self._may_start and (self.is_held or self.acquire()):
            self._starting.close()
            self._may_start = False

    def end(self, listener: Listener) -> None:
        """Remove the socket paths unless a successor is replacing them."""
        if self.begin_start():
            listener.remove_paths()

    def close(self) -> None:
        """Release both locks."""
        self._starting.close()
        self._serving.close()


def serve(
    environ: Mapping[str, str],
    *,
    http: tuple[str, int] | None = None,
    socket: Path | None = None,
    inherited: int | None = None,
    ready: Callable[[dict[str, str]], None] = lambda _: None,
) -> None:
    """Serve until stopped, idle or replaced; Conflict if another process serves.

    `http` and `socket` are further addresses to listen at. `inherited` is the file descriptor of the start lock, if the
    parent process passed it on.
    """
    _limit_malloc_arenas()
    address = client.Address(environ)
    settings = config.load(environ)
    make_folders(address)
    with ExitStack() as stack:
        lock = ResidentLock(address, inherited)
        stack.callback(lock.close)
        _refuse_second(address, lock)
        extra: list[ExtraListener] = []
        if http is not None:
            extra.append(stack.enter_context(closing(ExtraListener(tcp_socket(*http)))))
        if socket is not None:
            extra.append(stack.enter_context(closing(chosen_socket(socket))))
        listener = stack.enter_context(closing(listen(address)))
        lock.settle()
        _keep_weights(settings)
        # Imported after the sockets listen: clients that connect meanwhile wait and are not refused.
        import asyncio

        from triskele.edge.process.engine_host import EngineHost
        from triskele.edge.process.service import Service

        host = EngineHost(settings, read_settings=lambda: config.load(environ))
        stack.callback(host.close)
        tenants = None
        if http is not None and not settings.store.is_file:
            from triskele.server.tenants import Tenants

            tenants = stack.enter_context(closing(Tenants.open(settings)))
        service = Service(address, host, listener, extra, settings.server, tenants)
        stack.callback(lock.end, listener)
        asyncio.run(service.run(lock, lambda: ready(service.addresses())))


def health(address: Address, timeout_s: float = _HEALTH_S) -> dict[str, Any] | None:
    """The /health answer of the resident process; None if none answers."""
    import json

    with suppress(OSError, ValueError, client.NoAnswer):
        status, _, text = client.exchange(address, "GET /health", (), b"", timeout_s)
        state = json.loads(text)
        return state if status == 200 and isinstance(state, dict) else None
    return None


def stop(address: Address, timeout_s: float = 30.0) -> dict[str, Any] | None:
    """Stop the resident process and wait for its end; its last /health answer, or None if none ran."""
    state = health(address)
    if state is not None:
        os.kill(int(state["pid"]), signal.SIGTERM)
        with file_lock(Path(address.file("lock")), timeout_s=timeout_s) as is_gone:
            if not is_gone:
                raise Conflict(f"process {state['pid']} has not ended yet: try again in a moment")
    return state


def _keep_weights(settings: Settings) -> None:
    """Keep what embeds the memories for the time after an update; a disk that is full or read-only prevents nothing."""
    from triskele.models.bundled import keep_weights

    if settings.recall.model == config.BUNDLED and not settings.server.url:
        with suppress(OSError, ModelUnavailable):
            keep_weights(settings.home)


def main() -> None:
    """Serve as a process that a hook or a bridge started; errors go to the log."""
    # Queries run one at a time, and their small matrix products are slower with more threads.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Imports and indexes make many objects that stay: looking for garbage among them only delays the first answer.
    gc.set_threshold(_NEW_OBJECTS)
    gc.disable()
    address = client.Address(os.environ)
    try:
        inherited = int(sys.argv[1]) if sys.argv[1:] else None
        serve(os.environ, inherited=inherited, ready=lambda _: _silence_stderr())
    except Conflict:
        return
    except (TriskeleError, OSError) as error:
        client.log(address, f"the resident cannot serve: {error_messages.error_line(error)}")
        sys.exit(3)
    exit_now()


def exit_now() -> None:
    """End the process without waiting for threads: one may wait for a locked store."""
    sys.stdout.flush()
    os._exit(0)


def _refuse_second(address: Address, lock: ResidentLock) -> None:
    if not lock.begin_start():
        raise Conflict("another process is starting to serve this data folder: try again in a moment")
    if not lock.acquire(_LOCK_S):
        state = health(address)
        if state is not None and client.release(str(state["version"])) >= client.release(__version__):
            raise Conflict(f"process {state['pid']} serves this data folder already (`triskele serve --stop` ends it)")


def _limit_malloc_arenas() -> None:
    """Use two malloc arenas for all threads, if the C library allows it: one per thread doubles the memory."""
    import ctypes

    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)


def _silence_stderr() -> None:
    """Close stderr after a successful start: later output could quote a prompt."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


if __name__ == "__main__":
    main()
