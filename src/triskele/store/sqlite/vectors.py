"""Jobs and vectors of one owner as rows: what is still to be made, what models made, and what they may see."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import apsw

from triskele.config import HOSTED
from triskele.replies import JobCounts
from triskele.store.derived import EMBED, MOST_TRIES, NAMES, CatalogRow, Job, is_taken
from triskele.store.rows import VERSION_COLUMNS, to_memory
from triskele.store.sqlite.database import Database, listed
from triskele.text import timestamps
from triskele.types import Memory, Sensitivity

_PAGE = 1000
_WAITING = f"owner = ? AND kind = ? AND tries < {MOST_TRIES}"
_JOB = "kind, key, tries, error"
# The name of the mark that records the model for which contents are queued.
_MODEL = "model"
_CATALOG = """
SELECT versions.row, versions.owner, project, sensitivity, origin, category, tags, importance, session, position,
       speaker, role, coalesce(valid_from, created_at), valid_from, valid_to, known_from, known_to,
       coalesce(vectors.slot, -1)
FROM versions LEFT JOIN vectors ON vectors.owner = versions.owner AND vectors.content_hash = versions.content_hash
     AND vectors.fingerprint = ?2
"""
# Contents are queued for one model at a time.
_UNQUEUED = (
    f" AND NOT EXISTS (SELECT 1 FROM jobs WHERE owner = ?1 AND kind = '{EMBED}' AND key = vectors.content_hash"
    f" AND tries < {MOST_TRIES} AND vectors.fingerprint = (SELECT value FROM marks WHERE owner = ?1 AND name = ?3))"
)
_UNSEEN = "content_hash NOT IN (SELECT content_hash FROM vectors WHERE owner = ?1 AND fingerprint = ?2)"
# Several memories may have the same text: it may be sent only if all of them are open.
_CLEAR = (
    "owner = ?1 AND known_to IS NULL AND content_hash NOT IN"
    f" (SELECT content_hash FROM versions WHERE owner = ?1 AND sensitivity <> '{Sensitivity.OPEN}')"
)
# The same for single rows: one lookup by the content's index for each.
_CLEAR_ROW = (
    "one.owner = ?1 AND one.known_to IS NULL AND NOT EXISTS (SELECT 1 FROM versions WHERE owner = ?1"
    f" AND content_hash = one.content_hash AND sensitivity <> '{Sensitivity.OPEN}')"
)
# Only the first row of a content; walks the rows in their order and stops at the limit.
_CLEAR_PAGE = f"""
SELECT one.row, {VERSION_COLUMNS} FROM versions AS one NOT INDEXED
WHERE one.row > ?3 AND {_CLEAR_ROW}
AND NOT EXISTS (SELECT 1 FROM vectors WHERE owner = ?1 AND fingerprint = ?2 AND content_hash = one.content_hash)
AND NOT EXISTS (SELECT 1 FROM versions WHERE owner = ?1 AND content_hash = one.content_hash
                AND known_to IS NULL AND row < one.row)
