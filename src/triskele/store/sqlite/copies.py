"""Copies next to a store or made from it: finding them, their owners, and erasing from them."""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw

from triskele.store.sqlite import lost_writes
from triskele.text.files import file_lock

# Begins the names of the folders in which a copy is made before it gets its own name.
BACKUP, RESTORE = ".backup-", ".restore-"
_LOCK = "lock"
_NOTED = "backup "
_MAX_NOTED = 50
# A folder that has no lock yet may be a second old.
_UNLOCKED_S = 60.0
_BLOCK = 1 << 20


@contextmanager
def staging(prefix: str, folder: Path) -> Iterator[Path]:
    """A folder for a copy in the making; its lock shows that its process lives."""
    # Another process may also remove it once the lock is free.
    folder_of_copy = tempfile.TemporaryDirectory(prefix=prefix, dir=folder, ignore_cleanup_errors=True)
    with folder_of_copy, file_lock(Path(folder_of_copy.name) / _LOCK, timeout_s=0):
        yield Path(folder_of_copy.name)


def note_backup(connection: apsw.Connection, target: Path) -> None:
    """Record the path of a backup before it is written: a killed backup leaves a copy there."""
    sql = "INSERT OR REPLACE INTO meta VALUES (?, ?)"
    connection.execute(sql, [f"{_NOTED}{target.absolute()}", f"{time.time():020.6f}"])
    connection.execute(
        "DELETE FROM meta WHERE name LIKE ?1 AND name NOT IN"
        " (SELECT name FROM meta WHERE name LIKE ?1 ORDER BY value DESC LIMIT ?2)",
        [f"{_NOTED}%", _MAX_NOTED],
    )


def noted_backups(connection: apsw.Connection) -> list[Path]:
    """The files that backups were written to, the oldest first; some may no longer exist."""
    rows = connection.execute("SELECT name FROM meta WHERE name LIKE ? ORDER BY value", [f"{_NOTED}%"])
    return [Path(str(row[0]).removeprefix(_NOTED)) for row in rows]


def leftovers(path: Path, noted: Iterable[Path]) -> list[Path]:
    """The copies that killed backups and restores left next to the store and in folders of backups."""
    places = dict.fromkeys([path.parent, *(backup.parent for backup in noted)])
    paths: list[Path] = []
    for parent in places:
        # A folder on a disk that is not there now has nothing to show.
        with suppress(OSError):
            paths += sorted(each for each in parent.iterdir() if each.name.startswith((BACKUP, RESTORE)))
    return [each for each in paths if _is_left(each)]


def kept_by_restore(path: Path) -> list[Path]:
    """The backups that restores made of what they replaced."""
    return sorted(path.parent.glob(f"{glob.escape(path.stem)}.before-restore-*.db"))


def damaged(path: Path) -> list[Path]:
    """The folders with damaged files of a store that a restore replaced."""
    return sorted(each for each in path.parent.iterdir() if each.name.startswith(f"{path.name}.damaged-"))


def remove(paths: Iterable[Path]) -> list[Path]:
    """Remove copies; returns those that were removed."""
    gone = []
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            gone.append(path)
    return gone


def remove_damaged(path: Path, ids: Sequence[str]) -> list[Path]:
    """Remove the damaged files in which one of these memories is, and the texts of lost writes; what was removed."""
    wanted = [id.encode() for id in ids]
    gone = remove(folder for folder in damaged(path) if any(_holds(file, wanted) for file in folder.rglob("*")))
    for folder in lost_writes.folders(path):
        # Its ledger contains only ids.
        gone += lost_writes.drop_texts(folder)
    return gone


def _is_left(folder: Path) -> bool:
    """Whether the process that made a folder has ended."""
    try:
        if not (folder / _LOCK).exists():
            # The lock comes first and may go first; a folder that is empty may be new.
            return any(folder.iterdir()) or time.time() - folder.stat().st_mtime > _UNLOCKED_S
        with file_lock(folder / _LOCK, timeout_s=0) as is_free:
            return is_free
    except OSError:
        return False


def _holds(file: Path, wanted: Sequence[bytes]) -> bool:
    """Whether any of some texts is in a file; one that cannot be read may hold all."""
    if not file.is_file():
        return False
    overlap = max(map(len, wanted), default=1)
    try:
        with open(file, "rb") as opened:
            before = b""
            while block := opened.read(_BLOCK):
                if any(text in before + block for text in wanted):
                    return True
                before = block[-overlap:]
    except OSError:
        return os.path.exists(file)
    return False
