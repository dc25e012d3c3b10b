"""The corpus inside the database: words and vectors are ranked there, and only what is known of candidates is fetched.

The database stores the words as the analyzer writes them and scores them by BM25 with the statistics of the owner, as
the embedded index does. Half-precision vectors choose the nearest rows; the model's own vectors order them.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from triskele.index.corpus import Bits, Bools, CorpusQuestion, Facts, Floats, Ints, LexicalHit, Mentions, is_called
from triskele.index.lexical import MAX_TERMS, LexicalIndex
from triskele.index.mentions import Layers, MentionIndex, allowed
from triskele.index.shard import FIELDS
from triskele.index.token_vectors import bytes_of, from_row
from triskele.store.corpus_protocol import (
    CandidateRow,
    CorpusStore,
    FactRow,
    ScopeSize,
    VectorQuery,
    WeightedTerms,
    WordCounts,
)
from triskele.store.owner import OwnerStore
from triskele.store.values import Heads
from triskele.store.vector_bytes import restored, sound_rows
from triskele.text.analysis import PADDING, Analyzer, memory_terms
from triskele.types import Memory, Role, Scope, Sort

_K1, _B = 1.2, 0.75
# Lengths that the embedded index distinguishes: every one up to 40, then coarser and coarser steps.
_NORMS: list[int] = sorted({*range(40), *(24 + (8 + low) * 2**shift for shift in range(1, 25) for low in range(8))})
# A scope of so few versions is compared vector by vector.
EXACT_LIMIT = 5_000
# No index finds the memories of a speaker: with more versions than this their speakers are not looked for.
READ_WHOLE_LIMIT = 100_000
# The list of the index, `hnsw.ef_search`: so many times the candidates, and so many times the root of the vectors,
# divided by the root of the share of them that is in the scope. benchmarks/notebook/postgres.md has its recall.
_LIST_PER_CANDIDATE, _LIST_PER_ROOT = 2, 2.5
_SHORTEST_LIST, _LONGEST_LIST = 200, 1000
# A caller that asks for fewer needs less of it.
_MANY = 50
# Vectors of half precision may take the places of a few better ones.
_SPARE = 1.1
# So many of the best by words are looked up in the scope before all of them are.
_LOOKED_UP = 4
# Every recall asks for the turns up to this distance.
_REACH = 2
_ROLES = {role.value: code for code, role in enumerate(Role)}
# The size of a scope is counted again when the number of the owner's versions has grown by this factor.
_GROWTH = 1.1
_MOST_SIZES = 256
# Written in one transaction, during which the owner's other writes wait.
_BATCH = 500


class DatabaseHit(NamedTuple):
    """A row that contains query terms."""

    row: int
    score: float
    importance: float


@dataclass(frozen=True, slots=True)
class DatabaseIndexes:
    """The words and vectors of one store inside its database; without a model (`fingerprint`) there are no vectors."""

    store: OwnerStore
    rows: CorpusStore
    analyzer: Analyzer
    mentions: MentionIndex
    sizes: dict[Scope, tuple[int, ScopeSize]]
    fingerprint: str = ""
    dimensions: int = 0
    token_dimensions: int = 0

    def prepare(self) -> None:
        """Make the tables of the model's vectors, unless they are there."""
        if self.fingerprint:
            self.rows.prepare(self.fingerprint, self.dimensions)

    def catch_up(self) -> None:
        """Write the words and vectors that the database lacks; inside a snapshot nothing can be written."""
        name = f"{LexicalIndex.format}-{self.analyzer.language}"
        if not self.rows.is_behind(name, self.fingerprint):
            return
        while self.rows.index_words(name, self._counted, _BATCH) == _BATCH:
            pass
        while self.fingerprint and self.rows.index_vectors(self.fingerprint, self._as_text, _BATCH) == _BATCH:
            pass

    def open_corpus(self, scope: Scope) -> DatabaseCorpus:
        """What a scope may read: take it inside a snapshot of the store."""
        return DatabaseCorpus(self, scope, self.store.heads(self.fingerprint))

    def size(self, scope: Scope, documents: int) -> ScopeSize:
        """How much a scope holds, of so many versions of the owner; counted once until the owner has grown."""
        if documents <= EXACT_LIMIT:
            return ScopeSize(documents, documents)
        # Neither the moment nor the day that a question is asked changes how many there are.
        key = replace(scope, as_of=scope.since or scope.as_of.replace(hour=0, minute=0, second=0, microsecond=0))
        counted_at, size = self.sizes.get(key, (0, ScopeSize(0, 0)))
        if not counted_at or documents > counted_at * _GROWTH:
            counted = self.rows.count(scope)
            size = counted._replace(vectors=max(counted.vectors, documents))
            if len(self.sizes) >= _MOST_SIZES:
                self.sizes.clear()
            self.sizes[key] = (documents, size)
        return size

    def _counted(self, memory: Memory) -> WordCounts:
        content, labels = (Counter(listed) for listed in memory_terms(memory, self.analyzer).values())
        lengths = (content.total() + PADDING, labels.total())
        return WordCounts(
            {term: (content[term], labels[term]) for term in (content | labels)},
            lengths,
            (_norm(lengths[0]), _norm(lengths[1])),
        )

    def _as_text(self, raw: bytes) -> str | None:
        [vector] = _sound_vectors([raw], self.dimensions)
        return None if vector is None else _text(vector)


