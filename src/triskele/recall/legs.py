"""The lexical and the dense leg: each turns a query and a corpus into a ranking; and one thread for their products."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from triskele.index.corpus import Floats, Ints, Vectors, Words
from triskele.models.embedder import Encoding
from triskele.recall.plan import Plan
from triskele.text.analysis import identifiers, spellings
from triskele.types import Query, Ranking, Sort

LEXICAL, DENSE = "lexical", "dense"
# A cosine below this carries no information.
LEAST_SIMILARITY = 0.1
# How many turns of a conversation on either side count for a candidate.
REACH = 2
_RELEVANCE_SHARE = 0.4
_IN_NO_TEXT = "\0"
_SAME = 1e-6
_BLAS_PREFIXES = ("scipy_openblas_", "openblas_")
_BLAS_SUFFIXES = ("64_", "")
_blas_lock = threading.Lock()
_callers = 0
_threads_before = 1


@dataclass(frozen=True, slots=True, eq=False)
class QueryTerms:
    """The terms that a query searches for, stop words left out, and the rarity of each of its words.

    `unknown` are its identifiers that no memory of the scope holds in any spelling.
    """

    text: str
    terms: tuple[str, ...]
    rarity: Mapping[str, float]
    unknown: frozenset[str] = frozenset()

    @property
    def ceiling(self) -> float:
        """The sum of the rarities: what a memory with every term could reach."""
        return sum(self.rarity[term] for term in self.terms)


@dataclass(frozen=True, slots=True, eq=False)
class EncodedQuery:
    """A query as the model reads it, with the plan; `token_weights` sum to 1."""

    query: Query
    plan: Plan
    encoding: Encoding
    token_weights: Floats

    @property
    def rescored(self) -> int:
        """How many candidates late interaction scores."""
        return self.plan.rescored

    @property
    def reach(self) -> int:
        """How many turns on either side count for a candidate."""
        return REACH if self.plan.context else 0

    def weight_between(self, start: int, stop: int) -> float:
        """The weight of the query's tokens between two places in its text."""
        return float(self.token_weights[self._is_between(start, stop)].sum())

    def with_less(self, spans: Iterable[tuple[int, int]], share: float) -> EncodedQuery:
        """The same query, the tokens between some places with a share of their weight; unchanged if nothing is left."""
        weights = self.token_weights.copy()
        for start, stop in spans:
            weights[self._is_between(start, stop)] *= share
        total = float(weights.sum())
        return replace(self, token_weights=weights / np.float32(total)) if total > _SAME else self

    def _is_between(self, start: int, stop: int) -> NDArray[np.bool_]:
        spans = self.encoding.spans
        return (spans[:, 0] >= start) & (spans[:, 1] <= stop)


def respelled(text: str, corpus: Words) -> tuple[str, frozenset[str]]:
    """A query with its identifiers as the memories of the scope write them, and those that none of them holds."""
    unknown = set()
    for word in reversed(identifiers(text)):
        if _is_held(word.text, corpus):
            continue
        known = _known(spellings(word.text), corpus)
        spelling = next((each for each in known if _is_held(each, corpus)), None)
        if spelling is None:
            unknown.add(word.text)
        else:
            text = text[: word.start] + spelling + text[word.end :]
    return text, frozenset(unknown)


def _known(terms: Sequence[str], corpus: Words) -> list[str]:
    """The terms that any memory contains, inside the scope or not."""
    rarity = corpus.rarity([*terms, _IN_NO_TEXT])
    return [term for term in terms if rarity[term] < rarity[_IN_NO_TEXT]]


def _is_held(term: str, corpus: Words) -> bool:
    return bool(corpus.search((term,), limit=1))


def lexical(query: Query, terms: QueryTerms, corpus: Words) -> Ranking:
    """The candidates that contain any query term, in the order asked for."""
    if query.sort is Sort.IMPORTANCE:
        return _blended(query, terms.terms, corpus)
    hits = corpus.search(terms.terms, limit=query.depth, sort=query.sort)
    # Through lists, which take less than generators.
    rows, scores = [hit.row for hit in hits], [hit.score for hit in hits]
    return Ranking(LEXICAL, tuple(rows), tuple(scores), ceiling=terms.ceiling)


def _blended(query: Query, terms: Sequence[str], corpus: Words) -> Ranking:
    """0.4 relevance and 0.6 importance, over the best of either."""
    hits = {
        hit.row: hit
        for sort in (Sort.RELEVANCE, Sort.IMPORTANCE)
        for hit in corpus.search(terms, limit=query.depth, sort=sort)
    }
    best = max((hit.score for hit in hits.values()), default=1.0)
    blend = {
        row: _RELEVANCE_SHARE * hit.score / best + (1 - _RELEVANCE_SHARE) * hit.importance for row, hit in hits.items()
    }
    ordered = sorted(blend, key=lambda row: (-blend[row], row))[: query.depth]
    return Ranking(LEXICAL, tuple(ordered), tuple(blend[row] for row in ordered))


@dataclass(frozen=True, slots=True, eq=False)
class HostedQuery:
    """A query as a hosted model reads it, and that model's vectors of the memories that it may read."""

    vector: Floats
    vectors: Vectors


