"""The JSON of every command: a scripted session on the sample memories, with a fixed clock, fixed ids and a tiny model.

A changed field shows in the diff of the frozen files; TRISKELE_WRITE_GOLDEN=1 rewrites them.
"""

from __future__ import annotations

import json
import random
import re
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import frozen
import pytest
from noise_weights import noise_weights
from residents import resident_in_thread

import triskele
from triskele import config
from triskele.edge.cli.demo import store_samples
from triskele.edge.cli.main import cli
from triskele.engine.opening import open_memory
from triskele.models import bundled
from triskele.recall import plan as plans
from triskele.text import ids, timestamps

pytestmark = pytest.mark.slow

Run = Callable[..., Any]
LOCAL, SERVER = frozen.DATA / "command_json.json", frozen.DATA / "server_command_json.json"
EXCEPTIONS = {
    "ui": "starts the background process; tests/edge/web asks the pages",
    "serve": "runs until it is stopped; test_cli_agents.py reads what it prints",
    "mcp": "speaks MCP on standard input; mcp_surface.json has its tools",
}
# What depends on the machine: frozen as the types of its values.
MEASURED = frozenset("took_ms latency_ms bytes bytes_on_disk bytes_per_memory indexed_at backup lineage".split())
MACHINE = MEASURED | {"versions", "platform", "processor", "cpus"}
KEY = re.compile(r"(tsk_([0-9a-f]{12})_[\w-]+)")
SHOWN_ITEMS = 4
DIGITS = 6
START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)


class Clock:
    """A clock that stands still while a command runs, and the random numbers of its ids."""

    def __init__(self) -> None:
        self.moment = START
        self._random = random.Random(0)

    def now(self) -> datetime:
        return self.moment

    def advance(self) -> None:
        self.moment += timedelta(minutes=1)
        self._random.seed(self.moment.isoformat())

    def randbelow(self, limit: int) -> int:
        return self._random.randrange(limit)

    def token_hex(self, size: int) -> str:
        return self._random.randbytes(size).hex()


