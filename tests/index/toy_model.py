"""A model that takes no time, and engines that embed with it, in this process or in another one."""

from __future__ import annotations

import hashlib
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from triskele.config import load
from triskele.engine.local import LocalEngine
from triskele.errors import ModelUnavailable
from triskele.index import local, worker
from triskele.models.embedder import Encoding
from triskele.store.values import EMBED
from triskele.store.vector_bytes import row_of
from triskele.types import Add

PATIENCE_S = 30
DIMENSIONS, TOKEN_DIMENSIONS = 8, 4


def _unit(text: str, width: int) -> np.ndarray:
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4])
    drawn = np.random.default_rng(seed).standard_normal(width).astype(np.float32)
    return drawn / np.linalg.norm(drawn)


class Toy:
    """A model that hashes, counts its calls, and first runs the action of a test."""

    dimensions, token_dimensions = DIMENSIONS, TOKEN_DIMENSIONS

    def __init__(self, fingerprint: str = "toy@1") -> None:
        self.fingerprint = fingerprint
        self.asked: Counter[str] = Counter()
        self.before: Callable[[], None] = lambda: None
        self.refused = "\0"

    def encode_query(self, text: str) -> Encoding:
        return self._encoding(text)

    def encode_documents(self, texts: Sequence[str]) -> list[Encoding]:
        self.before()
        self.asked.update(texts)
        if any(self.refused in text for text in texts):
            raise ModelUnavailable("the model gave no numbers")
        return [self._encoding(text) for text in texts]

    def _encoding(self, text: str) -> Encoding:
        spans = [match.span() for match in re.finditer(r"\w+", text)]
        vectors = [_unit(text[start:stop], TOKEN_DIMENSIONS) for start, stop in spans]
        tokens = np.array(vectors, dtype=np.float32).reshape(-1, TOKEN_DIMENSIONS)
        ids = np.arange(len(spans), dtype=np.int32)
        return Encoding(_unit(text, DIMENSIONS), tokens, ids, np.array(spans, dtype=np.int32).reshape(-1, 2))


def open_toy(folder: Path) -> LocalEngine:
    engine = LocalEngine(load({"TRISKELE_HOME": str(folder), "TRISKELE_PROJECT": "garden"}), folder)
    engine.embed_first = 0
    return engine


def fill(engine: LocalEngine, count: int, start: int = 0) -> None:
    engine.apply([Add(engine.draft(f"memory number {number} here")) for number in range(start, start + count)])


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def assert_whole(engine: LocalEngine, count: int) -> None:
    """Every content has one vector and one record of tokens, and each is what the model says."""
    semantic = engine.semantic()
    assert semantic is not None
    assert engine.store.jobs.count(EMBED) == 0
    toy = Toy(semantic.embedder.fingerprint)
    vectors = {}
    last = 0
    while page := engine.store.vectors.page(toy.fingerprint, after=last):
        vectors |= {slot: vector for slot, _, vector in page}
        last = page[-1][0]
    texts = engine.store.vectors.contents(sorted(vectors))
    assert len(set(texts.values())) == len(texts) == len(vectors) == count
    for slot, vector in vectors.items():
        assert vector == row_of(_unit(texts[slot], DIMENSIONS))
    records = semantic.tokens._file.open(engine.store.epoch())
    assert records is not None
    assert sorted(records.slots.tolist()) == sorted(vectors)
    assert records.damaged().tolist() == []
    health = engine.upkeep.inspect(deep=True, repair=False)
    assert (health.findings, health.vectors_damaged, health.vectors_orphaned) == ((), 0, 0)


def work(home: str) -> None:
    """What a process of these tests does: embed everything in tiny batches, and say so."""
    toy = Toy()
    local.bundled = lambda: toy  # type: ignore[assignment, return-value]
    worker.BATCH = 2
    with open_toy(Path(home)) as engine:
        engine.store.jobs.count(EMBED)
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        engine.upkeep.embed()
    sys.stdout.write("".join(f"{text}\n" for text in toy.asked.elements()))
