"""Import and export, and the table of their formats.

An import reads and checks everything, then writes it in one transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO, TypeVar

from triskele import ingest, validation
from triskele.config import MemorySettings
from triskele.errors import AccessDenied, BadInput, Conflict, NotFound
from triskele.exchange import (
    agents_file,
    claude_notes,
    export,
    import_plan,
    jsonl,
    markdown,
    mcp_memory,
    sources,
    transcripts,
)
from triskele.exchange.export import Progress, Snapshot, silent, take_snapshot
from triskele.exchange.import_plan import ImportPlan
from triskele.exchange.records import Item, NamedLink, Note, StoredLink, StoredVersion
from triskele.replies.rooms import ExportReport, ImportReport, Problem, Skipped
from triskele.store import archive
from triskele.store.access import StoreAccess
from triskele.text.ids import content_hash
from triskele.types import (
    IMPORT,
    Action,
    Add,
    Change,
    Connect,
    Origin,
    Reveal,
    Revise,
    SecretDraft,
    is_secret,
    least_trusted,
)

CHUNK = 500
_TRIES = 3
MAX_PROBLEMS = 1000
_NAMED_PROBLEMS = 3
_BATCH_CHARACTERS = 12

_Kind = TypeVar("_Kind")


@dataclass(frozen=True, slots=True)
class ImportFormat:
    """An import format: whether a path (with the beginning of its text) has it, and how it is read."""

    recognises: Callable[[Path, str], bool]
    read: Callable[[Path, MemorySettings], Iterator[Item]]


# In the order in which they are tried: specific formats before general ones.
IMPORTS: dict[str, ImportFormat] = {
    "claude-notes": ImportFormat(claude_notes.recognises, claude_notes.read),
    "agents": ImportFormat(agents_file.recognises, agents_file.read),
    "markdown": ImportFormat(markdown.recognises, markdown.read),
    "mcp-memory": ImportFormat(mcp_memory.recognises, mcp_memory.read),
    "transcript": ImportFormat(transcripts.recognises, transcripts.read),
    "jsonl": ImportFormat(jsonl.recognises, jsonl.read),
}


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """An export format; some formats hold the current state only."""

    write: export.Writer
    is_current_only: bool = False
    tells_secrets: bool = False


EXPORTS: dict[str, ExportFormat] = {
    "jsonl": ExportFormat(export.write_jsonl, tells_secrets=True),
    "markdown": ExportFormat(export.write_markdown, is_current_only=True),
}


def choose(path: Path, name: str | None) -> str:
    """The given format, or the one that a path shows."""
    if name is not None:
        return checked(name, IMPORTS)
    head = "" if path.is_dir() else sources.head(path)
    if path.is_file() and not head.strip():
        raise BadInput(f"{sources.printable(path.name)} is empty")
    for candidate, format in IMPORTS.items():
        if format.recognises(path, head):
            return candidate
    raise BadInput(f"the format of {sources.printable(path.name)} is unknown: name one of {', '.join(IMPORTS)}")


def checked(name: str, known: Collection[str]) -> str:
    """The name, if it is a known format."""
    if name not in known:
        raise BadInput(f"unknown format {name[:40]!r}: choose one of {', '.join(known)}")
    return name


def import_memories(
    access: StoreAccess,
    source: Path,
    *,
    format: str | None = None,
    dry_run: bool = False,
    project: str | None = None,
    keep_origin: bool = False,
    progress: Progress | None = None,
) -> ImportReport:
    """Import the memories of a file or folder, all or none.

    The author of a file is unknown: its memories get the origin `import`, unless the caller sets `keep_origin`.
    """
    report_progress = progress or silent
    path = sources.resolved(source)
    name = choose(path, format)
    target = None if project is None else validation.check_name(project, "the project")
    try:
        items = list(_bounded(IMPORTS[name].read(path, access.settings.memory), report_progress))
        digest = sources.digest(files_of(path), path)
    except OSError as error:
        raise BadInput(f"cannot read {sources.printable(str(source))}: {error.strerror or error}") from error
    is_export = any(isinstance(item, StoredVersion | StoredLink) for item in items)
    if is_export and target is not None:
        raise BadInput("a triskele export keeps the projects of its memories: import it without a project")
    if not keep_origin:
        items = [_as_imported(item) if isinstance(item, StoredVersion) else item for item in items]
    home = "" if is_export else access.project if target is None else target
    batch = content_hash(f"{name}\0{home}\0{digest}")[:_BATCH_CHARACTERS]
    for _ in range(_TRIES):
        planned = _planned(access, items, target)
        problems = (*_of(Problem, items), *planned.problems)[:MAX_PROBLEMS]
        if problems and not dry_run:
            raise BadInput(_complaint(path, problems))
        report = _report(name, planned, batch, problems, tuple(_of(Skipped, items)))
        if dry_run:
            return replace(report, memories=planned.previews)
        # Another process may store the text of a link's end after the plan was made.
        with suppress(NotFound):
            return _write(access.acting_as(IMPORT), planned, report, report_progress)
    raise Conflict(f"other processes write what {sources.printable(path.name)} holds: nothing was imported, try again")


def _report(
    name: str, planned: ImportPlan, batch: str, problems: tuple[Problem, ...], skipped: tuple[Skipped, ...]
) -> ImportReport:
    return ImportReport(
        format=name,
        read=planned.read,
        added=len(planned.groups),
        duplicates=planned.duplicates,
        secrets=sum(
            any(isinstance(change, Add | Revise) and isinstance(change.memory, SecretDraft) for change in group)
            for group in planned.groups
        ),
        links=len(planned.links),
        batch=batch,
        problems=problems,
        skipped=skipped,
    )


def export_memories(
    access: StoreAccess,
    target: Path | TextIO,
    *,
    format: str = "jsonl",
    include_private: bool = False,
    with_secrets: bool = False,
    progress: Progress | None = None,
    current_only: bool = False,
) -> ExportReport:
    """Export an owner's memories; private ones and secrets on request."""
    chosen = EXPORTS[checked(format, EXPORTS)]
    if include_private and not access.reads_private:
        raise AccessDenied("this client may not export private memories: leave them out")
    if with_secrets and not (chosen.tells_secrets and isinstance(target, Path)):
        raise BadInput("secrets can only be exported into a jsonl file: name one")
    with access.maintenance.archive.reading() as reader:
        archive.verify(reader, access.store.owner, ("versions", "links"))
    taken = take_snapshot(
        access.store,
        include_private=include_private,
        current_only=current_only or chosen.is_current_only,
        with_secrets=with_secrets,
    )
    taken, revealed = _revealed(access, taken)
    chosen.write(taken, target.expanduser() if isinstance(target, Path) else target, progress or silent)
    return ExportReport(
        written=len(taken.histories),
        left_out_private=taken.left_out_private,
        left_out_secret=taken.left_out_secret,
        left_out_versions=taken.left_out_versions,
        revealed=revealed,
        forgotten=sum(history[-1].known_to is not None for history in taken.histories),
    )


