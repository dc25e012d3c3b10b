"""The one door to other machines: the only module that speaks HTTP.

What passes is denied unless it is allowed: endpoints come from the user's settings alone, and every string of a
request is either cleared text or one of the words that the endpoint was set up with.
"""

from __future__ import annotations

import json
import random
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import SplitResult, urlsplit

from triskele.base import timestamps
from triskele.base.deadlines import within
from triskele.errors import BadInput, TriskeleError, Unavailable
from triskele.privacy.clearance import Cleared

if TYPE_CHECKING:
    import httpx

# Too many requests, a hiccup of the server, or more asked of it than it can do now.
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
_REASONS = {
    401: "refuses the key: check it in your settings",
    402: "asks for payment: check the account",
    403: "does not allow this to the key: check it in your settings",
    404: "knows no such model or address: check both in your settings",
    413: "finds the request too large",
}
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 4.0
# After a failure the next questions need not wait for the same failure again.
REST_S = 30.0
_LONGEST_REST_S = 300.0
_KEY = re.compile(r"[\x21-\x7e]*")
_CODE = re.compile(r"[a-z][a-z_]{2,39}")
_SURROGATES = re.compile("[\ud800-\udfff]")


class EndpointUnavailable(Unavailable):
    """An endpoint cannot be reached, refuses, or gives no usable answer."""


class NotCleared(TriskeleError, TypeError):
    """A request held something that is neither cleared text nor a word of its endpoint; nothing was sent."""


