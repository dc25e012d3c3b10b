"""Shares on a real Postgres: who sees which rows, in whose journal a change stands, and that nothing stays behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest
from contract import owner_walk

from triskele import config
from triskele.curation.curator import Curator
from triskele.engine import Engine
from triskele.errors import BadInput, NotAllowed, NotFound, StoreUnavailable
from triskele.exchange.archive import export_archive, import_archive
from triskele.exchange.transfer import export_memories
from triskele.models.bundled import BundledEmbedder
from triskele.recall.concepts.lookup import about
from triskele.recall.plan import Plan
from triskele.serving.graph_view import graph_view
from triskele.stores.postgres.accounts import Accounts
from triskele.stores.postgres.connections import OwnerTransactions
from triskele.stores.postgres.truth import PostgresStore
from triskele.stores.protocols import START
from triskele.stores.sharing import ReceivedMemory, checked, shares_of
from triskele.types import Action, Add, Connect, Forget, Link, LinkKind, Memory, Outcome, Revise, Sensitivity

Open = Callable[..., Engine]
PEOPLE = ("alice", "bob", "carol")
HERON, OTTER = "the heron of Holm Bridge fishes at dawn", "the otter of Holm Bridge sleeps in the reeds"


@pytest.fixture
def accounts(postgres_url: str) -> Iterator[Accounts]:
    found = Accounts(postgres_url)
    for name in PEOPLE:
        found.create_user(name)
    yield found
    found.close()


@pytest.fixture
def store(postgres_url: str, accounts: Accounts, tmp_path: Path) -> Iterator[PostgresStore]:
    assert len(accounts.users()) == 3
    opened = PostgresStore(postgres_url, folder=tmp_path)
    yield opened
    opened.close()


@pytest.fixture(params=["local", "database"])
def corpus(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def open_as(tmp_path: Path, postgres_url: str, accounts: Accounts, corpus: str) -> Iterator[Open]:
    """Opens the engine of a person in a data folder of its own."""
    assert accounts.users()
    with ExitStack() as stack:

        def open_one(owner: str, home: str = "home") -> Engine:
            environment = {"TRISKELE_HOME": str(tmp_path / home / owner), "TRISKELE_STORE_CORPUS": corpus}
            settings = config.load(environment, store_url=postgres_url)
            settings = replace(settings, project="demo", memory=replace(settings.memory, owner=owner))
            return stack.enter_context(Engine(settings, tmp_path))

        yield open_one


def _shares(engine: Engine) -> Any:
    return shares_of(engine.store.shares)


def _ids(engine: Engine, text: str, **options: Any) -> list[str]:
    engine.embed()
    return [hit.memory.id for hit in engine.recall(text, logged=False, **options).hits]


def _added(store: PostgresStore, owner: str, *memories: Memory) -> list[str]:
    added = [replace(each, owner=owner) for each in memories]
    store.of(owner).apply([Add(each) for each in added], batch=f"by {owner}")
    return [each.id for each in added]


def _actions(store: PostgresStore, owner: str) -> list[tuple[Action, str, str]]:
    return [(entry.action, entry.id, entry.actor) for entry in store.of(owner).journal()]


def test_a_reader_finds_what_is_shared_by_every_leg_and_nothing_afterwards(open_as: Open, corpus: str) -> None:
    alice, bob, carol = map(open_as, PEOPLE)
    elsewhere = open_as("bob", "second")
    heron, otter = (alice.remember(text).id for text in (HERON, OTTER))
    alice.link(heron, LinkKind.SEE_ALSO, otter)
    alice.embed()
    bob.remember("a kettle of his own")
    assert heron not in {*_ids(bob, "heron"), *_ids(elsewhere, "heron")}
    for id in (heron, otter):
        _shares(alice).share("memory", id, "user", "bob")

    for engine in (bob, elsewhere):
        engine.embed()
        for legs in ({"lexical"}, {"dense"}, {"lexical", "graph"}, None):
            found = engine.recall("the heron of Holm Bridge", legs=legs, logged=False)
            assert found.hits[0].memory.id == heron, legs
            assert found.hits[0].memory.shared_by == "alice"
        bridge = about(graph_view(engine), "Holm Bridge")
        assert {each.id for each in (*bridge.subject_of, *bridge.mentioned_in)} == {heron, otter}
        assert {each.id for each in engine.browse() if each.shared_by} == {heron, otter}
        assert engine.get(heron[:12]).content == HERON
        assert [entry.action for entry in engine.history(heron)] == [Action.SHARED]
        assert [(link.source, link.target) for link in engine.links(heron)] == [(heron, otter)]
        assert engine.why_not(otter, "heron", legs={"lexical"}).stages
        assert engine.store.entities.find(["holm bridge"])
        assert engine.census().memories == 1
    for text in ("heron", "the heron of Holm Bridge", "otter"):
        assert _ids(carol, text) == []
    with pytest.raises(NotFound):
        carol.get(heron)

    for id in (heron, otter):
        _shares(alice).unshare("memory", id, "user", "bob")
    for engine in (bob, elsewhere):
        assert not {heron, otter} & {*_ids(engine, "the heron of Holm Bridge"), *_ids(engine, "Holm Bridge", limit=50)}
        assert not {heron, otter} & {each.id for each in engine.browse()}
        assert engine.links(engine.browse()[0].id) == []
        assert not engine.store.entities.find(["holm bridge"])
        with pytest.raises(NotFound):
            engine.history(heron)
        with pytest.raises(NotFound):
            about(graph_view(engine), "Holm Bridge")
        assert engine.inspect(deep=True, repair=False).findings == ()
    assert _ids(alice, "heron")[0] == heron


def test_a_walk_passes_a_shared_memory_while_it_is_shared(open_as: Open) -> None:
    alice, bob = open_as("alice"), open_as("bob")
    bob.remember("Invoices that fail are retried by Kestrel after an hour")
    far = bob.remember("Marta Lindqvist works from the Tromsø office on Thursdays").id
    bridge = alice.remember("Kestrel is the service that Marta Lindqvist maintains").id
    plan = Plan(legs=frozenset({"lexical", "graph"}), fusion="rrf", walk="hops", rerank="late")

    def is_reached() -> bool:
        bob.embed()
        return far in {hit.memory.id for hit in bob.ask("what happens to invoices that fail?", plan).hits}

    assert not is_reached()
    _shares(alice).share("memory", bridge, "user", "bob")
    assert is_reached()
    _shares(alice).unshare("memory", bridge, "user", "bob")
    assert not is_reached()


def test_edits_forgets_and_supersessions_reach_the_reader_before_its_next_recall(open_as: Open) -> None:
    alice, bob = open_as("alice"), open_as("bob")
    heron = alice.remember(HERON, tags=["birds"]).id
    _shares(alice).share("tag", "birds", "user", "bob")
    assert _ids(bob, "heron") == [heron]
    alice.edit(heron, content="the heron of Holm Bridge moved to Skarn Lake")
    assert bob.recall("heron", logged=False).hits[0].memory.content.endswith("Skarn Lake")
    crane = alice.remember("a crane took the place at Holm Bridge", tags=["birds"], supersedes=heron).id
    assert _ids(bob, "heron", show_superseded=False)[:1] == [crane]
    alice.forget(crane)
    assert _ids(bob, "crane") == [heron]
    alice.undo()
    assert crane in _ids(bob, "crane")
    assert len(bob.versions(heron)) == 2
    alice.erase(heron)
    assert heron not in _ids(bob, "heron")
    assert bob.store.history(heron) == [] and bob.store.journal(id=heron)[-1].action is Action.ERASED


@pytest.mark.parametrize("corpus", ["local"], indirect=True)
def test_vectors_are_copied_and_no_text_is_embedded_again(open_as: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    alice, bob = open_as("alice"), open_as("bob")
    bob.embed()
    heron = alice.remember(HERON).id
    alice.embed()

    def refuse(*_: object) -> None:
        raise AssertionError("a text was embedded again")

    monkeypatch.setattr(BundledEmbedder, "encode_documents", refuse)
    _shares(alice).share("memory", heron, "user", "bob")
    assert bob.store.vectors.count_waiting() == 0
    assert [hit.memory.id for hit in bob.recall("a bird at a river", legs={"dense"}, logged=False).hits] == [heron]


@pytest.mark.parametrize("corpus", ["local"], indirect=True)
def test_files_of_a_reader_keep_no_word_of_what_was_unshared_or_erased(
    open_as: Open, tmp_path: Path, new_word: Callable[[], str], traces: Callable[..., set[tuple[str, str]]]
) -> None:
    alice, bob = open_as("alice"), open_as("bob")
    first, second = new_word(), new_word()
    ids = [alice.remember(f"{word} drinks tea").id for word in (first, second)]
    for id in ids:
        _shares(alice).share("memory", id, "user", "bob")
    bob.reindex()
    assert {word for _, word in traces(tmp_path / "home" / "bob", [first, second])} == {first, second}
    _shares(alice).unshare("memory", ids[0], "user", "bob")
    alice.erase(ids[1])
    # The next answer makes the files again.
    assert _ids(bob, "tea") == []
    assert traces(tmp_path / "home" / "bob", [first, second]) == set()


@pytest.mark.parametrize("corpus", ["local"], indirect=True)
@pytest.mark.parametrize(
    "act",
    [
        lambda engine, id: engine.edit(id, content="mine now"),
        lambda engine, id: engine.edit(id, importance=1.0),
        lambda engine, id: engine.forget(id),
        lambda engine, id: engine.erase(id),
        lambda engine, id: engine.seal(id),
        lambda engine, id: engine.edit(id, sensitivity="private"),
        lambda engine, id: engine.reveal(id),
        lambda engine, id: engine.undo(engine.store.journal(id=id)[-1].batch),
        lambda engine, id: engine.link(id, LinkKind.SUPERSEDES, engine.browse()[-1].id),
        lambda engine, id: _shares(engine).share("memory", id, "user", "carol"),
        lambda engine, id: engine.apply([Add(replace(engine.get(id), version=9, known_to=engine.get(id).known_from))]),
        lambda engine, id: engine.acting_as("client:agent").forget(id),
    ],
)
def test_reading_changes_nothing(open_as: Open, act: Callable[[Engine, str], object]) -> None:
    alice, bob = open_as("alice"), open_as("bob")
    heron, otter = (alice.remember(text).id for text in (HERON, OTTER))
    for id in (heron, otter):
        _shares(alice).share("memory", id, "user", "bob")
    alice.edit(heron, importance=0.9)
    before = owner_walk.truth_of(alice.store), owner_walk.truth_of(bob.store)
    with pytest.raises((NotAllowed, BadInput)) as refusal:
        act(bob, heron)
    assert "\n" not in str(refusal.value)
    assert (owner_walk.truth_of(alice.store), owner_walk.truth_of(bob.store)) == before


def test_a_writer_changes_the_owners_row_and_both_journals_say_who(
    store: PostgresStore, make_memory: Callable[..., Memory]
) -> None:
    [id, other] = _added(store, "alice", make_memory(HERON), make_memory(OTTER))
    alice, bob = store.of("alice"), store.of("bob")
    for each in (id, other):
        alice.shares.share("memory", each, "user", "bob", access="write")
    alice.shares.share("memory", id, "user", "carol")
    mine = bob.history(id)[-1]
    edited = Revise(replace(mine, importance=0.9), base=mine.version)
    own = make_memory("his own", owner="bob")
    [first, outcome] = bob.apply([Add(own), edited], batch="two owners")
    assert [entry.seq for entry in bob.journal(batch="two owners")] == [first.seq, outcome.seq]
    assert [(entry.action, entry.actor) for entry in alice.journal(batch="two owners")] == [(Action.EDITED, "bob/user")]
    assert [(entry.action, entry.actor) for entry in store.of("carol").journal(batch="two owners")] == [
        (Action.EDITED, "bob/user")
    ]
    for owner in PEOPLE:
        assert store.of(owner).history(id)[-1].importance == 0.9
    bob.apply([Forget(id)], batch="gone")
    assert all(store.of(owner).memories([id]) == {} for owner in PEOPLE)
    link = Link(source=id, kind=LinkKind.SEE_ALSO, target=other, known_from=mine.known_from)
    bob.apply([Connect(link)], batch="link")
    assert [len(store.of(owner).links([id])) for owner in PEOPLE] == [1, 1, 0]
    for name, value in {"tags": ("x",), "project": "p", "sensitivity": Sensitivity.PRIVATE}.items():
        with pytest.raises(NotAllowed, match=f"only alice can change its {name}"):
            bob.apply([Revise(replace(bob.history(id)[-1], **{name: value}), base=2)], batch="no")


@pytest.mark.parametrize("corpus", ["local"], indirect=True)
def test_owner_and_writer_can_undo(open_as: Open) -> None:
    alice, bob = open_as("alice"), open_as("bob")
    id = alice.remember(HERON).id
    _shares(alice).share("memory", id, "user", "bob", access="write")
    bob.edit(id, content=OTTER)
    bob.undo()
    assert alice.get(id).content == bob.get(id).content == HERON
    with pytest.raises(NotFound, match="nothing to undo"):
        bob.undo()
    batch = bob.edit(id, content=OTTER).batch
    alice.undo(batch)
    assert alice.get(id).content == bob.get(id).content == HERON
    assert alice.undo()[0].action is Action.FORGOTTEN
    assert bob.store.memories([id]) == {}


def test_private_and_secret_memories_are_nobody_elses(store: PostgresStore, make_memory: Callable[..., Memory]) -> None:
    alice, bob = store.of("alice"), store.of("bob")
    [private] = _added(store, "alice", make_memory(HERON, sensitivity=Sensitivity.PRIVATE, tags=("birds",)))
    with pytest.raises(BadInput, match="only open memories can be shared"):
        alice.shares.share("memory", private, "user", "bob")
    alice.shares.share("tag", "birds", "user", "bob")
    assert bob.history(private) == []
    [id] = _added(store, "alice", make_memory(OTTER, tags=("birds",)))
    alice.shares.share("memory", id, "user", "bob", access="write")
    assert bob.history(id)
    latest = alice.history(id)[-1]
    alice.apply([Revise(replace(latest, sensitivity=Sensitivity.PRIVATE), base=1)], batch="closed")
    assert bob.history(id) == []
    assert [share.subject for share in alice.shares.given()] == ["tag"]
    alice.apply([Revise(replace(latest, sensitivity=Sensitivity.OPEN), base=2)], batch="opened")
    # The tag covers it again; the version that was private stays its owner's.
    assert [each.version for each in bob.history(id)] == [1, 3]
    assert bob.shares.received() == [ReceivedMemory(id=id, owner="alice", access="read")]


def test_a_tag_covers_what_has_it_and_ends_with_it(store: PostgresStore, make_memory: Callable[..., Memory]) -> None:
    alice, bob = store.of("alice"), store.of("bob")
    [first] = _added(store, "alice", make_memory(HERON, tags=("birds",)))
    alice.shares.share("tag", "birds", "user", "bob")
    [second, third] = _added(store, "alice", make_memory(OTTER, tags=("birds",)), make_memory("a stone"))
    assert {memory.id for _, memory in bob.versions()} == {first, second}
    alice.apply([Revise(replace(alice.history(third)[-1], tags=("birds",)), base=1)], batch="tag")
    alice.apply([Revise(replace(alice.history(first)[-1], tags=()), base=1)], batch="untag")
    assert {memory.id for _, memory in bob.versions()} == {second, third}
    alice.shares.share("memory", second, "user", "bob", access="write")
    alice.shares.unshare("tag", "birds", "user", "bob")
    assert bob.shares.received() == [ReceivedMemory(id=second, owner="alice", access="write")]
    assert [action for action, id, _ in _actions(store, "bob") if id == third] == [Action.SHARED, Action.UNSHARED]


def test_what_is_shared_is_not_shared_on_by_a_tag(store: PostgresStore, make_memory: Callable[..., Memory]) -> None:
    alice, bob, carol = (store.of(owner) for owner in PEOPLE)
    [heron] = _added(store, "alice", make_memory(HERON, tags=("birds",)))
    [own] = _added(store, "bob", make_memory(OTTER, tags=("birds",)))
    alice.shares.share("memory", heron, "user", "bob", access="write")
    bob.shares.share("tag", "birds", "user", "carol")
    link = Link(source=own, kind=LinkKind.SEE_ALSO, target=heron, known_from=bob.history(own)[0].known_from)
    bob.apply([Connect(link)], batch="link")
    edited = replace(bob.history(heron)[-1], importance=0.9)
    bob.apply([Revise(edited, base=1), Revise(replace(bob.history(own)[-1], importance=0.9), base=1)], batch="both")
    assert {memory.id for _, memory in carol.versions()} == {own}
    assert carol.links([own]) == [] and alice.links([heron]) == [] and len(bob.links([own])) == 1


def test_groups_come_and_go_with_their_members(
    store: PostgresStore, accounts: Accounts, make_memory: Callable[..., Memory]
) -> None:
    alice, bob, carol = (store.of(owner) for owner in PEOPLE)
    [id] = _added(store, "alice", make_memory(HERON, tags=("birds",)))
    with pytest.raises(NotFound, match="there is no group crew"):
        alice.shares.share("tag", "birds", "group", "crew")
    accounts.groups.create("crew")
    accounts.groups.add("crew", "bob")
    alice.shares.share("tag", "birds", "group", "crew")
    assert bob.history(id) and not carol.history(id)
    assert accounts.groups.add("crew", "carol").members == ("bob", "carol")
    assert carol.history(id)
    accounts.groups.add("crew", "alice")
    assert len(alice.history(id)) == 1
    accounts.groups.remove("crew", "bob")
    assert carol.history(id) and not bob.history(id)
    accounts.groups.delete("crew")
    assert not carol.history(id) and alice.shares.given() == [] and accounts.groups.all() == []


def test_a_user_that_is_erased_leaves_no_share(
    store: PostgresStore, accounts: Accounts, make_memory: Callable[..., Memory], postgres_url: str
) -> None:
    [hers] = _added(store, "alice", make_memory(HERON))
    [his] = _added(store, "bob", make_memory(OTTER))
    accounts.groups.create("crew")
    accounts.groups.add("crew", "bob")
    store.of("alice").shares.share("memory", hers, "group", "crew")
    store.of("alice").shares.share("memory", hers, "user", "bob")
    store.of("bob").shares.share("memory", his, "user", "carol", access="write")
    accounts.erase_user("bob")
    assert store.of("carol").history(his) == [] and store.of("alice").history(hers)
    with psycopg.connect(postgres_url) as connection:
        for table in ("versions", "shares", "shared_memories", "vectors", "journal"):
            rows = connection.execute(f"SELECT count(*) FROM triskele.{table} WHERE owner = 'bob'").fetchone()
            assert rows == (0,), table
        assert connection.execute("SELECT count(*) FROM triskele.shared_memories").fetchone() == (0,)


def test_policies_alone_keep_what_is_shared_with_one_from_another(
    store: PostgresStore, make_memory: Callable[..., Memory], unfiltered: list[str], accounts: Accounts
) -> None:
    """Every condition on the owner is switched off: a third user still reads nothing, and a reader changes nothing."""
    known = owner_walk.seed_truth(store.of("alice"), owner_walk.made(make_memory))
    for id in (known.memories[0].id, known.memories[1].id):
        store.of("alice").shares.share("memory", id, "user", "bob")
    bob, carol = store.of("bob"), store.of("carol")
    assert {memory.id for _, memory in bob.versions()} == {each.id for each in known.memories[:2]}
    assert [memory for _, memory in carol.versions()] == [] == carol.shares.received() == carol.shares.given()
    assert bob.shares.given() == [] and len(bob.shares.received()) == 2
    assert unfiltered and accounts.users()
    with OwnerTransactions(store._connections, "carol").writing() as connection:
        for table in ("versions", "links", "shares", "shared_memories", "journal", "vectors"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table
    with OwnerTransactions(store._connections, "bob").writing() as connection:
        assert connection.execute("UPDATE versions SET importance = 1").rowcount == 0
        assert connection.execute("DELETE FROM versions").rowcount == 0
        assert connection.execute("UPDATE shared_memories SET access = 'write'").rowcount == 0
    with (
        pytest.raises(StoreUnavailable, match="row-level security"),
        OwnerTransactions(store._connections, "bob").writing() as connection,
    ):
        connection.execute("INSERT INTO shared_memories VALUES ('alice', 'x', 'bob', 'write')")


def test_an_id_that_the_reader_has_itself_stays_its_own(
    store: PostgresStore, make_memory: Callable[..., Memory]
) -> None:
    [id] = _added(store, "alice", make_memory(HERON))
    own = replace(make_memory(OTTER, owner="bob"), id=id)
    store.of("bob").apply([Add(own)], batch="his")
    store.of("alice").shares.share("memory", id, "user", "bob")
    assert [each.content for each in store.of("bob").history(id)] == [OTTER]
    store.of("alice").shares.unshare("memory", id, "user", "bob")
    assert [each.content for each in store.of("bob").history(id)] == [OTTER]
    assert store.of("bob").shares.received() == []


@pytest.mark.parametrize("corpus", ["local"], indirect=True)
def test_an_export_and_a_duplicate_are_of_ones_own(open_as: Open, tmp_path: Path) -> None:
    alice, bob = open_as("alice"), open_as("bob")
    heron = alice.remember(HERON)
    _shares(alice).share("memory", heron.id, "user", "bob")
    kept = bob.remember(HERON)
    assert kept.action is Action.ADDED
    assert Curator(bob).hints(bob.get(kept.id)) == [] == Curator(bob).word_hints(bob.get(kept.id))
    report = export_memories(bob, tmp_path / "bob.jsonl")
    text = (tmp_path / "bob.jsonl").read_text(encoding="utf-8")
    assert report.written == 1 and kept.id in text and heron.id not in text


def test_a_backup_brings_shares_back(store: PostgresStore, make_memory: Callable[..., Memory], tmp_path: Path) -> None:
    [id] = _added(store, "alice", make_memory(HERON))
    store.of("alice").shares.share("memory", id, "user", "bob")
    store.maintenance.backup(tmp_path / "a.backup")
    store.of("alice").shares.unshare("memory", id, "user", "bob")
    assert store.maintenance.check(deep=True) == []
    store.maintenance.restore(tmp_path / "a.backup")
    assert [memory.shared_by for memory in store.of("bob").history(id)] == ["alice"]
    assert store.maintenance.check(deep=True) == []
    store.of("alice").apply([Forget(id)], batch="gone")
    assert store.of("bob").memories([id]) == {}


def test_two_owners_who_share_with_each_other_never_wait_in_a_circle(
    store: PostgresStore, make_memory: Callable[..., Memory]
) -> None:
    pairs = (("alice", "bob"), ("bob", "alice"))
    ids = {owner: _added(store, owner, *(make_memory(f"{owner} {n}") for n in range(3))) for owner, _ in pairs}
    problems: list[BaseException] = []

    def work(owner: str, other: str, seed: int) -> None:
        random, own = Random(seed), store.of(owner)
        try:
            for _ in range(25):
                id = random.choice(ids[owner] + ids[other])
                _random_change(own, other, id, random)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(*pair, seed)) for seed, pair in enumerate(pairs * 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert store.maintenance.check(deep=True) == []
    for owner, other in pairs:
        entries = store.of(owner).journal(limit=10_000)
        assert [entry.seq for entry in entries] == sorted(entry.seq for entry in entries)
        assert [entry.at for entry in entries] == sorted(entry.at for entry in entries)
        for each in store.of(other).shares.received():
            if each.owner == owner:
                theirs = [(m.version, m.content, m.known_to) for m in store.of(other).history(each.id)]
                assert theirs == [(m.version, m.content, m.known_to) for m in store.of(owner).history(each.id)]
    assert store.of("alice").changes_since(START).entries


def _random_change(own: Any, other: str, id: str, random: Random) -> list[Outcome] | None:
    history = own.history(id)
    try:
        if not history:
            return None
        if history[-1].shared_by is None and random.random() < 0.5:
            access = random.choice(["read", "write"])
            if random.random() < 0.6:
                own.shares.share("memory", id, "user", other, access=access)
            else:
                own.shares.unshare("memory", id, "user", other)
            return None
        if random.random() < 0.3:
            return list(own.apply([Forget(id)], batch=f"forget {random.random()}"))
        revised = replace(history[-1], importance=round(random.random(), 3))
        return list(own.apply([Revise(revised, base=history[-1].version)], batch=f"edit {random.random()}"))
    except (NotAllowed, NotFound):
        return None
    except Exception as error:
        if "was changed meanwhile" in str(error):
            return None
        raise


@pytest.mark.parametrize("corpus", ["local"], indirect=True)
def test_an_archive_holds_ones_own_memories_alone(open_as: Open, tmp_path: Path) -> None:
    alice, bob = open_as("alice"), open_as("bob")
    heron, otter = (alice.remember(text).id for text in (HERON, OTTER))
    bob.remember("the garden of Holm Bridge is watered on Mondays")
    for id in (heron, otter):
        _shares(alice).share("memory", id, "user", "bob")
    bob.embed()
    _shares(alice).unshare("memory", otter, "user", "bob")
    alice.edit(heron, content="the heron of Holm Bridge fishes at noon")
    for engine in (bob, alice):
        archive = tmp_path / f"{engine.store.owner}.archive"
        export_archive(engine, archive, include_private=True)
        home = {"TRISKELE_HOME": str(tmp_path / f"moved {engine.store.owner}"), "TRISKELE_PROJECT": "demo"}
        with Engine(config.load(home), tmp_path) as moved:
            import_archive(moved, archive, keep_origin=True)
            assert moved.inspect(deep=True).findings == ()
            assert moved.census().memories == engine.census().memories
    assert not any(word in (tmp_path / "bob.archive").read_text() for word in ("heron", "otter"))


def test_a_memory_of_a_reader_does_not_replace_a_shared_one(
    store: PostgresStore, make_memory: Callable[..., Memory]
) -> None:
    alice, bob = store.of("alice"), store.of("bob")
    [shared] = _added(store, "alice", make_memory("the gate is green"))
    shares_of(alice.shares).share("memory", shared, "user", "bob", access="write")
    [own] = _added(store, "bob", make_memory("the gate is blue"))
    link = Link(source=own, kind=LinkKind.SUPERSEDES, target=shared, known_from=make_memory().known_from)
    with pytest.raises(NotAllowed, match="only alice can replace it"):
        bob.apply([Connect(link)], batch="replacing")
    bob.apply([Connect(replace(link, kind=LinkKind.SEE_ALSO))], batch="naming")


def test_a_tag_is_shared_as_memories_keep_it() -> None:
    assert checked(None, "Team Ü,  X", "bob", None) == ("tag", "team ü x", "user", "bob")
    with pytest.raises(BadInput):
        checked(None, None, "bob", None)
