"""Commands for the store: backup, restore, reindex, doctor, config, completion, secrets."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import get_completion_class

from triskele.config import KEY_SOURCES, file_of
from triskele.serving import shapes
from triskele.serving.cli.invocation import Invocation, common, examples, global_options, progress_bar
from triskele.serving.cli.options import MAX_LISTED, FilePath, id_argument
from triskele.types import is_secret

if TYPE_CHECKING:
    from triskele.config import Settings

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
        return invocation.write(render.note(said))


@click.command(
    epilog=examples("triskele restore memories-monday.db", "triskele restore memories-monday.db --json"),
)
@click.argument("source", type=_FILE)
@click.option("--yes", is_flag=True, help="Do not ask before replacing the store.")
@common
def restore(invocation: Invocation, source: Path, yes: bool) -> None:
    """Replace the store by a backup; the old store is kept."""
    if not yes and not invocation.as_json and sys.stdin.isatty():
        click.confirm(f"Replace the store by {source}? The old store is kept.", abort=True, err=True)
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


@click.command(
    epilog=examples("triskele reindex", "triskele reindex --json"),
)
@common
def reindex(invocation: Invocation) -> None:
    """Rebuild the search indexes and embed what waits."""
    with invocation.open_existing() as engine:
        started = time.perf_counter()
        count = engine.census().versions
        with progress_bar("Indexing", total=count) as progress:
            engine.reindex(progress)
        with progress_bar("Embedding", total=engine.store.vectors.count_waiting()) as progress:
            embedded = engine.embed(progress=progress)
        elsewhere = engine.runtime.embed_elsewhere()
        took_ms = round((time.perf_counter() - started) * 1000, 3)
        if invocation.as_json:
            done = {"indexed": count, "embedded": embedded, "elsewhere": elsewhere, "took_ms": took_ms}
            return invocation.write_json({**done, "project": engine.project})
        from triskele.serving.cli import render

        said = f"Indexed {render.counted(count, 'version')} and embedded {render.counted(embedded, 'text')}"
        said += f" in {took_ms / 1000:.1f} s."
        if elsewhere:
            said += f" The hosted model embedded {elsewhere:,} of them."
        return invocation.write(render.note(said))


@click.command(
    epilog=examples("triskele doctor", "triskele doctor --deep --no-repair --json"),
)
@click.option("--deep", is_flag=True, help="Check every checksum and every index entry.")
@click.option("--repair/--no-repair", default=True, help="Repair derived data (the default).")
@common
@click.pass_context
def doctor(context: click.Context, invocation: Invocation, deep: bool, repair: bool) -> None:
    """Look for damage and repair what can be repaired."""
    with invocation.open_existing() as engine:
        health = engine.inspect(deep=deep, repair=repair)
        without_token = _clients_without_token(engine.settings)
        if invocation.as_json:
            document = {"healthy": not health.findings, "deep": deep, **shapes.plain(health)}
            document["clients_without_token"] = without_token
            invocation.write_json({**document, "project": engine.project})
        else:
            from triskele.serving.cli import reports

            invocation.write(reports.health(health, deep=deep), *reports.clients_without_token(without_token))
    context.exit(1 if health.findings else 0)


def _clients_without_token(settings: Settings) -> list[str]:
    """Clients that the settings show private memories to, but that have no installed token to prove who they are."""
    from triskele.serving.clients.config_files import TokenFile

    known = TokenFile.of(settings.home).clients()
    return [name for name in settings.agents.private_to if name.strip().lower() not in known]


@click.command(
    epilog=examples("triskele config", "TRISKELE_RECALL_LIMIT=5 triskele config --json"),
)
@common
def config(invocation: Invocation) -> None:
    """Show every setting, its value and where it came from."""
    settings = invocation.settings()
    values = _by_name(settings)
    file = file_of(os.environ, settings.home)
    if invocation.as_json:
        return invocation.write_json({"settings": values, "file": str(file), "project": settings.project})
    from triskele.serving.cli import reports

    return invocation.write(reports.settings(values, file))


def _by_name(settings: Settings) -> dict[str, Any]:
    values: dict[str, Any] = {"home": str(settings.home), "project": settings.project}
    parts = {field.name: getattr(settings, field.name) for field in fields(settings)}
    for section, part in parts.items():
        if not is_dataclass(part):
            continue
        values |= {f"{section}.{field.name}": shapes.plain(getattr(part, field.name)) for field in fields(part)}
    return {name: {"value": value, "origin": settings.origins.get(name, "default")} for name, value in values.items()}


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

        short = engine.store.shorten(each.id for each in found)
        return invocation.write(render.listing(found, short, set(), None, offset=0, limit=MAX_LISTED))


@secrets.command(
    epilog=examples("triskele secrets seal 1kpn46", "triskele secrets seal 1kpn46 --title 'Key of the build box'")
)
@id_argument()
@click.option("--title", metavar="WORDS", help="Its title; made by a safe rule where omitted.")
@common
def seal(invocation: Invocation, id: str, title: str | None) -> None:
    """Seal all versions of a memory, and erase what was derived from its text."""
    with invocation.open_existing() as engine:
        sent = engine.sent(id)
        outcome = engine.seal(id, title=title)
        copies = engine.earlier_copies()
        if invocation.as_json:
            told = {"kept_copies": shapes.plain(copies), "sent": shapes.plain(sent), "project": engine.project}
            return invocation.write_json({**shapes.outcome(outcome), **told})
        from triskele.serving.cli import reports

        short = engine.store.shorten([outcome.id])
        return invocation.write(reports.changes([outcome], {}, short, copies=copies, sent=sent))


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
