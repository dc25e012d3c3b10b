"""Vectors of one owner as rows, of sentences and of tokens: what models made, and what they may see."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from triskele.config import HOSTED
from triskele.server.postgres.connections import Connection, OwnerTransactions
from triskele.server.postgres.jobs import MODEL, complete_jobs, model_in_use, waiting_keys
from triskele.store.derived import EMBED, MOST_TRIES, CatalogRow, is_taken
from triskele.store.rows import VERSION_COLUMNS, to_memory
from triskele.types import Memory, Sensitivity

_PAGE = 1000
_CATALOG = """
SELECT versions.row, versions.owner, project, sensitivity, origin, category, tags, importance, session, position,
       speaker, role, coalesce(valid_from, created_at), valid_from, valid_to, known_from, known_to,
       coalesce(vectors.slot, -1)
FROM versions LEFT JOIN vectors ON vectors.owner = versions.owner AND vectors.content_hash = versions.content_hash
     AND vectors.fingerprint = %s
WHERE versions.owner = %s
"""
# Contents are queued for one model at a time.
_UNQUEUED = f"""
AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.owner = vectors.owner AND kind = '{EMBED}' AND key = vectors.content_hash
                AND tries < {MOST_TRIES} AND vectors.fingerprint = (
                    SELECT value FROM marks WHERE marks.owner = vectors.owner AND name = '{MODEL}'))
"""
_UNSEEN = """
NOT EXISTS (SELECT 1 FROM vectors WHERE vectors.owner = one.owner AND vectors.fingerprint = %(model)s
            AND vectors.content_hash = one.content_hash)
"""
# Several memories may have the same text: it may be sent only if all of them are open.
_CLEAR = f"""
one.owner = %(owner)s AND one.known_to IS NULL AND NOT EXISTS (
    SELECT 1 FROM versions AS other WHERE other.owner = one.owner AND other.content_hash = one.content_hash
    AND other.sensitivity <> '{Sensitivity.OPEN}')
"""
# Only the first row of a content.
_CLEAR_PAGE = f"""
SELECT one.row, {VERSION_COLUMNS} FROM versions AS one
WHERE one.row > %(after)s AND {_CLEAR} AND {_UNSEEN}
AND NOT EXISTS (SELECT 1 FROM versions AS other WHERE other.owner = one.owner AND other.known_to IS NULL
                AND other.content_hash = one.content_hash AND other.row < one.row)
ORDER BY one.row LIMIT %(limit)s
"""
# A content may have been erased while it was being embedded.
_KEEP = """
INSERT INTO vectors (owner, content_hash, fingerprint, vector, tokens)
SELECT %(owner)s, made.hash, %(model)s, made.vector, made.tokens
FROM unnest(%(hashes)s::text[], %(vectors)s::bytea[], %(tokens)s::bytea[]) WITH ORDINALITY
     AS made (hash, vector, tokens, at)
