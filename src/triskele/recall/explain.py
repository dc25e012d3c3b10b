"""Explain an answer: hits with evidence and a reason as a sentence, links, paths, confidence."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property, partial

import numpy as np

from triskele.index.corpus import Corpus
from triskele.recall.confidence import Coverage, confidence
from triskele.recall.question import Question, Sources
from triskele.recall.scores import DENSE, GRAPH, LEXICAL, SPEAKER, TIME, Candidates, Served
from triskele.recall.supersession import is_allowed
from triskele.store.owner import OwnerStore
from triskele.types import Answer, Hit, HitEvidence, LegEvidence, Link, LinkKind, Memory, Path, Period, Scope, Term

MAX_WORDS_NAMED = 8
MAX_RESOLUTIONS = 3
_OPENING = 60
# The share of a score that time gives to a memory from about the time asked for.
_AT_THE_TIME = 0.1
# Below this share the age of a memory is a reason worth naming.
_AGED = 0.9
_IS_JOINT = re.compile(r"[_.:/@+#'-]*").fullmatch
_NEARNESS = ((0.45, "close"), (0.25, "related"), (-math.inf, "a weak match"))


def explain(
    question: Question,
    corpus: Corpus,
    candidates: Candidates,
    served: Sequence[Served],
    sources: Sources,
    started: float,
) -> Answer:
    """The answer with links, reasons and confidence; reasons are made when they are first read."""
    query, store = question.query, sources.store
    coverage = Coverage(question, sources.analyzer)
    links = store.links([own.memory.id for own in served], known_at=query.scope.known_at)
    if query.is_explained:
        hits = explained(served, coverage, links, _paths(served, candidates.seeds, corpus, store))
    else:
        hits = tuple(map(bare, served))
    return Answer(
        hits=hits,
        resolutions=_resolutions(served, links, store, query.scope),
        confidence=confidence(*_trusted(served, candidates, query.scope.trusted), coverage, corpus.size),
        project=query.project,
        took_ms=(time.perf_counter() - started) * 1000,
        waiting=corpus.waiting if sources.embedder is not None else 0,
        missing=(*candidates.missing, *sources.missing),
        agreement=candidates.agreement,
        period=query.period,
        within=_within(query.scope),
    )


def _trusted(
    served: Sequence[Served], candidates: Candidates, users: frozenset[str] | None
) -> tuple[Sequence[Served], Candidates]:
    """Hits and candidates without those that users share who are not trusted."""
    if users is None:
        return served, candidates
    trusted = [own for own in served if own.memory.shared_by is None or own.memory.shared_by in users]
    # Of memories that supersede each other one hit is made of several candidates: all others go too.
    rows = {own.candidate.row for own in trusted}
    ranked = [candidate for candidate in candidates.ranked if candidate.row in rows]
    return trusted, replace(candidates, ranked=ranked)


def _within(scope: Scope) -> Period | None:
    return None if scope.since is None and scope.until is None else Period(scope.since, scope.until)


def _paths(served: Sequence[Served], seeds: Sequence[int], corpus: Corpus, store: OwnerStore) -> Mapping[int, Path]:
    """For hits that the graph leg raised, the name that connects them with another one."""
    rows = [own.candidate.row for own in served if GRAPH in own.candidate.parts]
    shared = _shared_concepts(corpus, seeds, rows)
    if not shared:
        return {}
    names = store.names.numbered({concept for _, concept in shared.values()})
    memories = {own.candidate.row: own.matched for own in served}
    memories |= store.rows({seed for seed, _ in shared.values()} - memories.keys())
    return {
        row: Path(names[concept].text, memories[seed].id, _opening(memories[seed].content))
        for row, (seed, concept) in shared.items()
        if concept in names and seed in memories
    }


def _shared_concepts(corpus: Corpus, starts: Sequence[int], rows: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Per row the first seed that it shares a concept with, and the rarest such concept."""
    # The best candidate was not found by a link.
    wanted = [row for row in rows if row != starts[0]] if starts else []
    if not wanted:
        return {}
    mentions = corpus.mentions(np.array([*starts, *wanted], dtype=np.int64))
    frequency = dict(zip(mentions.concepts.tolist(), mentions.frequency.tolist(), strict=True))
    concepts: list[set[int]] = [set() for _ in (*starts, *wanted)]
    for position, concept in zip(mentions.position.tolist(), mentions.concepts.tolist(), strict=True):
        concepts[position].add(concept)
    shared: dict[int, tuple[int, int]] = {}
    for row, own in zip(wanted, concepts[len(starts) :], strict=True):
        for seed, theirs in zip(starts, concepts, strict=False):
            if seed != row and (both := own & theirs):
                shared[row] = seed, min(both, key=lambda concept: (frequency[concept], concept))
                break
    return shared


