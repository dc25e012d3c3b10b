"""Commands for the users of a server: users, keys, shares, groups, trust."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from triskele.edge.cli.commands import command_group
from triskele.edge.cli.documents import picked, shown
from triskele.edge.cli.invocation import Invocation
from triskele.edge.cli.options import FilePath, together
from triskele.edge.cli.view import plural
from triskele.edge.http.access import SCOPES
from triskele.edge.process import connect
from triskele.edge.wording import excerpt, share_line, shown_content
from triskele.errors import BadInput
from triskele.validation import check_share

if TYPE_CHECKING:
    from triskele.config import Settings
    from triskele.edge.http.client import RemoteEngine
    from triskele.edge.http.operations import Operation
    from triskele.engine.protocol import Engine
    from triskele.replies.rooms import UserGroup
    from triskele.server.accounts import Accounts
    from triskele.server.operations import Administration

_COUNT = click.IntRange(0, 10**12)
_ONCE = "Keep the key now: it is not shown again."
_SHOWN_CHARACTERS = 60
_OWNER = click.option("--owner", help="The user whose shares these are; only where the store is.")


@command_group("triskele users create ada --admin")
def users() -> None:
    """Manage the users of a server (a Postgres store)."""


@users.subcommand("triskele users create ada --admin", "triskele users create bob --memories 5000", name="create")
@click.argument("name")
@click.option("--admin", is_flag=True, help="May manage users and keys, and read the audit log.")
@click.option("--memories", type=_COUNT, help="Quota of memories; 0 is no limit.")
@click.option("--requests", "requests_per_minute", type=_COUNT, help="Quota of requests a minute; 0 is no limit.")
@click.option(
    "--model-tokens", "model_tokens_per_day", type=_COUNT, help="Quota of tokens of hosted models a day; 0 is no limit."
)
def create_user(invocation: Invocation, name: str, admin: bool, **quotas: int | None) -> None:
    """Add a user and print the first key, once."""
    scopes: Any = SCOPES if admin else SCOPES[:3]
    with open_administration(invocation) as administration:
        user = administration.create_user(name, is_admin=admin, **quotas)
        new = administration.create_key(name, scopes, label="first key")
    if not invocation.as_json:
        click.echo(f"{_ONCE} ({name}, {', '.join(new.details.scopes)})", err=True)
    invocation.emit(user, lambda: new.key, key=new.key, scopes=new.details.scopes, project=None)


@users.subcommand("triskele users list --json", name="list")
def list_users(invocation: Invocation) -> None:
    """List the users."""
    with open_administration(invocation) as administration:
        users = administration.users()
    lines = [f"{user.name}{'  admin' if user.is_admin else ''}  since {user.created_at:%Y-%m-%d}" for user in users]
    none_yet = "No users yet: `triskele users create NAME --admin` adds the first."
    invocation.emit({"users": users, "project": None}, lambda: "\n".join(lines) or none_yet)


@users.subcommand("triskele users delete bob --export bob.jsonl --yes", name="delete")
@click.argument("name")
@click.option("--export", "target", type=FilePath(), required=True, help="Export the memories to this file first.")
@click.option("--yes", is_flag=True, help="Erase without asking.")
def delete_user(invocation: Invocation, name: str, target: Path, yes: bool) -> None:
    """Export the memories of a user, secrets included, then erase the user."""
    settings = invocation.stores.chosen()
    connect.require_store(settings)
    if target.exists():
        raise BadInput(f"{target} exists: choose another name")
    with open_accounts(invocation) as accounts:
        accounts.user(name)
        if not yes and not click.confirm(f"Erase {name} with all memories?", err=True):
            raise BadInput("not confirmed: nothing was erased")
        own = replace(settings, memory=replace(settings.memory, owner=name))
        with connect.open_store(own, Path(Path.cwd().anchor)) as engine:
            report = engine.export_memories(target, private=True, with_secrets=True)
        accounts.erase_user(name)
    invocation.emit(
        {"user": name, "exported": report.written, "target": str(target), "project": None},
        lambda: f"Exported {report.written:,} memories to {target}; erased {name}.",
    )


@command_group("triskele keys create ada --label laptop")
def keys() -> None:
    """Manage the keys of a server's users."""


@keys.subcommand("triskele keys create ada --label laptop --scopes read,write --days 90", name="create")
@click.argument("user")
@click.option("--label", default="", help="What the key is for.")
@click.option("--scopes", default="read,write", show_default=True, help="Any of read, write, reveal and admin.")
@click.option("--days", type=int, help="The key expires after this many days.")
@click.option("--expires-at", metavar="DATE", help="The key expires then.")
def create_key(
    invocation: Invocation, user: str, label: str, scopes: str, days: int | None, expires_at: str | None
) -> None:
    """Create a key and print it, once."""
    wanted: Any = tuple(filter(None, (scope.strip() for scope in scopes.split(","))))
    with open_administration(invocation) as administration:
        new = administration.create_key(user, wanted, label=label, days=days, expires_at=expires_at)
    if not invocation.as_json:
        click.echo(f"{_ONCE} ({new.details.id}, {', '.join(new.details.scopes)})", err=True)
    invocation.emit(new.details, lambda: new.key, key=new.key, project=None)


