"""BEIR (Thakur et al. 2021): corpus.jsonl, queries.jsonl and a folder of qrels, one file per split."""

from __future__ import annotations

from pathlib import Path

from triskele.errors import BadInput
from triskele.evaluation.loaders.collecting import Collector, Loaded
from triskele.evaluation.loaders.judged import CORPUS, QUERIES, add_documents, add_labels, read_labels, read_queries
from triskele.evaluation.loaders.reading import beside

SPLITS = ("test", "dev", "train")
_LABELS = "qrels"


def offers(path: Path) -> list[Path]:
    """The labels that a folder is measured by, the test split if there is one; or a file of labels itself."""
    if path.is_dir():
        if beside(path, CORPUS) is None:
            return []
        splits = (beside(path / _LABELS, f"{split}.tsv") for split in SPLITS)
        return [split for split in splits if split is not None][:1]
    inside = path.resolve().parent
    return [path] if inside.name == _LABELS and beside(inside.parent, CORPUS) is not None else []


def load(path: Path) -> Loaded:
    """Read the collection that a file of labels belongs to; queries of other splits stay out."""
    folder = path.resolve().parent.parent
    split = path.name.split(".")[0]
    collector = Collector(folder.name if split == SPLITS[0] else f"{folder.name}-{split}", folder)
    queries = beside(folder, QUERIES)
    if queries is None:
        raise BadInput(f"{folder} has no {QUERIES} or {QUERIES}.gz")
    add_documents(collector, folder)
    asked = read_queries(collector.source(queries))
    labels = read_labels(collector.source(path))
    for where, query in asked:
        if query.id in labels:
            collector.ask(where, query)
    add_labels(collector, labels, path)
    return collector.loaded()
