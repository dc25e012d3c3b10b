"""How far a cross-encoder agreed with the ranking, over all queries that it reranked."""

from __future__ import annotations

from dataclasses import asdict

from triskele.replies import AgreementStats
from triskele.store.protocols import Document, OwnerStore
from triskele.types import Answer

_KIND, _KEY = "agreement", "all"


def agreed(store: OwnerStore) -> AgreementStats | None:
    """The counts so far; None if no cross-encoder was ever used."""
    values = store.documents.all(_KIND).get(_KEY)
    return AgreementStats(**values) if values else None


def note(store: OwnerStore, answer: Answer) -> None:
    """Count one query; a busy or read-only store refuses it."""
    before, agreement = agreed(store) or AgreementStats(), answer.agreement
    answered = before.answered + (agreement is not None)
    tau, kept = before.tau, before.kept
    if agreement is not None:
        tau, kept = tau + (agreement.tau - tau) / answered, kept + (agreement.kept - kept) / answered
    after = AgreementStats(asked=before.asked + 1, answered=answered, tau=tau, kept=kept)
    store.documents.put(_KIND, {_KEY: Document(asdict(after))}, durable=False)
