"""Stores of any size for the speed benchmarks: real texts, synthetic vectors, an embedder with precomputed answers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

# As the command line does: at these sizes a second thread of the matrix library costs more than it brings.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from triskele import config
from triskele.engine.local import LocalEngine
from triskele.index.token_vectors import packed
from triskele.models.embedder import Embedder, Encoding
from triskele.recall import legs
from triskele.recall.plan import SHIPPED
from triskele.recall.question import RULE_WORDS, Sources, read
from triskele.recall.scores import Ranking
from triskele.store.vector_bytes import row_of
from triskele.types import Add, Query

# What is left of real English without stop words and punctuation.
TOKENS_PER_CHARACTER = 0.13
BATCH = 1000


class Rehearsed:
    """An embedder that, while `is_rehearsed`, returns stored vectors, so that encoding is not measured."""

    def __init__(self, embedder: Embedder, questions: Iterable[str]) -> None:
        self._embedder = embedder
        # A request needs the vectors of these words too.
        self._known = {text: embedder.encode_query(text) for text in (*questions, *RULE_WORDS)}
        self.is_rehearsed = False
        self.fingerprint = embedder.fingerprint
        self.dimensions = embedder.dimensions
        self.token_dimensions = embedder.token_dimensions

    def encode_query(self, text: str) -> Encoding:
        """Encode one question, or remember it."""
        return self._known[text] if self.is_rehearsed else self._embedder.encode_query(text)

    def encode_documents(self, texts: Sequence[str]) -> list[Encoding]:
        """Encode texts to be found, in their order."""
        return self._embedder.encode_documents(texts)

    def centre(self) -> NDArray[np.float32]:
        """The mean direction of the questions."""
        mean: NDArray[np.float32] = np.mean([made.sentence for made in self._known.values()], axis=0)
        return mean / np.linalg.norm(mean)


def open_engine(home: Path) -> LocalEngine:
    """An engine over the store in a folder, with the default settings."""
    return LocalEngine(config.load({"TRISKELE_HOME": str(home), "TRISKELE_PROJECT": "bench"}), home)


def rehearse(engine: LocalEngine, questions: Iterable[str]) -> Rehearsed:
    """Put a rehearsed embedder into an engine."""
    semantic = engine.semantic()
    assert semantic is not None, "the benchmark needs the bundled model"
    embedder = Rehearsed(semantic.embedder, questions)
    engine.models._semantic = replace(semantic, embedder=embedder)
    return embedder


def fill(engine: LocalEngine, contents: Sequence[str]) -> float:
    """Add everything in batches; memories per second until they are durable."""
    started = time.perf_counter()
    for start in range(0, len(contents), BATCH):
        engine.apply([Add(engine.draft(text)) for text in contents[start : start + BATCH]])
    took = time.perf_counter() - started
    engine.lexical.catch_up()
    return round(len(contents) / took)


def random_vectors(count: int, centre: NDArray[np.float32], seed: int = 7) -> NDArray[np.float32]:
    """Unit vectors that lean to the questions, so that as many are near enough to be served as among real ones."""
    noise = np.random.default_rng(seed).standard_normal((count, len(centre)), dtype=np.float32)
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    leaning = noise + centre
    leaning /= np.linalg.norm(leaning, axis=1, keepdims=True)
    return leaning


def give_vectors(engine: LocalEngine, vectors: NDArray[np.float32], *, batch: int = BATCH, seed: int = 7) -> None:
    """One sentence vector per waiting content, oldest first, and random token vectors of a realistic number."""
    semantic = engine.semantic()
    assert semantic is not None, "the benchmark needs the bundled model"
    chance = np.random.default_rng(seed)
    width = semantic.embedder.token_dimensions
    done = 0
    while waiting := engine.store.vectors.waiting(batch):
        found = {digest: row_of(vectors[done + place]) for place, (digest, _) in enumerate(waiting)}
        slots = engine.store.vectors.save(semantic.embedder.fingerprint, found)
        counts = {slots[digest]: max(1, int(len(text) * TOKENS_PER_CHARACTER)) for digest, text in waiting}
        semantic.tokens.add({slot: packed(chance.integers(-40, 40, (n, width), np.int8)) for slot, n in counts.items()})
        done += len(waiting)


def lexical_leg(engine: LocalEngine, text: str) -> Ranking:
    """Only the lexical leg, to the depth of a recall."""
    query = Query(text=text, scope=engine.scope(), depth=50)
    open_corpus = engine.models.indexes(None).open_corpus
    corpus = open_corpus(query.scope)
    sources = Sources(engine.store, open_corpus, engine.lexical.analyzer)
    return legs.lexical(read(query, SHIPPED, corpus, sources), corpus)
