"""Shares over HTTP, MCP, the command line and the pages of a server with users."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from test_tenants import Server, server, settings  # noqa: F401 - fixtures

import triskele
from triskele.errors import BadInput, NotAllowed, NotFound
from triskele.serving.cli.main import cli
from triskele.serving.http.problems import AccessDenied, QuotaExceeded
from triskele.stores.access_keys import SCOPES, Quotas

FACT = "The zeppelin lands in Friedrichshafen"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """Runs a command on a laptop of a user, or where the store is."""

    def say(*arguments: str, **environ: str) -> Any:
        for name in ("TRISKELE_SERVER", "TRISKELE_KEY", "TRISKELE_STORE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("TRISKELE_HOME", str(tmp_path / "laptop"))
        monkeypatch.setenv("TRISKELE_PROJECT", "hangar")
        for name, value in environ.items():
            monkeypatch.setenv(f"TRISKELE_{name}", value)
        return CliRunner().invoke(cli, list(arguments), prog_name="triskele")

    return say


def test_a_client_shares_and_the_other_recalls_until_it_ends(server: Server) -> None:  # noqa: F811
    ada, bob, eve = (server.user(name) for name in ("ada", "bob", "eve"))
    with (
        triskele.connect(server.url, ada) as hers,
        triskele.connect(server.url, bob) as his,
        triskele.connect(server.url, eve) as other,
    ):
        id = hers.remember(FACT).id
        share = hers.store.shares.share("memory", id[:10], "user", "bob")
        assert (share.owner, share.target, share.access) == ("ada", id, "read")
        [hit] = his.recall("where does the zeppelin land?").hits
        assert (hit.memory.owner, hit.memory.shared_by) == ("ada", "ada")
        assert hers.get(id).owner == "ada" and hers.get(id).shared_by is None
        assert his.census().memories == 0
        for change in (lambda: his.forget(id), lambda: his.edit(id, content="mine"), lambda: his.erase(id)):
            with pytest.raises(NotAllowed, match="shared by ada"):
                change()
        with pytest.raises(NotFound):
            other.get(id)
        assert other.recall("where does the zeppelin land?").hits == ()
        assert [each.id for each in his.store.shares.received()] == [id] and other.store.shares.received() == []
        assert [each.grantee for each in hers.store.shares.given()] == ["bob"]
        hers.store.shares.unshare("memory", id, "user", "bob")
        assert his.recall("where does the zeppelin land?").hits == ()
        with pytest.raises(BadInput, match="there is no user nobody"):
            hers.store.shares.share("memory", id, "user", "nobody")


def test_groups_are_the_admins_and_the_quota_is_the_owners(server: Server) -> None:  # noqa: F811
    root = server.user("root", is_admin=True, scopes=SCOPES)
    ada, bob = server.user("ada"), server.user("bob", quotas=Quotas(memories=1))
    with (
        triskele.connect(server.url, root) as admin,
        triskele.connect(server.url, ada) as hers,
        triskele.connect(server.url, bob) as his,
    ):
        with pytest.raises(AccessDenied):
            hers.store.groups.create("crew")
        admin.store.groups.create("crew")
        assert admin.store.groups.add("crew", "bob").members == ["bob"]
        ids = [hers.remember(f"{FACT} {number}", tags=["air"]).id for number in range(3)]
        hers.store.shares.share("tag", "air", "group", "crew", access="write")
        assert [each.access for each in his.store.shares.received()] == ["write"] * 3
        his.edit(ids[0], content="It lands in Zurich")
        assert hers.get(ids[0]).content == "It lands in Zurich"
        assert hers.history(ids[0])[-1].actor == "bob/user"
        his.remember("one of his own")
        with pytest.raises(QuotaExceeded):
            his.remember("one too many")
        assert admin.store.groups.remove("crew", "bob").members == []
        assert his.store.shares.received() == []
        admin.store.groups.delete("crew")
        assert hers.store.shares.groups() == [] == hers.store.shares.given()


def test_tools_share_where_there_are_users(server: Server) -> None:  # noqa: F811
    ada, bob = server.user("ada"), server.user("bob")
    listed = {tool["name"] for tool in server.mcp(ada, "tools/list", {})["result"]["tools"]}
    assert {"memory_share", "memory_unshare"} <= listed
    id = json.loads(server.tool(ada, "memory_store", content=FACT))["result"]["structuredContent"]["id"]
    assert json.loads(server.tool(ada, "memory_share", id=id, user="bob"))["result"]["structuredContent"] == {
        "subject": "memory",
        "target": id,
        "grantee": "user bob",
        "access": "read",
    }
    [hit] = json.loads(server.tool(bob, "memory_recall", query="zeppelin"))["result"]["structuredContent"]["hits"]
    assert (hit["id"], hit["owner"]) == (id, "ada")
    assert "shared by ada for reading" in server.tool(bob, "memory_forget", ids=[id])
    assert "name either a user or a group" in server.tool(ada, "memory_share", id=id)
    server.tool(ada, "memory_unshare", id=id, user="bob")
    assert "zeppelin lands" not in server.tool(bob, "memory_recall", query="zeppelin")


def test_commands_share_through_a_server_and_on_the_store(
    server: Server,  # noqa: F811
    run: Callable[..., Any],
    postgres_url: str,
) -> None:
    ada, bob = server.user("ada"), server.user("bob")
    hers, his = {"SERVER": server.url, "KEY": ada}, {"SERVER": server.url, "KEY": bob}
    id = json.loads(run("add", FACT, "--tags", "air", "--json", **hers).stdout)["id"]
    answer = run("shares", "add", id, "--user", "bob", **hers)
    assert (answer.exit_code, answer.output) == (0, f"Shared memory {id} with user bob (read)\n")
    assert "shared by ada" in run("recall", "zeppelin", **his).output
    assert json.loads(run("show", id, "--json", **his).stdout)["owner"] == "ada"
    refused = run("forget", id, **his)
    assert refused.exit_code == 1 and "shared by ada for reading" in refused.output
    assert f"from ada  {id}  read" in run("shares", "list", **his).output
    assert run("shares", "remove", id, "--user", "bob", **hers).exit_code == 0
    assert id not in run("recall", "zeppelin", "--json", **his).output
    assert "with user bob" in run("history", "--limit", "5", **hers).output
    assert "its owner ended the share" in run("history", "--limit", "1", **his).output

    direct = {"STORE": postgres_url}
    assert run("shares", "groups", "create", "crew", **direct).exit_code == 0
    assert run("shares", "groups", "add", "crew", "bob", **direct).output == "crew: bob\n"
    assert run("shares", "add", "--tag", "air", "--group", "crew", "--owner", "ada", **direct).exit_code == 0
    assert json.loads(run("shares", "list", "--json", **his).stdout)["received"][0]["id"] == id
    assert "tag air" in run("history", "--limit", "5", **hers).output
    denied = run("shares", "groups", "delete", "crew", **his)
    assert denied.exit_code == 3 and "scope admin" in denied.output
    assert run("shares", "groups", "delete", "crew", **direct).exit_code == 0
    assert run("shares", "list", **his).output.startswith("Nothing is shared")


@pytest.mark.parametrize(
    "arguments",
    [("list",), ("add", "--tag", "air", "--user", "bob"), ("groups", "create", "crew"), ("groups", "list")],
)
def test_a_memory_of_one_person_says_that_sharing_needs_a_server(
    run: Callable[..., Any], arguments: tuple[str, ...]
) -> None:
    run("add", FACT)
    answer = run("shares", *arguments)
    assert answer.exit_code == 2
    assert "sharing needs a server with a Postgres store" in answer.output
    assert len(answer.output.strip().splitlines()) == 1
