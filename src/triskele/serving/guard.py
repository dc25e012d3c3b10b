"""What every request must pass before anything reads it: whom it names, where it comes from, its token, its size."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY = 1_000_000
_TOO_LARGE = f"a request may have {MAX_BODY:,} bytes"


@dataclass(frozen=True, slots=True)
class Rules:
    """The names under which we may be addressed, and the token where one is asked."""

    hosts: frozenset[str]
    token: str | None = None

    @classmethod
    def local(cls, token: str | None = None, port: int | None = None) -> Rules:
        """The rules of a listener that only this machine reaches."""
        names = frozenset({"localhost", "127.0.0.1", "[::1]"})
        return cls(names if port is None else names | {f"{name}:{port}" for name in names}, token)


class Guard:
    """Lets only requests through that keep the rules; `noticed` learns of every one that does."""

    def __init__(self, app: ASGIApp, rules: Rules, noticed: Callable[[], None]) -> None:
        self._app = app
        self._rules = rules
        self._noticed = noticed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            return
        refusal = self._refusal(Request(scope))
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        self._noticed()
        try:
            await self._app(scope, _bounded(receive), send)
        except HTTPException as error:
            await refused(error.status_code, error.detail)(scope, receive, send)
        finally:
            self._noticed()

    def _refusal(self, request: Request) -> Response | None:
        if request.headers.getlist("host") not in ([host] for host in self._rules.hosts):
            return refused(421, "this server answers to localhost alone")
        origins = (f"http://{host}" for host in self._rules.hosts)
        if not set(request.headers.getlist("origin")) <= set(origins):
            return refused(403, "requests of other sites' pages are not answered")
        if self._rules.token is not None and not _holds(request.headers.getlist("authorization"), self._rules.token):
            return refused(401, "give the token as Authorization: Bearer …", {"WWW-Authenticate": "Bearer"})
        length = request.headers.get("content-length", "0")
        if length.isdigit() and int(length) > MAX_BODY:
            return refused(413, _TOO_LARGE)
        return None


def refused(status: int, why: str, headers: dict[str, str] | None = None) -> Response:
    """An answer that says in one line why there is none."""
    return JSONResponse({"error": why}, status, headers)


def _holds(given: Iterable[str], token: str) -> bool:
    wanted = f"Bearer {token}".encode()
    return [hmac.compare_digest(text.encode("utf-8", "replace"), wanted) for text in given] == [True]


def _bounded(receive: Receive) -> Receive:
    taken = 0

    async def next_message() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > MAX_BODY:
            raise HTTPException(413, _TOO_LARGE)
        return message

    return next_message
