"""HotpotQA, 2WikiMultiHopQA and MuSiQue as HippoRAG keeps them: NAME.json beside NAME_corpus.json."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

from triskele.errors import BadInput
from triskele.evaluation.datasets import DEFAULT_TYPE, BenchQuery
from triskele.evaluation.loaders.collecting import Collector, Loaded
from triskele.evaluation.loaders.fields import Fields, list_of, text_of
from triskele.evaluation.loaders.listing import items
from triskele.evaluation.loaders.reading import beside, files_at, plain_name

MARKS = (frozenset({"question", "context", "supporting_facts"}), frozenset({"question", "paragraphs"}))
UNKNOWN = "gold passages that the corpus does not have"

_CORPUS = "_corpus"
_HOPS = re.compile(r"(\d)hop")

Passage = tuple[str, str]


def offers(path: Path) -> list[Path]:
    """The files of questions that have a corpus beside them; a corpus stands for its questions."""
    found = {_questions(file) for file in files_at(path) if file.name.removesuffix(".gz").endswith(".json")}
    return sorted(file for file in found if file is not None)


def load(path: Path) -> Loaded:
    """Read the questions of a file and the passages beside it."""
    name = plain_name(path)
    corpus = beside(path.parent, f"{name}{_CORPUS}.json")
    if corpus is None:
        raise BadInput(f"{path} has no {name}{_CORPUS}.json beside it")
    collector = Collector(name, path)
    places: dict[Passage, list[str]] = {}
    for number, item in enumerate(items(collector.source(corpus))):
        title, text, id = item.text("title"), item.text("text"), f"p{number:06d}"
        collector.add(item, id, f"{title}\n{text}".strip(), meta={"title": title})
        places.setdefault(_key(title, text), []).append(id)
    for item in items(collector.source(path)):
        _ask(collector, item, places)
    return collector.loaded()


def _questions(file: Path) -> Path | None:
    name = plain_name(file)
    if name.endswith(_CORPUS):
        return beside(file.parent, f"{name.removesuffix(_CORPUS)}.json")
    return file if beside(file.parent, f"{name}{_CORPUS}.json") is not None else None


def _ask(collector: Collector, item: Fields, places: dict[Passage, list[str]]) -> None:
    id = item.name("_id", "id")
    collector.ask(item.where, BenchQuery(id, item.text("question"), _type(item, id), None))
    gold = next((read for key, read in _GOLD.items() if key in item.values), None)
    if gold is None:
        raise item.wrong(f"has none of {', '.join(_GOLD)}")
    for passage in dict.fromkeys(gold(item)):
        if passage not in places:
            collector.skip(UNKNOWN)
        for document in places.get(passage, ()):
            collector.label(id, document)


def _type(item: Fields, id: str) -> str:
    if item.values.get("answerable") is False:
        return "unanswerable"
    hops = _HOPS.match(id)
    return item.optional_text("type") or (hops[0] if hops else DEFAULT_TYPE)


def _supported(item: Fields) -> Iterator[Passage]:
    """HotpotQA and 2Wiki: the passages whose titles the supporting facts name."""
    facts, context = item.parts("supporting_facts"), item.parts("context")
    titles = {_pair(fact, f"{item.where}, supporting_facts {place}")[0] for place, fact in enumerate(facts, 1)}
    for place, entry in enumerate(context, start=1):
        where = f"{item.where}, context {place}"
        title, sentences = _pair(entry, where)
        if title in titles:
            yield _key(title, "".join(text_of(sentence, where) for sentence in list_of(sentences, where)))


def _marked(item: Fields) -> Iterator[Passage]:
    """MuSiQue: the paragraphs that are marked; one without a mark is gold, as in the files made from it."""
    for paragraph in item.objects("paragraphs"):
        if paragraph.values.get("is_supporting") is not False:
            yield _key(paragraph.text("title"), paragraph.text("paragraph_text", "text"))


_GOLD: dict[str, Callable[[Fields], Iterator[Passage]]] = {"supporting_facts": _supported, "paragraphs": _marked}


def _pair(value: object, where: str) -> tuple[str, object]:
    parts = list_of(value, where)
    if len(parts) != 2:
        raise BadInput(f"{where}: is not a title and what belongs to it")
    return text_of(parts[0], where), parts[1]


def _key(title: str, text: str) -> Passage:
    """A passage by its letters: sentences are joined with and without spaces."""
    return _letters(title), _letters(text)


def _letters(text: str) -> str:
    return "".join(unicodedata.normalize("NFKC", text).split())
