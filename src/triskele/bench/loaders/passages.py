"""Passage collections: BEIR (Thakur 2021), TREC, HotpotQA, 2WikiMultiHopQA, MuSiQue.

The three multi-hop sets are read in the form of HippoRAG, NAME.json next to NAME_corpus.json.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

from triskele.bench.datasets import DEFAULT_TYPE, BenchQuery, Dataset
from triskele.bench.loaders.sources import (
    DatasetBuilder,
    Fields,
    Source,
    beside,
    cleaned,
    files_at,
    list_items,
    list_of,
    plain_name,
    required,
    text_of,
)
from triskele.errors import BadInput

MULTI_HOP_KEYS = (frozenset({"question", "context", "supporting_facts"}), frozenset({"question", "paragraphs"}))
UNKNOWN_PASSAGES = "gold passages that the corpus does not have"
UNKNOWN_DOCUMENTS = "labels of documents that the corpus does not have"
SPLITS = ("test", "dev", "train")

_CORPUS, _QUERIES = "corpus.jsonl", "queries.jsonl"
_BEIR_LABELS, _TREC_LABELS = "qrels", "qrel"
_TOPICS = re.compile(r"(topics|queries).*\.(tsv|txt)(\.gz)?", re.IGNORECASE)
_BESIDE = "_corpus"
_HOPS = re.compile(r"(\d)hop")
# By the number of columns: where the query, the document and the grade are.
_COLUMNS = {3: (0, 1, 2), 4: (0, 2, 3)}

Labels = dict[str, dict[str, int]]
Passage = tuple[str, str]


def beir_files(path: Path) -> list[Path]:
    """Label files of a BEIR folder, of the test split if present."""
    if path.is_dir():
        if beside(path, _CORPUS) is None:
            return []
        splits = (beside(path / _BEIR_LABELS, f"{split}.tsv") for split in SPLITS)
        return [split for split in splits if split is not None][:1]
    inside = path.resolve().parent
    return [path] if inside.name == _BEIR_LABELS and beside(inside.parent, _CORPUS) is not None else []


def load_beir(path: Path) -> Dataset:
    """Read the collection of a label file, without other splits' queries."""
    folder = path.resolve().parent.parent
    split = path.name.split(".")[0]
    builder = DatasetBuilder(folder.name if split == SPLITS[0] else f"{folder.name}-{split}", folder)
    queries = required(folder, _QUERIES)
    _add_documents(builder, folder)
    rows = _read_queries(builder.source(queries))
    labels = _read_labels(builder.source(path))
    for where, query in rows:
        if query.id in labels:
            builder.ask(where, query)
    _add_labels(builder, labels, path)
    return builder.build()


def trec_files(path: Path) -> list[Path]:
    """TREC judgement files in a folder with a corpus."""
    folder = path if path.is_dir() else path.parent
    if beside(folder, _CORPUS) is None:
        return []
    return [file for file in files_at(path) if _TREC_LABELS in file.name.lower()]


def load_trec(path: Path) -> Dataset:
    """Read the collection that a file of judgements belongs to."""
    folder = path.resolve().parent
    builder = DatasetBuilder(folder.name, folder)
    queries = beside(folder, _QUERIES) or _topics(folder)
    _add_documents(builder, folder)
    read = _read_queries if _QUERIES in queries.name else _read_topics
    for where, query in read(builder.source(queries)):
        builder.ask(where, query)
    _add_labels(builder, _read_labels(builder.source(path)), path)
    return builder.build()


def _topics(folder: Path) -> Path:
    topics = [file for file in files_at(folder) if _TOPICS.fullmatch(file.name)]
    if not topics:
        raise BadInput(f"{folder} has no {_QUERIES} and no topics.tsv")
    if len(topics) > 1:
        raise BadInput(f"{folder} has several files of queries: {', '.join(file.name for file in topics)}")
    return topics[0]


def _read_topics(source: Source) -> list[tuple[str, BenchQuery]]:
    rows = []
    for where, line in source.lines():
        id, tab, text = line.partition("\t")
        if not tab or not id.strip() or "\t" in text.strip():
            raise BadInput(f"{where}: is not a query id and a text with one tab between")
        rows.append((where, BenchQuery(id.strip(), cleaned(text), DEFAULT_TYPE, None)))
    return rows


def _add_documents(builder: DatasetBuilder, folder: Path) -> None:
    """Add every line of the corpus, its title above its text."""
    for record in builder.source(required(folder, _CORPUS)).records():
        title, text = record.optional_text("title"), record.text("text", "contents")
        meta = {"title": title} if title else {}
        builder.add(record, record.name("_id", "id", "docid"), f"{title}\n{text}".strip(), meta=meta)


def _read_queries(source: Source) -> list[tuple[str, BenchQuery]]:
    """The queries of a JSONL file, each with its place."""
    return [
        (record.where, BenchQuery(record.name("_id", "id"), record.text("text"), DEFAULT_TYPE, None))
        for record in source.records()
    ]


