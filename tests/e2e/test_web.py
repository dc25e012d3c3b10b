"""The pages in Debian's Chromium over real stores: every page and action, no finding of axe, the policy kept."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from needs import CHROMIUM

from triskele import config
from triskele.edge.cli.demo import temporary_memory
from triskele.edge.hook import client
from triskele.edge.http.access import SCOPES
from triskele.edge.process import resident
from triskele.engine.local import LocalEngine
from triskele.index.name_linking import read_names
from triskele.server.accounts import Accounts
from triskele.store.values import Use
from triskele.types import Add

pytestmark = [pytest.mark.e2e, pytest.mark.needs("chromium")]

AXE = "axe-core@4.14.0"
MEMORIES = 5000
PAYLOAD = "<img src=x onerror=document.title='broken'>"
OPTIONS = "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync".split()


class Pages:
    """A signed-in browser on one data folder, and whatever went wrong in it."""

    def __init__(self, chromium: Any, environ: dict[str, str], folder: Path | None) -> None:
        self.environ = environ
        self.wrong: list[str] = []
        self._folder = folder
        self.context = chromium.new_context(viewport={"width": 1200, "height": 820})
        self.context.set_default_timeout(20_000)
        self.page = self.context.new_page()
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.base = ""

    def sign_in(self) -> None:
        """Open the address that `triskele ui` prints."""
        command = [sys.executable, "-m", "triskele", "ui", "--json"]
        done = subprocess.run(command, env=self.environ, capture_output=True, text=True, timeout=90, check=True)
        url = json.loads(done.stdout)["url"]
        self.base = url.split("#")[0]
        self.page.goto(url)
        self.page.wait_for_selector("header.bar")
        assert "#" not in self.page.url

    def open(self, path: str, *, name: str = "") -> Any:
        """Go to a page and keep a picture of it."""
        self.page.goto(self.base + path)
        self.page.wait_for_load_state("networkidle")
        if name and self._folder is not None:
            self.page.screenshot(path=self._folder / f"{name}.png")
        return self.page

    def _heard(self, message: Any) -> None:
        # The first request of a new session is answered with the page that signs in.
        if message.type == "error" and "401" not in message.text:
            self.wrong.append(message.text)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def opened(chromium: Any) -> Iterator[Callable[[Path], Pages]]:
    """Browsers on data folders; pictures go to TRISKELE_SCREENSHOTS where that is set."""
    kept = os.environ.get("TRISKELE_SCREENSHOTS")
    made: list[Pages] = []

    def open_one(home: Path) -> Pages:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("TRISKELE_")}
        pages = Pages(chromium, {**environ, "TRISKELE_HOME": str(home)}, Path(kept) if kept else None)
        made.append(pages)
        pages.sign_in()
        return pages

    yield open_one
    for pages in made:
        resident.stop(client.Address(pages.environ))


@pytest.fixture(scope="module")
def large(opened: Callable[[Path], Pages], tmp_path_factory: pytest.TempPathFactory) -> Pages:
    """Five thousand memories that are recalled by their words."""
    home = tmp_path_factory.mktemp("large")
    (home / "config.toml").write_text('[recall]\nmodel = "none"\n')
    with LocalEngine(config.load({"TRISKELE_HOME": str(home)}), home) as engine:
        kinds = ("facts", "decisions", "lessons")
        drafts = [
            engine.draft(
                f"Service {number} of team {number % 50} listens on port {number}",
                category=kinds[number % 3],
                tags=[f"team{number % 50}"],
                project=f"project{number % 4}",
                created_at=f"{2023 + number % 3}-{number % 12 + 1:02d}-11",
            )
            for number in range(MEMORIES - 2)
        ]
        engine.apply([Add(draft) for draft in drafts])
        engine.remember(f"{PAYLOAD} is how a page would break", tags=[PAYLOAD], project=PAYLOAD)
        engine.remember("the staging password is hunter2-Correct-Horse")
        used = engine.browse(all_projects=True, limit=3).memories
        engine.store.usage.injected(
            "talk", [Use(each.id, 24) for each in used], client="claude-code", project="a-project"
        )
        engine.upkeep.reindex()
        read_names(engine.store, engine.lexical)
    return opened(home)


@pytest.fixture(scope="module")
def small(opened: Callable[[Path], Pages]) -> Iterator[Pages]:
    """The sample memories, with the model."""
    with temporary_memory() as engine:
        yield opened(engine.settings.home)


def test_search_explains_reranks_and_says_why_not(small: Pages) -> None:
    page = small.open("")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("When may we deploy to production?")
    page.wait_for_selector("#hits .hit .legbar rect.dense")
    assert "q=When" in page.url and page.locator("#hits mark").count() > 0
    before = page.locator("#hits [data-id]").evaluate_all("all => all.map(each => each.dataset.id)")
    page.click("summary:has-text('How to rank')")
    with page.expect_response("**/ui/hits?*"):
        page.uncheck("input[name=leg][value=dense]")
    page.wait_for_selector(".moved.up, .moved.down")
    after = page.locator("#hits [data-id]").evaluate_all("all => all.map(each => each.dataset.id)")
    assert before != after
    assert page.locator("#hits rect.dense").count() == 0
    page.fill("input[name=expected]", "Monday standup is at ten")
    page.click("#explain")
    page.wait_for_selector("#why-not .stages")
    with page.expect_response("**/ui/hits?*"):
        page.focus("input[name=fusion], select[name=fusion]")
        page.select_option("select[name=fusion]", "rrf")
    page.wait_for_load_state("networkidle")
    page.locator("header .brand").focus()
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert page.locator("[data-item].chosen").count() == 1
    page.keyboard.press("Enter")
    page.wait_for_selector("article.memory")
    assert small.wrong == []


def test_a_memory_is_written_edited_and_undone_by_keys(large: Pages) -> None:
    page = large.open("/health")
    page.keyboard.press("g")
    page.keyboard.press("b")
    page.wait_for_url("**/ui/browse")
    page.keyboard.press("n")
    page.wait_for_url("**/ui/new")
    page.fill("textarea[name=content]", "The lighthouse is painted every spring")
    page.click("button.primary")
    page.wait_for_selector(".notice:has-text('Added 1 memory')")
    address = page.url.split("?")[0]
    page.keyboard.press("e")
    page.fill("textarea[name=content]", "The lighthouse is painted every autumn")
    page.click("#edit button.primary")
    page.wait_for_selector("ins:has-text('autumn')")
    page.keyboard.press("u")
    page.wait_for_selector("h1:has-text('every spring')")
    page.fill("#link input[name=other]", "service listens on port 17")
    page.click("#choices button >> nth=0")
    page.wait_for_selector(".notice:has-text('Linked')")
    page.click("text=Undo … >> nth=1")
    page.wait_for_selector(".plan del")
    page.goto(address)
    page.click("button.danger")
    page.wait_for_selector(".tag.state:has-text('forgotten')")
    page.click("button.primary:has-text('Restore')")
    page.wait_for_selector("text=Restored 1 memory")
    page.click("button.danger")
    page.wait_for_selector(".tag.state:has-text('forgotten')")
    # A refused change answers with a status that the browser reports as an error of its own.
    assert [each for each in large.wrong if "status of 4" not in each] == []
    large.wrong.clear()


def test_many_are_found_by_filters_and_changed_at_once(large: Pages) -> None:
    page = large.open("/browse", name="browse")
    assert page.locator("h1").inner_text() == "5,000 memories"
    page.select_option("select[name=project]", "project1")
    page.wait_for_selector("h1:has-text('1,250 memories')")
    page.fill("input[name=tag]", "team7")
    page.keyboard.press("Tab")
    page.wait_for_selector("h1:has-text('50 memories')")
    page.goto(f"{large.base}/browse?tag=team7")
    page.wait_for_selector("h1:has-text('100 memories')")
    page.check("#all-matching")
    page.on("dialog", lambda dialog: dialog.accept())
    page.click("button[value=forget]")
    page.wait_for_selector(".notice:has-text('Forgot 100 memories')")
    page.keyboard.press("u")
    page.wait_for_selector(".notice:has-text('Undone')")
    page.goto(f"{large.base}/browse?tag=team7&page=2")
    page.wait_for_selector("text=51–100 of 100")
    page.keyboard.press("j")
    page.keyboard.press("x")
    assert page.locator("#chosen-count").inner_text() == "1"
    large.open("/browse?view=timeline&since=2023-04-01&until=2023-05-01")
    assert page.locator(".timeline h2").inner_text() == "April 2023"
    large.open("/browse?view=timeline", name="timeline")
    assert page.locator("svg.months rect").count() == 13
    assert large.wrong == []


def test_the_graph_is_drawn_and_goes_back_in_time(large: Pages) -> None:
    page = large.open("/graph?focus=team3&size=300", name="graph")
    page.wait_for_selector("#graph[data-nodes]")
    nodes = int(page.locator("#graph").get_attribute("data-nodes"))
    assert 100 <= nodes <= 300
    assert page.locator("#graph").get_attribute("data-shown") == "now"
    page.locator("#at").fill("8")
    page.wait_for_selector('#graph[data-shown="2023-09-01"]')
    assert page.locator("#at-text").inner_text() == "Sep 1, 2023"
    page.click("[data-open] >> nth=0")
    page.wait_for_selector("article.memory")
    assert large.wrong == []


def test_the_graph_opens_on_a_drawing_and_names_a_memory_on_focus(large: Pages) -> None:
    page = large.open("/graph")
    page.wait_for_selector("#graph[data-nodes]")
    assert 20 <= int(page.locator("#graph").get_attribute("data-nodes")) <= 80
    before = page.evaluate("document.getElementById('drawing').toDataURL()")
    page.locator("#drawn a").first.focus()
    page.wait_for_function("before => document.getElementById('drawing').toDataURL() !== before", arg=before)
    page.locator("[data-concept]").first.hover()
    assert large.wrong == []


PATHS = {
    "home": "", "search": "?q=port", "browse": "/browse", "timeline": "/browse?view=timeline", "new": "/new",
    "graph": "/graph", "focus": "/graph?focus=team3", "code": "/code", "review": "/review", "quality": "/quality",
    "health": "/health", "nothing": "/nowhere",
    "hostile": "/browse?tag=%3Cimg+src%3Dx+onerror%3Ddocument.title%3D%27broken%27%3E",
}  # fmt: skip


@pytest.fixture(scope="module")
def axe(npm: Callable[..., Path]) -> Callable[[Any], list[str]]:
    """Gives the serious findings of axe on a page."""
    script = (npm(AXE, into="axe").parent / "axe-core" / "axe.min.js").read_text()

    def serious(page: Any) -> list[str]:
        page.evaluate(script)
        result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{page.url} {each['id']}: {each['nodes'][0]['html'][:120]}"
            for each in result["violations"]
            if each["impact"] in ("serious", "critical")
        ]

    return serious


@pytest.mark.needs("npm")
def test_no_page_has_serious_findings_or_breaks_the_policy(large: Pages, axe: Callable[[Any], list[str]]) -> None:
    found: list[str] = []
    for theme in ("light", "dark"):
        large.page.emulate_media(color_scheme=theme)
        for name, path in PATHS.items():
            page = large.open(path, name=f"{name}-{theme}")
            assert "broken" not in page.title()
            found += axe(page)
        large.open("/browse").click("[data-open] >> nth=0")
        page.wait_for_selector("#link")
        page.wait_for_load_state("networkidle")
        found += axe(page)
    assert found == []
    assert [each for each in large.wrong if "status of 404" not in each] == []
    large.wrong.clear()


EMPTY = {
    "": "Nothing has been remembered yet", "/browse": "Nothing has been remembered yet",
    "/browse?view=timeline": "Nothing has been remembered yet", "/graph": "The graph is empty",
    "/code": "No source tree is indexed", "/review": "No proposals", "/quality": "Nothing has been measured yet",
    "/health": "No backup is known",
}  # fmt: skip


@pytest.mark.needs("npm")
def test_every_page_of_an_empty_store_says_what_to_do(
    opened: Callable[[Path], Pages], tmp_path: Path, axe: Callable[[Any], list[str]]
) -> None:
    (tmp_path / "config.toml").write_text('[recall]\nmodel = "none"\n')
    pages = opened(tmp_path)
    for number, (path, words) in enumerate(EMPTY.items()):
        page = pages.open(path, name=f"empty-{number}")
        assert words in page.locator("main").inner_text(), path
        assert axe(page) == []
    assert pages.wrong == []


CUT = """[...document.querySelectorAll(".scroll")]
    .filter(each => each.scrollWidth > each.clientWidth + 1).map(each => each.innerText)"""


def test_a_phone_needs_no_sideways_scrolling(large: Pages) -> None:
    large.page.set_viewport_size({"width": 390, "height": 800})
    for name, path in PATHS.items():
        page = large.open(path, name=f"{name}-phone")
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 390, (name, width)
        page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        assert page.evaluate(CUT) == [], name
    page = large.open("/browse")
    assert not page.locator("select[name=project]").is_visible()
    page.click("text=Filters")
    assert page.locator("select[name=project]").is_visible()
    large.page.set_viewport_size({"width": 1200, "height": 820})
    large.wrong.clear()


def test_secrets_sign_out_and_a_server_that_is_gone(large: Pages) -> None:
    page = large.open("/health")
    assert "hunter2" not in page.content()
    page.click(".reveal button")
    page.wait_for_selector("text=hunter2-Correct-Horse")
    page.click("text=Sign out")
    page.wait_for_selector("text=You are signed out")
    large.sign_in()
    page = large.open("?q=port")
    resident.stop(client.Address(large.environ))
    page.fill("#q", "another question")
    page.wait_for_selector(".notice.error:has-text('does not answer')")
    large.sign_in()
    assert re.search(r"/ui$", page.url)


@pytest.fixture
def server(postgres_url: str, tmp_path: Path) -> Iterator[tuple[str, Accounts, subprocess.Popen[str]]]:
    """The address of a running server with users, its accounts, and its process."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TRISKELE_")}
    environ |= {"TRISKELE_HOME": str(tmp_path), "TRISKELE_STORE": postgres_url, "TRISKELE_PRIVACY_KEY": "file"}
    environ["TRISKELE_RECALL_MODEL"] = "none"
    accounts = Accounts(postgres_url)
    accounts.create_user("ada", is_admin=True)
    with LocalEngine(config.load({**environ, "TRISKELE_MEMORY_OWNER": "ada"}), tmp_path) as engine:
        engine.remember(f"The zeppelin lands at noon {PAYLOAD}", tags=[PAYLOAD])
    command = [sys.executable, "-m", "triskele", "serve", "--http", "127.0.0.1:0", "--json"]
    with subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        lines: list[str] = []
        while not lines or lines[-1] != "}\n":
            lines.append(process.stdout.readline())
            assert lines[-1], lines
        yield json.loads("".join(lines))["http"], accounts, process
        process.terminate()
        process.wait(30)
    accounts.close()


