"""Ask a language model about pairs that the rules leave undecided; it changes proposals, never memories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from triskele.curation.decide import PairDecision
from triskele.errors import Unavailable
from triskele.models.llm_replies import MOST_PAIRS, opinions
from triskele.replies.rooms import Rationale
from triskele.types import SURE, Sensitivity, Verdict

if TYPE_CHECKING:
    from triskele.models.llm import Llm
    from triskele.privacy.clearance import ClearedText
    from triskele.types import Memory

    Clear = Callable[[Memory], ClearedText | None]

_VERDICTS = {"same": Verdict.NOOP, "more": Verdict.UPDATE, "replaced": Verdict.SUPERSEDE}
# It agrees, but a text that it read may have instructed it to: never enough to apply without a review.
_SUPPORTED = SURE - 0.02
_OPPOSED = 0.3


def reconsidered(
    decisions: Sequence[PairDecision], llm: Llm, clear: Clear, *, may_call: Callable[[], bool]
) -> list[PairDecision]:
    """The decisions, those that are not sure with the model's opinion; unchanged if it fails or may not be asked.

    Only open memories are sent to it.
    """
    result = {id(decision): decision for decision in decisions}
    pairs = []
    for decision in decisions:
        if decision.old is not None and not decision.is_sure and (pair := _cleared(decision, clear)) is not None:
            pairs.append((decision, pair))
    for start in range(0, len(pairs), MOST_PAIRS):
        part = pairs[start : start + MOST_PAIRS]
        if not may_call():
            break
        try:
            answers = opinions(llm, [pair for _, pair in part])
        except Unavailable:
            # No answer is no opinion.
            break
        for (decision, _), opinion in zip(part, answers, strict=True):
            result[id(decision)] = _with_opinion(decision, opinion)
    return [result[id(decision)] for decision in decisions]


def _cleared(decision: PairDecision, clear: Clear) -> tuple[ClearedText, ClearedText] | None:
    assert decision.old is not None
    if any(side.sensitivity is not Sensitivity.OPEN for side in (decision.old, decision.new)):
        return None
    older, newer = clear(decision.old), clear(decision.new)
    return (older, newer) if older is not None and newer is not None else None


def _with_opinion(decision: PairDecision, opinion: str) -> PairDecision:
    reasons = (*decision.reasons, Rationale("language model", after=opinion))
    verdict = _VERDICTS.get(opinion)
    if verdict is None:
        return replace(decision, confidence=min(decision.confidence, _OPPOSED), reasons=reasons)
    return replace(decision, verdict=verdict, confidence=max(decision.confidence, _SUPPORTED), reasons=reasons)
