"""The running resident process: HTTP servers, MCP streams, idle watch, orderly shutdown."""

from __future__ import annotations

import asyncio
import gc
import hmac
import json
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex

import uvicorn
from anyio import to_thread
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from triskele.config import ServerSettings
from triskele.edge.hook import client
from triskele.edge.hook.client import LOOPBACK, Address
from triskele.edge.http.access import SCOPES, Principal
from triskele.edge.http.app import METADATA_PATH, AppContext, Application, ListenerRules, error_place
from triskele.edge.process import connect
from triskele.edge.process.engine_host import EngineHost
from triskele.edge.process.listener import ExtraListener, Listener, Socket, is_owner, standing_token, tcp_socket
from triskele.edge.web.sessions import KeySessions
from triskele.errors import BadInput, StoreClosed
from triskele.text.files import expanded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from triskele.edge.process.resident import ResidentLock
    from triskele.server.tenants import Tenants

NO_SERVER = ServerSettings()
_TICK_S = 1.0
_DRAIN_S = 10
# Each thread has a connection to the store; more threads only wait for the processor.
_THREADS = 8
_STREAM_END_S = 5.0
_TOKEN_S = 5.0
# Requests that are being answered, and connections whose next request is not complete.
MAX_CONNECTIONS, MAX_WAITING = 128, 256
MAX_STREAMS = 64
# From the first byte of a request to the last: header and body.
REQUEST_S = 15.0
_KEEP_ALIVE_S = 15
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class Service:
    """All servers of one resident process."""

    def __init__(
        self,
        address: Address,
        host: EngineHost,
        listener: Listener,
        extra: list[ExtraListener],
        settings: ServerSettings = NO_SERVER,
        tenants: Tenants | None = None,
    ) -> None:
        self._settings = settings
        self._tenants = tenants
        self._metrics_key = metrics_key(settings) if tenants is not None else ""
        self._address = address
        self._host = host
        self._listener = listener
        self._extra = extra
        self._is_warm = False

    def addresses(self) -> dict[str, str]:
        """Where the process can be reached, for people."""
        addresses = {"socket": self._address.socket("http")}
        for listener in self._extra:
            if listener.path is None and self._tenants is not None:
                scheme = "https:" if self._settings.certificate_file else "http:"
                addresses["http"] = listener.address.replace("http:", scheme, 1)
            elif listener.path is None:
                addresses |= {"http": listener.address, "token_file": self._address.file("token")}
            else:
                addresses["extra_socket"] = listener.address
        return addresses

    async def run(self, lock: ResidentLock, ready: Callable[[], None]) -> None:
        """Serve until it is time to stop, then finish open requests."""
        stopping, loop = asyncio.Event(), asyncio.get_running_loop()
        _handle_signals(stopping)
        to_thread.current_default_thread_limiter().total_tokens = _THREADS
        host, listener = self._host, self._listener
        streams, tenants = StreamServer(host, listener.token, self._log), self._tenants
        memories = host if tenants is None else tenants
        app = Application(
            AppContext(
                host.open_engine,
                lambda: {**host.state(), "streams": len(streams)},
                self._log,
                host.note_use,
                host.client_of,
                host.serves,
                page_address=lambda: self._page_address(serve),
                leave=lambda: loop.call_soon_threadsafe(stopping.set),
                users=tenants,
                sessions=None if tenants is None else KeySessions(tenants),
                log_request=None if tenants is None else _log_request,
                open_memories=memories.open_memories,
            )
        )
        with _errors_logged(self._log):
            async with asyncio.TaskGroup() as tasks:

                def serve(sock: Socket, rules: ListenerRules) -> None:
                    tls = self._tls() if rules.verify is not None else {}
                    tasks.create_task(HttpServer(app.for_listener(rules), stopping, **tls).serve(sockets=[sock]))

                serve(listener.http, replace(ListenerRules.local(listener.token), is_owner=True))
                for extra in self._extra:
                    serve(extra.socket, self._rules(extra))
                await streams.listen(listener.stream)
                # A daemon thread: a store that stays locked must not keep the process from ending.
                threading.Thread(target=self._warm_up, name="triskele-warm-up", daemon=True).start()
                ready()
                await self._watch(lock, stopping)
                await streams.close()
            await app.close()

    def _rules(self, extra: ExtraListener) -> ListenerRules:
        if extra.path is not None:
            return ListenerRules.local()
        port = extra.socket.getsockname()[1]
        if self._tenants is None:
            return ListenerRules.local(standing_token(Path(self._address.file("token"))), port)
        return replace(server_rules(self._settings, self._tenants.verify, port), metrics_key=self._metrics_key)

    def _tls(self) -> dict[str, Any]:
        """The TLS files, if configured; otherwise a proxy may terminate TLS."""
        settings = self._settings
        if not settings.certificate_file:
            return {}
        return {
            "ssl_certfile": expanded(settings.certificate_file),
            "ssl_keyfile": expanded(settings.private_key_file) if settings.private_key_file else None,
        }

    def _page_address(self, serve: Callable[[Socket, ListenerRules], None]) -> str:
        """The address of this process for a browser; opens a loopback port if none is open."""
        if self._tenants is not None:
            return self.addresses()["http"]
        loopback = next((extra for extra in self._extra if extra.path is None), None)
        if loopback is None:
            loopback = ExtraListener(tcp_socket(LOOPBACK, 0))
            self._extra.append(loopback)
            serve(loopback.socket, self._rules(loopback))
        return loopback.address

    def _warm_up(self) -> None:
        try:
            if self._tenants is None:
                self._host.warm_up()
            else:
                import_module("triskele.agents.respond")
        except StoreClosed:
            # The process ends before it was ready.
            return
        except Exception as error:
            # The next request tries again.
            self._log(f"the store cannot be opened: {error_place(error)}")
        finally:
            self._is_warm = True
            gc.enable()

    async def _watch(self, lock: ResidentLock, stopping: asyncio.Event) -> None:
        host = self._host
        tick_s = min(_TICK_S, host.idle_s / 4)
        while not stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), tick_s)
            lock.settle()
            # A server with users ends only when it is stopped.
            is_over = self._tenants is None and (
                host.is_idle()
                or host.is_replaced()
                # Some changes of settings need another process.
                or (host.is_outdated() and not await asyncio.to_thread(host.renew))
            )
            if is_over or not self._listener.is_reachable():
                stopping.set()
            with suppress(Exception):
                if host.has_notes():
                    # In the thread that answered last: a write over another connection voids all that its one holds.
                    await to_thread.run_sync(host.write_notes)
            with suppress(Exception):
                # Not before: the first answer would wait for the modules of curation and learning.
                if self._is_warm:
                    await asyncio.to_thread(host.process_new_memories)

    def _log(self, line: str) -> None:
        client.log(self._address, f"resident: {line}")


