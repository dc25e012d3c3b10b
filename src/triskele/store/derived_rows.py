"""Jobs and vectors of one owner in statements that every database understands; both can be made again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from triskele.config import HOSTED
from triskele.replies import JobCounts
from triskele.store.rows import VERSION_COLUMNS, to_memory
from triskele.store.statements import PENDING, OwnerDatabase, Rows
from triskele.store.values import EMBED, MOST_TRIES, NAMES, CatalogRow, Job
from triskele.text import timestamps
from triskele.types import Memory, Sensitivity

# The name of the mark that records the model for which contents are queued.
MODEL = "model"
_PAGE = 1000
_JOB = "kind, key, tries, error"
# What a hosted model's fingerprint begins with, and the next text after all of them.
_HOSTED = (HOSTED, HOSTED[:-1] + chr(ord(HOSTED[-1]) + 1))
_QUEUE_VERSION = f"""
INSERT INTO jobs (owner, kind, key) SELECT ?1, '{NAMES}', ?2
UNION ALL SELECT ?1, '{EMBED}', ?3 WHERE NOT EXISTS (
    SELECT 1 FROM vectors WHERE owner = ?1 AND content_hash = ?3
    AND fingerprint = (SELECT value FROM marks WHERE owner = ?1 AND name = '{MODEL}'))
ON CONFLICT DO NOTHING
"""
_CATALOG_COLUMNS = {
    "row": "versions.row",
    "owner": "versions.owner",
    "happened": "coalesce(valid_from, created_at)",
    "slot": "coalesce(vectors.slot, -1)",
}
_CATALOG = f"""
SELECT {", ".join(_CATALOG_COLUMNS.get(name, name) for name in CatalogRow._fields)}
FROM versions LEFT JOIN vectors ON vectors.owner = versions.owner AND vectors.content_hash = versions.content_hash
     AND vectors.fingerprint = ?2
"""
# Contents are queued for one model at a time.
_UNQUEUED = f"""
AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.owner = vectors.owner AND kind = '{EMBED}' AND key = vectors.content_hash
                AND tries < {MOST_TRIES} AND vectors.fingerprint = (
                    SELECT value FROM marks WHERE marks.owner = vectors.owner AND name = '{MODEL}'))
"""
_UNSEEN = """
NOT EXISTS (SELECT 1 FROM vectors WHERE vectors.owner = one.owner AND vectors.fingerprint = ?2
            AND vectors.content_hash = one.content_hash)
"""
# Several memories may have the same text: it may be sent only if all of them are open.
_CLEAR = f"""
one.owner = ?1 AND one.known_to IS NULL AND NOT EXISTS (
    SELECT 1 FROM versions AS other WHERE other.owner = one.owner AND other.content_hash = one.content_hash
    AND other.sensitivity <> '{Sensitivity.OPEN}')
"""
# Only the first row of a content; walks the rows in their order and stops at the limit.
_CLEAR_PAGE = f"""
SELECT one.row, {VERSION_COLUMNS} FROM versions AS one{{in_row_order}} WHERE one.row > ?3 AND {_CLEAR} AND {_UNSEEN}
AND NOT EXISTS (SELECT 1 FROM versions AS other WHERE other.owner = one.owner AND other.known_to IS NULL
                AND other.content_hash = one.content_hash AND other.row < one.row)
