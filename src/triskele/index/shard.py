"""One tantivy index, on disk or in memory, with an anchor document that carries its stamp."""

from __future__ import annotations

import json
import math
import shutil
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

import tantivy
from tantivy import Document, FieldType, Occur, Query, SchemaBuilder

from triskele.errors import IndexUnavailable
from triskele.store.values import Cursor
from triskele.text import timestamps
from triskele.text.analysis import PADDING, Analyzer, memory_terms
from triskele.text.periods import memory_time
from triskele.types import Memory, Scope, Sort

# Searched fields with their weights; labels are keywords, tags and category together.
FIELDS = {"content": 1.0, "labels": 0.5}
_ANCHOR = "\u0002"
# An update adds an anchor of average length, and the one with the highest number counts. To delete the older ones would
# change the scores: where documents were deleted, tantivy merges segments with lengths that it rounds down.
_NUMBER = "updated_at"
_MOST_ANCHORS = 1000
_MOST_FREQUENCIES = 4096
_PAD = ("\u0003",) * PADDING
_FOOTER_MAGIC = 1337
_GUARDED_FILES = (".idx", ".term", ".store", ".fast", ".fieldnorm", ".pos")
# A reader that follows commits creates a lock file in the folder at any time, even after the index is closed.
_READER = ("Manual", 1)
_BUILD_HEAP_BYTES = 64_000_000
_UPDATE_HEAP_BYTES = 16_000_000
_SORT_FIELDS = {Sort.RECENCY: "updated_at", Sort.IMPORTANCE: "importance"}

Indexed = tuple[Document, dict[str, int]]
# Name, size and moment of writing: tantivy never changes a file that it has written.
FileMark = tuple[str, int, int]


def _schema() -> tantivy.Schema:
    builder = SchemaBuilder()
    for field in FIELDS:
        builder.add_text_field(field, tokenizer_name="whitespace", index_option="freq")
    for field in ("memory", "place", "sensitivity", "origin", "category", "tag"):
        builder.add_text_field(field, tokenizer_name="raw", index_option="basic")
    for field in ("valid_from", "valid_to", "known_from", "known_to", "updated_at", "time"):
        builder.add_integer_field(field, fast=True)
    builder.add_float_field("importance", fast=True)
    builder.add_unsigned_field("row", fast=True, indexed=True)
    for field in ("epoch", "cursor"):
        builder.add_text_field(field, stored=True, tokenizer_name="raw", index_option="basic")
    return builder.build()


SCHEMA = _schema()


@dataclass(frozen=True, slots=True)
class Stamp:
    """The position in the journal that an index reflects, in which run of the journal."""

    epoch: str
    cursor: Cursor


class Found(NamedTuple):
    """A row that matches, with its BM25 score and what the orders go by."""

    row: int
    score: float
    importance: float
    updated_at: float


@dataclass(frozen=True, slots=True)
class ShardStatistics:
    """The BM25 statistics of a shard: its documents, deleted ones included, and the average length of each field."""

    documents: float
    average_lengths: dict[str, float]


