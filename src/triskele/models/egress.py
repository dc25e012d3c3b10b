"""The egress client: the only module that sends requests to other machines.

A request is refused unless it is allowed: endpoints come from the user's settings only, and every string in a
request is either cleared text or one of the words that its endpoint was configured with.
"""

from __future__ import annotations

import json
import random
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import SplitResult, urlsplit

from triskele.errors import BadInput, ModelUnavailable, TriskeleError
from triskele.models.deadlines import within
from triskele.privacy.clearance import ClearedText
from triskele.text import timestamps

if TYPE_CHECKING:
    import httpx

# Rate limits, overload and server errors: another attempt may succeed.
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
_REASONS = {
    401: "refused the key: check it in your settings",
    402: "requires payment: check your account",
    403: "does not allow this request with your key: check it in your settings",
    404: "does not know the model or the address: check both in your settings",
    413: "refused the request because it is too large",
}
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 4.0
# After a failure an endpoint is not called for a while, so that later queries do not wait for the same failure.
REST_S = 30.0
_LONGEST_REST_S = 300.0
_KEY = re.compile(r"[\x21-\x7e]*")
_CODE = re.compile(r"[a-z][a-z_]{2,39}")
_SURROGATES = re.compile("[\ud800-\udfff]")


class EndpointUnavailable(ModelUnavailable):
    """An endpoint is unreachable, refuses the request or returns nothing usable."""


class NotCleared(TriskeleError, TypeError):
    """A request held a string that may not be sent; nothing was."""


@dataclass(frozen=True, slots=True)
class Joined:
    """A string of cleared text and words of the endpoint."""

    parts: tuple[str | ClearedText, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where requests may go, and what they may hold besides cleared text."""

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
    """the price of a million tokens, if the user wants costs counted"""

    def __post_init__(self) -> None:
        """Refuse addresses that would expose texts or keys on the network."""
        parts = _split(self.url)
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise BadInput(f"the address of {self.host} must not hold a key, ? or #: keys have their own setting")
        if parts.scheme != "https" and not (parts.scheme == "http" and self.is_loopback):
            raise BadInput(f"the address of {self.host} must begin with https:// (http:// is for this machine only)")
        if not _KEY.fullmatch(self.key):
            raise BadInput(f"the key for {self.host} holds a space or another invalid character: copy it again")

    @property
    def host(self) -> str:
        """The name of the machine that requests go to."""
        return _split(self.url).hostname or ""

    @property
    def is_loopback(self) -> bool:
        """Whether the address is on this machine."""
        try:
            return self.host == "localhost" or ip_address(self.host).is_loopback
        except ValueError:
            return False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceModel:
    """A model of a service, from the user's settings."""

    service: str
    model: str
    url: str = ""
    key: str = field(default="", repr=False)
    timeout_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Departure:
    """Texts about to be sent: host, time and size, never their content."""

    endpoint: str
    host: str
    at: datetime
    attempt: int
    texts: int
    characters: int
    memories: frozenset[str] = frozenset()
    """the ids of the memories among the texts"""


@dataclass(frozen=True, slots=True)
class Bill:
    """The tokens and the cost of one response."""

    endpoint: str
    at: datetime
    tokens: int
    cost: float | None
    host: str


class Ledger(Protocol):
    """Records what is sent, before it is sent."""

    def leaving(self, departure: Departure) -> None:
        """Record texts about to be sent; an exception prevents the request."""

    def billed(self, bill: Bill) -> None:
        """Record the tokens that a response was billed for."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why there is no response, and whether a retry may help."""

    reason: str
    is_transient: bool = False
    wait_s: float | None = None


@dataclass(frozen=True, slots=True)
class _Request:
    endpoint: Endpoint
    path: str
    content: bytes
    departure: Departure

    def unavailable(self, reason: str) -> EndpointUnavailable:
        """The error for a request without a usable response."""
        return EndpointUnavailable(f"{self.departure.endpoint} ({self.departure.host}) {reason}")


class EgressClient:
    """Sends cleared text to the endpoints of the settings only."""

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
        """Hosts that requests may go to, by endpoint."""
        return {name: endpoint.host for name, endpoint in self._endpoints.items()}

    def post(self, name: str, path: str, body: Mapping[str, Any], tokens: Callable[[Any], object]) -> Any:
        """Send a request; return the JSON response and count billed tokens."""
        if name not in self._endpoints:
            raise BadInput(f"unknown endpoint {name!r}: requests go only to the endpoints in your settings")
        endpoint = self._endpoints[name]
        request = _request(name, endpoint, path, body)
        self._refuse_while_resting(request)
        answer = _parsed(request, self._answer(request))
        counted = _counted(tokens, answer)
        if counted is not None:
            price = endpoint.price_per_million
            cost = None if price is None else counted * price / 1e6
            self._ledger.billed(Bill(name, timestamps.now(), counted, cost, endpoint.host))
        return answer

    def close(self) -> None:
        """Close the connections."""
        with self._mutex:
            if self._made is not None:
                self._made.close()
            self._made = None

    def _answer(self, request: _Request) -> bytes:
        """Retry until there is a response or retrying cannot help."""
        endpoint = request.endpoint
        ends = self._clock() + endpoint.timeout_s
        failure = _Failure("is never called: its attempts are set to 0")
        for attempt in range(1, endpoint.attempts + 1):
            self._ledger.leaving(replace(request.departure, at=timestamps.now(), attempt=attempt))
            reply = self._tried(request, ends - self._clock())
            if isinstance(reply, bytes):
                return reply
            failure = reply
            wait_s = _backoff(attempt) if failure.wait_s is None else failure.wait_s
            if not failure.is_transient or attempt == endpoint.attempts or wait_s >= ends - self._clock():
                break
            self._pause(wait_s)
        if failure.is_transient:
            rest_s = min(max(REST_S, failure.wait_s or 0.0), _LONGEST_REST_S)
            self._resting[request.departure.endpoint] = self._clock() + rest_s
        raise request.unavailable(failure.reason)

    def _refuse_while_resting(self, request: _Request) -> None:
        left_s = self._resting.get(request.departure.endpoint, 0.0) - self._clock()
        if left_s > 0:
            raise request.unavailable(f"failed recently; the next attempt is in {left_s:.0f} s")

    def _tried(self, request: _Request, left_s: float) -> bytes | _Failure:
        """One attempt; errors of the HTTP client, which hold keys, stay here."""
        try:
            return within(left_s, lambda: _exchange(self._client(), request, left_s, self._clock))
        except Exception as error:
            return _Failure(_reason(error, request.endpoint.timeout_s), is_transient=True)

    def _client(self) -> httpx.Client:
        with self._mutex:
            if self._made is None:
                # Imported here: most commands send no request.
                import httpx

                # The environment is not read: a variable set in a project's folder could redirect requests.
                self._made = httpx.Client(trust_env=False, follow_redirects=False)
            return self._made


def _exchange(client: httpx.Client, request: _Request, left_s: float, clock: Callable[[], float]) -> bytes | _Failure:
    endpoint, ends = request.endpoint, clock() + left_s
    headers = {**endpoint.headers, "Content-Type": "application/json", "Accept-Encoding": "identity"}
    if endpoint.key:
        is_bearer = endpoint.key_header == "Authorization"
        headers[endpoint.key_header] = f"Bearer {endpoint.key}" if is_bearer else endpoint.key
    url = endpoint.url.rstrip("/") + request.path
    with client.stream("POST", url, content=request.content, headers=headers, timeout=left_s) as response:
        if response.is_redirect:
            return _Failure("returned a redirect, which is not followed: write the new address in your settings")
        content = bytearray()
        for chunk in response.iter_raw():
            content += chunk
            if len(content) > endpoint.max_bytes:
                return _Failure(f"returned more than {endpoint.max_bytes:,} bytes")
            if clock() > ends:
                raise TimeoutError
        if response.status_code in range(200, 300):
            return bytes(content)
        return _refusal(response.status_code, response.headers.get("Retry-After"), bytes(content))


def _reason(error: Exception, timeout_s: float) -> str:
    """What went wrong on the network, without any part of the request."""
    kind = type(error).__name__
    if isinstance(error, TimeoutError) or kind.endswith("Timeout"):
        return f"did not answer within {timeout_s:g} s"
    return "cannot be reached" if kind == "ConnectError" else f"closed the connection early ({kind})"


def _refusal(status: int, retry_after: str | None, content: bytes) -> _Failure:
    # The message of the response may repeat the text or the key; only its code, a single word, is shown.
    shown = f"status {status}{_code(content)}"
    if status in _TRANSIENT:
        is_busy = status in (429, 529)
        what = "is overloaded, or your quota is used up" if is_busy else "reports an internal error"
        return _Failure(f"{what} ({shown})", is_transient=True, wait_s=_seconds(retry_after))
    return _Failure(f"{_REASONS.get(status, 'refused the request')} ({shown})")


def _code(content: bytes) -> str:
    try:
        error = json.loads(content)["error"]
        code = error.get("code") or error.get("type")
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        return ""
    return f", {code}" if isinstance(code, str) and _CODE.fullmatch(code) else ""


def _seconds(retry_after: str | None) -> float | None:
    """The Retry-After header, a number or a date, as seconds from now."""
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
    """A pause that grows with every attempt, with jitter."""
    longest = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** (attempt - 1))
    return longest * random.uniform(0.5, 1.0)


