"""Write the words and vectors of versions for the corpus inside the database, and remove them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from triskele.server.postgres.connections import Connection
from triskele.server.postgres.migrations import EMBEDDINGS
from triskele.store.corpus_protocol import WordCounts
from triskele.store.rows import VERSION_COLUMNS, to_memory
from triskele.types import Memory

_MOST_COUNTED = 2**15 - 1
_POSTINGS = """
INSERT INTO postings (owner, term, row, content, labels, content_norm, label_norm)
SELECT %s, * FROM unnest(%s::text[], %s::bigint[], %s::smallint[], %s::smallint[], %s::int[], %s::int[])
"""
_TERMS = """
INSERT INTO terms AS known (owner, term, content, labels)
SELECT %s, * FROM unnest(%s::text[], %s::bigint[], %s::bigint[])
ON CONFLICT (owner, term) DO UPDATE
SET content = known.content + excluded.content, labels = known.labels + excluded.labels
"""
_ROWS = "SELECT row FROM versions WHERE owner = %(owner)s AND id = ANY(%(ids)s)"
_REMOVE_POSTINGS = f"""
WITH gone AS (DELETE FROM postings WHERE owner = %(owner)s AND row IN ({_ROWS}) RETURNING term, content, labels),
     lost AS (SELECT term, count(*) FILTER (WHERE content > 0) AS content, count(*) FILTER (WHERE labels > 0) AS labels
              FROM gone GROUP BY term)
UPDATE terms SET content = terms.content - lost.content, labels = terms.labels - lost.labels
FROM lost WHERE terms.owner = %(owner)s AND terms.term = lost.term
"""
_REMOVE_LENGTHS = f"""
WITH gone AS (DELETE FROM term_lengths WHERE owner = %(owner)s AND row IN ({_ROWS}) RETURNING content, labels),
     lost AS (SELECT count(*) AS documents, coalesce(sum(content), 0) AS content, coalesce(sum(labels), 0) AS labels
              FROM gone)
UPDATE corpora SET documents = corpora.documents - lost.documents, content = corpora.content - lost.content,
                   labels = corpora.labels - lost.labels
FROM lost WHERE corpora.owner = %(owner)s
"""


def index_versions(
    connection: Connection, owner: str, analyzer: str, count: Callable[[Memory], WordCounts], limit: int
) -> int:
    """Write the words of the versions past the last one, in the transaction of the caller."""
    last = _begin(connection, owner, analyzer)
    rows = connection.execute(
        f"SELECT row, {VERSION_COLUMNS} FROM versions WHERE owner = %s AND row > %s ORDER BY row LIMIT %s",
        [owner, last, limit],
    ).fetchall()
    if rows:
        _write(connection, owner, {int(row[0]): count(to_memory(row[1:])) for row in rows})
    return len(rows)


def _begin(connection: Connection, owner: str, analyzer: str) -> int:
    """The row up to which the words are written; 0 after the words of another analyzer were deleted."""
    row = connection.execute("SELECT analyzer, row FROM corpora WHERE owner = %s", [owner]).fetchone()
    if row is not None and row[0] == analyzer:
        return int(row[1])
    for table in ("postings", "terms", "term_lengths", "corpora"):
        connection.execute(f"DELETE FROM {table} WHERE owner = %s", [owner])
    connection.execute("INSERT INTO corpora VALUES (%s, %s, 0, 0, 0, 0)", [owner, analyzer])
    return 0


def _write(connection: Connection, owner: str, counted: Mapping[int, WordCounts]) -> None:
    postings = [
        (term, row, *(min(number, _MOST_COUNTED) for number in numbers), *words.norms)
        for row, words in counted.items()
        for term, numbers in words.terms.items()
    ]
    if postings:
        # In the order of the index: neighbours go to the same page.
        columns = zip(*sorted(postings), strict=True)
        connection.execute(_POSTINGS, [owner, *map(list, columns)])
    in_content = Counter(term for term, _, content, *_ in postings if content)
    in_labels = Counter(term for term, _, _, labels, *_ in postings if labels)
    terms = sorted({str(term) for term, *_ in postings})
    frequencies = [[counts[term] for term in terms] for counts in (in_content, in_labels)]
    connection.execute(_TERMS, [owner, terms, *frequencies])
    lengths = [(row, *words.lengths) for row, words in counted.items()]
    connection.execute(
        "INSERT INTO term_lengths SELECT %s, * FROM unnest(%s::bigint[], %s::int[], %s::int[])",
        [owner, *map(list, zip(*lengths, strict=True))],
    )
    total = [len(lengths), sum(content for _, content, _ in lengths), sum(labels for _, _, labels in lengths)]
    connection.execute(
        "UPDATE corpora SET row = %s, documents = documents + %s, content = content + %s, labels = labels + %s"
        " WHERE owner = %s",
        [max(counted), *total, owner],
    )


def index_vectors(
    connection: Connection,
    owner: str,
    fingerprint: str,
    convert: Callable[[bytes], str | None],
    schema: str,
    limit: int,
) -> int:
    """Write a model's vectors past the last one as half-precision vectors, in the transaction of the caller."""
    rows = connection.execute(
        "SELECT slot, content_hash, vector FROM vectors WHERE owner = %(owner)s AND fingerprint = %(model)s"
        f" AND vector IS NOT NULL AND slot > (SELECT coalesce(max(slot), 0) FROM {EMBEDDINGS}"
        " WHERE owner = %(owner)s AND fingerprint = %(model)s) ORDER BY slot LIMIT %(limit)s",
        {"owner": owner, "model": fingerprint, "limit": limit},
    ).fetchall()
    embeddings = [[slot, digest, convert(vector)] for slot, digest, vector in rows]
    if embeddings:
        connection.execute(
            f"INSERT INTO {EMBEDDINGS} (owner, fingerprint, slot, content_hash, embedding)"
            f" SELECT %s, %s, slot, digest, embedding::{schema}.halfvec"
            " FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS made (slot, digest, embedding)"
            " ON CONFLICT DO NOTHING",
            [owner, fingerprint, *map(list, zip(*embeddings, strict=True))],
        )
    return len(embeddings)


def remove(connection: Connection, owner: str, ids: Sequence[str]) -> None:
    """Delete the words of every version of some memories, while these are still there; vectors go with theirs."""
    bindings = {"owner": owner, "ids": list(ids)}
    connection.execute(_REMOVE_POSTINGS, bindings)
    connection.execute("DELETE FROM terms WHERE owner = %(owner)s AND content <= 0 AND labels <= 0", bindings)
    connection.execute(_REMOVE_LENGTHS, bindings)
