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
    assert parts == PROTOCOLS.keys()
    for protocol, calls in PROTOCOLS.values():
        assert calls.keys() == {name for name in vars(protocol) if not name.startswith("_")}, protocol.__name__


@pytest.mark.parametrize(("part", "method"), EVERY)
def test_another_owner_is_as_if_never_there(
    open_store: Callable[..., OwnerStore], make_memory: Callable[..., Memory], part: str, method: str
) -> None:
    alice, bob, alone = open_store(owner="alice"), open_store(owner="bob"), open_store("second", owner="bob")
    known = owner_walk.seed_derived(alice, owner_walk.seed_truth(alice, make_memory))
    before = owner_walk.truth_of(alice), owner_walk.derived_of(alice)
    for call in PROTOCOLS[part][1][method]:
        assert owner_walk.outcome_of(call, bob, known) == owner_walk.outcome_of(call, alone, known)
        assert owner_walk.derived_of(bob) == owner_walk.derived_of(alone)
        assert (owner_walk.truth_of(alice), owner_walk.derived_of(alice)) == before


def test_an_owner_of_nothing_takes_no_room(
    open_store: Callable[..., OwnerStore], make_memory: Callable[..., Memory]
) -> None:
    alice = open_store(owner="alice")
    owner_walk.seed_derived(alice, owner_walk.seed_truth(alice, make_memory))
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
