"""Commands that transfer memories: import, export, sync."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TextIO

import click

from triskele.edge.cli import views
from triskele.edge.cli.invocation import Invocation, common, console, examples, progress_bar
from triskele.edge.cli.options import FilePath, writing_place, written_project
from triskele.edge.http.codec import to_json
from triskele.edge.process import connect
from triskele.errors import BadInput, ModelUnavailable, NotFound

if TYPE_CHECKING:
    from rich.console import RenderableType

    from triskele.engine.local import LocalEngine
    from triskele.engine.protocol import Engine
    from triskele.replies import ExportReport

_PATH = FilePath()
_ARCHIVE = "archive"
_SHOWN_PROJECTS = 5
_SHOWN_FILES = 10


@click.command(
    "import",
    epilog=examples(
        "triskele import CLAUDE.md --dry-run",
        "triskele import notes/ --format markdown --everywhere",
        "triskele import claude-code          (what Claude Code noted about this project)",
        "triskele import memories.jsonl",
        "triskele import everything.archive --keep-origin",
    ),
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
@common
@click.pass_context
def import_(
    context: click.Context,
    invocation: Invocation,
    source: Path,
    format: str | None,
    dry_run: bool,
    keep_origin: bool,
    all_owners: bool,
    project: str | None,
    everywhere: bool,
) -> None:
    """Import a file, a folder or Claude Code's notes, all or nothing.

    It reads SOURCE and nothing else: a file (for a conversation, the one transcript that you name, such as
    ~/.claude/projects/…/ID.jsonl) or every .md, .markdown and .txt file of a folder that is not hidden. `claude-code`
    is MEMORY.md and the notes next to it that Claude Code keeps about this project, without transcripts. The answer
    names the files that were read.
    """
    from triskele.exchange.archive import recognises

    place = written_project(project, everywhere)
    if format == _ARCHIVE or (format is None and recognises(source)):
        if place is not None:
            raise BadInput("an archive keeps the projects of its memories: import it without a project")
        _import_archive(invocation, source, dry_run=dry_run, keep_origin=keep_origin, all_owners=all_owners)
        return
    if all_owners:
        raise BadInput("only an archive can hold several owners: import this file without --all-owners")
    with invocation.open_existing() if dry_run else invocation.open() as engine:
        from triskele.exchange.claude_notes import named_source
        from triskele.exchange.sources import resolved
        from triskele.exchange.transfer import choose, files_of

        path = resolved(named_source(source, Path.cwd()))
        asked: dict[str, Any] = {"dry_run": dry_run, "project": place, "keep_origin": keep_origin}
        if (store := connect.local(engine)) is None:
            report = engine.import_memories(path, format=choose(path, format), **asked)
        else:
            with progress_bar("Importing") as progress:
                report = store.import_memories(path, format=format, progress=progress, **asked)
            if not dry_run:
                _embed(store)
        files = [str(file.relative_to(path)) for file in files_of(path)] if path.is_dir() else []
        document = {**to_json(report), "source": str(path), "files": files, "dry_run": dry_run}
        invocation.emit(
            {**document, "project": engine.project if place is None else place},
            lambda: [
                views.render.note(_files_read(path, files), style=views.render.QUIET),
                views.reports.imported(report, dry_run=dry_run),
            ],
        )
    # Only a dry run gets here with problems: a real import refuses them.
    context.exit(1 if report.problems else 0)


def _embed(store: LocalEngine) -> None:
    """Embed what was imported, if there is a model."""
    with progress_bar("Embedding", total=store.stats().jobs.embed) as progress, suppress(ModelUnavailable):
        store.upkeep.embed(progress=progress)


def _files_read(path: Path, files: Sequence[str]) -> str:
    from triskele.exchange.sources import printable

    if not files:
        return f"Read {printable(str(path))}."
    names = ", ".join(map(printable, files[:_SHOWN_FILES])) + (", …" if len(files) > _SHOWN_FILES else "")
    return f"Read {views.render.counted(len(files), 'file')} of {printable(str(path))}: {names}."


def _import_archive(invocation: Invocation, source: Path, **asked: bool) -> None:
    """Take everything of an archive; nothing is embedded that it has vectors for."""
    with invocation.open_local_existing() if asked["dry_run"] else invocation.open_local() as engine:
        from triskele.exchange.archive import import_archive

        with progress_bar("Importing") as progress:
            report = import_archive(engine, source, progress=progress, **asked)

        def lines() -> Iterator[RenderableType]:
            yield views.reports.archived(report, "would be imported" if asked["dry_run"] else "imported")
            if not asked["dry_run"] and not engine.settings.project and (advice := _elsewhere(engine)):
                yield views.render.note(advice, style=views.render.QUIET)

        invocation.emit({**to_json(report), "format": _ARCHIVE, "dry_run": asked["dry_run"]}, lines)


def _elsewhere(engine: LocalEngine) -> str:
    """The projects of a store's memories if none is in that of this folder, and the command that merges them."""
    # The import may have brought the folder's project.
    here = engine.working_in(Path.cwd()).project
    known = [each.name for each in engine.upkeep.projects() if each.memories]
    if not known or here in known:
        return ""
    names = ", ".join(known[:_SHOWN_PROJECTS]) + (", …" if len(known) > _SHOWN_PROJECTS else "")
    binding = f"triskele projects merge {quote(here)} {quote(known[0]) if len(known) == 1 else 'PROJECT'}"
    return f"The memories are in {names}, not in {here}, the project of this folder: `{binding}` changes that."


