"""Forgetting for good with names read: neither a name nor a spelling of it stays in any file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from triskele.engine.local import LocalEngine
from triskele.index.mentions import MentionIndex
from triskele.index.name_linking import read_names
from triskele.types import Add

NewWord = Callable[[], str]
Traces = Callable[[Path, Iterable[str]], set[tuple[str, str]]]


@pytest.fixture
def engine(open_engine: Callable[..., LocalEngine]) -> LocalEngine:
    """An engine over other memories that mention what everybody does."""
    opened = open_engine(model="bundled")
    opened.apply([Add(opened.draft(f"{number} boats berth at Port Veldhaven")) for number in range(5)])
    return opened


@pytest.fixture
def words(new_word: NewWord) -> list[str]:
    return [new_word() for _ in range(5)]


def _remember(engine: LocalEngine, words: list[str]) -> str:
    """A memory full of names, read by words and meaning, its mentions written to the file."""
    first, second, third, tag, keyword = words
    text = f"{first} is run by {second} with the `{third}` key at Port Veldhaven"
    id = engine.remember(text, tags=[tag], keywords=keyword).id
    engine.upkeep.embed()
    semantic = engine.semantic()
    assert semantic is not None
    semantic.mentions.rebuild()
    return id


def _names(engine: LocalEngine) -> set[str]:
    return {name.key for name in engine.store.names.known()}


def test_the_names_were_there(engine: LocalEngine, words: list[str], tmp_path: Path) -> None:
    _remember(engine, words)
    assert {word.lower() for word in words} <= _names(engine)
    assert list(tmp_path.rglob("mentions-*/values"))


def test_nothing_is_left_of_the_names_of_a_memory(
    engine: LocalEngine, words: list[str], tmp_path: Path, traces: Traces
) -> None:
    id = _remember(engine, words)
    assert engine.recall(words[0]).hits[0].memory.id == id
    rows = {row for row, _ in engine.store.versions([id])}
    engine.erase(id)
    assert traces(tmp_path, words) == set()
    assert "port veldhaven" in _names(engine)
    index = MentionIndex(engine.lexical.path.parent, engine.store)
    assert index.damaged() == 0
    concepts = np.array([name.concept for name in engine.store.names.known()])
    _, holders, _ = index.view().holders(concepts)
    assert holders.size and not rows & set(holders.tolist())


def test_erase_leaves_no_byte_of_merged_or_reread_names(
    engine: LocalEngine, words: list[str], new_word: NewWord, tmp_path: Path, traces: Traces
) -> None:
    id = _remember(engine, words)
    engine.concepts.merge(words[0], words[1])
    engine.upkeep.rebuild_graph()
    engine.store.names.forget()
    engine.erase(id)
    read_names(engine.store, engine.lexical)
    assert traces(tmp_path, words) == set()


def test_a_spelling_that_only_the_erased_memory_had_goes_too(
    engine: LocalEngine, words: list[str], tmp_path: Path
) -> None:
    shouted = words[0].upper()
    id = engine.remember(f"{shouted} is run by everybody").id
    engine.remember(f"we met {words[0]} in June")
    engine.upkeep.embed()
    assert any(shouted == name.text for name in engine.store.names.known())
    engine.erase(id)
    assert words[0].lower() in _names(engine)
    assert not any(shouted.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
