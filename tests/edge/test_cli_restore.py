"""restore on a store that is damaged in a real file: the backup goes in, and the damaged files are kept."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytestmark = pytest.mark.slow

Run = Callable[..., Any]
Add = Callable[..., str]
Damage = Callable[[Path, Random], None]

TEXTS = ["The heron fishes at dawn", "The otter sleeps at noon", "The kingfisher dives at dusk"]
SEEDS_PER_KIND = 5


def _flip_bits(path: Path, random: Random) -> None:
    data = bytearray(path.read_bytes())
    for bit in random.sample(range(8 * len(data)), 12):
        data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def _break_header(path: Path, random: Random) -> None:
    data = bytearray(path.read_bytes())
    start = random.randrange(100)
    data[start : start + 8] = random.randbytes(8)
    path.write_bytes(data)


def _cut(path: Path, random: Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: random.randrange(1, len(data))])


def _overwrite_page(path: Path, random: Random) -> None:
    data = bytearray(path.read_bytes())
    page = random.randrange(len(data) // 4096) * 4096
    data[page : page + 4096] = random.randbytes(4096)
    path.write_bytes(data)


def _empty(path: Path, random: Random) -> None:
    path.write_bytes(b"")


def _leave_log_alone(path: Path, random: Random) -> None:
    path.unlink()
    path.with_name(path.name + "-wal").write_bytes(random.randbytes(5000))


def _break_log(path: Path, random: Random) -> None:
    _flip_bits(path, random)
    path.with_name(path.name + "-wal").write_bytes(random.randbytes(9000))
    path.with_name(path.name + "-shm").write_bytes(random.randbytes(32768))


KINDS: tuple[Damage, ...] = (_flip_bits, _break_header, _cut, _overwrite_page, _empty, _leave_log_alone, _break_log)


@pytest.fixture
def saved(run: Run, add: Add, home: Path, tmp_path: Path) -> Path:
    """A backup of three memories; the store has had one more since."""
    for text in TEXTS:
        add(text)
    backup = tmp_path / "saved.db"
    run("backup", str(backup))
    add("The crane arrives in March")
    shutil.copytree(home, tmp_path / "pristine")
    return backup


def _contents(run: Run) -> set[str]:
    return {memory["content"] for memory in run("list", "--json").json["memories"]}


@pytest.mark.parametrize("seed", range(SEEDS_PER_KIND))
@pytest.mark.parametrize("damage", KINDS)
def test_restore_replaces_a_damaged_store(run: Run, saved: Path, home: Path, damage: Damage, seed: int) -> None:
    store = home / "memories.db"
    damage(store, Random(seed))
    damaged = {file.name: file.read_bytes() for file in home.glob("memories.db*") if file.suffix in (".db", ".db-wal")}
    restored = run("restore", str(saved), "--yes", "--json")
    assert restored.code == 0, restored.err
    assert restored.json["memories"] == len(TEXTS)
    assert _contents(run) == set(TEXTS)
    assert [hit["content"] for hit in run("recall", "heron", "--json").json["hits"]][:1] == TEXTS[:1]
    health = json.loads(run("doctor", "--deep", "--json").out)
    # What came after the backup is lost with a damaged store; a sound one is kept.
    lost = [len(each["entries"]) for each in health["lost"]]
    assert health["findings"] == [] and lost in ([[1]] if restored.json["was_damaged"] else [[], [1]])
    assert health["healthy"] is (not health["lost"])
    folder = Path(restored.json["kept"])
    assert folder.exists()
    if restored.json["was_damaged"]:
        assert store.name not in damaged or (folder / store.name).read_bytes() == damaged[store.name]
        assert {file.name for file in folder.iterdir()} <= {"memories.db", "memories.db-wal", "memories.db-shm"}


def test_restore_names_the_folder_of_damaged_files(run: Run, saved: Path, home: Path) -> None:
    (home / "memories.db").write_bytes(b"no database " * 1000)
    output = run("restore", str(saved)).out
    [folder] = home.glob("memories.db.damaged-*")
    assert "Restored 3 memories" in output.replace("\n", " ")
    assert folder.name in output.replace("\n", "")
    assert (folder / "memories.db").read_bytes() == b"no database " * 1000


def test_restore_keeps_a_sound_store_as_a_backup(run: Run, saved: Path) -> None:
    restored = run("restore", str(saved), "--yes", "--json").json
    assert not restored["was_damaged"]
    assert ".before-restore-" in restored["kept"]
    run("restore", restored["kept"], "--yes")
    assert len(_contents(run)) == len(TEXTS) + 1


@pytest.mark.parametrize("is_damaged", [False, True], ids=["sound store", "damaged store"])
def test_restore_of_a_damaged_backup_changes_nothing(run: Run, saved: Path, home: Path, is_damaged: bool) -> None:
    if is_damaged:
        (home / "memories.db").write_bytes(b"no database " * 1000)
    _overwrite_page(saved, Random(3))
    before = {file: file.read_bytes() for file in home.rglob("*") if file.is_file()}
    assert run("restore", str(saved), "--yes").is_refused(3, str(saved))
    after = {file: file.read_bytes() for file in home.rglob("*") if file.is_file()}
    assert {**after, **before} == after
    assert {file.name for file in after.keys() - before.keys()} <= {"memories.db.lock"}


def test_restore_moves_no_database_of_another_program(run: Run, saved: Path, tmp_path: Path) -> None:
    import apsw

    foreign = tmp_path / "browser.db"
    connection = apsw.Connection(str(foreign))
    connection.execute("CREATE TABLE cookies (name)")
    connection.close()
    refused = run("restore", str(saved), "--yes", "--store", f"sqlite:///{foreign}")
    assert refused.is_refused(3, "not one of triskele's", "--store")
    assert [file.name for file in tmp_path.glob("browser*")] == ["browser.db"]


def test_restore_refuses_a_folder_as_store(run: Run, saved: Path, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    refused = run("restore", str(saved), "--yes", "--store", f"sqlite:///{tmp_path / 'notes'}")
    assert refused.is_refused(3, "is a folder", str(tmp_path / "notes" / "memories.db"))
    assert [file.name for file in tmp_path.glob("notes*")] == ["notes"]


@pytest.mark.parametrize("model", ["nonsense", "/nonexistent"])
@pytest.mark.parametrize("is_damaged", [False, True], ids=["sound store", "damaged store"])
def test_restore_with_an_unknown_model_changes_nothing(
    run: Run, saved: Path, home: Path, is_damaged: bool, model: str
) -> None:
    if is_damaged:
        (home / "memories.db").write_bytes(b"no database " * 1000)
    (home / "config.toml").write_text(f'[recall]\nmodel = "{model}"\n')
    before = {file: file.read_bytes() for file in home.rglob("*.db")}
    assert run("restore", str(saved), "--yes").is_refused(2, model, "config.toml", "nothing was restored")
    assert {file: file.read_bytes() for file in home.rglob("*.db")} == before


def test_doctor_names_writes_that_a_restore_of_a_damaged_store_lost(run: Run, saved: Path, home: Path) -> None:
    (home / "memories.db").write_bytes(b"no database " * 1000)
    run("restore", str(saved))
    for _ in range(2):
        ran = run("doctor")
        assert ran.code == 1 and "1 acknowledged write lost" in ran.out
        run("add", "The lark sings")


def test_restore_moves_no_file_that_is_no_store(run: Run, saved: Path, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear Ingrid, " * 500)
    refused = run("restore", str(saved), "--yes", "--store", f"sqlite:///{tmp_path / 'letter.txt'}")
    assert refused.is_refused(3, "is not a database", "nothing was moved")
    assert (tmp_path / "letter.txt").read_text().startswith("Dear Ingrid")
    assert not list(tmp_path.glob("letter.txt.damaged-*"))


def test_restore_creates_a_missing_store(run: Run, saved: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'elsewhere' / 'memories.db'}"
    restored = run("restore", str(saved), "--yes", "--json", "--store", url).json
    assert (restored["memories"], restored["kept"], restored["was_damaged"]) == (3, None, False)
    assert run("doctor", "--deep", "--json", "--store", url).json["healthy"]


def test_restore_reads_the_log_beside_a_backup(run: Run, saved: Path, home: Path, tmp_path: Path) -> None:
    import apsw

    reader = apsw.Connection(str(home / "memories.db"))
    reader.execute("SELECT count(*) FROM versions").fetchall()
    run("add", "The heron moves on in winter")
    copied = tmp_path / "copied"
    shutil.copytree(home, copied)
    reader.close()
    assert (copied / "memories.db-wal").stat().st_size
    (home / "memories.db").write_bytes(b"")
    assert run("restore", str(copied / "memories.db"), "--yes", "--json").json["memories"] == len(TEXTS) + 2
