"""Leaks: what tells the right document before anything is searched."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from triskele.evaluation.datasets import BenchQuery, Document, Qrels
from triskele.evaluation.guards.finding import Finding, Severity

GUARD = "leak"
# Words that give an answer away where they stand in an id or in a key of meta.
_TELLING = frozenset({"answer", "answers", "gold", "golden", "relevant", "relevance", "qrel", "qrels", "label"})
# What documents may share with each other for other reasons; nothing of it is searched.
_EXPECTED_KEYS = frozenset({"scope", "session", "importance", "date", "created", "updated"})
_BY_CHANCE = 0.01
_MIN_COVERED = 0.5
_MIN_NAME = 4
_MIN_NUMBERS = 3
_COMPARED = 20
_START = 4
_MAX_VERBATIM = 0.05
_EXPECTED_VERBATIM = ("exact", "known-item")
_WORD = re.compile(r"[^\W_]+")

Words = tuple[str, ...]


def findings(documents: Sequence[Document], queries: Sequence[BenchQuery], qrels: Qrels) -> Iterator[Finding]:
    """Everything that gives right documents away."""
    right = {query.id: {id for id, grade in qrels[query.id].items() if grade > 0} for query in queries}
    gold = {id for ids in right.values() for id in ids}
    yield from ids_of_questions(documents, right)
    yield from telling_names(documents, gold)
    yield from shared_values(documents, gold)
    yield from verbatim(documents, queries)


def ids_of_questions(documents: Sequence[Document], right: Mapping[str, Collection[str]]) -> Iterator[Finding]:
    """Ids of right documents that hold the id of their question, or are held by it, where others do not."""
    told: list[tuple[str, str]] = []
    by_chance = compared = 0
    for place, (query, ids) in enumerate(right.items()):
        told += [(query, id) for id in sorted(ids) if _tells(query, id)]
        start = place * _COMPARED % len(documents)
        others = [each.id for each in documents[start : start + _COMPARED] if each.id not in ids]
        by_chance += sum(_tells(query, id) for id in others)
        compared += len(others)
    expected = by_chance / max(1, compared) * sum(map(len, right.values()))
    is_named = any(_is_name(query) and _is_name(id) for query, id in told)
    if told and len(told) > 10 * expected and (is_named or len(told) >= _MIN_NUMBERS):
        said = f"{len(told):,} right documents share their id with their question: the id gives the answer away."
        yield Finding(GUARD, Severity.ALARM, said, examples=tuple(f"{query} → {id}" for query, id in told))


def telling_names(documents: Sequence[Document], gold: Collection[str]) -> Iterator[Finding]:
    """Ids, and keys of meta, that say answer or gold and mean it."""
    holders = {
        "ids": [each.id for each in documents if _TELLING & set(_words(each.id))],
        **{
            f"values of meta.{key}": [each.id for each in documents if each.meta.get(key)]
            for key in sorted({key for each in documents for key in each.meta if _TELLING & set(_words(key))})
        },
    }
    for where, ids in holders.items():
        if _gives_away(ids, gold, len(documents)):
            said = f"The {where} of {len(ids):,} documents name them as answers, and right documents have them."
            yield Finding(GUARD, Severity.ALARM, said, examples=tuple(ids))


def _gives_away(holders: Sequence[str], gold: Collection[str], documents: int) -> bool:
    """Whether right documents are at least twice as frequent among the holders as among the others."""
    right = sum(id in gold for id in holders)
    others = documents - len(holders)
    return right > 0 and others > 0 and right / len(holders) >= 2 * (len(gold) - right) / others


def shared_values(documents: Sequence[Document], gold: Collection[str]) -> Iterator[Finding]:
    """Beginnings of ids, and values of meta, that most right documents share and no other has."""
    holders: dict[tuple[str, str], list[str]] = {}
    for document in documents:
        for feature in _features(document):
            holders.setdefault(feature, []).append(document.id)
    rate = len(gold) / len(documents)
    for (key, value), ids in holders.items():
        covers = len(ids) >= _MIN_COVERED * len(gold)
        if covers and rate ** len(ids) * len(holders) < _BY_CHANCE and all(id in gold for id in ids):
            said = f"{len(ids):,} of {len(gold):,} right documents share a value of {key} that no other document has."
            yield Finding(GUARD, Severity.ALARM, said, examples=(f"{key} = {value}",))


def _features(document: Document) -> Iterator[tuple[str, str]]:
    yield "the beginning of the id", re.split(r"[\W_\d]", document.id, maxsplit=1)[0]
    for key, value in document.meta.items():
        if key not in _EXPECTED_KEYS and isinstance(value, str | int | float):
            yield f"meta.{key}", str(value)


def verbatim(documents: Sequence[Document], queries: Sequence[BenchQuery]) -> Iterator[Finding]:
    """Questions that stand word for word in the indexed texts, where their kind does not promise that."""
    asked = {query.id: _words(query.text) for query in queries}
    found = _standing(documents, {id: words for id, words in asked.items() if len(words) >= _START})
    for kind in sorted({query.type for query in queries}):
        those = [query.id for query in queries if query.type == kind]
        hits = [f"{id} in {found[id]}" for id in those if id in found]
        if hits and not kind.lower().startswith(_EXPECTED_VERBATIM):
            severity = Severity.ALARM if len(hits) > _MAX_VERBATIM * len(those) else Severity.NOTE
            said = f"{len(hits):,} of {len(those):,} questions of {kind} stand word for word in an indexed text."
            yield Finding(GUARD, severity, said, stratum=kind, examples=tuple(hits))


def _standing(documents: Sequence[Document], asked: Mapping[str, Words]) -> dict[str, str]:
    """Questions by their id with the first document that holds all their words in a row."""
    starts: dict[Words, list[str]] = {}
    for id, words in asked.items():
        starts.setdefault(words[:_START], []).append(id)
    found: dict[str, str] = {}
    for document in documents:
        words = _words(document.text)
        for place, start in enumerate(zip(*(words[shift:] for shift in range(_START)), strict=False)):
            for id in starts.get(start, ()):
                if words[place : place + len(asked[id])] == asked[id]:
                    found.setdefault(id, document.id)
    return found


def _tells(query: str, document: str) -> bool:
    one, other = (f" {' '.join(_words(id))} " for id in (query, document))
    return one in other or other in one


def _is_name(id: str) -> bool:
    """Whether an id is long enough to be no coincidence; a number is none."""
    return len(id) >= _MIN_NAME and any(character.isalpha() for character in id)


def _words(text: str) -> Words:
    return tuple(_WORD.findall(text.lower()))
