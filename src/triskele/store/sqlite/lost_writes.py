"""Acknowledged writes that were lost: how they are detected, and what is kept of them.

After every commit the ledger, a file next to the database, gets the number, time and memory of each journal entry. It
is written after the database, so that an entry that only the ledger has was lost: the log was cut, or an older copy put
in the place of the database. Numbers are then given out again, so that the store begins a new epoch; what still tells
of the lost writes is kept in a folder.
"""

from __future__ import annotations

import glob
import os
import shutil
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import apsw

from triskele.store.values import LostWrite, LostWrites, WrittenEntry
from triskele.text.files import settle_folder
from triskele.text.timestamps import from_micros, to_micros

_LEDGER, _LOG, _INDEX = ".ledger", "-wal", ".index"
# Two thousand entries and more; older ones are dropped.
_MAX_BYTES = 256 * 1024
_TAIL_BYTES = 4096
_WAL_HEADER, _FRAME_HEADER = 32, 24
_LEAF = 0x0D
_ID_COLUMN, _CONTENT_COLUMN, _COLUMNS = 1, 3, 24

# By epoch.
_Entries = dict[str, list[LostWrite]]


def note(path: Path, epoch: str, at: datetime, entries: Iterable[WrittenEntry]) -> None:
    """Append what was committed to the ledger of a database; a full disk does not undo a commit."""
    lines = [_checked(f"{epoch} {entry.seq} {to_micros(at)} {entry.action.value} {entry.id}") for entry in entries]
    if lines:
        # Opened each time: another process may have replaced it.
        with suppress(OSError), open(ledger(path), "ab", opener=lambda name, how: os.open(name, how, 0o600)) as file:
            file.write("".join(f"\n{line}" for line in lines).encode())


def set_aside(connection: apsw.Connection, path: Path) -> None:
    """If writes were lost, keep the evidence in a folder and start a new epoch; an interrupted call starts over."""
    gone = _missing(connection, _read(ledger(path), _TAIL_BYTES).get(_epoch(connection), []))
    if not gone:
        _trim(ledger(path))
        return
    folder = _keep(path, gone)
    for index in path.parent.glob(f"{glob.escape(path.name)}{_INDEX}*"):
        shutil.rmtree(folder / index.name, ignore_errors=True)
        index.rename(folder / index.name)
    settle_folder(folder)
    connection.execute("UPDATE meta SET value = lower(hex(randomblob(8))) WHERE name = 'epoch'")
    ledger(path).unlink(missing_ok=True)


def keep(backup: apsw.Connection, path: Path) -> None:
    """Keep the evidence of writes to a damaged store that the backup in its place lacks."""
    *_, newest = [list[LostWrite](), *_read(ledger(path)).values()]
    if gone := _missing(backup, newest):
        settle_folder(_keep(path, gone))


def _keep(path: Path, gone: Sequence[LostWrite]) -> Path:
    folder = path.with_name(f"{path.name}.lost-{gone[-1].at:%Y%m%dT%H%M%S%f}")
    folder.mkdir(mode=0o700, exist_ok=True)
    shutil.copyfile(ledger(path), folder / "ledger")
    log = path.with_name(path.name + _LOG)
    if log.exists() and log.stat().st_size:
        shutil.copyfile(log, folder / "log")
    return folder


def lost(connection: apsw.Connection, path: Path) -> list[LostWrites]:
    """All losses that a folder or the ledger records."""
    losses = [LostWrites(tuple(_missing(connection, _read(ledger(path)).get(_epoch(connection), []))), {}, None)]
    for folder in folders(path):
        # The epoch in which the loss was noticed is the last one.
        *_, newest = [list[LostWrite](), *_read(folder / "ledger").values()]
        gone = _missing(connection, newest)
        losses.append(LostWrites(tuple(gone), _texts(folder / "log", {entry.id for entry in gone}), folder))
    return [each for each in losses if each.entries]


def folders(path: Path) -> list[Path]:
    """The folders that keep what is known of lost writes."""
    return sorted(each for each in path.parent.iterdir() if each.name.startswith(f"{path.name}.lost-"))


