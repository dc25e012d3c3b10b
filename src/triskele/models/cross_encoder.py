"""Cross-encoders: the protocol, exported models, and the reranker that uses them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from triskele.errors import ModelUnavailable, Unavailable
from triskele.models.deadlines import Limited, within
from triskele.models.embedder import LazyModel, checked_scores
from triskele.models.onnx_folder import find_graph, read_json
from triskele.types import Agreement

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_TOKENS = 512
DEPTH = 30
TIMEOUT_S = 2.0
_LOADING_S = 30.0
_AT_ONCE = 4
_TOP = 5

Text = TypeVar("Text", contravariant=True)
Readable = TypeVar("Readable")


class CrossEncoder(Protocol[Text]):
    """Scores texts for a query; hosted ones read only `ClearedText`."""

    @property
    def name(self) -> str:
        """The name shown in explanations."""

    def prepare(self) -> None:
        """Load the weights if they are not loaded."""

    def score(self, question: Text, texts: Sequence[Text]) -> NDArray[np.float32]:
        """One score per text; higher is better, and only order matters."""


@dataclass(frozen=True, slots=True)
class Context:
    """Date of a turn and the turns before it, nearest first."""

    date: str = ""
    before: tuple[str, ...] = ()


class ExportedCrossEncoder(LazyModel[tuple[Any, Any]]):
    """A CrossEncoder over an exported graph."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._graph = find_graph(folder)
        config = read_json(folder / "config.json")
        self._max_tokens = min(MAX_TOKENS, _number(config, "max_position_embeddings", MAX_TOKENS, least=8))
        self._padding = _number(config, "pad_token_id", 0, least=0)

    @property
    def name(self) -> str:
        """The folder's name."""
        return self._folder.resolve().name

    def score(self, question: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Score every text for the query, in one batch."""
        import numpy as np

        from triskele.models.inference import readable, run

        session, tokenizer = self._runtime()
        pairs = tokenizer.encode_batch([(readable(question), readable(text)) for text in texts])
        inputs = {
            "input_ids": np.array([pair.ids for pair in pairs], dtype=np.int64),
            "attention_mask": np.array([pair.attention_mask for pair in pairs], dtype=np.int64),
            "token_type_ids": np.array([pair.type_ids for pair in pairs], dtype=np.int64),
        }
        outputs = run(session, inputs, self._folder)
        return checked_scores(str(self._folder), outputs.get("logits", next(iter(outputs.values()))), len(texts))

    def _load(self) -> tuple[Any, Any]:
        from triskele.models.inference import open_session, read_tokenizer

        tokenizer = read_tokenizer(self._folder)
        # The longer of the two is cut: a query that fills the window would leave no room for the text.
        tokenizer.enable_truncation(self._max_tokens, strategy="longest_first")
        tokenizer.enable_padding(pad_id=self._padding)
        return open_session(self._graph, self._folder), tokenizer


def _number(config: Mapping[str, Any], name: str, default: int, *, least: int) -> int:
    value = config.get(name)
    if value is None:
        return default
    if type(value) is not int or value < least:
        raise ModelUnavailable(f"The config.json of a model is invalid: {name} is {value!r}")
    return value


@dataclass(frozen=True, slots=True)
class Reranking:
    """Rows in a new order, or why there are no scores."""

    order: tuple[int, ...]
    scores: Mapping[int, float]
    agreement: Agreement | None = None
    missing: str = ""


class Reranker(Generic[Readable]):
    """Reorders the top of a ranking by the scores of a cross-encoder."""

    def __init__(self, encoder: CrossEncoder[Readable], *, timeout_s: float = TIMEOUT_S, depth: int = DEPTH) -> None:
        self._encoder = encoder
        self._timeout_s = timeout_s
        self.depth = depth
        self._within = Limited(_AT_ONCE)

    @property
    def name(self) -> str:
        """The name of the cross-encoder."""
        return self._encoder.name

    def rerank(self, question: Readable | None, texts: Mapping[int, Readable | None]) -> Reranking:
        """Reorder rows, best first; rows that may not be read stay."""
        rows = tuple(texts)
        read = {row: text for row in rows[: self.depth] if (text := texts[row]) is not None}
        if question is None:
            return Reranking(rows, {}, missing=f"{self.name} may not read the question")
        if len(read) < 2:
            return Reranking(rows, {}, missing=f"{self.name} has nothing to compare")
        try:
            logits = self._scored(question, list(read.values()))
        except TimeoutError:
            return Reranking(rows, {}, missing=f"{self.name} took longer than {self._timeout_s:g} s")
        except Unavailable as error:
            return Reranking(rows, {}, missing=str(error))
        except Exception as error:
            # A model of a third party may raise anything; the ranking is kept.
            return Reranking(rows, {}, missing=f"{self.name} fails ({type(error).__name__})")
        scores = dict(zip(read, logits.tolist(), strict=True))
        order = reordered(rows, scores)
        return Reranking(order, scores, agreement(rows, order, scores))

    def _scored(self, question: Readable, texts: Sequence[Readable]) -> NDArray[np.float32]:
        # Loading the weights may take longer than scoring; it has its own limit.
        within(_LOADING_S, self._encoder.prepare)
        return self._within(self._timeout_s, lambda: self._encoder.score(question, texts))


def reordered(rows: Sequence[int], scores: Mapping[int, float]) -> tuple[int, ...]:
    """Sort rows by score; rows without a score keep their positions."""
    best_first = iter(sorted((row for row in rows if row in scores), key=lambda row: -scores[row]))
    return tuple(next(best_first) if row in scores else row for row in rows)


def agreement(before: Sequence[int], after: Sequence[int], scored: Mapping[int, float]) -> Agreement:
    """Compare two orders of the same rows."""
    rank = {row: number for number, row in enumerate(after)}
    pairs = list(combinations([row for row in before if row in scored], 2))
    same = sum(rank[first] < rank[second] for first, second in pairs)
    tau = 2 * same / len(pairs) - 1 if pairs else 1.0
    top = set(before[:_TOP])
    return Agreement(tau, len(top & set(after[:_TOP])) / len(top) if top else 1.0)
