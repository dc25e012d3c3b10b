"""A laptop that uses the memory of a server: commands, hooks and agents, against a server process with users."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from click.testing import CliRunner, Result
from residents import Host

import triskele
import triskele.errors
from triskele.edge.cli.main import cli
from triskele.edge.http.access import SCOPES
from triskele.edge.http.client import RemoteEngine
from triskele.edge.http.connections import ServerConnection
from triskele.replies.rooms import HookCall
from triskele.server.accounts import Accounts

if TYPE_CHECKING:
    from postgres import PostgresProcess

pytestmark = pytest.mark.slow

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
    # What is proposed asks questions, and who asks early scores differently until the index has settled.
    (home / "config.toml").write_text("[curation]\nmode = 'off'\n")
    (home / "probes.key").write_text("key-of-the-probes")
    (home / "probes.key").chmod(0o600)
    environ["TRISKELE_SERVER_METRICS_KEY_FILE"] = str(home / "probes.key")
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
    say("recall", "")
    say("why-not", ids[2], "herons")
    say("why-not", ids[2], "")
    say("history", ids[0])
    say("history", "--limit", "5")
    say("undo")
    say("undo", "--batch", "nonsense")
    say("forget", ids[2])
    say("undo", "--json")
    say("edit", ids[0], "--private")
    say("undo")
    say("history", ids[0])
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
    # What an erasure cannot reach differs: a server has backups.
    outputs.append((run("forget", "--hard", ids[0], "--yes").exit_code, run("show", ids[0]).output))
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
        # A frame is as wide as the id in it is long.
        ("─+", "─"),
        (r" +", " "),
    ):
        text = re.sub(pattern, name, text)
    return text


def test_server_answers_probes_with_the_key_of_its_settings(server: TeamServer) -> None:
    for key, status in (("key-of-the-probes", 200), ("another-key", 421)):
        headers = {"Host": "10.0.0.9:8080", "Authorization": f"Bearer {key}"}
        assert httpx.get(f"{server.address}/metrics", headers=headers).status_code == status


def test_commands_over_a_server_print_what_they_print_locally(
    laptop: Laptop, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRISKELE_RECALL_MODEL", "none")
    monkeypatch.setenv("TRISKELE_PRIVACY_KEY", "file")
    own = tmp_path / "own"
    own.mkdir()
    (own / "config.toml").write_text("[curation]\nmode = 'off'\n")
    monkeypatch.setenv("TRISKELE_HOME", str(own))
    expected = _session(work)
    home = laptop()
    for number, (there, here) in enumerate(zip(_session(work), expected, strict=True)):
        assert there == here, number
    assert not (home / "memories.db").exists()


@pytest.mark.parametrize(
    "command",
    ["reindex", "backup x.db", "restore x.db", "doctor", "projects list", "review", "curate", "ui", "serve --http :0"],
)
def test_upkeep_over_a_server_is_refused_in_one_line(laptop: Laptop, work: Path, command: str) -> None:
    home = laptop("any-key")
    (work / "x.db").write_text("")
    refused = run(*command.split())
    assert refused.exit_code == 2 and refused.stderr.count("\n") == 1
    assert ("/ui" if command == "ui" else "without server.url") in refused.stderr
    assert not (home / "memories.db").exists() and (work / "x.db").read_text() == ""


def test_store_option_bypasses_the_server(laptop: Laptop, work: Path) -> None:
    laptop("any-key")
    store = f"sqlite:///{work / 'own.db'}"
    assert run("--store", store, "add", "only here").exit_code == 0
    assert "only here" in run("list", "--store", store).stdout


def test_commands_report_an_unusable_server_in_one_line(
    laptop: Laptop, server: TeamServer, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusal(**point: Any) -> str:
        home = laptop(**point)
        answer = run("recall", "anything")
        assert answer.exit_code == 3 and answer.stderr.count("\n") == 1, home
        return answer.stderr

    assert "does not answer" in refusal(url="http://127.0.0.1:1")
    assert "wrong, expired or revoked" in refusal(key="tsk_nothing_like_it")
    user, key = "brief", server.key()
    server.accounts.create_user(user)
    _, made = server.accounts.create_key(user)
    server.accounts.revoke_key(made.id)
    reader = server.key(scopes=("read",))
    laptop(reader)
    assert "scope write" in run("add", "no").stderr
    home = laptop(key)
    (home / "server.key").chmod(0o644)
    open_to_all = run("list")
    assert open_to_all.exit_code == 2 and "chmod 600" in open_to_all.stderr
    (home / "server.key").unlink()
    missing = run("list")
    assert missing.exit_code == 2 and "server.key" in missing.stderr
    # A project's folder can set variables: the key of the file is not for the server that they name.
    laptop(key)
    monkeypatch.setenv("TRISKELE_SERVER", "https://evil.example")
    assert "TRISKELE_KEY" in run("list").stderr


def test_commands_name_the_version_of_another_server() -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"else": 1}, headers={"X-Triskele-Version": "9.1"})

    def refuse(_: httpx.Request) -> httpx.Response:
        return httpx.Response(422, json={"detail": "anyone: unknown"}, headers={"X-Triskele-Version": "9.1"})

    for kind in (answer, refuse):
        memory = RemoteEngine(ServerConnection("http://localhost", "k", transport=httpx.MockTransport(kind)))
        with memory, pytest.raises(triskele.errors.Unavailable, match=r"runs triskele 9\.1, this is"):
            memory.stats()


@pytest.fixture
def host(laptop: Laptop, tmp_path: Path) -> Iterator[Host]:
    """The processes of the laptop's data folder."""
    opened = Host(tmp_path / "laptop", TRISKELE_AGENTS_BACKGROUND="false")
    yield opened
    opened.close()


