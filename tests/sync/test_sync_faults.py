"""Faults of a sync that were found once: a wrong key, an edit between two steps, items that a server refuses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from sync_world import ADDRESS, Stores, Wire, World, opened

from triskele.errors import BadInput, Conflict, Unavailable
from triskele.server import sync_receiver
from triskele.sync import states
from triskele.sync.loop import Sync
from triskele.sync.notes import Notes
from triskele.sync.states import Outgoing, PulledPage, PushReply
from triskele.text import timestamps
from triskele.types import Add, Connect, Disconnect, Link, LinkKind, Memory, Sensitivity

pytestmark = pytest.mark.slow


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


def test_sync_checks_the_user_of_the_key_before_the_first_memory(world: World) -> None:
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
        return states.token_of(memory)

    monkeypatch.setattr(sync_receiver, "token_of", compared)
    world.settle()
    assert sync_receiver.token_of is states.token_of and id not in world.latest("server")
    contents = {each.content for each in a.store.history(id)}
    assert contents == ({"the fox comes at five", "the fox comes at six"} if change == "edit" else set())
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
    assert states.version_in(token) == version


def test_many_links_of_one_memory_travel_in_several_requests(world: World) -> None:
    a = world.engines["a"]
    sync = Sync(a, Wire(world.server, page=500), ADDRESS)
    hub = a.remember("the station is a hub").id
    lines = [each.id for each in a.apply([Add(a.draft(f"line {number}")) for number in range(1010)])]
    now = timestamps.now()
    ties = [Link(source=hub, kind=LinkKind.SEE_ALSO, target=id, known_from=now) for id in lines]
    a.apply([Connect(tie) for tie in ties])
    assert not sync.run().waiting
    assert world.links("server") == {(hub, "see-also", id) for id in lines}
    a.apply([*(Disconnect(tie) for tie in ties[:1005]), Connect(replace(ties[0], kind=LinkKind.SUPERSEDES))])
    assert not sync.run().waiting
    left = {(hub, "see-also", id) for id in lines[1005:]} | {(hub, "supersedes", lines[0])}
    assert world.links("server") == world.links("a") == left


def test_a_project_with_many_remotes_syncs(world: World) -> None:
    a = world.engines["a"]
    a.remember("the kiln runs at night", project="pots")
    assert world.sync("a")
    a.store.register_folder([f"git:github.com/ada/pots{number}" for number in range(30)], lambda _: "pots")
    a.remember("the kiln is loud", project="pots")
    report = world.sync("a")
    assert report is not None and not report.waiting
    assert world.says("server") == world.says("a")


@pytest.mark.parametrize("item", ["memory", "link"])
def test_refused_memories_wait_and_the_rest_is_synced(world: World, item: str) -> None:
    a = world.engines["a"]
    ids = [a.remember(f"note {number}").id for number in range(4)]
    if item == "link":
        assert world.sync("a")
        a.link(ids[0], LinkKind.SEE_ALSO, ids[1])
        a.link(ids[2], LinkKind.SEE_ALSO, ids[3])
    wire = Wire(world.server)
    push = wire.push

    def choosy(items: Sequence[Outgoing], actor: str, user: str) -> PushReply:
        if any(each.id == ids[0] for each in items):
            raise BadInput("too long")
        return push(items, actor, user)

    wire.push = choosy  # type: ignore[method-assign]
    report = Sync(a, wire, ADDRESS).run()
    assert report.waiting == {ids[0]: "too long"}
    if item == "memory":
        assert world.standing("server") == [f"note {number}" for number in range(1, 4)]
    else:
        assert world.links("server") == {(ids[2], "see-also", ids[3])}
    world.settle()
    assert world.says("server") == world.says("a") and world.links("server") == world.links("a")
    assert not Notes(a.store).waiting()


def test_a_link_that_the_server_does_not_close_stays_agreed_on(world: World) -> None:
    a, b = world.engines["a"], world.engines["b"]
    one, two = a.remember("the hedge is low").id, a.remember("the hedge is high").id
    a.link(one, LinkKind.SEE_ALSO, two)
    world.settle()
    a.unlink(one, LinkKind.SEE_ALSO, two)
    wire = Wire(world.server)

    def refusing(items: Sequence[Outgoing], actor: str, user: str) -> PushReply:
        raise BadInput("too long")

    wire.push = refusing  # type: ignore[method-assign]
    Sync(a, wire, ADDRESS).run()
    b.edit(one, content="the hedge is lower")
    assert world.sync("b")
    world.settle()
    assert not any(world.links(name) for name in ("a", "b", "server"))


@pytest.mark.parametrize("is_reset", [False, True])
def test_a_server_that_repeats_a_cursor_is_left(world: World, is_reset: bool) -> None:
    wire, requests = Wire(world.server), list[str]()

    def repeating(cursor: str, user: str = "") -> PulledPage:
        requests.append(cursor)
        assert len(requests) < 10
        return PulledPage(items=(), cursor=cursor, is_end=False, is_reset=is_reset, user=world.server.store.owner)

    wire.pull = repeating  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match="keeps sending the same changes"):
        Sync(world.engines["a"], wire, ADDRESS).run()


def test_a_memory_opened_again_after_half_a_withdrawal_is_not_left_on_the_server(stores: Stores) -> None:
    is_cut, step = True, 0
    while is_cut:
        step += 1
        world = World(stores)
        a = world.engines["a"]
        id = a.remember("the fox comes at five").id
        world.settle()
        a.edit(id, sensitivity=Sensitivity.PRIVATE)
        is_cut = world.sync("a", there=step) is None
        a.edit(id, sensitivity=Sensitivity.OPEN)
        world.settle()
        assert (id in world.latest("server")) is (a.get(id).sensitivity is Sensitivity.OPEN), step
    assert step > 4
