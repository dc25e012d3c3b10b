"""Faults of a sync that were found once: a wrong key, an edit between two steps, items that a server refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from test_sync import ADDRESS, Stores, Wire, World, opened

from triskele.errors import Conflict
from triskele.exchange.sync import Sync
from triskele.types import LinkKind


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    with opened(Path(tmp_path_factory.mktemp("faults"))) as found:
        yield found


@pytest.fixture
def world(stores: Stores) -> World:
    return World(stores)


@pytest.mark.parametrize("unsent", ["memory", "link", "nothing"])
def test_a_wrong_key_carries_nothing_to_another_user(world: World, stores: Stores, unsent: str) -> None:
    a, other = world.engines["a"], World(stores)
    ids = [a.remember(text).id for text in ("the well is deep", "the well is dry")]
    assert world.sync("a")
    if unsent == "memory":
        a.remember("the well is Ada's")
    elif unsent == "link":
        a.link(ids[0], LinkKind.SEE_ALSO, ids[1])
    with pytest.raises(Conflict, match="use a key of"):
        Sync(a, Wire(other.server), ADDRESS).run()
    assert not other.server.store.journal()
    world.settle()
    assert world.says("server") == world.says("a") and world.links("server") == world.links("a")


def test_a_server_is_asked_whose_key_it_is_before_the_first_memory_is_sent(world: World) -> None:
    world.engines["a"].remember("the well is deep")
    assert world.sync("a")
    assert world.heard and all(f"'user': '{world.server.store.owner}'" in each for each in world.heard)