ORDER BY one.row LIMIT ?4
"""


class JobStore:
    """A queue of one owner's jobs by kind and key; versions queue theirs in the transaction that writes them."""

    def __init__(self, database: OwnerDatabase) -> None:
        self._database = database

    def add(self, kind: str, keys: Iterable[str]) -> None:
        """Queue jobs; those that wait already stay as they are."""
        with self._database.writing() as rows:
            sql = (
                f"INSERT INTO jobs (owner, kind, key) SELECT ?1, ?2, value FROM {rows.dialect.elements.format('?3')}"
                " WHERE true ORDER BY key ON CONFLICT DO NOTHING"
            )
            rows.run(sql, [rows.owner, kind, list(keys)])

    def claim(self, kind: str, limit: int = 64, *, lease_s: float = 60.0, wait: bool = True) -> list[Job]:
        """Take the oldest jobs that no lease covers; after the lease they can be claimed again.

        Without `wait` a store that is being written refuses at once.
        """
        now = timestamps.to_micros(timestamps.now())
        sql = f"SELECT {_JOB} FROM jobs WHERE {PENDING} AND lease <= ? ORDER BY job LIMIT ?"
        with self._database.writing(wait=wait) as rows:
            jobs = [Job(*row) for row in rows.all(sql, kind, now, limit)]
            _set(rows, kind, [job.key for job in jobs], "lease = ?", now + round(lease_s * 1e6))
        return jobs

    def release(self, kind: str, keys: Iterable[str]) -> None:
        """End the lease of jobs that were not done; they wait again and have lost no try."""
        self._update(kind, keys, "lease = 0")

    def complete(self, kind: str, keys: Iterable[str]) -> None:
        """Remove jobs that are done."""
        with self._database.writing() as rows:
            rows.complete_jobs(kind, keys)

    def fail(self, kind: str, keys: Iterable[str], error: str) -> None:
        """Record why jobs failed and queue them again; after the last try they are given up."""
        self._update(kind, keys, "lease = 0, tries = tries + 1, error = ?", error)

    def count(self, kind: str) -> int:
        """How many jobs wait, claimed ones included."""
        return int(self._database.all(f"SELECT count(*) FROM jobs WHERE {PENDING}", kind)[0][0])

    def failed(self, kind: str) -> list[Job]:
        """The jobs that failed at every try, oldest first."""
        sql = f"SELECT {_JOB} FROM jobs WHERE owner = ? AND kind = ? AND tries >= {MOST_TRIES} ORDER BY job"
        return [Job(*row) for row in self._database.all(sql, kind)]

    def retry(self, kind: str) -> None:
        """Queue the jobs that were given up again; their last errors are kept."""
        if failed := self.failed(kind):
            self._update(kind, [job.key for job in failed], "lease = 0, tries = 0")

    def counts(self) -> JobCounts:
        """How many jobs wait and were given up, and why the newest that failed did."""
        sql = "SELECT error FROM jobs WHERE owner = ? AND error <> '' ORDER BY job DESC LIMIT 1"
        errors = self._database.all(sql)
        given_up = sum(len(self.failed(kind)) for kind in (EMBED, NAMES))
        return JobCounts(self.count(EMBED), self.count(NAMES), given_up, str(errors[0][0]) if errors else "")

    def _update(self, kind: str, keys: Iterable[str], change: str, *bindings: Any) -> None:
        with self._database.writing() as rows:
            _set(rows, kind, keys, change, *bindings)


def _set(rows: Rows, kind: str, keys: Iterable[str], change: str, *bindings: Any) -> None:
    sql = f"UPDATE jobs SET {change} WHERE owner = ? AND kind = ? AND key {rows.dialect.listed}"
    rows.run(sql, [*bindings, rows.owner, kind, list(keys)])


def queue_version(rows: Rows, row: int, content_hash: str) -> None:
    """Queue the names of a new version, and its content unless the model in use has seen it already."""
    rows.run(_QUEUE_VERSION, [rows.owner, str(row), content_hash])


