"""A concept as it is shown: names with reasons, memories newest first, neighbours, edges with their times."""

from __future__ import annotations

from typing import Any

import pytest

from triskele.errors import NotFound
from triskele.graph.lookup import details


def test_names_memories_and_neighbours(team: Any) -> None:
    subject = team.add("Continuous Integration (CI) runs on Buildbarn", created_at="2025-01-01")
    first = team.add("Juno Temple restarts CI with Buildbarn", created_at="2025-02-01")
    second = team.add("In March we heard from Juno Temple that CI is slow", created_at="2025-03-01")
    found = details(team.view(), "ci")
    assert found.concept == "Continuous Integration"
    assert [(other.name, other.reason) for other in found.other_names] == [("CI", "acronym")]
    assert (found.memories, found.subjects) == (3, 1)
    assert [memory.id for memory in found.subject_of] == [subject]
    assert [memory.id for memory in found.mentioned_in] == [second, first]
    together = {near.concept: (near.together, near.memories) for near in found.neighbours}
    assert together["Juno Temple"] == (2, 2)
    assert together["Buildbarn"] == (2, 2)
    assert "Continuous Integration" not in together


def test_lists_are_cut_and_counts_are_not(team: Any) -> None:
    for number in range(4):
        team.add(f"ticket {number} was about Zanzibar again")
    found = details(team.view(), "Zanzibar", limit=2)
    assert found.memories == 4
    assert len(found.mentioned_in) == 2
    assert len(found.neighbours) <= 2


def test_the_strongest_neighbour_comes_first(team: Any) -> None:
    team.tag("avocet", "bittern", "curlew", "dunlin")
    team.tag("avocet", "dunlin")
    team.tag("bittern")
    near = details(team.view(), "avocet").neighbours
    assert [(each.concept, each.together) for each in near] == [("dunlin", 2), ("curlew", 1), ("bittern", 1)]


def test_a_hub_is_nobodys_neighbour(team: Any) -> None:
    for _ in range(25):
        team.tag("bittern")
    team.tag("avocet", "bittern", "curlew")
    assert [each.concept for each in details(team.view(), "avocet").neighbours] == ["curlew"]


def test_edges_close_and_are_shown_when_asked_for(team: Any) -> None:
    older = team.add("Zanzibar is run by Juno Temple", valid_from="2024-01-01")
    team.view()
    newer = team.add("Zanzibar is run by Igor Kestrel", supersedes=older)
    edges = details(team.view(), "Zanzibar").edges
    assert {(edge.source, edge.target, edge.evidence) for edge in edges} == {("Zanzibar", "Igor Kestrel", newer)}
    closed = [edge for edge in details(team.view(), "Zanzibar", closed=True).edges if edge.known_to is not None]
    assert [(edge.target, edge.evidence) for edge in closed] == [("Juno Temple", older)]
    assert closed[0].valid_from is not None


def test_a_concept_of_another_project_is_not_told(team: Any) -> None:
    team.add("Zanzibar is run by Juno Temple", project="elsewhere")
    with pytest.raises(NotFound, match="nothing in project garden mentions “Zanzibar” now: look into all projects"):
        details(team.view(), "zanzibar", closed=True)
    assert details(team.view(all_projects=True), "zanzibar").memories == 1


def test_what_was_forgotten_is_left_in_closed_edges_alone(team: Any) -> None:
    team.engine.forget(team.add("Zanzibar is run by Juno Temple"))
    with pytest.raises(NotFound, match="look at what is closed"):
        details(team.view(all_projects=True), "zanzibar")
    found = details(team.view(all_projects=True), "zanzibar", closed=True)
    assert (found.memories, found.mentioned_in, len(found.edges)) == (0, (), 1)
