"""The application behind its guard: who may ask, how much, and that no request fails it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
import types
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from triskele import __version__
from triskele.edge.http.app import MAX_ABANDONED, MAX_BODY, AppContext, Application, ListenerRules
from triskele.errors import StoreNewer
from triskele.replies.rooms import HookCall
from triskele.types import Injection

TOKEN = "a-token-of-the-test"
ENGINE: Any = types.SimpleNamespace(agents=types.SimpleNamespace(respond=None))
CLIENTS = {"proof": "codex"}
KNOWN = {"Host": "localhost", "Authorization": f"Bearer {TOKEN}"}


class Home:
    """The process around the application, as far as it is asked."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.asked = 0
        self.left = 0
        self.opened: Callable[[], Any] = lambda: ENGINE

    def notice(self) -> None:
        self.asked += 1

    def leave(self) -> None:
        self.left += 1

    def house(self) -> AppContext:
        return AppContext(
            lambda: self.opened(),
            lambda: {"engine": "open"},
            self.lines.append,
            self.notice,
            CLIENTS.get,
            leave=self.leave,
        )


Respond = Callable[[HookCall], str]


@pytest.fixture
def home() -> Home:
    return Home()


@pytest.fixture
def brain(monkeypatch: pytest.MonkeyPatch) -> Callable[[Respond], None]:
    """Puts an answer in the place of the memory's own."""

    def put(respond: Respond) -> None:
        monkeypatch.setattr(ENGINE.agents, "respond", lambda call: Injection(respond(call)))

    put(lambda call: f"{call.event}: {call.prompt}")
    return put


def send(
    home: Home, method: str, path: str, *, rules: ListenerRules | None = None, headers: Any = None, **details: Any
) -> httpx.Response:
    """One request to a fresh application, with the token unless told otherwise."""

    async def request() -> httpx.Response:
        app = Application(home.house())
        transport = httpx.ASGITransport(app.for_listener(rules or ListenerRules.local(TOKEN, 8377)))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            answer = await client.request(method, path, headers=KNOWN if headers is None else headers, **details)
        await app.close()
        return answer

    return asyncio.run(request())


def test_hook_bounds_abandoned_prompts(home: Home, brain: Callable[[Respond], None]) -> None:
    gate, begun = threading.Event(), []

    def stuck(*_: Any) -> str:
        begun.append(1)
        gate.wait(30)
        return "late"

    brain(stuck)

    async def ask() -> set[int]:
        app = Application(home.house())
        transport = httpx.ASGITransport(app.for_listener(ListenerRules.local(TOKEN, 8377)))
        headers = {**KNOWN, "X-Triskele-Deadline-Ms": "20"}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            answers = [await client.post("/hook/stop", headers=headers, json={}) for _ in range(MAX_ABANDONED + 8)]
            found = {answer.status_code for answer in answers}
        gate.set()
        await app.close()
        return found

    assert asyncio.run(ask()) == {204}
    assert len(begun) == MAX_ABANDONED


def test_health_names_the_process(home: Home) -> None:
    answer = send(home, "GET", "/health")
    assert answer.status_code == 200
    assert answer.json().keys() >= {"status", "version", "pid", "engine"}
    assert answer.json()["version"] == __version__


ROUTES = [("GET", "/health"), ("POST", "/hook/stop"), ("POST", "/mcp"), ("GET", "/mcp/"), ("GET", "/nowhere")]


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize(
    "given",
    [
        {}, {"Authorization": ""}, {"Authorization": "Bearer"}, {"Authorization": "Bearer wrong"},
        {"Authorization": TOKEN}, {"Authorization": f"Basic {TOKEN}"}, {"Authorization": f"Bearer {TOKEN}x"},
        {"Cookie": f"token={TOKEN}"}, {"X-Forwarded-For": "127.0.0.1"},
    ],
)  # fmt: skip
def test_guard_refuses_requests_without_token(home: Home, method: str, path: str, given: dict[str, str]) -> None:
    answer = send(home, method, path, headers={"Host": "localhost", **given})
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert TOKEN not in answer.text and home.asked == 0
    # Whether a token was sent is said, and nothing about tokens that would fit.
    assert ("is required" in answer.text) != bool(given.get("Authorization"))
    assert ("unknown token" in answer.text) == bool(given.get("Authorization"))


def test_guard_refuses_two_tokens(home: Home) -> None:
    headers = [("Host", "localhost"), ("Authorization", "Bearer x"), ("Authorization", f"Bearer {TOKEN}")]
    assert send(home, "GET", "/health", headers=headers).status_code == 401


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "localhost:1", "0.0.0.0", "", "10.0.0.1"],
)
def test_guard_refuses_foreign_hosts(home: Home, method: str, path: str, host: str) -> None:
    assert send(home, method, path, headers={**KNOWN, "Host": host}).status_code == 421
    assert home.asked == 0


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "localhost:8377", "127.0.0.1:8377", "[::1]:8377"])
def test_guard_accepts_the_names_of_this_machine(home: Home, host: str) -> None:
    assert send(home, "GET", "/health", headers={**KNOWN, "Host": host}).status_code == 200


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "https://localhost", "http://localhost:1", "", "http://localhost@evil.example"],
)
def test_guard_refuses_foreign_origins(home: Home, method: str, path: str, origin: str) -> None:
    assert send(home, method, path, headers={**KNOWN, "Origin": origin}).status_code == 403
    assert home.asked == 0


