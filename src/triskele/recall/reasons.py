"""Evidence for every hit, its reason as a sentence, and the confidence of an answer."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial

from triskele.index.corpus import is_called
from triskele.recall.candidates import CandidateSet
from triskele.recall.confidence import (
    CERTAIN,
    SEARCHED,
    UNLIKELY,
    has_signs,
    identifiers,
    is_held,
    is_search,
    likelihood,
    names_exactly,
    signs,
)
from triskele.recall.evidence import SPEAKER, TIME, may_be, teller
from triskele.recall.graph_leg import GRAPH
from triskele.recall.legs import DENSE, LEXICAL, QueryTerms
from triskele.recall.supersession import Resolved
from triskele.text.analysis import Analyzer, Token, shape
from triskele.text.words import IS_UNSPACED
from triskele.types import Hit, HitEvidence, LegEvidence, Link, Memory, Path, Term

MAX_WORDS_NAMED = 8
_CHARACTERS_PER_TOKEN = 4
# The share of a score that time gives to a memory from about the time asked for.
_AT_THE_TIME = 0.1
# Below this share the age of a memory is a reason worth naming.
_AGED = 0.9
_IS_JOINT = re.compile(r"[_.:/@+#'-]*").fullmatch
_NEARNESS = ((0.45, "close"), (0.25, "related"), (-math.inf, "hardly related"))


@dataclass(frozen=True, slots=True, eq=False)
class Coverage:
    """How much of a query, by the rarity of its terms, a memory covers."""

    query: QueryTerms
    analyzer: Analyzer

    def of(self, memory: Memory) -> float:
        """From 0, no query term, to 1, all of them."""
        total = self.query.ceiling
        covered = self.whole_words(memory) if is_search(self.query.text) else self.covered(memory)
        # In the order of the query: a sum over a set depends on the hashes of its terms in the last digits.
        return sum(self.query.rarity[term] for term in self.query.terms if term in covered) / total if total else 0.0

    def is_whole(self, memory: Memory) -> bool:
        """Whether a memory contains every query term."""
        return len(self.covered(memory)) == len(self.query.terms)

    def terms_of_each(self, memories: Sequence[Memory]) -> list[tuple[Term, ...]]:
        """The positions of the query terms in some memories, once each; terms of labels have no position there."""
        texts, labels = [memory.content for memory in memories], [_labels(memory) for memory in memories]
        places = self.analyzer.first_places_of_each([*texts, *labels], frozenset(self.query.terms))
        return [
            _terms(text, inside, label, beside)
            for text, inside, label, beside in zip(
                texts, places[: len(texts)], labels, places[len(texts) :], strict=True
            )
        ]

    def missing(self, memory: Memory) -> frozenset[str]:
        """The identifiers of the query that no memory of the scope holds, unless this one writes their parts."""
        terms = self._terms(memory) if self.query.unknown else frozenset()
        return frozenset(each for each in self.query.unknown if not terms.issuperset(self._parts(each)))

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
        return self._terms(memory).intersection(self.query.terms)

    def whole_words(self, memory: Memory) -> frozenset[str]:
        """The covered terms, without words that are only parts of identifiers in the memory."""
        return self.covered(memory) - self.analyzer.missing_words(self.query.text, text_of(memory))


def _terms(text: str, inside: Sequence[Token], labels: str, beside: Sequence[Token]) -> tuple[Term, ...]:
    found = {token.text: Term(text[token.start : token.end], token.start, token.end) for token in inside}
    for token in beside:
        found.setdefault(token.text, Term(labels[token.start : token.end], -1, -1))
    return tuple(found.values())


def text_of(memory: Memory) -> str:
    """A memory with its labels, as one text."""
    return f"{memory.content} {_labels(memory)}"


def _labels(memory: Memory) -> str:
    return " ".join((memory.keywords, *memory.tags, memory.category))


def explained(
    resolved: Sequence[Resolved], coverage: Coverage, links: Sequence[Link], paths: Mapping[int, Path]
) -> tuple[Hit, ...]:
    """Hits with links, evidence and reasons; what takes a reading of their texts is made when it is first asked for."""
    terms = cache(partial(coverage.terms_of_each, [each.matched for each in resolved]))
    return tuple(
        _hit(each, _Unread(each, partial(_item, terms, place), paths.get(each.fused.row)), links)
        for place, each in enumerate(resolved)
    )


def _item(items: Callable[[], Sequence[tuple[Term, ...]]], place: int) -> tuple[Term, ...]:
    return items()[place]


def bare(resolved: Resolved) -> Hit:
    """A hit without a reason and links."""
    return _hit(resolved, _Unread(resolved))


def _hit(resolved: Resolved, evidence: HitEvidence, links: Sequence[Link] = ()) -> Hit:
    return Hit(
        memory=resolved.memory,
        score=resolved.score,
        evidence=evidence,
        prior=resolved.prior,
        superseded=resolved.superseded,
        stands_for=resolved.stands_for,
        links=tuple(link for link in links if resolved.memory.id in (link.source, link.target)) if links else (),
        decay=resolved.decay,
    )


class _Unread(HitEvidence):
    """Evidence that is made when it is first read; without terms it has no words and no reason."""

    def __init__(
        self, resolved: Resolved, terms: Callable[[], tuple[Term, ...]] | None = None, path: Path | None = None
    ) -> None:
        self._resolved, self._terms, self._path = resolved, terms, path

    def __getstate__(self) -> dict[str, object]:
        """A copy, in another process too, holds what was made and not what it is made of."""
        return {"legs": self.legs, "words": self.words, "reason": self.reason}

    @cached_property
    def legs(self) -> dict[str, LegEvidence]:
        """What each leg contributed."""
        return _evidence(self._resolved, self._terms() if self._terms else (), self._path)

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The matched words as the memory writes them."""
        return _words(self._terms(), self._resolved.matched.content) if self._terms else ()

    @cached_property
    def reason(self) -> str:
        """The evidence as a sentence."""
        return sentence(_hit(self._resolved, self)) if self._terms else ""


