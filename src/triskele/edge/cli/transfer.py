"""Commands that transfer memories: import, export, sync."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TextIO

import click

from triskele.edge.cli.commands import command
from triskele.edge.cli.documents import Document, shown
from triskele.edge.cli.invocation import Invocation, progress_bar
from triskele.edge.cli.memory_view import SETTLE
from triskele.edge.cli.options import FilePath, writing_place
from triskele.edge.cli.view import BAD, QUIET, WARNING, ShortIds, minute, more, note, plural
from triskele.edge.process import connect
from triskele.edge.wording import SECRET_PREFIX, one_line
from triskele.errors import BadInput, ModelUnavailable, NotFound
from triskele.exchange.sources import printable, resolved
from triskele.text import timestamps
from triskele.types import Action

if TYPE_CHECKING:
    from triskele.edge.cli.view import Styled
    from triskele.engine.local import LocalEngine
    from triskele.engine.protocol import Engine
    from triskele.engine.upkeep import SyncState
    from triskele.replies.rooms import ExportReport, ImportReport, Preview
    from triskele.store.archive import Summary

_PATH = FilePath()
_ARCHIVE = "archive"
_SHOWN_PROJECTS = 5
_SHOWN_FILES = 10
_SHOWN_PROBLEMS = 10
_SHOWN_PREVIEWS = 40
_PREVIEW_CHARACTERS = 200


@command(
    "triskele import CLAUDE.md --dry-run",
    "triskele import notes/ --format markdown --everywhere",
    "triskele import claude-code          (what Claude Code noted about this project)",
    "triskele import memories.jsonl",
    "triskele import everything.archive --keep-origin",
    name="import",
)
@click.argument("source", type=_PATH)
@click.option(
    "--format",
    metavar="F",
    help="jsonl, archive, markdown, agents, claude-notes, mcp-memory or transcript; detected if omitted.",
)
@click.option("--dry-run", is_flag=True, help="Show what would happen; write nothing.")
@click.option("--keep-origin", is_flag=True, help="Keep the origins that the file gives (for your own exports).")
@click.option("--all-owners", is_flag=True, help="Take every owner of an archive, under their own names.")
@writing_place
def import_(invocation: Invocation, source: Path, format: str | None, all_owners: bool, **options: Any) -> int:
    """Import a file, a folder or Claude Code's notes, all or nothing.

    It reads SOURCE and nothing else: a file (for a conversation, the one transcript that you name, such as
    ~/.claude/projects/…/ID.jsonl) or every .md, .markdown and .txt file of a folder that is not hidden. `claude-code`
    is MEMORY.md and the notes next to it that Claude Code keeps about this project, without transcripts. The answer
    names the files that were read.
    """
    # Imported here, as below: the help of a command needs no store.
    from triskele.exchange import archive, claude_notes, transfer

    dry_run, project = options["dry_run"], options["project"]
    if format == _ARCHIVE or (format is None and archive.recognises(source)):
        if project is not None:
            raise BadInput("an archive keeps the projects of its memories: import it without a project")
        keep_origin = options["keep_origin"]
        _import_archive(invocation, source, dry_run=dry_run, keep_origin=keep_origin, all_owners=all_owners)
        return 0
    if all_owners:
        raise BadInput("only an archive can hold several owners: import this file without --all-owners")
    with invocation.open(creates=not dry_run, at_store=True) as engine:
        path = resolved(claude_notes.named_source(source, Path.cwd()))
        if (store := connect.local(engine)) is None:
            report = engine.import_memories(path, format=transfer.choose(path, format), **options)
        else:
            with progress_bar("Importing") as progress:
                report = store.import_memories(path, format=format, progress=progress, **options)
            if not dry_run:
                with progress_bar("Embedding", total=store.stats().jobs.embed) as progress, suppress(ModelUnavailable):
                    store.upkeep.embed(progress=progress)
        files = [str(file.relative_to(path)) for file in transfer.files_of(path)] if path.is_dir() else []
        read = f"Read {printable(str(path))}."
        if files:
            names = ", ".join(map(printable, files[:_SHOWN_FILES])) + (", …" if len(files) > _SHOWN_FILES else "")
            read = f"Read {plural(len(files), 'file')} of {printable(str(path))}: {names}."
        invocation.emit(
            report,
            lambda: [note(read, QUIET), *_import_view(report, dry_run=dry_run)],
            source=str(path),
            files=files,
            dry_run=dry_run,
            project=engine.project if project is None else project,
        )
    # Only a dry run gets here with problems: a real import refuses them.
    return 1 if report.problems else 0


def _import_view(report: ImportReport, *, dry_run: bool) -> Iterator[Styled]:
    """The result of an import or a dry run."""
    would = "would be " if dry_run else ""
    links = f", {plural(report.links, 'link')}" if report.links else ""
    yield note(f"{report.added:,} of {plural(report.read, 'memory')} {would}added ({report.format}){links}.")
    if report.secrets:
        kind = "a secret" if report.secrets == 1 else "secrets"
        yield note(f"{plural(report.secrets, 'memory')} {would}sealed as {kind}.", WARNING)
    repeated = sum(not memory.id for memory in report.memories)
    if report.duplicates > repeated:
        yield note(f"{report.duplicates - repeated:,} already stored.", QUIET)
    if repeated:
        yield note(f"{repeated:,} twice in this file.", QUIET)
    for preview in report.memories[:_SHOWN_PREVIEWS]:
        yield from _preview(preview)
    yield from more(len(report.memories) - _SHOWN_PREVIEWS, " (--json shows all)", indent="  ")
    for skipped in report.skipped[:_SHOWN_PROBLEMS]:
        yield note(f"skipped: {skipped.place}: {skipped.reason}", QUIET)
    yield from more(len(report.skipped) - _SHOWN_PROBLEMS, " skipped")
    for problem in report.problems[:_SHOWN_PROBLEMS]:
        yield note(f"✗ {problem.place}: {problem.reason}", BAD)
    if (rest := len(report.problems) - _SHOWN_PROBLEMS) > 0:
        yield note(f"… and {plural(rest, 'more problem')}", BAD)
    if report.added and not dry_run:
        yield note(f"Undo with `triskele undo --batch {report.batch}`.", QUIET)


def _preview(memory: Preview) -> Iterator[Styled]:
    """The text that an import would write, with its category and tags."""
    labels = [memory.category, *(f"#{tag}" for tag in memory.tags)]
    duplicate = ""
    if memory.action == Action.DUPLICATE:
        duplicate = f" (already stored as {memory.id})" if memory.id else " (twice in this file)"
    elif memory.secret:
        labels.append("would be sealed")
    source = f"{memory.place}: " if memory.place else ""
    text = f"{SECRET_PREFIX if memory.secret else ''}{one_line(memory.content)[:_PREVIEW_CHARACTERS]}"
    yield note(f"  {source}{text}{duplicate}")
    yield note(f"    {' · '.join(labels)}", QUIET)


def _import_archive(invocation: Invocation, source: Path, **options: bool) -> None:
    """Import an archive, with its vectors."""
    from triskele.exchange.archive import import_archive

    is_dry = options["dry_run"]
    with invocation.stores.open_local(creates=not is_dry) as engine:
        with progress_bar("Importing") as progress:
            report = import_archive(engine, source, progress=progress, **options)

        def view() -> Iterator[Styled]:
            yield from _archive_view(report, "would be imported" if is_dry else "imported")
            if not is_dry and not engine.settings.project and (advice := _elsewhere(engine)):
                yield note(advice, QUIET)

        invocation.emit(report, view, format=_ARCHIVE, dry_run=is_dry)


def _elsewhere(engine: LocalEngine) -> str:
    """Say how memories of other projects come to this folder's project."""
    # The import may have brought the folder's project.
    here = engine.working_in(Path.cwd()).project
    projects = [project.name for project in engine.upkeep.projects() if project.memories]
    if not projects or here in projects:
        return ""
    names = ", ".join(projects[:_SHOWN_PROJECTS]) + (", …" if len(projects) > _SHOWN_PROJECTS else "")
    command = f"triskele projects merge {quote(here)} {quote(projects[0]) if len(projects) == 1 else 'PROJECT'}"
    return f"The memories are in {names}, not in {here}, the project of this folder: `{command}` changes that."


