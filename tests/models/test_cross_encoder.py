"""A cross-encoder from a folder: a small real graph that reads both texts together."""

from __future__ import annotations

import json
import math
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_onnx
from tokenizers import Tokenizer

from triskele.errors import ModelUnavailable
from triskele.models.bundled import MODEL_FOLDER
from triskele.models.cross_encoder import ExportedCrossEncoder, Reranker

node = tiny_onnx.node
WORDS, SIZE = 30_522, 32
LOGITS = {"logits": ("batch", 1)}
SAMPLES = Path(__file__).parents[2] / "src" / "triskele" / "samples" / "team"

# Layer one: each word looks for its like in the other text. Layer two: a weighted vote of the words of the question.
GRAPH = [
    node("Gather", ["table", "input_ids"], "words"),
    node("Gather", ["weights", "input_ids"], "weight"),
    node("Cast", ["token_type_ids"], "second", to=1),
    node("Cast", ["attention_mask"], "there", to=1),
    node("Sub", ["there", "second"], "first"),
    node("Transpose", ["words"], "turned", perm=[0, 2, 1]),
    node("MatMul", ["words", "turned"], "alike"),
    node("Unsqueeze", ["second", "axis_one"], "columns"),
    node("Mul", ["alike", "columns"], "matches"),
    node("ReduceMax", ["matches"], "best", axes=[2], keepdims=0),
    node("Mul", ["weight", "first"], "votes"),
    node("Mul", ["best", "votes"], "voted"),
    node("ReduceSum", ["voted", "axis_one"], "sum", keepdims=1),
    node("ReduceSum", ["votes", "axis_one"], "all", keepdims=1),
    node("Div", ["sum", "all"], "share"),
    node("Mul", ["share", "slope"], "sloped"),
    node("Add", ["sloped", "bias"], "logits"),
]


def _documents() -> dict[str, str]:
    lines = (SAMPLES / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    return {entry["id"]: entry["text"] for entry in map(json.loads, lines)}


def _weights(texts: list[str]) -> Any:
    """What is learned from the corpus: rare words tell more; the marks around texts tell nothing."""
    tokenizer = Tokenizer.from_file(str(MODEL_FOLDER / "tokenizer.json"))
    seen = Counter(number for text in texts for number in set(tokenizer.encode(text, add_special_tokens=False).ids))
    learned = np.full(WORDS, math.log(1 + len(texts)), dtype=np.float32)
    for number, count in seen.items():
        learned[number] = math.log(1 + len(texts) / count)
    learned[:104] = 1e-6
    # Padding would shout, if it were read.
    learned[0] = 5.0
    return learned


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny-cross"
    table = np.random.default_rng(3).normal(size=(WORDS, SIZE)).astype(np.float32)
    weights = {
        "table": table / np.linalg.norm(table, axis=1, keepdims=True),
        "weights": _weights(list(_documents().values())),
        "axis_one": np.array([1]),
        "slope": np.array([8.0], dtype=np.float32),
        "bias": np.array([-4.0], dtype=np.float32),
    }
    tiny_onnx.write(folder / "model.onnx", GRAPH, weights, LOGITS)
    shutil.copy(MODEL_FOLDER / "tokenizer.json", folder)
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 512, "pad_token_id": 0}))
    return folder


@pytest.fixture
def copied(model: Path, tmp_path: Path) -> Callable[..., Path]:
    def copy(nodes: list[bytes] | None = None, **config: Any) -> Path:
        folder = tmp_path / "copy"
        shutil.copytree(model, folder, dirs_exist_ok=True)
        if nodes is not None:
            sizes = {"table": np.ones((WORDS, 3), dtype=np.float32), "one": np.array([1])}
            tiny_onnx.write(folder / "model.onnx", nodes, sizes, {"logits": ("batch", "any")})
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    return copy


