"""Every store passes the same tests: one factory per store, given an empty folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from triskele.stores.protocol import Store
from triskele.stores.sqlite.store import SqliteStore
from triskele.types import Add, Change, Memory, Outcome

STORES: dict[str, Callable[[Path], Store]] = {"sqlite": lambda folder: SqliteStore(folder / "store.db")}


@pytest.fixture(params=sorted(STORES))
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Store]]:
    """Opens the store of a name; the same name twice is the same store."""
    opened: list[Store] = []

    def open_one(name: str = "first") -> Store:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        opened.append(STORES[request.param](folder))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Callable[..., Store]) -> Store:
    return open_store()


@pytest.fixture
def do(store: Store) -> Callable[..., list[Outcome]]:
    """Applies changes under a batch name of their own."""
    batches = iter(range(1, 10_000))

    def apply(*changes: Change) -> list[Outcome]:
        return store.apply(changes, batch=f"batch-{next(batches)}")

    return apply


@pytest.fixture
def add(do: Callable[..., list[Outcome]], make_memory: Callable[..., Memory]) -> Callable[..., Memory]:
    """Stores a new memory and gives it back."""

    def add_one(content: str | None = None, **details: object) -> Memory:
        memory = make_memory(**details)
        memory = make_memory(content or f"the memory called {memory.id}", **({"id": memory.id} | details))
        do(Add(memory))
        return memory

    return add_one