@dataclass(frozen=True, slots=True, eq=False)
class Nearness:
    """Cosines between a query and memories: of the local model, or the mean of both if a hosted one was used.

    The hosted model's cosines are scaled to the mean and spread of the local ones, so that a memory that it may not
    read is comparable. `scale` is a factor and an offset; None if there is nothing to compare.
    """

    vector: Floats
    corpus: Vectors
    hosted: HostedQuery | None = None
    scale: tuple[float, float] | None = None

    def cosines(self, rows: Ints) -> Floats:
        """The cosines of some rows; NaN if a row has no vector."""
        local = self.corpus.cosines(self.vector, rows)
        if self.hosted is None or self.scale is None:
            return local
        hosted = self.hosted.vectors.cosines(self.hosted.vector, rows) * self.scale[0] + self.scale[1]
        return np.where(np.isnan(hosted), local, (local + np.clip(hosted, -1, 1)) / 2).astype(np.float32)

    def complete(self, ranking: Ranking, rows: Ints) -> Ranking:
        """The ranking with the cosines of more rows, which another leg found."""
        known = set(ranking.rows)
        more = np.array([row for row in rows.tolist() if row not in known], dtype=np.int64)
        if not len(more):
            return ranking
        cosines = self.cosines(more)
        has_vector = ~np.isnan(cosines)
        everyone = np.concatenate([np.array(ranking.rows, dtype=np.int64), more[has_vector]])
        return _by_cosine(everyone, np.concatenate([np.array(ranking.scores), cosines[has_vector]]))


def dense(
    encoded: EncodedQuery, corpus: Vectors, hosted: HostedQuery | None = None, also: Sequence[int] = ()
) -> tuple[Ranking, Nearness]:
    """The nearest candidates inside the scope, and the cosines of further rows on demand.

    A candidate below the least similarity counts only if the lexical leg found it (`also`).
    """
    vector, depth = encoded.encoding.sentence, encoded.query.depth
    rows, cosines = corpus.nearest(vector, depth)
    nearness = Nearness(vector, corpus)
    if hosted is None:
        ranking = Ranking(DENSE, tuple(rows.tolist()), tuple(cosines.tolist()), ceiling=1.0)
    else:
        nearness, rows = _with_hosted(nearness, hosted, rows, depth)
        ranking = _by_cosine(rows, nearness.cosines(rows))
        ranking = replace(ranking, rows=ranking.rows[:depth], scores=ranking.scores[:depth])
    if not ranking.scores or ranking.scores[-1] >= LEAST_SIMILARITY:
        return ranking, nearness
    is_match = set(also)
    pairs = zip(ranking.rows, ranking.scores, strict=True)
    return of_pairs(ranking, [each for each in pairs if each[1] >= LEAST_SIMILARITY or each[0] in is_match]), nearness


def _with_hosted(local: Nearness, hosted: HostedQuery, rows: Ints, depth: int) -> tuple[Nearness, Ints]:
    """Both models' nearest rows, and the scale that makes the hosted cosines comparable on them."""
    theirs, _ = hosted.vectors.nearest(hosted.vector, depth)
    rows = np.union1d(rows, theirs)
    here = local.cosines(rows)
    has_vector = ~np.isnan(here)
    rows, here = rows[has_vector], here[has_vector]
    there = hosted.vectors.cosines(hosted.vector, rows)
    both = ~np.isnan(there)
    spread = float(there[both].std()) if both.sum() > 1 else 0.0
    if spread < _SAME:
        return replace(local, hosted=hosted), rows
    times = float(here[both].std()) / spread
    scale = times, float(here[both].mean()) - times * float(there[both].mean())
    return replace(local, hosted=hosted, scale=scale), rows


def _by_cosine(rows: Ints, cosines: Floats | NDArray[np.float64]) -> Ranking:
    order = np.lexsort((rows, -cosines))
    return Ranking(DENSE, tuple(rows[order].tolist()), tuple(cosines[order].tolist()), ceiling=1.0)


def only(ranking: Ranking, rows: Ints) -> Ranking:
    """The ranking without other rows."""
    wanted = set(rows.tolist())
    return of_pairs(ranking, [each for each in zip(ranking.rows, ranking.scores, strict=True) if each[0] in wanted])


def of_pairs(ranking: Ranking, pairs: Sequence[tuple[int, float]]) -> Ranking:
    """The ranking with other rows and scores."""
    return replace(ranking, rows=tuple(row for row, _ in pairs), scores=tuple(score for _, score in pairs))


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit numpy's products to one thread until the last caller has left.

    Those of a recall are small, and threads that wait for the next one spin. The limit applies to the whole process: a
    program that uses triskele as a library has its threads back between two recalls.
    """
    global _callers, _threads_before
    counts = _thread_counts()
    if counts is None:
        yield
        return
    read, write = counts
    with _blas_lock:
        _callers += 1
        if _callers == 1:
            _threads_before = read()
            write(1)
    try:
        yield
    finally:
        with _blas_lock:
            _callers -= 1
            if _callers == 0:
                write(_threads_before)


@cache
def _thread_counts() -> tuple[Callable[[], int], Callable[[int], object]] | None:
    """The functions of numpy's OpenBLAS that read and write its number of threads; None if numpy uses another BLAS."""
    package = Path(np.__file__).parent
    for folder in (package.parent / "numpy.libs", package / ".dylibs"):
        for path in sorted(folder.glob("*openblas*")):
            library = ctypes.CDLL(str(path))
            for prefix in _BLAS_PREFIXES:
                for suffix in _BLAS_SUFFIXES:
                    read = getattr(library, f"{prefix}get_num_threads{suffix}", None)
                    write = getattr(library, f"{prefix}set_num_threads{suffix}", None)
                    if read is not None and write is not None:
                        return read, write
    return None
