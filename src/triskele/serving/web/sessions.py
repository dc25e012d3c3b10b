"""Browser sessions: a code that works once buys a cookie, and the cookie opens the pages until it expires."""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable
from importlib import resources

from starlette.requests import Request
from starlette.responses import Response

PREFIX = "/ui"
CODE_S = 600.0
SESSION_S = 12 * 3600.0
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


class Sessions:
    """Codes and sessions of one process; they end with it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._mutex = threading.Lock()
        self._codes: dict[str, float] = {}
        self._open: dict[str, float] = {}

    def code(self) -> str:
        """A code for the fragment of the address; it works once and not for long."""
        return self._new(self._codes, CODE_S)

    def exchange(self, request: Request, code: str) -> Response:
        """A session cookie for a code; 401 for an unknown one."""
        if not self._take(code):
            return self._signed_out()
        response = Response(status_code=204, headers=HEADERS)
        value = self._new(self._open, SESSION_S)
        response.set_cookie(
            _cookie(request), value, max_age=int(SESSION_S), path=PREFIX, httponly=True, samesite="strict"
        )
        return response

    def end(self, request: Request) -> Response:
        """Close the session of a request."""
        with self._mutex:
            self._open.pop(_digest(request.cookies.get(_cookie(request), "")), None)
        response = Response(status_code=204, headers={**HEADERS, "HX-Redirect": PREFIX})
        response.delete_cookie(_cookie(request), path=PREFIX, httponly=True, samesite="strict")
        return response

    def refusal(self, request: Request) -> Response | None:
        """Why a request to the pages is refused; None where it may pass."""
        path = request.scope["path"]
        if request.method not in ("GET", "HEAD") and not _is_own(request):
            return Response("This request does not come from a page of triskele.", 403, HEADERS)
        if path.startswith(_STATIC) or path == _EXCHANGE or self._is_open(request):
            return None
        return self._signed_out()

    def _is_open(self, request: Request) -> bool:
        given = request.cookies.get(_cookie(request), "")
        with self._mutex:
            self._drop_expired(self._open)
            return _digest(given) in self._open

    def _take(self, code: str) -> bool:
        with self._mutex:
            self._drop_expired(self._codes)
            return self._codes.pop(_digest(code), None) is not None

    def _new(self, kept: dict[str, float], seconds: float) -> str:
        value = secrets.token_urlsafe(32)
        with self._mutex:
            self._drop_expired(kept)
            while len(kept) >= _MAX_KEPT:
                del kept[next(iter(kept))]
            kept[_digest(value)] = self._clock() + seconds
        return value

    def _drop_expired(self, kept: dict[str, float]) -> None:
        for value in [each for each, ends in kept.items() if ends <= self._clock()]:
            del kept[value]

    @staticmethod
    def _signed_out() -> Response:
        text = resources.files(__package__).joinpath("static", "signed-out.html").read_text(encoding="utf-8")
        # A page that is open asks for parts of itself: let it load as a whole, which shows why.
        return Response(text, 401, {**HEADERS, "HX-Refresh": "true"}, "text/html")


def _is_own(request: Request) -> bool:
    """Whether a page of ours sent a request that may change something; the guard has checked the origin itself."""
    return len(request.headers.getlist("origin")) == 1 and request.headers.get(_OWN_REQUEST) == "true"


def _digest(value: str) -> str:
    # What is looked up is a hash: how long that takes tells nothing of the value.
    return hashlib.sha256(value.encode("utf-8", "replace")).hexdigest()


def _cookie(request: Request) -> str:
    # Cookies know no ports: two processes on one machine must not overwrite each other's.
    return f"triskele_{request.url.port or 80}"
