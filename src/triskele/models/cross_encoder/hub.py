"""A cross-encoder of the hub through sentence-transformers (extra `hub`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from triskele.errors import ModelUnavailable
from triskele.models.embed.hub import imported

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MAX_TOKENS = 512


class HubCrossEncoder:
    """A CrossEncoder that reads plain texts, on this machine, from a folder with safetensors."""

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
        """Load the weights, unless they are loaded."""
        self._model()

    def score(self, question: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Read the question with every text, in one batch."""
        from triskele.models.cross_encoder.scores import checked
        from triskele.models.embed.sessions import readable

        model = self._model()
        pairs = [(readable(question), readable(text)) for text in texts]
        try:
            found = model.predict(pairs, batch_size=len(pairs), show_progress_bar=False, convert_to_numpy=True)
        except Exception as error:
            raise ModelUnavailable(f"The model {self._name} fails: {type(error).__name__}") from error
        return checked(self._name, found, len(texts))

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
