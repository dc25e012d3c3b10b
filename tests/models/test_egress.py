"""Nothing leaves but cleared text, to the endpoints of the settings, and everything that left is accounted for."""

from __future__ import annotations

import ast
import logging
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import loopback
import pytest
from loopback import Book

from triskele.errors import BadInput, Unavailable
from triskele.models.egress import REST_S, Departure, EgressClient, Endpoint, EndpointUnavailable, Joined, NotCleared
from triskele.privacy.clearance import ClearedText, clear_memory
from triskele.text import timestamps
from triskele.types import Memory

SOURCE = Path(__file__).parents[2] / "src" / "triskele"
WORDS = frozenset({"/echo", "model", "tiny", "input", "query: ", "size", "float"})
TEXT = "the heron nests by the mill"


class Time:
    """A clock that advances only by the pauses, which take no real time."""

    def __init__(self) -> None:
        self.now = 100.0
        self.pauses: list[float] = []

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def echo(path: str, body: dict[str, Any]) -> loopback.Answer:
    return 200, {"said": body["input"], "usage": {"total_tokens": 7}}


def used(answer: Any) -> object:
    return answer["usage"]["total_tokens"]


@pytest.fixture
def server() -> Iterator[loopback.Loopback]:
    with loopback.serving(echo) as state:
        yield state


@pytest.fixture
def book() -> Book:
    return Book()


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def open_door(server: loopback.Loopback, book: Book, time: Time) -> Iterator[Callable[..., EgressClient]]:
    clients: list[EgressClient] = []

    def open_one(**details: Any) -> EgressClient:
        values = {"url": server.url, "words": WORDS, "key": loopback.KEY} | details
        clients.append(EgressClient({"here": Endpoint(**values)}, book, pause=time.pause, clock=lambda: time.now))
        return clients[-1]

    yield open_one
    for door in clients:
        door.close()


@pytest.fixture
def cleared(make_memory: Callable[..., Memory]) -> ClearedText:
    clearance = clear_memory(make_memory(TEXT))
    assert clearance is not None
    return clearance


def ask(door: EgressClient, *texts: object, path: str = "/echo", **fields: object) -> Any:
    return door.post("here", path, {"model": "tiny", "input": list(texts), **fields}, used)


def test_cleared_text_passes_and_is_accounted_for(
    open_door: Callable[..., EgressClient], server: loopback.Loopback, book: Book, cleared: ClearedText
) -> None:
    answer = ask(open_door(price_per_million=2.0), cleared, Joined(("query: ", cleared)), size=3)
    assert answer["said"] == [TEXT, f"query: {TEXT}"]
    assert server.seen[0].body == {"model": "tiny", "input": [TEXT, f"query: {TEXT}"], "size": 3}
    assert server.seen[0].headers["Authorization"] == f"Bearer {loopback.KEY}"
    (departure,), (bill,) = book.departures, book.bills
    assert (departure.endpoint, departure.host, departure.attempt) == ("here", "127.0.0.1", 1)
    assert (departure.texts, departure.characters) == (2, 2 * len(TEXT))
    assert (bill.tokens, bill.cost) == (7, pytest.approx(14e-6))
    assert TEXT not in repr((departure, bill))


