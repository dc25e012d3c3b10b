"""Shares of an owner, and groups, as rows; every change of one brings the rows of its readers to it at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from psycopg import errors

from triskele.errors import BadInput, Conflict, NotAllowed, NotFound, StoreUnavailable
from triskele.replies.rooms import Access, GranteeKind, ReceivedMemory, Share, Subject, UserGroup
from triskele.server.fan_out import (
    SHARE,
    Performer,
    end_share,
    note_share,
    rows_of,
    run_with_owner_locks,
    shared_ids,
    spread,
)
from triskele.server.keys import check_user
from triskele.server.postgres.connections import (
    LOCK_OWNER,
    Connection,
    Connections,
    OwnerTransactions,
    seeing_accounts,
)
from triskele.server.postgres.truth_rows import PostgresOwner, PostgresWriter
from triskele.store.documents import DocumentStore
from triskele.store.values import Document
from triskele.text import timestamps
from triskele.text.ids import new_batch
from triskele.types import USER, Action, Memory, Sensitivity

# The actor of what an admin does to groups and users, in the journals of those whom it concerns.
_ADMIN = "admin"
_MOST_TRIES = 10
_GIVEN = f"SELECT {SHARE} FROM shares WHERE owner = %s ORDER BY at, subject, target, grantee_kind, grantee"
# A document for each user that the owner trusts: its value is when that user was created.
_TRUSTED = "trusted-user"
# Who wrote a text is who made the first version with it: later ones may differ in labels alone.
_FIRST_WRITERS = """
SELECT DISTINCT ON (one.id) one.id, entry.actor FROM unnest(%s::text[], %s::text[]) AS asked (id, content_hash)
JOIN versions AS one ON one.id = asked.id AND one.content_hash = asked.content_hash
JOIN journal AS entry ON entry.owner = one.owner AND entry.id = one.id AND entry.version = one.version
WHERE one.owner = %s ORDER BY one.id, one.version, entry.seq
"""


class PostgresShares:
    """What one owner shares, and what others share with it."""

    def __init__(self, transactions: OwnerTransactions) -> None:
        self._transactions = transactions
        self._owner = transactions.owner
        self._documents = DocumentStore(PostgresOwner(transactions))

    def share(
        self,
        subject: Subject,
        target: str,
        grantee_kind: GranteeKind,
        grantee: str,
        *,
        access: Access = "read",
        actor: str = USER,
    ) -> Share:
        """Share a memory, by its whole id, or a tag; a share that exists gets this access."""
        if subject == "tag" and not target.strip():
            raise BadInput("a tag is missing")
        if (grantee_kind, grantee) == ("user", self._owner):
            raise BadInput(f"{grantee} is the owner: share with another user")

        def work(writer: PostgresWriter) -> Share:
            if subject == "memory":
                _check_shareable(writer, target)
            _check_grantee(writer.connection, grantee_kind, grantee)
            row = writer.connection.execute(
                f"INSERT INTO shares ({SHARE}) VALUES (%s, %s, %s, %s, %s, %s, %s)"
                " ON CONFLICT (owner, subject, target, grantee_kind, grantee) DO UPDATE SET access = excluded.access"
                f" RETURNING {SHARE}",
                [self._owner, subject, target, grantee_kind, grantee, access, timestamps.to_micros(writer.at)],
            ).fetchone()
            note_share(writer, Action.SHARED, subject, target, f"{grantee_kind} {grantee}")
            return _to_share(row)

        return self._changed(work, actor)

    def unshare(
        self, subject: Subject, target: str, grantee_kind: GranteeKind, grantee: str, *, actor: str = USER
    ) -> Share:
        """End a share; memories that only it shared leave the reader at once."""

        def work(writer: PostgresWriter) -> Share:
            row = end_share(writer, subject, target, grantee_kind, grantee)
            if row is None:
                raise NotFound(f"the {subject} {target[:64]} is not shared with the {grantee_kind} {grantee[:64]}")
            return _to_share(row)

        return self._changed(work, actor)

    def given(self) -> list[Share]:
        """What this user shares, oldest first."""
        return [_to_share(row) for row in self._transactions.all(_GIVEN, [self._owner])]

    def received(self) -> list[ReceivedMemory]:
        """The memories that others share with this user, by owner and id."""
        rows = self._transactions.all(
            "SELECT DISTINCT id, shared_by, access FROM versions AS one"
            " JOIN LATERAL (SELECT access FROM shared_memories AS given WHERE given.owner = one.shared_by"
            " AND given.id = one.id AND given.reader = one.owner) AS granted ON true"
            " WHERE owner = %s AND shared_by IS NOT NULL ORDER BY 2, 1",
            [self._owner],
        )
        return [ReceivedMemory(id=id, owner=owner, access=access) for id, owner, access in rows]

    def groups(self) -> list[UserGroup]:
        """All groups with their members, by name."""
        return _groups(self._transactions.all(_GROUPS))

    def trust(self, owner: str) -> None:
        """Let agents be given unasked what this user shares."""
        created = self._created([self._other(owner)])
        if owner not in created:
            raise NotFound(f"there is no user {owner[:64]}")
        self._documents.put(_TRUSTED, {owner: Document(created[owner])})

    def distrust(self, owner: str) -> None:
        """Take the trust back: agents find what this user shares only when they search."""
        # The trust in a user who was erased since can be taken back too.
        if not self._documents.some(_TRUSTED, [self._other(owner)]) and not self._created([owner]):
            raise NotFound(f"there is no user {owner[:64]}")
        self._documents.delete(_TRUSTED, [owner])

    def _other(self, owner: str) -> str:
        if owner == self._owner:
            raise BadInput(f"{owner} is yourself: agents are given your own memories anyway")
        return check_user(owner)

    def trusted(self) -> list[str]:
        """The users whose memories agents are given unasked, by name."""
        noted = self._documents.all(_TRUSTED)
        # A user who got the name of an erased one is another person, as is one of that name on another server.
        created = self._created(list(noted)) if noted else {}
        return [name for name, moment in noted.items() if created.get(name) == moment]

    def writers(self, memories: Sequence[Memory]) -> dict[str, str]:
        """The other users who wrote the texts of some memories, by the id of the memory; own texts have none."""
        ids, hashes = [each.id for each in memories], [each.content_hash for each in memories]
        rows = self._transactions.all_now(_FIRST_WRITERS, [ids, hashes, self._owner]) if ids else []
        named = {str(id): str(actor).partition("/") for id, actor in rows}
        # What stands before the stroke is a user, unless it is part of an own client's name, as in `client:a/b`.
        return {id: user for id, (user, stroke, _) in named.items() if stroke and ":" not in user}

    def _created(self, names: list[str]) -> dict[str, int]:
        def work(connection: Connection) -> dict[str, int]:
            with seeing_accounts(connection):
                sql = "SELECT name, created_at FROM users WHERE name = ANY(%s)"
                return dict(connection.execute(sql, [names]).fetchall())

        return self._transactions.read(work)

    def _changed(self, work: Callable[[PostgresWriter], Share], actor: str) -> Share:
        batch = new_batch()

        def change(connection: Connection, locked: frozenset[str]) -> Share:
            writer = PostgresWriter(connection, self._owner, timestamps.now(), batch, actor)
            share = work(writer)
            writer.affected.update(_covered(writer, share))
            spread(writer, Performer(self._owner, actor, locked))
            return share

        return run_with_owner_locks(self._transactions, change)


_GROUPS = "SELECT name, user_name FROM groups LEFT JOIN group_members ON group_name = name ORDER BY name, user_name"


class Groups:
    """The groups of a server, changed by its admins."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def all(self) -> list[UserGroup]:
        """All groups with their members, by name."""
        return _groups(self._connections.account_rows(_GROUPS))

    def create(self, name: str) -> UserGroup:
        """Add a group without members."""
        with self._connections.accounts() as connection:
            try:
                connection.execute(
                    "INSERT INTO groups VALUES (%s, %s)", [check_user(name), timestamps.to_micros(timestamps.now())]
                )
            except errors.UniqueViolation:
                raise Conflict(f"there is a group {name} already") from None
            end_leftovers(connection, "group", name)
        return UserGroup(name, ())

    def delete(self, name: str) -> None:
        """Remove a group, and end all shares with it."""
        for _ in range(_MOST_TRIES):
            for member in self._one(name).members:
                self.remove(name, member)
            for owner in self._sharers("group", name):
                self._unshared(owner, "group", name)
            with self._connections.accounts() as connection:
                # Held by those who share with it, or change who is in it: none of them comes between.
                connection.execute("SELECT 1 FROM groups WHERE name = %s FOR UPDATE", [name])
                sql = "SELECT 1 FROM group_members WHERE group_name = %s"
                is_used = connection.execute(sql, [name]).fetchone() is not None
                if not is_used and not _sharers(connection, "group", name):
                    connection.execute("DELETE FROM groups WHERE name = %s", [name])
                    return
        raise StoreUnavailable(f"new shares with the group {name} are being made: try again")

    def add(self, name: str, user: str) -> UserGroup:
        """Add a user to a group; what is shared with the group is shared with the user at once."""
        if not self._connections.account_rows("SELECT 1 FROM users WHERE name = %s", [user]):
            raise NotFound(f"there is no user {user[:64]}")
        sql = "INSERT INTO group_members VALUES (%s, %s) ON CONFLICT DO NOTHING"
        return self._changed(name, user, lambda connection: connection.execute(sql, [name, user]))

    def remove(self, name: str, user: str) -> UserGroup:
        """Remove a user from a group; memories that only the group shared leave the user at once."""
        if user not in self._one(name).members:
            raise NotFound(f"{user[:64]} is not in the group {name}")
        sql = "DELETE FROM group_members WHERE group_name = %s AND user_name = %s"
        return self._changed(name, user, lambda connection: connection.execute(sql, [name, user]))

    def end_shares_of(self, user: str) -> None:
        """End all that a user shares, and all that is shared with it, before the user is erased."""
        for group in self.all():
            if user in group.members:
                self.remove(group.name, user)
        for owner in self._sharers("user", user):
            self._unshared(owner, "user", user)
        for kind, grantee in {(share.grantee_kind, share.grantee) for share in self._shares(user).given()}:
            self._unshared(user, kind, grantee)

    def _unshared(self, owner: str, kind: GranteeKind, grantee: str) -> None:
        """End every share of an owner with one grantee."""
        shares = self._shares(owner)
        for share in shares.given():
            if (share.grantee_kind, share.grantee) == (kind, grantee):
                shares.unshare(share.subject, share.target, kind, grantee, actor=_ADMIN)

    def _changed(self, name: str, user: str, change: Callable[[Connection], Any]) -> UserGroup:
        """Change the members of a group, and update that user's rows under the locks of all who share with it."""
        self._one(name)
        batch = new_batch()

        def work(connection: Connection, locked: frozenset[str]) -> None:
            with seeing_accounts(connection):
                # Those who share with the group hold this row while they read its members.
                connection.execute("SELECT 1 FROM groups WHERE name = %s FOR UPDATE", [name])
                sharers = _sharers(connection, "group", name)
                change(connection)
            performer = Performer(user, _ADMIN, locked)
            performer.require(sharers)
            for owner in sorted(set(sharers) - {user}):
                writer = PostgresWriter(connection, owner, timestamps.now(), batch, performer.named_for(owner))
                with rows_of(connection, owner, user):
                    for share in _given(connection, owner):
                        writer.affected.update(_covered(writer, share))
                spread(writer, performer, frozenset({user}))

        run_with_owner_locks(OwnerTransactions(self._connections, user), work)
        return self._one(name)

    def _sharers(self, kind: GranteeKind, grantee: str) -> list[str]:
        with self._connections.accounts() as connection:
            return _sharers(connection, kind, grantee)

    def _shares(self, owner: str) -> PostgresShares:
        return PostgresShares(OwnerTransactions(self._connections, owner))

    def _one(self, name: str) -> UserGroup:
        for group in self.all():
            if group.name == name:
                return group
        raise NotFound(f"there is no group {name[:64]}")