class Shard:
    """A searchable snapshot of one tantivy index."""

    def __init__(self, index: tantivy.Index) -> None:
        index.config_reader(*_READER)
        index.reload()
        self._index = index
        self._searcher = index.searcher()
        anchors = Query.term_query(SCHEMA, "content", _ANCHOR, "freq")
        hits = self._searcher.search(anchors, 1, count=False, order_by_field=_NUMBER).hits
        if not hits:
            raise IndexUnavailable("the lexical index has no stamp")
        self._anchor = hits[0][1]
        anchor = self._searcher.doc(self._anchor)
        self.stamp = Stamp(str(anchor.get_first("epoch")), Cursor(anchor.get_first("cursor")))
        self.statistics = self._read_statistics()
        # Words of questions come again, and every leg asks for the words of one question.
        self.frequency = lru_cache(maxsize=_MOST_FREQUENCIES)(self._searcher.doc_freq)
        """the number of documents that contain a term in a field"""
        self._fillers = self._searcher.doc_freq("content", _ANCHOR)
        self.live = self._searcher.num_docs - self._fillers
        # Whether it was written at once: updates leave traces in the average length, and so in the scores.
        self.is_of_one_piece = self._fillers == 1

    @staticmethod
    def open(path: Path, whole: set[FileMark]) -> Shard | None:
        """The shard in a folder; None if it is missing or damaged. Files marked as whole are not read again."""
        if damaged_files(path, whole):
            return None
        try:
            return Shard(tantivy.Index.open(str(path)))
        except (ValueError, OSError, IndexUnavailable):
            return None
        except BaseException as error:
            # tantivy's Rust panics are a separate BaseException; a damaged file must not end the process.
            if type(error).__name__ != "PanicException":
                raise
            return None

    @staticmethod
    def build(path: Path, documents: Iterable[Indexed], *, stamp: Stamp) -> None:
        """Write a new index into a folder."""
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        try:
            _fill(tantivy.Index(SCHEMA, path=str(path)), documents, stamp, heap_bytes=_BUILD_HEAP_BYTES)
        except ValueError as error:
            raise IndexUnavailable(f"cannot write the lexical index: {error}") from error

    @staticmethod
    def in_memory(documents: Iterable[Indexed], *, stamp: Stamp, average_lengths: dict[str, float] | None) -> Shard:
        """A small index whose lengths are padded to the given averages."""
        index = tantivy.Index(SCHEMA)
        _fill(index, documents, stamp, heap_bytes=_UPDATE_HEAP_BYTES, average_lengths=average_lengths)
        return Shard(index)

    def update(self, changed: Iterable[str], documents: Iterable[Indexed], *, stamp: Stamp) -> None:
        """Replace the documents of the changed memories and move the stamp, in one commit."""
        try:
            writer = self._index.writer(_UPDATE_HEAP_BYTES, 1)
            for id in changed:
                writer.delete_documents_by_term("memory", id)
            if self._fillers > _MOST_ANCHORS:
                writer.delete_documents_by_term("content", _ANCHOR)
            for document, _ in documents:
                writer.add_document(document)
            lengths = {field: max(1, round(length)) for field, length in self.statistics.average_lengths.items()}
            writer.add_document(_anchor(stamp, lengths, number=1 + int(self._column(_NUMBER, [self._anchor])[0])))
            writer.commit()
            writer.wait_merging_threads()
        except ValueError as error:
            raise IndexUnavailable(f"cannot write the lexical index: {error}") from error

    def search(
        self,
        weights: Sequence[tuple[str, str, float]],
        scope: Scope,
        masked: frozenset[str],
        *,
        limit: int,
        sort: Sort,
    ) -> list[Found]:
        """The best documents in the order asked for."""
        if not weights:
            return []
        query = Query.boolean_query(
            [
                (Occur.Must, _any_of(weights)),
                *_filters(scope),
                *([(Occur.MustNot, Query.term_set_query(SCHEMA, "memory", sorted(masked)))] if masked else []),
            ]
        )
        if sort is Sort.RELEVANCE:
            return self._run(query, limit, sort)
        hits = self._searcher.search(query, limit, count=False, order_by_field=_SORT_FIELDS[sort]).hits
        rows = [int(row or 0) for row in self._column("row", [address for _, address in hits])]
        among = Query.const_score_query(Query.term_set_query(SCHEMA, "row", rows), 0.0)
        return self._run(Query.boolean_query([(Occur.Must, query), (Occur.Must, among)]), limit, sort)

    def rows(self) -> list[int]:
        """Every row in this shard."""
        hits = self._searcher.search(Query.all_query(), max(1, self._searcher.num_docs), count=False).hits
        values = self._searcher.fast_field_values("row", [address for _, address in hits])
        return [int(value) for value in values if value is not None]

    def _run(self, query: Query, limit: int, sort: Sort) -> list[Found]:
        hits = self._searcher.search(query, limit, count=False).hits
        addresses = [address for _, address in hits]
        rows, importance = self._column("row", addresses), self._column("importance", addresses)
        # Only the order by time needs it.
        updated_at = self._column("updated_at", addresses) if sort is Sort.RECENCY else repeat(0.0)
        return list(map(Found, map(int, rows), (score for score, _ in hits), importance, updated_at))

    def _column(self, name: str, addresses: list[tantivy.DocAddress]) -> list[float]:
        return [value or 0 for value in self._searcher.fast_field_values(name, addresses)]

    def _read_statistics(self) -> ShardStatistics:
        """Read from tantivy's own account of the anchor's score what it counts and averages."""
        documents = 1.0
        lengths: dict[str, float] = {}
        for field in FIELDS:
            query = Query.term_query(SCHEMA, field, _ANCHOR, "freq")
            account = json.loads(query.explain(self._searcher, self._anchor).to_json())
            documents = _value_of(account, "N, total number of docs")
            lengths[field] = _value_of(account, "avgdl, average length of field")
        return ShardStatistics(documents, lengths)


