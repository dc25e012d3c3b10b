"""`triskele serve` and `triskele hook` as people and clients type them."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from residents import Host

from triskele import config
from triskele.edge.hook import client
from triskele.edge.process import resident
from triskele.engine.local import LocalEngine
from triskele.replies.rooms import HookCall

pytestmark = pytest.mark.slow

Run = Callable[..., Any]
SERVE = [sys.executable, "-c", "from triskele.edge.cli.main import main; main()", "serve"]


@pytest.fixture
def host() -> Iterator[Host]:
    with tempfile.TemporaryDirectory(prefix="triskele-") as folder:
        server = Host(Path(folder) / "home")
        yield server
        server.close()


def serving(host: Host, *options: str) -> tuple[subprocess.Popen[bytes], dict[str, Any]]:
    """A server that has said where it listens."""
    child = host.spawn([*SERVE, *options, "--json"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    assert child.stdout is not None
    output = b""
    while not output.endswith(b"}\n"):
        line = child.stdout.readline()
        assert line, "it ended before it served"
        output += line
    return child, json.loads(output)


def request(sock: socket.socket, *headers: str) -> int:
    with sock:
        sock.settimeout(60)
        sock.sendall("\r\n".join(("GET /health HTTP/1.0", "Host: localhost", *headers, "", "")).encode())
        return int(sock.recv(1000).split()[1])


def test_serve_http_answers_with_a_token_and_stop_ends_it(host: Host) -> None:
    child, addresses = serving(host, "--http", "127.0.0.1:0")
    token_file = Path(addresses["token_file"])
    token = token_file.read_text().strip()
    assert stat.S_IMODE(token_file.stat().st_mode) == 0o600
    assert token not in json.dumps(addresses)
    port = int(addresses["http"].rpartition(":")[2])

    def connect() -> socket.socket:
        return socket.create_connection(("127.0.0.1", port), timeout=60)

    assert request(connect()) == 401
    assert request(connect(), f"Authorization: Bearer {token}") == 200
    assert request(connect(), f"Authorization: Bearer {token}", "Origin: http://evil.example") == 403
    assert request(connect(), f"Authorization: Bearer {token}", "Host: evil.example") in (400, 421)
    health = resident.stop(host.address)
    assert health is not None and health["pid"] == child.pid
    assert child.wait() == 0
    assert resident.health(host.address) is None


def test_serve_socket_listens_on_another_path(host: Host) -> None:
    path = host.home / "mine"
    child, addresses = serving(host, "--socket", str(path))
    assert addresses["extra_socket"] == str(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(path))
    assert request(connection) == 200
    child.send_signal(signal.SIGINT)
    assert child.wait() == 0
    assert not path.exists()


def test_serve_refuses_a_second_process(host: Host) -> None:
    child, _ = serving(host)
    second = subprocess.run(SERVE, env=host.environ, capture_output=True, check=False)
    assert (second.returncode, second.stdout) == (1, b"")
    assert f"process {child.pid} serves this data folder already".encode() in second.stderr
    status = subprocess.run([*SERVE, "--status", "--json"], env=host.environ, capture_output=True, check=True)
    assert json.loads(status.stdout)["pid"] == child.pid
    stopped = subprocess.run([*SERVE, "--stop"], env=host.environ, capture_output=True, check=True)
    assert f"Stopped process {child.pid}".encode() in stopped.stdout
    assert child.wait() == 0


@pytest.mark.parametrize("option", ["--status", "--stop"])
def test_serve_status_without_a_process_exits_with_1(run: Run, option: str) -> None:
    assert run("serve", option).is_refused(1, "no process serves this data folder")


def test_serve_refuses_a_public_address(run: Run, home: Path) -> None:
    assert run("serve", "--http", "0.0.0.0:8377").is_refused(2, "other machines can reach", "127.0.0.1")
    assert run("serve", "--http", "8377").is_refused(2, "HOST:PORT")
    assert run("serve", "--status", "--stop").is_refused(2, "not both")
    assert not (home / "run").exists()


def test_serve_names_an_address_in_use(host: Host) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [*SERVE, "--http", f"127.0.0.1:{port}"], env=host.environ, capture_output=True, check=False
        )
    assert done.returncode == 3
    assert done.stderr.startswith(b"triskele: cannot listen at 127.0.0.1:") and done.stderr.count(b"\n") == 1


def test_hook_runs_the_light_client(program: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    event = b'{"prompt": "a private word"}'
    monkeypatch.setenv("TRISKELE_HOOK_DEADLINE_MS", "5")
    done = program("hook", "No Such Event", stdin=event)
    assert (done.code, done.out, done.err) == (0, "", "")
    log = (home / "run" / "hook.log").read_text()
    assert "unknown event name" in log and "private" not in log


def test_store_option_changes_the_choice_of_store(home: Path) -> None:
    from triskele.edge.cli.invocation import Invocation

    usual = client.Address(Invocation().environ())
    other = client.Address(Invocation(store="sqlite:///other.db").environ())
    assert usual.key == other.key
    assert (usual.choice[0], other.choice[0]) == ("", f"sqlite:///{os.getcwd()}/other.db")


def test_hook_explain_says_why_it_speaks_or_is_silent(run: Run) -> None:
    id = run("add", "We deploy with Argo CD", "--json").json["id"]
    event = json.dumps({"prompt": "how do we deploy?", "cwd": os.getcwd()})
    document = run("hook", "user-prompt-submit", "--explain", "--json", stdin=event).json
    assert (document["verdict"], document["considered"][0]["id"], document["considered"][0]["left_out"]) == (
        "gives 1 memory",
        id,
        "",
    )
    for payload, words in (
        ('{"prompt": "/clear"}', "silent: the prompt is empty or a command"),
        ('{"prompt": "how do we deploy?", "cwd": "/elsewhere"}', "silent: nothing was found"),
    ):
        assert words in run("hook", "user-prompt-submit", "--explain", stdin=payload).out
    assert document["folder"] == os.getcwd()
    run("config", "set", "agents.least_confidence", "1")
    unsure = run("hook", "user-prompt-submit", "--explain", stdin=event).out
    assert "below agents.least_confidence (1)" in unsure and "the answer is not sure enough" in unsure
    run("add", "Tabs, not spaces", "--category", "preferences", "--importance", "0.9")
    here = json.dumps({"cwd": os.getcwd(), "source": "startup"})
    assert "gives 1 memory" in run("hook", "session-start", "--explain", stdin=here).out
    assert "never gives memories" in run("hook", "stop", "--explain", stdin="{}").out
    assert run("hook", "nonsense", "--explain", stdin="{}").is_refused(2, "unknown hook event")
    assert run("hook", "stop", "--explain", stdin="[").is_refused(2, "one JSON object")


@pytest.mark.parametrize(
    "event", [{}, {"cwd": ""}, {"client": "codex", "project": "x"}, {"agent_id": "7"}, {"source": "loop_wakeup"}]
)
def test_hook_explain_agrees_with_the_hook(run: Run, home: Path, event: dict[str, str]) -> None:
    run("add", "We deploy with Argo CD")
    run("add", "Private: we deploy to the cellar", "--private")
    run("config", "set", "agents.private_to", "codex")
    payload = {"prompt": "how do we deploy?", **event}
    shown = run("hook", "user-prompt-submit", "--explain", stdin=json.dumps(payload)).out
    with LocalEngine(config.load({"TRISKELE_HOME": str(home)}), Path.cwd()) as engine:
        # The process that answers hooks takes none of these from the event.
        assert engine.agents.respond(HookCall.of_payload("user-prompt-submit", payload)).text == ""
    assert "is silent" in shown
    if "agent_id" in event or "source" in event:
        assert "no person caused the event" in " ".join(shown.split())
    else:
        assert "The event names no folder (cwd): only memories that belong everywhere" in " ".join(shown.split())


def test_memory_tool_answers_one_call(run: Run) -> None:
    made = run(
        "memory-tool",
        "--client",
        "me",
        "--json",
        stdin='{"command": "create", "path": "/memories/a", "file_text": "Hi"}',
    )
    assert made.json["output"] == "File created successfully at: /memories/a"
    assert run("memory-tool", stdin='{"command": "view", "path": "/memories/none"}').is_refused(1, "does not exist")
    assert run("memory-tool", stdin="[").is_refused(2, "not one JSON object")