def _evidence(resolved: Resolved, terms: tuple[Term, ...], path: Path | None) -> dict[str, LegEvidence]:
    """What each leg contributed."""
    return {
        name: LegEvidence(
            rank=part.rank,
            score=part.raw,
            normalised=part.normalised,
            contribution=part.contribution,
            terms=terms if name == LEXICAL else (),
            path=path if name == GRAPH else None,
        )
        for name, part in resolved.fused.parts.items()
    }


def _words(terms: Sequence[Term], content: str) -> tuple[str, ...]:
    """The matched words as the memory writes them: parts of an identifier that stand together are one."""
    spans: list[tuple[int, int]] = []
    for start, end in sorted((term.start, term.end) for term in terms if term.start >= 0):
        if spans and _IS_JOINT(content, min(start, spans[-1][1]), start):
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((start, end))
    labels = [term.text for term in terms if term.start < 0]
    return tuple(dict.fromkeys([*(content[start:end] for start, end in spans), *labels]))


def sentence(hit: Hit, named: Callable[[str], str] = str) -> str:
    """The evidence of a hit as a plain sentence, without a subject; `named` shows the ids in it."""
    matched = _match(hit)
    path = hit.legs[GRAPH].path if GRAPH in hit.legs else None
    if path is not None:
        matched += f", and is connected through “{path.name}” with “{path.says}”"
    matched += _said(hit)
    if hit.stands_for is not None:
        return f"replaces {named(hit.stands_for)}, which {matched}"
    return matched + (", but has been superseded" if hit.superseded else "")


