"""The typed client over a real socket: the same values and the same errors as the engine itself."""

from __future__ import annotations

import gc
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result
from loopback_server import TOKEN, serving
from starlette.testclient import TestClient

import triskele
from triskele.edge.cli import agents
from triskele.edge.cli.invocation import Invocation
from triskele.edge.cli.main import cli
from triskele.edge.error_messages import KINDS, raised_again
from triskele.edge.http.app import Application, ListenerRules
from triskele.edge.http.client import RemoteEngine
from triskele.edge.http.connections import POSITION_HEADER, ServerConnection
from triskele.edge.http.problems import problem_of
from triskele.engine.local import LocalEngine
from triskele.errors import (
    AccessDenied,
    AmbiguousId,
    BadInput,
    Conflict,
    NotFound,
    StoreClosed,
    TriskeleError,
    Unavailable,
)
from triskele.types import Answer, LinkKind, Sensitivity

pytestmark = pytest.mark.slow

PROJECT = "garden"


@pytest.fixture
def url(application: Application) -> Iterator[str]:
    with serving(application, lambda port: ListenerRules.local(TOKEN, port)) as address:
        yield address


@pytest.fixture
def remote(url: str) -> Iterator[RemoteEngine]:
    with triskele.connect(url, TOKEN, project=PROJECT) as memory:
        yield memory


def test_remote_engine_sends_the_position_of_its_last_write() -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers.get(POSITION_HEADER, ""))
        return httpx.Response(200, json=[], headers={POSITION_HEADER: "0/1A"} if len(asked) == 1 else {})

    with RemoteEngine(ServerConnection("http://localhost", TOKEN, transport=httpx.MockTransport(answer))) as memory:
        memory.remember_all([])
        memory.acting_as("client:codex").remember_all([])
        memory.remember_all([])
    assert asked == ["", "0/1A", "0/1A"]


def untimed(answer: Answer) -> Answer:
    return replace(answer, took_ms=0.0)


def test_remote_engine_returns_the_values_of_the_engine(remote: RemoteEngine, engine: LocalEngine) -> None:
    outcome = remote.remember(
        "We deploy with Argo CD", category="decisions", tags=("deploy",), valid_from=datetime(2024, 5, 1, tzinfo=UTC)
    )
    other = remote.remember("Releases reach the cluster on Fridays", sensitivity=Sensitivity.PRIVATE)
    assert remote.get(outcome.id) == engine.get(outcome.id)
    assert engine.get(outcome.id).project == PROJECT
    assert remote.get(outcome.id[:12]) == engine.get(outcome.id)
    assert remote.link(outcome.id, LinkKind.SEE_ALSO, other.id).action == "linked"
    assert remote.get(outcome.id).links == engine.get(outcome.id).links != ()
    question = "how do releases reach the cluster?"
    assert remote.recall(question).fit == "good" and remote.recall("zebra").fit == "none"
    assert untimed(remote.recall(question, limit=5)) == untimed(engine.answer(question, limit=5))
    dated = datetime(2024, 6, 1, tzinfo=UTC)
    assert untimed(remote.recall(question, as_of=dated)) == untimed(engine.answer(question, as_of=dated))
    assert remote.why_not(outcome.id, "cluster", limit=1) == engine.why_not(outcome.id, "cluster", limit=1)
    assert remote.browse(sort="importance", facets=True) == engine.browse(sort="importance", facets=True)
    assert [memory.id for memory in remote.browse(tags=["deploy"]).memories] == [outcome.id]
    remote.edit(outcome.id, content="We deploy with Flux", valid_from=None)
    assert remote.journal(id=outcome.id) == engine.journal(id=outcome.id)
    assert remote.lookup([outcome.id, "1" * 16]) == engine.lookup([outcome.id])
    assert remote.shorten([outcome.id]) == engine.shorten([outcome.id])
    assert [each.action for each in remote.forget(outcome.id, other.id)] == ["forgotten", "forgotten"]
    assert [each.action for each in remote.restore(other.id)] == ["restored"]
    assert remote.stats() == engine.stats()
    assert remote.undo(dry_run=True) == engine.undo(project=PROJECT, dry_run=True)
    assert {each.action for each in remote.undo().outcomes} == {"forgotten"}
    newer = remote.remember("We deploy with Argo", supersedes=outcome.id)
    assert remote.get(newer.id) == engine.get(newer.id)
    assert remote.unlink(outcome.id, LinkKind.SEE_ALSO, other.id).action == "unlinked"
    assert remote.erase(newer.id).outcomes[0].action == "erased"


