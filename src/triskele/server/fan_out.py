"""Apply changes of an owner's memories to the rows of their readers, in the same transaction.

Each reader of a shared memory has a copy of its row, marked by `shared_by`: every read, index and policy uses only the
reader's rows. Copies are written only here, by the transaction that changes the memory, under the locks of all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from triskele.config import HOSTED
from triskele.errors import NotAllowed, StoreUnavailable
from triskele.replies.rooms import Access
from triskele.server.postgres.connections import Connection, OwnerTransactions
from triskele.server.postgres.truth_rows import PostgresWriter
from triskele.store.rows import LINK_COLUMNS, VERSION_COLUMNS, from_link, row_hash, to_link, to_memory
from triskele.store.values import WrittenEntry
from triskele.types import (
    OF_A_TAG,
    Action,
    Add,
    Change,
    Connect,
    Disconnect,
    Forget,
    Link,
    LinkKind,
    Memory,
    MoveFolder,
    Outcome,
    Revise,
    Sensitivity,
)

# Each try takes the locks that the one before lacked; only another share of the same moment makes a further one needed.
_MOST_TRIES = 20
_MIRRORED = frozenset({Action.ADDED, Action.EDITED, Action.RESTORED, Action.FORGOTTEN, Action.LINKED, Action.UNLINKED})
# Only the owner decides who may read a memory, and its project.
_OWNERS_ALONE = ("sensitivity", "tags", "project")
SHARE = "owner, subject, target, grantee_kind, grantee, access, at"
_SHARES = """
SELECT subject, target, grantee_kind, grantee, access, NULL AS reader FROM shares
WHERE owner = %(owner)s AND (subject = 'tag' OR target = ANY(%(ids)s))
UNION ALL SELECT 'reader', id, '', '', access, reader FROM shared_memories WHERE owner = %(owner)s AND id = ANY(%(ids)s)
"""
# What others share is not shared on.
_LATEST = """
SELECT DISTINCT ON (id) id, sensitivity, tags FROM versions
WHERE owner = %s AND id = ANY(%s) AND shared_by IS NULL ORDER BY id, version DESC
"""
_MADE = """
SELECT fingerprint, content_hash, vector, tokens FROM vectors
WHERE owner = %s AND content_hash = ANY(%s) AND NOT starts_with(fingerprint, %s)
"""

Result = TypeVar("Result")
Granted = dict[str, dict[str, Access]]


class _MoreOwners(Exception):
    """Rows of owners whose locks are not held have to be written."""

    def __init__(self, owners: Iterable[str]) -> None:
        super().__init__()
        self.owners = frozenset(owners)


@dataclass(frozen=True, slots=True)
class Performer:
    """Who makes the changes of a transaction, as whose actor, and which owners are locked for it."""

    owner: str
    actor: str
    locked: frozenset[str]

    def named_for(self, owner: str) -> str:
        """The actor in the journal of an owner: in that of another the performer is named with it."""
        return self.actor if owner == self.owner else f"{self.owner}/{self.actor}"

    def require(self, owners: Iterable[str]) -> None:
        """Begin again with the locks of these owners, unless they are held."""
        if missing := set(owners) - self.locked:
            raise _MoreOwners(missing)


def run_with_owner_locks(
    transactions: OwnerTransactions, work: Callable[[Connection, frozenset[str]], Result]
) -> Result:
    """Do some work in one transaction that holds the locks of every owner whose rows it writes.

    Locks are taken in one order and before the first write: if one is missing, the work starts again.
    """
    locked = frozenset({transactions.owner})
    for _ in range(_MOST_TRIES):
        try:
            with transactions.writing(others=locked) as connection:
                return work(connection, locked)
        except _MoreOwners as more:
            locked |= more.owners
    raise StoreUnavailable(f"the store {transactions.address} is busy with other shares: try again")


@contextmanager
def rows_of(connection: Connection, owner: str, back_to: str, *, sharing: bool = False) -> Iterator[None]:
    """Read and write the rows of another owner for a while, with `sharing` also those that others share with it.

    A failure ends the transaction anyway.
    """
    if owner == back_to and not sharing:
        yield
        return
    set_owner = "SELECT set_config('triskele.owner', %s, true), set_config('triskele.sharing', %s, true)"
    connection.execute(set_owner, [owner, "on" if sharing else ""])
    yield
    connection.execute(set_owner, [back_to, ""])


def carry_out(writer: PostgresWriter, changes: Sequence[Change], locked: frozenset[str]) -> list[Outcome]:
    """Apply changes to the memories of the writer's owner, and to those that others share with it for writing."""
    performer = Performer(writer.owner, writer.actor, locked)
    sharers = shared_ids(writer, {id for change in changes for id in _ids(change)})
    writers = {writer.owner: writer}
    outcomes = []
    for change in changes:
        owner = _owner_of(change, sharers)
        if owner is None:
            _refuse_replacing(change, sharers)
            outcomes.append((writer.owner, writer.apply(change)))
            continue
        if owner not in writers:
            performer.require({owner})
            writers[owner] = _writer_for(writer, performer, owner)
        with rows_of(writer.connection, owner, writer.owner):
            _check_access(writer, owner, change)
            outcomes.append((owner, writers[owner].apply(_as_owners(writers[owner], change))))
    for owner_writer in writers.values():
        with rows_of(writer.connection, owner_writer.owner, writer.owner):
            owner_writer.hold_limit()
    numbers = {owner_writer.owner: spread(owner_writer, performer) for owner_writer in writers.values()}
    # The number of an entry is that of the performer's own journal.
    return [
        outcome if owner == writer.owner or outcome.seq is None else replace(outcome, seq=numbers[owner][outcome.seq])
        for owner, outcome in outcomes
    ]


