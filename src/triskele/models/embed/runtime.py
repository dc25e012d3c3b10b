"""The bundled graph in onnxruntime; imported with the first encode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
from tokenizers import Encoding as Tokenized
from tokenizers import Tokenizer

from triskele.errors import ModelUnavailable
from triskele.models.embed.manifest import GRAPH_FILE, TOKENIZER_FILE, Manifest, read_verified
from triskele.models.embed.protocol import Encoding
from triskele.models.embed.sessions import open_session, open_tokenizer, readable
from triskele.models.embed.windows import MAX_WINDOWS, Window, batches, cut

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Piece = tuple[Window, NDArray[np.float32], NDArray[np.float32]]

SPECIAL_TOKENS = 2


@dataclass(frozen=True, slots=True)
class Runtime:
    """A loaded graph with its tokenizer; safe to share between threads."""

    session: onnxruntime.InferenceSession
    tokenizer: Tokenizer
    first: int
    last: int
    capacity: int

    @classmethod
    def load(cls, folder: Path, manifest: Manifest, threads: int = 1) -> Self:
        """Verify the files of a model folder and load them."""
        graph = read_verified(folder / GRAPH_FILE, manifest.graph_sha256)
        words = read_verified(folder / TOKENIZER_FILE, manifest.tokenizer_sha256)
        session = open_session(graph, folder, threads)
        tokenizer = open_tokenizer(words, folder)
        first, last = tokenizer.encode("").ids
        return cls(session, tokenizer, first, last, manifest.max_tokens - SPECIAL_TOKENS)

    def encode(self, texts: Sequence[str], most_windows: int = MAX_WINDOWS) -> list[Encoding]:
        """Encode texts in their order; long ones by windows."""
        tokenized = self.tokenizer.encode_batch([readable(text) for text in texts], add_special_tokens=False)
        windows = [
            window
            for number, found in enumerate(tokenized)
            for window in cut(number, len(found), self.capacity, most_windows)
        ]
        ids = [np.array(found.ids, dtype=np.int64) for found in tokenized]
        pieces: list[list[Piece]] = [[] for _ in tokenized]
        for batch in batches(windows):
            sentences, tokens = self._run([ids[w.text][w.start : w.stop] for w in batch])
            for window, sentence, inner in zip(batch, sentences, tokens[:, 1:-1], strict=True):
                pieces[window.text].append((window, sentence, inner))
        return [_encoding(found, parts) for found, parts in zip(tokenized, pieces, strict=True)]

    def _run(self, rows: Sequence[NDArray[np.int64]]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Both outputs for rows of one length, special tokens added."""
        ids = np.empty((len(rows), len(rows[0]) + SPECIAL_TOKENS), dtype=np.int64)
        ids[:, 0], ids[:, 1:-1], ids[:, -1] = self.first, rows, self.last
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        sentences, tokens = self.session.run(["sentence", "tokens"], inputs)
        if not (np.isfinite(sentences).all() and np.isfinite(tokens).all()):
            raise ModelUnavailable("The model answered with something that is not a number")
        return sentences, tokens


def _encoding(found: Tokenized, pieces: Sequence[Piece]) -> Encoding:
    """One text: sentence vectors averaged by token count, token vectors in a row."""
    pieces = sorted(pieces, key=lambda piece: piece[0].start)
    kept = pieces[-1][0].stop
    sentence = pieces[0][1]
    if len(pieces) > 1:
        weights = np.array([window.length for window, _, _ in pieces], dtype=np.float32)
        sentence = weights @ np.stack([vector for _, vector, _ in pieces])
        sentence = sentence / np.linalg.norm(sentence)
    return Encoding(
        sentence=np.array(sentence, dtype=np.float32),
        tokens=np.concatenate([tokens for _, _, tokens in pieces]),
        token_ids=np.array(found.ids[:kept], dtype=np.int32),
        spans=np.array(found.offsets[:kept], dtype=np.int32).reshape(-1, 2),
    )
