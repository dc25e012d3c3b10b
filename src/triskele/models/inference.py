"""ONNX inference: sessions, tokenizers, windows, batches and runtimes.

Everything that loads onnxruntime is here, so that other modules import it at the first encode.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import onnxruntime
from tokenizers import Encoding as Tokenized
from tokenizers import Tokenizer

from triskele.errors import BadInput, ModelUnavailable
from triskele.models.embedder import Encoding, averaged, checked_scores, checked_vectors, unit, without_tokens
from triskele.models.manifest import CROSS_FILE, GRAPH_FILE, TOKENIZER_FILE, Manifest, read_file, read_verified

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from triskele.models.cross_encoder import Context
    from triskele.models.onnx_folder import Export

    Floats = NDArray[np.float32]
    Piece = tuple["TokenWindow", Floats, Floats]

# Bounds the tokenizer's work; 64 windows hold about 65,000 characters of English text.
MAX_WINDOWS = 64
MAX_CHARACTERS = 250_000
_SURROGATES = re.compile("[\ud800-\udfff]")
# More at once costs more per token: the activations of a layer no longer fit the cache.
BATCH_TOKENS = 512
SPECIAL_TOKENS = 2
# What the bundled cross-encoder was trained to read of each part; the rest is cut.
QUERY_TOKENS, TEXT_TOKENS, DATE_TOKENS, TURN_TOKENS = 48, 192, 16, 40
TURNS_BEFORE = 2
# A token is rarely longer than this: the tokenizer need not read what is cut anyway.
_TOKEN_CHARACTERS = 20
_MASK = "attention_mask"
_HIDDEN = ("token_embeddings", "last_hidden_state")
_INTEGERS = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}


def open_session(graph: bytes | Path, folder: Path, threads: int = 1) -> onnxruntime.InferenceSession:
    """Load a graph from bytes, or from a path for separate weights."""
    options = onnxruntime.SessionOptions()
    # A second thread makes short queries slower.
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # A thread that spins while it waits keeps a core busy between two batches.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    source = str(graph) if isinstance(graph, Path) else graph
    try:
        return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ModelUnavailable(f"The model in {folder} cannot be loaded: {_first_line(error)}") from error


def open_tokenizer(words: bytes, folder: Path) -> Tokenizer:
    """A tokenizer that neither truncates, pads nor reads special tokens."""
    try:
        tokenizer = Tokenizer.from_str(words.decode())
    except Exception as error:
        raise ModelUnavailable(f"The model in {folder} cannot be loaded: {_first_line(error)}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


def read_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a folder whose files have no checksums."""
    return open_tokenizer(read_file(folder / TOKENIZER_FILE), folder)


def _open_verified(
    graph: Path, sha256: str, manifest: Manifest, threads: int = 1
) -> tuple[onnxruntime.InferenceSession, Tokenizer]:
    """Session and tokenizer of a model folder, after their files were verified."""
    folder = graph.parent
    words = read_verified(folder / TOKENIZER_FILE, manifest.tokenizer_sha256)
    return open_session(read_verified(graph, sha256), folder, threads), open_tokenizer(words, folder)


def readable(text: str) -> str:
    """The text as a tokenizer accepts it: bounded, without lone surrogates."""
    return _SURROGATES.sub("\ufffd", text[:MAX_CHARACTERS])


def run(session: onnxruntime.InferenceSession, given: Mapping[str, NDArray[np.int64]], folder: Path) -> dict[str, Any]:
    """Every output by name; the graph gets the inputs it declares."""
    wanted = {}
    for entry in session.get_inputs():
        if entry.name not in given or entry.type not in _INTEGERS:
            raise ModelUnavailable(f"The model in {folder} needs an input that triskele does not have: {entry.name!r}")
        wanted[entry.name] = given[entry.name].astype(_INTEGERS[entry.type], copy=False)
    try:
        outputs = session.run(None, wanted)
    except Exception as error:
        raise ModelUnavailable(f"The model in {folder} fails: {_first_line(error)}") from error
    names = [entry.name for entry in session.get_outputs()]
    return dict(zip(names, outputs, strict=True))


@dataclass(frozen=True, slots=True)
class TokenWindow:
    """Tokens start to stop of one text."""

    text: int
    start: int
    stop: int

    @property
    def length(self) -> int:
        """The number of tokens without special tokens."""
        return self.stop - self.start


def cut(text: int, tokens: int, capacity: int, most: int = MAX_WINDOWS) -> list[TokenWindow]:
    """Cut a text into consecutive windows, at most `most`."""
    end = min(tokens, most * capacity)
    return [TokenWindow(text, start, min(start + capacity, end)) for start in range(0, max(1, end), capacity)]


def batches(windows: Sequence[TokenWindow], budget: int = BATCH_TOKENS) -> Iterator[list[TokenWindow]]:
    """Group windows of equal length, longest first, within a budget of tokens.

    Equal lengths need no padding: no work is wasted, and a text's vectors do not depend on its batch.
    """
    length = attrgetter("length")
    for size, same in groupby(sorted(windows, key=length, reverse=True), key=length):
        group = list(same)
        step = max(1, budget // max(1, size))
        yield from (group[i : i + step] for i in range(0, len(group), step))


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]


