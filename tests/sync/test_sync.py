"""Two laptops and a server: each rule of a sync by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sync_world import ADDRESS, Stores, Wire, World

from triskele.errors import BadInput, Conflict, NotFound
from triskele.sync import notes as sync_notes
from triskele.sync import states
from triskele.sync.loop import Sync, SyncReport
from triskele.sync.notes import Notes
from triskele.sync.states import ProjectNames
from triskele.types import LinkKind, Sensitivity


def test_memories_travel_with_all_that_they_say(world: World) -> None:
    a, b = world.engines["a"], world.engines["b"]
    id = a.remember(
        "Ada keeps the greenhouse key", tags=["keys"], keywords="greenhouse", importance=0.9, category="people",
        speaker="Ada", role="user", session="tuesday", position=3, valid_from="2024-05-01", valid_to="2025-05-01",
        created_at="2024-05-02T10:00:00Z",
    ).id  # fmt: skip
    world.settle()
    memories = {name: states.latest(world.engines[name].store, [id])[id] for name in ("a", "b", "server")}
    values = [
        replace(each, known_from=memories["a"].known_from, owner=memories["a"].owner) for each in memories.values()
    ]
    assert values[0] == values[1] == values[2]
    assert b.store.journal(id=id)[-1].actor == "sync:user"
    assert world.sync("a") == SyncReport(0, 0, {}, ())


def test_forgets_links_undos_and_merges_travel(world: World) -> None:
    a, b = world.engines["a"], world.engines["b"]
    old = a.remember("Helm deploys the shop").id
    new = a.remember("Argo CD deploys the shop", supersedes=old).id
    aside = a.remember("the pond is deep").id
    a.link(new, LinkKind.SEE_ALSO, aside)
    world.settle()
    assert world.links("b") == world.links("server") == {(new, "supersedes", old), (new, "see-also", aside)}
    assert b.superseded([old]) == {old}
    b.unlink(new, LinkKind.SEE_ALSO, aside)
    b.edit(aside, content="the pond is shallow")
    b.forget(aside)
    world.settle()
    assert world.links("a") == {(new, "supersedes", old)}
    assert aside not in a.store.memories([aside])
    b.undo()
    world.settle()
    assert a.get(aside).content == "the pond is shallow" and aside in a.store.memories([aside])


def test_an_edit_on_a_stale_base_is_a_conflict_with_both_versions(world: World) -> None:
    a, b = world.engines["a"], world.engines["b"]
    id = a.remember("the gate is green").id
    world.settle()
    a.edit(id, content="the gate is red")
    b.edit(id, content="the gate is blue")
    world.settle()
    [conflict] = sync_notes.conflicts(b.store)
    assert conflict.old is not None
    assert (conflict.old.content, conflict.new.content) == ("the gate is blue", "the gate is red")
    assert world.standing("server") == ["the gate is red"]
    assert not sync_notes.conflicts(a.store)
    report = world.sync("b")
    assert report is not None and report.conflicts == (id,)


@pytest.mark.parametrize("answer", ["mine", "theirs", "edit", "forget", "erase"])
def test_a_conflict_is_settled(world: World, answer: str) -> None:
    a, b = world.engines["a"], world.engines["b"]
    id = a.remember("the gate is green").id
    world.settle()
    a.edit(id, content="the gate is red")
    b.edit(id, content="the gate is blue")
    world.settle()
    expected = {"mine": ["the gate is blue"], "theirs": ["the gate is red"], "edit": ["the gate is violet"]}
    if answer in ("mine", "theirs"):
        sync_notes.resolve(b, id, keep_mine=answer == "mine")
    elif answer == "edit":
        b.edit(id, content="the gate is violet")
    else:
        b.forget(id) if answer == "forget" else b.erase(id).outcomes
    world.settle()
    assert not world.conflicts()
    for name in ("a", "b", "server"):
        assert world.standing(name) == expected.get(answer, [])
    if answer == "erase":
        assert not any(world.latest(name) for name in ("a", "b", "server"))


def test_resolve_refuses_a_memory_without_conflict(world: World) -> None:
    id = world.engines["a"].remember("the gate is green").id
    with pytest.raises(NotFound, match="no conflict"):
        sync_notes.resolve(world.engines["a"], id, keep_mine=True)


def test_an_erasure_reaches_a_laptop_that_was_away_and_edited(world: World) -> None:
    a, b = world.engines["a"], world.engines["b"]
    id = a.remember("the alarm sleeps at noon").id
    world.settle()
    b.edit(id, content="the alarm sleeps at dusk")
    a.erase(id)
    assert world.sync("a")
    for number in range(10):
        a.remember(f"later {number}")
    world.settle()
    assert not any(id in world.latest(name) for name in ("a", "b", "server"))


def test_private_and_secret_rows_stay(world: World) -> None:
    a = world.engines["a"]
    a.remember("my diary is under the stair", sensitivity=Sensitivity.PRIVATE)
    a.remember("The staging database password is hunter2-Rk4T9w")
    open_one = a.remember("the stair creaks").id
    a.link(open_one, LinkKind.SEE_ALSO, next(id for id in world.latest("a") if id != open_one))
    world.settle()
    assert world.standing("server") == world.standing("b") == ["the stair creaks"]
    assert len(world.links("a")) == 1 and not world.links("server")
    assert not any("diary" in each or "hunter2" in each for each in world.heard)


def test_sync_leaves_out_apparent_secrets_marked_open(world: World) -> None:
    a = world.engines["a"]
    id = a.remember("The staging database password is hunter2-Rk4T9w", sensitivity=Sensitivity.OPEN).id
    report = world.sync("a")
    assert report is not None and "looks like a secret" in report.waiting[id]
    assert not any("hunter2" in each for each in world.heard)
    with pytest.raises(BadInput, match="looks like a secret"):
        states.checked(world.latest("a")[id], a.settings.memory)
    a.edit(id, content="The staging database is in the cellar", sensitivity=Sensitivity.OPEN)
    world.settle()
    assert world.standing("server") == world.standing("b") == ["The staging database is in the cellar"]


@pytest.mark.parametrize("kind", [Sensitivity.PRIVATE, Sensitivity.SECRET])
def test_memory_that_becomes_private_stays_only_on_laptops(world: World, kind: Sensitivity) -> None:
    a, b = world.engines["a"], world.engines["b"]
    id = a.remember("the spare key is under the pot").id
    world.settle()
    b.edit(id, sensitivity=kind)
    world.settle()
    assert id not in world.latest("server")
    assert not any("spare key" in each.content for _, each in world.server.store.versions())
    assert (a.get(id).sensitivity, b.get(id).sensitivity) == (kind, kind)
    text = a.reveal(id).text if kind is Sensitivity.SECRET else a.get(id).content
    assert text == "the spare key is under the pot"
    b.edit(id, sensitivity=Sensitivity.OPEN)
    world.settle()
    assert world.standing("server") == ["the spare key is under the pot"]
    if kind is Sensitivity.PRIVATE:
        assert a.get(id).sensitivity is Sensitivity.OPEN
    else:
        # A secret is opened where somebody says so, not by another machine.
        assert a.get(id).sensitivity is kind and world.conflicts() == {id}


def test_an_edit_on_the_server_is_not_lost_when_a_laptop_turns_the_memory_private(world: World) -> None:
    a = world.engines["a"]
    id = a.remember("the fox comes at five").id
    world.settle()
    world.server.edit(id, content="the fox comes at six")
    a.edit(id, sensitivity=Sensitivity.PRIVATE)
    world.settle()
    assert id not in world.latest("server")
    assert [each.content for each in a.store.history(id)][-2:] == ["the fox comes at six", "the fox comes at five"]
    assert all(each.sensitivity is Sensitivity.PRIVATE for each in a.store.history(id))


def test_the_same_text_on_both_laptops_is_one_memory(world: World) -> None:
    a, b = world.engines["a"], world.engines["b"]
    id, other = a.remember("bees like lavender").id, b.remember("bees like lavender").id
    linked = b.remember("lavender is purple").id
    b.link(linked, LinkKind.SEE_ALSO, other)
    world.settle()
    for name in ("a", "b", "server"):
        assert world.standing(name) == ["bees like lavender", "lavender is purple"]
        assert (linked, "see-also", id) in world.links(name)


def test_a_lost_reply_is_recognised_whatever_was_done_since(world: World) -> None:
    a, done = world.engines["a"], {}
    done["edit"] = a.remember("the lamp is dim").id
    done["close"] = a.remember("the lamp is my grandmother's").id
    done["erase"] = a.remember("the lamp was stolen").id
    done["forget"] = a.remember("the lamp is lit").id
    world.push_without_reply("a")
    assert len(world.standing("server")) == 4
    a.edit(done["edit"], content="the lamp is bright")
    a.edit(done["close"], sensitivity=Sensitivity.PRIVATE)
    a.store.erase([done["erase"]], batch="erase")
    a.forget(done["forget"])
    world.settle()
    assert not world.conflicts()
    assert world.standing("server") == world.standing("b") == ["the lamp is bright"]
    assert {done["close"], done["erase"]}.isdisjoint(world.latest("server"))


def test_two_replacements_that_would_close_a_circle_wait_with_the_reason(world: World) -> None:
    a, b = world.engines["a"], world.engines["b"]
    one, two = a.remember("the hedge is low").id, a.remember("the hedge is high").id
    world.settle()
    a.link(one, LinkKind.SUPERSEDES, two)
    b.link(two, LinkKind.SUPERSEDES, one)
    world.settle()
    assert world.links("server") == {(one, "supersedes", two)}
    waiting = Notes(b.store).waiting()
    assert set(waiting) == {one, two} and all("cycle" in each or "supersedes" in each for each in waiting.values())
    b.unlink(two, LinkKind.SUPERSEDES, one)
    world.settle()
    assert world.links("b") == {(one, "supersedes", two)} and not Notes(b.store).waiting()


def test_projects_are_matched_by_remote_and_not_by_name(world: World) -> None:
    a, b = world.engines["a"], world.engines["b"]
    for engine, key in ((a, "git:github.com/ada/api"), (b, "git:github.com/bob/api")):
        engine.store.register_folder([key, f"path:/home/{key[-7:-4]}/api"], lambda _: "api")
    a.remember("ada's api has two routes", project="api")
    b.remember("bob's api has nine routes", project="api")
    a.remember("a plain name", project="notes")
    world.settle()
    projects = {name: {each.content: each.project for each in world.latest(name).values()} for name in world.engines}
    assert projects["a"] == {
        "ada's api has two routes": "api",
        "bob's api has nine routes": "bob/api",
        "a plain name": "notes",
    }
    assert projects["b"] == {
        "ada's api has two routes": "ada/api",
        "bob's api has nine routes": "api",
        "a plain name": "notes",
    }
    assert projects["server"] == projects["a"]
    # A clone on the other laptop finds what was pulled.
    assert ("git:github.com/ada/api", "ada/api") in {(place.key, place.project) for place in b.store.folders()}


def test_project_with_a_first_remote_stays_the_same(world: World) -> None:
    a, b = world.engines["a"], world.engines["b"]
    a.remember("the kiln runs at night", project="pots")
    world.settle()
    a.store.register_folder(["git:github.com/ada/pots"], lambda _: "pots")
    a.remember("the kiln is loud", project="pots")
    world.settle()
    assert {each.project for each in world.latest("server").values()} == {"pots"}
    assert ProjectNames(b.store).keys("pots") == ("git:github.com/ada/pots", "name:pots")


def test_memories_beyond_a_quota_wait_and_the_rest_is_synced(world: World) -> None:
    a = world.engines["a"]
    first = a.remember("one").id
    assert world.sync("a")
    a.edit(first, content="one and a half")
    second = a.remember("two").id
    used_up = "1 memories are stored and the quota is 1: forget some, or ask an admin"
    report = world.sync("a", most=1)
    assert report is not None and report.waiting == {second: used_up}
    assert world.standing("server") == ["one and a half"]
    report = world.sync("a", most=2)
    assert report is not None and not report.waiting
    assert world.standing("server") == ["one and a half", "two"]
    a.forget(first)
    third = a.remember("three").id
    assert world.sync("a", most=2)
    a.restore(first)
    report = world.sync("a", most=2)
    assert report is not None and list(report.waiting) == [first]
    a.edit(third, content="three and a half")
    a.forget(second)
    # What waited is pushed first.
    world.sync("a", most=2)
    report = world.sync("a", most=2)
    assert report is not None and not report.waiting
    assert world.standing("server") == ["one and a half", "three and a half"]


def test_a_full_quota_keeps_no_erasure_and_no_withdrawal_waiting(world: World) -> None:
    a = world.engines["a"]
    ids = [a.remember(text).id for text in ("one", "two", "three")]
    assert world.sync("a")
    a.forget(ids[0])
    assert world.sync("a")
    a.edit(a.restore(ids[0])[0].id, sensitivity="private")
    report = world.sync("a", most=2)
    assert report is not None and not report.waiting
    a.erase(ids[1])
    report = world.sync("a", most=2)
    assert report is not None and not report.waiting
    assert world.latest("server").keys() == {ids[2]}


def test_a_key_of_another_user_is_refused(world: World, stores: Stores) -> None:
    world.engines["a"].remember("one")
    assert world.sync("a")
    other = World(stores)
    with pytest.raises(Conflict, match="use a key of"):
        Sync(world.engines["a"], Wire(other.server), ADDRESS).run()
    assert not other.latest("server")


def test_sync_with_another_server_needs_elsewhere(world: World) -> None:
    a = world.engines["a"]
    a.remember("one")
    assert world.sync("a")
    address = "https://other.example"
    with pytest.raises(BadInput, match=r"was synced with .* as user\d+: `triskele sync --elsewhere`"):
        Sync(a, Wire(world.server), address).run()
    assert Sync(a, Wire(world.server), address).run(is_elsewhere=True).waiting == {}
    assert Sync(a, Wire(world.server), address).run().pushed == 0


def test_server_without_its_journal_gets_missing_memories(world: World, stores: Stores) -> None:
    a, b = world.engines["a"], world.engines["b"]
    id = a.remember("one").id
    world.settle()
    b.edit(id, content="two")
    world.settle()
    empty = World(stores)
    # The same user on a server that was restored from an old backup.
    for name in ("a", "b"):
        notes = Notes(world.engines[name].store)
        notes.put_state(user=empty.server.store.owner)
    world.server = world.engines["server"] = empty.server
    world.settle()
    assert world.standing("server") == world.standing("a") == world.standing("b") == ["two"]
    assert not world.conflicts()
