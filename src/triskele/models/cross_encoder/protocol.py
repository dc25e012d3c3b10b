"""What a cross-encoder takes and gives; free of heavy imports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Text = TypeVar("Text", contravariant=True)


class CrossEncoder(Protocol[Text]):
    """Anything that scores texts for a question: local ones read `str`, hosted ones `Cleared` and nothing else."""

    @property
    def name(self) -> str:
        """What to call it in an explanation."""

    def prepare(self) -> None:
        """Load what is needed to score, unless it is loaded."""

    def score(self, question: Text, texts: Sequence[Text]) -> NDArray[np.float32]:
        """One number for each text, higher for a better fit; only their order means something."""
