"""The book of names: what memories mention, under which concept, and since when; edges follow their evidence."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

import apsw

from triskele.base import timestamps
from triskele.errors import NotFound
from triskele.stores.protocol import BY_HAND, Edge, Mentioned, Merge, Name, NameCounts, Named
from triskele.stores.sqlite.rows import VERSION_COLUMNS, to_memory
from triskele.types import Memory

_PAGE = 20_000
_MARK = "names read"
_TABLES = ("mentions", "names", "merges")
_NAME = "name, owner, key, text, any_case, concept"
_EDGE = "source, kind, target, weight, evidence, valid_from, valid_to, known_from, known_to"
_LISTED = "SELECT value FROM json_each(?)"

Connect = Callable[..., AbstractContextManager[apsw.Connection]]


class SqliteNames:
    """Names and mentions in the tables of a store."""

    def __init__(self, reading: Connect, writing: Connect) -> None:
        self._reading = reading
        self._writing = writing

    def unread(self, limit: int = 256) -> list[tuple[int, Memory]]:
        """Versions whose names nobody has read yet, in order of rows."""
        with self._reading() as connection:
            rows = connection.execute(
                f"SELECT row, {VERSION_COLUMNS} FROM versions WHERE row > ? ORDER BY row LIMIT ?",
                [_mark(connection), limit],
            ).fetchall()
        return [(int(row[0]), to_memory(row[1:])) for row in rows]  # type: ignore[arg-type]

    def count_unread(self) -> int:
        """How many versions wait to be read."""
        with self._reading() as connection:
            return int(connection.execute("SELECT count(*) FROM versions WHERE row > ?", [_mark(connection)]).get)

    def keep(self, found: Mapping[int, Sequence[Named]], *, through: int = 0, wait: bool = True) -> None:
        """Write what some versions mention; versions up to the row `through` count as read."""
        with self._writing(wait=wait) as connection:
            for row, named in found.items():
                # A version may have been erased while it was being read.
                for (owner,) in connection.execute("SELECT owner FROM versions WHERE row = ?", [row]).fetchall():
                    for one in named:
                        _write(connection, str(owner), row, one)
            if through > _mark(connection):
                connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", [_MARK, str(through)])

    def mentions(self, *, after: int = 0) -> list[Mentioned]:
        """A page of mentions past a number, in their order."""
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT mention, row, name, kind FROM mentions WHERE mention > ? ORDER BY mention LIMIT ?",
                [after, _PAGE],
            ).fetchall()
        return [Mentioned(*row) for row in rows]  # type: ignore[arg-type]

    def last_mention(self) -> int:
        """The number of the newest mention; 0 where there is none."""
        with self._reading() as connection:
            return int(connection.execute("SELECT coalesce(max(mention), 0) FROM mentions").get)

    def changes(self) -> int:
        """A number that rises with every regrouping."""
        with self._reading() as connection:
            return int(connection.execute("SELECT coalesce(max(merge), 0) FROM merges").get)

    def known(self, owner: str, *, after: int = 0) -> Iterator[Name]:
        """Every name of an owner past a number, in their order."""
        with self._reading() as connection:
            sql = f"SELECT {_NAME} FROM names WHERE owner = ? AND name > ? ORDER BY name"
            for row in connection.execute(sql, [owner, after]).fetchall():
                yield _to_name(row)

    def find(self, owner: str, keys: Iterable[str]) -> dict[str, Name]:
        """The names of an owner that are known under some keys."""
        with self._reading() as connection:
            sql = f"SELECT {_NAME} FROM names WHERE owner = ? AND key IN ({_LISTED})"
            rows = connection.execute(sql, [owner, _json(keys)]).fetchall()
        return {name.key: name for name in map(_to_name, rows)}

    def akin(self, owner: str, blocks: Iterable[str]) -> list[Name]:
        """The names of an owner in some blocks."""
        with self._reading() as connection:
            sql = f"SELECT {_NAME} FROM names WHERE owner = ? AND block IN ({_LISTED}) ORDER BY name"
            return [_to_name(row) for row in connection.execute(sql, [owner, _json(blocks)]).fetchall()]

    def numbered(self, names: Iterable[int]) -> dict[int, Name]:
        """Names by their numbers."""
        with self._reading() as connection:
            rows = connection.execute(f"SELECT {_NAME} FROM names WHERE name IN ({_LISTED})", [_json(names)]).fetchall()
        return {name.name: name for name in map(_to_name, rows)}

    def common(self, least: int) -> list[tuple[int, int]]:
        """The names whose words stand in more than so many texts, as (name, spread)."""
        with self._reading() as connection:
            return connection.execute(  # type: ignore[return-value]
                "SELECT name, spread FROM names WHERE spread > ?", [least]
            ).fetchall()

    def grouped(self) -> list[tuple[int, int]]:
        """The names that stand for the concept of another one, as (name, concept)."""
        with self._reading() as connection:
            return connection.execute(  # type: ignore[return-value]
                "SELECT name, concept FROM names WHERE concept <> name ORDER BY name"
            ).fetchall()

    def members(self, concepts: Iterable[int]) -> list[Name]:
        """The names that stand for some concepts, in their order."""
        with self._reading() as connection:
            sql = f"SELECT {_NAME} FROM names WHERE concept IN ({_LISTED}) ORDER BY name"
            return [_to_name(row) for row in connection.execute(sql, [_json(concepts)]).fetchall()]

    def regroup(self, concepts: Mapping[int, int], reason: str) -> None:
        """Let names stand for other concepts from now on, all at once; that they did not before stays known."""
        at = timestamps.now()
        with self._writing() as connection:
            for number in {*concepts, *concepts.values()}:
                if not connection.execute("SELECT 1 FROM names WHERE name = ?", [number]).fetchone():
                    raise NotFound(f"no name has the number {number}")
            for name, concept in concepts.items():
                _regroup(connection, name, concept, reason, at)

    def merges(self, names: Iterable[int]) -> list[Merge]:
        """How some names came to stand for what they do, oldest first."""
        with self._reading() as connection:
            sql = f"SELECT merge, name, before, after, reason, at FROM merges WHERE name IN ({_LISTED}) ORDER BY merge"
            rows = connection.execute(sql, [_json(names)]).fetchall()
        return [_to_merge(row) for row in rows]

    def edges(
        self, concept: int, *, projects: Iterable[str] | None = None, closed: bool = True, limit: int = 100
    ) -> list[Edge]:
        """The edges that touch a concept, open ones first, newest evidence first; of some projects or of all."""
        # Each end by itself: with OR every edge of the store would be worked out.
        both = " UNION ALL ".join(f"SELECT {_EDGE} FROM edges WHERE {end} = ?1" for end in ("source", "target"))
        sql = (
            f"SELECT DISTINCT {_EDGE} FROM ({both}) WHERE (?2 OR known_to IS NULL) AND (?3 IS NULL OR evidence IN"
            " (SELECT id FROM versions WHERE project IN (SELECT value FROM json_each(?3))))"
            " ORDER BY known_to IS NOT NULL, known_from DESC, evidence, source, target LIMIT ?4"
        )
        wanted = None if projects is None else _json(projects)
        with self._reading() as connection:
            return [_to_edge(row) for row in connection.execute(sql, [concept, closed, wanted, limit]).fetchall()]

    def counts(self) -> NameCounts:
        """How much there is."""
        with self._reading() as connection:

            def count(sql: str, *bindings: Any) -> int:
                return int(connection.execute(sql, bindings).get)

            tables = f"SELECT name FROM sqlite_schema WHERE tbl_name IN ({_LISTED})"
            return NameCounts(
                names=count("SELECT count(*) FROM names"),
                concepts=count("SELECT count(DISTINCT concept) FROM names"),
                mentions=count("SELECT count(*) FROM mentions"),
                merges=count("SELECT count(*) FROM merges"),
                by_hand=count("SELECT count(*) FROM merges WHERE reason = ?", BY_HAND),
                read=count("SELECT count(*) FROM versions WHERE row <= ?", _mark(connection)),
                waiting=count("SELECT count(*) FROM versions WHERE row > ?", _mark(connection)),
                bytes=count(
                    f"SELECT coalesce(sum(pgsize), 0) FROM dbstat WHERE aggregate = 1 AND name IN ({tables})",
                    _json(_TABLES),
                ),
            )

    def forget(self) -> None:
        """Let everything wait to be read again; only what was joined or parted by hand stays known."""
        with self._writing() as connection:
            kept = _decided(connection)
            connection.execute("DELETE FROM mentions")
            for table in ("names", "merges"):
                connection.execute(f"DELETE FROM {table} WHERE name NOT IN ({_LISTED})", [_json(kept)])
            connection.execute("DELETE FROM meta WHERE name = ?", [_MARK])


def _decided(connection: apsw.Connection) -> set[int]:
    """The names that a person joined or parted, those they were joined with or parted from, and their concepts."""
    rows: list[Any] = connection.execute(
        "SELECT name, before, after FROM merges WHERE reason = ?", [BY_HAND]
    ).fetchall()
    touched = {number for row in rows for number in row}
    sql = f"SELECT concept FROM names WHERE name IN ({_LISTED})"
    concepts: list[Any] = connection.execute(sql, [_json(touched)]).fetchall()
    return touched | {concept for (concept,) in concepts}


def drop_unused_names(connection: apsw.Connection) -> None:
    """Delete what was mentioned by erased versions alone; a group that loses its first name takes the next."""
    gone = "SELECT row FROM mentions EXCEPT SELECT row FROM versions"
    said: list[Any] = connection.execute(f"SELECT DISTINCT name FROM mentions WHERE row IN ({gone})").fetchall()
    connection.execute(f"DELETE FROM mentions WHERE row IN ({gone})")
    connection.execute("DELETE FROM names WHERE name NOT IN (SELECT name FROM mentions)")
    # In one go: the first name that moves must not take itself out of the sight of the next.
    connection.execute(
        "UPDATE names SET concept = heads.head FROM (SELECT concept, min(name) AS head FROM names"
        " WHERE concept NOT IN (SELECT name FROM names) GROUP BY concept) AS heads WHERE names.concept = heads.concept"
    )
    connection.execute("DELETE FROM merges WHERE name NOT IN (SELECT name FROM names)")
    # A spelling that only an erased text had is not kept either.
    connection.execute(
        f"UPDATE names SET text = key WHERE name IN ({_LISTED}) AND NOT EXISTS (SELECT 1 FROM mentions"
        " JOIN versions USING (row) WHERE mentions.name = names.name AND"
        " instr(content || char(10) || keywords || char(10) || tags, text))",
        [_json(name for (name,) in said)],
    )


def _write(connection: apsw.Connection, owner: str, row: int, one: Named) -> None:
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
    connection.execute("INSERT OR IGNORE INTO mentions (row, name, kind) VALUES (?, ?, ?)", [row, name, one.kind])


def _join(connection: apsw.Connection, name: int, owner: str, one: Named) -> None:
    """Let a name that stands alone stand for another's concept, unless somebody has decided about it by hand."""
    decided = "SELECT 1 FROM merges WHERE name = ? AND reason = ?"
    if one.joins is None or connection.execute(decided, [name, BY_HAND]).fetchone():
        return
    # Counted over the group: one that others stand for, or that stands for another, is left as it is.
    grouped = "SELECT count(*) FROM names WHERE concept = (SELECT concept FROM names WHERE name = ?)"
    if connection.execute(grouped, [name]).get != 1:
        return
    other = connection.execute(
        "SELECT concept FROM names WHERE owner = ? AND key = ?", [owner, one.joins[0]]
    ).fetchone()
    if other is not None and other[0] != name:
        _regroup(connection, name, int(other[0]), one.joins[1], timestamps.now())


