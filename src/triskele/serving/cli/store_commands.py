"""Commands for the store: backup, restore, reindex, doctor, completion, secrets, projects."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import get_completion_class

from triskele.config import KEY_SOURCES
from triskele.serving import shapes
from triskele.serving.cli.invocation import Invocation, common, examples, global_options, progress_bar
from triskele.serving.cli.options import MAX_LISTED, FilePath, OrderedGroup, id_argument
from triskele.types import Action, is_secret

if TYPE_CHECKING:
    from collections.abc import Callable

    from triskele.config import Settings
    from triskele.engine import Engine
    from triskele.stores.protocols import OwnerStore
    from triskele.types import Change

_FILE = FilePath(is_database=True)
_SHELLS = ("bash", "zsh", "fish")


@click.command(
    epilog=examples("triskele backup memories-monday.db", "triskele backup /mnt/stick/memories.db --json"),
)
@click.argument("target", type=_FILE)
@common
def backup(invocation: Invocation, target: Path) -> None:
    """Write a verified copy of the store to a new file."""
    with invocation.open_existing(is_needed=True) as engine:
        engine.backup(target)
        count = target.stat().st_size
        if invocation.as_json:
            document = {"path": str(target.absolute()), "bytes": count, "project": engine.project}
            return invocation.write_json(document)
        from triskele.serving.cli import render

        said = f"Backup written to {target} ({render.size(count)}); all checksums match."
        lines = [render.note(said)]
        if engine.vault.exists():
            key = "The key of the vault is not in it: without a copy of the key, secrets cannot be read."
            lines.append(render.note(key, style=render.WARNING))
        return invocation.write(*lines)


@click.command(
    epilog=examples("triskele restore memories-monday.db", "triskele restore memories-monday.db --json"),
)
@click.argument("source", type=_FILE)
@click.option(
    "--yes", is_flag=True, help="Replace an undamaged store without asking; needed where there is no terminal."
)
@common
def restore(invocation: Invocation, source: Path, yes: bool) -> None:
    """Replace the store by a backup; the old store is kept."""
    invocation.refuse_server()
    if not yes and source.is_file() and (count := _sound_memories(invocation)):
        _confirm_restore(invocation, source, count)
    engine, kept = invocation.restore(source)
    with engine:
        count = engine.census().memories
        was_damaged = kept is not None and kept.is_dir()
        if invocation.as_json:
            document = {"restored": str(source), "kept": kept and str(kept), "was_damaged": was_damaged}
            return invocation.write_json({**document, "memories": count, "project": engine.project})
        from triskele.serving.cli import render

        lines = [render.note(f"Restored {render.memories(count)} from {source}.")]
        if kept is not None:
            what = "The damaged files are" if was_damaged else "The old store is"
            lines.append(render.note(f"{what} kept in {kept}", style=render.QUIET))
        return invocation.write(*lines)


def _sound_memories(invocation: Invocation) -> int:
    """The number of memories that a restore would replace; 0 if the store is missing or damaged."""
    from triskele.errors import StoreUnavailable
    from triskele.stores import factory

    try:
        if not factory.exists(invocation.settings()):
            return 0
        with invocation.open_engine() as engine:
            return engine.census().memories
    except StoreUnavailable:
        return 0


def _confirm_restore(invocation: Invocation, source: Path, count: int) -> None:
    from triskele.errors import BadInput, Conflict
    from triskele.serving.cli import render

    replaced = f"the store holds {render.memories(count)}, which {source} replaces"
    if invocation.as_json or sys.stdin is None or not sys.stdin.isatty():
        raise BadInput(f"{replaced}: confirm it with --yes (the old store is kept)")
    if not click.confirm(f"{replaced[0].upper()}{replaced[1:]}. Go on? The old store is kept.", err=True):
        raise Conflict("not confirmed: nothing was restored")


@click.command(
    epilog=examples("triskele reindex", "triskele reindex --json"),
)
@common
def reindex(invocation: Invocation) -> None:
    """Rebuild the search indexes and embed what waits."""
    invocation.refuse_server()
    with invocation.open_existing() as engine:
        started, count = time.perf_counter(), engine.census().versions
        with progress_bar("Indexing", total=count) as progress:
            engine.reindex(progress)
        earlier, update = engine.runtime.model, engine.runtime.update()
        waiting = engine.store.vectors.count_waiting() or (update[1] if update else 0)
        with progress_bar("Embedding", total=waiting) as progress:
            embedded = engine.embed(progress=progress) + (engine.runtime.advance_update(progress=progress) or 0)
        elsewhere = engine.runtime.embed_hosted()
        took_ms = round((time.perf_counter() - started) * 1000, 3)
        if invocation.as_json:
            done = {"indexed": count, "embedded": embedded, "elsewhere": elsewhere, "took_ms": took_ms}
            return invocation.write_json({**done, "project": engine.project})
        from triskele.serving.cli import render

        said = f"Indexed {render.counted(count, 'version')} and embedded {render.counted(embedded, 'text')}"
        said += f" in {took_ms / 1000:.1f} s."
        if elsewhere:
            said += f" The hosted model embedded {elsewhere:,} of them."
        if update and engine.runtime.update() is None:
            said += f" {update[0]} is in use; `triskele models rollback` returns to {earlier}."
        return invocation.write(render.note(said))


@click.command(
    epilog=examples("triskele doctor", "triskele doctor --deep --no-repair --json"),
)
@click.option("--deep", is_flag=True, help="Check every checksum and every index entry.")
@click.option("--repair/--no-repair", default=True, help="Repair derived data (the default).")
@common
@click.pass_context
def doctor(context: click.Context, invocation: Invocation, deep: bool, repair: bool) -> None:
    """Look for damage and repair what can be repaired.

    Exits with 1 if something stays broken (✗); notes (·) do not count.
    """
    from triskele.serving.syncing import synced_servers

    with invocation.open_existing() as engine:
        health = engine.inspect(deep=deep, repair=repair)
        synced = synced_servers(engine)
        without_token = _clients_without_token(engine.settings)
        if invocation.as_json:
            document = {"healthy": health.is_working, "deep": deep, **shapes.plain(health)}
            document |= {"synced": shapes.plain(synced), "clients_without_token": without_token}
            invocation.write_json({**document, "project": engine.project})
        else:
            from triskele.serving.cli import health_report

            server = invocation.settings().server.url
            report = health_report.health(health, deep=deep, synced=synced, server=server)
            invocation.write(report, *health_report.clients_without_token(without_token))
    context.exit(0 if health.is_working else 1)


def _clients_without_token(settings: Settings) -> list[str]:
    """Clients that may see private memories by the settings, but have no installed token to identify themselves."""
    from triskele.serving.clients.config_files import TokenFile

    known = TokenFile.of(settings.home).clients()
    return [name for name in settings.agents.private_to if name.strip().lower() not in known]


@click.command(
    epilog=examples(
        "triskele completion bash > ~/.local/share/bash-completion/completions/triskele",
        "triskele completion fish > ~/.config/fish/completions/triskele.fish",
        'source <(triskele completion zsh)      (in ~/.zshrc, after "compinit")',
    ),
)
@click.argument("shell", metavar="bash|zsh|fish", type=click.Choice(_SHELLS))
@common
@click.pass_context
def completion(context: click.Context, invocation: Invocation, shell: str) -> None:
    """Print a completion script for a shell."""
    maker = get_completion_class(shell)
    assert maker is not None
    program = context.find_root().command
    script = maker(program, {}, "triskele", "_TRISKELE_COMPLETE").source()
    if invocation.as_json:
        return invocation.write_json({"shell": shell, "script": script})
    return click.echo(script)


@click.group(
    cls=OrderedGroup,
    invoke_without_command=True,
    epilog=examples("triskele secrets list", "triskele secrets reveal 1kpn46", "triskele secrets rotate --renew"),
)
@global_options
@click.pass_context
def secrets(context: click.Context) -> None:
    """Show and seal secrets, and change the key of the vault."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@secrets.command(epilog=examples("triskele secrets reveal 1kpn46", "triskele secrets reveal 1kpn46 --json"))
