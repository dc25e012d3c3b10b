"""A cross-encoder that is trained while the tests wait, on the sample questions of the tune half, as a model folder."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tiny_onnx
from models.kernels import CENTRES, LEAST, WIDTHS, Floats, Ids, Network, padded

from triskele.bench.datasets import BenchQuery, Half, half
from triskele.bench.loaders import load_dataset
from triskele.engine.local import LocalEngine
from triskele.models.bundled import MODEL_FOLDER
from triskele.models.cross_encoder import DEPTH
from triskele.models.inference import open_tokenizer
from triskele.types import Hit

SAMPLES = Path(__file__).parents[2] / "src" / "triskele" / "samples" / "team"
DATASET = load_dataset(SAMPLES)
TOKENIZER = open_tokenizer((MODEL_FOLDER / "tokenizer.json").read_bytes(), MODEL_FOLDER)
# Marks such as [CLS], and the word for all that are unknown, come first in the list of words.
MARKS = 104
SIZE = 64
SEED = 7
# Chosen by threefold validation among the questions of the tune half.
EPOCHS, RATE, TURN_RATE, TURN_DECAY = 2, 0.03, 0.0005, 0.01

node = tiny_onnx.node
_GRAPH = [
    node("Gather", ["table", "input_ids"], "words"),
    node("MatMul", ["words", "turn"], "turned"),
    node("Mul", ["turned", "turned"], "squares"),
    node("ReduceSum", ["squares", "last"], "square", keepdims=1),
    node("Add", ["square", "least"], "above zero"),
    node("Sqrt", ["above zero"], "size"),
    node("Div", ["turned", "size"], "unit"),
    node("Transpose", ["unit"], "upright", perm=[0, 2, 1]),
    node("MatMul", ["unit", "upright"], "alike"),
    node("Unsqueeze", ["alike", "last"], "each alike"),
    node("Sub", ["each alike", "centres"], "off"),
    node("Div", ["off", "widths"], "away"),
    node("Mul", ["away", "away"], "away squared"),
    node("Mul", ["away squared", "minus half"], "exponent"),
    node("Exp", ["exponent"], "kernel"),
    node("Gather", ["gates", "input_ids"], "gate"),
    node("Cast", ["attention_mask"], "there", to=tiny_onnx.FLOAT),
    node("Cast", ["token_type_ids"], "of second", to=tiny_onnx.FLOAT),
    node("Sub", ["there", "of second"], "of first"),
    node("Sign", ["gate"], "is read"),
    node("Mul", ["is read", "of second"], "second"),
    node("Unsqueeze", ["second", "one and three"], "seconds"),
    node("Mul", ["kernel", "seconds"], "counted"),
    node("ReduceSum", ["counted", "two"], "counts", keepdims=0),
    node("Add", ["counts", "unity"], "more"),
    node("Log", ["more"], "logs"),
    node("Mul", ["gate", "of first"], "vote"),
    node("ReduceSum", ["vote", "last"], "votes", keepdims=1),
    node("Add", ["votes", "least"], "all votes"),
    node("Div", ["vote", "all votes"], "share"),
    node("Unsqueeze", ["share", "last"], "shares"),
    node("Mul", ["logs", "shares"], "shared"),
    node("ReduceSum", ["shared", "one"], "features", keepdims=0),
    node("MatMul", ["features", "mix"], "mixed"),
    node("Add", ["mixed", "shift"], "shifted"),
    node("Tanh", ["shifted"], "hidden"),
    node("MatMul", ["hidden", "out"], "logits"),
]
_CONSTANTS = {
    "centres": CENTRES,
    "widths": WIDTHS,
    "least": np.array([LEAST], dtype=np.float32),
    "minus half": np.array([-0.5], dtype=np.float32),
    "unity": np.array([1.0], dtype=np.float32),
    "last": np.array([-1]),
    "one": np.array([1]),
    "two": np.array([2]),
    "one and three": np.array([1, 3]),
}


class Lesson(NamedTuple):
    """A question, texts that were found for it, and how the grades share one among them."""

    question: Ids
    texts: Ids
    wanted: Floats


def questions(of: Half) -> list[BenchQuery]:
    """The answerable questions of one half."""
    return [query for query in DATASET.ranked() if half(query) == of]


def head(engine: LocalEngine, query: BenchQuery) -> tuple[Hit, ...]:
    """What recall finds for a question, as deep as a judge reads."""
    return engine.recall(query.text, limit=DEPTH, all_projects=True, logged=False).hits


def graded(query: BenchQuery) -> dict[str, int]:
    """The texts of the memories that have a grade for a question."""
    texts = {document.id: document.text for document in DATASET.documents}
    return {texts[document]: grade for document, grade in DATASET.qrels[query.id].items()}


def ids(text: str) -> list[int]:
    """The words of a text as the model knows them, without marks."""
    return list(TOKENIZER.encode(text, add_special_tokens=False).ids)


def untrained() -> Network:
    """The bundled model's words, most of what tells them apart kept; rare words of the memories tell more."""
    tensors = tiny_onnx.read(MODEL_FOLDER / "minilm.onnx", ("words", "words.scale"))
    table = tensors["words"].astype(np.float32) * tensors["words.scale"]
    table -= table.mean(axis=0)
    table /= np.linalg.norm(table, axis=1, keepdims=True)
    _, directions = np.linalg.eigh(table.T @ table)
    table = table @ directions[:, -SIZE:]
    table[:MARKS] = 0.0
    seen = Counter(number for document in DATASET.documents for number in set(ids(document.text)))
    count = len(DATASET.documents)
    gates = np.array([math.log(1 + count / max(1, seen[number])) for number in range(len(table))], dtype=np.float32)
    gates[:MARKS] = 0.0
    return Network.untrained(table, gates, SEED)


