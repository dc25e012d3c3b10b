"""A laptop that uses the memory of a server: commands, hooks and agents, against a server process with users."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from click.testing import CliRunner, Result
from residents import Host

import triskele
from triskele.serving.cli.main import cli
from triskele.serving.http.client import RemoteMemory
from triskele.stores.access_keys import SCOPES
from triskele.stores.postgres.accounts import Accounts

if TYPE_CHECKING:
    from postgres import PostgresProcess

SECRET = "The staging database password is hunter2-Rk4T9w"


class TeamServer:
    """A server process with users."""

    def __init__(self, address: str, accounts: Accounts) -> None:
        self.address = address
        self.accounts = accounts
        self._numbers = iter(range(1000))

    def key(self, *, scopes: tuple[str, ...] = SCOPES[:3]) -> str:
        """The key of a new user."""
        name = f"user{next(self._numbers)}"
        self.accounts.create_user(name)
        return self.accounts.create_key(name, scopes=scopes)[0]


@pytest.fixture(scope="module")
def server(postgres: PostgresProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TeamServer]:
    url = postgres.create_migrated()
    home = tmp_path_factory.mktemp("server")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TRISKELE_")}
    environ |= {"TRISKELE_HOME": str(home), "TRISKELE_STORE": url, "TRISKELE_RECALL_MODEL": "none"}
    environ |= {"TRISKELE_PRIVACY_KEY": "file", "TRISKELE_SERVER_REQUESTS_PER_MINUTE": "0"}
    command = [sys.executable, "-m", "triskele", "serve", "--http", "127.0.0.1:0", "--json"]
    accounts = Accounts(url)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environ) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline()]
            while lines[-1] not in (b"}\n", b""):
                lines.append(process.stdout.readline())
            yield TeamServer(json.loads(b"".join(lines))["http"], accounts)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
            accounts.close()
            postgres.drop(url)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a project, which is the working folder."""
    folder = tmp_path / "shop"
    (folder / ".git").mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


Laptop = Callable[..., Path]


@pytest.fixture
def laptop(server: TeamServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laptop:
    """Points this machine at the server by the settings file, with a key of mode 600."""

    def point(key: str | None = None, *, url: str | None = None) -> Path:
        home = tmp_path / "laptop"
        home.mkdir(exist_ok=True)
        (home / "config.toml").write_text(f'[server]\nurl = "{url or server.address}"\n[agents]\nidle_minutes = 2\n')
        (home / "server.key").write_text(f"{key or server.key()}\n")
        (home / "server.key").chmod(0o600)
        monkeypatch.setenv("TRISKELE_HOME", str(home))
        return home

    return point


def run(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(cli, list(arguments), prog_name="triskele", input=text)


def read(*arguments: str) -> Any:
    answer = run(*arguments, "--json")
    assert answer.exit_code == 0, answer.output
    return json.loads(answer.stdout)


def _session(folder: Path) -> list[tuple[int, str]]:
    """What a day of commands prints, without what differs by chance."""
    outputs: list[tuple[int, str]] = []
    ids: list[str] = []

    def say(*arguments: str, text: str | None = None) -> Result:
        answer = run(*arguments, text=text)
        outputs.append((answer.exit_code, answer.output))
        return answer

    for content in ("Argo CD deploys the shop", "Argo CD deploys the shop", "Kafka carries the orders since May 2024"):
        ids.append(json.loads(run("add", content, "--json").stdout)["id"])
        say("add", content)
    say("add", SECRET)
    say("add", "-", "--split", text="One paragraph about herons.\n\nAnother one about storks.")
    say("add", "--everywhere", "Tests run on every push", "--tags", "ci,tests", "--importance", "0.9")
    say("edit", ids[0], "Flux deploys the shop")
    say("edit", ids[0], "--tags", "deploy", "--json")
    say("link", ids[0], "see-also", ids[2])
    say("show", ids[0])
    say("show", "zzzzzzzz")
    say("list")
    say("list", "--all-projects", "--sort", "importance", "--json")
    say("recall", "what deploys the shop?", "--explain")
    say("recall", "herons", "--json")
    say("recall", "nothing at all fits", "--project", "nowhere")
    say("why-not", ids[2], "herons")
    say("history", ids[0])
    say("history", "--limit", "5")
    say("undo")
    say("undo", "--batch", "nonsense")
    say("forget", ids[2])
    say("undo", "--json")
    notes = folder / "notes.jsonl"
    notes.write_text("".join(json.dumps({"content": f"imported fact {n}"}) + "\n" for n in range(205)))
    say("import", str(notes), "--dry-run", "--json")
    batch = json.loads(run("import", str(notes), "--json").stdout)["batch"]
    say("import", str(notes))
    say("undo", "--batch", batch, "--yes")
    say("import", str(folder / "missing.jsonl"))
    agents = folder / "AGENTS.md"
    agents.write_text("# Rules\n\n- Always run the tests before a commit\n- Never push to main\n")
    say("import", str(agents))
    target = folder / "all.jsonl"
    say("export", str(target), "--private")
    outputs.append((0, re.sub(r"\"seal.*", "", target.read_text())))
    target.unlink()
    say("export", "--current-only")
    counts = read("stats")
    # How many jobs wait is a matter of the moment.
    outputs.append((0, json.dumps({name: value for name, value in counts.items() if not isinstance(value, dict)})))
    outputs.append((run("stats").exit_code, " ".join(sorted(f"{name} {type(counts[name])}" for name in counts))))
    say("forget", "--hard", ids[2])
    return [(code, _plain(text)) for code, text in outputs]


def _plain(text: str) -> str:
    for pattern, name in (
        (r"\b([0-9a-f]{12}|1[0-9a-z]{7,15})\b", "ID"),
        (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?Z?", "TIME"),
        (r'"(took_ms|seq|undoes|bytes|position|waiting)": [\d.]+', "NUMBER"),
        (r"\b\d+([.,]\d+)? (ms|KB|MB)\b", "SIZE"),
        (r"(sqlite:|http:)//[^\s\"]+", "STORE"),
        (r'"(owner|store)": ?"[^"]*"', "OWNER"),
        (r"/\S*/(shop|laptop|own)", "PLACE"),
        (r" +", " "),
    ):
        text = re.sub(pattern, name, text)
    return text


def test_a_day_of_commands_prints_what_it_prints_on_a_store_of_ones_own(
    laptop: Laptop, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRISKELE_RECALL_MODEL", "none")
    monkeypatch.setenv("TRISKELE_PRIVACY_KEY", "file")
    monkeypatch.setenv("TRISKELE_CURATION_PROPOSE", "false")
    own = tmp_path / "own"
    own.mkdir()
    (own / "config.toml").write_text("[curation]\npropose = false\n")
    monkeypatch.setenv("TRISKELE_HOME", str(own))
    expected = _session(work)
    home = laptop()
    for number, (there, here) in enumerate(zip(_session(work), expected, strict=True)):
        assert there == here, number
    assert not (home / "memories.db").exists()
