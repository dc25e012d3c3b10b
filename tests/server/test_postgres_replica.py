"""A streaming replica: recall reads from it what it has replayed, and from the primary what it has not."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from postgres import PostgresProcess, running_replica, running_server
from starlette.testclient import TestClient

from triskele import config
from triskele.agents.echo import note_recall
from triskele.edge.http.app import AppContext, Application, ListenerRules
from triskele.edge.http.connections import POSITION_HEADER
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput, StoreClosed, StoreUnavailable
from triskele.server.accounts import Accounts
from triskele.server.postgres import connections, replicas
from triskele.server.postgres.connections import Connections, OwnerTransactions
from triskele.server.postgres.replicas import Position
from triskele.server.postgres.truth import PostgresStore
from triskele.store.corpus_protocol import VectorQuery, WeightedTerms
from triskele.text import timestamps
from triskele.types import Add, Memory, Scope

Open = Callable[..., LocalEngine]
_WAIT_S = 60.0
BEARER = {"Authorization": "Bearer replica-test-token"}


@pytest.fixture(scope="module")
def primary() -> Iterator[PostgresProcess]:
    """A server of its own: the tests stop it."""
    with running_server() as server:
        yield server


@pytest.fixture
def replica(primary: PostgresProcess) -> Iterator[PostgresProcess]:
    """A replica of its own, for tests that stop or promote it."""
    with running_replica(primary) as server:
        yield server


@pytest.fixture(scope="module")
def _following(primary: PostgresProcess) -> Iterator[PostgresProcess]:
    with running_replica(primary) as server:
        yield server


@pytest.fixture
def following(_following: PostgresProcess, monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresProcess]:
    """A replica that streams from it; afterwards it replays everything at once again."""
    _wait_long(monkeypatch)
    yield _following
    with psycopg.connect(_following.url(), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM RESET recovery_min_apply_delay")
        connection.execute("SELECT pg_reload_conf()")
        connection.execute("SELECT pg_wal_replay_resume()")


@pytest.fixture
def url(primary: PostgresProcess) -> str:
    """The address of a new database."""
    return primary.create()


@pytest.fixture
def open_as(tmp_path: Path) -> Iterator[Open]:
    """Opens an instance with a data folder of its own, which recalls by words."""
    with ExitStack() as stack:

        def open_one(
            home: str, url: str, read_url: str = "", busy_timeout_s: float = 30.0, owner: str = "", **more: str
        ) -> LocalEngine:
            environment = {
                "TRISKELE_HOME": str(tmp_path / home),
                "TRISKELE_PROJECT": "demo",
                "TRISKELE_RECALL_MODEL": "none",
                "TRISKELE_STORE": url,
                "TRISKELE_READ_STORE": read_url,
                **more,
            }
            settings = config.load(environment)
            settings = replace(settings, memory=replace(settings.memory, owner=owner or settings.memory.owner))
            with pytest.MonkeyPatch.context() as patch:
                patch.setitem(PostgresStore.__init__.__kwdefaults__, "busy_timeout_s", busy_timeout_s)
                return stack.enter_context(LocalEngine(settings, tmp_path))

        yield open_one


def _wait_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no read pass a replica over because the machine is busy."""
    for module in (connections, replicas):
        monkeypatch.setattr(module, "_PATIENCE_S", _WAIT_S)


def _at(server: PostgresProcess, url: str) -> str:
    """The address of the same database on another server."""
    return server.url(url.partition("@/")[2].partition("?")[0])


def _ask(url: str, sql: str, *bindings: Any) -> Any:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(sql, bindings).fetchone()
        return row[0] if row else None


def _replayed(primary: str, replica: str) -> None:
    """Wait until the replica has everything that is written now."""
    written, ends = _ask(primary, "SELECT pg_current_wal_flush_lsn()::text"), time.monotonic() + _WAIT_S
    # The database itself may be too new.
    anywhere = re.sub(r"@/\w+", "@/postgres", replica)
    while not _ask(anywhere, "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", written):
        assert time.monotonic() < ends, "the replica does not follow"
        time.sleep(0.01)


def _contents(engine: LocalEngine, question: str = "which lamp is it?") -> set[str]:
    return {hit.memory.content for hit in engine.recall(question, limit=20, logged=False).hits}


