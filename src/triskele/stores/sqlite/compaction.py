"""The steps that make an older store smaller, without its model; what they free is given back when it is opened."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import groupby
from typing import Any

import apsw

from triskele.stores.sentence_vectors import narrowed
from triskele.stores.sqlite.ownership import VECTORS, rebuild

# What a version mentions is one row, with the names by kind in JSON; its number is that of its last mention.
_READINGS = """
CREATE TABLE readings (
    mention INTEGER PRIMARY KEY AUTOINCREMENT, owner TEXT NOT NULL, row INTEGER NOT NULL, names TEXT NOT NULL
) STRICT;
CREATE INDEX reading_owner ON readings (owner);
CREATE INDEX reading_row ON readings (row);
"""
_VIEWS = """
CREATE VIEW mentions AS
SELECT readings.owner AS owner, readings.row AS row, said.value AS name, kinds.key AS kind
FROM readings, json_each(readings.names) AS kinds, json_each(kinds.value) AS said;
CREATE VIEW edges AS
SELECT versions.owner AS owner, versions.row AS row, subject.concept AS source, 'mentions' AS kind,
       other.concept AS target, 1.0 AS weight, versions.id AS evidence, versions.valid_from, versions.valid_to,
       versions.known_from, coalesce(versions.known_to, (
           SELECT min(links.known_from) FROM links
           WHERE links.owner = versions.owner AND links.target = versions.id AND links.kind = 'supersedes'
             AND links.known_to IS NULL
       )) AS known_to
FROM versions
JOIN mentions AS about ON about.row = versions.row
JOIN names AS subject ON subject.name = about.name
JOIN mentions AS said ON said.row = versions.row AND said.name <> about.name
JOIN names AS other ON other.name = said.name
WHERE about.kind IN ('title', 'lead') AND other.concept <> subject.concept;
"""
# Most names are a concept of their own and in few texts, and few begin alike; a content has few versions.
_INDEXES = """
DROP INDEX name_group;
CREATE INDEX name_group ON names (concept) WHERE concept <> name;
DROP INDEX name_spread;
CREATE INDEX name_spread ON names (spread) WHERE spread > 20;
DROP INDEX name_block;
CREATE INDEX name_block ON names (substr(block, 1, 8));
DROP INDEX current_content;
"""

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


def pack_mentions(connection: apsw.Connection, owner: str) -> None:  # noqa: ARG001 - rows keep theirs
    """One row for all mentions of a version instead of one for each, and indexes of what is asked for alone."""
    connection.execute("DROP VIEW edges")
    connection.execute(_READINGS)
    found: Any = connection.execute("SELECT row, owner, name, kind FROM mentions ORDER BY row, mention")
    for (row, theirs), mentions in groupby(found, key=lambda each: each[:2]):
        add_reading(connection, theirs, row, [(name, kind) for _, _, name, kind in mentions])
    connection.execute("DROP TABLE mentions")
    connection.execute(_VIEWS)
    connection.execute(_INDEXES)


def add_reading(connection: apsw.Connection, owner: str, row: int, mentions: Iterable[tuple[int, str]]) -> None:
    """Write what a version mentions, as (name, kind), without names that it is known to mention."""
    known = connection.execute("SELECT names FROM readings WHERE row = ?", [row]).fetchall()
    said = {name for (names,) in known for listed in json.loads(str(names)).values() for name in listed}
    fresh: dict[str, list[int]] = {}
    for name, kind in mentions:
        if name not in said:
            said.add(name)
            fresh.setdefault(kind, []).append(name)
    if fresh:
        connection.execute(
            "INSERT INTO readings SELECT coalesce(max(seq), 0) + ?, ?, ?, ? FROM sqlite_sequence"
            " WHERE name = 'readings'",
            [sum(map(len, fresh.values())), owner, row, json.dumps(fresh, separators=(",", ":"))],
        )


def give_back(connection: apsw.Connection) -> None:
    """Rewrite the file without its free pages if they are many and nothing is in the way.

    It waits for nobody; what is left is given back at a later opening, or filled by what is written next.
    """
    if connection.pragma("freelist_count") <= _MOST_FREE * connection.pragma("page_count"):
        return
    timeout_ms = connection.pragma("busy_timeout")
    connection.set_busy_timeout(0)
    try:
        connection.execute("VACUUM")
        # All of the new file is in the log.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except apsw.Error:
        # Another process uses the file, the disk is full, or a page is damaged: none of it keeps a store from opening.
        return
    finally:
        connection.set_busy_timeout(timeout_ms)
