"""Every store passes the same tests; one that keeps truth alone passes those of the modules that say `TRUTH = True`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from contract.memory_store import MemoryStores

from triskele import config
from triskele.store import open as stores
from triskele.store.owner import Maintenance, OwnerStore, Store
from triskele.store.writer import MemoryLimits
from triskele.types import Add, Change, Memory, Outcome

Open = Callable[[Path, MemoryLimits | None], Store]


def _sqlite(_: pytest.FixtureRequest) -> Open:
    def open_one(folder: Path, limits: MemoryLimits | None) -> Store:
        settings = config.load({"TRISKELE_HOME": str(folder)}, store_url=f"sqlite:///{folder / 'store.db'}")
        return stores.open_store(settings, limits=limits)

    return open_one


def _postgres(request: pytest.FixtureRequest) -> Open:
    """A database for each folder, on the server of the session."""
    new_postgres, urls = request.getfixturevalue("new_postgres"), dict[Path, str]()

    def open_one(folder: Path, limits: MemoryLimits | None) -> Store:
        urls[folder] = urls.get(folder) or new_postgres()
        return stores.open_store(config.load({"TRISKELE_HOME": str(folder)}, store_url=urls[folder]), limits=limits)

    return open_one


# By name: what makes a function that opens the store of a folder. The first keep everything, the others truth alone.
WHOLE: dict[str, Callable[[pytest.FixtureRequest], Open]] = {"postgres": _postgres, "sqlite": _sqlite}
TRUTH_ALONE: dict[str, Callable[[pytest.FixtureRequest], Open]] = {"memory": lambda _: MemoryStores()}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test over every store that can pass it."""
    if "store_kind" in metafunc.fixturenames:
        kinds = WHOLE | TRUTH_ALONE if getattr(metafunc.module, "TRUTH", False) else WHOLE
        marked = [pytest.param(kind, marks=pytest.mark.slow) if kind == "postgres" else kind for kind in sorted(kinds)]
        metafunc.parametrize("store_kind", marked)


@pytest.fixture
def open_unbound(store_kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., Store]]:
    """Opens the store of a name, bound to no owner; the same name twice is the same store."""
    opened: list[Store] = []
    opener = (WHOLE | TRUTH_ALONE)[store_kind](request)

    def open_one(name: str = "first", limits: MemoryLimits | None = None) -> Store:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        opened.append(opener(folder, limits))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def unbound(open_unbound: Callable[..., Store]) -> Store:
    return open_unbound()


@pytest.fixture
def open_store(open_unbound: Callable[..., Store]) -> Callable[..., OwnerStore]:
    """Opens the store of a name as one owner sees it."""
    return lambda name="first", owner="me": open_unbound(name).for_owner(owner)


@pytest.fixture
def store(unbound: Store) -> OwnerStore:
    return unbound.for_owner("me")


@pytest.fixture
def maintenance(unbound: Store) -> Maintenance:
    """Care for the files of the store."""
    assert unbound.maintenance is not None
    return unbound.maintenance


@pytest.fixture
def open_maintenance(open_unbound: Callable[..., Store]) -> Callable[..., Maintenance]:
    """Opens the store of a name to care for its files."""

    def open_one(name: str) -> Maintenance:
        maintenance = open_unbound(name).maintenance
        assert maintenance is not None
        return maintenance

    return open_one


@pytest.fixture
def do(store: OwnerStore) -> Callable[..., list[Outcome]]:
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