def _export_archive(invocation: Invocation, target: Path | None, *, private: bool, all_owners: bool) -> None:
    """Write an archive of a local store."""
    from triskele.exchange.archive import export_archive

    if target is None and invocation.as_json:
        raise BadInput("an archive is a file: name one")
    with invocation.stores.open_local() as engine:
        output = sys.stdout if target is None else target
        with progress_bar("Exporting") as progress:
            report = export_archive(engine, output, include_private=private, all_owners=all_owners, progress=progress)
        document = {**shown(report), "format": _ARCHIVE, "target": str(target)}
        action = f"written to {target or 'the output'}"
        invocation.emit(document, lambda: _archive_view(report, action), is_beside_data=target is None)


def _archive_view(report: Summary, action: str) -> Iterator[Styled]:
    """The result of an export or import of an archive."""
    owners = f" of {plural(report.owners, 'owner')}" if report.owners != 1 else ""
    rows = f"({report.rows:,} rows, {plural(report.vectors, 'vector')})"
    yield note(f"{plural(report.memories, 'memory')}{owners} {action} {rows}.")
    if report.to_embed:
        yield note(
            f"{plural(report.to_embed, 'text')} to embed: the vectors of the archive are of another model.", QUIET
        )


@command(
    "triskele export memories.jsonl",
    "triskele export notes/ --format markdown",
    "triskele export --private | gzip > memories.jsonl.gz",
    "triskele export everything.jsonl --private --with-secrets",
    "triskele export everything.archive --format archive --private",
)
@click.argument("target", type=_PATH, required=False)
@click.option(
    "--format", metavar="F", default="jsonl", show_default=True, help="jsonl (lossless), archive or markdown."
)
@click.option("--private", is_flag=True, help="Include private memories.")
@click.option("--with-secrets", is_flag=True, help="Include secrets in clear; the journal records each of them.")
@click.option("--force", is_flag=True, help="Overwrite an existing file or folder.")
@click.option("--current-only", is_flag=True, help="Omit older versions and forgotten memories.")
@click.option("--all-owners", is_flag=True, help="With --format archive: everything of every owner of the store.")
def export(
    invocation: Invocation, target: Path | None, format: str, force: bool, all_owners: bool, **selection: Any
) -> None:
    """Export all memories to a file or folder, or to standard output.

    JSONL also holds older versions and forgotten memories, unless --current-only. An archive moves everything to
    another store, with vectors, journal and usage; secrets stay sealed in it.
    """
    target = None if target == Path("-") else target
    if target is not None and not force:
        # Whether a folder that cannot be read can be written is found out by writing.
        with suppress(OSError):
            if target.is_file() or (target.is_dir() and any(target.iterdir())):
                raise BadInput(f"{target} exists: choose another name, or overwrite it with --force")
    if format == _ARCHIVE:
        if selection["current_only"] or selection["with_secrets"]:
            raise BadInput("an archive holds everything, secrets sealed: neither --current-only nor --with-secrets")
        return _export_archive(invocation, target, private=selection["private"], all_owners=all_owners)
    if all_owners:
        raise BadInput("only an archive holds every owner: add --format archive")
    from triskele.exchange.transfer import EXPORTS, checked, export_memories

    checked(format, (*EXPORTS, _ARCHIVE))
    stream = io.StringIO() if invocation.as_json else sys.stdout
    with invocation.open(at_store=True) as engine:
        output = stream if target is None else target
        if (store := connect.local(engine)) is None:
            report = _downloaded(engine, output, format, **selection)
        else:
            selection["include_private"] = selection.pop("private")
            with progress_bar("Exporting") as progress:
                report = export_memories(store, output, format=format, progress=progress, **selection)
        content: Document = {"target": str(target)}
        if target is None and isinstance(stream, io.StringIO):
            stream.seek(0)
            content = {"records": [json.loads(line) for line in stream]}
        document = {**shown(report), "format": format, "project": engine.project, **content}
        return invocation.emit(document, lambda: _export_view(report, target), is_beside_data=target is None)


