"""The corpus inside the database: it ranks as the embedded one, follows every writer, and forgets with the truth."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from vector_question import VectorQuestion

from triskele import config
from triskele.edge.cli.store import health_view
from triskele.edge.cli.view import rendered
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput
from triskele.server import corpus as database
from triskele.server.corpus import DatabaseIndexes
from triskele.server.postgres import migrations, vector_extension
from triskele.store.corpus_protocol import WeightedTerms
from triskele.types import Add, Connect, Sensitivity

Open = Callable[..., LocalEngine]
TABLES = (*migrations.OWNED, *migrations.DERIVED, migrations.EMBEDDINGS)


@pytest.fixture
def open_as(tmp_path: Path) -> Iterator[Open]:
    """Opens the engine of a store in a data folder of its own."""
    with ExitStack() as stack:

        def open_one(home: str, url: str, corpus: str = "database", **more: str) -> LocalEngine:
            environment = {"TRISKELE_HOME": str(tmp_path / home), "TRISKELE_PROJECT": "demo"}
            environment |= {"TRISKELE_STORE_CORPUS": corpus, **more}
            return stack.enter_context(LocalEngine(config.load(environment, store_url=url), tmp_path))

        yield open_one


def _indexes(engine: LocalEngine) -> DatabaseIndexes:
    indexes = engine.models.database(engine.semantic())
    assert indexes is not None
    indexes.catch_up()
    return indexes


def _ids(engine: LocalEngine, question: str, **options: Any) -> list[str]:
    return [hit.memory.id for hit in engine.recall(question, logged=False, **options).hits]


def _rows(url: str, sql: str) -> list[Any]:
    with psycopg.connect(url) as connection:
        connection.execute("SET search_path = triskele, public")
        return connection.execute(sql).fetchall()


def _questions() -> list[str]:
    lines = (resources.files("triskele.samples") / "team" / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines[::16]]


def test_database_corpus_ranks_as_the_local_corpus(
    open_as: Open, team_home: Path, tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(team_home, tmp_path / "file")
    by_file = open_as("file", f"sqlite:///{tmp_path / 'file' / 'memories.db'}", "local")
    by_database = open_as("first", postgres_url)
    by_database.apply([Add(memory, verbatim=True) for _, memory in by_file.store.versions()])
    by_database.apply([Connect(link) for link in by_file.store.all_links()])
    by_database.upkeep.embed()
    options = {"limit": 20, "all_projects": True, "logged": False}
    expected = {question: by_file.recall(question, **options).hits for question in _questions()}
    # So few are compared vector by vector; then the index has to find them.
    for limit in (database.EXACT_LIMIT, 0):
        monkeypatch.setattr(database, "EXACT_LIMIT", limit)
        for question, hits in expected.items():
            found = by_database.recall(question, **options).hits
            assert [hit.memory.id for hit in found] == [hit.memory.id for hit in hits], question
            assert [hit.score for hit in found] == pytest.approx([hit.score for hit in hits], abs=1e-4)
            assert [hit.reason for hit in found] == [hit.reason for hit in hits]


def test_database_corpus_finds_a_memory_at_once(open_as: Open, postgres_url: str) -> None:
    engine = open_as("first", postgres_url)
    id = engine.remember("herons nest in the old mill").id
    assert _ids(engine, "where do herons nest?") == [id]
    engine.edit(id, content="storks nest in the old mill")
    assert engine.recall("who nests in the mill?").hits[0].memory.content == "storks nest in the old mill"
    assert _ids(engine, "herons", legs=["lexical"]) == []
    engine.forget(id)
    assert _ids(engine, "storks in the mill") == []


def test_database_corpus_follows_other_instances(open_as: Open, postgres_url: str) -> None:
    reader, writer = open_as("first", postgres_url), open_as("second", postgres_url, "local")
    assert _ids(reader, "herons") == []
    id = writer.remember("herons nest in the old mill").id
    writer.upkeep.embed()
    assert _rows(postgres_url, "SELECT * FROM postings") == []
    assert _ids(reader, "where do herons nest?") == [id]
    assert _rows(postgres_url, "SELECT count(*) FROM embeddings WHERE embedding IS NOT NULL") == [(1,)]


def test_erase_leaves_no_word_and_no_vector(open_as: Open, postgres_url: str) -> None:
    engine = open_as("first", postgres_url)
    id = engine.remember("herons nest in the old mill").id
    engine.upkeep.embed()
    _ids(engine, "herons")
    before = _rows(postgres_url, "SELECT * FROM corpora"), sorted(_rows(postgres_url, "SELECT * FROM terms"))
    gone = engine.remember("a heron called Quillback nests by the weir", keywords="Quillback").id
    engine.edit(gone, content="a heron called Quillback left the weir")
    engine.upkeep.embed()
    assert _ids(engine, "Quillback")[0] == gone
    engine.erase(gone)
    # Rows are counted, and the number of the last one stays.
    documents = _rows(postgres_url, "SELECT documents, content, labels FROM corpora")
    assert documents == [before[0][0][3:]] and sorted(_rows(postgres_url, "SELECT * FROM terms")) == before[1]
    for table in TABLES:
        assert "uillback" not in str(_rows(postgres_url, f"SELECT * FROM {table}")), table
    assert _rows(postgres_url, "SELECT count(*) FROM embeddings") == [(1,)]
    assert _ids(engine, "Quillback the heron") == [id]


def test_pending_and_secret_memories_are_found_by_words(open_as: Open, postgres_url: str) -> None:
    engine = open_as("first", postgres_url)
    engine.embed_first = 0
    pending = engine.remember("herons nest in the old mill").id
    secret = engine.remember("hunter2-tidal-91", sensitivity=Sensitivity.SECRET, title="password of the mill").id
    assert set(_ids(engine, "the mill")) == {pending, secret}
    corpus = _indexes(engine).open_corpus(engine.scope())
    question = VectorQuestion(np.ones(corpus._indexes.dimensions, dtype=np.float32))
    assert len(corpus.asking(question).nearest(5)[0]) == 0
    assert "hunter2" not in str(_rows(postgres_url, "SELECT * FROM terms"))


def test_vector_search_fills_narrow_scopes(open_as: Open, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = open_as("first", postgres_url)
    drafts = [engine.draft(f"note number {number}", project="large") for number in range(300)]
    narrow = [engine.draft(f"herons nest at mill {number}", project="small") for number in range(12)]
    engine.apply([Add(draft) for draft in drafts + narrow])
    engine.upkeep.embed()
    indexes = _indexes(engine)
    monkeypatch.setattr(database, "EXACT_LIMIT", 0)
    monkeypatch.setattr(database, "is_quicker_exactly", lambda *_: False)
    semantic = engine.semantic()
    assert semantic is not None
    question = VectorQuestion(semantic.embedder.encode_query("note number 7").sentence)
    with engine.store.snapshot():
        rows, cosines = indexes.open_corpus(engine.scope(project="small")).asking(question).nearest(10)
        assert len(rows) == 10 and (np.diff(cosines) <= 0).all()
        assert {memory.project for memory in engine.store.rows(rows).values()} == {"small"}
        [[size]] = engine.store._transactions.all("SELECT current_setting('hnsw.ef_search')")  # type: ignore[attr-defined]
        assert int(size) == 200
    # What a recall has set ends with its transaction.
    [[left]] = engine.store._transactions.all("SELECT current_setting('hnsw.iterative_scan', true)")  # type: ignore[attr-defined]
    assert left in (None, "", "off")


def test_words_in_narrow_scopes_score_as_in_the_local_corpus(
    open_as: Open, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "EXACT_LIMIT", 20)
    monkeypatch.setattr(database, "_LOOKED_UP", 1)
    engine = open_as("first", postgres_url, TRISKELE_RECALL_MODEL="none")
    drafts = [engine.draft(f"herons nest at mill {number}", project="large") for number in range(40)]
    narrow = [engine.draft(f"old herons of mill {number}, far from here", project="small") for number in range(6)]
    engine.apply([Add(draft) for draft in (*drafts, *narrow)])
    terms = engine.lexical.analyzer.query_terms("which herons nest at the mill?")
    for project in ("small", "large"):
        scope = engine.scope(project=project)
        expected = engine.models.indexes(None).open_corpus(scope).search(terms, limit=5)
        # Narrow, then looked up one by one after the best lay outside.
        for limit in (20, 0):
            monkeypatch.setattr(database, "EXACT_LIMIT", limit)
            _indexes(engine).sizes.clear()
            hits = _indexes(engine).open_corpus(scope).search(terms, limit=5)
            assert [hit.row for hit in hits] == [hit.row for hit in expected], (project, limit)
            assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in expected], abs=1e-4)


def test_hnsw_index_serves_large_scopes(open_as: Open, postgres_url: str) -> None:
    engine = open_as("first", postgres_url)
    engine.apply([Add(engine.draft(f"note number {number}")) for number in range(50)])
    engine.upkeep.embed()
    indexes, rows = _indexes(engine), engine.store.corpus
    assert rows is not None
    corpus = indexes.open_corpus(engine.scope())
    query = corpus._query(np.ones(indexes.dimensions, dtype=np.float32), 5, is_exact=False)
    statement, bindings = rows._dense(query, corpus.scope, indexes.fingerprint, 5)  # type: ignore[attr-defined]
    with engine.store._transactions.reading() as connection:  # type: ignore[attr-defined]
        connection.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off")
        planned = str(connection.execute(f"EXPLAIN {statement}", bindings).fetchall())
    assert "Index Scan using embedding_" in planned
    [[definition]] = _rows(postgres_url, "SELECT indexdef FROM pg_indexes WHERE indexname LIKE 'embedding\\_%'")
    assert "m='16'" in definition and "ef_construction='64'" in definition and "halfvec_cosine_ops" in definition


def test_another_analyzer_rewrites_the_words(open_as: Open, postgres_url: str) -> None:
    english = open_as("first", postgres_url)
    english.remember("herons nesting in mills")
    assert _ids(english, "heron nest") != []
    plain = open_as("second", postgres_url, TRISKELE_INDEX_LANGUAGE="none", TRISKELE_RECALL_MODEL="none")
    assert _ids(plain, "heron nest") == [] and _ids(plain, "herons") != []
    assert {term for (term,) in _rows(postgres_url, "SELECT term FROM terms")} >= {"herons", "nesting", "mills"}
    assert _rows(postgres_url, "SELECT documents FROM corpora") == [(1,)]


def test_restored_backup_is_indexed_again(open_as: Open, postgres_url: str, tmp_path: Path) -> None:
    engine = open_as("first", postgres_url)
    id = engine.remember("herons nest in the old mill").id
    engine.upkeep.embed()
    _ids(engine, "herons")
    engine.upkeep.backup(tmp_path / "one.backup")
    engine.remember("storks nest on the roof")
    engine.upkeep.restore_backup(tmp_path / "one.backup")
    assert _ids(engine, "who nests where?") == [id]
    assert _rows(postgres_url, "SELECT count(*) FROM embeddings") == [(1,)]
    assert "stork" not in str(_rows(postgres_url, "SELECT * FROM terms"))


@pytest.mark.parametrize(
    ("version", "is_refused", "is_warned"),
    [("0.6.2", True, False), ("0.7.4", True, False), ("0.8.0", False, True), ("0.8.2", False, True)]
    + [(version, False, False) for version in ("0.8.3", "0.8.6", "0.10.0", "1.0")],
)
def test_judge_refuses_or_warns_of_old_pgvector(version: str, is_refused: bool, is_warned: bool) -> None:
    verdict = vector_extension.judge(version, "public")
    assert (bool(verdict.problem), bool(verdict.warning)) == (is_refused, is_warned)
    assert version in (verdict.problem or verdict.warning or version)


def test_doctor_reports_missing_pgvector_and_the_local_corpus_serves(
    open_as: Open, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_extension, "EXTENSION", "vector_of_nobody")
    engine = open_as("first", postgres_url)
    id = engine.remember("herons nest in the old mill").id
    assert _ids(engine, "where do herons nest?") == [id]
    assert _rows(postgres_url, "SELECT * FROM postings") == []
    [note] = engine.upkeep.inspect().corpus_notes
    assert note.startswith("pgvector is not installed") and note.endswith("the local corpus is used")
    shown = rendered(health_view(engine.upkeep.inspect()), 1000, colored=False)
    assert "the local corpus is used" in shown


def _seen(engine: LocalEngine, indexes: DatabaseIndexes, rows: list[int]) -> list[Any]:
    """What every read of the corpus shows of some rows and of their words."""
    store, scope, vector = engine.store.corpus, engine.scope(all_projects=True), np.ones(indexes.dimensions)
    assert store is not None
    corpus = indexes.open_corpus(scope)
    words = WeightedTerms({"heron": (1.0, 1.0), "mill": (1.0, 1.0)}, ((1.0, 0.0), (1.0, 0.0)))
    exact, by_index = (corpus._query(vector, 5, is_exact=each) for each in (True, False))
    return [
        dict(store.statistics(["heron", "mill"]).frequencies),
        store.count(scope).versions,
        [each.row for each in store.candidates(scope, indexes.fingerprint, words, None, limit=5)],
        [each.row for each in store.candidates(scope, indexes.fingerprint, None, exact, limit=5)],
        [each.row for each in store.candidates(scope, indexes.fingerprint, words, by_index, limit=5)],
        [each.row for each in store.facts(rows, scope, 2)],
        list(store.vectors(indexes.fingerprint, rows)),
        list(store.tokens(indexes.fingerprint, rows)),
    ]


def test_row_level_security_holds_without_filters_in_statements(
    open_as: Open, postgres_url: str, unfiltered: list[str]
) -> None:
    alice = open_as("first", postgres_url, TRISKELE_MEMORY_OWNER="alice")
    alice.remember("herons nest in the old mill", session="talk", position=1)
    alice.upkeep.embed()
    hers = _indexes(alice)
    rows = [row for row, _ in alice.store.versions()]
    for near in ("alice ", "Alice", "alic", "bob"):
        other = open_as(near, postgres_url, TRISKELE_MEMORY_OWNER=near)
        assert _seen(other, _indexes(other), rows) == [{}, 0, [], [], [], [], [], []], near
        for table in (*migrations.DERIVED, migrations.EMBEDDINGS):
            sql = f"SELECT count(*) FROM {table} WHERE owner <> %s"
            assert other.store._transactions.all(sql, [near]) == [(0,)], table  # type: ignore[attr-defined]
    statements = " ".join(unfiltered)
    assert all(table in statements for table in ("postings", "terms", "corpora", "embeddings", "tokens"))
    assert _seen(alice, hers, rows) == [{"heron": (1, 0), "mill": (1, 0)}, 1, rows, rows, rows, rows, rows, rows]
    # A superuser passes over the policies: the same reads would show a leak.
    bob = open_as("again", postgres_url, TRISKELE_MEMORY_OWNER="bob")
    seen = _indexes(bob)
    bob.store._transactions.connections.role = "none"  # type: ignore[attr-defined]
    assert _seen(bob, seen, rows)[2:] == [rows] * 6


def test_corpus_setting_is_checked(tmp_path: Path) -> None:
    home = {"TRISKELE_HOME": str(tmp_path)}
    with pytest.raises(BadInput, match="one of local, database"):
        config.load({**home, "TRISKELE_STORE_CORPUS": "remote"})
    with pytest.raises(BadInput, match="only a Postgres store"):
        config.load({**home, "TRISKELE_STORE_CORPUS": "database"})
    assert config.load(home).store.corpus == "local"