def test_remote_engine_tells_null_from_absent(remote: RemoteEngine, engine: LocalEngine) -> None:
    id = remote.remember("Nobody waters the fern", speaker="Ada", role="user").id
    remote.edit(id, importance=0.9)
    assert (engine.get(id).speaker, engine.get(id).role) == ("Ada", "user")
    remote.edit(id, role=None)
    assert (engine.get(id).speaker, engine.get(id).role) == ("Ada", None)


def test_remote_rooms_return_the_values_of_the_engine(remote: RemoteEngine, engine: LocalEngine) -> None:
    for text in ("Argo CD deploys the shop", "Argo CD runs on Kubernetes", "The shop is deployed with Helm"):
        remote.remember(text)
    newer = remote.remember("The shop is no longer deployed with Helm").id
    assert remote.related(id=newer) == engine.related(id=newer) != []
    assert remote.concepts.show("Argo CD", all_projects=True) == engine.concepts.show("Argo CD", all_projects=True)
    assert remote.concepts.overview() == engine.concepts.overview()
    around = {"concept": "Argo CD", "most": 20}
    assert remote.concepts.neighbourhood(**around) == engine.concepts.neighbourhood(**around)
    ends = ("Argo CD", "Kubernetes")
    assert remote.concepts.path(*ends, all_projects=True) == engine.concepts.path(*ends, all_projects=True)
    assert remote.concepts.merge("Kubernetes", "Argo CD").names
    assert remote.concepts.split("Kubernetes").names
    assert remote.curation.proposals() == engine.curation.proposals()
    with pytest.raises(BadInput, match="belongs to one person"):
        remote.sharing.shares()


def test_remote_engine_stores_batches_reveals_and_transfers(
    remote: RemoteEngine, engine: LocalEngine, tmp_path: Path
) -> None:
    outcomes = remote.remember_all([{"content": f"fact number {number}"} for number in range(3)])
    assert len({each.batch for each in outcomes}) == 1
    secret = remote.remember("The staging database password is hunter2-Rk4T9w")
    assert remote.reveal(secret.id).text == "The staging database password is hunter2-Rk4T9w"
    target = tmp_path / "all.jsonl"
    remote.export_memories(target, private=True, with_secrets=True)
    engine.erase(*(each.id for each in outcomes), secret.id)
    report = remote.import_memories(target, keep_origin=True)
    assert (report.added, report.secrets) == (4, 1)
    assert engine.reveal(secret.id).text.endswith("hunter2-Rk4T9w")
    with pytest.raises(FileExistsError):
        remote.export_memories(target)


def test_remote_engine_raises_the_errors_of_the_engine(remote: RemoteEngine) -> None:
    first = remote.remember("one fact").id
    remote.remember("another fact")
    with pytest.raises(NotFound, match="no memory starts with"):
        remote.get("zzzzzzzz")
    with pytest.raises(AmbiguousId):
        remote.get(first[:4])
    with pytest.raises(BadInput, match="the limit is") as refused:
        remote.remember("too long " * 400)
    assert refused.value.remedy == "split"
    with pytest.raises(Conflict, match="not forgotten"):
        remote.restore(first)
    with pytest.raises(BadInput, match="lmit"):
        remote.recall("x", lmit=1)
    with pytest.raises(BadInput, match="run it there"):
        remote.upkeep.backup(Path("x"))


