"""Rank inside the database for one owner: BM25 over postings, nearest vectors by HNSW, facts of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

from psycopg import sql

from triskele.server.postgres import postings, vector_extension
from triskele.server.postgres.connections import Connection, OwnerTransactions
from triskele.server.postgres.migrations import EMBEDDINGS, SCHEMA
from triskele.server.postgres.truth_rows import in_scope, may_read
from triskele.server.postgres.vector_extension import VectorExtension
from triskele.store.corpus_protocol import (
    CandidateRow,
    FactRow,
    ScopeSize,
    TermStatistics,
    VectorQuery,
    WeightedTerms,
    WordCounts,
)
from triskele.types import Memory, Scope, Sort

# A scan that finds too few rows by its filter continues up to this many vectors; then the caller needs an exact one.
_MOST_SCANNED = 20_000
_SETTINGS = (
    "SELECT set_config('hnsw.ef_search', %s, true), set_config('hnsw.iterative_scan', 'relaxed_order', true),"
    f" set_config('hnsw.max_scan_tuples', '{_MOST_SCANNED}', true), set_config('jit', 'off', true)"
)
_ORDERS = {
    Sort.RELEVANCE: "score DESC, row",
    Sort.IMPORTANCE: "importance DESC, score DESC, row",
    Sort.RECENCY: "updated_at DESC, score DESC, row",
}
# The share of a term that a field of a row has: its count, saturated, the sooner the shorter the field is. Rounded,
# because the order of the summands differs from row to row, and equal scores are ordered by row.
_SCORE = """
sum(asked.content * postings.content / (postings.content + %s::float8 + %s::float8 * content_norm)
  + CASE WHEN postings.labels = 0 THEN 0
    ELSE asked.labels * postings.labels / (postings.labels + %s::float8 + %s::float8 * label_norm) END)::real
"""
# Looking a row up in the scope is what costs: sorted first, the lookups end with the limit.
_LEXICAL = """
SELECT row, score, importance, updated_at, row_number() OVER (ORDER BY {order}) AS rank FROM (
    SELECT scored.row, score, importance, updated_at FROM (
        SELECT postings.row, {score} AS score
        FROM unnest(%s::text[], %s::float8[], %s::float8[]) AS asked (term, content, labels)
        JOIN postings ON postings.owner = %s AND postings.term = asked.term
        GROUP BY postings.row ORDER BY score DESC, row LIMIT %s
    ) AS scored CROSS JOIN LATERAL (
        SELECT importance, updated_at FROM versions WHERE owner = %s AND versions.row = scored.row AND {scope} OFFSET 0
    ) AS version
    ORDER BY {order} LIMIT %s
) AS best
"""
# A scope that holds few rows comes first: looked up one by one, thousands that match would lie outside.
_LEXICAL_NARROW = """
SELECT row, score, importance, updated_at, row_number() OVER (ORDER BY {order}) AS rank FROM (
    SELECT version.row, {score} AS score, importance, updated_at
    FROM unnest(%s::text[], %s::float8[], %s::float8[]) AS asked (term, content, labels)
    JOIN postings ON postings.owner = %s AND postings.term = asked.term
    JOIN (SELECT row, importance, updated_at FROM versions WHERE owner = %s AND {scope} OFFSET 0) AS version
         ON version.row = postings.row
    GROUP BY version.row, importance, updated_at ORDER BY {order} LIMIT %s
) AS best
"""
_BY_INDEX = """
SELECT version.row, {distance} AS distance
FROM {embeddings} AS placed CROSS JOIN LATERAL (
    SELECT row FROM versions WHERE owner = %s AND versions.content_hash = placed.content_hash AND {scope} OFFSET 0
) AS version
WHERE placed.owner = %s AND placed.fingerprint = {model} AND embedding IS NOT NULL
ORDER BY {distance} LIMIT %s
"""
# The scope first: it holds few rows, or the owner does.
_EXACTLY = """
SELECT version.row, {distance} AS distance
FROM (SELECT row, content_hash FROM versions WHERE owner = %s AND {scope} OFFSET 0) AS version
JOIN {embeddings} AS placed ON placed.owner = %s AND placed.fingerprint = {model}
     AND placed.content_hash = version.content_hash AND embedding IS NOT NULL
