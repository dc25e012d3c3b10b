"""Models of the hub: what is asked of the libraries, and that nothing is fetched unasked."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from triskele.errors import ModelUnavailable
from triskele.models.hub import HubEmbedder
from triskele.models.local import local_embedder


class Library:
    """Stands for sentence-transformers: remembers what it was asked and answers with lengths of texts."""

    def __init__(self) -> None:
        self.opened: list[tuple[str, dict[str, Any]]] = []
        self.read: list[str] = []
        self.answer: Any = None

    def SentenceTransformer(self, folder: str, **options: Any) -> Any:  # noqa: N802
        self.opened.append((folder, options))
        return SimpleNamespace(encode=self.encode)

    def encode(self, texts: list[str], *, prompt: str, **options: Any) -> Any:
        assert prompt == "" and options["convert_to_numpy"] and not options["show_progress_bar"]
        self.read += texts
        if isinstance(self.answer, Exception):
            raise self.answer
        rows = [[len(text), 1.0, 0.0, 0.0] for text in texts] if self.answer is None else self.answer
        return np.array(rows, dtype=np.float32)


class Hub:
    """Stands for the hub's client: a model is here or must be fetched."""

    def __init__(self, folder: Path, *, is_here: bool) -> None:
        self.folder, self.is_here = folder, is_here
        self.calls: list[dict[str, Any]] = []

    def snapshot_download(self, name: str, **options: Any) -> str:
        self.calls.append({"name": name, **options})
        if options["local_files_only"] and not self.is_here:
            raise FileNotFoundError(name)
        return str(self.folder)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    found = Library()
    monkeypatch.setitem(sys.modules, "sentence_transformers", found)  # type: ignore[arg-type]
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 4}))
    return tmp_path


def test_vectors_are_unit_and_prompts_are_those_of_the_family(library: Library, folder: Path) -> None:
    model = HubEmbedder(folder, "intfloat/e5-small")
    assert library.opened == [], "nothing heavy before the first text"
    vectors = model.encode_documents(["heron", "grey heron"])
    model.encode_query("heron?")
    assert library.read == ["passage: heron", "passage: grey heron", "query: heron?"]
    np.testing.assert_allclose([np.linalg.norm(one.sentence) for one in vectors], 1, atol=1e-6)
    assert vectors[0].tokens.shape == (0, 0) and model.token_dimensions == 0
    assert model.encode_documents([]) == []
    assert len(library.opened) == 1


def test_weights_are_read_here_and_safely(library: Library, folder: Path) -> None:
    HubEmbedder(folder, "x/y").encode_query("a")
    ((opened, options),) = library.opened
    assert opened == str(folder)
    assert options["local_files_only"] is True and options["trust_remote_code"] is False
    assert options["model_kwargs"] == {"use_safetensors": True}


def test_prompts_of_the_folder(library: Library, folder: Path) -> None:
    prompts = {"prompts": {"query": "Q: ", "document": "D: "}}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    model = HubEmbedder(folder, "intfloat/e5-small")
    model.encode_query("a")
    model.encode_documents(["b"])
    assert library.read == ["Q: a", "D: b"]


@pytest.mark.parametrize("answer", [[[np.nan, 1, 1, 1]], [[1.0, 2.0]], [[0.0] * 4], RuntimeError("boom")])
def test_a_bad_answer_is_an_error_of_the_model(library: Library, folder: Path, answer: Any) -> None:
    library.answer = answer
    with pytest.raises(ModelUnavailable):
        HubEmbedder(folder, "x/y").encode_query("a")


def test_the_length_of_the_last_layer_counts(library: Library, folder: Path) -> None:
    assert HubEmbedder(folder, "x/y").dimensions == 4
    (folder / "2_Dense").mkdir()
    (folder / "2_Dense" / "config.json").write_text(json.dumps({"out_features": 3}))
    assert HubEmbedder(folder, "x/y").dimensions == 3


def test_the_fingerprint_follows_weights_and_prompt(library: Library, folder: Path) -> None:
    first = HubEmbedder(folder, "x/y").fingerprint
    assert "/" not in first
    assert HubEmbedder(folder, "x/e5-y").fingerprint.partition("@")[2] != first.partition("@")[2]
    (folder / "model.safetensors").write_bytes(b"Weights")
    assert HubEmbedder(folder, "x/y").fingerprint != first


def test_a_model_that_is_here_is_not_fetched(library: Library, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub(folder, is_here=True)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)  # type: ignore[arg-type]
    assert local_embedder("owner/model", may_download=True).fingerprint.startswith("owner-model@")
    assert [call["local_files_only"] for call in hub.calls] == [True]


def test_model_is_fetched_on_request_and_without_programs(
    library: Library, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = Hub(folder, is_here=False)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)  # type: ignore[arg-type]
    with pytest.raises(ModelUnavailable, match="not on this machine"):
        local_embedder("owner/model")
    assert [call["local_files_only"] for call in hub.calls] == [True]
    local_embedder("owner/model", may_download=True)
    assert [call["local_files_only"] for call in hub.calls] == [True, True, False]
    fetched = hub.calls[-1]
    assert "*.safetensors" in fetched["allow_patterns"]
    assert not {"*.py", "*.bin", "*"} & set(fetched["allow_patterns"])


@pytest.mark.parametrize("missing", ["huggingface_hub", "sentence_transformers"])
def test_missing_extra_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    if missing == "huggingface_hub":
        with pytest.raises(ModelUnavailable, match=r"pip install 'triskele\[hub\]'"):
            local_embedder("owner/model")
    else:
        with pytest.raises(ModelUnavailable, match=r"pip install 'triskele\[hub\]'"):
            HubEmbedder(folder, "x/y").encode_query("a")