def _export_archive(invocation: Invocation, target: Path | None, *, private: bool, all_owners: bool) -> None:
    """Write an archive of a local store."""
    if target is None and invocation.as_json:
        raise BadInput("an archive is a file: name one")
    with invocation.open_local_existing() as engine:
        from triskele.exchange.archive import export_archive

        with progress_bar("Exporting") as progress:
            place = sys.stdout if target is None else target
            report = export_archive(engine, place, include_private=private, all_owners=all_owners, progress=progress)
        if invocation.as_json:
            return invocation.write_json({**to_json(report), "format": _ARCHIVE, "target": str(target)})
        shown = views.reports.archived(report, f"written to {target or 'the output'}")
        return console(is_error=target is None).print(shown)


@click.command(
    epilog=examples(
        "triskele export memories.jsonl",
        "triskele export notes/ --format markdown",
        "triskele export --private | gzip > memories.jsonl.gz",
        "triskele export everything.jsonl --private --with-secrets",
        "triskele export everything.archive --format archive --private",
    ),
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
@common
def export(
    invocation: Invocation,
    target: Path | None,
    format: str,
    private: bool,
    with_secrets: bool,
    force: bool,
    current_only: bool,
    all_owners: bool,
) -> None:
    """Export all memories to a file or folder, or to standard output.

    JSONL also holds older versions and forgotten memories, unless --current-only. An archive moves everything to
    another store, with vectors, journal and usage; secrets stay sealed in it.
    """
    target = None if target == Path("-") else target
    if target is not None and not force:
        _refuse_existing(target)
    if format == _ARCHIVE:
        if current_only or with_secrets:
            raise BadInput("an archive holds everything, secrets sealed: neither --current-only nor --with-secrets")
        return _export_archive(invocation, target, private=private, all_owners=all_owners)
    if all_owners:
        raise BadInput("only an archive holds every owner: add --format archive")
    stream = io.StringIO() if invocation.as_json else sys.stdout
    from triskele.exchange.transfer import EXPORTS, checked, export_memories

    checked(format, (*EXPORTS, _ARCHIVE))
    with invocation.open_existing() as engine:
        place = stream if target is None else target
        if (store := connect.local(engine)) is None:
            report = _downloaded(engine, place, format, private, with_secrets=with_secrets, current_only=current_only)
        else:
            asked = {"include_private": private, "with_secrets": with_secrets, "current_only": current_only}
            with progress_bar("Exporting") as progress:
                report = export_memories(store, place, format=format, progress=progress, **asked)
        if invocation.as_json:
            document = {**to_json(report), "format": format, "project": engine.project}
            return invocation.write_json({**document, **_exported_to(target, stream)})
        # The data may be on standard output: messages must not mix with it.
        return console(is_error=target is None).print(views.reports.exported(report, target))


def _downloaded(
    memory: Engine, target: Path | TextIO, format: str, private: bool, *, with_secrets: bool, current_only: bool
) -> ExportReport:
    """Write the export of a server; a file appears only when it is complete."""
    from triskele.exchange.transfer import EXPORTS, checked

    if checked(format, EXPORTS) != "jsonl":
        raise BadInput("a server exports jsonl: `triskele import` and `triskele export` of a local store convert it")
    if with_secrets and not isinstance(target, Path):
        raise BadInput("secrets can only be exported into a jsonl file: name one")
    folder = target.absolute().parent if isinstance(target, Path) else None
    with TemporaryDirectory(prefix=".triskele-", dir=folder) as beside:
        taken = Path(beside) / "export.jsonl"
        report = memory.export_memories(taken, private=private, with_secrets=with_secrets, current_only=current_only)
        if isinstance(target, Path):
            taken.chmod(0o600)
            taken.replace(target)
        else:
            with taken.open(encoding="utf-8") as lines:
                target.writelines(lines)
    return report


def _refuse_existing(target: Path) -> None:
    """Refuse a file, or a folder with content."""
    try:
        is_taken = target.is_file() or (target.is_dir() and any(target.iterdir()))
    except OSError:
        # Whether it can be written is found out by writing.
        return
    if is_taken:
        raise BadInput(f"{target} exists: choose another name, or overwrite it with --force")


def _exported_to(target: Path | None, stream: TextIO) -> dict[str, Any]:
    """The target of an export; without one, its records."""
    if target is not None:
        return {"target": str(target)}
    stream.seek(0)
    return {"records": [json.loads(line) for line in stream]}


@click.command(
    epilog=examples(
        "triskele config set sync.url https://memory.example.com     (the key goes into sync.key)",
        "triskele sync",
        "triskele sync --status",
        "triskele sync --resolve 1kpn46 --keep theirs",
    ),
)
@click.option("--status", "is_status", is_flag=True, help="Show what waits and why, without contacting the server.")
@click.option("--elsewhere", "is_elsewhere", is_flag=True, help="Start over with another server or user.")
@click.option("--resolve", metavar="ID", help="Settle the conflict of a memory.")
@click.option("--keep", type=click.Choice(["mine", "theirs"]), help="The version that --resolve keeps.")
@common
def sync(invocation: Invocation, is_status: bool, is_elsewhere: bool, resolve: str | None, keep: str | None) -> None:
    """Sync this store with a server: push what changed here, then pull.

    The store stays on this machine and works offline. To use a server's memory instead of it, set server.url.
    """
    if (resolve is None) != (keep is None) or ((is_status or is_elsewhere) and resolve is not None):
        raise BadInput("--resolve ID takes --keep mine or --keep theirs, and nothing else")
    with invocation.open_local() as engine:
        from triskele.edge.process import syncing

        if resolve is not None:
            memory = engine.get(resolve)
            if not memory.in_conflict:
                raise NotFound(f"{memory.id} has no conflict: `triskele list --conflicts` shows all")
            id = memory.id
            (engine.curation.reject if keep == "mine" else engine.curation.accept)(id)
            return invocation.emit(
                {"id": id, "kept": keep, "project": engine.project},
                lambda: [views.render.resolved(engine.shorten([id])[id], str(keep))],
            )
        if is_status:
            state = engine.upkeep.sync_state()
            return invocation.emit(
                {**to_json(state), "project": engine.project},
                lambda: [views.render.sync_state(state, engine.shorten([*state.waiting, *state.conflicts]))],
            )
        report = syncing.sync(engine, is_elsewhere=is_elsewhere)
        return invocation.emit({**to_json(report), "project": engine.project}, lambda: [views.render.synced(report)])
