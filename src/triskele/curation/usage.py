"""Noting that memories were handed out, for the ledger that `triskele stats` shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from triskele.curation import echo
from triskele.recall.reasons import tokens_of
from triskele.stores.protocol import Store
from triskele.stores.usage import Use
from triskele.types import Answer, Memory


def note_recall(store: Store, answer: Answer, *, to_agent: bool = False) -> None:
    """Count the memories of an answer; what a person reads takes nothing of anybody's context."""
    memories = [*(hit.memory for hit in answer.hits), *answer.resolutions]
    if memories:
        store.uses.recalled([Use(each.id, tokens_of(each.content) * to_agent) for each in memories])


def note_injection(
    store: Store, memories: Iterable[Memory], *, conversation: str | None, tokens: Mapping[str, int]
) -> None:
    """Count memories that a conversation was given unasked, and keep the fingerprints of their texts."""
    given = [Use(each.id, tokens[each.id], each.content_hash, echo.prints(each.content)) for each in memories]
    if given:
        store.uses.injected(conversation, given)