ORDER BY {distance}, version.row LIMIT %s
"""
_BOTH = """
WITH lexical AS MATERIALIZED ({lexical}), near AS MATERIALIZED ({dense}),
     dense AS (SELECT row, distance, row_number() OVER (ORDER BY distance, row) AS rank FROM near)
SELECT coalesce(lexical.row, dense.row), score, importance, updated_at, 1 - distance
FROM lexical FULL OUTER JOIN dense ON dense.row = lexical.row
ORDER BY lexical.rank, dense.rank
"""
_NO_WORDS = (
    "SELECT NULL::bigint AS row, NULL::real AS score, NULL::float8 AS importance, NULL::bigint AS updated_at,"
    " NULL::bigint AS rank WHERE false"
)
_NO_VECTORS = "SELECT NULL::bigint AS row, NULL::float8 AS distance WHERE false"
# A pair of numbers is no condition of an index under row-level security, the first of them is.
_BESIDE = """
CASE WHEN session IS NULL THEN '{{}}' ELSE
ARRAY(SELECT CASE WHEN {readable} THEN row ELSE -1 END FROM versions
      WHERE owner = one.owner AND project = one.project AND session = one.session AND known_to IS NULL
      AND one.known_to IS NULL AND coalesce(position, 0) {sign}= coalesce(one.position, 0)
      AND (coalesce(position, 0), row) {sign} (coalesce(one.position, 0), one.row)
      ORDER BY coalesce(position, 0) {way}, row {way} LIMIT %s) END
"""
_FACTS = """
SELECT row, coalesce({scope}, false), {readable}, importance, project, session, speaker, role,
       coalesce(valid_from, created_at), {before}, {after}, {made}
FROM versions AS one{beside} WHERE owner = %s AND row = ANY(%s)
"""
# Looked up row by row: the planner may otherwise read all vectors of the owner.
_BESIDE_FACTS = """
LEFT JOIN LATERAL (
    SELECT vector, tokens FROM vectors
    WHERE vectors.owner = one.owner AND fingerprint = %s AND vectors.content_hash = one.content_hash OFFSET 0
) AS made ON true
"""
_MADE = """
SELECT versions.row, {column} FROM versions JOIN vectors ON vectors.owner = versions.owner
       AND vectors.fingerprint = %s AND vectors.content_hash = versions.content_hash
