"""A backup of a Postgres store as one file: every row of every owner as a line of JSON, and a digest of them all."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from itertools import groupby, islice
from pathlib import Path
from typing import IO, Any

from triskele.errors import BEFORE_RELEASE, BadInput, StoreDamaged, StoreNewer, StoreOlder, StoreUnavailable
from triskele.server.postgres.connections import Connection, become
from triskele.server.postgres.migrations import DERIVED, MIGRATIONS, OLD_STEPS, OWNED, STEPS
from triskele.text.files import disk_errors, settle_folder

_TITLE = "triskele backup of a Postgres store"
_BATCH = 500
# The column of the numbers that the database gives out, by table.
NUMBERED = {
    "versions": "row",
    "links": "row",
    "journal": "seq",
    "places": "place",
    "vectors": "slot",
    "jobs": "job",
    "names": "name",
    "mentions": "mention",
    "merges": "merge",
}


def write(target: Path, owners: list[str], rows_of: Callable[[str, str], Iterator[dict[str, Any]]]) -> None:
    """Write the rows of every owner and table to a new file, whole or not at all."""
    if target.exists():
        raise BadInput(f"{target} exists already: a backup never overwrites")
    if not target.parent.is_dir():
        raise BadInput(f"the folder {target.parent} does not exist: create it, or mount its disk, first")
    staged = target.with_name(f".{target.name}.{os.getpid()}.partial")
    with disk_errors(f"the backup {target}"):
        try:
            with open(os.open(staged, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
                _write_lines(file, owners, rows_of)
                file.flush()
                os.fsync(file.fileno())
            staged.rename(target)
        finally:
            staged.unlink(missing_ok=True)
        settle_folder(target.parent)


def _write_lines(file: IO[str], owners: list[str], rows_of: Callable[[str, str], Iterator[dict[str, Any]]]) -> None:
    digest = hashlib.sha256()

    def put(value: object) -> None:
        line = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_encoded) + "\n"
        digest.update(line.encode())
        file.write(line)

    put({"title": _TITLE, STEPS: len(MIGRATIONS), "owners": owners})
    for owner in owners:
        for table in OWNED:
            for row in rows_of(owner, table):
                put([table, row])
    file.write(json.dumps({"sha256": digest.hexdigest()}) + "\n")


def _encoded(value: Any) -> dict[str, str]:
    return {"base64": base64.b64encode(bytes(value)).decode()}


def _decoded(value: Any) -> Any:
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else value


def verify(source: Path) -> list[str]:
    """Read a backup to its end and check its digest; the owners that it holds."""
    if not source.is_file():
        raise BadInput(f"no backup at {source}")
    digest, owners, last = hashlib.sha256(), None, b""
    with disk_errors(f"the backup {source}"), open(source, "rb") as file:
        for line in file:
            if last:
                digest.update(last)
            owners, last = (_head(source, line) if owners is None else owners), line
    if owners is None:
        raise BadInput(f"{source} is not a backup: there is nothing in it")
    if last != (json.dumps({"sha256": digest.hexdigest()}) + "\n").encode():
        raise StoreDamaged(f"the backup {source} is damaged (its digest differs): nothing was changed; use another")
    return owners


def _head(source: Path, line: bytes) -> list[str]:
    try:
        head = json.loads(line)
        is_ours, is_old, owners = head["title"] == _TITLE, OLD_STEPS in head, list(head["owners"])
        taken = 0 if is_old else int(head[STEPS])
    except (ValueError, TypeError, KeyError):
        raise StoreUnavailable(f"{source} is not a backup of a Postgres store: nothing was changed") from None
    if is_ours and is_old:
        raise StoreOlder(f"the backup {source} {BEFORE_RELEASE}")
    if not is_ours or taken > len(MIGRATIONS):
        raise StoreNewer(f"the backup {source} was written by a newer triskele: nothing was changed")
    return owners


def load(connection: Connection, source: Path, owners: list[str]) -> None:
    """Put the rows of a verified backup in the place of all that the tables hold, in the transaction of the caller."""
    # Cascades to the embeddings, which are there only where pgvector is.
    connection.execute(f"TRUNCATE owners, {', '.join((*OWNED, *DERIVED))} CASCADE")
    connection.cursor().executemany("INSERT INTO owners (owner) VALUES (%s)", [(owner,) for owner in owners])
    for table, rows in _batches(source):
        # One owner at a time: what belongs to another is refused by the table itself.
        connection.execute(
            "SELECT set_config('triskele.owner', %s, true), set_config('triskele.sharing', 'on', true)",
            [rows[0]["owner"]],
        )
        columns = list(rows[0])
        marks = ", ".join(["%s"] * len(columns))
        connection.cursor().executemany(
            f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})",
            [[_decoded(row[column]) for column in columns] for row in rows],
        )
    for table, column in NUMBERED.items():
        _pass_numbers(connection, table, column, owners)


def _pass_numbers(connection: Connection, table: str, column: str, owners: list[str]) -> None:
    """Let the next number of a table follow the highest of all owners, and never fall back."""
    highest = 0
    for owner in owners:
        become(connection, owner)
        row = connection.execute(f"SELECT coalesce(max({column}), 0) FROM {table}").fetchone()
        highest = max(highest, int(row[0]) if row else 0)
    connection.execute(
        "SELECT setval(sequence, greatest(%s, (SELECT last_value FROM pg_sequences WHERE schemaname || '.' ||"
        " sequencename = sequence), 1)) FROM (SELECT pg_get_serial_sequence(%s, %s) AS sequence) AS one",
        [highest, table, column],
    )


def _batches(source: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The rows of a backup in their order, in lists that belong to one table and one owner."""
    for (table, _), rows in groupby(_rows(source), key=lambda row: (row[0], row[1]["owner"])):
        while batch := [values for _, values in islice(rows, _BATCH)]:
            yield table, batch


def _rows(source: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with disk_errors(f"the backup {source}"), open(source, encoding="utf-8") as file:
        for line in file:
            value = json.loads(line)
            if isinstance(value, list):
                table, values = value
                yield table, values


def names_any(source: Path, ids: set[str]) -> bool:
    """Whether a backup holds anything of some memories."""
    with open(source, "rb") as file:
        return any(any(id.encode() in line for id in ids) for line in file)