@pytest.mark.needs("npm")
def test_a_server_is_signed_into_by_key_and_managed_by_an_admin(
    chromium: Any, server: tuple[str, Accounts, subprocess.Popen[str]], axe: Callable[[Any], list[str]]
) -> None:
    address, accounts, process = server
    pages = Pages(chromium, {}, Path(kept) if (kept := os.environ.get("TRISKELE_SCREENSHOTS")) else None)
    pages.base, page = f"{address}/ui", pages.page
    page.on("dialog", lambda dialog: dialog.accept())

    def look(path: str, name: str) -> list[str]:
        found = []
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            found += axe(pages.open(path, name=f"{name}-{theme}"))
        page.set_viewport_size({"width": 390, "height": 800})
        pages.open(path, name=f"{name}-phone")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.set_viewport_size({"width": 1200, "height": 820})
        return found

    def sign_in(key: str) -> None:
        page.fill("input[name=key]", key)
        page.keyboard.press("Enter")

    assert look("/browse", "sign-in") == []
    sign_in("tsk_000000000000_guess")
    page.wait_for_selector("#state:has-text('unknown, expired or revoked')")
    sign_in(accounts.create_key("ada", scopes=SCOPES)[0])
    page.wait_for_selector(".who:has-text('ada')")
    assert page.url.endswith("/ui/browse") and "broken" not in page.title()
    assert look("", "server-search") == look("/health", "server-health") == look("/admin", "admin") == []
    page.click("summary:has-text('Add a user')")
    page.fill("input[name=name]", "bob")
    page.click("text='Add'")
    page.wait_for_selector("th:has-text('bob')")
    page.click("summary:has-text('Make a key')")
    page.select_option("select[name=user]", "bob")
    page.uncheck("input[name=scope][value=write]")
    page.click("text='Make'")
    key = page.wait_for_selector("#key-text").input_value()
    assert axe(page) == []
    ada_memory = pages.open("").locator("a[data-open]").first.get_attribute("href").removeprefix("/ui")
    page.click("text=Sign out")
    page.wait_for_selector("#sign-in")
    sign_in(key)
    page.wait_for_selector(".who:has-text('bob')")
    assert page.locator("text=zeppelin").count() == page.locator("a[href='/ui/new']").count() == 0
    assert "Not found" in pages.open(ada_memory).locator("main").inner_text()
    pages.open("?q=zeppelin")
    [bobs] = accounts.keys("bob")
    accounts.revoke_key(bobs.id)
    page.fill("#q", "another question")
    page.wait_for_selector("#sign-in")
    sign_in(accounts.create_key("bob")[0])
    page.wait_for_selector("#q")
    assert [each for each in pages.wrong if "status of 40" not in each] == []
    process.terminate()
    process.wait(30)
    page.fill("#q", "a third question")
    page.wait_for_selector(".notice.error:has-text('does not answer')")
