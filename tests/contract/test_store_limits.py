"""The limit of memories: no write makes more of them current than it allows, and every other write goes on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from threading import Thread

import pytest

from triskele.errors import QuotaExceeded
from triskele.store.owner import OwnerStore, Store
from triskele.store.writer import MemoryLimits
from triskele.text import timestamps
from triskele.types import Add, Change, Connect, Forget, Link, LinkKind, Memory, Revise

Make = Callable[..., Memory]

TRUTH = True
MOST = 3


@pytest.fixture
def open_limited(open_unbound: Callable[..., Store]) -> Callable[..., OwnerStore]:
    """Opens the store as an instance of a server that allows its owners three memories."""
    return lambda owner="me": open_unbound(limits=MemoryLimits(MOST)).for_owner(owner)


@pytest.fixture
def limited(open_limited: Callable[..., OwnerStore]) -> OwnerStore:
    return open_limited()


@pytest.fixture
def full(limited: OwnerStore, make_memory: Make) -> list[Memory]:
    """As many memories as are allowed, in the store."""
    memories = [make_memory(f"fern {number}") for number in range(MOST)]
    write(limited, *map(Add, memories))
    return memories


def write(store: OwnerStore, *changes: Change) -> None:
    store.apply(changes, batch="batch")


def refused(store: OwnerStore, *changes: Change) -> None:
    """Every change of the batch is refused: the journal gets no entry."""
    before = store.position(), store.census()
    with pytest.raises(QuotaExceeded):
        write(store, *changes)
    assert (store.position(), store.census()) == before


def restored(store: OwnerStore, memory: Memory) -> Change:
    latest = store.history(memory.id)[-1]
    return Revise(replace(latest, known_to=None), base=latest.version)


def test_apply_adds_to_the_limit_and_no_further(limited: OwnerStore, make_memory: Make) -> None:
    first, *rest = [make_memory(f"fern {number}") for number in range(MOST + 1)]
    write(limited, Add(first))
    refused(limited, *map(Add, rest))
    write(limited, *map(Add, rest[:-1]))
    refused(limited, Add(rest[-1]))
    refused(limited, Add(rest[-1], verbatim=True))


def test_apply_goes_on_at_the_limit_while_no_more_memories_are_current(
    limited: OwnerStore, full: list[Memory], make_memory: Make
) -> None:
    first, second, third = full
    write(limited, Revise(replace(first, content="fern and moss"), base=1))
    write(limited, Add(make_memory(second.content)))
    now, kind = timestamps.now(), LinkKind.SUPERSEDES
    write(limited, Connect(Link(source=second.id, kind=kind, target=third.id, known_from=now)))
    write(limited, Add(make_memory("an ended one", known_to=now), verbatim=True))
    write(limited, Add(new := make_memory("a new one"), verbatim=True), Forget(new.id))
    write(limited, Forget(third.id), Add(make_memory("another one")))
    assert limited.census().memories == MOST
    limited.erase([second.id], batch="erasure")
    write(limited, Add(make_memory("the last one")))
    refused(limited, Add(make_memory("one too many")))


def test_apply_refuses_to_restore_beyond_the_limit(limited: OwnerStore, full: list[Memory], make_memory: Make) -> None:
    write(limited, Forget(full[0].id))
    write(limited, Add(make_memory("another one")))
    refused(limited, restored(limited, full[0]))
    write(limited, Forget(full[1].id), restored(limited, full[0]))
    assert limited.census().memories == MOST


def test_apply_allows_shrinking_beyond_a_lowered_limit(
    open_store: Callable[..., OwnerStore], limited: OwnerStore, full: list[Memory], make_memory: Make
) -> None:
    rest = [make_memory(f"moss {number}") for number in range(2)]
    write(open_store(), *map(Add, rest))
    assert limited.census().memories == MOST + 2
    write(limited, Revise(replace(full[0], content="fern and moss"), base=1), Forget(full[1].id))
    write(limited, Add(make_memory("fern again")), Forget(full[2].id))
    write(limited, Add(make_memory("an ended one", known_to=timestamps.now()), verbatim=True))
    refused(limited, Add(make_memory("one too many")))


def test_apply_counts_writes_of_other_instances(open_limited: Callable[..., OwnerStore], make_memory: Make) -> None:
    stores = [open_limited() for _ in range(2)]
    for number in range(MOST):
        write(stores[number % 2], Add(make_memory(f"fern {number}")))
    for store in stores:
        refused(store, Add(make_memory("one too many")))
    forgotten = next(iter(stores[0].versions()))[1].id
    write(stores[0], Forget(forgotten))
    write(stores[1], Add(make_memory("the last one")))
    refused(stores[0], Add(make_memory("one too many")))


def test_apply_counts_again_after_a_refusal(limited: OwnerStore, make_memory: Make) -> None:
    memories = [make_memory(f"fern {number}") for number in range(MOST + 1)]
    refused(limited, *map(Add, memories))
    for memory in memories[:MOST]:
        write(limited, Add(memory))
    refused(limited, Add(memories[-1]))


def test_the_limit_of_an_owner_counts_no_other_owner(
    open_limited: Callable[..., OwnerStore], full: list[Memory], make_memory: Make
) -> None:
    other = open_limited("bob")
    memories = [make_memory(each.content, owner="bob") for each in full]
    write(other, *map(Add, memories))
    refused(other, Add(make_memory("one too many", owner="bob")))


def test_parallel_batches_fill_the_limit_and_no_more(
    open_limited: Callable[..., OwnerStore], make_memory: Make
) -> None:
    store, batches = open_limited(), [[make_memory(f"{batch}-{n}") for n in range(MOST)] for batch in range(8)]

    def store_one(batch: list[Memory]) -> None:
        with suppress(QuotaExceeded):
            write(store, *map(Add, batch))

    threads = [Thread(target=store_one, args=[batch]) for batch in batches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.census().memories == MOST
