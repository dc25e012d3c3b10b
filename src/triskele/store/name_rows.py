"""Names, mentions, concepts and edges of one owner as rows; edges follow their evidence."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from triskele.errors import NotFound
from triskele.replies import NameCounts
from triskele.store.rows import VERSION_COLUMNS, to_memory
from triskele.store.statements import OwnerDatabase, Rows
from triskele.store.values import BY_HAND, MOST_TRIES, NAMES, Edge, Mentioned, Merge, Name, Named
from triskele.text import timestamps
from triskele.types import Memory

NAME_COLUMNS = "name, key, text, any_case, concept"
EDGE_COLUMNS = "source, kind, target, weight, evidence, valid_from, valid_to, known_from, known_to"
_COUNTS = f"""
SELECT (SELECT count(*) FROM names WHERE owner = ?1), (SELECT count(DISTINCT concept) FROM names WHERE owner = ?1),
       (SELECT count(*) FROM mentions WHERE owner = ?1), (SELECT count(*) FROM merges WHERE owner = ?1),
       (SELECT count(*) FROM merges WHERE owner = ?1 AND reason = '{BY_HAND}'),
       (SELECT count(*) FROM versions WHERE owner = ?1),
       (SELECT count(*) FROM jobs WHERE owner = ?1 AND kind = '{NAMES}' AND tries < {MOST_TRIES})
