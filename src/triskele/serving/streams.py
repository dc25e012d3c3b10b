"""Raw MCP streams: one connection of a bridge each, served by the resident until either side leaves."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, SupportsIndex

from triskele.serving.app import where
from triskele.serving.listening import Socket, is_owner

if TYPE_CHECKING:
    from triskele.engine import Engine

_LEAVE_S = 5.0
_TOKEN_S = 5.0


class _Watched(asyncio.StreamReader):
    """A reader that tells when something arrives."""

    def __init__(self, arrived: Callable[[], None]) -> None:
        super().__init__()
        self._arrived = arrived
        self._is_leaving = False

    def feed_data(self, data: Iterable[SupportsIndex]) -> None:
        """Take what arrived."""
        if not self._is_leaving:
            self._arrived()
            super().feed_data(data)

    def leave(self) -> None:
        """Say that nothing more will be read, whatever may still arrive."""
        self._is_leaving = True
        self.feed_eof()


class Streams:
    """All open streams and the socket at which they arrive."""

    def __init__(
        self,
        open_engine: Callable[[], Engine],
        token: str | None,
        noticed: Callable[[], None],
        log: Callable[[str], None],
    ) -> None:
        self._open_engine = open_engine
        self._token = token
        self._noticed = noticed
        self._log = log
        self._open: dict[asyncio.Task[None], _Watched] = {}
        self._server: asyncio.Server | None = None

    def __len__(self) -> int:
        return len(self._open)

    async def listen(self, sock: Socket) -> None:
        """Take streams at a socket."""
        loop = asyncio.get_running_loop()

        def protocol() -> asyncio.StreamReaderProtocol:
            return asyncio.StreamReaderProtocol(_Watched(self._noticed), self._serve)

        self._server = await loop.create_server(protocol, sock=sock)

    async def close(self) -> None:
        """Take no more streams, let the open ones answer what they were asked, and end them."""
        if self._server is not None:
            self._server.close()
        for reader in self._open.values():
            reader.leave()
        if self._open:
            await asyncio.wait(self._open, timeout=_LEAVE_S)
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None and isinstance(reader, _Watched)
        self._open[task] = reader
        try:
            if await self._is_welcome(reader, writer):
                # Imported when the first stream comes: hooks never wait for it.
                stream = await asyncio.to_thread(import_module, "triskele.serving.mcp.stream")
                await stream.serve(self._open_engine, reader, writer)
        except Exception as error:
            self._log(f"an MCP stream ended: {where(error)}")
        finally:
            del self._open[task]
            writer.close()

    async def _is_welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if not is_owner(writer.get_extra_info("socket")):
            return False
        if self._token is None:
            return True
        async with asyncio.timeout(_TOKEN_S):
            return hmac.compare_digest((await reader.readline()).rstrip(), self._token.encode())
