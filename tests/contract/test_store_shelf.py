"""The shelf: documents by kind and key, gone with the memories that they are about."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from triskele.stores.protocol import Document, Store
from triskele.types import Forget, Memory, Outcome

Make = Callable[..., Memory]
Do = Callable[..., list[Outcome]]


def test_documents_come_back_by_kind_in_the_order_of_their_keys(store: Store) -> None:
    store.shelve("song", {"b": Document({"title": "Ända", "bars": [1, 2.5, None]}), "a": Document("plain")})
    store.shelve("poem", {"a": Document(1)})
    assert list(store.shelved("song").items()) == [("a", "plain"), ("b", {"title": "Ända", "bars": [1, 2.5, None]})]
    assert store.shelved("poem") == {"a": 1}
    assert store.shelved("play") == {}


def test_documents_can_be_read_by_their_keys(store: Store) -> None:
    store.shelve("song", {key: Document(key) for key in "abc"})
    store.shelve("poem", {"a": Document(1)})
    assert list(store.shelved("song", ["c", "absent", "a"])) == ["a", "c"]
    assert store.shelved("song", []) == {}


def test_a_key_holds_one_document(store: Store) -> None:
    store.shelve("song", {"a": Document("first")})
    store.shelve("song", {"a": Document("second")})
    assert store.shelved("song") == {"a": "second"}


def test_documents_can_be_taken_off_the_shelf(store: Store) -> None:
    store.shelve("song", {key: Document(key) for key in "abc"})
    store.unshelve("song", ["a", "c", "nobody"])
    store.unshelve("poem", ["b"])
    assert store.shelved("song") == {"b": "b"}


def test_a_kind_keeps_its_highest_keys_alone(store: Store) -> None:
    store.shelve("poem", {"0": Document("stays")})
    store.shelve("song", {f"{number}": Document(number) for number in range(5)}, most=9)
    store.shelve("song", {"5": Document(5)}, most=3)
    assert store.shelved("song") == {"3": 3, "4": 4, "5": 5}
    assert store.shelved("poem") == {"0": "stays"}


def test_an_erasing_takes_every_document_about_the_memory(store: Store, add: Make) -> None:
    erased, kept = add(), add()
    store.shelve(
        "song",
        {
            "both": Document("x", about=[kept.id, erased.id]),
            "erased": Document("x", about=[erased.id]),
            "kept": Document("x", about=[kept.id]),
            "none": Document("x"),
        },
    )
    store.erase([erased.id], batch="gone")
    assert store.shelved("song").keys() == {"kept", "none"}


def test_a_document_about_an_erased_memory_is_not_kept(store: Store, add: Make) -> None:
    erased, kept = add(), add()
    store.erase([erased.id], batch="gone")
    store.shelve("song", {"a": Document("too late", about=[erased.id, kept.id]), "b": Document("fine")})
    assert store.shelved("song") == {"b": "fine"}


def test_forgetting_leaves_documents_alone(store: Store, add: Make, do: Do) -> None:
    memory = add()
    store.shelve("song", {"a": Document("x", about=[memory.id])})
    do(Forget(memory.id))
    assert store.shelved("song") == {"a": "x"}


def test_a_backup_carries_the_shelf(store: Store, open_store: Callable[..., Store], tmp_path: Path) -> None:
    store.shelve("song", {"a": Document("kept")})
    store.backup(tmp_path / "copy.db")
    store.shelve("song", {"b": Document("later")})
    other = open_store("second")
    other.shelve("song", {"c": Document("replaced")})
    other.restore(tmp_path / "copy.db")
    assert other.shelved("song") == {"a": "kept"}


def test_a_shelf_is_no_change_to_the_memories(store: Store) -> None:
    store.shelve("song", {"a": Document("x")})
    assert store.last_seq() == 0
    assert store.check(deep=True) == []
