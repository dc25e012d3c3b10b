"""What a snapshot reads as it begins, and what is kept between snapshots: few statements, and never an old answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from threading import get_ident
from typing import Any

import psycopg
import pytest

from triskele import config
from triskele.engine.local import LocalEngine
from triskele.index import local
from triskele.recall import model_switch
from triskele.recall import plan as plans
from triskele.recall.plan import Plan
from triskele.server.postgres import heads, round_trips
from triskele.server.postgres.truth import PostgresOwnerStore, PostgresStore
from triskele.store.values import EMBED, Named
from triskele.text import timestamps
from triskele.types import Add, Connect, Disconnect, Link, LinkKind, Memory, Revise

Make = Callable[..., Memory]
Open = Callable[[str], LocalEngine]
# In the first of an epoch everything is asked for, the second keeps, and the third uses what is kept.
_SNAPSHOTS = range(3)


@pytest.fixture
def open_as(tmp_path: Path, postgres_url: str) -> Iterator[Open]:
    """Opens engines of one owner with a data folder of their own each, as on a server; a test lets them embed."""
    with ExitStack() as stack:

        def open_one(home: str) -> LocalEngine:
            environment = {"TRISKELE_HOME": str(tmp_path / home), "TRISKELE_PROJECT": "demo"}
            engine = stack.enter_context(LocalEngine(config.load(environment, store_url=postgres_url), tmp_path))
            engine.upkeep.embed()
            engine.work_in_background()
            # A recall takes it as running, and nothing happens by itself.
            engine.background._worker.stop()
            return engine

        yield open_one


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements of this thread, without those that begin and end a transaction or set something in it."""
    execute, together, sent, own = psycopg.Connection.execute, round_trips.fetch, list[str](), get_ident()

    def note(query: str) -> None:
        if get_ident() != own:
            pass
        elif query.startswith("BEGIN ISOLATION"):
            sent.append("snapshot")
        elif not query.startswith(("BEGIN", "COMMIT", "ROLLBACK", "SELECT set_config")):
            sent.append(query)

    def listed(connection: Any, query: Any, *rest: Any, **details: Any) -> Any:
        note(str(query))
        return execute(connection, query, *rest, **details)

    def listed_together(connection: Any, *statements: Any) -> Any:
        for query, _ in statements:
            note(query)
        return together(connection, *statements)

    monkeypatch.setattr(psycopg.Connection, "execute", listed)
    monkeypatch.setattr(round_trips, "fetch", listed_together)
    return sent


def _link(source: Memory, target: Memory, kind: LinkKind = LinkKind.SUPERSEDES) -> Link:
    return Link(source=source.id, kind=kind, target=target.id, known_from=timestamps.now())


def _texts(engine: LocalEngine, question: str) -> list[str]:
    return [hit.memory.content for hit in engine.recall(question, logged=False).hits]


def test_recall_is_one_transaction_of_few_statements(open_as: Open, asked: list[str]) -> None:
    engine = open_as("first")
    engine.remember("Releases go to the cluster by Argo CD")
    engine.upkeep.embed()
    asked.clear()
    engine.recall("how do releases get to the cluster?", logged=False)
    assert asked[:2] == ["snapshot", heads.SNAPSHOT_START]
    # The texts of the hits.
    assert any(" FROM versions " in sql for sql in asked)
    engine.recall("how do releases get to the cluster?", logged=False)
    asked.clear()
    assert engine.recall("how do releases get to the cluster?", logged=False).hits
    assert asked == ["snapshot", heads.SNAPSHOT_START]


def test_next_recall_reads_plan_and_links_of_other_instances(open_as: Open) -> None:
    first, second = open_as("first"), open_as("second")
    old = second.remember("Releases go to the cluster by Helm")
    second.upkeep.embed()
    assert _texts(first, "how do releases get to the cluster?") == ["Releases go to the cluster by Helm"]
    new = second.remember("Now releases get to the cluster by Argo CD")
    second.upkeep.embed()
    assert len(_texts(first, "how do releases get to the cluster?")) == 2
    second.apply([Connect(Link(source=new.id, kind=LinkKind.SUPERSEDES, target=old.id, known_from=timestamps.now()))])
    assert _texts(first, "how do releases get to the cluster?") == ["Now releases get to the cluster by Argo CD"]
    semantic = second.semantic()
    assert semantic is not None
    fingerprint = semantic.embedder.fingerprint
    plans.adopt(second.store, Plan(legs=frozenset({"lexical"})), fingerprint=fingerprint, questions=60)
    assert first.recall("cluster", logged=False).hits[0].legs.keys() == {"lexical"}
    plans.roll_back(second.store)
    assert "dense" in first.recall("cluster", logged=False).hits[0].legs