ORDER BY one.row LIMIT ?4
"""


class SqliteJobs:
    """The jobs of one owner."""

    def __init__(self, database: Database, owner: str) -> None:
        self._database = database
        self._owner = owner

    def add(self, kind: str, keys: Iterable[str]) -> None:
        """Queue jobs; those that wait already stay as they are."""
        with self._database.writing() as connection:
            connection.executemany(
                "INSERT OR IGNORE INTO jobs (owner, kind, key) VALUES (?, ?, ?)",
                [(self._owner, kind, key) for key in keys],
            )

    def claim(self, kind: str, limit: int = 64, *, lease_s: float = 60.0, wait: bool = True) -> list[Job]:
        """Take the oldest jobs that no lease covers; after the lease they can be claimed again."""
        now = timestamps.to_micros(timestamps.now())
        with self._database.writing(wait=wait) as connection:
            rows = connection.execute(
                f"SELECT {_JOB} FROM jobs WHERE {_WAITING} AND lease <= ? ORDER BY job LIMIT ?",
                [self._owner, kind, now, limit],
            ).fetchall()
            connection.executemany(
                "UPDATE jobs SET lease = ? WHERE owner = ? AND kind = ? AND key = ?",
                [(now + round(lease_s * 1e6), self._owner, kind, key) for _, key, _, _ in rows],
            )
        return [_to_job(row) for row in rows]

    def release(self, kind: str, keys: Iterable[str]) -> None:
        """End the lease of jobs that were not done; they wait again and have lost no try."""
        self._update("lease = 0", kind, keys)

    def complete(self, kind: str, keys: Iterable[str]) -> None:
        """Remove jobs that are done."""
        with self._database.writing() as connection:
            complete_jobs(connection, self._owner, kind, keys)

    def fail(self, kind: str, keys: Iterable[str], error: str) -> None:
        """Record why jobs failed and queue them again; after the last try they are given up."""
        self._update("lease = 0, tries = tries + 1, error = ?", kind, keys, error)

    def count(self, kind: str) -> int:
        """How many jobs wait, claimed ones included."""
        return count_jobs(self._database, self._owner, kind)

    def failed(self, kind: str) -> list[Job]:
        """The jobs that failed at every try, oldest first."""
        sql = f"SELECT {_JOB} FROM jobs WHERE owner = ? AND kind = ? AND tries >= {MOST_TRIES} ORDER BY job"
        return [_to_job(row) for row in self._database.all(sql, [self._owner, kind])]

    def retry(self, kind: str) -> None:
        """Queue the jobs that were given up again; their last errors are kept."""
        if given_up := self.failed(kind):
            self._update("lease = 0, tries = 0", kind, [job.key for job in given_up])

    def counts(self) -> JobCounts:
        """How many jobs wait and were given up, and why the newest that failed did."""
        sql = "SELECT error FROM jobs WHERE owner = ? AND error <> '' ORDER BY job DESC LIMIT 1"
        errors = self._database.all(sql, [self._owner])
        given_up = sum(len(self.failed(kind)) for kind in (EMBED, NAMES))
        return JobCounts(self.count(EMBED), self.count(NAMES), given_up, str(errors[0][0]) if errors else "")

    def _update(self, change: str, kind: str, keys: Iterable[str], *bindings: str) -> None:
        with self._database.writing() as connection:
            connection.executemany(
                f"UPDATE jobs SET {change} WHERE owner = ? AND kind = ? AND key = ?",
                [(*bindings, self._owner, kind, key) for key in keys],
            )


class SqliteVectors:
    """The vectors of one owner, and the catalog of its versions."""

    # They would make the file several times as large; the index recomputes lost ones.
    keeps_tokens = False

    def __init__(self, database: Database, owner: str) -> None:
        self._database = database
        self._owner = owner

    def waiting(self, limit: int = 256) -> list[tuple[str, str]]:
        """Contents that the model in use has not seen yet, oldest first, as (hash, text)."""
        with self._database.reading() as connection:
            waiting = waiting_keys(connection, self._owner, EMBED, limit)
        texts = self.texts(waiting)
        return [(digest, texts.get(digest, "")) for digest in waiting]

    def texts(self, hashes: Iterable[str]) -> dict[str, str]:
        """The texts of some contents by hash; erased ones are left out."""
        sql = "SELECT content FROM versions WHERE owner = ? AND content_hash = ? LIMIT 1"
        found = ((digest, self._database.all(sql, [self._owner, digest])) for digest in hashes)
        return {digest: str(rows[0][0]) for digest, rows in found if rows}

    def use_model(self, fingerprint: str, *, replacing: Callable[[str], bool] | None = None) -> bool:
        """Queue for this model from now on, if `replacing` holds for the model before; False if another keeps it."""
        with self._database.reading() as connection:
            model = _model(connection, self._owner)
        if not is_taken(model, fingerprint, replacing):
            return model in (None, fingerprint)
        with self._database.writing() as connection:
            model = _model(connection, self._owner)
            if not is_taken(model, fingerprint, replacing):
                # Another process was faster, and may have claimed jobs since.
                return model in (None, fingerprint)
            connection.execute("INSERT OR REPLACE INTO marks VALUES (?, ?, ?)", [self._owner, _MODEL, fingerprint])
            connection.execute("DELETE FROM jobs WHERE owner = ? AND kind = ?", [self._owner, EMBED])
            connection.execute(
                "INSERT INTO jobs (owner, kind, key) SELECT ?1, ?3, content_hash FROM versions"
                f" WHERE +owner = ?1 AND {_UNSEEN} GROUP BY content_hash ORDER BY min(row)",
                [self._owner, fingerprint, EMBED],
            )
        return True

    def save(
        self,
        fingerprint: str,
        vectors: Mapping[str, bytes],
        *,
        tokens: Mapping[str, bytes] | None = None,  # noqa: ARG002 - not kept here
        completes: bool = True,
        wait: bool = True,
    ) -> dict[str, int]:
        """Keep a model's vectors by content hash; returns the slots, without contents erased meanwhile."""
        with self._database.writing(wait=wait) as connection:
            if completes:
                _complete(connection, self._owner, fingerprint, vectors)
            return _keep(connection, self._owner, fingerprint, vectors)

    def drop(self, slots: Sequence[int]) -> None:
        """Delete vectors; their contents wait again."""
        with self._database.writing() as connection:
            for slot in slots:
                connection.execute(
                    "INSERT OR IGNORE INTO jobs (owner, kind, key) SELECT owner, ?, content_hash FROM vectors"
                    " WHERE owner = ? AND slot = ?",
                    [EMBED, self._owner, slot],
                )
                connection.execute("DELETE FROM vectors WHERE owner = ? AND slot = ?", [self._owner, slot])

    def page(self, fingerprint: str, *, after: int = 0) -> list[tuple[int, str, bytes]]:
        """A page of a model's vectors past a slot, as (slot, content hash, vector)."""
        return self._database.all(
            "SELECT slot, content_hash, vector FROM vectors INDEXED BY vector_model"
            " WHERE owner = ? AND fingerprint = ? AND slot > ? ORDER BY slot LIMIT ?",
            [self._owner, fingerprint, after, _PAGE],
        )

    def token_page(self, fingerprint: str, *, after: int = 0) -> list[tuple[int, bytes]]:  # noqa: ARG002
        """None: the file keeps no token vectors."""
        return []

    def complete(self, fingerprint: str, hashes: Iterable[str], *, wait: bool = True) -> None:
        """Remove contents from the queue of a model; do nothing if they are now queued for another one."""
        with self._database.writing(wait=wait) as connection:
            _complete(connection, self._owner, fingerprint, hashes)

    def contents(self, slots: Sequence[int], *, queued: bool = True) -> dict[int, str]:
        """The texts behind some slots; without `queued` those that wait to be embedded again are left out."""
        sql = (
            "SELECT slot, (SELECT content FROM versions WHERE versions.owner = vectors.owner"
            " AND versions.content_hash = vectors.content_hash LIMIT 1) AS content FROM vectors"
            f" WHERE owner = ?1 AND slot {listed('?2')} AND content IS NOT NULL"
            f"{'' if queued else _UNQUEUED} ORDER BY slot"
        )
        bindings = [self._owner, json.dumps(list(slots)), *([] if queued else [_MODEL])]
        return {int(slot): str(text) for slot, text in self._database.all(sql, bindings)}

    def catalog(self, fingerprint: str, ids: Sequence[str] | None = None) -> Iterator[CatalogRow]:
        """One row for every version, or for those of some memories, in row order."""
        # The plus keeps SQLite from reading by owner and sorting: most files have one owner.
        condition, bindings = " WHERE +versions.owner = ?1 ORDER BY versions.row", [self._owner, fingerprint]
        if ids is not None:
            condition = f" WHERE versions.owner = ?1 AND versions.id {listed('?3')} ORDER BY 1"
            bindings.append(json.dumps(list(ids)))
        for values in self._database.all(_CATALOG + condition, bindings):
            tags = () if values[6] == "[]" else tuple(json.loads(values[6]))
            yield CatalogRow._make((*values[:6], tags, *values[7:]))

    def newly_placed(self, fingerprint: str, *, after: int) -> list[tuple[int, int]]:
        """Rows whose content got a vector past a slot, as (row, slot)."""
        return self._database.all(
            "SELECT versions.row, vectors.slot FROM vectors INDEXED BY vector_model JOIN versions"
            " ON versions.owner = vectors.owner AND versions.content_hash = vectors.content_hash"
            " WHERE vectors.owner = ? AND vectors.fingerprint = ? AND vectors.slot > ?",
            [self._owner, fingerprint, after],
        )


