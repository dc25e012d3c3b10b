"""The resident at work: listeners, streams, the watch over both, and an orderly end."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Callable
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn
from anyio import to_thread
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from triskele.serving import hook_client
from triskele.serving.app import Application, House, where
from triskele.serving.guard import Rules
from triskele.serving.hook_client import Address
from triskele.serving.household import Household
from triskele.serving.listening import Ears, Extra, Socket, is_owner, standing_token
from triskele.serving.streams import Streams

if TYPE_CHECKING:
    from collections.abc import Iterator

    from triskele.serving.resident import Turn

_TICK_S = 1.0
_DRAIN_S = 10
# Each thread has a connection to the store; more of them than this only wait for the processor.
_THREADS = 8


class Service:
    """Everything that one resident serves."""

    def __init__(self, place: Address, household: Household, ears: Ears, extra: list[Extra]) -> None:
        self._place = place
        self._household = household
        self._ears = ears
        self._extra = extra
        self._token = standing_token(Path(place.file("token"))) if extra else None

    def places(self) -> dict[str, str]:
        """Where it can be reached, for people."""
        said = {"socket": self._place.socket("http")}
        for each in self._extra:
            if each.path is None:
                said |= {"http": each.address, "token_file": self._place.file("token")}
            else:
                said["extra_socket"] = each.address
        return said

    async def run(self, turn: Turn, ready: Callable[[], None]) -> None:
        """Serve until it is time to leave, then finish what was begun."""
        leaving = asyncio.Event()
        _heed_signals(leaving)
        to_thread.current_default_thread_limiter().total_tokens = _THREADS
        house, ears = self._household, self._ears
        streams = Streams(house.open_engine, ears.token, house.notice, self._log)
        app = Application(
            House(house.open_engine, lambda: {**house.state(), "streams": len(streams)}, self._log, house.notice)
        )
        with _errors_to(self._log):
            async with asyncio.TaskGroup() as tasks:
                for sock, rules in self._listeners():
                    tasks.create_task(Listener(app.for_listener(rules), leaving).serve(sockets=[sock]))
                await streams.listen(ears.stream)
                # A thread that nobody waits for: a store that is locked for long must not keep the process from ending.
                threading.Thread(target=self._warm_up, name="triskele-warm-up", daemon=True).start()
                ready()
                await self._watch(turn, leaving)
                await streams.close()
            await app.mcp.close()

    def _listeners(self) -> Iterator[tuple[Socket, Rules]]:
        yield self._ears.http, Rules.local(self._ears.token)
        for each in self._extra:
            if each.path is not None:
                yield each.socket, Rules.local()
            else:
                yield each.socket, Rules.local(self._token, each.socket.getsockname()[1])

    def _warm_up(self) -> None:
        try:
            self._household.warm_up()
            import_module("triskele.serving.hook.events")
        except Exception as error:
            # Whoever asks next tries again.
            self._log(f"the store cannot be opened: {where(error)}")

    async def _watch(self, turn: Turn, leaving: asyncio.Event) -> None:
        tick_s = min(_TICK_S, self._household.idle_s / 4)
        while not leaving.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(leaving.wait(), tick_s)
            turn.settle()
            if self._household.is_idle() or self._household.is_outdated() or not self._ears.are_found():
                leaving.set()
            with suppress(Exception):
                await asyncio.to_thread(self._household.catch_up)

    def _log(self, line: str) -> None:
        hook_client.log(self._place, f"resident: {line}")


class Listener(uvicorn.Server):
    """A server on an open socket that leaves when it is told to, without asking the clock."""

    def __init__(self, app: ASGIApp, leaving: asyncio.Event) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=OwnersProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                timeout_graceful_shutdown=_DRAIN_S,
            )
        )
        self._leaving = leaving

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the service."""
        yield

    async def main_loop(self) -> None:
        """Serve until it is time to leave."""
        await self._leaving.wait()


class OwnersProtocol(H11Protocol):
    """HTTP for processes of this user alone."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, unless it is somebody else's."""
        super().connection_made(transport)
        if not is_owner(transport.get_extra_info("socket")):
            transport.abort()


def _heed_signals(leaving: asyncio.Event) -> None:
    if threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(leaving.set))


class _Told(logging.Handler):
    """Hands the kind and place of an error on, and never its words."""

    def __init__(self, log: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._tell = log

    def emit(self, record: logging.LogRecord) -> None:
        """One line about one error."""
        error = record.exc_info[1] if record.exc_info else None
        self._tell(where(error) if error else f"{record.name}:{record.lineno}")


@contextmanager
def _errors_to(log: Callable[[str], None]) -> Iterator[None]:
    handler = _Told(log)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
