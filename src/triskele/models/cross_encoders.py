"""The CrossEncoder protocol, and a cross-encoder from a folder with an ONNX graph and its tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from triskele.errors import ModelUnavailable
from triskele.models.manifest import TOKENIZER_FILE
from triskele.models.onnx_folder import find_graph, read_json

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_TOKENS = 512
Text = TypeVar("Text", contravariant=True)


class CrossEncoder(Protocol[Text]):
    """A model that scores texts for a query; local models read `str`, hosted ones only `Cleared`."""

    @property
    def name(self) -> str:
        """The name shown in explanations."""

    def prepare(self) -> None:
        """Load the weights if they are not loaded."""

    def score(self, question: Text, texts: Sequence[Text]) -> NDArray[np.float32]:
        """One score for each text, higher for a better match; only their order has a meaning."""


class ExportedCrossEncoder:
    """A local CrossEncoder; its weights are loaded at the first use."""

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
        """Load the weights if they are not loaded."""
        self._runtime()

    def score(self, question: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Score every text for the query, in one batch."""
        import numpy as np

        from triskele.models.inference import readable, run
        from triskele.models.outputs import checked_scores

        session, tokenizer = self._runtime()
        pairs = tokenizer.encode_batch([(readable(question), readable(text)) for text in texts])
        given = {
            "input_ids": np.array([pair.ids for pair in pairs], dtype=np.int64),
            "attention_mask": np.array([pair.attention_mask for pair in pairs], dtype=np.int64),
            "token_type_ids": np.array([pair.type_ids for pair in pairs], dtype=np.int64),
        }
        outputs = run(session, given, self._folder)
        return checked_scores(str(self._folder), outputs.get("logits", next(iter(outputs.values()))), len(texts))

    def _runtime(self) -> tuple[Any, Any]:
        with self._loading:
            if self._loaded is None:
                # Imported here: loading numpy and onnxruntime takes longer than most commands run.
                from triskele.models.inference import open_session, open_tokenizer

                try:
                    words = (self._folder / TOKENIZER_FILE).read_bytes()
                except OSError as error:
                    raise ModelUnavailable(
                        f"A model file cannot be read: {error.filename} ({error.strerror})"
                    ) from error
                tokenizer = open_tokenizer(words, self._folder)
                # The longer of the two is cut: a query that fills the window would leave no room for the text.
                tokenizer.enable_truncation(self._max_tokens, strategy="longest_first")
                tokenizer.enable_padding(pad_id=self._padding)
                self._loaded = open_session(self._graph, self._folder, self._threads), tokenizer
            return self._loaded


def _number(config: Mapping[str, Any], name: str, default: int, *, least: int) -> int:
    given = config.get(name)
    if given is None:
        return default
    if type(given) is not int or given < least:
        raise ModelUnavailable(f"The config.json of a model is invalid: {name} is {given!r}")
    return given
