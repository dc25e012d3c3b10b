"""Counting recalled and injected memories, for `triskele stats`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from triskele.curation import echo
from triskele.recall.reasons import tokens_of
from triskele.stores.protocols import OwnerStore, Use
from triskele.types import Answer, Memory


def note_recall(store: OwnerStore, answer: Answer, *, to_agent: bool = False) -> None:
    """Count the memories of an answer; tokens count only if an agent reads it."""
    memories = [*(hit.memory for hit in answer.hits), *answer.resolutions]
    if memories:
        store.usage.recalled([Use(each.id, tokens_of(each.content) * to_agent) for each in memories])


def note_injection(
    store: OwnerStore,
    memories: Iterable[Memory],
    *,
    conversation: str | None,
    tokens: Mapping[str, int],
    labels: Mapping[str, str] | None = None,
) -> None:
    """Count memories that were injected into a conversation; keep the fingerprints of their texts and labels."""
    known = {id: (echo.label_print(label),) for id, label in (labels or {}).items()}
    injected = [
        Use(each.id, tokens[each.id], each.content_hash, (*echo.prints(each.content), *known.get(each.id, ())))
        for each in memories
    ]
    if injected:
        store.usage.injected(conversation, injected)