def _export_view(report: ExportReport, target: Path | None) -> Iterator[Styled]:
    """The result of an export."""
    yield note(f"{plural(report.written, 'memory')} written{f' to {target}' if target else ''}.")
    versions = "left out, private or secret (included with --private and --with-secrets)"
    for count, noun, remark in (
        (report.forgotten, "forgotten memory", "among them (left out with --current-only)"),
        (report.left_out_private, "private memory", "left out (included with --private)"),
        (report.left_out_secret, "secret memory", "left out (included in clear with --with-secrets)"),
        (report.left_out_versions, "earlier version", versions),
    ):
        if count:
            yield note(f"{plural(count, noun)} {remark}.", QUIET)
    if report.revealed:
        yield note(
            f"The file holds {plural(report.revealed, 'secret memory')} in clear; only you may read it.", WARNING
        )


def _downloaded(engine: Engine, target: Path | TextIO, format: str, **selection: Any) -> ExportReport:
    """Download an export; a file appears only when it is complete."""
    if format != "jsonl":
        raise BadInput("a server exports jsonl: `triskele import` and `triskele export` of a local store convert it")
    if selection["with_secrets"] and not isinstance(target, Path):
        raise BadInput("secrets can only be exported into a jsonl file: name one")
    folder = target.absolute().parent if isinstance(target, Path) else None
    with TemporaryDirectory(prefix=".triskele-", dir=folder) as beside:
        file = Path(beside) / "export.jsonl"
        report = engine.export_memories(file, **selection)
        if isinstance(target, Path):
            file.chmod(0o600)
            file.replace(target)
        else:
            with file.open(encoding="utf-8") as lines:
                target.writelines(lines)
    return report


