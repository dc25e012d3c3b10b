"""Reading names: a memory's mentions reach the book, in both directions of time, once, and whatever the batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from triskele.engine import Engine
from triskele.index import entity_linking
from triskele.index.entity_linking import FOUND, read_names
from triskele.stores.derived import BY_HAND

Open = Callable[..., Engine]


@pytest.fixture
def engine(open_engine: Open) -> Engine:
    return open_engine()


def _said(engine: Engine) -> dict[str, dict[str, str]]:
    """For every memory the names it mentions, with their kinds."""
    contents = {row: memory.content for row, memory in engine.store.versions()}
    said: dict[str, dict[str, str]] = {content: {} for content in contents.values()}
    for mention in engine.store.entities.mentions():
        said[contents[mention.row]][engine.store.entities.numbered([mention.name])[mention.name].key] = mention.kind
    return said


def _read(engine: Engine, limit: int | None = None) -> int:
    return read_names(engine.store, engine.lexical, limit=limit)


def test_names_are_read_once(engine: Engine) -> None:
    engine.remember("Argo CD is the deployment tool of the Heron team")
    assert _read(engine) == 1
    assert _read(engine) == 0
    ((_, names),) = _said(engine).items()
    assert names["argo cd"] == "title"
    assert "heron" in names or "heron team" in names


def test_a_new_memory_is_read_for_names_that_are_known(engine: Engine) -> None:
    engine.remember("zanzibar: the name of the staging cluster")
    _read(engine)
    later = "we restart zanzibar every Sunday"
    engine.remember(later)
    _read(engine)
    assert _said(engine)[later]["zanzibar"] == FOUND


@pytest.mark.parametrize("texts_per_search", [0, 1000])
@pytest.mark.parametrize("limit", [None, 1])
def test_a_new_name_finds_the_older_memories_that_hold_it(
    engine: Engine, limit: int | None, texts_per_search: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entity_linking, "_TEXTS_PER_SEARCH", texts_per_search)
    older = "we restart zanzibar every Sunday, unless it rains"
    engine.remember(older)
    engine.remember("nothing of interest happened on that island")
    _read(engine)
    assert "zanzibar" not in _said(engine)[older]
    engine.remember("zanzibar: the name of the staging cluster")
    _read(engine, limit)
    assert _said(engine)[older]["zanzibar"] == FOUND


def test_many_memories_at_once_are_read_as_one_by_one(
    open_engine: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = [f"Ticket {number}: Juno Temple asked for the Kestrel report" for number in range(6)]
    contents += ["the kestrel report is due on Friday", "Kestrel report: quarterly figures", "Juno Temple is on leave"]
    said = []
    for batch in (2, 100):
        monkeypatch.setattr(entity_linking, "BATCH", batch)
        engine = open_engine(tmp_path / f"{batch}.db")
        for content in contents:
            engine.remember(content)
        _read(engine)
        said.append({content: set(names) for content, names in _said(engine).items()})
    assert said[0] == said[1]
    assert "juno temple" in said[0]["Ticket 3: Juno Temple asked for the Kestrel report"]


def test_an_explained_acronym_stands_for_its_expansion(engine: Engine) -> None:
    engine.remember("Continuous Integration (CI) runs on every push")
    engine.remember("CI was broken on Monday")
    _read(engine)
    names = engine.store.entities.find(["ci", "continuous integration"])
    assert names["ci"].concept == names["continuous integration"].concept


def test_owners_do_not_learn_names_from_each_other(engine: Engine, open_engine: Callable[..., Engine]) -> None:
    other = open_engine(owner="you")
    engine.remember("zanzibar: the name of my cat")
    other.remember("we flew to zanzibar")
    engine.remember("it is warm in zanzibar today")
    _read(engine)
    _read(other)
    assert _said(engine)["it is warm in zanzibar today"]["zanzibar"] == FOUND
    assert "zanzibar" not in _said(other)["we flew to zanzibar"]


def test_an_acronym_is_joined_too_when_it_is_explained_later(engine: Engine) -> None:
    engine.remember("CI was broken on Monday")
    _read(engine)
    engine.remember("Continuous Integration (CI) runs on every push")
    _read(engine)
    names = engine.store.entities.find(["ci", "continuous integration"])
    assert names["ci"].concept == names["continuous integration"].concept
    engine.store.entities.regroup({names["ci"].name: names["ci"].name}, BY_HAND)
    engine.remember("we pay for Continuous Integration (CI) by the minute")
    _read(engine)
    names = engine.store.entities.find(["ci", "continuous integration"])
    assert names["ci"].concept != names["continuous integration"].concept