def _paused(replica: str) -> None:
    """Stop the replay, as a lag that does not end by itself."""
    ends = time.monotonic() + _WAIT_S
    _ask(replica, "SELECT pg_wal_replay_pause()::text")
    while _ask(replica, "SELECT pg_get_wal_replay_pause_state()") != "paused":
        assert time.monotonic() < ends
        time.sleep(0.01)


@pytest.mark.slow
def test_replica_reads_follow_the_position_of_a_write(open_as: Open, url: str, following: PostgresProcess) -> None:
    there = _at(following, url)
    writer = open_as("writer", url, there)
    writer.remember("The green lamp hangs in the hall")
    _replayed(url, there)
    reader = open_as("reader", url, there)
    _paused(there)
    writer.remember("The blue lamp stands in the office")
    assert _contents(writer) == {"The green lamp hangs in the hall", "The blue lamp stands in the office"}
    # It has written nothing: the replica answers, which is behind.
    assert _contents(reader) == {"The green lamp hangs in the hall"}
    position = str(writer.store.written)  # type: ignore[attr-defined]
    reader.store.written.advance(position)  # type: ignore[attr-defined]
    assert len(_contents(reader)) == 2
    with pytest.raises(BadInput, match="position"):
        reader.store.written.advance("tomorrow")  # type: ignore[attr-defined]
    _ask(there, "SELECT pg_wal_replay_resume()::text")
    _replayed(url, there)
    assert len(_contents(open_as("third", url, there))) == 2