class SqliteModels:
    """What models have seen of one owner's contents."""

    def __init__(self, database: Database, owner: str) -> None:
        self._database = database
        self._owner = owner

    def lacking(self, fingerprint: str, limit: int = 64) -> list[tuple[str, str]]:
        """Contents that a model has not seen, oldest first, as (hash, text)."""
        sql = (
            f"SELECT content_hash, content FROM versions WHERE +owner = ?1 AND {_UNSEEN} GROUP BY content_hash"
            " ORDER BY min(row) LIMIT ?3"
        )
        return [(str(digest), str(text)) for digest, text in self._all(sql, fingerprint, limit)]

    def count_lacking(self, fingerprint: str) -> int:
        """How many contents a model has not seen."""
        sql = f"SELECT count(DISTINCT content_hash) FROM versions WHERE +owner = ?1 AND {_UNSEEN}"
        return int(self._all(sql, fingerprint)[0][0])

    def clear_for(self, fingerprint: str, limit: int = 64, *, after: int = 0) -> list[tuple[int, Memory]]:
        """Current open memories that a hosted model has not seen, one for each content, in order of rows."""
        return [(int(row[0]), to_memory(row[1:])) for row in self._all(_CLEAR_PAGE, fingerprint, after, limit)]

    def count_clear_for(self, fingerprint: str) -> int:
        """How many contents a hosted model may see and has not."""
        sql = f"SELECT count(DISTINCT content_hash) FROM versions WHERE {_CLEAR} AND {_UNSEEN}"
        return int(self._all(sql, fingerprint)[0][0])

    def save(self, fingerprint: str, vectors: Mapping[str, bytes]) -> None:
        """Keep a hosted model's vectors, without those of texts that became private or were erased meanwhile."""
        sql = f"SELECT 1 FROM versions AS one WHERE one.content_hash = ?2 AND {_CLEAR_ROW} LIMIT 1"
        with self._database.writing() as connection:
            clear = {
                digest: vector
                for digest, vector in vectors.items()
                if connection.execute(sql, [self._owner, digest]).fetchone() is not None
            }
            _keep(connection, self._owner, fingerprint, clear)

    def withheld(self) -> list[Memory]:
        """Every version that must not leave; of a secret there is its title."""
        sql = f"SELECT {VERSION_COLUMNS} FROM versions WHERE +owner = ? AND sensitivity <> ? ORDER BY row"
        return [to_memory(row) for row in self._all(sql, Sensitivity.OPEN.value)]

    def seen(self) -> dict[str, int]:
        """How many contents each model has seen, by its fingerprint."""
        sql = "SELECT fingerprint, count(*) FROM vectors WHERE owner = ? GROUP BY fingerprint ORDER BY fingerprint"
        return {str(name): int(count) for name, count in self._all(sql)}

    def _all(self, sql: str, *bindings: str | int) -> list[Any]:
        return self._database.all(sql, [self._owner, *bindings])


