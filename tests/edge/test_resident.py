"""The life of the resident process: single, replaced, recovered, and gone when nobody needs it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from residents import OTHER, Host

from triskele import __version__, config
from triskele.edge.hook import client as hook_client
from triskele.edge.hook.client import release
from triskele.edge.mcp import bridge
from triskele.edge.process import listener, resident
from triskele.engine.local import LocalEngine
from triskele.errors import Unavailable
from triskele.text.files import file_lock

pytestmark = pytest.mark.slow

PROMPT = json.dumps({"prompt": "who waters the plants"}).encode()
FACT = "Mara waters the plants on Mondays"
MODULE = [sys.executable, "-P", "-m", "triskele.edge.process.resident"]


@pytest.fixture
def make_host() -> Iterator[Callable[..., Host]]:
    made: list[Host] = []
    with tempfile.TemporaryDirectory(prefix="triskele-") as folder:

        def make(below: str = "home", **environ: str) -> Host:
            made.append(Host(Path(folder) / below, **environ))
            return made[-1]

        yield make
        for host in made:
            host.close()


@pytest.fixture
def host(make_host: Callable[..., Host]) -> Host:
    return make_host()


def remember(host: Host, text: str) -> None:
    with LocalEngine(config.load(host.environ), host.home) as engine:
        engine.remember(text)


def test_of_twenty_that_start_at_once_one_stays(host: Host) -> None:
    quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "env": host.environ}
    started = [host.spawn(MODULE, **quiet) for _ in range(20)]
    left = [child for child in started if _lives_on(child, host)]
    assert len(left) == 1
    found = resident.health(host.address)
    assert found is not None and found["pid"] == left[0].pid
    assert [child.returncode for child in started if child is not left[0]] == [0] * 19


def _lives_on(child: subprocess.Popen[bytes], host: Host) -> bool:
    """Waits until a process either ends or is the one that answers."""
    while child.poll() is None:
        found = resident.health(host.address)
        if found is not None and found["pid"] == child.pid:
            return True
    return False


def test_a_hook_starts_it_and_every_answer_comes_from_the_same(make_host: Callable[..., Host]) -> None:
    host = make_host()
    assert host.hook("stop", b"{}").returncode == 0
    first = resident.health(host.address)
    assert host.hook("stop", b"{}").returncode == 0
    second = resident.health(host.address)
    assert first is not None and second is not None and first["pid"] == second["pid"]
    assert host.log() == ""


def test_twenty_hooks_at_once_start_one(host: Host) -> None:
    clients = [host.hooking("stop", b"{}") for _ in range(20)]
    assert [(client.communicate(), client.returncode) for client in clients] == [((b"", b""), 0)] * 20
    assert host.log() == ""
    found = resident.health(host.address)
    assert found is not None
    lock = Path(host.address.file("starting"))
    with file_lock(lock, timeout_s=60) as is_free:
        assert is_free, "the one that serves has let the next one start"


def test_a_dead_socket_is_replaced(host: Host) -> None:
    hook_client.own_folder(host.address.run)
    for kind in ("http", "mcp"):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(host.address.socket(kind))
    assert host.serving()


def test_only_the_owner_can_reach_it(host: Host) -> None:
    host.serving()
    modes = {path.name.split(".")[-1]: stat.S_IMODE(path.stat().st_mode) for path in Path(host.address.run).iterdir()}
    assert (modes["http"], modes["mcp"], modes["lock"]) == (0o600,) * 3
    assert stat.S_IMODE(Path(host.address.run).stat().st_mode) == 0o700


@pytest.mark.parametrize("model", ["bundled", "none"])
def test_it_keeps_the_weights_that_an_update_would_take_away(make_host: Callable[..., Host], model: str) -> None:
    host = make_host(TRISKELE_RECALL_MODEL=model)
    host.serving()
    kept = [path.name for path in (host.home / "models").glob("*/manifest.json")]
    assert len(kept) == (model == "bundled")


def test_a_folder_that_others_may_enter_is_closed_to_them(host: Host) -> None:
    os.mkdir(host.address.run, 0o777)
    os.chmod(host.address.run, 0o777)
    host.serving()
    assert stat.S_IMODE(Path(host.address.run).stat().st_mode) == 0o700


def test_after_kill_9_the_next_hook_is_answered_and_nothing_is_lost(host: Host) -> None:
    first = host.serving()
    remember(host, FACT)
    assert host.hook("user-prompt-submit", PROMPT).stdout.decode() == FACT
    first.kill()
    first.wait()
    second = host.serving()
    assert host.hook("user-prompt-submit", PROMPT).stdout.decode() == FACT
    assert host.who() == str(second.pid)


def test_a_hook_recovers_from_kill_9_by_itself(host: Host) -> None:
    host.hook("stop", b"{}")
    first = resident.health(host.address)
    assert first is not None
    os.kill(first["pid"], signal.SIGKILL)
    assert host.hook("stop", b"{}").returncode == 0
    second = resident.health(host.address)
    assert second is not None and second["pid"] != first["pid"]


def test_a_hook_asks_again_when_the_resident_dies_over_its_question(host: Host, tmp_path: Path) -> None:
    first = host.serving()
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    client = host.hooking("wait", json.dumps({"prompt": str(gate)}).encode())
    # Opens when somebody reads: the question is in the first one's hands.
    with gate.open("w"):
        host.serving("99.0.0")
        first.kill()
        first.wait()
    with gate.open("w") as opened:
        opened.write("answered by the second")
    out, _ = client.communicate()
    assert (client.returncode, out) == (0, b"answered by the second")


def test_what_other_processes_write_is_found(host: Host) -> None:
    host.serving()
    assert host.hook("user-prompt-submit", PROMPT).stdout == b""
    remember(host, FACT)
    assert host.hook("user-prompt-submit", PROMPT).stdout.decode() == FACT


def test_what_a_prompt_was_given_is_noted_without_another_prompt(host: Host) -> None:
    with LocalEngine(config.load(host.environ), host.home) as engine:
        id = engine.remember(FACT, project="").id
        assert FACT in host.hook("user-prompt-submit", PROMPT).stdout.decode()
        ends = time.monotonic() + 60
        while not engine.store.usage.counts([id]):
            assert time.monotonic() < ends
            time.sleep(0.02)


def test_the_log_says_why_a_prompt_got_nothing_without_its_text(host: Host) -> None:
    host.configure(idle_minutes=2, least_confidence=1)
    with LocalEngine(config.load(host.environ), host.home) as engine:
        assert host.hook("user-prompt-submit", PROMPT).stdout == b""
        engine.remember("The kettle of the plant shop is red", project="")
    assert host.hook("user-prompt-submit", PROMPT).stdout == b""
    first, second = host.log().splitlines()
    assert first.endswith("user-prompt-submit gave nothing: nothing was found that this client may see")
    assert re.search(r"gave nothing: the confidence 0\.\d\d is below agents\.least_confidence \(1\)$", second)
    assert "plant" not in host.log()


def test_the_log_names_what_is_wrong_with_an_event(host: Host) -> None:
    assert host.hook("lunch", b"{}").stdout == b""
    assert host.hook("stop", b"no json: plants").stdout == b""
    unknown, malformed = host.log().splitlines()
    assert "unknown hook event 'lunch': choose one of " in unknown
    assert malformed.endswith("stop gave nothing: standard input is not one JSON object (400)")
    assert "plants" not in host.log()


def test_after_a_change_of_settings_the_same_process_answers_with_the_new_ones(host: Host) -> None:
    other = f"Mara waters the plants on Fridays too{', and the herbs beside them' * 30}"
    with LocalEngine(config.load(host.environ), host.home) as engine:
        for text in (FACT, other):
            engine.remember(text, project="")

    def given() -> int:
        said = host.hook("user-prompt-submit", PROMPT).stdout.decode()
        return sum(text in said for text in (FACT, other))

    assert given() == 2
    before = resident.health(host.address)
    host.configure(idle_minutes=2, budget_tokens=100)
    assert given() == 1
    after = resident.health(host.address)
    assert before is not None and after is not None and before["pid"] == after["pid"]


def test_an_upgrade_replaces_it_and_no_request_is_lost(host: Host) -> None:
    old = host.serving("0.0.9")
    # Every answer but the last comes from the old one; each of them asks the new one to start.
    while (said := resident.health(host.address)) is None or said["version"] == "0.0.9":
        answer = host.hook("who", b"{}")
        assert (answer.returncode, answer.stderr) == (0, b"")
        if answer.stdout:
            assert answer.stdout.decode() == f"{old.pid} 0.0.9"
    assert said["version"] == __version__
    assert old.wait() == 0
    assert "answer" not in host.log() and "not ready" not in host.log()
    with file_lock(Path(host.address.file("starting")), timeout_s=60) as is_done:
        assert is_done, "the new one has what it waited for"
    with file_lock(Path(host.address.file("lock")), timeout_s=0) as is_free:
        assert not is_free, "and lives"


def test_it_leaves_when_another_build_of_the_same_version_is_installed(
    make_host: Callable[..., Host], tmp_path: Path
) -> None:
    package = tmp_path / "triskele"
    shutil.copytree(Path(config.__file__).parent, package, copy_function=os.link)
    host = make_host(PYTHONPATH=str(tmp_path))
    old = host.serving()
    assert host.who() == str(old.pid)
    (tmp_path / "new").write_bytes((package / "__init__.py").read_bytes())
    (tmp_path / "new").replace(package / "__init__.py")
    assert old.wait(60) == 0
    assert not Path(host.address.socket("http")).exists(), "the next request starts another one"


def test_an_older_client_is_served_by_a_newer_resident(host: Host) -> None:
    newer = host.serving("99.0.0")
    for _ in range(3):
        assert host.who("99.0.0") == str(newer.pid)
    assert host.serving(says=b"refused\n").wait() == 0, "the older one does not take over"
    assert host.who("99.0.0") == str(newer.pid)


@pytest.mark.parametrize(
    ("newer", "older"), [("0.2.0", "0.1.9"), ("1.0", "0.99.99"), ("0.10.0", "0.9.0"), ("0.1.1", "0.1"), ("0.1.0", "x")]
)
def test_versions_are_compared_as_numbers(newer: str, older: str) -> None:
    assert release(newer) > release(older)


def test_versions_that_mean_the_same_are_the_same() -> None:
    assert release("0.1") == release("0.1.0") == release("0.1.0.dev3")


def test_it_leaves_when_nobody_asks(host: Host) -> None:
    host.configure(idle_minutes=0.01)
    assert host.serving().wait(60) == 0
    assert not Path(host.address.socket("http")).exists()


def test_what_was_asked_is_answered_before_it_leaves(host: Host, tmp_path: Path) -> None:
    served = host.serving()
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    client = host.hooking("wait", json.dumps({"prompt": str(gate)}).encode())
    with gate.open("w") as opened:
        served.terminate()
        # It takes no more questions by now or soon; the one it has is finished.
        opened.write("finished")
    out, _ = client.communicate()
    assert (client.returncode, out) == (0, b"finished")
    assert served.wait() == 0


def test_it_leaves_when_its_socket_was_removed_and_the_next_one_serves(host: Host) -> None:
    first = host.serving()
    os.unlink(host.address.socket("http"))
    second = host.serving()
    assert host.who() == str(second.pid)
    assert first.wait() == 0


def test_a_locked_store_is_silence_in_time_and_does_not_keep_it_from_leaving(host: Host) -> None:
    remember(host, FACT)
    with file_lock(host.home / "memories.db.lock", timeout_s=0):
        served = host.serving()
        answer = host.hook("user-prompt-submit", PROMPT, deadline_ms="500")
        assert (answer.returncode, answer.stdout, answer.stderr) == (0, b"", b"")
        found = resident.health(host.address)
        assert found is not None and found["engine"] == "opening"
        served.terminate()
        assert served.wait(60) == 0


def test_a_damaged_store_is_silence(host: Host) -> None:
    (host.home / "memories.db").write_bytes(b"no database at all" * 500)
    host.serving()
    answer = host.hook("user-prompt-submit", PROMPT)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, b"", b"")
    assert "StoreDamaged" in host.log()
    assert "plants" not in host.log()


def test_settings_that_cannot_be_read_are_told_in_the_log(host: Host) -> None:
    (host.home / "config.toml").write_text("[agents]\nfoo = 1\n")
    answer = host.hook("user-prompt-submit", PROMPT, deadline_ms="300")
    assert (answer.returncode, answer.stdout) == (0, b"")
    assert host.spawn(MODULE).wait() == 3
    assert "unknown setting agents.foo" in host.log()


def test_a_key_among_settings_that_cannot_be_used_is_not_told_in_the_log(host: Host) -> None:
    key = "sk-proj-" + "Zq7Xw2Rt9Lm4Vb8Nc3Kd" * 2
    (host.home / "config.toml").write_text(f"[llm]\ncommand = {{ header = 'Authorization: Bearer {key}' }}\n")
    assert host.spawn(MODULE).wait() == 3
    assert "llm.command" in host.log() and key not in host.log()


# Loopback, where there are no unix sockets.


def test_where_there_are_no_unix_sockets_loopback_serves_with_a_token(make_host: Callable[..., Host]) -> None:
    host = make_host(TRISKELE_LOOPBACK="1")
    served = host.serving()
    ports = Path(host.address.file("ports"))
    assert stat.S_IMODE(ports.stat().st_mode) == 0o600
    assert not Path(host.address.socket("http")).exists()
    port, _, token = ports.read_text().split()
    assert _status(int(port), "") == 401
    assert _status(int(port), "Authorization: Bearer wrong\r\n") == 401
    assert _status(int(port), f"Authorization: Bearer {token}\r\n") == 200
    served.terminate()
    assert served.wait() == 0
    assert not ports.exists()


def _status(port: int, headers: str) -> int:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as made:
        made.sendall(f"GET /health HTTP/1.0\r\nHost: localhost\r\n{headers}\r\n".encode())
        return int(made.recv(1000).split()[1])


def test_whoever_took_the_port_of_a_dead_resident_is_told_nothing(make_host: Callable[..., Host]) -> None:
    host = make_host(TRISKELE_LOOPBACK="1")
    served = host.serving()
    port = int(Path(host.address.file("ports")).read_text().split()[0])
    served.kill()
    served.wait()
    with socket.create_server(("127.0.0.1", port)), pytest.raises(ConnectionRefusedError):
        hook_client.connect(host.address, "http", 60)


def test_a_stream_on_loopback_begins_with_the_token(make_host: Callable[..., Host]) -> None:
    host = make_host(TRISKELE_LOOPBACK="1")
    host.serving()
    _, port, _ = Path(host.address.file("ports")).read_text().split()
    greeting = b'{"version": "0.1.0", "folder": "/"}\n'
    with socket.create_connection(("127.0.0.1", int(port)), timeout=60) as made:
        made.sendall(b"no token\n" + greeting)
        assert made.recv(10) == b""
    ours = hook_client.connect(host.address, "mcp", 60)
    ours.sendall(greeting)
    assert ours.recv(100).startswith(b'{"version"')
    ours.close()


def test_a_path_too_long_for_a_socket_is_shortened(make_host: Callable[..., Host]) -> None:
    host = make_host("/".join(["a-folder-with-a-long-name"] * 5))
    assert host.address.sockets != host.address.run
    assert len(host.address.socket("http")) < 100
    host.serving()
    assert stat.S_IMODE(Path(host.address.sockets).stat().st_mode) == 0o700
    os.unlink(host.address.socket("http"))
    os.unlink(host.address.socket("mcp"))


def test_a_hook_for_another_store_is_silent_and_says_why(host: Host) -> None:
    host.serving()
    assert host.hook("who", b"{}").stdout
    for other in (OTHER, {"TRISKELE_MEMORY_OWNER": "ada"}):
        answer = host.hook("who", b"{}", environ=other)
        assert (answer.returncode, answer.stdout, answer.stderr) == (0, b"", b"")
    assert host.log().count(hook_client.OTHER_STORE) == 2


def test_an_mcp_client_for_another_store_works_in_its_own_process(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "START_S", 60.0)
    host.serving()
    bridge.connect_resident(host.environ).close()
    with pytest.raises(bridge.ResidentUnavailable, match="another store"):
        bridge.connect_resident({**host.environ, **OTHER})


@pytest.mark.parametrize("kind", ["link", "foreign"])
def test_a_folder_of_somebody_else_is_refused(
    kind: str, host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = host.address
    hook_client.own_folder(place.run)
    if kind == "link":
        os.rename(place.run, tmp_path / "elsewhere")
        os.symlink(tmp_path / "elsewhere", place.run)
    else:
        monkeypatch.setattr(hook_client._system, "geteuid", lambda: 12345)
    with pytest.raises(hook_client.NoAnswer, match="not a folder of this user"):
        hook_client.connect(place, "http", 1)
    with pytest.raises(Unavailable, match="not a folder of this user"):
        listener.make_folders(place)
