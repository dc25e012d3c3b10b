"""Carrying out changes inside one Postgres transaction: versions, links and journal move together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from triskele.base.ids import same_words
from triskele.base.timestamps import from_micros, to_micros
from triskele.errors import Conflict, NotFound
from triskele.stores.postgres import job_rows, sealed_texts, vector_rows
from triskele.stores.postgres.connections import Connection
from triskele.stores.postgres.document_rows import delete_about
from triskele.stores.protocols import KnownPlace
from triskele.stores.sqlite.rows import (
    JOURNAL_COLUMNS,
    LINK_COLUMNS,
    PLACE_COLUMNS,
    VERSION_COLUMNS,
    Row,
    from_link,
    from_memory,
    row_hash,
    to_link,
    to_memory,
    version_hash,
)
from triskele.types import (
    Action,
    Add,
    Bind,
    Change,
    Connect,
    Disconnect,
    Forget,
    Link,
    LinkKind,
    Memory,
    Outcome,
    Reveal,
    Revise,
    Sealed,
    Sensitivity,
    Withdraw,
)

_VALUES = ",".join(["%s"] * 24)
_SAME = " AND ".join(
    f"{column} IS NOT DISTINCT FROM %s"
    for column in ("session", "position", "speaker", "role", "valid_from", "valid_to")
)


class WrittenEntry(NamedTuple):
    """A journal entry of this transaction, and its number."""

    seq: int
    action: Action
    id: str
    version: int | None
    previous: int | None
    kind: str | None
    other: str | None


@dataclass(frozen=True, slots=True)
class PostgresWriter:
    """Writes the changes of one transaction, all of one owner, at one moment and under one batch.

    Rows of another owner are unknown here. `entries` and `touched` record the changes so far, for the copies of shared
    memories.
    """

    connection: Connection
    owner: str
    at: datetime
    batch: str
    actor: str
    undoes: int | None = None
    entries: list[WrittenEntry] = field(default_factory=list)
    touched: set[str] = field(default_factory=set)

    def acting_for(self, owner: str, *, actor: str, undoes: int | None) -> PostgresWriter:
        """The same transaction in the rows of another owner."""
        return replace(self, owner=owner, actor=actor, undoes=undoes, entries=[], touched=set())

    def apply(self, change: Change) -> Outcome:
        """Carry out one change and journal it."""
        match change:
            case Add(memory, verbatim, sealed):
                return self._add(memory, verbatim, sealed)
            case Revise(memory, base, sealed):
                return self._revise(memory, base, sealed)
            case Forget(id):
                return self._forget(id)
            case Connect(link):
                return self._connect(link)
            case Disconnect(link):
                return self._disconnect(link)
            case Reveal(id):
                latest = self.latest(id)
                return self._note(Action.REVEALED, latest, version=latest.version)
            case Withdraw(id):
                return self._withdraw(id)
            case Bind(place, project):
                return self._bind(place, project)

    def _add(self, memory: Memory, verbatim: bool, sealed: Sealed | None) -> Outcome:
        self.refuse_foreign(memory)
        # Two passwords may have the same title.
        if not verbatim and sealed is None:
            known = self._same_content(memory)
            if known is not None:
                return self._outcome(Action.DUPLICATE, known)
        clash = self._one(
            "SELECT version, known_to IS NULL FROM versions WHERE owner = %s AND id = %s"
            " AND (version = %s OR known_to IS NULL) ORDER BY version = %s DESC LIMIT 1",
            memory.id,
            memory.version,
            memory.version,
        )
        if clash and clash[0] == memory.version:
            raise Conflict(f"memory {memory.id} already has a version {memory.version}")
        if clash and memory.known_to is None:
            raise Conflict(f"memory {memory.id} already has a current version")
        # Knowledge begins with the write, however long ago the memory was drafted.
        insert_version(self.connection, memory if verbatim else replace(memory, known_from=self.at))
        sealed_texts.keep(self.connection, memory, sealed)
        return self._note(Action.ADDED, memory, version=memory.version)

    def _revise(self, memory: Memory, base: int, sealed: Sealed | None) -> Outcome:
        self.refuse_foreign(memory)
        standing = self._current(memory.id)
        latest = self.latest(memory.id)
        if latest.version != base:
            raise Conflict(
                f"memory {memory.id} was changed meanwhile (version {latest.version}, the edit was made on {base})"
            )
        if standing is not None and sealed is None and self._is_same(standing, memory):
            return self._outcome(Action.UNCHANGED, standing, version=standing.version)
        moment = max(self.at, latest.known_to or latest.known_from)
        if standing is not None:
            end_version(self.connection, replace(standing, known_to=moment))
        revised = replace(memory, version=latest.version + 1, known_from=moment, known_to=None)
        insert_version(self.connection, revised)
        if revised.sensitivity is Sensitivity.SECRET and sealed is None:
            sealed_texts.copy(self.connection, self.owner, memory.id, memory.version, revised.version)
        else:
            sealed_texts.keep(self.connection, revised, sealed)
        action = Action.EDITED if standing is not None else Action.RESTORED
        return self._note(action, revised, version=revised.version, previous=latest.version)

    def _is_same(self, standing: Memory, memory: Memory) -> bool:
        """Equal in words and, behind equal titles, in the sealed text."""
        texts = [sealed_texts.one(self.connection, self.owner, each.id, each.version) for each in (standing, memory)]
        return same_words(standing, memory) and len({text and text.sealed_as for text in texts}) == 1

    def _withdraw(self, id: str) -> Outcome:
        latest = self.latest(id)
        sql = f"SELECT {VERSION_COLUMNS} FROM versions WHERE owner = %s AND id = %s AND sensitivity = %s"
        for values in self.connection.execute(sql, [self.owner, id, Sensitivity.OPEN.value]).fetchall():
            closed = replace(to_memory(values), sensitivity=Sensitivity.PRIVATE)
            self.connection.execute(
                "UPDATE versions SET sensitivity = %s, row_hash = %s WHERE owner = %s AND id = %s AND version = %s",
                [closed.sensitivity.value, version_hash(from_memory(closed)), self.owner, id, closed.version],
            )
        vector_rows.withdraw(self.connection, self.owner, id)
        delete_about(self.connection, self.owner, [id])
        self.touched.add(id)
        return self._outcome(Action.UNCHANGED, latest, version=latest.version)

    def _forget(self, id: str) -> Outcome:
        standing = self._current(id)
        if standing is None:
            latest = self.latest(id)
            return self._outcome(Action.UNCHANGED, latest, version=latest.version)
        end_version(self.connection, replace(standing, known_to=max(self.at, standing.known_from)))
        return self._note(Action.FORGOTTEN, standing, previous=standing.version)

    def _connect(self, link: Link) -> Outcome:
        source, _ = (self.latest(end) for end in (link.source, link.target))
        if link.source == link.target:
            raise Conflict(f"memory {link.source} cannot be linked to itself")
        if link.known_to is None:
            if self._standing_link(link) is not None:
                return self._outcome(Action.UNCHANGED, source)
            if link.kind is LinkKind.SUPERSEDES and self._is_superseded_by(link.source, link.target):
                raise Conflict(f"{link.target} already supersedes {link.source}: that would be a circle")
        values = [self.owner, *from_link(link)]
        self.connection.execute(
            f"INSERT INTO links (owner, {LINK_COLUMNS}, row_hash) VALUES (%s,%s,%s,%s,%s,%s,%s)",
            [*values, row_hash(values)],
        )
        return self._note(Action.LINKED, source, link=link)

    def _disconnect(self, link: Link) -> Outcome:
        standing = self._standing_link(link)
        if standing is None:
            return Outcome(action=Action.UNCHANGED, id=link.source, batch=self.batch)
        row, known = standing
        values = [self.owner, *from_link(replace(known, known_to=max(self.at, known.known_from)))]
        self.connection.execute(
            "UPDATE links SET known_to = %s, row_hash = %s WHERE owner = %s AND row = %s",
            [values[-1], row_hash(values), self.owner, row],
        )
        return self._note(Action.UNLINKED, self.latest(link.source), link=link)

    def _bind(self, number: int, project: str) -> Outcome:
        found = self._one(f"SELECT place, {PLACE_COLUMNS} FROM places WHERE owner = %s AND place = %s", number)
        if found is None:
            raise NotFound(f"no place {number}")
        # The journal names the number: a path or a remote stays in its own table.
        place, id = _to_place(found), f"place {number}"
        if place.project == project:
            return Outcome(action=Action.UNCHANGED, id=id, project=project)
        values = [self.owner, place.key, project, to_micros(place.at)]
        self.connection.execute(
            "UPDATE places SET project = %s, row_hash = %s WHERE owner = %s AND place = %s",
            [project, row_hash(values), self.owner, number],
        )
        seq = self.write_entry(Action.BOUND, id, other=place.project)
        return Outcome(action=Action.BOUND, id=id, seq=seq, batch=self.batch, project=project)

    def refuse_foreign(self, memory: Memory) -> None:
        """Raise if a memory is another owner's, as for an unknown id."""
        if memory.owner != self.owner:
            raise NotFound(f"no memory {memory.id}")

    def note_erased(self, memory: Memory) -> Outcome:
        """Journal that a memory was erased; the entry names the id and nothing else."""
        return self._note(Action.ERASED, memory)

    def note_sealed(self, memory: Memory) -> Outcome:
        """Journal that every version of a memory was sealed."""
        return self._note(Action.SEALED, memory, version=memory.version)

    def _note(
        self,
        action: Action,
        memory: Memory,
        *,
        version: int | None = None,
        previous: int | None = None,
        link: Link | None = None,
    ) -> Outcome:
        kind, other = (link.kind.value, link.target) if link else (None, None)
        seq = self.write_entry(action, memory.id, version=version, previous=previous, kind=kind, other=other)
        return self._outcome(action, memory, version=version, seq=seq)

    def write_entry(
        self,
        action: Action,
        id: str,
        *,
        version: int | None = None,
        previous: int | None = None,
        kind: str | None = None,
        other: str | None = None,
    ) -> int:
        """Write one journal entry; its number."""
        told = [action.value, id, version, previous, kind, other]
        values = [self.owner, to_micros(self.at), *told, self.batch, self.undoes, self.actor]
        marks = ",".join(["%s"] * (len(values) + 1))
        row = self.connection.execute(
            f"INSERT INTO journal (owner, {JOURNAL_COLUMNS}, row_hash) VALUES ({marks}) RETURNING seq",
            [*values, row_hash(values)],
        ).fetchone()
        assert row is not None
        self.entries.append(WrittenEntry(int(row[0]), action, id, version, previous, kind, other))
        self.touched.update((id,) if other is None or kind is None else (id, other))
        return int(row[0])

    def _outcome(
        self, action: Action, memory: Memory, *, version: int | None = None, seq: int | None = None
    ) -> Outcome:
        return Outcome(
            action=action,
            id=memory.id,
            version=version,
            seq=seq,
            batch=self.batch if seq is not None else "",
            project=memory.project,
            sensitivity=memory.sensitivity,
        )

    def _current(self, id: str) -> Memory | None:
        values = self._one(
            f"SELECT {VERSION_COLUMNS} FROM versions WHERE owner = %s AND id = %s AND known_to IS NULL", id
        )
        return to_memory(values) if values else None

    def latest(self, id: str) -> Memory:
        """The newest version of a memory, current or not."""
        values = self._one(
            f"SELECT {VERSION_COLUMNS} FROM versions WHERE owner = %s AND id = %s ORDER BY version DESC LIMIT 1", id
        )
        if not values:
            raise NotFound(f"no memory {id}")
        return to_memory(values)

    def _same_content(self, memory: Memory) -> Memory | None:
        values = self._one(
            f"SELECT {VERSION_COLUMNS} FROM versions WHERE owner = %s AND content_hash = %s"
            " AND known_to IS NULL AND shared_by IS NULL AND sensitivity <> 'secret' AND project = %s"
            f" AND {_SAME} AND content = %s",
            memory.content_hash,
            memory.project,
            memory.session,
            memory.position,
            memory.speaker,
            memory.role and memory.role.value,
            memory.valid_from and to_micros(memory.valid_from),
            memory.valid_to and to_micros(memory.valid_to),
            memory.content,
        )
        return to_memory(values) if values else None

    def _standing_link(self, link: Link) -> tuple[int, Link] | None:
        values = self._one(
            f"SELECT row, {LINK_COLUMNS} FROM links WHERE owner = %s AND source = %s AND kind = %s AND target = %s"
            " AND known_to IS NULL",
            link.source,
            link.kind.value,
            link.target,
        )
        return (values[0], to_link(values[1:])) if values else None

    def _is_superseded_by(self, id: str, suspect: str) -> bool:
        """Whether `suspect` is a direct or indirect successor of `id`."""
        found = self.connection.execute(
            'WITH RECURSIVE above (id) AS (SELECT %(id)s::text COLLATE "C" UNION SELECT links.source FROM links'
            " JOIN above ON links.owner = %(owner)s AND links.target = above.id WHERE links.kind = 'supersedes'"
            " AND links.known_to IS NULL) SELECT 1 FROM above WHERE id = %(suspect)s",
            {"owner": self.owner, "id": id, "suspect": suspect},
        ).fetchone()
        return found is not None

    def _one(self, sql: str, *bindings: Any) -> Sequence[Any] | None:
        return self.connection.execute(sql, [self.owner, *bindings]).fetchone()


