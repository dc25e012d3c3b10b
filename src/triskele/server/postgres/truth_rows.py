"""The rows of one owner in one Postgres database: the statements that are specific to Postgres.

`PostgresWriter` records the changes for the copies of shared memories (`fan_out`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from typing import Any

from triskele.server.postgres import postings
from triskele.server.postgres.connections import HIDE_ACCOUNTS, SEE_ACCOUNTS, Bindings, Connection, OwnerTransactions
from triskele.server.postgres.heads import HEADS, LinkEnds
from triskele.server.postgres.migrations import ERASURES
from triskele.store import owner
from triskele.store.derived_rows import drop_unused
from triskele.store.owner import Condition
from triskele.store.rows import VERSION_COLUMNS
from triskele.store.statements import Dialect, OwnerDatabase
from triskele.store.truth_rows import TruthRows
from triskele.store.values import Named
from triskele.store.writer import MemoryLimits, Writer
from triskele.types import LinkKind, Memory, Outcome, Scope

# A version as a reader sees it.
READ_COLUMNS = f"{VERSION_COLUMNS}, shared_by"
# The name of the mark of an owner whose erased rows may still be in the tables.
UNSCRUBBED = "unscrubbed"
_NUMBERED = re.compile(r"\?(\d+)")
# A content may have been erased while it was being embedded.
_INSERT_VECTORS = """
INSERT INTO vectors (owner, content_hash, fingerprint, vector, tokens)
SELECT ?1, made.hash, ?2, made.vector, made.tokens
FROM unnest(?3::text[], ?4::bytea[], ?5::bytea[]) WITH ORDINALITY AS made (hash, vector, tokens, at)
WHERE EXISTS (SELECT 1 FROM versions WHERE owner = ?1 AND content_hash = made.hash)
ORDER BY at ON CONFLICT DO NOTHING
"""


def _has_tag(tag: str) -> Condition:
    # Most rows have other tags: looking for its text costs far less than reading them as JSON.
    return "strpos(tags, ?) > 0 AND jsonb_exists(tags::jsonb, ?)", [json.dumps(tag, ensure_ascii=False), tag]


def array(numbers: Iterable[int]) -> str:
    """Numbers as Postgres reads an array: the driver takes longer over a list than the server over its rows."""
    return f"{{{','.join(map(str, map(int, numbers)))}}}"


DIALECT = Dialect(
    listed="= ANY(?)",
    listed_as="= ANY({})",
    elements="unnest({}::text[]) WITH ORDINALITY AS listed (value, key)",
    has_tag=_has_tag,
    own=" AND shared_by IS NULL",
    # An instance that is new to an owner reads them instead of embedding everything again.
    keeps_tokens=True,
)


class PostgresRows(TruthRows):
    """Rows of a database."""

    dialect = DIALECT
    ID_PARAMETER = '?1::text COLLATE "C"'
    UNGUARDED = ("shared_by",)

    def __init__(self, connection: Connection, owner: str) -> None:
        super().__init__(owner)
        self.connection = connection

    def run(self, sql: str, bindings: Sequence[Any]) -> Any:
        """Execute a statement; its cursor."""
        return self.connection.execute(*marked(sql, bindings))

    def changed(self, sql: str, bindings: Sequence[Any]) -> int:
        """Execute a statement; how many rows it changed."""
        return int(self.run(sql, bindings).rowcount)

    def _insert(self, sql: str, bindings: Sequence[Any], number: str) -> int:
        return int(self.run(f"{sql} RETURNING {number}", bindings).fetchone()[0])

    def clash(self, memory: Memory) -> int | None:
        """The version with the same number as a new one, else the current one if the new one is to be current too."""
        row = self.one(
            "SELECT version FROM versions WHERE owner = ? AND id = ? AND (version = ? OR known_to IS NULL)"
            " ORDER BY version = ? DESC LIMIT 1",
            memory.id,
            memory.version,
            memory.version,
        )
        return int(row[0]) if row and (row[0] == memory.version or memory.known_to is None) else None

    def mark_unscrubbed(self) -> None:
        """Remember that deleted rows may still be in the tables, and in files of other instances."""
        self.run("INSERT INTO marks VALUES (?, ?, '') ON CONFLICT DO NOTHING", [self.owner, UNSCRUBBED])
        self.begin_epoch()

    def begin_epoch(self) -> None:
        """Make every instance rebuild the index files of the owner: they may contain erased texts."""
        self.run(
            "INSERT INTO marks AS known VALUES (?, ?, '1')"
            " ON CONFLICT (owner, name) DO UPDATE SET value = known.value::bigint + 1",
            [self.owner, ERASURES],
        )

    def delete_memories(self, ids: Sequence[str]) -> None:
        """Delete the versions of some memories, their words, sealed texts and usage, and the documents about them."""
        postings.remove(self.connection, self.owner, ids)
        super().delete_memories(ids)

    def end_copies(self, ids: Sequence[str]) -> None:
        """Delete all that an owner has of memories that are no longer shared with it."""
        self.delete_links(ids)
        self.delete_memories(ids)
        drop_unused(self)
        self.begin_epoch()

    def delete_about(self, ids: Sequence[str]) -> None:
        """Delete every document that is about any of some memories."""
        self.run(
            "DELETE FROM documents WHERE owner = ? AND about <> '[]' AND jsonb_exists_any(about::jsonb, ?)",
            [self.owner, list(ids)],
        )

    def memory_limit(self, usual: int) -> int:
        """The user's quota of current memories, or the usual one."""
        with self.connection.pipeline():
            self.connection.execute(SEE_ACCOUNTS)
            cursor = self.connection.execute("SELECT memories FROM users WHERE name = %s", [self.owner])
            self.connection.execute(HIDE_ACCOUNTS)
        [own] = cursor.fetchone() or [None]
        return usual if own is None else int(own)

    def insert_vectors(self, fingerprint: str, vectors: Mapping[str, bytes], tokens: Mapping[str, bytes]) -> None:
        """Write a model's vectors by content hash, without contents erased meanwhile."""
        hashes = list(vectors)
        columns = [list(vectors.values()), [tokens.get(digest) for digest in hashes]]
        self.run(_INSERT_VECTORS, [self.owner, fingerprint, hashes, *columns])

    def put_name(self, named: Named) -> int:
        """Write a name, or what is new about it; its number."""
        name, concept = self.run(
            "INSERT INTO names (owner, key, block, text, any_case, spread, concept) VALUES (?, ?, ?, ?, ?, ?, 0)"
            " ON CONFLICT (owner, key) DO UPDATE SET any_case = names.any_case OR excluded.any_case,"
            " spread = greatest(names.spread, excluded.spread) RETURNING name, concept",
            [self.owner, named.key, named.block, named.text, named.any_case, named.spread],
        ).fetchone()
        if not concept:
            self.run("UPDATE names SET concept = name WHERE owner = ? AND name = ?", [self.owner, name])
        return int(name)

    def add_mentions(self, row: int, mentions: Sequence[tuple[int, str]]) -> None:
        """Write what a version mentions, as (name, kind), without the names that it mentions already."""
        for name, kind in mentions:
            self.run(
                "INSERT INTO mentions (owner, row, name, kind) SELECT ?1, ?2, ?3, ?4"
                # Checked first: a conflict would use up a number.
                " WHERE NOT EXISTS (SELECT 1 FROM mentions WHERE owner = ?1 AND row = ?2 AND name = ?3)",
                [self.owner, row, name, kind],
            )

    def drop_mentions(self) -> list[int]:
        """Delete the mentions of erased versions, and names without mentions; the names that were mentioned."""
        names = self.all(
            "DELETE FROM mentions WHERE owner = ? AND NOT EXISTS (SELECT 1 FROM versions"
            " WHERE versions.owner = mentions.owner AND versions.row = mentions.row) RETURNING name"
        )
        self.run(
            "DELETE FROM names WHERE owner = ? AND NOT EXISTS (SELECT 1 FROM mentions"
            " WHERE mentions.owner = names.owner AND mentions.name = names.name)",
            [self.owner],
        )
        return [name for (name,) in names]

    def respell(self, names: Sequence[int]) -> None:
        """Replace the spelling of names that no version holds any more by their key."""
        self.run(
            "UPDATE names SET text = key WHERE owner = ? AND name = ANY(?)"
            " AND NOT EXISTS (SELECT 1 FROM mentions JOIN versions USING (owner, row)"
            " WHERE mentions.owner = names.owner AND mentions.name = names.name"
            " AND strpos(content || chr(10) || keywords || chr(10) || tags, names.text) > 0)",
            [self.owner, list(names)],
        )