WHERE EXISTS (SELECT 1 FROM versions WHERE owner = %(owner)s AND content_hash = made.hash)
ORDER BY at ON CONFLICT DO NOTHING
"""


class PostgresVectors:
    """The vectors of one owner, and the catalog of its versions."""

    # An instance that is new to an owner reads them instead of embedding everything again.
    keeps_tokens = True

    def __init__(self, transactions: OwnerTransactions) -> None:
        self._transactions = transactions
        self._owner = transactions.owner

    def waiting(self, limit: int = 256) -> list[tuple[str, str]]:
        """Contents that the model in use has not seen yet, oldest first, as (hash, text)."""
        waiting = waiting_keys(self._transactions, EMBED, limit)
        texts = self.texts(waiting)
        return [(digest, texts.get(digest, "")) for digest in waiting]

    def texts(self, hashes: Iterable[str]) -> dict[str, str]:
        """The texts of some contents by hash; erased ones are left out."""
        wanted = list(hashes)
        sql = "SELECT DISTINCT ON (content_hash) content_hash, content FROM versions WHERE owner = %s AND content_hash"
        known = dict(self._transactions.all(f"{sql} = ANY(%s) ORDER BY content_hash, row", [self._owner, wanted]))
        return {digest: known[digest] for digest in wanted if digest in known}

    def use_model(self, fingerprint: str, *, replacing: Callable[[str], bool] | None = None) -> bool:
        """Queue for this model from now on, if `replacing` holds for the model before; False if another keeps it."""
        model = self._transactions.read(lambda connection: model_in_use(connection, self._owner))
        if not is_taken(model, fingerprint, replacing):
            return model in (None, fingerprint)
        with self._transactions.writing() as connection:
            model = model_in_use(connection, self._owner)
            if not is_taken(model, fingerprint, replacing):
                # Another process was faster, and may have claimed jobs since.
                return model in (None, fingerprint)
            connection.execute(
                "INSERT INTO marks VALUES (%s, %s, %s) ON CONFLICT (owner, name) DO UPDATE SET value = excluded.value",
                [self._owner, MODEL, fingerprint],
            )
            connection.execute("DELETE FROM jobs WHERE owner = %s AND kind = %s", [self._owner, EMBED])
            connection.execute(
                f"INSERT INTO jobs (owner, kind, key) SELECT one.owner, '{EMBED}', content_hash FROM versions AS one"
                f" WHERE one.owner = %(owner)s AND {_UNSEEN} GROUP BY one.owner, content_hash ORDER BY min(row)",
                {"owner": self._owner, "model": fingerprint},
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
        """Keep a model's vectors by content hash; returns the slots, without contents erased meanwhile."""
        with self._transactions.writing(wait=wait) as connection:
            if completes:
                _complete(connection, self._owner, fingerprint, vectors)
            return _keep(connection, self._owner, fingerprint, vectors, tokens or {})

    def drop(self, slots: Sequence[int]) -> None:
        """Delete vectors; their contents wait again."""
        with self._transactions.writing() as connection:
            connection.execute(
                f"INSERT INTO jobs (owner, kind, key) SELECT owner, '{EMBED}', content_hash FROM vectors"
                " WHERE owner = %s AND slot = ANY(%s) ORDER BY slot ON CONFLICT DO NOTHING",
                [self._owner, list(slots)],
            )
            connection.execute("DELETE FROM vectors WHERE owner = %s AND slot = ANY(%s)", [self._owner, list(slots)])

    def page(self, fingerprint: str, *, after: int = 0) -> list[tuple[int, str, bytes]]:
        """A page of a model's vectors past a slot, as (slot, content hash, vector)."""
        return self._transactions.all(
            "SELECT slot, content_hash, vector FROM vectors WHERE owner = %s AND fingerprint = %s AND slot > %s"
            " AND vector IS NOT NULL ORDER BY slot LIMIT %s",
            [self._owner, fingerprint, after, _PAGE],
        )

    def token_page(self, fingerprint: str, *, after: int = 0) -> list[tuple[int, bytes]]:
        """A page of a model's token vectors past a slot, as (slot, vectors)."""
        return self._transactions.all(
            "SELECT slot, tokens FROM vectors WHERE owner = %s AND fingerprint = %s AND slot > %s"
            " AND tokens IS NOT NULL ORDER BY slot LIMIT %s",
            [self._owner, fingerprint, after, _PAGE],
        )

    def complete(self, fingerprint: str, hashes: Iterable[str], *, wait: bool = True) -> None:
        """Remove contents from the queue of a model; do nothing if they are now queued for another one."""
        with self._transactions.writing(wait=wait) as connection:
            _complete(connection, self._owner, fingerprint, hashes)

    def contents(self, slots: Sequence[int], *, queued: bool = True) -> dict[int, str]:
        """The texts behind some slots; without `queued` those that wait to be embedded again are left out."""
        sql = (
            "SELECT slot, (SELECT content FROM versions WHERE versions.owner = vectors.owner"
            " AND versions.content_hash = vectors.content_hash LIMIT 1) FROM vectors"
            f" WHERE owner = %s AND slot = ANY(%s){'' if queued else _UNQUEUED} ORDER BY slot"
        )
        rows = self._transactions.all(sql, [self._owner, list(slots)])
        return {int(slot): str(text) for slot, text in rows if text is not None}

    def catalog(self, fingerprint: str, ids: Sequence[str] | None = None) -> Iterator[CatalogRow]:
        """One row for every version, or for those of some memories, in row order."""
        condition, bindings = "", [fingerprint, self._owner]
        rows = self._transactions.all(
            f"{_CATALOG}{'' if ids is None else ' AND versions.id = ANY(%s)'}{condition} ORDER BY versions.row",
            bindings if ids is None else [*bindings, list(ids)],
        )
        for values in rows:
            tags = () if values[6] == "[]" else tuple(json.loads(values[6]))
            yield CatalogRow._make((*values[:6], tags, *values[7:]))

    def newly_placed(self, fingerprint: str, *, after: int) -> list[tuple[int, int]]:
        """Rows whose content got a vector past a slot, as (row, slot)."""
        return self._transactions.all(
            "SELECT versions.row, vectors.slot FROM vectors JOIN versions ON versions.owner = vectors.owner"
            " AND versions.content_hash = vectors.content_hash"
            " WHERE vectors.owner = %s AND vectors.fingerprint = %s AND vectors.slot > %s"
            " ORDER BY vectors.slot, versions.row",
            [self._owner, fingerprint, after],
        )


