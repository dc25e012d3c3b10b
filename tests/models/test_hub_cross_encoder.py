"""A cross-encoder of the hub: what is asked of the library."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from triskele.errors import ModelUnavailable
from triskele.models.hub import HubCrossEncoder


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Any:
    found = SimpleNamespace(opened=[], read=[], answer=[0.5, 0.25])

    def predict(pairs: list[tuple[str, str]], **options: Any) -> Any:
        found.read.append((pairs, options["batch_size"]))
        if isinstance(found.answer, Exception):
            raise found.answer
        return np.array(found.answer, dtype=np.float32)

    def cross_encoder(folder: str, **options: Any) -> Any:
        found.opened.append((folder, options))
        return SimpleNamespace(predict=predict)

    found.CrossEncoder = cross_encoder
    monkeypatch.setitem(sys.modules, "sentence_transformers", found)
    return found


def test_one_batch_of_pairs_read_here_and_safely(library: Any, tmp_path: Path) -> None:
    encoder = HubCrossEncoder(tmp_path, "owner/cross")
    for _ in range(2):
        assert encoder.score("who?", ["a", "b"]).tolist() == [0.5, 0.25]
    assert library.read[0] == ([("who?", "a"), ("who?", "b")], 2)
    ((folder, options),) = library.opened
    assert folder == str(tmp_path) and options["max_length"] == 512
    assert options["local_files_only"] is True and options["trust_remote_code"] is False
    assert options["model_kwargs"] == {"use_safetensors": True}


@pytest.mark.parametrize("answer", [[0.5], [np.nan, 1.0], [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]], RuntimeError("boom")])
def test_a_bad_answer_is_an_error_of_the_model(library: Any, tmp_path: Path, answer: Any) -> None:
    library.answer = answer
    with pytest.raises(ModelUnavailable, match="owner/cross"):
        HubCrossEncoder(tmp_path, "owner/cross").score("who?", ["a", "b"])


def test_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ModelUnavailable, match=r"triskele\[hub\]"):
        HubCrossEncoder(tmp_path, "x").score("who?", ["a"])
