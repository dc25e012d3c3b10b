"""Sealed texts: written with their version, copied without being opened, gone with their memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from triskele.errors import BadInput, Conflict
from triskele.store.owner import OwnerStore
from triskele.store.values import START, VAULT, Document
from triskele.text.ids import content_hash
from triskele.types import Action, Add, MakePrivate, Memory, Outcome, Reveal, Revise, Sealed, Sensitivity

Do = Callable[..., list[Outcome]]
MakeMemory = Callable[..., Memory]
TRUTH = True
KEYS = "the keys of the vault"
SECRET = {"sensitivity": Sensitivity.SECRET}


def sealed(text: bytes = b"first", keys: str = KEYS) -> Sealed:
    return Sealed(text, content_hash(keys))


@pytest.fixture
def secret(store: OwnerStore, do: Do, make_memory: MakeMemory) -> Memory:
    """A secret memory in a store with a vault."""
    store.documents.put(VAULT, {"keys": Document(KEYS)})
    memory = make_memory("a title", **SECRET)
    do(Add(memory, sealed=sealed()))
    return memory


def blobs(store: OwnerStore) -> list[tuple[int, int, bytes]]:
    return [(row.version, row.sealed_as, row.blob) for row in store.sealed()]


def test_a_secret_has_a_sealed_text_and_nothing_else_has(store: OwnerStore, do: Do, make_memory: MakeMemory) -> None:
    store.documents.put(VAULT, {"keys": Document(KEYS)})
    for change in (Add(make_memory(**SECRET)), Add(make_memory(), sealed=sealed())):
        with pytest.raises(BadInput, match="sealed text"):
            do(change)
    assert store.position() == START and store.sealed() == []


def test_keys_that_were_changed_meanwhile_seal_nothing(store: OwnerStore, do: Do, make_memory: MakeMemory) -> None:
    store.documents.put(VAULT, {"keys": Document("newer keys")})
    with pytest.raises(Conflict, match="try again"):
        do(Add(make_memory(**SECRET), sealed=sealed()))
    assert store.sealed() == []


def test_equal_titles_are_not_duplicates(store: OwnerStore, do: Do, secret: Memory, make_memory: MakeMemory) -> None:
    actions = [
        do(Add(make_memory("a title", **SECRET), sealed=sealed(b"second")))[0].action,
        do(Add(make_memory("a title")))[0].action,
    ]
    assert actions == [Action.ADDED, Action.ADDED]


def test_a_label_takes_the_sealed_text_along(store: OwnerStore, do: Do, secret: Memory) -> None:
    do(Revise(replace(secret, importance=0.9), base=1))
    assert blobs(store) == [(1, 1, b"first"), (2, 1, b"first")]


def test_a_new_text_under_the_old_title_is_a_change(store: OwnerStore, do: Do, secret: Memory) -> None:
    assert do(Revise(secret, base=1))[0].action is Action.UNCHANGED
    assert do(Revise(secret, base=1, sealed=sealed(b"second")))[0].action is Action.EDITED
    # Back to the first text, which only the version that it is made of tells apart.
    assert do(Revise(secret, base=2))[0].action is Action.EDITED
    assert blobs(store) == [(1, 1, b"first"), (2, 2, b"second"), (3, 1, b"first")]


def test_an_opened_secret_leaves_no_sealed_text_behind_its_version(store: OwnerStore, do: Do, secret: Memory) -> None:
    opened = replace(secret, content="told", content_hash=content_hash("told"), sensitivity=Sensitivity.OPEN)
    do(Revise(opened, base=1))
    assert blobs(store) == [(1, 1, b"first")]


def test_erasing_takes_the_sealed_texts_too(store: OwnerStore, do: Do, secret: Memory) -> None:
    do(Revise(replace(secret, importance=0.9), base=1))
    store.erase([secret.id], batch="b")
    assert store.sealed() == []


def test_resealing_leaves_the_bound_version(store: OwnerStore, do: Do, secret: Memory) -> None:
    do(Revise(replace(secret, importance=0.9), base=1))
    store.reseal({(secret.id, 2): b"anew", ("nobody", 1): b"lost"})
    assert blobs(store) == [(1, 1, b"first"), (2, 1, b"anew")]


def test_revealing_is_journaled(store: OwnerStore, do: Do, secret: Memory) -> None:
    [outcome] = do(Reveal(secret.id))
    assert outcome.action is Action.REVEALED
    assert [entry.action for entry in store.journal(id=secret.id)] == [Action.ADDED, Action.REVEALED]


def test_sealing_rewrites_every_version(store: OwnerStore, do: Do, add: Callable[..., Memory]) -> None:
    store.documents.put(VAULT, {"keys": Document(KEYS)})
    memory = add("the text of a secret")
    do(Revise(replace(memory, importance=0.9), base=1))
    old = dict(store.versions())
    title = {"content": "a title", "content_hash": content_hash("a title"), **SECRET}
    versions = [(replace(each, **title), sealed(b"%d" % each.version)) for each in store.history(memory.id)]
    assert store.seal(versions, batch="b").action is Action.SEALED
    assert [each.content for each in store.history(memory.id)] == ["a title", "a title"]
    assert blobs(store) == [(1, 1, b"1"), (2, 2, b"2")]
    assert not old.keys() & dict(store.versions()).keys()


def test_sealing_refuses_a_concurrently_changed_memory(store: OwnerStore, do: Do, secret: Memory) -> None:
    do(Revise(replace(secret, importance=0.9), base=1))
    with pytest.raises(Conflict, match="meanwhile"):
        store.seal([(secret, sealed())], batch="b")
    assert len(store.history(secret.id)) == 2


def test_withdrawing_closes_older_versions_too(store: OwnerStore, do: Do, add: Callable[..., Memory]) -> None:
    memory = add()
    do(Revise(replace(memory, sensitivity=Sensitivity.PRIVATE), base=1), MakePrivate(memory.id))
    assert {each.sensitivity for each in store.history(memory.id)} == {Sensitivity.PRIVATE}
