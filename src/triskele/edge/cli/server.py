"""Commands for the users of a server: users, keys, shares."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from triskele.edge.cli.commands import command_group
from triskele.edge.cli.emit import emit, shown
from triskele.edge.cli.invocation import Invocation
from triskele.edge.cli.options import FilePath, together
from triskele.edge.cli.view import plural
from triskele.edge.http.access import SCOPES, Quotas
from triskele.edge.process import connect
from triskele.edge.wording import excerpt, share_line, shown_content
from triskele.errors import BadInput
from triskele.server.keys import AccessKey
from triskele.text import timestamps
from triskele.validation import check_share

if TYPE_CHECKING:
    from triskele.config import Settings
    from triskele.engine.protocol import Engine
    from triskele.replies.rooms import NewShare, Shares, UserGroup
    from triskele.server.accounts import Accounts

_COUNT = click.IntRange(0, 10**12)
_ONCE = "Keep the key now: it is not shown again."
_SHOWN_CHARACTERS = 60
_OWNER = click.option("--owner", help="The user whose shares these are; only where the store is.")


@command_group("triskele users create ada --admin")
def users() -> None:
    """Manage the users of a server (a Postgres store)."""


@users.subcommand(
    "triskele users create ada --admin",
    "triskele users create bob --memories 5000",
    name="create",
)
@click.argument("name")
@click.option("--admin", is_flag=True, help="May manage users and keys, and read the audit log.")
@click.option("--memories", type=_COUNT, help="Quota of memories; 0 is no limit.")
@click.option("--requests", type=_COUNT, help="Quota of requests a minute; 0 is no limit.")
@click.option("--model-tokens", type=_COUNT, help="Quota of tokens of hosted models a day; 0 is no limit.")
def create_user(
    invocation: Invocation, name: str, admin: bool, memories: int | None, requests: int | None, model_tokens: int | None
) -> None:
    """Add a user and print the first key, once."""
    with open_accounts(invocation) as accounts:
        user = accounts.create_user(name, is_admin=admin, quotas=Quotas(memories, requests, model_tokens))
        key, details = accounts.create_key(name, label="first key", scopes=SCOPES if admin else SCOPES[:3])
    if not invocation.as_json:
        click.echo(f"{_ONCE} ({name}, {', '.join(details.scopes)})", err=True)
    emit(invocation, user, lambda: key, key=key, scopes=details.scopes, project=None)


@users.subcommand("triskele users list --json", name="list")
def list_users(invocation: Invocation) -> None:
    """List the users."""
    with open_accounts(invocation) as accounts:
        users = accounts.users()
    lines = [f"{user.name}{'  admin' if user.is_admin else ''}  since {user.created_at:%Y-%m-%d}" for user in users]
    none_yet = "No users yet: `triskele users create NAME --admin` adds the first."
    emit(invocation, {"users": users, "project": None}, lambda: "\n".join(lines) or none_yet)


@users.subcommand("triskele users delete bob --export bob.jsonl --yes", name="delete")
@click.argument("name")
@click.option("--export", "target", type=FilePath(), required=True, help="Export the memories to this file first.")
@click.option("--yes", is_flag=True, help="Erase without asking.")
def delete_user(invocation: Invocation, name: str, target: Path, yes: bool) -> None:
    """Export the memories of a user, secrets included, then erase the user."""
    if target.exists():
        raise BadInput(f"{target} exists: choose another name")
    with open_accounts(invocation) as accounts:
        accounts.user(name)
        if not yes and not click.confirm(f"Erase {name} with all memories?", err=True):
            raise BadInput("not confirmed: nothing was erased")
        settings = invocation.stores.settings()
        server = replace(settings.server, url="")
        own = replace(settings, memory=replace(settings.memory, owner=name), server=server)
        with connect.open_store(own, Path(Path.cwd().anchor)) as engine:
            report = engine.export_memories(target, private=True, with_secrets=True)
        accounts.erase_user(name)
    emit(
        invocation,
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
@click.option("--days", type=click.IntRange(1, 36500), help="The key expires after this many days.")
def create_key(invocation: Invocation, user: str, label: str, scopes: str, days: int | None) -> None:
    """Create a key and print it, once."""
    expires_at = None if days is None else timestamps.now() + timedelta(days=days)
    wanted = tuple(filter(None, (scope.strip() for scope in scopes.split(","))))
    with open_accounts(invocation) as accounts:
        key, details = accounts.create_key(user, label=label, scopes=wanted, expires_at=expires_at)
    if not invocation.as_json:
        click.echo(f"{_ONCE} ({details.id}, {', '.join(details.scopes)})", err=True)
    emit(invocation, details, lambda: key, key=key, project=None)


@keys.subcommand("triskele keys list", "triskele keys list --user ada --json", name="list")
@click.option("--user", help="Only of this user.")
def list_keys(invocation: Invocation, user: str | None) -> None:
    """List keys without their secret parts."""
    with open_accounts(invocation) as accounts:
        keys = accounts.keys(user)
    emit(invocation, {"keys": keys, "project": None}, lambda: "\n".join(map(_key_line, keys)) or "No keys.")


@keys.subcommand("triskele keys revoke 3f2a90c1b7de", name="revoke")
@click.argument("id")
def revoke_key(invocation: Invocation, id: str) -> None:
    """Revoke a key at once."""
    with open_accounts(invocation) as accounts:
        key = accounts.revoke_key(id)
    emit(invocation, key, lambda: f"Revoked {key.id} of {key.user}.", project=None)


def _key_line(key: AccessKey) -> str:
    states: list[Any] = [f"expires {key.expires_at:%Y-%m-%d}" if key.expires_at else None]
    states.append(f"revoked {key.revoked_at:%Y-%m-%d}" if key.revoked_at else None)
    parts = [key.id, key.user, ",".join(key.scopes), key.label, *states]
    return "  ".join(part for part in parts if part)


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


@shares.subcommand(
    "triskele shares add 1k2m --user bob",
    "triskele shares add --tag team --group dev",
    name="add",
)
@_named
@click.option("--write", is_flag=True, help="Also allow them to change it.")
def add_share(
    invocation: Invocation,
    memory: str | None,
    tag: str | None,
    user: str | None,
    group: str | None,
    owner: str | None,
    write: bool,
) -> None:
    """Share a memory, or all with a tag, with a user or a group."""
    subject, target, kind, grantee = check_share(memory, tag, user, group)
    with _opened(invocation, owner) as engine:
        before = [] if invocation.as_json else engine.sharing.shares().given
        new = engine.sharing.share(subject, target, kind, grantee, access="write" if write else "read")
        verb = "Already shared:" if share_line(new.share) in map(share_line, before) else "Shared"
        emit(
            invocation,
            new.share,
            lambda: "\n".join([f"{verb} {share_line(new.share)}", *_extent_lines(new)]),
            memories=new.memories,
            left_out=new.left_out,
            project=None,
        )


@shares.subcommand("triskele shares remove 1k2m --user bob", name="remove")
@_named
def remove_share(
    invocation: Invocation, memory: str | None, tag: str | None, user: str | None, group: str | None, owner: str | None
) -> None:
    """End a share at once."""
    subject, target, kind, grantee = check_share(memory, tag, user, group)
    with _opened(invocation, owner) as engine:
        ended = engine.sharing.unshare(subject, target, kind, grantee)
        lines = [f"No longer shared: {share_line(ended.share)}"]
        lines += [
            f"Still read by {', '.join(each.readers)} through {share_line(each.share)}" for each in ended.remaining
        ]
        emit(invocation, ended.share, lambda: "\n".join(lines), still_shared=ended.remaining, project=None)


@shares.subcommand("triskele shares list", "triskele shares list --json", name="list")
@_OWNER
def list_shares(invocation: Invocation, owner: str | None) -> None:
    """List what is shared with others, and what others share."""
    with _opened(invocation, owner) as engine:
        shares = engine.sharing.shares()
        ids = sorted({share.target for share in shares.given if share.subject == "memory"})
        texts = {id: shown_content(memory, False) for id, memory in engine.lookup(ids).items()}
        emit(
            invocation,
            {
                "given": [{**shown(share), "content": texts.get(share.target)} for share in shares.given],
                "received": shares.received,
                "trusted": shares.trusted,
                "project": None,
            },
            lambda: _share_lines(shares, texts),
        )


def _share_lines(shares: Shares, texts: Mapping[str, str]) -> str:
    excerpts = {id: f": {excerpt(text, _SHOWN_CHARACTERS)}" for id, text in texts.items()}
    lines = [f"shared      {share_line(share)}{excerpts.get(share.target, '')}" for share in shares.given]
    lines += [f"from {each.owner}  {each.id}  {each.access}" for each in shares.received]
    names = sorted({*shares.trusted, *(each.owner for each in shares.received)})
    lines += [_trust_line(name, name in shares.trusted) for name in names]
    return "\n".join(lines) or "Nothing is shared: share with `triskele shares add MEMORY --user NAME`."


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
        emit(invocation, {"trusted": names, "project": None}, lambda: _trust_line(name, name in names))


@command_group("triskele shares groups list")
def groups() -> None:
    """Manage groups of users to share with; only admins can change them."""


shares.add_command(groups)


@groups.subcommand("triskele shares groups list --json", name="list")
def list_groups(invocation: Invocation) -> None:
    """List the groups with their members."""
    with _opened(invocation) as engine:
        groups = engine.sharing.groups()
        emit(
            invocation,
            {"groups": groups, "project": None},
            lambda: "\n".join(map(_group_line, groups)) or "No groups yet.",
        )


@groups.subcommand("triskele shares groups create dev", name="create")
@click.argument("name")
def create_group(invocation: Invocation, name: str) -> None:
    """Add a group."""
    _show_group(invocation, _change_groups(invocation, "create", name=name))


@groups.subcommand("triskele shares groups delete dev", name="delete")
@click.argument("name")
def delete_group(invocation: Invocation, name: str) -> None:
    """Remove a group, and end all shares with it."""
    _change_groups(invocation, "delete", name=name)
    emit(invocation, {"name": name, "project": None}, lambda: f"Removed the group {name}.")


@groups.subcommand("triskele shares groups add dev bob", name="add")
@click.argument("name")
@click.argument("user")
def add_member(invocation: Invocation, name: str, user: str) -> None:
    """Add a user to a group."""
    _show_group(invocation, _change_groups(invocation, "add", name=name, user=user))


@groups.subcommand("triskele shares groups remove dev bob", name="remove")
@click.argument("name")
@click.argument("user")
def remove_member(invocation: Invocation, name: str, user: str) -> None:
    """Remove a user from a group."""
    _show_group(invocation, _change_groups(invocation, "remove", name=name, user=user))


def _change_groups(invocation: Invocation, action: str, **names: str) -> Any:
    """Change the groups at the store, or by an operation of the server that this machine uses."""
    if connect.server_of(invocation.stores.chosen()):
        from triskele.server.operations import BY_METHOD, Administration

        operation = f"{action}_{'member' if 'user' in names else 'group'}"
        with connect.open_server(invocation.stores.chosen(), os.environ, Path.cwd()) as server:
            return server.send(BY_METHOD[getattr(Administration, operation)], names)
    if invocation.stores.settings().store.is_file:
        raise BadInput("this memory belongs to one person: sharing needs a server with a Postgres store")
    with open_accounts(invocation) as accounts:
        return getattr(accounts.groups, action)(*names.values())


@contextmanager
def _opened(invocation: Invocation, owner: str | None = None) -> Iterator[Engine]:
    """Open the memory, at the store also that of another user."""
    if owner is None:
        with invocation.open() as engine:
            yield engine
        return
    connect.require_store(invocation.stores.chosen())
    with open_accounts(invocation) as accounts:
        settings = invocation.stores.settings()
        own = replace(settings, memory=replace(settings.memory, owner=accounts.user(owner).name))
    with connect.open_store(own, Path(Path.cwd().anchor)) as store:
        yield store


def _extent_lines(new: NewShare) -> list[str]:
    """How many memories a tag shares, and how many not."""
    if new.share.subject == "memory":
        return []
    lines = ["No open memory has this tag yet; later ones will be shared"]
    if new.memories:
        lines = [f"{plural(new.memories, 'memory')} now; later ones are shared too"]
    if new.left_out:
        lines.append(f"{plural(new.left_out, 'private or secret memory')} left out: only open ones are shared")
    return lines


def _show_group(invocation: Invocation, group: UserGroup) -> None:
    emit(invocation, group, lambda: _group_line(group), project=None)


def _trust_line(name: str, is_trusted: bool) -> str:
    if is_trusted:
        return f"Hooks give agents what {name} shares (end it: triskele shares distrust {name})"
    return (
        f"Agents find what {name} shares only when they search; hooks do not inject it"
        f" (change it: triskele shares trust {name})"
    )


def _group_line(group: UserGroup) -> str:
    return f"{group.name}: {', '.join(group.members) or 'no members'}"