def insert_version(connection: Connection, memory: Memory) -> None:
    """Write one version with its hash, and queue what is to be derived from it."""
    values = from_memory(memory)
    row = connection.execute(
        f"INSERT INTO versions ({VERSION_COLUMNS}, row_hash, shared_by) VALUES ({_VALUES}) RETURNING row",
        [*values, version_hash(values), memory.shared_by],
    ).fetchone()
    assert row is not None
    job_rows.queue_version(connection, memory.owner, int(row[0]), memory.content_hash)
    if memory.sensitivity is not Sensitivity.OPEN:
        vector_rows.withdraw(connection, memory.owner, memory.id)


def end_version(connection: Connection, memory: Memory) -> None:
    """Write when a version ended."""
    values = from_memory(memory)
    connection.execute(
        "UPDATE versions SET known_to = %s, row_hash = %s WHERE owner = %s AND id = %s AND version = %s",
        [memory.known_to and to_micros(memory.known_to), version_hash(values), memory.owner, memory.id, memory.version],
    )


def read_places(connection: Connection, owner: str) -> list[KnownPlace]:
    """Every place, oldest first."""
    rows = connection.execute(f"SELECT place, {PLACE_COLUMNS} FROM places WHERE owner = %s ORDER BY place", [owner])
    return [_to_place(row) for row in rows.fetchall()]


def claim_places(
    connection: Connection,
    owner: str,
    keys: Sequence[str],
    choose: Callable[[Sequence[KnownPlace]], str],
    at: datetime,
) -> str:
    """Give the project that is chosen to the keys that have none, in the transaction of the caller."""
    known = read_places(connection, owner)
    project = choose(known)
    for key in dict.fromkeys(keys):
        if key not in {place.key for place in known}:
            values = [owner, key, project, to_micros(at)]
            connection.execute(
                f"INSERT INTO places (owner, {PLACE_COLUMNS}, row_hash) VALUES (%s,%s,%s,%s,%s)",
                [*values, row_hash(values)],
            )
    return project


def _to_place(row: Row) -> KnownPlace:
    return KnownPlace(row[0], row[1], row[2], from_micros(row[3]))
