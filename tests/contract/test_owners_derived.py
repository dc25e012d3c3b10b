"""The owner is a boundary for what is derived, documents, jobs and usage too; and the same id can be two owners'."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from contract import owner_walk

from triskele.base import timestamps
from triskele.stores.derived import EntityStore, JobStore, ModelStore, VectorStore
from triskele.stores.protocols import DocumentStore, OwnerStore, Store, UsageStore, Use
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


def test_every_method_of_every_protocol_has_a_row() -> None:
    parts = {name for name, value in vars(OwnerStore).items() if isinstance(value, property)} - {"owner"}
    assert parts == PROTOCOLS.keys() - {"whole"}
    for protocol, calls in PROTOCOLS.values():
        methods = {name for name in vars(protocol) if not name.startswith("_")} - {*parts, "owner"}
        assert calls.keys() == methods, protocol.__name__


@pytest.mark.parametrize("seeds", [0, 1, 2], ids=["nothing", "truth", "everything"])
@pytest.mark.parametrize("part", PROTOCOLS)
def test_another_owner_is_as_if_never_there(
    open_unbound: Callable[..., Store], make_memory: Callable[..., Memory], part: str, seeds: int
) -> None:
    """Whether bob has nothing, or memories with the very ids and texts of alice's, or all that she has."""
    first = open_unbound()
    alice, drafts = first.of("alice"), owner_walk.made(make_memory)
    known = owner_walk.seed_derived(alice, owner_walk.seed_truth(alice, drafts))
    before = _everything(alice)
    for place, call in owner_walk.each_call(PROTOCOLS[part][1]):
        # Changes stay, so each call needs an owner who has made none, and a store where nobody else is.
        stores = [each.of(f"bob {place}") for each in (first, open_unbound(place))]
        own = [known, known]
        for number, store in enumerate(stores):
            if seeds:
                own[number] = replace(owner_walk.seed_truth(store, drafts), slots=known.slots, names=known.names)
            if seeds == 2:
                own[number] = owner_walk.seed_derived(store, own[number])
        _assert_alike(call, stores, own, place)
        assert _everything(alice) == before, place


def _assert_alike(
    call: owner_walk.Call, stores: Sequence[OwnerStore], own: Sequence[owner_walk.Known], place: str
) -> None:
    """The call gives the same beside another owner as alone, and leaves the same."""
    beside, alone = (owner_walk.outcome_of(call, *each) for each in zip(stores, own, strict=True))
    assert beside == alone, place
    left, left_alone = (owner_walk.shape(_everything(store)) for store in stores)
    assert left == left_alone, place


def test_a_change_derives_nothing_for_another_owner(
    open_unbound: Callable[..., Store], make_memory: Callable[..., Memory]
) -> None:
    """What an owner changes or erases queues and drops values of that owner alone, though another has the same text."""
    first = open_unbound()
    alice, drafts = first.of("alice"), owner_walk.made(make_memory)
    owner_walk.seed_derived(alice, owner_walk.seed_truth(alice, drafts))
    before = _everything(alice)
    for place, call in owner_walk.each_call({name: owner_walk.TRUTH[name] for name in ("apply", "erase", "seal")}):
        stores = [each.of(f"bob {place}") for each in (first, open_unbound(place))]
        own = [owner_walk.seed_truth(store, drafts) for store in stores]
        for _ in range(2):
            _assert_alike(call, stores, own, place)
            assert _everything(alice) == before, place


def _everything(store: OwnerStore) -> list[object]:
    return [owner_walk.truth_of(store), owner_walk.derived_of(store)]


def test_conversations_of_one_name_are_each_owners_own(
    open_store: Callable[..., OwnerStore], make_memory: Callable[..., Memory], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = timestamps.now()
    monkeypatch.setattr(timestamps, "now", lambda: now)
    alice, bob = open_store(owner="alice"), open_store(owner="bob")
    draft = make_memory("the heron fishes at dawn")
    uses = [Use(draft.id, 3, draft.content_hash, ("print",))]
    for store in (alice, bob):
        store.apply([Add(replace(draft, owner=store.owner))], batch="one")
        store.usage.injected("talk", uses)
        store.usage.flush()
    alice.usage.lose("talk")
    alice.usage.flush()
    given = alice.usage.given("talk")
    bob.usage.injected("talk", uses)
    bob.usage.end("talk")
    bob.usage.flush()
    assert given and alice.usage.given("talk") == given
    # A new conversation takes the place of those that are over, or too old, of its owner alone.
    now += timedelta(days=8)
    alice.usage.injected("another", uses)
    alice.usage.flush()
    assert alice.usage.given("talk") == given
    now += timedelta(days=31)
    bob.usage.injected("another", uses)
    bob.usage.flush()
    assert (bob.usage.given("talk"), alice.usage.given("talk")) == ([], given)
    assert alice.usage.echoed(["print"])


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
