"""The usual recipe of a hybrid search over Postgres, as public guides give it, over the rows of a store.

Every form fuses full-text search and pgvector by reciprocal ranks in one SQL statement; the driver prepares it. Guides
differ in what `Form` holds. Filters by owner and project are ours: a guide's table belongs to one application, or to
one user by row-level security. benchmarks/notebook/postgres.md names the guides.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import psycopg
from psycopg_pool import ConnectionPool

DEPTH = 100
RECIPE = """
DROP TABLE IF EXISTS recipe;
CREATE TABLE recipe (
    id bigint PRIMARY KEY, owner text NOT NULL, project text NOT NULL, tags text NOT NULL, created_at bigint NOT NULL,
    content text NOT NULL, embedding vector({size}),
    words tsvector GENERATED ALWAYS AS (to_tsvector('english', content)) STORED
);
INSERT INTO recipe (id, owner, project, tags, created_at, content, embedding)
SELECT v.row, v.owner, project, tags, created_at, content, e.embedding::vector({size}) FROM triskele.versions v
LEFT JOIN triskele.embeddings e ON e.owner = v.owner AND e.content_hash = v.content_hash;
CREATE INDEX ON recipe USING gin (words);
CREATE INDEX ON recipe USING gin (to_tsvector('english', content));
CREATE INDEX ON recipe USING hnsw (embedding vector_cosine_ops);
ANALYZE recipe;
"""
ASK_RECIPE = """
WITH by_words AS (
    SELECT id, row_number() OVER (ORDER BY ts_rank_cd({words}, asked) DESC) AS rank
    FROM recipe, {query} AS asked WHERE {words} @@ asked AND {where}
    ORDER BY rank LIMIT %(depth)s
), by_meaning AS (
    SELECT id, row_number() OVER (ORDER BY distance) AS rank FROM (
        SELECT id, embedding <=> %(vector)s::vector AS distance FROM recipe WHERE {where}
        ORDER BY embedding <=> %(vector)s::vector LIMIT %(depth)s) AS near
), fused AS (
    SELECT coalesce(w.id, m.id) AS id,
           coalesce(1.0 / (%(k)s + w.rank), 0) + coalesce(1.0 / (%(k)s + m.rank), 0) AS score
    FROM by_words w FULL OUTER JOIN by_meaning m ON m.id = w.id ORDER BY score DESC, 1 LIMIT %(limit)s
)
SELECT id, score, content, project, tags, created_at FROM fused JOIN recipe USING (id) ORDER BY score DESC, id
"""
_WEBSEARCH = "websearch_to_tsquery('english', %(text)s)"
_PLAIN = "plainto_tsquery('english', %(text)s)"
_ANY = "to_tsquery('english', %(any)s)"
_COLUMN, _EXPRESSION = "words", "to_tsvector('english', content)"


class Form(NamedTuple):
    """What guides differ in: the words of a query, a stored column or an expression, rows of each leg, and k.

    `is_tuned` sets what pgvector needs for so many rows; guides leave its list of 40.
    """

    query: str
    words: str = _COLUMN
    depth: int = DEPTH
    k: int = 60
    is_tuned: bool = False


# The first two rank as many rows of each leg as our own legs, so that quality can be compared; the guides' own follow.
FORMS = {
    "and": Form(_WEBSEARCH, is_tuned=True),
    "or": Form(_ANY, is_tuned=True),
    "supabase": Form(_WEBSEARCH, depth=20, k=50),
    "pgvector": Form(_PLAIN, _EXPRESSION, depth=20),
    "katz": Form(_PLAIN, _EXPRESSION, depth=40, k=50),
    "llama_index": Form(_ANY, depth=20),
}


def as_text(vector: Any) -> str:
    """A vector as pgvector reads it."""
    return "[" + ",".join(f"{number:.6g}" for number in vector.tolist()) + "]"


class Recipe:
    """The recipe over the same rows, as an application asks it: by a pool, in a transaction if it sets anything."""

    _SETTINGS = (
        "SELECT set_config('hnsw.iterative_scan', 'relaxed_order', true), set_config('hnsw.ef_search', '100', true),"
        " set_config('jit', 'off', true)"
    )

    def __init__(self, url: str, size: int) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(RECIPE.format(size=size))
        self._pool: ConnectionPool[Any] = ConnectionPool(url, min_size=1, kwargs={"autocommit": True}, open=True)

    def ask(
        self, kind: str, text: str, vector: Any, *, owner: str = "me", project: str | None = None, limit: int = DEPTH
    ) -> list[Any]:
        """Rows and scores, best first, with texts and labels."""
        form = FORMS[kind]
        where = "owner = %(owner)s" + ("" if project is None else " AND project = ANY(%(projects)s)")
        words = [word for word in "".join(c if c.isalnum() else " " for c in text).split() if word]
        bindings: dict[str, Any] = {"text": text, "any": " | ".join(words), "vector": as_text(vector), "owner": owner}
        bindings |= {"projects": [project, ""], "depth": form.depth, "k": form.k, "limit": limit}
        statement = ASK_RECIPE.format(query=form.query, words=form.words, where=where)
        with self._pool.connection() as connection:
            if not form.is_tuned:
                return connection.execute(statement, bindings).fetchall()
            with connection.transaction():
                connection.execute(self._SETTINGS)
                return connection.execute(statement, bindings).fetchall()

    def close(self) -> None:
        """Close the pool."""
        self._pool.close()
