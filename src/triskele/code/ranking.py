"""From a question to ranked chunks: words with ranking rules and meaning, fused by a method of recall."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from triskele.code import rules
from triskele.code.corpus import CodeCorpus, FieldWeights, LexicalScores
from triskele.code.question import CodeQuestion
from triskele.code.rules import ADDED, PENALTY, CandidateFiles
from triskele.code.words import whole
from triskele.index.corpus import Floats, Ints
from triskele.recall.fusion import FusionConfig, textbook_fusion
from triskele.recall.legs import LEAST_SIMILARITY
from triskele.recall.scores import DENSE, LEXICAL, Candidate, Doubles, Ranking

if TYPE_CHECKING:
    from triskele.code.embedding import CodeVectors
    from triskele.models.embedder import Embedder

# How many files a leg returns.
DEPTH = 200
MOST_PER_FILE = 2
# What a second chunk of a file must reach of the first, and what it counts then.
_SECOND = 0.5
FILE, FUNCTION = "file", "function"
# The weight of meaning by what is ranked: a short function shares few words with a question about it.
DENSE_WEIGHTS = {FILE: 0.4, FUNCTION: 0.8}


@dataclass(frozen=True, slots=True)
class CodePlan:
    """How code is ranked: by file or function, rules that are off, the weights of fields, fusion and dense leg."""

    without: frozenset[str] = frozenset()
    weights: FieldWeights = field(default_factory=FieldWeights)
    fusion: str = "zscore"
    granularity: str = FILE
    dense: float | None = None
    penalties: Mapping[str, float] = field(default_factory=lambda: rules.PENALTIES)

    @property
    def dense_weight(self) -> float:
        """The share of the dense leg: the one asked for, or that of the granularity."""
        return DENSE_WEIGHTS[self.granularity] if self.dense is None else self.dense


@dataclass(frozen=True, slots=True)
class RankedChunk:
    """A chunk in the answer, and what every part of the ranking gave to its file."""

    row: int
    chunk: int
    score: float
    evidence: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What words and rules gave to the files that have any of the terms: a column for each name, best words first."""

    rows: Ints
    names: tuple[str, ...] = ()
    table: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 1)))

    def of(self, row: int) -> dict[str, float]:
        """The parts of one file's score; nothing for a file without the terms."""
        places = np.flatnonzero(self.rows == row)
        return dict(zip(self.names, self.table[places[0]].tolist(), strict=True)) if len(places) else {}


@dataclass(frozen=True)
class QuestionView:
    """A corpus for one question, with the scores by words, rules and meaning."""

    corpus: CodeCorpus
    question: CodeQuestion
    plan: CodePlan
    vectors: CodeVectors | None = None
    vector: Floats | None = None

    @cached_property
    def nearness(self) -> tuple[Floats, Floats]:
        """The cosines of chunks and of files with the question; NaN if there is no vector."""
        if self.vectors is None or self.vector is None:
            sizes = len(self.corpus.chunk_content), self.corpus.size
            return np.full(sizes[0], np.nan, np.float32), np.full(sizes[1], np.nan, np.float32)
        return self.vectors.cosines(self.vector)

    @cached_property
    def scores(self) -> LexicalScores:
        """The scores by words."""
        return self.corpus.scores(self.question.terms, self.plan.weights)

    @cached_property
    def evidence(self) -> Evidence:
        """What words and rules gave to the files that have any of the terms; the last column is the total."""
        scores = self.scores.files
        rows = np.flatnonzero(scores > 0)
        rows = rows[np.lexsort((rows, -scores[rows]))][:DEPTH]
        if not len(rows):
            return Evidence(rows)
        candidates = CandidateFiles(self.question, self.corpus, rows, self.scores.rarity)
        total = scores[rows] / scores[rows].max()
        parts = {"words": total}
        for name in (name for name in ADDED if name not in self.plan.without):
            parts[name] = ADDED[name](candidates)
            total = total + parts[name]
        if PENALTY not in self.plan.without:
            parts[PENALTY] = rules.penalties(candidates, self.plan.penalties)
            total = total * parts[PENALTY]
        parts["total"] = total
        return Evidence(rows, tuple(parts), np.stack(list(parts.values()), axis=1))


def rank(
    corpus: CodeCorpus,
    question: CodeQuestion,
    *,
    limit: int = 10,
    plan: CodePlan | None = None,
    vectors: CodeVectors | None = None,
    embedder: Embedder | None = None,
) -> list[RankedChunk]:
    """The best chunks for a question, at most two of a file; by words only if there are no vectors."""
    if not corpus.size or not question.terms:
        return []
    plan = plan or CodePlan()
    # A bare name is found best without meaning.
    reads_meaning = vectors is not None and not question.is_symbol and plan.dense_weight
    encoding = embedder.encode_query(question.text) if embedder is not None and reads_meaning else None
    view = QuestionView(corpus, question, plan, vectors, None if encoding is None else encoding.sentence)
    if plan.granularity == FUNCTION:
        return _functions(view, limit)
    return _chunks(view, _files(view), limit)