class PostgresModels:
    """What models have seen of one owner's contents."""

    def __init__(self, transactions: OwnerTransactions) -> None:
        self._transactions = transactions
        self._owner = transactions.owner

    def lacking(self, fingerprint: str, limit: int = 64) -> list[tuple[str, str]]:
        """Contents that a model has not seen, oldest first, as (hash, text)."""
        sql = (
            f"SELECT content_hash, min(content) FROM versions AS one WHERE owner = %(owner)s AND {_UNSEEN}"
            " GROUP BY content_hash ORDER BY min(row) LIMIT %(limit)s"
        )
        return [(str(digest), str(text)) for digest, text in self._all(sql, fingerprint, limit=limit)]

    def count_lacking(self, fingerprint: str) -> int:
        """How many contents a model has not seen."""
        sql = f"SELECT count(DISTINCT content_hash) FROM versions AS one WHERE owner = %(owner)s AND {_UNSEEN}"
        return int(self._all(sql, fingerprint)[0][0])

    def clear_for(self, fingerprint: str, limit: int = 64, *, after: int = 0) -> list[tuple[int, Memory]]:
        """Current open memories that a hosted model has not seen, one for each content, in order of rows."""
        rows = self._all(_CLEAR_PAGE, fingerprint, after=after, limit=limit)
        return [(int(row[0]), to_memory(row[1:])) for row in rows]

    def count_clear_for(self, fingerprint: str) -> int:
        """How many contents a hosted model may see and has not."""
        sql = f"SELECT count(DISTINCT content_hash) FROM versions AS one WHERE {_CLEAR} AND {_UNSEEN}"
        return int(self._all(sql, fingerprint)[0][0])

    def save(self, fingerprint: str, vectors: Mapping[str, bytes]) -> None:
        """Keep a hosted model's vectors, without those of texts that became private or were erased meanwhile."""
        sql = f"SELECT DISTINCT content_hash FROM versions AS one WHERE one.content_hash = ANY(%(hashes)s) AND {_CLEAR}"
        with self._transactions.writing() as connection:
            rows = connection.execute(sql, {"owner": self._owner, "hashes": list(vectors)}).fetchall()
            clear = {digest for (digest,) in rows}
            kept = {digest: vector for digest, vector in vectors.items() if digest in clear}
            _keep(connection, self._owner, fingerprint, kept, {})

    def withheld(self) -> list[Memory]:
        """Every version that must not leave; of a secret there is its title."""
        sql = f"SELECT {VERSION_COLUMNS} FROM versions WHERE owner = %s AND sensitivity <> %s ORDER BY row"
        return [to_memory(row) for row in self._transactions.all(sql, [self._owner, Sensitivity.OPEN.value])]

    def seen(self) -> dict[str, int]:
        """How many contents each model has seen, by its fingerprint."""
        sql = "SELECT fingerprint, count(*) FROM vectors WHERE owner = %s GROUP BY fingerprint ORDER BY fingerprint"
        return {str(name): int(count) for name, count in self._transactions.all(sql, [self._owner])}

    def _all(self, sql: str, fingerprint: str, **bindings: int) -> list[Any]:
        return self._transactions.all(sql, {"owner": self._owner, "model": fingerprint, **bindings})


def withdraw(connection: Connection, owner: str, id: str) -> None:
    """Delete what hosted models made of the texts of a memory that must not leave any more."""
    connection.execute(
        "DELETE FROM vectors WHERE owner = %(owner)s AND starts_with(fingerprint, %(hosted)s) AND content_hash IN"
        " (SELECT content_hash FROM versions WHERE owner = %(owner)s AND id = %(id)s AND sensitivity <> %(open)s)",
        {"owner": owner, "hosted": HOSTED, "id": id, "open": Sensitivity.OPEN.value},
    )


def drop_unused(connection: Connection, owner: str) -> None:
    """Delete vectors and jobs whose content or version no longer exists."""
    known = "SELECT 1 FROM versions WHERE versions.owner = {0}.owner AND"
    connection.execute(
        f"DELETE FROM vectors WHERE owner = %s AND NOT EXISTS ({known.format('vectors')}"
        " versions.content_hash = vectors.content_hash)",
        [owner],
    )
    connection.execute(
        f"DELETE FROM jobs WHERE owner = %s AND kind = '{EMBED}' AND NOT EXISTS ({known.format('jobs')}"
        " versions.content_hash = jobs.key)",
        [owner],
    )
    connection.execute(
        "DELETE FROM jobs WHERE owner = %s AND kind = 'names' AND NOT EXISTS"
        f" ({known.format('jobs')} versions.row = jobs.key::bigint)",
        [owner],
    )


def _keep(
    connection: Connection, owner: str, fingerprint: str, vectors: Mapping[str, bytes], tokens: Mapping[str, bytes]
) -> dict[str, int]:
    """Write vectors, in the transaction of the caller."""
    hashes = list(vectors)
    named = {"owner": owner, "model": fingerprint, "hashes": hashes}
    made = {"vectors": list(vectors.values()), "tokens": [tokens.get(digest) for digest in hashes]}
    connection.execute(_KEEP, {**named, **made})
    rows = connection.execute(
        "SELECT content_hash, slot FROM vectors WHERE owner = %(owner)s AND fingerprint = %(model)s"
        " AND content_hash = ANY(%(hashes)s) ORDER BY slot",
        named,
    ).fetchall()
    return {str(digest): int(slot) for digest, slot in rows}


def _complete(connection: Connection, owner: str, fingerprint: str, hashes: Iterable[str]) -> None:
    """Take contents off the queue, unless they are queued for another model by now."""
    model = model_in_use(connection, owner)
    if model == fingerprint if model is not None else not fingerprint.startswith(HOSTED):
        complete_jobs(connection, owner, EMBED, hashes)
