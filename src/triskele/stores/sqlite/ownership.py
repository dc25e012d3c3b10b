"""The steps that give an owner to every row of a store made by 0.1.0.

A row goes to the owner of the memory that it is about, else to the owner of the settings. Rows whose hash held get the
hash of their new values; a damaged row keeps its old hash and so stays recognisable. Row numbers, slots and sequence
numbers stay, and with them the files that are derived from them.
"""

from __future__ import annotations

from typing import Any

import apsw

from triskele.config import MemorySettings
from triskele.stores.derived import EMBED, NAMES
from triskele.stores.protocols import VAULT
from triskele.stores.rows import row_hash
from triskele.types import USER

# The owner of a new installation.
FIRST = MemorySettings().owner
# The name under which a migration leaves whose rows the index folder was made of; empty where of several owners.
INDEX_OWNER = "index owner"

_OWNER_OF = "coalesce((SELECT owner FROM versions WHERE versions.id = {id} LIMIT 1), {other}?1)"

_LINKS = """
CREATE TABLE {table} (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT NOT NULL, source TEXT NOT NULL, kind TEXT NOT NULL, target TEXT NOT NULL,
    known_from INTEGER NOT NULL, known_to INTEGER, row_hash TEXT NOT NULL
) STRICT
"""
_JOURNAL = """
CREATE TABLE {table} (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT NOT NULL, at INTEGER NOT NULL, action TEXT NOT NULL, id TEXT NOT NULL, version INTEGER,
    previous INTEGER, link_kind TEXT, other TEXT, batch TEXT NOT NULL, undoes INTEGER, actor TEXT NOT NULL,
    row_hash TEXT NOT NULL
) STRICT
"""
_SECRETS = """
CREATE TABLE {table} (
    owner TEXT NOT NULL, id TEXT NOT NULL, version INTEGER NOT NULL, sealed_as INTEGER NOT NULL,
    sealed BLOB NOT NULL, row_hash TEXT NOT NULL,
    PRIMARY KEY (owner, id, version)
) STRICT, WITHOUT ROWID
"""
_TRUTH_INDEXES = """
CREATE UNIQUE INDEX standing_link ON links (owner, source, kind, target) WHERE known_to IS NULL;
CREATE INDEX link_source ON links (owner, source);
CREATE INDEX link_target ON links (owner, target);
CREATE INDEX journal_owner ON journal (owner);
CREATE INDEX journal_memory ON journal (owner, id);
CREATE INDEX journal_batch ON journal (owner, batch);
CREATE TRIGGER journal_keeps_lines BEFORE DELETE ON journal
BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER journal_keeps_words BEFORE UPDATE ON journal
BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
"""
_DOCUMENTS = """
CREATE TABLE documents (
    owner TEXT NOT NULL, kind TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, about TEXT NOT NULL,
    row_hash TEXT NOT NULL,
    PRIMARY KEY (owner, kind, key)
) STRICT, WITHOUT ROWID
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
CREATE TABLE new_conversations (
    owner TEXT NOT NULL, conversation TEXT NOT NULL, at INTEGER NOT NULL, ended INTEGER NOT NULL,
    PRIMARY KEY (owner, conversation)
) STRICT, WITHOUT ROWID;
CREATE TABLE new_given (
    owner TEXT NOT NULL, conversation TEXT NOT NULL, id TEXT NOT NULL, content_hash TEXT NOT NULL,
    at INTEGER NOT NULL, lost INTEGER NOT NULL,
    PRIMARY KEY (owner, conversation, id),
    FOREIGN KEY (owner, conversation) REFERENCES new_conversations (owner, conversation) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
CREATE TABLE new_echoes (
    owner TEXT NOT NULL, print TEXT NOT NULL, id TEXT NOT NULL, PRIMARY KEY (owner, print, id)
) STRICT, WITHOUT ROWID;
"""
_VERSIONS = """
CREATE TABLE {table} (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL, version INTEGER NOT NULL, content TEXT NOT NULL, category TEXT NOT NULL,
    tags TEXT NOT NULL, keywords TEXT NOT NULL, importance REAL NOT NULL, sensitivity TEXT NOT NULL,
    owner TEXT NOT NULL, project TEXT NOT NULL, origin TEXT NOT NULL, session TEXT, position INTEGER,
    created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, valid_from INTEGER, valid_to INTEGER,
    known_from INTEGER NOT NULL, known_to INTEGER, content_hash TEXT NOT NULL, row_hash TEXT NOT NULL,
    UNIQUE (owner, id, version)
) STRICT
"""
_VERSION_INDEXES = """
CREATE UNIQUE INDEX current_version ON versions (owner, id) WHERE known_to IS NULL;
CREATE INDEX current_content ON versions (owner, content_hash) WHERE known_to IS NULL;
CREATE INDEX current_place ON versions (owner, project, updated_at) WHERE known_to IS NULL;
CREATE INDEX version_content ON versions (owner, content_hash);
"""
VECTORS = """
CREATE TABLE {table} (
    slot INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT NOT NULL, content_hash TEXT NOT NULL, fingerprint TEXT NOT NULL, vector BLOB NOT NULL,
    UNIQUE (owner, fingerprint, content_hash)
) STRICT
"""
_JOBS = """
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
"""
_MENTIONS = """
CREATE TABLE {table} (
    mention INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT NOT NULL, row INTEGER NOT NULL, name INTEGER NOT NULL, kind TEXT NOT NULL,
    UNIQUE (row, name)
) STRICT
"""
_MERGES = """
CREATE TABLE {table} (
    merge INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT NOT NULL, name INTEGER NOT NULL, before INTEGER NOT NULL, after INTEGER NOT NULL,
    reason TEXT NOT NULL, at INTEGER NOT NULL
) STRICT
"""
_EDGES = """
CREATE INDEX mention_owner ON mentions (owner);
CREATE INDEX mention_name ON mentions (name);
CREATE INDEX merge_owner ON merges (owner);
CREATE VIEW edges AS
SELECT versions.owner AS owner, subject.concept AS source, 'mentions' AS kind, other.concept AS target, 1.0 AS weight,
       versions.id AS evidence, versions.valid_from, versions.valid_to, versions.known_from,
       coalesce(versions.known_to, (
           SELECT min(links.known_from) FROM links
           WHERE links.owner = versions.owner AND links.target = versions.id AND links.kind = 'supersedes'
             AND links.known_to IS NULL
       )) AS known_to
FROM mentions AS about
JOIN names AS subject ON subject.name = about.name
JOIN mentions AS said ON said.row = about.row AND said.name <> about.name
JOIN names AS other ON other.name = said.name
JOIN versions ON versions.row = about.row
WHERE about.kind IN ('title', 'lead') AND other.concept <> subject.concept;
"""


