"""TREC judgements (query, 0, document, grade) beside a corpus and queries."""

from __future__ import annotations

import re
from pathlib import Path

from triskele.errors import BadInput
from triskele.evaluation.datasets import DEFAULT_TYPE, BenchQuery
from triskele.evaluation.loaders.collecting import Collector, Loaded
from triskele.evaluation.loaders.fields import cleaned
from triskele.evaluation.loaders.judged import CORPUS, QUERIES, add_documents, add_labels, read_labels, read_queries
from triskele.evaluation.loaders.reading import Source, beside, files_at

_LABELS = "qrel"
_TOPICS = re.compile(r"(topics|queries).*\.(tsv|txt)(\.gz)?", re.IGNORECASE)


def offers(path: Path) -> list[Path]:
    """The files of judgements in a folder with a corpus, or one of them itself."""
    folder = path if path.is_dir() else path.parent
    if beside(folder, CORPUS) is None:
        return []
    return [file for file in files_at(path) if _LABELS in file.name.lower()]


def load(path: Path) -> Loaded:
    """Read the collection that a file of judgements belongs to."""
    folder = path.resolve().parent
    collector = Collector(folder.name, folder)
    queries = beside(folder, QUERIES) or _topics(folder)
    add_documents(collector, folder)
    source = collector.source(queries)
    read = read_queries if QUERIES in queries.name else _read_topics
    for where, query in read(source):
        collector.ask(where, query)
    add_labels(collector, read_labels(collector.source(path)), path)
    return collector.loaded()


def _topics(folder: Path) -> Path:
    found = [file for file in files_at(folder) if _TOPICS.fullmatch(file.name)]
    if not found:
        raise BadInput(f"{folder} has no {QUERIES} and no topics.tsv")
    if len(found) > 1:
        raise BadInput(f"{folder} has several files of queries: {', '.join(file.name for file in found)}")
    return found[0]


def _read_topics(source: Source) -> list[tuple[str, BenchQuery]]:
    asked = []
    for where, line in source.lines():
        id, tab, text = line.partition("\t")
        if not tab or not id.strip() or "\t" in text.strip():
            raise BadInput(f"{where}: is not a query id and a text with one tab between")
        asked.append((where, BenchQuery(id.strip(), cleaned(text), DEFAULT_TYPE, None)))
    return asked
