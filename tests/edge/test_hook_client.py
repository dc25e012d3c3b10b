"""The hook as clients run it: what the resident says or silence, and never a failure."""

from __future__ import annotations

import json
import os
import re
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from residents import CLIENT, Host

from triskele import __version__, config
from triskele.edge.hook import client
from triskele.edge.process.listener import make_folders, unix_socket
from triskele.text.files import file_lock

pytestmark = pytest.mark.slow

PROMPT = "the heron nests by the old mill"
EVENT = json.dumps({"session_id": "s", "cwd": "/tmp", "prompt": PROMPT}).encode()
SILENT = (0, b"", b"")
# What a light process may import beside the interpreter's own start.
HEAVY = set("os json socket subprocess pathlib re typing collections asyncio hashlib enum site".split())


class FakeResident:
    """Somebody at the resident's socket who answers as told."""

    def __init__(self, place: client.Address) -> None:
        make_folders(place)
        self._sock, _ = unix_socket(Path(place.socket("http")))
        self.requests: list[bytes] = []
        self.answers: list[bytes | None] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._sock.accept()
            except OSError:
                return
            with connection:
                self.requests.append(self._request(connection))
                answer = self.answers.pop(0) if self.answers else said("")
                if answer is None:
                    # Says nothing until the client gives up.
                    connection.recv(1)
                else:
                    connection.sendall(answer)

    def _request(self, connection: socket.socket) -> bytes:
        taken = b""
        while b"\r\n\r\n" not in taken:
            taken += connection.recv(65536)
        length = int(re.search(rb"Content-Length: (\d+)", taken)[1])  # type: ignore[index]
        while len(taken.partition(b"\r\n\r\n")[2]) < length:
            taken += connection.recv(65536)
        return taken

    def close(self) -> None:
        self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
        self._thread.join()


def said(text: str, status: str = "200 OK", more: str = "") -> bytes:
    body = text.encode()
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{more}\r\n".encode() + body


@pytest.fixture
def host() -> Iterator[Host]:
    with tempfile.TemporaryDirectory(prefix="triskele-") as folder:
        made = Host(Path(folder) / "home")
        yield made
        made.close()


@pytest.fixture
def listener(host: Host) -> Iterator[FakeResident]:
    made = FakeResident(host.address)
    yield made
    made.close()


def outcome(done: Any) -> tuple[int, bytes, bytes]:
    return done.returncode, done.stdout, done.stderr


def test_hook_client_has_the_version_of_the_package() -> None:
    assert __version__ == client.VERSION