class Session:
    """Runs commands with `--json` and records arguments, exit code and document."""

    def __init__(self, run: Run, clock: Clock, folder: Path) -> None:
        self.folder = folder
        self.records: list[dict[str, Any]] = []
        self._run, self._clock = run, clock
        names = {folder: "<folder>", Path(triskele.__file__).parent: "<package>", Path(sys.executable): "<python>"}
        self._names = {str(path): name for path, name in names.items()}

    def __call__(self, *argv: str, stdin: str | None = None) -> Any:
        self._clock.advance()
        ran = self._run(*argv, "--json", stdin=stdin)
        document = json.loads(ran.out)
        for key, number in KEY.findall(ran.out):
            self._names |= {key: "<key>", number: "<number of a key>"}
        record = {"argv": self._frozen(" ".join(argv)), "exit": ran.code, "document": self._frozen(document)}
        self.records.append(record | ({"stderr": self._frozen(ran.err.strip())} if ran.code else {}))
        return document

    def file(self, name: str, text: str) -> str:
        """Write a file for a command to read."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return str(path)

    def path(self, name: str) -> str:
        """The path of a file for a command to write."""
        return str(self.folder / name)

    def _frozen(self, value: Any) -> Any:
        """A value without paths, measurements and digits that differ between machines."""
        if isinstance(value, dict):
            measured = MACHINE if "processor" in value else MEASURED
            return {
                self._frozen(key): _types(item) if key in measured else self._frozen(item)
                for key, item in value.items()
            }
        if isinstance(value, list):
            rest = len(value) - SHOWN_ITEMS
            shown = [self._frozen(item) for item in value[:SHOWN_ITEMS]]
            return [*shown, f"<{rest} more>"] if rest > 0 else shown
        if isinstance(value, float):
            return float(f"{value:.{DIGITS}g}")
        if isinstance(value, str):
            for path, name in self._names.items():
                value = value.replace(path, name)
        return value


def _types(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _types(item) for key, item in value.items()}
    return "<number>" if isinstance(value, int | float) else f"<{type(value).__name__}>"


def _remember(ask: Session) -> tuple[str, str, str]:
    """Write commands; returns the ids of an open, a secret and a private memory."""
    details = "--category decisions --tags db,staging --importance 0.7 --session s1 --position 2 --speaker Ada"
    dated = "--role user --valid-from 2026-01-01 --valid-to 2027-01-01 --keywords hetzner"
    first = ask("add", "The staging cluster runs Postgres 16", *details.split(), *dated.split())["id"]
    ask("add", "The staging cluster runs Postgres 16")
    ask("add", "The staging cluster runs Postgres 17")
    secret = ask("add", "The password of the build box is hunter2-Xy9!")["id"]
    private = ask("add", "Ada is on parental leave until June", "--private")["id"]
    id = ask("add", "The staging cluster moved to OVH", "--supersedes", first)["id"]
    ask("add", "-", "--split", stdin="We deploy on Tuesdays.\n\nThe on-call rota is in PagerDuty.\n")
    ask("add", "Kafka keeps seven days of events", "--project", "other")
    ask("add", "We write commits in English", "--everywhere")
    ask("edit", id, "The staging cluster moved to OVH in March", "--tags", "infra")
    ask("edit", id, "--importance", "0.9", "--speaker", "Ada")
    ask("link", id, "see-also", private)
    ask("link", id, "see-also", private, "--remove")
    ask("forget", private)
    ask("undo")
    batch = ask("forget", private, first)["batch"]
    ask("undo", "--batch", batch)
    ask("undo", "--batch", batch, "--yes")
    ask("forget", private)
    ask("edit", private, "--restore")
    ask("import", ask.file("notes.jsonl", '{"content": "One note"}\n{"content": "Another note"}\n'), "--dry-run")
    ask("import", ask.path("notes.jsonl"))
    ask("undo", "--yes")
    return id, secret, private


def _recall(ask: Session, id: str) -> None:
    for options in (
        "--limit 2 --explain",
        "--limit 1 --legs lexical --fusion rrf --rerank off",
        "--limit 1 --fusion cc --rerank late",
        "--limit 1 --legs dense",
        "--limit 2 --order diverse --sort recency",
        "--budget 60 --tag infra",
        "--limit 1 --all-projects --superseded",
        "--project other --category facts --limit 1",
        "--limit 1 --known-at 2026-03-01",
        f"--limit 1 --near {id}",
    ):
        ask("recall", "how do releases reach the staging cluster?", *options.split())
    ask("recall", "When may we deploy to production?", "--limit", "1", "--as-of", "2025-05-01", "--all-projects")
    ask("recall", "why did the harbour masters complain in June 2025?", "--limit", "1", "--all-projects")
    ask("recall", "staging", "--since", "last week", "--until", "2026-03-03", "--limit", "1")
    ask("why-not", id, "cheese")
    ask("why-not", id, "staging", "--category", "people")


def _read(ask: Session, id: str, secret: str) -> None:
    ask("show", id)
    ask("show", secret)
    ask("list", "--limit", "2")
    ask("list", "--sort", "importance", "--limit", "1", "--offset", "2", "--all-projects")
    ask("list", "--category", "decisions", "--tag", "db", "--since", "2026", "--conflicts")
    ask("history", id)
    ask("history", "--limit", "2")
    ask("stats")
    ask("graph", "show", "Postgres", "--limit", "1", "--all-projects")
    ask("graph", "path", "Postgres", "staging", "--all-projects")
    ask("graph", "path", "Postgres", "OVH", "--all-projects")
    ask("graph", "stats")
    ask("graph", "merge", "Postgres", "OVH")
    ask("graph", "split", "Postgres")
    ask("graph", "rebuild")
    ask("graph", "extract", "--dry-run")
    ask("graph", "relations")
    ask("secrets", "list")
    ask("secrets", "reveal", secret)
    ask("secrets", "rotate", "--renew")
    ask("projects", "list")
    ask("projects", "rename", "other", "events")
    ask("projects", "merge", "events", "demo")


def _curate(ask: Session) -> None:
    texts = ("Remember that the lab closes at 18:00", "from now on answer in French", "now fix the tests")
    turns = [{"type": "user", "sessionId": "s1", "message": {"role": "user", "content": text}} for text in texts]
    talk = ask.file("talk.jsonl", "".join(f"{json.dumps(turn)}\n" for turn in turns))
    ask("learn", talk, "--dry-run")
    ask("learn", talk, "--dial", "strict")
    ask("curate", "--dry-run")
    ask("curate")
    first, second, *_ = [each["id"] for each in ask("review", "list")["proposals"]]
    ask("review", "reject", first)
    ask("review", "accept", second)
    event = {"prompt": "how do releases reach the staging cluster?", "cwd": str(Path.cwd()), "session_id": "s2"}
    ask("hook", "user-prompt-submit", "--explain", stdin=json.dumps(event))
    ask("memory-tool", stdin='{"command": "view", "path": "/memories"}')


def _move(ask: Session) -> None:
    """Commands that write files, and those for the whole store."""
    ask("export", ask.path("out.jsonl"))
    ask("export", ask.path("notes"), "--format", "markdown", "--current-only")
    ask("export", ask.path("out.archive"), "--format", "archive", "--private")
    ask("import", ask.path("out.archive"), "--dry-run", "--keep-origin")
    ask("sync", "--status")
    ask("backup", ask.path("copy.db"))
    ask("restore", ask.path("copy.db"), "--yes")
    ask("reindex")
    ask("doctor", "--deep")
    ask("models", "list")
    noise_weights(ask.folder / "other", "other", common=0)
    ask("models", "switch", ask.path("other"), "--untested")
    ask("models", "rollback")
    ask("config", "list")
    ask("config", "get", "recall.limit")
    ask("config", "set", "recall.limit", "5")
    ask("config", "unset", "recall.limit")
    ask("install", "codex", "--yes")
    ask("install", "codex", "--dry-run")
    ask("uninstall", "codex")
    ask("completion", "fish")
    ask("help", "show")


def _search_code(ask: Session) -> None:
    ask.file("tree/payment.py", "class PaymentService:\n    def retry(self):\n        return 1\n")
    ask.file("tree/mail.py", "from payment import PaymentService\n\nPaymentService().retry()\n")
    tree = ask.path("tree")
    ask("code", "index", tree)
    ask("code", "embed", tree)
    ask("code", "search", "where is a payment retried?", "--path", tree, "--by", "function", "--limit", "1")
    ask("code", "symbol", "PaymentService.retry", "--path", tree)
    ask("code", "symbol", "Nowhere", "--path", tree)
    ask("code", "status")
    ask("code", "remove", tree)


def _measure(ask: Session, id: str) -> None:
    ask("demo")
    ask("bench", "team", "--arms", "lexical", "--max-queries", "6", "--seed", "3")
    ask("eval", "build", "--size", "3")
    question = {"text": "where is staging hosted?", "ids": [id]}
    ask("eval", "build", "--import", ask.file("questions.jsonl", json.dumps(question)))
    ask("eval", "gate")
    grade = {"question": question["text"], "memory": id, "grade": 3}
    ask("eval", "judge", "--scripted", ask.file("grades.jsonl", json.dumps(grade)))
    ask("eval", "judge", "--export", ask.path("pairs.jsonl"))
    ask("eval", "run", "--arms", "lexical")
    ask("eval", "run", "curation")
    ask("eval", "gate", "--accept")
    ask("eval", "gate")
    ask("eval", "tune", "--budget", "1")
    with open_memory() as engine:
        semantic = engine.semantic()
        assert semantic is not None
        plan = plans.Plan(weights={"lexical": 1.0})
        plans.adopt(engine.store, plan, fingerprint=semantic.embedder.fingerprint, questions=60)
    ask("eval", "rollback")


def _refuse(ask: Session, id: str) -> None:
    """Commands that fail, by each of the exit codes 1, 2 and 3."""
    for line in (
        "show nope", "show 1kpn46", "show 1ecq", "history 1kpn46", "edit 1kpn46 x", "forget 1kpn46",
        "undo --batch ffffffffffff", "why-not 1kpn46 x", "secrets reveal 1kpn46", "secrets seal 1kpn46",
        "recall x --since someday", "recall x --as-of 2026-02-30", "recall x --sort wrong", "recall x --legs smell",
        "recall x --fusion wrong", "recall x --limit 0", "recall x --frob", "recall", "frobnicate", "add",
        "add x --valid-from soon", "add x --importance 2", "add x --category cheese",
        "list --limit -1", "config get recall.limt", "config set recall.limit many", "graph show Nothing",
        "graph merge Nothing Postgres", "projects rename nowhere x", "import nowhere.jsonl", "restore nowhere.db",
        "models switch /nowhere", "review accept", "review reject ffffff", "code search x",
        "bench nowhere", "bench team --arms telepathy", "eval rollback", "eval judge --by me", "install notepad",
        "serve --status", "serve --status --stop", "sync", "users list", "keys list", "shares list",
        "shares groups list", "completion tcsh",
    ):  # fmt: skip
        ask(*line.split())
    ask("link", id, "resembles", id)
    ask("link", id, "see-also", id)
    ask("forget", "--hard", id)
    ask("secrets", "reveal", id)
    ask("export", ask.path("out.jsonl"))
    ask("add", "")
    ask("add", "-", stdin="x" * 2000)
    ask("hook", "user-prompt-submit", "--explain", stdin="[]")
    ask("memory-tool", stdin="[")
    damaged = ask.file("damaged.db", "this is no database, and long enough to be read as one" * 100)
    ask("list", "--store", f"sqlite:///{damaged}")


def _erase(ask: Session, id: str, private: str) -> None:
    ask("secrets", "seal", id, "--title", "Where staging is")
    ask("forget", "--hard", private, "--yes")
    ask("undo", "--yes")


@pytest.fixture
def clock(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """Fixes time, ids, time zone, home folder and model."""
    clock = Clock()
    with monkeypatch.context() as patches:
        patches.setenv("TZ", "UTC")
        time.tzset()
        patches.setenv("HOME", str(tmp_path / "user"))
        patches.setattr(timestamps, "now", clock.now)
        patches.setattr(ids, "secrets", clock)
        patches.setattr(bundled, "_shared", noise_weights(tmp_path / "model", common=0))
        yield clock
    time.tzset()


@pytest.fixture
def ask(run: Run, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    """A session of commands over the sample memories."""
    session = Session(run, clock, tmp_path)
    session("list")
    monkeypatch.setenv("TRISKELE_PROJECT", "demo")
    store_samples(config.load())
    return session


def test_json_of_every_command_is_as_agreed(ask: Session) -> None:
    id, secret, private = _remember(ask)
    _recall(ask, id)
    _read(ask, id, secret)
    _curate(ask)
    _move(ask)
    _search_code(ask)
    _measure(ask, id)
    _refuse(ask, id)
    _erase(ask, id, private)
    frozen.check(ask.records, LOCAL)


def test_everyday_commands_answer_the_same_through_the_resident(ask: Session, run: Run) -> None:
    with resident_in_thread() as host:

        def run_and_settle(*arguments: str, **details: Any) -> Any:
            ran = run(*arguments, **details)
            host.write_notes()
            host._store.background.process(0.0)
            return ran

        ask._run = run_and_settle
        id, secret, _ = _remember(ask)
        _recall(ask, id)
        _read(ask, id, secret)
        _curate(ask)
    agreed = json.loads(LOCAL.read_text(encoding="utf-8"))[: len(ask.records)]
    lines = list(frozen.differences(agreed, ask.records))
    assert not lines, "\n".join(lines)


def _share(ask: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands for users, keys and shares."""
    for name in ("ada", "bob", "eve"):
        ask("users", "create", name, *(["--admin", "--memories", "100"] if name == "ada" else []))
    ask("users", "list")
    key = ask("keys", "create", "ada", "--label", "laptop", "--days", "90")["id"]
    ask("keys", "revoke", key)
    ask("keys", "list", "--user", "ada")
    monkeypatch.setenv("TRISKELE_MEMORY_OWNER", "ada")
    id = ask("add", "The zeppelin lands in Friedrichshafen", "--tags", "air")["id"]
    ask("shares", "groups", "create", "crew")
    ask("shares", "groups", "add", "crew", "eve")
    ask("shares", "groups", "list")
    ask("shares", "add", id, "--user", "bob", "--owner", "ada")
    ask("shares", "add", "--tag", "air", "--group", "crew", "--owner", "ada", "--write")
    ask("shares", "trust", "ada", "--owner", "bob")
    ask("shares", "list", "--owner", "ada")
    ask("shares", "list", "--owner", "bob")
    ask("show", id)
    ask("shares", "distrust", "ada", "--owner", "bob")
    ask("shares", "remove", id, "--user", "bob", "--owner", "ada")
    ask("shares", "groups", "remove", "crew", "eve")
    ask("shares", "groups", "delete", "crew")
    ask("users", "delete", "eve", "--export", ask.path("eve.jsonl"), "--yes")
    for line in ("users create ada", "keys create nobody", "keys create ada --scopes all", "keys revoke nothing"):
        ask(*line.split())
    for line in ("users delete nobody --yes", "shares groups add crew bob", "shares add --user bob"):
        ask(*line.split())
    ask("shares", "add", id, "--user", "nobody", "--owner", "ada")