@dataclass(frozen=True, slots=True)
class BundledRuntime:
    """The bundled model, loaded with its tokenizer; safe to share between threads."""

    session: onnxruntime.InferenceSession
    tokenizer: Tokenizer
    first: int
    last: int
    capacity: int

    @classmethod
    def load(cls, folder: Path, manifest: Manifest) -> Self:
        """Verify the files of a model folder and load them."""
        session, tokenizer = _open_verified(folder / GRAPH_FILE, manifest.graph_sha256, manifest)
        first, last = tokenizer.encode("").ids
        return cls(session, tokenizer, first, last, manifest.max_tokens - SPECIAL_TOKENS)

    def encode(self, texts: Sequence[str], most_windows: int = MAX_WINDOWS) -> list[Encoding]:
        """Encode texts in their order; long texts are encoded in windows."""
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
        """Both outputs for rows of equal length, special tokens added."""
        ids = np.empty((len(rows), len(rows[0]) + SPECIAL_TOKENS), dtype=np.int64)
        ids[:, 0], ids[:, 1:-1], ids[:, -1] = self.first, rows, self.last
        sentences, tokens = self.session.run(["sentence", "tokens"], {"input_ids": ids})
        if not (np.isfinite(sentences).all() and np.isfinite(tokens).all()):
            raise ModelUnavailable("The bundled model returned NaN or infinite values. Reinstall triskele.")
        return sentences, tokens


def _encoding(tokenized: Tokenized, pieces: Sequence[Piece]) -> Encoding:
    """One text: mean of its windows by token count, all token vectors."""
    pieces = sorted(pieces, key=lambda piece: piece[0].start)
    end = pieces[-1][0].stop
    sentence = pieces[0][1]
    if len(pieces) > 1:
        weights = np.array([window.length for window, _, _ in pieces], dtype=np.float32)
        sentence = weights @ np.stack([vector for _, vector, _ in pieces])
        sentence = sentence / np.linalg.norm(sentence)
    return Encoding(
        sentence=np.array(sentence, dtype=np.float32),
        tokens=np.concatenate([tokens for _, _, tokens in pieces]),
        token_ids=np.array(tokenized.ids[:end], dtype=np.int32),
        spans=np.array(tokenized.offsets[:end], dtype=np.int32).reshape(-1, 2),
    )


@dataclass(frozen=True, slots=True)
class CrossRuntime:
    """The bundled cross-encoder, loaded with its tokenizer; safe to share between threads."""

    session: onnxruntime.InferenceSession
    tokenizer: Tokenizer
    first: int
    last: int
    capacity: int
    folder: Path

    @classmethod
    def load(cls, folder: Path, manifest: Manifest, threads: int) -> Self:
        """Verify the files of the model folder and load them."""
        session, tokenizer = _open_verified(folder / CROSS_FILE, manifest.cross_sha256, manifest, threads)
        first, last = tokenizer.encode("").ids
        return cls(session, tokenizer, first, last, manifest.max_tokens, folder)

    def logits(self, question: str, texts: Sequence[str], contexts: Sequence[Context]) -> Floats:
        """One logit for each text; rows of equal length are run together."""
        question_ids = self._read([question], QUERY_TOKENS)[0]
        behind = [self._behind(context) for context in contexts] or [[]] * len(texts)
        rows = [
            [self.first, *question_ids, self.last, *text, self.last, *context][: self.capacity]
            for text, context in zip(self._read(texts, TEXT_TOKENS), behind, strict=True)
        ]
        logits = np.empty(len(rows), dtype=np.float32)
        # Padding a row to the longest costs more than running it alone.
        for _, same in groupby(sorted(range(len(rows)), key=lambda at: len(rows[at])), key=lambda at: len(rows[at])):
            places = list(same)
            ids = np.array([rows[place] for place in places], dtype=np.int64)
            outputs = run(self.session, {"input_ids": ids, _MASK: np.ones_like(ids)}, self.folder)
            logits[places] = checked_scores("The bundled cross-encoder", outputs["logits"], len(places))
        return logits

    def _behind(self, context: Context) -> list[int]:
        """Tokens behind a text: its date, then earlier turns, nearest first."""
        turns = self._read(context.before[:TURNS_BEFORE], TURN_TOKENS)
        parts = [*self._read([context.date], DATE_TOKENS), *turns]
        tokens = [number for part in parts for number in part]
        return [*tokens, self.last] if tokens else []

    def _read(self, texts: Sequence[str], most: int) -> list[list[int]]:
        """The first tokens of some texts."""
        cut_short = [readable(text[: most * _TOKEN_CHARACTERS]) for text in texts]
        return [tokenized.ids[:most] for tokenized in self.tokenizer.encode_batch(cut_short, add_special_tokens=False)]


