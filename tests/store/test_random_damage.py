"""Stores damaged at random: each is restored from a backup, no loss is silent, and no damage gets an all-clear.

TRISKELE_DAMAGED_STORES sets how many, TRISKELE_DAMAGE_SEED which.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from triskele import config
from triskele.engine.local import LocalEngine
from triskele.engine.opening import restore_memory
from triskele.errors import Unavailable
from triskele.types import LinkKind, Sensitivity

STORES = int(os.environ.get("TRISKELE_DAMAGED_STORES", "14"))
SEED = os.environ.get("TRISKELE_DAMAGE_SEED", "20261115")
SECRET = "the alarm code of the boat house is 7719"

Damage = Callable[[Path, Random], None]


class Truth(NamedTuple):
    """All that a store was told: versions, links and the texts of secrets."""

    versions: frozenset[object]
    links: frozenset[object]
    secrets: frozenset[str]


def _open(home: Path) -> LocalEngine:
    return LocalEngine(config.load(_environment(home)), home)


def _environment(home: Path) -> dict[str, str]:
    names = {"HOME": str(home), "PROJECT": "garden", "RECALL_MODEL": "none", "PRIVACY_KEY": "file"}
    return {f"TRISKELE_{name}": value for name, value in names.items()}


def _truth(engine: LocalEngine) -> Truth:
    return Truth(
        frozenset(memory for _, memory in engine.store.versions()),
        frozenset(engine.store.all_links()),
        frozenset(engine.vault.open(row) for row in engine.store.sealed()),
    )


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Truth, Truth]:
    """A folder with a closed store and the files of a killed one, a backup made earlier, and what each holds."""
    folder = tmp_path_factory.mktemp("pristine")
    with _open(folder / "home") as engine:
        ids = [engine.remember(f"sighting {n} " + "of a heron " * (n % 30)).id for n in range(40)]
        engine.remember(SECRET, sensitivity=Sensitivity.SECRET, title="Boat house")
        engine.link(ids[0], LinkKind.SEE_ALSO, ids[1])
        engine.upkeep.backup(folder / "backup.db")
        saved = _truth(engine)
        engine.lexical.catch_up()
    # What the later ones wrote is in the log alone.
    engine = _open(folder / "home")
    for number in range(12):
        engine.remember(f"later sighting {number}")
    engine.edit(ids[3], content="an otter, not a heron")
    engine.forget(ids[5])
    whole = _truth(engine)
    shutil.copytree(folder / "home", folder / "killed")
    engine.close()
    return folder, folder / "backup.db", whole, saved


def _flip_bits(home: Path, random: Random) -> None:
    path = home / "memories.db"
    data = bytearray(path.read_bytes())
    for bit in random.sample(range(8 * len(data)), random.choice((1, 3, 12))):
        data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def _truncate(home: Path, random: Random) -> None:
    path = home / "memories.db"
    path.write_bytes(path.read_bytes()[: random.randrange(path.stat().st_size)])


def _break_header(home: Path, random: Random) -> None:
    path = home / "memories.db"
    data = bytearray(path.read_bytes())
    start = random.randrange(92)
    data[start : start + 8] = random.randbytes(8)
    path.write_bytes(data)


def _remove(home: Path, random: Random) -> None:
    name = random.choice(("memories.db", "memories.db-wal", "memories.db-shm", "vault.key", "memories.db.index"))
    path = home / name
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _cut_log(home: Path, random: Random) -> None:
    log = home / "memories.db-wal"
    log.write_bytes(log.read_bytes()[: random.randrange(log.stat().st_size)])
    (home / "memories.db-shm").unlink()


def _flip_log(home: Path, random: Random) -> None:
    log = home / "memories.db-wal"
    data = bytearray(log.read_bytes())
    bit = random.randrange(8 * len(data))
    data[bit // 8] ^= 1 << bit % 8
    log.write_bytes(data)
    (home / "memories.db-shm").unlink()


def _roll_back(home: Path, random: Random) -> None:
    for end in ("", "-wal", "-shm"):
        (home / f"memories.db{end}").unlink(missing_ok=True)
    shutil.copyfile(home.parent / "backup.db", home / "memories.db")


KINDS: tuple[Damage, ...] = (_flip_bits, _truncate, _break_header, _remove, _cut_log, _flip_log, _roll_back)

OF_LOG = (_cut_log, _flip_log)


def _verdict(home: Path, whole: Truth) -> str:
    """What the doctor says of a damaged store, against what it holds."""
    try:
        with _open(home) as engine:
            health = engine.upkeep.inspect(deep=True)
            if not health.is_whole:
                return "told"
            return "harmless" if _truth(engine) == whole else "WRONG ALL-CLEAR"
    except Unavailable:
        return "refused"


@pytest.mark.slow
@pytest.mark.timeout(60 + 10 * STORES)
def test_random_damage_is_reported_and_restored(
    pristine: tuple[Path, Path, Truth, Truth], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    folder, backup, whole, saved = pristine
    verdicts: Counter[str] = Counter()
    restored = 0
    for number in range(STORES):
        random, kind = Random(f"{SEED} {number}"), KINDS[number % len(KINDS)]
        home = tmp_path / f"{number}" / "home"
        # Half of those whose log is not damaged were closed in order and have none.
        shutil.copytree(folder / ("killed" if kind in OF_LOG or random.random() < 0.5 else "home"), home)
        shutil.copyfile(backup, home.parent / "backup.db")
        kind(home, random)
        verdict = _verdict(home, whole)
        verdicts[f"{kind.__name__.strip('_')}: {verdict}"] += 1
        assert verdict != "WRONG ALL-CLEAR", (kind.__name__, number)
        # A backup holds everything but the key.
        shutil.copyfile(folder / "home" / "vault.key", home / "vault.key")
        engine, _ = restore_memory(home.parent / "backup.db", settings=config.load(_environment(home)))
        with engine:
            assert _truth(engine) == saved, (kind.__name__, number)
            assert engine.maintenance.check(deep=True) == []
            assert engine.recall("sighting").hits
        restored += 1
        shutil.rmtree(home.parent, ignore_errors=True)
    record_property("verdicts", dict(verdicts))
    sys.stdout.write(f"\n{restored} of {STORES} restored; {dict(verdicts)}\n")
    assert restored == STORES