class Sly(str):
    """A text that claims to be any word."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash("tiny")


class Lookalike:
    text = TEXT


@pytest.mark.parametrize(
    "value",
    [
        TEXT,
        Sly(TEXT),
        Lookalike(),
        TEXT.encode(),
        0.25,
        [0.1, 0.2],
        Joined((TEXT,)),
        Joined(("query: ", TEXT)),
        {"model": TEXT},
        {TEXT: "tiny"},
        {"input": [TEXT]},
        {"input": {"input": {"model": TEXT}}},
        {"input": [3, 1, 4]},
        {"size": Sly("x")},
        bytearray(b"x"),
        None,
        object(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_nothing_else_passes(
    open_door: Callable[..., EgressClient], server: loopback.Loopback, book: Book, cleared: ClearedText, value: Any
) -> None:
    with pytest.raises(NotCleared) as caught:
        ask(open_door(), cleared, value)
    assert TEXT not in str(caught.value)
    assert server.seen == [] and book.departures == []


@pytest.mark.parametrize("path", ["/other", f"/echo/{TEXT}", "/echo?q=1", "//elsewhere/echo", "@elsewhere/echo"])
def test_paths_are_words_too(open_door: Callable[..., EgressClient], server: loopback.Loopback, path: str) -> None:
    with pytest.raises(NotCleared):
        ask(open_door(), path=path)
    assert server.seen == []


def test_only_endpoints_of_the_settings_are_spoken_to(
    open_door: Callable[..., EgressClient], cleared: ClearedText
) -> None:
    for name in ("there", "http://127.0.0.1:9", ""):
        with pytest.raises(BadInput, match="requests go only to the endpoints in your settings"):
            open_door().post(name, "/echo", {"input": [cleared]}, used)
    assert EgressClient({}, Book()).close() is None


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/v1",
        "http://127.0.0.1.example.com/v1",
        "http://10.0.0.1/v1",
        "http://0.0.0.0/v1",
        "ftp://example.com",
        "file:///etc/passwd",
        "example.com",
        "https://",
        "",
        "https://user:hunter2@example.com",
        "https://hunter2@example.com",
        "https://example.com/v1?key=hunter2",
        "https://example.com/#hunter2",
        "https://example.com:notaport",
        "http://[::1",
    ],
)
def test_addresses_that_would_show_something_are_refused(url: str) -> None:
    with pytest.raises(BadInput) as caught:
        Endpoint(url=url, words=WORDS)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["https://api.example.com/v1", "http://localhost:11434/v1", "http://127.0.0.1:8080", "http://[::1]:8080/v1"]
)
def test_addresses_that_are_safe_are_taken(url: str) -> None:
    assert Endpoint(url=url, words=WORDS).is_loopback is not url.startswith("https")


@pytest.mark.parametrize("key", ["two words", "line\nbreak", "kéy", "\x00"])
def test_a_key_that_no_header_can_hold_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(BadInput, match="copy it again") as caught:
        Endpoint(url="https://example.com", words=WORDS, key=key)
    assert key not in str(caught.value)


def test_retry_after_is_honoured(
    open_door: Callable[..., EgressClient], server: loopback.Loopback, book: Book, time: Time, cleared: ClearedText
) -> None:
    server.turns.extend([loopback.refuse(429, Retry_After="2"), loopback.refuse(503)])
    assert ask(open_door(), cleared)["said"] == [TEXT]
    assert time.pauses[0] == 2.0 and 0.5 <= time.pauses[1] <= 1.0
    assert [departure.attempt for departure in book.departures] == [1, 2, 3]
    assert len(book.bills) == 1


def test_retry_after_may_be_a_date(
    open_door: Callable[..., EgressClient], server: loopback.Loopback, time: Time, cleared: ClearedText
) -> None:
    soon = format_datetime(timestamps.now() + timedelta(seconds=5), usegmt=True)
    server.turns.extend([loopback.refuse(429, Retry_After=soon), loopback.refuse(429, Retry_After="nan")])
    ask(open_door(), cleared)
    assert 2 <= time.pauses[0] <= 5 and 0.5 <= time.pauses[1] <= 1.0


def test_a_wait_beyond_the_time_allowed_is_not_waited_for(
    open_door: Callable[..., EgressClient], server: loopback.Loopback, time: Time, cleared: ClearedText
) -> None:
    server.turns.append(loopback.refuse(429, Retry_After="3600"))
    with pytest.raises(EndpointUnavailable, match=r"quota is used up \(status 429, server_says_no\)"):
        ask(open_door(), cleared)
    assert time.pauses == [] and len(server.seen) == 1


def test_post_retries_a_short_failure_and_reports_a_lasting_one(
    open_door: Callable[..., EgressClient], server: loopback.Loopback, cleared: ClearedText
) -> None:
    server.turns.append(loopback.refuse(500))
    assert ask(open_door(), cleared)["said"] == [TEXT]
    server.turns.extend([loopback.refuse(500)] * 9)
    with pytest.raises(EndpointUnavailable, match="reports an internal error"):
        ask(open_door(), cleared)
    assert len(server.seen) == 2 + 3


def test_post_after_a_failure_does_not_wait_again(
    open_door: Callable[..., EgressClient], server: loopback.Loopback, time: Time, cleared: ClearedText
) -> None:
    door = open_door(attempts=1)
    server.turns.append(loopback.refuse(500))
    for expected in ("reports an internal error", "failed recently"):
        with pytest.raises(EndpointUnavailable, match=expected):
            ask(door, cleared)
    assert len(server.seen) == 1
    time.now += REST_S
    assert ask(door, cleared)["said"] == [TEXT]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(
    open_door: Callable[..., EgressClient], server: loopback.Loopback, cleared: ClearedText, status: int
) -> None:
    with loopback.serving(echo) as elsewhere:
        server.turns.append(loopback.refuse(status, Location=f"{elsewhere.url}/echo"))
        with pytest.raises(EndpointUnavailable, match="redirect"):
            ask(open_door(), cleared)
        assert elsewhere.seen == [] and len(server.seen) == 1


@pytest.mark.parametrize(
    ("status", "advice"), [(400, "refused the request"), (404, "does not know the model"), (403, "your key")]
)
def test_a_refusal_is_not_repeated(
    open_door: Callable[..., EgressClient], server: loopback.Loopback, cleared: ClearedText, status: int, advice: str
) -> None:
    server.turns.append(loopback.refuse(status))
    with pytest.raises(EndpointUnavailable, match=advice):
        ask(open_door(), cleared)
    assert len(server.seen) == 1


@pytest.mark.parametrize("turn", [loopback.hang, loopback.trickle, loopback.trickle_headers])
def test_a_server_that_hangs_or_trickles_is_left(
    server: loopback.Loopback, book: Book, cleared: ClearedText, turn: loopback.Turn
) -> None:
    door = EgressClient({"here": Endpoint(url=server.url, words=WORDS, timeout_s=0.3)}, book)
    server.turns.append(turn)
    with pytest.raises(EndpointUnavailable, match=r"did not answer within 0\.3 s"):
        ask(door, cleared)
    assert len(book.departures) == 1
    for thread in threading.enumerate():
        if thread.name == "triskele-deadline":
            thread.join(10)
            assert not thread.is_alive(), "what was left behind ends by itself"
    door.close()


def test_post_to_a_closed_port_fails(book: Book, cleared: ClearedText, time: Time) -> None:
    with loopback.serving(echo) as gone:
        pass
    door = EgressClient({"here": Endpoint(url=gone.url, words=WORDS)}, book, pause=time.pause)
    with pytest.raises(Unavailable, match=r"here \(127\.0\.0\.1\) cannot be reached"):
        ask(door, cleared)
    assert len(book.departures) == 3
    door.close()


def test_half_an_answer_is_none(
    open_door: Callable[..., EgressClient], server: loopback.Loopback, cleared: ClearedText
) -> None:
    server.turns.append(loopback.half)
    assert ask(open_door(), cleared)["said"] == [TEXT]
    server.turns.extend([loopback.half] * 3)
    with pytest.raises(EndpointUnavailable, match="closed the connection early"):
        ask(open_door(), cleared)


@pytest.mark.parametrize("answer", [b"", b"<html>", b"[" * 100_000, b"\xff\xfe"])
def test_answer_that_is_not_json_is_reported(
    open_door: Callable[..., EgressClient], server: loopback.Loopback, cleared: ClearedText, answer: bytes
) -> None:
    server.turns.append(loopback.say(answer))
    with pytest.raises(EndpointUnavailable, match="not JSON"):
        ask(open_door(), cleared)


def test_the_size_of_an_answer_is_bounded(
    open_door: Callable[..., EgressClient], server: loopback.Loopback, cleared: ClearedText
) -> None:
    server.turns.append(loopback.say(b'"' + b"x" * 2000 + b'"'))
    with pytest.raises(EndpointUnavailable, match="more than 1,000 bytes"):
        ask(open_door(max_bytes=1000), cleared)
    assert len(server.seen) == 1


@pytest.mark.parametrize("usage", [{}, {"usage": None}, {"usage": {"total_tokens": "7"}}, {"usage": []}, [], "x"])
def test_an_answer_without_a_bill_is_an_answer(
    open_door: Callable[..., EgressClient], server: loopback.Loopback, book: Book, cleared: ClearedText, usage: Any
) -> None:
    server.turns.append(loopback.say(usage))
    assert ask(open_door(), cleared) == usage
    assert book.bills == []


def test_text_that_cannot_be_recorded_is_not_sent(server: loopback.Loopback, cleared: ClearedText) -> None:
    class Torn(Book):
        def leaving(self, departure: Departure) -> None:
            raise Unavailable("the ledger cannot be written")

    door = EgressClient({"here": Endpoint(url=server.url, words=WORDS)}, Torn())
    with pytest.raises(Unavailable, match="ledger"):
        ask(door, cleared)
    assert server.seen == []


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


TURNS = [
    loopback.refuse(400), loopback.refuse(401), loopback.refuse(429), loopback.refuse(307, Location="/x"),
    loopback.half, loopback.say(b"no"),
]  # fmt: skip


@pytest.mark.parametrize("turn", TURNS)
def test_neither_key_nor_text_is_shown_anywhere(
    open_door: Callable[..., EgressClient],
    server: loopback.Loopback,
    cleared: ClearedText,
    caplog: pytest.LogCaptureFixture,
    turn: loopback.Turn,
) -> None:
    caplog.set_level(logging.DEBUG)
    door = open_door(attempts=1)
    server.turns.append(turn)
    with pytest.raises(EndpointUnavailable) as caught:
        ask(door, cleared)
    chain = list(_causes(caught.value))
    shown = "".join(traceback.format_exception(caught.value)) + caplog.text + repr(chain) + repr(vars(door))
    shown += "".join(seen.path for seen in server.seen)
    assert loopback.KEY not in shown and TEXT not in shown
    assert not [error for error in chain if hasattr(error, "request")], "errors of the client hold the key"


def test_a_good_answer_leaves_neither_in_the_log(
    open_door: Callable[..., EgressClient], cleared: ClearedText, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    ask(open_door(), cleared)
    assert caplog.records, "the client does log"
    assert loopback.KEY not in caplog.text and TEXT not in caplog.text


def test_the_environment_leads_nowhere(
    open_door: Callable[..., EgressClient],
    server: loopback.Loopback,
    cleared: ClearedText,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with loopback.serving(echo) as proxy:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
            monkeypatch.setenv(name.lower(), proxy.url)
        monkeypatch.delenv("NO_PROXY", raising=False)
        assert ask(open_door(), cleared)["said"] == [TEXT]
        assert proxy.seen == []


def test_lone_surrogates_do_not_stop_a_text(
    open_door: Callable[..., EgressClient], make_memory: Callable[..., Memory]
) -> None:
    memory = make_memory("x")
    object.__setattr__(memory, "content", "a\ud800b")
    assert ask(open_door(), clear_memory(memory))["said"] == ["a\ufffdb"]


# Modules that open connections: only the egress client may import them, and the hub's libraries for a download.
CLIENTS = {
    "httpx", "httpx2", "httpcore", "requests", "urllib3", "aiohttp", "pycurl", "websockets", "websocket", "socket",
    "ssl", "ftplib", "smtplib", "poplib", "imaplib", "telnetlib", "nntplib", "xmlrpc", "http.client", "urllib.request",
    "openai", "voyageai", "cohere", "anthropic", "litellm", "_socket", "mcp.client",
}  # fmt: skip
HUB = {"huggingface_hub", "sentence_transformers", "transformers", "torch"}
HUB_ROOMS = {"models/hub.py"}
# The user's own server, named by the caller of `triskele.connect` or by the settings.
SERVER_ROOMS = {"edge/http/connections.py"}
# Whoever meets other processes of this machine: sockets on the disk, or ports of loopback where there are none. None
# of them may know a client of HTTP, and an address that is not loopback's is refused in `listener.http_address`.
LOCAL = {"socket", "_socket"}
LOCAL_ROOMS = {"edge/hook/client.py", "edge/process/listener.py", "edge/mcp/bridge.py"}


def _named(tree: ast.AST) -> Iterator[str]:
    """Every module that is imported, by statement or by a call with its name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__"):
                yield from (a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str))