@pytest.mark.parametrize("name", KINDS)
def test_every_error_class_survives_http(name: str) -> None:
    kind, status = KINDS[name]
    problem = problem_of(kind("what happened", remedy="what helps"))
    assert problem.status == status
    from dataclasses import asdict
    from json import dumps

    again = raised_again(status, dumps(asdict(problem)).encode(), "")
    assert type(again) is kind and (str(again), again.remedy) == ("what happened", "what helps")


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b'{"type": 5}'])
def test_remote_engine_raises_on_other_error_bodies(body: bytes) -> None:
    assert isinstance(raised_again(502, body, "Bad Gateway"), Unavailable)
    assert isinstance(raised_again(403, body, "Forbidden"), AccessDenied)


def test_connect_with_a_wrong_key_is_denied(url: str) -> None:
    with triskele.connect(url, "another") as memory, pytest.raises(AccessDenied, match="wrong, expired or revoked"):
        memory.stats()


def test_remote_engine_raises_unavailable_without_a_server() -> None:
    with triskele.connect("http://127.0.0.1:1", "k") as memory, pytest.raises(Unavailable, match="does not answer"):
        memory.stats()
    page = httpx.MockTransport(lambda _: httpx.Response(200, text="<html>hello</html>"))
    with pytest.raises(Unavailable, match="triskele server"):
        RemoteEngine(ServerConnection("http://localhost", "k", transport=page)).stats()


@pytest.mark.parametrize(
    "address", ["memory.example.com", "ftp://x", "http://memory.example.com", "https://u:p@x", "https://x?y", ""]
)
def test_connect_refuses_unsafe_addresses(address: str) -> None:
    with pytest.raises(BadInput):
        triskele.connect(address, "k")


@pytest.mark.parametrize("key", ["", "two words", "line\n", "ключ"])
def test_connect_refuses_invalid_keys(key: str) -> None:
    with pytest.raises(TriskeleError, match="copy it again"):
        triskele.connect("https://memory.example.com", key)


Run = Callable[..., Result]


