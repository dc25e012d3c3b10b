"""Forgetting for good: no file of the store keeps a byte of it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import apsw
import pytest

from triskele.engine.local import LocalEngine
from triskele.errors import StoreUnavailable
from triskele.types import Add, LinkKind

NewWord = Callable[[], str]
Traces = Callable[[Path, Iterable[str]], set[tuple[str, str]]]
OpenEngine = Callable[..., LocalEngine]


@pytest.fixture
def engine(open_engine: OpenEngine) -> LocalEngine:
    """An engine over enough other memories to fill some pages."""
    opened = open_engine(busy_timeout_s=0.2)
    opened.apply([Add(opened.draft(f"memory {number} of the common stock " + "x" * 300)) for number in range(60)])
    return opened


@pytest.fixture
def words(new_word: NewWord) -> list[str]:
    return [new_word() for _ in range(4)]


def _remember(engine: LocalEngine, words: list[str]) -> str:
    first, second, tag, keyword = words
    return engine.remember(f"{first} met {second}", tags=[tag], keywords=f"about {keyword}").id


def test_search_for_bytes_reports_remains(
    engine: LocalEngine, tmp_path: Path, words: list[str], traces: Traces
) -> None:
    _remember(engine, words)
    engine.lexical.catch_up()
    remains = traces(tmp_path, words)
    assert {word for _, word in remains} == set(words)
    assert {(".term", word) for word in words} <= remains
    assert {suffix for suffix, _ in remains} & {".db", ".db-wal"}


@pytest.mark.parametrize("is_indexed", [True, False], ids=["on disk", "in the tail"])
def test_nothing_is_left_of_a_memory(
    engine: LocalEngine, tmp_path: Path, words: list[str], traces: Traces, is_indexed: bool
) -> None:
    id = _remember(engine, words)
    if is_indexed:
        engine.lexical.catch_up()
    assert engine.recall(words[0]).hits
    engine.erase(id)
    assert traces(tmp_path, words) == set()
    assert engine.recall(words[0]).hits == ()
    assert engine.store.census().memories == 60
    assert engine.upkeep.inspect(deep=True).findings == ()


def test_nothing_is_left_of_older_versions_successors_and_links(
    engine: LocalEngine, tmp_path: Path, words: list[str], new_word: NewWord, traces: Traces
) -> None:
    id = _remember(engine, words)
    edited, successor = [new_word() for _ in range(4)], new_word()
    engine.edit(id, content=f"{edited[0]} {edited[1]}", tags=[edited[2]], keywords=edited[3])
    engine.lexical.catch_up()
    other = engine.remember(f"{successor} came later", supersedes=id).id
    engine.link(id, LinkKind.SEE_ALSO, other)
    engine.undo()
    engine.forget(id)
    engine.erase(id)
    assert traces(tmp_path, [*words, *edited]) == set()
    assert {word for _, word in traces(tmp_path, [successor])} == {successor}
    assert [hit.memory.id for hit in engine.recall(successor).hits] == [other]


def test_several_are_erased_at_once(
    engine: LocalEngine, tmp_path: Path, words: list[str], new_word: NewWord, traces: Traces
) -> None:
    more = [new_word() for _ in range(4)]
    engine.erase(_remember(engine, words), _remember(engine, more))
    assert traces(tmp_path, words + more) == set()


def test_idle_readers_do_not_keep_anything(
    engine: LocalEngine, open_engine: OpenEngine, tmp_path: Path, words: list[str], traces: Traces
) -> None:
    id = _remember(engine, words)
    other = open_engine()
    assert other.recall(words[0]).hits
    thread = threading.Thread(target=engine.recall, args=[words[0]])
    thread.start()
    thread.join()
    engine.erase(id)
    assert traces(tmp_path, words) == set()
    assert other.recall(words[0]).hits == ()
    assert other.recall(words[0], known_at="2999-01-01").hits == ()


def test_an_open_reader_is_named_and_the_rest_is_done_when_it_has_gone(
    engine: LocalEngine, tmp_path: Path, words: list[str], traces: Traces
) -> None:
    id = _remember(engine, words)
    engine.lexical.catch_up()
    reader = apsw.Connection(str(tmp_path / "home" / "memories.db"))
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM versions").fetchall()
    with pytest.raises(StoreUnavailable, match="doctor"):
        engine.erase(id)
    assert engine.store.history(id) == []
    assert engine.recall(words[0]).hits == ()
    assert not engine.maintenance.is_scrubbed()
    reader.close()
    engine.upkeep.inspect(deep=True)
    assert engine.maintenance.is_scrubbed()
    assert traces(tmp_path, words) == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("deep", "is_caught_up"),
    [
        pytest.param(True, False, id="deep"),
        pytest.param(True, True, id="deep, after others have caught up"),
        pytest.param(False, False, id="plain"),
    ],
)
def test_doctor_completes_an_erasure_after_a_crash(
    engine: LocalEngine,
    open_engine: OpenEngine,
    tmp_path: Path,
    words: list[str],
    traces: Traces,
    deep: bool,
    is_caught_up: bool,
) -> None:
    id = _remember(engine, words)
    engine.upkeep.reindex()
    engine.close()
    died = subprocess.run([sys.executable, "-c", _DIE_BEFORE_SCRUBBING, str(tmp_path), id], check=False)
    assert died.returncode == -9
    assert traces(tmp_path, words) != set()
    assert not open_engine().maintenance.is_scrubbed()
    again = open_engine()
    assert again.recall(words[0]).hits == ()
    if is_caught_up:
        again.lexical.catch_up()
    assert again.upkeep.inspect(deep=deep).findings == ()
    assert traces(tmp_path, words) == set()


_DIE_BEFORE_SCRUBBING = """
import os, signal, sys
from pathlib import Path
from triskele import config
from triskele.engine.local import LocalEngine
from triskele.store.sqlite import maintenance

folder, id = Path(sys.argv[1]), sys.argv[2]
maintenance.scrub = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
LocalEngine(config.load({"TRISKELE_HOME": str(folder / "home")}), folder).erase(id)
"""


def test_the_journal_keeps_the_id_and_that_it_was_erased(engine: LocalEngine, words: list[str]) -> None:
    id = _remember(engine, words)
    engine.erase(id)
    assert [entry.action.value for entry in engine.store.journal(id=id)] == ["added", "erased"]
    assert engine.store.find(id) == []


def test_changes_before_an_erasure_can_be_undone(engine: LocalEngine, words: list[str]) -> None:
    added = engine.remember("the kettle is red")
    id = _remember(engine, words)
    engine.link(added.id, LinkKind.SEE_ALSO, id)
    engine.erase(id)
    assert [outcome.id for outcome in engine.undo(added.batch).outcomes] == [added.id]
    assert engine.recall("kettle").hits == ()
