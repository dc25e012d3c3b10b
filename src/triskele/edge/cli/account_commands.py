"""Commands for the users of a server: users, keys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from triskele.edge.cli.invocation import Invocation, common, examples, global_options
from triskele.edge.cli.options import FilePath, OrderedGroup
from triskele.edge.http.codec import to_json
from triskele.edge.http.keys import SCOPES, AccessKey, Quotas
from triskele.edge.process import connect
from triskele.errors import BadInput
from triskele.text import timestamps

if TYPE_CHECKING:
    from triskele.config import Settings
    from triskele.server.accounts import Accounts

_COUNT = click.IntRange(0, 10**12)
_ONCE = "Keep the key now: it is not shown again."


@click.group(cls=OrderedGroup, invoke_without_command=True, epilog=examples("triskele users create ada --admin"))
@global_options
@click.pass_context
def users(context: click.Context) -> None:
    """Manage the users of a server (a Postgres store)."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@users.command(
    "create", epilog=examples("triskele users create ada --admin", "triskele users create bob --memories 5000")
)
@click.argument("name")
@click.option("--admin", is_flag=True, help="May manage users and keys, and read the audit log.")
@click.option("--memories", type=_COUNT, help="Quota of memories; 0 is no limit.")
@click.option("--requests", type=_COUNT, help="Quota of requests a minute; 0 is no limit.")
@click.option("--model-tokens", type=_COUNT, help="Quota of tokens of hosted models a day; 0 is no limit.")
@common
def create_user(
    invocation: Invocation,
    name: str,
    admin: bool,
    memories: int | None,
    requests: int | None,
    model_tokens: int | None,
) -> None:
    """Add a user and print the first key, once."""
    with open_accounts(invocation) as accounts:
        user = accounts.create_user(name, is_admin=admin, quotas=Quotas(memories, requests, model_tokens))
        key, made = accounts.create_key(name, label="first key", scopes=SCOPES if admin else SCOPES[:3])
    if invocation.as_json:
        return invocation.write_json({**to_json(user), "key": key, "scopes": list(made.scopes), "project": None})
    click.echo(f"{_ONCE} ({name}, {', '.join(made.scopes)})", err=True)
    return click.echo(key)


@users.command("list", epilog=examples("triskele users list --json"))
@common
def list_users(invocation: Invocation) -> None:
    """List the users."""
    with open_accounts(invocation) as accounts:
        found = accounts.users()
    lines = [f"{user.name}{'  admin' if user.is_admin else ''}  since {user.created_at:%Y-%m-%d}" for user in found]
    invocation.emit(
        {"users": to_json(found), "project": None},
        lambda: "\n".join(lines) or "No users yet: `triskele users create NAME --admin` adds the first.",
    )


@users.command("delete", epilog=examples("triskele users delete bob --export bob.jsonl --yes"))
@click.argument("name")
@click.option("--export", "target", type=FilePath(), required=True, help="Export the memories to this file first.")
@click.option("--yes", is_flag=True, help="Erase without asking.")
@common
def delete_user(invocation: Invocation, name: str, target: Path, yes: bool) -> None:
    """Export the memories of a user, secrets included, then erase the user."""
    if target.exists():
        raise BadInput(f"{target} exists: choose another name")
    with open_accounts(invocation) as accounts:
        accounts.user(name)
        if not yes and not click.confirm(f"Erase {name} with all memories?", err=True):
            raise BadInput("not confirmed: nothing was erased")
        settings = invocation.settings()
        server = replace(settings.server, url="")
        own = replace(settings, memory=replace(settings.memory, owner=name), server=server)
        with connect.open_store(own, Path(Path.cwd().anchor)) as engine:
            report = engine.export_memories(target, private=True, with_secrets=True)
        accounts.erase_user(name)
    invocation.emit(
        {"user": name, "exported": report.written, "target": str(target), "project": None},
        lambda: f"Exported {report.written:,} memories to {target}; erased {name}.",
    )


@click.group(cls=OrderedGroup, invoke_without_command=True, epilog=examples("triskele keys create ada --label laptop"))
@global_options
@click.pass_context
def keys(context: click.Context) -> None:
    """Manage the keys of a server's users."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@keys.command("create", epilog=examples("triskele keys create ada --label laptop --scopes read,write --days 90"))
@click.argument("user")
@click.option("--label", default="", help="What the key is for.")
@click.option("--scopes", default="read,write", show_default=True, help="Any of read, write, reveal and admin.")
@click.option("--days", type=click.IntRange(1, 36500), help="The key expires after this many days.")
@common
def create_key(invocation: Invocation, user: str, label: str, scopes: str, days: int | None) -> None:
    """Create a key and print it, once."""
    expires_at = None if days is None else timestamps.now() + timedelta(days=days)
    wanted = tuple(filter(None, (scope.strip() for scope in scopes.split(","))))
    with open_accounts(invocation) as accounts:
        key, made = accounts.create_key(user, label=label, scopes=wanted, expires_at=expires_at)
    if invocation.as_json:
        return invocation.write_json({**to_json(made), "key": key, "project": None})
    click.echo(f"{_ONCE} ({made.id}, {', '.join(made.scopes)})", err=True)
    return click.echo(key)


@keys.command("list", epilog=examples("triskele keys list", "triskele keys list --user ada --json"))
@click.option("--user", help="Only of this user.")
@common
def list_keys(invocation: Invocation, user: str | None) -> None:
    """List keys without their secret parts."""
    with open_accounts(invocation) as accounts:
        found = accounts.keys(user)
    invocation.emit({"keys": to_json(found), "project": None}, lambda: "\n".join(map(_line, found)) or "No keys.")


@keys.command("revoke", epilog=examples("triskele keys revoke 3f2a90c1b7de"))
@click.argument("id")
@common
def revoke_key(invocation: Invocation, id: str) -> None:
    """Revoke a key at once."""
    with open_accounts(invocation) as accounts:
        found = accounts.revoke_key(id)
    invocation.emit({**to_json(found), "project": None}, lambda: f"Revoked {found.id} of {found.user}.")


def _line(key: AccessKey) -> str:
    states: list[Any] = [f"expires {key.expires_at:%Y-%m-%d}" if key.expires_at else None]
    states.append(f"revoked {key.revoked_at:%Y-%m-%d}" if key.revoked_at else None)
    parts = [key.id, key.user, ",".join(key.scopes), key.label, *states]
    return "  ".join(part for part in parts if part)


@contextmanager
def open_accounts(invocation: Invocation) -> Iterator[Accounts]:
    """The accounts of the store of this run."""
    settings: Settings = invocation.settings()
    if settings.store.url.startswith("sqlite:"):
        raise BadInput("users need a Postgres store: set TRISKELE_STORE=postgresql://…")
    try:
        from triskele.server.accounts import Accounts
    except ModuleNotFoundError as error:
        raise BadInput("a Postgres store needs the extra `postgres`: pip install 'triskele[postgres]'") from error
    with closing(Accounts(settings.store.url, timeout_s=settings.store.busy_timeout_s)) as accounts:
        yield accounts