def settle_restored(connection: Connection, owners: Iterable[str]) -> None:
    """Update the rows of all readers after a restore: the backup holds older shares and copies.

    Users and groups are in no backup. The caller locks all tables and does not run as an owner.
    """
    with seeing_accounts(connection):
        users = {str(name) for (name,) in connection.execute("SELECT name FROM users").fetchall()}
        groups = {str(name) for (name,) in connection.execute("SELECT name FROM groups").fetchall()}
    grantees = {("user", name) for name in users} | {("group", name) for name in groups}
    batch, everyone = new_batch(), frozenset(owners)
    for owner in sorted(owners):
        writer = PostgresWriter(connection, owner, timestamps.now(), batch, _ADMIN)
        with rows_of(connection, owner, ""):
            shares = _given(connection, owner)
            rows = connection.execute("SELECT id, reader FROM shared_memories WHERE owner = %s", [owner]).fetchall()
            if not shares and not rows:
                continue
            writer.affected.update(str(id) for id, _ in rows)
            for share in shares:
                writer.affected.update(_covered(writer, share))
                if (share.grantee_kind, share.grantee) not in grantees:
                    end_share(writer, share.subject, share.target, share.grantee_kind, share.grantee)
            readers = {*users, *(str(reader) for _, reader in rows)}
            # A member that joined since may have no row yet.
            connection.cursor().executemany(
                "INSERT INTO owners (owner) VALUES (%s) ON CONFLICT DO NOTHING", [(name,) for name in sorted(readers)]
            )
            spread(writer, Performer(owner, _ADMIN, everyone | readers))


