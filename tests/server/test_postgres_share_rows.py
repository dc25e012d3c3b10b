"""Shares on a real Postgres, in rows: who has which of them, in whose journal a change stands, and how shares end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest
from contract import owner_walk

from triskele.errors import BadInput, NotAllowed, NotFound, StoreUnavailable
from triskele.replies.rooms import ReceivedMemory
from triskele.server.accounts import Accounts
from triskele.server.postgres.connections import OwnerTransactions
from triskele.server.postgres.truth import PostgresStore
from triskele.store.values import START
from triskele.types import Action, Add, Connect, Forget, Link, LinkKind, Memory, Outcome, Revise, Sensitivity
from triskele.validation import check_share

PEOPLE = ("alice", "bob", "carol")
HERON, OTTER = "the heron of Holm Bridge fishes at dawn", "the otter of Holm Bridge sleeps in the reeds"


def _added(store: PostgresStore, owner: str, *memories: Memory) -> list[str]:
    added = [replace(each, owner=owner) for each in memories]
    store.for_owner(owner).apply([Add(each) for each in added], batch=f"by {owner}")
    return [each.id for each in added]


def _actions(store: PostgresStore, owner: str) -> list[tuple[Action, str, str]]:
    return [(entry.action, entry.id, entry.actor) for entry in store.for_owner(owner).journal()]


def test_edit_of_a_shared_memory_is_in_both_journals(store: PostgresStore, make_memory: Callable[..., Memory]) -> None:
    [id, other] = _added(store, "alice", make_memory(HERON), make_memory(OTTER))
    alice, bob = store.for_owner("alice"), store.for_owner("bob")
    for each in (id, other):
        alice.shares.share("memory", each, "user", "bob", access="write")
    alice.shares.share("memory", id, "user", "carol")
    mine = bob.history(id)[-1]
    edited = Revise(replace(mine, importance=0.9), base=mine.version)
    own = make_memory("his own", owner="bob")
    [first, outcome] = bob.apply([Add(own), edited], batch="two owners")
    assert [entry.seq for entry in bob.journal(batch="two owners")] == [first.seq, outcome.seq]
    assert [(entry.action, entry.actor) for entry in alice.journal(batch="two owners")] == [(Action.EDITED, "bob/user")]
    assert [(entry.action, entry.actor) for entry in store.for_owner("carol").journal(batch="two owners")] == [
        (Action.EDITED, "bob/user")
    ]
    for owner in PEOPLE:
        assert store.for_owner(owner).history(id)[-1].importance == 0.9
    bob.apply([Forget(id)], batch="gone")
    assert all(store.for_owner(owner).memories([id]) == {} for owner in PEOPLE)
    link = Link(source=id, kind=LinkKind.SEE_ALSO, target=other, known_from=mine.known_from)
    bob.apply([Connect(link)], batch="link")
    assert [len(store.for_owner(owner).links([id])) for owner in PEOPLE] == [1, 1, 0]
    for name, value in {"tags": ("x",), "project": "p", "sensitivity": Sensitivity.PRIVATE}.items():
        with pytest.raises(NotAllowed, match=f"only alice can change its {name}"):
            bob.apply([Revise(replace(bob.history(id)[-1], **{name: value}), base=2)], batch="no")


def test_share_refuses_private_and_secret_memories(store: PostgresStore, make_memory: Callable[..., Memory]) -> None:
    alice, bob = store.for_owner("alice"), store.for_owner("bob")
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


def test_share_of_a_tag_follows_the_tag(store: PostgresStore, make_memory: Callable[..., Memory]) -> None:
    alice, bob = store.for_owner("alice"), store.for_owner("bob")
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


def test_share_of_a_tag_leaves_out_received_memories(store: PostgresStore, make_memory: Callable[..., Memory]) -> None:
    alice, bob, carol = (store.for_owner(owner) for owner in PEOPLE)
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


def test_share_with_a_group_follows_its_members(
    store: PostgresStore, accounts: Accounts, make_memory: Callable[..., Memory]
) -> None:
    alice, bob, carol = (store.for_owner(owner) for owner in PEOPLE)
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


def test_erase_user_leaves_no_share(
    store: PostgresStore, accounts: Accounts, make_memory: Callable[..., Memory], postgres_url: str
) -> None:
    [hers] = _added(store, "alice", make_memory(HERON))
    [his] = _added(store, "bob", make_memory(OTTER))
    accounts.groups.create("crew")
    accounts.groups.add("crew", "bob")
    store.for_owner("alice").shares.share("memory", hers, "group", "crew")
    store.for_owner("alice").shares.share("memory", hers, "user", "bob")
    store.for_owner("bob").shares.share("memory", his, "user", "carol", access="write")
    accounts.erase_user("bob")
    assert store.for_owner("carol").history(his) == [] and store.for_owner("alice").history(hers)
    with psycopg.connect(postgres_url) as connection:
        for table in ("versions", "shares", "shared_memories", "vectors", "journal"):
            rows = connection.execute(f"SELECT count(*) FROM triskele.{table} WHERE owner = 'bob'").fetchone()
            assert rows == (0,), table
        assert connection.execute("SELECT count(*) FROM triskele.shared_memories").fetchone() == (0,)


def test_policies_keep_shared_rows_from_other_readers(
    store: PostgresStore, make_memory: Callable[..., Memory], unfiltered: list[str], accounts: Accounts
) -> None:
    """Every condition on the owner is switched off: a third user still reads nothing, and a reader changes nothing."""
    known = owner_walk.seed_truth(store.for_owner("alice"), owner_walk.made(make_memory))
    for id in (known.memories[0].id, known.memories[1].id):
        store.for_owner("alice").shares.share("memory", id, "user", "bob")
    bob, carol = store.for_owner("bob"), store.for_owner("carol")
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


def test_share_leaves_own_memories_of_the_reader(store: PostgresStore, make_memory: Callable[..., Memory]) -> None:
    [id] = _added(store, "alice", make_memory(HERON))
    own = replace(make_memory(OTTER, owner="bob"), id=id)
    store.for_owner("bob").apply([Add(own)], batch="his")
    store.for_owner("alice").shares.share("memory", id, "user", "bob")
    assert [each.content for each in store.for_owner("bob").history(id)] == [OTTER]
    store.for_owner("alice").shares.unshare("memory", id, "user", "bob")
    assert [each.content for each in store.for_owner("bob").history(id)] == [OTTER]
    assert store.for_owner("bob").shares.received() == []


def test_restore_brings_shares_back(store: PostgresStore, make_memory: Callable[..., Memory], tmp_path: Path) -> None:
    [id] = _added(store, "alice", make_memory(HERON))
    store.for_owner("alice").shares.share("memory", id, "user", "bob")
    store.maintenance.backup(tmp_path / "a.backup")
    store.for_owner("alice").shares.unshare("memory", id, "user", "bob")
    assert store.maintenance.check(deep=True) == []
    store.maintenance.restore(tmp_path / "a.backup")
    assert [memory.shared_by for memory in store.for_owner("bob").history(id)] == ["alice"]
    assert store.maintenance.check(deep=True) == []
    store.for_owner("alice").apply([Forget(id)], batch="gone")
    assert store.for_owner("bob").memories([id]) == {}


def test_mutual_shares_never_deadlock(store: PostgresStore, make_memory: Callable[..., Memory]) -> None:
    pairs = (("alice", "bob"), ("bob", "alice"))
    ids = {owner: _added(store, owner, *(make_memory(f"{owner} {n}") for n in range(3))) for owner, _ in pairs}
    problems: list[BaseException] = []

    def work(owner: str, other: str, seed: int) -> None:
        random, own = Random(seed), store.for_owner(owner)
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
        entries = store.for_owner(owner).journal(limit=10_000)
        assert [entry.seq for entry in entries] == sorted(entry.seq for entry in entries)
        assert [entry.at for entry in entries] == sorted(entry.at for entry in entries)
        for each in store.for_owner(other).shares.received():
            if each.owner == owner:
                theirs = [(m.version, m.content, m.known_to) for m in store.for_owner(other).history(each.id)]
                assert theirs == [(m.version, m.content, m.known_to) for m in store.for_owner(owner).history(each.id)]
    assert store.for_owner("alice").changes_since(START).entries


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


def test_supersede_refuses_shared_memories(store: PostgresStore, make_memory: Callable[..., Memory]) -> None:
    alice, bob = store.for_owner("alice"), store.for_owner("bob")
    [shared] = _added(store, "alice", make_memory("the gate is green"))
    alice.shares.share("memory", shared, "user", "bob", access="write")
    [own] = _added(store, "bob", make_memory("the gate is blue"))
    link = Link(source=own, kind=LinkKind.SUPERSEDES, target=shared, known_from=make_memory().known_from)
    with pytest.raises(NotAllowed, match="only alice can replace it"):
        bob.apply([Connect(link)], batch="replacing")
    bob.apply([Connect(replace(link, kind=LinkKind.SEE_ALSO))], batch="naming")


def test_share_of_a_tag_normalises_the_tag() -> None:
    assert check_share(None, "Team Ü,  X", "bob", None) == ("tag", "team ü x", "user", "bob")
    with pytest.raises(BadInput):
        check_share(None, None, "bob", None)