"""


class NameStore(ABC):
    """What memories mention: names, their concepts, and the edges that follow from them."""

    # The names under some keys, the table of the mentions, the condition on blocks and the bytes of an owner's share.
    _FIND: ClassVar[str]
    _MENTIONS: ClassVar[str] = "mentions"
    _IN_BLOCKS: ClassVar[str] = "block {listed}"
    _SIZE: ClassVar[str]

    def __init__(self, database: OwnerDatabase) -> None:
        self._database = database

    def unread(self, limit: int = 256) -> list[tuple[int, Memory]]:
        """Versions whose names are not read yet, in order of rows."""
        dialect = self._database.dialect
        rows = list(map(int, self._database.pending_keys(NAMES, limit)))
        owned = f"{dialect.unindexed}owner = ? AND row {dialect.listed}"
        sql = f"SELECT row, {VERSION_COLUMNS} FROM versions WHERE {owned} ORDER BY row"
        return [(int(row[0]), to_memory(row[1:])) for row in self._database.all(sql, rows)]

    def save(self, named: Mapping[int, Sequence[Named]], *, read: Iterable[int] = (), wait: bool = True) -> None:
        """Write what some versions mention; the rows in `read` no longer wait.

        Without `wait` a store that is being written refuses at once.
        """
        with self._database.writing(wait=wait) as rows:
            dialect = rows.dialect
            sql = f"SELECT row FROM versions WHERE {dialect.unindexed}owner = ? AND row {dialect.listed}"
            # A version may have been erased while it was being read.
            stored = {row for (row,) in rows.all(sql, list(named))}
            for row, names in named.items():
                if row in stored:
                    rows.add_mentions(row, [(_put_name(rows, one), one.kind) for one in names])
            rows.complete_jobs(NAMES, map(str, read))

    @abstractmethod
    def mentions(self, *, after: int = 0) -> list[Mentioned]:
        """A page of mentions past a number, in their order."""

    def known(self) -> Iterator[Name]:
        """Every name, in their order."""
        owned = f"{self._database.dialect.unindexed}owner = ?"
        return map(to_name, self._database.all(f"SELECT {NAME_COLUMNS} FROM names WHERE {owned} ORDER BY name"))

    def find(self, keys: Iterable[str]) -> dict[str, Name]:
        """The names that are known under some keys."""
        rows = self._database.all(self._FIND, list(keys))
        return {row[1]: to_name(row) for row in rows}

    def akin(self, blocks: Iterable[str]) -> list[Name]:
        """The names in some blocks."""
        return self._named(self._IN_BLOCKS, blocks)

    def numbered(self, names: Iterable[int]) -> dict[int, Name]:
        """Names by their numbers."""
        return {name.name: name for name in self._named("name {listed}", names)}

    def common(self, least: int, among: Iterable[int] | None = None) -> list[tuple[int, int]]:
        """The names, of some or of all, whose words occur in more than a number of texts, as (name, spread)."""
        dialect = self._database.dialect
        condition, bindings = ("", []) if among is None else (f" AND name {dialect.listed}", [list(among)])
        owned = f"{dialect.unindexed}owner = ?"
        # In the text of the statement: an index may have the names that are in more than so many.
        sql = f"SELECT name, spread FROM names WHERE {owned} AND spread > {least:d}{condition}"
        return self._database.all(f"{sql} ORDER BY {dialect.unindexed}name", *bindings)

    def grouped(self) -> list[tuple[int, int]]:
        """The names that belong to the concept of another name, as (name, concept)."""
        owned = f"{self._database.dialect.unindexed}owner = ?"
        return self._database.all(f"SELECT name, concept FROM names WHERE {owned} AND concept <> name ORDER BY name")

    def members(self, concepts: Iterable[int]) -> list[Name]:
        """The names of some concepts, in their order."""
        return self._named("concept {listed}", concepts)

    def set_concepts(self, concepts: Mapping[int, int], reason: str) -> None:
        """Move names to other concepts, all at once; the merges record their earlier concepts."""
        numbers = sorted({*concepts, *concepts.values()})
        with self._database.writing() as rows:
            sql = f"SELECT name FROM names WHERE owner = ? AND name {rows.dialect.listed}"
            existing = {name for (name,) in rows.all(sql, numbers)}
            for number in numbers:
                if number not in existing:
                    raise NotFound(f"no name has the number {number}")
            at = timestamps.to_micros(timestamps.now())
            for name, concept in concepts.items():
                _move(rows, name, concept, reason, at)

    def merges(self, names: Iterable[int]) -> list[Merge]:
        """The moves of some names between concepts, oldest first."""
        dialect = self._database.dialect
        columns = "merge, name, before, after, reason, at"
        sql = f"SELECT {columns} FROM merges WHERE owner = ? AND name {dialect.listed} ORDER BY merge"
        rows = self._database.all(sql, list(names))
        return [Merge(*row)._replace(at=timestamps.from_micros(row[-1])) for row in rows]

    def edges(
        self, concept: int, *, projects: Iterable[str] | None = None, closed: bool = True, limit: int = 100
    ) -> list[Edge]:
        """The edges that touch a concept, open ones first, newest evidence first; of some projects or of all."""
        wanted = None if projects is None else list(projects)
        return [_to_edge(row) for row in self._edges(concept, wanted, closed=closed, limit=limit)]

    @abstractmethod
    def _edges(self, concept: int, projects: Any, *, closed: bool, limit: int) -> list[Any]:
        """The columns of `Edge`, with times as numbers."""

    def counts(self) -> NameCounts:
        """How much there is."""
        [row] = self._database.all(f"{_COUNTS}, {self._SIZE}")
        names, concepts, mentions, merges, by_hand, versions, waiting, size = map(int, row)
        return NameCounts(
            names=names,
            concepts=concepts,
            mentions=mentions,
            merges=merges,
            by_hand=by_hand,
            read=versions - waiting,
            waiting=waiting,
            bytes=size,
        )

    def forget(self) -> None:
        """Queue everything to be read again; only merges and splits by hand are kept."""
        with self._database.writing() as rows:
            dialect = rows.dialect
            decided = list(_decided(rows))
            rows.run(f"DELETE FROM {self._MENTIONS} WHERE owner = ?", [rows.owner])
            for table in ("names", "merges"):
                sql = f"DELETE FROM {table} WHERE owner = ? AND NOT name {dialect.listed}"
                rows.run(sql, [rows.owner, decided])
            rows.run(
                f"INSERT INTO jobs (owner, kind, key) SELECT owner, '{NAMES}', CAST(row AS text) FROM versions"
                f" WHERE {dialect.unindexed}owner = ? ORDER BY row ON CONFLICT DO NOTHING",
                [rows.owner],
            )

    def _named(self, condition: str, values: Iterable[Any]) -> list[Name]:
        """The names under a condition on a list."""
        dialect = self._database.dialect
        if not (wanted := list(values)):
            return []
        matching = condition.format(listed=dialect.listed_as.format("?2"))
        sql = f"SELECT {NAME_COLUMNS} FROM names WHERE {dialect.unindexed}owner = ?1 AND {matching} ORDER BY name"
        return [to_name(row) for row in self._database.all(sql, wanted)]


def _put_name(rows: Rows, named: Named) -> int:
    """Write a name, and move one without a group to the concept it joins; its number.

    A name that a person has decided about, or that shares a concept already, stays.
    """
    name = rows.put_name(named)
    decided = f"SELECT 1 FROM merges WHERE owner = ? AND name = ? AND reason = '{BY_HAND}'"
    if named.joins is None or rows.one(decided, name):
        return name
    key, reason = named.joins
    owned = f"{rows.dialect.unindexed}other.owner = names.owner"
    members = (
        f"SELECT 1 FROM names AS other WHERE {owned} AND other.concept = names.name AND other.concept <> other.name"
    )
    grouped = f"SELECT 1 FROM names WHERE owner = ? AND name = ? AND (concept <> name OR EXISTS ({members}))"
    if rows.one(grouped, name):
        return name
    other = rows.one("SELECT concept FROM names WHERE owner = ? AND key = ?", key)
    if other is not None and other[0] != name:
        _move(rows, name, int(other[0]), reason, timestamps.to_micros(timestamps.now()))
    return name


def _move(rows: Rows, name: int, concept: int, reason: str, at: int) -> None:
    """Move a name to another concept, and record it."""
    rows.run(
        "INSERT INTO merges (owner, name, before, after, reason, at)"
        " SELECT owner, name, concept, ?, ?, ? FROM names WHERE owner = ? AND name = ?",
        [concept, reason, at, rows.owner, name],
    )
    rows.run("UPDATE names SET concept = ? WHERE owner = ? AND name = ?", [concept, rows.owner, name])


def _decided(rows: Rows) -> set[int]:
    """The names that a person merged or split, the other names of these moves, and their concepts."""
    moves = rows.all(f"SELECT name, before, after FROM merges WHERE owner = ? AND reason = '{BY_HAND}'")
    touched = {number for move in moves for number in move}
    sql = f"SELECT concept FROM names WHERE owner = ? AND name {rows.dialect.listed}"
    return touched | {concept for (concept,) in rows.all(sql, list(touched))}


def to_name(row: Sequence[Any]) -> Name:
    """A name from its columns."""
    name, key, text, any_case, concept = row
    return Name(name, key, text, bool(any_case), concept)


def _to_edge(row: Sequence[Any]) -> Edge:
    source, kind, target, weight, evidence, *times = row
    begins, ends, recorded, closed = (None if micros is None else timestamps.from_micros(micros) for micros in times)
    assert recorded is not None
    return Edge(source, kind, target, weight, evidence, begins, ends, recorded, closed)