class DatabaseCorpus:
    """The corpus of one scope, inside one snapshot; what was fetched of a row is kept for the rest of the recall."""

    def __init__(self, indexes: DatabaseIndexes, scope: Scope, heads: Heads, vector: Floats | None = None) -> None:
        self._indexes = indexes
        self._rows = indexes.rows
        self._heads = heads
        self.scope = scope
        self.names = indexes.store.names
        self.waiting = heads.unembedded
        self._documents = -1
        self._lengths = (0, 0)
        self._frequencies: dict[str, tuple[int, int]] = {}
        self._facts: dict[int, tuple[int, FactRow | None]] = {}
        self._vectors: dict[int, Floats | None] = {}
        self._tokens: dict[int, bytes | None] = {}
        self._sessions: dict[tuple[str, str], int] = {}
        self._speakers: dict[str, int] = {}
        self._question: CorpusQuestion | None = None
        self._vector = vector

    def asking(self, question: CorpusQuestion) -> DatabaseCorpus:
        """The same corpus for one question; the first leg that it answers asks for both."""
        view = copy(self)
        view._question, view._vector = question, question.vector
        return view

    @cached_property
    def _layers(self) -> Layers:
        return self._indexes.mentions.view(self._heads)

    @property
    def size(self) -> int:
        """The number of versions, inside the scope or not."""
        self._know(())
        return self._documents

    # Words

    def _know(self, terms: Iterable[str]) -> None:
        """Read the statistics of terms that are not cached yet."""
        unknown = [term for term in terms if term not in self._frequencies]
        if unknown or self._documents < 0:
            statistics = self._rows.statistics(unknown)
            self._documents, self._lengths = statistics.documents, statistics.lengths
            self._frequencies |= dict.fromkeys(unknown, (0, 0)) | dict(statistics.frequencies)

    def rarity(self, terms: Iterable[str]) -> dict[str, float]:
        """The inverse document frequency of each term over the whole corpus."""
        wanted = list(terms)
        self._know(wanted)
        return {term: self._idf(self._frequencies[term][0]) for term in wanted}

    def _idf(self, frequency: int) -> float:
        frequency = min(frequency, self._documents)
        return math.log(1 + (self._documents - frequency + 0.5) / (frequency + 0.5))

    def _weighted(self, terms: Sequence[str]) -> WeightedTerms:
        self._know(terms)
        counted = [
            (frequency, term, field)
            for term in dict.fromkeys(terms)
            for field, frequency in enumerate(self._frequencies[term])
            if frequency
        ]
        # A very long query is cut to its rarest terms.
        weights: dict[str, tuple[float, float]] = {}
        for frequency, term, field in sorted(counted)[:MAX_TERMS]:
            weight = list(FIELDS.values())[field] * self._idf(frequency) * (_K1 + 1)
            by_field = weights.get(term, (0.0, 0.0))
            weights[term] = (weight, by_field[1]) if field == 0 else (by_field[0], weight)
        content, labels = (_K1 * _B / self._average(total) for total in self._lengths)
        return WeightedTerms(weights, ((_K1 * (1 - _B), content), (_K1 * (1 - _B), labels)))

    def _average(self, total: int) -> float:
        """As in the embedded index, where a stamp of average length counts as one document more."""
        count = max(1, self._documents)
        return (total + max(1, round(total / count))) / (1 + count)

    def search(self, terms: Sequence[str], *, limit: int, sort: Sort = Sort.RELEVANCE) -> Sequence[LexicalHit]:
        """The rows that contain any of the terms, in the order asked for."""
        question = self._question
        is_asked = question is not None and (tuple(terms), limit) == (tuple(question.terms), question.depth)
        if is_asked and sort is Sort.RELEVANCE and self._both_legs is not None:
            return self._both_legs[0]
        words = self._weighted(terms)
        candidates = self._candidates(words, None, limit, sort=sort) if words.weights else []
        return list(map(_hit, candidates))

    def _candidates(
        self, words: WeightedTerms, vector: VectorQuery | None, limit: int, *, sort: Sort = Sort.RELEVANCE
    ) -> list[CandidateRow]:
        """The candidates; if the scope contains too few of the best by words, all rows are looked up."""
        scope, model = self.scope, self._indexes.fingerprint
        if self.size > EXACT_LIMIT >= self._indexes.size(scope, self.size).versions:
            return self._rows.candidates(scope, model, words, vector, limit=limit, sort=sort, is_narrow=True)
        cut = _LOOKED_UP * limit if sort is Sort.RELEVANCE else None
        candidates = self._rows.candidates(scope, model, words, vector, limit=limit, sort=sort, cut=cut)
        matches = sum(sum(self._frequencies[term]) for term in words.weights)
        has_words = sum(candidate.score is not None for candidate in candidates)
        if cut is None or has_words >= limit or matches <= cut:
            return candidates
        return self._rows.candidates(scope, model, words, vector, limit=limit, sort=sort)

    @cached_property
    def _both_legs(self) -> tuple[list[DatabaseHit], Ints] | None:
        """Hits and nearest rows, read at once with what is known of them; None if that is impossible or incomplete."""
        question, vector = self._question, self._vector
        if question is None or vector is None or not question.is_hybrid or not self._indexes.fingerprint:
            return None
        most = math.ceil(question.depth * _SPARE)
        words, query = self._weighted(question.terms), self._query(vector, most)
        candidates = self._candidates(words, query, most) if words.weights else []
        near = [candidate.row for candidate in candidates if candidate.similarity is not None]
        # The filter may starve the scan of the vectors.
        if not words.weights or (len(near) < question.depth and not query.is_exact):
            return None
        hits = [_hit(candidate) for candidate in candidates if candidate.score is not None][: question.depth]
        self._load_facts([candidate.row for candidate in candidates], _REACH, with_vectors=True)
        return hits, np.array(near, dtype=np.int64)

    # Vectors

    def _query(self, vector: Floats, limit: int, *, is_exact: bool | None = None) -> VectorQuery:
        size = self._indexes.size(self.scope, self.size)
        is_exact = is_quicker_exactly(size, limit) if is_exact is None else is_exact
        return VectorQuery(_text(vector), self._indexes.dimensions, search_list(size, limit), is_exact)

    def nearest(self, limit: int) -> tuple[Ints, Floats]:
        """The rows with the highest cosines, best first, ties by row; and their cosines."""
        if not self._indexes.fingerprint or self._vector is None:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
        both = self._both_legs if self._question is not None and limit == self._question.depth else None
        rows = self._nearest(self._vector, math.ceil(limit * _SPARE)) if both is None else both[1]
        cosines = self.cosines(rows)
        order = np.lexsort((rows, -cosines))[:limit]
        return rows[order], cosines[order]

    def _nearest(self, vector: Floats, limit: int) -> Ints:
        query = self._query(vector, limit)
        candidates = self._rows.candidates(self.scope, self._indexes.fingerprint, None, query, limit=limit)
        if len(candidates) < limit and not query.is_exact:
            query = self._query(vector, limit, is_exact=True)
            candidates = self._rows.candidates(self.scope, self._indexes.fingerprint, None, query, limit=limit)
        return np.array([candidate.row for candidate in candidates], dtype=np.int64)

    def cosines(self, rows: Ints) -> Floats:
        """The cosines of some rows; NaN if a row has no vector."""
        if not self._indexes.fingerprint or self._vector is None:
            return np.full(len(rows), np.nan, dtype=np.float32)
        return self.vectors(rows) @ self._vector

    def closest_anywhere(self) -> float:
        """The highest cosine in all projects of the owner; -1 if there are no others, or nothing has a vector."""
        if self.scope.projects is None:
            return -1.0
        everywhere = replace(self.scope, projects=None)
        _, cosines = DatabaseCorpus(self._indexes, everywhere, self._heads, self._vector).nearest(1)
        return float(cosines[0]) if len(cosines) else -1.0

    def vectors(self, rows: Ints) -> Floats:
        """The sentence vectors of some rows; NaN if a row has none."""
        listed = rows.tolist()
        self._load_vectors(listed)
        vectors = np.full((len(listed), self._indexes.dimensions), np.nan, dtype=np.float32)
        for position, row in enumerate(listed):
            if (vector := self._vectors[row]) is not None:
                vectors[position] = vector
        return vectors

    def _load_vectors(self, rows: Iterable[int]) -> None:
        missing = [row for row in dict.fromkeys(rows) if row not in self._vectors]
        if missing and self._indexes.fingerprint:
            raw = self._rows.vectors(self._indexes.fingerprint, missing)
            self._keep_vectors({row: raw.get(row) for row in missing})
        else:
            self._vectors |= dict.fromkeys(missing)

    def _keep_vectors(self, raw: Mapping[int, bytes | None]) -> None:
        stored = {row: value for row, value in raw.items() if value is not None}
        vectors = _sound_vectors(list(stored.values()), self._indexes.dimensions)
        self._vectors |= dict.fromkeys(raw) | dict(zip(stored, vectors, strict=True))

    def tokens(self, rows: Ints) -> tuple[Bits, Ints]:
        """The token vectors of some rows in one array, two bits per dimension, and how many each row has."""
        width = self._indexes.token_dimensions
        listed = rows.tolist()
        missing = [row for row in dict.fromkeys(listed) if row not in self._tokens]
        if missing and self._indexes.fingerprint:
            self._tokens |= self._rows.tokens(self._indexes.fingerprint, missing)
        stored = [self._tokens.get(row) for row in listed]
        vectors = [None if raw is None else from_row(raw, width) for raw in stored]
        counts = np.array([0 if each is None else len(each) for each in vectors], dtype=np.int64)
        pieces = [each for each in vectors if each is not None]
        return np.concatenate([np.empty((0, bytes_of(width)), dtype=np.uint8), *pieces]), counts

    # Facts

    def _load_facts(self, rows: Iterable[int], reach: int, *, with_vectors: bool = False) -> None:
        reach = max(reach, _REACH) if reach else 0
        missing = [row for row in dict.fromkeys(rows) if self._facts.get(row, (-1, None))[0] < reach]
        if not missing:
            return
        model = self._indexes.fingerprint if with_vectors else ""
        facts = {fact.row: fact for fact in self._rows.facts(missing, self.scope, reach, model)}
        self._facts |= {row: (reach, facts.get(row)) for row in missing}
        if model:
            self._tokens |= {row: fact.tokens for row, fact in facts.items()}
            self._keep_vectors({row: fact.vector for row, fact in facts.items()})

    def facts(self, rows: Ints, *, reach: int = 0) -> Facts:
        """Visibility, importance, session and speaker of some rows, with the neighbours up to `reach` turns away."""
        listed = rows.tolist()
        self._load_facts(listed, reach)
        facts = [self._facts[row][1] for row in listed]
        beside = [_beside(fact, reach) for fact in facts]
        return Facts(
            np.array([fact is not None and fact.is_visible for fact in facts], dtype=np.bool_),
            np.array([0.0 if fact is None else fact.importance for fact in facts]),
            np.array([self._session(fact) for fact in facts], dtype=np.int64),
            np.array(beside, dtype=np.int64).reshape(len(listed), 2 * reach),
            np.array([self._speaker(fact) for fact in facts], dtype=np.int64),
            np.array([-1 if fact is None else _ROLES.get(fact.role or "", -1) for fact in facts], dtype=np.int64),
            np.array([-1 if fact is None else fact.time for fact in facts], dtype=np.int64),
        )

    def _session(self, fact: FactRow | None) -> int:
        if fact is None or fact.session is None:
            return -1
        return self._sessions.setdefault((fact.project, fact.session), len(self._sessions))

    def _speaker(self, fact: FactRow | None) -> int:
        if fact is None or fact.speaker is None:
            return -1
        return self._speakers.setdefault(fact.speaker, len(self._speakers))

    def speakers(self, codes: Iterable[int]) -> dict[int, str]:
        """The names of some speakers."""
        wanted = set(codes)
        return {code: name for name, code in self._speakers.items() if code in wanted}

    def rows_of_speaker(self, name: str, most: int) -> Ints:
        """The newest rows of those who are called by a name; none if the owner has very many versions."""
        rows: list[int] = []
        if self.size <= READ_WHOLE_LIMIT:
            called = [speaker for speaker in self._rows.speakers(self.scope) if is_called(speaker, name)]
            rows = self._rows.rows_of_speaker(called, self.scope, most) if called else []
        return np.array(rows, dtype=np.int64)

    # Mentions

    def mentions(self, rows: Ints, most: int | None = None) -> Mentions:
        """The concepts that some rows mention, up to a limit for each row."""
        return self._layers.mentions(rows, most)

    def holders(self, concepts: Ints, most: int | None = None) -> tuple[Ints, Ints, Bools]:
        """The position of the concept in the request, a row that mentions it, and whether it is the row's subject."""
        if self.scope.sensitivities is None and self.scope.origins is None:
            return self._layers.holders(concepts, most)
        holders = self._layers.holders(concepts)
        rows = holders[1].tolist()
        self._load_facts(rows, 0)
        facts = [self._facts[row][1] for row in rows]
        is_allowed = np.array([fact is not None and fact.is_readable for fact in facts], dtype=np.bool_)
        return allowed(holders, is_allowed, most)


