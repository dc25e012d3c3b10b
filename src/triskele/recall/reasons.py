"""Saying why: the words that matched, what each leg added, and how sure the whole answer is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

from triskele.index.analysis import IS_UNSPACED, Token
from triskele.index.lexical import LexicalIndex
from triskele.recall.legs import graph, lexical
from triskele.recall.supersession import Resolved
from triskele.types import Hit, LegEvidence, Link, Memory, Path, Term

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

    @cached_property
    def _telling(self) -> frozenset[str]:
        return frozenset(self.analyzer.query_terms(self.text))

    def terms(self, memory: Memory) -> tuple[Term, ...]:
        """Where the question's words stand in a memory, once each; labels have no place in the text."""
        content = memory.content
        found = {t.text: Term(content[t.start : t.end], t.start, t.end) for t in self._places(content)}
        labels = _labels(memory)
        for t in self._places(labels):
            found.setdefault(t.text, Term(labels[t.start : t.end], -1, -1))
        return tuple(found.values())

    def _places(self, text: str) -> list[Token]:
        return self.analyzer.first_places(text, self._telling)

    def of(self, memory: Memory) -> float:
        """From 0, none of the telling words, to 1, all of them."""
        total = sum(self.asked.values())
        return sum(self.asked[term] for term in self._covered(memory)) / total if total else 0.0

    def is_whole(self, memory: Memory) -> bool:
        """Whether a memory holds every telling word of the question."""
        return len(self._covered(memory)) == len(self._telling)

    def _covered(self, memory: Memory) -> frozenset[str]:
        return self._telling.intersection(self.analyzer.terms(f"{memory.content} {_labels(memory)}"))


def _labels(memory: Memory) -> str:
    return " ".join((memory.keywords, *memory.tags, memory.category))


def hit(served: Resolved, coverage: Coverage, links: Sequence[Link], path: Path | None = None) -> Hit:
    """A memory with its reasons."""
    terms = coverage.terms(served.matched)
    legs = _evidence(served, terms, path)
    return Hit(
        memory=served.memory,
        score=served.score,
        reason=_reason(served, _words(terms, served.matched.content), path),
        legs=legs,
        prior=served.prior,
        superseded=served.superseded,
        stands_for=served.stands_for,
        links=tuple(link for link in links if served.memory.id in (link.source, link.target)),
    )


def bare(served: Resolved) -> Hit:
    """A memory without its reasons, which take longer than finding it; what each leg gave is known anyway."""
    return Hit(
        memory=served.memory,
        score=served.score,
        reason="",
        legs=_evidence(served),
        prior=served.prior,
        superseded=served.superseded,
        stands_for=served.stands_for,
    )


def _evidence(served: Resolved, terms: tuple[Term, ...] = (), path: Path | None = None) -> dict[str, LegEvidence]:
    return {
        name: LegEvidence(
            rank=part.rank,
            score=part.raw,
            normalised=part.normalised,
            contribution=part.contribution,
            terms=terms if name == lexical.NAME else (),
            path=path if name == graph.NAME else None,
        )
        for name, part in served.fused.parts.items()
    }


def confidence(served: Sequence[Resolved], coverage: Coverage) -> float:
    """How likely the best hit answers: from its share of what was possible, and whether every leg puts it first."""
    if not served:
        return 0.0
    best = served[0]
    if "dense" not in best.fused.parts:
        return coverage.of(best.matched)
    # What a memory says by itself counts, not whom it is connected with.
    said = [part for leg, part in best.fused.parts.items() if leg != graph.NAME]
    share = sum(part.contribution for part in said)
    # Late interaction looks again at what lies near: where nothing is near, that the two agree says nothing.
    is_met = "lexical" in best.fused.parts or best.fused.parts["dense"].raw >= _NEARNESS[1][0]
    agreed = is_met and all(part.rank == 1 for part in said)
    return 1 / (1 + math.exp(-(_BIAS + _PER_SHARE * share + _IF_AGREED * agreed)))


# Fitted on the tune halves of the sample corpus, the notes and MuSiQue: answerable against the same questions with
# their answers taken away (docs/benchmarks.md has the figures on the other halves and on unseen conversations).
_BIAS, _PER_SHARE, _IF_AGREED = -1.66, 1.88, 3.67
_NEARNESS = ((0.45, "close"), (0.25, "related"), (-math.inf, "hardly related"))


def tokens_of(text: str) -> int:
    """About how many tokens of a language model a text takes; scripts without spaces take one per character."""
    unspaced = 0 if text.isascii() else len(IS_UNSPACED.findall(text))
    return max(1, unspaced + math.ceil((len(text) - unspaced) / _CHARACTERS_PER_TOKEN))


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


def _reason(served: Resolved, words: Sequence[str], path: Path | None) -> str:
    said = _said(served, words)
    if path is not None:
        said += f", and is connected through “{path.name}” with “{path.says}”"
    if served.stands_for is not None:
        return f"replaces {served.stands_for}, which {said}"
    return said + (", but has been superseded" if served.superseded else "")


def _said(served: Resolved, words: Sequence[str]) -> str:
    shared = ", ".join(f"“{word}”" for word in words)
    named = f"shares the word{'' if len(words) == 1 else 's'} {shared}"
    near = served.fused.parts.get("dense")
    if near is None:
        if any(leg.startswith("wording") for leg in served.fused.parts):
            return f"{named}, and answers other wordings of the question" if words else "answers another wording"
        return named if words else "stands beside a turn that shares words with the question"
    nearness = next(said for least, said in _NEARNESS if near.raw >= least)
    meaning = f"is {nearness} in meaning ({near.raw:.2f})"
    return f"{named} and {meaning}" if words else meaning
