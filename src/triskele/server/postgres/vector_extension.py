"""pgvector in a database: which version there is, and the table and HNSW index that the database corpus needs of it.

The table is no step of the migrations: the extension may be installed later, or never.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import psycopg

from triskele.server.postgres.connections import Connection, Connections, explain
from triskele.server.postgres.migrations import APP_ROLE, EMBEDDINGS, SCHEMA, secured
from triskele.text.ids import content_hash

EXTENSION = "vector"
LEAST, SOUND = (0, 8), (0, 8, 3)
# HNSW indexes no longer half-precision vectors.
_MOST_DIMENSIONS = 4000
_BUILD = "m = 16, ef_construction = 64"
_INSTALLED = (
    "SELECT extversion, nspname FROM pg_extension JOIN pg_namespace ON pg_namespace.oid = extnamespace"
    " WHERE extname = %s"
)
# The vector is null if that of the model is invalid.
_TABLE = """
CREATE TABLE {table} (
    owner text COLLATE "C" NOT NULL, fingerprint text COLLATE "C" NOT NULL, content_hash text COLLATE "C" NOT NULL,
    slot bigint NOT NULL, embedding {schema}.halfvec,
    PRIMARY KEY (owner, fingerprint, content_hash), UNIQUE (owner, slot),
    FOREIGN KEY (owner, slot) REFERENCES vectors (owner, slot) ON DELETE CASCADE
);
"""


@dataclass(frozen=True, slots=True)
class VectorExtension:
    """pgvector as it was found: its schema, why it cannot be used, and a warning if it can."""

    schema: str = ""
    problem: str = ""
    warning: str = ""


def install(connections: Connections) -> VectorExtension:
    """Find pgvector, or add it to the database; it is not used if it is too old."""
    with explain(connections.address), connections.direct() as connection:
        row = connection.execute(_INSTALLED, [EXTENSION]).fetchone()
        if row is None:
            try:
                connection.execute(f"CREATE EXTENSION IF NOT EXISTS {EXTENSION}")
            except psycopg.Error as error:
                reason = error.diag.message_primary or str(error)
                return VectorExtension(problem=f"pgvector is not installed in the database ({reason})")
            row = connection.execute(_INSTALLED, [EXTENSION]).fetchone()
    assert row is not None
    return judge(str(row[0]), str(row[1]))


def judge(version: str, schema: str) -> VectorExtension:
    """Whether a version of pgvector can be used."""
    numbers = tuple(map(int, re.findall(r"\d+", version)))
    advice = "upgrade it, then run ALTER EXTENSION vector UPDATE"
    if numbers < LEAST:
        problem = f"pgvector {version} has no iterative scans, 0.8 or later is needed: {advice}"
        return VectorExtension(schema, problem)
    warning = f"pgvector {version} can damage an HNSW index in a vacuum, 0.8.3 fixes this: {advice}"
    return VectorExtension(schema, warning="" if numbers >= SOUND else warning)


def prepare(connections: Connections, extension: VectorExtension, fingerprint: str, dimensions: int) -> None:
    """Make the table of embeddings and the index of one model's, unless they are there."""
    with explain(connections.address), connections.direct() as connection:
        if not _exists(connection, EMBEDDINGS):
            _make_table(connection, extension, connections.role)
        if dimensions <= _MOST_DIMENSIONS:
            _make_index(connection, extension, fingerprint, dimensions)


def _make_table(connection: Connection, extension: VectorExtension, role: str) -> None:
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('triskele migration', 0))")
        if _exists(connection, EMBEDDINGS):
            return
        connection.execute("SELECT set_config('search_path', %s, true)", [f"{SCHEMA}, public"])
        connection.execute(_TABLE.format(table=EMBEDDINGS, schema=extension.schema) + secured(EMBEDDINGS))
        if role == APP_ROLE:
            connection.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {EMBEDDINGS} TO {APP_ROLE}")


def _make_index(connection: Connection, extension: VectorExtension, fingerprint: str, dimensions: int) -> None:
    """Without blocking writers; an index whose making was cut short is made again."""
    name = f"embedding_{content_hash(fingerprint)[:12]}"
    if _exists(connection, name, "indisvalid"):
        return
    # This is not the lock of migrations and does not block: the statement below waits for every running transaction.
    [taken] = connection.execute("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", [name]).fetchone() or [False]
    # Another process may have made it before this one took the lock.
    if not taken or _exists(connection, name, "indisvalid"):
        return
    connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {SCHEMA}.{name}")
    connection.execute(
        psycopg.sql.SQL(
            f"CREATE INDEX CONCURRENTLY {name} ON {SCHEMA}.{EMBEDDINGS} USING hnsw"
            f" ((embedding::{extension.schema}.halfvec({dimensions})) {extension.schema}.halfvec_cosine_ops)"
            f" WITH ({_BUILD}) WHERE fingerprint = {{}}"
        ).format(psycopg.sql.Literal(fingerprint))
    )


def _exists(connection: Connection, name: str, condition: str = "true") -> bool:
    """Whether there is a table or index that meets a condition."""
    source = "pg_class LEFT JOIN pg_index ON indexrelid = pg_class.oid"
    sql = f"SELECT 1 FROM {source} WHERE pg_class.oid = to_regclass(%s) AND {condition}"
    return connection.execute(sql, [f"{SCHEMA}.{name}"]).fetchone() is not None
