"""The search page: hits with their evidence, the switches, and why a memory is missing."""

from __future__ import annotations

from datetime import timedelta

import pytest
from page_client import Browser

from triskele.curation.decide import PairDecision
from triskele.edge.web.search_page import segments
from triskele.replies.rooms import Rationale
from triskele.store.values import Use
from triskele.text import timestamps
from triskele.types import Verdict


@pytest.fixture
def filled(browser: Browser) -> Browser:
    browser.engine.remember("We deploy with Argo CD on Tuesdays", tags=["deploy"], project="shop")
    browser.engine.remember("Releases are tagged by the release bot", project="tools")
    browser.engine.remember("The office plant drinks on Mondays", category="lessons")
    return browser


def test_search_page_of_an_empty_store_says_how_to_begin(browser: Browser) -> None:
    assert "Nothing has been remembered yet" in browser.get("/ui").text


def test_search_page_without_question_shows_what_was_learned_this_week(filled: Browser) -> None:
    page = filled.get("/ui").text
    assert "Learned this week" in page and "· 3" in page and "office plant" in page
    assert 'hx-get="/ui/home"' in page and 'hx-get="/ui/home"' not in filled.get("/ui", params={"q": "argo"}).text


def test_search_page_does_not_call_old_memories_learned_this_week(
    filled: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = timestamps.now()
    monkeypatch.setattr("triskele.text.timestamps.now", lambda: now + timedelta(days=8))
    page = filled.get("/ui").text
    assert "Learned this week" not in page and "Recently changed" in page and "office plant" in page


def test_home_shows_use_by_agents_the_queue_and_health(filled: Browser) -> None:
    engine = filled.engine
    empty = filled.get("/ui/home").text
    assert "Agents were given nothing this week" in empty and "Nothing waits" in empty
    old, new = (engine.get(engine.remember(f"the backup runs at {hour}").id) for hour in ("02:30", "04:00"))
    engine.proposals.offer([PairDecision(Verdict.SUPERSEDE, new, old, 0.7, (Rationale("changed value", "2", "4"),))])
    usage = engine.store.usage
    usage.injected("talk-1", [Use(old.id, 123, old.content_hash)], client="claude-code", project="shop")
    page = filled.get("/ui/home").text
    assert "1 memory, 123 tokens" in page and "claude-code" in page and 'href="/ui/conversation/talk-1"' in page
    assert "1 proposal" in page and "the backup runs at 04:00" in page
    assert "5 memories" in page and "found by their words" in page


def test_home_says_why_a_prompt_gets_nothing_and_counts_no_use(filled: Browser) -> None:
    def explained(prompt: str, project: str = "shop") -> str:
        return filled.get("/ui/home/prompt", params={"prompt": prompt, "project": project}).text

    before = filled.engine.stats()
    assert "Gives 1 memory" in explained("When do we deploy with Argo CD?")
    assert "Silent: " in explained("When do we deploy with Argo CD?", "tools")
    assert "the prompt is empty" in explained("")
    assert "&lt;b&gt;" not in explained("<b>")
    assert filled.engine.stats() == before


def test_search_page_shows_words_legs_and_rank_of_a_hit(filled: Browser) -> None:
    page = filled.get("/ui/hits", params={"q": "argo tuesdays"}).text
    assert "<mark>Argo</mark>" in page and "<mark>Tuesdays</mark>" in page
    assert 'rect class="lexical"' in page and "shop" in page and "shares the words" in page
    assert "office plant" not in page


@pytest.mark.parametrize(
    ("good", "unlikely", "line"),
    [
        (0.0, 0.0, ""),
        (2.0, 0.0, '<p class="soft">Weak match. Closest:</p>'),
        (2.0, 2.0, '<p class="problem">No good match. Closest:</p>'),
    ],
)
def test_search_page_says_how_well_the_best_hit_matches(
    filled: Browser, monkeypatch: pytest.MonkeyPatch, good: float, unlikely: float, line: str
) -> None:
    monkeypatch.setattr("triskele.types.GOOD_MATCH", good)
    monkeypatch.setattr("triskele.types.UNLIKELY_MATCH", unlikely)
    page = filled.get("/ui/hits", params={"q": "argo"}).text
    assert "Argo" in page and line in page and page.count("Closest:") == bool(line)
    assert "Closest:" not in filled.get("/ui/hits", params={"q": "zebra"}).text


def test_search_page_address_follows_the_question(filled: Browser) -> None:
    answer = filled.get("/ui/hits", params={"q": "argo & co", "fusion": "rrf"})
    assert answer.headers["hx-replace-url"] == "/ui?q=argo+%26+co&fusion=rrf"
    assert 'value="argo &amp; co"' in filled.get("/ui", params={"q": "argo & co"}).text


@pytest.mark.parametrize(
    ("more", "is_found"),
    [
        ({"project": "shop"}, True),
        ({"project": "tools"}, False),
        ({"category": "lessons"}, False),
        ({"tag": "deploy"}, True),
        ({"tag": "other"}, False),
        ({"known_at": "2020-01-01"}, False),
        ({"fusion": "rrf", "rerank": "off", "leg": "lexical"}, True),
    ],
)
def test_search_page_options_reach_recall(filled: Browser, more: dict[str, str], is_found: bool) -> None:
    page = filled.get("/ui/hits", params={"q": "argo", **more}).text
    assert ("Argo" in page) == is_found
    assert is_found or "No hits" in page


@pytest.mark.parametrize("more", [{"fusion": "magic"}, {"as_of": "soon-ish"}, {"rerank": "never"}])
def test_search_page_shows_wrong_options_in_place(filled: Browser, more: dict[str, str]) -> None:
    answer = filled.get("/ui/hits", params={"q": "argo", **more})
    assert answer.status_code == 200 and 'role="alert"' in answer.text


def test_why_not_page_takes_an_id_or_words(filled: Browser) -> None:
    plant = filled.engine.browse(all_projects=True, category="lessons").memories[0]
    for expected in (plant.id[:10], "office plant drinks"):
        page = filled.get("/ui/why-not", params={"q": "argo", "expected": expected}).text
        assert "office plant" in page and "matches 0 of 1 rare query term" in page and "Smallest change" in page
    page = filled.get("/ui/why-not", params={"q": "argo", "project": "tools", "expected": "We deploy with Argo"}).text
    assert "Project: it belongs to shop" in page
    assert "Ask a question" in filled.get("/ui/why-not", params={"expected": "x"}).text
    assert "no memory fits" in filled.get("/ui/why-not", params={"q": "argo", "expected": "zzz zzz"}).text


def test_segments_join_overlapping_marks() -> None:
    assert segments("abcdef", [(1, 3), (2, 4), (9, 12)]) == [("a", False), ("bc", True), ("d", True), ("ef", False)]
    assert segments("ab", []) == [("ab", False)]
    assert segments("ab", [(0, 2)]) == [("ab", True)]