@pytest.mark.slow
def test_replica_lag_hides_no_write(open_as: Open, url: str, following: PostgresProcess) -> None:
    there = _at(following, url)
    engine = open_as("writer", url, there)
    engine.remember("The lamp number 0 is green")
    _replayed(url, there)
    with psycopg.connect(following.url(), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET recovery_min_apply_delay = '5s'")
        connection.execute("SELECT pg_reload_conf()")
    for number in range(1, 6):
        engine.remember(f"The lamp number {number} is green")
        assert f"The lamp number {number} is green" in _contents(engine, f"lamp number {number}")
    assert _ask(there, "SELECT pg_is_in_recovery()")


@pytest.mark.slow
def test_lost_replica_costs_no_answer(
    open_as: Open, url: str, replica: PostgresProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = _at(replica, url)
    open_as("writer", url).remember("The green lamp hangs in the hall")
    _replayed(url, there)
    reader = open_as("reader", url, there)
    ask, asked = OwnerTransactions.all, list[str]()

    def lose_it_at_the_third(self: OwnerTransactions, sql: str, bindings: Any = ()) -> Any:
        asked.append(sql)
        if len(asked) == 3:
            replica.kill()
        return ask(self, sql, bindings)

    with reader.store.snapshot():
        monkeypatch.setattr(OwnerTransactions, "all", lose_it_at_the_third)
        # The primary goes on with what the replica began.
        for _ in range(4):
            assert [memory.content for _, memory in reader.store.versions()] == ["The green lamp hangs in the hall"]
    monkeypatch.undo()
    assert len(asked) > 3
    assert _contents(reader) == {"The green lamp hangs in the hall"}
    reader.remember("The blue lamp stands in the office")
    assert len(_contents(reader)) == 2
    # A new instance does not find it at all.
    monkeypatch.setattr(replicas, "_PATIENCE_S", 0.05)
    assert len(_contents(open_as("late", url, there))) == 2
    # It is asked again once it has rested.
    monkeypatch.setattr(replicas, "_PATIENCE_S", 30.0)
    monkeypatch.setattr(replicas, "_REST_S", 0.0)
    _wait_long(monkeypatch)
    replica.start()
    _replayed(url, there)
    again = open_as("again", url, there)
    _paused(there)
    open_as("writer", url).remember("The red lamp is broken")
    assert len(_contents(again)) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["candidates", "facts", "vectors", "tokens", "sealed", "folders", "counts"])
def test_database_corpus_survives_the_loss_of_the_replica(
    open_as: Open, url: str, following: PostgresProcess, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    there = _at(following, url)
    writer = open_as("writer", url, TRISKELE_STORE_CORPUS="database")
    writer.remember("The green lamp hangs in the hall")
    writer.store.corpus.prepare("m", 2)  # type: ignore[union-attr]
    assert len(_contents(writer)) == 1
    _replayed(url, there)
    reader = open_as("reader", url, there, TRISKELE_STORE_CORPUS="database")
    store: Any = reader.store
    rows, scope = [row for row, _ in store.versions()], Scope(as_of=timestamps.now())
    words = WeightedTerms({"lamp": (1.0, 1.0)}, ((1.0, 1.0), (1.0, 1.0)))
    vector = VectorQuery("[1,2]", 2, 40, is_exact=True)
    reads: dict[str, Callable[[], Any]] = {
        "candidates": lambda: store.corpus.candidates(scope, "m", words, vector, limit=5),
        "facts": lambda: store.corpus.facts(rows, scope, 1),
        "vectors": lambda: store.corpus.vectors("m", [1]),
        "tokens": lambda: store.corpus.tokens("m", [1]),
        "sealed": lambda: store.sealed(),
        "folders": lambda: store.folders(),
        "counts": lambda: store.names.counts(),
    }
    expected = reads[name]()
    with store.snapshot():
        assert store._transactions.all("SELECT pg_is_in_recovery()") == [(True,)]
        _ask(
            there,
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            " AND datname = current_database()",
        )
        assert reads[name]() == expected
        assert store._transactions.all("SELECT pg_is_in_recovery()") == [(False,)]


@pytest.mark.slow
@pytest.mark.parametrize("corpus", ["local", "database"])
def test_unshare_and_erase_hold_while_the_replica_lags(
    open_as: Open, url: str, following: PostgresProcess, corpus: str
) -> None:
    there = _at(following, url)
    with closing(Accounts(url)) as accounts:
        for name in ("alice", "bob"):
            accounts.create_user(name)
        accounts.groups.create("crew")
        accounts.groups.add("crew", "bob")
        alice = open_as("alice", url, owner="alice")
        lamps = [alice.remember(f"The {color} lamp hangs in the hall").id for color in ("green", "blue", "red")]
        shares = alice.store.shares
        shares.share("memory", lamps[0], "user", "bob")
        shares.share("memory", lamps[1], "group", "crew")
        shares.share("memory", lamps[2], "user", "bob")
        bob = open_as("bob", url, there, owner="bob", TRISKELE_STORE_CORPUS=corpus)
        ends: list[Callable[[], object]] = [
            lambda: shares.unshare("memory", lamps[0], "user", "bob"),
            lambda: accounts.groups.remove("crew", "bob"),
            lambda: alice.erase(lamps[2]),
        ]
        for left, end in zip((2, 1, 0), ends, strict=True):
            _replayed(url, there)
            assert len(_contents(bob)) == left + 1
            _paused(there)
            end()
            assert len(_contents(bob)) == left
            _ask(there, "SELECT pg_wal_replay_resume()::text")


@pytest.mark.slow
def test_replica_is_never_written(open_as: Open, url: str, following: PostgresProcess) -> None:
    there = _at(following, url)
    engine = open_as("writer", url, there)
    lamp = engine.remember("The green lamp hangs in the hall").id
    _replayed(url, there)
    note_recall(engine.store, engine.recall("which lamp is it?"), to_agent=True)
    assert engine.store.usage.counts([lamp])[lamp].recalled == 1
    with engine.store.snapshot(), pytest.raises(StoreUnavailable, match="inside a snapshot"):
        engine.store.documents.delete("plan", ["x"])
    # A count of uses is no reason to leave the replica.
    position = str(engine.store.written)  # type: ignore[attr-defined]
    note_recall(engine.store, engine.recall("which lamp is it?"), to_agent=True)
    assert engine.store.usage.counts([lamp])[lamp].recalled == 2
    assert str(engine.store.written) == position  # type: ignore[attr-defined]


@pytest.mark.slow
def test_position_header_leads_another_instance(open_as: Open, url: str, following: PostgresProcess) -> None:
    there = _at(following, url)
    first, second = open_as("first", url, there), open_as("second", url, there)
    first.remember("The green lamp hangs in the hall")
    _replayed(url, there)
    _paused(there)
    one, other = (_client(engine) for engine in (first, second))
    added = one.post("/v1/memories", json={"content": "The blue lamp stands in the office"})
    position = added.headers[POSITION_HEADER]
    question = {"text": "which lamp is it?"}
    behind = other.post("/v1/recall", json=question)
    assert len(behind.json()["hits"]) == 1 and POSITION_HEADER not in behind.headers
    for wrong in ("x", "FFFFFFFF/FFFFFFFF"):
        # The replica goes on answering, and nothing of it is told to others.
        passed = other.post("/v1/recall", json=question, headers={POSITION_HEADER: wrong})
        assert len(passed.json()["hits"]) == 1 and POSITION_HEADER not in passed.headers
    assert len(other.post("/v1/recall", json=question, headers={POSITION_HEADER: position}).json()["hits"]) == 2


@pytest.mark.slow
def test_threads_share_the_position_of_an_owner(
    url: str, following: PostgresProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_position = Position.__init__

    def made_slowly(position: Position, *given: Any) -> None:
        make_position(position, *given)
        time.sleep(0.05)

    monkeypatch.setattr(Position, "__init__", made_slowly)
    with closing(Connections(url, read_url=_at(following, url))) as opened, ThreadPoolExecutor(8) as pool:
        positions = list(pool.map(lambda _: opened.written["alice"], range(8)))
    assert len({id(position) for position in positions}) == 1


def _client(engine: LocalEngine) -> TestClient:
    context = AppContext(lambda: engine, dict, lambda _: None, lambda: None, lambda _: None)
    listener = Application(context).for_listener(ListenerRules.local("replica-test-token", 8377))
    return TestClient(listener, base_url="http://localhost", headers=BEARER)


@pytest.mark.slow
def test_manual_failover_works(open_as: Open, replica: PostgresProcess, primary: PostgresProcess, url: str) -> None:
    name = url.partition("@/")[2].partition("?")[0]
    both = f"postgresql://postgres@/{name}?host={primary.folder},{replica.folder}&target_session_attrs=read-write"
    engine = open_as("instance", both, _at(replica, url))
    engine.remember("The green lamp hangs in the hall")
    _replayed(url, _at(replica, url))
    primary.stop(at_once=False)
    try:
        # The replica still answers what is asked inside a snapshot; a write finds nobody.
        with engine.store.snapshot():
            assert len(list(engine.store.versions())) == 1
        replica.promote()
        engine.remember("The blue lamp stands in the office")
        assert len(_contents(engine)) == 2
        assert len(_contents(open_as("other", _at(replica, url)))) == 2
    finally:
        primary.start()


def test_closed_store_leaves_its_replica_alone(
    postgres_url: str, tmp_path: Path, make_memory: Callable[..., Memory]
) -> None:
    store = PostgresStore(postgres_url, folder=tmp_path, read_url=postgres_url)
    owner = store.for_owner("me")
    with owner.snapshot():
        assert owner._transactions.snapshot_start is None, "read from the primary"
    store.close()
    for use in (
        owner.snapshot().__enter__,
        owner.census,
        owner.epoch,
        lambda: owner.apply([Add(make_memory())], batch="late"),
    ):
        with pytest.raises(StoreClosed, match="was closed: open it again"):
            use()


@pytest.mark.slow
def test_replica_of_another_database_is_refused(open_as: Open, url: str, primary: PostgresProcess) -> None:
    other = primary.create()
    open_as("stranger", other).remember("The lamp of somebody else")
    engine = open_as("reader", url, other)
    assert _contents(engine) == set()
    engine.remember("The green lamp hangs in the hall")
    assert _contents(engine) == {"The green lamp hangs in the hall"}
    with pytest.raises(BadInput, match=r"store\.read_url is not an address"):
        open_as("mistyped", url, "replica.example.org")


def test_replica_setting_needs_postgres(tmp_path: Path) -> None:
    environment = {"TRISKELE_HOME": str(tmp_path), "TRISKELE_READ_STORE": "postgresql://replica/memories"}
    with pytest.raises(BadInput, match="only a Postgres store"):
        config.load(environment)
    # A store that a command names has no replica of another one.
    assert config.load(environment, store_url="sqlite:////notes.db").store.read_url == ""
