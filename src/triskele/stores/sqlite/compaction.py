"""The steps that make an older store smaller, without its model; what they free is given back when it is opened."""

from __future__ import annotations

from typing import Any

import apsw

from triskele.stores.sentence_vectors import narrowed
from triskele.stores.sqlite.ownership import VECTORS, rebuild

# A store with more free pages than this part of it is rewritten without them.
_MOST_FREE = 1 / 4


def narrow_vectors(connection: apsw.Connection, owner: str) -> None:  # noqa: ARG001 - rows keep theirs
    """Sentence vectors with a byte per dimension instead of four."""

    def narrow(*bound: Any) -> bytes:
        return narrowed(*bound)

    connection.create_scalar_function("narrowed", narrow, 1, deterministic=True)
    # In another table: rows that become smaller in place leave holes in every page.
    select = "SELECT slot, owner, content_hash, fingerprint, narrowed(vector) FROM vectors"
    rebuild(connection, "vectors", VECTORS, select)
    connection.execute("CREATE INDEX vector_model ON vectors (owner, fingerprint)")


def give_back(connection: apsw.Connection) -> None:
    """Rewrite the file without its free pages if they are many; where that fails, what is written next fills them."""
    if connection.pragma("freelist_count") > _MOST_FREE * connection.pragma("page_count"):
        try:
            connection.execute("VACUUM")
            # All of the new file is in the log.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except (apsw.BusyError, apsw.LockedError, apsw.FullError, apsw.IOError):
            return