class PostgresOwner(OwnerDatabase):
    """A database as one owner uses it."""

    dialect = DIALECT

    def __init__(self, transactions: OwnerTransactions) -> None:
        self.owner = transactions.owner
        self.transactions = transactions
        self._link_ends = LinkEnds(transactions.all, transactions.owner)

    def all(self, sql: str, *bindings: Any) -> list[Any]:
        """The rows of a query whose first mark is the owner."""
        return self.transactions.all(*marked(sql, [self.owner, *bindings]))

    def all_now(self, sql: str, *bindings: Any) -> list[Any]:
        """The rows of such a query as of now, inside a snapshot too."""
        return self.transactions.all_now(*marked(sql, [self.owner, *bindings]))

    @contextmanager
    def writing(self, *, wait: bool = True) -> Iterator[PostgresRows]:
        """A durable transaction; without `wait` an owner whose rows are being written refuses at once."""
        with self.transactions.writing(wait=wait) as connection:
            yield PostgresRows(connection, self.owner)

    @contextmanager
    def noting(self, *, keeps: bool = False) -> Iterator[PostgresRows]:  # noqa: ARG002 - nothing is kept here
        """A transaction that waits for neither writers nor the disk: a crash of the server may lose it."""
        with self.transactions.writing(wait=False, durable=False) as connection:
            yield PostgresRows(connection, self.owner)

    def may_have_links(self, ids: Sequence[str], kind: LinkKind | None) -> Sequence[str]:
        """The ids without those that certainly have no links of a kind."""
        start = self.transactions.snapshot_start
        return ids if start is None else self._link_ends.among(ids, kind, start)

    def may_supersede(self) -> bool:
        """Whether a memory may ever have replaced another."""
        start = self.transactions.snapshot_start
        return start is None or self._link_ends.has_chains(start)

    def heads(self, fingerprint: str) -> Sequence[Any]:
        """The columns of heads for a model, as of one moment."""
        row: Sequence[Any]
        [row] = self.transactions.all(f"SELECT {HEADS}", {"owner": self.owner, "model": fingerprint})
        return row

    def documents(self, kind: str) -> Iterable[tuple[str, str]]:
        """The keys and values of a kind, ordered by key, as the snapshot may have read them as it began."""
        start = self.transactions.snapshot_start
        return start.documents[kind].items() if start and kind in start.documents else super().documents(kind)