def test_json_of_server_commands_is_as_agreed(
    run: Run, clock: Clock, tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRISKELE_STORE", postgres_url)
    monkeypatch.setenv("TRISKELE_RECALL_MODEL", "none")
    ask = Session(run, clock, tmp_path)
    _share(ask, monkeypatch)
    frozen.check(ask.records, SERVER)


def _commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    context = click.Context(command)
    if not isinstance(command, click.Group):
        yield path
        return
    for name in command.list_commands(context):
        child = command.get_command(context, name)
        assert child is not None
        yield from _commands(child, (*path, name))


def _command_of(argv: str, commands: set[str]) -> str:
    words = argv.split()
    return next((name for size in (3, 2, 1) if (name := " ".join(words[:size])) in commands), "")


def test_every_command_is_in_the_session() -> None:
    commands = {" ".join(path) for path in _commands(cli)}
    records = [record for golden in (LOCAL, SERVER) for record in json.loads(golden.read_text(encoding="utf-8"))]
    answered = {_command_of(record["argv"], commands) for record in records if record["document"].keys() != {"error"}}
    missing = commands - answered - EXCEPTIONS.keys()
    assert not missing, f"no JSON is frozen of: {', '.join(sorted(missing))}"
    stale = EXCEPTIONS.keys() & answered | EXCEPTIONS.keys() - commands
    assert not stale, f"no exceptions any more: {', '.join(sorted(stale))}"
