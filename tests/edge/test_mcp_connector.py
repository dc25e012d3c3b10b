"""How a bridge finds its server: a resident that is there, one that must be started, one that is too old, or none."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from triskele.edge.hook import client
from triskele.edge.hook.client import VERSION
from triskele.edge.mcp import bridge
from triskele.edge.mcp.bridge import connect_resident

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
    monkeypatch.setattr(bridge, "_PAUSE_S", 0.0)
    monkeypatch.setattr(bridge, "START_S", 0.2)
    yield made
    made.close()


def test_connect_resident_sends_the_folder_of_the_client(
    machine: Machine, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    machine.finds = [greeting(VERSION)]
    connect_resident(ENVIRON).close()
    connect_resident({**ENVIRON, "TRISKELE_PROJECT": "given"}).close()
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
def test_connect_resident_starts_one_process_if_none_fits(machine: Machine, first: Any) -> None:
    machine.finds = [first, first, FileNotFoundError(), TimeoutError(), ConnectionResetError(), greeting(VERSION)]
    connect_resident(ENVIRON).close()
    assert machine.starts == 1


def test_connect_resident_accepts_a_newer_process(machine: Machine) -> None:
    machine.finds = [greeting("999.0.0")]
    connect_resident(ENVIRON).close()
    assert machine.starts == 0


def test_connect_resident_reads_no_further_than_the_greeting(machine: Machine) -> None:
    machine.finds = [greeting(VERSION) + b'{"jsonrpc": "2.0"}\n']
    server = connect_resident(ENVIRON)
    line = server.lines.readline()
    server.close()
    assert line == b'{"jsonrpc": "2.0"}\n'
