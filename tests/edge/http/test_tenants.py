"""A server with users on a real Postgres: scopes, quotas, audit, and that nobody sees anything of another."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from loopback_server import serving

import triskele
from triskele import config
from triskele.config import ServerSettings, Settings
from triskele.curation.curator import Curated, Curator
from triskele.edge.http.access import SCOPES, Quotas
from triskele.edge.http.app import AppContext, Application
from triskele.edge.http.dispatch import OPERATIONS
from triskele.edge.process.listener import http_address
from triskele.edge.process.service import server_rules
from triskele.errors import AccessDenied, BadInput, QuotaExceeded
from triskele.server.tenants import Tenants
from triskele.types import LinkKind

pytestmark = pytest.mark.slow

SERVER = ServerSettings(allowed_hosts=("memory.example.com",), open_memories=2)
WORD = "zeppelin"


class Server:
    """A running server, and keys of its users."""

    def __init__(self, url: str, tenants: Tenants) -> None:
        self.url = url
        self.tenants = tenants

    def user(self, name: str, *, scopes: tuple[str, ...] = SCOPES[:3], **details: Any) -> str:
        """A new user with one key."""
        self.tenants.accounts.create_user(name, **details)
        return self.tenants.accounts.create_key(name, scopes=scopes)[0]

    def ask(self, key: str, method: str, path: str, **details: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {key}", **details.pop("headers", {})}
        return httpx.request(method, self.url + path, headers=headers, timeout=60, **details)

    def tool(self, key: str, name: str, **arguments: Any) -> str:
        """The text of the answer of an MCP tool."""
        return json.dumps(self.mcp(key, "tools/call", {"name": name, "arguments": arguments}), ensure_ascii=False)

    def mcp(self, key: str, method: str, params: dict[str, Any]) -> Any:
        version = {"MCP-Protocol-Version": "2025-06-18", "Accept": "application/json, text/event-stream"}
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = self.ask(key, "POST", "/mcp", json=body, headers=version)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
def settings(tmp_path: Path, postgres_url: str) -> Settings:
    environment = {
        "TRISKELE_HOME": str(tmp_path / "home"),
        "TRISKELE_RECALL_MODEL": "none",
        "TRISKELE_PRIVACY_KEY": "file",
    }
    return replace(config.load(environment, store_url=postgres_url), server=SERVER)


@pytest.fixture
def server(settings: Settings) -> Iterator[Server]:
    tenants = Tenants.open(settings)
    app = Application(
        AppContext(
            lambda: tenants.engine("me"),
            dict,
            print,
            lambda: None,
            lambda _: None,
            users=tenants,
            open_memories=tenants.open_memories,
        )
    )
    try:
        with serving(app, lambda port: server_rules(SERVER, tenants.verify, port)) as url:
            yield Server(url, tenants)
    finally:
        tenants.close()


def test_users_have_separate_memories(server: Server) -> None:
    ada, bob = server.user("ada"), server.user("bob")
    with triskele.connect(server.url, ada) as hers, triskele.connect(server.url, bob) as his:
        id = hers.remember("Argo CD deploys the shop").id
        assert hers.get(id).owner == "ada"
        assert [hit.memory.id for hit in hers.recall("what deploys the shop?").hits] == [id]
        assert his.recall("what deploys the shop?").hits == () and his.stats().memories == 0


def test_writes_of_a_user_are_curated(server: Server) -> None:
    key = server.user("ada")
    with triskele.connect(server.url, key) as memory:
        # The first write of a user is where curation begins to look.
        for content in ("Herons nest in the tower", "The shop runs on Helm", "The shop does not run on Helm"):
            memory.remember(content)
            server.tenants.after_writes.flush()
        assert memory.stats().proposals == 1
        server.tool(key, "memory_store", content="Herons do not nest in the tower", everywhere=True)
        server.tenants.after_writes.flush()
        proposed = server.tenants.engine("ada").proposals.list()
        assert [each.kind for each in proposed] == ["supersede"] * 2


def test_writes_do_not_wait_for_curation(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    began, held, ended = threading.Event(), threading.Event(), list[str]()

    def follow(curator: Curator) -> Curated:
        began.set()
        held.wait()
        ended.append(curator._store.owner)
        return Curated()

    monkeypatch.setattr(Curator, "follow", follow)
    ada, bob = server.user("ada"), server.user("bob")
    server.tool(ada, "memory_store", content="Herons nest in the tower")
    try:
        assert began.wait(30)
        for key in (ada, bob):
            for number in range(2):
                assert '"id"' in server.tool(key, "memory_store", content=f"Tower {number} has a clock")
            with triskele.connect(server.url, key) as memory:
                agent = memory.acting_as("client:test")
                agent.remember("The mill has two wheels")
                agent.remember_all([{"content": "The weir opens at dawn"}])
        assert ended == []
    finally:
        held.set()
    server.tenants.after_writes.flush()
    assert ended == ["ada", "ada", "bob"]


def test_curation_of_users_fails_independently(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    began, held, curated = threading.Event(), threading.Event(), list[str]()

    def follow(curator: Curator) -> Curated:
        began.set()
        held.wait(30)
        curated.append(curator._store.owner)
        raise ValueError("a fault")

    monkeypatch.setattr(Curator, "follow", follow)
    for name in ("ada", "bob", "eve"):
        server.tool(server.user(name), "memory_store", content="Herons nest in the tower")
        assert began.wait(30)
    held.set()
    server.tenants.after_writes.flush()
    assert curated == ["ada", "bob", "eve"]


REQUESTS: dict[str, Callable[[str], dict[str, Any]]] = {
    "remember": lambda id: {"json": {"content": "a fact of B", "supersedes": id}},
    "remember_all": lambda _: {"json": {"drafts": [{"content": "another fact of B"}]}},
    "lookup": lambda id: {"json": {"ids": [id]}},
    "shorten": lambda id: {"json": {"ids": [id]}},
    "browse": lambda _: {"params": {"all_projects": "true", "facets": "true"}},
    "edit": lambda id: {"json": {"content": "B was here"}},
    "seal": lambda _: {"json": {"title": "B was here"}},
    "journal": lambda id: {"params": {"id": id}},
    "audit": lambda _: {"params": {"user": "ada"}},
    "link": lambda id: {"json": {"source": id, "kind": "see-also", "target": id}},
    "unlink": lambda id: {"params": {"source": id, "kind": "see-also", "target": id}},
    "recall": lambda _: {"json": {"text": "Friedrichshafen", "all_projects": True}},
    "why_not": lambda id: {"json": {"id": id, "text": "Friedrichshafen"}},
    "related": lambda _: {"json": {"content": f"The {WORD.title()} Graf lands in Berlin"}},
    "undo": lambda _: {"json": {"all_projects": True}},
    "import_memories": lambda _: {"content": b'{"content": "a third fact of B"}\n'},
    "export_memories": lambda _: {"params": {"private": "true", "with_secrets": "true"}},
    "concepts.show": lambda _: {"params": {"name": "Friedrichshafen", "all_projects": "true"}},
    "concepts.path": lambda _: {"params": {"start": "Friedrichshafen", "end": "Graf", "all_projects": "true"}},
    "concepts.neighbourhood": lambda id: {"params": {"memory": id}},
    "concepts.merge": lambda _: {"json": {"name": "Friedrichshafen", "into": "Graf"}},
    "concepts.split": lambda _: {"json": {"name": "Friedrichshafen"}},
    "curation.proposals": lambda _: {"params": {"kind": "update"}},
    "curation.accept": lambda id: {"json": {"ids": [id]}},
    "curation.reject": lambda id: {"json": {"ids": [id]}},
    "agents.digest": lambda _: {"params": {"project": "garden"}},
    "agents.conversations": lambda _: {"params": {"limit": "5"}},
    "sharing.share": lambda id: {"json": {"subject": "memory", "target": id, "grantee_kind": "user", "grantee": "ada"}},
    "sharing.unshare": lambda id: {
        "params": {"subject": "memory", "target": id, "grantee_kind": "user", "grantee": "ada"}
    },
    "sharing.trust": lambda _: {"json": {"trusted": True}},
    "sync.push": lambda id: {"json": {"items": [{"id": id, "push": "erasure"}]}},
    "sync.pull": lambda _: {"params": {"limit": "5"}},
    "create_group": lambda _: {"json": {"name": "crew"}},
    "create_user": lambda _: {"json": {"name": "mallory"}},
    "create_key": lambda _: {"json": {"user": "ada", "scopes": ["read"]}},
    "keys": lambda _: {"params": {"user": "ada"}},
}


def test_every_operation_is_called_with_arguments() -> None:
    properties = {each: each.request.adapter.json_schema()["properties"].keys() for each in OPERATIONS}
    takes = {each.name for each in OPERATIONS if each.takes_file or properties[each] - {*each.in_path}}
    assert takes <= REQUESTS.keys()


def test_posts_with_scope_read_are_questions() -> None:
    posted = {each.name for each in OPERATIONS if each.verb != "GET" and each.scope == "read"}
    assert posted == {"lookup", "shorten", "recall", "why_not", "related"}


def _path(path: str, id: str) -> str:
    return re.sub(r"{\w+}", id, path)


def test_routes_keep_users_apart(server: Server) -> None:
    # A near-miss of the name, and every scope that a user can have.
    ada, bob = server.user("ada"), server.user("ada.b")
    with triskele.connect(server.url, ada) as hers:
        ids = [
            hers.remember(f"The {WORD} Graf lands in Friedrichshafen").id,
            hers.remember(f"The {WORD} hangar code is 7Kq-{WORD}-99x", sensitivity="secret", title=f"{WORD} code").id,
            hers.remember(f"My {WORD} trip was private", sensitivity="private").id,
        ]
        hers.link(ids[0], LinkKind.SEE_ALSO, ids[2])
        # What is shared with one user is nothing to another.
        server.user("eve")
        hers.sharing.share("memory", ids[0], "user", "eve", access="write")
        before = [hers.journal(id=id) for id in ids]
        for operation in OPERATIONS:
            for id in ids if "{id" in operation.path else ids[:1]:
                details = REQUESTS.get(operation.name, lambda _: {})(id)
                answer = server.ask(bob, operation.verb, _path(operation.path, id), **details)
                assert answer.status_code < 500, (operation.name, answer.text)
                assert WORD not in answer.text.lower(), (operation.name, answer.text)
                if id in answer.text:
                    # Only as the id that B itself sent: in a refusal, or erased as one that nobody has.
                    is_erased = operation.name == "sync.push" and '"token": "erased"' in answer.text
                    is_erased = is_erased or answer.json() == {id: id[:8]}
                    assert is_erased or answer.status_code in (404, 422), (operation.name, answer.text)
        assert [hers.journal(id=id) for id in ids] == before
        assert hers.stats().memories == 3


def test_tools_keep_users_apart(server: Server) -> None:
    ada, bob = server.user("ada"), server.user("bob")
    stored = server.tool(ada, "memory_store", content=f"The {WORD} lands in Friedrichshafen", importance=1.0)
    id = json.loads(stored)["result"]["structuredContent"]["id"]
    assert WORD in server.tool(ada, "memory_recall", query="Friedrichshafen")
    for name, arguments in {
        "memory_recall": {"query": "Friedrichshafen", "all_projects": True},
        "memory_get": {"id": id},
        "memory_list": {"all_projects": True},
        "memory_stats": {},
        "memory_why_not": {"id": id, "query": "Friedrichshafen"},
        "memory_update": {"id": id, "content": "changed"},
        "memory_forget": {"ids": [id]},
        "memory_undo": {},
    }.items():
        assert WORD not in server.tool(bob, name, **arguments).lower(), name
    with triskele.connect(server.url, ada) as hers:
        hers.remember(f"Always call the {WORD} by its name", category="preferences", importance=1.0)
    assert WORD in json.dumps(server.mcp(ada, "resources/read", {"uri": "memory://digest"}))
    assert WORD not in json.dumps(server.mcp(bob, "resources/read", {"uri": "memory://digest"}))
    assert "own machine" in server.tool(ada, "code_search", query="x")
    assert WORD in server.tool(ada, "memory_get", id=id)


def test_scopes_hold_for_routes_and_tools(server: Server) -> None:
    server.user("ada")
    accounts = server.tenants.accounts
    for operation in OPERATIONS:
        others = tuple(scope for scope in SCOPES[:3] if scope != operation.scope)
        key = accounts.create_key("ada", scopes=others)[0]
        answer = server.ask(key, operation.verb, _path(operation.path, "abcdefgh"))
        assert answer.status_code == 403, operation.name
        assert operation.scope in answer.json()["detail"]
    reader = accounts.create_key("ada", scopes=("read",))[0]
    assert "scope write" in server.tool(reader, "memory_store", content="no")
    assert "scope write" in server.tool(reader, "memory_forget", ids=["abcdefgh"])
    assert "scope reveal" in server.tool(reader, "memory_reveal", id="abcdefgh")
    writer = accounts.create_key("ada", scopes=("write",))[0]
    assert "scope read" in server.tool(writer, "memory_recall", query="x")
    with triskele.connect(server.url, reader) as memory, pytest.raises(AccessDenied, match="write"):
        memory.remember("no")


def test_revoke_key_ends_a_key_at_once(server: Server) -> None:
    root = server.user("root", is_admin=True, scopes=SCOPES)
    assert server.ask(root, "POST", "/v1/users", json={"name": "ada", "memories": 2}).status_code == 200
    details = {"user": "ada", "scopes": ["read", "write"]}
    made = server.ask(root, "POST", "/v1/keys", json=details).json()
    assert made["details"]["expires_at"] is None
    ending = server.ask(root, "POST", "/v1/keys", json={**details, "days": 90}).json()["details"]
    lasts = datetime.fromisoformat(ending["expires_at"]) - datetime.fromisoformat(ending["created_at"])
    assert round(lasts / timedelta(days=1)) == 90
    for wrong in ({"days": 90, "expires_at": "2099-01-01"}, {"days": 0}, {"days": 40_000}, {"days": "soon"}):
        assert server.ask(root, "POST", "/v1/keys", json={**details, **wrong}).status_code == 422, wrong
    key, id = made["key"], made["details"]["id"]
    assert server.ask(key, "GET", "/v1/me").json() == {
        "user": "ada",
        "key": id,
        "scopes": ["read", "write"],
        "quotas": {"memories": 2, "requests_per_minute": 1200, "model_tokens_per_day": 0},
    }
    assert key not in server.ask(root, "GET", "/v1/keys").text
    assert server.ask(root, "DELETE", f"/v1/keys/{id}").json()["revoked_at"] is not None
    refused = server.ask(key, "GET", "/v1/me")
    assert refused.status_code == 401
    assert "/.well-known/oauth-protected-resource/mcp" in refused.headers["WWW-Authenticate"]


def test_only_metadata_and_probes_need_no_key(server: Server) -> None:
    told = httpx.get(f"{server.url}/.well-known/oauth-protected-resource/mcp").json()
    assert told["resource"] == "http://memory.example.com/mcp" and told["scopes_supported"] == list(SCOPES)
    for path in ("/openapi.json", "/docs", "/v1/health", "/mcp", "/.well-known/other"):
        assert httpx.get(server.url + path).status_code == 401, path
    assert httpx.get(server.url).headers["location"] == "/ui"
    for path in ("/health", "/metrics"):
        assert httpx.get(server.url + path).status_code == 200, path
        assert httpx.get(server.url + path, headers={"Host": "memory.example.com"}).status_code == 401, path
    key = server.user("ada")
    for host, status in (("memory.example.com", 200), ("evil.example", 421)):
        assert server.ask(key, "GET", "/v1/health", headers={"Host": host}).status_code == status
        version = {"Host": host, "Accept": "application/json, text/event-stream"}
        ping = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        assert server.ask(key, "POST", "/mcp", json=ping, headers=version).status_code == status
    assert server.ask(key, "GET", "/v1/health", headers={"Origin": "https://evil.example"}).status_code == 403


def test_audit_log_names_user_and_operation_without_text(server: Server) -> None:
    root = server.user("root", is_admin=True, scopes=SCOPES)
    ada = server.user("ada")
    with triskele.connect(server.url, ada) as memory:
        id = memory.remember(f"the {WORD} lands").id
        memory.recall(WORD)
        memory.forget(id)
    server.tool(ada, "memory_store", content=f"a second {WORD}")
    server.ask(ada, "GET", "/v1/users")
    log = server.ask(root, "GET", "/v1/audit", params={"user": "ada"})
    assert [(each["operation"], each["status"]) for each in log.json()] == [
        ("users", 403),
        ("mcp memory_store", 200),
        ("forget", 200),
        ("remember", 200),
    ]
    assert log.json()[3]["target"] == id and log.json()[3]["address"] == "127.0.0.1"
    assert WORD not in log.text
    assert server.ask(ada, "GET", "/v1/audit").status_code == 403


def test_quotas_bound_memories_and_requests_of_a_user(server: Server) -> None:
    few = server.user("few", quotas=Quotas(memories=2))
    with triskele.connect(server.url, few) as memory:
        memory.remember("one")
        with pytest.raises(QuotaExceeded, match="quota is 2"):
            memory.remember_all([{"content": "two"}, {"content": "three"}])
        memory.remember("two")
        with pytest.raises(QuotaExceeded):
            memory.remember("three")
        assert "quota is 2" in server.tool(few, "memory_store", content="three")
        refused = server.ask(few, "POST", "/v1/import", content=b'{"content": "three"}\n')
        assert refused.status_code == 429
        memory.forget(*(each.id for each in memory.browse().memories))
        assert memory.remember("three").action == "added"
    slow = server.user("slow", quotas=Quotas(requests_per_minute=3))
    answers = [server.ask(slow, "GET", "/v1/me") for _ in range(4)]
    assert [each.status_code for each in answers] == [200, 200, 200, 429]
    assert 1 <= int(answers[-1].headers["Retry-After"]) <= 60


def test_parallel_batches_never_exceed_the_quota(server: Server) -> None:
    key = server.user("few", quotas=Quotas(memories=5))
    batches = [[{"content": f"fact {batch} of {number}"} for number in range(5)] for batch in range(8)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda batch: server.ask(key, "POST", "/v1/batch", json={"drafts": batch}), batches))
    assert sorted(each.status_code for each in answers) == [200, *[429] * 7]
    assert {each.json()["type"] for each in answers if each.status_code == 429} == {
        "urn:triskele:problem:quota-exceeded"
    }
    with triskele.connect(server.url, key) as memory:
        assert memory.stats().memories == 5
    # A refused batch leaves nothing.
    assert len(server.tenants.engine("few").store.journal()) == 5


def test_full_quota_refuses_only_new_current_memories(server: Server) -> None:
    key = server.user("few", quotas=Quotas(memories=2))
    with triskele.connect(server.url, key) as memory:
        one, two = (memory.remember(text) for text in ("one", "two"))
        forgotten = memory.forget(one.id)[0]
        three = memory.remember("three")
        for refused in (
            lambda: memory.restore(one.id),
            lambda: memory.undo(forgotten.batch),
            lambda: memory.remember("four", supersedes=two.id),
        ):
            with pytest.raises(QuotaExceeded, match="2 memories are stored and the quota is 2"):
                refused()
        assert "quota is 2" in server.tool(key, "memory_store", content="four")
        assert memory.remember("two").action == "duplicate"
        memory.edit(two.id, content="two and a half")
        memory.link(three.id, "supersedes", two.id)
        assert memory.undo(three.batch).outcomes[0].action == "forgotten"
        assert memory.undo(forgotten.batch).outcomes[0].action == "restored"
        assert {each.content for each in memory.browse().memories} == {"one", "two and a half"}


def test_import_and_sync_obey_the_quota(server: Server) -> None:
    key = server.user("few", quotas=Quotas(memories=2))
    lines = b"".join(b'{"content": "fact %d"}\n' % number for number in range(3))
    dry = server.ask(key, "POST", "/v1/import", params={"dry_run": "true"}, content=lines)
    assert (dry.status_code, dry.json()["added"]) == (200, 3)
    assert server.ask(key, "POST", "/v1/import", content=lines).status_code == 429
    now = "2026-01-01T00:00:00Z"
    record = {"content": "a fact", "category": "facts", "created_at": now, "updated_at": now}
    items = [
        {"id": f"1kpn46qz7w3x2v5{number}", "push": "record", "record": {**record, "content": f"fact {number}"}}
        for number in range(3)
    ]
    answer = server.ask(key, "POST", "/v1/sync", json={"items": items})
    assert {each["status"] for each in answer.json()["results"]} == {"refused"}
    assert "0 memories are stored and the quota is 2" in answer.text
    assert server.ask(key, "POST", "/v1/sync", json={"items": items[:2]}).json()["results"][0]["status"] == "done"
    with triskele.connect(server.url, key) as memory:
        assert memory.stats().memories == 2


def test_changed_quota_holds_at_once(server: Server, settings: Settings) -> None:
    key = server.user("few", quotas=Quotas(memories=1))
    with triskele.connect(server.url, key) as memory:
        memory.remember("one")
        with psycopg.connect(settings.store.url) as connection:
            connection.execute("UPDATE triskele.users SET memories = 2 WHERE name = 'few'")
        memory.remember("two")
        with pytest.raises(QuotaExceeded, match="quota is 2"):
            memory.remember("three")
        with psycopg.connect(settings.store.url) as connection:
            connection.execute("UPDATE triskele.users SET memories = NULL WHERE name = 'few'")
        memory.remember("three")


def test_least_recently_used_engines_are_closed(server: Server) -> None:
    keys = [server.user(name) for name in ("ada", "bob", "eve")]
    for number, key in enumerate(keys):
        with triskele.connect(server.url, key) as memory:
            memory.remember(f"fact {number}")
    assert len(server.tenants.open_memories()) == 2
    with triskele.connect(server.url, keys[0]) as memory:
        assert [each.content for each in memory.browse().memories] == ["fact 0"]


def test_forwarded_for_counts_only_from_trusted_proxies(server: Server) -> None:
    ada = server.user("ada")
    for _ in range(2):
        server.ask(ada, "POST", "/v1/memories", json={"content": "x"}, headers={"X-Forwarded-For": "203.0.113.9"})
    assert {each.address for each in server.tenants.accounts.audit()} == {"127.0.0.1"}


def test_serve_without_users_refuses_public_addresses() -> None:
    for address in ("0.0.0.0:8080", "[::]:8080", "10.0.0.1:80", ":8080"):
        with pytest.raises(BadInput):
            http_address(address)
    assert http_address("0.0.0.0:8080", is_public=True) == ("0.0.0.0", 8080)