WHERE versions.owner = %s AND versions.row = ANY(%s) AND {column} IS NOT NULL
"""
_NEWEST = "coalesce((SELECT max({column}) FROM {table} WHERE owner = %(owner)s{also}), 0)"


class PostgresCorpus:
    """What ranking reads of one owner inside the database."""

    def __init__(self, transactions: OwnerTransactions) -> None:
        self._transactions = transactions
        self._owner = transactions.owner

    @cached_property
    def _extension(self) -> VectorExtension:
        return vector_extension.install(self._transactions.connections)

    @property
    def problem(self) -> str:
        """Why the database cannot rank; empty if it can."""
        return self._extension.problem

    @property
    def warning(self) -> str:
        """A warning about a database that can rank."""
        return self._extension.warning

    def prepare(self, fingerprint: str, dimensions: int) -> None:
        """Make what the vectors of a model need, unless it is there."""
        vector_extension.prepare(self._transactions.connections, self._extension, fingerprint, dimensions)

    def is_behind(self, analyzer: str, fingerprint: str) -> bool:
        """Whether versions have no words yet, or vectors of a model are in no index."""
        of_model = " AND fingerprint = %(model)s"
        newest = [
            _NEWEST.format(column="row", table="versions", also=""),
            _NEWEST.format(column="row", table="corpora", also=" AND analyzer = %(analyzer)s"),
        ]
        if fingerprint:
            newest += [
                _NEWEST.format(column="slot", table="vectors", also=f"{of_model} AND vector IS NOT NULL"),
                _NEWEST.format(column="slot", table=EMBEDDINGS, also=of_model),
            ]
        bindings = {"owner": self._owner, "analyzer": analyzer, "model": fingerprint}
        [row] = self._transactions.all(f"SELECT {', '.join(newest)}", bindings)
        return any(row[place] > row[place + 1] for place in range(0, len(row), 2))

    def index_words(self, analyzer: str, count: Callable[[Memory], WordCounts], limit: int) -> int:
        """Write the words of the next versions, without the words of another analyzer; returns how many."""
        with self._transactions.writing() as connection:
            return postings.index_versions(connection, self._owner, analyzer, count, limit)

    def index_vectors(self, fingerprint: str, convert: Callable[[bytes], str | None], limit: int) -> int:
        """Write the next vectors of a model into the index; returns how many. None means an invalid vector."""
        schema = self._extension.schema
        with self._transactions.writing() as connection:
            return postings.index_vectors(connection, self._owner, fingerprint, convert, schema, limit)

    def statistics(self, terms: Iterable[str]) -> TermStatistics:
        """Counts over every version of the owner, and for some terms."""
        # No text of a database holds NUL.
        wanted = [term for term in terms if "\0" not in term]
        rows = self._transactions.all(
            "SELECT NULL, documents, content, labels FROM corpora WHERE owner = %(owner)s UNION ALL"
            " SELECT term, 0, content, labels FROM terms WHERE owner = %(owner)s AND term = ANY(%(terms)s)",
            {"owner": self._owner, "terms": wanted},
        )
        frequencies = {term: (int(content), int(labels)) for term, _, content, labels in rows if term is not None}
        documents, *lengths = next((row[1:] for row in rows if row[0] is None), (0, 0, 0))
        return TermStatistics(int(documents), (int(lengths[0]), int(lengths[1])), frequencies)

    def count(self, scope: Scope) -> ScopeSize:
        """How many versions a scope contains, and how many vectors the index has."""
        condition, bindings = in_scope(scope)
        # As the last vacuum or analysis saw it; -1 before the first.
        vectors = f"(SELECT reltuples::bigint FROM pg_class WHERE oid = to_regclass('{SCHEMA}.{EMBEDDINGS}'))"
        [[versions, vectors]] = self._transactions.all(
            f"SELECT count(*), {vectors} FROM versions WHERE owner = %s AND {condition}", [self._owner, *bindings]
        )
        return ScopeSize(int(versions), max(0, int(vectors or 0)))

    def candidates(
        self,
        scope: Scope,
        fingerprint: str,
        words: WeightedTerms | None,
        vector: VectorQuery | None,
        *,
        limit: int,
        sort: Sort = Sort.RELEVANCE,
        cut: int | None = None,
        is_narrow: bool = False,
    ) -> list[CandidateRow]:
        """The best rows of both legs in one statement; only the best `cut` by words are looked up in the scope.

        A narrow scope is read first, and nothing is cut.
        """
        lexical, bindings = (_NO_WORDS, list[Any]())
        if words is not None:
            lexical, bindings = self._lexical(words, scope, limit, sort, cut, is_narrow=is_narrow)
        dense = _NO_VECTORS
        if vector is not None:
            dense, more = self._dense(vector, scope, fingerprint, limit)
            bindings += more
        statement = _BOTH.format(lexical=lexical, dense=dense)

        def read(connection: Connection) -> list[Any]:
            with connection.pipeline():
                if vector is not None:
                    # Inside the transaction: a pooler may give the connection to another client afterwards.
                    connection.execute(_SETTINGS, [str(vector.search_list)])
                # The vector stands in its text: no other question asks the same statement.
                cursor = connection.execute(statement, bindings, prepare=False)
            return cursor.fetchall()

        return [CandidateRow._make(row) for row in self._transactions.read(read)]

    def _lexical(
        self, words: WeightedTerms, scope: Scope, limit: int, sort: Sort, cut: int | None, *, is_narrow: bool = False
    ) -> tuple[str, list[Any]]:
        condition, bindings = in_scope(scope)
        weights = [list(weights) for weights in zip(*words.weights.values(), strict=True)] or [[], []]
        norms = [norm for pair in words.norms for norm in pair]
        statement = (_LEXICAL_NARROW if is_narrow else _LEXICAL).format(
            score=_SCORE, scope=condition, order=_ORDERS[sort]
        )
        cuts = [] if is_narrow else [cut]
        return statement, [*norms, list(words.weights), *weights, self._owner, *cuts, self._owner, *bindings, limit]

    def _dense(self, vector: VectorQuery, scope: Scope, fingerprint: str, limit: int) -> tuple[str, list[Any]]:
        condition, bindings = in_scope(scope)
        schema = self._extension.schema
        size = "" if vector.is_exact else f"({vector.dimensions})"
        # The index is of one model and one size; an expression without the size is never answered by it.
        near = sql.Literal(vector.text).as_string(None)
        distance = f"placed.embedding::{schema}.halfvec{size} OPERATOR({schema}.<=>) {near}::{schema}.halfvec{size}"
        statement = (_EXACTLY if vector.is_exact else _BY_INDEX).format(
            distance=distance,
            embeddings=EMBEDDINGS,
            scope=condition,
            model=sql.Literal(fingerprint).as_string(None).replace("%", "%%"),
        )
        return statement, [self._owner, *bindings, self._owner, limit]

    def facts(self, rows: Sequence[int], scope: Scope, reach: int, fingerprint: str = "") -> list[FactRow]:
        """The facts of some rows, in any order; unknown ones are left out. With a model, its vectors too."""
        condition, bindings = in_scope(scope)
        readable, allowed = may_read(scope)
        sides = [
            _BESIDE.format(readable=readable, sign=sign, way=way) if reach else "ARRAY[]::bigint[]"
            for sign, way in (("<", "DESC"), (">", "ASC"))
        ]
        beside = [*allowed, reach, *allowed, reach] if reach else []
        columns, join = ("vector, tokens", _BESIDE_FACTS) if fingerprint else ("NULL::bytea, NULL::bytea", "")
        statement = _FACTS.format(
            scope=condition, readable=readable, before=sides[0], after=sides[1], made=columns, beside=join
        )
        models = [fingerprint] if fingerprint else []
        values = [*bindings, *allowed, *beside, *models, self._owner, list(rows)]
        return [FactRow._make(row) for row in self._as_bytes(statement, values)]

    def speakers(self, scope: Scope) -> list[str]:
        """The names of those who speak in a scope."""
        condition, bindings = in_scope(scope)
        statement = f"SELECT DISTINCT speaker FROM versions WHERE owner = %s AND speaker IS NOT NULL AND {condition}"
        return [name for (name,) in self._transactions.all(statement, [self._owner, *bindings])]

    def rows_of_speaker(self, speakers: Sequence[str], scope: Scope, most: int) -> list[int]:
        """The newest rows of some speakers."""
        condition, bindings = in_scope(scope)
        statement = (
            f"SELECT row FROM versions WHERE owner = %s AND speaker = ANY(%s) AND {condition}"
            " ORDER BY coalesce(valid_from, created_at) DESC, row DESC LIMIT %s"
        )
        rows = self._transactions.all(statement, [self._owner, list(speakers), *bindings, most])
        return [row for (row,) in rows]

    def vectors(self, fingerprint: str, rows: Sequence[int]) -> dict[int, bytes]:
        """The sentence vectors of some rows; those without are left out."""
        return self._made("vector", fingerprint, rows)

    def tokens(self, fingerprint: str, rows: Sequence[int]) -> dict[int, bytes]:
        """The token vectors of some rows, as the store keeps them; those without are left out."""
        return self._made("tokens", fingerprint, rows)

    def _made(self, column: str, fingerprint: str, rows: Sequence[int]) -> dict[int, bytes]:
        bindings = [fingerprint, self._owner, list(rows)]
        return {row: bytes(made) for row, made in self._as_bytes(_MADE.format(column=column), bindings)}

    def _as_bytes(self, statement: str, bindings: list[Any]) -> list[Any]:
        """The rows of a query; as text, every byte of a vector would travel as two characters."""
        return self._transactions.read(
            lambda connection: connection.execute(statement, bindings, binary=True).fetchall()
        )