def refuse_shared(writer: PostgresWriter, ids: Iterable[str], what: str) -> None:
    """Raise if a memory is another user's: only its owner may do this."""
    for id, owner in shared_ids(writer, ids).items():
        raise NotAllowed(f"{id} is shared by {owner}: only {owner} can {what} it")


def shared_ids(writer: PostgresWriter, ids: Iterable[str]) -> dict[str, str]:
    """The ids that other users share with the writer's owner, with these users."""
    rows = writer.connection.execute(
        "SELECT DISTINCT id, shared_by FROM versions WHERE owner = %s AND id = ANY(%s) AND shared_by IS NOT NULL",
        [writer.owner, list(ids)],
    ).fetchall()
    return {str(id): str(owner) for id, owner in rows}


def _ids(change: Change) -> tuple[str, ...]:
    match change:
        case Add(memory) | Revise(memory):
            return (memory.id,)
        case Connect(link) | Disconnect(link):
            return (link.source, link.target)
        case MoveFolder():
            return ()
    return (change.id,)


def _owner_of(change: Change, sharers: Mapping[str, str]) -> str | None:
    """The one other user whose memories a change is about; None if any of them is the writer's own."""
    owners = {sharers.get(id) for id in _ids(change)}
    return owners.pop() if len(owners) == 1 else None


def _refuse_replacing(change: Change, sharers: Mapping[str, str]) -> None:
    """Raise if an own memory would replace another user's: that user would not see the successor."""
    if isinstance(change, Connect) and change.link.kind is LinkKind.SUPERSEDES and change.link.target in sharers:
        owner = sharers[change.link.target]
        raise NotAllowed(f"{change.link.target} is shared by {owner}: only {owner} can replace it")


def _check_access(writer: PostgresWriter, owner: str, change: Change) -> None:
    """Raise unless the share allows the change, in the rows of the owner."""
    if not isinstance(change, Revise | Forget | Connect | Disconnect):
        raise NotAllowed(f"{_ids(change)[0]} is shared by {owner}: only {owner} can do that to it")
    rows = writer.connection.execute(
        "SELECT id FROM shared_memories WHERE owner = %s AND id = ANY(%s) AND reader = %s AND access = 'write'",
        [owner, list(_ids(change)), writer.owner],
    ).fetchall()
    for id in _ids(change):
        if (id,) not in rows:
            raise NotAllowed(f"{id} is shared by {owner} for reading: ask {owner} to share it for writing")


