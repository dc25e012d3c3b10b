"""Training on the scores of recall: they are what recall computes, and every command runs."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from safetensors.numpy import load_file

from training import (
    as_recalled,
    average,
    encoder,
    export,
    from_graph,
    macro,
    mine,
    projection,
    recalled_encoder,
    score_lists,
    store,
    student,
    subset,
    teacher,
)
from triskele.index.token_vectors import against_bits, packed, unpacked


def run(monkeypatch: pytest.MonkeyPatch, module: object, *arguments: object) -> None:
    """Call a command."""
    monkeypatch.setattr(sys, "argv", ["command", *map(str, arguments)])
    module.main()


def test_rounded_vectors_match_as_those_of_the_index() -> None:
    generator = torch.Generator().manual_seed(1)
    told, asked = (torch.nn.functional.normalize(torch.randn(40, 96, generator=generator), dim=-1) for _ in range(2))
    bits = packed(np.round(told.numpy() * 127.0).astype(np.int8))
    recalled = unpacked(bits) @ against_bits(asked.numpy())
    np.testing.assert_allclose((as_recalled.two_bits(told) @ asked.T).numpy(), recalled, atol=1e-6)


def test_the_gradient_passes_through_the_rounding() -> None:
    vectors = torch.nn.functional.normalize(torch.randn(3, 96), dim=-1).requires_grad_()
    (as_recalled.two_bits(vectors) * 2).sum().backward()
    assert torch.equal(vectors.grad, torch.full_like(vectors, 2))


def test_rare_words_weigh_most_and_punctuation_nothing(data: Path) -> None:
    texts = store.read(data, "cpu").texts
    words = as_recalled.Vocabulary.make(
        recalled_encoder.tokenizer(), recalled_encoder.stop_words(), texts, torch.arange(3, len(texts.lengths))
    )
    asked = recalled_encoder.tokenizer().encode("the cello?", add_special_tokens=False)
    weights = words.weights(torch.tensor([[*asked.ids, 0]]))[0]
    assert weights.sum().item() == pytest.approx(1)
    assert weights[0] < weights[1]
    assert weights[-2:].tolist() == [0, 0]


def test_weights_come_back_from_the_graph(tmp_path: Path, bert: Path) -> None:
    source = {name: value.astype(np.float32) for name, value in load_file(bert / "model.safetensors").items()}
    script = export.builder()
    config = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "layer_norm_eps": 1e-5}
    held = script.constants(source, config, True) | {"projection": np.load(bert / "projection.npy")}
    onnx.save(script.build(script.Encoder(held, config, True)), tmp_path / "graph.onnx")
    state = from_graph.state_of(from_graph.constants(tmp_path / "graph.onnx"))
    for name in ("encoder.layer.1.output.dense", "encoder.layer.0.attention.self.key"):
        weight = source[f"{name}.weight"]
        assert np.abs(state[f"{name}.weight"] - weight).max() <= np.abs(weight).max() / 64
        np.testing.assert_allclose(state[f"{name}.bias"], source[f"{name}.bias"], atol=1e-5)


def test_commands_end_to_end(monkeypatch, tmp_path: Path, data: Path, bert: Path, mpnet: Path) -> None:
    negatives, scored, cross = tmp_path / "negatives.npy", tmp_path / "scored", tmp_path / "cross"
    run(monkeypatch, mine, data, bert, negatives)
    run(monkeypatch, teacher, data, negatives, mpnet, scored, "--steps", 2, "--batch", 4, "--lists", 8)
    run(monkeypatch, student, data, scored, bert, cross, "--steps", 2, "--batch", 4, "--layers", "1")
    shutil.copy(bert / "model.safetensors", cross / "model.safetensors")
    run(monkeypatch, score_lists, data, negatives, scored, cross, "--lists", 8)
    assert np.isfinite(np.load(scored / "scores.npy")).all()
    out = tmp_path / "encoder"
    run(monkeypatch, recalled_encoder, data, scored, bert, out, "--steps", 3, "--batch", 4)
    assert not torch.equal(encoder.load(bert, [(out, 1.0)]).projection, encoder.load(bert).projection)


def test_training_without_a_teacher_begins_from_averaged_weights(
    monkeypatch, tmp_path: Path, data: Path, bert: Path
) -> None:
    chosen, negatives, scored, start = (tmp_path / name for name in ("chosen.npz", "negatives.npy", "scored", "start"))
    run(monkeypatch, subset, data, chosen, "--permissive", "--without", "squad")
    monkeypatch.setattr(projection, "DIMENSIONS", 8)
    run(monkeypatch, average, bert, start, f"{bert}:0.5")
    run(monkeypatch, projection, chosen, start)
    run(monkeypatch, mine, chosen, start, negatives)
    run(monkeypatch, score_lists, chosen, negatives, scored, "--lists", 8)
    assert (np.load(scored / "scores.npy").argmax(1) == 0).all()
    out = tmp_path / "encoder"
    run(monkeypatch, recalled_encoder, chosen, scored, start, out, "--steps", 3, "--batch", 4)
    assert not torch.equal(encoder.load(start, [(out, 1.0)]).projection, encoder.load(start).projection)


def test_macro_is_the_mean_over_sets_not_over_questions() -> None:
    few, many = np.full(4, 3.0), np.full(400, 1.0)
    assert macro.macro([few, many]) == [2.0, 2.0, 2.0]
