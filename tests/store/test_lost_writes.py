"""Acknowledged writes that are gone are told with what is known of them, and no evidence is removed."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from triskele.engine.local import LocalEngine
from triskele.store.sqlite import lost_writes
from triskele.store.sqlite.store import SqliteStore
from triskele.types import Add, Memory, Origin

FRAME = 24 + 4096
OpenEngine = Callable[..., LocalEngine]


def _copied(engine: LocalEngine, target: Path) -> Path:
    """The files of a live store, as a killed process leaves them."""
    home = Path(engine.settings.home)
    shutil.copytree(home, target)
    return target / "memories.db"


def _cut(log: Path) -> None:
    log.write_bytes(log.read_bytes()[: 32 + 3 * FRAME])


def _flip(log: Path) -> None:
    data = bytearray(log.read_bytes())
    data[32 + 3 * FRAME + 1000] ^= 4
    log.write_bytes(data)


def _remove(log: Path) -> None:
    log.unlink()


@pytest.fixture
def written(open_engine: OpenEngine) -> LocalEngine:
    """A store in use: the first memory is in the database, the later ones are in its log."""
    with open_engine() as first:
        first.remember("the heron fishes at dawn")
    engine = open_engine()
    for text in ("the otter sleeps at noon", "the kingfisher dives at dusk", "the crane arrives in March"):
        engine.remember(text)
    return engine


def test_ledger_is_private_and_holds_the_bytes_written(written: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    # As on Windows, where a bare descriptor translates line ends: no line would keep its checksum.
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data.replace(b"\n", b"\r\n")))
    ledger = lost_writes.ledger(Path(written.settings.home) / "memories.db")
    ledger.unlink()
    written.remember("the bittern booms at night")
    assert b"\n" in ledger.read_bytes() and b"\r" not in ledger.read_bytes()
    assert stat.S_IMODE(ledger.stat().st_mode) == 0o600


@pytest.mark.parametrize("damage", [_cut, _flip, _remove])
def test_damaged_log_is_reported_with_ids_and_times(
    written: LocalEngine, open_engine: OpenEngine, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    newest = written.store.newest_entries(limit=3)
    path = _copied(written, tmp_path / "copy")
    damage(path.with_name("memories.db-wal"))
    path.with_name("memories.db-shm").unlink()
    with open_engine(path) as engine:
        health = engine.upkeep.inspect()
        assert not health.is_whole
        [lost] = health.lost
        assert {newest[0].id} <= {entry.id for entry in lost.entries} <= {entry.id for entry in newest}
        assert newest[0].at in {entry.at for entry in lost.entries}
        assert lost.kept is not None and (lost.kept / "ledger").exists()
        contents = {memory.content for _, memory in engine.store.versions()}
        gone = {entry.id for entry in lost.entries}
        assert len(contents) + len(gone) == 4
        if damage is _flip:
            # The damaged page itself may have held the text; the pages behind it are in the kept log.
            assert lost.texts[newest[0].id] == "the crane arrives in March"


def test_loss_is_reported_until_its_folder_is_removed(
    written: LocalEngine, open_engine: OpenEngine, tmp_path: Path
) -> None:
    path = _copied(written, tmp_path / "copy")
    _remove(path.with_name("memories.db-wal"))
    path.with_name("memories.db-shm").unlink()
    with open_engine(path) as engine:
        for number in range(5):
            engine.remember(f"a new sighting number{number}")
        assert [hit.memory.content for hit in engine.recall("number3").hits] == ["a new sighting number3"]
        assert [hit.memory.content for hit in engine.recall("heron").hits] == ["the heron fishes at dawn"]
    with open_engine(path) as again:
        [lost] = again.upkeep.inspect(deep=True).lost
        assert len(lost.entries) == 3
        assert lost.kept is not None
        shutil.rmtree(lost.kept)
        assert again.upkeep.inspect(deep=True).is_whole


def test_older_copy_of_the_database_is_reported(written: LocalEngine, open_engine: OpenEngine, tmp_path: Path) -> None:
    written.upkeep.backup(tmp_path / "older.db")
    last = written.remember("written after the copy")
    home = Path(written.settings.home)
    written.close()
    shutil.copyfile(tmp_path / "older.db", home / "memories.db")
    with open_engine() as engine:
        [lost] = engine.upkeep.inspect().lost
        assert [(entry.id, entry.action) for entry in lost.entries] == [(last.id, "added")]


def test_restore_loses_nothing_unasked(written: LocalEngine, open_engine: OpenEngine, tmp_path: Path) -> None:
    written.upkeep.backup(tmp_path / "older.db")
    written.remember("written after the backup")
    written.upkeep.restore_backup(tmp_path / "older.db")
    assert written.upkeep.inspect(deep=True).is_whole
    written.close()
    assert open_engine().upkeep.inspect(deep=True).is_whole


def test_index_ahead_of_the_journal_is_preserved_and_rebuilt(
    written: LocalEngine, open_engine: OpenEngine, tmp_path: Path
) -> None:
    """Without a ledger, as a store of an older version has none, only the index tells."""
    written.upkeep.backup(tmp_path / "older.db")
    written.remember("the bittern booms in the reeds")
    written.upkeep.reindex()
    home = Path(written.settings.home)
    written.close()
    shutil.copyfile(tmp_path / "older.db", home / "memories.db")
    (home / "memories.db.ledger").unlink()
    with open_engine() as engine:
        assert list(engine.upkeep.inspect(repair=False).index_ahead.values()) == [1]
        engine.remember("the ibis wades in the ditch")
        assert [hit.memory.content for hit in engine.recall("ibis").hits] == ["the ibis wades in the ditch"]
        assert engine.recall("bittern").hits == ()
        health = engine.upkeep.inspect()
        [index] = health.index_ahead
        assert Path(index).is_dir() and not health.is_whole


def test_an_index_newer_than_a_snapshot_is_not_ahead(open_engine: OpenEngine) -> None:
    reader, writer = open_engine(), open_engine()
    reader.remember("the base camp")
    assert reader.recall("camp").hits
    with reader.store.snapshot():
        reader.store.position()
        writer.remember("a yellow tent")
        writer.lexical.catch_up()
        assert reader.lexical.behind() == 0
        assert reader.lexical.ahead() == {}


def test_the_ledger_holds_no_text_and_stays_small(
    tmp_path: Path, make_memory: Callable[..., Memory], monkeypatch: pytest.MonkeyPatch
) -> None:
    from triskele.store.sqlite import lost_writes

    monkeypatch.setattr(lost_writes, "_MAX_BYTES", 4000)
    path = tmp_path / "memories.db"
    for batch in range(4):
        unbound = SqliteStore(path)
        unbound.for_owner("me").apply([Add(make_memory(f"heron {batch} {n}")) for n in range(60)], batch=str(batch))
        unbound.close()
    ledger = tmp_path / "memories.db.ledger"
    unbound = SqliteStore(path)
    assert ledger.stat().st_size <= 4000
    assert b"heron" not in ledger.read_bytes()
    assert unbound.maintenance.lost() == []
    unbound.close()


def test_text_that_the_user_says_too_is_no_loss(make_memory: Callable[..., Memory], tmp_path: Path) -> None:
    unbound = SqliteStore(tmp_path / "memories.db")
    for origin in (Origin.AGENT, Origin.USER):
        unbound.for_owner("me").apply([Add(make_memory(origin=origin))], batch=origin)
    epoch = unbound.for_owner("me").epoch()
    unbound.close()
    unbound = SqliteStore(tmp_path / "memories.db")
    assert unbound.maintenance.lost() == []
    assert unbound.for_owner("me").epoch() == epoch
    unbound.close()


def test_a_ledger_that_was_cut_short_or_is_gone_is_no_loss(written: LocalEngine, open_engine: OpenEngine) -> None:
    ledger = Path(written.settings.home) / "memories.db.ledger"
    written.close()
    data = ledger.read_bytes()
    ledger.write_bytes(data[:-7])
    with open_engine() as engine:
        assert engine.upkeep.inspect().is_whole
        engine.remember("one more")
        assert engine.upkeep.inspect().is_whole
        assert len(ledger.read_bytes()) > len(data)
    ledger.unlink()
    with open_engine() as engine:
        assert engine.upkeep.inspect().is_whole