@dataclass(frozen=True, slots=True)
class _Text:
    """One text in tokens: prompt, own tokens, character spans."""

    prompt: tuple[int, ...]
    ids: NDArray[np.int64]
    spans: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class ExportedRuntime:
    """An exported graph with tokenizer, prompts and pooling; safe between threads."""

    export: Export
    session: Any
    tokenizer: Tokenizer
    before: tuple[int, ...]
    after: tuple[int, ...]

    @classmethod
    def load(cls, export: Export) -> Self:
        """Load the files of a folder."""
        tokenizer = read_tokenizer(export.folder)
        session = open_session(export.graph, export.folder)
        return cls(export, session, tokenizer, *special_tokens(tokenizer))

    def encode(self, texts: Sequence[str], prompt: str, most_windows: int = MAX_WINDOWS) -> list[Encoding]:
        """Encode texts in windows; the prompt comes before every window."""
        read = self._read([readable(text) for text in texts], prompt)
        windows = [
            window
            for number, text in enumerate(read)
            for window in cut(number, len(text.ids), self._capacity(text), most_windows)
        ]
        pieces: list[list[Piece]] = [[] for _ in read]
        for batch in batches(windows):
            for _, same in groupby(batch, key=lambda window: len(read[window.text].prompt)):
                group = list(same)
                for window, *vectors in zip(group, *self._run([(read[w.text], w) for w in group]), strict=True):
                    pieces[window.text].append((window, vectors[0], vectors[1]))
        return [self._encoding(text, parts) for text, parts in zip(read, pieces, strict=True)]

    def _capacity(self, text: _Text) -> int:
        capacity = self.export.max_tokens - len(self.before) - len(self.after) - len(text.prompt)
        if capacity < 1:
            raise BadInput(f"the prompt for the model in {self.export.folder} fills its whole window: shorten it")
        return capacity

    def _read(self, texts: Sequence[str], prompt: str) -> list[_Text]:
        # Prompt and text are tokenized together, as in training: a word after a space differs from one at the start.
        tokenized = self.tokenizer.encode_batch([prompt + text for text in texts], add_special_tokens=False)
        read = []
        for tokens in tokenized:
            spans = np.array(tokens.offsets, dtype=np.int32).reshape(-1, 2)
            own = int((spans[:, 1] <= len(prompt)).sum()) if prompt else 0
            ids = np.array(tokens.ids, dtype=np.int64)
            read.append(_Text(tuple(ids[:own].tolist()), ids[own:], np.maximum(spans[own:] - len(prompt), 0)))
        return read

    def _run(self, rows: Sequence[tuple[_Text, TokenWindow]]) -> tuple[Floats, Floats]:
        """Sentence and token vectors for rows of equal length."""
        text = rows[0][0]
        ids = np.array(
            [[*self.before, *t.prompt, *t.ids[w.start : w.stop].tolist(), *self.after] for t, w in rows], dtype=np.int64
        )
        positions = np.broadcast_to(np.arange(ids.shape[1], dtype=np.int64), ids.shape)
        inputs = {"input_ids": ids, _MASK: np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        outputs = run(self.session, inputs | {"position_ids": positions}, self.export.folder)
        name = str(self.export.folder)
        hidden = next((outputs[n].astype(np.float32, copy=False) for n in _HIDDEN if n in outputs), None)
        if hidden is None:
            raise ModelUnavailable(f"The model in {name} has no token vectors: expected {' or '.join(_HIDDEN)}")
        if hidden.shape[:2] != ids.shape:
            raise ModelUnavailable(f"The model in {name} did not return one vector per token")
        pooling = self.export.prompts.pooling
        pooled = hidden.mean(axis=1) if pooling == "mean" else hidden[:, 0 if pooling == "cls" else -1]
        sentences = checked_vectors(name, pooled, len(rows), self.export.dimensions)
        if not self.export.has_tokens:
            return sentences, np.empty((len(rows), 0, 0), dtype=np.float32)
        first = len(self.before) + len(text.prompt)
        inner = hidden[:, first : ids.shape[1] - len(self.after)]
        return sentences, unit(name, inner) if inner.shape[1] else inner

    def _encoding(self, text: _Text, pieces: Sequence[Piece]) -> Encoding:
        pieces = sorted(pieces, key=lambda piece: piece[0].start)
        lengths = [max(1, window.length) for window, _, _ in pieces]
        sentence = averaged(self.export.name, np.stack([vector for _, vector, _ in pieces]), lengths)
        if not self.export.has_tokens:
            return without_tokens(sentence)
        end = pieces[-1][0].stop
        tokens = np.concatenate([tokens for _, _, tokens in pieces])
        return Encoding(sentence, tokens, text.ids[:end].astype(np.int32), text.spans[:end])


def special_tokens(tokenizer: Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The special tokens that a tokenizer adds before and after a text."""
    bare = tokenizer.encode("a", add_special_tokens=False).ids
    full = tokenizer.encode("a").ids
    for start in range(len(full) - len(bare) + 1):
        if full[start : start + len(bare)] == bare:
            return tuple(full[:start]), tuple(full[start + len(bare) :])
    raise ModelUnavailable("The tokenizer changes a text when it adds special tokens")
