"""Commands that the background process answers: the same output, and the rules of who may ask it."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from residents import Host, resident_in_thread

from triskele import config
from triskele.curation.curator import Curator
from triskele.edge.hook import client
from triskele.edge.http.client import RemoteEngine
from triskele.edge.process import command_line, connect
from triskele.edge.process.command_line import CommandLine
from triskele.edge.process.engine_host import EngineHost
from triskele.engine import local
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput, Conflict, NotAllowed, Unavailable, VaultLocked

pytestmark = pytest.mark.slow

Run = Callable[..., Any]
FailRequests = Callable[[str, OSError], None]
KNOWN = "We deploy the shop with Argo CD every Monday"
PROGRAM = [sys.executable, "-m", "triskele"]


@pytest.fixture
def resident(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineHost]:
    monkeypatch.setenv("TRISKELE_RECALL_MODEL", "none")
    with resident_in_thread() as host:
        yield host


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[RemoteEngine]:
    """The engines that commands opened in the background process."""
    engines: list[RemoteEngine] = []
    real = command_line.open_resident

    def open_resident(environ: Any) -> RemoteEngine | None:
        engine = real(environ)
        engines.extend([engine] if engine is not None else [])
        return engine

    monkeypatch.setattr(command_line, "open_resident", open_resident)
    return engines


@pytest.fixture
def fail_requests(monkeypatch: pytest.MonkeyPatch) -> FailRequests:
    """Fails requests to the background process whose line holds a text."""
    real = client.exchange

    def fail(part: str, error: OSError) -> None:
        def exchange(address: Any, line: str, *details: Any) -> Any:
            if part in line:
                raise error
            return real(address, line, *details)

        monkeypatch.setattr(client, "exchange", exchange)

    return fail


def timeless(output: str) -> str:
    return re.sub(r'took [\d.]+ ms|"took_ms": [\d.]+', "TOOK", output)


READS = (
    ["recall", "how do we deploy?", "--explain"],
    ["recall", "deploy", "--tag", "deploy", "--limit", "1"],
    ["recall", "nothing like that", "--project", "nowhere"],
    ["recall", ""],
    ["recall", "deploy " * 1000],
    ["recall", "x", "--since", "someday"],
    ["why-not", "ID", "herons"],
    ["show", "ID"],
    ["show", "zzzzzzzz"],
    ["show", "1"],
    ["list", "--all-projects", "--sort", "importance"],
    ["list", "--limit", "1000"],
    ["history", "ID"],
    ["history", "--limit", "1000"],
    ["stats"],
    ["graph", "show", "Argo CD"],
    ["graph", "path", "Argo CD", "Postgres"],
    ["graph", "stats"],
    ["secrets", "list"],
    ["review", "list"],
    ["review", "accept", "--above", "0.99"],
    ["forget", "ID,ID"],
    ["show", ""],
    ["show", "a/b"],
    ["history", "a/b"],
    ["recall", "д" * 11_500],
    ["undo", "--batch", "ffffffffffff"],
    ["add", KNOWN],
    ["edit", "ID", "--importance", "2"],
    ["link", "ID", "see-also", "ID"],
)


def test_commands_print_the_same_through_the_resident(
    run: Run, resident: EngineHost, opened: list[RemoteEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    id = run("add", KNOWN, "--tags", "deploy", "--json").json["id"]
    run("add", "The shop keeps its orders in Postgres", "--private")
    run("add", "The password of the build box is hunter2-Xy9!")
    for arguments in READS:
        for options in ([], ["--json"]):
            line = [id if word == "ID" else word for word in arguments] + options
            opened.clear()
            through = run(*line)
            assert len(opened) == 1, line
            resident.write_notes()
            with monkeypatch.context() as patches:
                patches.setattr(command_line, "open_resident", lambda _: None)
                alone = run(*line)
            assert (through.code, through.err) == (alone.code, alone.err), line
            assert timeless(through.out) == timeless(alone.out), line


def test_a_command_writes_as_the_user_in_the_project_of_its_folder(
    run: Run, resident: EngineHost, opened: list[RemoteEngine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("add", "Kept here", "--json").json["project"] == "shop"
    other = tmp_path / "elsewhere" / "shop"
    (other / ".git").mkdir(parents=True)
    monkeypatch.chdir(other)
    assert run("add", "Kept in another folder of this name", "--json").json["project"] != "shop"
    monkeypatch.setenv("TRISKELE_PROJECT", "named")
    assert run("add", "Kept by name", "--json").json["project"] == "named"
    assert len(opened) == 3
    assert {entry["actor"] for entry in run("history", "--json").json["entries"]} == {"user"}


def test_reveal_shows_the_user_a_secret(run: Run, resident: EngineHost) -> None:
    id = run("add", "The password of the build box is hunter2-Xy9!", "--json").json["id"]
    assert "hunter2-Xy9!" in run("secrets", "reveal", id).out


@pytest.mark.parametrize(
    ("arguments", "environ"),
    [
        (["recall", "deploy"], {"TRISKELE_RECALL_LIMIT": "3"}),
        (["recall", "deploy"], {"TRISKELE_MEMORY_OWNER": "someone"}),
        (["recall", "deploy"], {"TRISKELE_STORE": "sqlite:////dev/shm/other.db"}),
        (["recall", "deploy"], {"TRISKELE_KEY": "k"}),
        (["recall", "bad \udcff byte"], {}),
        (["recall", "д" * 20_000], {}),
        (["recall", "deploy"], {"TRISKELE_DEBUG": "1"}),
        (["recall", "deploy", "--store", "sqlite:////dev/shm/other.db"], {}),
        (["add", "-"], {}),
        (["add", "a text", "--split"], {}),
        (["add", "x" * 40_000], {}),
        (["forget", *["1kpn46"] * 101], {}),
        (["secrets", "reveal", "1kpn46"], {}),
        (["secrets", "seal", "1kpn46"], {}),
        (["export"], {}),
        (["projects", "list"], {}),
    ],
)
def test_a_command_that_the_resident_may_not_answer_opens_the_store(
    run: Run,
    resident: EngineHost,
    opened: list[RemoteEngine],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    environ: dict[str, str],
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    run(*arguments, stdin="")
    assert not opened


@pytest.fixture
def engine(open_engine: Callable[..., LocalEngine]) -> LocalEngine:
    return open_engine()


@pytest.fixture
def command(engine: LocalEngine) -> CommandLine:
    environ = {"TRISKELE_HOME": str(engine.settings.home), "TRISKELE_RECALL_MODEL": "none"}
    settings = config.load(environ)
    engine.settings = settings
    return CommandLine("/", environ)


def test_the_resident_refuses_another_version_key_or_settings(engine: LocalEngine, command: CommandLine) -> None:
    assert command.engine(engine).actor == "user"
    for name, value in (
        ("TRISKELE_KEY", "k"), ("TRISKELE_RECALL_LIMIT", "3"), ("TRISKELE_MEMORY_OWNER", "eve"),
        ("TRISKELE_SERVER", "https://x"), ("TRISKELE_PRIVACY_KEY", "passphrase"),
    ):  # fmt: skip
        with pytest.raises(Conflict):
            replace(command, environ={**command.environ, name: value}).engine(engine)
    with pytest.raises(Conflict):
        replace(command, version="0.0.9").engine(engine)
    with pytest.raises(BadInput):
        replace(command, folder="").engine(engine)
    named = {"TRISKELE_PROJECT": "named", "TRISKELE_AGENTS_BACKGROUND": "false"}
    assert replace(command, environ={**command.environ, **named}).engine(engine).project == "named"


@pytest.mark.parametrize("url", ["sqlite:///notes.db", "sqlite:///~/notes.db"])
def test_the_resident_refuses_a_store_address_that_depends_on_the_command(
    engine: LocalEngine, command: CommandLine, url: str
) -> None:
    environ = {**command.environ, "TRISKELE_STORE": url}
    engine.settings = config.load(environ)
    with pytest.raises(Conflict, match="address of the store"):
        replace(command, environ=environ).engine(engine)


def test_the_resident_refuses_commands_if_it_has_a_key_of_its_own(
    engine: LocalEngine, command: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRISKELE_KEY", "k")
    with pytest.raises(Conflict):
        command.engine(engine)


def test_a_command_survives_the_way_through_headers() -> None:
    command = CommandLine("/home/ädå/\udcff", {"TRISKELE_PROJECT": "läden\n"})
    assert all(value.isascii() and value.isprintable() for value in command.headers().values())
    assert CommandLine.of_headers(command.headers()) == command
    assert CommandLine.of_headers({}) is None


def test_other_listeners_take_no_commands(run: Run, resident: EngineHost) -> None:
    from anyio import run as run_async

    from triskele.edge.http.app import Guard, ListenerRules

    seen: list[object] = []

    async def app(scope: dict[str, object], *_: object) -> None:
        seen.append(scope["triskele.is_owner"])

    async def ask(rules: ListenerRules) -> None:
        scope = {"type": "http", "method": "POST", "path": command_line.PATH, "headers": [(b"host", b"localhost")]}
        await Guard(app, rules, lambda: None)(scope, None, None)  # type: ignore[arg-type]

    run_async(ask, ListenerRules.local())
    run_async(ask, ListenerRules(frozenset({"localhost"}), is_owner=True))
    assert seen == [False, True]


def test_without_a_resident_the_store_is_opened(run: Run, opened: list[RemoteEngine], home: Path) -> None:
    assert run("add", KNOWN).code == 0
    assert not opened


def test_a_locked_vault_lets_the_command_open_the_store(
    run: Run, resident: EngineHost, opened: list[RemoteEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = local.LocalEngine.apply

    def apply(engine: LocalEngine, *changes: Any, **details: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            raise VaultLocked("a passphrase is needed")
        return real(engine, *changes, **details)

    monkeypatch.setattr(local.LocalEngine, "apply", apply)
    assert run("add", "The password of the build box is hunter2-Xy9!", "--json").json["action"] == "added"
    assert len(opened) == 1


def test_a_resident_that_ends_before_it_answers_is_reported(
    run: Run, resident: EngineHost, fail_requests: FailRequests
) -> None:
    fail_requests("/v1/", ConnectionResetError())
    assert run("add", KNOWN).is_refused(3, "ended before it answered", "triskele history")


def test_a_request_that_no_resident_received_may_be_repeated(
    run: Run, resident: EngineHost, fail_requests: FailRequests
) -> None:
    fail_requests("/v1/", FileNotFoundError())
    assert run("add", KNOWN).is_refused(3, "nothing was sent", "run the command again")


def test_half_an_answer_is_reported_as_an_end(run: Run, resident: EngineHost, monkeypatch: pytest.MonkeyPatch) -> None:
    real = client.exchange

    def exchange(address: Any, line: str, *details: Any) -> Any:
        status, head, text = real(address, line, *details)
        return status, head, text[: len(text) // 2] if "/v1/memories" in line else text

    monkeypatch.setattr(client, "exchange", exchange)
    assert run("add", KNOWN).is_refused(3, "ended before it answered", "triskele history")


def test_add_succeeds_if_the_resident_ends_after_it_stored(
    run: Run, resident: EngineHost, fail_requests: FailRequests
) -> None:
    fail_requests("/v1/related", ConnectionResetError())
    assert run("add", KNOWN, "--json").json["action"] == "added"


def test_an_editor_asks_no_resident(run: Run, resident: EngineHost, opened: list[RemoteEngine]) -> None:
    id = run("add", KNOWN, "--json").json["id"]
    opened.clear()
    assert run("edit", id).is_refused(2, "nothing to change")
    assert not opened


def test_errors_of_the_resident_are_those_of_the_engine(resident: EngineHost, run: Run) -> None:
    engine = command_line.open_resident(os.environ)
    assert engine is not None
    with pytest.raises(NotAllowed), engine:
        raise NotAllowed
    with pytest.raises(Unavailable):
        engine.stats()
    with pytest.raises(BadInput):
        connect.store_of(engine)


# What only the owner of a store can do

UPKEEP = (
    "backup copy.db",
    "restore copy.db --yes",
    "reindex",
    "doctor --deep",
    "models list",
    "projects list",
    "projects rename shop store",
    "projects rename store shop",
    "curate",
    "learn talk.jsonl --dial strict",
    "sync --status",
    "graph rebuild",
    "graph extract --dry-run",
    "graph relations",
    "secrets rotate --renew",
    "export out.jsonl",
    "import out.jsonl",
    "export out.archive --format archive --private",
    "import out.archive --dry-run --keep-origin",
    "review list",
)


def test_upkeep_opens_the_store_beside_the_resident(run: Run, resident: EngineHost, opened: list[RemoteEngine]) -> None:
    run("add", "The password of the build box is hunter2-Xy9!")
    turn = {"type": "user", "sessionId": "s1", "message": {"role": "user", "content": "Remember that the lab closes"}}
    Path("talk.jsonl").write_text(json.dumps(turn) + "\n")
    for number, line in enumerate(UPKEEP):
        opened.clear()
        assert run(*line.split()).code == 0, line
        assert len(opened) == (line == "review list"), line
        text = f"Memory {number} is written after {line.split()[0]}"
        assert run("add", text, "--json").json["action"] == "added"
        assert text in run("recall", text, "--limit", "1").out
        assert len(opened) >= 2, line


# Related memories, about which `add` asks


def test_related_by_the_indexes_if_they_are_open(
    run: Run, resident: EngineHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("add", KNOWN)
    connect.store_of(resident.open_engine()).work_in_background()
    monkeypatch.setattr(Curator, "related_by_words", lambda *_: pytest.fail("reading every text takes longer"))
    assert "It repeats" in run("add", "We deploy the shop with Argo CD each Monday!").out


def test_related_by_words_until_the_indexes_are_open(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.remember(KNOWN)
    monkeypatch.setattr(Curator, "related", lambda *_: pytest.fail("it would open the indexes"))
    with LocalEngine(engine.settings, engine.settings.home) as fresh:
        [related] = fresh.related(content=f"{KNOWN}!")
    assert (related.memory.content, related.relation) == (KNOWN, "duplicate")


@pytest.mark.parametrize(("answer", "memories"), [("cancel", 1), ("keep", 2), ("replace", 2)])
def test_add_asks_at_a_terminal_about_what_the_resident_found(tmp_path: Path, answer: str, memories: int) -> None:
    host = Host(Path("/dev/shm") / f"trs-{os.getpid()}-{answer}")
    host.environ |= {"TRISKELE_PROJECT": "shop", "TRISKELE_AGENTS_BACKGROUND": "false"}
    try:
        pipe = subprocess.PIPE
        subprocess.run([*PROGRAM, "add", KNOWN], env=host.environ, check=True, capture_output=True, timeout=60)
        serving = host.spawn([*PROGRAM, "serve", "--json"], stdout=pipe, stdin=subprocess.DEVNULL)
        assert serving.stdout is not None
        while not serving.stdout.readline().startswith(b"}"):
            pass
        ours, theirs = pty.openpty()
        os.write(ours, f"{answer}\n".encode())
        command = [*PROGRAM, "add", f"{KNOWN}!"]
        done = subprocess.run(command, env=host.environ, stdin=theirs, stdout=theirs, stderr=pipe, timeout=60)
        os.close(theirs)
        os.close(ours)
        assert b"It repeats" in done.stderr and (b"nothing was added" in done.stderr) == (answer == "cancel")
        listed = subprocess.run([*PROGRAM, "list", "--json"], env=host.environ, capture_output=True, timeout=60)
        assert len(json.loads(listed.stdout)["memories"]) == memories
    finally:
        host.close()
