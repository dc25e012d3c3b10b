"""An exported graph in onnxruntime: prompts, windows, pooling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from tokenizers import Tokenizer

from triskele.errors import BadInput, ModelUnavailable
from triskele.models.embed.exported import Export
from triskele.models.embed.manifest import TOKENIZER_FILE
from triskele.models.embed.protocol import Encoding
from triskele.models.embed.sessions import open_session, open_tokenizer, readable, run
from triskele.models.embed.vectors import averaged, checked, unit, without_tokens
from triskele.models.embed.windows import MAX_WINDOWS, Window, batches, cut

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

_SENTENCE = "sentence_embedding"
_HIDDEN = ("token_embeddings", "last_hidden_state")


@dataclass(frozen=True, slots=True)
class _Text:
    """One text in tokens: its prompt's, its own, and where its own stand in it."""

    prompt: tuple[int, ...]
    ids: NDArray[np.int64]
    spans: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class ExportedRuntime:
    """A loaded graph with its tokenizer; safe to share between threads."""

    export: Export
    session: Any
    tokenizer: Tokenizer
    before: tuple[int, ...]
    after: tuple[int, ...]

    @classmethod
    def load(cls, export: Export, threads: int = 1) -> Self:
        """Load the files of a folder."""
        try:
            words = (export.folder / TOKENIZER_FILE).read_bytes()
        except OSError as error:
            raise ModelUnavailable(f"A model file cannot be read: {error.filename} ({error.strerror})") from error
        tokenizer = open_tokenizer(words, export.folder)
        session = open_session(export.graph, export.folder, threads)
        return cls(export, session, tokenizer, *special_tokens(tokenizer))

    def encode(self, texts: Sequence[str], prompt: str, most_windows: int = MAX_WINDOWS) -> list[Encoding]:
        """Encode texts in their order, each after the prompt; long ones by windows, each after it too."""
        read = self._read([readable(text) for text in texts], prompt)
        windows = [
            window
            for number, text in enumerate(read)
            for window in cut(number, len(text.ids), self._capacity(text), most_windows)
        ]
        pieces: list[list[tuple[Window, Floats, Floats]]] = [[] for _ in read]
        for batch in batches(windows):
            for _, same in groupby(batch, key=lambda window: len(read[window.text].prompt)):
                group = list(same)
                for window, *made in zip(group, *self._run([(read[w.text], w) for w in group]), strict=True):
                    pieces[window.text].append((window, made[0], made[1]))
        return [self._encoding(text, parts) for text, parts in zip(read, pieces, strict=True)]

    def _capacity(self, text: _Text) -> int:
        capacity = self.export.max_tokens - len(self.before) - len(self.after) - len(text.prompt)
        if capacity < 1:
            raise BadInput(f"the prompt for the model in {self.export.folder} leaves no room for a text: shorten it")
        return capacity

    def _read(self, texts: Sequence[str], prompt: str) -> list[_Text]:
        # Read in one piece, as in training: a word after a blank is another token than one at the start.
        found = self.tokenizer.encode_batch([prompt + text for text in texts], add_special_tokens=False)
        read = []
        for tokens in found:
            spans = np.array(tokens.offsets, dtype=np.int32).reshape(-1, 2)
            own = int((spans[:, 1] <= len(prompt)).sum()) if prompt else 0
            ids = np.array(tokens.ids, dtype=np.int64)
            read.append(_Text(tuple(ids[:own].tolist()), ids[own:], np.maximum(spans[own:] - len(prompt), 0)))
        return read

    def _run(self, rows: Sequence[tuple[_Text, Window]]) -> tuple[Floats, Floats]:
        """Sentence vectors, and the token vectors of the texts themselves, for rows of one length."""
        text = rows[0][0]
        ids = np.array(
            [[*self.before, *t.prompt, *t.ids[w.start : w.stop].tolist(), *self.after] for t, w in rows], dtype=np.int64
        )
        positions = np.broadcast_to(np.arange(ids.shape[1], dtype=np.int64), ids.shape)
        given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        outputs = run(self.session, given | {"position_ids": positions}, self.export.folder)
        name = str(self.export.folder)
        hidden = next((outputs[n].astype(np.float32, copy=False) for n in _HIDDEN if n in outputs), None)
        if hidden is not None and hidden.shape[:2] != ids.shape:
            raise ModelUnavailable(f"The model in {name} answers with other tokens than it was given")
        sentences = checked(name, self._sentences(outputs, hidden), len(rows), self.export.dimensions)
        if hidden is None or not self.export.has_tokens:
            return sentences, np.empty((len(rows), 0, 0), dtype=np.float32)
        first = len(self.before) + len(text.prompt)
        inner = hidden[:, first : ids.shape[1] - len(self.after)]
        return sentences, unit(name, inner) if inner.shape[1] else inner

    def _sentences(self, outputs: Mapping[str, Any], hidden: Floats | None) -> object:
        pooling = self.export.prompts.pooling
        if pooling == "graph":
            if _SENTENCE in outputs:
                return outputs[_SENTENCE]
            raise ModelUnavailable(f"The model in {self.export.folder} gives no {_SENTENCE}: set its pooling")
        if hidden is None:
            advice = "set its pooling to graph" if _SENTENCE in outputs else f"expected {' or '.join(_HIDDEN)}"
            raise ModelUnavailable(f"The model in {self.export.folder} gives no vectors of tokens: {advice}")
        if pooling == "mean":
            return hidden.mean(axis=1)
        return hidden[:, 0 if pooling == "cls" else -1]

    def _encoding(self, text: _Text, pieces: Sequence[tuple[Window, Floats, Floats]]) -> Encoding:
        pieces = sorted(pieces, key=lambda piece: piece[0].start)
        lengths = [max(1, window.length) for window, _, _ in pieces]
        sentence = averaged(self.export.name, np.stack([vector for _, vector, _ in pieces]), lengths)
        if not self.export.has_tokens:
            return without_tokens(sentence)
        kept = pieces[-1][0].stop
        tokens = np.concatenate([tokens for _, _, tokens in pieces])
        return Encoding(sentence, tokens, text.ids[:kept].astype(np.int32), text.spans[:kept])


def special_tokens(tokenizer: Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What a tokenizer puts before and after a text."""
    bare = tokenizer.encode("a", add_special_tokens=False).ids
    full = tokenizer.encode("a").ids
    for start in range(len(full) - len(bare) + 1):
        if full[start : start + len(bare)] == bare:
            return tuple(full[:start]), tuple(full[start + len(bare) :])
    raise ModelUnavailable("A tokenizer changes a text when it adds its marks")
