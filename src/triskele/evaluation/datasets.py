"""Data sets on disk: a folder with documents, queries and relevance labels, read into frozen values."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from triskele import validation
from triskele.errors import BadInput

# Queries of these kinds have no right answer, so no ranking of theirs is right or wrong.
UNRANKED_TYPES = frozenset({"adversarial", "unanswerable", "abstention"})
DEFAULT_TYPE = "all"
_MANIFEST = "manifest.json"
_OWN_FILES = ("corpus.jsonl", "queries.jsonl", "qrels.tsv")

Qrels = Mapping[str, Mapping[str, int]]
Half = Literal["tune", "test"]


@dataclass(frozen=True, slots=True)
class Document:
    """A text to find; `position` counts its place among the documents of its session."""

    id: str
    text: str
    scope: str | None
    session: str | None
    position: int
    meta: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BenchQuery:
    """A question of a data set; where it has a scope, only documents of that scope and of none may answer."""

    id: str
    text: str
    type: str
    scope: str | None
    meta: Mapping[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class Dataset:
    """Documents, questions and labels; `sha256` names the bytes that they were read from.

    `about` is what the set's manifest says of its making, `skipped` what of its labels could not be used.
    """

    name: str
    documents: tuple[Document, ...]
    queries: tuple[BenchQuery, ...]
    qrels: Qrels
    sha256: str
    about: Mapping[str, Any] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)

    def ranked(self) -> tuple[BenchQuery, ...]:
        """The queries that count in ranked metrics: answerable, and with a relevant document."""
        return tuple(q for q in self.queries if q.type not in UNRANKED_TYPES and self._has_relevant(q))

    def unranked(self) -> tuple[BenchQuery, ...]:
        """The queries that have no right answer."""
        return tuple(q for q in self.queries if q.type in UNRANKED_TYPES)

    def left_out(self) -> dict[str, int]:
        """How many queries stay out of the ranked metrics, by reason."""
        unanswerable = len(self.unranked())
        return {"unanswerable": unanswerable, "unlabelled": len(self.queries) - len(self.ranked()) - unanswerable}

    def _has_relevant(self, query: BenchQuery) -> bool:
        return any(grade > 0 for grade in self.qrels.get(query.id, {}).values())


def half(query: BenchQuery) -> Half:
    """The half that a query belongs to for good; queries of one scope stay together."""
    key = query.id if query.scope is None else query.scope
    return "test" if hashlib.sha256(key.encode()).digest()[0] & 1 else "tune"


def load_dataset(folder: Path) -> Dataset:
    """Read a data set: a folder with corpus.jsonl, queries.jsonl and qrels.tsv, plain or gzipped, or a public form."""
    if not folder.exists():
        raise BadInput(f"no data set folder: {folder}")
    if not all((folder / name).is_file() or (folder / f"{name}.gz").is_file() for name in _OWN_FILES):
        # Imported here: the loaders build on the values above.
        from triskele.evaluation.loaders.forms import load_public

        if (public := load_public(folder)) is not None:
            return replace(public.dataset, about=_about(folder), skipped=public.skipped)
    files = [_File.read(folder, name) for name in _OWN_FILES]
    corpus, queries, labels = files
    documents = tuple(_documents(corpus))
    return Dataset(
        name=folder.resolve().name,
        documents=documents,
        queries=tuple(_queries(queries)),
        qrels=_qrels(labels, {document.id for document in documents}),
        sha256=hashlib.sha256(b"\0".join(file.content for file in files)).hexdigest(),
        about=_about(folder),
    )


def _about(folder: Path) -> Mapping[str, Any]:
    """What the set says of its own making, where it says anything."""
    path = folder / _MANIFEST
    if not path.is_file():
        return {}
    try:
        said = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot read {path}: {error}") from None
    if not isinstance(said, dict):
        raise BadInput(f"{path}: is not a JSON object")
    return said


@dataclass(frozen=True, slots=True)
class _File:
    """The bytes of one file, unpacked."""

    path: Path
    content: bytes

    @staticmethod
    def read(folder: Path, name: str) -> _File:
        plain, packed = folder / name, folder / f"{name}.gz"
        path = packed if packed.is_file() and not plain.is_file() else plain
        try:
            content = path.read_bytes()
            return _File(path, gzip.decompress(content) if path == packed else content)
        except FileNotFoundError:
            raise BadInput(f"{folder} has no {name} or {name}.gz") from None
        except (OSError, EOFError, zlib.error) as error:
            raise BadInput(f"cannot read {path}: {error}") from error

    def lines(self) -> Iterator[tuple[int, str]]:
        """The lines that hold something, with their numbers."""
        for number, line in enumerate(self.content.split(b"\n"), start=1):
            if not line.strip():
                continue
            try:
                yield number, line.decode().rstrip("\r")
            except UnicodeDecodeError:
                raise self.wrong(number, "is not UTF-8") from None

    def wrong(self, number: int, problem: str) -> BadInput:
        return BadInput(f"{self.path}, line {number}: {problem}")


@dataclass(frozen=True, slots=True)
class _Record:
    """One checked line of a JSONL file."""

    id: str
    text: str
    type: str
    meta: Mapping[str, Any]
    scope: str | None
    session: str | None


def _documents(file: _File) -> Iterator[Document]:
    places: dict[tuple[str | None, str | None], int] = {}
    for record in _records(file):
        session = (record.scope, record.session)
        position = places[session] = places.get(session, -1) + 1
        yield Document(record.id, record.text, record.scope, record.session, position, record.meta)


def _queries(file: _File) -> Iterator[BenchQuery]:
    for record in _records(file):
        yield BenchQuery(record.id, record.text, record.type, record.scope, record.meta)


def _records(file: _File) -> Iterator[_Record]:
    seen: set[str] = set()
    for number, line in file.lines():
        try:
            record = _record(json.loads(line))
        except (ValueError, BadInput) as error:
            problem = "is not valid JSON" if isinstance(error, json.JSONDecodeError) else str(error)
            raise file.wrong(number, problem) from None
        if record.id in seen:
            raise file.wrong(number, f"repeats the id {record.id!r}")
        seen.add(record.id)
        yield record


def _record(values: object) -> _Record:
    if not isinstance(values, dict):
        raise ValueError("is not a JSON object")
    meta = values.get("meta") or {}
    if not isinstance(meta, dict):
        raise ValueError("has a meta that is not an object")
    text = values.get("text")
    if not isinstance(text, str):
        raise ValueError("has no text")
    return _Record(
        id=_name(values, "id") or _missing("id"),
        text=validation.clean(text, "the text"),
        type=_name(values, "type") or DEFAULT_TYPE,
        meta=meta,
        scope=_name(meta, "scope"),
        session=_name(meta, "session"),
    )


def _name(values: Mapping[str, Any], key: str) -> str | None:
    """A short value that may be written as text or as a whole number; empty is none."""
    value = values.get(key)
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"has a {key} that is neither text nor a whole number")
    return validation.clean(str(value), f"the {key}")


def _missing(key: str) -> str:
    raise ValueError(f"has no {key}")


def _qrels(file: _File, documents: set[str]) -> Qrels:
    qrels: dict[str, dict[str, int]] = {}
    for number, line in file.lines():
        parts = line.split("\t")
        if len(parts) != 3:
            raise file.wrong(number, "is not qid, docid and grade between tabs")
        query, document, grade = (part.strip() for part in parts)
        try:
            value = int(grade)
        except ValueError:
            if number == 1:
                continue
            raise file.wrong(number, f"has a grade that is not a whole number: {grade!r}") from None
        if document not in documents:
            raise file.wrong(number, f"labels a document that the corpus does not have: {document!r}")
        qrels.setdefault(query, {})[document] = value
    return qrels
