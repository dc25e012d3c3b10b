"""The owner is a boundary: no call of truth sees, changes, counts or undoes anything of another owner."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from contract import owner_walk

from triskele.stores.protocols import OwnerStore, Truth
from triskele.types import Memory

TRUTH = True


def test_every_method_has_a_row() -> None:
    assert owner_walk.TRUTH.keys() == {name for name in vars(Truth) if not name.startswith("_")}


@pytest.mark.parametrize("method", owner_walk.TRUTH)
def test_another_owner_is_as_if_never_there(
    open_store: Callable[..., OwnerStore], make_memory: Callable[..., Memory], method: str
) -> None:
    alice = open_store(owner="alice")
    known = owner_walk.seed_truth(alice, make_memory)
    before = owner_walk.truth_of(alice)
    for number, call in enumerate(owner_walk.TRUTH[method]):
        # Changes stay, so each call needs an owner who has made none.
        beside, alone = (open_store(name, owner=f"bob {number}") for name in ("first", "second"))
        assert owner_walk.outcome_of(call, beside, known) == owner_walk.outcome_of(call, alone, known), number
        assert owner_walk.truth_of(alice) == before, number


def test_an_owner_of_nothing_has_nothing(
    open_store: Callable[..., OwnerStore], make_memory: Callable[..., Memory]
) -> None:
    owner_walk.seed_truth(open_store(owner="alice"), make_memory)
    census = open_store(owner="bob").census()
    assert (census.memories, census.versions, census.journal, census.bytes) == (0, 0, 0, 0)


def test_an_owner_is_bound_by_name(open_store: Callable[..., OwnerStore]) -> None:
    assert [open_store(owner=name).owner for name in ("alice", "bob")] == ["alice", "bob"]
