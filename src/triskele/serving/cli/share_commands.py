"""Commands for what the users of a server share: shares, groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from triskele.errors import BadInput
from triskele.serving import shapes
from triskele.serving.cli.account_commands import open_accounts
from triskele.serving.cli.invocation import Invocation, common, examples, global_options
from triskele.serving.cli.options import OrderedGroup
from triskele.serving.remaining_access import MOST_COUNTED, Extent, described, extent, remaining
from triskele.stores.sharing import GroupStore, Share, ShareStore, UserGroup, checked, shares_of

if TYPE_CHECKING:
    from triskele.engine import Engine

_SHOWN_CHARACTERS = 60
_OWNER = click.option("--owner", help="The user whose shares these are; only where the store is.")


@click.group(
    cls=OrderedGroup, invoke_without_command=True, epilog=examples("triskele shares add --tag team --user bob")
)
@global_options
@click.pass_context
def shares(context: click.Context) -> None:
    """Share memories with other users of a server."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def _named(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say what is shared with whom."""
    options = (
        click.argument("memory", required=False),
        click.option("--tag", help="All open memories with this tag, also later ones."),
        click.option("--user", help="The user to share with."),
        click.option("--group", help="The group to share with."),
        _OWNER,
    )
    for option in reversed(options):
        command = option(command)
    return command


@shares.command(
    "add", epilog=examples("triskele shares add 1k2m --user bob", "triskele shares add --tag team --group dev")
)
@_named
@click.option("--write", is_flag=True, help="Also allow them to change it.")
@common
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
    subject, target, kind, grantee = checked(memory, tag, user, group)
    with _opened(invocation, owner) as (engine, found):
        id = engine.resolve(target) if subject == "memory" else target
        before = [] if invocation.as_json else [described(each) for each in found.given()]
        share = found.share(subject, id, kind, grantee, access="write" if write else "read", actor=engine.actor)
        reached = extent(engine, share)
    if invocation.as_json:
        counts = {"memories": reached.memories, "left_out": reached.left_out}
        return invocation.write_json({**shapes.plain(share), **counts, "project": None})
    said, lines = described(share), _extent_lines(reached) if subject == "tag" else []
    return invocation.echo("\n".join([f"{'Already shared:' if said in before else 'Shared'} {said}", *lines]))


@shares.command("remove", epilog=examples("triskele shares remove 1k2m --user bob"))
@_named
@common
def remove_share(
    invocation: Invocation, memory: str | None, tag: str | None, user: str | None, group: str | None, owner: str | None
) -> None:
    """End a share at once."""
    subject, target, kind, grantee = checked(memory, tag, user, group)
    with _opened(invocation, owner) as (engine, found):
        id = engine.resolve(target) if subject == "memory" else target
        share = found.unshare(subject, id, kind, grantee, actor=engine.actor)
        left = remaining(engine, found, share)
    if invocation.as_json:
        return invocation.write_json({**shapes.plain(share), "still_shared": shapes.plain(left), "project": None})
    lines = [f"Still read by {each.said}" for each in left]
    return invocation.echo("\n".join([f"No longer shared: {described(share)}", *lines]))


@shares.command("list", epilog=examples("triskele shares list", "triskele shares list --json"))
@_OWNER
@common
def list_shares(invocation: Invocation, owner: str | None) -> None:
    """List what is shared with others, and what others share."""
    with _opened(invocation, owner) as (engine, found):
        given, received = found.given(), found.received()
        texts, trusted = _texts(engine, given), found.trusted()
    if invocation.as_json:
        shown = [{**shapes.plain(share), "content": texts.get(share.target)} for share in given]
        others = {"received": shapes.plain(received), "trusted": trusted}
        return invocation.write_json({"given": shown, **others, "project": None})
    lines = [f"shared      {described(share)}{_beginning(texts.get(share.target))}" for share in given]
    lines += [f"from {each.owner}  {each.id}  {each.access}" for each in received]
    lines += [_trust_line(name, name in trusted) for name in sorted({*trusted, *(each.owner for each in received)})]
    return invocation.echo(
        "\n".join(lines) or "Nothing is shared: share with `triskele shares add MEMORY --user NAME`."
    )


@shares.command("trust", epilog=examples("triskele shares trust ada"))
@click.argument("name")
@_OWNER
@common
def trust(invocation: Invocation, name: str, owner: str | None) -> None:
    """Let agents be given unasked what a user shares with you.

    Without it, recall and lists show what the user shares, but no hook gives it to an agent that did not ask.
    """
    with _opened(invocation, owner) as (_, found):
        found.trust(name)
        _say_trust(invocation, name, found.trusted())


@shares.command("distrust", epilog=examples("triskele shares distrust ada"))
@click.argument("name")
@_OWNER
@common
def distrust(invocation: Invocation, name: str, owner: str | None) -> None:
    """Let agents find what a user shares only when they search; hooks do not inject it."""
    with _opened(invocation, owner) as (_, found):
        found.distrust(name)
        _say_trust(invocation, name, found.trusted())


