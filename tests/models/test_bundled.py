"""The model that ships: what its vectors mean, and that no input makes it fail."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from triskele.errors import ModelUnavailable
from triskele.models.bundled import BundledEmbedder, bundled
from triskele.models.embedder import Encoding
from triskele.models.inference import MAX_WINDOWS

pytestmark = pytest.mark.slow

CAPACITY = 254
# Every word is one token, so that a window's words are its tokens wherever it is cut.
LONG = "The worker writes the reason into the journal and then it waits for the next task on the list. " * 40


@pytest.fixture(scope="module")
def model() -> BundledEmbedder:
    return bundled()


def one(model: BundledEmbedder, text: str) -> Encoding:
    (found,) = model.encode_documents([text])
    return found


def max_sim(query: Encoding, document: Encoding) -> float:
    return float((query.tokens @ document.tokens.T).max(axis=1).mean())


TRIPLES = [
    (
        "How do releases reach the cluster?",
        "Deployments to Kubernetes go through Argo CD.",
        "The cat sleeps on the sofa.",
    ),
    ("Who owns the billing service?", "Marta maintains the invoicing backend.", "Rain is expected on Tuesday."),
    ("reset a forgotten password", "Steps to recover account credentials", "The bridge was built in 1932."),
    ("Where does Nate live?", "Nate moved to a flat in Berlin last spring.", "Pasta needs salted water."),
]


@pytest.mark.parametrize(("query", "near", "far"), TRIPLES)
def test_a_paraphrase_lies_closer_than_a_distractor(model: BundledEmbedder, query: str, near: str, far: str) -> None:
    asked, right, wrong = model.encode_query(query), one(model, near), one(model, far)
    assert asked.sentence @ right.sentence > asked.sentence @ wrong.sentence + 0.1
    assert max_sim(asked, right) > max_sim(asked, wrong) + 0.05


def test_sentence_vectors_are_those_of_the_trained_model(model: BundledEmbedder) -> None:
    # Cosines of the trained and averaged weights in full precision.
    pairs = {
        (TRIPLES[0][0], TRIPLES[0][1]): 0.405,
        (TRIPLES[1][0], TRIPLES[1][1]): 0.459,
        (TRIPLES[2][0], TRIPLES[2][1]): 0.638,
        (TRIPLES[2][2], TRIPLES[1][2]): 0.025,
    }
    for (left, right), expected in pairs.items():
        found = float(one(model, left).sentence @ one(model, right).sentence)
        assert found == pytest.approx(expected, abs=0.02)


def test_shapes_types_and_unit_norms(model: BundledEmbedder) -> None:
    found = one(model, "Postgres holds the truth, unaffordably so.")
    count = len(found.token_ids)
    assert found.sentence.shape == (model.dimensions,) == (384,)
    assert found.tokens.shape == (count, model.token_dimensions) == (count, 96)
    assert found.spans.shape == (count, 2)
    assert found.sentence.dtype == found.tokens.dtype == np.float32
    assert found.token_ids.dtype == found.spans.dtype == np.int32
    np.testing.assert_allclose(np.linalg.norm(found.sentence), 1, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(found.tokens, axis=1), 1, atol=1e-5)


def test_encodings_are_frozen(model: BundledEmbedder) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        one(model, "fixed").sentence = np.zeros(3)  # type: ignore[misc, assignment]


def test_spans_point_at_the_words_and_special_tokens_are_gone(model: BundledEmbedder) -> None:
    text = "Zoë  met\u00a0Ünal-Bey 😀 at 9:30"
    found = one(model, text)
    words = [text[start:stop] for start, stop in found.spans]
    assert "".join(words) == "".join(text.split())
    assert words[:2] == ["Zoë", "met"]
    assert not {101, 102} & set(found.token_ids.tolist())


def test_a_token_vector_belongs_to_the_word_of_its_span(model: BundledEmbedder) -> None:
    text = "Last year the keeper painted every lighthouse white"
    document = one(model, text)
    for word in ("keeper", "lighthouse", "white"):
        best = int((model.encode_query(word).tokens[0] @ document.tokens.T).argmax())
        start, stop = document.spans[best]
        assert text[start:stop] == word


def test_special_tokens_written_in_a_text_are_just_text(model: BundledEmbedder) -> None:
    assert not {0, 101, 102, 103} & set(one(model, "[CLS] a [SEP] b [MASK] c [PAD]").token_ids.tolist())


def test_a_query_and_a_document_of_the_same_text_are_the_same(model: BundledEmbedder) -> None:
    text = "Which port does the gateway listen on?"
    np.testing.assert_array_equal(model.encode_query(text).sentence, one(model, text).sentence)


def test_vectors_do_not_depend_on_the_batch(model: BundledEmbedder) -> None:
    texts = ["short", "", LONG, *(f"Ticket {i} was closed " + "again " * (i % 9) for i in range(40)), LONG[:700]]
    for text, batched in zip(texts, model.encode_documents(texts), strict=True):
        alone = one(model, text)
        np.testing.assert_allclose(batched.sentence, alone.sentence, atol=1e-6)
        np.testing.assert_allclose(batched.tokens, alone.tokens, atol=1e-6)
        np.testing.assert_array_equal(batched.token_ids, alone.token_ids)


def test_a_long_text_keeps_every_token_and_averages_its_windows(model: BundledEmbedder) -> None:
    found = one(model, LONG)
    count = len(found.token_ids)
    assert count > 2 * CAPACITY
    assert len(found.tokens) == len(found.spans) == count
    assert found.spans[-1, 1] == len(LONG.rstrip())
    assert -(-count // CAPACITY) == 4
    edges = [*range(0, count, CAPACITY), count]
    spans = [(found.spans[a, 0], found.spans[b - 1, 1]) for a, b in pairwise(edges)]
    parts = [one(model, LONG[start:stop]) for start, stop in spans]
    mean = sum(part.sentence * len(part.token_ids) for part in parts)
    np.testing.assert_allclose(found.sentence, mean / np.linalg.norm(mean), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(found.sentence), 1, atol=1e-5)


def test_end_of_a_long_text_is_embedded(model: BundledEmbedder) -> None:
    asked = model.encode_query("Who repaired the lighthouse lamp?")
    with_it = one(model, LONG + "Ingrid repaired the lamp of the lighthouse.")
    assert max_sim(asked, with_it) > max_sim(asked, one(model, LONG)) + 0.2


def test_a_query_is_cut_at_one_window(model: BundledEmbedder) -> None:
    assert len(model.encode_query(LONG).token_ids) == CAPACITY


def test_the_work_for_one_text_is_bounded(model: BundledEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = model._runtime()
    seen: list[int] = []

    def count_tokens(self: Any, rows: list[Any]) -> tuple[Any, Any]:
        seen.append(sum(len(row) for row in rows))
        return np.ones((len(rows), 384), np.float32), np.ones((len(rows), len(rows[0]) + 2, 96), np.float32)

    monkeypatch.setattr(type(runtime), "_run", count_tokens)
    found = one(model, "漢" * 100_000)
    assert sum(seen) == len(found.token_ids) == MAX_WINDOWS * CAPACITY


ODD = [
    "",
    " ",
    "\n\t\r",
    "\x00",
    "a\x00b",
    "😀",
    "🏳️‍🌈👩‍👩‍👧",
    "\ud800",
    "a\udfffb",
    "\ufeff",
    "e\u0301" * 30,
    "[CLS] [SEP] [PAD]",
]
MIXED = [
    "e\u0301" * 30,
    "[CLS] [SEP] [PAD]",
    "漢字かな交じり文 и русский عربى हिन्दी",
    "x" * 100_000,
    " " * 100_000,
    "\u202eright to left",
    "﷽",
]


@pytest.mark.parametrize("text", ODD + MIXED)
def test_odd_texts_give_finite_unit_vectors(model: BundledEmbedder, text: str) -> None:
    for found in (one(model, text), model.encode_query(text)):
        assert np.isfinite(found.sentence).all()
        np.testing.assert_allclose(np.linalg.norm(found.sentence), 1, atol=1e-5)
        assert len(found.tokens) == len(found.token_ids) == len(found.spans)
        assert (found.spans >= 0).all()
        assert (found.spans <= len(text)).all()


def test_no_texts_no_encodings(model: BundledEmbedder) -> None:
    assert model.encode_documents([]) == []


def test_an_answer_that_is_not_a_number_is_an_error() -> None:
    broken = BundledEmbedder()
    runtime = broken._runtime()

    def run(names: list[str], inputs: dict[str, Any]) -> list[Any]:
        ids = inputs["input_ids"]
        return [np.full((len(ids), 384), np.nan, np.float32), np.ones((*ids.shape, 96), np.float32)]

    broken._loaded = dataclasses.replace(runtime, session=SimpleNamespace(run=run))
    with pytest.raises(ModelUnavailable, match="NaN or infinite"):
        broken.encode_query("anything")


def test_one_model_per_process_also_from_many_threads(model: BundledEmbedder) -> None:
    text = "threads share the graph"
    with ThreadPoolExecutor(8) as pool:
        assert {id(found) for found in pool.map(lambda _: bundled(), range(16))} == {id(model)}
        vectors = [found.sentence for found in pool.map(lambda _: model.encode_query(text), range(16))]
    for vector in vectors:
        np.testing.assert_array_equal(vector, vectors[0])


def test_importing_the_room_loads_nothing_heavy() -> None:
    heavy = "{'numpy', 'onnxruntime', 'tokenizers'}"
    load = "from triskele.models.bundled import bundled; bundled().fingerprint"
    code = f"import sys; {load}; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_runtime_leaves_no_word_about_its_use(tmp_path: Path) -> None:
    program = "from triskele.models.bundled import bundled; bundled().encode_query('quiet'); import time; time.sleep(1)"
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    homes = {name: str(tmp_path) for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")}
    subprocess.run([sys.executable, "-c", program], env=environment | homes, check=True)
    assert list(tmp_path.rglob("*")) == []
