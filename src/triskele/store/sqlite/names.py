"""What the memories of one owner mention, under which concept, and since when; edges follow their evidence."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import apsw

from triskele.errors import NotFound
from triskele.replies import NameCounts
from triskele.store.derived import BY_HAND, NAMES, Edge, Mentioned, Merge, Name, Named
from triskele.store.rows import VERSION_COLUMNS, to_memory
from triskele.store.sqlite import vectors
from triskele.store.sqlite.database import Database, listed
from triskele.text import timestamps
from triskele.types import Memory

# Of versions, each with about a dozen mentions.
_PAGE = 2000
_TABLES = ("readings", "names", "merges")
_NAME = "name, key, text, any_case, concept"
_EDGE = "source, kind, target, weight, evidence, valid_from, valid_to, known_from, known_to"
_LISTED, _SECOND, _PROJECTS = listed(), listed("?2"), listed("?4")


class SqliteNames:
    """The names and mentions of one owner."""

    def __init__(self, database: Database, owner: str) -> None:
        self._database = database
        self._owner = owner

    def unread(self, limit: int = 256) -> list[tuple[int, Memory]]:
        """Versions whose names are not read yet, in order of rows."""
        with self._database.reading() as connection:
            waiting = vectors.waiting_keys(connection, self._owner, NAMES, limit)
            rows = connection.execute(
                f"SELECT row, {VERSION_COLUMNS} FROM versions WHERE row {_LISTED} AND +owner = ? ORDER BY row",
                [_json(map(int, waiting)), self._owner],
            ).fetchall()
        return [(int(row[0]), to_memory(row[1:])) for row in rows]  # type: ignore[arg-type]

    def save(self, found: Mapping[int, Sequence[Named]], *, read: Iterable[int] = (), wait: bool = True) -> None:
        """Write what some versions mention; the rows in `read` no longer wait."""
        with self._database.writing(wait=wait) as connection:
            for row, named in found.items():
                # A version may have been erased while it was being read.
                if connection.execute(
                    "SELECT 1 FROM versions WHERE row = ? AND owner = ?", [row, self._owner]
                ).fetchone():
                    said = [(_write(connection, self._owner, one), one.kind) for one in named]
                    add_reading(connection, self._owner, row, said)
            vectors.complete_jobs(connection, self._owner, NAMES, map(str, read))

    def mentions(self, *, after: int = 0) -> list[Mentioned]:
        """A page of mentions past a number, in their order."""
        sql = "SELECT mention, row, names FROM readings WHERE owner = ? AND mention > ? ORDER BY mention LIMIT ?"
        found = (mention for reading in self._all(sql, after, _PAGE) for mention in _to_mentions(*reading))
        return [mention for mention in found if mention.mention > after]

    def known(self, *, after: int = 0) -> Iterator[Name]:
        """Every name past a number, in their order."""
        for row in self._all(f"SELECT {_NAME} FROM names WHERE +owner = ? AND name > ? ORDER BY name", after):
            yield _to_name(row)

    def find(self, keys: Iterable[str]) -> dict[str, Name]:
        """The names that are known under some keys."""
        # Every recall asks for a hundred keys: looked up one by one, they need no table of their own and no order.
        listed = "(SELECT value FROM json_each(?2))"
        sql = f"SELECT {_NAME} FROM {listed} CROSS JOIN names ON owner = ?1 AND key = value"
        return {row[1]: _to_name(row) for row in self._all(sql, _json(keys))}

    def akin(self, blocks: Iterable[str]) -> list[Name]:
        """The names in some blocks."""
        begins = "substr(block, 1, 8) IN (SELECT substr(value, 1, 8) FROM json_each(?2))"
        return self._names(f"{begins} AND block {_SECOND}", blocks)

    def numbered(self, names: Iterable[int]) -> dict[int, Name]:
        """Names by their numbers."""
        return {name.name: name for name in self._names(f"name {_SECOND}", names)}

    def common(self, least: int, among: Iterable[int] | None = None) -> list[tuple[int, int]]:
        """The names, of some or of all, whose words occur in more than a number of texts, as (name, spread)."""
        condition, bindings = ("", []) if among is None else (f" AND name {_LISTED}", [_json(among)])
        # In the text of the statement: the index has the names that are in more than so many.
        return self._all(
            f"SELECT name, spread FROM names WHERE +owner = ? AND spread > {least:d}{condition}", *bindings
        )

    def grouped(self) -> list[tuple[int, int]]:
        """The names that belong to the concept of another name, as (name, concept)."""
        return self._all("SELECT name, concept FROM names WHERE +owner = ? AND concept <> name ORDER BY name")

    def members(self, concepts: Iterable[int]) -> list[Name]:
        """The names of some concepts, in their order."""
        # Only names of another's concept are in the index.
        others = f"SELECT name FROM names WHERE concept <> name AND concept {_SECOND}"
        return self._names(f"name IN (SELECT value FROM json_each(?2) UNION {others}) AND concept {_SECOND}", concepts)

    def set_concepts(self, concepts: Mapping[int, int], reason: str) -> None:
        """Move names to other concepts, all at once; the merges record their earlier concepts."""
        at = timestamps.now()
        with self._database.writing() as connection:
            for number in {*concepts, *concepts.values()}:
                sql = "SELECT 1 FROM names WHERE name = ? AND owner = ?"
                if not connection.execute(sql, [number, self._owner]).fetchone():
                    raise NotFound(f"no name has the number {number}")
            for name, concept in concepts.items():
                _regroup(connection, name, concept, reason, at)

    def merges(self, names: Iterable[int]) -> list[Merge]:
        """The moves of some names between concepts, oldest first."""
        columns = "merge, name, before, after, reason, at"
        sql = f"SELECT {columns} FROM merges WHERE owner = ? AND name {_LISTED} ORDER BY merge"
        return [_to_merge(row) for row in self._all(sql, _json(names))]

    def edges(
        self, concept: int, *, projects: Iterable[str] | None = None, closed: bool = True, limit: int = 100
    ) -> list[Edge]:
        """The edges that touch a concept, open ones first, newest evidence first; of some projects or of all."""
        # Numbers in lists of JSON: looking through the texts takes a fraction of reading them.
        patterns = [f"*[[,]{name.name}[],]*" for name in self.members([concept])]
        holders = "SELECT readings.row FROM json_each(?6) CROSS JOIN readings ON readings.names GLOB json_each.value"
        sql = (
            f"SELECT DISTINCT {_EDGE} FROM edges WHERE row IN ({holders} WHERE readings.owner = ?1)"
            " AND (source = ?2 OR target = ?2) AND (?3 OR known_to IS NULL)"
            f" AND (?4 IS NULL OR evidence IN (SELECT id FROM versions WHERE owner = ?1 AND project {_PROJECTS}))"
            " ORDER BY known_to IS NOT NULL, known_from DESC, evidence, source, target LIMIT ?5"
        )
        wanted = None if projects is None else _json(projects)
        return [_to_edge(row) for row in self._all(sql, concept, closed, wanted, limit, _json(patterns))]

    def counts(self) -> NameCounts:
        """How much there is."""
        with self._database.reading() as connection:

            def count(sql: str, *bindings: Any) -> int:
                return int(connection.execute(sql, bindings).get)

            tables = f"SELECT name FROM sqlite_schema WHERE tbl_name {_LISTED}"
            size = count(
                f"SELECT coalesce(sum(pgsize), 0) FROM dbstat WHERE aggregate = 1 AND name IN ({tables})",
                _json(_TABLES),
            )
            mentions = count("SELECT count(*) FROM mentions WHERE owner = ?", self._owner)
            waiting = vectors.count_jobs(self._database, self._owner, NAMES)
            return NameCounts(
                names=count("SELECT count(*) FROM names WHERE owner = ?", self._owner),
                concepts=count("SELECT count(DISTINCT concept) FROM names WHERE owner = ?", self._owner),
                mentions=mentions,
                merges=count("SELECT count(*) FROM merges WHERE owner = ?", self._owner),
                by_hand=count("SELECT count(*) FROM merges WHERE owner = ? AND reason = ?", self._owner, BY_HAND),
                read=count("SELECT count(*) FROM versions WHERE owner = ?", self._owner) - waiting,
                waiting=waiting,
                bytes=round(size * mentions / max(1, count("SELECT count(*) FROM mentions"))),
            )

    def forget(self) -> None:
        """Queue everything to be read again; only merges and splits by hand are kept."""
        with self._database.writing() as connection:
            kept = _decided(connection, self._owner)
            connection.execute("DELETE FROM readings WHERE owner = ?", [self._owner])
            for table in ("names", "merges"):
                sql = f"DELETE FROM {table} WHERE owner = ? AND name NOT {_LISTED}"
                connection.execute(sql, [self._owner, _json(kept)])
            vectors.queue_all_names(connection, self._owner)

    def _names(self, condition: str, values: Iterable[object]) -> list[Name]:
        sql = f"SELECT {_NAME} FROM names WHERE +owner = ?1 AND {condition} ORDER BY name"
        return [_to_name(row) for row in self._all(sql, _json(values))]

    def _all(self, sql: str, *bindings: str | int | None) -> list[Any]:
        return self._database.all(sql, [self._owner, *bindings])


def _decided(connection: apsw.Connection, owner: str) -> set[int]:
    """The names that a person merged or split, those they were merged with or split from, and their concepts."""
    rows: list[Any] = connection.execute(
        "SELECT name, before, after FROM merges WHERE owner = ? AND reason = ?", [owner, BY_HAND]
    ).fetchall()
    touched = {number for row in rows for number in row}
    sql = f"SELECT concept FROM names WHERE name {_LISTED}"
    concepts: list[Any] = connection.execute(sql, [_json(touched)]).fetchall()
    return touched | {concept for (concept,) in concepts}


def drop_unused_names(connection: apsw.Connection, owner: str) -> None:
    """Delete names that only erased versions mentioned; a group that loses its first name takes the next."""
    gone = "SELECT row FROM readings WHERE owner = ?1 EXCEPT SELECT row FROM versions"
    said: list[Any] = connection.execute(
        f"SELECT DISTINCT name FROM mentions WHERE row IN ({gone})", [owner]
    ).fetchall()
    connection.execute(f"DELETE FROM readings WHERE row IN ({gone})", [owner])
    connection.execute(
        "DELETE FROM names WHERE owner = ?1 AND name NOT IN (SELECT name FROM mentions WHERE owner = ?1)", [owner]
    )
    # In one go: the first name that moves must not take itself out of the sight of the next.
    connection.execute(
        "UPDATE names SET concept = heads.head FROM (SELECT concept, min(name) AS head FROM names"
        " WHERE concept <> name AND concept NOT IN (SELECT name FROM names) GROUP BY concept) AS heads"
        " WHERE names.concept = heads.concept AND names.owner = ?",
        [owner],
    )
    connection.execute("DELETE FROM merges WHERE owner = ?1 AND name NOT IN (SELECT name FROM names)", [owner])
    # A spelling that only an erased text had is not kept either.
    connection.execute(
        # Mentions are looked through once for all of these names.
        f"WITH holders AS MATERIALIZED (SELECT row, name FROM mentions WHERE owner = ?1 AND name {_SECOND})"
        f" UPDATE names SET text = key WHERE name {_SECOND} AND NOT EXISTS (SELECT 1 FROM holders"
        " JOIN versions USING (row) WHERE holders.name = names.name AND"
        " instr(content || char(10) || keywords || char(10) || tags, text))",
        [owner, _json(name for (name,) in said)],
    )


def add_reading(connection: apsw.Connection, owner: str, row: int, mentions: Iterable[tuple[int, str]]) -> None:
    """Write what a version mentions, as (name, kind), without names that it is known to mention."""
    known: list[Any] = connection.execute("SELECT names FROM readings WHERE row = ?", [row]).fetchall()
    said = {name for (names,) in known for listed in json.loads(names).values() for name in listed}
    fresh: dict[str, list[int]] = {}
    for name, kind in mentions:
        if name not in said:
            said.add(name)
            fresh.setdefault(kind, []).append(name)
    if fresh:
        connection.execute(
            "INSERT INTO readings SELECT coalesce(max(seq), 0) + ?, ?, ?, ? FROM sqlite_sequence"
            " WHERE name = 'readings'",
            [sum(map(len, fresh.values())), owner, row, json.dumps(fresh, separators=(",", ":"))],
        )


def _write(connection: apsw.Connection, owner: str, one: Named) -> int:
    """Write a name, or what is new about it; its number."""
    key = [owner, one.key]
    found = connection.execute("SELECT name, any_case, spread FROM names WHERE owner = ? AND key = ?", key).fetchone()
    if found is None:
        connection.execute(
            "INSERT INTO names (owner, key, block, text, any_case, spread, concept) VALUES (?, ?, ?, ?, ?, ?, 0)",
            [*key, one.block, one.text, one.any_case, one.spread],
        )
        name = connection.last_insert_rowid()
        connection.execute("UPDATE names SET concept = name WHERE name = ?", [name])
    else:
        name, any_case, spread = found
        if (one.any_case and not any_case) or one.spread > spread:
            connection.execute(
                "UPDATE names SET any_case = max(any_case, ?), spread = max(spread, ?) WHERE name = ?",
                [one.any_case, one.spread, name],
            )
    _join(connection, name, owner, one)
    return name


def _join(connection: apsw.Connection, name: int, owner: str, one: Named) -> None:
    """Move a name without a group to another's concept, unless a person has decided about it."""
    decided = "SELECT 1 FROM merges WHERE name = ? AND reason = ?"
    if one.joins is None or connection.execute(decided, [name, BY_HAND]).fetchone():
        return
    # Counted over the group: a name that already shares a concept with another stays unchanged.
    others = "SELECT 1 FROM names AS other WHERE other.concept = names.name AND other.concept <> other.name"
    grouped = f"SELECT concept <> name OR EXISTS ({others}) FROM names WHERE name = ?"
    if connection.execute(grouped, [name]).get:
        return
    other = connection.execute(
        "SELECT concept FROM names WHERE owner = ? AND key = ?", [owner, one.joins[0]]
    ).fetchone()
    if other is not None and other[0] != name:
        _regroup(connection, name, int(other[0]), one.joins[1], timestamps.now())


