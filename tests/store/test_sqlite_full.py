"""A full disk: every write fails cleanly, nothing is lost, and reads go on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import apsw
import pytest

from triskele.engine.local import LocalEngine
from triskele.errors import StoreUnavailable, TriskeleError
from triskele.exchange.transfer import export_memories
from triskele.store.sqlite import store
from triskele.types import Add

pytestmark = pytest.mark.slow

LARGE = "heron " + "x" * 1300


@pytest.fixture
def mounted_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of two megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(params=[pytest.param("disk", marks=pytest.mark.needs("mount")), "pages"])
def small_disk(request: pytest.FixtureRequest) -> Path | None:
    """A mounted disk, and None for a limit on the pages of the store."""
    return request.getfixturevalue("mounted_disk") if request.param == "disk" else None


@pytest.fixture
def cramped(
    small_disk: Path | None, open_engine: Callable[..., LocalEngine], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> LocalEngine:
    """An engine whose store has little room."""
    if small_disk is None:
        _limit_pages(monkeypatch)
    return open_engine((small_disk or tmp_path) / "memories.db")


def _limit_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    real = apsw.Connection

    def connect(path: str) -> apsw.Connection:
        connection = real(path)
        connection.pragma("max_page_count", 100)
        return connection

    monkeypatch.setattr(store.apsw, "Connection", connect)


def _fill(engine: LocalEngine) -> dict[str, str]:
    """Add until there is no room; what was acknowledged."""
    contents: dict[str, str] = {}

    def add_on() -> None:
        for number in range(3000):
            content = f"number{number} {LARGE}"
            contents[engine.remember(content).id] = content

    with pytest.raises(StoreUnavailable, match="no space left"):
        add_on()
    return contents


def test_a_full_disk_refuses_writes_and_keeps_everything(
    cramped: LocalEngine, open_engine: Callable[..., LocalEngine]
) -> None:
    cramped.remember("the first heron")
    assert cramped.recall("heron").hits
    contents = _fill(cramped)
    assert len(contents) > 20
    ids = sorted(contents)
    many = [cramped.draft(f"{number} {LARGE}") for number in range(20)]
    with pytest.raises(StoreUnavailable):
        cramped.apply([Add(draft) for draft in many])
    for engine in (cramped, open_engine(cramped.store._database.path)):  # type: ignore[attr-defined]
        assert {id: m.content for id, m in engine.store.memories(ids).items()} == contents
        assert engine.store.census().memories == len(contents) + 1
        assert [hit.memory.id for hit in engine.recall("number7").hits] == [
            id for id, content in contents.items() if content.startswith("number7 ")
        ]
        assert engine.maintenance.check(deep=True) == []


def test_writing_goes_on_when_there_is_room_again(
    small_disk: Path | None, open_engine: Callable[..., LocalEngine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ballast = (small_disk or tmp_path) / "ballast"
    ballast.write_bytes(bytes(1_000_000))
    if small_disk is None:
        _limit_pages(monkeypatch)
    engine = open_engine((small_disk or tmp_path) / "memories.db")
    contents = _fill(engine)
    ballast.unlink()
    if small_disk is None:
        engine.store._database.connection().pragma("max_page_count", 10_000)  # type: ignore[attr-defined]
    added = engine.remember(f"later {LARGE}")
    assert engine.store.memories([*contents, added.id]).keys() == {*contents, added.id}


@pytest.mark.needs("mount")
def test_a_backup_for_which_there_is_no_room_leaves_nothing_behind(
    mounted_disk: Path, open_engine: Callable[..., LocalEngine], tmp_path: Path
) -> None:
    engine = open_engine(tmp_path / "memories.db")
    engine.apply([Add(engine.draft(f"number{n} {LARGE}")) for n in range(2000)])
    with pytest.raises(StoreUnavailable):
        engine.upkeep.backup(mounted_disk / "copy.db")
    assert list(mounted_disk.iterdir()) == []
    assert engine.store.census().memories == 2000


_ACTS: dict[str, Callable[[LocalEngine, Path, str], object]] = {
    "secret": lambda engine, _, __: engine.remember("the wifi password is Tq8/+xPv2#kd"),
    "seal": lambda engine, _, id: engine.seal(id),
    "erase": lambda engine, _, id: engine.erase(id),
    "edit": lambda engine, _, id: engine.edit(id, content=f"edited {LARGE}"),
    "embed": lambda engine, _, __: engine.upkeep.embed(),
    "reindex": lambda engine, _, __: engine.upkeep.reindex(),
    "backup": lambda engine, disk, _: engine.upkeep.backup(disk / "copy.db"),
    "restore": lambda engine, disk, _: engine.upkeep.restore_backup(disk.parent / "copy.db"),
    "export": lambda engine, disk, _: export_memories(engine, disk / "out.jsonl"),
}


@pytest.mark.parametrize("spare_bytes", [0, 65_536, 200_000])
@pytest.mark.parametrize("act", _ACTS)
@pytest.mark.needs("mount")
def test_a_full_disk_gives_one_kind_of_error_on_every_way_to_write(
    mounted_disk: Path, tmp_path: Path, open_engine: Callable[..., LocalEngine], act: str, spare_bytes: int
) -> None:
    engine = open_engine(mounted_disk / "home" / "memories.db", model="bundled")
    ids = [outcome.id for outcome in engine.apply([Add(engine.draft(f"number{n} {LARGE}")) for n in range(20)])]
    engine.upkeep.backup(tmp_path / "copy.db")
    _leave(mounted_disk, spare_bytes)
    with suppress(TriskeleError):
        _ACTS[act](engine, mounted_disk, ids[0])
    (mounted_disk / "ballast").unlink(missing_ok=True)
    engine.close()
    again = open_engine(mounted_disk / "home" / "memories.db", model="bundled")
    health = again.upkeep.inspect(deep=True)
    assert (health.findings, health.vault_problem) == ((), None)
    assert again.reveal(again.remember("the garage password is Kp4#wq9z!Lm2").id).text


def _leave(disk: Path, spare_bytes: int) -> None:
    room = os.statvfs(disk)
    (disk / "ballast").write_bytes(bytes(max(room.f_bavail * room.f_bsize - spare_bytes, 0)))