def _as_owners(writer: PostgresWriter, change: Change) -> Change:
    """A reader's change, rewritten as a change of the owner's row."""
    if not isinstance(change, Revise):
        return change
    latest = writer.latest(change.memory.id)
    for name in _OWNERS_ALONE:
        if getattr(change.memory, name) != getattr(latest, name):
            raise NotAllowed(f"{latest.id} is shared by {latest.owner}: only {latest.owner} can change its {name}")
    return replace(change, memory=replace(change.memory, owner=latest.owner, shared_by=None))


def _writer_for(writer: PostgresWriter, performer: Performer, owner: str) -> PostgresWriter:
    """A writer in the rows of another owner; what it undoes has another number in the journal there."""
    undoes = None
    if writer.undoes is not None:
        row = writer.connection.execute(
            "SELECT batch FROM journal WHERE owner = %s AND seq = %s", [writer.owner, writer.undoes]
        ).fetchone()
        with rows_of(writer.connection, owner, writer.owner):
            first = writer.connection.execute(
                "SELECT min(seq) FROM journal WHERE owner = %s AND batch = %s", [owner, row and row[0]]
            ).fetchone()
        undoes = first[0] if first else None
    return writer.acting_for(owner, actor=performer.named_for(owner), undoes=undoes)


def spread(writer: PostgresWriter, performer: Performer, only: frozenset[str] | None = None) -> dict[int, int]:
    """Bring the rows of all readers, or of some, to what the writer's owner shares with them now.

    Returns the number that each entry of the owner's journal has in that of the performer.
    """
    connection, owner, ids = writer.connection, writer.owner, sorted(writer.touched)
    if not ids:
        return {}
    with rows_of(connection, owner, performer.owner):
        rows = connection.execute(_SHARES, {"owner": owner, "ids": ids}).fetchall()
        if not rows:
            return {}
        before: Granted = {}
        for subject, id, *_, access, reader in rows:
            if subject == "reader":
                before.setdefault(reader, {})[id] = access
        after = _entitled(writer, [row for row in rows if row[0] != "reader"], ids)
    readers = sorted({*before, *after} & only if only is not None else {*before, *after})
    performer.require(readers)
    numbers: dict[int, int] = {}
    for reader in readers:
        mirrored = _Spread(writer, performer, reader, before.get(reader, {}), after.get(reader, {})).settle()
        numbers |= mirrored if reader == performer.owner else {}
    return numbers


def _entitled(writer: PostgresWriter, shares: Sequence[Any], ids: Sequence[str]) -> Granted:
    """Who may have which of these memories; a memory that is not open has no readers, and its shares end."""
    connection, owner = writer.connection, writer.owner
    latest = {
        id: (sensitivity == Sensitivity.OPEN.value, json.loads(tags))
        for id, sensitivity, tags in connection.execute(_LATEST, [owner, list(ids)]).fetchall()
    }
    groups: dict[str, list[str]] = {}
    sql = "SELECT group_name, user_name FROM group_members WHERE group_name = ANY(%s)"
    named = [grantee for _, _, kind, grantee, *_ in shares if kind == "group"]
    for name, member in connection.execute(sql, [named]).fetchall() if named else ():
        groups.setdefault(name, []).append(member)
    granted: Granted = {}
    for subject, target, kind, grantee, access, _ in shares:
        if subject == "memory" and not latest.get(target, (False, ()))[0]:
            end_share(writer, subject, target, kind, grantee)
            continue
        for id, (is_open, tags) in latest.items():
            if is_open and (target == id if subject == "memory" else target in tags):
                for reader in [grantee] if kind == "user" else groups.get(grantee, []):
                    own = granted.setdefault(reader, {})
                    own[id] = "write" if "write" in (access, own.get(id)) else "read"
    granted.pop(owner, None)
    return granted


