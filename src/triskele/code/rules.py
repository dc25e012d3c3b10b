"""Named ranking rules over candidate files, each measured and switched alone.

A rule returns the gain of every candidate, on a scale on which the best score by words is 1; penalties are a factor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from triskele.code import paths
from triskele.code.corpus import CodeCorpus, Floats, Ints
from triskele.code.languages import FUNCTION, TYPE
from triskele.code.question import CodeQuestion
from triskele.code.words import stem, whole

_DEPTH_LOSS = 0.3
# Factors for files that are rarely the answer, unless the question asks for them.
PENALTIES: Mapping[str, float] = {
    paths.TEST: 0.3,
    paths.BENCHMARK: 0.3,
    paths.EXAMPLE: 0.3,
    paths.LEGACY: 0.5,
    paths.DOCUMENTATION: 0.4,
    paths.STUB: 0.7,
}
SEED_PENALTIES: Mapping[str, float] = {paths.TEST: 0.78, paths.BENCHMARK: 0.9, paths.DOCUMENTATION: 0.6}


@dataclass(frozen=True)
class CandidateFiles:
    """Files from the lexical leg, with what rules read of them."""

    question: CodeQuestion
    corpus: CodeCorpus
    rows: Ints
    rarity: Mapping[str, float]

    def word_weights(self) -> dict[str, float]:
        """Rarity of each word of the question, as a share."""
        rarities = {word: self.rarity.get(stem(word), 0.0) for word in self.question.words}
        total = sum(rarities.values()) or 1.0
        return {word: rarity / total for word, rarity in rarities.items()}

    @cached_property
    def path_words(self) -> dict[str, frozenset[str]]:
        """The words of paths that are like each word of the question."""
        return {word: self.corpus.path_words_like(word) for word in self.question.words}

    def said_by(self, rows_of: Mapping[str, Ints], word: str) -> Floats:
        """1 for candidates whose words contain a word of the question."""
        marks = np.zeros(self.corpus.size)
        for spelling in self.path_words[word]:
            marks[rows_of.get(spelling, _NO_ROWS)] = 1.0
        return marks[self.rows]


Rule = Callable[[CandidateFiles], Floats]
_NO_ROWS = np.empty(0, dtype=np.int64)


def stem_match(found: CandidateFiles) -> Floats:
    """How far the file's name covers the question, and vice versa."""
    corpus, count = found.corpus, max(len(found.path_words), 1)
    gains = np.zeros(len(found.rows))
    for word, weight in found.word_weights().items():
        gains += (0.15 / count + 0.075 * weight) * found.said_by(corpus.stem_rows, word)
    covered = np.zeros(corpus.size)
    for spelling in frozenset().union(*found.path_words.values()):
        covered[corpus.stem_rows.get(spelling, _NO_ROWS)] += 1.0
    return gains + 0.075 * (covered / corpus.stem_sizes)[found.rows]


def folder_match(found: CandidateFiles) -> Floats:
    """How far the folder covers the question beyond the file's name."""
    corpus, count = found.corpus, max(len(found.path_words), 1)
    gains = np.zeros(len(found.rows))
    for word, weight in found.word_weights().items():
        named = found.said_by(corpus.folder_rows, word)
        gains += named * (0.125 / count + 0.5 * weight * (1 - found.said_by(corpus.stem_rows, word)))
    return gains


def definition(found: CandidateFiles) -> Floats:
    """Whether the file defines a name in question, outer ones first."""
    gains = np.zeros(len(found.rows))
    for name, container in found.question.symbols:
        gains += _defined(found, name, container)
    return gains


def _defined(found: CandidateFiles, name: str, container: str) -> Floats:
    corpus, is_symbol = found.corpus, found.question.is_symbol
    best: dict[int, float] = {}
    for position in corpus.by_name.get(whole(name), ()):
        definition = corpus.definitions[position]
        if definition.name == name:
            gain = {TYPE: 1.2, FUNCTION: 0.8}.get(definition.kind, 0.5) if is_symbol else 0.4
        else:
            gain = 0.2 if is_symbol else 0.15
        gain /= 1 + (0.0 if container else _DEPTH_LOSS * definition.depth)
        if container and definition.container.rsplit(".", 1)[-1].lower() == container.lower():
            gain *= 2
        content = int(corpus.definition_content[position])
        best[content] = max(best.get(content, 0.0), gain)
    contents = corpus.content_of[found.rows]
    gains = np.array([best.get(content, 0.0) for content in contents.tolist()])
    stems = (corpus.path_facts[row].stem for row in found.rows.tolist())
    is_named = np.array([stem == whole(name)[1:] for stem in stems], dtype=float)
    return gains + is_named * (0.5 if is_symbol else 1.0)


def penalties(found: CandidateFiles, factors: Mapping[str, float] = PENALTIES) -> Floats:
    """Factors below 1 for tests, examples, documentation, stubs and legacy code."""
    kinds, gains = found.corpus.kinds[found.rows], np.ones(len(found.rows))
    for kind, factor in factors.items():
        if kind not in found.question.asked_for:
            gains[kinds == kind] = factor
    return gains


ADDED: Mapping[str, Rule] = {
    "stem_match": stem_match,
    "folder_match": folder_match,
    "definition": definition,
}
PENALTY = "penalties"
RULES = (*ADDED, PENALTY)
