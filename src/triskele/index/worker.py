"""Embed new texts and link their names in the background, in small durable steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from triskele.errors import IndexUnavailable, StoreClosed, StoreUnavailable, TriskeleError
from triskele.index.lexical import LexicalIndex
from triskele.index.lifecycle import alone
from triskele.index.local import ModelIndexes
from triskele.index.name_linking import read_names
from triskele.index.token_vectors import compressed, to_row
from triskele.models.bundled import release
from triskele.store.owner import OwnerStore
from triskele.store.values import EMBED, NAMES, Heads
from triskele.store.vector_bytes import row_of

BATCH = 64
_NAMES_AT_ONCE = 1024
# Longer than a batch takes: what a killed process had claimed waits as long.
LEASE_S = 15.0
_POLL_S = 0.05
_IDLE_S = 0.5
# How long nothing may have been written before the indexes of a shared store are flushed.
QUIET_S = 5.0
_LEAVING_S = 20.0
# These errors are not about the texts, so they do not count as a try.
_NOT_THE_TEXT = (StoreUnavailable, IndexUnavailable, OSError)


def embed_waiting(
    store: OwnerStore,
    semantic: ModelIndexes,
    *,
    limit: int | None = None,
    wait: bool = True,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Embed what waits, batch by batch; a crash loses at most the batch under way, which waits again.

    Batches are claimed, so that two processes do not embed the same text. Without `wait` other writers go first; with
    it and without a limit the call ends when nothing waits, in other processes either.
    """
    if not take_queue(store, semantic):
        return 0
    done = 0
    tried: set[str] = set()
    while limit is None or done < limit:
        claimed = _claim(store, BATCH if limit is None else min(BATCH, limit - done), wait=wait)
        texts = {digest: text for digest, text in claimed.items() if digest not in tried}
        if repeated := claimed.keys() - texts.keys():
            # They failed just now, or wait for a model that was switched to meanwhile.
            store.jobs.release(EMBED, repeated)
        if texts:
            tried |= texts.keys()
            done += _embed_claimed(texts, store, semantic, wait=wait)
            if progress is not None:
                progress(done)
        elif repeated or limit is not None or not wait or not _wait_for_others(store):
            break
    return done


def take_queue(store: OwnerStore, semantic: ModelIndexes) -> bool:
    """Queue for a model what it lacks; False if the queue is that of a later release, which would make it again."""
    fingerprint = semantic.embedder.fingerprint
    own = release(fingerprint)
    return store.vectors.use_model(fingerprint, replacing=lambda model: not own or release(model) <= own)


def _claim(store: OwnerStore, count: int, *, wait: bool) -> dict[str, str]:
    """Claim texts to embed, by hash; a job whose text was erased is done."""
    keys = [job.key for job in store.jobs.claim(EMBED, count, lease_s=LEASE_S, wait=wait)]
    texts = store.vectors.texts(keys)
    if len(texts) < len(keys):
        store.jobs.complete(EMBED, [key for key in keys if key not in texts])
    return texts


def _wait_for_others(store: OwnerStore) -> bool:
    """Wait until another process embeds more of what it claimed or its lease ends; False if nothing waits."""
    waiting, ends = store.jobs.count(EMBED), time.monotonic() + LEASE_S
    while store.jobs.count(EMBED) == waiting > 0 and time.monotonic() < ends:
        time.sleep(_POLL_S)
    return waiting > 0


def _embed_claimed(texts: Mapping[str, str], store: OwnerStore, semantic: ModelIndexes, *, wait: bool) -> int:
    """Embed claimed texts and return how many; raise if the model refuses all of them."""
    try:
        errors = _embed_accepted(texts, store, semantic, wait=wait)
    except BaseException:
        with suppress(StoreUnavailable):
            store.jobs.release(EMBED, texts)
        raise
    for digest, error in errors.items():
        store.jobs.fail(EMBED, [digest], reason_of(error))
    if len(errors) == len(texts):
        raise error
    return len(texts) - len(errors)


