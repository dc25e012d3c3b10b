"""Which memory of a chain is served at a given moment."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from triskele.engine.local import LocalEngine
from triskele.text import timestamps
from triskele.types import LinkKind


@pytest.fixture
def engine(open_engine: Callable[..., LocalEngine]) -> LocalEngine:
    return open_engine()


def _shown(engine: LocalEngine, **details: object) -> list[tuple[str, bool]]:
    hits = engine.recall("office", **details).hits  # type: ignore[arg-type]
    return [(hit.memory.content, hit.superseded) for hit in hits]


def test_a_successor_whose_time_is_over_is_not_served(engine: LocalEngine) -> None:
    old = engine.remember("the office is in Bonn").id
    engine.remember("a tent for the summer", supersedes=old, valid_from="2025-06-01", valid_to="2025-09-01")
    assert _shown(engine, as_of="2025-07-01") == [("a tent for the summer", False)]
    assert _shown(engine, as_of="2026-01-01") == [("the office is in Bonn", True)]


def test_a_successor_whose_time_is_over_leads_on_to_the_next(engine: LocalEngine) -> None:
    old = engine.remember("the office is in Bonn").id
    tent = engine.remember("a tent", supersedes=old, valid_from="2025-06-01", valid_to="2025-09-01").id
    engine.remember("a house by the river", supersedes=tent)
    assert _shown(engine) == [("a house by the river", False)]


def test_a_predecessor_whose_time_was_over_is_not_served(engine: LocalEngine) -> None:
    old = engine.remember("a tent", valid_from="2020-06-01", valid_to="2020-09-01").id
    engine.remember("the office is in Bonn", supersedes=old)
    assert _shown(engine, as_of="2021-01-01") == [("the office is in Bonn", False)]
    assert _shown(engine, as_of="2020-07-01") == [("a tent", False)]


def test_a_successor_of_the_future_does_not_speak_yet(engine: LocalEngine) -> None:
    old = engine.remember("the office is in Bonn").id
    engine.remember("a house by the river", supersedes=old, valid_from="2999-01-01")
    assert _shown(engine) == [("the office is in Bonn", False)]
    assert _shown(engine, as_of="2999-06-01") == [("a house by the river", False)]


def test_a_link_taken_away_lets_the_old_memory_speak_again_but_not_in_the_past(engine: LocalEngine) -> None:
    old = engine.remember("the office is in Bonn").id
    new = engine.remember("a house by the river", supersedes=old).id
    linked = timestamps.now()
    engine.unlink(new, LinkKind.SUPERSEDES, old)
    assert _shown(engine) == [("the office is in Bonn", False)]
    assert _shown(engine, known_at=linked) == [("a house by the river", False)]


def test_the_newest_of_two_successors_speaks(engine: LocalEngine) -> None:
    old = engine.remember("the office is in Bonn").id
    engine.remember("a house by the river", supersedes=old, valid_from="2025-01-01")
    engine.remember("a house on the hill", supersedes=old, valid_from="2026-01-01")
    assert _shown(engine) == [("a house on the hill", False)]
    assert _shown(engine, as_of="2025-06-01") == [("a house by the river", False)]


def test_a_chain_is_followed_ten_links_deep(engine: LocalEngine) -> None:
    id = engine.remember("the office is in Bonn").id
    for number in range(1, 13):
        id = engine.remember(f"house {number}", supersedes=id).id
    assert _shown(engine) == [("house 10", True)]