@shares.group("groups", cls=OrderedGroup, invoke_without_command=True, epilog=examples("triskele shares groups list"))
@click.pass_context
def groups(context: click.Context) -> None:
    """Manage groups of users to share with; only admins can change them."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@groups.command("list", epilog=examples("triskele shares groups list --json"))
@common
def list_groups(invocation: Invocation) -> None:
    """List the groups with their members."""
    with _opened(invocation) as (_, found):
        known = found.groups()
    if invocation.as_json:
        return invocation.write_json({"groups": shapes.plain(known), "project": None})
    return invocation.echo("\n".join(map(_group_line, known)) or "No groups yet.")


@groups.command("create", epilog=examples("triskele shares groups create dev"))
@click.argument("name")
@common
def create_group(invocation: Invocation, name: str) -> None:
    """Add a group."""
    with _groups(invocation) as found:
        _say_group(invocation, found.create(name))


@groups.command("delete", epilog=examples("triskele shares groups delete dev"))
@click.argument("name")
@common
def delete_group(invocation: Invocation, name: str) -> None:
    """Remove a group, and end all shares with it."""
    with _groups(invocation) as found:
        found.delete(name)
    if invocation.as_json:
        return invocation.write_json({"name": name, "project": None})
    return invocation.echo(f"Removed the group {name}.")


@groups.command("add", epilog=examples("triskele shares groups add dev bob"))
@click.argument("name")
@click.argument("user")
@common
def add_member(invocation: Invocation, name: str, user: str) -> None:
    """Add a user to a group."""
    with _groups(invocation) as found:
        _say_group(invocation, found.add(name, user))


@groups.command("remove", epilog=examples("triskele shares groups remove dev bob"))
@click.argument("name")
@click.argument("user")
@common
def remove_member(invocation: Invocation, name: str, user: str) -> None:
    """Remove a user from a group."""
    with _groups(invocation) as found:
        _say_group(invocation, found.remove(name, user))


@contextmanager
def _opened(invocation: Invocation, owner: str | None = None) -> Iterator[tuple[Engine, ShareStore]]:
    """The memory of this run with its shares; of another user where an admin of the store itself names one."""
    if owner is None:
        with invocation.open() as engine:
            yield engine, shares_of(engine.store.shares)
        return
    from pathlib import Path

    from triskele.engine import Engine

    invocation.refuse_server()
    with open_accounts(invocation) as accounts:
        settings = invocation.settings()
        own = replace(settings, memory=replace(settings.memory, owner=accounts.user(owner).name))
    with Engine(own, Path(Path.cwd().anchor)) as engine:
        yield engine, shares_of(engine.store.shares)


@contextmanager
def _groups(invocation: Invocation) -> Iterator[GroupStore]:
    """The groups of the server, over HTTP where this machine uses one."""
    if invocation.uses_server():
        with invocation.open():
            assert invocation.remote is not None
            yield invocation.remote.store.groups
        return
    if invocation.settings().store.url.startswith("sqlite:"):
        raise BadInput("this memory belongs to one person: sharing needs a server with a Postgres store")
    with open_accounts(invocation) as accounts:
        yield accounts.groups


def _extent_lines(found: Extent) -> list[str]:
    """How many memories a tag shares now, and how many it leaves out."""
    from triskele.serving.cli.render import memories

    if not found.is_complete:
        return [f"{MOST_COUNTED:,} memories or more have this tag: the open ones are shared, later ones too"]
    lines = [
        f"{memories(found.memories)} now; later ones are shared too"
        if found.memories
        else "No open memory has this tag yet; later ones will be shared"
    ]
    if found.left_out:
        lines.append(f"{memories(found.left_out, 'private or secret ')} left out: only open ones are shared")
    return lines


def _texts(engine: Engine, given: Iterable[Share]) -> dict[str, str]:
    """The texts of the memories that are shared one by one."""
    ids = sorted({share.target for share in given if share.subject == "memory"})
    return {id: shapes.shown_content(memory, False) for id, memory in engine.store.memories(ids).items()}


def _beginning(text: str | None) -> str:
    from triskele.serving.cli.render import one_line

    line = one_line(text or "")
    return f": {line if len(line) <= _SHOWN_CHARACTERS else line[: _SHOWN_CHARACTERS - 1] + '…'}" if line else ""


def _say_group(invocation: Invocation, group: UserGroup) -> None:
    if invocation.as_json:
        told: dict[str, Any] = shapes.plain(group)
        return invocation.write_json({**told, "project": None})
    return invocation.echo(_group_line(group))


def _say_trust(invocation: Invocation, name: str, trusted: list[str]) -> None:
    if invocation.as_json:
        return invocation.write_json({"trusted": trusted, "project": None})
    return invocation.echo(_trust_line(name, name in trusted))


def _trust_line(name: str, is_trusted: bool) -> str:
    if is_trusted:
        return f"Agents are given unasked what {name} shares (end it: triskele shares distrust {name})"
    return (
        f"Agents find what {name} shares only when they search; hooks do not inject it"
        f" (change it: triskele shares trust {name})"
    )


def _group_line(group: UserGroup) -> str:
    return f"{group.name}: {', '.join(group.members) or 'no members'}"
