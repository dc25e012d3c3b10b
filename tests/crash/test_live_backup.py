"""Backups of a store that others are writing to."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from triskele.engine.local import LocalEngine
from triskele.types import Add

WRITERS = 3
BACKUPS = 3
FILLERS = 1500

ReadLog = Callable[[Path], list[dict[str, Any]]]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_live_backup_holds_all_that_was_acknowledged_before_it_began(
    tmp_path: Path, nursery: Any, read_log: ReadLog, open_engine: Callable[..., LocalEngine]
) -> None:
    path = tmp_path / "store" / "memories.db"
    engine = open_engine(path)
    engine.apply([Add(engine.draft(f"filler {number} " + "x" * 1200)) for number in range(FILLERS)])
    logs = [tmp_path / f"log-{number}" for number in range(WRITERS)]
    writers = [nursery.spawn("write", path, log, number) for number, log in enumerate(logs)]
    acknowledged: list[dict[str, Any]] = []
    for number in range(BACKUPS):
        acknowledged = _acknowledged_beyond(len(acknowledged), logs, read_log)
        target = tmp_path / f"copy-{number}.db"
        engine.upkeep.backup(target)
        _check_copy(target, acknowledged, open_engine)
    for writer in writers:
        nursery.kill(writer)
    _check_restored(tmp_path / f"copy-{BACKUPS - 1}.db", open_engine(tmp_path / "second" / "memories.db"))


def _acknowledged_beyond(count: int, logs: list[Path], read_log: ReadLog) -> list[dict[str, Any]]:
    """All that the writers acknowledged, as soon as it is more than before."""
    while True:
        entries = [line for log in logs for line in read_log(log) if line.get("did") in ("add", "edit")]
        if len(entries) > count + WRITERS:
            return entries
        time.sleep(0.01)


def _check_copy(target: Path, acknowledged: list[dict[str, Any]], open_engine: Callable[..., LocalEngine]) -> None:
    copy = open_engine(target)
    assert copy.maintenance.check(deep=True) == []
    for line in acknowledged:
        assert line["content"] in [version.content for version in copy.store.history(line["id"])]
    copy.close()


def _check_restored(source: Path, engine: LocalEngine) -> None:
    """A store restored from the copy answers rightly, and its last change can be taken back."""
    engine.remember("gone with the restoring")
    engine.upkeep.restore_backup(source)
    assert engine.upkeep.inspect(deep=True).findings == ()
    assert engine.recall("restoring", all_projects=True).hits == ()
    newest = engine.browse(all_projects=True, limit=20).memories
    written = [memory for memory in newest if not memory.content.startswith("filler")]
    assert written
    for memory in written:
        hits = engine.recall(memory.content.split()[0], all_projects=True).hits
        assert [(hit.memory.id, hit.memory.version) for hit in hits] == [(memory.id, memory.version)]
    added = engine.remember("added after the restoring")
    assert [hit.memory.id for hit in engine.recall("restoring", all_projects=True).hits] == [added.id]
    engine.undo()
    assert engine.recall("restoring", all_projects=True).hits == ()
    before = engine.store.census().journal
    assert engine.undo().outcomes
    assert engine.store.census().journal > before
