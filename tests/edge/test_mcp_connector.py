"""How a bridge finds its server: a resident that is there, one that must be started, one that is too old, or none."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from triskele.edge.hook import client
from triskele.edge.hook.client import VERSION, NoAnswer
from triskele.edge.mcp import connector
from triskele.edge.mcp.connector import Connector, resident

ENVIRON = {"TRISKELE_HOME": "/nowhere/at/all"}


class Machine:
    """What connecting finds, one after the other, and whether a resident was started."""

    def __init__(self) -> None:
        self.finds: list[BaseException | bytes] = []
        self.heard: list[socket.socket] = []
        self.starts = 0
        self._kept: list[socket.socket] = []

    def connect(self, *_: Any) -> socket.socket:
        found = self.finds.pop(0) if len(self.finds) > 1 else self.finds[0]
        if isinstance(found, BaseException):
            raise found
        ours, theirs = socket.socketpair()
        theirs.sendall(found)
        if not found.endswith(b"\n"):
            theirs.shutdown(socket.SHUT_WR)
        self.heard.append(theirs)
        self._kept += [ours, theirs]
        return ours

    def start(self, *_: Any) -> None:
        self.starts += 1

    def close(self) -> None:
        for each in self._kept:
            each.close()


def greeting(version: str) -> bytes:
    return json.dumps({"version": version}).encode() + b"\n"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    made = Machine()
    monkeypatch.setattr(client, "connect", made.connect)
    monkeypatch.setattr(client, "start", made.start)
    monkeypatch.setattr(connector, "_PAUSE_S", 0.0)
    monkeypatch.setattr(connector, "START_S", 0.2)
    yield made
    made.close()


def test_one_that_serves_is_told_where_the_client_works(
    machine: Machine, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    machine.finds = [greeting(VERSION)]
    resident(ENVIRON)
    resident({**ENVIRON, "TRISKELE_PROJECT": "given"})
    said = [json.loads(end.recv(1000)) for end in machine.heard]
    assert said[0] == {"version": VERSION, "folder": str(tmp_path)}
    assert said[1] == {"version": VERSION, "folder": str(tmp_path), "project": "given"}
    assert machine.starts == 0


@pytest.mark.parametrize(
    "first",
    [
        FileNotFoundError(),
        ConnectionRefusedError(),
        greeting("0.0.1"),
        b"",
        b"HTTP/1.1 400 Bad Request\r\n",
        b'{"version": 7}\n',
        b"[]\n",
        b"x" * 5000,
    ],
    ids=lambda first: repr(first)[:40],
)
def test_none_or_one_too_old_or_a_stranger_lets_one_be_started_once(machine: Machine, first: Any) -> None:
    machine.finds = [first, first, FileNotFoundError(), TimeoutError(), ConnectionResetError(), greeting(VERSION)]
    assert resident(ENVIRON).recv is not None
    assert machine.starts == 1


def test_a_newer_one_serves_an_older_client(machine: Machine) -> None:
    machine.finds = [greeting("999.0.0")]
    resident(ENVIRON)
    assert machine.starts == 0


def test_nothing_more_is_read_than_the_greeting(machine: Machine) -> None:
    machine.finds = [greeting(VERSION) + b'{"jsonrpc": "2.0"}\n']
    assert resident(ENVIRON).recv(100) == b'{"jsonrpc": "2.0"}\n'


@pytest.mark.parametrize("failure", [FileNotFoundError(), NoAnswer("not a folder of yours"), PermissionError(13, "no")])
def test_where_there_is_none_this_process_serves(
    machine: Machine, failure: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    inside: Callable[..., Any] = lambda *given: given  # noqa: E731
    monkeypatch.setattr(connector, "InProcessConnection", inside)
    machine.finds = [failure]
    dial = Connector(ENVIRON, lambda: pytest.fail("opened too early"), report=told.append)
    _, first = dial()  # type: ignore[misc]
    assert json.loads(first)["version"] == VERSION
    assert len(told) == 1 and "this process serves" in told[0]


def test_asked_for_it_this_process_serves_at_once(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector, "InProcessConnection", lambda *given: given)
    dial = Connector(ENVIRON, lambda: pytest.fail("opened too early"), in_process=True)
    assert dial() and not machine.heard