def _log_request(line: dict[str, Any]) -> None:
    sys.stderr.write(json.dumps(line) + "\n")
    sys.stderr.flush()


def metrics_key(settings: ServerSettings) -> str:
    """The key of probes in a file that only this user can read; empty without one."""
    if not settings.metrics_key_file:
        return ""
    path = Path(expanded(settings.metrics_key_file))
    if not (key := connect.read_key(path, "/metrics")):
        raise BadInput(f"the key of /metrics in {path} is empty: write one there")
    return key


def server_rules(settings: ServerSettings, verify: Callable[[str], Principal | None], port: int) -> ListenerRules:
    """The rules of a listener for users: the names of the settings, and keys."""
    local = ListenerRules.local(None, port)
    named = {name for host in settings.allowed_hosts for name in (host, f"{host}:{port}")}
    scheme = "https" if settings.certificate_file or settings.trusted_proxies else "http"
    origins = {f"{scheme}://{name}" for name in named | local.hosts}
    first = settings.allowed_hosts[0] if settings.allowed_hosts else f"localhost:{port}"
    base = f"{scheme}://{first}"
    return ListenerRules(
        frozenset(named) | local.hosts,
        verify=verify,
        origins=frozenset(origins) | local.origins,
        proxies=frozenset(settings.trusted_proxies),
        challenge=f'Bearer resource_metadata="{base}{METADATA_PATH}/mcp"',
        metadata={
            "resource": f"{base}/mcp",
            "resource_name": "triskele",
            "scopes_supported": list(SCOPES),
            "bearer_methods_supported": ["header"],
        },
    )


