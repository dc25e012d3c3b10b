"""The second stage: the bundled cross-encoder scores the best candidates of an answer of middling confidence.

Its score is one more contribution: it moves the candidates that it has read, and none of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from triskele.errors import Unavailable
from triskele.index.corpus import Corpus, Floats
from triskele.models.cross_encoder import Context
from triskele.recall.candidates import CandidateSet
from triskele.recall.evidence import REVIEW
from triskele.recall.fusion import Candidate, Contribution
from triskele.recall.graph_leg import GRAPH
from triskele.store.protocols import OwnerStore
from triskele.types import Memory, Role, is_raised

READ = 10
# A quarter of a logit, as a share of the best score.
BY_REVIEW = 0.06
# The second hop of a question looks foreign to it: what connections raised by this share of the best score counts as
# much as the best of those that were read.
RAISED = 0.2
# Outside this band of confidence reading again changes little.
HOPELESS, SURE = 0.05, 0.9
# Turns between people up to this length are read together with the turns before them: longer ones need no context, nor
# do turns of a conversation with an assistant.
_SHORT = 400
_TURNS_BEFORE = (0, 2)


class Scorer(Protocol):
    """Scores texts for a query within a time, or without a limit."""

    @property
    def name(self) -> str:
        """The name to show."""

    def score(self, question: str, texts: Sequence[str], contexts: Sequence[Context] = ()) -> Floats:
        """One logit for each text."""

    def score_within(
        self, seconds: float, question: str, texts: Sequence[str], contexts: Sequence[Context] = ()
    ) -> Floats:
        """The same, or TimeoutError."""


@dataclass(frozen=True, slots=True)
class SecondStage:
    """A cross-encoder and how long it may take; None is no limit."""

    scorer: Scorer
    seconds: float | None = None

    def is_worth(self, confidence: float) -> bool:
        """Whether reading the best candidates may change an answer of this confidence."""
        return HOPELESS <= confidence < SURE

    def read(self, question: str, found: CandidateSet, corpus: Corpus, store: OwnerStore) -> CandidateSet:
        """The candidates with the cross-encoder's scores of the best ones; unchanged if it takes too long."""
        top = found.fused[:READ]
        memories = store.rows(candidate.row for candidate in top)
        top = [candidate for candidate in top if candidate.row in memories]
        if len(top) < 2:
            return found
        texts = [_said(memories[candidate.row]) for candidate in top]
        contexts = _contexts([memories[candidate.row] for candidate in top], top, corpus, store)
        try:
            logits = self._logits(question, texts, contexts)
        except TimeoutError:
            return replace(found, missing=(*found.missing, f"{self.scorer.name} took longer than {self.seconds:g} s"))
        except Unavailable as error:
            return replace(found, missing=(*found.missing, f"not reranked: {error}"))
        return replace(found, fused=_moved(found.fused, top, logits))

    def _logits(self, question: str, texts: Sequence[str], contexts: Sequence[Context]) -> Floats:
        if self.seconds is None:
            return self.scorer.score(question, texts, contexts)
        return self.scorer.score_within(self.seconds, question, texts, contexts)


def _moved(fused: Sequence[Candidate], top: Sequence[Candidate], logits: Floats) -> list[Candidate]:
    """The candidates in their new order: a contribution counts from the worst of those that were read."""
    best = max(candidate.score for candidate in top)
    is_second_hop = np.array([_from_graph(candidate) >= RAISED * best for candidate in top])
    shares = BY_REVIEW * (np.where(is_second_hop, logits.max(), logits) - logits.min()) / 4
    ranks = {int(place): rank for rank, place in enumerate(np.argsort(-logits, kind="stable"), start=1)}
    reviewed = {}
    for place, candidate in enumerate(top):
        added = best * float(shares[place])
        part = Contribution(ranks[place], float(logits[place]), float(shares[place]), added)
        reviewed[candidate.row] = Candidate(candidate.row, candidate.score + added, {**candidate.parts, REVIEW: part})
    return sorted((reviewed.get(each.row, each) for each in fused), key=lambda each: -each.score)


def _from_graph(candidate: Candidate) -> float:
    """How much of a candidate's score connections gave."""
    part = candidate.parts.get(GRAPH)
    return part.contribution if part is not None else 0.0


def _contexts(memories: Sequence[Memory], top: Sequence[Candidate], corpus: Corpus, store: OwnerStore) -> list[Context]:
    """The date and the turns before each short turn between people; nothing for other memories."""
    rows = np.array([candidate.row for candidate in top], dtype=np.int64)
    neighbours = corpus.facts(rows, reach=2).neighbours
    before = [
        [int(beside[column]) for column in _TURNS_BEFORE if beside[column] >= 0] if _needs_context(memory) else []
        for memory, beside in zip(memories, neighbours, strict=True)
    ]
    turns = store.rows({row for each in before for row in each})
    return [
        _context(memory, [turns[row] for row in each if row in turns])
        for memory, each in zip(memories, before, strict=True)
    ]


def _context(memory: Memory, before: Sequence[Memory]) -> Context:
    """The date of a turn and the turns before it, none of them more sensitive than the turn itself."""
    said = tuple(_said(turn) for turn in before if not is_raised(memory.sensitivity, turn.sensitivity))
    return Context(f"{(memory.valid_from or memory.created_at):%Y-%m-%d}", said) if said else Context()


def _needs_context(memory: Memory) -> bool:
    return len(memory.content) <= _SHORT and memory.role in (None, Role.OTHER)


def _said(memory: Memory) -> str:
    """The text of a memory behind the name of its speaker."""
    name = memory.speaker or memory.role
    return f"{name}: {memory.content}" if name and not memory.content.startswith(f"{name}:") else memory.content
