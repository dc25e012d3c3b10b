"""Sync as people run it: two laptops with their own stores and a server process, killed at chosen requests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from click.testing import CliRunner

from triskele import config
from triskele.edge.cli.main import cli
from triskele.edge.http.access import SCOPES
from triskele.edge.process import syncing
from triskele.edge.process.engine_host import EngineHost
from triskele.engine.local import LocalEngine
from triskele.server.accounts import Accounts

if TYPE_CHECKING:
    from postgres import PostgresProcess

pytestmark = pytest.mark.slow

_WAIT_S = 120.0


class ServerProcess:
    """A server with one user, which can be killed and started again."""

    def __init__(self, url: str, home: Path) -> None:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("TRISKELE_")}
        environ |= {"TRISKELE_HOME": str(home), "TRISKELE_STORE": url, "TRISKELE_RECALL_MODEL": "none"}
        self._environ = environ | {"TRISKELE_PRIVACY_KEY": "file", "TRISKELE_SERVER_REQUESTS_PER_MINUTE": "0"}
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "triskele", "serve", "--http", "127.0.0.1:0", "--json"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=self._environ)
        assert self.process.stdout is not None
        lines = [self.process.stdout.readline()]
        while lines[-1] not in (b"}\n", b""):
            lines.append(self.process.stdout.readline())
        self.address = json.loads(b"".join(lines))["http"]

    def end(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


Act = Callable[[], None]


class Proxy:
    """Stands between laptop and server; `before` and `after` are done at the request of that number."""

    def __init__(self, server: ServerProcess) -> None:
        self.before: dict[int, Act] = {}
        self.after: dict[int, Act] = {}
        self.count = 0
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def _forward(self) -> None:
                proxy.count += 1
                number = proxy.count
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
                if (act := proxy.before.get(number)) is not None:
                    act()
                try:
                    answer = httpx.request(
                        self.command, server.address + self.path, content=body, headers=headers, trust_env=False
                    )
                    if (act := proxy.after.get(number)) is not None:
                        act()
                        raise OSError("cut")
                    self.send_response(answer.status_code)
                    self.send_header("content-type", answer.headers["content-type"])
                    self.send_header("content-length", str(len(answer.content)))
                    self.end_headers()
                    self.wfile.write(answer.content)
                except (OSError, httpx.HTTPError):
                    self.close_connection = True

            do_GET = do_POST = _forward  # noqa: N815

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def database(postgres: PostgresProcess) -> Iterator[str]:
    url = postgres.create_migrated()
    yield url
    postgres.drop(url)


@pytest.fixture
def server(database: str, tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(database, tmp_path / "server")
    yield process
    process.end(signal.SIGTERM)


@pytest.fixture
def proxy(server: ServerProcess) -> Iterator[Proxy]:
    made = Proxy(server)
    yield made
    made.close()


@pytest.fixture
def laptop(database: str, proxy: Proxy, tmp_path: Path) -> Callable[[str], Path]:
    """Makes the data folder of a laptop of one user."""
    accounts = Accounts(database)
    accounts.create_user("ada")
    key = accounts.create_key("ada", scopes=SCOPES[:2])[0]
    accounts.close()

    def make(name: str) -> Path:
        home = tmp_path / name
        home.mkdir()
        (home / "config.toml").write_text(f'[sync]\nurl = "{proxy.url}"\nevery_s = 1\n[recall]\nmodel = "none"\n')
        (home / "sync.key").write_text(f"{key}\n")
        (home / "sync.key").chmod(0o600)
        return home

    return make


def started(home: Path, *arguments: str) -> subprocess.Popen[bytes]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TRISKELE_")}
    environ |= {"TRISKELE_HOME": str(home), "TRISKELE_AGENTS_BACKGROUND": "false"}
    command = [sys.executable, "-m", "triskele", *arguments, "--json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environ)


def run(home: Path, *arguments: str) -> tuple[int, Any]:
    process = started(home, *arguments)
    text, _ = process.communicate(timeout=_WAIT_S)
    return process.returncode, json.loads(text) if text else None


def say(home: Path, *arguments: str) -> tuple[int, Any]:
    """Run a command in this process."""
    answer = CliRunner(env={"TRISKELE_HOME": str(home)}).invoke(cli, [*arguments, "--json"], prog_name="triskele")
    return answer.exit_code, json.loads(answer.stdout)


@contextmanager
def opened(home: Path) -> Iterator[LocalEngine]:
    with LocalEngine(config.load({"TRISKELE_HOME": str(home), "TRISKELE_AGENTS_BACKGROUND": "false"}), home) as engine:
        yield engine


def texts(home: Path) -> list[str]:
    with opened(home) as engine:
        return sorted(each.content for each in engine.browse(all_projects=True, limit=200).memories)


@pytest.mark.slow
def test_sync_survives_kills_without_loss_or_duplicates(
    server: ServerProcess, proxy: Proxy, laptop: Callable[[str], Path]
) -> None:
    one, two = laptop("one"), laptop("two")
    written = [f"note {number:03}" for number in range(60)]
    with opened(one) as engine:
        for text in written:
            engine.remember(text)
    # The laptop is killed when the server has carried out its first push, and no reply has come.
    process = started(one, "sync")
    # The request before asks whose key it is.
    proxy.after[2] = process.kill
    assert process.wait(_WAIT_S) == -signal.SIGKILL
    assert process.stdout is not None
    process.stdout.close()
    # The server is killed when it has carried out the push, and then before it hears of another one.
    for when in (proxy.after, proxy.before):
        when[proxy.count + 1] = server.end
        code, said = run(one, "sync")
        assert code == 3 and "does not answer" in said["error"]
        code, said = run(one, "sync", "--status")
        assert code == 0 and "does not answer" in said["error"]
        server.start()
        with opened(one) as engine:
            written.append(f"note {len(written):03}")
            engine.remember(written[-1])
    code, said = run(one, "sync")
    assert (code, said["waiting"], said["conflicts"]) == (0, {}, [])
    assert run(two, "sync")[0] == 0
    assert texts(one) == texts(two) == written
    assert run(two, "sync")[1]["pulled"] == 0


def test_review_lists_and_resolves_sync_conflicts(laptop: Callable[[str], Path]) -> None:
    one, two = laptop("one"), laptop("two")
    id = say(one, "add", "the gate is green")[1]["id"]
    assert [say(home, "sync")[0] for home in (one, two)] == [0, 0]
    assert say(one, "edit", id, "the gate is red")[0] == 0
    assert say(two, "edit", id, "the gate is blue")[0] == 0
    assert say(one, "sync")[1]["conflicts"] == []
    assert say(two, "sync")[1]["conflicts"] == [id]
    [found] = say(two, "list", "--conflicts")[1]["conflicts"]
    assert (found["mine"]["content"], found["theirs"]["content"]) == ("the gate is blue", "the gate is red")
    assert say(two, "sync", "--resolve", id, "--keep", "mine")[0] == 0
    assert say(two, "sync")[1]["conflicts"] == [] and say(one, "sync")[0] == 0
    assert texts(one) == texts(two) == ["the gate is blue"]
    assert say(two, "sync", "--resolve", id, "--keep", "mine")[0] == 1


def test_doctor_names_server_and_last_sync(laptop: Callable[[str], Path]) -> None:
    home = laptop("one")
    say(home, "add", "the gate is green")
    [before] = say(home, "doctor")[1]["synced"]
    assert (before["at"], before["sent"], before["is_set"]) == (None, None, True)
    assert say(home, "sync")[1]["pushed"] == 1
    [found] = say(home, "doctor")[1]["synced"]
    state = say(home, "sync", "--status")[1]
    assert (found["url"], found["user"], found["at"]) == (state["url"], state["user"], state["at"])
    assert found["sent"] == 1
    assert say(home, "sync")[0] == 0 and say(home, "doctor")[1]["synced"][0]["sent"] == 1


def test_resident_syncs_by_itself(laptop: Callable[[str], Path], proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = laptop("one"), laptop("two")
    with opened(one) as engine:
        engine.remember("the owl hunts at dusk")
        syncing.sync(engine)
    monkeypatch.setenv("TRISKELE_HOME", str(two))
    ran = threading.Event()
    proxy.before[proxy.count + 3] = ran.set
    host = EngineHost(config.load({"TRISKELE_HOME": str(two)}))
    try:
        host.warm_up()
        # The third request of the host belongs to its second run: the first one has ended.
        assert ran.wait(_WAIT_S)
    finally:
        host.close()
    assert texts(two) == ["the owl hunts at dusk"]