def complete_jobs(connection: apsw.Connection, owner: str, kind: str, keys: Iterable[str]) -> None:
    """Remove jobs that are done, in the transaction of the caller."""
    connection.executemany(
        "DELETE FROM jobs WHERE owner = ? AND kind = ? AND key = ?", [(owner, kind, key) for key in keys]
    )


def count_jobs(database: Database, owner: str, kind: str) -> int:
    """How many jobs of a kind wait."""
    return int(database.all(f"SELECT count(*) FROM jobs WHERE {_WAITING}", [owner, kind])[0][0])


def waiting_keys(connection: apsw.Connection, owner: str, kind: str, limit: int) -> list[str]:
    """The keys of the oldest jobs that wait."""
    sql = f"SELECT key FROM jobs WHERE {_WAITING} ORDER BY job LIMIT ?"
    return [str(key) for (key,) in connection.execute(sql, [owner, kind, limit]).fetchall()]


def queue_names(connection: apsw.Connection, owner: str, row: int) -> None:
    """Queue the reading of the names of a version, in the transaction that writes it."""
    connection.execute("INSERT OR IGNORE INTO jobs (owner, kind, key) VALUES (?, ?, ?)", [owner, NAMES, str(row)])


def queue_all_names(connection: apsw.Connection, owner: str) -> None:
    """Queue the reading of the names of every version."""
    connection.execute(
        "INSERT OR IGNORE INTO jobs (owner, kind, key)"
        " SELECT owner, ?, row FROM versions WHERE +owner = ? ORDER BY row",
        [NAMES, owner],
    )


