"""Stores to ask about: small ones by words alone, and the sample team's with the model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from triskele import config
from triskele.bench.own.questions import JudgedSet, OwnQuestion
from triskele.engine.local import LocalEngine


@pytest.fixture
def engine(open_engine: Callable[..., LocalEngine]) -> LocalEngine:
    """An empty store that recalls by words."""
    return open_engine()


@pytest.fixture
def team(team_home: Path, tmp_path: Path) -> Iterator[LocalEngine]:
    """The sample memories in a store of one's own."""
    home = tmp_path / "team"
    shutil.copytree(team_home, home)
    with LocalEngine(config.load({"TRISKELE_HOME": str(home), "TRISKELE_PROJECT": "demo"}), tmp_path) as opened:
        yield opened


@pytest.fixture
def write_lines(tmp_path: Path) -> Callable[..., Path]:
    """Writes a file of one JSON object a line."""

    def write(*rows: Mapping[str, Any], name: str = "rows.jsonl") -> Path:
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    return write


@pytest.fixture
def judged_of() -> Callable[..., JudgedSet]:
    """A judged set out of grades by question; a question's type may be given."""

    def make(grades: Mapping[str, Mapping[str, int]], types: Iterable[str] = ()) -> JudgedSet:
        kinds = list(types) or ["paraphrase"] * len(grades)
        made = (
            OwnQuestion(id=id, text=id, type=kind, generator="user", judged="hand")
            for id, kind in zip(grades, kinds, strict=True)
        )
        return JudgedSet(tuple(made), grades, {})

    return make
