"""What erasing and sealing delete: every row that holds anything of a memory goes, then the tables are vacuumed."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg

from triskele.errors import StoreUnavailable
from triskele.server.postgres import postings, vectors
from triskele.server.postgres.connections import Connection, Connections, OwnerTransactions
from triskele.server.postgres.documents import delete_about
from triskele.server.postgres.migrations import EMBEDDINGS, ERASURES, SCHEMA
from triskele.server.postgres.names import drop_unused_names

# The name of the mark of an owner whose erased rows may still be in the tables.
UNSCRUBBED = "unscrubbed"
# The tables that can hold words of a memory, or what was made of them.
_TABLES = (
    *("versions", "secrets", "documents", "vectors", "names", "mentions", "usage_counts", "given", "echoes"),
    *("postings", "terms", "term_lengths"),
)


def delete(connection: Connection, owner: str, ids: Sequence[str]) -> None:
    """Delete the rows of some memories, and those that name them; `drop_unused` deletes what was derived."""
    delete_links(connection, owner, list(ids))
    delete_memories(connection, owner, list(ids))


def delete_links(connection: Connection, owner: str, ids: list[str]) -> None:
    """Delete the links from and to some memories."""
    connection.execute(
        "DELETE FROM links WHERE owner = %s AND (source = ANY(%s) OR target = ANY(%s))", [owner, ids, ids]
    )


def delete_memories(connection: Connection, owner: str, ids: list[str]) -> None:
    """Delete the versions of some memories, their sealed texts, their usage and the documents about them."""
    postings.remove(connection, owner, ids)
    for table in ("versions", "secrets", "usage_counts", "given", "echoes"):
        connection.execute(f"DELETE FROM {table} WHERE owner = %s AND id = ANY(%s)", [owner, ids])
    delete_about(connection, owner, ids)


def drop_unused(connection: Connection, owner: str) -> None:
    """Delete vectors, jobs and names that no version has any more."""
    vectors.drop_unused(connection, owner)
    drop_unused_names(connection, owner)


def mark(connection: Connection, owner: str) -> None:
    """Remember that deleted rows of an owner may still be in the tables, and in files of other instances."""
    connection.execute("INSERT INTO marks VALUES (%s, %s, '') ON CONFLICT DO NOTHING", [owner, UNSCRUBBED])
    begin_epoch(connection, owner)


def begin_epoch(connection: Connection, owner: str) -> None:
    """Make every instance rebuild the index files of an owner: they may contain erased texts."""
    connection.execute(
        "INSERT INTO marks AS known VALUES (%s, %s, '1')"
        " ON CONFLICT (owner, name) DO UPDATE SET value = known.value::bigint + 1",
        [owner, ERASURES],
    )


def vacuum(transactions: OwnerTransactions, done: str) -> None:
    """Take deleted rows out of the tables; the change is committed, whatever happens here."""
    try:
        vacuum_tables(transactions.connections)
        with transactions.writing() as connection:
            connection.execute("DELETE FROM marks WHERE owner = %s AND name = %s", [transactions.owner, UNSCRUBBED])
    except (psycopg.Error, StoreUnavailable) as error:
        raise StoreUnavailable(
            f"{done}, but the deleted rows are still in the tables ({error}): run `triskele doctor`"
        ) from error


def vacuum_tables(connections: Connections, *, full: bool = False) -> None:
    """Vacuum every table that holds words; `full` rewrites them, and locks each while it runs."""
    with connections.direct() as connection:
        has_embeddings = connection.execute("SELECT to_regclass(%s)", [f"{SCHEMA}.{EMBEDDINGS}"]).fetchone() != (None,)
        for table in (*_TABLES, *([EMBEDDINGS] if has_embeddings else [])):
            connection.execute(f"VACUUM {'FULL ' if full else ''}{SCHEMA}.{table}")
