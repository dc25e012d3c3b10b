"""Confidence: how much of a question a memory covers, and how likely the best hit answers.

The likelihood is a logistic model of a few signals. Its weights are fitted by `benchmarks/confidence.py`
(docs/decisions/0009); nothing is learned from a store.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from triskele.index.corpus import Floats, is_called
from triskele.recall.evidence import may_be, teller
from triskele.recall.question import Question
from triskele.recall.scores import (
    DENSE,
    GRAPH,
    LATE,
    LEXICAL,
    REVIEW,
    SPEAKER,
    TIME,
    Candidate,
    Candidates,
    Served,
    unranked,
)
from triskele.text.analysis import Analyzer, Token, shape
from triskele.types import UNLIKELY_MATCH, Memory, Term

# How many candidates the best one is compared with.
COMPARED = 4
CERTAIN = 0.97
# A few bare words are a search: a memory that holds them all is what was searched for.
SEARCHED = 0.5
_BIAS = -2.2
_WEIGHTS: Mapping[str, float] = {
    "cosine": 4.59,
    "words": 0.38,
    "margin": 8.36,
    "spread": -33.72,
    "unknown": -4.21,
    "elsewhere": -3.97,
}
# A query counts as if it had so many more terms, with so much deviation between them: one or two terms prove little.
_MORE_TERMS, _MORE_DEVIATION = 5, 0.5
# The cosine of a memory without vectors: what those with such words have on average.
_COSINE, _COSINE_BY_WORDS = 0.25, 0.3
# Only the text of a memory counts, not its connections, its speaker or the turns around it.
_NOT_OWN = frozenset({GRAPH, SPEAKER, TIME, REVIEW})
_IDENTIFIER = re.compile(r"(?=.*[\d_])(?=.*[^\d.,]).{4,}|\w+[/:]\S+")
_RARE = 3


@dataclass(frozen=True, slots=True, eq=False)
class Coverage:
    """How much of a query, by the rarity of its terms, a memory covers."""

    question: Question
    analyzer: Analyzer

    def share(self, memory: Memory) -> float:
        """From 0, no query term, to 1, all of them."""
        rarity, terms, total = self.question.rarity, self.question.terms, self.question.ceiling
        covered = self.whole_words(memory) if self.question.form.is_search else self.covered(memory)
        # In the order of the query: a sum over a set depends on the hashes of its terms in the last digits.
        return sum(rarity[term] for term in terms if term in covered) / total if total else 0.0

    def is_whole(self, memory: Memory) -> bool:
        """Whether a memory contains every query term."""
        return len(self.covered(memory)) == len(self.question.terms)

    def terms_of_each(self, memories: Sequence[Memory]) -> list[tuple[Term, ...]]:
        """The positions of the query terms in some memories, once each; terms of labels have no position there."""
        texts, labels = [memory.content for memory in memories], [_labels(memory) for memory in memories]
        tokens = self.analyzer.first_places_of_each([*texts, *labels], frozenset(self.question.terms))
        return [
            _terms(text, inside, label, beside)
            for text, inside, label, beside in zip(
                texts, tokens[: len(texts)], labels, tokens[len(texts) :], strict=True
            )
        ]

    def missing(self, memory: Memory) -> frozenset[str]:
        """The identifiers of the query that no memory of the scope holds, unless this one writes their parts."""
        terms = self._terms(memory) if self.question.unknown else frozenset()
        return frozenset(each for each in self.question.unknown if not terms.issuperset(self._parts(each)))

    def names_alike(self, memory: Memory, names: Set[str]) -> bool:
        """Whether a memory names an identifier of the same shape as one of these."""
        return not {shape(each) for each in names}.isdisjoint(map(shape, self._terms(memory)))

    def _terms(self, memory: Memory) -> frozenset[str]:
        return frozenset(self.analyzer.terms(text_of(memory)))

    def _parts(self, identifier: str) -> list[str]:
        """The words that an identifier is made of; itself if it is one word."""
        return [term for term in self.analyzer.terms(identifier) if term != identifier] or [identifier]

    def covered(self, memory: Memory) -> frozenset[str]:
        """The query terms that a memory or its labels contain."""
        return self._terms(memory).intersection(self.question.terms)

    def whole_words(self, memory: Memory) -> frozenset[str]:
        """The covered terms, without words that are only parts of identifiers in the memory."""
        return self.covered(memory) - self.analyzer.missing_words(self.question.query.text, text_of(memory))


def _terms(text: str, inside: Sequence[Token], labels: str, beside: Sequence[Token]) -> tuple[Term, ...]:
    terms = {token.text: Term(text[token.start : token.end], token.start, token.end) for token in inside}
    for token in beside:
        terms.setdefault(token.text, Term(labels[token.start : token.end], -1, -1))
    return tuple(terms.values())


def text_of(memory: Memory) -> str:
    """A memory with its labels, as one text."""
    return f"{memory.content} {_labels(memory)}"


def _labels(memory: Memory) -> str:
    return " ".join((memory.keywords, *memory.tags, memory.category))


def confidence(served: Sequence[Served], candidates: Candidates, coverage: Coverage, memories: int) -> float:
    """How likely the best hit answers; if only the lexical leg ran, how much of the question it covers."""
    if not served:
        return 0.0
    best, question = served[0], coverage.question
    missing = coverage.missing(best.matched)
    if missing and coverage.names_alike(best.matched, missing):
        return UNLIKELY_MATCH
    if best.chain_rows:
        # A memory does not compete with what it replaced.
        ranked = [candidate for candidate in candidates.ranked if candidate.row not in best.chain_rows]
        candidates = replace(candidates, ranked=ranked)
    if has_signals(candidates, best.candidate):
        unknown = missing | _unheard(best.matched, candidates, coverage, memories)
        likely = likelihood(signals(candidates, replace(question, unknown=unknown)))
        # Most questions name nothing exactly: only those that do pay for reading the text again.
        if identifiers(question) and names_exactly(question, coverage.covered(best.matched), memories):
            return max(likely, CERTAIN)
    else:
        likely = coverage.share(best.matched)
    if question.form.is_search and _is_searched(best.matched, coverage):
        return max(likely, SEARCHED)
    return likely


def first_confidence(candidates: Candidates, question: Question) -> float:
    """The confidence in candidates before anything is read again."""
    has_any = candidates.ranked and has_signals(candidates, candidates.ranked[0])
    return likelihood(signals(candidates, question)) if has_any else 0.0


def has_signals(candidates: Candidates, best: Candidate) -> bool:
    """Whether the legs scored it by shares of what was possible, or others like it."""
    return DENSE in best.parts or candidates.token_weights is not None


def signals(candidates: Candidates, question: Question) -> dict[str, float]:
    """The signals for and against the best candidate.

    Tokens of which some match well and others hardly indicate a memory about the same thing that does not answer, the
    more so the fewer terms the question has. So does a nearer memory in another project.
    """
    best, *others = unranked(candidates.ranked[: COMPARED + 1])
    if candidates.by_speaker is not None and best.row not in candidates.by_speaker.rows:
        candidates = replace(candidates, by_speaker=None)
    is_request = question.form.is_request
    shares = [_share(candidates, other, is_request) for other in others]
    words = best.parts[LEXICAL].normalised if LEXICAL in best.parts else 0.0
    return {
        "cosine": best.parts[DENSE].raw if DENSE in best.parts else _COSINE + _COSINE_BY_WORDS * min(words, 1.0),
        "words": words,
        "margin": _share(candidates, best, is_request) - (sum(shares) / len(shares) if shares else 0.0),
        "spread": (_deviation(candidates, best.row) + _MORE_DEVIATION) / (len(question.terms) + _MORE_TERMS),
        "unknown": float(bool(question.unknown)),
        "elsewhere": candidates.nearer_elsewhere,
    }


def likelihood(signals: Mapping[str, float]) -> float:
    """The signals as a probability."""
    return 1 / (1 + math.exp(-(_BIAS + sum(_WEIGHTS[name] * value for name, value in signals.items()))))


def identifiers(question: Question) -> list[str]:
    """The terms of a question that name one thing exactly."""
    return [term for term in question.terms if _IDENTIFIER.fullmatch(term)]


def names_exactly(question: Question, covered: frozenset[str], memories: int) -> bool:
    """Whether a memory holds the identifiers of a question, a rare one among them, and half of its terms by rarity."""
    named, rarity = identifiers(question), question.rarity
    if not named or not covered.issuperset(named) or question.ceiling <= 0:
        return False
    is_rare = any(rarity[term] >= _rarity(_RARE, memories) for term in named)
    return is_rare and 2 * sum(rarity[term] for term in question.terms if term in covered) >= question.ceiling


def is_held(question: Question, term: str, memories: int) -> bool:
    """Whether any memory contains a term of a question."""
    return question.rarity.get(term, 0.0) <= _rarity(1, memories)


def _rarity(count: int, memories: int) -> float:
    """The inverse document frequency of a term that so many memories contain."""
    return math.log(1 + (memories - count + 0.5) / (count + 0.5)) if memories > count else 0.0


def _deviation(candidates: Candidates, row: int) -> float:
    """The deviation of a candidate's own matches over the query tokens; 0 if it was not scored by them."""
    matches, weights = _matches(candidates, row), candidates.token_weights
    if matches is None or weights is None:
        return 0.0
    return math.sqrt(float(weights @ (matches - weights @ matches) ** 2))