def test_guard_accepts_own_origins(home: Home) -> None:
    assert send(home, "GET", "/health", headers={**KNOWN, "Origin": "http://localhost:8377"}).status_code == 200


def test_guard_needs_no_token_on_the_owners_socket(home: Home) -> None:
    assert send(home, "GET", "/health", rules=ListenerRules.local(), headers={"Host": "localhost"}).status_code == 200
    assert (
        send(home, "GET", "/health", rules=ListenerRules.local(), headers={"Host": "evil.example"}).status_code == 421
    )


def test_guard_refuses_oversized_requests_unread(home: Home, brain: Any) -> None:
    seen: list[str] = []
    brain(lambda call: seen.append(call.event) or "")
    body = b'{"prompt": "' + b"x" * MAX_BODY + b'"}'
    assert send(home, "POST", "/hook/stop", content=body).status_code == 413

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"x" * (MAX_BODY // 2)

    assert send(home, "POST", "/hook/stop", content=pieces()).status_code == 413
    assert seen == []


def test_hook_answers_with_text(home: Home, brain: Any) -> None:
    answer = send(home, "POST", "/hook/user-prompt-submit", json={"prompt": "ä\u2713"})
    assert (answer.status_code, answer.text) == (200, "user-prompt-submit: ä\u2713")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert home.asked == 2 and home.lines == []


def test_hook_answers_nothing_with_204(home: Home, brain: Any) -> None:
    brain(lambda *_: "")
    answer = send(home, "POST", "/hook/stop", json={})
    assert (answer.status_code, answer.content) == (204, b"")


def test_hook_replaces_lone_surrogates(home: Home, brain: Any) -> None:
    brain(lambda *_: "a\ud800b")
    assert send(home, "POST", "/hook/stop", json={}).text == "a?b"


def test_hook_event_cannot_open_private_memories(home: Home, brain: Any) -> None:
    brain(lambda call: repr(call.sees_private))
    told = {"prompt": "who?", "sees_private": True, "client": "codex"}
    assert send(home, "POST", "/hook/user-prompt-submit", json=told).text == "False"


def test_hook_logs_failures_without_their_message(home: Home, brain: Any) -> None:
    def fail(call: HookCall) -> str:
        raise RuntimeError(call.prompt)

    brain(fail)
    answer = send(home, "POST", "/hook/stop", json={"prompt": "a private word"})
    assert (answer.status_code, answer.content) == (204, b"")
    (line,) = home.lines
    assert "RuntimeError in test_app.py:" in line and "private" not in line


def test_hook_is_silent_on_a_full_disk_or_locked_store(home: Home, brain: Any) -> None:
    def refuse() -> Any:
        raise OSError(28, "No space left on device")

    home.opened = refuse
    assert send(home, "POST", "/hook/stop", json={}).status_code == 204
    assert "OSError" in home.lines[0]


def test_hook_ends_the_process_if_the_store_is_newer(home: Home, brain: Any) -> None:
    def refuse() -> Any:
        raise StoreNewer("the store was written by a newer triskele")

    assert send(home, "POST", "/hook/stop", json={}).status_code in (200, 204) and home.left == 0
    home.opened = refuse
    assert send(home, "POST", "/hook/stop", json={}).status_code == 204
    assert home.left == 1


def test_hook_is_silent_after_the_deadline(home: Home, brain: Any) -> None:
    gate = threading.Event()
    brain(lambda *_: str(gate.wait()))
    answer = send(home, "POST", "/hook/stop", json={}, headers={**KNOWN, "X-Triskele-Deadline-Ms": "20"})
    gate.set()
    assert (answer.status_code, answer.content) == (204, b"")


def test_hook_gives_nothing_to_a_client_that_left(home: Home, brain: Any) -> None:
    deadlines: list[float | None] = []
    brain(lambda call: str(deadlines.append(call.deadline_s)))
    headers = [(name.lower().encode(), value.encode()) for name, value in KNOWN.items()]
    scope = {"type": "http", "method": "POST", "path": "/hook/stop", "headers": headers, "query_string": b""}
    messages = iter([{"type": "http.request", "body": b"{}"}])

    async def receive() -> Any:
        return next(messages, {"type": "http.disconnect"})

    async def write(_: Any) -> None:
        pass

    asyncio.run(Application(home.house()).for_listener(ListenerRules.local(TOKEN, 8377))(scope, receive, write))
    [deadline] = deadlines
    assert deadline is not None and deadline <= 0


@pytest.mark.parametrize("said", ["", "soon", "nan", "inf", "-inf", "1e400"])
def test_hook_ignores_an_invalid_deadline(home: Home, brain: Any, said: str) -> None:
    answer = send(home, "POST", "/hook/stop", json={"prompt": "1"}, headers={**KNOWN, "X-Triskele-Deadline-Ms": said})
    assert answer.text == "stop: 1"


@pytest.mark.parametrize(
    ("client", "is_outdated"), [("99.0", True), (__version__, False), ("0.0.1", False), ("", False), ("x", False)]
)
def test_hook_tells_newer_clients_that_it_is_outdated(home: Home, brain: Any, client: str, is_outdated: bool) -> None:
    answer = send(home, "POST", "/hook/stop", json={"prompt": "1"}, headers={**KNOWN, "X-Triskele-Version": client})
    assert answer.text == "stop: 1"
    assert ("X-Triskele-Outdated" in answer.headers) is is_outdated


def test_hook_reads_client_and_project_from_headers(home: Home, brain: Any) -> None:
    brain(lambda call: json.dumps([call.client, call.project]))
    headers = {**KNOWN, "X-Triskele-Project": "%42%c3%a4%63%6b%65%72", "X-Triskele-Client": "claude-code"}
    claimed = {"client": "claude-code", "project": "another"}
    assert send(home, "POST", "/hook/stop", json=claimed, headers=headers).json() == ["", "Bäcker"]
    headers["X-Triskele-Client-Token"] = "proof"
    assert send(home, "POST", "/hook/stop", json=claimed, headers=headers).json() == ["codex", "Bäcker"]
    assert send(home, "POST", "/hook/stop", json=claimed).json() == ["", ""]


def test_hook_takes_paths_from_the_owner_only(home: Home, brain: Any) -> None:
    brain(lambda call: json.dumps([call.folder, call.transcript]))
    event = {"cwd": "/work/garden", "transcript_path": "/work/talk.jsonl"}
    assert send(home, "POST", "/hook/stop", json=event).json() == ["", ""]
    owner = replace(ListenerRules.local(TOKEN, 8377), is_owner=True)
    assert send(home, "POST", "/hook/stop", json=event, rules=owner).json() == ["/work/garden", "/work/talk.jsonl"]


def test_hook_logs_the_reason_for_nothing_to_the_owner_only(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ENGINE.agents, "respond", lambda _: Injection(note="nothing was found"))
    assert send(home, "POST", "/hook/user-prompt-submit", json={}).status_code == 204
    assert home.lines == []
    owner = replace(ListenerRules.local(TOKEN, 8377), is_owner=True)
    assert send(home, "POST", "/hook/user-prompt-submit", json={}, rules=owner).status_code == 204
    assert home.lines == ["user-prompt-submit gave nothing: nothing was found"]


def test_hook_counts_the_time_before_its_thread(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ENGINE.agents, "respond", lambda call: Injection(str(call.deadline_s)))

    def open_slowly() -> Any:
        time.sleep(0.05)
        return ENGINE

    home.opened = open_slowly
    headers = {**KNOWN, "X-Triskele-Deadline-Ms": "20000"}
    assert 0 < float(send(home, "POST", "/hook/stop", json={}, headers=headers).text) <= 19.95


BODIES = st.binary(max_size=300) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=6,
).map(lambda value: json.dumps(value).encode())
NAMES = st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=1, max_size=20)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=NAMES, body=BODIES, method=st.sampled_from(["GET", "POST", "PUT", "DELETE", "OPTIONS"]))
def test_app_never_fails_on_any_request(home: Home, brain: Any, name: str, body: bytes, method: str) -> None:
    from urllib.parse import quote

    assert send(home, method, f"/hook/{quote(name)}", content=body).status_code in (200, 204, 400, 404, 405)


@pytest.mark.parametrize("body", [b"", b"[]", b"1", b'"x"', b"{", b"\xff", b"[" * 200_000, b'{"a": 1}x'])
def test_hook_refuses_bodies_that_are_no_json_object(home: Home, brain: Any, body: bytes) -> None:
    assert send(home, "POST", "/hook/stop", content=body).status_code == 400


def test_mcp_is_imported_on_the_first_request(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        happened.append("entered")
        yield
        happened.append("left")

    def http_app(context: AppContext) -> Starlette:
        assert context.open_engine() is ENGINE
        return Starlette(
            routes=[Route("/mcp", lambda _: PlainTextResponse("from mcp"), methods=["POST"])], lifespan=lifespan
        )

    module = types.ModuleType("triskele.edge.mcp.server")
    module.http_app = http_app  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "triskele.edge.mcp.server", module)
    assert send(home, "GET", "/health").status_code == 200
    assert happened == []
    for path in ("/mcp", "/mcp/"):
        assert send(home, "POST", path).text == "from mcp"
    assert happened == ["entered", "left"] * 2


@pytest.mark.slow
def test_service_does_not_import_mcp() -> None:
    code = "import sys, triskele.edge.process.service; print('mcp' in sys.modules, 'triskele.engine' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
