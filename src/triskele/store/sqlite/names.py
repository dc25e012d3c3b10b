"""Names of one owner in a file: the reads that are specific to SQLite."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from triskele.store.derived import Mentioned, Name
from triskele.store.name_rows import EDGE_COLUMNS, NAME_COLUMNS, NameStore
from triskele.store.sqlite.database import DIALECT

# Of versions, each with about a dozen mentions.
_PAGE = 2000
_TABLES = "'readings', 'names', 'merges'"


class SqliteNames(NameStore):
    """Names in a file, where the mentions of a version are one row."""

    # Every recall asks for a hundred keys: looked up one by one, they need no table of their own and no order.
    _FIND = (
        f"SELECT {NAME_COLUMNS} FROM (SELECT value FROM json_each(?2)) CROSS JOIN names ON owner = ?1 AND key = value"
    )
    _MENTIONS = "readings"
    _IN_BLOCKS = "substr(block, 1, 8) IN (SELECT substr(value, 1, 8) FROM json_each(?2)) AND block {listed}"
    # By the owner's part of all mentions.
    _SIZE = (
        "(SELECT round(1.0 * (SELECT coalesce(sum(pgsize), 0) FROM dbstat WHERE aggregate = 1 AND name IN"
        f" (SELECT name FROM sqlite_schema WHERE tbl_name IN ({_TABLES}))) * count(*)"
        " / max(1, (SELECT count(*) FROM mentions))) FROM mentions WHERE owner = ?1)"
    )

    def mentions(self, *, after: int = 0) -> list[Mentioned]:
        """A page of mentions past a number, in their order."""
        sql = "SELECT mention, row, names FROM readings WHERE owner = ? AND mention > ? ORDER BY mention LIMIT ?"
        readings = self._database.all(sql, after, _PAGE)
        mentions = (mention for reading in readings for mention in _to_mentions(*reading))
        return [mention for mention in mentions if mention.mention > after]

    def members(self, concepts: Iterable[int]) -> list[Name]:
        """The names of some concepts, in their order."""
        # Only names of another's concept are in the index.
        joined = f"SELECT name FROM names WHERE concept <> name AND concept {DIALECT.listed_as.format('?2')}"
        return self._named(f"name IN (SELECT value FROM json_each(?2) UNION {joined}) AND concept {{listed}}", concepts)

    def _edges(self, concept: int, projects: Any, *, closed: bool, limit: int) -> list[Any]:
        # Numbers in lists of JSON: looking through the texts takes a fraction of reading them.
        patterns = [f"*[[,]{name.name}[],]*" for name in self.members([concept])]
        holders = "SELECT readings.row FROM json_each(?6) CROSS JOIN readings ON readings.names GLOB json_each.value"
        wanted = f"SELECT id FROM versions WHERE owner = ?1 AND project {DIALECT.listed_as.format('?4')}"
        sql = (
            f"SELECT DISTINCT {EDGE_COLUMNS} FROM edges WHERE row IN ({holders} WHERE readings.owner = ?1)"
            " AND (source = ?2 OR target = ?2) AND (?3 OR known_to IS NULL)"
            f" AND (?4 IS NULL OR evidence IN ({wanted}))"
            " ORDER BY known_to IS NOT NULL, known_from DESC, evidence, source, target LIMIT ?5"
        )
        return self._database.all(sql, concept, closed, projects, limit, patterns)


def _to_mentions(last: int, row: int, names: str) -> Iterator[Mentioned]:
    mentions = [(name, kind) for kind, numbers in json.loads(names).items() for name in numbers]
    return (Mentioned(number, row, *each) for number, each in enumerate(mentions, last - len(mentions) + 1))
