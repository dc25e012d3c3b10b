"""Time in recall: `since` and `until` bound what a memory is about, and words of a memory tell when it holds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from triskele.engine.local import LocalEngine
from triskele.errors import BadInput
from triskele.ingest import Drafter
from triskele.text import timestamps
from triskele.types import LinkKind, Sensitivity


@pytest.fixture
def engine(open_engine: Callable[..., LocalEngine]) -> LocalEngine:
    return open_engine()


def _found(engine: LocalEngine, text: str = "office", **filters: object) -> set[str]:
    return {hit.memory.content for hit in engine.recall(text, **filters).hits}  # type: ignore[arg-type]


def test_a_memory_is_about_its_validity_else_its_session_else_its_creation(engine: LocalEngine) -> None:
    engine.remember("office in Bonn", valid_from="2025-03-01")
    engine.remember("office party", session="standup 2025-06-10", position=1)
    engine.remember("office plant", created_at="2025-09-01")
    engine.remember("office today")
    assert _found(engine, since="2025-03", until="2025-03") == {"office in Bonn"}
    assert _found(engine, since="2025-06-10", until="2025-06-10") == {"office party"}
    assert _found(engine, since="September 2025", until="2025") == {"office plant"}
    assert _found(engine, since="yesterday") == {"office today"}
    assert _found(engine, until="2025-06") == {"office in Bonn", "office party"}
    assert {memory.content for memory in engine.browse(until="2025-03").memories} == {"office in Bonn"}


def test_bounds_are_half_open_and_checked(engine: LocalEngine) -> None:
    engine.remember("office", valid_from="2025-03-01T00:00:00Z")
    moment = datetime(2025, 3, 1, tzinfo=UTC)
    assert _found(engine, since=moment) == {"office"}
    assert _found(engine, until=moment) == set()
    with pytest.raises(BadInput, match="before"):
        engine.recall("office", since="2025-03", until="2025-02")
    with pytest.raises(BadInput, match="last week"):
        engine.recall("office", since="soon")


def test_a_successor_outside_the_period_is_not_served(engine: LocalEngine) -> None:
    old = engine.remember("office in Bonn", valid_from="2025-03-01").id
    engine.remember("house by the river", supersedes=old, valid_from="2025-08-01")
    [hit] = engine.recall("office", until="2025-06").hits
    assert (hit.memory.content, hit.superseded) == ("office in Bonn", True)
    assert _found(engine) == {"house by the river"}


def test_the_answer_tells_the_times_of_question_and_scope(engine: LocalEngine) -> None:
    engine.remember("office in Bonn")
    answer = engine.recall("which office had we in July 2025?", since="2025")
    assert answer.period is not None and answer.period.words == "July 2025"
    assert answer.within is not None and answer.within.start is not None and answer.within.end is None
    plain = engine.recall("which office?")
    assert (plain.period, plain.within) == (None, None)


def test_recall_finds_what_happened_by_the_day_in_its_text(engine: LocalEngine) -> None:
    flood = "On 14 July 2025 the washing machine flooded the office"
    for text in (flood, "The office move is due on 3 August 2025", "On 9 December 2025 the office was painted"):
        engine.remember(text)
    assert _found(engine, since="July 2025", until="July 2025") == {flood}
    assert _found(engine, since="14.07.2025", until="2025-07-14") == {flood}


def test_words_of_a_memory_set_its_validity(engine: LocalEngine) -> None:
    engine.remember("Since May 2026 we deploy with Flux")
    assert _found(engine, "deploy", as_of="2026-06-01") == {"Since May 2026 we deploy with Flux"}
    assert _found(engine, "deploy", as_of="2026-04-30") == set()
    given = engine.get(engine.remember("Since May 2026 we test with tox", valid_from="2026-03-01").id)
    assert given.valid_from is not None and f"{given.valid_from:%Y-%m}" in ("2026-02", "2026-03")


def test_a_secret_tells_nothing_of_its_time_and_drafts_of_imports_stay_as_they_are(engine: LocalEngine) -> None:
    secret = engine.get(engine.remember("Since May 2026 the code is 4711", sensitivity=Sensitivity.SECRET).id)
    assert secret.valid_from is None
    assert engine.draft("Since May 2026 we deploy with Flux").valid_from is None
    [piece] = Drafter(engine.settings.memory, "").draft_pieces("Since May 2026 we deploy with Flux")
    [stored] = engine.remember_all([piece])
    assert engine.get(stored.id).valid_from is not None


def test_why_not_names_the_period(engine: LocalEngine) -> None:
    id = engine.remember("office in Bonn", valid_from="2025-03-01").id
    found = engine.why_not(id, "office", since="2026")
    assert found.verdict.startswith("period:")
    assert found.smallest_change is not None and found.smallest_change.options == {"since": None}


def test_resolutions_outside_the_period_are_attached(engine: LocalEngine) -> None:
    problem = engine.remember("office is cold", valid_from="2025-03-01").id
    fix = engine.remember("a new heater", created_at=timestamps.now()).id
    engine.link(problem, LinkKind.RESOLVED_BY, fix)
    answer = engine.recall("office", until="2025-06")
    assert [each.id for each in answer.resolutions] == [fix]