def own_truth(connection: apsw.Connection, owner: str) -> None:
    """Journal, links and sealed texts; a link between memories of two owners is dropped."""
    _register(connection)
    connection.execute("DROP VIEW edges")
    by_source = _OWNER_OF.format(id="source", other="")
    rebuild(
        connection,
        "links",
        _LINKS,
        f"SELECT row, {by_source}, source, kind, target, known_from, known_to, rehash(row_hash, {by_source}, NULL,"
        f" source, kind, target, known_from, known_to) FROM links WHERE {by_source} ="
        f" {_OWNER_OF.format(id='target', other='')}",
        owner,
    )
    either = _OWNER_OF.format(id="journal.id", other="(SELECT owner FROM versions WHERE versions.id = other LIMIT 1), ")
    told = "at, action, id, version, previous, link_kind, other, batch, undoes"
    rebuild(
        connection,
        "journal",
        _JOURNAL,
        f"SELECT seq, {either}, {told}, '{USER}', rehash(row_hash, {either}, '{USER}', {told}) FROM journal",
        owner,
    )
    by_id = _OWNER_OF.format(id="secrets.id", other="")
    sealed = "id, version, sealed_as, sealed"
    rebuild(
        connection,
        "secrets",
        _SECRETS,
        f"SELECT {by_id}, {sealed}, rehash(row_hash, {by_id}, NULL, {sealed}) FROM secrets",
        owner,
    )
    connection.execute(_TRUTH_INDEXES)


def own_documents(connection: apsw.Connection, owner: str) -> None:
    """Documents and usage; every owner with secrets gets the keys of the vault that they are sealed under."""
    _register(connection)
    connection.execute(_DOCUMENTS)
    about = _OWNER_OF.format(id="(SELECT value FROM json_each(about) LIMIT 1)", other="")
    connection.execute(
        f"INSERT INTO documents SELECT {about}, kind, key, value, about,"
        f" rehash(row_hash, {about}, NULL, kind, key, value, about) FROM shelf",
        [owner],
    )
    connection.execute(
        "INSERT OR IGNORE INTO documents SELECT others.owner, kind, key, value, about,"
        " rehash(row_hash, others.owner, NULL, kind, key, value, about)"
        " FROM shelf, (SELECT DISTINCT owner FROM secrets) AS others WHERE kind = ?",
        [VAULT],
    )
    connection.execute("DROP TABLE shelf")
    _own_usage(connection, owner)


def _own_usage(connection: apsw.Connection, owner: str) -> None:
    """The days belong to the owner of the settings, a conversation to every owner of what it was given."""
    connection.execute(_USAGE)
    by_id = _OWNER_OF.format(id="old.id", other="")
    for sql in (
        f"INSERT INTO usage_counts SELECT {by_id}, id, recalled, injected, tokens, last FROM uses AS old",
        "INSERT INTO usage_days SELECT ?1, day, recalled, injected, tokens FROM use_days",
        f"INSERT OR IGNORE INTO new_conversations SELECT {by_id}, conversation, conversations.at, ended"
        " FROM given AS old JOIN conversations USING (conversation)",
        "INSERT INTO new_conversations SELECT ?1, conversation, at, ended FROM conversations"
        " WHERE conversation NOT IN (SELECT conversation FROM given)",
        f"INSERT INTO new_given SELECT {by_id}, conversation, id, content_hash, at, lost FROM given AS old",
        f"INSERT INTO new_echoes SELECT {by_id}, print, id FROM echoes AS old",
    ):
        connection.execute(sql, [owner])
    # The tables that refer to others go first: a table that is dropped takes what refers to it along.
    for table in ("given", "conversations", "echoes", "uses", "use_days"):
        connection.execute(f"DROP TABLE {table}")
    for table in ("conversations", "given", "echoes"):
        connection.execute(f"ALTER TABLE new_{table} RENAME TO {table}")


