"""Everyday commands through the resident process: the same bytes as in process, and almost no imports."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from residents import Host

from triskele.edge.hook import client

IN_PROCESS = [sys.executable, "-c", "from triskele.edge.cli.main import main; main()"]
PROGRAM = [sys.executable, "-m", "triskele"]
# What the resident process answers, then what the client imported for it.
CLIENT = [
    sys.executable,
    "-c",
    "import sys\nfrom triskele import __main__ as program\n"
    "answer, _ = program._resident_answer(sys.argv[1:])\n"
    "sys.stdout.buffer.write(b'not asked' if answer is None else answer)\n"
    "heavy = ('click', 'rich', 'typing', 'asyncio', 'hashlib', 'triskele.engine', 'triskele.config')\n"
    "print([name for name in heavy if name in sys.modules], file=sys.stderr)",
]


@pytest.fixture
def host() -> Iterator[Host]:
    # A short path: a socket path has at most 103 bytes.
    with tempfile.TemporaryDirectory(prefix="trs-") as folder:
        made = Host(Path(folder) / "h")
        made.environ |= {"TRISKELE_PROJECT": "shop", "COLUMNS": "90", "TERM": "xterm-256color"}
        yield made
        made.close()


@pytest.fixture
def id(host: Host) -> str:
    """A memory in a store that a resident process serves."""
    made = _run(IN_PROCESS, host, "add", "We deploy with Argo CD — not Helm", "--tags", "deploy", "--json")
    command = [*IN_PROCESS, "serve", "--json"]
    serving = host.spawn(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    assert serving.stdout is not None
    while not serving.stdout.readline().startswith(b"}"):
        pass
    return str(json.loads(made.stdout)["id"])


def _run(program: list[str], host: Host, *arguments: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
    environment = {**host.environ, "TRISKELE_AGENTS_BACKGROUND": "false", **environ}
    return subprocess.run([*program, *arguments], env=environment, capture_output=True, timeout=60, check=False)


def _on_terminal(program: list[str], host: Host, *arguments: str) -> bytes:
    ours, theirs = pty.openpty()
    environment = {**host.environ, "TRISKELE_AGENTS_BACKGROUND": "false"}
    subprocess.run([*program, *arguments], env=environment, stdout=theirs, stdin=subprocess.DEVNULL, check=True)
    os.close(theirs)
    said = b""
    try:
        while piece := os.read(ours, 65536):
            said += piece
    except OSError:
        # Linux ends a terminal without a writer this way.
        pass
    os.close(ours)
    return said


def _timeless(output: bytes) -> bytes:
    return re.sub(rb'took [\d.]+ ms|"took_ms": [\d.]+', b"TOOK", output)


def test_the_resident_process_answers_with_the_same_bytes(host: Host, id: str) -> None:
    for arguments in (
        ["show", id],
        ["show", id[:8], "--json"],
        ["add", "We deploy with Argo CD — not Helm"],
        ["add", "We deploy with Argo CD — not Helm", "--json"],
        ["recall", "how do we deploy?", "--explain"],
        ["recall", "deploy", "--json", "--tag", "deploy"],
        ["recall", "nothing like that"],
    ):
        asked, alone = _run(CLIENT, host, *arguments), _run(IN_PROCESS, host, *arguments)
        assert alone.returncode == 0
        assert _timeless(asked.stdout) == _timeless(alone.stdout) != b""
        assert asked.stderr == b"[]\n", "the client imports almost nothing"
        assert _timeless(_run(PROGRAM, host, *arguments).stdout) == _timeless(alone.stdout)


def test_a_terminal_gets_the_same_colours_and_width(host: Host, id: str) -> None:
    for arguments in (["recall", "deploy with Argo"], ["show", id]):
        asked, alone = (_on_terminal(program, host, *arguments) for program in (CLIENT, IN_PROCESS))
        assert _timeless(asked) == _timeless(alone) and b"\x1b[" in asked


def test_a_written_memory_belongs_to_the_clients_project(host: Host, id: str) -> None:
    made = json.loads(_run(CLIENT, host, "add", "Kept elsewhere", "--json", TRISKELE_PROJECT="other").stdout)
    assert (made["action"], made["project"]) == ("added", "other")
    assert json.loads(_run(IN_PROCESS, host, "show", made["id"], "--json").stdout)["project"] == "other"


@pytest.mark.parametrize(
    ("arguments", "environ"),
    [
        (["recall", "deploy"], {"TRISKELE_RECALL_LIMIT": "3"}),
        (["recall", "deploy"], {"TRISKELE_MEMORY_OWNER": "someone"}),
        (["recall", "deploy"], {"TRISKELE_LIMIT": "3"}),
        (["recall", "deploy", "--store", "sqlite:///other.db"], {}),
        (["recall", "--help"], {}),
        (["recall", "deploy", "--limit", "0"], {}),
        (["show", "zzzz"], {}),
        (["add", "-"], {}),
        (["add", "x", "--store=sqlite:///other.db"], {}),
        (["list"], {}),
    ],
)
def test_what_the_resident_process_would_answer_otherwise_is_not_asked(
    host: Host, id: str, arguments: list[str], environ: dict[str, str]
) -> None:
    assert _run(CLIENT, host, *arguments, **environ).stdout == b"not asked"


def test_errors_are_those_of_the_command_line(host: Host, id: str) -> None:
    asked, alone = (_run(program, host, "show", "zzzz", "--json") for program in (PROGRAM, IN_PROCESS))
    assert (asked.returncode, asked.stdout, asked.stderr) == (alone.returncode, alone.stdout, alone.stderr)
    assert asked.returncode == 1


def test_other_listeners_run_no_commands(host: Host) -> None:
    from anyio import run as run_async
    from starlette.requests import Request

    from triskele.edge.http.app import Guard, Rules

    seen: list[object] = []

    async def app(scope: dict[str, object], *_: object) -> None:
        seen.append(scope["triskele.is_owner"])

    async def ask(rules: Rules) -> None:
        scope = {"type": "http", "method": "POST", "path": "/command", "headers": [(b"host", b"localhost")]}
        assert Request(scope).method == "POST"
        await Guard(app, rules, lambda: None)(scope, None, None)  # type: ignore[arg-type]

    run_async(ask, Rules.local())
    run_async(ask, Rules(frozenset({"localhost"}), is_owner=True))
    assert seen == [False, True]


def test_without_a_resident_process_nothing_is_asked(host: Host) -> None:
    assert not Path(host.place.socket(client.HTTP)).exists()
    assert _run(CLIENT, host, "recall", "deploy").stdout == b"not asked"


def test_a_terminal_is_asked_about_what_the_resident_process_found(host: Host, id: str) -> None:
    ours, theirs = pty.openpty()
    environment = {**host.environ, "TRISKELE_AGENTS_BACKGROUND": "false"}
    os.write(ours, b"cancel\n")
    command = [*PROGRAM, "add", "We deploy with Argo CD, not Helm!"]
    done = subprocess.run(command, env=environment, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, timeout=60)
    os.close(theirs)
    os.close(ours)
    assert b"It repeats" in done.stderr and b"nothing was added" in done.stderr
    assert done.returncode != 0
    assert len(json.loads(_run(IN_PROCESS, host, "list", "--json").stdout)["memories"]) == 1
