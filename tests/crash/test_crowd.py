"""Many processes at once: none of them is turned away, and none of their memories is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from triskele.engine.local import LocalEngine

pytestmark = pytest.mark.slow

CROWD = 8
ADDS = 100
READERS = 2

ReadLog = Callable[[Path], list[dict[str, Any]]]
MakeGate = Callable[[], Path]
Gate = Callable[[Path], Any]


def test_eight_processes_add_at_once_while_others_read(
    tmp_path: Path,
    nursery: Any,
    read_log: ReadLog,
    make_gate: MakeGate,
    opened_gate: Gate,
    open_engine: Callable[..., LocalEngine],
) -> None:
    path, gate, stop = tmp_path / "store" / "memories.db", make_gate(), tmp_path / "stop"
    logs = [tmp_path / f"writer-{number}" for number in range(CROWD)]
    writers = [nursery.spawn("add_many", path, log, gate, ADDS, log.name) for log in logs]
    readings = [tmp_path / f"reader-{number}" for number in range(READERS)]
    readers = [nursery.spawn("read_until", path, log, gate, stop) for log in readings]
    with opened_gate(gate):
        nursery.wait(*writers)
        stop.touch()
        nursery.wait(*readers)
    assert all(read_log(log) for log in readings)
    contents = {line["id"]: line["content"] for log in logs for line in read_log(log)}
    assert len(contents) == CROWD * ADDS
    engine = open_engine(path)
    memories = engine.store.browse(engine.scope(all_projects=True), limit=10_000)
    assert {memory.id: memory.content for memory in memories} == contents
    assert engine.store.census().journal == CROWD * ADDS
    assert engine.upkeep.inspect(deep=True).findings == ()
    for id in sorted(contents)[:: CROWD * 4]:
        assert engine.recall(contents[id], all_projects=True).hits[0].memory.id == id


def test_a_brand_new_store_is_opened_by_eight_at_once(
    tmp_path: Path, nursery: Any, make_gate: MakeGate, opened_gate: Gate, open_engine: Callable[..., LocalEngine]
) -> None:
    for attempt in range(5):
        path, gate = tmp_path / f"new-{attempt}" / "memories.db", make_gate()
        log = tmp_path / f"log-{attempt}"
        crowd = [nursery.spawn("open_and_add", path, log, gate, 1, f"guest {number}") for number in range(CROWD)]
        with opened_gate(gate):
            nursery.wait(*crowd)
        assert open_engine(path).store.census().memories == CROWD


def test_opening_and_closing_in_turns_turns_nobody_away(
    tmp_path: Path,
    nursery: Any,
    read_log: ReadLog,
    make_gate: MakeGate,
    opened_gate: Gate,
    open_engine: Callable[..., LocalEngine],
) -> None:
    path, gate, log = tmp_path / "store" / "memories.db", make_gate(), tmp_path / "log"
    crowd = [nursery.spawn("open_and_add", path, log, gate, 15, f"guest {number}") for number in range(4)]
    with opened_gate(gate):
        nursery.wait(*crowd)
    ids = {line["id"] for line in read_log(log)}
    assert len(ids) == 60
    assert open_engine(path).store.memories(ids).keys() == ids
