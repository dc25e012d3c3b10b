"""Stores of older versions: they open with all they hold, every row gets an owner, and a crash loses nothing."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest

from triskele import config
from triskele.base import timestamps
from triskele.base.ids import content_hash
from triskele.curation import recall_log
from triskele.engine import Engine
from triskele.errors import StoreNewer, StoreUnavailable
from triskele.exchange.transfer import export_memories
from triskele.index import local
from triskele.models.bundled import EARLIER, BundledEmbedder
from triskele.models.embedders import Encoding
from triskele.recall import plan as plans
from triskele.stores.derived import EMBED
from triskele.stores.protocols import VAULT
from triskele.stores.rows import VERSION_COLUMNS, from_link, from_memory, row_hash
from triskele.stores.sentence_vectors import row_of
from triskele.stores.sqlite import compaction, schema
from triskele.stores.sqlite.schema import APPLICATION_ID, MIGRATIONS
from triskele.stores.sqlite.store import SqliteStore
from triskele.stores.sqlite.store_file import index_folder
from triskele.types import USER, Add, Answer, Link, LinkKind, Memory, Revise, Role, Sensitivity

Make = Callable[..., Memory]
FIXTURE = Path(__file__).parent.parent / "data" / "store_0_1_0"
# The format of 0.1.0, and what make.py beside the fixture set.
FORMAT = 6
# The format before there were speakers, and what a version had until then.
UNSPOKEN = 10
# The format before sentence vectors had a byte per dimension.
WIDE = 13
OLD_COLUMNS = VERSION_COLUMNS.removesuffix(", speaker, role")
PASSPHRASE, AS_OF = "nine herons on the weir", "2026-11-20"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder that 0.1.0 wrote."""
    monkeypatch.setenv("TRISKELE_PASSPHRASE", PASSPHRASE)
    with tarfile.open(FIXTURE / "home.tar.gz") as archive:
        # `extractall` has no `filter` before Python 3.11.4.
        archive.extraction_filter = lambda member, _: member
        archive.extractall(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def open_home(home: Path) -> Iterator[Callable[..., Engine]]:
    opened: list[Engine] = []

    def open_one(**environment: str) -> Engine:
        given = {"TRISKELE_HOME": str(home), "TRISKELE_PROJECT": "river", "TRISKELE_PRIVACY_KEY": "passphrase"}
        opened.append(Engine(config.load(given | environment), home))
        return opened[-1]

    yield open_one
    for engine in opened:
        engine.close()


# A store made by 0.1.0


def test_an_old_store_exports_what_it_exported(open_home: Callable[..., Engine]) -> None:
    written = io.StringIO()
    export_memories(open_home(), written, include_private=True)
    assert written.getvalue() == (FIXTURE / "export.jsonl").read_text()


def test_an_old_store_answers_by_words_at_once_and_finds_what_it_found(open_home: Callable[..., Engine]) -> None:
    """The weights that made its vectors no longer ship: those are left alone, and everything is embedded again."""
    engine = open_home(TRISKELE_RECALL_EMBED_FIRST="0")
    answers = json.loads((FIXTURE / "answers.json").read_text())

    def asked(question: str) -> Answer:
        return engine.recall(question, as_of=AS_OF, logged=False)

    for question, (first, *_) in answers.items():
        answer = asked(question)
        assert answer.waiting == 31 and first in [hit.memory.id for hit in answer.hits]
        assert {leg for hit in answer.hits for leg in hit.legs} <= {"lexical", "graph"}
    assert engine.embed() == 31
    ranks = []
    for question, (first, *_) in answers.items():
        answer = asked(question)
        assert answer.waiting == 0
        ranks.append([hit.memory.id for hit in answer.hits].index(first))
    # Other weights may find better what 0.1.0 found worse.
    assert max(ranks) < 5 and ranks.count(0) > 0.7 * len(ranks)


def test_an_old_store_keeps_everything_else(open_home: Callable[..., Engine]) -> None:
    engine = open_home()
    census = engine.census()
    assert (census.memories, census.forgotten, census.superseded, census.links) == (28, 2, 1, 3)
    assert engine.maintenance.check(deep=True) == []
    [title] = {row.id for row in engine.store.sealed()}
    assert engine.reveal(title) == "the code of the gauge cabinet is 7391"
    # Kept, and not in force: it was measured with weights that no longer ship.
    adopted = plans.adopted(engine.store)
    assert adopted is not None and adopted.plan.fusion == "cc" and adopted.fingerprint in EARLIER
    assert engine.adopted() is None
    assert [asked.text for asked in recall_log.entries(engine.store)] == ["which boat do we have", "who opens the weir"]
    # Of the three that were injected one is a secret, of which no text is noted.
    assert (len(engine.store.usage.given("talk-7")), len(engine.store.usage.most_used())) == (2, 3)
    assert {entry.actor for entry in engine.store.journal()[:-1]} == {USER}
    engine.remember("the crane arrives in March")
    assert [outcome.action.value for outcome in engine.undo()] == ["forgotten"]


def test_who_returns_to_the_model_of_an_old_store_finds_its_vectors(
    open_home: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: list[str] = []

    class Earlier(BundledEmbedder):
        """The weights of 0.1.0, as far as a store can tell."""

        fingerprint = EARLIER[0]

        def encode_documents(self, given: Sequence[str]) -> list[Encoding]:
            texts.extend(given)
            return super().encode_documents(given)

    open_home().embed()
    monkeypatch.setattr(local, "bundled", Earlier)
    engine = open_home()
    semantic = engine.semantic()
    assert semantic is not None and semantic.embedder.fingerprint == EARLIER[0]
    assert engine.store.jobs.count(EMBED) == 1
    engine.embed()
    assert len(texts) == 1 and texts[0].startswith("Written last")
    assert len(semantic.tokens.missing(semantic.catalog.view().slots)) == 0


# Killed at every step


def _killed_at(step: int, path: Path) -> bool:
    """Open the store in a process that dies after so many statements of the migration; whether it came to the end."""
    child = os.fork()
    if child == 0:
        left = [step]

        def count(*_: Any) -> bool:
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return True

        migrate = schema.migrate

        def watched(connection: apsw.Connection, owner: str) -> None:
            # Also what follows the migration: giving back space.
            connection.exec_trace = count
            migrate(connection, owner)

        schema.migrate = watched
        SqliteStore(path).close()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.slow
def test_killed_at_any_step_the_migration_goes_on(open_home: Callable[..., Engine], home: Path, tmp_path: Path) -> None:
    shutil.copytree(home, tmp_path / "pristine")
    expected = (FIXTURE / "export.jsonl").read_text()
    for step in range(500):
        shutil.rmtree(home)
        shutil.copytree(tmp_path / "pristine", home)
        is_over = _killed_at(step, home / "memories.db")
        with open_home() as engine:
            assert engine.maintenance.check(deep=True) == []
            written = io.StringIO()
            export_memories(engine, written, include_private=True)
            assert written.getvalue() == expected, step
            assert len(engine.store.usage.most_used()) == 3
        if is_over:
            return
    pytest.fail("the migration has no end")


# Owners


def _older_store(path: Path, format: int, memories: list[Memory], links: list[Link] = []) -> apsw.Connection:  # noqa: B006
    """A store in an older format, as the version of that time wrote it; the connection that made it."""
    connection = apsw.Connection(str(path))
    connection.pragma("synchronous", "off")
    for step in MIGRATIONS[:format]:
        assert isinstance(step, str)
        connection.execute(step)
    connection.pragma("user_version", format)
    connection.pragma("application_id", APPLICATION_ID)
    for memory in memories:
        _insert(connection, "versions", OLD_COLUMNS, from_memory(memory)[: OLD_COLUMNS.count(",") + 1])
        entry = [
            timestamps.to_micros(memory.known_from),
            "added",
            memory.id,
            memory.version,
            None,
            None,
            None,
            "old",
            None,
        ]
        _insert(connection, "journal", "at, action, id, version, previous, link_kind, other, batch, undoes", entry)
        if format > 1:
            connection.execute("INSERT OR IGNORE INTO pending VALUES (?)", [memory.content_hash])
    for link in links:
        _insert(connection, "links", "source, kind, target, known_from, known_to", from_link(link))
    return connection


def _go_on(connection: apsw.Connection, since: int, until: int) -> None:
    """Take some further steps of the migration."""
    for step in MIGRATIONS[since:until]:
        if callable(step):
            step(connection, "me")
        else:
            connection.execute(step)
    connection.pragma("user_version", until)


def _insert(connection: apsw.Connection, table: str, columns: str, values: list[Any]) -> None:
    marks = ",".join("?" * (len(values) + 1))
    connection.execute(f"INSERT INTO {table} ({columns}, row_hash) VALUES ({marks})", [*values, row_hash(values)])


def _link(source: Memory, target: Memory) -> Link:
    return Link(source=source.id, kind=LinkKind.SEE_ALSO, target=target.id, known_from=timestamps.now())


@pytest.fixture
def shared(tmp_path: Path, make_memory: Make) -> tuple[Path, list[Memory]]:
    """An old store in which alice has two memories, bob two, one of them with the text of one of alice's."""
    owners = ("alice", "alice", "bob", "bob")
    texts = ("hers", "said by both", "said by both", "his")
    memories = [make_memory(text, owner=owner, project=owner) for text, owner in zip(texts, owners, strict=True)]
    one, both, again, his = memories
    path = tmp_path / "old.db"
    connection = _older_store(path, FORMAT, memories, [_link(one, both), _link(his, again), _link(one, his)])
    for number, text in enumerate(("hers", "said by both", "his"), 1):
        connection.execute("INSERT INTO vectors VALUES (?, ?, 'model', ?)", [number, content_hash(text), text.encode()])
    connection.execute("INSERT INTO meta VALUES ('model', 'model'), ('names read', '2')")
    connection.execute("DELETE FROM pending WHERE content_hash <> ?", [his.content_hash])
    for kind, about in (("song", [his.id]), ("song of hers", [one.id]), ("plan", []), (VAULT, [])):
        values = [kind, "keys", json.dumps(f"a {kind}"), json.dumps(about)]
        _insert(connection, "shelf", "kind, key, value, about", values)
    for memory in (one, his):
        connection.execute("INSERT INTO uses VALUES (?, 1, 2, 3, 4)", [memory.id])
    connection.execute("INSERT INTO use_days VALUES ('2026-01-01', 1, 2, 3)")
    connection.execute("INSERT INTO conversations VALUES ('mixed', 1, 0), ('empty', 1, 0)")
    for memory in (one, his):
        connection.execute("INSERT INTO given VALUES ('mixed', ?, ?, 1, 0)", [memory.id, memory.content_hash])
        connection.execute("INSERT INTO echoes VALUES ('print', ?)", [memory.id])
    connection.close()
    return path, memories


def test_rows_go_to_the_owner_of_their_memory(shared: tuple[Path, list[Memory]]) -> None:
    path, (one, both, again, his) = shared
    unbound = SqliteStore(path, owner="alice")
    alice, bob = unbound.of("alice"), unbound.of("bob")
    for store, mine in ((alice, [one, both]), (bob, [again, his])):
        assert [memory.id for _, memory in store.versions()] == [memory.id for memory in mine]
        assert [entry.id for entry in store.journal()] == [memory.id for memory in mine]
        assert [link.source for link in store.all_links()] == [mine[0].id if store is alice else his.id]
        assert {(digest, vector) for _, digest, vector in store.vectors.page("model")} == {
            (memory.content_hash, memory.content.encode()) for memory in mine
        }
        assert len(store.usage.counts([one.id, his.id])) == 1
        assert len(store.usage.given("mixed")) == len(store.usage.echoed(["print"])["print"]) == 1
    assert [slot for slot, _, _ in alice.vectors.page("model")] == [1, 2]
    his_slots = [slot for slot, _, _ in bob.vectors.page("model")]
    assert his_slots[0] == 3 and his_slots[1] > 3
    assert (alice.vectors.waiting(), bob.vectors.waiting()) == ([], [(his.content_hash, "his")])
    assert ([row for row, _ in alice.entities.unread()], [row for row, _ in bob.entities.unread()]) == ([], [3, 4])
    assert (alice.documents.all("song of hers"), bob.documents.all("song")) == (
        {"keys": "a song of hers"},
        {"keys": "a song"},
    )
    assert unbound.maintenance.check(deep=True) == []
    unbound.close()


def test_rows_without_a_memory_go_to_the_owner_of_the_settings(shared: tuple[Path, list[Memory]]) -> None:
    path, _ = shared
    unbound = SqliteStore(path, owner="bob")
    alice, bob = unbound.of("alice"), unbound.of("bob")
    assert (alice.documents.all("plan"), bob.documents.all("plan")) == ({}, {"keys": "a plan"})
    assert (len(alice.usage.days()), len(bob.usage.days())) == (0, 1)
    unbound.close()


def test_every_owner_of_a_secret_keeps_the_keys_of_the_vault(tmp_path: Path, make_memory: Make) -> None:
    secret = {"sensitivity": Sensitivity.SECRET}
    memories = [make_memory("a title", owner=owner, **secret) for owner in ("alice", "bob")]
    connection = _older_store(tmp_path / "old.db", FORMAT, memories)
    for memory in memories:
        _insert(connection, "secrets", "id, version, sealed_as, sealed", [memory.id, 1, 1, b"sealed"])
    _insert(connection, "shelf", "kind, key, value, about", [VAULT, "keys", '"the keys"', "[]"])
    connection.close()
    unbound = SqliteStore(tmp_path / "old.db", owner="alice")
    for memory in memories:
        store = unbound.of(memory.owner)
        assert store.documents.get(VAULT, "keys") == "the keys"
        assert [row.id for row in store.sealed()] == [memory.id]
    assert unbound.of("carol").documents.all(VAULT) == {}
    assert unbound.maintenance.check(deep=True) == []
    unbound.close()


@pytest.mark.parametrize(("owners", "kept_by"), [(["me"], "me"), (["alice"], "alice"), (["alice", "me"], None)])
def test_the_index_folder_goes_to_the_one_owner_of_its_rows(
    tmp_path: Path, make_memory: Make, owners: list[str], kept_by: str | None
) -> None:
    path = tmp_path / "old.db"
    _older_store(path, FORMAT, [make_memory(f"of {owner}", owner=owner) for owner in owners]).close()
    index_folder(path, "me").mkdir()
    (index_folder(path, "me") / "tokens").write_text("vectors")
    for _ in range(2):
        SqliteStore(path, owner="alice").close()
        assert [owner for owner in ("me", "alice") if (index_folder(path, owner) / "tokens").exists()] == [
            owner for owner in ("me", "alice") if owner == kept_by
        ]


def test_a_damaged_row_is_still_known_as_damaged(home: Path) -> None:
    connection = apsw.Connection(str(home / "memories.db"))
    connection.execute("UPDATE links SET target = source WHERE row = 1")
    connection.execute("UPDATE secrets SET sealed = x'00' WHERE version = 1")
    connection.close()
    unbound = SqliteStore(home / "memories.db")
    assert {finding.subject.split()[0] for finding in unbound.maintenance.check(deep=True)} == {"links", "secrets"}
    unbound.close()


# Still older formats


def test_a_store_from_before_there_were_vectors_queues_all_it_holds(tmp_path: Path, make_memory: Make) -> None:
    memories = [make_memory(f"number {number}") for number in range(3)]
    _older_store(tmp_path / "old.db", 1, [*memories, make_memory("number 0", project="garden")]).close()
    unbound = SqliteStore(tmp_path / "old.db")
    store = unbound.of("me")
    assert sorted(text for _, text in store.vectors.waiting()) == ["number 0", "number 1", "number 2"]
    assert unbound.maintenance.check(deep=True) == []
    assert len(store.vectors.keep("model", {memory.content_hash: b"vector" for memory in memories})) == 3
    store.apply([Add(make_memory("written since"))], batch="new")
    assert [text for _, text in store.vectors.waiting()] == ["written since"]
    unbound.close()


@pytest.mark.parametrize("format", range(1, len(MIGRATIONS)))
def test_a_backup_of_any_older_format_can_be_restored(tmp_path: Path, make_memory: Make, format: int) -> None:
    if format <= FORMAT:
        _older_store(tmp_path / "old.db", format, [make_memory("from the old days")]).close()
    else:
        _older_store(tmp_path / "old.db", FORMAT, [make_memory("from the old days")]).close()
        connection = apsw.Connection(str(tmp_path / "old.db"))
        _go_on(connection, FORMAT, format)
        connection.close()
    unbound = SqliteStore(tmp_path / "new" / "store.db")
    store = unbound.of("me")
    store.apply([Add(make_memory("soon gone"))], batch="new")
    unbound.maintenance.restore(tmp_path / "old.db")
    assert [memory.content for _, memory in store.versions()] == ["from the old days"]
    assert [text for _, text in store.vectors.waiting()] == ["from the old days"]
    store.documents.swap("song", "a", None, "x")
    assert store.usage.most_used() == []
    assert unbound.maintenance.check(deep=True) == []
    unbound.close()


def test_a_store_without_speakers_keeps_its_hashes_and_takes_speakers(tmp_path: Path, make_memory: Make) -> None:
    connection = _older_store(tmp_path / "old.db", FORMAT, [make_memory("from the old days"), make_memory("another")])
    _go_on(connection, FORMAT, UNSPOKEN)
    before = connection.execute("SELECT id, row_hash FROM versions ORDER BY row").fetchall()
    connection.close()
    unbound = SqliteStore(tmp_path / "old.db")
    store = unbound.of("me")
    first, second = (memory for _, memory in store.versions())
    assert (first.speaker, first.role) == (None, None)
    read = apsw.Connection(str(tmp_path / "old.db"))
    assert read.execute("SELECT id, row_hash FROM versions ORDER BY row").fetchall() == before
    store.apply([Revise(replace(first, speaker="Ann", role=Role.USER), base=1)], batch="new")
    assert store.memories([first.id])[first.id].role is Role.USER
    assert unbound.maintenance.check(deep=True) == []
    # Speaker and role are under the hash, in rows that have them and in rows that do not.
    read.execute("UPDATE versions SET speaker = 'Bo' WHERE id = ?", [second.id])
    read.execute("UPDATE versions SET role = NULL, speaker = NULL WHERE id = ? AND version = 2", [first.id])
    read.close()
    damaged = {finding.subject for finding in unbound.maintenance.check(deep=True)}
    assert damaged == {f"versions {first.id}", f"versions {second.id}"}
    unbound.close()


# Sentence vectors of four bytes per dimension


def _wide_store(path: Path, make_memory: Make, count: int = 300) -> dict[str, bytes]:
    """A store of the format before there was one byte per dimension; what its vectors become, by content."""
    memories = [make_memory(f"number {number}") for number in range(count)]
    connection = _older_store(path, FORMAT, memories)
    drawn = np.random.default_rng(1).standard_normal((count, 384)).astype("<f4")
    vectors = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    rows = zip(memories, vectors, strict=True)
    connection.executemany(
        "INSERT INTO vectors (content_hash, fingerprint, vector) VALUES (?, 'model', ?)",
        [(memory.content_hash, vector.tobytes()) for memory, vector in rows],
    )
    _go_on(connection, FORMAT, WIDE)
    for number in range(1, 1 + count):
        connection.execute(
            "INSERT INTO names (owner, key, block, text, any_case, spread, concept)"
            " VALUES ('me', ?1, ?1, ?1, 0, ?2, ?2)",
            [f"name {number}", number],
        )
    mentions = _mentions(count)
    connection.executemany("INSERT INTO mentions (owner, row, name, kind) VALUES ('me', ?, ?, ?)", mentions)
    connection.close()
    return {memory.content_hash: row_of(vector) for memory, vector in zip(memories, vectors, strict=True)}


def _mentions(count: int) -> list[tuple[int, int, str]]:
    """Every memory has a title and names the title of the next one; later the first one names all."""
    said = [(row, row, "title") for row in range(1, 1 + count)]
    said += [(row, row + 1, "name") for row in range(1, count)]
    return said + [(1, name, "found") for name in range(3, 1 + count)]


def test_mentions_are_one_row_for_each_version_and_the_same(tmp_path: Path, make_memory: Make) -> None:
    path = tmp_path / "old.db"
    _wide_store(path, make_memory)
    unbound = SqliteStore(path)
    store = unbound.of("me")
    mentions = store.entities.mentions()
    assert sorted((row, name, kind) for _, row, name, kind in mentions) == sorted(_mentions(300))
    assert [mention.mention for mention in mentions] == list(range(1, 1 + len(mentions)))
    assert store.heads().mention == len(mentions) == store.entities.counts().mentions
    [[readings]] = apsw.Connection(str(path)).execute("SELECT count(*) FROM readings").fetchall()
    assert readings == 300
    assert len(store.entities.common(20)) == 280
    [first, second] = (memory for _, memory in list(store.versions())[:2])
    assert {(edge.source, edge.target, edge.evidence) for edge in store.entities.edges(2)} == {
        (1, 2, first.id),
        (2, 3, second.id),
    }
    unbound.close()


def test_vectors_are_narrowed_and_the_file_becomes_smaller(tmp_path: Path, make_memory: Make) -> None:
    path = tmp_path / "old.db"
    expected = _wide_store(path, make_memory)
    size = path.stat().st_size
    unbound = SqliteStore(path)
    page = unbound.of("me").vectors.page("model")
    assert {digest: raw for _, digest, raw in page} == expected
    assert [slot for slot, _, _ in page] == list(range(1, 301))
    slots = unbound.of("me").vectors.keep("model", {make_memory("more").content_hash: b"none"})
    assert slots == {}
    assert unbound.maintenance.check(deep=True) == []
    unbound.close()
    assert path.stat().st_size < size - 300 * 1000


def test_killed_at_any_step_vectors_are_narrowed_and_space_is_given_back(tmp_path: Path, make_memory: Make) -> None:
    pristine, path = tmp_path / "pristine.db", tmp_path / "old.db"
    expected = _wide_store(pristine, make_memory, 60)
    # Most steps write what one memory mentions.
    for step in (*range(20), *range(20, 1000, 11)):
        for file in tmp_path.glob("old.db*"):
            file.unlink()
        shutil.copyfile(pristine, path)
        is_over = _killed_at(step, path)
        unbound = SqliteStore(path)
        assert {digest: raw for _, digest, raw in unbound.of("me").vectors.page("model")} == expected, step
        said = [(row, name, kind) for _, row, name, kind in unbound.of("me").entities.mentions()]
        assert sorted(said) == sorted(_mentions(60)), step
        assert unbound.maintenance.check(deep=True) == []
        unbound.close()
        assert path.stat().st_size < pristine.stat().st_size - 60 * 1000, step
        if is_over:
            return
    pytest.fail("the migration has no end")


def test_where_space_cannot_be_given_back_the_store_opens(tmp_path: Path, make_memory: Make) -> None:
    path = tmp_path / "old.db"
    expected = _wide_store(path, make_memory, 60)
    reader = apsw.Connection(str(path))
    reader.pragma("journal_mode", "wal")
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM versions").fetchall()
    unbound = SqliteStore(path)
    assert {digest: raw for _, digest, raw in unbound.of("me").vectors.page("model")} == expected
    # As before for those who write.
    assert unbound.maintenance._database.connection().pragma("busy_timeout") == 30_000
    unbound.close()
    reader.close()


def test_narrowed_vectors_are_the_fresh_ones_and_nothing_is_embedded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = ("The bakery closes at six.", "Ingrid waters the plants.", "The kettle is red.")
    settings = config.load({"TRISKELE_HOME": str(tmp_path / "home")})
    engine = Engine(settings, tmp_path)
    engine.remember_all([engine.draft(note) for note in notes])
    engine.embed()
    model = engine.semantic()
    assert model is not None
    fresh = {digest: raw for _, digest, raw in engine.store.vectors.page(model.embedder.fingerprint)}
    scores = _dense_scores(engine)
    engine.close()
    connection = apsw.Connection(str(tmp_path / "home" / "memories.db"))
    for note, made in zip(notes, model.embedder.encode_documents(notes), strict=True):
        wide = made.sentence.astype("<f4").tobytes()
        connection.execute("UPDATE vectors SET vector = ? WHERE content_hash = ?", [wide, content_hash(note)])
    compaction.narrow_vectors(connection, "me")
    connection.close()

    def refuse(self: BundledEmbedder, texts: Sequence[str]) -> list[Encoding]:
        raise AssertionError("embedded again")

    monkeypatch.setattr(BundledEmbedder, "encode_documents", refuse)
    with Engine(settings, tmp_path) as again:
        assert {digest: raw for _, digest, raw in again.store.vectors.page(model.embedder.fingerprint)} == fresh
        assert again.embed() == 0
        assert _dense_scores(again) == scores


def _dense_scores(engine: Engine) -> dict[str, float]:
    hits = engine.recall("when does the bakery close?", logged=False).hits
    return {hit.memory.content: hit.legs["dense"].score for hit in hits if "dense" in hit.legs}


# A newer store


@pytest.fixture
def overtaken(open_engine: Callable[..., Engine], tmp_path: Path) -> Engine:
    """An engine whose store a newer triskele has migrated since it was opened."""
    engine = open_engine()
    engine.remember("the heron fishes at dawn")
    newer = apsw.Connection(str(tmp_path / "home" / "memories.db"))
    newer.pragma("user_version", len(MIGRATIONS) + 1)
    newer.close()
    return engine


@pytest.mark.parametrize(
    "act",
    [
        lambda engine: engine.remember("the otter sleeps at noon"),
        lambda engine: engine.recall("heron"),
        lambda engine: engine.store.documents.delete("song", ["a"]),
        lambda engine: engine.store.vectors.queue_for("model"),
    ],
    ids=["remember", "recall", "documents", "vectors"],
)
def test_a_program_that_was_overtaken_refuses_in_one_line(overtaken: Engine, act: Callable[[Engine], object]) -> None:
    with pytest.raises(StoreNewer, match="newer triskele") as raised:
        act(overtaken)
    assert "\n" not in str(raised.value)
    assert len(list(overtaken.store.versions())) == 1


def test_tables_that_a_newer_program_has_changed_are_not_called_damaged(overtaken: Engine, tmp_path: Path) -> None:
    newer = apsw.Connection(str(tmp_path / "home" / "memories.db"))
    newer.execute("ALTER TABLE versions RENAME COLUMN content TO body")
    newer.close()
    with pytest.raises(StoreNewer, match="newer triskele"):
        list(overtaken.store.versions())


def test_a_file_that_an_older_program_put_in_its_place_is_refused(
    open_engine: Callable[..., Engine], make_memory: Make, tmp_path: Path
) -> None:
    engine = open_engine()
    engine.remember("the heron fishes at dawn")
    _older_store(tmp_path / "old.db", FORMAT, [make_memory("old")]).close()
    old, live = (apsw.Connection(str(path)) for path in (tmp_path / "old.db", tmp_path / "home" / "memories.db"))
    with live.backup("main", old, "main") as steps:
        steps.step(-1)
    old.close()
    live.close()
    with pytest.raises(StoreUnavailable, match="start triskele again"):
        engine.remember("the otter sleeps at noon")


def test_adopted_plans_of_two_owners_stand_side_by_side(tmp_path: Path) -> None:
    unbound = SqliteStore(tmp_path / "store.db")
    alice, bob = unbound.of("alice"), unbound.of("bob")
    plan = replace(plans.Plan(), fusion="cc")
    plans.adopt(alice, plan, fingerprint="model", questions=40)
    found = plans.adopted(alice)
    assert found is not None and found.plan.fusion == "cc"
    assert plans.adopted(bob) is None
    unbound.close()
