"""The SQLite schema: one script, which a new file runs once."""

from __future__ import annotations

from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

import apsw

from triskele.errors import BEFORE_RELEASE, StoreDamaged, StoreNewer, StoreOlder, StoreUnavailable

# "trs1": distinguishes triskele's files from other SQLite databases. Files from before the first release have "trsk":
# their `user_version`, 1 to 15, may equal that of a format of today.
APPLICATION_ID, OLD_APPLICATION_ID = 0x74727331, 0x7472736B
# The `user_version` of a file.
FORMAT = 1
# Where the application id is in a database file.
_ID_BYTES = slice(68, 72)

_TRUTH = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
INSERT INTO meta VALUES ('epoch', lower(hex(randomblob(8))));

CREATE TABLE versions (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL, version INTEGER NOT NULL, content TEXT NOT NULL, category TEXT NOT NULL,
    tags TEXT NOT NULL, keywords TEXT NOT NULL, importance REAL NOT NULL, sensitivity TEXT NOT NULL,
    owner TEXT NOT NULL, project TEXT NOT NULL, origin TEXT NOT NULL, session TEXT, position INTEGER,
    created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, valid_from INTEGER, valid_to INTEGER,
    known_from INTEGER NOT NULL, known_to INTEGER, content_hash TEXT NOT NULL, speaker TEXT, role TEXT,
    row_hash TEXT NOT NULL,
    UNIQUE (owner, id, version)
) STRICT;
CREATE UNIQUE INDEX current_version ON versions (owner, id) WHERE known_to IS NULL;
CREATE INDEX current_place ON versions (owner, project, updated_at) WHERE known_to IS NULL;
CREATE INDEX version_content ON versions (owner, content_hash);

