"""The way between two concepts: the shortest, over what can be seen, never across a hub, at most six memories long."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from triskele.errors import NotFound
from triskele.graph.lookup import MAX_HOPS, path

BIRDS = "avocet bittern curlew dunlin egret fulmar gannet heron".split()


def _chain(team: Any, count: int) -> list[str]:
    return [team.tag(one, other) for one, other in pairwise(BIRDS[: count + 1])]


def test_the_chain_names_memories_and_concepts_in_order(team: Any) -> None:
    ids = _chain(team, 3)
    way = path(team.view(), "Avocet", "DUNLIN")
    assert (way.start, way.end) == ("avocet", "dunlin")
    assert [(hop.memory.id, hop.concept) for hop in way.hops] == list(zip(ids, BIRDS[1:4], strict=True))


def test_a_shorter_way_is_taken(team: Any) -> None:
    _chain(team, 4)
    short = team.tag("avocet", "egret")
    assert [hop.memory.id for hop in path(team.view(), "avocet", "egret").hops] == [short]


def test_two_names_of_one_concept_are_no_way_apart(team: Any) -> None:
    team.add("Continuous Integration (CI) runs on every push")
    assert path(team.view(), "CI", "continuous integration").hops == ()


@pytest.mark.parametrize(("hops", "is_found"), [(MAX_HOPS, True), (MAX_HOPS + 1, False)])
def test_a_way_has_an_end(team: Any, hops: int, is_found: bool) -> None:
    _chain(team, hops)
    assert (path(team.view(), BIRDS[0], BIRDS[hops]).hops is not None) == is_found


def test_no_way_leads_through_what_cannot_be_seen(team: Any) -> None:
    team.tag("avocet", "bittern")
    other = team.tag("bittern", "curlew", project="elsewhere")
    team.tag("curlew")
    assert path(team.view(), "avocet", "curlew").hops is None
    assert path(team.view(all_projects=True), "avocet", "curlew").hops[1].memory.id == other


def test_a_hub_may_be_an_end_but_not_lie_on_the_way(team: Any) -> None:
    for _ in range(25):
        team.tag("bittern")
    first = team.tag("avocet", "bittern")
    team.tag("bittern", "curlew")
    assert path(team.view(), "avocet", "curlew").hops is None
    assert [hop.memory.id for hop in path(team.view(), "avocet", "bittern").hops] == [first]
    assert [hop.memory.id for hop in path(team.view(), "bittern", "avocet").hops] == [first]


def test_both_ends_must_be_known(team: Any) -> None:
    team.tag("avocet", "bittern")
    with pytest.raises(NotFound, match="curlew"):
        path(team.view(), "avocet", "curlew")
