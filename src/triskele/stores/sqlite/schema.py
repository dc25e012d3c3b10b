"""The SQLite schema as a list of forward steps; the file carries the number of the last one taken.

In the first six, those of 0.1.0, most rows have no owner; the later ones (ownership.py) give every row one.
"""

from __future__ import annotations

from collections.abc import Callable

import apsw

from triskele.errors import StoreDamaged, StoreNewer, StoreUnavailable
from triskele.stores.sqlite import compaction, ownership

# "trsk": distinguishes triskele's files from other SQLite databases.
APPLICATION_ID = 0x7472736B

_FOUNDATION = """
CREATE TABLE versions (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL, version INTEGER NOT NULL, content TEXT NOT NULL, category TEXT NOT NULL,
    tags TEXT NOT NULL, keywords TEXT NOT NULL, importance REAL NOT NULL, sensitivity TEXT NOT NULL,
    owner TEXT NOT NULL, project TEXT NOT NULL, origin TEXT NOT NULL, session TEXT, position INTEGER,
    created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, valid_from INTEGER, valid_to INTEGER,
    known_from INTEGER NOT NULL, known_to INTEGER, content_hash TEXT NOT NULL, row_hash TEXT NOT NULL,
    UNIQUE (id, version)
) STRICT;
CREATE UNIQUE INDEX current_version ON versions (id) WHERE known_to IS NULL;
CREATE INDEX current_content ON versions (content_hash) WHERE known_to IS NULL;
CREATE INDEX current_place ON versions (owner, project, updated_at) WHERE known_to IS NULL;
CREATE INDEX conversation ON versions (session, position) WHERE session IS NOT NULL;

CREATE TABLE links (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    source TEXT NOT NULL, kind TEXT NOT NULL, target TEXT NOT NULL,
    known_from INTEGER NOT NULL, known_to INTEGER, row_hash TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX standing_link ON links (source, kind, target) WHERE known_to IS NULL;
CREATE INDEX link_target ON links (target);

CREATE TABLE journal (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL, action TEXT NOT NULL, id TEXT NOT NULL, version INTEGER, previous INTEGER,
    link_kind TEXT, other TEXT, batch TEXT NOT NULL, undoes INTEGER, row_hash TEXT NOT NULL
) STRICT;
CREATE INDEX journal_memory ON journal (id);
CREATE INDEX journal_batch ON journal (batch);
CREATE TRIGGER journal_keeps_lines BEFORE DELETE ON journal
BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER journal_keeps_words BEFORE UPDATE ON journal
BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;

CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
INSERT INTO meta VALUES ('lineage', lower(hex(randomblob(8))));
"""

_MEANING = """
CREATE TABLE vectors (
    slot INTEGER PRIMARY KEY AUTOINCREMENT,
    content_hash TEXT NOT NULL, fingerprint TEXT NOT NULL, vector BLOB NOT NULL,
    UNIQUE (fingerprint, content_hash)
) STRICT;
CREATE TABLE pending (content_hash TEXT NOT NULL UNIQUE) STRICT;
CREATE INDEX version_content ON versions (content_hash);
INSERT INTO pending SELECT DISTINCT content_hash FROM versions;
"""

_SHELF = """
CREATE TABLE shelf (
    kind TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, about TEXT NOT NULL, row_hash TEXT NOT NULL,
    PRIMARY KEY (kind, key)
) STRICT, WITHOUT ROWID;
"""

_NAMES = """
CREATE TABLE names (
    name INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT NOT NULL, key TEXT NOT NULL, block TEXT NOT NULL, text TEXT NOT NULL, any_case INTEGER NOT NULL,
    spread INTEGER NOT NULL, concept INTEGER NOT NULL,
    UNIQUE (owner, key)
) STRICT;
CREATE INDEX name_group ON names (concept);
CREATE INDEX name_block ON names (owner, block);
CREATE INDEX name_spread ON names (spread);
CREATE TABLE mentions (
    mention INTEGER PRIMARY KEY AUTOINCREMENT,
    row INTEGER NOT NULL, name INTEGER NOT NULL, kind TEXT NOT NULL,
    UNIQUE (row, name)
) STRICT;
CREATE INDEX mention_name ON mentions (name);
CREATE TABLE merges (
    merge INTEGER PRIMARY KEY AUTOINCREMENT,
    name INTEGER NOT NULL, before INTEGER NOT NULL, after INTEGER NOT NULL, reason TEXT NOT NULL, at INTEGER NOT NULL
) STRICT;
CREATE VIEW edges AS
SELECT subject.concept AS source, 'mentions' AS kind, other.concept AS target, 1.0 AS weight, versions.id AS evidence,
       versions.valid_from, versions.valid_to, versions.known_from,
       coalesce(versions.known_to, (
           SELECT min(links.known_from) FROM links
           WHERE links.target = versions.id AND links.kind = 'supersedes' AND links.known_to IS NULL
       )) AS known_to
FROM mentions AS about
JOIN names AS subject ON subject.name = about.name
JOIN mentions AS said ON said.row = about.row AND said.name <> about.name
JOIN names AS other ON other.name = said.name
JOIN versions ON versions.row = about.row
WHERE about.kind IN ('title', 'lead') AND other.concept <> subject.concept;
"""

