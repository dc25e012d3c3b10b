"""Ends of shares on a real Postgres: a restore, and a name that is given again, bring none of them back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from triskele.stores.postgres.accounts import Accounts
from triskele.stores.postgres.truth import PostgresStore
from triskele.types import Action, Add, Memory

HERON = "the heron of Holm Bridge fishes at dawn"


@pytest.fixture
def accounts(postgres_url: str) -> Iterator[Accounts]:
    found = Accounts(postgres_url)
    for name in ("alice", "bob", "carol"):
        found.create_user(name)
    yield found
    found.close()


@pytest.fixture
def store(postgres_url: str, accounts: Accounts, tmp_path: Path) -> Iterator[PostgresStore]:
    assert accounts.users()
    opened = PostgresStore(postgres_url, folder=tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def heron(store: PostgresStore, make_memory: Callable[..., Memory]) -> str:
    """A memory of alice with a tag."""
    memory = replace(make_memory(HERON, tags=("birds",)), owner="alice")
    store.of("alice").apply([Add(memory)], batch="heron")
    return memory.id


def test_a_restore_brings_no_ended_membership_back(
    store: PostgresStore, accounts: Accounts, heron: str, tmp_path: Path
) -> None:
    alice = store.of("alice")
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

    assert store.of("bob").history(heron) == [] == store.of("carol").history(heron)
    assert store.of("bob").journal(id=heron)[-1].action is Action.UNSHARED
    assert [memory.shared_by for memory in store.of("dora").history(heron)] == ["alice"]
    assert [share.grantee for share in alice.shares.given()] == ["crew"]
    assert store.maintenance.check(deep=True) == []
    accounts.groups.remove("crew", "dora")
    assert store.of("dora").history(heron) == []