def test_recall_completes_the_index_of_an_opened_model(open_as: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = open_as("first")
    engine.remember("Releases go to the cluster by Argo CD")
    engine.upkeep.embed()
    semantic = engine.semantic()
    assert semantic is not None

    class Other:
        fingerprint = "other@1"

        def __getattr__(self, name: str) -> Any:
            return getattr(semantic.embedder, name)

    monkeypatch.setattr(local, "local_embedder", lambda _: Other())
    model_switch.put_in_force(engine.store, "other", "bundled", {})
    engine.recall("how do releases get to the cluster?", logged=False)
    opened = engine.semantic()
    assert opened is not None and opened.embedder.fingerprint == "other@1"
    engine.background._worker._queue_for(opened.embedder.fingerprint)
    assert engine.store.jobs.count(EMBED) == 1


def _owner(url: str, folder: Path) -> tuple[PostgresStore, PostgresOwnerStore]:
    store = PostgresStore(url, folder=folder)
    return store, store.for_owner("me")


def test_restore_brings_links_and_names_of_the_backup(postgres_url: str, tmp_path: Path, make_memory: Make) -> None:
    store, owner = _owner(postgres_url, tmp_path)
    one, other = make_memory("one"), make_memory("two")
    owner.apply([Add(one), Add(other)], batch="one")
    rows = [row for row, _ in owner.names.unread()]
    owner.names.save({rows[0]: [Named("argo", "a", "Argo", False, "name")]}, read=rows)
    owner.apply([Connect(_link(one, other, LinkKind.SEE_ALSO))], batch="two")
    store.maintenance.backup(tmp_path / "copy.backup")
    third = make_memory("three")
    owner.apply([Add(third), Connect(_link(third, one))], batch="three")
    owner.names.save({rows[1]: [Named("helm", "h", "Helm", False, "name")]})
    for _ in _SNAPSHOTS:
        with owner.snapshot():
            assert len(owner.links([one.id])) == 2
            assert set(owner.names.find(["argo", "helm"])) == {"argo", "helm"}
    store.maintenance.restore(tmp_path / "copy.backup")
    for _ in _SNAPSHOTS:
        with owner.snapshot():
            assert [link.kind for link in owner.links([one.id, third.id])] == [LinkKind.SEE_ALSO]
            assert set(owner.names.find(["argo", "helm"])) == {"argo"}
    fresh = make_memory("four")
    owner.apply([Add(fresh), Connect(_link(fresh, other))], batch="four")
    with owner.snapshot():
        assert [link.source for link in owner.links([other.id], kind=LinkKind.SUPERSEDES)] == [fresh.id]
    store.close()


def test_heads_accept_lower_numbers_of_another_database(
    new_postgres: Callable[[], str], tmp_path: Path, make_memory: Make
) -> None:
    memories = [make_memory(str(number)) for number in range(2)]
    stores = []
    for count in (1, 9):
        store, owner = _owner(new_postgres(), tmp_path)
        owner.apply(list(map(Add, memories)), batch="one")
        [row, *_] = [row for row, _ in owner.names.unread()]
        # Each link and each name takes a number.
        for number in range(count):
            link = _link(*memories, kind=LinkKind.SEE_ALSO)
            owner.apply([Connect(link)], batch=str(number))
            owner.apply([Disconnect(link)], batch=str(number))
            owner.names.save({row: [Named(f"name {count} {number}", "n", "Name", False, "name")]})
        stores.append((store, owner))
    (few, source), (many, target) = stores
    source.apply([Add(third := make_memory("three")), Connect(_link(third, memories[0]))], batch="last")
    for _ in _SNAPSHOTS:
        with target.snapshot():
            assert target.links([memory.id for memory in memories]) == []
            assert len(target.names.find(["name 9 0", "name 9 8"])) == 2
    few.maintenance.backup(tmp_path / "copy.backup")
    many.maintenance.restore(tmp_path / "copy.backup")
    for _ in _SNAPSHOTS:
        with target.snapshot():
            assert [link.source for link in target.links([third.id])] == [third.id]
            assert len(target.names.find(["name 1 0", "name 9 0"])) == 1
    for store, _ in stores:
        store.close()


@pytest.mark.parametrize("most", [0, 1, 2, 3, 100])
def test_many_links_and_names_are_read_on_demand(
    postgres_url: str, tmp_path: Path, make_memory: Make, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(heads, "_MOST_LINKS", most)
    monkeypatch.setattr(heads, "_MOST_NAMES", most)
    store, owner = _owner(postgres_url, tmp_path)
    memories = [make_memory(str(number)) for number in range(4)]
    owner.apply(list(map(Add, memories)), batch="one")
    rows = [row for row, _ in owner.names.unread()]
    for number, (row, source) in enumerate(zip(rows[1:], memories[1:], strict=True), start=1):
        owner.apply([Connect(_link(source, memories[0], LinkKind.SEE_ALSO))], batch=str(number))
        owner.names.save({row: [Named(f"name {number}", "n", f"Name {number}", False, "name")]})
        for _ in _SNAPSHOTS:
            with owner.snapshot():
                assert len(owner.links([memories[0].id])) == number
                assert len(owner.names.find([f"name {each}" for each in range(5)])) == number
    store.close()


def test_few_links_and_keys_are_read_in_the_second_snapshot(
    postgres_url: str, tmp_path: Path, make_memory: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, owner = _owner(postgres_url, tmp_path)
    memories = [make_memory(str(number)) for number in range(3)]
    owner.apply([*map(Add, memories), Connect(_link(memories[0], memories[1]))], batch="one")
    rows = [row for row, _ in owner.names.unread()]
    owner.names.save({rows[0]: [Named("argo", "a", "Argo", False, "name")]})
    links, keys = _counted(owner._owner_database._link_ends, monkeypatch), _counted(owner.names._keys, monkeypatch)

    def read() -> tuple[list[int], list[int]]:
        links.clear()
        keys.clear()
        with owner.snapshot():
            for _ in range(2):
                assert owner.superseding_ids(rows).keys() == set(rows[:2])
                assert len(owner.links([memory.id for memory in memories])) == 1
                assert set(owner.names.find(["argo", "helm"])) == {"argo"}
        return list(links), list(keys)

    assert [read() for _ in range(3)] == [([], []), ([1], [1]), ([], [])]
    owner.erase([memories[2].id], batch="two")
    assert [read() for _ in range(3)] == [([], []), ([1], [1]), ([], [])]
    monkeypatch.setattr(heads, "_MOST_LINKS", 0)
    monkeypatch.setattr(heads, "_MOST_NAMES", 0)
    owner.apply([Add(fourth := make_memory("four"))], batch="three")
    owner.erase([fourth.id], batch="four")
    # No row comes: the server has counted them.
    assert [read() for _ in range(3)] == [([], []), ([0], [0]), ([], [])]
    store.close()


def _counted(followed: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each of its statements gave."""
    counts, read = list[int](), followed._read

    def counting(*asked: Any) -> list[Any]:
        counts.append(len(rows := read(*asked)))
        return rows

    monkeypatch.setattr(followed, "_read", counting)
    return counts


def test_changes_of_other_instances_invalidate_versions(
    postgres_url: str, tmp_path: Path, make_memory: Make, asked: list[str]
) -> None:
    (store, owner), (other_store, other) = _owner(postgres_url, tmp_path), _owner(postgres_url, tmp_path)
    one, two = make_memory("one"), make_memory("two")
    owner.apply([Add(one), Add(two)], batch="one")
    rows = [row for row, _ in owner.versions()]

    def read() -> dict[int, Memory]:
        with owner.snapshot():
            return owner.rows(rows)

    assert [memory.content for memory in read().values()] == ["one", "two"]
    asked.clear()
    assert list(read()) == rows and asked == ["snapshot", heads.SNAPSHOT_START]
    with psycopg.connect(postgres_url) as connection:
        # As a restore does, whose journal may end where the one before did.
        connection.execute("UPDATE triskele.meta SET value = md5(value) WHERE name = 'epoch'")
        connection.execute("UPDATE triskele.versions SET keywords = 'restored' WHERE id = %s", [one.id])
    assert [memory.keywords for memory in read().values()] == ["restored", two.keywords]
    other.apply([Revise(replace(one, version=2, content="uno"), 1)], batch="two")
    assert read()[rows[0]].known_to is not None
    other.erase([two.id], batch="three")
    assert list(read()) == rows[:1]
    # Outside of a snapshot nothing says how far the rows have come.
    other.erase([one.id], batch="four")
    assert owner.rows(rows) == {}
    for opened in (store, other_store):
        opened.close()


def test_version_cache_is_bounded(
    postgres_url: str, tmp_path: Path, make_memory: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads, "_MOST_VERSIONS", 2)
    monkeypatch.setattr(heads, "_LONGEST_KEPT", 5)
    store, owner = _owner(postgres_url, tmp_path)
    owner.apply([Add(make_memory(text)) for text in ("one", "two", "three", "four hundred")], batch="one")
    rows = [row for row, _ in owner.versions()]
    with owner.snapshot():
        assert list(owner.rows(reversed(rows))) == rows
        assert list(owner._versions._kept[1]) == rows[1:3]
        assert list(owner.rows([rows[0], 7, rows[3]])) == [rows[0], rows[3]]
        assert list(owner._versions._kept[1]) == [rows[2], rows[0]]
    store.close()


def test_caches_keep_owners_apart(postgres_url: str, tmp_path: Path, make_memory: Make, unfiltered: list[str]) -> None:
    store, owner = _owner(postgres_url, tmp_path)
    one, other = make_memory("one"), make_memory("two")
    owner.apply([Add(one), Add(other), Connect(_link(one, other))], batch="one")
    plans.adopt(owner, Plan(), fingerprint="model", questions=60)
    stranger = store.for_owner("you")
    copy = replace(one, owner="you")
    stranger.apply([Add(copy)], batch="two")
    for _ in _SNAPSHOTS:
        with owner.snapshot():
            assert len(owner.links([one.id])) == 1
            [row, _] = [row for row, _ in owner.versions([one.id, other.id])]
            assert owner.rows([row])[row].content == "one"
        with stranger.snapshot():
            assert stranger.rows([row]) == {}
            start = stranger._transactions.snapshot_start
            assert start is not None
            assert start.link == 0 and not any(start.documents.values())
            assert stranger.links([one.id, other.id]) == []
            assert plans.adopted(stranger) is None
    assert heads.SNAPSHOT_START in unfiltered
    store.close()