@pytest.mark.parametrize("given", [{}, {"XDG_DATA_HOME": "/data"}, {"XDG_DATA_HOME": ""}, {"HOME": "/home/x"}])
def test_address_has_the_data_folder_of_the_settings(given: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TRISKELE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert client.Address(os.environ).home == str(config.load({}).home)


@pytest.mark.parametrize(
    "written",
    [
        "{}/data",
        "{}/data/",
        "{}//data",
        "/{}/data",
        "{}/./data/.",
        "{}/a/../data",
        "data/",
        "a/../data",
        "{}/link/../data",
    ],
)
def test_address_is_equal_for_every_spelling_of_a_folder(
    written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere" / "target").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "target")
    home = tmp_path / "elsewhere" / "data" if "link" in written else tmp_path / "data"
    environ = {"TRISKELE_HOME": written.format(tmp_path)}
    place = client.Address(environ)
    assert (place.home, place.key) == (str(home), client._hashed(str(home)))
    assert config.load(environ).home == home


def test_hook_client_writes_the_answer(host: Host, listener: FakeResident) -> None:
    text = '{"hookSpecificOutput": {"additionalContext": "ÄÖÜ ✓"}}' * 200
    listener.answers = [said(text)]
    assert outcome(host.hook("user-prompt-submit", EVENT)) == (0, text.encode(), b"")
    head, _, body = listener.requests[0].partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /hook/user-prompt-submit HTTP/1.0"
    assert {"Host: localhost", f"X-Triskele-Version: {__version__}"} <= set(lines)
    assert any(re.fullmatch(r"X-Triskele-Deadline-Ms: [0-9]+", line) for line in lines)
    assert body == EVENT
    assert host.log() == ""


def test_hook_client_sends_its_token(host: Host, listener: FakeResident, tmp_path: Path) -> None:
    sound, evil = tmp_path / "sound", tmp_path / "evil"
    sound.write_text("tkc_A-9")
    evil.write_bytes(b"evil\r\nX: y")
    for more in (
        ["--client", "codex", "--token-file", str(sound)],
        ["--token-file", str(evil)],
        ["--token-file"],
        ["x", "y", "z"],
    ):
        command = [sys.executable, "-I", "-S", CLIENT, "stop", *more]
        done = subprocess.run(command, input=EVENT, capture_output=True, env=host.environ, check=True)
        assert outcome(done) == SILENT
    first, second = listener.requests
    assert b"\r\nX-Triskele-Client-Token: tkc_A-9\r\n" in first
    assert b"X-Triskele-Client" not in second and b"X: y" not in second


def test_hook_client_runs_without_start_py(host: Host, listener: FakeResident) -> None:
    listener.answers = [said("yes")]
    command = [sys.executable, "-I", "-S", client.__file__, "stop"]
    assert outcome(subprocess.run(command, input=EVENT, capture_output=True, env=host.environ)) == (0, b"yes", b"")


def test_start_is_silent_without_the_client(host: Host, tmp_path: Path) -> None:
    alone = tmp_path / "start.py"
    alone.write_text(Path(CLIENT).read_text())
    done = subprocess.run([sys.executable, "-I", "-S", str(alone), "stop"], input=EVENT, capture_output=True)
    assert outcome(done) == SILENT


def test_hook_client_sends_the_project_of_the_environment(host: Host, listener: FakeResident) -> None:
    host.hook("stop", b"{}", environ={"TRISKELE_PROJECT": "Bäcker\r\nX: y"})
    assert b"\r\nX-Triskele-Project: %42%c3%a4%63%6b%65%72%0d%0a%58%3a%20%79\r\n" in listener.requests[0]


def test_hook_client_refuses_more_than_a_megabyte(host: Host, listener: FakeResident) -> None:
    whole = b"x" * client.MAX_INPUT
    assert host.hook("stop", whole).returncode == 0
    assert listener.requests[0].endswith(b"\r\n\r\n" + whole)
    assert outcome(host.hook("stop", whole + b"x")) == SILENT
    assert len(listener.requests) == 1
    assert "larger than 1 MB" in host.log()


def test_hook_client_imports_few_modules(host: Host, listener: FakeResident) -> None:
    listener.answers = [said("yes")]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-X", "importtime", CLIENT, "stop"],
        input=EVENT, capture_output=True, env=host.environ, check=True,
    )  # fmt: skip
    imported = {line.split("|")[-1].strip().split(".")[0] for line in done.stderr.decode().splitlines()}
    assert done.stdout == b"yes" and "_socket" in imported
    assert not imported & HEAVY


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (said("no", "400 Bad Request"), "standard input is not one JSON object (400)"),
        (said("no", "401 Unauthorized"), "(401)"),
        (said("no", "500 Internal Server Error"), "(500)"),
        (said("no", "302 Found", "Location: http://example.com\r\n"), "(302)"),
    ],
)
def test_hook_client_logs_refusals(host: Host, listener: FakeResident, answer: bytes, reason: str) -> None:
    listener.answers = [answer]
    assert outcome(host.hook("stop", EVENT)) == SILENT
    assert reason in host.log() and PROMPT not in host.log()
    assert len(listener.requests) == 1


@pytest.mark.parametrize("answer", [b"", b"garbage", b"HTTP/1.1 200 OK\r\ncont", b"\r\n\r\n", said("", "503 Busy")])
def test_hook_client_retries_broken_answers(host: Host, listener: FakeResident, answer: bytes) -> None:
    listener.answers = [answer, answer, said("whole")]
    assert outcome(host.hook("stop", EVENT)) == (0, b"whole", b"")
    assert len(listener.requests) == 3