def _parsed(request: _Request, content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        pass
    raise request.unavailable("returned a response that is not JSON")


def _counted(tokens: Callable[[Any], object], answer: Any) -> int | None:
    try:
        counted = tokens(answer)
    except (LookupError, TypeError, AttributeError):
        return None
    return counted if type(counted) is int and counted >= 0 else None


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        if parts.hostname and parts.port != 0 and " " not in url:
            return parts
    except ValueError:
        pass
    # The address is not repeated: it may hold a key.
    raise BadInput("the address of an endpoint is not valid: write it like https://api.example.com/v1")


def _request(name: str, endpoint: Endpoint, path: str, body: Mapping[str, Any]) -> _Request:
    writer = _Writer(endpoint)
    writer.word(path)
    content = json.dumps(writer.fields(body)).encode()
    memories = frozenset(writer.memories)
    departure = Departure(name, endpoint.host, timestamps.now(), 0, writer.texts, writer.characters, memories)
    return _Request(endpoint, path, content, departure)


class _Writer:
    """Turns a body into plain JSON; refuses strings that are not allowed."""

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
            # No lists of numbers: one could be a vector, from which its text can be recovered.
            return [self._item(item) for item in value]
        return value if value is None or type(value) in (bool, int, float) else self._item(value)

    def _item(self, value: object) -> Any:
        if type(value) is dict:
            return self.fields(value)
        if type(value) is Joined:
            return "".join(self._text(part) for part in value.parts)
        return self._text(value)

    def _text(self, value: object) -> str:
        if type(value) is not ClearedText:
            return self.word(value)
        text = _SURROGATES.sub("\ufffd", value.text)
        self.texts += 1
        self.characters += len(text)
        self.memories |= {value.source} - {""}
        return text
