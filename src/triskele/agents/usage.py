"""Counts of recalled and injected memories, which an answer leaves to write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from triskele.agents import echo
from triskele.store.derived import Use
from triskele.store.protocols import OwnerStore
from triskele.text.words import tokens_of
from triskele.types import Answer, Memory


def note_recall(store: OwnerStore, answer: Answer, *, to_agent: bool = False) -> None:
    """Count the memories of an answer, with fingerprints for agents."""
    memories = [*(hit.memory for hit in answer.hits), *answer.resolutions]
    if memories:
        uses = [Use(each.id, tokens_of(each.content) * to_agent, each.content_hash) for each in memories]
        pairs = zip(uses, memories, strict=True)
        store.usage.recalled(
            [use._replace(fingerprints=echo.fingerprints(each.content)) for use, each in pairs] if to_agent else uses
        )


def note_injection(
    store: OwnerStore,
    memories: Iterable[Memory],
    *,
    conversation: str | None,
    tokens: Mapping[str, int],
    labels: Mapping[str, str] | None = None,
    client: str = "",
    project: str = "",
) -> None:
    """Count injected memories, with fingerprints of texts and labels."""
    labelled = {id: (echo.label_fingerprint(label),) for id, label in (labels or {}).items()}
    injected = [
        Use(each.id, tokens[each.id], each.content_hash, (*echo.fingerprints(each.content), *labelled.get(each.id, ())))
        for each in memories
    ]
    if injected:
        store.usage.injected(conversation, injected, client=client, project=project)
