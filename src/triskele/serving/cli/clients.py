"""Commands that put triskele into agents and take it out: install, uninstall."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from triskele.errors import BadInput, Conflict
from triskele.serving.cli.invocation import Invocation, common, examples
from triskele.serving.clients.table import CLIENTS, Client

if TYPE_CHECKING:
    from triskele.serving.clients.installing import Change, Setting

_CLIENT = click.argument("client", type=click.Choice(list(CLIENTS)))
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Show the exact change, and write nothing.")
_YES = click.option("--yes", is_flag=True, help="Write without asking.")
_STANDS = {"install": "triskele is in {} already", "uninstall": "triskele is not in {}"}
_PROJECT = click.option("--project", is_flag=True, help="Only for the folder that you are in.")


@click.command(
    epilog=examples(
        "triskele install claude-code --dry-run", "triskele install codex --yes", "triskele install vscode --project"
    )
)
@_CLIENT
@_DRY_RUN
@_YES
@_PROJECT
@common
def install(invocation: Invocation, client: str, dry_run: bool, yes: bool, project: bool) -> None:
    """Put triskele into an agent, after showing exactly what changes."""
    from triskele.serving.clients import installing

    setting, row = _setting(invocation, project), CLIENTS[client]
    try:
        changes = installing.plan_install(row, setting)
    except installing.LeftAlone as error:
        if not invocation.as_json:
            click.echo(error.by_hand)
        raise
    needed = any(change.is_needed for change in changes)
    if needed and not dry_run:
        if not yes:
            _consent(invocation, row, changes)
        changes = installing.install(changes, setting)
    _tell(invocation, row, changes, "install", dry_run=dry_run, was_shown=needed and not dry_run and not yes)


@click.command(epilog=examples("triskele uninstall claude-code", "triskele uninstall vscode --project --dry-run"))
@_CLIENT
@_DRY_RUN
@_YES
@_PROJECT
@common
def uninstall(invocation: Invocation, client: str, dry_run: bool, yes: bool, project: bool) -> None:
    """Take triskele out of an agent again; what others wrote stays."""
    from triskele.serving.clients import installing

    setting, row = _setting(invocation, project), CLIENTS[client]
    changes = installing.plan_uninstall(row, setting)
    needed = any(change.is_needed for change in changes)
    # A script that says `uninstall` has said it: only what is ours goes, and a copy of it is kept.
    asks = needed and not dry_run and not yes and _is_watched()
    if asks:
        _consent(invocation, row, changes)
    if not dry_run:
        changes = installing.uninstall(changes, setting)
    _tell(invocation, row, changes, "uninstall", dry_run=dry_run, was_shown=asks)


def _setting(invocation: Invocation, project: bool) -> Setting:
    from triskele.serving.clients.installing import Setting

    return Setting.of(invocation.settings(), os.environ, Path.cwd() if project else None)


def _is_watched() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _consent(invocation: Invocation, client: Client, changes: list[Change]) -> None:
    """Show what would be written and ask for it."""
    if not _is_watched():
        raise BadInput("nobody can be asked here, so nothing was written: --yes writes, --dry-run shows what")
    for line in _differences(changes):
        click.echo(line, err=invocation.as_json)
    if not click.confirm(f"Write this for {client.title}?", err=True):
        raise Conflict("nothing was written")


def _tell(
    invocation: Invocation, client: Client, changes: list[Change], action: str, *, dry_run: bool, was_shown: bool
) -> None:
    if invocation.as_json:
        shape = {"client": client.name, "action": action, "dry_run": dry_run, "files": [_shape(c) for c in changes]}
        return invocation.write_json({**shape, "advice": client.advice if action == "install" else ""})
    needed = [change for change in changes if change.is_needed]
    lines = [] if was_shown else _differences(changes)
    if not needed:
        lines.append(f"Nothing to change: {_STANDS[action].format(client.title)}.")
    elif dry_run:
        lines.append("Nothing was written.")
    else:
        lines += [_written(change) for change in needed]
        lines += [client.advice] if action == "install" else []
    return click.echo("\n".join(lines))


def _differences(changes: list[Change]) -> list[str]:
    """The diffs, safe to show: what steers a terminal or turns letters round is spelled out."""
    lines = [line.removesuffix("\r") for change in changes for line in change.difference.split("\n")[:-1]]
    return ["".join(c if c.isprintable() or c == "\t" else ascii(c)[1:-1] for c in line) for line in lines]


def _written(change: Change) -> str:
    kept = f" (before: {change.backup})" if change.backup else ""
    return f"{'Removed' if change.after is None else 'Wrote'} {change.path}{kept}"


def _shape(change: Change) -> dict[str, Any]:
    what = "unchanged"
    if change.is_needed:
        what = "created" if change.before is None else "removed" if change.after is None else "changed"
    backup = None if change.backup is None else str(change.backup)
    return {"path": str(change.path), "change": what, "diff": change.difference, "backup": backup}
