"""Every training command, end to end with tiny models."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from training import cross, encoder, eval_data, evaluate, lists, mine, rerank, store, student, teacher, transformer
from training.columns import CHAIN, EMPTY


def run(monkeypatch: pytest.MonkeyPatch, module: object, *arguments: object) -> None:
    """Call a command."""
    monkeypatch.setattr(sys, "argv", ["command", *map(str, arguments)])
    module.main()


def test_commands_end_to_end(monkeypatch, tmp_path: Path, data: Path, bert: Path, mpnet: Path) -> None:
    negatives, scored = tmp_path / "negatives.npy", tmp_path / "teacher"
    run(monkeypatch, mine, data, bert, negatives)
    run(monkeypatch, teacher, data, negatives, mpnet, scored, "--steps", 3, "--batch", 4, "--lists", 8)
    made, scores = np.load(scored / "lists.npy"), np.load(scored / "scores.npy")
    assert made.shape == (8, 10, lists.COLUMNS)
    assert scores.shape == (8, 10)
    assert np.isfinite(scores).all()
    run(monkeypatch, student, data, scored, bert, tmp_path / "student", "--steps", 3, "--batch", 4, "--layers", "1")
    trained = cross.load(tmp_path / "student", bert)
    assert trained.body.shape.layers == 1
    run(monkeypatch, encoder, data, scored, bert, tmp_path / "encoder", "--steps", 3, "--batch", 4)
    half = encoder.load(bert, [(tmp_path / "encoder", 0.5)])
    assert not torch.equal(half.projection, encoder.load(bert).projection)


def test_lists_hold_the_positive_first_and_no_copy_of_it(data: Path, bert: Path) -> None:
    loaded = store.read(data, "cpu")
    candidates = mine.mine(loaded, transformer.load(bert).eval()).long()
    builder = lists.Builder(loaded, candidates, torch.Generator().manual_seed(1))
    made = builder.build(torch.arange(len(loaded.pairs)), 5)
    assert torch.equal(made[:, 0, lists.TEXT], loaded.pairs[:, 1])
    same = (made[:, 1:, lists.TEXT] == made[:, :1, lists.TEXT]) & (
        made[:, 1:, lists.SPEAKER] == made[:, :1, lists.SPEAKER]
    )
    assert not same.any()
    chains = loaded.pairs[:, 8] == CHAIN
    assert chains.any()
    assert torch.equal(made[chains, 0, lists.BEFORE1], loaded.pairs[chains, 3])
    plain = made[loaded.pairs[:, 8] == 0]
    assert (plain[..., lists.BEFORE1] == EMPTY).all()


def test_assembled_rows_are_the_joined_texts(data: Path) -> None:
    texts = store.read(data, "cpu").texts
    segments = torch.tensor([[1, 5, 2], [1, 6, 2]])
    ids, column = texts.assemble(segments, torch.tensor([1, 4, 1]))
    assert ids[0, 0] == 101
    length = min(4, int(texts.lengths[5]))
    assert ids[0, 1 + length] == 102
    assert column[0].tolist().count(1) == length
    assert (ids[column < 0] == 0).all()


def test_batches_cover_every_row_once_within_the_budget(data: Path) -> None:
    texts = store.read(data, "cpu").texts
    segments = torch.arange(3, 40)[:, None]
    seen = []
    for rows, ids, _ in texts.batches(segments, torch.tensor([50]), 64):
        seen += rows.tolist()
        assert ids.numel() <= 64 or len(rows) == 1
    assert sorted(seen) == list(range(37))


def test_context_is_read_but_not_pooled(data: Path, bert: Path) -> None:
    texts = store.read(data, "cpu").texts
    model = encoder.load(bert).eval()
    alone = encoder.frame(torch.tensor([[EMPTY, EMPTY, EMPTY, EMPTY, EMPTY, 4]]))
    behind = encoder.frame(torch.tensor([[EMPTY, 7, EMPTY, 8, EMPTY, 4]]))
    with torch.no_grad():
        first, second = (encoder.encode(model, texts, rows, encoder.OWN, 20)[1] for rows in (alone, behind))
    kept = [(tokens.abs().sum(-1) > 0).sum().item() for tokens in (first, second)]
    assert kept[0] == kept[1] == texts.lengths[4]
    assert not torch.allclose(first, second)


@pytest.fixture
def conversation(tmp_path: Path) -> Path:
    """A set with one conversation and one question."""
    folder = tmp_path / "sets" / "locomo"
    folder.mkdir(parents=True)
    about = {"scope": "a", "session": 1, "date": "2024-05-01"}
    documents = [{"id": f"d{i}", "text": f"Ann: I saw {n} cats.", "meta": about} for i, n in enumerate("12345")]
    asked = [{"id": "q1", "text": "How many cats?", "type": "plain", "meta": {"scope": "a"}}]
    for name, lines in (("corpus", documents), ("queries", asked)):
        with gzip.open(folder / f"{name}.jsonl.gz", "wt") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
    with gzip.open(folder / "qrels.tsv.gz", "wt") as file:
        file.write("qid\tdocid\tgrade\nq1\td3\t1\n")
    return folder


def test_evaluation_reports_every_question(monkeypatch, tmp_path: Path, bert: Path, conversation: Path) -> None:
    run(monkeypatch, eval_data, conversation.parent, bert / "tokenizer.json", tmp_path / "eval.npz", "locomo")
    run(monkeypatch, evaluate, tmp_path / "eval.npz", bert, tmp_path / "report.json", "shipped")
    report = json.loads((tmp_path / "report.json").read_text())
    assert set(report) == {"locomo", "locomo+context"}
    assert report["locomo"]["shipped"]["late"][0][0] == 1.0


@pytest.mark.parametrize("mpnet_body", [False, True])
def test_reranking_is_scored_and_reported(monkeypatch, tmp_path, request, conversation: Path, mpnet_body: bool) -> None:
    base = request.getfixturevalue("mpnet" if mpnet_body else "bert")
    ranked = tmp_path / "ranked"
    ranked.mkdir()
    hits = [[f"d{i}", 1 - i / 10, f"Ann: I saw {n} cats."] for i, n in enumerate("12345")]
    (ranked / "locomo.json").write_text(json.dumps({"q1": {"hits": hits}}))
    cross.save(cross.CrossEncoder(transformer.load(base)), tmp_path / "student", base)
    run(monkeypatch, rerank, "prepare", conversation.parent, ranked, base / "tokenizer.json", tmp_path / "rerank.npz")
    run(monkeypatch, rerank, "score", tmp_path / "rerank.npz", base, tmp_path / "scores.npz", tmp_path / "student")
    logits = np.load(tmp_path / "scores.npz")["student.locomo"]
    assert logits.shape == (2, 1, 10)
    assert np.isfinite(logits).all()
    monkeypatch.setattr(rerank, "WEIGHTS", (0.1,))
    arrays = dict(np.load(tmp_path / "rerank.npz"))
    assert rerank.reordered(arrays, "locomo", np.zeros((1, 10)), 0.1)[0].tolist() == [
        1.0,
        pytest.approx(1 / np.log2(5)),
    ]


def test_packed_weights_come_back(tmp_path: Path, bert: Path, monkeypatch) -> None:
    from safetensors.torch import load_file

    from training import transport

    run(monkeypatch, transport, "pack", bert, tmp_path / "packed", "--chunk-mb", "0.1")
    run(monkeypatch, transport, "unpack", tmp_path / "packed", tmp_path / "model")
    before, after = (load_file(folder / "model.safetensors") for folder in (bert, tmp_path / "model"))
    assert before.keys() == after.keys()
    assert all(torch.allclose(before[name], after[name], atol=0.05) for name in before)
