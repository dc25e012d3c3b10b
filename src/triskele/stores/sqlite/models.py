"""The book of models: what each of them has read, what it has yet to read, and what nobody else may."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

import apsw

from triskele.stores.sqlite import vectors
from triskele.stores.sqlite.rows import VERSION_COLUMNS, to_memory
from triskele.types import Memory, Sensitivity

_UNSEEN = "content_hash NOT IN (SELECT content_hash FROM vectors WHERE fingerprint = ?)"
# A text may stand in several memories: others may read it only where every one of them is open.
_CLEAR = "known_to IS NULL AND content_hash NOT IN (SELECT content_hash FROM versions WHERE sensitivity != ?)"


class SqliteModels:
    """What models have seen of a store."""

    def __init__(
        self,
        reading: Callable[..., AbstractContextManager[apsw.Connection]],
        writing: Callable[..., AbstractContextManager[apsw.Connection]],
    ) -> None:
        self._reading = reading
        self._writing = writing

    def lacking(self, fingerprint: str, limit: int = 64) -> list[tuple[str, str]]:
        """Contents that a model has not seen, oldest first, as (hash, text)."""
        with self._reading() as connection:
            rows = connection.execute(
                f"SELECT content_hash, content FROM versions WHERE {_UNSEEN} GROUP BY content_hash"
                " ORDER BY min(row) LIMIT ?",
                [fingerprint, limit],
            ).fetchall()
        return [(str(digest), str(content)) for digest, content in rows]

    def count_lacking(self, fingerprint: str) -> int:
        """How many contents a model has not seen."""
        with self._reading() as connection:
            sql = f"SELECT count(DISTINCT content_hash) FROM versions WHERE {_UNSEEN}"
            return int(connection.execute(sql, [fingerprint]).get)

    def clear_for(self, fingerprint: str, limit: int = 64, *, after: int = 0) -> list[tuple[int, Memory]]:
        """Open memories that stand and that a hosted model has not seen, one for each content, in order of rows."""
        with self._reading() as connection:
            rows = connection.execute(
                f"SELECT min(row), {VERSION_COLUMNS} FROM versions WHERE {_CLEAR} AND {_UNSEEN} GROUP BY content_hash"
                " HAVING min(row) > ? ORDER BY min(row) LIMIT ?",
                [Sensitivity.OPEN.value, fingerprint, after, limit],
            ).fetchall()
        return [(int(row[0]), to_memory(row[1:])) for row in rows]  # type: ignore[arg-type]

    def count_clear_for(self, fingerprint: str) -> int:
        """How many contents a hosted model may see and has not."""
        with self._reading() as connection:
            sql = f"SELECT count(DISTINCT content_hash) FROM versions WHERE {_CLEAR} AND {_UNSEEN}"
            return int(connection.execute(sql, [Sensitivity.OPEN.value, fingerprint]).get)

    def keep(self, fingerprint: str, found: Mapping[str, bytes]) -> None:
        """Keep a hosted model's vectors, without those of texts that became private or were erased meanwhile."""
        with self._writing() as connection:
            sql = f"SELECT DISTINCT content_hash FROM versions WHERE {_CLEAR}"
            clear = {str(row[0]) for row in connection.execute(sql, [Sensitivity.OPEN.value]).fetchall()}
            vectors.keep(connection, fingerprint, {digest: found[digest] for digest in found.keys() & clear})

    def withheld(self) -> list[Memory]:
        """Every version that nobody else may read; of a secret there is its title."""
        with self._reading() as connection:
            sql = f"SELECT {VERSION_COLUMNS} FROM versions WHERE sensitivity != ? ORDER BY row"
            return [to_memory(row) for row in connection.execute(sql, [Sensitivity.OPEN.value]).fetchall()]

    def seen(self) -> dict[str, int]:
        """How many contents each model has seen, by its fingerprint."""
        with self._reading() as connection:
            sql = "SELECT fingerprint, count(*) FROM vectors GROUP BY fingerprint ORDER BY fingerprint"
            return {str(name): int(count) for name, count in connection.execute(sql).fetchall()}  # type: ignore[arg-type]
