"""A question that is only a vector, as a corpus is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from triskele.index.corpus import Floats


@dataclass(frozen=True)
class VectorQuestion:
    """What asks a corpus for cosines."""

    vector: Floats
    depth: int = 50
    terms: Sequence[str] = ()
    is_hybrid: bool = False
