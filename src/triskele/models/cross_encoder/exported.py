"""A cross-encoder from a folder: an ONNX graph from two texts to logits, with its tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from triskele.errors import ModelUnavailable
from triskele.models.embed.exported import find_graph, read_json
from triskele.models.embed.manifest import TOKENIZER_FILE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_TOKENS = 512


class ExportedCrossEncoder:
    """A CrossEncoder that reads plain texts, on this machine; the weights are loaded when first used."""

    def __init__(self, folder: Path, threads: int = 1) -> None:
        self._folder = folder
        self._graph = find_graph(folder)
        config = read_json(folder / "config.json")
        self._max_tokens = min(MAX_TOKENS, _number(config, "max_position_embeddings", MAX_TOKENS, least=8))
        self._padding = _number(config, "pad_token_id", 0, least=0)
        self._threads = threads
        self._loading = Lock()
        self._loaded: tuple[Any, Any] | None = None

    @property
    def name(self) -> str:
        """The folder's name."""
        return self._folder.resolve().name

    def prepare(self) -> None:
        """Load the weights, unless they are loaded."""
        self._runtime()

    def score(self, question: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Read the question with every text, in one batch."""
        import numpy as np

        from triskele.models.cross_encoder.scores import checked
        from triskele.models.embed.sessions import readable, run

        session, tokenizer = self._runtime()
        pairs = tokenizer.encode_batch([(readable(question), readable(text)) for text in texts])
        given = {
            "input_ids": np.array([pair.ids for pair in pairs], dtype=np.int64),
            "attention_mask": np.array([pair.attention_mask for pair in pairs], dtype=np.int64),
            "token_type_ids": np.array([pair.type_ids for pair in pairs], dtype=np.int64),
        }
        outputs = run(session, given, self._folder)
        return checked(str(self._folder), outputs.get("logits", next(iter(outputs.values()))), len(texts))

    def _runtime(self) -> tuple[Any, Any]:
        with self._loading:
            if self._loaded is None:
                # Imported here: numpy and onnxruntime cost more than most commands do.
                from triskele.models.embed.sessions import open_session, open_tokenizer

                try:
                    words = (self._folder / TOKENIZER_FILE).read_bytes()
                except OSError as error:
                    raise ModelUnavailable(
                        f"A model file cannot be read: {error.filename} ({error.strerror})"
                    ) from error
                tokenizer = open_tokenizer(words, self._folder)
                # Whichever is longer is cut: a question that filled the window would leave nothing to compare it with.
                tokenizer.enable_truncation(self._max_tokens, strategy="longest_first")
                tokenizer.enable_padding(pad_id=self._padding)
                self._loaded = open_session(self._graph, self._folder, self._threads), tokenizer
            return self._loaded


def _number(config: Mapping[str, Any], name: str, default: int, *, least: int) -> int:
    given = config.get(name)
    if given is None:
        return default
    if type(given) is not int or given < least:
        raise ModelUnavailable(f"A model's config.json is of no use: {name} is {given!r}")
    return given
