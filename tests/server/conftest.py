"""Users of one database, and statements without their owner."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from file_traces import new_word, traces

from triskele.server.accounts import Accounts
from triskele.server.postgres import round_trips
from triskele.server.postgres.truth import PostgresStore

__all__ = ["new_word", "traces"]

_CONDITION = re.compile(r"(\w+\.)?owner = %(s|\((owner|\d+)\)s)")


@pytest.fixture
def unfiltered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lets no statement filter by owner; the statements that did are listed."""
    execute, together, changed = psycopg.Connection.execute, round_trips.fetch, list[str]()

    def changed_query(query: Any) -> Any:
        if isinstance(query, str) and _CONDITION.search(query):
            changed.append(query)
            query = _CONDITION.sub(r"(\g<0> OR true)", query)
        return query

    def execute_unfiltered(connection: Any, query: Any, *rest: Any, **details: Any) -> Any:
        return execute(connection, changed_query(query), *rest, **details)

    def together_unfiltered(connection: Any, *statements: Any) -> Any:
        return together(connection, *((changed_query(query), values) for query, values in statements))

    monkeypatch.setattr(psycopg.Connection, "execute", execute_unfiltered)
    monkeypatch.setattr(round_trips, "fetch", together_unfiltered)
    return changed


@pytest.fixture
def accounts(postgres_url: str) -> Iterator[Accounts]:
    """The accounts of alice, bob and carol in one Postgres database."""
    opened = Accounts(postgres_url)
    for name in ("alice", "bob", "carol"):
        opened.create_user(name)
    yield opened
    opened.close()


@pytest.fixture
def store(postgres_url: str, accounts: Accounts, tmp_path: Path) -> Iterator[PostgresStore]:
    """The store of alice, bob and carol."""
    assert len(accounts.users()) == 3
    opened = PostgresStore(postgres_url, folder=tmp_path)
    yield opened
    opened.close()
