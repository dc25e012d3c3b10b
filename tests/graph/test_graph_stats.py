"""How much of a graph there is, and how much of it connects."""

from __future__ import annotations

from typing import Any

from triskele.graph.lookup import overview


def test_memories_that_share_a_name_are_connected(team: Any) -> None:
    team.tag("avocet", "bittern")
    team.tag("bittern", "curlew", project="elsewhere")
    team.tag("heron")
    found = overview(team.view(all_projects=True), team.mentions)
    assert (found.memories, found.connected) == (3, 2)
    assert [(each.concept, each.memories, each.connects) for each in found.common] == [("bittern", 2, True)]
    assert found.names.waiting == 0
    assert found.names.read == 3


def test_a_name_that_everybody_mentions_connects_nobody(team: Any) -> None:
    for _ in range(30):
        team.tag("bittern")
    found = overview(team.view(), team.mentions)
    hub = found.common[0]
    assert (hub.concept, hub.memories, hub.connects) == ("bittern", 30, False)
    assert found.connected == 0


def test_the_file_counts_as_well(team: Any) -> None:
    team.tag("avocet", "bittern")
    before = overview(team.view(), team.mentions)
    assert before.bytes == before.names.bytes
    team.mentions.rebuild()
    after = overview(team.view(), team.mentions)
    assert after.bytes > after.names.bytes


def test_an_empty_store_has_nothing_to_connect(team: Any) -> None:
    found = overview(team.view(), team.mentions)
    assert (found.memories, found.connected, found.common) == (0, 0, ())
