"""Erasing and sealing: every row that holds anything of a memory goes, then the tables are vacuumed."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg

from triskele.errors import Conflict, NotFound, StoreUnavailable
from triskele.stores.postgres import postings, sealed_texts, vector_rows
from triskele.stores.postgres.connections import Connection, Connections, OwnerTransactions
from triskele.stores.postgres.document_rows import delete_about
from triskele.stores.postgres.entity_rows import drop_unused_names
from triskele.stores.postgres.migrations import EMBEDDINGS, ERASURES, SCHEMA
from triskele.stores.postgres.writer import PostgresWriter, insert_version
from triskele.types import Memory, Outcome, Sealed

# The name of the mark of an owner whose erased rows may still be in the tables.
UNSCRUBBED = "unscrubbed"
# The tables that can hold words of a memory, or what was made of them.
_TABLES = (
    *("versions", "secrets", "documents", "vectors", "names", "mentions", "usage_counts", "given", "echoes"),
    *("postings", "terms", "term_lengths"),
)


def erase(writer: PostgresWriter, ids: Sequence[str]) -> list[Outcome]:
    """Delete every row that holds anything of these memories; the journal keeps only their ids."""
    connection, owner = writer.connection, writer.owner
    mark(connection, owner)
    outcomes = []
    for id in dict.fromkeys(ids):
        latest = writer.latest(id)
        delete(connection, owner, [id])
        outcomes.append(writer.note_erased(latest))
    drop_unused(connection, owner)
    return outcomes


def delete(connection: Connection, owner: str, ids: Sequence[str]) -> None:
    """Delete the rows of some memories, and those that name them; `drop_unused` deletes what was derived."""
    listed = list(ids)
    connection.execute(
        "DELETE FROM links WHERE owner = %s AND (source = ANY(%s) OR target = ANY(%s))", [owner, listed, listed]
    )
    _delete(connection, owner, listed)


def drop_unused(connection: Connection, owner: str) -> None:
    """Delete vectors, jobs and names that no version has any more."""
    vector_rows.drop_unused(connection, owner)
    drop_unused_names(connection, owner)


def seal(writer: PostgresWriter, versions: Sequence[tuple[Memory, Sealed]]) -> Outcome:
    """Replace every version of a memory by its title and sealed text; what was derived from the text goes."""
    last, connection = versions[-1][0], writer.connection
    for memory, _ in versions:
        writer.refuse_foreign(memory)
    sql = "SELECT version FROM versions WHERE owner = %s AND id = %s ORDER BY version"
    there = [version for (version,) in connection.execute(sql, [writer.owner, last.id]).fetchall()]
    if not there:
        raise NotFound(f"no memory {last.id}")
    if there != [memory.version for memory, _ in versions]:
        raise Conflict(f"memory {last.id} was changed meanwhile: try again")
    mark(connection, writer.owner)
    _delete(connection, writer.owner, [last.id])
    # An erasure makes every index start over, also those of other instances.
    writer.note_erased(last)
    for memory, sealed in versions:
        insert_version(connection, memory)
        sealed_texts.keep(connection, memory, sealed)
    drop_unused(connection, writer.owner)
    return writer.note_sealed(last)


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


def _delete(connection: Connection, owner: str, ids: list[str]) -> None:
    postings.remove(connection, owner, ids)
    for table in ("versions", "secrets", "usage_counts", "given", "echoes"):
        connection.execute(f"DELETE FROM {table} WHERE owner = %s AND id = ANY(%s)", [owner, ids])
    delete_about(connection, owner, ids)
