"""Connections of the pool: no prepared statement fails for ever, and whoever waits keeps its place in line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest

from triskele.errors import StoreUnavailable
from triskele.server.postgres import round_trips
from triskele.server.postgres.connections import _POLL_S, _PREPARED_AFTER, _TURN_S, Connections, OwnerTransactions


@pytest.fixture
def transactions(postgres_url: str) -> Iterator[OwnerTransactions]:
    """Those of one owner over a single connection that a recall has used: it has rolled back a snapshot."""
    connections = Connections(postgres_url, most=1)
    made = OwnerTransactions(connections, "alice")
    with made.snapshot():
        pass
    yield made
    connections.close()


@pytest.mark.parametrize("before", range(_PREPARED_AFTER + 2))
def test_error_leaves_prepared_statements_consistent(transactions: OwnerTransactions, before: int) -> None:
    for number in range(before):
        transactions.all(f"SELECT {number}")
    # The end of the transaction follows in the same pipeline, and the server never reads it.
    with pytest.raises(StoreUnavailable, match="division by zero"):
        transactions.all("SELECT 1 / 0")
    assert [transactions.all(f"SELECT {number}") for number in range(9)] == [[(number,)] for number in range(9)]


def test_invalidated_plan_fails_once(transactions: OwnerTransactions, postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE public.measured (size integer); GRANT SELECT ON public.measured TO PUBLIC")
        try:
            for _ in range(2 * _PREPARED_AFTER):
                assert transactions.all("SELECT size FROM public.measured") == []
            connection.execute("ALTER TABLE public.measured ALTER COLUMN size TYPE bigint")
            with suppress(StoreUnavailable):
                transactions.all("SELECT size FROM public.measured")
            assert transactions.all("SELECT size FROM public.measured") == []
        finally:
            connection.execute("DROP TABLE public.measured")


def test_pipeline_error_keeps_the_connection(transactions: OwnerTransactions) -> None:
    with transactions.reading() as connection:
        for _ in range(2):
            assert round_trips.fetch(connection, ("SELECT 1", ()), ("SELECT %s, %s::int", ["ä", "2"])) == [("ä", 2)]
            assert round_trips.fetch(connection, ("SELECT %(a)s || %(b)s || %(a)s", {"b": "y", "a": "x"})) == [("xyx",)]
    with pytest.raises(StoreUnavailable, match="division by zero"), transactions.reading() as connection:
        round_trips.fetch(connection, ("SELECT 1 / %s::int", ["0"]), ("SELECT 2", ()))
    with transactions.reading() as connection:
        assert round_trips.fetch(connection, ("SELECT 2", ()), ("SELECT 1 / %s::int", ["1"])) == [(1,)]


def test_turn_lasts_longer_while_a_connection_is_open(postgres_url: str) -> None:
    connections = Connections(postgres_url, most=1)
    try:
        # A server that is starting is asked again soon.
        assert connections._turn_s() == _POLL_S
        with OwnerTransactions(connections, "alice").snapshot():
            assert connections._turn_s() == _TURN_S
    finally:
        connections.close()
