"""The files of a store: what shows that there is one, its lock and indexes, and putting a backup in its place."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import apsw

from triskele.config import MemorySettings
from triskele.errors import StoreDamaged, StoreUnavailable
from triskele.text.files import file_lock, settle_folder

# The owner of a new installation.
FIRST = MemorySettings().owner
_SET_UP_S = 30.0
_LOGS = ("-wal", "-shm")
_MAGIC = b"SQLite format 3\0"


def cannot_be_written(path: Path) -> bool:
    """Whether there is a database that this user, or its file system, allows only to be read."""
    return exists(path) and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))


def read_only_address(path: Path) -> str:
    """How to open a database that cannot be written.

    Without the files next to it SQLite can only read it as a file that never changes, which ignores a log.
    """
    if committed_restore(path).exists():
        raise apsw.ReadOnlyError
    log, shared = (path.with_name(path.name + end) for end in _LOGS)
    address = f"file:{quote(str(path))}?mode=ro"
    if shared.exists() and log.exists():
        return address
    if log.exists() and log.stat().st_size:
        raise StoreUnavailable(
            f"the store {path} is read-only, and changes in {log.name} are not in it yet: copy both to another folder"
        )
    return f"{address}&immutable=1"


def index_folder(path: Path, owner: str) -> Path:
    """Where the files derived from one owner's rows are; the owner of a new installation has the plain name."""
    folder = path.with_name(path.name + ".index")
    return folder if owner == FIRST else folder.with_name(f"{folder.name}.{quote(owner, safe='')}")


def replace(path: Path, fresh: Path, *, timeout_s: float) -> Path | None:
    """Put a verified database in the place of the files at a path; the folder that keeps those, if there were any."""
    with file_lock(lock_of(path), timeout_s=timeout_s) as is_held:
        if not is_held:
            raise StoreUnavailable(f"the store {path} is being set up by another process: try again")
        # From this rename on the restore holds: an opening that finds the name carries it through.
        fresh.rename(committed_restore(path))
        settle_folder(path.parent)
        return finish(path)


def finish(path: Path) -> Path | None:
    """Carry through a restore that was begun; the caller holds the lock of the store."""
    committed = committed_restore(path)
    if not committed.exists():
        return None
    began = datetime.fromtimestamp(committed.stat().st_mtime, UTC)
    aside = path.with_name(f"{path.name}.damaged-{began:%Y%m%dT%H%M%S%f}")
    old = [file for file in (path, *(path.with_name(path.name + log) for log in _LOGS)) if file.exists()]
    if old:
        aside.mkdir(mode=0o700, exist_ok=True)
        for file in old:
            _keep(file, aside / file.name, is_replaced=file == path)
        settle_folder(aside)
    committed.replace(path)
    settle_folder(path.parent)
    return aside if aside.exists() else None


def exists(path: Path) -> bool:
    """Whether there is anything in the database, or a restore that only has to be finished."""
    return committed_restore(path).exists() or (path.exists() and path.stat().st_size > 0)


def looks_like_one(path: Path) -> bool:
    """Whether a file begins as a database does, or there is nothing in it."""
    try:
        with open(path, "rb") as file:
            return file.read(len(_MAGIC)) in (_MAGIC, b"")
    except OSError:
        # Opening it reports why it cannot be read.
        return True


def refuse_lost(path: Path, traces: Sequence[Path]) -> None:
    """Raise if the database is missing or empty, and a log or other files show that there was one."""
    remains = _left_of(path, traces)
    if remains and lock_of(path).exists():
        # Another process may be setting the store up: it takes its lock before it makes any of these files.
        with suppress(OSError), file_lock(lock_of(path), timeout_s=_SET_UP_S):
            pass
        remains = _left_of(path, traces)
    if remains:
        raise StoreDamaged(
            f"the database {path} is {'empty' if path.exists() else 'missing'}, and {remains[0].name} beside it shows"
            " that it held memories: run `triskele restore FILE` with a backup, or, to start empty, remove"
            f" {', '.join(trace.name for trace in remains)}; nothing was created"
        )


def _left_of(path: Path, traces: Sequence[Path]) -> list[Path]:
    """The files next to a database that is missing or empty."""
    logs = [path.with_name(path.name + log) for log in _LOGS]
    return [] if exists(path) else [trace for trace in (*logs, *traces) if trace.exists()]


def lock_of(path: Path) -> Path:
    """The file whose lock a process holds while it sets up or replaces a store."""
    return path.with_name(path.name + ".lock")


def committed_restore(path: Path) -> Path:
    """The verified copy of a restore that holds and only has to be carried through."""
    return path.with_name(path.name + ".restored")


def _keep(file: Path, target: Path, *, is_replaced: bool) -> None:
    """Move a file aside; the database also stays in place until the new one replaces it."""
    if not is_replaced:
        file.rename(target)
    elif not target.exists():
        try:
            os.link(file, target)
        except OSError:
            # A file system without hard links.
            file.rename(target)