@keys.subcommand("triskele keys list", "triskele keys list --user ada --json", name="list")
@click.option("--user", help="Only of this user.")
def list_keys(invocation: Invocation, user: str | None) -> None:
    """List keys without their secret parts."""
    with open_administration(invocation) as administration:
        keys = administration.keys(user)
    lines = []
    for key in keys:
        expires = f"expires {key.expires_at:%Y-%m-%d}" if key.expires_at else ""
        revoked = f"revoked {key.revoked_at:%Y-%m-%d}" if key.revoked_at else ""
        lines.append("  ".join(filter(None, (key.id, key.user, ",".join(key.scopes), key.label, expires, revoked))))
    invocation.emit({"keys": keys, "project": None}, lambda: "\n".join(lines) or "No keys.")


@keys.subcommand("triskele keys revoke 3f2a90c1b7de", name="revoke")
@click.argument("id")
def revoke_key(invocation: Invocation, id: str) -> None:
    """Revoke a key at once."""
    with open_administration(invocation) as administration:
        key = administration.revoke_key(id)
    invocation.emit(key, lambda: f"Revoked {key.id} of {key.user}.", project=None)


class _RemoteAdministration:
    """The users, keys and groups of a server, over HTTP."""

    def __init__(self, server: RemoteEngine, operations: Iterable[Operation]) -> None:
        self._server = server
        self._operations = {operation.method.__name__: operation for operation in operations}

    def __getattr__(self, method: str) -> Callable[..., Any]:
        operation = self._operations[method]
        return lambda *arguments, **options: self._server.send(operation, operation.named(*arguments, **options))


@contextmanager
def open_administration(invocation: Invocation) -> Iterator[Administration]:
    """Open the users, keys and groups of the server in the settings, or of the store."""
    from triskele.server.operations import OPERATIONS, Administration

    settings = invocation.stores.chosen()
    if connect.server_of(settings):
        with connect.open_server(settings, os.environ, Path.cwd()) as server:
            remote: Any = _RemoteAdministration(server, OPERATIONS)
            yield remote
    else:
        with open_accounts(invocation) as accounts:
            yield Administration(accounts)


@contextmanager
def open_accounts(invocation: Invocation) -> Iterator[Accounts]:
    """The accounts of the store of this run."""
    settings: Settings = invocation.stores.settings()
    if settings.store.is_file:
        raise BadInput("users need a Postgres store: set TRISKELE_STORE=postgresql://…")
    try:
        from triskele.server.accounts import Accounts
    except ModuleNotFoundError as error:
        raise BadInput("a Postgres store needs the extra `postgres`: pip install 'triskele[postgres]'") from error
    with closing(Accounts(settings.store.url)) as accounts:
        yield accounts


@command_group("triskele shares add --tag team --user bob")
def shares() -> None:
    """Share memories with other users of a server."""


# The options of a share.
_named = together(
    click.argument("memory", required=False),
    click.option("--tag", help="All open memories with this tag, also later ones."),
    click.option("--user", help="The user to share with."),
    click.option("--group", help="The group to share with."),
    _OWNER,
)


@shares.subcommand("triskele shares add 1k2m --user bob", "triskele shares add --tag team --group dev", name="add")
@_named
@click.option("--write", is_flag=True, help="Also allow them to change it.")
def add_share(invocation: Invocation, owner: str | None, write: bool, **named: str | None) -> None:
    """Share a memory, or all with a tag, with a user or a group."""
    share = check_share(**named)
    with _opened(invocation, owner) as engine:
        before = [] if invocation.as_json else engine.sharing.shares().given
        new = engine.sharing.share(*share, access="write" if write else "read")
        verb = "Already shared:" if share_line(new.share) in map(share_line, before) else "Shared"
        lines = [f"{verb} {share_line(new.share)}"]
        if new.share.subject == "tag":
            extent = "No open memory has this tag yet; later ones will be shared"
            lines.append(f"{plural(new.memories, 'memory')} now; later ones are shared too" if new.memories else extent)
            if new.left_out:
                left_out = plural(new.left_out, "private or secret memory")
                lines.append(f"{left_out} left out: only open ones are shared")
        counts = picked(new, "memories left_out")
        invocation.emit({**shown(new.share), **counts, "project": None}, lambda: "\n".join(lines))


@shares.subcommand("triskele shares remove 1k2m --user bob", name="remove")
@_named
def remove_share(invocation: Invocation, owner: str | None, **named: str | None) -> None:
    """End a share at once."""
    share = check_share(**named)
    with _opened(invocation, owner) as engine:
        ended = engine.sharing.unshare(*share)
        lines = [f"No longer shared: {share_line(ended.share)}"]
        lines += [
            f"Still read by {', '.join(each.readers)} through {share_line(each.share)}" for each in ended.remaining
        ]
        invocation.emit(ended.share, lambda: "\n".join(lines), still_shared=ended.remaining, project=None)