def test_a_shuffled_head_comes_back_into_order(model: Path) -> None:
    """On the sample questions the whole pipeline runs for real, from tokens to a new order."""
    documents = _documents()
    lines = (SAMPLES / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    questions = {entry["id"]: entry["text"] for entry in map(json.loads, lines) if entry["type"] == "exact"}
    grades: dict[str, set[str]] = {}
    for line in (SAMPLES / "qrels.tsv").read_text().splitlines()[1:]:
        question, document, grade = line.split("\t")
        if int(grade) > 0:
            grades.setdefault(question, set()).add(document)
    chance = random.Random(1)
    judge = Reranker(ExportedCrossEncoder(model), timeout_s=60)
    before, after = [], []
    for number, text in list(questions.items())[:20]:
        right = sorted(grades[number])[:1]
        head = right + chance.sample(sorted(set(documents) - grades[number]), 19)
        chance.shuffle(head)
        verdict = judge.rerank(text, dict(enumerate(documents[one] for one in head)))
        assert verdict.missing == "" and verdict.agreement is not None
        before.append(1 / (1 + head.index(right[0])))
        after.append(1 / (1 + verdict.order.index(head.index(right[0]))))
    assert np.mean(after) > 0.7 > 0.4 > np.mean(before)


def test_scores_do_not_depend_on_the_batch(model: Path) -> None:
    encoder = ExportedCrossEncoder(model)
    texts = ["the grey heron", "", "a mill by the river " * 30, "heron", "\ud800", "[SEP]"]
    together = encoder.score("where is the heron?", texts)
    alone = [encoder.score("where is the heron?", [text])[0] for text in texts]
    np.testing.assert_allclose(together, alone, atol=1e-4)
    assert together.shape == (6,) and together.argmax() in (0, 3)


def test_long_texts_and_long_questions_are_cut_at_512_tokens(model: Path) -> None:
    encoder = ExportedCrossEncoder(model)
    encoder.score("warm", ["up"])
    assert encoder._loaded is not None
    session, tokenizer = encoder._loaded
    lengths: list[tuple[int, int]] = []

    class Watched:
        get_inputs, get_outputs = session.get_inputs, session.get_outputs

        def run(self, names: Any, given: dict[str, Any]) -> Any:
            first = int((given["token_type_ids"] == 0).sum(axis=1)[0])
            lengths.append((given["input_ids"].shape[1], first))
            return session.run(names, given)

    encoder._loaded = (Watched(), tokenizer)
    encoder.score("heron", ["mill " * 3000])
    encoder.score("heron " * 3000, ["mill " * 3000])
    encoder.score("heron", ["mill"])
    assert lengths == [(512, 3), (512, 256), (5, 3)]


def test_two_logits_are_read_as_their_difference(copied: Callable[..., Path]) -> None:
    nodes = [
        node("Cast", ["token_type_ids"], "types", to=1),
        node("ReduceSum", ["types", "one"], "length", keepdims=1),
        node("Neg", ["length"], "less"),
        node("Concat", ["less", "length"], "logits", axis=1),
    ]
    scores = ExportedCrossEncoder(copied(nodes)).score("q", ["a", "a a a"])
    np.testing.assert_allclose(scores, [4.0, 8.0])


def test_shapes_that_are_no_scores_are_refused(copied: Callable[..., Path]) -> None:
    nodes = [node("Cast", ["token_type_ids"], "logits", to=1)]
    with pytest.raises(ModelUnavailable, match="shape"):
        ExportedCrossEncoder(copied(nodes)).score("q", ["a", "b"])


def test_a_score_that_is_not_a_number_is_refused(copied: Callable[..., Path]) -> None:
    nodes = [
        node("Cast", ["token_type_ids"], "types", to=1),
        node("ReduceSum", ["types", "one"], "length", keepdims=1),
        node("Neg", ["length"], "less"),
        node("Log", ["less"], "logits"),
    ]
    with pytest.raises(ModelUnavailable, match="NaN or infinite"):
        ExportedCrossEncoder(copied(nodes)).score("q", ["a", "b"])


@pytest.mark.parametrize("broken", ["model.onnx", "tokenizer.json"])
@pytest.mark.parametrize("how", ["missing", "garbage"])
def test_damaged_model_is_reported_in_one_line(copied: Callable[..., Path], broken: str, how: str) -> None:
    folder = copied()
    (folder / broken).write_text("{garbage") if how == "garbage" else (folder / broken).unlink()
    with pytest.raises(ModelUnavailable) as caught:
        ExportedCrossEncoder(folder).score("q", ["a"])
    assert "copy" in str(caught.value) and "\n" not in str(caught.value)