def end_leftovers(connection: Connection, kind: GranteeKind, name: str) -> None:
    """Let a new user or group begin with nothing, in the transaction of accounts that makes it."""
    owners = set(_sharers(connection, kind, name))
    readers = [name] if kind == "user" else []
    sql = "SELECT DISTINCT owner FROM shared_memories WHERE reader = ANY(%s)"
    owners |= {str(owner) for (owner,) in connection.execute(sql, [readers]).fetchall()}
    for owner in sorted(owners):
        with rows_of(connection, owner, ""):
            bindings = [owner, kind, name]
            connection.execute("DELETE FROM shares WHERE owner = %s AND grantee_kind = %s AND grantee = %s", bindings)
            sql = "DELETE FROM shared_memories WHERE owner = %s AND reader = ANY(%s)"
            connection.execute(sql, [owner, readers])
    for reader in readers:
        with rows_of(connection, reader, "", sharing=True):
            sql = "SELECT DISTINCT id FROM versions WHERE owner = %s AND shared_by IS NOT NULL"
            ids = [str(id) for (id,) in connection.execute(sql, [reader]).fetchall()]
            if ids:
                connection.execute(LOCK_OWNER, [reader])
                writer = PostgresWriter(connection, reader, timestamps.now(), new_batch(), _ADMIN)
                for id in ids:
                    writer.write_entry(Action.UNSHARED, id)
                writer.rows.end_copies(ids)