def damaged_files(path: Path, whole: set[FileMark]) -> int:
    """The number of files whose checksum, at their end, does not match.

    A damaged file can make tantivy allocate all memory, so files are checked before tantivy opens them.
    """
    segments = _segments(path)
    return sum(_is_damaged(file, whole) for file in path.glob("*.*") if _is_guarded(file.name, segments))


def _segments(path: Path) -> dict[str, str]:
    """Which segments the index has, with the name of each one's list of deletions; others may be half written."""
    try:
        listed = json.loads((path / "meta.json").read_bytes())["segments"]
        plain = [(segment["segment_id"].replace("-", ""), segment["deletes"]) for segment in listed]
        return {id: f"{id}.{deletes['opstamp']}.del" if deletes else "" for id, deletes in plain}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _is_guarded(name: str, segments: dict[str, str]) -> bool:
    id, _, _ = name.partition(".")
    return id in segments and (name.endswith(_GUARDED_FILES) or name == segments[id])


def _is_damaged(file: Path, whole: set[FileMark]) -> bool:
    try:
        status = file.stat()
        mark = (file.name, status.st_size, status.st_mtime_ns)
        if mark not in whole and _is_whole(file.read_bytes()):
            whole.add(mark)
        return mark not in whole
    except FileNotFoundError:
        # Another process has merged it away meanwhile.
        return False


def _is_whole(content: bytes) -> bool:
    try:
        length, magic = struct.unpack("<II", content[-8:])
        footer = json.loads(content[-8 - length : -8])
        return bool(magic == _FOOTER_MAGIC and zlib.crc32(content[: -8 - length]) == footer["crc"])
    except (struct.error, ValueError, KeyError, TypeError):
        return False


def memory_document(row: int, memory: Memory, analyzer: Analyzer) -> Indexed:
    """The index document of one version, and how many terms each field has."""
    terms = memory_terms(memory, analyzer)
    terms["content"] += _PAD
    document = Document()
    for field, listed in terms.items():
        document.add_text(field, " ".join(listed))
    document.add_unsigned("row", row)
    document.add_text("memory", memory.id)
    for key in _places(memory):
        document.add_text("place", key)
    for field in ("sensitivity", "origin", "category"):
        document.add_text(field, str(getattr(memory, field)))
    for tag in memory.tags:
        document.add_text("tag", tag)
    for field in ("valid_from", "valid_to", "known_from", "known_to", "updated_at"):
        moment = getattr(memory, field)
        if moment is not None:
            document.add_integer(field, timestamps.to_micros(moment))
    document.add_integer("time", timestamps.to_micros(memory_time(memory)))
    document.add_float("importance", memory.importance)
    return document, {field: len(listed) for field, listed in terms.items()}


def _places(memory: Memory) -> list[str]:
    """Terms for owner and project, of any version (a) and of the current one (c)."""
    kinds = "ac" if memory.known_to is None else "a"
    return [_place(kind, memory.owner, project) for kind in kinds for project in (memory.project, None)]


@lru_cache(maxsize=256)
def _place(kind: str, owner: str, project: str | None) -> str:
    return json.dumps([kind, owner, project], ensure_ascii=False)