@id_argument()
@common
def reveal(invocation: Invocation, id: str) -> None:
    """Show the text of a secret; the journal records it."""
    with invocation.open_existing() as engine:
        memory = engine.get(id)
        text = engine.reveal(memory.id)
        if invocation.as_json:
            return invocation.write_json(
                {"id": memory.id, "title": memory.content, "text": text, "project": memory.project}
            )
        return click.echo(text)


@secrets.command("list", epilog=examples("triskele secrets list", "triskele secrets list --json"))
@common
def list_secrets(invocation: Invocation) -> None:
    """List the titles of the secrets of all projects."""
    with invocation.open_existing() as engine:
        ids = list(dict.fromkeys(row.id for row in engine.store.sealed()))
        found = [each for each in engine.store.memories(ids).values() if is_secret(each)][:MAX_LISTED]
        if invocation.as_json:
            return invocation.write_json({"memories": [shapes.memory(each) for each in found], "project": None})
        from triskele.serving.cli import render

        if not found:
            return invocation.write(render.note("No secrets; `triskele add - --secret --title WORDS` seals one."))
        short = engine.store.shorten(each.id for each in found)
        shown = render.listing(found, short, set(), None, offset=0, limit=MAX_LISTED)
        return invocation.write(shown, is_list=True)


@secrets.command(
    epilog=examples("triskele secrets seal 1kpn46", "triskele secrets seal 1kpn46 --title 'Key of the build box'")
)
@id_argument()
@click.option("--title", metavar="WORDS", help="Its title; if omitted, one that does not contain the secret.")
@common
def seal(invocation: Invocation, id: str, title: str | None) -> None:
    """Seal all versions of a memory, and erase what was derived from its text."""
    with invocation.open_existing() as engine:
        sent = engine.sent(id)
        outcome = engine.seal(id, title=title)
        copies = engine.earlier_copies()
        if invocation.as_json:
            told = {
                "kept_copies": shapes.plain(copies),
                "erased_copies": shapes.plain(engine.erased_copies),
                "sent": shapes.plain(sent),
                "project": engine.project,
            }
            return invocation.write_json({**shapes.outcome(outcome), **told})
        from triskele.serving.cli import render, reports

        short = engine.store.shorten([outcome.id])
        shown = f"It is shown as {shapes.shown_content(engine.get(outcome.id), False)}"
        said = reports.changes(
            [outcome],
            {},
            short,
            copies=[*map(str, copies), *engine.out_of_reach()],
            erased=engine.erased_copies,
            sent=sent,
        )
        return invocation.write(said, render.note(shown))