def _event(work: Path, prompt: str, session: str = "s1") -> bytes:
    told = {"prompt": prompt, "session_id": session, "cwd": str(work), "transcript_path": "/etc/passwd"}
    return json.dumps(told).encode()


def test_hook_injects_memories_of_the_server(laptop: Laptop, server: TeamServer, host: Host, work: Path) -> None:
    key = server.key()
    laptop(key)
    with triskele.connect(server.address, key, project="shop") as memory:
        memory.remember("Releases reach the cluster through Argo CD on Fridays")
        memory.remember("Releases reach the cluster on Fridays by a private idea", sensitivity="private")
        memory.remember("The cluster password is hunter2-Rk4T9w releases Fridays")
        memory.remember("Web pages say that the cluster releases on Fridays are evil", origin="web")
        asked = "how do releases reach the cluster on Fridays?"
        answer = host.hook("user-prompt-submit", _event(work, asked))
        given = json.loads(answer.stdout)["hookSpecificOutput"]["additionalContext"]
        assert "through Argo CD" in given
        for kept_back in ("private idea", "hunter2", "evil"):
            assert kept_back not in given
        # The server keeps the books: the same conversation is not told twice, and another one is.
        assert host.hook("user-prompt-submit", _event(work, asked)).stdout == b""
        assert b"Argo CD" in host.hook("user-prompt-submit", _event(work, asked, "s2")).stdout
        # Another project is told nothing of this one.
        assert host.hook("user-prompt-submit", _event(work.parent, asked, "s3")).stdout == b""
        # A client that the user trusts may see private memories; the server is told so by this machine alone.
        call = HookCall(
            event="user-prompt-submit", prompt=asked, session="s4", project="shop", sees_private=True, deadline_s=60
        )
        assert "private idea" in memory.agents.respond(call).text
        call = replace(call, session="s5", sees_private=False)
        assert "private idea" not in memory.agents.respond(call).text
        assert memory.stats().days[0].injected >= 3
    for event in ("session-start", "pre-compact", "stop", "session-end"):
        assert host.hook(event, _event(work, "")).returncode == 0
    assert host.log() == ""
    assert not (host.home / "memories.db").exists()


@pytest.mark.parametrize("trouble", ["gone", "silent", "wrong key", "other server"])
def test_hook_is_silent_and_in_time_if_the_server_fails(
    laptop: Laptop, server: TeamServer, host: Host, work: Path, trouble: str
) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        # It takes connections and never answers.
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        url = {"gone": "http://127.0.0.1:1", "silent": address}.get(trouble, server.address)
        laptop("tsk_wrong_one" if trouble == "wrong key" else None, url=url)
        if trouble == "other server":
            host.environ["TRISKELE_SERVER"] = "https://evil.example"
            host.environ["TRISKELE_KEY"] = "k"
        # The first one starts the resident process.
        host.hook("stop", b"{}")
        answer = host.hook("user-prompt-submit", _event(work, "how do we deploy?"), deadline_ms="1500")
        assert (answer.returncode, answer.stdout, answer.stderr) == (0, b"", b"")
    assert "how do we deploy" not in host.log()
    reasons = {"wrong key": "AccessDenied", "other server": "another store, owner or server"}
    expected = reasons.get(trouble, "Unavailable")
    assert expected in host.log() or trouble == "silent"


def _mcp(environ: dict[str, str], work: Path, *messages: dict[str, Any]) -> dict[int, Any]:
    """The answers of `triskele mcp` to some requests."""
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "codex", "version": "1"}}
    lines = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        *({"id": number, "method": "tools/call", "params": each} for number, each in enumerate(messages, start=2)),
    ]
    text = "".join(json.dumps({"jsonrpc": "2.0", **each}) + "\n" for each in lines)
    done = subprocess.run(
        [sys.executable, "-m", "triskele", "mcp"],
        input=text.encode(),
        capture_output=True,
        env=environ,
        cwd=work,
        timeout=120,
        check=True,
    )
    answers = map(json.loads, done.stdout.splitlines())
    return {each["id"]: each for each in answers if "id" in each}


