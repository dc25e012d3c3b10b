"""Write exports: one consistent state of the store, without private texts unless asked, in complete files or none."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO, TypeVar

from triskele.errors import BadInput, Unavailable
from triskele.exchange import jsonl, markdown, sources
from triskele.store.owner import OwnerStore
from triskele.text.files import settle_folder
from triskele.types import Link, Memory, Sensitivity

Progress = Callable[[int, int | None], None]

_STEP = 500
_Piece = TypeVar("_Piece")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Memories with versions, oldest first, links, and counts left out.

    `left_out_versions` counts private or secret versions of memories that are open now.
    Secrets are titles; if their texts are exported, they are `SecretDraft`.
    """

    histories: tuple[tuple[Memory, ...], ...]
    links: tuple[Link, ...]
    left_out_private: int
    left_out_secret: int
    left_out_versions: int


def take_snapshot(
    store: OwnerStore, *, include_private: bool, current_only: bool, with_secrets: bool = False
) -> Snapshot:
    """The memories that may be exported, with their exportable versions."""
    memories, links = _consistent(store)
    grouped: dict[str, list[Memory]] = defaultdict(list)
    for memory in memories:
        if not (current_only and memory.known_to is not None):
            grouped[memory.id].append(memory)
    complete = {id: sorted(history, key=lambda memory: memory.version) for id, history in grouped.items()}
    withheld = _withheld(include_private=include_private, with_secrets=with_secrets)
    exported = {id: history for id, history in complete.items() if history[-1].sensitivity not in withheld}
    histories = tuple(
        tuple(memory for memory in history if memory.sensitivity not in withheld) for history in exported.values()
    )
    left_out = Counter(history[-1].sensitivity for id, history in complete.items() if id not in exported)
    return Snapshot(
        histories=histories,
        links=tuple(
            link
            for link in links
            if link.source in exported and link.target in exported and not (current_only and link.known_to is not None)
        ),
        left_out_private=left_out[Sensitivity.PRIVATE],
        left_out_secret=left_out[Sensitivity.SECRET],
        left_out_versions=sum(map(len, exported.values())) - sum(map(len, histories)),
    )


def _withheld(*, include_private: bool, with_secrets: bool) -> frozenset[Sensitivity]:
    """The sensitivities that are not exported."""
    private = frozenset() if include_private else frozenset({Sensitivity.PRIVATE})
    return private if with_secrets else private | {Sensitivity.SECRET}


def _consistent(store: OwnerStore) -> tuple[list[Memory], list[Link]]:
    """All versions and links of an owner at one moment."""
    cursor = store.position()
    rows = dict(store.versions())
    links = list(store.all_links())
    # Memories that changed during the read are read again, until none changed.
    while (page := store.changes_since(cursor)).entries:
        cursor = page.cursor
        changed = {entry.id for entry in page.entries}
        rows = {row: memory for row, memory in rows.items() if memory.id not in changed}
        rows |= dict(store.versions(sorted(changed)))
        links = list(store.all_links())
    return [rows[row] for row in sorted(rows) if rows[row].shared_by is None], links


Writer = Callable[[Snapshot, Path | TextIO, Progress], None]


def write_jsonl(snapshot: Snapshot, target: Path | TextIO, progress: Progress) -> None:
    """Write JSONL to a file or a stream."""
    total = 1 + sum(len(history) for history in snapshot.histories) + len(snapshot.links)
    encoding = "utf-8" if isinstance(target, Path) else target.encoding or "utf-8"
    is_ascii = encoding.lower().replace("_", "-") not in ("utf-8", "utf8")
    lines = _watched(jsonl.lines(snapshot.histories, snapshot.links, ascii_only=is_ascii), total, progress)
    if not isinstance(target, Path):
        target.writelines(lines)
        return
    refuse_other_than_file(target)
    with _write_errors(target), complete_file(target) as file:
        file.writelines(lines)


@contextmanager
def complete_file(target: Path) -> Iterator[TextIO]:
    """Write a text file that takes its name once it is whole."""
    handle, name = tempfile.mkstemp(prefix=f".{target.name[:100]}.", dir=target.parent)
    try:
        with open(handle, "w", encoding="utf-8", newline="\n") as file:
            yield file
            _settle(file)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    settle_folder(target.parent)


def _settle(file: TextIO) -> None:
    """Make what was written survive a power failure."""
    file.flush()
    os.fsync(file.fileno())


def refuse_other_than_file(target: Path) -> None:
    """Refuse to replace a folder or a device by a file."""
    if target.exists() and not target.is_file():
        raise BadInput(f"{sources.printable(str(target))} is not a file: name a file")


def silent(done: int, total: int | None) -> None:
    """Report no progress."""


def write_markdown(snapshot: Snapshot, target: Path | TextIO, progress: Progress) -> None:
    """Write a new folder with one Markdown file per current memory."""
    if not isinstance(target, Path):
        raise BadInput("a Markdown export is a folder: name a new folder")
    if len(snapshot.histories) > sources.MAX_FILES:
        raise BadInput(f"a Markdown export holds at most {sources.MAX_FILES:,} memories: export as jsonl")
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise BadInput(f"{sources.printable(str(target))} already exists: name a new folder")
    files = (markdown.file_of(history[-1]) for history in snapshot.histories)
    with _write_errors(target):
        folder = Path(tempfile.mkdtemp(prefix=f".{target.name[:100]}.", dir=target.parent))
        try:
            for name, text in _watched(files, len(snapshot.histories), progress):
                path = folder / name
                path.parent.mkdir(exist_ok=True)
                with path.open("w", encoding="utf-8", newline="\n") as file:
                    file.write(text)
                    _settle(file)
            os.replace(folder, target)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        settle_folder(target.parent)


def _watched(pieces: Iterable[_Piece], total: int, progress: Progress) -> Iterator[_Piece]:
    for done, piece in enumerate(pieces, 1):
        yield piece
        if done % _STEP == 0 or done == total:
            progress(done, total)


@contextmanager
def _write_errors(target: Path) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise BadInput(f"no such folder: {sources.printable(str(target.parent))}") from error
    except OSError as error:
        raise Unavailable(f"cannot write {sources.printable(str(target))}: {error.strerror or error}") from error
