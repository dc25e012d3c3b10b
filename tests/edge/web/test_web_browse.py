"""The pages over many memories and over one: filters with true counts, and every change with its undo."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from page_client import Browser

from triskele.edge.web.browse_page import SORTS, BrowseForm, _bars
from triskele.edge.web.memory_page import difference
from triskele.edge.web.rendering import facets_of
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput
from triskele.types import Action, LinkKind, Origin, Page, Sensitivity
from triskele.validation import MAX_LISTED

pytestmark = pytest.mark.slow


@pytest.fixture
def engine(browser: Browser) -> LocalEngine:
    """Sixty plain memories, and one of each special kind."""
    engine = browser.engine
    for number in range(60):
        engine.remember(f"plain fact number {number}", project="shop" if number % 2 else "", tags=[f"t{number % 3}"])
    engine.remember("seen on a page", origin=Origin.WEB, category="lessons", created_at="2024-03-05")
    engine.remember("only here", sensitivity=Sensitivity.PRIVATE)
    engine.remember("the door code was 4711", valid_to="2025-01-01")
    old = engine.remember("we ship on Mondays").id
    engine.remember("we ship on Fridays", supersedes=old)
    engine.forget(engine.remember("a passing thought", project="shop").id)
    edited = engine.remember("first words").id
    engine.edit(edited, content="second words")
    return engine


def browse(engine: LocalEngine, limit: int = MAX_LISTED, offset: int = 0, **filters: str) -> Page:
    return engine.browse(**BrowseForm(**filters).options(), limit=limit, offset=offset)


def total(engine: LocalEngine, **filters: str) -> int:
    return browse(engine, limit=1, **filters).total


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        ({}, 66),
        ({"project": "shop"}, 30),
        ({"project": ""}, 30),
        ({"project": "nowhere"}, 0),
        ({"tag": "t0"}, 20),
        ({"tag": "t0", "project": "shop"}, 10),
        ({"origin": "web"}, 1),
        ({"category": "lessons"}, 1),
        ({"state": "private"}, 1),
        ({"state": "ended"}, 1),
        ({"state": "superseded"}, 1),
        ({"state": "forgotten"}, 1),
        ({"state": "forgotten", "project": "shop"}, 1),
        ({"state": "forgotten", "project": "tools"}, 0),
        ({"state": "superseded", "tag": "t0"}, 0),
        ({"since": "2024-03-01", "until": "2024-04-01"}, 1),
    ],
)
def test_browse_counts_are_exact(engine: LocalEngine, filters: dict[str, str], count: int) -> None:
    assert total(engine, **filters) == count
    assert len({memory.id for memory in browse(engine, **filters).memories}) == count


def test_browse_counts_follow_changes(engine: LocalEngine) -> None:
    engine.forget(*[each.id for each in browse(engine, tag="t1").memories])
    assert total(engine) == 46 and total(engine, state="forgotten") == 21
    engine.undo(all_projects=True)
    assert total(engine) == 66 and total(engine, state="forgotten") == 1


def test_browse_pages_join_without_gap_or_overlap(engine: LocalEngine) -> None:
    for sort in SORTS:
        whole = browse(engine, sort=sort).memories
        parts = [browse(engine, limit=25, offset=at, sort=sort).memories for at in (0, 25, 50, 75)]
        assert [each for part in parts for each in part] == list(whole)
    assert browse(engine, limit=1, sort="oldest").memories[0].content == "seen on a page"


@pytest.mark.parametrize("wrong", [{"state": "lost"}, {"sort": "mood"}, {"origin": "dream"}])
def test_browse_refuses_unknown_filters(engine: LocalEngine, wrong: dict[str, str]) -> None:
    with pytest.raises(BadInput):
        browse(engine, **wrong)


def test_browse_facets_count_current_memories(engine: LocalEngine) -> None:
    facets = facets_of(engine)
    assert facets.projects == {"": 30, "shop": 30, "garden": 6}
    assert facets.origins == {"user": 65, "web": 1} and facets.categories["lessons"] == 1
    assert list(facets.tags)[:3] == ["t0", "t1", "t2"]
    engine.forget(engine.remember("A tag of the past", tags=["past"]).id)
    assert "past" not in facets_of(engine).tags


def test_browse_page_shows_pages(engine: LocalEngine, browser: Browser) -> None:
    first, second = browser.get("/ui/browse").text, browser.get("/ui/browse?page=2").text
    assert "66 memories" in first and "1–50 of 66" in first and "51–66 of 66" in second
    assert len(re.findall('name="id"', first)) == 50
    assert "No memory fits" in browser.get("/ui/browse?tag=nothing").text
    assert browser.get("/ui/browse?state=lost").status_code == 422


def test_browse_counts_the_filters_that_a_phone_folds(browser: Browser) -> None:
    browser.engine.remember("one", project="shop", tags=["t0"])
    assert re.search(r'aria-controls="filters" aria-expanded="false">Filters<', browser.get("/ui/browse").text)
    page = browser.get("/ui/browse?tag=t0&project=shop&sort=oldest").text
    assert 'aria-expanded="false">Filters (2)<' in page and 'class="filters folded" id="filters"' in page


def test_browse_timeline_groups_by_month(engine: LocalEngine, browser: Browser) -> None:
    page = browser.get("/ui/browse?view=timeline&sort=oldest").text
    assert 'id="m2024-03"' in page and "2024-03: 1" in page


def test_browse_timeline_places_bars_by_month() -> None:
    bars = _bars([("2019-01", 9), ("2024-11", 2), ("2025-01", 4), ("2025-02", 1)])
    assert [bar["month"] for bar in bars] == ["2024-11", "2025-01", "2025-02"]
    assert [bar["x"] for bar in bars] == [0, 50, 75] and [bar["height"] for bar in bars] == [50, 100, 25]
    assert _bars([]) == []


def _ids(engine: LocalEngine, **filters: str) -> list[str]:
    return [each.id for each in browse(engine, **filters).memories]


def _undo(browser: Browser, address: str) -> None:
    batch = re.search(r"done=(\w+)", address)
    assert batch is not None
    assert browser.post("/ui/undo", {"batch": batch[1]}).status_code == 204


def test_bulk_forgets_and_undo_restores(engine: LocalEngine, browser: Browser) -> None:
    chosen = _ids(engine)[:3]
    answer = browser.post("/ui/bulk", {"action": "forget", "id": chosen})
    assert total(engine) == 63
    assert "Forgot 3 memories" in browser.get(answer.headers["hx-redirect"]).text
    _undo(browser, answer.headers["hx-redirect"])
    assert total(engine) == 66
    browser.post("/ui/bulk", {"action": "forget", "id": chosen})
    browser.post("/ui/bulk", {"action": "restore", "id": chosen})
    assert total(engine) == 66


def test_bulk_changes_all_matches_in_one_batch(engine: LocalEngine, browser: Browser) -> None:
    answer = browser.post("/ui/bulk", {"action": "forget", "matching": "1", "project": "shop"})
    assert total(engine, project="shop") == 0 and total(engine) == 36
    assert "project=shop" in answer.headers["hx-redirect"]
    answer = browser.post("/ui/bulk", {"action": "restore", "matching": "1", "state": "forgotten", "tag": "t1"})
    assert total(engine, project="shop") == 10
    _undo(browser, answer.headers["hx-redirect"])
    assert total(engine, project="shop") == 0


def test_bulk_changes_labels(engine: LocalEngine, browser: Browser) -> None:
    labels = {"new_category": "decisions", "new_project": "tools", "add_tag": "x", "remove_tag": "t0"}
    answer = browser.post("/ui/bulk", {"action": "label", "matching": "1", "tag": "t0", **labels})
    assert total(engine, tag="t0") == 0 and total(engine, tag="x") == total(engine, project="tools") == 20
    assert total(engine, category="decisions") == 20
    _undo(browser, answer.headers["hx-redirect"])
    assert total(engine, tag="t0") == 20 and total(engine, tag="x") == 0


@pytest.mark.parametrize(
    "form", [{}, {"action": "forget"}, {"action": "burn", "id": "x"}, {"id": "zzzz", "action": "forget"}]
)
def test_bulk_refuses_wrong_changes(engine: LocalEngine, browser: Browser, form: dict[str, str]) -> None:
    before = engine.store.position()
    answer = browser.post("/ui/bulk", form)
    assert answer.status_code in (404, 422) and answer.headers["hx-retarget"] == "#notice"
    assert engine.store.position() == before


def test_memory_page_creates_edits_and_undoes(browser: Browser) -> None:
    engine = browser.engine
    form = {"content": "one\r\ntwo", "tags": "a, b", "importance": "0.7", "project": "shop", "category": "lessons"}
    made = browser.post("/ui/memories", form).headers["hx-redirect"]
    [memory] = engine.browse(all_projects=True).memories
    assert (memory.content, memory.tags, memory.importance, memory.project) == ("one\ntwo", ("a", "b"), 0.7, "shop")
    assert memory.origin is Origin.USER and memory.category == "lessons"
    assert "Added 1 memory" in browser.get(made).text
    address = f"/ui/memory/{memory.id}"
    edited = browser.post(f"{address}/edit", {**form, "content": "one\ntwo and three", "tags": "a"})
    page = browser.get(edited.headers["hx-redirect"]).text
    assert "<ins> and three</ins>" in page and "<del>a, b</del>" in page and "version 2" in page
    again = browser.post(f"{address}/edit", {**form, "content": "one\ntwo and three", "tags": "a"})
    assert "said=unchanged" in again.headers["hx-redirect"]
    _undo(browser, edited.headers["hx-redirect"])
    assert engine.get(memory.id).content == "one\ntwo"
    assert "said=duplicate" in browser.post("/ui/memories", form).headers["hx-redirect"]


def test_memory_page_forgets_restores_links_and_supersedes(browser: Browser) -> None:
    engine = browser.engine
    one, two = engine.remember("one thing").id, engine.remember("another thing").id
    address = f"/ui/memory/{one}"
    browser.post(f"{address}/forget")
    assert "Restore" in browser.get(address).text and engine.get(one).known_to is not None
    browser.post(f"{address}/restore")
    assert engine.get(one).known_to is None
    browser.post(f"{address}/link", {"kind": "see-also", "other": two})
    [link] = engine.get(one).links
    assert (link.kind, link.target) == (LinkKind.SEE_ALSO, two) and "another thing" in browser.get(address).text
    browser.post(f"{address}/unlink", {"source": one, "kind": "see-also", "target": two})
    assert engine.get(one).links == ()
    browser.post("/ui/memories", {"content": "a newer thing", "supersedes": one})
    assert engine.superseded([one]) == {one} and "superseded" in browser.get(address).text
    assert browser.post(f"{address}/link", {"kind": "hates", "other": two}).status_code == 422


def test_undo_of_a_step_says_first_what_it_will_do(browser: Browser) -> None:
    engine = browser.engine
    id, other = engine.remember("we ship on Mondays").id, engine.remember("we rest on Sundays").id
    edited = engine.edit(id, content="we ship on Fridays")[0].batch
    page = browser.get(f"/ui/memory/{id}").text
    assert f'hx-get="/ui/undo?batch={edited}"' in page and 'hx-post="/ui/undo"' not in page
    plan = browser.get(f"/ui/undo?batch={edited}").text
    assert "Undoing takes back the edit of 1 memory" in plan
    assert "<del>Fridays</del><ins>Mondays</ins>" in plan and 'hx-post="/ui/undo"' in plan
    forgotten = engine.forget(id, other)[0].batch
    plan = browser.get(f"/ui/undo?batch={forgotten}").text
    assert "Undoing restores 2 memories" in plan and "we rest on Sundays" in plan
    assert engine.get(id).known_to is not None
    _undo(browser, f"done={forgotten}")
    assert engine.get(id).known_to is None
    assert browser.get("/ui/undo?batch=nothing").status_code == 404


def test_pages_send_dates_in_iso_for_the_locale_of_the_browser(browser: Browser) -> None:
    id = browser.engine.remember("the fair", created_at="2024-03-05", valid_to="2024-06-01").id
    browser.engine.edit(id, valid_to="2024-07-01")
    page = browser.get(f"/ui/memory/{id}").text
    assert '<dt>Created</dt><dd><time datetime="2024-03-05" data-as="day">2024-03-05</time>' in page
    assert '<del><time datetime="2024-06-01" data-as="day">' in page and 'data-as="moment"' in page
    assert 'name="valid_to" value="2024-07-01"' in page
    assert re.search(r'<time datetime="\d{4}-\d\d-\d\dT\d\d:\d\dZ" data-as="age"', browser.get("/ui/browse").text)
    assert '<time datetime="2024-03" data-as="month">2024-03</time>' in browser.get("/ui/browse?view=timeline").text


def test_memory_page_lists_similar_memories(browser: Browser) -> None:
    engine = browser.engine
    old = engine.remember("the nightly backup runs at 02:30").id
    near = engine.remember("every nightly backup that runs at 04:00 is watched by Grace, who reads its log").id
    far = engine.remember("the office plant drinks on Mondays").id
    id = engine.remember("the nightly backup runs at 04:00").id
    assert f'hx-get="/ui/memory/{id}/similar"' in browser.get(f"/ui/memory/{id}").text
    similar = browser.get(f"/ui/memory/{id}/similar").text
    assert re.search(rf"contradicts.*?/ui/memory/{old}", similar, re.DOTALL) and similar.count(f"/ui/memory/{old}") == 1
    assert f"/ui/memory/{near}" in similar and far not in similar and f'/ui/memory/{id}"' not in similar
    assert "None." in browser.get(f"/ui/memory/{far}/similar").text
    secret = engine.remember("the staging password is hunter2-Correct-Horse").id
    assert "/similar" not in browser.get(f"/ui/memory/{secret}").text


def test_memory_page_links_a_memory_named_by_words_or_id(browser: Browser) -> None:
    engine = browser.engine
    id, other = engine.remember("one thing").id, engine.remember("the <b>lighthouse</b> is red").id
    address = f"/ui/memory/{id}"
    for text in ("lighthouse", other, other[:8]):
        choices = browser.get(f"{address}/choices", params={"other": text}).text
        assert choices.count(other) == 1 and "&lt;b&gt;lighthouse" in choices, text
    assert id not in browser.get(f"{address}/choices", params={"other": "one thing"}).text
    assert "No memory" in browser.get(f"{address}/choices", params={"other": "zebra"}).text
    assert browser.get(f"{address}/choices", params={"other": " "}).text.strip() == ""
    browser.post(f"{address}/link", {"kind": "see-also", "other": other})
    assert [link.target for link in engine.get(id).links] == [other]


def test_memory_page_shows_a_secret_after_reveal(browser: Browser) -> None:
    id = browser.engine.remember("the staging password is hunter2-Correct-Horse", tags=["staging"]).id
    address = f"/ui/memory/{id}"
    for path in (address, "/ui/browse", "/ui?q=staging", "/ui"):
        page = browser.get(path).text
        assert "hunter2" not in page and "secret" in page
    assert "hunter2-Correct-Horse" in browser.post(f"{address}/reveal").text
    assert "revealed" in browser.get(address).text
    browser.post(f"{address}/edit", {"category": "lessons", "tags": "staging, db", "sensitivity": "secret"})
    assert browser.engine.get(id).tags == ("staging", "db")
    assert browser.engine.reveal(id).text == "the staging password is hunter2-Correct-Horse"


def test_undo_of_a_moved_folder_returns_to_browse(browser: Browser, tmp_path: Path) -> None:
    engine = browser.engine.working_in(tmp_path)
    engine.edit(engine.remember("a thing of this folder").id, project="shop")
    moved = engine.upkeep.move_project(engine.project, "elsewhere")
    assert {entry.action for entry in engine.journal(batch=moved.batch).entries} == {Action.BOUND}
    address = browser.post("/ui/undo", {"batch": moved.batch}).headers["hx-redirect"]
    assert address.startswith("/ui/browse?done=") and browser.get(address).status_code == 200


def test_page_errors_are_notices(browser: Browser) -> None:
    refused = browser.post("/ui/memories", {"content": ""})
    assert refused.status_code == 422 and refused.headers["hx-retarget"] == "#notice"
    assert browser.get("/ui/memory/zzzzzzzz").status_code == 404
    assert browser.post("/ui/memories", {"content": "x" * 1401}).status_code == 422
    assert browser.post("/ui/memories", {"content": "x", "importance": "much"}).status_code == 422
    assert browser.post("/ui/undo", {"batch": "nothing"}).status_code == 404


def test_difference_compares_words() -> None:
    assert difference("we ship on Mondays", "we never ship on Fridays") == [
        ("same", "we"), ("added", " never"), ("same", " ship on "), ("removed", "Mondays"), ("added", "Fridays"),
    ]  # fmt: skip
    assert difference("", "new") == [("added", "new")]
