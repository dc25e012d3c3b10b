"""Sentence vectors as stores and index files keep them: a checksum of two bytes, then one byte for each dimension.

The bytes give the direction; the length is 1, so no scale is kept, and rounding a rounded vector changes nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    # Imported where it is needed: it takes longer to import than most commands run.
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float32]
    Rows: TypeAlias = NDArray[np.uint8]

_MOST = 127
_CHECK = 2


def row_bytes(dimensions: int) -> int:
    """How many bytes a vector takes."""
    return _CHECK + dimensions


def rounded(vectors: Floats) -> Rows:
    """Vectors as rows of bytes; each has at least one number that is not 0."""
    import numpy as np

    count, dimensions = vectors.shape
    rows = np.zeros((count, row_bytes(dimensions)), dtype=np.uint8)
    largest = np.abs(vectors).max(axis=1, initial=0)[:, None]
    codes = np.rint(vectors * (_MOST / largest.astype(np.float64))).astype(np.int8)
    rows[:, _CHECK:] = codes.view(np.uint8)
    rows[:, :_CHECK] = _checks(rows)
    return rows


def restored(rows: Rows) -> Floats:
    """The vectors in rows of bytes; NaN where a damaged one has no direction."""
    import numpy as np

    vectors = rows[:, _CHECK:].view(np.int8).astype(np.float32)
    with np.errstate(invalid="ignore"):
        vectors /= np.sqrt(np.vecdot(vectors, vectors))[:, None]
    return vectors


def cosines(rows: Rows, vector: Floats) -> Floats:
    """The cosines of vectors in rows of bytes with another one: cheaper than to restore them."""
    import numpy as np

    codes = rows[:, _CHECK:].view(np.int8).astype(np.float32)
    with np.errstate(invalid="ignore"):
        values: Floats = np.vecdot(codes, vector) / np.sqrt(np.vecdot(codes, codes))
    return values


def row_of(vector: Floats) -> bytes:
    """One vector as the value of a row."""
    return rounded(vector[None]).tobytes()


def sound_rows(raws: Sequence[bytes], dimensions: int) -> tuple[Rows, NDArray[np.bool_]]:
    """The values of rows that are vectors of so many dimensions, and which of them are."""
    import numpy as np

    size = row_bytes(dimensions)
    is_sound = np.array([len(raw) == size for raw in raws], dtype=np.bool_)
    rows = np.frombuffer(b"".join([raw for raw in raws if len(raw) == size]), np.uint8).reshape(-1, size)
    is_whole = (rows[:, :_CHECK] == _checks(rows)).all(axis=1) & rows[:, _CHECK:].any(axis=1)
    is_sound[is_sound] = is_whole
    return rows[is_whole], is_sound


def _checks(rows: Rows) -> Rows:
    """The checksums of rows."""
    import numpy as np

    sums = [zlib.crc32(row) & 0xFFFF for row in np.ascontiguousarray(rows[:, _CHECK:])]
    return np.array(sums, dtype="<u2")[:, None].view(np.uint8)
