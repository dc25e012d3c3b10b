"""Users, keys and the audit log on a real Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from triskele import config
from triskele.edge.http.access import Quotas
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput, Conflict, NotFound
from triskele.server import keys
from triskele.server.accounts import Accounts
from triskele.server.postgres.connections import Connections
from triskele.text import timestamps


@pytest.fixture
def accounts(postgres_url: str) -> Iterator[Accounts]:
    database = Accounts(postgres_url)
    yield database
    database.close()


def test_create_key_returns_a_key_that_verifies(accounts: Accounts, postgres_url: str) -> None:
    accounts.create_user("ada", quotas=Quotas(memories=5))
    text, key = accounts.create_key("ada", label="laptop", scopes=("write", "read"))
    verified = accounts.verify(text)
    assert verified is not None and verified.user == accounts.user("ada") and verified.key == key
    assert (key.scopes, verified.user.quotas.memories) == (("read", "write"), 5)
    with psycopg.connect(postgres_url) as connection:
        connection.execute("SELECT set_config('triskele.accounts', 'on', true)")
        rows = str(connection.execute("SELECT * FROM triskele.keys").fetchall())
    assert text.split("_", 2)[2] not in rows and key.id in rows


@pytest.mark.parametrize("change", ["", "x", "tsk_", "tsk_zz_a", "tsk_000000000000_abc"])
def test_foreign_key_is_rejected(accounts: Accounts, change: str) -> None:
    assert accounts.verify(change) is None


def test_wrong_expired_and_revoked_keys_are_rejected(accounts: Accounts, monkeypatch: pytest.MonkeyPatch) -> None:
    accounts.create_user("ada")
    text, key = accounts.create_key("ada", expires_at=timestamps.now() + timedelta(days=1))
    other, _ = accounts.create_key("ada")
    assert accounts.verify(text) is not None
    assert accounts.verify(text[:-1]) is None
    assert accounts.verify(f"tsk_{key.id}_{other.split('_', 2)[2]}") is None
    later = timestamps.now() + timedelta(days=2)
    with monkeypatch.context() as patched:
        patched.setattr(timestamps, "now", lambda: later)
        assert accounts.verify(text) is None
        assert accounts.verify(other) is not None
    assert accounts.revoke_key(key.id).revoked_at is not None
    assert accounts.verify(text) is None
    with pytest.raises(NotFound):
        accounts.revoke_key("0123456789ab")
    with pytest.raises(BadInput, match="expired already"):
        accounts.create_key("ada", expires_at=timestamps.now())


def test_create_key_with_scope_admin_needs_an_admin(accounts: Accounts) -> None:
    accounts.create_user("ada")
    accounts.create_user("root", is_admin=True)
    with pytest.raises(BadInput, match="not an admin"):
        accounts.create_key("ada", scopes=("read", "admin"))
    assert accounts.create_key("root", scopes=keys.SCOPES)[1].scopes == keys.SCOPES
    with pytest.raises(BadInput, match="scopes are"):
        accounts.create_key("ada", scopes=("everything",))


@pytest.mark.parametrize("name", ["", "Ada", "ada lovelace", "-ada", "../etc", "a" * 65, "ada\n", "me/you"])
def test_create_user_refuses_invalid_names(accounts: Accounts, name: str) -> None:
    with pytest.raises(BadInput, match="user name"):
        accounts.create_user(name)


def test_create_user_refuses_existing_names(accounts: Accounts) -> None:
    accounts.create_user("ada")
    accounts.create_user("bob")
    with pytest.raises(Conflict, match="already"):
        accounts.create_user("ada")
    assert [each.name for each in accounts.users()] == ["ada", "bob"]
    with pytest.raises(NotFound):
        accounts.create_key("eve")


def test_owner_transactions_see_no_accounts(accounts: Accounts, postgres_url: str) -> None:
    accounts.create_user("ada")
    accounts.create_key("ada")
    accounts.note(user="ada", key="k", operation="remember", target="id", status=200, address="::1")
    connections = Connections(postgres_url)
    try:
        for table in ("users", "keys", "audit"):
            with connections.transaction("BEGIN", "ada", f"SELECT count(*) FROM {table}") as (_, rows):
                assert rows == [(0,)]
    finally:
        connections.close()


def test_audit_log_is_append_only_and_newest_first(accounts: Accounts, postgres_url: str) -> None:
    for number in range(3):
        user = "ada" if number < 2 else "bob"
        accounts.note(user=user, key="k", operation="forget", target=f"id{number}", status=200, address="10.0.0.9")
    newest = accounts.audit(limit=2)
    assert [each.target for each in newest] == ["id2", "id1"]
    assert [each.target for each in accounts.audit(before=newest[-1].number)] == ["id0"]
    assert [each.target for each in accounts.audit(user="bob")] == ["id2"]
    with psycopg.connect(postgres_url) as connection, pytest.raises(psycopg.Error, match="append-only"):
        connection.execute("DELETE FROM triskele.audit")


def test_erase_user_keeps_rows_of_others(accounts: Accounts, postgres_url: str, tmp_path: Path) -> None:
    for name in ("ada", "ada2"):
        accounts.create_user(name)
        accounts.create_key(name)
        environment = {
            "TRISKELE_HOME": str(tmp_path),
            "TRISKELE_MEMORY_OWNER": name,
            "TRISKELE_RECALL_MODEL": "none",
            "TRISKELE_PRIVACY_KEY": "file",
        }
        with LocalEngine(config.load(environment, store_url=postgres_url), tmp_path) as engine:
            first = engine.remember("Argo CD deploys the shop").id
            engine.edit(first, content="Flux deploys the shop")
    accounts.erase_user("ada")
    assert [each.name for each in accounts.users()] == ["ada2"] and accounts.keys("ada") == []
    with psycopg.connect(postgres_url) as connection:
        for table in ("versions", "journal", "jobs", "documents"):
            owners = connection.execute(f"SELECT DISTINCT owner FROM triskele.{table}").fetchall()
            assert ("ada",) not in owners, table
        assert connection.execute("SELECT count(*) FROM triskele.versions").fetchone() == (2,)
        with pytest.raises(psycopg.Error, match="append-only"):
            connection.execute("DELETE FROM triskele.journal")
