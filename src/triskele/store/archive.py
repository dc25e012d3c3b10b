"""The rows of an archive: every row of some owners as a stream of lines, with a digest at its end.

The numbers that a store gives out become ranks, which begin at 1 for each owner: the same rows make the same archive in
every store. A store that takes one adds its own highest numbers to them.
"""

from __future__ import annotations

import base64
import hashlib
import json
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import islice
from math import isfinite
from typing import Any, NamedTuple, Protocol

from triskele.errors import BadInput, StoreDamaged, StoreUnavailable
from triskele.store.rows import (
    JOURNAL_COLUMNS,
    LATER_COLUMNS,
    LINK_COLUMNS,
    PLACE_COLUMNS,
    VERSION_COLUMNS,
    VERSION_NAMES,
    row_hash,
    to_entry,
    to_link,
    to_memory,
    version_hash,
)
from triskele.store.values import NAMES
from triskele.text.ids import content_hash
from triskele.text.timestamps import from_micros

TITLE = "triskele archive"
# 1 was never released: its sentence vectors had four bytes per dimension.
FORMAT = 2
_BATCH = 500
_BATCH_BYTES = 2**23
# Longer than any row: a document of a few megabytes at most.
_MAX_LINE_BYTES = 2**26
_PLACE = "place "

_CHANGED = "the archive changed while it was read: nothing was imported"
# What reading a line fails at that no export wrote.
_DAMAGE = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)

Values = dict[str, Any]
# From an owner, a model's fingerprint and slots to token vectors that the rows do not hold.
Tokens = Callable[[str, str, Sequence[int]], Mapping[int, bytes]]
Progress = Callable[[int, int | None], None]


class ArchiveReader(Protocol):
    """A store as of one moment."""

    def owners(self) -> list[str]:
        """All owners in the store."""

    def rows(self, owner: str, sql: str) -> Iterator[Sequence[Any]]:
        """The rows of a query about one owner, who is written {owner} in it."""


class ArchiveWriter(Protocol):
    """A transaction that takes an archive."""

    def reserve(self, table: str, column: str, count: int) -> int:
        """The number after which `count` numbers are free for this transaction; called before any write."""

    def begin(self, owner: str, tables: Iterable[str]) -> None:
        """Refuse an owner who has a journal here; other rows of this owner are deleted."""

    def insert(self, table: str, rows: Sequence[Values]) -> None:
        """Write rows of the owner that was begun last."""


class ArchiveStore(Protocol):
    """How archives are made of a store, and taken by it."""

    def reading(self) -> AbstractContextManager[ArchiveReader]:
        """Read the store as of one moment."""

    def writing(self, owner: str | None) -> AbstractContextManager[ArchiveWriter]:
        """Write the rows of one owner, or of several, in one transaction, all or none."""


@dataclass(frozen=True, slots=True)
class _Table:
    """The columns of a table without its owner, their order, and by column what its numbers count.

    Numbers that nothing refers to are left out; `guarded` are the columns under a row's hash.
    """

    columns: str
    order: str
    numbers: Mapping[str, str] = field(default_factory=dict)
    guarded: str = ""
    where: str = ""

    @property
    def names(self) -> list[str]:
        return self.columns.split(", ")