class VectorStore:
    """Vectors by content hash and model fingerprint; each has a slot, a number that is never used again."""

    def __init__(self, database: OwnerDatabase) -> None:
        self._database = database
        # Otherwise they are only in index files.
        self.keeps_tokens = database.dialect.keeps_tokens

    def waiting(self, limit: int = 256) -> list[tuple[str, str]]:
        """Contents that the model in use has not seen yet, oldest first, as (hash, text)."""
        digests = self._database.pending_keys(EMBED, limit)
        texts = self.texts(digests)
        return [(digest, texts.get(digest, "")) for digest in digests]

    def texts(self, hashes: Iterable[str]) -> dict[str, str]:
        """The texts of some contents by hash; erased ones are left out."""
        dialect, digests = self._database.dialect, list(hashes)
        sql = f"SELECT content_hash, min(content) FROM versions WHERE owner = ? AND content_hash {dialect.listed}"
        texts = dict(self._database.all(f"{sql} GROUP BY content_hash", digests))
        return {digest: texts[digest] for digest in digests if digest in texts}

    def use_model(self, fingerprint: str, *, replacing: Callable[[str], bool] | None = None) -> bool:
        """Queue for this model from now on: at once every content that it has not seen.

        With `replacing`, only if that holds for the model before. Returns whether the queue is now this model's, or
        no model's: otherwise this model must not process it.
        """

        def is_replaced(model: str | None) -> bool:
            return model != fingerprint and (replacing is None or (model is not None and replacing(model)))

        model = _model_of(self._database.all(_MARK, MODEL))
        if not is_replaced(model):
            return model in (None, fingerprint)
        with self._database.writing() as rows:
            model = _model_of(rows.all(_MARK, MODEL))
            if not is_replaced(model):
                # Another process was faster, and may have claimed jobs since.
                return model in (None, fingerprint)
            rows.run(
                "INSERT INTO marks VALUES (?, ?, ?) ON CONFLICT (owner, name) DO UPDATE SET value = excluded.value",
                [rows.owner, MODEL, fingerprint],
            )
            rows.run("DELETE FROM jobs WHERE owner = ? AND kind = ?", [rows.owner, EMBED])
            rows.run(
                f"INSERT INTO jobs (owner, kind, key) SELECT one.owner, '{EMBED}', content_hash FROM versions AS one"
                f" WHERE {rows.dialect.unindexed}one.owner = ?1 AND {_UNSEEN} GROUP BY one.owner, content_hash"
                " ORDER BY min(row)",
                [rows.owner, fingerprint],
            )
        return True

    def save(
        self,
        fingerprint: str,
        vectors: Mapping[str, bytes],
        *,
        tokens: Mapping[str, bytes] | None = None,
        completes: bool = True,
        wait: bool = True,
    ) -> dict[str, int]:
        """Write a model's vectors by content hash; returns the slots, without contents erased meanwhile.

        `tokens` are the token vectors of the same contents, for a store that keeps them. Without `completes` the
        contents stay queued, because more is to be made of them. Without `wait` a store that is being written refuses
        at once.
        """
        sql = "SELECT content_hash, slot FROM vectors WHERE owner = ? AND fingerprint = ? AND content_hash"
        with self._database.writing(wait=wait) as rows:
            if completes:
                _complete_contents(rows, fingerprint, vectors)
            rows.insert_vectors(fingerprint, vectors, tokens or {})
            digests = list(vectors)
            slots = rows.all(f"{sql} {rows.dialect.listed} ORDER BY slot", fingerprint, digests)
        return {str(digest): int(slot) for digest, slot in slots}

    def drop(self, slots: Sequence[int]) -> None:
        """Delete vectors; their contents wait again."""
        with self._database.writing() as rows:
            which = f"owner = ? AND slot {rows.dialect.listed}"
            bindings = [rows.owner, list(slots)]
            rows.run(
                f"INSERT INTO jobs (owner, kind, key) SELECT owner, '{EMBED}', content_hash FROM vectors"
                f" WHERE {which} ORDER BY slot ON CONFLICT DO NOTHING",
                bindings,
            )
            rows.run(f"DELETE FROM vectors WHERE {which}", bindings)

    def page(self, fingerprint: str, *, after: int = 0) -> list[tuple[int, str, bytes]]:
        """A page of a model's vectors past a slot, as (slot, content hash, vector)."""
        return self._page("content_hash, vector", "vector", fingerprint, after)

    def token_page(self, fingerprint: str, *, after: int = 0) -> list[tuple[int, bytes]]:
        """A page of a model's token vectors past a slot, as (slot, vectors); none if the store keeps none."""
        return self._page("tokens", "tokens", fingerprint, after) if self.keeps_tokens else []

    def _page(self, columns: str, made: str, fingerprint: str, after: int) -> list[Any]:
        return self._database.all(
            f"SELECT slot, {columns} FROM vectors{self._database.dialect.by_model} WHERE owner = ? AND fingerprint = ?"
            f" AND slot > ? AND {made} IS NOT NULL ORDER BY slot LIMIT ?",
            fingerprint,
            after,
            _PAGE,
        )

    def complete(self, fingerprint: str, hashes: Iterable[str], *, wait: bool = True) -> None:
        """Remove contents from the queue of a model; do nothing if they are now queued for another one."""
        with self._database.writing(wait=wait) as rows:
            _complete_contents(rows, fingerprint, hashes)

    def contents(self, slots: Sequence[int], *, queued: bool = True) -> dict[int, str]:
        """The texts behind some slots; without `queued` those that wait to be embedded again are left out."""
        dialect = self._database.dialect
        sql = (
            "SELECT slot, (SELECT content FROM versions WHERE versions.owner = vectors.owner"
            " AND versions.content_hash = vectors.content_hash LIMIT 1) FROM vectors"
            f" WHERE owner = ? AND slot {dialect.listed}{'' if queued else _UNQUEUED} ORDER BY slot"
        )
        rows = self._database.all(sql, list(slots))
        return {int(slot): str(text) for slot, text in rows if text is not None}

    def catalog(self, fingerprint: str, ids: Sequence[str] | None = None) -> Iterator[CatalogRow]:
        """One row for every version, or for all versions of some memories, in row order."""
        dialect, bindings = self._database.dialect, list[Any]([fingerprint])
        condition = f"WHERE {dialect.unindexed}versions.owner = ?1"
        if ids is not None:
            condition = f"WHERE versions.owner = ?1 AND versions.id {dialect.listed_as.format('?3')}"
            bindings.append(list(ids))
        for values in self._database.all(f"{_CATALOG} {condition} ORDER BY versions.row", *bindings):
            tags = () if values[6] == "[]" else tuple(json.loads(values[6]))
            yield CatalogRow._make((*values[:6], tags, *values[7:]))

    def newly_placed(self, fingerprint: str, *, after: int) -> list[tuple[int, int]]:
        """Rows whose content got a vector past a slot, as (row, slot)."""
        return self._database.all(
            f"SELECT versions.row, vectors.slot FROM vectors{self._database.dialect.by_model} JOIN versions"
            " ON versions.owner = vectors.owner AND versions.content_hash = vectors.content_hash"
            " WHERE vectors.owner = ? AND vectors.fingerprint = ? AND vectors.slot > ?"
            " ORDER BY vectors.slot, versions.row",
            fingerprint,
            after,
        )