def end_share(writer: PostgresWriter, subject: str, target: str, kind: str, grantee: str) -> Any:
    """Delete a share and journal its end; its row, or None."""
    row = writer.connection.execute(
        "DELETE FROM shares WHERE owner = %s AND subject = %s AND target = %s AND grantee_kind = %s AND grantee = %s"
        f" RETURNING {SHARE}",
        [writer.owner, subject, target, kind, grantee],
    ).fetchone()
    if row is not None:
        note_share(writer, Action.UNSHARED, subject, target, f"{kind} {grantee}")
    return row


def note_share(writer: PostgresWriter, action: Action, subject: str, target: str, grantee: str) -> None:
    """Journal the begin or the end of a share."""
    writer.write_entry(action, target if subject == "memory" else f"{OF_A_TAG}{target}", other=grantee)


@dataclass(frozen=True, slots=True)
class _Spread:
    """What one reader has of an owner's memories, and is to have."""

    writer: PostgresWriter
    performer: Performer
    reader: str
    before: Mapping[str, Access]
    after: Mapping[str, Access]

    def settle(self) -> dict[int, int]:
        """Bring the reader's rows and journal to that; return the reader's entry numbers by the owner's."""
        connection, owner = self.writer.connection, self.writer.owner
        with rows_of(connection, owner, self.performer.owner):
            versions = self._versions()
            links = self._links()
            vectors = connection.execute(_MADE, [owner, [each.content_hash for each in versions], HOSTED]).fetchall()
            theirs = _writer_for(self.writer, self.performer, self.reader)
        with rows_of(connection, self.reader, self.performer.owner, sharing=True):
            # Ids that the reader has already as its own memories stay what they are.
            taken = {id for id, sharer in self._sharers(self.after).items() if sharer != owner}
            self._remove(theirs)
            gained = sorted(self.after.keys() - self.before.keys() - taken)
            self._copy(theirs, versions, taken, vectors)
            newest = {each.id: each.version for each in versions}
            for id in gained:
                theirs.write_entry(Action.SHARED, id, version=newest[id])
            there = {id for id in self.after if id not in taken}
            sharers = self._sharers({end for link in links for end in (link.source, link.target)})
            for link in links:
                if sharers.get(link.source) == sharers.get(link.target) == owner:
                    _write_link(theirs, link)
            numbers = self._mirror(theirs, there - set(gained), versions)
        with rows_of(connection, owner, self.performer.owner):
            self._note_readers(there)
        return numbers

    def _versions(self) -> list[Memory]:
        sql = (
            f"SELECT {VERSION_COLUMNS} FROM versions WHERE owner = %s AND id = ANY(%s) AND sensitivity = 'open'"
            " ORDER BY id, version"
        )
        rows = self.writer.connection.execute(sql, [self.writer.owner, list(self.after)]).fetchall()
        return [replace(to_memory(row), owner=self.reader, shared_by=self.writer.owner) for row in rows]

    def _links(self) -> list[Link]:
        sql = (
            f"SELECT {LINK_COLUMNS} FROM links WHERE owner = %s AND (source = ANY(%s) OR target = ANY(%s)) ORDER BY row"
        )
        ids = list(self.after)
        return [to_link(row) for row in self.writer.connection.execute(sql, [self.writer.owner, ids, ids]).fetchall()]

    def _sharers(self, ids: Iterable[str]) -> dict[str, str | None]:
        """Who shares which of some memories with the reader; None for the reader's own."""
        sql = "SELECT DISTINCT id, shared_by FROM versions WHERE owner = %s AND id = ANY(%s)"
        return dict(self.writer.connection.execute(sql, [self.reader, list(ids)]).fetchall())

    def _remove(self, theirs: PostgresWriter) -> None:
        """Delete copies that have ended, and make every instance rebuild the reader's index files."""
        lost = sorted(self.before.keys() - self.after.keys())
        erased = {entry.id for entry in self.writer.entries if entry.action is Action.ERASED}
        for id in lost:
            theirs.write_entry(Action.ERASED if id in erased else Action.UNSHARED, id)
        if lost:
            theirs.rows.end_copies(lost)

    def _copy(self, theirs: PostgresWriter, versions: Sequence[Memory], taken: set[str], made: Sequence[Any]) -> None:
        """Write the versions that the reader lacks, and end those that have ended."""
        connection = self.writer.connection
        rows = connection.execute(
            f"SELECT {VERSION_COLUMNS} FROM versions WHERE owner = %s AND id = ANY(%s)", [self.reader, list(self.after)]
        ).fetchall()
        stored = {(version.id, version.version): version for version in map(to_memory, rows)}
        wanted = [version for version in versions if version.id not in taken]
        if any((version.id, version.version) not in stored for version in wanted):
            # Before the versions: what has a vector is not queued.
            connection.cursor().executemany(
                "INSERT INTO vectors (owner, fingerprint, content_hash, vector, tokens) VALUES (%s, %s, %s, %s, %s)"
                " ON CONFLICT DO NOTHING",
                [(self.reader, *row) for row in made],
            )
        # An ended version before the one that follows it: only one may be current.
        for version in sorted(wanted, key=lambda version: (version.id, version.known_to is None, version.version)):
            there = stored.get((version.id, version.version))
            if there is None:
                theirs.rows.insert_version(version)
            elif there.known_to != version.known_to:
                theirs.rows.end_version(version)

    def _mirror(self, theirs: PostgresWriter, kept: set[str], versions: Sequence[Memory]) -> dict[int, int]:
        """Write the owner's entries about these memories into the reader's journal."""
        copied = {(each.id, each.version) for each in versions}
        numbers = {}
        for entry in self.writer.entries:
            if entry.action in _MIRRORED and self._is_about(entry, kept, copied):
                numbers[entry.seq] = theirs.write_entry(
                    entry.action,
                    entry.id,
                    version=entry.version,
                    previous=entry.previous,
                    kind=entry.kind,
                    # Which class it had before is for its owner alone.
                    other=entry.other if entry.kind else None,
                )
        return numbers

    def _is_about(self, entry: WrittenEntry, kept: set[str], copied: set[tuple[str, int]]) -> bool:
        if entry.kind is not None:
            return {entry.id, entry.other} <= self.after.keys() and entry.id in kept
        return entry.id in kept and (entry.version is None or (entry.id, entry.version) in copied)

    def _note_readers(self, there: set[str]) -> None:
        connection, owner = self.writer.connection, self.writer.owner
        connection.execute(
            "DELETE FROM shared_memories WHERE owner = %s AND reader = %s AND id = ANY(%s)",
            [owner, self.reader, list(self.before.keys() | self.after.keys())],
        )
        connection.cursor().executemany(
            "INSERT INTO shared_memories (owner, id, reader, access) VALUES (%s, %s, %s, %s)",
            [(owner, id, self.reader, self.after[id]) for id in sorted(there)],
        )


def _write_link(theirs: PostgresWriter, link: Link) -> None:
    """Write a link of the owner's for a reader, or end it as the owner did."""
    values = [theirs.owner, *from_link(link)]
    row = theirs.connection.execute(
        "SELECT row FROM links WHERE owner = %s AND source = %s AND kind = %s AND target = %s AND known_from = %s",
        values[:5],
    ).fetchone()
    if row is not None:
        theirs.rows.end_link(row[0], link)
        return
    theirs.connection.execute(
        f"INSERT INTO links (owner, {LINK_COLUMNS}, row_hash) VALUES (%s,%s,%s,%s,%s,%s,%s) ON CONFLICT DO NOTHING",
        [*values, row_hash(values)],
    )