def _said(hit: Hit) -> str:
    """Whose words a hit holds and when it was said, if the query asks for that or the age of a memory counts."""
    said = ""
    if SPEAKER in hit.legs and (hit.memory.speaker or hit.memory.role):
        said += f", in the words of {hit.memory.speaker or f'the {hit.memory.role}'}"
    if TIME in hit.legs and hit.legs[TIME].contribution >= _AT_THE_TIME * hit.score / (hit.prior or 1.0):
        said += ", from about the time that the query asks for"
    if hit.decay < _AGED:
        said += f", and counts less for its age (importance ×{hit.decay:.2f})"
    return said


def _match(hit: Hit) -> str:
    named = [*hit.words[:MAX_WORDS_NAMED], *(["…"] if len(hit.words) > MAX_WORDS_NAMED else [])]
    words = f"shares the word{'' if len(named) == 1 else 's'} " + ", ".join(f"“{word}”" for word in named)
    dense = hit.legs.get(DENSE)
    if dense is None:
        if any(leg.startswith("wording") for leg in hit.legs):
            return f"{words}, and matches other wordings of the query" if named else "matches another wording"
        if not named and SPEAKER in hit.legs:
            return "has the speaker that the query names"
        return words if named else "is next to a turn that shares words with the query"
    nearness = next(name for least, name in _NEARNESS if dense.score >= least)
    semantic = f"is {nearness} in meaning ({dense.score:.2f})"
    return f"{words} and {semantic}" if named else semantic


def confidence(resolved: Sequence[Resolved], found: CandidateSet, coverage: Coverage, memories: int) -> float:
    """How likely the best hit answers; if only the lexical leg ran, how much of the query it covers."""
    if not resolved:
        return 0.0
    best = resolved[0]
    missing = coverage.missing(best.matched)
    if missing and coverage.names_alike(best.matched, missing):
        return UNLIKELY
    if best.kin:
        # A memory does not compete with what it replaced.
        found = replace(found, fused=[each for each in found.fused if each.row not in best.kin])
    if has_signs(found, best.fused):
        unknown = missing | _unheard(best.matched, found, coverage, memories)
        likely = likelihood(signs(found, replace(coverage.query, unknown=unknown)))
        # Most queries name nothing exactly: only those that do pay for reading the text again.
        if identifiers(coverage.query) and names_exactly(coverage.query, coverage.covered(best.matched), memories):
            return max(likely, CERTAIN)
    else:
        likely = coverage.of(best.matched)
    if is_search(coverage.query.text) and _is_searched(best.matched, coverage):
        return max(likely, SEARCHED)
    return likely


def _unheard(memory: Memory, found: CandidateSet, coverage: Coverage, memories: int) -> frozenset[str]:
    """The name of the one whose words a query asks for, if a memory is in another's words and does not hold the name.

    A name that stands in other memories and that no speaker has may be that of a product: it counts as known.
    """
    name = teller(coverage.query.text) if memory.speaker is not None else None
    if name is None or memory.speaker is None or may_be(memory.speaker, name):
        return frozenset()
    terms = frozenset(coverage.analyzer.terms(name))
    is_known = found.said is None and any(is_held(coverage.query, term, memories) for term in terms)
    return frozenset() if is_known or not terms.isdisjoint(coverage.covered(memory)) else frozenset({name})


def _is_searched(memory: Memory, coverage: Coverage) -> bool:
    """Whether a few bare words are the name of a memory's speaker, or all of them stand in a memory."""
    # A turn of a conversation holds many words in passing.
    is_whole = memory.session is None and len(coverage.whole_words(memory)) == len(coverage.query.terms)
    return is_whole or (memory.speaker is not None and is_called(memory.speaker, coverage.query.text))


def first_confidence(found: CandidateSet, query: QueryTerms) -> float:
    """The confidence in candidates before anything is read again."""
    return likelihood(signs(found, query)) if found.fused and has_signs(found, found.fused[0]) else 0.0


def tokens_of(text: str) -> int:
    """About how many tokens of a language model a text takes; scripts without spaces take one per character."""
    unspaced = 0 if text.isascii() else len(IS_UNSPACED.findall(text))
    return max(1, unspaced + math.ceil((len(text) - unspaced) / _CHARACTERS_PER_TOKEN))