def _matches(candidates: Candidates, row: int) -> Floats | None:
    """A candidate's own matches of the query tokens; None if it was not scored by them.

    In the words of a speaker whom the question names, the name and “say” match at least as well as the rest: the text
    need not hold them.
    """
    matches, weights, by_speaker = candidates.matches.get(row), candidates.token_weights, candidates.by_speaker
    if matches is None or by_speaker is None or weights is None or row not in by_speaker.rows:
        return matches
    rest = by_speaker.token_weights
    return matches if weights @ matches >= rest @ matches else np.where(rest > 0, matches, rest @ matches)


def _share(candidates: Candidates, candidate: Candidate, is_request: bool) -> float:
    """What the legs give to a candidate for its own text.

    Turns lend their matches to those around them and to their whole conversation: by its score the best turn would
    never lead the others. A request borrows nothing; its own tokens lack what the words of rules match.
    """
    share = float(sum(part.contribution for leg, part in candidate.parts.items() if leg not in _NOT_OWN))
    late, weights, matches = candidate.parts.get(LATE), candidates.token_weights, _matches(candidates, candidate.row)
    if is_request or late is None or late.normalised <= 0 or weights is None or matches is None:
        return share
    return share + late.contribution * (float(weights @ matches) / late.normalised - 1)


def _unheard(memory: Memory, candidates: Candidates, coverage: Coverage, memories: int) -> frozenset[str]:
    """The name of the speaker that a question asks for, if a memory is in another's words and lacks the name.

    A name that stands in other memories and that no speaker has may be that of a product: it counts as known.
    """
    question = coverage.question
    name = teller(question.query.text) if memory.speaker is not None else None
    if name is None or memory.speaker is None or may_be(memory.speaker, name):
        return frozenset()
    terms = frozenset(coverage.analyzer.terms(name))
    is_known = candidates.by_speaker is None and any(is_held(question, term, memories) for term in terms)
    return frozenset() if is_known or not terms.isdisjoint(coverage.covered(memory)) else frozenset({name})


def _is_searched(memory: Memory, coverage: Coverage) -> bool:
    """Whether a few bare words are the name of a memory's speaker, or all of them stand in a memory."""
    # A turn of a conversation holds many words in passing.
    is_whole = memory.session is None and len(coverage.whole_words(memory)) == len(coverage.question.terms)
    return is_whole or (memory.speaker is not None and is_called(memory.speaker, coverage.question.query.text))
