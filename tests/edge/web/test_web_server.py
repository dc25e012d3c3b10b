"""The pages of a server with users: a key signs in, its scopes hold, and nobody sees anything of another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from page_client import HOST, OWN, Browser
from test_web_hostile import PAYLOADS, Elements

from triskele import config
from triskele.config import ServerSettings, Settings
from triskele.curation.decide import PairDecision
from triskele.edge.http.access import SCOPES, WRITE, Quotas
from triskele.edge.http.app import AppContext, Application
from triskele.edge.process.service import server_rules
from triskele.edge.web import site
from triskele.edge.web.rendering import PageRoute
from triskele.edge.web.sessions import KeySessions
from triskele.index.name_linking import read_names
from triskele.replies.rooms import Rationale
from triskele.server.tenants import Tenants
from triskele.store.values import Use
from triskele.text import timestamps
from triskele.types import LinkKind, Verdict

pytestmark = pytest.mark.slow

SERVER = ServerSettings(allowed_hosts=("memory.example.com",))
WORD = "zeppelin"
SECRET = f"the {WORD} password is hunter2-Correct-Horse"
ALL = SCOPES[:3]


class Team:
    """A server whose users look at it through browsers."""

    def __init__(self, tenants: Tenants) -> None:
        self.tenants = tenants
        self.logged: list[dict[str, Any]] = []
        self.lines: list[str] = []
        self.app = Application(
            AppContext(
                lambda: tenants.engine("me"),
                lambda: {"store": "postgresql://of-the-server"},
                self.lines.append,
                lambda: None,
                lambda _: None,
                users=tenants,
                sessions=KeySessions(tenants),
                log_request=self.logged.append,
            )
        )

    def key(self, name: str, scopes: tuple[str, ...] = ALL, **details: Any) -> str:
        """A key of a user, who is added where there is none."""
        if name not in {user.name for user in self.tenants.accounts.users()}:
            self.tenants.accounts.create_user(name, **details)
        return self.tenants.accounts.create_key(name, scopes=scopes)[0]

    def stranger(self, name: str = "me") -> Browser:
        """A browser that is not signed in."""
        rules = server_rules(SERVER, self.tenants.verify, 8377)
        return Browser(self.app, self.tenants.engine(name), self.lines, rules=rules)

    def browser(self, name: str, scopes: tuple[str, ...] = ALL, **details: Any) -> Browser:
        """A browser with a session of a user."""
        key = self.key(name, scopes, **details)
        made = self.stranger(name)
        assert made.sign_in(key).status_code == 204
        return made


@pytest.fixture
def team(tmp_path: Path, postgres_url: str) -> Iterator[Team]:
    environment = {
        "TRISKELE_HOME": str(tmp_path / "home"),
        "TRISKELE_RECALL_MODEL": "none",
        "TRISKELE_PRIVACY_KEY": "file",
    }
    settings: Settings = replace(config.load(environment, store_url=postgres_url), server=SERVER)
    tenants = Tenants.open(settings)
    try:
        yield Team(tenants)
    finally:
        tenants.close()


def test_key_signs_in_and_pages_name_the_user(team: Team) -> None:
    browser = team.stranger()
    signed_out = browser.get("/ui/browse")
    assert signed_out.status_code == 401 and 'type="password"' in signed_out.text
    given = browser.sign_in(team.key("ada"))
    cookie = given.headers["set-cookie"].lower()
    assert given.status_code == 204 and all(part in cookie for part in ("httponly", "samesite=strict", "path=/"))
    for path in ("", "/browse", "/graph", "/review", "/quality", "/health", "/new", "/nowhere"):
        page = browser.get(f"/ui{path}").text
        assert "Memory of </span>ada</span>" in page, path
        assert "Code</a>" not in page and "Users</a>" not in page and "of-the-server" not in page, path
    assert browser.get("/docs").status_code == 200 and browser.get("/v1/me").status_code == 401
    assert [line.operation for line in team.tenants.accounts.audit()][-1] == "sign_in"


def test_pages_name_the_owner_of_shared_memories(team: Team) -> None:
    ada, bob, eve = (team.browser(name) for name in ("ada", "bob", "eve"))
    id = ada.engine.remember(f"the {WORD} lands at noon").id
    shares = ada.engine.store.shares
    assert shares is not None
    shares.share("memory", id, "user", "bob")
    paths = (f"/ui/memory/{id}", f"/ui/hits?q={WORD}", "/ui/browse")
    assert all(WORD in bob.get(path).text for path in paths)
    assert "shared by ada" in bob.get(paths[1]).text and "<dd>ada</dd>" in bob.get(paths[0]).text
    assert "shared by" not in ada.get(paths[1]).text
    refused = bob.post(f"/ui/memory/{id}/forget")
    assert refused.status_code == 409 and "shared by ada for reading" in refused.text
    shares.unshare("memory", id, "user", "bob")
    for browser in (bob, eve):
        assert not any(f"{WORD} lands" in browser.get(path).text for path in paths)


def test_pages_offer_only_changes_that_a_share_allows(team: Team) -> None:
    ada, bob = team.browser("ada"), team.browser("bob")
    id = ada.engine.remember(f"the {WORD} lands at noon", tags=["air"]).id
    own = bob.engine.remember(f"another {WORD} of my own").id
    shares = ada.engine.store.shares
    assert shares is not None
    shares.share("memory", id, "user", "bob")
    page, table = bob.get(f"/ui/memory/{id}").text, bob.get("/ui/browse").text
    assert f"/memory/{id}/edit" not in page and f"/memory/{id}/forget" not in page and "supersedes=" not in page
    assert "ada shares this memory for reading" in page
    assert "shared by ada" in table and table.count(" disabled ") == 1
    assert "find it only when they search; hooks do not inject it" in page and "Trust ada" in page
    assert bob.post(f"/ui/memory/{id}/trust").status_code < 400
    trusting = bob.engine.store.shares
    assert trusting is not None and trusting.trusted() == ["ada"]
    assert "are given unasked what ada shares" in bob.get(f"/ui/memory/{id}").text
    assert bob.post(f"/ui/memory/{id}/distrust").status_code < 400 and trusting.trusted() == []
    assert bob.post(f"/ui/memory/{own}/trust").status_code == 422
    # What the filters leave is changed as far as it may be.
    assert bob.post("/ui/bulk", {"action": "forget", "matching": "1"}).status_code < 400
    assert f"{WORD} lands" in bob.get("/ui/browse").text and own not in bob.get("/ui/browse").text

    shares.share("memory", id, "user", "bob", access="write")
    page = bob.get(f"/ui/memory/{id}").text
    assert f"/memory/{id}/edit" in page and f"/memory/{id}/forget" in page and "supersedes=" not in page
    assert page.count('readonly title="Only ada can change it"') == 2 and 'name="sensitivity"' not in page
    assert "disabled" not in bob.get("/ui/browse").text
    assert "readonly" not in ada.get(f"/ui/memory/{id}").text


@pytest.mark.parametrize("proof", ["tsk_000000000000_guess", "guess", "é" * 300])
def test_invalid_key_does_not_sign_in(team: Team, proof: str) -> None:
    team.key("ada")
    browser = team.stranger()
    assert browser.ask("POST", "/ui/session", content=proof.encode(), headers=OWN).status_code == 401
    # Codes are for the owner of a personal machine.
    assert browser.sign_in().status_code == 401
    assert browser.get("/ui").status_code == 401


def test_key_in_a_header_or_cookie_opens_no_page(team: Team) -> None:
    key, browser = team.key("ada"), team.stranger()
    for headers in ({"Authorization": f"Bearer {key}"}, {"Cookie": f"triskele_8377={key}"}):
        assert browser.get("/ui", headers=headers).status_code == 401
    session = team.browser("ada")
    value = dict(session.cookies)["triskele_8377"]
    assert browser.get("/v1/me", headers={"Authorization": f"Bearer {value}"}).status_code == 401
    assert session.get("/v1/me").status_code == 401


def test_session_ends_by_sign_out_time_and_key(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    left, expired, revoked, other = (team.browser("ada") for _ in range(4))
    kept = dict(left.cookies)
    assert left.post("/ui/sign-out").headers["hx-redirect"] == "/ui"
    left.cookies.update(kept)
    assert left.get("/ui").status_code == 401
    keys = team.tenants.accounts.keys("ada")
    team.tenants.accounts.revoke_key(keys[2].id)
    assert revoked.get("/ui").status_code == 401
    # A part of an open page makes the whole page load again, which asks for the key.
    assert revoked.get("/ui/hits?q=x", headers=OWN).headers["hx-refresh"] == "true"
    assert other.get("/ui").status_code == 200
    later = timestamps.now() + timedelta(hours=12, seconds=1)
    monkeypatch.setattr(timestamps, "now", lambda: later)
    assert expired.get("/ui").status_code == other.get("/ui").status_code == 401


def test_session_ends_no_later_than_its_key(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    team.tenants.accounts.create_user("ada")
    soon = timestamps.now() + timedelta(minutes=5)
    key, _ = team.tenants.accounts.create_key("ada", scopes=ALL, expires_at=soon)
    browser = team.stranger()
    age = re.search(r"Max-Age=(\d+)", browser.sign_in(key).headers["set-cookie"])
    assert age is not None and int(age[1]) <= 300
    assert browser.get("/ui").status_code == 200
    monkeypatch.setattr(timestamps, "now", lambda: soon)
    assert browser.get("/ui").status_code == 401


def test_session_holds_on_every_instance(team: Team) -> None:
    browser = team.browser("ada")
    browser.app = Team(team.tenants).app
    assert browser.get("/ui").status_code == 200


def test_oldest_sessions_of_a_key_end_beyond_the_limit(team: Team) -> None:
    key = team.key("ada")
    browsers = [team.stranger() for _ in range(21)]
    for each in browsers:
        each.sign_in(key)
    assert browsers[0].get("/ui/static/app.css").status_code == 200 and browsers[0].get("/ui").status_code == 401
    assert browsers[1].get("/ui").status_code == browsers[-1].get("/ui").status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"HX-Request": "true"}, 403),
        ({"Origin": f"http://{HOST}"}, 403),
        ({"Origin": "https://evil.example", "HX-Request": "true"}, 403),
        ({"Host": "evil.example", **OWN}, 421),
    ],
)
def test_pages_refuse_requests_of_other_sites(team: Team, headers: dict[str, str], status: int) -> None:
    browser = team.browser("ada", SCOPES, is_admin=True)
    assert browser.post("/ui/memories", {"content": "x"}, headers=headers).status_code == status
    assert browser.post("/ui/admin/users", {"name": "eve"}, headers=headers).status_code == status
    assert browser.ask("POST", "/ui/session", content=team.key("ada"), headers=headers).status_code == status
    assert browser.engine.store.census().memories == 0 and len(team.tenants.accounts.users()) == 1


def _furnished(team: Team) -> dict[str, str]:
    """Memories of ada that name one word, in every place that a page shows; the ids in them."""
    engine = team.tenants.engine("ada")
    one = engine.remember(f"The {WORD} flies to Friedrichshafen", tags=[WORD], project=WORD).id
    two = engine.remember(f"The {WORD} lands at noon", tags=[WORD], project=WORD).id
    batch = engine.edit(one, content=f"The {WORD} flies to Friedrichshafen on Mondays")[0].batch
    engine.link(one, LinkKind.SEE_ALSO, two)
    secret = engine.remember(SECRET, tags=[WORD]).id
    engine.store.usage.injected("talk", [Use(one, 3, engine.get(one).content_hash)], client=WORD, project=WORD)
    reasons = (Rationale(WORD, WORD, WORD),)
    engine.proposals.offer([PairDecision(Verdict.UPDATE, engine.get(one), engine.get(two), 0.5, reasons)])
    read_names(engine.store, engine.lexical)
    proposal = engine.proposals.list()[0].id
    return {"one": one, "two": two, "secret": secret, "batch": batch, "proposal": proposal}


def _requests(ids: dict[str, str]) -> dict[str, list[dict[str, Any]]]:
    """Every route that takes something, asked with what belongs to another."""
    one, two = ids["one"], ids["two"]
    form = {"content": "B was here", "supersedes": one, "id": [one, two], "matching": "", "action": "forget"}
    ours = {"other": one, "kind": "see-also", "source": one, "target": two}
    return {
        "": [{"params": {"q": WORD}}, {"params": {"done": ids["batch"]}}],
        "/hits": [{"params": {"q": "Friedrichshafen", "superseded": "1"}}],
        "/why-not": [{"params": {"q": WORD, "expected": one}}, {"params": {"q": WORD, "expected": f"{WORD} flies"}}],
        "/browse": [{"params": {"state": state}} for state in ("current", "forgotten", "superseded", "secret")],
        "/bulk": [{"data": {**form, "action": action, "add_tag": "x"}} for action in ("forget", "restore", "label")],
        "/memories": [{"data": form}],
        "/graph": [{"params": {"focus": WORD}}, {"params": {"memory": one}}],
        "/graph/data": [{"params": {"focus": "Friedrichshafen"}}, {"params": {"memory": one[:8]}}, {}],
        "/undo": [{"data": {"batch": ids["batch"]}}, {"params": {"batch": ids["batch"]}}],
        "/home/prompt": [{"params": {"prompt": f"when does {WORD} fly?"}}],
        "/memory/{id}/choices": [{"params": {"other": each}} for each in (one, WORD, "Friedrichshafen flies")],
        "/memory/{id}/edit": [{"data": form}],
        "/memory/{id}/link": [{"data": ours}],
        "/memory/{id}/unlink": [{"data": ours}],
        "/new": [{"params": {"supersedes": two}}],
    }  # fmt: skip


def _ask(browser: Browser, route: PageRoute, id: str, details: dict[str, Any]) -> Any:
    headers = OWN if route.method == "POST" else {}
    path = route.path.replace("{id}", id).replace("{key:path}", "talk")
    return browser.ask(route.method, f"/ui{path}", headers=headers, **details)


def test_pages_keep_users_apart(team: Team) -> None:
    team.key("ada")
    ids = _furnished(team)
    ada = team.tenants.engine("ada")
    before = (ada.store.position(), ada.store.census())
    # A near-miss of the name; with every scope, an admin's too.
    for name, scopes in (("ada.b", ALL), ("root", SCOPES)):
        browser = team.browser(name, scopes, is_admin=name == "root")
        own = team.tenants.engine(name).remember("something of my own").id
        for route in site.ROUTES:
            asked = _requests(ids).get(route.path, [{}])
            for id in [*ids.values(), own] if "{id}" in route.path else [""]:
                for details in asked:
                    answer = _ask(browser, route, id, details)
                    assert answer.status_code < 500, (route.path, answer.status_code)
                    shown = answer.text.replace(str(details.get("params", {}).get("q", "")) or "\0", "")
                    told = [word for word in (WORD, "Friedrichshafen", "hunter2") if word in shown]
                    assert not told or _is_echo(details, told), (route.path, details, told)
        team.tenants.drop(name)
    assert (ada.store.position(), ada.store.census()) == before
    assert team.lines == []


def _is_echo(details: dict[str, Any], told: list[str]) -> bool:
    """Whether a page only repeats what its own address says."""
    given = str(details.get("params", {}))
    return all(word in given for word in told)


def test_pages_refuse_ids_of_other_users(team: Team) -> None:
    team.key("ada")
    ids = _furnished(team)
    browser = team.browser("bob")
    for route in site.ROUTES:
        if "{id}" in route.path and not route.path.startswith("/admin"):
            id = ids["proposal"] if route.path.startswith("/review") else ids["one"]
            [details, *_] = _requests(ids).get(route.path, [{}])
            assert _ask(browser, route, id, details).status_code == 404, route.path
            assert _ask(browser, route, id[:8], details).status_code == 404, route.path
    assert browser.get("/ui/conversation/talk").status_code == 404


def test_page_routes_need_their_scope(team: Team) -> None:
    id = team.tenants.engine("ada").remember("one thing").id
    for missing in SCOPES:
        browser = team.browser("ada", tuple(scope for scope in SCOPES if scope != missing), is_admin=True)
        for route in site.ROUTES:
            if route.is_local:
                assert _ask(browser, route, id, {}).status_code == 404, route.path
            elif route.scope == missing:
                answer = _ask(browser, route, id, {})
                assert answer.status_code == 403 and missing in answer.text, (missing, route.path)
    assert team.tenants.engine("ada").get(id).known_to is None
    assert {line.status for line in team.tenants.accounts.audit() if line.operation == "page /bulk"} == {403}


def test_page_posts_with_scope_read_change_nothing() -> None:
    posted = {each.path for each in site.ROUTES if each.method == "POST" and each.scope == "read"}
    assert posted == {"/quality/gate", "/health/check"}
    assert {each.path for each in site.ROUTES if each.is_local} == {"/code", "/code/places", "/health/check"}


def test_read_only_key_sees_no_edit(team: Team) -> None:
    team.key("ada")
    ids = _furnished(team)
    reader = team.browser("ada", ("read",))
    paths = ["", "?q=zeppelin", "/browse", "/browse?state=forgotten", f"/memory/{ids['one']}", "/review", "/health"]
    for path in [*paths, f"/memory/{ids['secret']}", "/browse?view=timeline", f"/memory/{ids['one']}?edit=1"]:
        page = reader.get(f"/ui{path}").text
        offered = set(re.findall(r'hx-post="/ui([^"]+)"', page)) - {"/sign-out", "/quality/gate"}
        assert offered == set() and "/ui/new" not in page and 'type="checkbox" name="id"' not in page, path
    writer = team.browser("ada", ("read", "write"))
    for path in (f"/memory/{ids['secret']}", "/health"):
        page = writer.get(f"/ui{path}").text
        assert "Reveal" not in page and "hunter2" not in page, path
    assert "/forget" in writer.get(f"/ui/memory/{ids['one']}").text
    assert "hunter2" in team.browser("ada").post(f"/ui/memory/{ids['secret']}/reveal").text


def test_pages_obey_quotas(team: Team) -> None:
    browser = team.browser("ada", quotas=Quotas(memories=1, requests_per_minute=4))
    assert browser.post("/ui/memories", {"content": "one"}).status_code == 204
    assert browser.post("/ui/memories", {"content": "two"}).status_code == 429
    assert [browser.get("/ui").status_code for _ in range(3)] == [200, 200, 429]
    assert {line["user"] for line in team.logged} == {"ada"}
    assert browser.engine.store.census().memories == 1


def test_admin_page_adds_users_and_revokes_keys(team: Team) -> None:
    admin = team.browser("root", SCOPES, is_admin=True)
    added = admin.post("/ui/admin/users", {"name": "eve", "memories": "10", "requests_per_minute": ""})
    assert "Added a user" in admin.get(added.headers["hx-redirect"]).text
    assert team.tenants.accounts.user("eve").quotas == Quotas(10, None, None)
    made = admin.post("/ui/admin/keys", {"user": "eve", "label": "laptop", "scope": ["read"], "days": "7"})
    found = re.search(r"tsk_[\w-]+", made.text)
    assert found is not None and made.headers["cache-control"] == "no-store"
    page = admin.get("/ui/admin").text
    assert found[0] not in page and "laptop" in page
    eve = team.stranger("eve")
    assert eve.sign_in(found[0]).status_code == 204
    assert eve.get("/ui").status_code == 200 and eve.get("/ui/admin").status_code == 403
    [key] = team.tenants.accounts.keys("eve")
    admin.post(f"/ui/admin/keys/{key.id}/revoke")
    assert eve.get("/ui").status_code == 401 and "revoked" in admin.get("/ui/admin").text
    assert found[0] not in "".join(str(line) for line in [*team.logged, *team.tenants.accounts.audit()])


@pytest.mark.parametrize(
    ("path", "form", "status"),
    [
        ("/users", {"name": "Not A Name"}, 422),
        ("/users", {"name": "root"}, 409),
        ("/users", {"name": "eve", "memories": "many"}, 422),
        ("/keys", {"user": "nobody", "scope": "read"}, 404),
        ("/keys", {"user": "root"}, 422),
        ("/keys", {"user": "root", "scope": "everything"}, 422),
        ("/keys/000000000000/revoke", {}, 404),
    ],
)
def test_admin_page_reports_refusals(team: Team, path: str, form: dict[str, str], status: int) -> None:
    admin = team.browser("root", SCOPES, is_admin=True)
    answer = admin.post(f"/ui/admin{path}", form)
    assert answer.status_code == status and answer.headers["hx-retarget"] == "#notice"
    assert len(team.tenants.accounts.users()) == 1 and len(team.tenants.accounts.keys()) == 1


def test_admin_page_is_closed_to_former_admins(team: Team) -> None:
    # The scope of a key counts only while its user is an admin.
    browser = team.browser("ada", ALL)
    assert browser.get("/ui/admin").status_code == 403
    assert WRITE in ALL and "Users</a>" not in browser.get("/ui").text


def test_admin_page_escapes_labels(team: Team) -> None:
    admin = team.browser("root", SCOPES, is_admin=True)
    for payload in PAYLOADS:
        made = admin.post("/ui/admin/keys", {"user": "root", "label": payload, "scope": "read"})
        assert made.status_code == 200 and Elements(made.text).wrong == []
        assert Elements(admin.post("/ui/admin/users", {"name": payload}).text).wrong == []
        assert Elements(admin.get("/ui/admin", params={"said": payload, "done": payload}).text).wrong == []
    assert Elements(admin.get("/ui/admin").text).wrong == []
    assert "&lt;img src=x" in admin.get("/ui/admin").text


def test_admin_page_is_missing_on_a_personal_machine(browser: Browser) -> None:
    assert browser.get("/ui/admin").status_code == 404
    assert browser.post("/ui/admin/users", {"name": "eve"}).status_code == 404
    assert "Users</a>" not in browser.get("/ui").text