_UNOWNED = ", ".join(name for name in VERSION_NAMES if name != "owner")
_DOCUMENT, _SEALED = "kind, key, value, about", "id, version, sealed_as, sealed"
_NAME_COLUMNS = "name, key, block, text, any_case, spread, concept"
# In the order in which a store takes them: what others refer to comes first.
TABLES: dict[str, _Table] = {
    "versions": _Table(f"row, {_UNOWNED}", "row", {"row": "row"}, VERSION_COLUMNS),
    "links": _Table(LINK_COLUMNS, "row", guarded=f"owner, {LINK_COLUMNS}"),
    "places": _Table(f"place, {PLACE_COLUMNS}", "place", {"place": "place"}, f"owner, {PLACE_COLUMNS}"),
    "journal": _Table(f"seq, {JOURNAL_COLUMNS}", "seq", {"seq": "seq", "undoes": "seq"}, f"owner, {JOURNAL_COLUMNS}"),
    "secrets": _Table(_SEALED, "id, version", guarded=f"owner, {_SEALED}"),
    "documents": _Table(_DOCUMENT, "kind, key", guarded=f"owner, {_DOCUMENT}"),
    "usage_counts": _Table("id, recalled, injected, tokens, last", "id"),
    "usage_days": _Table("day, recalled, injected, tokens", "day"),
    "conversations": _Table("conversation, at, ended, client, project, tokens", "conversation"),
    "given": _Table("conversation, id, content_hash, at, lost, tokens", "conversation, id"),
    "echoes": _Table("print, id", "print, id"),
    "vectors": _Table("slot, content_hash, fingerprint, vector, tokens", "slot", {"slot": "slot"}),
    "jobs": _Table("kind, key, tries, error", "job", {"key": "row"}, where=f" AND kind = '{NAMES}'"),
    "names": _Table(_NAME_COLUMNS, "name", {"name": "name", "concept": "name"}),
    "mentions": _Table("row, name, kind", "row, name", {"row": "row", "name": "name"}),
    "merges": _Table("name, before, after, reason, at", "merge", {"name": "name", "before": "name", "after": "name"}),
}
# Tables of an owner that do not move, and why.
LEFT_OUT = {
    "marks": "what a store notes about itself; the model there queues what it has not seen",
    "shares": "they name users of one server",
    "shared_memories": "they follow from shares",
}
_BYTES = {("secrets", "sealed"), ("vectors", "vector"), ("vectors", "tokens")}
_FLAGS = {("conversations", "ended"), ("given", "lost"), ("names", "any_case")}
# Kinds of numbers, which are the names of columns, and the table that gives them out.
_NUMBERED = {"row": "versions", "seq": "journal", "place": "places", "slot": "vectors", "name": "names"}
# Columns whose numbers are made in another row of the same owner.
_REFERRING = {("journal", "undoes"), ("mentions", "name")}
_MOMENTS = set("created_at updated_at valid_from valid_to known_from known_to at last".split())
_WHOLE = _MOMENTS | set("row place seq slot name concept before after undoes version previous position".split())
_WHOLE |= set("sealed_as recalled injected tokens tries spread".split())


def _type_of(table: str, name: str) -> type:
    if (table, name) in _BYTES:
        return bytes
    if (table, name) in _FLAGS:
        return bool
    return float if name == "importance" else int if name in _WHOLE else str


_TYPES = {table: {name: _type_of(table, name) for name in known.names} for table, known in TABLES.items()}


