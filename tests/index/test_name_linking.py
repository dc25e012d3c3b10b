"""Reading names: a memory's mentions reach the book, in both directions of time, once, and whatever the batch."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest

from triskele.engine.local import LocalEngine
from triskele.index import lifecycle, name_linking
from triskele.index.lifecycle import alone
from triskele.index.name_linking import FOUND, read_names
from triskele.store.values import BY_HAND, Named
from triskele.text import timestamps
from triskele.types import Memory

Open = Callable[..., LocalEngine]


@pytest.fixture
def engine(open_engine: Open) -> LocalEngine:
    return open_engine()


def _said(engine: LocalEngine) -> dict[str, dict[str, str]]:
    """For every memory the names it mentions, with their kinds."""
    contents = {row: memory.content for row, memory in engine.store.versions()}
    names: dict[str, dict[str, str]] = {content: {} for content in contents.values()}
    for mention in engine.store.names.mentions():
        names[contents[mention.row]][engine.store.names.numbered([mention.name])[mention.name].key] = mention.kind
    return names


def _read(engine: LocalEngine, limit: int | None = None) -> int:
    return read_names(engine.store, engine.lexical, limit=limit)


def test_names_are_read_once(engine: LocalEngine) -> None:
    engine.remember("Argo CD is the deployment tool of the Heron team")
    assert _read(engine) == 1
    assert _read(engine) == 0
    ((_, names),) = _said(engine).items()
    assert names["argo cd"] == "title"
    assert "heron" in names or "heron team" in names


def test_new_memory_is_linked_to_stored_names(engine: LocalEngine) -> None:
    engine.remember("zanzibar: the name of the staging cluster")
    _read(engine)
    later = "we restart zanzibar every Sunday"
    engine.remember(later)
    _read(engine)
    assert _said(engine)[later]["zanzibar"] == FOUND


@pytest.mark.parametrize("texts_per_search", [0, 1000])
@pytest.mark.parametrize("limit", [None, 1])
def test_a_new_name_finds_the_older_memories_that_hold_it(
    engine: LocalEngine, limit: int | None, texts_per_search: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name_linking, "_TEXTS_PER_SEARCH", texts_per_search)
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
    messages = []
    for batch in (2, 100):
        monkeypatch.setattr(name_linking, "BATCH", batch)
        engine = open_engine(tmp_path / f"{batch}.db")
        for content in contents:
            engine.remember(content)
        _read(engine)
        messages.append({content: set(names) for content, names in _said(engine).items()})
    assert messages[0] == messages[1]
    assert "juno temple" in messages[0]["Ticket 3: Juno Temple asked for the Kestrel report"]


def test_an_explained_acronym_stands_for_its_expansion(engine: LocalEngine) -> None:
    engine.remember("Continuous Integration (CI) runs on every push")
    engine.remember("CI was broken on Monday")
    _read(engine)
    names = engine.store.names.find(["ci", "continuous integration"])
    assert names["ci"].concept == names["continuous integration"].concept


def test_names_stay_with_their_owner(engine: LocalEngine, open_engine: Callable[..., LocalEngine]) -> None:
    other = open_engine(owner="you")
    engine.remember("zanzibar: the name of my cat")
    other.remember("we flew to zanzibar")
    engine.remember("it is warm in zanzibar today")
    _read(engine)
    _read(other)
    assert _said(engine)["it is warm in zanzibar today"]["zanzibar"] == FOUND
    assert "zanzibar" not in _said(other)["we flew to zanzibar"]


def test_an_acronym_is_joined_too_when_it_is_explained_later(engine: LocalEngine) -> None:
    engine.remember("CI was broken on Monday")
    _read(engine)
    engine.remember("Continuous Integration (CI) runs on every push")
    _read(engine)
    names = engine.store.names.find(["ci", "continuous integration"])
    assert names["ci"].concept == names["continuous integration"].concept
    engine.store.names.set_concepts({names["ci"].name: names["ci"].name}, BY_HAND)
    engine.remember("we pay for Continuous Integration (CI) by the minute")
    _read(engine)
    names = engine.store.names.find(["ci", "continuous integration"])
    assert names["ci"].concept != names["continuous integration"].concept


# One reader at a time


def _texts_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The contents that any reader reads from now on, as often as each is read."""
    read: list[str] = []
    named = name_linking._Known.named

    def noted(known: name_linking._Known, memory: Memory) -> list[Named]:
        read.append(memory.content)
        return named(known, memory)

    monkeypatch.setattr(name_linking._Known, "named", noted)
    return read


def test_two_readers_never_read_the_same_text(open_engine: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = open_engine(), open_engine()
    texts = [f"Argo CD release {number} is run by the Heron team" for number in range(6)]
    one.remember_all([{"content": text} for text in texts])
    read, begun, may_go_on = _texts_read(monkeypatch), Event(), Event()
    view = one.lexical.view

    def held() -> object:
        begun.set()
        assert may_go_on.wait(60)
        return view()

    monkeypatch.setattr(one.lexical, "view", held)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(_read, one)
        assert begun.wait(60)
        # Whoever takes only a part, or lets others go first, leaves it to the reader at work.
        assert _read(other, limit=3) == 0
        assert read_names(other.store, other.lexical, wait=False) == 0
        # Whoever wants everything read waits for that reader.
        waiting = pool.submit(_read, other)
        may_go_on.set()
        assert (first.result(60), waiting.result(60)) == (6, 0)
    assert sorted(read) == texts


def test_the_lease_of_a_dead_reader_runs_out(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.remember("Argo CD is the deployment tool of the Heron team")
    read, now = _texts_read(monkeypatch), timestamps.now()
    monkeypatch.setattr(timestamps, "now", lambda: now)
    dead = alone(engine.store, name_linking._READER, 20.0, wait=True)
    assert dead.__enter__()
    assert _read(engine, limit=1) == 0
    now += timedelta(seconds=19)
    assert _read(engine, limit=1) == 0
    now += timedelta(seconds=1)
    assert _read(engine, limit=1) == 1
    assert len(read) == 1


def test_a_reader_that_fails_lets_the_next_one_in(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.remember("Argo CD is the deployment tool of the Heron team")
    with monkeypatch.context() as patch:
        patch.setattr(name_linking._Known, "named", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            _read(engine)
    assert _read(engine, limit=1) == 1


def test_a_reader_that_took_longer_than_its_lease_leaves_that_of_the_next_alone(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.remember("Argo CD is the deployment tool of the Heron team")
    now, passed = timestamps.now(), 0.0
    monkeypatch.setattr(timestamps, "now", lambda: now)
    monkeypatch.setattr(lifecycle, "time", SimpleNamespace(monotonic=lambda: passed))
    slow = alone(engine.store, name_linking._READER, 20.0, wait=True)
    assert slow.__enter__()
    now, passed = now + timedelta(seconds=20), passed + 20
    with alone(engine.store, name_linking._READER, 20.0, wait=True) as is_reader:
        assert is_reader
        slow.__exit__(None, None, None)
        assert _read(engine, limit=1) == 0
