"""Recall over Postgres: the local corpus ranks as it does over a file, on any instance, and embeds nothing twice."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import resources
from pathlib import Path

import psycopg
import pytest

from triskele import config
from triskele.engine.local import LocalEngine
from triskele.index import worker
from triskele.index.lexical import LexicalIndex
from triskele.models.bundled import BundledEmbedder
from triskele.server.postgres import migrations
from triskele.types import Action, Add, Answer, Connect

Open = Callable[..., LocalEngine]


@pytest.fixture
def open_as(tmp_path: Path) -> Iterator[Open]:
    """Opens the engine of a store in a data folder of its own."""
    with ExitStack() as stack:

        def open_one(home: str, url: str, **own: str) -> LocalEngine:
            environment = {"TRISKELE_HOME": str(tmp_path / home), "TRISKELE_PROJECT": "demo", **own}
            return stack.enter_context(LocalEngine(config.load(environment, store_url=url), tmp_path))

        yield open_one


def _fill(target: LocalEngine, source: LocalEngine) -> None:
    """Copy truth from one store to another, in the same order."""
    target.apply([Add(memory, verbatim=True) for _, memory in source.store.versions()])
    target.apply([Connect(link) for link in source.store.all_links()])


def _questions() -> list[str]:
    """Every sixteenth question: all of them would take minutes."""
    lines = (resources.files("triskele.samples") / "team" / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines[::16]]


def _refuse(*_: object) -> None:
    raise AssertionError("a text was embedded again")


def _ranking(answer: Answer) -> list[tuple[str, float]]:
    return [(hit.memory.id, pytest.approx(hit.score, abs=1e-6)) for hit in answer.hits]


def test_stores_and_instances_rank_alike(
    open_as: Open, team_home: Path, tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(team_home, tmp_path / "file")
    by_file = open_as("file", f"sqlite:///{tmp_path / 'file' / 'memories.db'}")
    first = open_as("first", postgres_url)
    _fill(first, by_file)
    first.upkeep.embed()
    # A new instance has no index and no token vectors of its own.
    monkeypatch.setattr(BundledEmbedder, "encode_documents", _refuse)
    second = open_as("second", postgres_url)
    for question in _questions():
        options = {"limit": 50, "all_projects": True, "logged": False}
        expected = by_file.recall(question, **options)
        assert len(expected.hits) > 5
        for engine in (first, second):
            answer = engine.recall(question, **options)
            assert _ranking(answer) == [(hit.memory.id, hit.score) for hit in expected.hits], question
            assert answer.missing == expected.missing


def test_instances_see_writes_and_vectors_of_each_other(open_as: Open, postgres_url: str) -> None:
    first, second = open_as("first", postgres_url), open_as("second", postgres_url)
    for engine in (first, second):
        engine.recall("how is the service deployed?")
    outcome = first.remember("Releases go to the cluster by Argo CD")
    first.upkeep.embed()
    answers = [engine.recall("how do releases get to the cluster?") for engine in (first, second)]
    assert [[hit.memory.id for hit in answer.hits] for answer in answers] == [[outcome.id], [outcome.id]]
    assert answers[0].hits[0].score == pytest.approx(answers[1].hits[0].score, abs=1e-6)
    assert "late" in answers[1].hits[0].legs
    second.erase(outcome.id)
    assert [engine.recall("how do releases get to the cluster?").hits for engine in (first, second)] == [(), ()]


def test_unwritable_index_is_read_from_the_database(
    open_as: Open, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_as("first", postgres_url)
    texts = ["Anna waters the plants on Mondays", "Releases go out by Argo CD", "The printer is on the second floor"]
    for text in texts:
        first.remember(text)
    first.upkeep.embed()
    second = open_as("second", postgres_url)
    semantic = second.semantic()
    assert semantic is not None
    monkeypatch.setattr(type(semantic.tokens), "_has_caught_up", lambda _: False)
    answers = [
        [(hit.memory.id, hit.score) for hit in each.recall("who waters plants?").hits] for each in (first, second)
    ]
    assert answers[0] == answers[1] != []
    assert not semantic.tokens.path.exists()


def test_owners_have_separate_indexes(postgres_url: str, tmp_path: Path) -> None:
    folders = set()
    for owner in ("alice", "Alice", "alice ", "alice2"):
        environment = {"TRISKELE_HOME": str(tmp_path), "TRISKELE_MEMORY_OWNER": owner}
        with LocalEngine(config.load(environment, store_url=postgres_url), tmp_path) as engine:
            engine.remember(f"the words of {owner!r}")
            [hit] = engine.recall("the words").hits
            assert hit.memory.content == f"the words of {owner!r}"
            folders.add(engine._index_folder)
    assert len(folders) == 4


def test_erase_reaches_rows_and_files_of_every_instance(open_as: Open, postgres_url: str, tmp_path: Path) -> None:
    first, second = open_as("first", postgres_url), open_as("second", postgres_url)
    gone = first.remember("Zebrafinches nest in the Quillback tower")
    outcome = first.remember("Releases go out by Argo CD")
    first.upkeep.embed()
    question = "where do birds nest, how do releases go out?"
    for engine in (first, second):
        assert len(engine.recall(question).hits) == 2
        # Writes the files that few memories would not need yet.
        engine.upkeep.reindex()
    erasure = first.erase(gone.id)
    assert erasure.outcomes[0].action is Action.ERASED
    assert any("write-ahead log" in words for words in erasure.out_of_reach)
    assert any("replicas" in words for words in erasure.out_of_reach)
    with psycopg.connect(postgres_url) as connection:
        for table in migrations.OWNED:
            rows = connection.execute(f"SELECT * FROM triskele.{table}").fetchall()
            assert "uillback" not in str(rows) and (table == "journal" or gone.id not in str(rows)), table
        connection.execute("CREATE EXTENSION IF NOT EXISTS pgstattuple")
        sql = "SELECT dead_tuple_count FROM pgstattuple('triskele.versions')"
        assert connection.execute(sql).fetchall() == [(0,)]
    for engine in (first, second):
        assert [hit.memory.id for hit in engine.recall(question).hits] == [outcome.id]
        semantic = engine.semantic()
        assert semantic is not None
        for index in (semantic.dense, semantic.tokens):
            records = index._file.open(engine.store.epoch())
            assert records is not None and len(records.slots) == 1
    assert second.maintenance.is_scrubbed()


def _scores(engine: LocalEngine, question: str) -> list[tuple[str, float]]:
    return [(hit.memory.id, hit.score) for hit in engine.recall(question, limit=50, logged=False).hits]


def test_instances_give_equal_scores_once_flushed(
    open_as: Open, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "QUIET_S", 0.05)
    monkeypatch.setattr(worker, "LEASE_S", 0.05)
    question = "which heron fishes in the long river?"
    monkeypatch.setattr(LexicalIndex, "tail_cap", 4)
    first = open_as("first", postgres_url, TRISKELE_RECALL_MODEL="none")
    for number in range(24):
        first.remember(
            f"Heron {number} fishes in the river" + " and sleeps beside the long quiet water" * (number // 6)
        )
        first.recall(question, logged=False)
    second = open_as("second", postgres_url, TRISKELE_RECALL_MODEL="none")
    assert len(_scores(first, question)) == 24
    # One index grew by updates, the other was written at once: their averages differ.
    assert _scores(first, question) != _scores(second, question)
    for engine in (first, second):
        engine.work_in_background()
    ends = time.monotonic() + 60
    while _scores(first, question) != _scores(second, question):
        assert time.monotonic() < ends, "the instances never agreed"
        time.sleep(0.05)
    # What is written afterwards is followed by both.
    second.remember("Heron 99 fishes in the river at night")
    while _scores(first, question) != _scores(second, question) or len(_scores(first, question)) != 25:
        assert time.monotonic() < ends, "the instances never agreed"
        time.sleep(0.05)


def test_late_instance_answers_as_an_early_one(open_as: Open, postgres_url: str) -> None:
    first = open_as("first", postgres_url)
    question = "who keeps the keys of the gate that Halvard built?"
    told = (
        "Quillback: the old gate of the harbour, which Halvard built",
        "In summer the keys of Quillback are with the caretaker",
        "Before winter Halvard repaired the roof of the mill",
    )
    first.apply([Add(first.draft(text)) for text in told])
    first.upkeep.embed()
    first.recall(question, logged=False)
    # What was a name of few texts becomes a word of many, which connects no two memories.
    first.apply([Add(first.draft(f"a quillback swam past pier {number}")) for number in range(24)])
    first.remember("Yesterday we painted Quillback green")
    first.upkeep.embed()
    second = open_as("second", postgres_url)
    for engine in (first, second):
        semantic = engine.semantic()
        assert semantic is not None
        assert engine.lexical.flush() and all(index.flush() for index in semantic.on_disk)
    assert first.store.names.common(20), "no name became common"
    assert _scores(first, question) == _scores(second, question)