def _check_shareable(writer: PostgresWriter, id: str) -> None:
    for shared, owner in shared_ids(writer, [id]).items():
        raise NotAllowed(f"{shared} is shared by {owner}: only {owner} can share it with others")
    latest = writer.latest(id)
    if latest.sensitivity is not Sensitivity.OPEN:
        raise BadInput(f"{id} is {latest.sensitivity}: only open memories can be shared")


def _check_grantee(connection: Connection, kind: GranteeKind, name: str) -> None:
    with seeing_accounts(connection):
        # Held until the end: the user is not erased, and the members of the group do not change meanwhile.
        table = "users" if kind == "user" else "groups"
        if connection.execute(f"SELECT 1 FROM {table} WHERE name = %s FOR SHARE", [name]).fetchone() is None:
            raise NotFound(f"there is no {kind} {name[:64]}")


def _sharers(connection: Connection, kind: GranteeKind, grantee: str) -> list[str]:
    """Who shares anything with a user or a group."""
    sql = "SELECT DISTINCT owner FROM shares WHERE grantee_kind = %s AND grantee = %s ORDER BY 1"
    return [str(owner) for (owner,) in connection.execute(sql, [kind, grantee]).fetchall()]


def _covered(writer: PostgresWriter, share: Share) -> set[str]:
    """The memory of a share, or those that its tag may be about and those that its owner has shared so far."""
    if share.subject == "memory":
        return {share.target}
    rows = writer.connection.execute(
        "SELECT DISTINCT id FROM versions WHERE owner = %s AND known_to IS NULL AND shared_by IS NULL"
        " AND jsonb_exists(tags::jsonb, %s) UNION SELECT id FROM shared_memories WHERE owner = %s",
        [writer.owner, share.target, writer.owner],
    ).fetchall()
    return {str(id) for (id,) in rows}


def _given(connection: Connection, owner: str) -> list[Share]:
    return [_to_share(row) for row in connection.execute(_GIVEN, [owner]).fetchall()]


def _groups(rows: Iterable[Any]) -> list[UserGroup]:
    members: dict[str, list[str]] = {}
    for name, user in rows:
        members.setdefault(name, []).extend([] if user is None else [user])
    return [UserGroup(name, tuple(users)) for name, users in members.items()]


def _to_share(row: Any) -> Share:
    owner, subject, target, kind, grantee, access, at = row
    return Share(
        owner=owner,
        subject=subject,
        target=target,
        grantee_kind=kind,
        grantee=grantee,
        access=access,
        at=timestamps.from_micros(at),
    )