def _embed_accepted(
    texts: Mapping[str, str], store: OwnerStore, semantic: ModelIndexes, *, wait: bool
) -> dict[str, Exception]:
    """Embed texts, one by one if the model refuses any of them; returns those that it refuses."""
    try:
        _embed(texts, store, semantic, wait=wait)
    except _NOT_THE_TEXT:
        raise
    except Exception as error:
        if len(texts) == 1:
            return dict.fromkeys(texts, error)
        single = (_embed_accepted({digest: text}, store, semantic, wait=wait) for digest, text in texts.items())
        return {digest: error for errors in single for digest, error in errors.items()}
    return {}


def reason_of(error: Exception) -> str:
    """An error in one line; only triskele's own messages certainly do not quote the text."""
    return str(error) if isinstance(error, TriskeleError) else type(error).__name__


def embed_beside(
    store: OwnerStore,
    semantic: ModelIndexes,
    refused: set[str],
    *,
    limit: int | None = None,
    wait: bool = True,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Embed what a model lacks that is not in force, in one process at a time; adds the texts that it refuses.

    After an interruption it continues there. Returns how many were embedded.
    """
    # A model that cannot be loaded refuses no text.
    semantic.embedder.encode_query("")
    done, fingerprint = 0, semantic.embedder.fingerprint
    while limit is None or done < limit:
        size = BATCH if limit is None else min(BATCH, limit - done)
        with alone(store, f"{EMBED} {fingerprint}", LEASE_S, wait=wait) as is_alone:
            lacking = store.models.lacking(fingerprint, size + len(refused)) if is_alone else []
            batch = dict([(digest, text) for digest, text in lacking if digest not in refused][:size])
            errors = _embed_accepted(batch, store, semantic, wait=wait) if batch else {}
            refused.update(errors)
            done += len(batch) - len(errors)
        if progress is not None:
            progress(done)
        if not batch and (is_alone or limit is not None or not wait):
            return done + restore_tokens(store, semantic, limit=limit, wait=wait)
        if not is_alone:
            time.sleep(_POLL_S)
    return done


def restore_tokens(store: OwnerStore, semantic: ModelIndexes, *, limit: int | None = None, wait: bool = True) -> int:
    """Encode again those contents whose token vectors are lost; returns how many came back.

    Contents that are queued to be embedded are left out: another process may be writing their token vectors.
    """
    columns = semantic.catalog.view()
    lost = semantic.tokens.missing(columns.slots)[:limit]
    for start in range(0, len(lost), BATCH):
        texts = store.vectors.contents(lost[start : start + BATCH].tolist(), queued=False)
        encodings = semantic.embedder.encode_documents(list(texts.values()))
        made = zip(texts.items(), encodings, strict=True)
        semantic.tokens.add({slot: compressed(text, encoding) for (slot, text), encoding in made}, wait=wait)
    return len(lost) - len(semantic.tokens.missing(lost))


def _embed(texts: Mapping[str, str], store: OwnerStore, semantic: ModelIndexes, *, wait: bool) -> None:
    """Write the vectors of some texts, which stay queued until their token vectors are written too."""
    encodings = dict(zip(texts, semantic.embedder.encode_documents(list(texts.values())), strict=True))
    vectors = {digest: row_of(made.sentence) for digest, made in encodings.items()}
    tokens = {digest: compressed(texts[digest], made) for digest, made in encodings.items()}
    if store.vectors.keeps_tokens:
        # The index reads them from there, in every process.
        raw = {digest: to_row(made) for digest, made in tokens.items()}
        store.vectors.save(semantic.embedder.fingerprint, vectors, tokens=raw, wait=wait)
        return
    slots = store.vectors.save(semantic.embedder.fingerprint, vectors, completes=False, wait=wait)
    try:
        semantic.tokens.add({slot: tokens[digest] for digest, slot in slots.items()}, wait=wait)
    finally:
        # Token vectors that cannot be written now are restored later.
        store.vectors.complete(semantic.embedder.fingerprint, texts, wait=wait)


class Worker:
    """A thread that embeds new texts and reads their names in the background."""

    def __init__(
        self,
        store: OwnerStore,
        lexical: LexicalIndex,
        semantic: Callable[[], ModelIndexes | None],
        embed_hosted: Callable[[int], int] = lambda _: 0,
        advance_update: Callable[[int], int | None] = lambda _: None,
    ) -> None:
        self._store = store
        self._lexical = lexical
        self._semantic = semantic
        self._embed_hosted = embed_hosted
        self._advance_update = advance_update
        self._is_updating = False
        # Other processes write to such a store too, and their answers have to be the same.
        self._is_shared = store.vectors.keeps_tokens
        self._seen: Heads | None = None
        self._flushed: Heads | None = None
        self._changed_at = 0.0
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._model = ""
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
            # A hosted model may take long to answer; what is under way is lost and waits again.
            self._thread.join(_LEAVING_S)

    def _run(self) -> None:
        while not self._stop.is_set():
            # What another process claimed, or what failed, is looked at again after the lease.
            is_quiet = not self._wake.wait(self._pause_s())
            self._wake.clear()
            try:
                if self._is_shared:
                    self._flush(is_quiet)
                while not self._stop.is_set() and (semantic := self._semantic()) is not None:
                    self._queue_for(semantic.embedder.fingerprint)
                    done = embed_waiting(self._store, semantic, limit=BATCH)
                    # Together they cost half as much: each new name is looked for in older texts.
                    if done < BATCH or self._store.jobs.count(NAMES) >= _NAMES_AT_ONCE:
                        done += read_names(self._store, self._lexical, limit=_NAMES_AT_ONCE)
                    done = done or restore_tokens(self._store, semantic, limit=BATCH)
                    done = done or self._advanced()
                    # A hosted model may take long: what can be done here is done first.
                    if not done and not self._embed_hosted(BATCH):
                        break
            except StoreClosed:
                return
            except Exception:
                # What could not be embedded now still waits, and the job keeps the error.
                self._stop.wait(_IDLE_S)

    def _advanced(self) -> int:
        """Let the weights of an update read a batch; returns how many texts."""
        # Also after an error, or while another process is at it.
        self._is_updating = True
        done = self._advance_update(BATCH)
        self._is_updating = done is not None
        return done or 0

    def _queue_for(self, fingerprint: str) -> None:
        """Queue what a model lacks that was put in force meanwhile: a recall may open it, and cannot write."""
        if fingerprint != self._model:
            self._store.vectors.use_model(fingerprint)
            self._model = fingerprint

    def _pause_s(self) -> float | None:
        if self._is_shared and self._seen != self._flushed:
            return QUIET_S
        return LEASE_S if self._is_shared or self._is_waiting() else None

    def _flush(self, is_quiet: bool) -> None:
        """Settle the indexes once nothing was written for a while, by whichever process."""
        semantic = self._semantic()
        before, self._seen = self._seen, self._store.heads("" if semantic is None else semantic.catalog.fingerprint)
        if before != self._seen:
            self._changed_at = time.monotonic()
        if not is_quiet or not before == self._seen != self._flushed:
            return
        # A folder that cannot be written now does not keep this from embedding.
        with suppress(IndexUnavailable):
            others = () if semantic is None else semantic.on_disk
            is_flushed = all(index.flush() for index in others)
            if self._lexical.flush(time.monotonic() - self._changed_at) and is_flushed:
                self._flushed = before

    def _is_waiting(self) -> bool:
        with suppress(TriskeleError):
            return self._is_updating or any(self._store.jobs.count(kind) for kind in (EMBED, NAMES))
        return True