class _Ranks:
    """The numbers of one owner in their order: each becomes its rank."""

    def __init__(self, reader: ArchiveReader, owner: str, kind: str) -> None:
        queries = (
            f"SELECT CAST({column} AS bigint) FROM {name} WHERE owner = {{owner}}{table.where}"
            for name, table in TABLES.items()
            for column, counted in table.numbers.items()
            if counted == kind and (name, column) not in _REFERRING
        )
        rows = reader.rows(owner, f"{' UNION '.join(queries)} ORDER BY 1")
        self._numbers = array("q", (number for (number,) in rows))

    def __len__(self) -> int:
        return len(self._numbers)

    def of(self, number: int) -> int:
        """The rank of a number, beginning at 1."""
        return bisect_left(self._numbers, number) + 1


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts of an archive: current memories, rows, vectors, imported texts without vectors."""

    owners: int
    memories: int
    rows: int
    vectors: int
    to_embed: int = 0


def write(
    reader: ArchiveReader, owners: Sequence[str], tokens: Tokens, put: Callable[[str], Any], progress: Progress
) -> Summary:
    """Write an archive line by line, in bounded memory."""
    digest, counts = hashlib.sha256(), dict.fromkeys(TABLES, 0)
    current = 0

    def line(value: object) -> None:
        text = json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n"
        digest.update(text.encode())
        put(text)

    totals = {kind: sum(len(_Ranks(reader, owner, kind)) for owner in owners) for kind in _NUMBERED}
    columns = {name: table.names for name, table in TABLES.items()}
    line({TITLE: FORMAT, "owners": len(owners), "numbers": totals, "columns": columns})
    for owner in owners:
        ranks = {kind: _Ranks(reader, owner, kind) for kind in _NUMBERED}
        line({"owner": owner, "numbers": {kind: len(each) for kind, each in ranks.items()}})
        for table in TABLES:
            for row in _read(reader, owner, table, tokens):
                line([table, *_ranked(table, row, ranks)])
                counts[table] += 1
                current += table == "versions" and row["known_to"] is None
                if not sum(counts.values()) % _BATCH:
                    progress(sum(counts.values()), None)
    rows = sum(counts.values())
    put(json.dumps({"rows": rows, "sha256": digest.hexdigest()}, separators=(",", ":")) + "\n")
    return Summary(len(owners), current, rows, counts["vectors"])


def verify(reader: ArchiveReader, owner: str, tables: Sequence[str]) -> None:
    """Raise if a row of an owner in these tables was changed outside triskele."""
    for table in tables:
        for _ in _read(reader, owner, table, lambda *_: {}):
            pass


def _read(reader: ArchiveReader, owner: str, table: str, tokens: Tokens) -> Iterator[Values]:
    """The rows of one table whose hashes hold."""
    spec = TABLES[table]
    names = [*spec.names, *(["row_hash"] if spec.guarded else [])]
    sql = f"SELECT {', '.join(names)} FROM {table} WHERE owner = {{owner}}{spec.where} ORDER BY {spec.order}"
    rows = (dict(zip(names, values, strict=True)) for values in reader.rows(owner, sql))
    for row in _with_tokens(rows, owner, tokens) if table == "vectors" else rows:
        if spec.guarded and row["row_hash"] != guard(table, owner, row):
            raise StoreDamaged(
                f"a row of {table} is not what was written (its hash differs): run `triskele doctor --deep`"
            )
        yield row


def _with_tokens(rows: Iterator[Values], owner: str, tokens: Tokens) -> Iterator[Values]:
    while batch := list(islice(rows, _BATCH)):
        missing: dict[str, list[int]] = {}
        for row in batch:
            if row["tokens"] is None:
                missing.setdefault(row["fingerprint"], []).append(row["slot"])
        raws = {slot: raw for model, slots in missing.items() for slot, raw in tokens(owner, model, slots).items()}
        for row in batch:
            yield row | {"tokens": raws.get(row["slot"], row["tokens"])}


def guard(table: str, owner: str, row: Values) -> str:
    """The hash that guards a row of an owner."""
    values = [owner if name == "owner" else row[name] for name in TABLES[table].guarded.split(", ")]
    return version_hash(values) if table == "versions" else row_hash(values)


def _ranked(table: str, row: Values, ranks: Mapping[str, _Ranks]) -> Iterator[Any]:
    for name in TABLES[table].names:
        value, kind = row[name], TABLES[table].numbers.get(name)
        if value is None:
            yield None
        elif kind is not None:
            # As text if it was text: the key of a job.
            yield type(value)(ranks[kind].of(int(value)))
        elif (table, name) == ("journal", "id") and value.startswith(_PLACE):
            yield f"{_PLACE}{ranks['place'].of(int(value.removeprefix(_PLACE)))}"
        elif (table, name) in _BYTES:
            yield base64.b64encode(bytes(value)).decode()
        else:
            yield bool(value) if (table, name) in _FLAGS else value


class OwnerRows(NamedTuple):
    """The line before the rows of an owner, with how many numbers they take."""

    owner: str
    numbers: Mapping[str, int]


class Head(NamedTuple):
    """The first line of an archive."""

    owners: int
    numbers: Mapping[str, int]


def recognises(head: str) -> bool:
    """Whether a file that begins so is an archive."""
    return head.startswith(f'{{"{TITLE}":')


def records(lines: Iterator[bytes], end: bytes | None = None) -> Iterator[Head | OwnerRows | tuple[str, Values]]:
    """The records of an archive as they come; the last of them only if all are as they were written.

    What was yielded before an error must not be kept. With `end`, the line with the digest has to be that one.
    """
    digest, rows, number, columns = hashlib.sha256(), 0, 0, dict[str, list[str]]()
    for number, raw in enumerate(lines, 1):
        try:
            value = json.loads(raw) if raw.endswith(b"\n") else None
            if isinstance(value, dict) and "sha256" in value and number > 1:
                if end is not None and raw != end:
                    raise BadInput(_CHANGED)
                if value != {"rows": rows, "sha256": digest.hexdigest()} or next(lines, None) is not None:
                    raise BadInput("the archive was altered (its digest differs): nothing was imported")
                return
            digest.update(raw)
            if number == 1:
                columns = _columns_of(value)
            record = _row_of(value, columns) if isinstance(value, list) and number > 1 else _head_of(value, number)
        except _DAMAGE as error:
            raise BadInput(f"line {number:,} of the archive is cut or damaged: nothing was imported") from error
        rows += not isinstance(record, Head | OwnerRows)
        yield record
    raise BadInput(f"the archive ends after line {number:,}, before its digest: nothing was imported")


def _head_of(value: Any, number: int) -> Head | OwnerRows:
    numbers = {kind: int(value["numbers"][kind]) for kind in _NUMBERED}
    return OwnerRows(str(value["owner"]), numbers) if number > 1 else Head(int(value["owners"]), numbers)


def _columns_of(head: Any) -> dict[str, list[str]]:
    """The columns of each table; an archive of an earlier release may lack the later ones of versions."""
    if head[TITLE] == FORMAT:
        columns: dict[str, list[str]] = head["columns"]
        left_out = set(LATER_COLUMNS) - {*columns.get("versions", ())}
        readable = {name: table.names for name, table in TABLES.items()}
        readable["versions"] = [name for name in readable["versions"] if name not in left_out]
        if columns == readable:
            return columns
    raise BadInput("the archive was written by another version of triskele: import it with that version")


def _row_of(value: list[Any], columns: Mapping[str, Sequence[str]]) -> tuple[str, Values]:
    table, *values = value
    row: Values = dict.fromkeys(TABLES[table].names) | dict(zip(columns[table], values, strict=True))
    for name in row:
        if (table, name) in _BYTES and row[name] is not None:
            row[name] = base64.b64decode(row[name], validate=True)
    return table, row


def lines_of(file: Any) -> Iterator[bytes]:
    """The lines of a binary file; one that is too long comes without its end."""
    while raw := file.readline(_MAX_LINE_BYTES):
        yield raw


class Checked(NamedTuple):
    """An archive that was read to its end, the line with its digest; `widths` are the bytes of a vector by model."""

    head: Head
    summary: Summary
    end: bytes
    widths: Mapping[str, int]


def check(lines: Iterator[bytes]) -> Checked:
    """Read an archive whole, and refuse one with rows or numbers that no store wrote."""
    end = b""

    def followed() -> Iterator[bytes]:
        nonlocal end
        for line in lines:
            end = line
            yield line

    numbered_records: Iterator[Any] = records(followed())
    head: Head = next(numbered_records)
    owners, counts, numbers, current = list[OwnerRows](), dict.fromkeys(TABLES, 0), Counter[str](), 0
    widths: dict[str, int] = {}
    for number, record in enumerate(numbered_records, 2):
        if isinstance(record, OwnerRows):
            owners.append(record)
            continue
        table, row = record
        if not owners:
            raise BadInput("the archive has rows before their owner: nothing was imported")
        try:
            _refuse_unreadable(table, row, widths)
            numbers.update(_numbers_made(table, row, owners[-1].numbers))
        except (*_DAMAGE, StoreUnavailable) as error:
            raise BadInput(
                f"line {number:,} of the archive is a row of {table} that could not be read again: nothing was imported"
            ) from error
        counts[table] += 1
        current += table == "versions" and row["known_to"] is None
    _refuse_claims(head, owners, numbers)
    return Checked(head, Summary(len(owners), current, sum(counts.values()), counts["vectors"]), end, widths)


def _refuse_unreadable(table: str, row: Values, widths: dict[str, int]) -> None:
    """Raise at values that a store would hold but never read again."""
    for name, value in row.items():
        # Exactly: a store would turn 1 into "1" or 1.0, and the hash of the row would not hold any more.
        if value is not None and type(value) is not _TYPES[table][name]:
            raise TypeError(f"{name} of another type")
        if isinstance(value, int) and name in _MOMENTS:
            from_micros(value)
    if table == "versions":
        _refuse_unreadable_version(row)
    elif table == "links":
        to_link([*row.values()])
    elif table == "journal":
        to_entry([*row.values()])
    elif table == "documents":
        json.loads(row["value"])
        json.loads(row["about"])
    elif table == "vectors":
        size = len(row["vector"])
        # Every vector of a model has as many dimensions.
        if not size or widths.setdefault(row["fingerprint"], size) != size:
            raise ValueError("a vector of another size")


def _refuse_unreadable_version(row: Values) -> None:
    memory = to_memory([row.get(name) for name in VERSION_NAMES])
    tags = json.loads(row["tags"])
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise TypeError("tags that are not a list of texts")
    if memory.content_hash != content_hash(memory.content) or not isfinite(memory.importance):
        raise ValueError("a content that does not match its hash, or an importance that is not a number")


def _numbers_made(table: str, row: Values, most: Mapping[str, int]) -> Iterator[str]:
    """The kinds of the numbers that a row makes; raises if its owner has no such number."""
    ranks = [(name, kind, int(row[name])) for name, kind in TABLES[table].numbers.items() if row[name] is not None]
    if table == "journal" and row["id"].startswith(_PLACE):
        ranks.append(("undoes", "place", int(row["id"].removeprefix(_PLACE))))
    for name, kind, rank in ranks:
        if not 1 <= rank <= most[kind]:
            raise ValueError(f"{name} is not among the numbers of its owner")
        if (table, name) not in _REFERRING:
            yield kind


def _refuse_claims(head: Head, owners: Sequence[OwnerRows], made: Mapping[str, int]) -> None:
    """Refuse an archive that asks a store for more numbers than its rows take: numbers are never reused."""
    names = {each.owner for each in owners}
    agree = head.owners == len(owners) == len(names) and all(
        min((each.numbers[kind] for each in owners), default=0) >= 0
        and head.numbers[kind] == sum(each.numbers[kind] for each in owners) <= made.get(kind, 0)
        for kind in _NUMBERED
    )
    if not agree:
        raise BadInput("the archive counts other owners or numbers than its rows have: nothing was imported")


def load(
    writer: ArchiveWriter, checked: Checked, lines: Iterator[bytes], owner_as: Callable[[str], str], progress: Progress
) -> dict[str, int]:
    """Write the rows of a checked archive; what was added to the slots of each owner."""
    stream = records(lines, checked.end)
    if next(stream) != checked.head:
        raise BadInput(_CHANGED)
    free = {kind: writer.reserve(table, kind, checked.head.numbers[kind]) for kind, table in _NUMBERED.items()}
    added, slots = dict(free), dict[str, int]()
    owner, done = "", 0
    for table, batch in batches(stream):
        if isinstance(batch, OwnerRows):
            owner = owner_as(batch.owner)
            added, free = free, {kind: free[kind] + batch.numbers[kind] for kind in free}
            slots[owner] = added["slot"]
            writer.begin(owner, TABLES)
            continue
        if not owner:
            raise BadInput("the archive has rows before their owner: nothing was imported")
        try:
            writer.insert(table, [_numbered(table, owner, row, added) for row in batch])
        except _DAMAGE as error:
            raise BadInput(f"the archive has rows that do not fit into {table}: nothing was imported") from error
        done += len(batch)
        progress(done, checked.summary.rows)
    return slots


def batches(stream: Iterator[Any]) -> Iterator[tuple[str, Any]]:
    """Sections in their order, rows of one table together, in batches of bounded size."""
    table, batch, size = "", list[Values](), 0
    for record in stream:
        is_full = len(batch) >= _BATCH or size >= _BATCH_BYTES
        if batch and (isinstance(record, OwnerRows) or record[0] != table or is_full):
            yield table, batch
            batch, size = [], 0
        if isinstance(record, OwnerRows):
            yield "", record
        else:
            table = record[0]
            batch.append(record[1])
            size += sum(len(value) for value in record[1].values() if isinstance(value, str | bytes))
    if batch:
        yield table, batch


def _numbered(table: str, owner: str, row: Values, added: Mapping[str, int]) -> Values:
    """A row with the numbers of this store, its owner and the hash that guards it."""
    spec = TABLES[table]
    for name, kind in spec.numbers.items():
        if row[name] is not None:
            row[name] = type(row[name])(int(row[name]) + added[kind])
    if table == "journal" and row["id"].startswith(_PLACE):
        row["id"] = f"{_PLACE}{int(row['id'].removeprefix(_PLACE)) + added['place']}"
    return {"owner": owner, **row, **({"row_hash": guard(table, owner, row)} if spec.guarded else {})}