@command(
    "triskele config set sync.url https://memory.example.com     (the key goes into sync.key)",
    "triskele sync",
    "triskele sync --status",
    "triskele sync --resolve 1kpn46 --keep theirs",
)
@click.option("--status", "is_status", is_flag=True, help="Show what waits and why, without contacting the server.")
@click.option("--elsewhere", "is_elsewhere", is_flag=True, help="Start over with another server or user.")
@click.option("--resolve", metavar="ID", help="Settle the conflict of a memory.")
@click.option("--keep", type=click.Choice(["mine", "theirs"]), help="The version that --resolve keeps.")
def sync(invocation: Invocation, is_status: bool, is_elsewhere: bool, resolve: str | None, keep: str | None) -> None:
    """Sync this store with a server: push what changed here, then pull.

    The store stays on this machine and works offline. To use a server's memory instead of it, set server.url.
    """
    if (resolve is None) != (keep is None) or ((is_status or is_elsewhere) and resolve is not None):
        raise BadInput("--resolve ID takes --keep mine or --keep theirs, and nothing else")
    with invocation.stores.open_local(creates=True) as engine:
        if resolve is not None:
            memory = engine.get(resolve)
            if not memory.in_conflict:
                raise NotFound(f"{memory.id} has no conflict: `triskele list --conflicts` shows all")
            (engine.curation.reject if keep == "mine" else engine.curation.accept)(memory.id)
            side = "this machine's" if keep == "mine" else "the server's"
            following = "; the next sync sends it" if keep == "mine" else ""
            line = f"Kept {side} version of {engine.shorten([memory.id])[memory.id]}{following}."
            return invocation.emit({"id": memory.id, "kept": keep, "project": engine.project}, lambda: line)
        if is_status:
            state = engine.upkeep.sync_state()
            return invocation.emit(
                state,
                lambda: _state_view(state, engine.shorten([*state.waiting, *state.conflicts])),
                project=engine.project,
            )
        from triskele.edge.process import syncing

        report = syncing.sync(engine, is_elsewhere=is_elsewhere)

        def view() -> Iterator[Styled]:
            yield note(f"{plural(report.pushed, 'change')} pushed, {plural(report.pulled, 'change')} pulled.")
            if report.waiting:
                yield note(f"{len(report.waiting):,} waiting: `triskele sync --status` says why.")
            if report.conflicts:
                yield note(f"{plural(len(report.conflicts), 'conflict')}: {SETTLE}.")

        return invocation.emit(report, view, project=engine.project)


def _state_view(state: SyncState, short: ShortIds) -> Iterator[Styled]:
    """What waits to be synced, and why."""
    user = f" as {state.user}" if state.user else ""
    yield note(f"Server: {state.url or 'no server (set sync.url)'}{user}")
    yield note(f"Last sync: {minute(timestamps.parse(state.at)) if state.at else 'never'}")
    if state.error:
        yield note(f"The last try failed: {state.error}")
    yield note(f"{plural(len(state.unsent), 'change')} to push.")
    yield from (note(f"{short[id]} waits: {reason}") for id, reason in state.waiting.items())
    for id in state.conflicts:
        yield note(f"{short[id]} is in conflict: it was changed here and on the server.")
    if state.conflicts:
        yield note(f"{SETTLE}.")
    if state.left_here:
        stay = "stays" if state.left_here == 1 else "stay"
        yield note(f"{plural(state.left_here, 'private or secret memory')} {stay} here.")
