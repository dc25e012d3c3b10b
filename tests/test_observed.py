"""What the program does, seen from the kernel: without configuration no socket leads off this machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

# A file for each thread: a call is never torn in two by what another one does.
STRACE = ("strace", "-ff", "-qq", "--seccomp-bpf", "-e", "trace=network", "-e", "signal=none")
_SOCKET = re.compile(r"(?:socket|socketpair)\((AF_\w+|\w+)")
_FAMILY = re.compile(r"sa_family=(AF_\w+|\w+)")
_ADDRESS = re.compile(r'inet_(?:addr|pton)\((?:AF_INET6, )?"([^"]*)"')
_PATH = re.compile(r'sun_path=@?"([^"]*)"')

Observe = Callable[..., list[str]]


def calls_of(trace: str) -> list[str]:
    """The network calls of a trace, without what strace says itself."""
    return [line for line in trace.splitlines() if re.match(r"\w+\(", line)]


def leads_away(call: str) -> bool:
    """Whether a call makes a socket that could leave this machine, or names anybody but this machine."""
    made = _SOCKET.match(call)
    if made is not None:
        return made[1] != "AF_UNIX"
    families, addresses = _FAMILY.findall(call), _ADDRESS.findall(call)
    if any(family not in ("AF_UNIX", "AF_INET", "AF_INET6") for family in families):
        return True
    return any(not ip_address(address).is_loopback for address in addresses)


def sockets_by_name(calls: Sequence[str]) -> set[str]:
    """The unix sockets that were spoken to."""
    return {path for call in calls if call.startswith("connect(") for path in _PATH.findall(call)}


@pytest.mark.parametrize(
    "call",
    [
        "socket(AF_INET, SOCK_STREAM|SOCK_CLOEXEC, IPPROTO_IP) = 3",
        "socket(AF_INET6, SOCK_DGRAM|SOCK_CLOEXEC, IPPROTO_IP) = -1 EAFNOSUPPORT (Address family not supported)",
        "socket(AF_NETLINK, SOCK_RAW|SOCK_CLOEXEC, NETLINK_ROUTE) = 3",
        "socket(0x2d, SOCK_RAW, 0) = 3",
        'connect(3, {sa_family=AF_INET, sin_port=htons(53), sin_addr=inet_addr("10.0.0.2")}, 16) = 0',
        'connect(3, {sa_family=AF_INET, sin_port=htons(9), sin_addr=inet_addr("192.0.2.1")}, 16 <unfinished ...>',
        'sendto(3, "x", 1, 0, {sa_family=AF_INET, sin_port=htons(53), sin_addr=inet_addr("10.0.0.2")}, 16) = 1',
        "connect(3, {sa_family=AF_INET6, sin6_port=htons(443), sin6_flowinfo=htonl(0), "
        'inet_pton(AF_INET6, "2001:db8::1", &sin6_addr), sin6_scope_id=0}, 28) = 0',
        'bind(3, {sa_family=AF_INET, sin_port=htons(80), sin_addr=inet_addr("0.0.0.0")}, 16) = 0',
        "bind(3, {sa_family=AF_NETLINK, nl_pid=0, nl_groups=00000000}, 12) = 0",
    ],
)
def test_what_leads_away_is_told(call: str) -> None:
    assert leads_away(call)


@pytest.mark.parametrize(
    "call",
    [
        "socket(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0) = 3",
        "socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0, [3, 4]) = 0",
        'connect(3, {sa_family=AF_UNIX, sun_path="/var/run/nscd/socket"}, 110) = -1 ENOENT (No such file or directory)',
        'connect(3, {sa_family=AF_INET, sin_port=htons(8080), sin_addr=inet_addr("127.0.0.1")}, 16) = 0',
        'bind(3, {sa_family=AF_INET6, sin6_port=htons(0), inet_pton(AF_INET6, "::1", &sin6_addr)}, 28) = 0',
        'sendto(3, "to 192.0.2.1", 12, 0, NULL, 0) = 12',
    ],
)
def test_what_stays_is_not(call: str) -> None:
    assert not leads_away(call)


@pytest.fixture
def observe(tmp_path: Path) -> Observe:
    """Runs the program with settings of nobody, and returns the network calls of all its threads and children."""
    (tmp_path / "work").mkdir()
    variables = {"HOME": str(tmp_path), "TRISKELE_HOME": str(tmp_path / "home"), "TRISKELE_PRIVACY_KEY": "file"}
    # A resident process would be traced with the command that started it.
    variables["TRISKELE_AGENTS_BACKGROUND"] = "false"
    count = 0

    def run(*arguments: str, said: list[str] | None = None, **more: str) -> list[str]:
        nonlocal count
        count += 1
        traces = tmp_path / "traces" / str(count)
        traces.mkdir(parents=True)
        command = [*STRACE, "-o", str(traces / "thread"), sys.executable, "-m", "triskele", *arguments]
        environment = {"PATH": os.environ["PATH"], **variables, **more}
        done = subprocess.run(command, capture_output=True, env=environment, cwd=tmp_path / "work", check=False)
        assert done.returncode == 0, f"{arguments}: {done.stderr.decode()}"
        if said is not None:
            said.append(done.stdout.decode())
        threads = sorted(traces.iterdir())
        assert threads, "strace wrote nothing"
        return [call for thread in threads for call in calls_of(thread.read_text(errors="replace"))]

    return run


@pytest.mark.needs("strace")
def test_the_demonstration_speaks_to_nobody(observe: Observe) -> None:
    calls = observe("demo")
    assert [call for call in calls if leads_away(call)] == []
    assert sockets_by_name(calls) == set()


@pytest.mark.needs("strace")
def test_reading_and_writing_speak_to_nobody(observe: Observe, tmp_path: Path) -> None:
    notes = tmp_path / "notes.jsonl"
    notes.write_text("".join(json.dumps({"text": f"the heron nests at lock {number}"}) + "\n" for number in range(20)))
    said: list[str] = []
    calls = observe("add", "We deploy with Argo CD, not Helm hooks", "--json", said=said)
    calls += observe("add", "The staging cluster runs Argo CD in Frankfurt", "--json", said=said)
    one, other = (json.loads(text)["id"] for text in said)
    calls += observe("add", "the diary is under the bed", "--secret", "--json", said=said)
    hidden = json.loads(said[-1])["id"]
    walk = (
        f"import {notes}",
        "recall how-do-we-deploy --explain",
        "recall Argo --rerank late --order diverse",
        f"why-not {one} heron",
        f"edit {one} --importance 0.9",
        f"edit {other} --private",
        f"link {one} see-also {other}",
        "graph show Frankfurt",
        "secrets list",
        f"secrets reveal {hidden}",
        f"secrets seal {other}",
        f"export {tmp_path / 'all.jsonl'}",
        f"backup {tmp_path / 'backup.db'}",
        f"restore {tmp_path / 'backup.db'} --yes",
        "eval build --size 30",
        "models list",
        "reindex",
        "doctor --deep",
        "stats",
    )
    for command in walk:
        calls += observe(*command.split())
    assert [call for call in calls if leads_away(call)] == []
    assert sockets_by_name(calls) == set()


@pytest.mark.needs("strace")
def test_a_connection_would_be_seen(observe: Observe, tmp_path: Path) -> None:
    # Connecting a datagram socket sends nothing.
    code = "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('192.0.2.1', 9))\n"
    (tmp_path / "sly").mkdir()
    (tmp_path / "sly" / "sitecustomize.py").write_text(code)
    away = [call for call in observe("stats", PYTHONPATH=str(tmp_path / "sly")) if leads_away(call)]
    assert any(call.startswith("socket(AF_INET") for call in away)
    assert any('inet_addr("192.0.2.1")' in call for call in away)
