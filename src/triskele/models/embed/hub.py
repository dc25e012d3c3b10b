"""Models of the hub through sentence-transformers (extra `hub`): safetensors only, no code of strangers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from triskele.errors import ModelUnavailable
from triskele.models.embed.exported import read_json, vector_length, weights_mark
from triskele.models.embed.families import Family, family
from triskele.models.embed.protocol import Encoding

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Neither pickles nor programs are fetched, and of a model in several forms only the one that is read here.
_FETCHED = ("*.json", "*.txt", "*.model", "*.safetensors")
_LEFT = ("onnx/*", "openvino/*", "*.bin", "*.py", "*.h5", "*.msgpack")
_BATCH = 32


class HubEmbedder:
    """An Embedder over a folder that sentence-transformers can read; it gives no vectors of tokens."""

    def __init__(self, folder: Path, name: str, settings: Family | None = None) -> None:
        self._folder = folder
        given, known = settings or Family(), family(name, folder.resolve().name)
        prompts = read_json(folder / "config_sentence_transformers.json").get("prompts") or {}
        self._query = given.query or str(prompts.get("query") or known.query)
        self._document = given.document or str(prompts.get("document") or prompts.get("passage") or known.document)
        mark = weights_mark(sorted([*folder.rglob("*.safetensors"), *folder.rglob("*.json")]), self._document)
        self._fingerprint = f"{name.replace('/', '-')}@{mark}"
        self._dimensions = _length(folder)
        self._loading = Lock()
        self._loaded: Any = None

    @property
    def fingerprint(self) -> str:
        """The model's name and a hash of its weights, its settings and the prompt of texts."""
        return self._fingerprint

    @property
    def dimensions(self) -> int:
        """Length of a sentence vector."""
        return self._dimensions

    @property
    def token_dimensions(self) -> int:
        """None are given."""
        return 0

    def encode_query(self, text: str) -> Encoding:
        """Encode one question."""
        return self._encode([text], self._query)[0]

    def encode_documents(self, texts: Sequence[str]) -> list[Encoding]:
        """Encode texts to be found, in their order; what a text holds beyond the model's length is not read."""
        return self._encode(texts, self._document) if texts else []

    def _encode(self, texts: Sequence[str], prompt: str) -> list[Encoding]:
        from triskele.models.embed.sessions import readable
        from triskele.models.embed.vectors import checked, without_tokens

        model = self._model()
        read = [prompt + readable(text) for text in texts]
        try:
            rows: NDArray[np.float32] = model.encode(
                read, prompt="", batch_size=_BATCH, convert_to_numpy=True, show_progress_bar=False
            )
        except Exception as error:
            raise ModelUnavailable(f"The model in {self._folder} fails: {type(error).__name__}") from error
        return [without_tokens(row) for row in checked(str(self._folder), rows, len(texts), self.dimensions)]

    def _model(self) -> Any:
        with self._loading:
            if self._loaded is None:
                self._loaded = _load(self._folder)
            return self._loaded


def fetched(name: str, *, may_download: bool) -> Path:
    """The folder of a model of the hub; it is downloaded only where somebody asked for that."""
    hub = imported("huggingface_hub")
    for is_local in (True, False) if may_download else (True,):
        try:
            return Path(
                hub.snapshot_download(
                    name, local_files_only=is_local, allow_patterns=list(_FETCHED), ignore_patterns=list(_LEFT)
                )
            )
        except Exception as error:
            kind = type(error).__name__
    if may_download:
        raise ModelUnavailable(f"The model {name} cannot be fetched from the hub ({kind})")
    raise ModelUnavailable(f"The model {name} is not on this machine: fetch it with `triskele models switch {name}`")


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
    """One of the two libraries of the extra, or a line that names the extra."""
    # Both libraries report their use unless told not to before they are loaded.
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    os.environ["DO_NOT_TRACK"] = "1"
    try:
        if library == "huggingface_hub":
            import huggingface_hub

            return huggingface_hub
        import sentence_transformers  # type: ignore[import-not-found, unused-ignore]

        return sentence_transformers
    except ImportError:
        pass
    raise ModelUnavailable("Models of the hub need the extra `hub`: pip install 'triskele[hub]'")


def _length(folder: Path) -> int:
    """The last layer that changes the length of vectors tells it."""
    dense = [read_json(path).get("out_features") for path in sorted(folder.glob("*_Dense/config.json"))]
    return next((size for size in reversed(dense) if isinstance(size, int)), 0) or vector_length(
        folder, read_json(folder / "config.json")
    )
