"""ONNX sessions and tokenizers for every local model, and how long texts become windows and batches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
from tokenizers import Tokenizer

from triskele.errors import ModelUnavailable

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Bounds the tokenizer's work; 64 windows hold about 65,000 characters of English text.
MAX_CHARACTERS = 250_000
MAX_WINDOWS = 64
BATCH_TOKENS = 4096
_SURROGATES = re.compile("[\ud800-\udfff]")
_INTEGERS = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}


def open_session(graph: bytes | Path, folder: Path, threads: int) -> onnxruntime.InferenceSession:
    """Load a graph from its bytes, or from its path if its weights are in files beside it."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # A thread that spins while it waits keeps a core busy between two batches.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    source = str(graph) if isinstance(graph, Path) else graph
    try:
        return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ModelUnavailable(f"The model in {folder} cannot be loaded: {_first_line(error)}") from error


def open_tokenizer(words: bytes, folder: Path) -> Tokenizer:
    """A tokenizer that neither truncates nor pads, and reads "[SEP]" in a text as five characters."""
    try:
        tokenizer = Tokenizer.from_str(words.decode())
    except Exception as error:
        raise ModelUnavailable(f"The model in {folder} cannot be loaded: {_first_line(error)}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


def readable(text: str) -> str:
    """The text as a tokenizer accepts it: bounded, without lone surrogates."""
    return _SURROGATES.sub("\ufffd", text[:MAX_CHARACTERS])


def run(session: onnxruntime.InferenceSession, given: Mapping[str, NDArray[np.int64]], folder: Path) -> dict[str, Any]:
    """Every output by its name; the graph gets the inputs that it declares."""
    wanted = {}
    for entry in session.get_inputs():
        if entry.name not in given or entry.type not in _INTEGERS:
            raise ModelUnavailable(f"The model in {folder} needs an input that triskele does not have: {entry.name!r}")
        wanted[entry.name] = given[entry.name].astype(_INTEGERS[entry.type], copy=False)
    try:
        outputs = session.run(None, wanted)
    except Exception as error:
        raise ModelUnavailable(f"The model in {folder} fails: {_first_line(error)}") from error
    names = [entry.name for entry in session.get_outputs()]
    return dict(zip(names, outputs, strict=True))


@dataclass(frozen=True, slots=True)
class Window:
    """Tokens start to stop of one text."""

    text: int
    start: int
    stop: int

    @property
    def length(self) -> int:
        """The number of tokens without special tokens."""
        return self.stop - self.start


def cut(text: int, tokens: int, capacity: int, most: int = MAX_WINDOWS) -> list[Window]:
    """Cut a text into consecutive windows; tokens beyond the last window are dropped."""
    kept = min(tokens, most * capacity)
    return [Window(text, start, min(start + capacity, kept)) for start in range(0, max(1, kept), capacity)]


def batches(windows: Sequence[Window], budget: int = BATCH_TOKENS) -> Iterator[list[Window]]:
    """Group windows of equal length, longest first, within a budget of tokens.

    Equal lengths need no padding: no work is wasted, and a text's vectors do not depend on its batch.
    """
    length = attrgetter("length")
    for size, same in groupby(sorted(windows, key=length, reverse=True), key=length):
        group = list(same)
        step = max(1, budget // max(1, size))
        yield from (group[i : i + step] for i in range(0, len(group), step))


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]
