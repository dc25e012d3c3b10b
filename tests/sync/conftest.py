"""The stores and the world of tests of sync."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sync_world import Stores, World, opened


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """In memory where that is possible: histories write more than anything else."""
    shared = Path("/dev/shm")
    made = Path(tempfile.mkdtemp(prefix="triskele-sync-", dir=shared if os.access(shared, os.W_OK) else None))
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def stores(folder: Path) -> Iterator[Stores]:
    with opened(folder / "sqlite") as found:
        yield found


@pytest.fixture
def server_stores(folder: Path, postgres_url: str) -> Iterator[Stores]:
    """The same with the server's memories in Postgres."""
    with opened(folder / "postgres", server=postgres_url) as stores:
        yield stores


@pytest.fixture
def world(stores: Stores) -> World:
    return World(stores)
