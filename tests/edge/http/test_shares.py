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
from triskele.edge.cli.main import cli
from triskele.edge.hook.explain import explain
from triskele.edge.http.access import SCOPES, Quotas
from triskele.edge.http.client import RemoteEngine
from triskele.engine import sharing
from triskele.errors import AccessDenied, BadInput, NotAllowed, NotFound, QuotaExceeded
from triskele.replies.rooms import HookCall
from triskele.server.operations import BY_METHOD, Administration

pytestmark = pytest.mark.slow

FACT = "The zeppelin lands in Friedrichshafen"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """Runs a command on a laptop of a user, or where the store is."""

    def say(*arguments: str, **environ: str) -> Any:
        for name in ("TRISKELE_SERVER", "TRISKELE_KEY", "TRISKELE_STORE", "TRISKELE_MEMORY_OWNER"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("TRISKELE_HOME", str(tmp_path / "laptop"))
        monkeypatch.setenv("TRISKELE_PROJECT", "hangar")
        for name, value in environ.items():
            monkeypatch.setenv(f"TRISKELE_{name}", value)
        return CliRunner().invoke(cli, list(arguments), prog_name="triskele")

    return say


def _group(engine: RemoteEngine, method: str, **options: str) -> Any:
    """Carry out an operation on a group."""
    return engine.send(BY_METHOD[getattr(Administration, method)], options)


def test_unshare_ends_what_share_lets_recall(server: Server) -> None:  # noqa: F811
    ada, bob, eve = (server.user(name) for name in ("ada", "bob", "eve"))
    with (
        triskele.connect(server.url, ada) as hers,
        triskele.connect(server.url, bob) as his,
        triskele.connect(server.url, eve) as other,
    ):
        id = hers.remember(FACT).id
        share = hers.sharing.share("memory", id[:10], "user", "bob").share
        assert (share.owner, share.target, share.access) == ("ada", id, "read")
        [hit] = his.recall("where does the zeppelin land?").hits
        assert (hit.memory.owner, hit.memory.shared_by) == ("ada", "ada")
        assert hers.get(id).owner == "ada" and hers.get(id).shared_by is None
        assert his.stats().memories == 0
        for change in (lambda: his.forget(id), lambda: his.edit(id, content="mine"), lambda: his.erase(id)):
            with pytest.raises(NotAllowed, match="shared by ada"):
                change()
        with pytest.raises(NotFound):
            other.get(id)
        assert other.recall("where does the zeppelin land?").hits == ()
        assert [each.id for each in his.sharing.shares().received] == [id]
        assert other.sharing.shares().received == ()
        assert [each.grantee for each in list(hers.sharing.shares().given)] == ["bob"]
        hers.sharing.unshare("memory", id, "user", "bob")
        assert his.recall("where does the zeppelin land?").hits == ()
        with pytest.raises(BadInput, match="there is no user nobody"):
            hers.sharing.share("memory", id, "user", "nobody")


def test_group_changes_need_an_admin_and_quota_is_the_owners(server: Server) -> None:  # noqa: F811
    root = server.user("root", is_admin=True, scopes=SCOPES)
    ada, bob = server.user("ada"), server.user("bob", quotas=Quotas(memories=1))
    with (
        triskele.connect(server.url, root) as admin,
        triskele.connect(server.url, ada) as hers,
        triskele.connect(server.url, bob) as his,
    ):
        with pytest.raises(AccessDenied):
            _group(hers, "create_group", name="crew")
        _group(admin, "create_group", name="crew")
        assert list(_group(admin, "add_member", name="crew", user="bob").members) == ["bob"]
        ids = [hers.remember(f"{FACT} {number}", tags=["air"]).id for number in range(3)]
        hers.sharing.share("tag", "air", "group", "crew", access="write")
        assert [each.access for each in list(his.sharing.shares().received)] == ["write"] * 3
        his.edit(ids[0], content="It lands in Zurich")
        assert hers.get(ids[0]).content == "It lands in Zurich"
        assert hers.journal(id=ids[0]).entries[0].actor == "bob/user"
        his.remember("one of his own")
        with pytest.raises(QuotaExceeded):
            his.remember("one too many")
        assert list(_group(admin, "remove_member", name="crew", user="bob").members) == []
        assert list(his.sharing.shares().received) == []
        _group(admin, "delete_group", name="crew")
        assert hers.sharing.groups() == [] == list(hers.sharing.shares().given)


def test_reader_restores_nothing_beyond_the_owners_quota(server: Server) -> None:  # noqa: F811
    ada, bob = server.user("ada", quotas=Quotas(memories=1)), server.user("bob", quotas=Quotas(memories=1))
    with triskele.connect(server.url, ada) as hers, triskele.connect(server.url, bob) as his:
        his.remember("one of his own")
        id = hers.remember(FACT).id
        hers.sharing.share("memory", id, "user", "bob", access="write")
        his.forget(id)
        other = hers.remember("another one").id
        for restore in (
            lambda: his.restore(id),
            lambda: his.undo(his.journal(id=id).entries[0].batch),
            lambda: hers.restore(id),
        ):
            with pytest.raises(QuotaExceeded, match="quota is 1"):
                restore()
        hers.forget(other)
        assert his.restore(id)[0].action == "restored"
        assert [memory.content for memory in hers.browse().memories] == [FACT]


def test_memory_share_works_on_a_server_with_users(server: Server) -> None:  # noqa: F811
    ada, bob = server.user("ada"), server.user("bob")
    listed = {tool["name"] for tool in server.mcp(ada, "tools/list", {})["result"]["tools"]}
    assert {"memory_share", "memory_unshare"} <= listed
    id = json.loads(server.tool(ada, "memory_store", content=FACT))["result"]["structuredContent"]["id"]
    assert json.loads(server.tool(ada, "memory_share", id=id, user="bob"))["result"]["structuredContent"] == {
        "subject": "memory",
        "target": id,
        "grantee": "user bob",
        "access": "read",
        "memories": 1,
    }
    for content, sensitivity in (("Blimps need ballast", "open"), ("My own blimp is red", "private")):
        server.ask(ada, "POST", "/v1/memories", json={"content": content, "tags": ["air"], "sensitivity": sensitivity})
    tagged = json.loads(server.tool(ada, "memory_share", tag="air", user="bob"))["result"]["structuredContent"]
    # An agent that may not see private memories learns nothing about their tags.
    assert tagged == {"subject": "tag", "target": "air", "grantee": "user bob", "access": "read", "memories": 1}
    ended = json.loads(server.tool(ada, "memory_unshare", tag="air", user="bob"))["result"]["structuredContent"]
    assert ended == {"subject": "tag", "target": "air", "grantee": "user bob", "access": "read", "still_shared": []}
    [hit] = json.loads(server.tool(bob, "memory_recall", query="zeppelin"))["result"]["structuredContent"]["hits"]
    assert (hit["id"], hit["owner"]) == (id, "ada")
    assert "shared by ada for reading" in server.tool(bob, "memory_forget", ids=[id])
    assert "name either a user or a group" in server.tool(ada, "memory_share", id=id)
    server.tool(ada, "memory_unshare", id=id, user="bob")
    assert "zeppelin lands" not in server.tool(bob, "memory_recall", query="zeppelin")


def test_shares_commands_work_over_a_server_and_on_the_store(
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
    heading, first, *_ = run("list", **his).output.splitlines()
    assert "shared by" in heading and "  ada  " in first and "shared by" not in run("list", **hers).output
    [listed] = json.loads(run("list", "--json", **his).stdout)["memories"]
    assert (listed["owner"], listed["shared_by"]) == ("ada", "ada")
    denied = run("shares", "groups", "delete", "crew", **his)
    assert denied.exit_code == 3 and "scope admin" in denied.output
    assert run("shares", "groups", "delete", "crew", **direct).exit_code == 0
    assert run("shares", "list", **his).output.startswith("Nothing is shared")


def test_answers_name_the_owner_of_a_shared_memory(
    server: Server,  # noqa: F811
    run: Callable[..., Any],
    postgres_url: str,
) -> None:
    ada, bob = server.user("ada"), server.user("bob")
    with triskele.connect(server.url, ada) as hers, triskele.connect(server.url, bob) as his:
        id = hers.remember(FACT).id
        newer = hers.remember("The zeppelin lands in Zurich", supersedes=id).id
        for each in (id, newer):
            hers.sharing.share("memory", each, "user", "bob", access="write")
        batch = his.edit(newer, content="The zeppelin lands in Basel")[0].batch
        answer = his.recall("where does the zeppelin land?", show_superseded=True)
        told = [*his.journal(id=newer).versions, *his.lookup([id, newer]).values()]
        told += [*answer.resolutions, *his.undo(batch, dry_run=True).versions]
        assert {(memory.owner, memory.shared_by) for memory in told} == {("ada", "ada")}
        assert {memory.owner for memory in hers.journal(id=newer).versions} == {"ada"}
    for place in ({"SERVER": server.url, "KEY": bob}, {"STORE": postgres_url, "MEMORY_OWNER": "bob"}):
        versions = json.loads(run("history", newer, "--json", **place).stdout)["versions"]
        assert {(each["owner"], each["shared_by"]) for each in versions} == {("ada", "ada")}


def test_unshare_lists_who_still_reads(
    server: Server,  # noqa: F811
    run: Callable[..., Any],
    postgres_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ada, _ = server.user("ada"), server.user("bob")
    hers, direct = {"SERVER": server.url, "KEY": ada}, {"STORE": postgres_url}
    monkeypatch.setattr(sharing, "_PAGE", 1)
    id = json.loads(run("add", FACT, "--tags", "air,team", "--json", **hers).stdout)["id"]
    other = json.loads(run("add", "The hangar is cold", "--tags", "cold", "--json", **hers).stdout)["id"]
    run("shares", "groups", "create", "crew", **direct)
    for member in ("ada", "bob"):
        run("shares", "groups", "add", "crew", member, **direct)
    for what in ((id,), (other,), ("--tag", "air"), ("--tag", "cold")):
        run("shares", "add", *what, "--user", "bob", **hers)
    run("shares", "add", "--tag", "team", "--group", "crew", **hers)
    # Newer, with the same tags, and not hers.
    carol = {"SERVER": server.url, "KEY": server.user("carol")}
    run("add", "The mast sways", "--tags", "air,team", **carol)
    run("shares", "add", "--tag", "air", "--user", "ada", **carol)
    shown = run("shares", "list", **hers).output
    assert f"memory {id} with user bob (read): {FACT}\n" in shown
    [first, *_] = json.loads(run("shares", "list", "--json", **hers).stdout)["given"]
    assert first["content"] == FACT

    def end(*what: str) -> str:
        return str(run("shares", "remove", *what, "--user", "bob", **hers).output)

    assert end(id).splitlines() == [
        f"No longer shared: memory {id} with user bob (read)",
        "Still read by bob through tag air with user bob (read)",
        "Still read by bob through tag team with group crew (read)",
    ]
    assert end("--tag", "cold").splitlines()[1:] == [f"Still read by bob through memory {other} with user bob (read)"]
    assert end("--tag", "air").splitlines()[1:] == ["Still read by bob through tag team with group crew (read)"]
    assert len(end(other).splitlines()) == 1
    run("shares", "add", id, "--user", "bob", **hers)
    told = json.loads(server.tool(ada, "memory_unshare", id=id, user="bob"))["result"]["structuredContent"]
    assert told["still_shared"] == ["bob through tag team with group crew (read)"]
    run("shares", "add", id, "--group", "crew", **hers)
    assert run("shares", "remove", id, "--group", "crew", **hers).output.splitlines()[1:] == [
        "Still read by bob through tag team with group crew (read)"
    ]
    assert run("shares", "groups", "delete", "crew", **direct).exit_code == 0


def test_share_of_a_tag_counts_shared_and_private_memories(server: Server, run: Callable[..., Any]) -> None:  # noqa: F811
    ada, _ = server.user("ada"), server.user("bob")
    hers = {"SERVER": server.url, "KEY": ada}

    def add(*more: str) -> list[str]:
        return list(run("shares", "add", "--tag", "air", "--user", "bob", *more, **hers).output.splitlines())

    none = "No open memory has this tag yet; later ones will be shared"
    assert add() == ["Shared tag air with user bob (read)", none]
    run("add", "A private balloon", "--tags", "air", "--private", **hers)
    left_out = "1 private or secret memory left out: only open ones are shared"
    assert add() == ["Already shared: tag air with user bob (read)", none, left_out]
    run("add", FACT, "--tags", "air", **hers)
    now = "1 memory now; later ones are shared too"
    assert add("--write") == ["Shared tag air with user bob (write)", now, left_out]
    run("add", "The hangar is cold", "--tags", "air", **hers)
    assert add("--write")[:2] == [
        "Already shared: tag air with user bob (write)",
        now.replace("1 memory", "2 memories"),
    ]
    counted = json.loads("\n".join(add("--json")))
    assert (counted["memories"], counted["left_out"]) == (2, 1)


def _given(memory: Any, prompt: str, event: str = "user-prompt-submit", session: str = "") -> str:
    source = "" if prompt else "startup"
    call = HookCall(event=event, prompt=prompt, session=session if prompt else "", source=source, deadline_s=60)
    return str(memory.agents.respond(call).text)


def _digest(server: Server, key: str) -> str:  # noqa: F811
    return json.dumps(server.mcp(key, "resources/read", {"uri": "memory://digest"}))


def test_hook_injects_only_memories_of_trusted_users(server: Server) -> None:  # noqa: F811
    ada, bob = server.user("ada"), server.user("bob")
    with triskele.connect(server.url, ada) as hers, triskele.connect(server.url, bob) as his:
        hers.remember(FACT, tags=["air"])
        hers.remember("Always land the zeppelin by night", tags=["air"], category="preferences", importance=1.0)
        hers.sharing.share("tag", "air", "user", "bob")
        question = "where does the zeppelin land?"
        assert len(his.recall(question).hits) == 2 and _given(hers, question)
        assert (_given(his, question), _given(his, "", "session-start")) == ("", "")
        assert "by night" not in _digest(server, bob)
        his.sharing.trust("ada")
        assert list(his.sharing.shares().trusted) == ["ada"] and list(hers.sharing.shares().trusted) == []
        assert FACT in _given(his, question) and "by night" in _given(his, "", "session-start")
        assert "by night" in _digest(server, bob)
        assert "lands" not in _given(his, question, session="1").replace(FACT, "")
        # What a conversation lost is given again only where it is trusted still.
        assert FACT in _given(his, question, session="2")
        his.sharing.trust("ada", trusted=False)
        assert _given(his, "", "pre-compact") == ""
        lost = his.agents.respond(HookCall(event="session-start", source="compact", session="2", deadline_s=60)).text
        assert (lost, _given(his, question)) == ("", "")


def test_hook_injects_own_memories_beside_untrusted_ones(server: Server) -> None:  # noqa: F811
    ada, bob = server.user("ada"), server.user("bob")
    with triskele.connect(server.url, ada) as hers, triskele.connect(server.url, bob) as his:
        own = "My zeppelin lands in Zurich every evening, beside the lake and the old boat house"
        his.remember(own)
        his.remember("Moor the zeppelin with two ropes", category="preferences", importance=0.6)
        for number in range(60):
            text = f"Zeppelin lands, zeppelin {number}"
            hers.remember(text, tags=["air"], category="preferences", importance=1.0)
        hers.sharing.share("tag", "air", "user", "bob")
        assert all(hit.memory.shared_by for hit in his.recall("where does the zeppelin land?", limit=20).hits)
        assert own in _given(his, "where does the zeppelin land?")
        assert "two ropes" in _given(his, "", "session-start")


def test_hook_confidence_ignores_untrusted_hits(server: Server) -> None:  # noqa: F811
    ada, bob = server.user("ada"), server.user("bob")
    with triskele.connect(server.url, ada) as hers, triskele.connect(server.url, bob) as his:
        question = "at which early hour does the orchard shop deploy its apple catalogue pages?"
        id = hers.remember("The orchard shop deploys its apple catalogue pages at an early hour: nine").id
        his.remember("The ladder for the attic, the cellar and the roof leans beside the shop door")
        assert _given(his, question) == ""
        hers.sharing.share("memory", id, "user", "bob")
        assert [hit.memory.shared_by for hit in his.recall(question).hits] == ["ada", None]
        assert _given(his, question) == ""
        told = explain(server.tenants.engine("bob"), "user-prompt-submit", {"prompt": question})
        assert told.verdict.startswith(f"silent: the confidence {told.confidence:.2f} is below")
        his.remember("At eight, an early hour, the orchard shop deploys its apple catalogue pages")
        assert "eight" in _given(his, question)
        his.sharing.trust("ada")
        assert "nine" in _given(his, question)


def test_hook_injection_ignores_untrusted_hits(server: Server) -> None:  # noqa: F811
    ada, bob = server.user("ada"), server.user("bob")
    with triskele.connect(server.url, ada) as hers, triskele.connect(server.url, bob) as his:
        question = "when does the shop deploy?"
        id = hers.remember("The shop deploys on Fridays at nine, when does not matter").id
        his.remember("The shop sells bread")
        assert "sells bread" in _given(his, question)
        hers.sharing.share("memory", id, "user", "bob")
        best, own = his.recall(question).hits
        # Less than half as good as what is shared.
        assert best.memory.shared_by == "ada" and own.score < 0.5 * best.score
        given = _given(his, question)
        assert "sells bread" in given and "Fridays" not in given


def test_hook_explain_names_the_untrusted_writer(server: Server) -> None:  # noqa: F811
    ada, bob = server.user("ada"), server.user("bob")
    question = "where does the zeppelin land?"
    event = ("user-prompt-submit", {"prompt": question, "session_id": "7"})
    with triskele.connect(server.url, ada) as hers, triskele.connect(server.url, bob) as his:
        shared = hers.remember(FACT).id
        hers.sharing.share("memory", shared, "user", "bob")
        own = his.remember("In the evening my zeppelin lands beside the lake in Zurich, as it always does").id
        assert "Zurich" in _given(his, question, session="7") and _given(his, question, session="7") == ""
        told = explain(server.tenants.engine("bob"), *event)
        assert [each.memory.id for each in told.considered] == [shared, own]
        assert "silent: all that is relevant is in the conversation already" in told.verdict
        # Now the best hit of his own is hers by its words.
        written = his.remember("The hangar is closed").id
        his.sharing.share("memory", written, "user", "ada", access="write")
        hers.edit(written, content="The zeppelin does land where the zeppelins land")
        told = explain(server.tenants.engine("bob"), *event)
        assert next(each.memory.id for each in told.considered if not each.memory.shared_by) == written
        assert told.verdict == "silent: the best hit is written by a user whom you do not trust"


def test_hook_injects_texts_only_of_trusted_writers(server: Server) -> None:  # noqa: F811
    ada, bob = server.user("ada"), server.user("bob")
    question = "where does the zeppelin land?"
    event = ("user-prompt-submit", {"prompt": question})
    with triskele.connect(server.url, ada) as hers, triskele.connect(server.url, bob) as his:
        id = hers.remember(FACT, category="preferences", importance=1.0).id
        hers.sharing.share("memory", id, "user", "bob", access="write")
        assert FACT in _given(hers, question) and FACT in _given(hers, "", "session-start")
        his.edit(id, importance=0.9)
        assert FACT in _given(hers, question)
        his.edit(id, content="The zeppelin lands in Bregenz")
        assert "Bregenz" in hers.recall(question).hits[0].memory.content
        hers.edit(id, tags=["air"])
        hers.sharing.unshare("memory", id, "user", "bob")
        assert (_given(hers, question), _given(hers, "", "session-start")) == ("", "")
        told = explain(server.tenants.engine("ada"), *event)
        assert [each.left_out for each in told.considered] == [
            "bob wrote it, and you do not trust bob (`triskele shares trust bob`)"
        ]
        assert told.verdict == "silent: everything found is shared or written by users whom you do not trust"
        hers.sharing.trust("bob")
        assert "Bregenz" in _given(hers, question) and "Bregenz" in _given(hers, "", "session-start")
        hers.sharing.trust("bob", trusted=False)
        # Her own words, also by a client whose name looks like that of a user.
        hers.acting_as("client:bob/x").edit(id, content="The zeppelin lands in Lindau")
        assert "Lindau" in _given(hers, question)


def test_trust_belongs_to_the_reader_and_ends_with_the_user(server: Server, run: Callable[..., Any]) -> None:  # noqa: F811
    ada, bob = server.user("ada"), server.user("bob")
    hers, his = ({"SERVER": server.url, "KEY": key} for key in (ada, bob))
    run("add", FACT, "--tags", "air", **hers)
    run("shares", "add", "--tag", "air", "--user", "bob", **hers)
    untrusted = "Agents find what ada shares only when they search; hooks do not inject it"
    assert untrusted in run("shares", "list", **his).output
    assert run("shares", "trust", "ada", **his).output.startswith("Hooks give agents what ada shares")
    assert json.loads(run("shares", "list", "--json", **his).stdout)["trusted"] == ["ada"]
    assert (
        run("shares", "trust", "nobody", **his).exit_code == 1 and run("shares", "trust", "bob", **his).exit_code == 2
    )
    unknown, own = (run("shares", "distrust", name, **his) for name in ("nobody", "bob"))
    assert (unknown.exit_code, own.exit_code) == (1, 2) and "there is no user nobody" in unknown.output
    agent = {"X-Triskele-Client": "codex"}
    assert server.ask(bob, "PUT", "/v1/trusted/ada", headers=agent).status_code == 409
    assert not any("trust" in tool["name"] for tool in server.mcp(bob, "tools/list", {})["result"]["tools"])
    for name in ("%00", "a%00b", "%ED%A0%80", "%F0%9F%98%80", "x" * 300, "%20"):
        for method in ("PUT", "DELETE"):
            assert 400 <= server.ask(bob, method, f"/v1/trusted/{name}").status_code < 500
    server.tenants.accounts.erase_user("ada")
    server.user("ada")
    with triskele.connect(server.url, bob) as memory:
        assert list(memory.sharing.shares().trusted) == []
    server.tenants.accounts.erase_user("ada")
    assert [run("shares", "distrust", "ada", **his).exit_code for _ in range(2)] == [0, 1]


@pytest.mark.parametrize(
    "arguments",
    [("list",), ("add", "--tag", "air", "--user", "bob"), ("groups", "create", "crew"), ("groups", "list")],
)
def test_sharing_is_refused_without_users(run: Callable[..., Any], arguments: tuple[str, ...]) -> None:
    run("add", FACT)
    answer = run("shares", *arguments)
    assert answer.exit_code == 2
    assert "a Postgres store" in answer.output
    assert len(answer.output.strip().splitlines()) == 1
