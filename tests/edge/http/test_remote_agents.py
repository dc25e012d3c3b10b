"""What a hook of a machine whose memory is on a server sends there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from triskele import config
from triskele.edge.http.client import RemoteEngine
from triskele.edge.http.connections import ServerConnection
from triskele.errors import BadInput
from triskele.replies.rooms import HookCall
from triskele.types import Injection

PROMPT = HookCall(
    event="user-prompt-submit",
    prompt="when are the roses watered?",
    session="one",
    transcript="/work/secret/talk.jsonl",
    client="codex",
    folder="/work/garden",
    deadline_s=2.0,
)
Open = Callable[..., RemoteEngine]


@pytest.fixture
def requests() -> list[httpx.Request]:
    return []


@pytest.fixture
def open_remote(requests: list[httpx.Request], tmp_path: Path) -> Open:
    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200, text="roses")

    def open_one(**environ: str) -> RemoteEngine:
        settings = config.load({"TRISKELE_HOME": str(tmp_path), **environ})
        connection = ServerConnection("http://localhost:1", "key", transport=httpx.MockTransport(answer))
        return RemoteEngine(connection, settings=settings, project="other")

    return open_one


def test_respond_sends_an_event_without_paths(open_remote: Open, requests: list[httpx.Request]) -> None:
    assert open_remote().agents.respond(PROMPT) == Injection("roses")
    [request] = requests
    assert request.url.path == "/hook/user-prompt-submit"
    assert json.loads(request.content) == {
        "prompt": PROMPT.prompt, "session_id": "one", "source": "", "reason": "", "agent_id": "",
    }  # fmt: skip
    everything = request.content + str(sorted(request.headers.items())).encode()
    assert b"secret" not in everything and b"/work" not in everything
    assert (request.headers["x-triskele-project"], request.headers["x-triskele-deadline-ms"]) == ("garden", "1600")
    assert "x-triskele-private" not in request.headers


def test_respond_sends_nothing_that_nobody_waits_for(open_remote: Open, requests: list[httpx.Request]) -> None:
    agents = open_remote().agents
    silent = [
        HookCall(event="stop", transcript="/work/talk.jsonl"),
        HookCall(event="user-prompt-submit", prompt="roses", agent="a1"),
        HookCall(event="user-prompt-submit", prompt="roses", source="loop_wakeup"),
        HookCall(event="user-prompt-submit", prompt="roses", deadline_s=0.0),
    ]
    assert [agents.respond(call) for call in silent] == [Injection()] * 4
    with pytest.raises(BadInput, match="unknown hook event 'lunch'"):
        agents.respond(HookCall(event="lunch"))
    assert requests == []


def test_respond_asks_for_private_memories_by_this_machine(
    open_remote: Open, requests: list[httpx.Request], tmp_path: Path
) -> None:
    (tmp_path / "config.toml").write_text('[agents]\nprivate_to = ["codex"]\n')
    agents = open_remote().agents
    for client in ("codex", "claude-code"):
        agents.respond(HookCall(event="session-start", client=client))
    agents.respond(HookCall(event="session-start", sees_private=True))
    assert [request.headers.get("x-triskele-private") for request in requests] == ["yes", None, "yes"]


@pytest.mark.parametrize(
    ("call", "project"),
    [
        (HookCall(event="session-start", project="shop", folder="/work/garden"), "shop"),
        (HookCall(event="session-start", folder="garden"), ""),
        (HookCall(event="session-start", folder="/\0" + "x" * 9000), ""),
        (HookCall(event="session-start"), ""),
    ],
)
def test_respond_names_the_project_of_the_event(
    open_remote: Open, requests: list[httpx.Request], call: HookCall, project: str
) -> None:
    open_remote().agents.respond(call)
    assert requests[0].headers["x-triskele-project"] == project
