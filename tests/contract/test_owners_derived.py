"""The owner is a boundary for what is derived, documents, jobs and usage too; and the same id can be two owners'."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from contract import owner_walk

from triskele.stores.derived import EntityStore, JobStore, ModelStore, VectorStore
from triskele.stores.protocols import DocumentStore, OwnerStore, UsageStore
from triskele.types import Add, Forget, Memory

PROTOCOLS: dict[str, tuple[type, owner_walk.Calls]] = {
    "whole": (OwnerStore, owner_walk.WHOLE),
    "vectors": (VectorStore, owner_walk.VECTORS),
    "entities": (EntityStore, owner_walk.ENTITIES),
    "jobs": (JobStore, owner_walk.JOBS),
    "models": (ModelStore, owner_walk.MODELS),
    "documents": (DocumentStore, owner_walk.DOCUMENTS),
    "usage": (UsageStore, owner_walk.USAGE),
}
EVERY = [(name, method) for name, (_, calls) in PROTOCOLS.items() for method in calls]


def test_every_method_of_every_protocol_has_a_row() -> None:
    parts = {name for name, value in vars(OwnerStore).items() if isinstance(value, property)} - {"owner"}
    assert parts == PROTOCOLS.keys() - {"whole"}
    for protocol, calls in PROTOCOLS.values():
        methods = {name for name in vars(protocol) if not name.startswith("_")} - {*parts, "owner"}
        assert calls.keys() == methods, protocol.__name__


@pytest.mark.parametrize("seeds", [0, 1, 2], ids=["nothing", "truth", "everything"])
@pytest.mark.parametrize(("part", "method"), EVERY)
def test_another_owner_is_as_if_never_there(
    open_store: Callable[..., OwnerStore], make_memory: Callable[..., Memory], part: str, method: str, seeds: int
) -> None:
    """Whether bob has nothing, or memories with the very ids and texts of alice's, or all that she has."""
    alice, bob, alone = open_store(owner="alice"), open_store(owner="bob"), open_store("second", owner="bob")
    drafts = owner_walk.made(make_memory)
    known = owner_walk.seed_derived(alice, owner_walk.seed_truth(alice, drafts))
    before = _everything(alice)
    own = [known, known]
    for place, store in enumerate((bob, alone)):
        if seeds:
            own[place] = replace(owner_walk.seed_truth(store, drafts), slots=known.slots, names=known.names)
        if seeds == 2:
            own[place] = owner_walk.seed_derived(store, own[place])
    for call in PROTOCOLS[part][1][method]:
        assert owner_walk.outcome_of(call, bob, own[0]) == owner_walk.outcome_of(call, alone, own[1])
        assert owner_walk.shape(_everything(bob)) == owner_walk.shape(_everything(alone))
        assert _everything(alice) == before


@pytest.mark.parametrize("act", owner_walk.TRUTH["apply"] + owner_walk.TRUTH["erase"])
def test_a_change_derives_nothing_for_another_owner(
    open_store: Callable[..., OwnerStore], make_memory: Callable[..., Memory], act: Callable[..., object]
) -> None:
    """What an owner changes or erases queues and drops values of that owner alone, though another has the same text."""
    alice, bob, alone = open_store(owner="alice"), open_store(owner="bob"), open_store("second", owner="bob")
    drafts = owner_walk.made(make_memory)
    owner_walk.seed_derived(alice, owner_walk.seed_truth(alice, drafts))
    own = [owner_walk.seed_truth(store, drafts) for store in (bob, alone)]
    before = _everything(alice)
    for number in range(2):
        assert owner_walk.outcome_of(act, bob, own[0]) == owner_walk.outcome_of(act, alone, own[1])
        assert owner_walk.shape(_everything(bob)) == owner_walk.shape(_everything(alone)), number
        assert _everything(alice) == before


def _everything(store: OwnerStore) -> list[object]:
    return [owner_walk.truth_of(store), owner_walk.derived_of(store)]


def test_an_owner_of_nothing_takes_no_room(
    open_store: Callable[..., OwnerStore], make_memory: Callable[..., Memory]
) -> None:
    alice = open_store(owner="alice")
    owner_walk.seed_derived(alice, owner_walk.seed_truth(alice, owner_walk.made(make_memory)))
    assert open_store(owner="bob").entities.counts().bytes == 0
    assert alice.entities.counts().bytes > 0


def test_two_owners_may_have_the_same_id_and_text(
    open_store: Callable[..., OwnerStore], make_memory: Callable[..., Memory]
) -> None:
    hers = make_memory("the heron fishes at dawn", owner="alice")
    his = replace(hers, owner="bob")
    alice, bob = open_store(owner="alice"), open_store(owner="bob")
    for store, memory in ((alice, hers), (bob, his)):
        store.apply([Add(memory)], batch="one")
        store.vectors.keep("model", {memory.content_hash: memory.owner.encode()})
    alice.apply([Forget(hers.id)], batch="two")
    assert (alice.memories([hers.id]), bob.memories([his.id]).keys()) == ({}, {his.id})
    alice.erase([hers.id], batch="three")
    assert [vector for _, _, vector in bob.vectors.page("model")] == [b"bob"]
    assert alice.vectors.page("model") == []
    assert len(bob.history(his.id)) == 1