def _filters(scope: Scope) -> list[tuple[Occur, Query]]:
    kind = "c" if scope.known_at is None else "a"
    projects = [None] if scope.projects is None else sorted(scope.projects)
    must = [_one_of("place", [_place(kind, scope.owner, project) for project in projects])]
    for field, allowed in (("sensitivity", scope.sensitivities), ("origin", scope.origins)):
        if allowed is not None:
            must.append(_one_of(field, sorted(map(str, allowed))))
    if scope.category is not None:
        must.append(Query.term_query(SCHEMA, "category", scope.category, "basic"))
    must += [Query.term_query(SCHEMA, "tag", tag, "basic") for tag in sorted(scope.tags)]
    must_not = []
    if not scope.any_time:
        must_not += _outside("valid_from", "valid_to", timestamps.to_micros(scope.as_of))
    must_not += _beyond(scope)
    if scope.known_at is not None:
        must_not += _outside("known_from", "known_to", timestamps.to_micros(scope.known_at))
    return [(Occur.Must, Query.const_score_query(query, 0.0)) for query in must] + [
        (Occur.MustNot, query) for query in must_not
    ]


def _one_of(field: str, terms: Iterable[str]) -> Query:
    """Documents with any of some terms; a set query would first read every document that has one."""
    return Query.boolean_query([(Occur.Should, Query.term_query(SCHEMA, field, term, "basic")) for term in terms])


def _outside(start: str, end: str, moment: int) -> list[Query]:
    """Intervals that do not hold the moment: begun after it, or ended by then; an open side never excludes."""
    return [
        Query.range_query(SCHEMA, start, FieldType.Integer, moment, None, include_lower=False),
        Query.range_query(SCHEMA, end, FieldType.Integer, None, moment, include_upper=True),
    ]


def _beyond(scope: Scope) -> list[Query]:
    """Memories that are about an earlier or a later time."""
    beyond = []
    if scope.since is not None:
        since = timestamps.to_micros(scope.since)
        beyond.append(Query.range_query(SCHEMA, "time", FieldType.Integer, None, since, include_upper=False))
    if scope.until is not None:
        until = timestamps.to_micros(scope.until)
        beyond.append(Query.range_query(SCHEMA, "time", FieldType.Integer, until, None, include_lower=True))
    return beyond


def _any_of(weights: Sequence[tuple[str, str, float]]) -> Query:
    return Query.boolean_query(
        [
            (Occur.Should, Query.boost_query(Query.term_query(SCHEMA, field, term, "freq"), weight))
            for field, term, weight in weights
        ]
    )


def _fill(
    index: tantivy.Index,
    documents: Iterable[Indexed],
    stamp: Stamp,
    *,
    heap_bytes: int,
    average_lengths: dict[str, float] | None = None,
) -> None:
    index.config_reader(*_READER)
    writer = index.writer(heap_bytes, 1)
    lengths: list[dict[str, int]] = []
    for document, counts in documents:
        writer.add_document(document)
        lengths.append(counts)
    for filler in _fillers(lengths, average_lengths):
        writer.add_document(_anchor(stamp, filler, number=0))
    writer.commit()
    writer.wait_merging_threads()


def _fillers(lengths: Sequence[dict[str, int]], averages: dict[str, float] | None) -> list[dict[str, int]]:
    """Lengths of anchor documents that move the average length of every field to the one wanted."""
    totals = {field: sum(counts[field] for counts in lengths) for field in FIELDS}
    if averages is None:
        return [{field: max(1, round(total / max(1, len(lengths)))) for field, total in totals.items()}]
    wanted = max(math.ceil((totals[field] + 1) / averages[field]) for field in FIELDS if averages[field] > 0)
    count = max(1, wanted - len(lengths))
    missing = {field: max(count, round(averages[field] * (len(lengths) + count)) - totals[field]) for field in FIELDS}
    return [
        {field: missing[field] // count + (1 if position < missing[field] % count else 0) for field in FIELDS}
        for position in range(count)
    ]


def _anchor(stamp: Stamp, lengths: dict[str, int], *, number: int) -> Document:
    document = Document()
    document.add_integer(_NUMBER, number)
    for field, length in lengths.items():
        document.add_text(field, " ".join([_ANCHOR] * length))
    document.add_text("epoch", stamp.epoch)
    document.add_text("cursor", stamp.cursor)
    return document


def _value_of(account: dict[str, Any], description: str) -> float:
    if account["description"] == description:
        return float(account["value"])
    for detail in account.get("details", ()):
        value = _value_of(detail, description)
        if value >= 0:
            return value
    return -1.0
