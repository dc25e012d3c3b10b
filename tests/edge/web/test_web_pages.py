"""Review, quality, health and code: what they show, their empty states, and what can be done there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from page_client import Browser

from triskele.bench.own import gate, run
from triskele.bench.own.questions import Label, make_question, save_labels, save_questions
from triskele.code.search import opened
from triskele.curation.decide import PairDecision
from triskele.edge.http.access import ADMIN
from triskele.edge.web import site
from triskele.edge.web.code_page import highlighted
from triskele.edge.web.quality_page import drift
from triskele.models.egress import Departure
from triskele.recall.hosted.egress_log import StoreLedger
from triskele.replies.rooms import Rationale
from triskele.store.values import Document, Use
from triskele.sync import notes as sync_notes
from triskele.sync import states
from triskele.sync.states import ProjectNames
from triskele.text import timestamps
from triskele.types import Verdict


def test_every_page_has_a_key_of_its_own(browser: Browser) -> None:
    titled = [route for route in site.ROUTES if route.title]
    assert len({route.key for route in titled}) == len(titled)
    html = browser.get("/ui").text
    for route in titled:
        if route.scope != ADMIN and route.has_content is None:
            assert f'<a href="/ui{route.path}" data-key="{route.key}"' in html and f"<kbd>{route.key}</kbd>" in html


def test_navigation_lists_quality_and_code_only_with_content(browser: Browser, tmp_path: Path) -> None:
    def is_listed(title: str, path: str = "") -> bool:
        return f"{title}</a>" in browser.get(f"/ui{path}").text

    engine = browser.engine
    assert not is_listed("Quality") and not is_listed("Code") and is_listed("Review")
    assert not is_listed("Quality", "/nowhere") and is_listed("Review", "/nowhere")
    assert is_listed("Quality", "/quality") and is_listed("Code", "/code")
    opened(engine.settings.home, tmp_path).index()
    id = engine.remember("harbour runs on port 8000").id
    question = make_question("which port does harbour use", "exact", "test", judged="hand")
    save_questions(engine.store, [question])
    assert is_listed("Code") and not is_listed("Quality")
    save_labels(engine.store, [Label(question.id, id, 3)], {question.id: question})
    assert is_listed("Quality")


def test_every_page_has_an_empty_state(browser: Browser) -> None:
    for path, words in {
        "/ui/review": "No proposals",
        "/ui/quality": "Nothing has been measured yet",
        "/ui/code": "No source tree is indexed",
        "/ui/browse": "Nothing has been remembered yet",
    }.items():
        answer = browser.get(path)
        assert answer.status_code == 200 and words in answer.text, path
    health = browser.get("/ui/health").text
    assert "<b>Nothing.</b> No hosted model is configured" in health and "No backup is known" in health


def _propose(browser: Browser) -> tuple[str, str]:
    engine = browser.engine
    old, new = (engine.get(engine.remember(f"the backup runs at {hour}").id) for hour in ("02:30", "04:00"))
    reasons = (Rationale("changed value", "02:30", "04:00"),)
    engine.proposals.offer([PairDecision(Verdict.SUPERSEDE, new, old, 0.7, reasons)])
    return old.id, engine.proposals.list()[0].id


def test_review_page_accepts_a_proposal_and_undoes_it(browser: Browser) -> None:
    old, proposal = _propose(browser)
    page = browser.get("/ui/review").text
    assert "1 proposal to review" in page and "<del>02</del>" in page and "02:30 became 04:00" in page
    done = browser.post(f"/ui/review/{proposal}/accept").headers["hx-redirect"]
    assert browser.engine.superseded([old]) == {old}
    assert "Undo" in browser.get(done).text
    browser.post("/ui/undo", {"batch": done.split("done=")[1]})
    assert browser.engine.superseded([old]) == set()


def _conflict(browser: Browser) -> str:
    """A memory that was changed here and on the server."""
    engine = browser.engine
    id = engine.remember("the backup runs at dawn").id
    theirs = replace(engine.get(id), content="the backup runs at <b>noon</b>")
    record = sync_notes.plain_record(states.record_of(theirs, ProjectNames(engine.store)))
    values = {"record": record, "mine": "m", "theirs": "t", "token": "2.t"}
    sync_notes.Notes(engine.store).put_conflicts({id: Document(values, about=(id,))})
    return id


@pytest.mark.parametrize("version", ["mine", "theirs"])
def test_review_page_settles_a_conflict(browser: Browser, version: str) -> None:
    engine, id = browser.engine, _conflict(browser)
    page = browser.get("/ui/review").text
    assert "1 conflict with the server" in page and "<b>noon" not in page
    assert "dawn" in page and "noon" in page
    assert browser.post(f"/ui/review/{id}/keep/neither").status_code == 404
    done = browser.post(f"/ui/review/{id}/keep/{version}").headers["hx-redirect"]
    assert "Settled" in browser.get(done).text and not sync_notes.conflicts(engine.store)
    assert ("dawn" in engine.get(id).content) is (version == "mine")


def test_review_accept_of_a_conflict_can_be_undone(browser: Browser) -> None:
    engine, id = browser.engine, _conflict(browser)
    engine.undo(engine.curation.accept(id).batch)
    assert "dawn" in engine.get(id).content


def test_review_page_rejects_a_proposal_for_good(browser: Browser) -> None:
    old, proposal = _propose(browser)
    assert "Rejected" in browser.get(browser.post(f"/ui/review/{proposal}/reject").headers["hx-redirect"]).text
    assert browser.engine.proposals.list() == [] and browser.engine.superseded([old]) == set()
    assert browser.post(f"/ui/review/{proposal}/accept").status_code == 404


def test_review_page_counts_injections(browser: Browser) -> None:
    memory = browser.engine.get(browser.engine.remember("the backup runs at night").id)
    usage = browser.engine.store.usage
    assert "No conversation was given memories yet" in browser.get("/ui/review").text
    usage.injected("talk-1", [Use(memory.id, 123, memory.content_hash)], client="claude-code", project="shop")
    usage.recalled([Use(memory.id, 0)])
    page = browser.get("/ui/review").text
    assert "claude-code</td><td>shop</td>" in page and 'href="/ui/conversation/talk-1"' in page
    talk = browser.get("/ui/conversation/talk-1").text
    assert "the backup runs at night" in talk and "123 tokens injected in all" in talk and "edited since" not in talk
    browser.engine.edit(memory.id, content="the backup runs at noon")
    assert "edited since" in browser.get("/ui/conversation/talk-1").text
    usage.lose("talk-1")
    lost = browser.get("/ui/conversation/talk-1").text
    assert "lost by a compaction" in lost and "0 of them in its context" in lost
    assert browser.get("/ui/conversation/talk-2").status_code == 404
    assert "1×, 123 tokens" in browser.get(f"/ui/memory/{memory.id}").text


def test_review_page_shows_pages_of_conversations(browser: Browser) -> None:
    memory = browser.engine.get(browser.engine.remember("the backup runs at night").id)
    for number in range(25):
        browser.engine.store.usage.injected(f"talk-{number}", [Use(memory.id, 1, memory.content_hash)])
    first, second = browser.get("/ui/review").text, browser.get("/ui/review?page=2").text
    assert (first.count('href="/ui/conversation/'), second.count('href="/ui/conversation/')) == (20, 5)
    assert "Older" in first and "Newer" not in first and "Newer" in second and "Older" not in second


def test_health_page_lists_sent_texts(browser: Browser) -> None:
    memory = browser.engine.remember("the backup runs at night").id
    departure = Departure("embed", "api.example.org", timestamps.now(), 1, 3, 120, frozenset({memory}))
    StoreLedger(browser.engine.store).leaving(departure)
    assert "api.example.org" in browser.get("/ui/health").text
    assert "api.example.org" in browser.get(f"/ui/memory/{memory}").text


def test_health_page_names_synced_servers(browser: Browser) -> None:
    notes = sync_notes.Notes(browser.engine.store)
    notes.put_state(address="https://memory.example.com", user="ada", at="2026-11-16T11:20:00.000000Z", sent="3")
    health = browser.get("/ui/health").text
    assert "were synced with https://memory.example.com as ada: 3 changes pushed, last sync <time" in health
    assert '<time datetime="2026-11-16T11:20Z" data-as="moment">2026-11-16 11:20</time>.' in health
    assert "<b>Nothing.</b>" not in health and "nothing can be sent" not in health


def test_health_page_reports_damage_and_copies(browser: Browser, tmp_path: Path) -> None:
    browser.engine.remember("the backup runs at night")
    browser.engine.upkeep.backup(tmp_path / "copy.db")
    assert "copy.db" in browser.get("/ui/health").text
    assert "No damage found" in browser.post("/ui/health/check").text


@pytest.fixture
def measured(browser: Browser) -> Browser:
    engine = browser.engine
    names = ("harbour", "lantern", "petrel")
    ids = [engine.remember(f"{name} runs on port {8000 + place}").id for place, name in enumerate(names)]
    asked = [make_question(f"which port does {name} use", "exact", "test", judged="hand") for name in names]
    save_questions(engine.store, asked)
    labels = [Label(each.id, id, 3) for each, id in zip(asked, ids, strict=True)]
    save_labels(engine.store, labels, {each.id: each for each in asked})
    run.run(engine, arms=["lexical", "default"])
    gate.accept(engine)
    return browser


def test_quality_page_shows_a_run_with_intervals_and_gate(measured: Browser) -> None:
    page = measured.get("/ui/quality").text
    assert "3 questions, 3 labels; 3 measured" in page and "all questions" in page and "lexical" in page
    assert "MRR" in page and 'class="span"' in page
    assert measured.get("/ui/quality?metric=mrr&run=unknown").status_code == 200
    assert "✓ Passed" in measured.post("/ui/quality/gate").text


def test_drift_follows_the_ranking_of_recall() -> None:
    def report(**arms: float) -> dict[str, object]:
        return {"manifest": {"at": "2026"}, "arms": {n: {"overall": {"mrr": v}} for n, v in arms.items()}}

    points = drift([report(fts=0.1, default=0.5), report(fts=0.9), report(default=0.2, now=0.75)], "mrr")
    assert [(point["value"], point["y"]) for point in points] == [(0.5, 50.0), (0.75, 25.0)]


def test_code_page_searches_only_indexed_trees(browser: Browser, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "retry.py").write_text('def schedule_retry(job):\n    """Try <b>again</b> later."""\n    return job + 1\n')
    opened(browser.engine.settings.home, tree).index()
    browser.engine.remember("schedule_retry doubles the pause each time")
    page = browser.get("/ui/code", params={"q": "schedule retry"}).text
    assert "retry.py:1" in page and "&lt;b&gt;again" in page and "<b>again" not in page
    assert 'class="c-keyword">def</span>' in page and "doubles the pause" in page
    refused = browser.get("/ui/code/places", params={"q": "root", "tree": "/etc"})
    assert "/etc is not indexed" in refused.text


def test_highlighted_follows_the_language() -> None:
    assert highlighted("x = 1 # pause", "py", "the pause")[-2:] == [
        ("comment", "# ", False),
        ("comment", "pause", True),
    ]
    assert ("comment", "// why", False) in highlighted("a // why", "js", "zzz")
    assert ("string", '"# no"', False) in highlighted('s = "# no"', "py", "zzz")
    assert "".join(text for _, text, _ in highlighted("if a:\n  b()\n", "py", "a b")) == "if a:\n  b()\n"
