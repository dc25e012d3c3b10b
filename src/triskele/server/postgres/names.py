"""Names of one owner in a database: the reads that are specific to Postgres."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from triskele.server.postgres.heads import KnownKeys
from triskele.server.postgres.truth_rows import PostgresOwner
from triskele.store.name_rows import EDGE_COLUMNS, NAME_COLUMNS, NameStore
from triskele.store.values import Mentioned, Name

_PAGE = 20_000
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
WHERE about.owner = ?1 AND about.kind IN ('title', 'lead') AND other.concept <> subject.concept
"""
# Each end separately: with OR every edge of the owner would be computed.
_EDGES = f"""
SELECT DISTINCT {EDGE_COLUMNS}, known_to IS NOT NULL AS is_closed FROM (
    {_OF_CONCEPT} AND subject.concept = ?2 UNION ALL {_OF_CONCEPT} AND other.concept = ?2
) AS both_ends
WHERE (?3 OR known_to IS NULL) AND (?4::text[] IS NULL OR evidence IN (
    SELECT id FROM versions WHERE owner = ?1 AND project = ANY(?4)))
ORDER BY is_closed, known_from DESC, evidence, source, target LIMIT ?5
"""


class PostgresNames(NameStore):
    """Names in a database."""

    _FIND = f"SELECT {NAME_COLUMNS} FROM names WHERE owner = ?1 AND key = ANY(?2) ORDER BY name"
    _SIZE = " + ".join(
        f"(SELECT coalesce(sum(pg_column_size({table}.*)), 0) FROM {table} WHERE owner = ?1)"
        for table in ("names", "mentions", "merges")
    )

    def __init__(self, database: PostgresOwner) -> None:
        super().__init__(database)
        self._transactions = database.transactions
        self._keys = KnownKeys(self._transactions.all, database.owner)

    def find(self, keys: Iterable[str]) -> dict[str, Name]:
        """The names that are known under some keys."""
        start = self._transactions.snapshot_start
        wanted = list(keys) if start is None else self._keys.among(keys, start)
        return super().find(wanted) if wanted else {}

    def mentions(self, *, after: int = 0) -> list[Mentioned]:
        """A page of mentions past a number, in their order."""
        sql = "SELECT mention, row, name, kind FROM mentions WHERE owner = ? AND mention > ? ORDER BY 1 LIMIT ?"
        return [Mentioned(*row) for row in self._database.all(sql, after, _PAGE)]

    def _edges(self, concept: int, projects: Any, *, closed: bool, limit: int) -> list[Any]:
        return [row[:-1] for row in self._database.all(_EDGES, concept, closed, projects, limit)]