@shares.subcommand("triskele shares list", "triskele shares list --json", name="list")
@_OWNER
def list_shares(invocation: Invocation, owner: str | None) -> None:
    """List what is shared with others, and what others share."""
    with _opened(invocation, owner) as engine:
        shares = engine.sharing.shares()
        ids = sorted({share.target for share in shares.given if share.subject == "memory"})
        texts = {id: shown_content(memory, False) for id, memory in engine.lookup(ids).items()}
        shared = [{**shown(share), "content": texts.get(share.target)} for share in shares.given]
        excerpts = {id: f": {excerpt(text, _SHOWN_CHARACTERS)}" for id, text in texts.items()}
        lines = [f"shared      {share_line(share)}{excerpts.get(share.target, '')}" for share in shares.given]
        lines += [f"from {each.owner}  {each.id}  {each.access}" for each in shares.received]
        names = sorted({*shares.trusted, *(each.owner for each in shares.received)})
        lines += [_trust_line(name, name in shares.trusted) for name in names]
        nothing = "Nothing is shared: share with `triskele shares add MEMORY --user NAME`."
        invocation.emit(shares, lambda: "\n".join(lines) or nothing, given=shared, project=None)


@shares.subcommand("triskele shares trust ada", name="trust")
@click.argument("name")
@_OWNER
def trust(invocation: Invocation, name: str, owner: str | None) -> None:
    """Let hooks give agents what a user shares with you.

    Without it, recall and lists show what the user shares, but no hook gives it to an agent that did not ask.
    """
    _trust(invocation, name, owner, trusted=True)


@shares.subcommand("triskele shares distrust ada", name="distrust")
@click.argument("name")
@_OWNER
def distrust(invocation: Invocation, name: str, owner: str | None) -> None:
    """Let agents find what a user shares only when they search; hooks do not inject it."""
    _trust(invocation, name, owner, trusted=False)


def _trust(invocation: Invocation, name: str, owner: str | None, *, trusted: bool) -> None:
    with _opened(invocation, owner) as engine:
        names = engine.sharing.trust(name, trusted=trusted)
        invocation.emit({"trusted": names, "project": None}, lambda: _trust_line(name, name in names))


@command_group("triskele shares groups list")
def groups() -> None:
    """Manage groups of users to share with; only admins can change them."""


shares.add_command(groups)


@groups.subcommand("triskele shares groups list --json", name="list")
def list_groups(invocation: Invocation) -> None:
    """List the groups with their members."""
    with _opened(invocation) as engine:
        groups = engine.sharing.groups()
        invocation.emit(
            {"groups": groups, "project": None}, lambda: "\n".join(map(_group_line, groups)) or "No groups yet."
        )


def _add_group_command(action: str, example: str, help: str, *arguments: str) -> None:
    """Add a command that changes the groups."""

    @groups.subcommand(f"triskele shares groups {action} {example}", name=action, help=help)
    @together(*map(click.argument, arguments))
    def run(invocation: Invocation, **names: str) -> None:
        with open_administration(invocation) as administration:
            group = getattr(administration, f"{action}_{'member' if 'user' in names else 'group'}")(**names)
        if action == "delete":
            name = names["name"]
            return invocation.emit({"name": name, "project": None}, lambda: f"Removed the group {name}.")
        return invocation.emit(group, lambda: _group_line(group), project=None)


_add_group_command("create", "dev", "Add a group.", "name")
_add_group_command("delete", "dev", "Remove a group, and end all shares with it.", "name")
_add_group_command("add", "dev bob", "Add a user to a group.", "name", "user")
_add_group_command("remove", "dev bob", "Remove a user from a group.", "name", "user")


@contextmanager
def _opened(invocation: Invocation, owner: str | None = None) -> Iterator[Engine]:
    """Open the memory, at the store also that of another user."""
    if owner is None:
        with invocation.open(creates=True) as engine:
            yield engine
        return
    connect.require_store(invocation.stores.chosen())
    with open_accounts(invocation) as accounts:
        settings = invocation.stores.settings()
        own = replace(settings, memory=replace(settings.memory, owner=accounts.user(owner).name))
    with connect.open_store(own, Path(Path.cwd().anchor)) as store:
        yield store


def _trust_line(name: str, is_trusted: bool) -> str:
    if is_trusted:
        return f"Hooks give agents what {name} shares (end it: triskele shares distrust {name})"
    return (
        f"Agents find what {name} shares only when they search; hooks do not inject it"
        f" (change it: triskele shares trust {name})"
    )


def _group_line(group: UserGroup) -> str:
    return f"{group.name}: {', '.join(group.members) or 'no members'}"
