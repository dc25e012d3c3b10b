"""Places: which folder or remote belongs to which project, claimed once and bound in the journal."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from triskele.errors import NotFound
from triskele.store.owner import OwnerStore, Store
from triskele.types import Action, Add, Memory, MoveFolder, Outcome

TRUTH = True

Do = Callable[..., list[Outcome]]


def test_a_key_keeps_its_project_and_new_ones_get_the_chosen_one(store: OwnerStore) -> None:
    assert store.register_folder(["path:/a", "git:a"], lambda known: f"number {len(known)}") == "number 0"
    assert store.register_folder(["path:/b", "git:a", "path:/b"], lambda known: f"number {len(known)}") == "number 2"
    projects = {place.key: place.project for place in store.folders()}
    assert projects == {"path:/a": "number 0", "git:a": "number 0", "path:/b": "number 2"}
    assert len({place.number for place in store.folders()}) == 3


def test_a_place_is_bound_in_the_journal_that_does_not_tell_its_key(store: OwnerStore, do: Do) -> None:
    store.register_folder(["path:/wombat"], lambda _: "garden")
    [folder] = store.folders()
    [outcome] = do(MoveFolder(folder.number, "kitchen"))
    assert (outcome.action, outcome.project) == (Action.BOUND, "kitchen")
    assert [each.project for each in store.folders()] == ["kitchen"]
    [entry] = store.journal(batch=outcome.batch)
    assert (entry.action, entry.id, entry.other) == (Action.BOUND, f"place {folder.number}", "garden")
    assert "wombat" not in str(store.journal())
    [again] = do(MoveFolder(folder.number, "kitchen"))
    assert (again.action, again.seq) == (Action.UNCHANGED, None)


def test_a_change_that_fails_leaves_places_as_they_were(
    store: OwnerStore, do: Do, make_memory: Callable[..., Memory]
) -> None:
    store.register_folder(["path:/a"], lambda _: "garden")
    [folder] = store.folders()
    with pytest.raises(NotFound):
        do(MoveFolder(folder.number, "kitchen"), Add(make_memory()), MoveFolder(10_000, "kitchen"))
    assert ([each.project for each in store.folders()], store.census().memories) == (["garden"], 0)


def test_places_are_there_after_reopening(
    unbound: Store, open_store: Callable[..., OwnerStore], store: OwnerStore
) -> None:
    store.register_folder(["path:/a"], lambda _: "garden")
    before = store.folders()
    unbound.close()
    assert open_store().folders() == before