_MARK = "SELECT value FROM marks WHERE owner = ? AND name = ?"


def _model_of(rows: Sequence[Any]) -> str | None:
    """The model for which contents are queued."""
    return str(rows[0][0]) if rows else None


def _complete_contents(rows: Rows, fingerprint: str, hashes: Iterable[str]) -> None:
    """Take contents off the queue, unless they are queued for another model by now."""
    model = _model_of(rows.all(_MARK, MODEL))
    if model == fingerprint if model is not None else not fingerprint.startswith(HOSTED):
        rows.complete_jobs(EMBED, hashes)


class ModelStore:
    """What models have seen of an owner's contents, and what they may see."""

    def __init__(self, database: OwnerDatabase) -> None:
        self._database = database

    def lacking(self, fingerprint: str, limit: int = 64) -> list[tuple[str, str]]:
        """Contents that a model has not seen, oldest first, as (hash, text)."""
        sql = f"SELECT content_hash, min(content) {self._unseen} GROUP BY content_hash ORDER BY min(row) LIMIT ?3"
        return [(str(digest), str(text)) for digest, text in self._database.all(sql, fingerprint, limit)]

    def count_lacking(self, fingerprint: str) -> int:
        """How many contents a model has not seen."""
        return int(self._database.all(f"SELECT count(DISTINCT content_hash) {self._unseen}", fingerprint)[0][0])

    @property
    def _unseen(self) -> str:
        return f"FROM versions AS one WHERE {self._database.dialect.unindexed}one.owner = ?1 AND {_UNSEEN}"

    def clear_for(self, fingerprint: str, limit: int = 64, *, after: int = 0) -> list[tuple[int, Memory]]:
        """Current open memories that a hosted model has not embedded, one for each content, in order of rows."""
        sql = _CLEAR_PAGE.format(in_row_order=self._database.dialect.in_row_order)
        return [(int(row[0]), to_memory(row[1:])) for row in self._database.all(sql, fingerprint, after, limit)]

    def count_clear_for(self, fingerprint: str) -> int:
        """How many contents a hosted model may see and has not."""
        sql = f"SELECT count(DISTINCT content_hash) FROM versions AS one WHERE {_CLEAR} AND {_UNSEEN}"
        return int(self._database.all(sql, fingerprint)[0][0])

    def save(self, fingerprint: str, vectors: Mapping[str, bytes]) -> None:
        """Write a hosted model's vectors, unless their texts became private or were erased meanwhile."""
        with self._database.writing() as rows:
            listed, digests = rows.dialect.listed_as.format("?2"), list(vectors)
            sql = f"SELECT DISTINCT content_hash FROM versions AS one WHERE {_CLEAR} AND one.content_hash {listed}"
            clear = {digest for (digest,) in rows.all(sql, digests)}
            rows.insert_vectors(
                fingerprint, {digest: vector for digest, vector in vectors.items() if digest in clear}, {}
            )

    def withheld(self) -> list[Memory]:
        """Every version that must not leave; of a secret there is its title."""
        owned = f"{self._database.dialect.unindexed}owner = ?"
        sql = f"SELECT {VERSION_COLUMNS} FROM versions WHERE {owned} AND sensitivity <> ? ORDER BY row"
        return [to_memory(row) for row in self._database.all(sql, Sensitivity.OPEN.value)]

    def seen(self) -> dict[str, int]:
        """How many contents each model has seen, by its fingerprint."""
        sql = "SELECT fingerprint, count(*) FROM vectors WHERE owner = ? GROUP BY fingerprint ORDER BY fingerprint"
        return {str(name): int(count) for name, count in self._database.all(sql)}


