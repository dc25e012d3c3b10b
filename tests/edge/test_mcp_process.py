"""`triskele mcp` as clients start it: with a resident, with one that is killed, and without one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from agents import SPOKEN, Agent
from mcp import Client, StdioServerParameters

from triskele.edge.hook import client as hook_client
from triskele.edge.mcp.bridge import RESTARTED

pytestmark = pytest.mark.slow

PROGRAM = [sys.executable, "-c", "from triskele.edge.cli.main import main; main()"]
Run = Callable[..., Any]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def store(home: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A data folder whose resident ends with the test."""
    monkeypatch.setenv("TRISKELE_RECALL_MODEL", "none")
    yield home
    run("serve", "--stop")


@pytest.fixture
def resident(store: Path, run: Run) -> Callable[[], int]:
    """Gives the number of the process that serves the store now."""
    return lambda: int(run("serve", "--status", "--json").json["pid"])


@pytest.mark.anyio
async def test_killed_resident_loses_no_acknowledged_write(resident: Callable[[], int], run: Run) -> None:
    command, *arguments = [*PROGRAM, "mcp"]
    server = StdioServerParameters(command=command, args=arguments, env=dict(os.environ))
    async with Client(server, read_timeout_seconds=60) as client:
        assert client.protocol_version == SPOKEN["auto"]
        first = await Agent(client).store("The mill turns")
        os.kill(resident(), signal.SIGKILL)
        while hook_client.is_running(hook_client.Address(os.environ)):
            await anyio.sleep(0.01)
        assert (await Agent(client).call("memory_get", id=first))["content"] == "The mill turns"
        await Agent(client).store("The mill turns after the end")
        assert (await Agent(client).call("memory_stats"))["memories"] == 2
    assert run("show", first, "--json").json["content"] == "The mill turns"


class Raw:
    """The program's standard streams, a message at a time."""

    def __init__(self, *options: str) -> None:
        self.process = subprocess.Popen([*PROGRAM, "mcp", *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def say(self, id: int | None, method: str, **params: Any) -> None:
        assert self.process.stdin is not None
        message = {"jsonrpc": "2.0", "method": method, "params": params} | ({} if id is None else {"id": id})
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def heard(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def greet(self) -> None:
        client = {"name": "raw", "version": "1"}
        self.say(0, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=client)
        assert self.heard()["result"]["serverInfo"]["name"] == "triskele"
        self.say(None, "notifications/initialized")

    def call(self, id: int, tool: str, **arguments: Any) -> None:
        self.say(id, "tools/call", name=tool, arguments=arguments)

    def leave(self) -> tuple[int, bytes]:
        rest, _ = self.process.communicate(timeout=60)
        return self.process.returncode, rest


def _killed_while_asked(resident: Callable[[], int], number: int, pause_s: float) -> Any:
    """The answer to a change that was sent to a process and, after a pause, cut off by its death."""
    raw = Raw()
    raw.greet()
    raw.call(1, "memory_store", content=f"The mill {number} turns")
    assert raw.heard()["result"]["structuredContent"]["action"] == "added"
    serving = resident()
    # Stopped, it takes messages and answers none: so both are under way when it is killed.
    os.kill(serving, signal.SIGSTOP)
    raw.call(3, "memory_store", content=f"The mill {number} stands still")
    time.sleep(pause_s)
    os.kill(serving, signal.SIGKILL)
    answer = raw.heard()["result"]
    raw.call(4, "memory_store", content=f"The mill {number} turns again")
    assert raw.heard()["result"]["structuredContent"]["action"] == "added"
    assert raw.leave() == (0, b"")
    return answer


def test_bridge_reports_a_kill_before_the_answer(resident: Callable[[], int]) -> None:
    for number, pause_s in enumerate((0.0, 0.5, 2.0, 8.0)):
        answer = _killed_while_asked(resident, number, pause_s)
        if answer["isError"]:
            break
        # The kill came before the message was sent on: then the next process took it.
        assert answer["structuredContent"]["action"] == "added"
    assert answer == {"content": [{"type": "text", "text": RESTARTED}], "isError": True}


def test_clients_share_one_resident_in_their_own_projects(
    store: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = []
    for project in ("", "one", "two", ""):
        monkeypatch.setenv("TRISKELE_PROJECT", project)
        clients.append(Raw())
    for raw in clients:
        raw.greet()
        raw.call(1, "memory_store", content="The mill turns")
    answers = [raw.heard()["result"]["structuredContent"] for raw in clients]
    assert sorted(answer["action"] for answer in answers) == ["added", "added", "added", "duplicate"]
    assert [answer["project"] for answer in answers] == ["shop", "one", "two", "shop"]
    assert run("serve", "--status", "--json").json["streams"] == 4
    assert [raw.leave() for raw in clients] == [(0, b"")] * 4


@pytest.mark.parametrize("options", [("--in-process",), ()])
def test_mcp_serves_in_process_without_a_resident(store: Path, options: tuple[str, ...]) -> None:
    # Where its files should be lies something else: no resident can start.
    store.mkdir()
    (store / "run").write_text("")
    raw = Raw(*options)
    raw.greet()
    raw.call(1, "memory_store", content="The mill turns")
    # The input ends before the answer, which comes nevertheless.
    code, rest = raw.leave()
    stored = json.loads(rest)["result"]["structuredContent"]
    assert (code, stored["action"], stored["project"]) == (0, "added", "shop")


def test_bridge_imports_few_modules() -> None:
    heavy = "mcp, pydantic, anyio, asyncio, numpy, apsw, triskele.engine"
    code = (
        "import sys, triskele.edge.cli.agents, triskele.edge.mcp.bridge\n"
        f"found = [name for name in {heavy.split(', ')!r} if name in sys.modules]\n"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