def queue_content(connection: apsw.Connection, owner: str, content_hash: str) -> None:
    """Queue a content for a vector, unless the model in use has seen it already."""
    connection.execute(
        "INSERT OR IGNORE INTO jobs (owner, kind, key) SELECT ?1, ?2, ?3 WHERE NOT EXISTS (SELECT 1 FROM vectors"
        " WHERE owner = ?1 AND fingerprint = (SELECT value FROM marks WHERE owner = ?1 AND name = ?4)"
        " AND content_hash = ?3)",
        [owner, EMBED, content_hash, _MODEL],
    )


def withdraw(connection: apsw.Connection, owner: str, id: str) -> None:
    """Delete what hosted models made of the texts of a memory that must not leave any more."""
    connection.execute(
        "DELETE FROM vectors WHERE owner = ?1 AND fingerprint GLOB ?2 AND content_hash IN"
        " (SELECT content_hash FROM versions WHERE owner = ?1 AND id = ?3 AND sensitivity <> ?4)",
        [owner, f"{HOSTED}*", id, Sensitivity.OPEN.value],
    )


def drop_unused(connection: apsw.Connection, owner: str) -> None:
    """Delete vectors and jobs whose content or version no longer exists."""
    connection.execute(
        "DELETE FROM vectors WHERE owner = ?1 AND content_hash NOT IN"
        " (SELECT content_hash FROM versions WHERE owner = ?1)",
        [owner],
    )
    for kind, column in ((EMBED, "content_hash"), (NAMES, "CAST(row AS TEXT)")):
        connection.execute(
            f"DELETE FROM jobs WHERE owner = ?1 AND kind = ?2 AND key NOT IN (SELECT {column} FROM versions"
            " WHERE owner = ?1)",
            [owner, kind],
        )


def _model(connection: apsw.Connection, owner: str) -> str | None:
    """The model for which contents are queued."""
    found = connection.execute("SELECT value FROM marks WHERE owner = ? AND name = ?", [owner, _MODEL]).fetchone()
    return str(found[0]) if found else None


def _keep(connection: apsw.Connection, owner: str, fingerprint: str, vectors: Mapping[str, bytes]) -> dict[str, int]:
    """Write vectors, in the transaction of the caller."""
    for digest, vector in vectors.items():
        # A content may have been erased while it was being embedded.
        connection.execute(
            "INSERT OR IGNORE INTO vectors (owner, content_hash, fingerprint, vector) SELECT ?1, ?2, ?3, ?4"
            " WHERE EXISTS (SELECT 1 FROM versions WHERE owner = ?1 AND content_hash = ?2)",
            [owner, digest, fingerprint, vector],
        )
    rows = connection.execute(
        f"SELECT content_hash, slot FROM vectors WHERE owner = ? AND fingerprint = ? AND content_hash {listed()}",
        [owner, fingerprint, json.dumps(list(vectors))],
    ).fetchall()
    return {str(digest): int(slot) for digest, slot in rows}  # type: ignore[arg-type]


def _complete(connection: apsw.Connection, owner: str, fingerprint: str, hashes: Iterable[str]) -> None:
    """Take contents off the queue, unless they are queued for another model by now."""
    model = _model(connection, owner)
    if model == fingerprint if model is not None else not fingerprint.startswith(HOSTED):
        complete_jobs(connection, owner, EMBED, hashes)


def _to_job(row: Sequence[object]) -> Job:
    return Job(*row)  # type: ignore[arg-type]
