"""Models of the hub (extra `hub`): safetensors only, no remote code."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triskele.errors import ModelUnavailable
from triskele.models.embedder import (
    Encoding,
    LazyModel,
    LocalEmbedder,
    checked_scores,
    checked_vectors,
    family,
    without_tokens,
)
from triskele.models.onnx_folder import read_json, read_prompts, vector_length, weights_mark

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Neither pickles nor programs are downloaded, and no other form of the weights.
_DOWNLOADED = ("*.json", "*.txt", "*.model", "*.safetensors")
_IGNORED = ("onnx/*", "openvino/*", "*.bin", "*.py", "*.h5", "*.msgpack")
_BATCH = 32
_MAX_TOKENS = 512


class HubEmbedder(LocalEmbedder[Any]):
    """An embedder over a sentence-transformers folder, without token vectors."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        prompts = read_prompts(folder, family(name, folder.resolve().name))
        self._query, self._document = prompts.query, prompts.document
        mark = weights_mark(sorted([*folder.rglob("*.safetensors"), *folder.rglob("*.json")]), self._document)
        super().__init__(f"{name.replace('/', '-')}@{mark}", _length(folder))

    def encode_query(self, text: str) -> Encoding:
        """Encode one query."""
        return self._encode([text], self._query)[0]

    def encode_documents(self, texts: Sequence[str]) -> list[Encoding]:
        """Encode documents, in their order; tokens beyond the model's length are dropped."""
        return self._encode(texts, self._document) if texts else []

    def _encode(self, texts: Sequence[str], prompt: str) -> list[Encoding]:
        from triskele.models.inference import readable

        model = self._runtime()
        read = [prompt + readable(text) for text in texts]
        try:
            rows: NDArray[np.float32] = model.encode(
                read, prompt="", batch_size=_BATCH, convert_to_numpy=True, show_progress_bar=False
            )
        except Exception as error:
            raise ModelUnavailable(f"The model in {self._folder} fails: {type(error).__name__}") from error
        return [without_tokens(row) for row in checked_vectors(str(self._folder), rows, len(texts), self.dimensions)]

    def _load(self) -> Any:
        return _opened("SentenceTransformer", self._folder, f"The model in {self._folder}")


class HubCrossEncoder(LazyModel[Any]):
    """A local CrossEncoder over a folder with safetensors."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__()
        self._folder = folder
        self._name = name

    @property
    def name(self) -> str:
        """The model's name."""
        return self._name

    def score(self, question: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Score every text for the query, in one batch."""
        from triskele.models.inference import readable

        model = self._runtime()
        pairs = [(readable(question), readable(text)) for text in texts]
        try:
            scores = model.predict(pairs, batch_size=len(pairs), show_progress_bar=False, convert_to_numpy=True)
        except Exception as error:
            raise ModelUnavailable(f"The model {self._name} fails: {type(error).__name__}") from error
        return checked_scores(self._name, scores, len(texts))

    def _load(self) -> Any:
        return _opened("CrossEncoder", self._folder, f"The model {self._name}", max_length=_MAX_TOKENS)


def fetched(name: str, *, may_download: bool) -> Path:
    """The folder of a hub model; downloads only if `may_download`."""
    hub = imported("huggingface_hub")
    for is_local in (True, False) if may_download else (True,):
        try:
            return Path(
                hub.snapshot_download(
                    name, local_files_only=is_local, allow_patterns=list(_DOWNLOADED), ignore_patterns=list(_IGNORED)
                )
            )
        except Exception as error:
            kind = type(error).__name__
    if may_download:
        raise ModelUnavailable(f"The model {name} cannot be downloaded from the hub ({kind})")
    raise ModelUnavailable(f"The model {name} is not on this machine: download it with `triskele models switch {name}`")


def _opened(kind: str, folder: Path, what: str, **options: Any) -> Any:
    """A model of sentence-transformers, from safetensors on this machine and without programs."""
    make = getattr(imported("sentence_transformers"), kind)
    weights = {"use_safetensors": True}
    try:
        return make(
            str(folder), device="cpu", local_files_only=True, trust_remote_code=False, model_kwargs=weights, **options
        )
    except Exception as error:
        raise ModelUnavailable(f"{what} cannot be loaded ({type(error).__name__})") from error


def imported(library: str) -> Any:
    """Import a library of the extra, or name the extra."""
    # Both libraries send usage reports unless these are set before the import.
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    os.environ["DO_NOT_TRACK"] = "1"
    with suppress(ImportError):
        return import_module(library)
    raise ModelUnavailable("Models of the hub need the extra `hub`: pip install 'triskele[hub]'")


def _length(folder: Path) -> int:
    """Output size of the last dense layer, or of the model."""
    dense = [read_json(path).get("out_features") for path in sorted(folder.glob("*_Dense/config.json"))]
    return next((size for size in reversed(dense) if isinstance(size, int)), 0) or vector_length(
        folder, read_json(folder / "config.json")
    )
