"""Ends of shares on a real Postgres: a restore, and a name that is given again, bring none of them back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from triskele.errors import BadInput
from triskele.replies.rooms import GranteeKind
from triskele.server.accounts import Accounts
from triskele.server.postgres.truth import PostgresStore
from triskele.types import Action, Add, Memory, Revise

HERON = "the heron of Holm Bridge fishes at dawn"


@pytest.fixture
def heron(store: PostgresStore, make_memory: Callable[..., Memory]) -> str:
    """A memory of alice with a tag."""
    memory = replace(make_memory(HERON, tags=("birds",)), owner="alice")
    store.for_owner("alice").apply([Add(memory)], batch="heron")
    return memory.id


def test_restore_brings_back_no_ended_membership(
    store: PostgresStore, accounts: Accounts, heron: str, tmp_path: Path
) -> None:
    alice = store.for_owner("alice")
    accounts.groups.create("crew")
    accounts.groups.create("guests")
    accounts.groups.add("crew", "bob")
    for kind, name in (("group", "crew"), ("group", "guests"), ("user", "carol")):
        alice.shares.share("tag", "birds", kind, name)
    store.maintenance.backup(tmp_path / "a.backup")
    accounts.groups.remove("crew", "bob")
    accounts.groups.delete("guests")
    accounts.erase_user("carol")
    accounts.create_user("dora")
    accounts.groups.add("crew", "dora")

    store.maintenance.restore(tmp_path / "a.backup")

    assert store.for_owner("bob").history(heron) == [] == store.for_owner("carol").history(heron)
    assert store.for_owner("bob").journal(id=heron)[-1].action is Action.UNSHARED
    assert [memory.shared_by for memory in store.for_owner("dora").history(heron)] == ["alice"]
    assert [share.grantee for share in alice.shares.given()] == ["crew"]
    assert store.maintenance.check(deep=True) == []
    accounts.groups.remove("crew", "dora")
    assert store.for_owner("dora").history(heron) == []


def test_reused_name_starts_without_shares(
    store: PostgresStore, accounts: Accounts, heron: str, make_memory: Callable[..., Memory], postgres_url: str
) -> None:
    alice, bob = store.for_owner("alice"), store.for_owner("bob")
    accounts.groups.create("crew")
    own = make_memory("a kettle of his own", owner="bob")
    bob.apply([Add(own)], batch="own")
    alice.shares.share("tag", "birds", "user", "bob")
    alice.shares.share("tag", "birds", "group", "crew")
    with psycopg.connect(postgres_url) as connection:
        # As a deletion left them that a share came between.
        connection.execute("DELETE FROM triskele.users WHERE name = 'bob'")
        connection.execute("DELETE FROM triskele.groups WHERE name = 'crew'")
    accounts.create_user("bob")
    accounts.groups.create("crew")
    accounts.groups.add("crew", "carol")
    assert bob.history(heron) == [] == store.for_owner("carol").history(heron)
    assert bob.shares.received() == [] == alice.shares.given()
    alice.apply([Revise(replace(alice.history(heron)[-1], importance=0.9), base=1)], batch="edit")
    assert bob.history(heron) == [] and bob.history(own.id)
    assert store.maintenance.check(deep=True) == []


def test_delete_ends_shares_made_meanwhile(
    store: PostgresStore, accounts: Accounts, heron: str, monkeypatch: pytest.MonkeyPatch, postgres_url: str
) -> None:
    alice, groups = store.for_owner("alice"), accounts.groups
    groups.create("crew")
    ended, left = groups._unshared, ["group", "user"]

    def share_between(owner: str, kind: GranteeKind, grantee: str) -> None:
        ended(owner, kind, grantee)
        if kind in left:
            left.remove(kind)
            if kind == "group":
                groups.add(grantee, "carol")
            alice.shares.share("tag", "birds", kind, grantee)

    monkeypatch.setattr(groups, "_unshared", share_between)
    alice.shares.share("memory", heron, "group", "crew")
    groups.delete("crew")
    assert store.for_owner("carol").history(heron) == [] == groups.all()
    alice.shares.share("memory", heron, "user", "bob")
    accounts.erase_user("bob")
    assert left == [] == alice.shares.given()
    with psycopg.connect(postgres_url) as connection:
        for sql in ("shares", "shared_memories", "versions WHERE owner <> 'alice'"):
            assert connection.execute(f"SELECT count(*) FROM triskele.{sql}").fetchone() == (0,), sql


def test_share_refuses_the_empty_tag(store: PostgresStore, heron: str) -> None:
    with pytest.raises(BadInput, match="a tag is missing"):
        store.for_owner("alice").shares.share("tag", " ", "user", "bob")
    assert store.for_owner("bob").history(heron) == []


def test_erased_copy_returns_with_the_next_change(
    store: PostgresStore, heron: str, make_memory: Callable[..., Memory]
) -> None:
    alice, bob = store.for_owner("alice"), store.for_owner("bob")
    bob.apply([Add(replace(make_memory("a stone", owner="bob"), id=heron))], batch="own")
    alice.shares.share("memory", heron, "user", "bob")
    bob.erase([heron], batch="gone")
    assert bob.history(heron) == []
    alice.apply([Revise(replace(alice.history(heron)[-1], importance=0.9), base=1)], batch="edit")
    assert [memory.shared_by for memory in bob.history(heron)] == ["alice", "alice"]
