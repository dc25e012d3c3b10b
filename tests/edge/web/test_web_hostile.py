"""Markup in any field of any entity stays text on every page."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import pytest
from page_client import Browser

from triskele.code.search import opened
from triskele.curation.decide import PairDecision
from triskele.edge.web.rendering import environment
from triskele.index.name_linking import read_names
from triskele.replies.rooms import Rationale
from triskele.store.values import Use
from triskele.types import LinkKind, Verdict

pytestmark = pytest.mark.slow

MARKUP = "<img src=x onerror=alert(1)>"
ATTRIBUTE = "\"onfocus=alert(1) autofocus x='"
BREAKING = "'}}</script><script>alert(1)</script>{{7*7}}${7*7}"
PAYLOADS = (MARKUP, ATTRIBUTE, BREAKING)


class Elements(HTMLParser):
    """Collects what a browser would run or load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.wrong: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        source = named.get("src") or ""
        if tag in ("script", "img", "iframe", "object") and not source.startswith("/ui/static/"):
            self.wrong.append(f"<{tag} src={source}>")
        self.wrong += [f"{tag} {name}" for name in named if name.startswith("on") or name == "style"]
        if tag == "style" or (named.get("href") or "").lower().startswith("javascript"):
            self.wrong.append(tag)


@pytest.fixture
def hostile(browser: Browser, tmp_path: Path) -> tuple[Browser, list[str]]:
    """A store whose every text tries to become markup, and the pages that show it."""
    engine, ids = browser.engine, list[str]()
    for number, payload in enumerate(PAYLOADS):
        details = {"tags": [payload], "keywords": payload, "project": payload, "session": payload, "speaker": payload}
        ids.append(engine.remember(f"{payload} deploy {number}", **details).id)
    engine.edit(ids[0], content=f"{BREAKING} deploy edited")
    engine.link(ids[0], LinkKind.SUPERSEDES, ids[1])
    for payload in PAYLOADS:
        use = Use(ids[2], 3, engine.get(ids[2]).content_hash)
        engine.store.usage.injected(payload, [use], client=payload, project=payload)
    pair = PairDecision(
        Verdict.UPDATE, engine.get(ids[0]), engine.get(ids[2]), 0.5, (Rationale(MARKUP, MARKUP, MARKUP),)
    )
    engine.proposals.offer([pair])
    read_names(engine.store, engine.lexical)
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "deploy.py").write_text(f"def deploy():\n    return '''{MARKUP} {BREAKING}'''\n")
    opened(engine.settings.home, tree).index()
    paths = ["", "/browse", "/browse?view=timeline", "/review", "/health", "/quality", "/graph", "/code?q=deploy"]
    paths += ["/health/store", "/home", "/home/prompt?prompt=how+do+we+deploy"]
    paths += [f"/conversation/{quote(payload)}" for payload in PAYLOADS]
    paths += [f"/memory/{id}" for id in ids] + ["/hits?q=deploy", f"/why-not?q=deploy&expected={ids[1]}"]
    return browser, paths


def test_pages_escape_stored_markup(hostile: tuple[Browser, list[str]]) -> None:
    browser, paths = hostile
    for path in paths:
        answer = browser.get(f"/ui{path}")
        assert answer.status_code == 200, path
        assert Elements(answer.text).wrong == [], path
    shown = browser.get("/ui/browse").text
    assert "&lt;img src=x onerror=alert(1)&gt;" in shown and "{{7*7}}" in shown


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize(
    "path",
    [
        "/?q={}", "/hits?q={}&tag={}&as_of={}", "/hits?fusion={}&q=x", "/why-not?q={}&expected={}",
        "/browse?tag={}&project={}",
        "/browse?state={}", "/graph?focus={}", "/graph?memory={}", "/code?q={}&tree={}", "/conversation/{}",
        "/quality?metric={}&run={}", "/memory/{}", "/new?supersedes={}", "/?done={}&said={}",
    ],
)  # fmt: skip
def test_pages_escape_markup_of_addresses(hostile: tuple[Browser, list[str]], path: str, payload: str) -> None:
    address = path.replace("{}", quote(payload, safe="")).replace("/?", "?", 1)
    answer = hostile[0].get(f"/ui{address}")
    assert answer.status_code in (200, 404, 422)
    assert Elements(answer.text).wrong == []


def test_graph_data_holds_values_without_markup(hostile: tuple[Browser, list[str]]) -> None:
    browser, _ = hostile
    answer = browser.get("/ui/graph/data", params={"memory": browser.engine.browse(all_projects=True).memories[0].id})
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"


def test_templates_never_switch_escaping_off() -> None:
    made = environment()
    assert made.autoescape is True
    folder = Path(__file__).parents[3] / "src" / "triskele" / "edge" / "web"
    for template in (folder / "templates").glob("*.html"):
        text = template.read_text()
        assert "|safe" not in text and "autoescape false" not in text and "Markup" not in text, template.name
        assert "<style" not in text and " style=" not in text and "hx-on" not in text and "<script>" not in text
    for script in (folder / "static").glob("*.js"):
        text = script.read_text()
        assert not any(word in text for word in ("innerHTML", "insertAdjacentHTML", "eval(", "document.write"))
