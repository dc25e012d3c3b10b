"""The log of past queries, and the agreement of a cross-encoder."""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass
from datetime import datetime

from triskele.replies import AgreementStats
from triskele.store.owner import OwnerStore
from triskele.store.values import Document
from triskele.text import timestamps
from triskele.types import Answer

RECALL_LOG = "recall"
MAX_LOGGED = 5000
MAX_LOGGED_CHARACTERS = 1000
_AGREEMENT, _ALL = "agreement", "all"


@dataclass(frozen=True, slots=True)
class LoggedQuery:
    """A past query with its hits, best first; None means all projects."""

    text: str
    project: str | None
    hits: tuple[str, ...]


def log_query(store: OwnerStore, text: str, answer: Answer, at: datetime) -> None:
    """Log a query and its hits, unless the store is busy."""
    if not text.strip() or len(text) > MAX_LOGGED_CHARACTERS:
        return
    hits = [hit.memory.id for hit in answer.hits]
    value = {"text": text, "project": answer.project, "at": timestamps.to_text(at), "hits": hits}
    key = f"{timestamps.to_micros(at):017d}-{secrets.token_hex(3)}"
    # The store erases a logged query with the memories that it names.
    store.documents.put(RECALL_LOG, {key: Document(value, about=hits)}, most=MAX_LOGGED, durable=False)


def logged_queries(store: OwnerStore) -> list[LoggedQuery]:
    """Past queries, newest first."""
    values = reversed(store.documents.all(RECALL_LOG).values())
    return [LoggedQuery(value["text"], value["project"], tuple(value["hits"])) for value in values]


def agreement(store: OwnerStore) -> AgreementStats | None:
    """The agreement over all reranked queries, if there were any."""
    values = store.documents.all(_AGREEMENT).get(_ALL)
    return AgreementStats(**values) if values else None


def count_agreement(store: OwnerStore, answer: Answer) -> None:
    """Count the agreement on one query, unless the store is busy."""
    before, latest = agreement(store) or AgreementStats(), answer.agreement
    answered = before.answered + (latest is not None)
    tau, kept_share = before.tau, before.kept
    if latest is not None:
        tau, kept_share = tau + (latest.tau - tau) / answered, kept_share + (latest.kept - kept_share) / answered
    after = AgreementStats(asked=before.asked + 1, answered=answered, tau=tau, kept=kept_share)
    store.documents.put(_AGREEMENT, {_ALL: Document(asdict(after))}, durable=False)
