"""The owner is a boundary: no call of truth sees, changes, counts or undoes anything of another owner."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from contract import owner_walk

from triskele.stores.protocols import OwnerStore, Store, Truth
from triskele.types import Memory

TRUTH = True


def test_every_method_has_a_row() -> None:
    assert owner_walk.TRUTH.keys() == {name for name in vars(Truth) if not name.startswith("_")}


@pytest.mark.parametrize("is_twin", [False, True], ids=["nothing", "the same"])
def test_another_owner_is_as_if_never_there(
    open_unbound: Callable[..., Store], make_memory: Callable[..., Memory], is_twin: bool
) -> None:
    """Whether bob has nothing, or memories with the very ids and texts of alice's."""
    first = open_unbound()
    alice, drafts = first.of("alice"), owner_walk.made(make_memory)
    known = owner_walk.seed_truth(alice, drafts)
    before = owner_walk.truth_of(alice)
    for place, call in owner_walk.each_call(owner_walk.TRUTH):
        # Changes stay, so each call needs an owner who has made none, and a store where nobody else is.
        beside, alone = first.of(f"bob {place}"), open_unbound(place).of(f"bob {place}")
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