def _files(view: QuestionView) -> list[Candidate]:
    """The best files by words and rules, and if there is a vector by meaning."""
    rows, size = view.evidence.rows, view.corpus.size
    totals, has_words = np.zeros(size), np.zeros(size, dtype=np.bool_)
    totals[rows], has_words[rows] = view.evidence.table[:, -1], True
    lexical = _best(LEXICAL, totals, has_words)
    if view.vector is None:
        return _alone(lexical)
    # A file below the least similarity counts only if it has the words.
    cosines = view.nearness[1].astype(np.float64)
    counts = has_words & ~np.isnan(cosines)
    counts[_best(DENSE, cosines, cosines >= LEAST_SIMILARITY).rows] = True
    return _fused(view.plan, lexical, _best(DENSE, cosines, counts, most=2 * DEPTH))


def _fused(plan: CodePlan, lexical: Ranking, dense: Ranking) -> list[Candidate]:
    weights = {LEXICAL: 1 - plan.dense_weight, DENSE: plan.dense_weight}
    config = FusionConfig(weights=weights, depth=2 * DEPTH)
    return textbook_fusion(plan.fusion, [lexical, dense], config).ranked()


def _chunks(view: QuestionView, files: Sequence[Candidate], limit: int) -> list[RankedChunk]:
    """The best chunks of the best files; the second of a file is scored by its share of the first."""
    ranked: list[RankedChunk] = []
    worths = _worths(view)
    # Chunks of files below these are worth less than the first chunks of these.
    for file in islice((file for file in files if len(view.corpus.chunks_of(file.row))), limit):
        chunks = view.corpus.chunks_of(file.row)
        own = worths[chunks] + _defining(view, chunks)
        first, *rest = np.lexsort((chunks, -own))[:MOST_PER_FILE].tolist()
        evidence = {**view.evidence.of(file.row), **_shares(file)}
        ranked.append(RankedChunk(file.row, int(chunks[first]), file.score, evidence))
        for at in rest:
            share = float(own[at] / own[first]) if own[first] else 0.0
            if share >= _SECOND:
                ranked.append(RankedChunk(file.row, int(chunks[at]), file.score * (share * _SECOND), evidence))
    return sorted(ranked, key=lambda each: (-each.score, each.row, each.chunk))[:limit]


def _functions(view: QuestionView, limit: int) -> list[RankedChunk]:
    """The best chunks of the tree, each scored separately: of its file only the kind counts."""
    corpus = view.corpus
    rows = np.array([corpus.files_of.get(content, [-1])[0] for content in corpus.chunk_content.tolist()])
    factors = rules.penalties(CandidateFiles(view.question, corpus, np.arange(corpus.size), {}), view.plan.penalties)
    factors = np.append(factors, 0.0)[rows]
    words = view.scores.chunks * factors + _defining(view, np.arange(len(rows)))
    lexical = _best(LEXICAL, words, words > 0)
    cosines = view.nearness[0] * factors
    is_near = np.zeros(len(rows), dtype=bool)
    is_near[np.argsort(-np.nan_to_num(cosines, nan=-2.0))[:DEPTH]] = True
    is_near[lexical.rows] = True
    dense = _best(DENSE, cosines, is_near & ~np.isnan(cosines) & (factors > 0), most=2 * DEPTH)
    fused = _fused(view.plan, lexical, dense) if len(dense.rows) else _alone(lexical)
    return [
        RankedChunk(int(rows[each.row]), each.row, each.score, {"words": float(words[each.row]), **_shares(each)})
        for each in fused[:limit]
    ]


def _best(leg: str, scores: Floats | Doubles, counts: NDArray[np.bool_], most: int = DEPTH) -> Ranking:
    rows = np.flatnonzero(counts)
    rows = rows[np.lexsort((rows, -scores[rows]))][:most]
    return Ranking(leg, rows, scores[rows].astype(np.float64))


def _alone(ranking: Ranking) -> list[Candidate]:
    return [
        Candidate(row, score, {}) for row, score in zip(ranking.rows.tolist(), ranking.scores.tolist(), strict=True)
    ]


def _worths(view: QuestionView) -> Floats:
    """The score of each chunk by words and, if there are vectors, by meaning; the best is about 1."""
    words = view.scores.chunks / max(float(view.scores.chunks.max(initial=0.0)), 1e-9)
    cosines = np.nan_to_num(view.nearness[0])
    best = float(cosines.max(initial=0.0))
    if best <= 0:
        return words.astype(np.float32)
    weight = view.plan.dense_weight
    return ((1 - weight) * words + weight * np.maximum(cosines, 0) / best).astype(np.float32)


def _shares(file: Candidate) -> dict[str, float]:
    return {f"{name}_share": part.contribution for name, part in file.parts.items()}


def _defining(view: QuestionView, chunks: Ints) -> Floats:
    """A gain, above any score by words, for the chunks that define a name that the question asks for."""
    corpus, gains = view.corpus, np.zeros(len(chunks), dtype=np.float32)
    for name, _ in view.question.symbols:
        for position in corpus.by_name.get(whole(name), ()):
            lines, line = corpus.chunk_lines[chunks], corpus.definitions[position].start_line
            is_same = corpus.chunk_content[chunks] == corpus.definition_content[position]
            gains[is_same & (lines[:, 0] <= line) & (line <= lines[:, 1])] += 100.0
    return gains