@secrets.command(epilog=examples("triskele secrets rotate --renew", "triskele secrets rotate --to passphrase"))
@click.option("--to", type=click.Choice(KEY_SOURCES[1:]), help="Use another key source.")
@click.option("--renew", is_flag=True, help="Make a new data key and re-encrypt everything.")
@common
def rotate(invocation: Invocation, to: str | None, renew: bool) -> None:
    """Change the key of the vault; safe to interrupt."""
    if to is None and not renew:
        raise click.UsageError("nothing to change: give --to, --renew or both")
    with invocation.open_existing() as engine:
        done = engine.vault.rotate(to, renew=renew)
        if invocation.as_json:
            return invocation.write_json({**shapes.plain(done), "project": engine.project})
        from triskele.serving.cli import render

        anew = f"; {render.counted(done.resealed, 'text')} re-encrypted" if done.renewed else ""
        return invocation.write(render.note(f"The vault now uses the key source {done.source}{anew}."))


@click.group(
    cls=OrderedGroup,
    invoke_without_command=True,
    epilog=examples("triskele projects list", "triskele projects merge api acme/api"),
)
@global_options
@click.pass_context
def projects(context: click.Context) -> None:
    """List, rename and merge projects.

    A project is known by the git remote or the path of its folder, so that two folders of the same name stay apart.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@projects.command("list", epilog=examples("triskele projects list", "triskele projects list --json"))
@common
def list_projects(invocation: Invocation) -> None:
    """List the projects with their memories and places."""
    from triskele.curation.projects import summaries

    with invocation.open_existing() as engine:
        found = summaries(engine.store)
        if invocation.as_json:
            return invocation.write_json({"projects": shapes.plain(found), "project": engine.project})
        from triskele.serving.cli import reports

        return invocation.write(reports.projects(found, engine.project))


@projects.command(epilog=examples("triskele projects rename api billing-api"))
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@common
def rename(invocation: Invocation, old: str, new: str) -> None:
    """Give a project another name; undo takes it back."""
    from triskele.curation.projects import rename

    with invocation.open_existing() as engine:
        _move(invocation, engine, rename, old, new)


@projects.command(epilog=examples("triskele projects merge api-2 api"))
@click.argument("source", metavar="SOURCE")
@click.argument("target", metavar="TARGET")
@common
def merge(invocation: Invocation, source: str, target: str) -> None:
    """Move all memories and places of SOURCE into TARGET; undo takes it back."""
    from triskele.curation.projects import merge

    with invocation.open_existing() as engine:
        _move(invocation, engine, merge, source, target)


def _move(
    invocation: Invocation,
    engine: Engine,
    move: Callable[[OwnerStore, str, str], list[Change]],
    source: str,
    target: str,
) -> None:
    from triskele.curation.projects import project_of

    if engine.project == source and not engine.settings.project:
        # This folder moves with its project, even if nothing was written from it yet.
        project_of(engine.store, Path.cwd(), writing=True)
    outcomes = engine.apply(move(engine.store, source, target))
    moved = [each.id for each in outcomes if each.action is Action.EDITED]
    batch, name = outcomes[0].batch, outcomes[0].project
    if invocation.as_json:
        document = {"from": source, "to": name, "memories": len(moved), "batch": batch, "project": name}
        return invocation.write_json(document)
    from triskele.serving.cli import render

    said = f"{render.memories(len(moved))} of {source} now {'belongs' if len(moved) == 1 else 'belong'} to {name}."
    return invocation.write(render.note(f"{said} Undo with `triskele undo --batch {batch}`."))