def _read_labels(source: Source) -> Labels:
    """Judgements in three columns, or in TREC's four."""
    labels: Labels = {}
    for number, (where, line) in enumerate(source.lines()):
        parts = line.split("\t")
        parts = [part.strip() for part in parts] if len(parts) in _COLUMNS else line.split()
        if len(parts) not in _COLUMNS:
            raise BadInput(f"{where}: is neither query, document and grade nor TREC's four columns")
        query, document, grade = (parts[column] for column in _COLUMNS[len(parts)])
        try:
            labels.setdefault(query, {})[document] = int(grade)
        except ValueError:
            # The first line may be a header.
            if number:
                raise BadInput(f"{where}: has a grade that is not a whole number: {grade[:40]!r}") from None
    return labels


def _add_labels(builder: DatasetBuilder, labels: Labels, path: Path) -> None:
    """Add judgements of known documents; the others are counted."""
    added = 0
    for query, judged in labels.items():
        grades = {document: grade for document, grade in judged.items() if builder.has(document)}
        builder.skip(UNKNOWN_DOCUMENTS, len(judged) - len(grades))
        for document, grade in grades.items():
            builder.label(query, document, grade)
            added += 1
    if not added:
        raise BadInput(f"{path}: labels no document of the corpus next to it")


def multi_hop_files(path: Path) -> list[Path]:
    """Question files that have a corpus next to them."""
    questions = {_questions(file) for file in files_at(path) if file.name.removesuffix(".gz").endswith(".json")}
    return sorted(file for file in questions if file is not None)


def load_multi_hop(path: Path) -> Dataset:
    """Read the questions of a file and the passages next to it."""
    name = plain_name(path)
    corpus = beside(path.parent, f"{name}{_BESIDE}.json")
    if corpus is None:
        raise BadInput(f"{path} has no {name}{_BESIDE}.json next to it")
    builder = DatasetBuilder(name, path)
    documents: dict[Passage, list[str]] = {}
    for number, item in enumerate(list_items(builder.source(corpus))):
        title, text, id = item.text("title"), item.text("text"), f"p{number:06d}"
        builder.add(item, id, f"{title}\n{text}".strip(), meta={"title": title})
        documents.setdefault(_key(title, text), []).append(id)
    for item in list_items(builder.source(path)):
        _ask_multi_hop(builder, item, documents)
    return builder.build()


def _questions(file: Path) -> Path | None:
    name = plain_name(file)
    if name.endswith(_BESIDE):
        return beside(file.parent, f"{name.removesuffix(_BESIDE)}.json")
    return file if beside(file.parent, f"{name}{_BESIDE}.json") is not None else None


def _ask_multi_hop(builder: DatasetBuilder, item: Fields, documents: dict[Passage, list[str]]) -> None:
    id = item.name("_id", "id")
    builder.ask(item.where, BenchQuery(id, item.text("question"), _type(item, id), None))
    gold = next((read for key, read in _GOLD.items() if key in item.values), None)
    if gold is None:
        raise item.wrong(f"has none of {', '.join(_GOLD)}")
    for passage in dict.fromkeys(gold(item)):
        if passage not in documents:
            builder.skip(UNKNOWN_PASSAGES)
        for document in documents.get(passage, ()):
            builder.label(id, document)


def _type(item: Fields, id: str) -> str:
    if item.values.get("answerable") is False:
        return "unanswerable"
    hops = _HOPS.match(id)
    return item.optional_text("type") or (hops[0] if hops else DEFAULT_TYPE)


def _supported(item: Fields) -> Iterator[Passage]:
    """HotpotQA and 2Wiki: the passages whose titles are in the supporting facts."""
    facts, context = item.parts("supporting_facts"), item.parts("context")
    titles = {_pair(fact, f"{item.where}, supporting_facts {number}")[0] for number, fact in enumerate(facts, 1)}
    for number, entry in enumerate(context, start=1):
        where = f"{item.where}, context {number}"
        title, sentences = _pair(entry, where)
        if title in titles:
            yield _key(title, "".join(text_of(sentence, where) for sentence in list_of(sentences, where)))


def _marked(item: Fields) -> Iterator[Passage]:
    """MuSiQue's marked paragraphs; one without a mark is gold."""
    for paragraph in item.objects("paragraphs"):
        if paragraph.values.get("is_supporting") is not False:
            yield _key(paragraph.text("title"), paragraph.text("paragraph_text", "text"))


_GOLD: dict[str, Callable[[Fields], Iterator[Passage]]] = {"supporting_facts": _supported, "paragraphs": _marked}


def _pair(value: object, where: str) -> tuple[str, object]:
    parts = list_of(value, where)
    if len(parts) != 2:
        raise BadInput(f"{where}: is not a title with its content")
    return text_of(parts[0], where), parts[1]


def _key(title: str, text: str) -> Passage:
    """A passage by its letters alone, without spaces."""
    return _letters(title), _letters(text)


def _letters(text: str) -> str:
    return "".join(unicodedata.normalize("NFKC", text).split())