@dataclass(frozen=True, slots=True)
class Joined:
    """One string made of cleared text and of the endpoint's own words, such as a prompt before a question."""

    parts: tuple[str | Cleared, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where requests may go, and what they may say besides cleared text."""

    url: str
    words: frozenset[str]
    """every path, field name, setting and prompt that a request may hold"""
    key: str = field(default="", repr=False)
    key_header: str = "Authorization"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: float = 10.0
    attempts: int = 3
    max_bytes: int = 32_000_000
    price_per_million: float | None = None
    """what a million tokens cost, where the user wants costs counted"""

    def __post_init__(self) -> None:
        """Refuse addresses that would show texts or keys on the way."""
        parts = _split(self.url)
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise BadInput(f"the address of {self.host} must hold no key, ? or #: keys have a setting of their own")
        if parts.scheme != "https" and not (parts.scheme == "http" and self.is_loopback):
            raise BadInput(f"the address of {self.host} must begin with https:// (http:// is for this machine only)")
        if not _KEY.fullmatch(self.key):
            raise BadInput(f"the key for {self.host} holds a space or a character that no key has: copy it anew")

    @property
    def host(self) -> str:
        """The name of the machine that is spoken to."""
        return _split(self.url).hostname or ""

    @property
    def is_loopback(self) -> bool:
        """Whether the address is on this machine."""
        try:
            return self.host == "localhost" or ip_address(self.host).is_loopback
        except ValueError:
            return False


@dataclass(frozen=True, slots=True)
class Departure:
    """Something that is about to leave: to whom, when and how much, never what."""

    endpoint: str
    host: str
    at: datetime
    attempt: int
    texts: int
    characters: int
    memories: frozenset[str] = frozenset()
    """the ids of the memories whose texts are among them"""


@dataclass(frozen=True, slots=True)
class Bill:
    """What an answer said about its price."""

    endpoint: str
    at: datetime
    tokens: int
    cost: float | None
    host: str


class Ledger(Protocol):
    """Who keeps account of what left; told before it leaves, so that nothing leaves unrecorded."""

    def leaving(self, departure: Departure) -> None:
        """Texts are about to be sent; what this raises keeps them here."""

    def billed(self, bill: Bill) -> None:
        """An answer told how many tokens it took."""


@dataclass(frozen=True, slots=True)
class _Trouble:
    """Why there is no answer, whether another try may help, and how long the server asks to wait."""

    reason: str
    is_passing: bool = False
    wait_s: float | None = None


@dataclass(frozen=True, slots=True)
class _Request:
    name: str
    endpoint: Endpoint
    path: str
    content: bytes
    texts: int
    characters: int
    memories: frozenset[str]


class EgressClient:
    """Sends cleared text to the endpoints of the user's settings, and to nobody else."""

    def __init__(
        self,
        endpoints: Mapping[str, Endpoint],
        ledger: Ledger,
        *,
        pause: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._endpoints = dict(endpoints)
        self._ledger = ledger
        self._pause = pause
        self._clock = clock
        self._resting: dict[str, float] = {}
        self._mutex = threading.Lock()
        self._made: httpx.Client | None = None

    @property
    def hosts(self) -> dict[str, str]:
        """The machines behind the door, by the names of their endpoints."""
        return {name: endpoint.host for name, endpoint in self._endpoints.items()}

    def post(self, name: str, path: str, body: Mapping[str, Any], tokens: Callable[[Any], object]) -> Any:
        """The JSON answer of an endpoint; `tokens` reads from it how many were counted."""
        if name not in self._endpoints:
            raise BadInput(f"no endpoint is called {name!r}: only those in your settings are ever spoken to")
        endpoint = self._endpoints[name]
        request = _request(name, endpoint, path, body)
        self._refuse_while_resting(request)
        answer = _parsed(request, self._answer(request))
        counted = _told(tokens, answer)
        if counted is not None:
            price = endpoint.price_per_million
            cost = None if price is None else counted * price / 1e6
            self._ledger.billed(Bill(name, timestamps.now(), counted, cost, endpoint.host))
        return answer

    def close(self) -> None:
        """Hang up."""
        with self._mutex:
            if self._made is not None:
                self._made.close()
            self._made = None

    def _answer(self, request: _Request) -> bytes:
        """Try until there is an answer, trying cannot help, or the time is up."""
        endpoint = request.endpoint
        ends = self._clock() + endpoint.timeout_s
        trouble = _Trouble("is never asked: its attempts are set to 0")
        for attempt in range(1, endpoint.attempts + 1):
            self._ledger.leaving(_departure(request, attempt))
            found = self._tried(request, ends - self._clock())
            if isinstance(found, bytes):
                return found
            trouble = found
            wait_s = _backoff(attempt) if trouble.wait_s is None else trouble.wait_s
            if not trouble.is_passing or attempt == endpoint.attempts or wait_s >= ends - self._clock():
                break
            self._pause(wait_s)
        if trouble.is_passing:
            rest_s = min(max(REST_S, trouble.wait_s or 0.0), _LONGEST_REST_S)
            self._resting[request.name] = self._clock() + rest_s
        raise EndpointUnavailable(f"{request.name} ({endpoint.host}) {trouble.reason}")

    def _refuse_while_resting(self, request: _Request) -> None:
        left_s = self._resting.get(request.name, 0.0) - self._clock()
        if left_s > 0:
            raise EndpointUnavailable(
                f"{request.name} ({request.endpoint.host}) failed a moment ago and is asked again in {left_s:.0f} s"
            )

    def _tried(self, request: _Request, left_s: float) -> bytes | _Trouble:
        """One try. Errors of the client hold the request with its key: none of them leaves this method."""
        try:
            return within(left_s, lambda: _exchange(self._client(), request, left_s, self._clock))
        except Exception as error:
            return _Trouble(_failure(error, request.endpoint.timeout_s), is_passing=True)

    def _client(self) -> httpx.Client:
        with self._mutex:
            if self._made is None:
                # Imported here: most commands never speak to anyone.
                import httpx

                # Nothing of the environment: a variable set by a project's folder could lead requests elsewhere.
                self._made = httpx.Client(trust_env=False, follow_redirects=False)
            return self._made


def _departure(request: _Request, attempt: int) -> Departure:
    return Departure(
        request.name,
        request.endpoint.host,
        timestamps.now(),
        attempt,
        request.texts,
        request.characters,
        request.memories,
    )


def _exchange(client: httpx.Client, request: _Request, left_s: float, clock: Callable[[], float]) -> bytes | _Trouble:
    endpoint, ends = request.endpoint, clock() + left_s
    headers = {**endpoint.headers, "Content-Type": "application/json", "Accept-Encoding": "identity"}
    if endpoint.key:
        is_bearer = endpoint.key_header == "Authorization"
        headers[endpoint.key_header] = f"Bearer {endpoint.key}" if is_bearer else endpoint.key
    url = endpoint.url.rstrip("/") + request.path
    with client.stream("POST", url, content=request.content, headers=headers, timeout=left_s) as response:
        if response.is_redirect:
            return _Trouble("answers with a redirect, which is not followed: write the new address in your settings")
        content = bytearray()
        for chunk in response.iter_raw():
            content += chunk
            if len(content) > endpoint.max_bytes:
                return _Trouble(f"answers with more than {endpoint.max_bytes:,} bytes")
            if clock() > ends:
                raise TimeoutError
        if response.status_code in range(200, 300):
            return bytes(content)
        return _refusal(response.status_code, response.headers.get("Retry-After"), bytes(content))


def _failure(error: Exception, timeout_s: float) -> str:
    """What went wrong on the way, in words that hold nothing of the request."""
    kind = type(error).__name__
    if isinstance(error, TimeoutError) or kind.endswith("Timeout"):
        return f"did not answer within {timeout_s:g} s"
    return "cannot be reached" if kind == "ConnectError" else f"broke off before its answer was whole ({kind})"


def _refusal(status: int, retry_after: str | None, content: bytes) -> _Trouble:
    # The answer's own words may repeat the text or the key; only its code, a single word, is shown.
    said = f"status {status}{_code(content)}"
    if status in _PASSING:
        is_busy = status in (429, 529)
        what = "has too much to do, or your quota is spent" if is_busy else "has a failure of its own"
        return _Trouble(f"{what} ({said})", is_passing=True, wait_s=_seconds(retry_after))
    return _Trouble(f"{_REASONS.get(status, 'refuses the request')} ({said})")


def _code(content: bytes) -> str:
    try:
        error = json.loads(content)["error"]
        code = error.get("code") or error.get("type")
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        return ""
    return f", {code}" if isinstance(code, str) and _CODE.fullmatch(code) else ""


def _seconds(retry_after: str | None) -> float | None:
    """The header as seconds from now; it may be a number or a date."""
    if retry_after is None:
        return None
    if re.fullmatch("[0-9]+", retry_after):
        return float(retry_after)
    try:
        until: datetime = parsedate_to_datetime(retry_after)
        return max(0.0, (until - timestamps.now()).total_seconds())
    except (ValueError, TypeError):
        return None


def _backoff(attempt: int) -> float:
    """Longer with every attempt, and never for two callers alike."""
    longest = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** (attempt - 1))
    return longest * random.uniform(0.5, 1.0)


def _parsed(request: _Request, content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        pass
    raise EndpointUnavailable(f"{request.name} ({request.endpoint.host}) answers with something that is not JSON")


def _told(tokens: Callable[[Any], object], answer: Any) -> int | None:
    try:
        counted = tokens(answer)
    except (LookupError, TypeError, AttributeError):
        return None
    return counted if type(counted) is int and counted >= 0 else None


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        if parts.hostname and parts.port != 0:
            return parts
    except ValueError:
        pass
    # The address is not repeated: it may hold a key.
    raise BadInput("an endpoint's address cannot be read: write it like https://api.example.com/v1")


def _request(name: str, endpoint: Endpoint, path: str, body: Mapping[str, Any]) -> _Request:
    writer = _Writer(endpoint)
    writer.word(path)
    content = json.dumps(writer.fields(body)).encode()
    return _Request(name, endpoint, path, content, writer.texts, writer.characters, frozenset(writer.memories))


class _Writer:
    """Turns a body into plain JSON and refuses whatever could hold more than it may."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.texts = 0
        self.characters = 0
        self.memories: set[str] = set()

    def fields(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return {self.word(name): self._field(value) for name, value in body.items()}

    def word(self, text: object) -> str:
        if type(text) is not str or text not in self._endpoint.words:
            raise NotCleared(f"a request to {self._endpoint.host} held a text that was not cleared; nothing was sent")
        return text

    def _field(self, value: object) -> Any:
        if isinstance(value, list | tuple):
            # Numbers stand alone only: a list of them could be a vector, which tells its text.
            return [self._item(item) for item in value]
        return value if value is None or type(value) in (bool, int, float) else self._item(value)

    def _item(self, value: object) -> Any:
        if type(value) is dict:
            return self.fields(value)
        if type(value) is Joined:
            return "".join(self._text(part) for part in value.parts)
        return self._text(value)

    def _text(self, value: object) -> str:
        if type(value) is not Cleared:
            return self.word(value)
        text = _SURROGATES.sub("\ufffd", value.text)
        self.texts += 1
        self.characters += len(text)
        self.memories |= {value.source} - {""}
        return text