def _opening(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _OPENING else words[:_OPENING].rsplit(" ", 1)[0] + " …"


def _resolutions(
    served: Sequence[Served], links: Sequence[Link], store: OwnerStore, scope: Scope
) -> tuple[Memory, ...]:
    """What resolved the problems among the hits, unless it is a hit itself."""
    shown = {own.memory.id for own in served}
    ids = [
        link.target
        for link in links
        if link.kind is LinkKind.RESOLVED_BY and link.source in shown and link.target not in shown
    ]
    if not ids:
        return ()
    memories = store.memories(ids, known_at=scope.known_at)
    allowed = [memories[id] for id in dict.fromkeys(ids) if id in memories and is_allowed(memories[id], scope)]
    return tuple(allowed[:MAX_RESOLUTIONS])


def explained(
    served: Sequence[Served], coverage: Coverage, links: Sequence[Link], paths: Mapping[int, Path]
) -> tuple[Hit, ...]:
    """Hits with links, evidence and reasons; what takes a reading of their texts is made when it is first asked for."""
    terms = cache(partial(coverage.terms_of_each, [own.matched for own in served]))
    return tuple(
        _hit(own, _Unread(own, partial(_item, terms, position), paths.get(own.candidate.row)), links)
        for position, own in enumerate(served)
    )


def _item(items: Callable[[], Sequence[tuple[Term, ...]]], place: int) -> tuple[Term, ...]:
    return items()[place]


def bare(served: Served) -> Hit:
    """A hit without a reason and links."""
    return _hit(served, _Unread(served))


def _hit(served: Served, evidence: HitEvidence, links: Sequence[Link] = ()) -> Hit:
    return Hit(
        memory=served.memory,
        score=served.score,
        evidence=evidence,
        prior=served.prior,
        superseded=served.superseded,
        stands_for=served.stands_for,
        links=tuple(link for link in links if served.memory.id in (link.source, link.target)) if links else (),
        decay=served.decay,
    )


class _Unread(HitEvidence):
    """Evidence that is made when it is first read; without terms it has no words and no reason."""

    def __init__(
        self, served: Served, terms: Callable[[], tuple[Term, ...]] | None = None, path: Path | None = None
    ) -> None:
        self._served, self._terms, self._path = served, terms, path

    def __getstate__(self) -> dict[str, object]:
        """A copy, in another process too, holds what was made and not what it is made of."""
        return {"legs": self.legs, "words": self.words, "reason": self.reason}

    @cached_property
    def legs(self) -> dict[str, LegEvidence]:
        """What each leg contributed."""
        return _evidence(self._served, self._terms() if self._terms else (), self._path)

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The matched words as the memory writes them."""
        return _words(self._terms(), self._served.matched.content) if self._terms else ()

    @cached_property
    def reason(self) -> str:
        """The evidence as a sentence."""
        return sentence(_hit(self._served, self)) if self._terms else ""


def _evidence(served: Served, terms: tuple[Term, ...], path: Path | None) -> dict[str, LegEvidence]:
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
        for name, part in served.candidate.parts.items()
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
    matched += _speaker_and_time(hit)
    if hit.stands_for is not None:
        return f"replaces {named(hit.stands_for)}, which {matched}"
    return matched + (", but has been superseded" if hit.superseded else "")


def _speaker_and_time(hit: Hit) -> str:
    """Whose words a hit holds and when it was said, if the query asks for that or the age of a memory counts."""
    text = ""
    if SPEAKER in hit.legs and (hit.memory.speaker or hit.memory.role):
        text += f", in the words of {hit.memory.speaker or f'the {hit.memory.role}'}"
    if TIME in hit.legs and hit.legs[TIME].contribution >= _AT_THE_TIME * hit.score / (hit.prior or 1.0):
        text += ", from about the time that the query asks for"
    if hit.decay < _AGED:
        text += f", and counts less for its age (importance ×{hit.decay:.2f})"
    return text


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