def drop_hosted_vectors(rows: Rows, id: str) -> None:
    """Delete what hosted models made of the texts of a memory that must not leave any more."""
    rows.run(
        "DELETE FROM vectors WHERE owner = ?1 AND fingerprint >= ?2 AND fingerprint < ?3 AND content_hash IN"
        " (SELECT content_hash FROM versions WHERE owner = ?1 AND id = ?4 AND sensitivity <> ?5)",
        [rows.owner, *_HOSTED, id, Sensitivity.OPEN.value],
    )


def drop_unused(rows: Rows) -> None:
    """Delete vectors, jobs and names that no version has any more."""
    for table, condition, version in (
        ("vectors", "", "versions.content_hash = vectors.content_hash"),
        ("jobs", f"AND kind = '{EMBED}'", "versions.content_hash = jobs.key"),
        ("jobs", f"AND kind = '{NAMES}'", "versions.row = CAST(jobs.key AS bigint)"),
    ):
        unused = f"NOT EXISTS (SELECT 1 FROM versions WHERE versions.owner = {table}.owner AND {version})"
        rows.run(f"DELETE FROM {table} WHERE owner = ? {condition} AND {unused}", [rows.owner])
    names = rows.drop_mentions()
    # In one go: the first name that moves must not take itself out of the sight of the next.
    rows.run(
        "UPDATE names SET concept = heads.head FROM (SELECT concept, min(name) AS head FROM names"
        f" WHERE {rows.dialect.unindexed}owner = ?1 AND concept <> name"
        " AND concept NOT IN (SELECT name FROM names WHERE owner = ?1) GROUP BY concept) AS heads"
        f" WHERE names.concept = heads.concept AND {rows.dialect.unindexed}names.owner = ?1",
        [rows.owner],
    )
    rows.run(
        "DELETE FROM merges WHERE owner = ?1 AND name NOT IN (SELECT name FROM names WHERE owner = ?1)", [rows.owner]
    )
    # A spelling that only an erased text had is not kept either.
    rows.respell(names)
