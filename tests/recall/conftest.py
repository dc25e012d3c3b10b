"""Engines with the notes, embedded or not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from embedded_notes import fill, open_engine

from triskele.engine.local import LocalEngine


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalEngine, list[str]]]:
    """Every note with its vectors; tests must leave it as it is."""
    with open_engine(tmp_path_factory.mktemp("embedded")) as engine:
        ids = fill(engine)
        engine.upkeep.embed()
        yield engine, ids


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[LocalEngine]:
    with open_engine(tmp_path / "home") as opened:
        yield opened
