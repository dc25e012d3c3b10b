"""Models of the hub (extra `hub`): safetensors only, no remote code."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from triskele.errors import ModelUnavailable
from triskele.models.embedder import Encoding, Family, checked_scores, checked_vectors, family, without_tokens
from triskele.models.onnx_folder import read_json, vector_length, weights_mark

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Neither pickles nor programs are downloaded, and no other form of the weights.
_DOWNLOADED = ("*.json", "*.txt", "*.model", "*.safetensors")
_IGNORED = ("onnx/*", "openvino/*", "*.bin", "*.py", "*.h5", "*.msgpack")
_BATCH = 32
_MAX_TOKENS = 512


class HubEmbedder:
    """An embedder over a sentence-transformers folder, without token vectors."""

    def __init__(self, folder: Path, name: str, settings: Family | None = None) -> None:
        self._folder = folder
        chosen, usual = settings or Family(), family(name, folder.resolve().name)
        prompts = read_json(folder / "config_sentence_transformers.json").get("prompts") or {}
        self._query = chosen.query or str(prompts.get("query") or usual.query)
        self._document = chosen.document or str(prompts.get("document") or prompts.get("passage") or usual.document)
        mark = weights_mark(sorted([*folder.rglob("*.safetensors"), *folder.rglob("*.json")]), self._document)
        self._fingerprint = f"{name.replace('/', '-')}@{mark}"
        self._dimensions = _length(folder)
        self._loading = Lock()
        self._loaded: Any = None

    @property
    def fingerprint(self) -> str:
        """Model name and hash of weights, settings and document prompt."""
        return self._fingerprint

    @property
    def dimensions(self) -> int:
        """Length of a sentence vector."""
        return self._dimensions

    @property
    def token_dimensions(self) -> int:
        """0: there are no token vectors."""
        return 0

    def encode_query(self, text: str) -> Encoding:
        """Encode one query."""
        return self._encode([text], self._query)[0]

    def encode_documents(self, texts: Sequence[str]) -> list[Encoding]:
        """Encode documents, in their order; tokens beyond the model's length are dropped."""
        return self._encode(texts, self._document) if texts else []

    def _encode(self, texts: Sequence[str], prompt: str) -> list[Encoding]:
        from triskele.models.inference import readable

        model = self._model()
        read = [prompt + readable(text) for text in texts]
        try:
            rows: NDArray[np.float32] = model.encode(
                read, prompt="", batch_size=_BATCH, convert_to_numpy=True, show_progress_bar=False
            )
        except Exception as error:
            raise ModelUnavailable(f"The model in {self._folder} fails: {type(error).__name__}") from error
        return [without_tokens(row) for row in checked_vectors(str(self._folder), rows, len(texts), self.dimensions)]

    def _model(self) -> Any:
        with self._loading:
            if self._loaded is None:
                self._loaded = _load(self._folder)
            return self._loaded


class HubCrossEncoder:
    """A local CrossEncoder over a folder with safetensors."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._loading = Lock()
        self._loaded: Any = None

    @property
    def name(self) -> str:
        """The model's name."""
        return self._name

    def prepare(self) -> None:
        """Load the weights if they are not loaded."""
        self._model()

    def score(self, question: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Score every text for the query, in one batch."""
        from triskele.models.inference import readable

        model = self._model()
        pairs = [(readable(question), readable(text)) for text in texts]
        try:
            scores = model.predict(pairs, batch_size=len(pairs), show_progress_bar=False, convert_to_numpy=True)
        except Exception as error:
            raise ModelUnavailable(f"The model {self._name} fails: {type(error).__name__}") from error
        return checked_scores(self._name, scores, len(texts))

    def _model(self) -> Any:
        with self._loading:
            if self._loaded is None:
                library = imported("sentence_transformers")
                try:
                    self._loaded = library.CrossEncoder(
                        str(self._folder),
                        device="cpu",
                        max_length=_MAX_TOKENS,
                        local_files_only=True,
                        trust_remote_code=False,
                        model_kwargs={"use_safetensors": True},
                    )
                except Exception as error:
                    raise ModelUnavailable(
                        f"The model {self._name} cannot be loaded ({type(error).__name__})"
                    ) from error
            return self._loaded


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


def _load(folder: Path) -> Any:
    library = imported("sentence_transformers")
    try:
        return library.SentenceTransformer(
            str(folder),
            device="cpu",
            local_files_only=True,
            trust_remote_code=False,
            model_kwargs={"use_safetensors": True},
        )
    except Exception as error:
        raise ModelUnavailable(f"The model in {folder} cannot be loaded ({type(error).__name__})") from error


def imported(library: str) -> Any:
    """Import a library of the extra, or name the extra."""
    # Both libraries send usage reports unless these are set before the import.
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    os.environ["DO_NOT_TRACK"] = "1"
    try:
        if library == "huggingface_hub":
            import huggingface_hub

            return huggingface_hub
        import sentence_transformers

        return sentence_transformers
    except ImportError:
        pass
    raise ModelUnavailable("Models of the hub need the extra `hub`: pip install 'triskele[hub]'")


def _length(folder: Path) -> int:
    """Output size of the last dense layer, or of the model."""
    dense = [read_json(path).get("out_features") for path in sorted(folder.glob("*_Dense/config.json"))]
    return next((size for size in reversed(dense) if isinstance(size, int)), 0) or vector_length(
        folder, read_json(folder / "config.json")
    )
