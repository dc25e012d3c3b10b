"""Vectors of chunks and files, made in the background, once per text."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from triskele.code.corpus import CodeCorpus
from triskele.code.languages import FUNCTION, TYPE
from triskele.code.paths import shown_path
from triskele.code.secrets import SourceText, decoded
from triskele.code.walk import read
from triskele.code.words import parts, term, words
from triskele.errors import IndexUnavailable
from triskele.index.corpus import Floats
from triskele.models.embedder import Embedder
from triskele.text.files import disk_errors, file_lock

BATCH = 16
CARD_NAMES = 25
CHUNK_CHARACTERS = 1200
# The share of a file's card in its cosine; the rest is its best chunk's.
CARD_SHARE = 0.375
_KEY_BYTES = 8


@dataclass(frozen=True, slots=True)
class Text:
    """A text to embed: a file's card or a chunk, by key."""

    key: int
    row: int
    chunk: int


class VectorFile:
    """Vectors of one model by key, in two files that only grow."""

    def __init__(self, folder: Path, fingerprint: str, dimensions: int) -> None:
        name = sha256(fingerprint.encode()).hexdigest()[:12]
        self._keys, self._vectors = folder / f"{name}.keys", folder / f"{name}.vectors"
        self._dimensions = dimensions

    def load(self) -> tuple[NDArray[np.uint64], NDArray[np.float16]]:
        """Keys and vectors, without a record that a crash cut off."""
        try:
            keys = np.fromfile(self._keys, dtype="<u8")
            values = np.fromfile(self._vectors, dtype="<f2")
        except OSError:
            keys, values = np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.float16)
        count = min(len(keys), len(values) // self._dimensions)
        return keys[:count], values[: count * self._dimensions].reshape(count, self._dimensions)

    def size(self) -> int:
        """Bytes of keys on disk; growth means new vectors."""
        try:
            return self._keys.stat().st_size
        except OSError:
            return 0

    def append(self, keys: Sequence[int], vectors: Floats) -> None:
        """Add vectors, keys last, so that no key lacks its vector."""
        with disk_errors("the vectors of a code index", IndexUnavailable):
            count = len(self.load()[0])
            for path, size, values in (
                (self._vectors, 2 * self._dimensions, vectors.astype("<f2").tobytes()),
                (self._keys, _KEY_BYTES, np.array(keys, dtype="<u8").tobytes()),
            ):
                with path.open("ab") as target:
                    target.truncate(count * size)
                    target.write(values)


class CodeVectors:
    """Vectors of one state of a tree: cosines per chunk and file."""

    def __init__(self, corpus: CodeCorpus, file: VectorFile) -> None:
        keys, vectors = file.load()
        self._vectors = vectors.astype(np.float32)
        self._corpus = corpus
        places = {key: place for place, key in enumerate(keys.tolist())}
        self._chunks = np.array([places.get(key, -1) for key in corpus.chunk_keys.tolist()], dtype=np.int64)
        self._cards = np.array([places.get(card_key(corpus, row), -1) for row in range(corpus.size)], dtype=np.int64)

    @property
    def share(self) -> float:
        """How much of the tree is embedded, 0 to 1."""
        total = len(self._chunks) + len(self._cards)
        return float((self._chunks >= 0).sum() + (self._cards >= 0).sum()) / total if total else 1.0

    def cosines(self, vector: Floats) -> tuple[Floats, Floats]:
        """Cosines of chunks, and of files by card and best chunk."""
        cosines = np.append(self._vectors @ vector, np.float32(np.nan))
        chunks, cards = cosines[self._chunks], cosines[self._cards]
        best = np.full(int(self._corpus.chunk_content.max(initial=-1)) + 1, -np.inf, dtype=np.float32)
        has_vector = ~np.isnan(chunks)
        np.maximum.at(best, self._corpus.chunk_content[has_vector], chunks[has_vector])
        per_file = best[self._corpus.content_of]
        per_file[np.isinf(per_file)] = np.nan
        mixed = CARD_SHARE * cards + (1 - CARD_SHARE) * per_file
        combined = np.where(np.isnan(mixed), np.where(np.isnan(per_file), cards, per_file), mixed)
        return chunks, combined.astype(np.float32)


def card(corpus: CodeCorpus, row: int) -> str:
    """A file in a few words: its path and names it defines."""
    own = [corpus.definitions[place] for place in corpus.definitions_of(int(corpus.content_of[row]))]
    names = [" ".join(parts(each.name)) for each in own if each.kind in (TYPE, FUNCTION) and each.name]
    path = " ".join(part for word in words(corpus.paths[row]) for part in parts(word))
    return f"{path}: {', '.join(dict.fromkeys(names[:CARD_NAMES]))}"


def card_key(corpus: CodeCorpus, row: int) -> int:
    """The key of a file's card."""
    return term(card(corpus, row))


def missing(corpus: CodeCorpus, file: VectorFile) -> list[Text]:
    """Texts without a vector: cards first, because they describe whole files."""
    stored = set(file.load()[0].tolist())
    texts = [Text(card_key(corpus, row), row, -1) for row in range(corpus.size)]
    row_of = {int(content): row for row, content in enumerate(corpus.content_of.tolist())}
    for chunk, key in enumerate(corpus.chunk_keys.tolist()):
        row = row_of.get(int(corpus.chunk_content[chunk]))
        if row is not None:
            texts.append(Text(key, row, chunk))
    return list({each.key: each for each in texts if each.key not in stored}.values())


def embed(
    root: Path,
    corpus: CodeCorpus,
    file: VectorFile,
    embedder: Embedder,
    folder: Path,
    *,
    progress: Callable[[int, int], None],
    budget_s: float = float("inf"),
) -> int:
    """Embed waiting texts in batches kept at once; return how many remain."""
    ends = time.monotonic() + budget_s
    with file_lock(folder / "embed.lock", timeout_s=0) as is_held:
        waiting = missing(corpus, file)
        if not is_held:
            return len(waiting)
        for start in range(0, len(waiting), BATCH):
            if time.monotonic() >= ends:
                return len(waiting) - start
            batch = waiting[start : start + BATCH]
            texts = [_text(root, corpus, each) for each in batch]
            vectors = np.stack([each.sentence for each in embedder.encode_documents(texts)])
            file.append([each.key for each in batch], vectors)
            progress(start + len(batch), len(waiting))
    return 0


def _text(root: Path, corpus: CodeCorpus, each: Text) -> str:
    if each.chunk < 0:
        return card(corpus, each.row)
    first, last = corpus.chunk_lines[each.chunk].tolist()
    path, symbol = corpus.paths[each.row], int(corpus.chunk_symbol[each.chunk])
    around = corpus.definitions[symbol] if symbol >= 0 else None
    # The rest of a long definition is read with its signature.
    signature = f"{around.signature}\n" if around is not None and around.start_line < first else ""
    lines = SourceText(decoded(read(root, path) or b"")).lines
    return f"{shown_path(path)}\n{signature}" + "\n".join(lines[first - 1 : last])[:CHUNK_CHARACTERS]
