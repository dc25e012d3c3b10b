"""Load a data set: triskele's own folder format or a public set."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path
from typing import Any

from triskele.bench.datasets import DEFAULT_TYPE, BenchQuery, Dataset
from triskele.bench.loaders import conversations, passages
from triskele.bench.loaders.sources import DatasetBuilder, Fields, Source, beside, files_at, list_items, required
from triskele.errors import BadInput

CORPUS, QUERIES, QRELS = _FILES = ("corpus.jsonl", "queries.jsonl", "qrels.tsv")
_MANIFEST = "manifest.json"
_MAX_PEEKS = 100


def load_dataset(path: Path) -> Dataset:
    """Read a folder with corpus, queries and qrels, or a public set."""
    if not path.exists():
        raise BadInput(f"no data set folder: {path}")
    if not all(beside(path, name) for name in _FILES) and (public := load_public(path)) is not None:
        return replace(public, about=_about(path))
    return _load_folder(path)


@dataclass(frozen=True, slots=True)
class DatasetFormat:
    """How a format is found by names, recognised by keys, and read."""

    about: str
    offers: Callable[[Path], list[Path]]
    load: Callable[[Path], Dataset]
    keys: tuple[frozenset[str], ...] = ()


def _named(*patterns: str) -> Callable[[Path], list[Path]]:
    def offers(path: Path) -> list[Path]:
        names = {file: file.name.removesuffix(".gz") for file in files_at(path)}
        return [file for file, name in names.items() if any(fnmatch(name, pattern) for pattern in patterns)]

    return offers


FORMATS = {
    "locomo": DatasetFormat(
        "locomo10.json", _named("locomo*.json"), conversations.load_locomo, (conversations.LOCOMO_KEYS,)
    ),
    "longmemeval": DatasetFormat(
        "longmemeval_s.json",
        _named("longmemeval*.json", "longmemeval_[sm]", "longmemeval_oracle"),
        conversations.load_longmemeval,
        (conversations.LONGMEMEVAL_KEYS,),
    ),
    "passages": DatasetFormat(
        "NAME.json with NAME_corpus.json", passages.multi_hop_files, passages.load_multi_hop, passages.MULTI_HOP_KEYS
    ),
    "beir": DatasetFormat("a BEIR folder", passages.beir_files, passages.load_beir),
    "trec": DatasetFormat("TREC qrels with corpus.jsonl and queries", passages.trec_files, passages.load_trec),
}


def load_public(path: Path) -> Dataset | None:
    """The public data set at a path, or None."""
    files = {file: form for form in FORMATS.values() for file in form.offers(path)} or _recognised(path)
    if len(files) > 1:
        raise BadInput(f"{path} holds several data sets: name one of {', '.join(sorted(map(str, files)))}")
    for file, form in files.items():
        return form.load(file)
    if path.is_file():
        names = ", ".join(form.about for form in FORMATS.values())
        raise BadInput(f"{path}: unknown data set format; the known ones are {names}")
    return None


def _recognised(path: Path) -> dict[Path, DatasetFormat]:
    """JSON files whose first object has the keys of a format."""
    form_of: dict[Path, DatasetFormat] = {}
    for file in islice((f for f in files_at(path) if f.name.removesuffix(".gz").endswith(".json")), _MAX_PEEKS):
        try:
            keys = frozenset(key for first in islice(list_items(Source(file)), 1) for key in first.values)
        except BadInput:
            # A folder may hold other files; a file that was named has to be readable.
            if path.is_file():
                raise
            continue
        fitting = [form for form in FORMATS.values() if any(marks <= keys for marks in form.keys)]
        if fitting:
            form_of[file] = fitting[0]
    return form_of


def _load_folder(folder: Path) -> Dataset:
    builder = DatasetBuilder(folder.resolve().name, folder)
    corpus, queries, labels = (builder.source(required(folder, name)) for name in _FILES)
    for record in corpus.records():
        id, meta = record.name("id"), _meta(record)
        scope, session = meta.optional_name("scope"), meta.optional_name("session")
        builder.add(record, id, record.strict_text("text"), scope=scope, session=session, meta=meta.values)
    for record in queries.records():
        id, meta, type = record.name("id"), _meta(record), record.optional_name("type") or DEFAULT_TYPE
        query = BenchQuery(id, record.strict_text("text"), type, meta.optional_name("scope"), meta.values)
        builder.ask(record.where, query, may_be_empty=True)
    _add_labels(builder, labels)
    return replace(builder.build(), about=_about(folder))


def _about(folder: Path) -> Mapping[str, Any]:
    """The manifest of a data set, empty without one."""
    path = folder / _MANIFEST
    if not path.is_file():
        return {}
    try:
        manifest = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot read {path}: {error}") from None
    if not isinstance(manifest, dict):
        raise BadInput(f"{path}: is not a JSON object")
    return manifest


def _meta(record: Fields) -> Fields:
    return record.object("meta") if record.values.get("meta") else Fields({}, record.where)


def _add_labels(builder: DatasetBuilder, source: Source) -> None:
    for number, (where, line) in enumerate(source.lines()):
        parts = line.split("\t")
        if len(parts) != 3:
            raise BadInput(f"{where}: is not qid, docid and grade between tabs")
        query, document, grade = (part.strip() for part in parts)
        try:
            value = int(grade)
        except ValueError:
            # The first line may be a header.
            if number == 0:
                continue
            raise BadInput(f"{where}: has a grade that is not a whole number: {grade!r}") from None
        if not builder.has(document):
            raise BadInput(f"{where}: labels a document that the corpus does not have: {document!r}")
        builder.label(query, document, value)
