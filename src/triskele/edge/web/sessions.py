"""Browser sessions: a code or key buys a cookie that expires; a server keeps them for all instances."""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from triskele.edge.http.access import OWNER, Access, Principal

if TYPE_CHECKING:
    from triskele.server.tenants import Tenants

PREFIX = "/ui"
CODE_S = 600.0
SESSION_S = 12 * 3600.0
# The key under which the guard passes the sessions of a listener to the sign-in page.
SESSIONS = "triskele.sessions"
_SIGN_IN = "sign_in"
_MAX_KEPT = 64
_STATIC = f"{PREFIX}/static/"
_EXCHANGE = f"{PREFIX}/session"
# htmx sends it with every request; a page of another origin cannot, unless we allowed it to.
_OWN_REQUEST = "hx-request"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def is_page(path: str) -> bool:
    """Whether a path belongs to the pages."""
    return path == PREFIX or path.startswith(f"{PREFIX}/")


class OpenedSession(NamedTuple):
    """A new session: its cookie and how long it lasts."""

    value: str
    lasts_s: float


class Sessions:
    """Admits requests of pages by a session cookie; the sessions of a personal machine end with the process."""

    signed_out_page = "signed-out.html"

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._mutex = threading.Lock()
        self._codes: dict[str, float] = {}
        self._sessions: dict[str, float] = {}

    def code(self) -> str:
        """A short-lived code for one sign-in."""
        return self._new(self._codes, CODE_S)

    async def admitted(self, request: Request) -> tuple[Response | None, Principal | None]:
        """Return a refusal or the sender; some files need no session."""
        path = request.scope["path"]
        is_own = len(request.headers.getlist("origin")) == 1 and request.headers.get(_OWN_REQUEST) == "true"
        if request.method not in ("GET", "HEAD") and not is_own:
            return Response("This request does not come from a page of triskele.", 403, HEADERS), None
        if path.startswith(_STATIC) or path == _EXCHANGE:
            return None, None
        principal = await self.principal(request)
        return (self._signed_out(), None) if principal is None else (None, principal)

    async def principal(self, request: Request) -> Principal | None:
        """The user whose session a request names."""
        return await to_thread.run_sync(self._principal, request.cookies.get(_cookie(request), ""))

    async def exchange(self, request: Request, proof: str) -> Response:
        """Exchange a valid code or key for a session cookie."""
        address = request.client.host if request.client else ""
        session = await to_thread.run_sync(self._open, proof, address)
        if session is None:
            return self._signed_out()
        response = Response(status_code=204, headers=HEADERS)
        # The origin that the browser names was checked: it shows whether TLS is used, behind a proxy too.
        is_secure = request.headers.get("origin", "").startswith("https://")
        response.set_cookie(
            _cookie(request),
            session.value,
            max_age=int(session.lasts_s),
            httponly=True,
            samesite="strict",
            secure=is_secure,
        )
        return response

    async def end(self, request: Request) -> Response:
        """Close the session of a request."""
        await to_thread.run_sync(self._close, request.cookies.get(_cookie(request), ""))
        response = Response(status_code=204, headers={**HEADERS, "HX-Redirect": PREFIX})
        response.delete_cookie(_cookie(request), httponly=True, samesite="strict")
        return response

    def _open(self, proof: str, address: str) -> OpenedSession | None:
        """A session for a valid proof, which is a code here."""
        del address
        with self._mutex:
            self._drop_expired(self._codes)
            if self._codes.pop(_digest(proof), None) is None:
                return None
        return OpenedSession(self._new(self._sessions, SESSION_S), SESSION_S)

    def _principal(self, value: str) -> Principal | None:
        """The user of an open session; else None."""
        with self._mutex:
            self._drop_expired(self._sessions)
            return OWNER if _digest(value) in self._sessions else None

    def _close(self, value: str) -> None:
        with self._mutex:
            self._sessions.pop(_digest(value), None)

    def _signed_out(self) -> Response:
        text = resources.files(__package__).joinpath("static", self.signed_out_page).read_text(encoding="utf-8")
        # An open page requests parts of itself: make it reload as a whole, which shows the reason.
        return Response(text, 401, {**HEADERS, "HX-Refresh": "true"}, "text/html")

    def _new(self, values: dict[str, float], seconds: float) -> str:
        value = secrets.token_urlsafe(32)
        with self._mutex:
            self._drop_expired(values)
            while len(values) >= _MAX_KEPT:
                del values[next(iter(values))]
            values[_digest(value)] = self._clock() + seconds
        return value

    def _drop_expired(self, values: dict[str, float]) -> None:
        for value in [each for each, ends in values.items() if ends <= self._clock()]:
            del values[value]


class KeySessions(Sessions):
    """Sessions of users; one ends when its key expires or is revoked, and every instance of a server knows it."""

    signed_out_page = "sign-in.html"

    def __init__(self, tenants: Tenants) -> None:
        super().__init__()
        self._tenants = tenants

    def _open(self, proof: str, address: str) -> OpenedSession | None:
        session = self._tenants.sign_in(proof.strip(), SESSION_S)
        if session is None:
            return None
        value, lasts_s, principal = session
        self._tenants.audit(Access(principal, _SIGN_IN, "", 204, address))
        return OpenedSession(value, lasts_s)

    def _principal(self, value: str) -> Principal | None:
        return self._tenants.session(value) if value else None

    def _close(self, value: str) -> None:
        self._tenants.sign_out(value)


def _digest(value: str) -> str:
    # The lookup is by hash, so its time reveals nothing about the value.
    return hashlib.sha256(value.encode("utf-8", "replace")).hexdigest()


def _cookie(request: Request) -> str:
    # Cookies ignore ports: two processes on one machine must not overwrite each other's.
    return f"triskele_{request.url.port or 80}"