@pytest.fixture
def run(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command on a machine whose settings name the server."""
    home, work = tmp_path / "laptop", tmp_path / "shop"
    home.mkdir()
    (work / ".git").mkdir(parents=True)
    key = home / "server.key"
    key.write_text(TOKEN + "\n")
    key.chmod(0o600)
    (home / "config.toml").write_text(f'[server]\nurl = "{url}"\n')
    monkeypatch.setenv("TRISKELE_HOME", str(home))
    monkeypatch.chdir(work)
    return lambda *arguments, **options: CliRunner().invoke(cli, list(arguments), prog_name="triskele", **options)


def test_add_names_contradictions_over_a_server(run: Run, engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    older = json.loads(run("add", "The shop is deployed with Helm", "--json").stdout)["id"]
    newer = run("add", "The shop is no longer deployed with Helm")
    assert newer.exit_code == 0, newer.output
    assert f"It may replace {older[:8]}" in newer.output and "supersedes" in newer.output
    # At a terminal the question comes first; here the answer is to replace it.
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
    replaced = run("add", "The shop is deployed with Argo CD, not with Helm", input="replace\n")
    assert replaced.exit_code == 0, replaced.output
    assert engine.superseded([older]) == {older}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["add", "x", "--importance", "7"], "importance must be between 0 and 1, not 7"),
        (["show", "a"], "no memory"),
        (["add", "x", "--project", "p" * 300], "the project is longer than 200 characters"),
    ],
)
def test_remote_engine_refuses_bad_values_as_the_engine_does(run: Run, arguments: list[str], words: str) -> None:
    refused = run(*arguments)
    assert refused.exit_code == 2 and words in refused.stderr, refused.output
    assert "Input should" not in refused.stderr and "String should" not in refused.stderr


def test_validation_errors_use_the_sentences_of_the_engine(api: TestClient) -> None:
    def complaint(path: str, **body: object) -> str:
        answer = api.post(path, json=body)
        assert answer.status_code == 422
        return str(answer.json()["detail"])

    assert complaint("/v1/memories", content="") == "the memory is empty"
    assert complaint("/v1/memories", content="x", importance=7) == "importance must be between 0 and 1, not 7"
    assert complaint("/v1/recall", text="x", limit=0) == "limit must be between 1 and 200, not 0"
    assert complaint("/v1/links", source="zz", kind="see-also", target="!!").startswith("no memory")
    assert complaint("/v1/memories", content="x", importance="high") == "importance must be a number, not a text"
    # Of another type than any value that the engine sees: the schema says so.
    assert complaint("/v1/memories", content="x", colour="red").startswith("colour: ")
    assert "by its id" in complaint("/v1/related", id="zzzzzzzz", content="x")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("category", "shopping"),
        ("category", "c" * 300),
        ("tags", ["t" * 600]),
        ("keywords", "k" * 600),
        ("importance", -1),
        ("position", -1),
        ("speaker", "s" * 300),
        ("session", "s" * 300),
        ("project", "p" * 300),
        ("role", "boss"),
        ("sensitivity", "hidden"),
        ("origin", "the moon"),
        ("valid_from", "d" * 200),
        ("created_at", "some day"),
        ("supersedes", "!!!!!"),
        ("title", "t" * 300),
    ],
)
def test_add_over_a_server_is_refused_as_locally(
    remote: RemoteEngine, engine: LocalEngine, field: str, value: Any
) -> None:
    with pytest.raises(BadInput) as local:
        engine.remember("Herons fish at dawn", **{field: value})
    with pytest.raises(BadInput, match=f"^{re.escape(str(local.value))}$"):
        remote.remember("Herons fish at dawn", **{field: value})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("limit", 900),
        ("budget", 0),
        ("category", "shopping"),
        ("since", "d" * 200),
        ("as_of", "some day"),
        ("legs", ["lexical", "smell"]),
        ("fusion", "alchemy" * 100),
        ("rerank", "alchemy"),
        ("order", "alchemy"),
        ("near", "!!!!!"),
    ],
)
def test_recall_over_a_server_is_refused_as_locally(
    remote: RemoteEngine, engine: LocalEngine, option: str, value: Any
) -> None:
    with pytest.raises(BadInput) as local:
        engine.recall("herons", **{option: value})
    with pytest.raises(BadInput, match=f"^{re.escape(str(local.value))}$"):
        remote.recall("herons", **{option: value})


def test_commands_ask_the_server_of_the_settings(
    run: Run, url: str, engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = json.loads(run("add", "Argo CD deploys the shop", "--tags", "deploy", "--json").stdout)
    assert engine.get(added["id"]).project == "shop"
    assert json.loads(run("recall", "what deploys the shop?", "--json").stdout)["hits"][0]["id"] == added["id"]
    assert "Argo CD deploys the shop" in run("recall", "deploys", "--explain").stdout
    assert "Argo CD" in run("show", added["id"]).stdout
    assert added["id"][:8] in run("list").stdout
    assert json.loads(run("list", "--json").stdout)["memories"][0]["id"] == added["id"]
    assert run("forget", added["id"]).exit_code == 0 and engine.get(added["id"]).known_to is not None
    refused = run("doctor")
    assert refused.exit_code == 2 and "run it there" in refused.stderr
    assert not (tmp_path / "laptop" / "memories.db").exists()
    # The key of the file is not for a server that a variable names.
    monkeypatch.setenv("TRISKELE_SERVER", "https://evil.example")
    assert "TRISKELE_KEY" in run("list").stderr
    monkeypatch.setenv("TRISKELE_SERVER", url)
    monkeypatch.setenv("TRISKELE_KEY", TOKEN)
    assert run("list").exit_code == 0


def test_recall_over_a_server_names_no_local_command(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = RemoteEngine.recall
    monkeypatch.setattr(RemoteEngine, "recall", lambda *words, **options: replace(asked(*words, **options), waiting=2))
    run("add", "Argo CD deploys the shop")
    said = run("recall", "what deploys the shop?").stdout
    assert "2 memories are not embedded yet, so only keywords find them." in said and "reindex" not in said


def test_empty_question_finds_nothing_over_a_server(run: Run, remote: RemoteEngine) -> None:
    run("add", "Argo CD deploys the shop")
    answer = run("recall", "")
    assert answer.exit_code == 0 and "The question is empty" in answer.stdout
    assert remote.recall("").hits == ()


def test_new_key_counts_at_the_next_request(run: Run, tmp_path: Path) -> None:
    assert run("list").exit_code == 0
    key, settings = tmp_path / "laptop" / "server.key", tmp_path / "laptop" / "config.toml"
    key.write_text("tsk_of_nobody")
    engine = agents._LazyEngine(Invocation())
    refused = engine.open_engine()
    with pytest.raises(AccessDenied):
        refused.stats()
    key.write_text(TOKEN)
    assert engine.open_engine().stats().memories == 0
    assert engine.open_engine() is engine.open_engine()
    # A request that still runs keeps what it began with; the last one closes it.
    with pytest.raises(AccessDenied):
        refused.stats()
    connections = refused.connection._http  # type: ignore[attr-defined]
    del refused
    gc.collect()
    for thread in [each for each in threading.enumerate() if each.name == "triskele-retire"]:
        thread.join()
    assert connections.is_closed
    settings.write_text("[agents]\nbudget_tokens = many\n")
    with pytest.raises(BadInput, match="cannot read the settings"):
        engine.open_engine()
    settings.write_text("")
    assert isinstance(engine.open_engine(), LocalEngine)
    engine.close()
    with pytest.raises(StoreClosed):
        engine.open_engine()


def test_closed_remote_engine_raises_store_closed(url: str, tmp_path: Path) -> None:
    with triskele.connect(url, TOKEN, project=PROJECT) as memory:
        other = memory.acting_as("client:codex")
    calls: tuple[Callable[[], object], ...] = (
        lambda: memory.recall("herons"),
        lambda: other.remember("Herons fish at dawn"),
        lambda: memory.export_memories(tmp_path / "all.jsonl"),
        lambda: memory.import_memories(tmp_path / "all.jsonl"),
        memory.__enter__,
    )
    for call in calls:
        with pytest.raises(StoreClosed, match="is closed: connect again"):
            call()
    memory.close()


def test_remote_engine_refuses_other_types_as_the_engine_does(remote: RemoteEngine) -> None:
    kept = remote.remember("Herons fish at dawn").id
    nothing: Any = None
    one_text = "must be a list of texts, not a text"
    calls: tuple[tuple[Callable[[], object], str], ...] = (
        (lambda: remote.remember("Otters fish", tags="abc"), one_text),
        (lambda: remote.edit(kept, tags="abc"), one_text),
        (lambda: remote.recall("fish", tags="abc"), one_text),
        (lambda: remote.recall("fish", legs="foo"), one_text),
        (lambda: remote.why_not(kept, "fish", legs="foo"), one_text),
        (lambda: remote.browse(tags="abc"), one_text),
        (lambda: remote.remember(nothing), "the memory must be a text, not None"),
        (lambda: remote.remember_all(["abc"]), "must be a dictionary"),  # type: ignore[list-item]
        (lambda: remote.recall(nothing), "the question must be a text, not None"),
        (lambda: remote.recall("fish", limit="a"), "limit must be a whole number, not a text"),
        (lambda: remote.recall("fish", category=["a"]), "the category must be a text, not list"),
        (lambda: remote.browse(sort="newest"), "unknown sort 'newest'"),
        (lambda: remote.get(nothing), "an id must be a text, not None"),
        (lambda: remote.link(kept, "near", kept), "unknown kind of link 'near'"),
        (lambda: remote.export_memories(nothing), "not the path of a file"),
        (lambda: remote.import_memories(nothing), "not the path of a file"),
    )
    for call, said in calls:
        with pytest.raises(BadInput, match=said):
            call()
    assert remote.stats().memories == 1 and len(remote.journal(id=kept).versions) == 1


def test_remote_engine_accepts_names_and_paths_as_text(
    remote: RemoteEngine, engine: LocalEngine, tmp_path: Path
) -> None:
    heron, otter = (remote.remember(text).id for text in ("Herons fish at dawn", "Otters fish at night"))
    remote.link(heron, "see-also", otter)
    assert [link.kind for link in engine.get(heron).links] == [LinkKind.SEE_ALSO]
    remote.unlink(heron, "see-also", otter)
    assert engine.get(heron).links == ()
    target = str(tmp_path / "all.jsonl")
    remote.export_memories(target)
    engine.erase(heron, otter)
    assert remote.import_memories(target).added == 2
