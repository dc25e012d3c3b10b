"""Commands for the store: backup, restore, reindex, doctor, secrets, projects."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triskele.config import KEY_SOURCES
from triskele.edge.cli.commands import command, command_group
from triskele.edge.cli.documents import shown
from triskele.edge.cli.invocation import Invocation, progress_bar
from triskele.edge.cli.memory_view import changes_view, failed_jobs_view, listing
from triskele.edge.cli.options import MAX_LISTED, FilePath, memory_id
from triskele.edge.cli.view import BAD, GOOD, ID, QUIET, WARNING, Table, minute, more, note, plural, size
from triskele.edge.install.config_files import TokenFile
from triskele.edge.process import connect
from triskele.edge.wording import one_line, shown_content
from triskele.errors import BadInput, Conflict, StoreUnavailable
from triskele.text.folders import REMOTE
from triskele.types import Sensitivity

if TYPE_CHECKING:
    from triskele.edge.cli.view import Renderable, Styled
    from triskele.engine.health import Health
    from triskele.engine.upkeep import SyncedServer
    from triskele.replies import JobCounts

_FILE = FilePath(is_database=True)
_SHOWN_PROBLEMS = 10
_NO_MODEL = "✓ No hosted model is configured"


@command("triskele backup memories-monday.db", "triskele backup /mnt/stick/memories.db --json")
@click.argument("target", type=_FILE)
def backup(invocation: Invocation, target: Path) -> None:
    """Write a verified copy of the store to a new file."""
    with invocation.stores.open_local(is_needed=True) as engine:
        copied, has_vault = engine.upkeep.backup(target).stat().st_size, engine.upkeep.has_vault()

        def view() -> Iterator[Styled]:
            yield note(f"Backup written to {target} ({size(copied)}); all checksums match.")
            if has_vault:
                advice = "without a copy of the key, secrets cannot be read."
                yield note(f"The key of the vault is not in it: {advice}", WARNING)

        invocation.emit({"path": str(target.absolute()), "bytes": copied, "project": engine.project}, view)


@command("triskele restore memories-monday.db", "triskele restore memories-monday.db --json")
@click.argument("source", type=_FILE)
@click.option(
    "--yes", is_flag=True, help="Replace an undamaged store without asking; needed where there is no terminal."
)
def restore(invocation: Invocation, source: Path, yes: bool) -> None:
    """Replace the store by a backup; the old store is kept."""
    connect.require_store(invocation.stores.chosen())
    if not yes and source.is_file() and (count := _sound_memories(invocation)):
        held = f"the store holds {plural(count, 'memory')}, which {source} replaces"
        if not invocation.can_ask():
            raise BadInput(f"{held}: confirm it with --yes (the old store is kept)")
        if not click.confirm(f"{held[0].upper()}{held[1:]}. Go on? The old store is kept.", err=True):
            raise Conflict("not confirmed: nothing was restored")
    engine, replaced = invocation.stores.restore(source)
    with engine:
        count, was_damaged = engine.stats().memories, replaced is not None and replaced.is_dir()

        def view() -> Iterator[Styled]:
            yield note(f"Restored {plural(count, 'memory')} from {source}.")
            if replaced is not None:
                what = "The damaged files are" if was_damaged else "The old store is"
                yield note(f"{what} kept in {replaced}", QUIET)

        document = {"restored": str(source), "kept": replaced and str(replaced), "was_damaged": was_damaged}
        invocation.emit({**document, "memories": count, "project": engine.project}, view)


def _sound_memories(invocation: Invocation) -> int:
    """Count the memories that a restore would replace, without a damaged store."""
    with suppress(StoreUnavailable):
        if invocation.stores.exists():
            with invocation.stores.open_engine() as engine:
                return engine.stats().memories
    return 0


@command("triskele reindex", "triskele reindex --json")
def reindex(invocation: Invocation) -> None:
    """Rebuild the search indexes and embed what waits."""
    with invocation.stores.open_local() as engine:
        started, upkeep, counts = time.perf_counter(), engine.upkeep, engine.stats()
        with progress_bar("Indexing", total=counts.versions) as progress:
            upkeep.reindex(progress)
        earlier, update = upkeep.model_in_force(), upkeep.update()
        with progress_bar("Embedding", total=counts.jobs.embed or (update[1] if update else 0)) as progress:
            embedded = upkeep.embed(progress=progress) + upkeep.advance_update(progress=progress)
        elsewhere = upkeep.embed_hosted()
        took_ms = round((time.perf_counter() - started) * 1000, 3)
        is_updated = update is not None and upkeep.update() is None

        def view() -> Iterator[Styled]:
            counted = f"{plural(counts.versions, 'version')} and embedded {plural(embedded, 'text')}"
            hosted = f" The hosted model embedded {elsewhere:,} of them." if elsewhere else ""
            yield note(f"Indexed {counted} in {took_ms / 1000:.1f} s.{hosted}")
            if update is not None and is_updated:
                yield note(f"{update[0]} is in use; `triskele models rollback` returns to {earlier}.")

        document = {"indexed": counts.versions, "embedded": embedded, "elsewhere": elsewhere, "took_ms": took_ms}
        invocation.emit({**document, "project": engine.project}, view)


@command("triskele doctor", "triskele doctor --deep --no-repair --json")
@click.option("--deep", is_flag=True, help="Check every checksum and every index entry.")
@click.option("--repair/--no-repair", default=True, help="Repair derived data (the default).")
def doctor(invocation: Invocation, deep: bool, repair: bool) -> int:
    """Look for damage and repair what can be repaired.

    Exits with 1 if something stays broken (✗); notes (·) do not count.
    """
    with invocation.stores.open_local() as engine:
        health = engine.upkeep.inspect(deep=deep, repair=repair)
        synced = engine.upkeep.synced_servers()
        private_to, clients = engine.settings.agents.private_to, TokenFile.of(engine.settings.home).clients()
        without_token = [name for name in private_to if name.strip().lower() not in clients]
        server = invocation.stores.settings().server.url
        invocation.emit(
            {"healthy": health.is_working, "deep": deep, **shown(health)},
            lambda: health_view(health, synced, server, without_token),
            synced=synced,
            clients_without_token=without_token,
            project=engine.project,
        )
    return 0 if health.is_working else 1


@command_group("triskele secrets list", "triskele secrets reveal 1kpn46", "triskele secrets rotate --renew")
def secrets() -> None:
    """Show and seal secrets, and change the key of the vault."""


@secrets.subcommand("triskele secrets reveal 1kpn46", "triskele secrets reveal 1kpn46 --json")
@memory_id()
def reveal(invocation: Invocation, id: str) -> None:
    """Show the text of a secret; the journal records it."""
    with invocation.open(at_store=True) as engine:
        project, secret = engine.get(id).project, engine.reveal(id)
        invocation.emit(secret, lambda: secret.text, project=project)


@secrets.subcommand("triskele secrets list", "triskele secrets list --json", name="list")
def list_secrets(invocation: Invocation) -> None:
    """List the titles of the secrets of all projects."""
    with invocation.open() as engine:
        page = engine.browse(all_projects=True, sensitivities=[Sensitivity.SECRET], limit=MAX_LISTED)
        secrets = sorted(page.memories, key=lambda memory: memory.id)

        def view() -> Iterator[Renderable]:
            if not secrets:
                yield note("No secrets; `triskele add - --secret --title WORDS` seals one.")
                return
            yield from listing(secrets, engine.shorten(each.id for each in secrets), None, limit=MAX_LISTED)

        invocation.emit({"memories": secrets, "project": None}, view, is_list=True)


@secrets.subcommand("triskele secrets seal 1kpn46", "triskele secrets seal 1kpn46 --title 'Key of the build box'")
@memory_id()
@click.option("--title", metavar="WORDS", help="Its title; if omitted, one that does not contain the secret.")
def seal(invocation: Invocation, id: str, title: str | None) -> None:
    """Seal all versions of a memory, and erase what was derived from its text."""
    with invocation.open(at_store=True) as engine:
        erasure = engine.seal(id, title=title)
        [outcome] = erasure.outcomes

        def view() -> Iterator[Renderable]:
            yield from changes_view(erasure, [], engine.shorten([outcome.id]))
            yield note(f"It is shown as {shown_content(engine.get(outcome.id), False)}")

        copies = {"kept_copies": erasure.remaining_copies, "erased_copies": erasure.erased_copies}
        invocation.emit({**shown(outcome), **copies}, view, sent=erasure.sent, project=engine.project)


@secrets.subcommand("triskele secrets rotate --renew", "triskele secrets rotate --to passphrase")
@click.option("--to", type=click.Choice(KEY_SOURCES[1:]), help="Use another key source.")
@click.option("--renew", is_flag=True, help="Make a new data key and re-encrypt everything.")
def rotate(invocation: Invocation, to: str | None, renew: bool) -> None:
    """Change the key of the vault; safe to interrupt."""
    if to is None and not renew:
        raise click.UsageError("nothing to change: give --to, --renew or both")
    with invocation.stores.open_local() as engine:
        rotation = engine.upkeep.rotate_key(to, renew=renew)
        renewed = f"; {plural(rotation.resealed, 'text')} re-encrypted" if rotation.renewed else ""
        line = f"The vault now uses the key source {rotation.source}{renewed}."
        invocation.emit(rotation, lambda: line, project=engine.project)


@command_group("triskele projects list", "triskele projects merge api acme/api")
def projects() -> None:
    """List, rename and merge projects.

    The git remote or the path of its folder identifies a project, so that two folders of the same name stay apart.
    """


@projects.subcommand("triskele projects list", "triskele projects list --json", name="list")
def list_projects(invocation: Invocation) -> None:
    """List the projects with their memories and places."""
    with invocation.stores.open_local() as engine:
        projects, here = engine.upkeep.projects(), engine.project

        def view() -> Iterator[Renderable]:
            if not projects:
                yield note("No projects yet: a folder becomes a project with its first memory.")
                return
            rows = []
            for project in projects:
                # A remote is more informative than the folders of its clones.
                keys = [key for key in project.places if key.startswith(REMOTE)] or project.places
                folders = ", ".join(key.partition(":")[2] for key in keys)
                sign = "*" if project.name == here else ""
                rows.append((note(sign), note(project.name, ID), note(f"{project.memories:,}"), note(folders, QUIET)))
            yield Table(("", "project", "memories", "folders and repositories"), rows, last_takes_rest=True)
            yield note(f"* current project: {here}", QUIET)

        invocation.emit({"projects": projects, "project": here}, view)


@projects.subcommand("triskele projects rename api billing-api")
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
def rename(invocation: Invocation, old: str, new: str) -> None:
    """Give a project another name; undo takes it back."""
    _move(invocation, old, new, merge=False)


@projects.subcommand("triskele projects merge api-2 api")
@click.argument("source", metavar="SOURCE")
@click.argument("target", metavar="TARGET")
def merge(invocation: Invocation, source: str, target: str) -> None:
    """Move all memories and places of SOURCE into TARGET; undo takes it back."""
    _move(invocation, source, target, merge=True)


def _move(invocation: Invocation, source: str, target: str, *, merge: bool) -> None:
    with invocation.stores.open_local() as engine:
        moved = engine.upkeep.move_project(source, target, merge=merge)
        belong = "belongs" if moved.memories == 1 else "belong"
        line = f"{plural(moved.memories, 'memory')} of {source} now {belong} to {moved.name}."
        document = {"from": source, "to": moved.name, "memories": moved.memories, "batch": moved.batch}
        invocation.emit(
            {**document, "project": moved.name},
            lambda: [note(f"{line} Undo with `triskele undo --batch {moved.batch}`.")],
        )


def health_view(
    health: Health, synced: Sequence[SyncedServer] = (), server: str = "", without_token: Sequence[str] = ()
) -> Iterator[Styled]:
    """The findings and repairs of `doctor`; `server` is that of the settings."""
    yield from (note(f"✗ {finding.subject}: {finding.problem}", BAD) for finding in health.findings)
    if health.findings:
        yield note("This cannot be repaired: restore a backup with `triskele restore FILE`.")
    else:
        checked = "all checksums match" if health.is_deep else "integrity check passed"
        yield note(f"✓ Database OK ({checked}).", GOOD)
    yield from _lost_writes(health)
    for path in health.leftovers:
        yield note(f"· A killed backup or restore left {path}: it holds memories", WARNING)
    yield from (note(f"✓ Repaired: {what}.", GOOD) for what in health.repaired)
    if health.repair_problem is not None:
        sign, style = ("✗", BAD) if health.is_unrepaired else ("·", WARNING)
        yield note(f"{sign} Nothing more could be repaired: {health.repair_problem}", style)
    if health.model_problem is not None:
        yield note(f"✗ The model cannot be loaded, recall uses words only: {health.model_problem}", BAD)
    yield from (note(f"· {line}.", WARNING) for line in health.corpus_notes)
    if health.vault_problem is not None:
        yield note(f"✗ Secrets cannot be read: {health.vault_problem}", BAD)
    for id in health.exposed[:_SHOWN_PROBLEMS]:
        yield note(f"· {id} looks like a secret and is not sealed: triskele secrets seal {id}", WARNING)
    yield from more(len(health.exposed) - _SHOWN_PROBLEMS, style=WARNING)
    yield from _index(health)
    for name, namesakes in health.mixed.items():
        problem = f"Older memories of {name} may belong to {' or '.join(namesakes)}, a folder of the same name:"
        advice = f"see `triskele list --project {name}`, move one with `triskele edit ID --project {namesakes[0]}`"
        yield note(f"· {problem} {advice}", WARNING)
    yield from _pending_jobs(health.jobs)
    yield from _egress(health, synced, server)
    if not health.is_deep:
        yield note("`triskele doctor --deep` also checks every checksum and every index entry.", QUIET)
    for name in without_token:
        command = f"run `triskele install {name}` again"
        yield note(f"· private_to names {name}, but its entry has no token: {command}", WARNING)


def _index(health: Health) -> Iterator[Styled]:
    """The state of the indexes where nothing was repaired."""
    if health.findings or health.repaired or health.repair_problem is not None:
        return
    if health.is_unrepaired:
        faults = ("index fault", health.index_faults), ("damaged vector", health.vectors_damaged)
        counts = (*faults, ("erased vector", health.vectors_orphaned))
        parts = ", ".join(plural(count, noun) for noun, count in counts if count)
        yield note(f"✗ Not repaired: {parts}. `triskele doctor --deep` repairs this.", BAD)
    elif not health.repairs and health.index_behind != 0:
        yield note("· The index is not up to date: the next recall brings it there.", WARNING)
    else:
        yield note("✓ Index up to date.", GOOD)


def _lost_writes(health: Health) -> Iterator[Styled]:
    """Acknowledged writes that were lost, and what is still known of them."""
    for loss in health.lost:
        lost = f"{plural(len(loss.entries), 'acknowledged write')} lost, the last of {minute(loss.entries[-1].at)}"
        yield note(f"✗ {lost}: the database is older than what was reported as stored.", BAD)
        for entry in loss.entries[-_SHOWN_PROBLEMS:]:
            text = f": {one_line(loss.texts[entry.id])}" if entry.id in loss.texts else ""
            yield note(f"  {minute(entry.at)} {entry.action} {entry.id}{text}", BAD)
        if loss.kept is not None:
            advice = "delete it when you no longer need it."
            yield note(f"  What is left of them is kept in {loss.kept}; {advice}", WARNING)
    for path, count in health.index_ahead.items():
        yield note(f"✗ An older index has {plural(count, 'version')} that the database lacks: writes were lost.", BAD)
        yield note(f"  The index is kept in {path}", WARNING)
    if health.lost or health.index_ahead:
        yield note("  Restore a newer backup with `triskele restore FILE`, or write them again.")


def _pending_jobs(jobs: JobCounts) -> Iterator[Styled]:
    """Pending work, and what failed last."""
    if jobs.embed or jobs.names:
        parts = [f"{plural(jobs.embed, 'text')} to embed"] * bool(jobs.embed)
        parts += [f"{plural(jobs.names, 'memory')} to read names from"] * bool(jobs.names)
        yield note(f"· {', '.join(parts)}: the background does it, or `triskele reindex` now", WARNING)
    yield from failed_jobs_view(jobs)


def _egress(health: Health, synced: Sequence[SyncedServer], server: str) -> Iterator[Styled]:
    """The configured hosts and servers, and what was sent, by day."""
    yield from (note(f"· {problem}", WARNING) for problem in health.outside_problems)
    if health.outside:
        hosts = ", ".join(f"{host} ({name})" for name, host in health.outside.items())
        yield note(f"· Open memories and queries may be sent to {hosts}.", WARNING)
    elif not health.outside_problems:
        stays_here = not server and not any(state.is_set for state in synced)
        yield note(f"{_NO_MODEL}; nothing leaves this machine." if stays_here else f"{_NO_MODEL}.", GOOD)
    for state in synced:
        verb = "are" if state.is_set else "were"
        user = f" as {state.user}" if state.user else ""
        last = f"last sync {minute(state.at)}" if state.at else "no sync has finished yet"
        pushed = "" if state.sent is None else f"{plural(state.sent, 'change')} pushed, "
        yield note(f"· Open memories {verb} synced with {state.url}{user}: {pushed}{last}.", WARNING)
    if server:
        yield note(f"· Commands without --store use the memory on {server}.", WARNING)
    if not health.left:
        where = "to a hosted model" if synced or server else "from this machine"
        yield note(f"✓ Nothing was sent {where}.", GOOD)
    for day in health.left:
        billed = f", {plural(day.tokens, 'token')}" if day.tokens else ""
        billed += f", about {day.cost:,.4f} in your currency" if day.cost else ""
        requests = f"{plural(day.requests, 'request')} (failed ones included)"
        texts = f"{plural(day.texts, 'text')}, {plural(day.characters, 'character')} to {day.host} ({day.endpoint})"
        yield note(f"· {day.day}: {texts}, {requests}{billed}", WARNING)
