"""A small memory whose names have been read, and views of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from triskele.engine.local import LocalEngine
from triskele.graph.view import View
from triskele.index.name_linking import read_names


class Team:
    """Remembers texts and shows the graph of them as a reader would see it."""

    def __init__(self, engine: LocalEngine) -> None:
        self.engine = engine
        self._count = 0
        self.mentions = engine.models.open_indexes().mentions

    def add(self, text: str, **details: Any) -> str:
        return self.engine.remember(text, **details).id

    def tag(self, *tags: str, **details: Any) -> str:
        """A memory that mentions its tags and nothing else."""
        self._count += 1
        return self.add(f"it happened {self._count} times", tags=tags, **details)

    def view(self, *, any_time: bool = False, **place: Any) -> View:
        read_names(self.engine.store, self.engine.lexical)
        scope = replace(self.engine.scope(**place), any_time=any_time)
        columns = self.engine.models.open_indexes().catalog.view()
        return View.open(self.engine.store, self.mentions, columns, scope)


@pytest.fixture
def team(open_engine: Callable[..., LocalEngine]) -> Team:
    return Team(open_engine())
