"""Exported graphs answer as the trained models do."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from training import cross, encoder, export, transformer

IDS = torch.tensor([[101, 2054, 2003, 102, 5055, 2003, 102], [101, 2054, 102, 5055, 102, 0, 0]])


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    """Call the command."""
    monkeypatch.setattr(sys, "argv", ["export", *map(str, arguments)])
    export.main()


@pytest.mark.parametrize(("options", "tolerance"), [(["--fp32"], 1e-3), ([], 0.05)])
def test_cross_encoder(monkeypatch, tmp_path: Path, bert: Path, options: list[str], tolerance: float) -> None:
    torch.manual_seed(1)
    model = cross.CrossEncoder(transformer.load(bert)).eval()
    cross.save(model, tmp_path / "trained", bert)
    run(monkeypatch, "cross", tmp_path / "trained", bert, tmp_path / "out", *options)
    session = onnxruntime.InferenceSession(str(tmp_path / "out" / "model.onnx"))
    (logits,) = session.run(["logits"], {"input_ids": IDS.numpy(), "attention_mask": (IDS != 0).long().numpy()})
    with torch.no_grad():
        assert np.allclose(logits, model(IDS).numpy(), atol=tolerance)


def test_averaged_encoder_retains_tokens(monkeypatch, tmp_path: Path, bert: Path) -> None:
    trained = encoder.load(bert)
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))
    encoder.save(trained, tmp_path / "trained")
    run(monkeypatch, "encoder", bert, tmp_path / "out", "--weights", f"{tmp_path / 'trained'}:0.5", "--kept")
    graph = tmp_path / "out" / "minilm.onnx"
    kept = torch.tensor([[1, 0, 0, 0, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0]])
    inputs = {"input_ids": IDS.numpy(), "attention_mask": (IDS != 0).long().numpy(), "kept": kept.numpy()}
    (sentence,) = onnxruntime.InferenceSession(str(graph)).run(["sentence"], inputs)
    with torch.no_grad():
        expected, _ = encoder.load(bert, [(tmp_path / "trained", 0.5)]).eval()(IDS, kept.bool())
    assert ((sentence * expected.numpy()).sum(-1) > 0.99).all()
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["sha256"]["minilm.onnx"] == hashlib.sha256(graph.read_bytes()).hexdigest()


def test_a_rewritten_encoder_keeps_weights_and_identity(monkeypatch, capsys, tmp_path: Path, bert: Path) -> None:
    out = tmp_path / "out"
    encoder.save(encoder.load(bert), tmp_path / "trained")
    run(monkeypatch, "encoder", bert, out, "--weights", f"{tmp_path / 'trained'}:0.5")
    graph = out / "minilm.onnx"
    first, rows = graph.read_bytes(), IDS[:1].numpy()
    expected = onnxruntime.InferenceSession(first).run(None, {"input_ids": rows, "attention_mask": np.ones_like(rows)})
    run(monkeypatch, "rewrite", out)
    found = onnxruntime.InferenceSession(str(graph)).run(None, {"input_ids": rows})
    for after, before in zip(found, expected, strict=True):
        assert ((after * before).sum(-1) > 0.999).all()
    manifest = json.loads((out / "manifest.json").read_text())
    rewritten = hashlib.sha256(graph.read_bytes()).hexdigest()
    assert manifest["sha256"]["minilm.onnx"] == rewritten
    assert f'"{rewritten}": "{hashlib.sha256(first).hexdigest()[:16]}"' in capsys.readouterr().out


def test_a_rewritten_cross_encoder_gives_the_same_logits(monkeypatch, tmp_path: Path, bert: Path) -> None:
    torch.manual_seed(1)
    cross.save(cross.CrossEncoder(transformer.load(bert)).eval(), tmp_path / "trained", bert)
    run(monkeypatch, "cross", tmp_path / "trained", bert, tmp_path / "out")
    graph, rows = tmp_path / "out" / "model.onnx", IDS[:1].numpy()
    given = {"input_ids": rows, "attention_mask": np.ones_like(rows)}
    (expected,) = onnxruntime.InferenceSession(str(graph)).run(["logits"], given)
    rewritten = onnxruntime.InferenceSession(export.rewritten(graph).SerializeToString())
    assert np.allclose(rewritten.run(["logits"], {"input_ids": rows})[0], expected, atol=1e-3)


def test_graph_with_tokens_is_not_rewritten(monkeypatch, tmp_path: Path, bert: Path) -> None:
    encoder.save(encoder.load(bert), tmp_path / "trained")
    run(monkeypatch, "encoder", bert, tmp_path / "out", "--weights", f"{tmp_path / 'trained'}:0.5", "--kept")
    with pytest.raises(SystemExit, match="kept"):
        run(monkeypatch, "rewrite", tmp_path / "out")
