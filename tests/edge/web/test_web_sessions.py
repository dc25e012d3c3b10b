"""Who may see pages: a code works once, a session expires, and no other site can ask in its name."""

from __future__ import annotations

import asyncio

import pytest
from page_client import HOST, OWN, Browser
from starlette.requests import Request

from triskele.edge.http.access import OWNER
from triskele.edge.web import site
from triskele.edge.web.sessions import CODE_S, POLICY, SESSION_S, Sessions, is_page

DOCUMENTS = ("/docs", "/docs/style.css", "/openapi.json")
PATHS = [(each.method, each.path.replace("{id}", "1abc")) for each in site.ROUTES]


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_pages_need_a_session(stranger: Browser, method: str, path: str) -> None:
    answer = stranger.ask(method, f"/ui{path}", headers=OWN)
    assert answer.status_code == 401
    assert "triskele ui" in answer.text and answer.headers["content-security-policy"] == POLICY


def test_token_and_code_open_no_page(stranger: Browser) -> None:
    code = stranger.app.sessions.code()
    for headers in (
        {"Authorization": "Bearer token"},
        {"Cookie": f"triskele_8377={code}"},
        {"Cookie": "triskele_8377="},
    ):
        assert stranger.get("/ui", headers=headers).status_code == 401


def test_sign_in_code_works_once(stranger: Browser) -> None:
    code = stranger.app.sessions.code()
    first = stranger.ask("POST", "/ui/session", content=code, headers=OWN)
    assert first.status_code == 204
    cookie = first.headers["set-cookie"].lower()
    assert all(word in cookie for word in ("httponly", "samesite=strict", "path=/", "triskele_8377="))
    assert stranger.get("/ui").status_code == 200
    assert stranger.ask("POST", "/ui/session", content=code, headers=OWN).status_code == 401


@pytest.mark.parametrize("code", ["", "x", "a" * 43, "é", "a" * 10_000])
def test_guessed_code_opens_nothing(stranger: Browser, code: str) -> None:
    stranger.app.sessions.code()
    assert stranger.ask("POST", "/ui/session", content=code.encode(), headers=OWN).status_code == 401
    assert stranger.get("/ui").status_code == 401


def test_sign_in_codes_and_sessions_expire() -> None:
    now = [0.0]
    sessions = Sessions(lambda: now[0])

    def asked(cookie: str = "") -> Request:
        headers = [(b"host", HOST.encode()), (b"cookie", cookie.encode())]
        return Request({"type": "http", "method": "GET", "path": "/ui", "headers": headers, "query_string": b""})

    old = sessions.code()
    now[0] += CODE_S
    assert asyncio.run(sessions.exchange(asked(), old)).status_code == 401
    given = asyncio.run(sessions.exchange(asked(), sessions.code())).headers["set-cookie"].split(";")[0]
    assert asyncio.run(sessions.admitted(asked(given))) == (None, OWNER)
    now[0] += SESSION_S
    refused, principal = asyncio.run(sessions.admitted(asked(given)))
    assert refused is not None and refused.status_code == 401 and principal is None


def test_sign_out_ends_the_session(browser: Browser) -> None:
    kept = dict(browser.cookies)
    assert browser.post("/ui/sign-out").headers["hx-redirect"] == "/ui"
    browser.cookies.update(kept)
    assert browser.get("/ui").status_code == 401


def test_session_opens_only_pages_and_the_documents_of_the_api(browser: Browser) -> None:
    for path in DOCUMENTS:
        assert browser.get(path).status_code == 200, path
    for path in ("/v1/me", "/v1/memories", "/docs/nowhere", "/docs/"):
        assert browser.get(path).status_code == 401, path
    for path in ("/mcp", *DOCUMENTS):
        assert browser.ask("POST", path, content="{}", headers=OWN).status_code == 401, path
    assert browser.get("/docs", headers={"Authorization": "Bearer wrong"}).status_code == 401
    browser.post("/ui/sign-out")
    for path in DOCUMENTS:
        refused = browser.get(path)
        assert refused.status_code == 401 and refused.headers["www-authenticate"] == "Bearer", path


def test_root_leads_to_the_pages(stranger: Browser) -> None:
    for method in ("GET", "HEAD"):
        answer = stranger.ask(method, "/")
        assert (answer.status_code, answer.headers["location"]) == (303, "/ui")
    assert stranger.ask("POST", "/").status_code == 401
    assert stranger.get("/", headers={"Host": "evil.example"}).status_code == 421


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"HX-Request": "true"}, 403),
        ({"Origin": f"http://{HOST}"}, 403),
        ({"Origin": "http://127.0.0.1:9999", "HX-Request": "true"}, 403),
        ({"Origin": "http://evil.example", "HX-Request": "true"}, 403),
        ({"Origin": "null", "HX-Request": "true"}, 403),
        ({"Host": "evil.example", **OWN}, 421),
    ],
)
def test_pages_refuse_changes_of_other_sites(browser: Browser, headers: dict[str, str], status: int) -> None:
    assert browser.post("/ui/sign-out", headers=headers).status_code == status
    assert browser.get("/ui").status_code == 200


def test_pages_send_the_content_security_policy(browser: Browser) -> None:
    for path in ("/ui", "/ui/nowhere", "/ui/static/app.css", "/ui/static/nothing.js", "/ui/static/..%2fsite.py"):
        answer = browser.get(path)
        assert answer.headers["content-security-policy"] == POLICY, path
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert browser.get("/ui").headers["cache-control"] == "no-store"
    assert browser.get("/ui/static/..%2fsite.py").status_code == 404


def test_session_cookie_is_secure_over_https(stranger: Browser) -> None:
    plain = stranger.sign_in().headers["set-cookie"].lower()
    assert "secure" not in plain
    request = Request({
        "type": "http", "method": "POST", "path": "/ui/session", "query_string": b"",
        "headers": [(b"host", HOST.encode()), (b"origin", b"https://memory.example.com")],
    })  # fmt: skip
    code = stranger.app.sessions.code()
    assert "secure" in asyncio.run(stranger.app.sessions.exchange(request, code)).headers["set-cookie"].lower()


def test_is_page_recognises_paths_of_pages() -> None:
    assert is_page("/ui") and is_page("/ui/browse")
    assert not is_page("/uix") and not is_page("/") and not is_page("/mcp")


def test_sign_in_codes_come_only_from_the_owners_socket(stranger: Browser) -> None:
    assert stranger.ask("POST", "/sign-in", headers={"Authorization": "Bearer token"}).status_code == 404


def test_page_faults_are_logged_without_their_message(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("the text of a prompt")

    monkeypatch.setattr(browser.engine, "stats", fail)
    answer = browser.get("/ui/health/store")
    assert answer.status_code == 503 and "prompt" not in answer.text
    assert browser.lines and "prompt" not in browser.lines[0] and "RuntimeError" in browser.lines[0]
