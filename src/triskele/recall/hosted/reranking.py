"""A cross-encoder, here or elsewhere, that reads the head of a ranking again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from triskele.models.reranker import Reranker, Reranking
from triskele.privacy.clearance import Cleared
from triskele.recall.hosted.egress_policy import EgressPolicy
from triskele.types import Memory


class CandidateReranker(Protocol):
    """Anything that orders memories for a question once more."""

    @property
    def name(self) -> str:
        """What to call it."""

    @property
    def depth(self) -> int:
        """How many it reads."""

    def review(self, question: str, memories: Mapping[int, Memory]) -> Reranking:
        """Order memories by row, given best first."""


@dataclass(frozen=True, slots=True)
class LocalReviewer:
    """A cross-encoder on this machine: it may read everything, of a secret the title."""

    judge: Reranker[str]

    @property
    def name(self) -> str:
        """What to call it."""
        return self.judge.name

    @property
    def depth(self) -> int:
        """How many it reads."""
        return self.judge.depth

    def review(self, question: str, memories: Mapping[int, Memory]) -> Reranking:
        """Order memories by row, given best first."""
        return self.judge.rerank(question, {row: memory.content for row, memory in memories.items()})


@dataclass(frozen=True, slots=True)
class HostedReviewer:
    """A cross-encoder elsewhere: it reads open memories and cleared questions; all others keep their places."""

    judge: Reranker[Cleared]
    clearing: EgressPolicy

    @property
    def name(self) -> str:
        """What to call it."""
        return self.judge.name

    @property
    def depth(self) -> int:
        """How many it reads."""
        return self.judge.depth

    def review(self, question: str, memories: Mapping[int, Memory]) -> Reranking:
        """Order memories by row, given best first."""
        cleared, kept = self.clearing.question(question)
        if cleared is None:
            return Reranking(tuple(memories), {}, missing=kept)
        return self.judge.rerank(cleared, {row: self.clearing.memory(memory) for row, memory in memories.items()})
