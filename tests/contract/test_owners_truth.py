"""The owner is a boundary: no call of truth sees, changes, counts or undoes anything of another owner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from contract import owner_walk

from triskele.errors import NotFound
from triskele.store.owner import OwnerStore, Store
from triskele.store.values import VAULT, Document
from triskele.text import timestamps
from triskele.text.ids import content_hash
from triskele.types import (
    Action,
    Add,
    Connect,
    Link,
    LinkKind,
    MakePrivate,
    Memory,
    MoveFolder,
    Revise,
    Scope,
    Sealed,
    Sensitivity,
)

TRUTH = True


def test_every_method_has_a_row() -> None:
    names = {name for name, value in vars(OwnerStore).items() if callable(value) and not name.startswith("_")}
    assert owner_walk.TRUTH.keys() == (names | {"epoch", "snapshot"}) - {"heads"}


@pytest.mark.parametrize("is_twin", [False, True], ids=["nothing", "the same"])
def test_another_owner_is_as_if_never_there(
    open_unbound: Callable[..., Store], make_memory: Callable[..., Memory], is_twin: bool
) -> None:
    """Whether bob has nothing, or memories with the very ids and texts of alice's."""
    first = open_unbound()
    alice, drafts = first.for_owner("alice"), owner_walk.made(make_memory)
    known = owner_walk.seed_truth(alice, drafts)
    before = owner_walk.truth_of(alice)
    for place, call in owner_walk.each_call(owner_walk.TRUTH):
        # Changes stay, so each call needs an owner who has made none, and a store where nobody else is.
        beside, alone = first.for_owner(f"bob {place}"), open_unbound(place).for_owner(f"bob {place}")
        own = [owner_walk.seed_truth(store, drafts) if is_twin else known for store in (beside, alone)]
        assert owner_walk.outcome_of(call, beside, own[0]) == owner_walk.outcome_of(call, alone, own[1]), place
        assert owner_walk.shape(owner_walk.truth_of(beside)) == owner_walk.shape(owner_walk.truth_of(alone)), place
        assert owner_walk.truth_of(alice) == before, place


def test_an_owner_of_nothing_has_nothing(
    open_store: Callable[..., OwnerStore], make_memory: Callable[..., Memory]
) -> None:
    owner_walk.seed_truth(open_store(owner="alice"), owner_walk.made(make_memory))
    census = open_store(owner="bob").census()
    assert (census.memories, census.versions, census.journal, census.bytes) == (0, 0, 0, 0)


def test_an_owner_is_bound_by_name(open_store: Callable[..., OwnerStore]) -> None:
    assert [open_store(owner=name).owner for name in ("alice", "bob")] == ["alice", "bob"]


def test_a_secret_stays_one_though_another_owner_has_its_id_in_the_open(
    open_store: Callable[..., OwnerStore], make_memory: Callable[..., Memory]
) -> None:
    alice, bob = open_store(owner="alice"), open_store(owner="bob")
    secret = make_memory("a title", owner="bob", sensitivity=Sensitivity.SECRET)
    alice.apply([Add(make_memory("in the open", id=secret.id, owner="alice"))], batch="one")
    bob.documents.put(VAULT, {"keys": Document("keys")})
    bob.apply([Add(secret, sealed=Sealed(b"sealed", content_hash("keys")))], batch="one")
    bob.apply([MakePrivate(secret.id)], batch="two")
    assert [each.sensitivity for each in bob.history(secret.id)] == [Sensitivity.SECRET]


def test_an_edited_secret_keeps_the_sealed_text_of_its_owner(
    open_store: Callable[..., OwnerStore], make_memory: Callable[..., Memory]
) -> None:
    draft = make_memory("a title", sensitivity=Sensitivity.SECRET)
    stores = [open_store(owner=name) for name in ("alice", "bob")]
    for store in stores:
        sealed = Sealed(store.owner.encode(), content_hash("keys"))
        store.documents.put(VAULT, {"keys": Document("keys")})
        store.apply([Add(replace(draft, owner=store.owner), sealed=sealed)], batch="one")
    for store in stores:
        store.apply([Revise(replace(draft, owner=store.owner, tags=("edited",)), base=1)], batch="two")
        assert [row.blob for row in store.sealed()] == [store.owner.encode()] * 2


def test_a_place_of_another_owner_is_unknown(open_store: Callable[..., OwnerStore]) -> None:
    alice, bob = open_store(owner="alice"), open_store(owner="bob")
    alice.register_folder([owner_walk.PLACE], lambda _: "garden")
    [folder] = alice.folders()
    with pytest.raises(NotFound, match="no place"):
        bob.apply([MoveFolder(folder.number, "theirs")], batch="one")
    assert alice.folders() == [folder]


def test_a_chain_of_another_owner_makes_no_circle(
    open_store: Callable[..., OwnerStore], make_memory: Callable[..., Memory]
) -> None:
    alice, bob = open_store(owner="alice"), open_store(owner="bob")
    one, two = make_memory("one"), make_memory("two")
    for store in (alice, bob):
        store.apply([Add(replace(memory, owner=store.owner)) for memory in (one, two)], batch="one")
    link = Link(source=one.id, kind=LinkKind.SUPERSEDES, target=two.id, known_from=timestamps.now())
    alice.apply([Connect(link)], batch="two")
    [outcome] = bob.apply([Connect(replace(link, source=two.id, target=one.id))], batch="two")
    assert outcome.action is Action.LINKED


def test_ids_are_shortened_and_listed_for_one_owner_alone(
    open_store: Callable[..., OwnerStore], make_memory: Callable[..., Memory]
) -> None:
    """Near ids of another owner lengthen no prefix; a scope that names another owner holds nothing."""
    alice, bob = open_store(owner="alice"), open_store(owner="bob")
    for store, ids in ((alice, ["aaaabbbbcccc1", "aaaabbbbcccc3"]), (bob, ["aaaabbbbcccc2"])):
        store.apply([Add(make_memory(id=id, owner=store.owner)) for id in ids], batch="one")
    assert bob.shorten(["aaaabbbbcccc2"]) == {"aaaabbbbcccc2": "aaaabbbb"}
    assert bob.browse(Scope(owner="alice", as_of=timestamps.now(), any_time=True)) == []
    assert not bob.holds(alice.position()) and bob.holds(bob.position())