class HttpServer(uvicorn.Server):
    """A server on an open socket that stops when an event is set."""

    def __init__(self, app: ASGIApp, stopping: asyncio.Event, **tls: Any) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                **tls,
                http=BoundedProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=_DRAIN_S,
            )
        )
        self._stopping = stopping

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the service."""
        yield

    async def main_loop(self) -> None:
        """Serve until the event is set."""
        await self._stopping.wait()


class BoundedProtocol(H11Protocol):
    """HTTP for processes of this user, with bounds on connections and on how long a request takes to arrive."""

    _timer: asyncio.TimerHandle | None = None
    _opened = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection; refuse another user's, and any during too many requests.

        If too many connections have sent no complete request, the oldest of them ends.
        """
        super().connection_made(transport)
        if not is_owner(transport.get_extra_info("socket")):
            transport.abort()
            return
        others: Any = self.connections
        if sum(each.is_answering for each in others) >= MAX_CONNECTIONS:
            transport.write(_BUSY)
            transport.close()
            return
        self._opened = self.loop.time()
        self._set_timer()
        waiting = [each for each in others if not (each.is_answering or each.transport.is_closing())]
        if len(waiting) > MAX_WAITING:
            min(waiting, key=lambda each: each._opened)._time_out()

    def data_received(self, data: bytes) -> None:
        """Take what arrived; a request that is not complete in time ends the connection."""
        super().data_received(data)
        if self.is_answering:
            self._clear_timer()
        else:
            self._set_timer()

    @property
    def is_answering(self) -> bool:
        """Whether a complete request waits for its response."""
        cycle: Any = self.cycle
        return cycle is not None and not cycle.response_complete and not cycle.more_body

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._clear_timer()
        super().connection_lost(exc)

    def _set_timer(self) -> None:
        # Not set again while it runs: a client that sends a byte now and then gets no more time.
        if self._timer is None:
            self._timer = self.loop.call_later(REQUEST_S, self._time_out)

    def _clear_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_out(self) -> None:
        self._timer = None
        cycle: Any = self.cycle
        if cycle is None or cycle.response_complete or not cycle.response_started:
            self.transport.write(_TOO_SLOW)
        self.transport.close()


class StreamServer:
    """MCP streams: one connection of one bridge each, served until either side closes it."""

    def __init__(self, host: EngineHost, token: str | None, log: Callable[[str], None]) -> None:
        self._host = host
        self._token = token
        self._log = log
        self._open: dict[asyncio.Task[None], _ActivityReader] = {}
        self._server: asyncio.Server | None = None

    def __len__(self) -> int:
        return len(self._open)

    async def listen(self, sock: Socket) -> None:
        """Accept streams on a socket."""
        loop = asyncio.get_running_loop()

        def protocol() -> asyncio.StreamReaderProtocol:
            return asyncio.StreamReaderProtocol(_ActivityReader(self._host.note_use), self._serve)

        self._server = await loop.create_server(protocol, sock=sock)

    async def close(self) -> None:
        """Accept no more streams, let the open ones answer their requests, and close them."""
        if self._server is not None:
            self._server.close()
        for reader in self._open.values():
            reader.stop()
        if self._open:
            await asyncio.wait(self._open, timeout=_STREAM_END_S)
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None and isinstance(reader, _ActivityReader)
        if len(self._open) >= MAX_STREAMS:
            self._log(f"an MCP stream was refused: {MAX_STREAMS} are open")
            writer.close()
            return
        self._open[task] = reader
        try:
            if await self._is_allowed(reader, writer):
                # Imported with the first stream: hooks never wait for it.
                server = await asyncio.to_thread(import_module, "triskele.edge.mcp.server")
                await server.serve_stream(self._host.open_engine, reader, writer, self._host.serves)
        except Exception as error:
            self._log(f"an MCP stream ended: {error_place(error)}")
        finally:
            del self._open[task]
            writer.close()

    async def _is_allowed(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if not is_owner(writer.get_extra_info("socket")):
            return False
        if self._token is None:
            return True
        async with asyncio.timeout(_TOKEN_S):
            return hmac.compare_digest((await reader.readline()).rstrip(), self._token.encode())


class _ActivityReader(asyncio.StreamReader):
    """A reader that reports when data arrives."""

    def __init__(self, arrived: Callable[[], None]) -> None:
        super().__init__()
        self._arrived = arrived
        self._is_stopped = False

    def feed_data(self, data: Iterable[SupportsIndex]) -> None:
        """Take what arrived."""
        if not self._is_stopped:
            self._arrived()
            super().feed_data(data)

    def stop(self) -> None:
        """Read nothing more, whatever still arrives."""
        self._is_stopped = True
        self.feed_eof()


def _handle_signals(stopping: asyncio.Event) -> None:
    if threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(stopping.set))


class _ErrorLogHandler(logging.Handler):
    """Logs the kind and place of an error, never its message."""

    def __init__(self, log: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """One line about one error."""
        error = record.exc_info[1] if record.exc_info else None
        self._log(error_place(error) if error else f"{record.name}:{record.lineno}")


@contextmanager
def _errors_logged(log: Callable[[str], None]) -> Iterator[None]:
    handler = _ErrorLogHandler(log)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
