"""ONNX graphs by hand: just enough of the protocol buffers format to write small real models and to read weights."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FLOAT, INT8, INT64 = 1, 3, 7
Shape = Sequence[int | str]


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes | str) -> bytes:
    content = value.encode() if isinstance(value, str) else value
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _tensor(name: str, values: NDArray[Any]) -> bytes:
    kind = INT64 if values.dtype == np.int64 else FLOAT
    raw = values.astype("<i8" if kind == INT64 else "<f4").tobytes()
    return b"".join(_number(1, size) for size in values.shape) + _number(2, kind) + _bytes(8, name) + _bytes(9, raw)


def _attribute(name: str, value: int | Sequence[int]) -> bytes:
    if isinstance(value, int):
        return _bytes(1, name) + _number(3, value) + _number(20, 2)
    return _bytes(1, name) + b"".join(_number(8, item) for item in value) + _number(20, 7)


def _value(name: str, kind: int, shape: Shape) -> bytes:
    sizes = [_bytes(1, _number(1, size) if isinstance(size, int) else _bytes(2, size)) for size in shape]
    return _bytes(1, name) + _bytes(2, _bytes(1, _number(1, kind) + _bytes(2, b"".join(sizes))))


def node(kind: str, inputs: Sequence[str], output: str, **attributes: int | Sequence[int]) -> bytes:
    """One operation of a graph."""
    named = b"".join(_bytes(5, _attribute(name, value)) for name, value in attributes.items())
    return b"".join(_bytes(1, name) for name in inputs) + _bytes(2, output) + _bytes(4, kind) + named


def write(
    path: Path,
    nodes: Sequence[bytes],
    weights: Mapping[str, NDArray[Any]],
    outputs: Mapping[str, Shape],
    inputs: Sequence[str] = ("input_ids", "attention_mask", "token_type_ids"),
) -> None:
    """A model whose inputs are rows of integers and whose outputs are floats."""
    graph = b"".join(_bytes(1, one) for one in nodes) + _bytes(2, "tiny")
    graph += b"".join(_bytes(5, _tensor(name, values)) for name, values in weights.items())
    graph += b"".join(_bytes(11, _value(name, INT64, ("batch", "length"))) for name in inputs)
    graph += b"".join(_bytes(12, _value(name, FLOAT, shape)) for name, shape in outputs.items())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_number(1, 8) + _bytes(7, graph) + _bytes(8, _number(2, 17)))


def read(path: Path, names: Collection[str]) -> dict[str, NDArray[Any]]:
    """Some of a model's weights."""
    graph = dict(_fields(memoryview(path.read_bytes())))[7]
    tensors = (list(_fields(value)) for field, value in _fields(graph) if field == 5)
    return {name: _values(tensor) for tensor in tensors if (name := str(dict(tensor)[8], "utf-8")) in names}


def _values(tensor: Sequence[tuple[int, Any]]) -> NDArray[Any]:
    last = dict(tensor)
    kind = {FLOAT: "<f4", INT8: "<i1", INT64: "<i8"}[last[2]]
    return np.frombuffer(last[9], dtype=kind).reshape([size for field, size in tensor if field == 1])


def _fields(message: memoryview) -> Iterator[tuple[int, Any]]:
    """The numbered fields of a message: whole numbers, or bytes."""
    place = 0
    while place < len(message):
        key, place = _read_varint(message, place)
        number, place = _read_varint(message, place)
        if key & 7 == 2:
            yield key >> 3, message[place : place + number]
            place += number
        else:
            yield key >> 3, number


def _read_varint(message: memoryview, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = message[place]
        number |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return number, place
