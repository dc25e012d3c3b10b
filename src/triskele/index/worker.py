"""Background work: giving vectors to what was written and reading its names, in small durable steps."""

from __future__ import annotations

import threading
from collections.abc import Callable

from triskele.errors import TriskeleError
from triskele.index.entity_linking import read_names
from triskele.index.lexical import LexicalIndex
from triskele.index.local import SemanticIndex
from triskele.index.vectors import compressed
from triskele.stores.protocols import OwnerStore

BATCH = 64
_IDLE_S = 0.5
_LEAVING_S = 20.0


def embed_waiting(
    store: OwnerStore,
    meaning: SemanticIndex,
    *,
    limit: int | None = None,
    wait: bool = True,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Embed what waits, batch by batch; a crash loses at most the batch under way, which waits again.

    Without `wait` it gives way to whoever is writing.
    """
    done = 0
    before: list[tuple[str, str]] = []
    while limit is None or done < limit:
        batch = store.vectors.waiting(BATCH if limit is None else min(BATCH, limit - done))
        # What waits again at once waits for another model: somebody has switched.
        if not batch or batch == before:
            break
        before = batch
        _embed(dict(batch), store, meaning, wait=wait)
        done += len(batch)
        if progress is not None:
            progress(done)
    return done


def embed_beside(store: OwnerStore, meaning: SemanticIndex, progress: Callable[[int], None] = lambda _: None) -> int:
    """Let a model that is not in force read everything; cut short, it goes on where it was."""
    done = 0
    while batch := dict(store.models.lacking(meaning.embedder.fingerprint, BATCH)):
        _embed(batch, store, meaning, wait=True)
        done += len(batch)
        progress(done)
    return done + restore_tokens(store, meaning)


def restore_tokens(store: OwnerStore, meaning: SemanticIndex, *, limit: int | None = None, wait: bool = True) -> int:
    """Encode again those contents whose token vectors are lost; returns how many came back."""
    columns = meaning.catalog.columns()
    lost = meaning.tokens.missing(columns.slots)[:limit]
    for start in range(0, len(lost), BATCH):
        texts = store.vectors.contents(lost[start : start + BATCH].tolist())
        encodings = meaning.embedder.encode_documents(list(texts.values()))
        made = zip(texts.items(), encodings, strict=True)
        meaning.tokens.add({slot: compressed(text, encoding) for (slot, text), encoding in made}, wait=wait)
    return len(lost) - len(meaning.tokens.missing(lost))


def _embed(texts: dict[str, str], store: OwnerStore, meaning: SemanticIndex, *, wait: bool) -> None:
    encodings = dict(zip(texts, meaning.embedder.encode_documents(list(texts.values())), strict=True))
    vectors = {digest: made.sentence.astype("<f4").tobytes() for digest, made in encodings.items()}
    slots = store.vectors.keep(meaning.embedder.fingerprint, vectors, wait=wait)
    tokens = {slot: compressed(texts[digest], encodings[digest]) for digest, slot in slots.items()}
    meaning.tokens.add(tokens, wait=wait)


class Worker:
    """A thread that embeds and reads what is written while the process goes on."""

    def __init__(
        self,
        store: OwnerStore,
        words: LexicalIndex,
        meaning: Callable[[], SemanticIndex | None],
        elsewhere: Callable[[int], int] = lambda _: 0,
    ) -> None:
        self._store = store
        self._words = words
        self._meaning = meaning
        self._elsewhere = elsewhere
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._mutex = threading.Lock()

    def wake(self) -> None:
        """There may be something to embed; starts the thread the first time."""
        with self._mutex:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="triskele-worker", daemon=True)
                self._thread.start()
        self._wake.set()

    def stop(self) -> None:
        """Finish the batch under way and end."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            # Somebody elsewhere may take long to answer; what is under way is lost and waits again.
            self._thread.join(_LEAVING_S)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.wait()
            self._wake.clear()
            try:
                while not self._stop.is_set() and (meaning := self._meaning()) is not None:
                    done = embed_waiting(self._store, meaning, limit=BATCH)
                    done += read_names(self._store, self._words, limit=BATCH)
                    done = done or restore_tokens(self._store, meaning, limit=BATCH)
                    # Whoever is asked elsewhere may take long: what can be done here is done first.
                    if not done and not self._elsewhere(BATCH):
                        break
            except (TriskeleError, OSError):
                # What could not be embedded now still waits; the next write tries again.
                self._stop.wait(_IDLE_S)
