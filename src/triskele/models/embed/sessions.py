"""Graphs and tokenizers as onnxruntime and tokenizers load them, the same way for every local model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
from tokenizers import Tokenizer

from triskele.errors import ModelUnavailable

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Bounds the tokenizer's work; 64 windows hold about 65,000 characters of English.
MAX_CHARACTERS = 250_000
_SURROGATES = re.compile("[\ud800-\udfff]")
_INTEGERS = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}


def open_session(graph: bytes | Path, folder: Path, threads: int) -> onnxruntime.InferenceSession:
    """A graph, from its bytes or, where its weights lie in files beside it, from its path."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # A waiting thread that spins would burn a core between two batches.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    source = str(graph) if isinstance(graph, Path) else graph
    try:
        return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ModelUnavailable(f"The model in {folder} cannot be loaded: {_first_line(error)}") from error


def open_tokenizer(words: bytes, folder: Path) -> Tokenizer:
    """A tokenizer that neither cuts nor pads, and to which "[SEP]" in somebody's text is five characters."""
    try:
        tokenizer = Tokenizer.from_str(words.decode())
    except Exception as error:
        raise ModelUnavailable(f"The model in {folder} cannot be loaded: {_first_line(error)}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


def readable(text: str) -> str:
    """The text as a tokenizer takes it: not endless, and without halves of characters."""
    return _SURROGATES.sub("\ufffd", text[:MAX_CHARACTERS])


def run(session: onnxruntime.InferenceSession, given: Mapping[str, NDArray[np.int64]], folder: Path) -> dict[str, Any]:
    """Every output by its name; the graph gets those of the inputs that it asks for."""
    wanted = {}
    for entry in session.get_inputs():
        if entry.name not in given or entry.type not in _INTEGERS:
            raise ModelUnavailable(f"The model in {folder} asks for {entry.name!r}, which nobody gives it")
        wanted[entry.name] = given[entry.name].astype(_INTEGERS[entry.type], copy=False)
    try:
        outputs = session.run(None, wanted)
    except Exception as error:
        raise ModelUnavailable(f"The model in {folder} fails: {_first_line(error)}") from error
    names = [entry.name for entry in session.get_outputs()]
    return dict(zip(names, outputs, strict=True))


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]
