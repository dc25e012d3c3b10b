"""The toy model and an engine that embeds with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from toy_model import Toy, open_toy

from triskele.engine.local import LocalEngine
from triskele.index import local


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Toy:
    """The model that every engine of the test opens."""
    model = Toy()
    monkeypatch.setattr(local, "bundled", lambda: model)
    return model


@pytest.fixture
def engine(tmp_path: Path, toy: Toy) -> Iterator[LocalEngine]:
    with open_toy(tmp_path / "home") as opened:
        yield opened