def _regroup(connection: apsw.Connection, name: int, concept: int, reason: str, at: datetime) -> None:
    connection.execute(
        "INSERT INTO merges (owner, name, before, after, reason, at)"
        " SELECT owner, name, concept, ?, ?, ? FROM names WHERE name = ?",
        [concept, reason, timestamps.to_micros(at), name],
    )
    connection.execute("UPDATE names SET concept = ? WHERE name = ?", [concept, name])


def _json(values: Iterable[object]) -> str:
    return json.dumps(list(values))


def _to_name(row: Sequence[Any]) -> Name:
    name, key, text, any_case, concept = row
    return Name(name, key, text, bool(any_case), concept)


def _to_mentions(last: int, row: int, names: str) -> Iterator[Mentioned]:
    said = [(name, kind) for kind, listed in json.loads(names).items() for name in listed]
    return (Mentioned(number, row, *each) for number, each in enumerate(said, last - len(said) + 1))


def _to_merge(row: Sequence[Any]) -> Merge:
    merge, name, before, after, reason, at = row
    return Merge(merge, name, before, after, reason, timestamps.from_micros(at))


def _to_edge(row: Sequence[Any]) -> Edge:
    source, kind, target, weight, evidence, *times = row
    begins, ends, known, closed = (None if micros is None else timestamps.from_micros(micros) for micros in times)
    assert known is not None
    return Edge(source, kind, target, weight, evidence, begins, ends, known, closed)
