"""Faults of a sync that were found once: a wrong key, an edit between two steps, items that a server refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from test_sync import ADDRESS, Stores, Wire, World, opened

from triskele.errors import Conflict
from triskele.exchange import sync_states
from triskele.exchange.sync import Sync
from triskele.serving.http import sync_api
from triskele.types import LinkKind, Memory, Sensitivity


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


@pytest.mark.parametrize("change", ["edit", "erase"])
def test_a_change_while_a_withdrawal_is_carried_out_is_not_lost(
    world: World, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    a = world.engines["a"]
    id = a.remember("the fox comes at five").id
    world.settle()
    a.edit(id, sensitivity=Sensitivity.PRIVATE)

    def compared(memory: Memory) -> str:
        monkeypatch.undo()
        if change == "edit":
            world.server.edit(id, content="the fox comes at six")
        else:
            world.server.store.erase([id], batch="erase")
        return sync_states.token_of(memory)

    monkeypatch.setattr(sync_api, "token_of", compared)
    world.settle()
    assert sync_api.token_of is sync_states.token_of and id not in world.latest("server")
    kept = {each.content for each in a.store.history(id)}
    assert kept == ({"the fox comes at five", "the fox comes at six"} if change == "edit" else set())
    assert (id in world.latest("b")) is (change == "edit")


def test_a_withdrawal_that_stopped_half_way_is_ended_by_the_next_one(world: World) -> None:
    a = world.engines["a"]
    id = a.remember("the fox comes at five").id
    world.settle()
    a.edit(id, sensitivity=Sensitivity.PRIVATE)
    step = 1
    while world.sync("a", there=step) is None:
        step += 1
        assert step < 30
    assert step > 4 and id not in world.latest("server")


@pytest.mark.parametrize(("token", "version"), [("12.x", 12), ("private:3.x", 3), ("erased", 0), ("²", 0), ("", 0)])
def test_the_version_in_a_token(token: str, version: int) -> None:
    assert sync_states.version_in(token) == version