def drop_texts(folder: Path) -> list[Path]:
    """Remove what may hold texts from a folder of lost writes, and keep the ledger; what was removed."""
    paths = [path for path in folder.iterdir() if path.name != "ledger"]
    for path in paths:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return paths


def _missing(connection: apsw.Connection, entries: Sequence[LostWrite]) -> list[LostWrite]:
    # Not by the action: earlier ledgers have `duplicate` for a text that the user said too.
    sql = "SELECT 1 FROM journal WHERE seq = ? AND at = ? AND id = ?"
    return [
        entry
        for entry in entries
        if connection.execute(sql, [entry.seq, to_micros(entry.at), entry.id]).fetchone() is None
    ]


def _epoch(connection: apsw.Connection) -> str:
    return str(connection.execute("SELECT value FROM meta WHERE name = 'epoch'").get)


def ledger(path: Path) -> Path:
    """The ledger of a database."""
    return path.with_name(path.name + _LEDGER)


def _read(file: Path, last: int | None = None) -> _Entries:
    """The entries of a ledger, or of its last bytes; a line that is not as written is left out."""
    entries: _Entries = {}
    try:
        with open(file, "rb") as opened:
            if last is not None:
                opened.seek(max(0, os.fstat(opened.fileno()).st_size - last))
            lines = opened.read().decode("ascii", "replace").split("\n")
    except OSError:
        return {}
    for line in lines:
        with suppress(ValueError, OverflowError):
            epoch, seq, at, action, id, _ = line.split(" ")
            if line != _checked(line.rpartition(" ")[0]):
                continue
            entries.setdefault(epoch, []).append(LostWrite(int(seq), from_micros(int(at)), action, id))
    return entries


def _checked(line: str) -> str:
    """A line with its checksum: a damaged ledger must not report losses."""
    return f"{line} {zlib.crc32(line.encode()):08x}"


def _trim(file: Path) -> None:
    with suppress(OSError):
        if file.stat().st_size > _MAX_BYTES:
            fresh = file.with_name(file.name + ".new")
            with open(file, "rb") as old:
                old.seek(-_MAX_BYTES // 2, os.SEEK_END)
                fresh.write_bytes(old.read())
            fresh.chmod(0o600)
            fresh.replace(file)


def _texts(log: Path, ids: set[str]) -> dict[str, str]:
    """The texts of some memories in the pages of a kept log, sound or not; those longer than a page are not found."""
    texts: dict[str, str] = {}
    with suppress(OSError, ValueError):
        data = log.read_bytes()
        size = int.from_bytes(data[8:12], "big")
        if not 512 <= size <= 65536:
            return {}
        for start in range(_WAL_HEADER + _FRAME_HEADER, len(data), size + _FRAME_HEADER):
            for id, text in _versions(data[start : start + size]):
                if id in ids:
                    texts[id] = text
    return texts


def _versions(page: bytes) -> Iterator[tuple[str, str]]:
    """The ids and contents in a leaf page of the table of versions; nothing of any other page."""
    if not page or page[0] != _LEAF:
        return
    for cell in range(int.from_bytes(page[3:5], "big")):
        with suppress(IndexError, ValueError):
            at = int.from_bytes(page[8 + 2 * cell : 10 + 2 * cell], "big")
            _, at = _varint(page, at)
            _, start = _varint(page, at)
            length, at = _varint(page, start)
            body, sizes = start + length, list[int]()
            while at < start + length:
                kind, at = _varint(page, at)
                sizes.append(_size(kind))
            if len(sizes) >= _COLUMNS:
                offsets = [body + sum(sizes[:column]) for column in (_ID_COLUMN, _CONTENT_COLUMN)]
                id, text = (
                    page[offset : offset + sizes[column]].decode()
                    for offset, column in zip(offsets, (_ID_COLUMN, _CONTENT_COLUMN), strict=True)
                )
                yield id, text


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for count in range(9):
        byte = data[at + count]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + count + 1
    raise ValueError


def _size(kind: int) -> int:
    """The bytes of a value by its serial type."""
    if kind >= 12:
        return (kind - 12) // 2
    return (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)[kind]
