"""The shelf: documents by kind and key, gone with the memories that they are about."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from triskele.store.owner import Maintenance, OwnerStore
from triskele.store.values import START, Document
from triskele.types import Forget, Memory, Outcome

Make = Callable[..., Memory]
Do = Callable[..., list[Outcome]]


def test_documents_come_back_by_kind_in_the_order_of_their_keys(store: OwnerStore) -> None:
    store.documents.put("song", {"b": Document({"title": "Ända", "bars": [1, 2.5, None]}), "a": Document("plain")})
    store.documents.put("poem", {"a": Document(1)})
    assert list(store.documents.all("song").items()) == [
        ("a", "plain"),
        ("b", {"title": "Ända", "bars": [1, 2.5, None]}),
    ]
    assert store.documents.all("poem") == {"a": 1}
    assert store.documents.all("play") == {}


def test_a_key_holds_one_document(store: OwnerStore) -> None:
    store.documents.put("song", {"a": Document("first")})
    store.documents.put("song", {"a": Document("second")})
    assert store.documents.all("song") == {"a": "second"}


def test_documents_can_be_taken_off_the_shelf(store: OwnerStore) -> None:
    store.documents.put("song", {key: Document(key) for key in "abc"})
    store.documents.delete("song", ["a", "c", "nobody"])
    store.documents.delete("poem", ["b"])
    assert store.documents.all("song") == {"b": "b"}


def test_a_kind_keeps_its_highest_keys_alone(store: OwnerStore) -> None:
    store.documents.put("poem", {"0": Document("stays")})
    store.documents.put("song", {f"{number}": Document(number) for number in range(5)}, most=9)
    store.documents.put("song", {"5": Document(5)}, most=3)
    assert store.documents.all("song") == {"3": 3, "4": 4, "5": 5}
    assert store.documents.all("poem") == {"0": "stays"}


def test_an_erasing_takes_every_document_about_the_memory(store: OwnerStore, add: Make) -> None:
    erased, remaining = add(), add()
    store.documents.put(
        "song",
        {
            "both": Document("x", about=[remaining.id, erased.id]),
            "erased": Document("x", about=[erased.id]),
            "kept": Document("x", about=[remaining.id]),
            "none": Document("x"),
        },
    )
    store.erase([erased.id], batch="gone")
    assert store.documents.all("song").keys() == {"kept", "none"}


def test_erase_removes_documents_about_the_memory(store: OwnerStore, add: Make) -> None:
    erased, remaining = add(), add()
    store.erase([erased.id], batch="gone")
    store.documents.put("song", {"a": Document("too late", about=[erased.id, remaining.id]), "b": Document("fine")})
    assert store.documents.all("song") == {"b": "fine"}


def test_forgetting_leaves_documents_alone(store: OwnerStore, add: Make, do: Do) -> None:
    memory = add()
    store.documents.put("song", {"a": Document("x", about=[memory.id])})
    do(Forget(memory.id))
    assert store.documents.all("song") == {"a": "x"}


def test_a_backup_carries_the_shelf(
    store: OwnerStore,
    maintenance: Maintenance,
    open_store: Callable[..., OwnerStore],
    open_maintenance: Callable[..., Maintenance],
    tmp_path: Path,
) -> None:
    store.documents.put("song", {"a": Document("kept")})
    maintenance.backup(tmp_path / "copy.db")
    store.documents.put("song", {"b": Document("later")})
    other = open_store("second")
    other.documents.put("song", {"c": Document("replaced")})
    open_maintenance("second").restore(tmp_path / "copy.db")
    assert other.documents.all("song") == {"a": "kept"}


def test_a_shelf_is_no_change_to_the_memories(store: OwnerStore, maintenance: Maintenance) -> None:
    store.documents.put("song", {"a": Document("x")})
    assert store.position() == START
    assert maintenance.check(deep=True) == []


def test_a_document_is_read_by_its_key(store: OwnerStore) -> None:
    store.documents.put("song", {"a": Document("first"), "b": Document(None)})
    assert store.documents.get("song", "a") == "first"
    assert (
        store.documents.get("song", "b") is store.documents.get("song", "c") is store.documents.get("play", "a") is None
    )


def test_swap_replaces_only_an_unchanged_document(store: OwnerStore) -> None:
    assert store.documents.swap("kind", "key", None, "one")
    assert not store.documents.swap("kind", "key", None, "two")
    assert not store.documents.swap("kind", "key", "zero", "two")
    assert store.documents.swap("kind", "key", "one", "two")
    assert store.documents.all("kind") == {"key": "two"}
