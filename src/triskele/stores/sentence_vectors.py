"""Sentence vectors as stores and index files keep them: a checksum of two bytes, then one byte for each dimension.

The bytes give the direction; the length is 1, so no scale is kept, and rounding a rounded vector changes nothing. The
length of a row is no multiple of four bytes: those of earlier versions are, with four (float32) for each dimension.
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

# Unit vectors, give or take what rounding does to their length.
TOLERANCE = 0.01
_MOST = 127
_CHECK = 2
_WIDE = 4


def row_bytes(dimensions: int) -> int:
    """How many bytes a vector takes."""
    size = _CHECK + dimensions
    return size if size % _WIDE else size + 1


def rounded(vectors: Floats) -> Rows:
    """Vectors as rows of bytes; each has at least one number that is not 0."""
    import numpy as np

    count, dimensions = vectors.shape
    rows = np.zeros((count, row_bytes(dimensions)), dtype=np.uint8)
    largest = np.abs(vectors).max(axis=1, initial=0)[:, None]
    codes = np.rint(vectors * (_MOST / largest.astype(np.float64))).astype(np.int8)
    rows[:, _CHECK : _CHECK + dimensions] = codes.view(np.uint8)
    rows[:, :_CHECK] = _checks(rows)
    return rows


def restored(rows: Rows, dimensions: int) -> Floats:
    """The vectors in rows of bytes; NaN where a damaged one has no direction."""
    import numpy as np

    vectors = rows[:, _CHECK : _CHECK + dimensions].view(np.int8).astype(np.float32)
    with np.errstate(invalid="ignore"):
        vectors /= np.sqrt(np.vecdot(vectors, vectors))[:, None]
    return vectors


def cosines(rows: Rows, vector: Floats) -> Floats:
    """The cosines of vectors in rows of bytes with another one: cheaper than to restore them."""
    import numpy as np

    codes = rows[:, _CHECK : _CHECK + len(vector)].view(np.int8).astype(np.float32)
    with np.errstate(invalid="ignore"):
        found: Floats = np.vecdot(codes, vector) / np.sqrt(np.vecdot(codes, codes))
    return found


def row_of(vector: Floats) -> bytes:
    """One vector as the value of a row."""
    return rounded(vector[None]).tobytes()


def narrowed(raw: bytes) -> bytes:
    """The value of a row in this form; one that is in it already, or is no vector, stays as it is."""
    if len(raw) % _WIDE or not raw:
        return raw
    rows, is_sound = sound_rows([raw], len(raw) // _WIDE)
    return rows.tobytes() if is_sound.all() else raw


def sound_rows(raws: Sequence[bytes], dimensions: int) -> tuple[Rows, NDArray[np.bool_]]:
    """Those values of rows that are vectors of length 1, in either form, as bytes; and which they are."""
    import numpy as np

    narrow, wide = row_bytes(dimensions), _WIDE * dimensions
    lengths = np.array([len(raw) for raw in raws], dtype=np.int64)
    is_narrow, is_wide = lengths == narrow, lengths == wide
    rows = np.zeros((len(raws), narrow), dtype=np.uint8)
    rows[is_narrow] = np.frombuffer(b"".join([raw for raw in raws if len(raw) == narrow]), np.uint8).reshape(-1, narrow)
    is_narrow &= (rows[:, :_CHECK] == _checks(rows)).all(axis=1) & rows[:, _CHECK:].any(axis=1)
    floats = np.frombuffer(b"".join([raw for raw in raws if len(raw) == wide]), "<f4").reshape(-1, dimensions)
    # NaN is not within the tolerance either.
    is_unit = np.abs(np.sqrt(np.square(floats, dtype=np.float64).sum(axis=1)) - 1) <= TOLERANCE
    is_wide[is_wide] = is_unit
    rows[is_wide] = rounded(floats[is_unit])
    is_sound = is_narrow | is_wide
    return rows[is_sound], is_sound


def width_of(raw: bytes) -> int:
    """How many bytes a vector of as many dimensions as the value of a row takes in this form."""
    return len(raw) if len(raw) % _WIDE else row_bytes(len(raw) // _WIDE)


def _checks(rows: Rows) -> Rows:
    """The checksums of rows."""
    import numpy as np

    found = [zlib.crc32(row) & 0xFFFF for row in np.ascontiguousarray(rows[:, _CHECK:])]
    return np.array(found, dtype="<u2")[:, None].view(np.uint8)