def test_hook_client_is_silent_after_the_deadline(host: Host, listener: FakeResident) -> None:
    listener.answers = [None]
    assert outcome(host.hook("stop", EVENT, deadline_ms="50")) == SILENT
    assert "gave nothing: the background process did not answer in time" in host.log() and PROMPT not in host.log()


def test_hook_client_does_not_wait_for_endless_input(host: Host, listener: FakeResident) -> None:
    reading, writing = os.pipe()
    environ = {**host.environ, "TRISKELE_HOOK_DEADLINE_MS": "50"}
    done = subprocess.run([sys.executable, "-I", "-S", CLIENT, "stop"], stdin=reading, capture_output=True, env=environ)
    os.close(reading)
    os.close(writing)
    assert outcome(done) == SILENT
    assert "did not end in time" in host.log() and listener.requests == []


@pytest.mark.parametrize("deadline", ["", "soon", "nan", "-5", "1e999"])
def test_hook_client_ignores_an_invalid_deadline(host: Host, listener: FakeResident, deadline: str) -> None:
    listener.answers = [said("yes")]
    done = host.hook("stop", EVENT, deadline_ms=deadline)
    assert done.returncode == 0 and done.stderr == b""


@pytest.mark.parametrize("event", ["", "../x", "STOP", "stop HTTP/1.0\r\nX: y", "a" * 41, "ä"])
def test_hook_client_refuses_invalid_event_names(host: Host, listener: FakeResident, event: str) -> None:
    assert outcome(host.hook(event, EVENT)) == SILENT
    assert listener.requests == []
    assert "unknown event name" in host.log() and "X: y" not in host.log()


def test_hook_client_is_silent_without_arguments(host: Host) -> None:
    done = subprocess.run([sys.executable, "-I", "-S", CLIENT], input=b"{}", capture_output=True, env=host.environ)
    assert outcome(done) == SILENT


@pytest.mark.parametrize("home", ["/dev/null/home", "/proc/nowhere", "file", "x" * 5000])
def test_hook_client_is_silent_without_a_writable_home(host: Host, home: str) -> None:
    if home == "file":
        home = str(host.home / "file" / "home")
        (host.home / "file").write_text("no folder")
    environ = {"TRISKELE_HOME": home}
    assert outcome(host.hook("stop", EVENT, deadline_ms="300", environ=environ, cwd=host.home)) == SILENT


def test_hook_client_is_silent_on_a_full_disk(host: Host) -> None:
    def fill() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    client.own_folder(host.address.run)
    done = host.hook("bad event", EVENT, preexec_fn=fill)
    assert outcome(done) == SILENT
    assert host.log() == "", "there was no room for it"


