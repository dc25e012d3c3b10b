"""Other wordings of a question that was answered badly, asked of a language model where the question may leave."""

from __future__ import annotations

from dataclasses import dataclass

from triskele.errors import Unavailable
from triskele.models.llm import Llm
from triskele.recall.expansion import LOW_CONFIDENCE, rewrites
from triskele.recall.hosted.egress_policy import EgressPolicy


@dataclass(frozen=True, slots=True)
class QueryRewriter:
    """Asks a language model to say a question otherwise."""

    llm: Llm
    clearing: EgressPolicy

    def is_worth(self, confidence: float) -> bool:
        """Whether an answer is so unsure that other words may help."""
        return confidence < LOW_CONFIDENCE

    def wordings(self, question: str) -> tuple[list[str], str]:
        """Other wordings, or none with the reason."""
        cleared, kept = self.clearing.question(question)
        if cleared is None:
            return [], kept
        try:
            return rewrites(self.llm, cleared), ""
        except Unavailable as error:
            return [], f"not asked in other words: {error}"
