"""Saying why: the words that matched, what each leg added, and how sure the whole answer is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

from triskele.index.lexical import LexicalIndex
from triskele.legs import lexical
from triskele.succession import Served
from triskele.types import Hit, LegEvidence, Link, Memory, Term

MAX_WORDS_NAMED = 8
_CHARACTERS_PER_TOKEN = 4


class Coverage:
    """How much of what a question asks for, by rarity, a memory covers."""

    def __init__(self, text: str, index: LexicalIndex) -> None:
        self.text = text
        self.analyzer = index.analyzer
        self._index = index

    @cached_property
    def asked(self) -> dict[str, float]:
        """The telling terms of the question with their rarity."""
        return self._index.rarity(self.analyzer.query_terms(self.text))

    def of(self, memory: Memory) -> float:
        """From 0, none of the telling words, to 1, all of them."""
        total = sum(self.asked.values())
        text = " ".join((memory.content, memory.keywords, *memory.tags, memory.category))
        covered = set(self.analyzer.terms(text)) & set(self.asked)
        return sum(self.asked[term] for term in covered) / total if total else 0.0


def hit(served: Served, coverage: Coverage, links: Sequence[Link]) -> Hit:
    """A memory with its reasons."""
    terms = lexical.matched_terms(coverage.text, served.matched, coverage.analyzer)
    legs = {
        name: LegEvidence(
            rank=part.rank,
            score=part.raw,
            normalised=part.normalised,
            contribution=part.contribution,
            terms=terms if name == lexical.NAME else (),
        )
        for name, part in served.fused.parts.items()
    }
    return Hit(
        memory=served.memory,
        score=served.score,
        reason=_reason(served, _words(terms, served.matched.content)),
        legs=legs,
        prior=served.prior,
        superseded=served.superseded,
        stands_for=served.stands_for,
        links=tuple(link for link in links if served.memory.id in (link.source, link.target)),
    )


def confidence(served: Sequence[Served], coverage: Coverage) -> float:
    """How likely the best hit answers: from its score, its lead, and the rare words that it covers."""
    if not served:
        return 0.0
    best = served[0]
    if "dense" not in best.fused.parts:
        return coverage.of(best.matched)
    rest = served[min(len(served), 5) - 1].fused.score
    legs = best.fused.parts
    features = (
        best.fused.score,
        best.fused.score - rest,
        coverage.of(best.matched),
        float(all(part.rank == 1 for part in legs.values())),
    )
    return 1 / (1 + math.exp(-_BIAS - sum(w * x for w, x in zip(_SLOPES, features, strict=True))))


_NEARNESS = ((0.45, "close"), (0.25, "related"), (-math.inf, "hardly related"))
_BIAS = -4.0
_SLOPES = (6.0, 4.0, 1.5, 0.5)


def tokens_of(text: str) -> int:
    """About how many tokens of a language model a text takes."""
    return max(1, math.ceil(len(text) / _CHARACTERS_PER_TOKEN))


def _words(terms: Sequence[Term], content: str) -> list[str]:
    """What was matched, as a reader would say it: an identifier or a run of characters once, not part by part."""
    spans: list[tuple[int, int]] = []
    for start, end in sorted((term.start, term.end) for term in terms if term.start >= 0):
        if spans and start < spans[-1][1]:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((start, end))
    labels = [term.text for term in terms if term.start < 0]
    words = list(dict.fromkeys([*(content[start:end] for start, end in spans), *labels]))
    return words if len(words) <= MAX_WORDS_NAMED else [*words[:MAX_WORDS_NAMED], "…"]


def _reason(served: Served, words: Sequence[str]) -> str:
    said = _said(served, words)
    if served.stands_for is not None:
        return f"replaces {served.stands_for}, which {said}"
    return said + (", but has been superseded" if served.superseded else "")


def _said(served: Served, words: Sequence[str]) -> str:
    shared = ", ".join(f"“{word}”" for word in words)
    named = f"shares the word{'' if len(words) == 1 else 's'} {shared}"
    near = served.fused.parts.get("dense")
    if near is None:
        return named
    nearness = next(said for least, said in _NEARNESS if near.raw >= least)
    meaning = f"is {nearness} in meaning ({near.raw:.2f})"
    return f"{named} and {meaning}" if words else meaning
