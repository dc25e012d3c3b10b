"""Commands that look after the store and the program: backup, restore, reindex, doctor, config, completion."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import get_completion_class

from triskele.config import file_of
from triskele.errors import StoreDamaged
from triskele.serving import shapes
from triskele.serving.cli.invocation import Invocation, common, examples, progress_bar

if TYPE_CHECKING:
    from triskele.config import Settings
    from triskele.engine import Engine

_FILE = click.Path(path_type=Path)
_SHELLS = ("bash", "zsh", "fish")


@click.command(
    epilog=examples("triskele backup memories-monday.db", "triskele backup /mnt/stick/memories.db --json"),
)
@click.argument("target", type=_FILE)
@common
def backup(invocation: Invocation, target: Path) -> None:
    """Write a verified copy of the live store to a new file."""
    with invocation.open() as engine:
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
@common
def restore(invocation: Invocation, source: Path) -> None:
    """Replace the store by a backup; what was there is kept beside it."""
    with _restored(invocation, source) as (engine, kept):
        count = engine.census().memories
        if invocation.as_json:
            return invocation.write_json(
                {"restored": str(source), "kept": str(kept), "memories": count, "project": engine.project}
            )
        from triskele.serving.cli import render

        return invocation.write(
            render.note(f"Restored {render.memories(count)} from {source}."),
            render.note(f"What was there before is kept in {kept}", style=render.QUIET),
        )


@contextmanager
def _restored(invocation: Invocation, source: Path) -> Iterator[tuple[Engine, Path]]:
    """The memory after a restore, and where the content of before is kept."""
    from triskele.curation.health import replace_damaged

    try:
        engine = invocation.open()
        kept = engine.restore(source)
    except StoreDamaged as damage:
        if str(source) in str(damage):
            raise
        kept = replace_damaged(invocation.settings(), source)
        engine = invocation.open()
    with engine:
        yield engine, kept


@click.command(
    epilog=examples("triskele reindex", "triskele reindex --json"),
)
@common
def reindex(invocation: Invocation) -> None:
    """Build the search indexes anew and embed what waits."""
    with invocation.open() as engine:
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
    with invocation.open() as engine:
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
