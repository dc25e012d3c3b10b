"""Processes killed in the middle of their writes: nothing acknowledged is lost, and nothing is left locked."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from triskele.engine import workplace
from triskele.engine.local import LocalEngine

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("TRISKELE_KILLS", "200"))
WRITERS = 4
LONGEST_WAIT_S = 0.1
CHECK_EVERY = 50
# Of a writer before it may be killed; about half of them add a memory.
LEAST_WRITES = 4
PATIENCE_S = 60.0

Lines = list[dict[str, Any]]
ReadLog = Callable[[Path], Lines]


@pytest.mark.timeout(120 + 5 * KILLS)
def test_no_acknowledged_write_is_lost_however_often_writers_are_killed(
    tmp_path: Path, nursery: Any, read_log: ReadLog, open_engine: Callable[..., LocalEngine]
) -> None:
    path = tmp_path / "store" / "memories.db"
    logs = tmp_path / "logs"
    logs.mkdir()
    random = Random(f"kills {KILLS}")
    numbers = iter(range(1_000_000))

    def start() -> tuple[int, Path]:
        number = next(numbers)
        log = logs / f"{number:06}"
        return int(nursery.spawn("write", path, log, number)), log

    writers = [start() for _ in range(WRITERS)]
    for kill in range(1, KILLS + 1):
        writer, log = writers[place := random.randrange(WRITERS)]
        # Some die while they open the store; the others have written, however slow the machine is.
        if kill % 4:
            _until(lambda log=log: len(_acknowledged([read_log(log)])) >= LEAST_WRITES)  # type: ignore[misc]
        # A random moment is the point here, not a wait for something.
        time.sleep(random.random() * LONGEST_WAIT_S)
        nursery.kill(writer)
        writers[place] = start()
        if kill % CHECK_EVERY == 0:
            _check_while_writing(path, [read_log(log) for log in sorted(logs.iterdir())], open_engine)
    for writer, _ in writers:
        nursery.kill(writer)
    entries = [read_log(log) for log in sorted(logs.iterdir())]
    assert [line for lines in entries for line in lines if line.get("did") == "wrong"] == []
    _check_at_the_end(path, entries, open_engine)


def _until(is_so: Callable[[], bool]) -> None:
    ends = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < ends
        time.sleep(0.005)


def _check_while_writing(path: Path, told: list[Lines], open_engine: Callable[..., LocalEngine]) -> None:
    engine = open_engine(path)
    for line in _acknowledged(told):
        if line.get("content"):
            assert line["content"] in [version.content for version in engine.store.history(line["id"])]
    assert engine.upkeep.inspect(deep=True, repair=False).findings == ()
    engine.close()


def _check_at_the_end(path: Path, told: list[Lines], open_engine: Callable[..., LocalEngine]) -> None:
    engine = open_engine(path)
    # Asked without waiting: whoever held the lock is dead.
    assert engine.lexical.catch_up(wait_s=0)
    assert engine.lexical.behind() == 0
    assert engine.upkeep.inspect(deep=True, repair=False).findings == ()
    states = [_states(lines) for lines in told]
    # Without writes the kills would prove nothing.
    assert sum(len(state) for state in states) > KILLS
    for allowed in states:
        for id, contents in allowed.items():
            current = engine.store.memories([id]).get(id)
            assert (current.content if current else None) in contents
    _check_nothing_was_made_up(engine, told)
    _check_links(engine, told)
    _check_recall(engine)


def _states(lines: Lines) -> dict[str, set[str | None]]:
    """What each memory may say: what was acknowledged last, or what was under way when the writer died."""
    allowed: dict[str, set[str | None]] = {}
    for line in lines:
        if line.get("did") in ("add", "edit", "forget"):
            allowed[line["id"]] = {line["content"]}
    last = lines[-1] if lines else {}
    if last.get("started") in ("edit", "forget"):
        allowed[last["id"]].add(last["content"])
    return allowed


def _check_nothing_was_made_up(engine: LocalEngine, told: list[Lines]) -> None:
    contents = {line["content"] for lines in told for line in lines if line.get("content")}
    assert {memory.content for _, memory in engine.store.versions()} <= contents


def _check_links(engine: LocalEngine, told: list[Lines]) -> None:
    links = {(link.source, link.target) for link in engine.store.all_links()}
    acknowledged = {(line["id"], line["other"]) for line in _acknowledged(told) if line["did"] == "link"}
    assert acknowledged <= links


def _check_recall(engine: LocalEngine) -> None:
    for memory in engine.browse(limit=100).memories:
        [hit] = engine.recall(memory.content.split()[0]).hits
        assert hit.memory == memory


def _acknowledged(told: list[Lines]) -> Lines:
    return [line for lines in told for line in lines if line.get("did") in ("add", "edit", "forget", "link")]


@pytest.mark.parametrize("work", ["stall_in_catch_up", "stall_in_rebuild", "stall_before_rename"])
def test_an_index_writer_that_dies_leaves_no_lock_and_no_gap(
    tmp_path: Path, nursery: Any, open_engine: Callable[..., LocalEngine], work: str
) -> None:
    path = tmp_path / "store" / "memories.db"
    engine = open_engine(path)
    engine.remember("the heron stood in the pond")
    engine.upkeep.reindex()
    engine.remember("the heron flew away")
    dead = _stalled(nursery, work, path, tmp_path / "stall")
    assert not engine.lexical.catch_up(wait_s=0)
    nursery.kill(dead)
    assert engine.lexical.catch_up(wait_s=0)
    assert engine.lexical.behind() == 0
    assert len(engine.recall("heron").hits) == 2
    assert len(open_engine(path).recall("heron").hits) == 2
    assert not list((tmp_path / "store").glob("**/*.new"))


def test_a_transaction_cut_off_never_was(tmp_path: Path, nursery: Any, open_engine: Callable[..., LocalEngine]) -> None:
    path = tmp_path / "store" / "memories.db"
    engine = open_engine(path)
    kept = engine.remember("kept")
    dead = _stalled(nursery, "stall_in_transaction", path, tmp_path / "stall")
    nursery.kill(dead)
    assert [memory.id for memory in engine.browse().memories] == [kept.id]
    assert engine.store.census().journal == 1
    assert engine.remember("next").seq == 2
    assert engine.upkeep.inspect(deep=True).findings == ()


def test_a_project_is_renamed_as_a_whole_or_not_at_all(
    tmp_path: Path, nursery: Any, open_engine: Callable[..., LocalEngine]
) -> None:
    path = tmp_path / "store" / "memories.db"
    engine = open_engine(path)
    for number in range(3):
        engine.remember(f"number {number}", project="crash")
    engine.store.register_folder(["path:/crash"], lambda _: "crash")
    dead = _stalled(nursery, "stall_in_project_rename", path, tmp_path / "stall")
    nursery.kill(dead)
    assert {memory.project for memory in engine.browse(all_projects=True).memories} == {"crash"}
    assert [place.project for place in engine.store.folders()] == ["crash"]
    engine.apply(workplace.rename(engine.store, "crash", "renamed"))
    assert {memory.project for memory in engine.browse(all_projects=True).memories} == {"renamed"}
    assert [place.project for place in engine.store.folders()] == ["renamed"]
    assert engine.upkeep.inspect(deep=True).findings == ()


@pytest.mark.parametrize("work", ["stall_in_transaction", "stall_in_catch_up"])
def test_readers_go_on_while_a_writer_stands_still(
    tmp_path: Path, nursery: Any, open_engine: Callable[..., LocalEngine], work: str
) -> None:
    path = tmp_path / "store" / "memories.db"
    engine = open_engine(path)
    engine.remember("a lamp")
    engine.upkeep.reindex()
    engine.remember("kept")
    dead = _stalled(nursery, work, path, tmp_path / "stall")
    assert [hit.memory.content for hit in open_engine(path).recall("kept").hits] == ["kept"]
    nursery.kill(dead)


def _stalled(nursery: Any, work: str, path: Path, pipe: Path) -> Any:
    """A process that has come to where its work stalls."""
    os.mkfifo(pipe)
    process = nursery.spawn(work, path, pipe)
    with pipe.open() as lines:
        assert "stall" in lines.readline()
    return process
