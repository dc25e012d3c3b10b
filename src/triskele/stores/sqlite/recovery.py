"""Putting a verified backup in the place of a store's files, in a way that a crash cannot leave half done."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from triskele.base.files import settle_folder
from triskele.base.locks import file_lock
from triskele.config import KEY_FILE, Settings, sqlite_path
from triskele.errors import StoreDamaged, StoreUnavailable
from triskele.stores.sqlite import maintenance
from triskele.stores.sqlite.failures import told

_LOGS = ("-wal", "-shm")


def replace_damaged(path: Path, source: Path, *, timeout_s: float) -> Path | None:
    """Put a verified backup in the place of a store that cannot be opened; the folder that keeps its files."""
    with told(source), maintenance.verified(source, path.parent) as fresh:
        return replace(path, fresh, timeout_s=timeout_s)


def replace(path: Path, fresh: Path, *, timeout_s: float) -> Path | None:
    """Put a verified database in the place of the files at a path; the folder that keeps those, if there were any."""
    with file_lock(lock_of(path), timeout_s=timeout_s) as is_held:
        if not is_held:
            raise StoreUnavailable(f"the store {path} is being set up by another process: try again")
        # From this rename on the restore holds: an opening that finds the name carries it through.
        fresh.rename(_committed(path))
        settle_folder(path.parent)
        return finish(path)


def finish(path: Path) -> Path | None:
    """Carry through a restore that was begun; the caller holds the lock of the store."""
    committed = _committed(path)
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
    return _committed(path).exists() or (path.exists() and path.stat().st_size > 0)


def traces(settings: Settings) -> list[Path]:
    """The files that show that the database of these settings held memories."""
    path = sqlite_path(settings.store.url)
    index = path.with_name(path.name + ".index")
    # A key that the settings name may be there before the first memory.
    return [index] if settings.privacy.key_file else [index, path.with_name(KEY_FILE)]


def refuse_lost(path: Path, traces: Sequence[Path]) -> None:
    """Raise where the database is missing or empty, and a log or other files show that there was one."""
    if exists(path):
        return
    logs = [path.with_name(path.name + log) for log in _LOGS]
    if found := [trace for trace in (*logs, *traces) if trace.exists()]:
        raise StoreDamaged(
            f"the database {path} is {'empty' if path.exists() else 'missing'}, and {found[0].name} beside it shows"
            " that it held memories: run `triskele restore FILE` with a backup; nothing was created"
        )


def asides(path: Path) -> list[Path]:
    """The folders with damaged files of a store that a restore replaced."""
    return sorted(each for each in path.parent.iterdir() if each.name.startswith(f"{path.name}.damaged-"))


def lock_of(path: Path) -> Path:
    """The file whose lock a process holds while it sets up or replaces a store."""
    return path.with_name(path.name + ".lock")


def _committed(path: Path) -> Path:
    return path.with_name(path.name + ".restored")


def _keep(file: Path, target: Path, *, is_replaced: bool) -> None:
    """Give a file its place aside; the database also stays where it is until the new one replaces it."""
    if not is_replaced:
        file.rename(target)
    elif not target.exists():
        try:
            os.link(file, target)
        except OSError:
            # A file system without hard links.
            file.rename(target)
