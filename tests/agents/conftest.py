"""Desks of agents, which close after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from desk import Desk


@pytest.fixture
def open_desk(tmp_path: Path) -> Iterator[Callable[..., Desk]]:
    opened: list[Desk] = []

    def open_one(agents: str = "") -> Desk:
        opened.append(Desk(tmp_path, agents))
        return opened[-1]

    yield open_one
    for desk in opened:
        desk.engine.close()


@pytest.fixture
def desk(open_desk: Callable[..., Desk]) -> Desk:
    return open_desk()
