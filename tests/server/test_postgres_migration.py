"""Bringing a Postgres database up to this version: once, whoever comes, and never past what is known."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from postgres import PostgresProcess

from triskele.errors import BEFORE_RELEASE, BadInput, StoreDamaged, StoreNewer, StoreOlder, StoreUnavailable
from triskele.server.postgres import migrations
from triskele.server.postgres.connections import Connections, OwnerTransactions
from triskele.server.postgres.migrations import MIGRATIONS, Migration
from triskele.server.postgres.truth import PostgresStore

TABLES = (*migrations.OWNED, *migrations.DERIVED)
ALSO_READ = {"owners", "shares", "shared_memories", "groups", "group_members"}


@pytest.fixture
def empty(postgres: PostgresProcess) -> Iterator[str]:
    url = postgres.create()
    yield url
    postgres.drop(url)


def _open(url: str) -> None:
    Connections(url, timeout_s=20).close()


def _meta(url: str) -> dict[str, str]:
    with psycopg.connect(url) as connection:
        return dict(connection.execute("SELECT name, value FROM triskele.meta").fetchall())


def test_parallel_processes_create_tables_once(empty: str) -> None:
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(_open, [empty] * 6))
    assert _meta(empty)["steps"] == str(len(MIGRATIONS))


def test_new_database_has_the_newest_format(empty: str) -> None:
    _open(empty)
    least = max(number for number, step in enumerate(MIGRATIONS, 1) if step.breaks)
    assert (_meta(empty)["steps"], _meta(empty)["least"]) == (str(len(MIGRATIONS)), str(least))


@pytest.mark.parametrize("number", ["1", "5"])
def test_old_database_is_refused_unchanged(empty: str, number: str) -> None:
    with psycopg.connect(empty) as connection:
        connection.execute("CREATE SCHEMA triskele; CREATE TABLE triskele.meta (name text, value text)")
        connection.execute(
            "INSERT INTO triskele.meta VALUES ('format', %s), ('least', %s), ('epoch', 'one')", [number, number]
        )
    before = _meta(empty)
    with pytest.raises(StoreOlder) as raised:
        _open(empty)
    assert str(raised.value).endswith(BEFORE_RELEASE) and "\n" not in str(raised.value)
    with psycopg.connect(empty) as connection:
        assert connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'triskele'").fetchall() == [
            ("meta",)
        ]
    assert _meta(empty) == before


@pytest.mark.parametrize(
    ("number", "kind"), [({"format": 5}, StoreOlder), ({"steps": len(MIGRATIONS) + 1}, StoreNewer)], ids=["old", "new"]
)
def test_backup_of_another_format_is_refused(
    postgres_url: str, tmp_path: Path, number: dict[str, int], kind: type[StoreUnavailable]
) -> None:
    store = PostgresStore(postgres_url, folder=tmp_path)
    store.maintenance.backup(tmp_path / "backup")
    head, *rows = (tmp_path / "backup").read_text().splitlines(keepends=True)
    values = json.loads(head)
    (tmp_path / "backup").write_text(json.dumps({"title": values["title"], "owners": [], **number}) + "\n" + rows[-1])
    with pytest.raises(kind, match="the backup"):
        store.maintenance.restore(tmp_path / "backup")
    store.close()


def test_owner_leads_every_key_and_index(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        rows = connection.execute(
            "SELECT c.relname, i.relname, a.attname FROM pg_index x JOIN pg_class c ON c.oid = x.indrelid"
            " JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_namespace n ON n.oid = c.relnamespace"
            " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = x.indkey[0] WHERE n.nspname = 'triskele'"
        ).fetchall()
    led = {(table, index): column for table, index, column in rows if table in TABLES}
    assert {table for table, _ in led} == set(TABLES)
    assert {key: column for key, column in led.items() if column != "owner"} == {}


def test_owned_tables_force_row_level_security(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        rows = connection.execute(
            "SELECT c.relname, relrowsecurity AND relforcerowsecurity, qual, with_check FROM pg_class c"
            " JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid"
            " LEFT JOIN pg_policies p ON p.schemaname = nspname AND p.tablename = relname AND policyname = 'own_rows'"
            " WHERE nspname = 'triskele' AND relkind = 'r' AND attname = 'owner'"
        ).fetchall()
        columns = connection.execute(
            "SELECT tablename, policyname, permissive, cmd FROM pg_policies"
            " WHERE schemaname = 'triskele' AND policyname <> 'own_rows'"
        ).fetchall()
    assert {name for name, *_ in rows} == {"owners", *TABLES}
    assert all(is_forced and using and using == check for _, is_forced, using, check in rows)
    # Whatever else a policy allows, it allows to read, and of memories nothing.
    more = {(table, command) for table, _, permissive, command in columns if permissive == "PERMISSIVE"}
    assert more == {*((table, "SELECT") for table in ALSO_READ), ("owners", "INSERT")}
    assert {table for table, _, permissive, _ in columns if permissive == "RESTRICTIVE"} == {"versions"}


def test_failed_migration_leaves_nothing_and_is_retried(empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Migration("CREATE TABLE half (owner {text}); SELECT 1 / 0;")
    monkeypatch.setattr(migrations, "MIGRATIONS", (*MIGRATIONS, broken))
    with pytest.raises(StoreUnavailable):
        _open(empty)
    assert _meta(empty)["steps"] == str(len(MIGRATIONS))
    monkeypatch.setattr(migrations, "MIGRATIONS", (*MIGRATIONS, Migration("CREATE TABLE half (owner {text});")))
    _open(empty)
    assert (_meta(empty)["steps"], _meta(empty)["least"]) == (str(len(MIGRATIONS) + 1), _meta(empty)["least"])


def test_older_program_works_until_a_breaking_migration(empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    added = Migration("CREATE TABLE more (owner {text});")
    with monkeypatch.context() as newer:
        newer.setattr(migrations, "MIGRATIONS", (*MIGRATIONS, added))
        _open(empty)
    older = Connections(empty)
    with OwnerTransactions(older, "me").writing() as connection:
        connection.execute("INSERT INTO marks VALUES ('me', 'a', 'b')")
    with monkeypatch.context() as newer:
        newer.setattr(migrations, "MIGRATIONS", (*MIGRATIONS, added, Migration("DROP TABLE more;", breaks=True)))
        _open(empty)
    with pytest.raises(StoreNewer, match="newer triskele"), OwnerTransactions(older, "me").writing():
        pass
    older.close()
    with pytest.raises(StoreNewer):
        _open(empty)


def test_foreign_schema_is_left_alone(empty: str) -> None:
    with psycopg.connect(empty) as connection:
        connection.execute("CREATE SCHEMA triskele; CREATE TABLE triskele.meta (name text, value text)")
    with pytest.raises(StoreDamaged):
        _open(empty)
    assert _meta(empty) == {}


def test_login_role_works_on_existing_tables(postgres: PostgresProcess, empty: str) -> None:
    """The owner of the tables is bound by the policies too: no role is needed."""
    with psycopg.connect(empty, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS plain")
        connection.execute("CREATE ROLE plain LOGIN")
        name = connection.info.dbname
        connection.execute(f"GRANT CREATE ON DATABASE {name} TO plain")
    own = Connections(postgres.url(name, user="plain"))
    assert own.role == "none"
    with OwnerTransactions(own, "alice").writing() as connection:
        connection.execute("INSERT INTO marks VALUES ('alice', 'a', 'b')")
    assert OwnerTransactions(own, "alice").all("SELECT owner FROM marks") == [("alice",)]
    assert OwnerTransactions(own, "bob").all("SELECT owner FROM marks") == []
    own.close()


def test_invalid_or_silent_address_is_reported() -> None:
    with pytest.raises(BadInput, match="not a store address"):
        _open("postgresql://host:port:port/x?y")
    with pytest.raises(StoreUnavailable, match="does not answer") as caught:
        _open("postgresql://someone:hidden-word@localhost:1/nowhere")
    assert "hidden-word" not in str(caught.value)
