"""The transcripts that wait until the background process learns from them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from triskele.errors import TriskeleError
from triskele.store.protocols import Document, OwnerStore

_KIND = "learn-queue"
_MOST = 200


def key_of(path: Path) -> str:
    """A hash of the path of a transcript."""
    return hashlib.sha256(str(path.expanduser().absolute()).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def put(store: OwnerStore, transcript: str, project: str) -> None:
    """Queue a transcript by its absolute path; the hook does not wait for it."""
    if Path(transcript).is_absolute():
        with suppress(TriskeleError):
            put_back(store, key_of(Path(transcript)), {"path": transcript, "project": project})


def put_back(store: OwnerStore, key: str, value: Mapping[str, Any]) -> None:
    """Queue what was taken out before."""
    store.documents.put(_KIND, {key: Document(value)}, most=_MOST, durable=False)


def waiting(store: OwnerStore) -> Mapping[str, Mapping[str, Any]]:
    """What waits, by its key."""
    return store.documents.all(_KIND)


def take(store: OwnerStore, key: str) -> None:
    """Take a transcript out of the queue."""
    store.documents.delete(_KIND, [key])