def is_quicker_exactly(size: ScopeSize, limit: int) -> bool:
    """Whether comparing all vectors of a scope takes less than an index that passes over those outside.

    For each row that it returns the index visits as many as there are for one of the scope. A visit takes twice as long
    as a comparison.
    """
    return size.versions <= max(EXACT_LIMIT, math.sqrt(2 * limit * size.vectors))


def search_list(size: ScopeSize, limit: int) -> int:
    """How many vectors the index keeps in sight: more where there are more, and where few of them are in the scope."""
    by_size = _LIST_PER_ROOT * size.vectors / math.sqrt(max(1, size.versions)) * min(1, limit / _MANY)
    return min(_LONGEST_LIST, round(max(_SHORTEST_LIST, _LIST_PER_CANDIDATE * limit, by_size)))


def _hit(candidate: CandidateRow) -> DatabaseHit:
    return DatabaseHit(candidate.row, float(candidate.score or 0), float(candidate.importance or 0))


def _beside(fact: FactRow | None, reach: int) -> list[int]:
    """The turns next to a row: one before, one after, two before, …"""
    sides: tuple[Sequence[int], ...] = () if fact is None else (fact.before, fact.after)
    if not sides:
        return [-1] * (2 * reach)
    return [side[distance] if distance < len(side) else -1 for distance in range(reach) for side in sides]


def _norm(length: int) -> int:
    """A length as tantivy rounds it down to a byte."""
    return _NORMS[bisect_right(_NORMS, length) - 1]


def _text(vector: Floats) -> str:
    """A vector as pgvector reads it; half precision has no more digits."""
    return "[" + ",".join(map("{:.5g}".format, vector.tolist())) + "]"


def _sound_vectors(raws: Sequence[bytes], width: int) -> list[Floats | None]:
    """Sentence vectors as a store keeps them; None for one that is damaged or of another size."""
    rows, is_sound = sound_rows(raws, width)
    vectors = iter(restored(rows))
    return [next(vectors) if sound else None for sound in is_sound.tolist()]
