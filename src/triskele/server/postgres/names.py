"""What the memories of one owner mention, under which concept, and since when; edges follow their evidence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from triskele.errors import NotFound
from triskele.replies import NameCounts
from triskele.server.postgres.connections import Connection, OwnerTransactions
from triskele.server.postgres.heads import KnownKeys
from triskele.server.postgres.jobs import complete_jobs, count_jobs, queue_all_names, waiting_keys
from triskele.store.derived import BY_HAND, NAMES, Edge, Mentioned, Merge, Name, Named
from triskele.store.rows import VERSION_COLUMNS, to_memory
from triskele.text import timestamps
from triskele.types import Memory

_PAGE = 20_000
_NAME = "name, key, text, any_case, concept"
_EDGE = "source, kind, target, weight, evidence, valid_from, valid_to, known_from, known_to"
_OF_CONCEPT = """
SELECT subject.concept AS source, 'mentions' AS kind, other.concept AS target, 1.0::float8 AS weight,
       versions.id AS evidence, versions.valid_from, versions.valid_to, versions.known_from,
       coalesce(versions.known_to, (
           SELECT min(links.known_from) FROM links
           WHERE links.owner = versions.owner AND links.target = versions.id AND links.kind = 'supersedes'
             AND links.known_to IS NULL
       )) AS known_to, versions.project
FROM mentions AS about
JOIN names AS subject ON subject.owner = about.owner AND subject.name = about.name
JOIN mentions AS said ON said.owner = about.owner AND said.row = about.row AND said.name <> about.name
JOIN names AS other ON other.owner = said.owner AND other.name = said.name
JOIN versions ON versions.owner = about.owner AND versions.row = about.row
WHERE about.owner = %(owner)s AND about.kind IN ('title', 'lead') AND other.concept <> subject.concept
"""
# Each end separately: with OR every edge of the owner would be computed.
_EDGES = f"""
SELECT DISTINCT {_EDGE}, known_to IS NOT NULL AS is_closed FROM (
    {_OF_CONCEPT} AND subject.concept = %(concept)s UNION ALL {_OF_CONCEPT} AND other.concept = %(concept)s
) AS both_ends
WHERE (%(closed)s OR known_to IS NULL) AND (%(projects)s::text[] IS NULL OR evidence IN (
    SELECT id FROM versions WHERE owner = %(owner)s AND project = ANY(%(projects)s)))
ORDER BY is_closed, known_from DESC, evidence, source, target LIMIT %(limit)s
"""
_COUNTS = """
SELECT (SELECT count(*) FROM names WHERE owner = %(owner)s),
       (SELECT count(DISTINCT concept) FROM names WHERE owner = %(owner)s),
       (SELECT count(*) FROM mentions WHERE owner = %(owner)s),
       (SELECT count(*) FROM merges WHERE owner = %(owner)s),
       (SELECT count(*) FROM merges WHERE owner = %(owner)s AND reason = %(hand)s),
       (SELECT count(*) FROM versions WHERE owner = %(owner)s),
       (SELECT coalesce(sum(pg_column_size(names.*)), 0) FROM names WHERE owner = %(owner)s)
       + (SELECT coalesce(sum(pg_column_size(mentions.*)), 0) FROM mentions WHERE owner = %(owner)s)
       + (SELECT coalesce(sum(pg_column_size(merges.*)), 0) FROM merges WHERE owner = %(owner)s)
