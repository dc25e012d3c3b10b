"""Carrying out changes inside one SQLite transaction: versions, links and journal move together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import apsw

from triskele.base.ids import same_words
from triskele.base.timestamps import to_micros
from triskele.errors import Conflict, NotFound
from triskele.stores.sqlite import secrets
from triskele.stores.sqlite.documents import take_about
from triskele.stores.sqlite.rows import (
    JOURNAL_COLUMNS,
    LINK_COLUMNS,
    VERSION_COLUMNS,
    from_link,
    from_memory,
    row_hash,
    to_link,
    to_memory,
)
from triskele.stores.sqlite.vectors import enqueue, take_back
from triskele.types import (
    Action,
    Add,
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


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes the changes of one transaction, all at one moment and under one batch."""

    connection: apsw.Connection
    at: datetime
    batch: str
    undoes: int | None = None

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
                return self._note(Action.REVEALED, id, version=self._latest(id).version)
            case Withdraw(id):
                return self._withdraw(id)

    def _add(self, memory: Memory, verbatim: bool, sealed: Sealed | None) -> Outcome:
        # Two passwords may go by the same title.
        if not verbatim and sealed is None:
            known = self._same_content(memory)
            if known is not None:
                return Outcome(action=Action.DUPLICATE, id=known)
        if self._one("SELECT 1 FROM versions WHERE id = ? AND version = ?", [memory.id, memory.version]):
            raise Conflict(f"memory {memory.id} already has a version {memory.version}")
        if memory.known_to is None and self._current(memory.id) is not None:
            raise Conflict(f"memory {memory.id} already has a current version")
        # Knowledge begins with the write, however long ago the memory was drafted.
        insert_version(self.connection, memory if verbatim else replace(memory, known_from=self.at))
        secrets.keep(self.connection, memory, sealed)
        return self._note(Action.ADDED, memory.id, version=memory.version)

    def _revise(self, memory: Memory, base: int, sealed: Sealed | None) -> Outcome:
        standing = self._current(memory.id)
        latest = self._latest(memory.id)
        if latest.version != base:
            raise Conflict(
                f"memory {memory.id} was changed meanwhile (version {latest.version}, the edit was made on {base})"
            )
        if standing is not None and sealed is None and self._is_same(standing, memory):
            return Outcome(action=Action.UNCHANGED, id=memory.id, version=standing.version)
        moment = max(self.at, latest.known_to or latest.known_from)
        if standing is not None:
            self._close(standing, moment)
        revised = replace(memory, version=latest.version + 1, known_from=moment, known_to=None)
        insert_version(self.connection, revised)
        if revised.sensitivity is Sensitivity.SECRET and sealed is None:
            secrets.copy(self.connection, memory.id, memory.version, revised.version)
        else:
            secrets.keep(self.connection, revised, sealed)
        action = Action.EDITED if standing is not None else Action.RESTORED
        return self._note(action, memory.id, version=revised.version, previous=latest.version)

    def _is_same(self, standing: Memory, memory: Memory) -> bool:
        """Equal in words and, behind equal titles, in the sealed text."""
        texts = [secrets.one(self.connection, each.id, each.version) for each in (standing, memory)]
        return same_words(standing, memory) and len({text and text.sealed_as for text in texts}) == 1

    def _withdraw(self, id: str) -> Outcome:
        latest = self._latest(id)
        sql = f"SELECT {VERSION_COLUMNS} FROM versions WHERE id = ? AND sensitivity = ?"
        for values in self.connection.execute(sql, [id, Sensitivity.OPEN.value]).fetchall():
            closed = replace(to_memory(values), sensitivity=Sensitivity.PRIVATE)
            self.connection.execute(
                "UPDATE versions SET sensitivity = ?, row_hash = ? WHERE id = ? AND version = ?",
                [closed.sensitivity.value, row_hash(from_memory(closed)), id, closed.version],
            )
        take_back(self.connection, id)
        take_about(self.connection, id)
        return Outcome(action=Action.UNCHANGED, id=id, version=latest.version)

    def _forget(self, id: str) -> Outcome:
        standing = self._current(id)
        if standing is None:
            latest = self._latest(id)
            return Outcome(action=Action.UNCHANGED, id=id, version=latest.version)
        self._close(standing, max(self.at, standing.known_from))
        return self._note(Action.FORGOTTEN, id, previous=standing.version)

    def _connect(self, link: Link) -> Outcome:
        for end in (link.source, link.target):
            self._latest(end)
        if link.source == link.target:
            raise Conflict(f"memory {link.source} cannot be linked to itself")
        if link.known_to is None:
            if self._standing_link(link) is not None:
                return Outcome(action=Action.UNCHANGED, id=link.source)
            if link.kind is LinkKind.SUPERSEDES and self._is_superseded_by(link.source, link.target):
                raise Conflict(f"{link.target} already supersedes {link.source}: that would be a circle")
        values = from_link(link)
        self.connection.execute(
            f"INSERT INTO links ({LINK_COLUMNS}, row_hash) VALUES (?,?,?,?,?,?)", [*values, row_hash(values)]
        )
        return self._note(Action.LINKED, link.source, link=link)

    def _disconnect(self, link: Link) -> Outcome:
        standing = self._standing_link(link)
        if standing is None:
            return Outcome(action=Action.UNCHANGED, id=link.source)
        row, known = standing
        closed = replace(known, known_to=max(self.at, known.known_from))
        values = from_link(closed)
        self.connection.execute(
            "UPDATE links SET known_to = ?, row_hash = ? WHERE row = ?", [values[-1], row_hash(values), row]
        )
        return self._note(Action.UNLINKED, link.source, link=link)

    def note_erased(self, id: str) -> Outcome:
        """Journal that a memory was erased; the line names the id and nothing else."""
        return self._note(Action.ERASED, id)

    def note_sealed(self, id: str, version: int) -> Outcome:
        """Journal that every version of a memory was sealed."""
        return self._note(Action.SEALED, id, version=version)

    def _close(self, memory: Memory, moment: datetime) -> None:
        values = from_memory(replace(memory, known_to=moment))
        self.connection.execute(
            "UPDATE versions SET known_to = ?, row_hash = ? WHERE id = ? AND version = ?",
            [to_micros(moment), row_hash(values), memory.id, memory.version],
        )

    def _note(
        self,
        action: Action,
        id: str,
        *,
        version: int | None = None,
        previous: int | None = None,
        link: Link | None = None,
    ) -> Outcome:
        kind, other = (link.kind.value, link.target) if link else (None, None)
        values = [
            to_micros(self.at),
            action.value,
            id,
            version,
            previous,
            kind,
            other,
            self.batch,
            self.undoes,
        ]
        self.connection.execute(
            f"INSERT INTO journal ({JOURNAL_COLUMNS}, row_hash) VALUES (?,?,?,?,?,?,?,?,?,?)",
            [*values, row_hash(values)],
        )
        return Outcome(action=action, id=id, version=version, seq=self.connection.last_insert_rowid())

    def _current(self, id: str) -> Memory | None:
        values = self._one(f"SELECT {VERSION_COLUMNS} FROM versions WHERE id = ? AND known_to IS NULL", [id])
        return to_memory(values) if values else None

    def _latest(self, id: str) -> Memory:
        values = self._one(f"SELECT {VERSION_COLUMNS} FROM versions WHERE id = ? ORDER BY version DESC LIMIT 1", [id])
        if not values:
            raise NotFound(f"no memory {id}")
        return to_memory(values)

    def _same_content(self, memory: Memory) -> str | None:
        values = self._one(
            # Named, because the planner would rather walk through the whole project.
            "SELECT id FROM versions INDEXED BY current_content WHERE content_hash = ? AND known_to IS NULL"
            " AND sensitivity <> 'secret'"
            " AND owner = ? AND project = ? AND session IS ? AND position IS ? AND valid_from IS ? AND valid_to IS ?"
            " AND content = ?",
            [
                memory.content_hash,
                memory.owner,
                memory.project,
                memory.session,
                memory.position,
                memory.valid_from and to_micros(memory.valid_from),
                memory.valid_to and to_micros(memory.valid_to),
                memory.content,
            ],
        )
        return str(values[0]) if values else None

    def _standing_link(self, link: Link) -> tuple[int, Link] | None:
        values = self._one(
            f"SELECT row, {LINK_COLUMNS} FROM links WHERE source = ? AND kind = ? AND target = ? AND known_to IS NULL",
            [link.source, link.kind.value, link.target],
        )
        return (values[0], to_link(values[1:])) if values else None

    def _is_superseded_by(self, id: str, suspect: str) -> bool:
        """Whether `suspect` stands anywhere above `id` in its chain of successors."""
        values = self._one(
            "WITH RECURSIVE above (id) AS (SELECT ? UNION SELECT links.source FROM links JOIN above"
            " ON links.target = above.id WHERE links.kind = 'supersedes' AND links.known_to IS NULL)"
            " SELECT 1 FROM above WHERE id = ?",
            [id, suspect],
        )
        return values is not None

    def _one(self, sql: str, bindings: Sequence[Any]) -> Sequence[Any] | None:
        return self.connection.execute(sql, bindings).fetchone()


def insert_version(connection: apsw.Connection, memory: Memory) -> None:
    """Write one version row with its hash."""
    values = from_memory(memory)
    marks = ",".join("?" * (len(values) + 1))
    connection.execute(
        f"INSERT INTO versions ({VERSION_COLUMNS}, row_hash) VALUES ({marks})", [*values, row_hash(values)]
    )
    enqueue(connection, memory.content_hash)
    if memory.sensitivity is not Sensitivity.OPEN:
        take_back(connection, memory.id)
