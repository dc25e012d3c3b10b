"""Commands that add triskele to an agent and remove it: install, uninstall."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triskele import config
from triskele.edge.cli.commands import command
from triskele.edge.cli.config import store_setting
from triskele.edge.cli.emit import Document, emit
from triskele.edge.cli.invocation import Invocation
from triskele.edge.cli.options import together
from triskele.edge.install import installer
from triskele.edge.install.installer import InstallTarget
from triskele.edge.install.table import CLIENTS, Client
from triskele.errors import BadInput, Conflict

if TYPE_CHECKING:
    from triskele.edge.install.installer import Change

_TARGET = together(
    click.argument("client", metavar="CLIENT", type=click.Choice(list(CLIENTS))),
    click.option("--dry-run", is_flag=True, help="Show the changes; write nothing."),
    click.option("--diff", is_flag=True, help="Show the exact changes of the files."),
    click.option("--yes", is_flag=True, help="Write without asking."),
    click.option("--project", is_flag=True, help="Only for the current folder."),
)
_UNCHANGED = {"install": "triskele is already installed in {}", "uninstall": "triskele is not installed in {}"}
_OTHER_STORE = (
    "The store, owner or server is not that of the settings file: hooks will stay silent, and MCP works without the"
    " background process. Name the store in config.toml instead ([store] url, [server] url)."
)


@command("triskele install claude-code --dry-run", "triskele install codex --yes", "triskele install vscode --project")
@_TARGET
@click.option("--learn", is_flag=True, help="Also learn from conversations (curation.learn = normal).")
def install(
    invocation: Invocation, client: str, dry_run: bool, diff: bool, yes: bool, project: bool, learn: bool
) -> None:
    """Install triskele into an agent, after showing what changes.

    CLIENT is claude-code, codex, cursor, vscode, gemini or antigravity.
    """
    target, row = _target(invocation, project), CLIENTS[client]
    try:
        changes = installer.plan_install(row, target)
    except installer.FileRefused as error:
        if not invocation.as_json:
            click.echo(error.by_hand)
        raise
    is_needed = any(change.is_needed for change in changes)
    if not config.is_of_file(invocation.stores.settings(), os.environ):
        click.echo(_OTHER_STORE, err=True)
    if is_needed and not dry_run:
        if not yes:
            _consent(invocation, row, changes, diff=diff)
        changes = installer.install(changes, target)
    lines = [] if is_needed and not dry_run and not yes else _change_lines(changes, "install", diff=diff)
    _report_changes(invocation, row, changes, "install", lines, dry_run=dry_run)
    if learn:
        _let_learn(invocation, dry_run=dry_run)


def _let_learn(invocation: Invocation, *, dry_run: bool) -> None:
    """Turn learning on, unless it is set already."""
    if (dial := invocation.stores.settings().curation.learn) != "off":
        click.echo(f"triskele already learns from conversations (curation.learn = {dial}).", err=True)
    elif dry_run:
        click.echo("triskele would learn from conversations (curation.learn = normal).", err=True)
    else:
        file = store_setting("curation.learn", "normal")
        click.echo(f"triskele learns from conversations from now on (curation.learn = normal in {file}).", err=True)


@command("triskele uninstall claude-code", "triskele uninstall vscode --project --dry-run")
@_TARGET
def uninstall(invocation: Invocation, client: str, dry_run: bool, diff: bool, yes: bool, project: bool) -> None:
    """Remove triskele from an agent; other entries stay.

    CLIENT is claude-code, codex, cursor, vscode, gemini or antigravity.
    """
    target, row = _target(invocation, project), CLIENTS[client]
    changes = installer.plan_uninstall(row, target)
    is_needed = any(change.is_needed for change in changes)
    # A script need not confirm: only our own entries go, and a copy is kept.
    asks = is_needed and not dry_run and not yes and _has_terminal()
    if asks:
        _consent(invocation, row, changes, "uninstall", diff=diff)
    if not dry_run:
        changes = installer.uninstall(changes, target)
    lines = [] if asks else _change_lines(changes, "uninstall", diff=diff)
    _report_changes(invocation, row, changes, "uninstall", lines, dry_run=dry_run)


def _target(invocation: Invocation, project: bool) -> InstallTarget:
    return InstallTarget.of(invocation.stores.settings(), os.environ, Path.cwd() if project else None)


def _has_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _consent(
    invocation: Invocation, client: Client, changes: list[Change], action: str = "install", *, diff: bool
) -> None:
    """Show what changes and ask for consent; `d` shows the diff."""
    if not _has_terminal():
        raise BadInput("there is no terminal to ask on, nothing was written: add --yes to write, or --dry-run to look")
    for line in _change_lines(changes, action, diff=diff):
        click.echo(line, err=invocation.as_json)
    question = f"Write this for {client.title}? (y: yes, n: no, d: show the diff)"
    while (reply := click.prompt(question, default="n", err=True).strip().lower()) in ("d", "diff"):
        for line in _differences(changes):
            click.echo(line, err=invocation.as_json)
    if reply not in ("y", "yes"):
        raise Conflict("not confirmed: nothing was written")


def _change_lines(changes: list[Change], action: str, *, diff: bool) -> list[str]:
    """A line for each file that changes, or the diffs."""
    if diff:
        return _differences(changes)
    verb = "Adds to" if action == "install" else "Removes from"
    return [f"{verb} {change.path}: {change.purpose}" for change in changes if change.is_needed]


def _report_changes(
    invocation: Invocation, client: Client, changes: list[Change], action: str, lines: list[str], *, dry_run: bool
) -> None:
    needed = [change for change in changes if change.is_needed]
    advice = client.advice if action == "install" else ""
    if not needed:
        lines = [*lines, f"Nothing to change: {_UNCHANGED[action].format(client.title)}."]
    elif dry_run:
        lines = [*lines, "Nothing was written."]
    else:
        lines = [*lines, *map(_written, needed), *([advice] if advice else [])]
    document = {"client": client.name, "action": action, "dry_run": dry_run, "files": list(map(_file, changes))}
    emit(invocation, {**document, "advice": advice}, lambda: "\n".join(lines))


def _differences(changes: list[Change]) -> list[str]:
    """The diffs with control and direction characters escaped."""
    lines = [line.removesuffix("\r") for change in changes for line in change.difference.split("\n")[:-1]]
    return ["".join(c if c.isprintable() or c == "\t" else ascii(c)[1:-1] for c in line) for line in lines]


def _written(change: Change) -> str:
    backup = f" (before: {change.backup})" if change.backup else ""
    return f"{'Removed' if change.after is None else 'Wrote'} {change.path}{backup}"


def _file(change: Change) -> Document:
    what = "unchanged"
    if change.is_needed:
        what = "created" if change.before is None else "removed" if change.after is None else "changed"
    return {"path": change.path, "change": what, "diff": change.difference, "backup": change.backup}