def test_hook_client_survives_a_closed_output(host: Host, listener: FakeResident) -> None:
    listener.answers = [said("x" * 200_000)]
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-I", "-S", CLIENT, "stop"]
    environ = {**host.environ, "TRISKELE_HOOK_DEADLINE_MS": "60000"}
    done = subprocess.run(command, input=EVENT, stdout=writing, stderr=subprocess.PIPE, env=environ)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_hook_log_is_bounded_and_owner_only(host: Host) -> None:
    path = Path(host.address.run) / "hook.log"
    for number in range(client.MAX_LOG // 500 + 20):
        client.log(host.address, f"{number} " + "x" * 1000)
    assert path.stat().st_size < client.MAX_LOG + 2000
    assert Path(f"{path}.old").exists() and path.stat().st_mode & 0o777 == 0o600
    assert len(list(path.parent.glob("hook.log*"))) == 2


def test_hook_log_follows_no_link(host: Host, tmp_path: Path) -> None:
    client.own_folder(host.address.run)
    (tmp_path / "letter").write_text("dear")
    (Path(host.address.run) / "hook.log").symlink_to(tmp_path / "letter")
    client.log(host.address, "x")
    assert (tmp_path / "letter").read_text() == "dear"


class Recorded:
    """Stands for a started process and tells how it was started."""

    seen: ClassVar[list[dict[str, Any]]] = []

    def __init__(self, command: list[str], **details: Any) -> None:
        self.seen.append({"command": command, **details})

    def poll(self) -> int:
        return 0


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    monkeypatch.setattr(subprocess, "Popen", Recorded)
    monkeypatch.setattr(Recorded, "seen", [])
    return Recorded.seen


def test_started_process_inherits_no_pipe_and_no_prompt(
    host: Host, started: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {**host.environ, "TRISKELE_PROJECT": "garden", "TRISKELE_STORE": "sqlite:///notes.db"}
    environ |= {"PYTHONPATH": "/tmp/of-a-project", "PYTHONUSERBASE": "/tmp/of-a-project"}
    monkeypatch.chdir("/tmp")
    with pytest.raises(client.NoAnswer, match="still starting"):
        client.ask(client.Address(environ), "stop", EVENT, time.monotonic() + 0.05, environ)
    (start,) = started
    assert start["command"][:-1] == [sys.executable, "-P", "-m", "triskele.edge.process.resident"]
    assert start["pass_fds"] == (int(start["command"][-1]),), "nothing is inherited but the lock on starting"
    assert start["stdin"] == start["stdout"] == subprocess.DEVNULL
    assert start["start_new_session"] is True and start["cwd"] == str(host.home)
    assert not start["env"].keys() & {"TRISKELE_PROJECT", "TRISKELE_STORE"}
    assert "of-a-project" not in repr(start)
    assert PROMPT not in repr(start)


@pytest.mark.parametrize("deadline_ms", ["", "50"])
def test_ask_waits_longer_while_a_process_starts_unless_told_otherwise(
    host: Host, monkeypatch: pytest.MonkeyPatch, deadline_ms: str
) -> None:
    begun: list[FakeResident] = []
    timer = threading.Timer(0.3, lambda: begun.append(FakeResident(host.address)))
    monkeypatch.setattr(client, "start", lambda *_: timer.is_alive() or timer.start() or True)
    monkeypatch.setattr(client, "COLD_DEADLINE_MS", 60_000.0)
    environ = {**host.environ, "TRISKELE_HOOK_DEADLINE_MS": deadline_ms}
    try:
        assert client.ask(host.address, "stop", EVENT, time.monotonic() + 0.05, environ) == (b"", False)
        assert not deadline_ms
    except client.NoAnswer:
        assert deadline_ms
    finally:
        timer.join()
        begun[0].close()


def test_ask_waits_longer_only_once_for_a_process_that_dies(
    host: Host, started: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "COLD_DEADLINE_MS", client.DEADLINE_MS + 2000)
    waited = []
    for age_s in (0, 0, 120):
        if started:
            os.utime(host.address.file("err"), (time.time() - age_s,) * 2)
        began = time.monotonic()
        with pytest.raises(client.NoAnswer, match="still starting"):
            client.ask(host.address, "stop", EVENT, began + 0.05, host.environ)
        waited.append(time.monotonic() - began >= 2)
    assert waited == [True, False, True]
    assert len(started) == 3, "each prompt tries to start it"


def test_ask_waits_longer_for_a_process_that_listens_since_a_moment(
    host: Host, listener: FakeResident, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "COLD_DEADLINE_MS", 60_000.0)
    path, ends = host.address.socket("http"), time.monotonic() - 1
    assert client.ask(host.address, "stop", EVENT, ends, host.environ) == (b"", False)
    os.utime(path, (time.time() - 60,) * 2)
    with pytest.raises(client.NoAnswer):
        client.ask(host.address, "stop", EVENT, ends, host.environ)


def test_ask_notices_an_outdated_resident(host: Host, listener: FakeResident, started: list[dict[str, Any]]) -> None:
    listener.answers = [said("old but good", more="X-Triskele-Outdated: yes\r\n"), said("new")]
    ends = time.monotonic() + 60
    assert client.ask(host.address, "stop", EVENT, ends, host.environ) == (b"old but good", True)
    assert client.ask(host.address, "stop", EVENT, ends, host.environ) == (b"new", False)
    assert started == []


def test_hook_client_writes_the_answer_of_an_outdated_resident(host: Host, listener: FakeResident) -> None:
    listener.answers = [said("old but good", more="X-Triskele-Outdated: yes\r\n")]
    Path(host.address.file("err")).mkdir()
    assert outcome(host.hook("stop", EVENT)) == (0, b"old but good", b"")
    assert "IsADirectoryError" in host.log()


def test_hook_client_runs_in_a_deleted_folder(host: Host, listener: FakeResident, tmp_path: Path) -> None:
    listener.answers = [said("yes")]
    gone = tmp_path / "gone"
    gone.mkdir()
    code = "import os, sys; os.rmdir(os.getcwd()); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    command = [sys.executable, "-c", code, "-I", "-S", CLIENT, "stop"]
    done = subprocess.run(command, input=EVENT, capture_output=True, env=host.environ, cwd=gone)
    assert outcome(done) == (0, b"yes", b"")


def test_start_starts_one_process_at_a_time(host: Host, started: list[dict[str, Any]]) -> None:
    client.own_folder(host.address.run)
    with file_lock(Path(host.address.file("starting")), timeout_s=0):
        assert not client.start(host.address, host.environ)
    assert started == []
    assert client.start(host.address, host.environ)


def test_start_reaps_ended_processes(host: Host, started: list[dict[str, Any]]) -> None:
    for _ in range(3):
        client.start(host.address, host.environ)
    assert len(started) == 3 and len(client._started) == 1


# The real resident with the real answers.


@pytest.fixture(scope="module")
def lively() -> Iterator[Host]:
    with tempfile.TemporaryDirectory(prefix="triskele-") as folder:
        made = Host(Path(folder) / "home")
        assert made.hook("stop", b"{}").returncode == 0
        yield made
        made.close()


WORDS = st.sampled_from(
    ["prompt", "session_id", "cwd", "source", "hook_event_name", "reason", "x" * 5000, "\ud800", "\0", ""]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=50) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=8,
)
PAYLOADS = st.binary(max_size=200) | st.builds(lambda value: json.dumps(value).encode(), VALUES)
EVENTS = st.sampled_from(["user-prompt-submit", "session-start", "pre-compact", "stop", "session-end", "nonsense"])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(event=EVENTS, body=PAYLOADS | st.dictionaries(WORDS, VALUES).map(lambda each: json.dumps(each).encode()))
def test_hook_client_never_fails(lively: Host, event: str, body: bytes) -> None:
    assert outcome(lively.hook(event, body)) == SILENT


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b"[" * 100_000, b"[]", b'"x"', b"nan", b'{"prompt": 1}', b'{"a":'])
def test_malformed_input_is_silent_and_harmless(lively: Host, body: bytes) -> None:
    assert outcome(lively.hook("user-prompt-submit", body)) == SILENT
    assert outcome(lively.hook("stop", b"{}")) == SILENT


def test_hook_log_quotes_no_prompt(lively: Host) -> None:
    for body in (EVENT, EVENT + b"}", EVENT[:-1]):
        lively.hook("user-prompt-submit", body)
        lively.hook("heron-nests", body)
    kept = "".join(path.read_text() for path in Path(lively.address.run).iterdir() if path.is_file())
    assert kept and PROMPT not in kept


Run = Callable[..., Any]


def test_hook_command_runs_the_same_client(program: Run, home: Path) -> None:
    (home / "file").parent.mkdir(exist_ok=True)
    assert program("hook", "no such event", stdin=EVENT) == program("hook", "NO", stdin=EVENT)
    assert program("hook", "no such event", stdin=EVENT).code == 0
    assert "unknown event name" in (home / "run" / "hook.log").read_text()