def lessons(engine: LocalEngine) -> list[Lesson]:
    """The tune half: judged memories among the others that recall finds."""
    return [lesson(query.text, head(engine, query), graded(query)) for query in questions("tune")]


def lesson(question: str, hits: Sequence[Hit], grades: dict[str, int]) -> Lesson:
    """One question to learn from; what is right and was not found is shown too."""
    right = [text for text, grade in grades.items() if grade > 0]
    texts = list(dict.fromkeys([*(hit.memory.content for hit in hits), *right]))
    wanted = np.array([grades.get(text, 0) for text in texts], dtype=np.float32)
    return Lesson(np.array(ids(question)), padded([ids(text) for text in texts]), wanted / wanted.sum())


def learn(network: Network, given: Sequence[Lesson]) -> Network:
    """Learn by Adam (Kingma and Ba 2015), one question at a time."""
    chance = np.random.default_rng(SEED)
    mean = {name: np.zeros_like(value) for name, value in network.weights.items()}
    square = {name: np.zeros_like(value) for name, value in network.weights.items()}
    start = network.weights["turn"]
    order = np.concatenate([chance.permutation(len(given)) for _ in range(EPOCHS)])
    for step, lesson in enumerate(order.tolist(), start=1):
        gradients = network.gradients(*given[lesson])
        # A hundred questions say little of thousands of numbers: words stay near to where they were.
        gradients["turn"] = gradients["turn"] + TURN_DECAY * (network.weights["turn"] - start)
        weights = {}
        for name, value in network.weights.items():
            mean[name] = 0.9 * mean[name] + 0.1 * gradients[name]
            square[name] = 0.999 * square[name] + 0.001 * gradients[name] ** 2
            pace = (mean[name] / (1 - 0.9**step)) / (np.sqrt(square[name] / (1 - 0.999**step)) + 1e-8)
            weights[name] = (value - (TURN_RATE if name == "turn" else RATE) * pace).astype(np.float32)
        network = network.learned(weights)
    return network


def export(network: Network, folder: Path) -> Path:
    """Write the folder that `ExportedCrossEncoder` opens."""
    weights = {"table": network.table, "gates": network.gates, **network.weights, **_CONSTANTS}
    tiny_onnx.write(folder / "model.onnx", _GRAPH, weights, {"logits": ("batch", 1)})
    shutil.copy(MODEL_FOLDER / "tokenizer.json", folder)
    # The likeness of every word with every other is held at once: longer texts are cut.
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 192, "pad_token_id": 0}))
    return folder
