"""Commands that look after the store and the program: backup, restore, reindex, doctor, config, completion."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import get_completion_class

from triskele.config import file_of
from triskele.serving import shapes
from triskele.serving.cli.invocation import Invocation, common, examples, progress_bar

if TYPE_CHECKING:
    from triskele.config import Settings

_FILE = click.Path(path_type=Path)
_SHELLS = ("bash", "zsh", "fish")


@click.command(
    epilog=examples("triskele backup memories-monday.db", "triskele backup /mnt/stick/memories.db --json"),
)
@click.argument("target", type=_FILE)
@common
def backup(invocation: Invocation, target: Path) -> None:
    """Write a verified copy of the live store to a new file."""
    with invocation.open_existing(is_needed=True) as engine:
        engine.backup(target)
        count = target.stat().st_size
        if invocation.as_json:
            document = {"path": str(target.absolute()), "bytes": count, "project": engine.project}
            return invocation.write_json(document)
        from triskele.serving.cli import render

        said = f"Backed up to {target} ({render.size(count)}); every hash in the copy holds."
        return invocation.write(render.note(said))


@click.command(
    epilog=examples("triskele restore memories-monday.db", "triskele restore memories-monday.db --json"),
)
@click.argument("source", type=_FILE)
@click.option("--yes", is_flag=True, help="Do not ask before replacing the store.")
@common
def restore(invocation: Invocation, source: Path, yes: bool) -> None:
    """Replace the store by a backup; what was there is kept beside it."""
    if not yes and not invocation.as_json and sys.stdin.isatty():
        click.confirm(f"Replace the store by {source}? What is there now is kept beside it.", abort=True, err=True)
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
            what = "The damaged files are" if was_damaged else "What was there before is"
            lines.append(render.note(f"{what} kept in {kept}", style=render.QUIET))
        return invocation.write(*lines)


@click.command(
    epilog=examples("triskele reindex", "triskele reindex --json"),
)
@common
def reindex(invocation: Invocation) -> None:
    """Build the search indexes anew and embed what waits."""
    with invocation.open_existing() as engine:
        started = time.perf_counter()
        count = engine.census().versions
        with progress_bar("Indexing", total=count) as progress:
            engine.reindex(progress)
        with progress_bar("Embedding", total=engine.store.count_waiting()) as progress:
            embedded = engine.embed(progress=progress)
        elsewhere = engine.mind.embed_elsewhere()
        took_ms = round((time.perf_counter() - started) * 1000, 3)
        if invocation.as_json:
            done = {"indexed": count, "embedded": embedded, "elsewhere": elsewhere, "took_ms": took_ms}
            return invocation.write_json({**done, "project": engine.project})
        from triskele.serving.cli import render

        said = f"Indexed {count:,} versions and embedded {embedded:,} texts in {took_ms / 1000:.1f} s."
        if elsewhere:
            said += f" The hosted model read {elsewhere:,} of them."
        return invocation.write(render.note(said))


@click.command(
    epilog=examples("triskele doctor", "triskele doctor --deep --no-repair --json"),
)
@click.option("--deep", is_flag=True, help="Check every hash and every entry of the index.")
@click.option("--repair/--no-repair", default=True, help="Mend what is derived from the memories (the default).")
@common
@click.pass_context
def doctor(context: click.Context, invocation: Invocation, deep: bool, repair: bool) -> None:
    """Look for damage and mend what can be mended."""
    with invocation.open_existing() as engine:
        health = engine.inspect(deep=deep, repair=repair)
        if invocation.as_json:
            document = {"healthy": not health.findings, "deep": deep, **shapes.plain(health)}
            invocation.write_json({**document, "project": engine.project})
        else:
            from triskele.serving.cli import reports

            invocation.write(reports.health(health, deep=deep))
    context.exit(1 if health.findings else 0)


@click.command(
    epilog=examples("triskele config", "TRISKELE_RECALL_LIMIT=5 triskele config --json"),
)
@common
def config(invocation: Invocation) -> None:
    """Show every setting in force and where it came from."""
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
    """Print a completion script for your shell."""
    maker = get_completion_class(shell)
    assert maker is not None
    program = context.find_root().command
    script = maker(program, {}, "triskele", "_TRISKELE_COMPLETE").source()
    if invocation.as_json:
        return invocation.write_json({"shell": shell, "script": script})
    return click.echo(script)