_SECRETS = """
CREATE TABLE secrets (
    id TEXT NOT NULL, version INTEGER NOT NULL, sealed_as INTEGER NOT NULL, sealed BLOB NOT NULL,
    row_hash TEXT NOT NULL,
    PRIMARY KEY (id, version)
) STRICT, WITHOUT ROWID;
"""

_USES = """
CREATE TABLE uses (
    id TEXT PRIMARY KEY, recalled INTEGER NOT NULL, injected INTEGER NOT NULL, tokens INTEGER NOT NULL,
    last INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE use_days (
    day TEXT PRIMARY KEY, recalled INTEGER NOT NULL, injected INTEGER NOT NULL, tokens INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE conversations (
    conversation TEXT PRIMARY KEY, at INTEGER NOT NULL, ended INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE given (
    conversation TEXT NOT NULL REFERENCES conversations ON DELETE CASCADE, id TEXT NOT NULL,
    content_hash TEXT NOT NULL, at INTEGER NOT NULL, lost INTEGER NOT NULL,
    PRIMARY KEY (conversation, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE echoes (print TEXT NOT NULL, id TEXT NOT NULL, PRIMARY KEY (print, id)) STRICT, WITHOUT ROWID;
"""

# The values of older rows stay as they are, and so do their hashes.
_SPEAKERS = """
ALTER TABLE versions ADD COLUMN speaker TEXT;
ALTER TABLE versions ADD COLUMN role TEXT;
"""

_PLACES = """
CREATE TABLE places (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT NOT NULL, key TEXT NOT NULL, project TEXT NOT NULL, at INTEGER NOT NULL, row_hash TEXT NOT NULL,
    UNIQUE (owner, key)
) STRICT;
"""

_CONVERSATIONS = """
ALTER TABLE conversations ADD COLUMN client TEXT NOT NULL DEFAULT '';
ALTER TABLE conversations ADD COLUMN project TEXT NOT NULL DEFAULT '';
ALTER TABLE conversations ADD COLUMN tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE given ADD COLUMN tokens INTEGER NOT NULL DEFAULT 0;
"""

# A step is SQL, or a function of the connection and of the owner whom rows without another one go to.
Step = str | Callable[[apsw.Connection, str], None]

MIGRATIONS: tuple[Step, ...] = (
    _FOUNDATION,
    _MEANING,
    _SHELF,
    _NAMES,
    _SECRETS,
    _USES,
    ownership.own_truth,
    ownership.own_documents,
    ownership.own_versions,
    ownership.own_names,
    _SPEAKERS,
    _PLACES,
    _CONVERSATIONS,
    compaction.narrow_vectors,
    compaction.pack_mentions,
)


def migrate(connection: apsw.Connection, owner: str) -> None:
    """Bring a new or older file up to this version, step by step; refuse a newer or foreign one."""
    refuse_foreign(connection)
    while (version := connection.pragma("user_version")) < len(MIGRATIONS):
        # Each step is a separate transaction, so that after a crash the next opening continues there;
        # a new file, which has nothing to lose, takes all at once.
        until = version + 1 if version else len(MIGRATIONS)
        connection.execute("BEGIN IMMEDIATE")
        try:
            for step in MIGRATIONS[version:until]:
                _take(step, connection, owner)
            connection.pragma("user_version", until)
            connection.pragma("application_id", APPLICATION_ID)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _take(step: Step, connection: apsw.Connection, owner: str) -> None:
    if isinstance(step, str):
        connection.execute(step)
    else:
        step(connection, owner)


def refuse_foreign(connection: apsw.Connection) -> None:
    """Raise if the file is a newer triskele's or another program's."""
    _refuse_newer(connection)
    if not is_empty(connection) and connection.pragma("application_id") != APPLICATION_ID:
        if _has_our_tables(connection):
            raise StoreDamaged("the header of the database is damaged: run `triskele restore FILE` with a backup")
        raise StoreUnavailable("the file is a database, but not one of triskele's")


def _has_our_tables(connection: apsw.Connection) -> bool:
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    return {"versions", "links", "journal", "meta"} <= tables


def refuse_other_format(connection: apsw.Connection) -> None:
    """Raise if an open file has not the format of this version, because another triskele changed it meanwhile."""
    _refuse_newer(connection)
    version = connection.pragma("user_version")
    if version < len(MIGRATIONS):
        raise StoreUnavailable(
            f"an older triskele replaced the store (format {version}, this one writes {len(MIGRATIONS)}):"
            " start triskele again"
        )


def is_empty(connection: apsw.Connection) -> bool:
    """Whether nothing was ever created in the file."""
    return bool(connection.execute("SELECT count(*) FROM sqlite_schema").get == 0)


def _refuse_newer(connection: apsw.Connection) -> None:
    version = connection.pragma("user_version")
    if version > len(MIGRATIONS):
        raise StoreNewer(
            f"the store was written by a newer triskele (format {version}, this one knows {len(MIGRATIONS)}):"
            " upgrade triskele"
        )