def own_versions(connection: apsw.Connection, owner: str) -> None:
    """Versions, whose ids become unique per owner; vectors, and the queue of what is still to be made."""
    owners: list[Any] = [each for (each,) in connection.execute("SELECT DISTINCT owner FROM versions").fetchall()]
    rebuild(connection, "versions", _VERSIONS, "SELECT * FROM versions")
    connection.execute(_VERSION_INDEXES)
    # The slot of a content that several owners have stays with one of them; the others get new slots.
    holders = "SELECT owner FROM versions WHERE versions.content_hash = vectors.content_hash"
    keeper = f"coalesce(({holders} AND owner = ?1 LIMIT 1), ({holders} LIMIT 1), ?1)" if len(owners) > 1 else "?1"
    heir = owner if len(owners) != 1 else owners[0]
    connection.execute("CREATE TABLE shared AS SELECT * FROM vectors WHERE ?", [len(owners) > 1])
    rebuild(
        connection,
        "vectors",
        VECTORS,
        f"SELECT slot, {keeper}, content_hash, fingerprint, vector FROM vectors",
        heir,
    )
    connection.execute(
        "INSERT OR IGNORE INTO vectors (owner, content_hash, fingerprint, vector)"
        " SELECT DISTINCT versions.owner, content_hash, fingerprint, vector"
        " FROM shared JOIN versions USING (content_hash)"
    )
    connection.execute("DROP TABLE shared; CREATE INDEX vector_model ON vectors (owner, fingerprint)")
    connection.execute(_JOBS)
    connection.execute(
        "INSERT OR IGNORE INTO jobs (owner, kind, key) SELECT versions.owner, ?, content_hash"
        " FROM pending JOIN versions USING (content_hash) ORDER BY pending.rowid",
        [EMBED],
    )
    connection.execute(
        "INSERT INTO jobs (owner, kind, key) SELECT owner, ?, row FROM versions WHERE row >"
        " (SELECT coalesce(max(CAST(value AS INTEGER)), 0) FROM meta WHERE name = 'names read') ORDER BY row",
        [NAMES],
    )
    connection.execute(
        "INSERT INTO marks SELECT owner, 'model', value FROM meta, (SELECT owner FROM versions UNION SELECT ?)"
        " WHERE name = 'model'",
        [owner],
    )
    connection.execute("DROP TABLE pending; DELETE FROM meta WHERE name IN ('model', 'names read')")
    connection.execute("UPDATE meta SET name = 'epoch' WHERE name = 'lineage'")
    if owners not in ([], [FIRST]):
        connection.execute("INSERT INTO meta VALUES (?, ?)", [INDEX_OWNER, owners[0] if len(owners) == 1 else ""])


def own_names(connection: apsw.Connection, owner: str) -> None:
    """Mentions and merges, which belong to the owner of their name."""
    by_name = "(SELECT owner FROM names WHERE names.name = {}.name)"
    rebuild(
        connection,
        "mentions",
        _MENTIONS,
        f"SELECT mention, coalesce({by_name.format('mentions')}, ?1), row, name, kind FROM mentions",
        owner,
    )
    rebuild(
        connection,
        "merges",
        _MERGES,
        f"SELECT merge, coalesce({by_name.format('merges')}, ?1), name, before, after, reason, at FROM merges",
        owner,
    )
    connection.execute(_EDGES)


def rebuild(connection: apsw.Connection, table: str, create: str, select: str, *bindings: str) -> None:
    """Replace a table by one with other columns or keys; a number that was used is not used again."""
    fresh = f"new_{table}"
    connection.execute(create.format(table=fresh))
    connection.execute(f"INSERT INTO {fresh} {select}", bindings)
    connection.execute("DELETE FROM sqlite_sequence WHERE name = ?", [fresh])
    connection.execute("INSERT INTO sqlite_sequence SELECT ?, seq FROM sqlite_sequence WHERE name = ?", [fresh, table])
    connection.execute(f"DROP TABLE {table}")
    connection.execute(f"ALTER TABLE {fresh} RENAME TO {table}")


def _register(connection: apsw.Connection) -> None:
    connection.create_scalar_function("rehash", _rehash, deterministic=True)


def _rehash(*bound: Any) -> str:
    """The hash of a row with its owner; the old hash if that was wrong already."""
    stored, owner, actor, *values = bound
    if stored != row_hash(values):
        return str(stored)
    return row_hash([owner, *values] if actor is None else [owner, *values, actor])