class PostgresWriter(Writer):
    """A writer of memories that others may read; in `affected` are those that change without a journal entry."""

    def __init__(
        self,
        connection: Connection,
        owner: str,
        at: datetime,
        batch: str,
        actor: str,
        undoes: int | None = None,
        limits: MemoryLimits | None = None,
    ) -> None:
        self.connection = connection
        self.rows = PostgresRows(connection, owner)
        self.affected: set[str] = set()
        super().__init__(self.rows, at, batch, actor, undoes, limits)

    def acting_for(self, owner: str, *, actor: str, undoes: int | None) -> PostgresWriter:
        """The same transaction in the rows of another owner."""
        return PostgresWriter(self.connection, owner, self.at, self.batch, actor, undoes, self._limits)

    @property
    def touched(self) -> set[str]:
        """The memories of which readers may now see something else."""
        linked = {entry.other for entry in self.entries if entry.kind is not None and entry.other is not None}
        return {entry.id for entry in self.entries} | linked | self.affected

    def _make_private(self, id: str) -> Outcome:
        self.affected.add(id)
        return super()._make_private(id)


def marked(sql: str, bindings: Sequence[Any]) -> tuple[str, Bindings]:
    """A statement and its values with the marks of this database."""
    text, is_numbered = _marked(sql)
    values = [array(value) if _is_numbers(value) else value for value in bindings]
    return text, {str(number): value for number, value in enumerate(values, 1)} if is_numbered else values


def _is_numbers(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and type(value[0]) is int


@lru_cache(maxsize=1024)
def _marked(sql: str) -> tuple[str, bool]:
    if _NUMBERED.search(sql):
        return _NUMBERED.sub(r"%(\1)s", sql), True
    return sql.replace("?", "%s"), False


def in_scope(scope: Scope) -> Condition:
    """Versions that a scope contains."""
    condition, bindings = owner.in_scope(scope, DIALECT)
    return _marked(condition)[0], bindings


def may_read(scope: Scope) -> Condition:
    """Versions that the reader of a scope may read at all."""
    allowed = {"sensitivity": scope.sensitivities, "origin": scope.origins}
    limits = {column: sorted(map(str, values)) for column, values in allowed.items() if values is not None}
    return " AND ".join(f"{column} = ANY(%s)" for column in limits) or "true", list(limits.values())
