"""Row-level security alone keeps owners apart: here every condition on the owner in our statements is switched off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from contract import owner_walk

from triskele.errors import StoreUnavailable
from triskele.server.accounts import Accounts
from triskele.server.postgres.connections import _PREPARED_AFTER, OwnerTransactions, every_owner
from triskele.server.postgres.truth import PostgresOwnerStore, PostgresStore
from triskele.types import Add, Memory

NEAR = ("alice ", "Alice", "alice2", "alic", "ALICE", "bob", "alice%", "")
_WRITES = {
    "apply claim register_folder erase seal reseal",
    "save drop complete use_model set_concepts forget add release fail retry put delete swap",
    "recalled injected lose end flush share unshare",
}
WRITES = {name for names in _WRITES for name in names.split()}
PARTS: dict[str, owner_walk.Calls] = {
    "": {**owner_walk.TRUTH, **owner_walk.WHOLE},
    "vectors": owner_walk.VECTORS,
    "names": owner_walk.MENTIONED_NAMES,
    "jobs": owner_walk.JOBS,
    "models": owner_walk.MODELS,
    "documents": owner_walk.DOCUMENTS,
    "usage": owner_walk.USAGE,
    "shares": owner_walk.SHARES,
}


@pytest.fixture
def store(postgres_url: str, tmp_path: Path) -> Iterator[PostgresStore]:
    opened = PostgresStore(postgres_url, folder=tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def known(store: PostgresStore, make_memory: Callable[..., Memory]) -> owner_walk.Known:
    """What alice has: one of everything."""
    alice = store.for_owner("alice")
    return owner_walk.seed_derived(alice, owner_walk.seed_truth(alice, owner_walk.made(make_memory)))


def _answers(store: PostgresOwnerStore, known: owner_walk.Known) -> dict[tuple[str, str, int], object]:
    return {
        (part, name, number): owner_walk.outcome_of(call, store, known)
        for part, calls in PARTS.items()
        for name, each in calls.items()
        if name not in WRITES
        for number, call in enumerate(each)
    }


@pytest.mark.parametrize("owner", NEAR, ids=repr)
def test_reads_keep_owners_apart(
    store: PostgresStore, known: owner_walk.Known, unfiltered: list[str], owner: str, new_postgres: Callable[[], str]
) -> None:
    empty = PostgresStore(new_postgres(), folder=Path("unused"))
    try:
        expected = _answers(empty.for_owner(owner), known)
    finally:
        empty.close()
    assert _answers(store.for_owner(owner), known) == expected
    assert len(set(unfiltered)) > 30
    assert store.for_owner("alice").history(known.id)


def test_reads_of_a_third_owner_show_no_shared_rows(
    store: PostgresStore,
    known: owner_walk.Known,
    unfiltered: list[str],
    postgres_url: str,
    new_postgres: Callable[[], str],
) -> None:
    accounts = Accounts(postgres_url)
    accounts.create_user("dave")
    accounts.close()
    alice, dave = store.for_owner("alice"), store.for_owner("dave")
    for memory in known.memories:
        alice.shares.share("memory", memory.id, "user", "dave", access="write")
    assert {memory.id for _, memory in dave.versions()} == {memory.id for memory in known.memories}
    empty = PostgresStore(new_postgres(), folder=Path("unused"))
    try:
        expected = _answers(empty.for_owner("bob"), known)
    finally:
        empty.close()
    assert _answers(store.for_owner("bob"), known) == expected
    assert len(set(unfiltered)) > 30


def test_same_reads_without_policies_show_everything(
    store: PostgresStore, known: owner_walk.Known, unfiltered: list[str]
) -> None:
    """That the test above would see a leak: a superuser passes over the policies."""
    store._connections.role = "none"
    assert [memory.id for memory in store.for_owner("bob").history(known.id)] == [known.id, known.id]
    assert store.for_owner("bob").census().memories > 0
    assert unfiltered


def test_changes_keep_owners_apart(store: PostgresStore, known: owner_walk.Known) -> None:
    before = owner_walk.truth_of(store.for_owner("alice"))
    with OwnerTransactions(store._connections, "bob").writing() as connection:
        for table in ("versions", "links", "secrets", "documents", "vectors"):
            assert connection.execute(f"DELETE FROM {table}").rowcount == 0
        assert connection.execute("UPDATE versions SET content = 'gone'").rowcount == 0
    assert owner_walk.truth_of(store.for_owner("alice")) == before
    assert store.for_owner("alice").history(known.id)


def test_list_of_owners_shows_each_owner_only_itself(store: PostgresStore, known: owner_walk.Known) -> None:
    with OwnerTransactions(store._connections, "bob").writing() as connection:
        assert connection.execute("SELECT owner FROM owners").fetchall() == [("bob",)]
        assert connection.execute("UPDATE owners SET owner = 'carol' WHERE owner <> 'bob'").rowcount == 0
        assert connection.execute("DELETE FROM owners WHERE owner <> 'bob'").rowcount == 0
    with store._connections.transaction("BEGIN", "") as (connection, _):
        assert connection.execute("SELECT owner FROM owners").fetchall() == []
        assert every_owner(connection) == ["alice", "bob"]


def test_rows_cannot_be_written_for_another_owner(store: PostgresStore, make_memory: Callable[..., Memory]) -> None:
    store.for_owner("bob").apply([Add(make_memory("his own words", owner="bob"))], batch="one")
    with (
        pytest.raises(StoreUnavailable, match="row-level security"),
        OwnerTransactions(store._connections, "bob").writing() as connection,
    ):
        connection.execute("INSERT INTO marks VALUES ('alice', 'a', 'b')")
    with (
        pytest.raises(StoreUnavailable, match="row-level security"),
        OwnerTransactions(store._connections, "bob").writing() as connection,
    ):
        connection.execute("UPDATE versions SET owner = 'alice'")
    assert len(list(store.for_owner("bob").versions())) == 1


def test_transaction_settings_end_with_it(store: PostgresStore, known: owner_walk.Known) -> None:
    """A pooler may give the next transaction on the same connection to anyone."""
    for _ in range(3):
        assert store.for_owner("alice").history(known.id)
    connection = store._connections._pool.getconn()
    try:
        row = connection.execute(
            "SELECT coalesce(current_setting('triskele.owner', true), ''), current_user,"
            " current_setting('search_path'), current_setting('lock_timeout')"
        ).fetchone()
    finally:
        store._connections._pool.putconn(connection)
    assert row is not None
    assert (row[0], row[1], "triskele" in row[2], row[3]) == ("", "postgres", False, "0")


def test_cached_plans_keep_owners_apart(store: PostgresStore, known: owner_walk.Known, unfiltered: list[str]) -> None:
    """A prepared statement outlives its transaction; whose rows it reads is decided when it runs."""
    for _ in range(2 * _PREPARED_AFTER):
        assert store.for_owner("alice").history(known.id)
    connection = store._connections._pool.getconn()
    try:
        [prepared] = connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() or [0]
    finally:
        store._connections._pool.putconn(connection)
    assert prepared and unfiltered
    assert store.for_owner("bob").history(known.id) == []
    assert store.for_owner("alice").history(known.id)


def test_writes_of_an_owner_are_serialised(
    store: PostgresStore, postgres_url: str, tmp_path: Path, make_memory: Callable[..., Memory]
) -> None:
    """Also those of another process; the writes of another owner wait for nothing."""
    other = PostgresStore(postgres_url, folder=tmp_path, busy_timeout_s=0.2)
    hers = Add(make_memory("her own words", owner="alice"))
    # The row of a new owner would order them too.
    store.for_owner("alice").jobs.add("embed", [])
    try:
        with OwnerTransactions(store._connections, "alice").writing():
            other.for_owner("bob").apply([Add(make_memory("his own words", owner="bob"))], batch="one")
            with pytest.raises(StoreUnavailable, match="busy with other writers"):
                other.for_owner("alice").jobs.claim("embed", wait=False)
            with pytest.raises(StoreUnavailable, match="busy with other writers"):
                other.for_owner("alice").apply([hers], batch="two")
        other.for_owner("alice").apply([hers], batch="three")
    finally:
        other.close()
    assert [entry.batch for entry in store.for_owner("alice").journal()] == ["three"]
