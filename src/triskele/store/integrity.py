"""Faults of the truth that a check looks for, in statements that every database understands.

`read` runs a statement. `owned` is the condition on the rows that are checked, `own` leaves out what others share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from triskele.store.documents import DOCUMENT_COLUMNS
from triskele.store.rows import (
    JOURNAL_COLUMNS,
    LINK_COLUMNS,
    PLACE_COLUMNS,
    SEALED_COLUMNS,
    VERSION_COLUMNS,
    row_hash,
    version_hash,
)
from triskele.store.values import IntegrityIssue
from triskele.text.ids import content_hash

# The tables whose rows have a hash: what names a row, the columns under the hash, and what makes it.
_GUARDED = (
    ("versions", "id", VERSION_COLUMNS, version_hash),
    ("links", "source", f"owner, {LINK_COLUMNS}", row_hash),
    ("journal", "seq", f"owner, {JOURNAL_COLUMNS}", row_hash),
    ("documents", "key", f"owner, {DOCUMENT_COLUMNS}", row_hash),
    ("secrets", "id", f"owner, {SEALED_COLUMNS}", row_hash),
    ("places", "place", f"owner, {PLACE_COLUMNS}", row_hash),
)
_KNOWN = "SELECT 1 FROM versions WHERE versions.owner = links.owner AND versions.id = links."
_DANGLING = f"""
SELECT source, kind, target FROM links
WHERE {{owned}} AND (NOT EXISTS ({_KNOWN}source) OR NOT EXISTS ({_KNOWN}target))
"""
_SAME = "secrets.owner = versions.owner AND secrets.id = versions.id AND secrets.version = versions.version"
_MISPLACED = f"""
SELECT id, version, 'its sealed text is missing' FROM versions
WHERE {{owned}} AND sensitivity = 'secret' AND NOT EXISTS (SELECT 1 FROM secrets WHERE {_SAME})
UNION ALL SELECT id, version, 'has a sealed text and is no secret' FROM secrets
WHERE {{owned}} AND NOT EXISTS (SELECT 1 FROM versions WHERE {_SAME} AND sensitivity = 'secret')
"""
_UNTOLD = """
SELECT id, version FROM versions WHERE {owned}{own} AND NOT EXISTS (
    SELECT 1 FROM journal
    WHERE journal.owner = versions.owner AND journal.id = versions.id AND journal.version = versions.version
) LIMIT 20
"""
# An erasure takes every version, and so does the end of a share; a sealing notes one, and puts the versions back.
_UNKEPT = """
SELECT DISTINCT id, version FROM journal AS told
WHERE {owned} AND version IS NOT NULL AND link_kind IS NULL AND NOT EXISTS (
    SELECT 1 FROM versions AS kept
    WHERE kept.owner = told.owner AND kept.id = told.id AND kept.version = told.version
) AND NOT EXISTS (
    SELECT 1 FROM journal WHERE journal.owner = told.owner AND journal.id = told.id
    AND journal.action IN ('erased', 'unshared')
) LIMIT 20
"""

Read = Callable[[str], Iterable[Sequence[Any]]]


def misplaced(read: Read, owned: str) -> Iterator[IntegrityIssue]:
    """Links to memories that do not exist, secrets without a sealed text, and sealed texts without a secret."""
    for source, kind, target in read(_DANGLING.format(owned=owned)):
        yield IntegrityIssue(f"link {source} {kind} {target}", "points to a memory that does not exist")
    for id, version, problem in read(_MISPLACED.format(owned=owned)):
        yield IntegrityIssue(f"memory {id} version {version}", str(problem))


def wrong_hashes(read: Read, owned: str) -> Iterator[IntegrityIssue]:
    """Rows and contents that are not what was written."""
    for table, name, columns, made_hash in _GUARDED:
        for label, stored, *values in read(f"SELECT {name}, row_hash, {columns} FROM {table} WHERE {owned}"):
            if stored != made_hash(values):
                yield IntegrityIssue(f"{table} {label}", "the row is not what was written (its hash differs)")
    for id, content, stored in read(f"SELECT id, content, content_hash FROM versions WHERE {owned}"):
        if stored != content_hash(str(content)):
            yield IntegrityIssue(f"versions {id}", "the content is not what was written (its hash differs)")


def broken_journal(read: Read, owned: str, own: str = "") -> Iterator[IntegrityIssue]:
    """Versions and journal entries that do not belong to each other."""
    for sql, problem in ((_UNTOLD, "is in no journal entry"), (_UNKEPT, "is in the journal and not stored")):
        for id, version in read(sql.format(owned=owned, own=own)):
            yield IntegrityIssue(f"memory {id} version {version}", problem)