def _regroup(connection: apsw.Connection, name: int, concept: int, reason: str, at: datetime) -> None:
    connection.execute(
        "INSERT INTO merges (name, before, after, reason, at) SELECT name, concept, ?, ?, ? FROM names WHERE name = ?",
        [concept, reason, timestamps.to_micros(at), name],
    )
    connection.execute("UPDATE names SET concept = ? WHERE name = ?", [concept, name])


def _mark(connection: apsw.Connection) -> int:
    found = connection.execute("SELECT value FROM meta WHERE name = ?", [_MARK]).fetchone()
    return int(found[0]) if found is not None else 0


def _json(values: Iterable[object]) -> str:
    return json.dumps(list(values))


def _to_name(row: Sequence[Any]) -> Name:
    name, owner, key, text, any_case, concept = row
    return Name(name, owner, key, text, bool(any_case), concept)


def _to_merge(row: Sequence[Any]) -> Merge:
    merge, name, before, after, reason, at = row
    return Merge(merge, name, before, after, reason, timestamps.from_micros(at))


def _to_edge(row: Sequence[Any]) -> Edge:
    source, kind, target, weight, evidence, *times = row
    begins, ends, known, closed = (None if micros is None else timestamps.from_micros(micros) for micros in times)
    assert known is not None
    return Edge(source, kind, target, weight, evidence, begins, ends, known, closed)