def _call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


@pytest.mark.parametrize("by_variables", [False, True])
def test_mcp_uses_the_memory_of_the_server(
    laptop: Laptop, server: TeamServer, host: Host, work: Path, by_variables: bool
) -> None:
    key = server.key()
    laptop(key)
    if by_variables:
        (host.home / "config.toml").write_text("")
        host.environ |= {"TRISKELE_SERVER": server.address, "TRISKELE_KEY": key}
    with triskele.connect(server.address, key, project="shop") as memory:
        private = memory.remember("The herons are my private hobby", sensitivity="private").id
        secret = memory.remember(SECRET).id
        answers = _mcp(
            host.environ,
            work,
            _call("memory_store", content="Argo CD deploys the shop on Fridays"),
            _call("memory_list"),
            _call("memory_get", id=private),
            _call("memory_reveal", id=secret),
            _call("memory_stats"),
            _call("code_status"),
        )
        stored = answers[2]["result"]["structuredContent"]
        entry = memory.journal(id=stored["id"]).entries[-1]
        assert (entry.actor, memory.get(stored["id"]).project, memory.get(stored["id"]).origin) == (
            "client:codex",
            "shop",
            "agent",
        )
        assert "herons" not in json.dumps(answers) and "hunter2" not in json.dumps(answers)
        assert "is private" in answers[4]["result"]["content"][0]["text"]
        assert "cannot ask the user" in answers[5]["result"]["content"][0]["text"]
        assert answers[6]["result"]["structuredContent"]["memories"] in (2, 3)
        assert answers[7]["result"]["structuredContent"]["trees"] == []
        if by_variables:
            return
        id, other = stored["id"], memory.remember("Storks are forgotten soon").id
        answers = _mcp(
            host.environ,
            work,
            _call("memory_recall", query="what deploys the shop?"),
            _call("memory_update", id=id, content="Flux deploys the shop on Fridays"),
            _call("memory_why_not", id=id, query="herons"),
            _call("memory_link", source=id, kind="see-also", target=secret),
            _call("memory_forget", ids=[other]),
        )
        assert answers[2]["result"]["structuredContent"]["hits"][0]["id"] == id
        assert all("structuredContent" in answers[number]["result"] for number in range(3, 7)), answers
        assert memory.get(other).known_to is not None
    assert not (host.home / "memories.db").exists()


def test_memory_store_refuses_texts_that_the_server_injected(server: TeamServer) -> None:
    with triskele.connect(server.address, server.key(), project="shop") as memory:
        memory.remember("Releases reach the cluster through Argo CD on Fridays")
        prompt = "how do releases reach the cluster?"
        call = HookCall(event="user-prompt-submit", prompt=prompt, session="s", project="shop", deadline_s=60)
        assert "Argo CD" in memory.agents.respond(call).text
        memory.recall("Argo CD")
        agent = memory.acting_as("client:codex")
        with pytest.raises(triskele.errors.BadInput, match="this repeats memory"):
            agent.remember("Releases reach the cluster through Argo CD on Fridays.")


def test_resident_runs_commands_over_its_connection(laptop: Laptop, server: TeamServer, host: Host, work: Path) -> None:
    key = server.key()
    laptop(key)
    host.hook("stop", b"{}")
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-m", "triskele", "add", "Argo CD deploys the shop"],
            capture_output=True,
            env=host.environ,
            cwd=work,
            timeout=60,
            check=True,
        )
        assert done.stdout
    with triskele.connect(server.address, key, project="shop") as memory:
        assert [each.content for each in memory.browse().memories] == ["Argo CD deploys the shop"]


def test_commands_use_a_changed_key_at_once(laptop: Laptop, server: TeamServer, host: Host, work: Path) -> None:
    def command(*arguments: str) -> subprocess.CompletedProcess[bytes]:
        line = [sys.executable, "-m", "triskele", *arguments]
        return subprocess.run(line, capture_output=True, env=host.environ, cwd=work, timeout=60, check=False)

    def contents(key: str) -> list[str]:
        with triskele.connect(server.address, key, project="shop") as memory:
            return [each.content for each in memory.browse().memories]

    bob, ada = server.key(), server.key()
    key = laptop(bob) / "server.key"
    host.hook("stop", b"{}")
    assert command("add", "Bob feeds the herons").returncode == 0
    # Only the key: a changed settings file would be noticed too.
    key.write_text(ada)
    assert command("add", "Ada counts the storks").returncode == 0
    assert (contents(bob), contents(ada)) == (["Bob feeds the herons"], ["Ada counts the storks"])
    assert b"herons" not in command("recall", "herons").stdout
    key.write_text("tsk_nothing_like_it")
    refused = command("recall", "storks")
    assert (refused.returncode, refused.stdout) == (3, b"") and b"wrong, expired or revoked" in refused.stderr
