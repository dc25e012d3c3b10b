"""What BEIR and TREC collections share: a corpus and queries in JSONL, and judgements in columns."""

from __future__ import annotations

from pathlib import Path

from triskele.errors import BadInput
from triskele.evaluation.datasets import DEFAULT_TYPE, BenchQuery
from triskele.evaluation.loaders.collecting import Collector
from triskele.evaluation.loaders.reading import Source, beside

CORPUS = "corpus.jsonl"
QUERIES = "queries.jsonl"
UNKNOWN = "labels of documents that the corpus does not have"

# By the number of columns, where the query, the document and the grade stand.
_COLUMNS = {3: (0, 1, 2), 4: (0, 2, 3)}

Labels = dict[str, dict[str, int]]


def add_documents(collector: Collector, folder: Path) -> None:
    """Every line of the corpus, its title above its text."""
    path = beside(folder, CORPUS)
    if path is None:
        raise BadInput(f"{folder} has no {CORPUS} or {CORPUS}.gz")
    for record in collector.source(path).records():
        title, text = record.optional_text("title"), record.text("text", "contents")
        meta = {"title": title} if title else {}
        collector.add(record, record.name("_id", "id", "docid"), f"{title}\n{text}".strip(), meta=meta)


def read_queries(source: Source) -> list[tuple[str, BenchQuery]]:
    """The queries of a JSONL file, each after its place."""
    return [
        (record.where, BenchQuery(record.name("_id", "id"), record.text("text"), DEFAULT_TYPE, None))
        for record in source.records()
    ]


def read_labels(source: Source) -> Labels:
    """Judgements in three columns (query, document, grade) or four (TREC's, with one unused)."""
    labels: Labels = {}
    for place, (where, line) in enumerate(source.lines()):
        parts = line.split("\t")
        parts = [part.strip() for part in parts] if len(parts) in _COLUMNS else line.split()
        if len(parts) not in _COLUMNS:
            raise BadInput(f"{where}: is neither query, document and grade nor TREC's four columns")
        query, document, grade = (parts[column] for column in _COLUMNS[len(parts)])
        try:
            labels.setdefault(query, {})[document] = int(grade)
        except ValueError:
            # The first line may be a header.
            if place:
                raise BadInput(f"{where}: has a grade that is not a whole number: {grade[:40]!r}") from None
    return labels


def add_labels(collector: Collector, labels: Labels, path: Path) -> None:
    """Judgements of documents that are there; the others are counted."""
    kept = 0
    for query, judged in labels.items():
        known = {document: grade for document, grade in judged.items() if collector.has(document)}
        collector.skip(UNKNOWN, len(judged) - len(known))
        for document, grade in known.items():
            collector.label(query, document, grade)
            kept += 1
    if not kept:
        raise BadInput(f"{path}: labels no document of the corpus beside it")