CREATE TABLE links (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT NOT NULL, source TEXT NOT NULL, kind TEXT NOT NULL, target TEXT NOT NULL,
    known_from INTEGER NOT NULL, known_to INTEGER, row_hash TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX standing_link ON links (owner, source, kind, target) WHERE known_to IS NULL;
CREATE INDEX link_source ON links (owner, source);
CREATE INDEX link_target ON links (owner, target);

CREATE TABLE journal (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT NOT NULL, at INTEGER NOT NULL, action TEXT NOT NULL, id TEXT NOT NULL, version INTEGER,
    previous INTEGER, link_kind TEXT, other TEXT, batch TEXT NOT NULL, undoes INTEGER, actor TEXT NOT NULL,
    row_hash TEXT NOT NULL
) STRICT;
CREATE INDEX journal_owner ON journal (owner);
CREATE INDEX journal_memory ON journal (owner, id);
CREATE INDEX journal_batch ON journal (owner, batch);
CREATE TRIGGER journal_keeps_lines BEFORE DELETE ON journal
BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER journal_keeps_words BEFORE UPDATE ON journal
BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;

CREATE TABLE secrets (
    owner TEXT NOT NULL, id TEXT NOT NULL, version INTEGER NOT NULL, sealed_as INTEGER NOT NULL,
    sealed BLOB NOT NULL, row_hash TEXT NOT NULL,
    PRIMARY KEY (owner, id, version)
) STRICT, WITHOUT ROWID;
CREATE TABLE documents (
    owner TEXT NOT NULL, kind TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, about TEXT NOT NULL,
    row_hash TEXT NOT NULL,
    PRIMARY KEY (owner, kind, key)
) STRICT, WITHOUT ROWID;
CREATE TABLE places (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT NOT NULL, key TEXT NOT NULL, project TEXT NOT NULL, at INTEGER NOT NULL, row_hash TEXT NOT NULL,
    UNIQUE (owner, key)
) STRICT;
"""

_USAGE = """
CREATE TABLE usage_counts (
    owner TEXT NOT NULL, id TEXT NOT NULL, recalled INTEGER NOT NULL, injected INTEGER NOT NULL,
    tokens INTEGER NOT NULL, last INTEGER NOT NULL,
    PRIMARY KEY (owner, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE usage_days (
    owner TEXT NOT NULL, day TEXT NOT NULL, recalled INTEGER NOT NULL, injected INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    PRIMARY KEY (owner, day)
) STRICT, WITHOUT ROWID;
CREATE TABLE conversations (
    owner TEXT NOT NULL, conversation TEXT NOT NULL, at INTEGER NOT NULL, ended INTEGER NOT NULL,
    client TEXT NOT NULL, project TEXT NOT NULL, tokens INTEGER NOT NULL,
    PRIMARY KEY (owner, conversation)
) STRICT, WITHOUT ROWID;
CREATE TABLE given (
    owner TEXT NOT NULL, conversation TEXT NOT NULL, id TEXT NOT NULL, content_hash TEXT NOT NULL,
    at INTEGER NOT NULL, lost INTEGER NOT NULL, tokens INTEGER NOT NULL,
    PRIMARY KEY (owner, conversation, id),
    FOREIGN KEY (owner, conversation) REFERENCES conversations (owner, conversation) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
CREATE TABLE echoes (
    owner TEXT NOT NULL, print TEXT NOT NULL, id TEXT NOT NULL, PRIMARY KEY (owner, print, id)
) STRICT, WITHOUT ROWID;
"""

# What a version mentions is one row of `readings`, its names by kind in JSON; its number is that of its last mention.
# Most names are a concept of their own and in few texts, and few begin alike: the indexes of names hold the others.
_DERIVED = """
CREATE TABLE vectors (
    slot INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT NOT NULL, content_hash TEXT NOT NULL, fingerprint TEXT NOT NULL, vector BLOB NOT NULL,
    UNIQUE (owner, fingerprint, content_hash)
) STRICT;
CREATE INDEX vector_model ON vectors (owner, fingerprint);
CREATE TABLE jobs (
    job INTEGER PRIMARY KEY,
    owner TEXT NOT NULL, kind TEXT NOT NULL, key TEXT NOT NULL, lease INTEGER NOT NULL DEFAULT 0,
    tries INTEGER NOT NULL DEFAULT 0, error TEXT NOT NULL DEFAULT '',
    UNIQUE (owner, kind, key)
) STRICT;
CREATE INDEX job_order ON jobs (owner, kind);
CREATE TABLE marks (
    owner TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (owner, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE names (
    name INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT NOT NULL, key TEXT NOT NULL, block TEXT NOT NULL, text TEXT NOT NULL, any_case INTEGER NOT NULL,
    spread INTEGER NOT NULL, concept INTEGER NOT NULL,
    UNIQUE (owner, key)
) STRICT;
CREATE INDEX name_group ON names (concept) WHERE concept <> name;
CREATE INDEX name_block ON names (substr(block, 1, 8));
CREATE INDEX name_spread ON names (spread) WHERE spread > 20;
CREATE TABLE merges (
    merge INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT NOT NULL, name INTEGER NOT NULL, before INTEGER NOT NULL, after INTEGER NOT NULL,
    reason TEXT NOT NULL, at INTEGER NOT NULL
) STRICT;
CREATE INDEX merge_owner ON merges (owner);
CREATE TABLE readings (
    mention INTEGER PRIMARY KEY AUTOINCREMENT, owner TEXT NOT NULL, row INTEGER NOT NULL, names TEXT NOT NULL
) STRICT;
CREATE INDEX reading_owner ON readings (owner);
CREATE INDEX reading_row ON readings (row);
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
SCHEMA = _TRUTH + _USAGE + _DERIVED


def create(connection: apsw.Connection) -> None:
    """Create the tables in a file that has none, all at once."""
    if is_empty(connection):
        with connection:
            connection.execute(SCHEMA)
            connection.pragma("application_id", APPLICATION_ID)
            connection.pragma("user_version", FORMAT)


def is_empty(connection: apsw.Connection) -> bool:
    """Whether nothing was ever created in the file."""
    return bool(connection.execute("SELECT count(*) FROM sqlite_schema").get == 0)


def refuse_other_file(path: Path) -> None:
    """Raise for a folder or a file of another program; SQLite would create files beside it."""
    if path.is_dir():
        raise StoreUnavailable(f"the store {path} is a folder: name a file, such as {path / 'memories.db'}")
    id = APPLICATION_ID
    with suppress(OSError), open(path, "rb") as file:
        id = int.from_bytes(file.read(_ID_BYTES.stop)[_ID_BYTES])
    if id == OLD_APPLICATION_ID:
        raise StoreOlder(f"the store {path} {BEFORE_RELEASE}")
    if id != APPLICATION_ID and _is_of_another_program(path):
        raise StoreUnavailable(
            f"{path} is a database, but not one of triskele's: name another file with --store or the setting store.url"
        )


def _is_of_another_program(path: Path) -> bool:
    """Whether a file is a database with other tables; a damaged one is not."""
    address, flags = f"file:{quote(str(path))}?immutable=1", apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    with suppress(apsw.Error), closing(apsw.Connection(address, flags=flags)) as connection:
        return not (is_empty(connection) or _has_our_tables(connection))
    return False


def refuse_other_format(connection: apsw.Connection) -> None:
    """Raise for a file of another format or of another program."""
    # First, because another process may create the tables meanwhile.
    if is_empty(connection):
        return
    id, format = connection.pragma("application_id"), connection.pragma("user_version")
    if (id, format) == (APPLICATION_ID, FORMAT):
        return
    if id == OLD_APPLICATION_ID:
        raise StoreOlder(f"the store {connection.filename} {BEFORE_RELEASE}")
    if id == APPLICATION_ID and format > FORMAT:
        raise StoreNewer(
            f"the store was written by a newer triskele (format {format}, this one knows {FORMAT}): upgrade triskele"
        )
    if _has_our_tables(connection):
        raise StoreDamaged("the header of the database is damaged: run `triskele restore FILE` with a backup")
    raise StoreUnavailable("the file is a database, but not one of triskele's")


def _has_our_tables(connection: apsw.Connection) -> bool:
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    return {"versions", "links", "journal", "meta"} <= tables
