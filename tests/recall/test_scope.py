"""Sensitivities and origins in a scope: every leg, the links, successors and resolutions keep to them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from triskele.config import load
from triskele.engine.local import LocalEngine
from triskele.recall.plan import Plan
from triskele.types import Answer, LinkKind, Origin, Sensitivity, Sort

OPEN = {"sensitivities": {Sensitivity.OPEN}}
TRUSTED = {"origins": {Origin.USER, Origin.AGENT, Origin.IMPORT}}
# A memory that a scope leaves out, and that scope.
LIMITS = [
    pytest.param({"sensitivity": Sensitivity.PRIVATE}, OPEN, id="private"),
    pytest.param({"origin": Origin.WEB}, TRUSTED, id="web"),
    pytest.param({"origin": Origin.TOOL, "sensitivity": Sensitivity.PRIVATE}, OPEN | TRUSTED, id="both"),
]
PLANS = {
    "default": Plan(),
    "lexical": Plan(legs=frozenset({"lexical"})),
    "dense": Plan(legs=frozenset({"dense"}), fusion="rrf", rerank="off"),
    "three legs": Plan(fusion="rrf"),
    "late": Plan(fusion="dbsf", rerank="late"),
}
SHOWN = "a heron was seen once near some mill, they say, but far away from the river"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[LocalEngine]:
    settings = load({"TRISKELE_HOME": str(tmp_path), "TRISKELE_PROJECT": "garden"})
    with LocalEngine(settings, tmp_path) as opened:
        yield opened


def contents(answer: Answer) -> list[str]:
    return [hit.memory.content for hit in answer.hits]


@pytest.mark.parametrize(("hidden", "scope"), LIMITS)
def test_every_way_to_rank_finds_the_one_that_may_be_seen(
    engine: LocalEngine, hidden: dict[str, Any], scope: dict[str, Any]
) -> None:
    for number in range(45):
        engine.remember(f"the heron nests in the mill {number}", **hidden)
    engine.remember(SHOWN)
    engine.upkeep.embed()
    for name, plan in PLANS.items():
        assert contents(engine.ask("heron mill", plan, limit=10, **scope)) == [SHOWN], name
        assert len(engine.ask("heron mill", plan, limit=100).hits) == 46, name
    for sort in (Sort.IMPORTANCE, Sort.RECENCY):
        assert contents(engine.recall("heron mill", sort=sort, **scope)) == [SHOWN]
        assert [memory.content for memory in engine.browse(sort=sort, limit=5, **scope).memories] == [SHOWN]


def test_a_scope_without_any_sensitivity_shows_nothing(engine: LocalEngine) -> None:
    engine.remember(SHOWN)
    assert engine.recall("heron mill", sensitivities=()).hits == ()
    assert list(engine.browse(origins=()).memories) == []


@pytest.mark.parametrize(("hidden", "scope"), LIMITS)
def test_a_hidden_successor_is_not_served(engine: LocalEngine, hidden: dict[str, Any], scope: dict[str, Any]) -> None:
    old = engine.remember("the gate opens at eight").id
    engine.remember("the gate opens at nine", supersedes=old, **hidden)
    assert contents(engine.recall("when does the gate open?")) == ["the gate opens at nine"]
    (hit,) = engine.recall("when does the gate open?", **scope).hits
    assert (hit.memory.id, hit.superseded, hit.stands_for) == (old, True, None)


@pytest.mark.parametrize(("hidden", "scope"), LIMITS)
def test_a_hidden_resolution_is_not_attached(
    engine: LocalEngine, hidden: dict[str, Any], scope: dict[str, Any]
) -> None:
    problem = engine.remember("the pump leaks").id
    answer = engine.remember("a new seal stopped it", **hidden).id
    engine.link(problem, LinkKind.RESOLVED_BY, answer)
    asked = "does the pump leak?"
    assert [memory.id for memory in engine.ask(asked, PLANS["lexical"]).resolutions] == [answer]
    assert engine.ask(asked, PLANS["lexical"], **scope).resolutions == ()


@pytest.mark.parametrize(("hidden", "scope"), LIMITS)
@pytest.mark.parametrize("plan", [Plan(), Plan(legs=frozenset({"lexical", "graph"}), fusion="rrf", rerank="late")])
def test_a_link_does_not_lead_to_a_hidden_memory(
    engine: LocalEngine, hidden: dict[str, Any], scope: dict[str, Any], plan: Plan
) -> None:
    far = "Marta Lindqvist works from the Tromsø office on Thursdays"
    engine.remember("Kestrel is the service that Marta Lindqvist maintains")
    engine.remember("Invoices that fail are retried by Kestrel after an hour")
    engine.remember(far, **hidden)
    engine.upkeep.embed()
    asked = "who looks after Kestrel?"
    assert far in contents(engine.ask(asked, plan))
    assert far not in contents(engine.ask(asked, plan, **scope))


@pytest.mark.parametrize(("hidden", "scope"), LIMITS)
def test_a_hidden_turn_lends_nothing_to_its_neighbours(
    engine: LocalEngine, hidden: dict[str, Any], scope: dict[str, Any]
) -> None:
    engine.remember("when does the ferry to Lindholm leave?", session="talk", position=0, **hidden)
    engine.remember("at ten past seven, I think", session="talk", position=1)
    engine.upkeep.embed()
    asked = "ferry to Lindholm"
    assert len(engine.ask(asked, Plan(), limit=5).hits) == 2
    alone, limited = (
        {hit.memory.content: hit.score for hit in engine.ask(asked, plan, limit=5, **scope).hits}
        for plan in (Plan(context=False), Plan())
    )
    assert limited == pytest.approx(alone)
