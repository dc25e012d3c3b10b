"""An application served on a loopback port by a thread of the test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from triskele.edge.http.app import Application, ListenerRules
from triskele.edge.process.listener import tcp_socket
from triskele.edge.process.service import HttpServer

TOKEN = "a-token-of-the-test"


@contextmanager
def serving(application: Application, rules: Callable[[int], ListenerRules]) -> Iterator[str]:
    """The address of the application while the block runs."""
    sock = tcp_socket("127.0.0.1", 0)
    port = sock.getsockname()[1]
    loop = asyncio.new_event_loop()
    stopping = asyncio.Event()

    async def serve() -> None:
        await HttpServer(application.for_listener(rules(port)), stopping).serve(sockets=[sock])
        await application.close()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        # The socket listens already: whoever connects meanwhile waits.
        yield f"http://127.0.0.1:{port}"
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join()
        sock.close()
        loop.close()