"""


class PostgresNames:
    """The names and mentions of one owner."""

    def __init__(self, transactions: OwnerTransactions) -> None:
        self._transactions = transactions
        self._owner = transactions.owner
        self._keys = KnownKeys(transactions.all, transactions.owner)

    def unread(self, limit: int = 256) -> list[tuple[int, Memory]]:
        """Versions whose names are not read yet, in order of rows."""
        waiting = [int(key) for key in waiting_keys(self._transactions, NAMES, limit)]
        sql = f"SELECT row, {VERSION_COLUMNS} FROM versions WHERE owner = %s AND row = ANY(%s) ORDER BY row"
        return [(int(row[0]), to_memory(row[1:])) for row in self._all(sql, waiting)]

    def save(self, found: Mapping[int, Sequence[Named]], *, read: Iterable[int] = (), wait: bool = True) -> None:
        """Write what some versions mention; the rows in `read` no longer wait."""
        with self._transactions.writing(wait=wait) as connection:
            sql = "SELECT row FROM versions WHERE owner = %s AND row = ANY(%s)"
            # A version may have been erased while it was being read.
            standing = {row for (row,) in connection.execute(sql, [self._owner, list(found)]).fetchall()}
            for row, named in found.items():
                for one in named if row in standing else ():
                    _write(connection, self._owner, row, one)
            complete_jobs(connection, self._owner, NAMES, map(str, read))

    def mentions(self, *, after: int = 0) -> list[Mentioned]:
        """A page of mentions past a number, in their order."""
        sql = "SELECT mention, row, name, kind FROM mentions WHERE owner = %s AND mention > %s ORDER BY 1 LIMIT %s"
        return [Mentioned(*row) for row in self._all(sql, after, _PAGE)]

    def known(self, *, after: int = 0) -> Iterator[Name]:
        """Every name past a number, in their order."""
        for row in self._all(f"SELECT {_NAME} FROM names WHERE owner = %s AND name > %s ORDER BY name", after):
            yield Name(*row)

    def find(self, keys: Iterable[str]) -> dict[str, Name]:
        """The names that are known under some keys."""
        start = self._transactions.snapshot_start
        if start is not None:
            keys = self._keys.among(keys, start)
        return {name.key: name for name in self._names("key", keys)}

    def akin(self, blocks: Iterable[str]) -> list[Name]:
        """The names in some blocks."""
        return self._names("block", blocks)

    def numbered(self, names: Iterable[int]) -> dict[int, Name]:
        """Names by their numbers."""
        return {name.name: name for name in self._names("name", names)}

    def common(self, least: int, among: Iterable[int] | None = None) -> list[tuple[int, int]]:
        """The names, of some or of all, whose words occur in more than a number of texts, as (name, spread)."""
        condition, bindings = ("", []) if among is None else (" AND name = ANY(%s::bigint[])", [list(among)])
        sql = f"SELECT name, spread FROM names WHERE owner = %s AND spread > %s{condition} ORDER BY name"
        return self._all(sql, least, *bindings)

    def grouped(self) -> list[tuple[int, int]]:
        """The names that belong to the concept of another name, as (name, concept)."""
        return self._all("SELECT name, concept FROM names WHERE owner = %s AND concept <> name ORDER BY name")

    def members(self, concepts: Iterable[int]) -> list[Name]:
        """The names of some concepts, in their order."""
        return self._names("concept", concepts)

    def set_concepts(self, concepts: Mapping[int, int], reason: str) -> None:
        """Move names to other concepts, all at once; the merges record their earlier concepts."""
        at = timestamps.now()
        numbers = sorted({*concepts, *concepts.values()})
        with self._transactions.writing() as connection:
            sql = "SELECT name FROM names WHERE owner = %s AND name = ANY(%s)"
            known = {name for (name,) in connection.execute(sql, [self._owner, numbers]).fetchall()}
            for number in numbers:
                if number not in known:
                    raise NotFound(f"no name has the number {number}")
            for name, concept in concepts.items():
                _regroup(connection, self._owner, name, concept, reason, at)

    def merges(self, names: Iterable[int]) -> list[Merge]:
        """The moves of some names between concepts, oldest first."""
        columns = "merge, name, before, after, reason, at"
        sql = f"SELECT {columns} FROM merges WHERE owner = %s AND name = ANY(%s) ORDER BY merge"
        return [Merge(*row)._replace(at=timestamps.from_micros(row[-1])) for row in self._all(sql, list(names))]

    def edges(
        self, concept: int, *, projects: Iterable[str] | None = None, closed: bool = True, limit: int = 100
    ) -> list[Edge]:
        """The edges that touch a concept, open ones first, newest evidence first; of some projects or of all."""
        wanted = None if projects is None else list(projects)
        bindings = {"concept": concept, "closed": closed, "projects": wanted, "limit": limit}
        return [_to_edge(row) for row in self._transactions.all(_EDGES, {"owner": self._owner, **bindings})]

    def counts(self) -> NameCounts:
        """How much there is."""
        with self._transactions.reading():
            [row] = self._transactions.all(_COUNTS, {"owner": self._owner, "hand": BY_HAND})
            waiting = count_jobs(self._transactions, NAMES)
        names, concepts, mentions, merges, by_hand, versions, size = map(int, row)
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
        with self._transactions.writing() as connection:
            kept = list(_decided(connection, self._owner))
            connection.execute("DELETE FROM mentions WHERE owner = %s", [self._owner])
            for table in ("names", "merges"):
                sql = f"DELETE FROM {table} WHERE owner = %s AND name <> ALL(%s::bigint[])"
                connection.execute(sql, [self._owner, kept])
            queue_all_names(connection, self._owner)

    def _names(self, column: str, values: Iterable[Any]) -> list[Name]:
        kind = "text" if column in ("key", "block") else "bigint"
        if not (listed := list(values)):
            return []
        sql = f"SELECT {_NAME} FROM names WHERE owner = %s AND {column} = ANY(%s::{kind}[]) ORDER BY name"
        return [Name(*row) for row in self._all(sql, listed)]

    def _all(self, sql: str, *bindings: Any) -> list[Any]:
        return self._transactions.all(sql, [self._owner, *bindings])


def _decided(connection: Connection, owner: str) -> set[int]:
    """The names that a person merged or split, those they were merged with or split from, and their concepts."""
    rows = connection.execute(
        "SELECT name, before, after FROM merges WHERE owner = %s AND reason = %s", [owner, BY_HAND]
    ).fetchall()
    touched = {number for row in rows for number in row}
    sql = "SELECT concept FROM names WHERE owner = %s AND name = ANY(%s::bigint[])"
    return touched | {concept for (concept,) in connection.execute(sql, [owner, list(touched)]).fetchall()}


def drop_unused_names(connection: Connection, owner: str) -> None:
    """Delete names that only erased versions mentioned; a group that loses its first name takes the next."""
    own = {"owner": owner}
    said = connection.execute(
        "DELETE FROM mentions WHERE owner = %(owner)s AND NOT EXISTS (SELECT 1 FROM versions"
        " WHERE versions.owner = mentions.owner AND versions.row = mentions.row) RETURNING name",
        own,
    ).fetchall()
    connection.execute(
        "DELETE FROM names WHERE owner = %(owner)s AND NOT EXISTS (SELECT 1 FROM mentions"
        " WHERE mentions.owner = names.owner AND mentions.name = names.name)",
        own,
    )
    # In one go: the first name that moves must not take itself out of the sight of the next.
    connection.execute(
        "UPDATE names SET concept = heads.head FROM (SELECT concept, min(name) AS head FROM names"
        " WHERE owner = %(owner)s AND concept NOT IN (SELECT name FROM names WHERE owner = %(owner)s)"
        " GROUP BY concept) AS heads WHERE names.concept = heads.concept AND names.owner = %(owner)s",
        own,
    )
    connection.execute(
        "DELETE FROM merges WHERE owner = %(owner)s AND name NOT IN (SELECT name FROM names WHERE owner = %(owner)s)",
        own,
    )
    # A spelling that only an erased text had is not kept either.
    connection.execute(
        "UPDATE names SET text = key WHERE owner = %(owner)s AND name = ANY(%(said)s::bigint[])"
        " AND NOT EXISTS (SELECT 1 FROM mentions JOIN versions USING (owner, row) WHERE mentions.owner = names.owner"
        " AND mentions.name = names.name"
        " AND strpos(content || chr(10) || keywords || chr(10) || tags, names.text) > 0)",
        {**own, "said": [name for (name,) in said]},
    )


def _write(connection: Connection, owner: str, row: int, one: Named) -> None:
    found = connection.execute(
        "INSERT INTO names (owner, key, block, text, any_case, spread, concept) VALUES (%s, %s, %s, %s, %s, %s, 0)"
        " ON CONFLICT (owner, key) DO UPDATE SET any_case = names.any_case OR excluded.any_case,"
        " spread = greatest(names.spread, excluded.spread) RETURNING name, concept",
        [owner, one.key, one.block, one.text, one.any_case, one.spread],
    ).fetchone()
    assert found is not None
    name, concept = found
    if not concept:
        connection.execute("UPDATE names SET concept = name WHERE owner = %s AND name = %s", [owner, name])
    _join(connection, owner, name, one)
    connection.execute(
        "INSERT INTO mentions (owner, row, name, kind) SELECT %(owner)s, %(row)s, %(name)s, %(kind)s"
        # Checked first: a conflict would use up a number.
        " WHERE NOT EXISTS (SELECT 1 FROM mentions WHERE owner = %(owner)s AND row = %(row)s AND name = %(name)s)",
        {"owner": owner, "row": row, "name": name, "kind": one.kind},
    )


def _join(connection: Connection, owner: str, name: int, one: Named) -> None:
    """Move a name without a group to another's concept, unless a person has decided about it."""
    decided = "SELECT 1 FROM merges WHERE owner = %s AND name = %s AND reason = %s"
    if one.joins is None or connection.execute(decided, [owner, name, BY_HAND]).fetchone():
        return
    # Counted over the group: a name that already shares a concept with another stays unchanged.
    group = connection.execute(
        "SELECT count(*) FROM names WHERE owner = %(owner)s AND concept ="
        " (SELECT concept FROM names WHERE owner = %(owner)s AND name = %(name)s)",
        {"owner": owner, "name": name},
    ).fetchone()
    if group is None or group[0] != 1:
        return
    sql = "SELECT concept FROM names WHERE owner = %s AND key = %s"
    other = connection.execute(sql, [owner, one.joins[0]]).fetchone()
    if other is not None and other[0] != name:
        _regroup(connection, owner, name, int(other[0]), one.joins[1], timestamps.now())


def _regroup(connection: Connection, owner: str, name: int, concept: int, reason: str, at: datetime) -> None:
    connection.execute(
        "INSERT INTO merges (owner, name, before, after, reason, at)"
        " SELECT owner, name, concept, %s, %s, %s FROM names WHERE owner = %s AND name = %s",
        [concept, reason, timestamps.to_micros(at), owner, name],
    )
    connection.execute("UPDATE names SET concept = %s WHERE owner = %s AND name = %s", [concept, owner, name])


def _to_edge(row: Sequence[Any]) -> Edge:
    source, kind, target, weight, evidence, *times = row[:9]
    begins, ends, known, closed = (None if micros is None else timestamps.from_micros(micros) for micros in times)
    assert known is not None
    return Edge(source, kind, target, weight, evidence, begins, ends, known, closed)
