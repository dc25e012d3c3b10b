"""A corpus without any index: it goes through the whole list of memories for every question."""

from __future__ import annotations

import bisect
import copy
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from triskele.engine.local import LocalEngine
from triskele.index.corpus import Bits, Bools, CorpusQuestion, Facts, Floats, Ints, Mentions
from triskele.index.token_vectors import compressed
from triskele.models.embedder import Encoding
from triskele.store.vector_bytes import restored, rounded
from triskele.text import timestamps
from triskele.text.analysis import Analyzer
from triskele.types import Memory, Role, Scope, Sort

K1, B = 1.2, 0.75
PADDING = 32
LABELS_WEIGHT = 0.5
# Lengths that BM25 tells apart: every one up to 40, then ever coarser steps.
LENGTHS = sorted({*range(40), *(24 + (8 + low) * 2**shift for shift in range(1, 25) for low in range(8))})
Concepts = list[tuple[int, int, bool]]


class Hit(NamedTuple):
    row: int
    score: float
    importance: float
    updated_at: float


class BruteForceCorpus:
    """Everything is computed from the memories when it is asked for."""

    def __init__(self, engine: LocalEngine, encoded: dict[str, Encoding], scope: Scope) -> None:
        self._scope = scope
        self._store = engine.store
        self.names = engine.store.names
        self._analyzer: Analyzer = engine.lexical.analyzer
        self._memories = dict(engine.store.versions())
        self._encoded = encoded
        self._vector: Floats | None = None

    @property
    def size(self) -> int:
        return len(self._memories)

    @property
    def waiting(self) -> int:
        return len({memory.content for memory in self._memories.values()} - self._encoded.keys())

    def asking(self, question: CorpusQuestion) -> BruteForceCorpus:
        view = copy.copy(self)
        view._vector = question.vector
        return view

    # Words

    @cached_property
    def _words(self) -> list[tuple[float, dict[int, Counter[str]], float]]:
        """Per field its weight, the terms of every row, and the average length."""
        date = {
            row: each.created_at.strftime("%d %B %Y").lstrip("0") if each.session is not None else ""
            for row, each in self._memories.items()
        }
        contents = {
            row: Counter([*self._terms(each.content), *self._terms(date[row]), *["\u0003"] * PADDING])
            for row, each in self._memories.items()
        }
        labels = {
            row: Counter(self._terms(" ".join((each.keywords, *each.tags, each.category))))
            for row, each in self._memories.items()
        }
        # One document more, about as long as the others, carries the stamp of an index.
        totals = [sum(each.total() for each in field.values()) for field in (contents, labels)]
        means = [(total + max(1, round(total / self.size))) / (1 + self.size) for total in totals]
        return [(1.0, contents, means[0]), (LABELS_WEIGHT, labels, means[1])]

    def _terms(self, text: str) -> list[str]:
        return self._analyzer.terms(text)

    def _idf(self, field: dict[int, Counter[str]], term: str) -> float:
        frequency = sum(term in terms for terms in field.values())
        return math.log(1 + (self.size - frequency + 0.5) / (frequency + 0.5))

    def rarity(self, terms: Iterable[str]) -> dict[str, float]:
        return {term: self._idf(self._words[0][1], term) for term in terms}

    def search(self, terms: Sequence[str], *, limit: int, sort: Sort = Sort.RELEVANCE) -> list[Hit]:
        scores: dict[int, float] = {}
        for weight, field, average in self._words:
            for term in terms:
                idf = self._idf(field, term)
                for row in (row for row, own in field.items() if term in own and self._sees(row)):
                    length = LENGTHS[bisect.bisect_right(LENGTHS, field[row].total()) - 1]
                    count = field[row][term]
                    share = count / (count + K1 * (1 - B + B * length / average))
                    scores[row] = scores.get(row, 0.0) + weight * idf * (1 + K1) * share
        hits = [Hit(row, score, *self._order(row)) for row, score in scores.items()]
        orders: dict[Sort, Callable[[Hit], tuple[float, float, int]]] = {
            Sort.RELEVANCE: lambda hit: (-hit.score, 0.0, hit.row),
            Sort.IMPORTANCE: lambda hit: (-hit.importance, -hit.score, hit.row),
            Sort.RECENCY: lambda hit: (-hit.updated_at, -hit.score, hit.row),
        }
        return sorted(hits, key=orders[sort])[:limit]

    def _order(self, row: int) -> tuple[float, float]:
        return self._memories[row].importance, self._memories[row].updated_at.timestamp()

    # Vectors

    def _encoding(self, row: int) -> Encoding | None:
        return self._encoded.get(self._memories[row].content) if row in self._memories else None

    def nearest(self, limit: int) -> tuple[Ints, Floats]:
        rows = np.array([row for row in self._memories if self._sees(row) and self._encoding(row)], dtype=np.int64)
        cosines = self.cosines(rows)
        order = np.lexsort((rows, -cosines))[:limit]
        return rows[order], cosines[order]

    def cosines(self, rows: Ints) -> Floats:
        assert self._vector is not None
        return np.array([each @ self._vector for each in self.vectors(rows)], dtype=np.float32)

    def closest_anywhere(self) -> float:
        if self._scope.projects is None:
            return -1.0
        everything = copy.copy(self)
        everything._scope = replace(self._scope, projects=None)
        return max(everything.nearest(1)[1].tolist(), default=-1.0)

    def vectors(self, rows: Ints) -> Floats:
        width = next((len(each.sentence) for each in self._encoded.values()), 0)
        missing = np.full(width, np.nan, dtype=np.float32)
        # Rounded as in every store.
        found = [
            restored(rounded(each.sentence[None]))[0] if (each := self._encoding(row)) else missing
            for row in rows.tolist()
        ]
        return np.array(found, dtype=np.float32).reshape(len(rows), width)

    def tokens(self, rows: Ints) -> tuple[Bits, Ints]:
        compressed_tokens = [
            compressed(self._memories[row].content, each) for row in rows.tolist() if (each := self._encoding(row))
        ]
        counts = iter([len(each) for each in compressed_tokens])
        has = [self._encoding(row) is not None for row in rows.tolist()]
        together = np.concatenate(compressed_tokens) if compressed_tokens else np.empty((0, 0), dtype=np.uint8)
        return together, np.array([next(counts) if each else 0 for each in has], dtype=np.int64)

    # Facts

    def _reads(self, row: int) -> bool:
        memory, scope = self._memories[row], self._scope
        is_shown = scope.sensitivities is None or memory.sensitivity in scope.sensitivities
        return is_shown and (scope.origins is None or memory.origin in scope.origins)

    def _sees(self, row: int) -> bool:
        if row not in self._memories or not self._reads(row):
            return False
        memory, scope = self._memories[row], self._scope
        then = scope.known_at
        is_known = memory.known_to is None if then is None else _holds(memory.known_from, memory.known_to, then)
        is_valid = scope.any_time or _holds(memory.valid_from, memory.valid_to, scope.as_of)
        is_here = memory.owner == scope.owner and (scope.projects is None or memory.project in scope.projects)
        time = memory.valid_from or memory.created_at
        is_valid &= (scope.since is None or scope.since <= time) and (scope.until is None or time < scope.until)
        is_kind = scope.category in (None, memory.category) and scope.tags <= set(memory.tags)
        return is_known and is_valid and is_here and is_kind

    def facts(self, rows: Ints, *, reach: int = 0) -> Facts:
        listed = rows.tolist()
        beside = [self._neighbour(row, side * n) for row in listed for n in range(1, reach + 1) for side in (-1, 1)]
        importance = [self._memories[row].importance if row in self._memories else 0.0 for row in listed]
        return Facts(
            np.array([self._sees(row) for row in listed], dtype=np.bool_),
            np.array(importance, dtype=np.float64),
            np.array([self._session(row) for row in listed], dtype=np.int64),
            np.array(beside, dtype=np.int64).reshape(len(listed), 2 * reach),
            np.array([self._speaker(row) for row in listed], dtype=np.int64),
            np.array([self._role(row) for row in listed], dtype=np.int64),
            np.array([self._time(row) for row in listed], dtype=np.int64),
        )

    def _time(self, row: int) -> int:
        memory = self._memories.get(row)
        return -1 if memory is None else timestamps.to_micros(memory.valid_from or memory.created_at)

    def speakers(self, codes: Iterable[int]) -> dict[int, str]:
        names = {code: self._memories[code].speaker for code in codes if code in self._memories}
        return {code: name for code, name in names.items() if name is not None}

    def rows_of_speaker(self, name: str, most: int) -> Ints:
        speakers = {row: (each.speaker or "").lower() for row, each in self._memories.items() if self._sees(row)}
        rows = [row for row, speaker in speakers.items() if name.lower() in (speaker, speaker.split(" ")[0])]
        return np.array(sorted(rows, key=lambda row: (-self._time(row), -row))[:most], dtype=np.int64)

    def _speaker(self, row: int) -> int:
        """The first row of a speaker stands for the name."""
        name = self._memories[row].speaker if row in self._memories else None
        return min((other for other, each in self._memories.items() if name and each.speaker == name), default=-1)

    def _role(self, row: int) -> int:
        role = self._memories[row].role if row in self._memories else None
        return -1 if role is None else list(Role).index(role)

    def _session(self, row: int) -> int:
        """The first row of a row's conversation stands for it."""
        return self._conversation(row)[0] if self._conversation(row) else -1

    def _conversation(self, row: int) -> list[int]:
        one = self._memories.get(row)
        if one is None or one.session is None:
            return []
        same = [
            (each.position or 0, other)
            for other, each in self._memories.items()
            if each.known_to is None and _talk(each) == _talk(one)
        ]
        return [other for _, other in sorted(same)]

    def _neighbour(self, row: int, offset: int) -> int:
        turns = self._conversation(row)
        there = turns.index(row) + offset if row in turns else -1
        return turns[there] if 0 <= there < len(turns) and self._reads(turns[there]) else -1

    # Mentions

    @cached_property
    def _mentions(self) -> Concepts:
        groups = dict(self._store.names.grouped())
        raw = [(each.row, groups.get(each.name, each.name), each.kind) for each in self._pages()]
        named = {concept for _, concept, kind in raw if kind != "lead"}
        # What a memory leads with is its subject where another mentions it.
        subjects = {
            (row, concept) for row, concept, kind in raw if kind == "title" or (kind == "lead" and concept in named)
        }
        pairs = sorted({(row, concept) for row, concept, _ in raw})
        return [(row, concept, (row, concept) in subjects) for row, concept in pairs]

    def _pages(self) -> Iterable[tuple[int, int, int, str]]:
        last = 0
        while page := self._store.names.mentions(after=last):
            yield from page
            last = page[-1].mention

    def mentions(self, rows: Ints, most: int | None = None) -> Mentions:
        concepts_of: Concepts = []
        for place, row in enumerate(rows.tolist()):
            concepts_of += [(place, concept, is_subject) for own, concept, is_subject in self._mentions if own == row][
                :most
            ]
        concepts = [concept for _, concept, _ in concepts_of]
        every = Counter(concept for _, concept, _ in self._mentions)
        owned = Counter(concept for _, concept, is_subject in self._mentions if is_subject)
        groups = dict(self._store.names.grouped())
        written: dict[int, int] = {}
        for name, count in self._store.names.common(20):
            concept = groups.get(name, name)
            written[concept] = max(count, written.get(concept, 0))
        place, numbers, subjects = _columns(concepts_of)
        counts = ([every[each] for each in concepts], [owned[each] for each in concepts])
        reach = [max(every[each], written.get(each, 0)) for each in concepts]
        return Mentions(place, numbers, subjects, *(np.array(each, dtype=np.int64) for each in (*counts, reach)))

    def holders(self, concepts: Ints, most: int | None = None) -> tuple[Ints, Ints, Bools]:
        rows_of: Concepts = []
        for place, concept in enumerate(concepts.tolist()):
            own = [(place, row, is_subject) for row, other, is_subject in self._mentions if other == concept]
            rows_of += [each for each in own if self._reads(each[1])][:most]
        return _columns(rows_of)


def _holds(start: object, end: object, moment: object) -> bool:
    return (start is None or start <= moment) and (end is None or moment < end)  # type: ignore[operator]


def _talk(memory: Memory) -> tuple[str, str, str | None]:
    return memory.owner, memory.project, memory.session


def _columns(found: Concepts) -> tuple[Ints, Ints, Bools]:
    array = np.array(found, dtype=np.int64).reshape(-1, 3)
    return array[:, 0], array[:, 1], array[:, 2] > 0