def _revealed(access: StoreAccess, taken: Snapshot) -> tuple[Snapshot, int]:
    """The snapshot with the texts of its secrets; each is journaled as revealed before anything is written."""
    ids = [history[0].id for history in taken.histories if any(map(is_secret, history))]
    if not ids:
        return taken, 0
    texts = {(row.id, row.version): access.vault.open(row) for row in access.store.sealed(ids)}
    access.apply([Reveal(id) for id in ids])
    histories = tuple(
        tuple(
            ingest.with_text(memory, texts[memory.id, memory.version]) if is_secret(memory) else memory
            for memory in history
        )
        for history in taken.histories
    )
    return replace(taken, histories=histories), len(ids)


def _bounded(items: Iterable[Item], progress: Progress) -> Iterator[Item]:
    """The records of a file up to the last problem that is shown."""
    problems = 0
    for number, item in enumerate(items, 1):
        yield item
        problems += isinstance(item, Problem)
        if problems >= MAX_PROBLEMS:
            break
        if number % CHUNK == 0:
            progress(number, None)


def _of(kind: type[_Kind], items: Iterable[Item]) -> list[_Kind]:
    return [item for item in items if isinstance(item, kind)]


def _as_imported(version: StoredVersion) -> StoredVersion:
    origin = least_trusted(version.memory.origin, Origin.IMPORT)
    return replace(version, memory=replace(version.memory, origin=origin))


def _planned(access: StoreAccess, items: Sequence[Item], project: str | None) -> ImportPlan:
    versions, links = _of(StoredVersion, items), _of(StoredLink, items)
    if versions or links:
        # If some lines could not be read, a link's end may be missing for that reason only.
        return import_plan.for_export(access.store, versions, [] if _of(Problem, items) else links)
    return import_plan.for_notes(access, _of(Note, items), _of(NamedLink, items), project)


def _write(access: StoreAccess, planned: ImportPlan, report: ImportReport, progress: Progress) -> ImportReport:
    """Write memories, then links, in one transaction."""
    changes: list[Change] = [change for group in planned.groups for change in group]
    changes += map(Connect, planned.links)
    progress(0, len(changes))
    outcomes = access.apply(changes, batch=report.batch) if changes else []
    actions = Counter(outcome.action for outcome in outcomes)
    progress(len(changes), len(changes))
    # Another process may have stored the same text since the first pass.
    repeated = actions[Action.DUPLICATE]
    return replace(
        report, added=report.added - repeated, duplicates=report.duplicates + repeated, links=actions[Action.LINKED]
    )


def _complaint(path: Path, problems: tuple[Problem, ...]) -> str:
    first = "; ".join(f"{problem.place}: {problem.reason}" for problem in problems[:_NAMED_PROBLEMS])
    more = f" (the first {_NAMED_PROBLEMS} of {len(problems)} problems)" if len(problems) > _NAMED_PROBLEMS else ""
    return f"nothing was imported from {sources.printable(path.name)}: {first}{more}"


def files_of(path: Path) -> list[Path]:
    """The files that an import of a path reads."""
    return sources.files(path, markdown.SUFFIXES)[0] if path.is_dir() else [path]