def _reaches(module: str, clients: set[str]) -> bool:
    parts = module.split(".")
    return any(".".join(parts[:size]) in clients for size in range(1, len(parts) + 1))


def _offences(path: Path, text: str) -> list[str]:
    name = path.as_posix()
    rooms = {"models/egress.py": CLIENTS} | dict.fromkeys(HUB_ROOMS, HUB) | dict.fromkeys(LOCAL_ROOMS, LOCAL)
    rooms |= {room: {"httpx"} for room in SERVER_ROOMS}
    allowed = rooms.get(name, set())
    return [module for module in _named(ast.parse(text)) if _reaches(module, (CLIENTS | HUB) - allowed)]


def test_only_the_egress_client_opens_connections() -> None:
    offences = {path: _offences(path.relative_to(SOURCE), path.read_text()) for path in SOURCE.rglob("*.py")}
    assert offences
    assert {str(path): modules for path, modules in offences.items() if modules} == {}


@pytest.mark.parametrize(
    "line",
    [
        "import httpx", "import urllib.request", "from urllib import request",
        "from http.client import HTTPSConnection",
        "import http.client as c", "import socket", "def f():\n    import requests", "from httpx._client import Client",
        "importlib.import_module('httpx')", "__import__('socket')", "import sentence_transformers",
    ],
)  # fmt: skip
def test_the_watch_over_imports_sees(line: str) -> None:
    assert _offences(Path("recall.py"), line)
    assert not _offences(Path("recall.py"), "from urllib.parse import quote\nimport http\n")


@pytest.mark.parametrize("room", sorted(LOCAL_ROOMS))
def test_rooms_that_meet_other_processes_of_this_machine_know_no_client(room: str) -> None:
    assert (SOURCE / room).exists()
    assert not _offences(Path(room), "import socket, _socket")
    for client in sorted((CLIENTS | HUB) - LOCAL):
        assert _offences(Path(room), f"import {client}"), client


@pytest.mark.slow
def test_the_door_costs_nothing_until_it_is_used() -> None:
    code = "import sys, triskele.models.egress; print('httpx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
