"""Exported models: the right prompt, the right pooling, and vectors that mean what they should."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_onnx

from triskele.errors import BadInput, ModelUnavailable
from triskele.models.bundled import MODEL_FOLDER, BundledEmbedder, bundled
from triskele.models.embedder import Family, PairedEmbedder
from triskele.models.hub import HubEmbedder
from triskele.models.local import local_embedder
from triskele.models.onnx_folder import ExportedEmbedder, read_export

SIZE = 12
WORDS = 30_522
TABLE = np.random.default_rng(5).normal(size=(WORDS, SIZE)).astype(np.float32)
HIDDEN = {"last_hidden_state": ("batch", "length", SIZE)}
LOOKUP = [tiny_onnx.node("Gather", ["table", "input_ids"], "last_hidden_state")]
FIRST, LAST = 101, 102

Build = Callable[..., Path]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """A folder with a model that looks its words up, as an export lays it out."""

    def make(
        name: str = "plain-model",
        *,
        pooling: str | None = "mean",
        nodes: list[bytes] = LOOKUP,
        outputs: dict[str, Any] = HIDDEN,
        files: dict[str, Any] | None = None,
        **details: Any,
    ) -> Path:
        folder = tmp_path / name
        tiny_onnx.write(folder / "onnx" / "model.onnx", nodes, {"table": TABLE}, outputs, **details)
        shutil.copy(MODEL_FOLDER / "tokenizer.json", folder)
        documents = {"config.json": {"hidden_size": SIZE, "max_position_embeddings": 40}, **(files or {})}
        if pooling is not None:
            names = {"mean": "mean_tokens", "cls": "cls_token", "last": "lasttoken"}
            modes = {f"pooling_mode_{value}": key == pooling for key, value in names.items()}
            documents["1_Pooling/config.json"] = {"word_embedding_dimension": SIZE, **modes}
        for path, content in documents.items():
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_text(json.dumps(content))
        return folder

    return make


def ids(text: str) -> list[int]:
    return bundled().encode_query(text).token_ids.tolist() if text else []


def unit(vector: Any) -> Any:
    return vector / np.linalg.norm(vector)


def rows(*texts: str) -> Any:
    return TABLE[[FIRST, *(number for text in texts for number in ids(text)), LAST]]


def test_mean_pooling_with_token_vectors(build: Build) -> None:
    model = ExportedEmbedder(build())
    assert (model.dimensions, model.token_dimensions) == (SIZE, SIZE)
    text = "The heron, unaffordably grey"
    (encoded,) = model.encode_documents([text])
    np.testing.assert_allclose(encoded.sentence, unit(rows(text).mean(axis=0)), atol=1e-5)
    np.testing.assert_allclose(encoded.tokens, [unit(TABLE[number]) for number in ids(text)], atol=1e-5)
    np.testing.assert_array_equal(encoded.token_ids, ids(text))
    np.testing.assert_array_equal(encoded.spans, bundled().encode_query(text).spans)


@pytest.mark.parametrize(("pooling", "place"), [("cls", 0), ("last", -1)])
def test_pooling_by_one_token_gives_no_token_vectors(build: Build, pooling: str, place: int) -> None:
    position = [
        tiny_onnx.node("Gather", ["table", "input_ids"], "words"),
        tiny_onnx.node("ReduceMean", ["words"], "all", axes=[1], keepdims=1),
        tiny_onnx.node("Add", ["words", "all"], "last_hidden_state"),
    ]
    model = ExportedEmbedder(build(pooling=pooling, nodes=position))
    assert model.token_dimensions == 0
    (encoded,) = model.encode_documents(["grey heron"])
    words = rows("grey heron")
    np.testing.assert_allclose(encoded.sentence, unit(words[place] + words.mean(axis=0)), atol=1e-5)
    assert encoded.tokens.shape == (0, 0) and len(encoded.token_ids) == len(encoded.spans) == 0


def test_unknown_pooling_of_an_unknown_family_is_refused(build: Build) -> None:
    with pytest.raises(BadInput, match="set it to mean"):
        ExportedEmbedder(build(pooling=None))


FAMILIES = [
    ("bge-small-en-v1.5", "Represent this sentence for searching relevant passages: ", "", "cls"),
    ("multilingual-e5-small", "query: ", "passage: ", "mean"),
    ("nomic-embed-text-v1.5", "search_query: ", "search_document: ", "mean"),
    (
        "gte-Qwen2-1.5B-instruct",
        "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: ",
        "",
        "last",
    ),
    ("gte-large", "", "", "mean"),
    ("bge-m3", "", "", "cls"),
]


@pytest.mark.parametrize(("name", "query", "document", "pooling"), FAMILIES)
def test_families_follow_from_the_name(build: Build, name: str, query: str, document: str, pooling: str) -> None:
    assert read_export(build(name, pooling=None)).prompts == Family(query, document, pooling)


def test_prompts_come_before_the_text_and_are_not_part_of_it(build: Build) -> None:
    model = ExportedEmbedder(build("e5-tiny"))
    asked, told = model.encode_query("grey heron"), model.encode_documents(["grey heron"])[0]
    np.testing.assert_allclose(asked.sentence, unit(rows("query:", "grey heron").mean(axis=0)), atol=1e-5)
    np.testing.assert_allclose(told.sentence, unit(rows("passage:", "grey heron").mean(axis=0)), atol=1e-5)
    for found in (asked, told):
        np.testing.assert_array_equal(found.token_ids, ids("grey heron"))
        assert found.spans.tolist() == [[0, 4], [5, 10]]
        assert len(found.tokens) == 2


def test_the_folder_knows_better_than_its_name(build: Build) -> None:
    files = {"config_sentence_transformers.json": {"prompts": {"query": "Q: ", "passage": "D: "}}}
    assert read_export(build("e5-tiny", files=files)).prompts == Family("Q: ", "D: ", "mean")


def test_windows_of_a_long_text_have_the_prompt(build: Build) -> None:
    model = ExportedEmbedder(build("e5-tiny"))
    words = "one two three four five six seven eight nine ten".split() * 9
    (encoded,) = model.encode_documents([" ".join(words)])
    room = 38 - 2 - len(ids("passage:"))
    windows = [words[start : start + room] for start in range(0, 90, room)]
    mean = sum(len(w) * unit(rows("passage:", " ".join(w)).mean(axis=0)) for w in windows)
    np.testing.assert_allclose(encoded.sentence, unit(mean), atol=1e-5)
    assert len(encoded.tokens) == len(encoded.spans) == len(encoded.token_ids) == 90
    assert len(model.encode_query(" ".join(words)).tokens) == 38 - 2 - len(ids("query:"))


def test_batches_do_not_change_vectors(build: Build) -> None:
    model = ExportedEmbedder(build("e5-tiny"))
    texts = ["", " ", "heron", "grey heron", "a\ud800b", "[SEP] [CLS]", "x " * 300, "漢字", "\x00"]
    for text, encoded in zip(texts, model.encode_documents(texts), strict=True):
        (alone,) = model.encode_documents([text])
        np.testing.assert_allclose(encoded.sentence, alone.sentence, atol=1e-6)
        np.testing.assert_allclose(np.linalg.norm(encoded.sentence), 1, atol=1e-5)
        assert len(encoded.tokens) == len(encoded.token_ids) == len(encoded.spans)
    assert model.encode_documents([]) == []


@pytest.mark.parametrize("inputs", [("input_ids",), ("input_ids", "attention_mask", "position_ids")])
def test_graphs_get_the_inputs_that_they_ask_for(build: Build, inputs: tuple[str, ...]) -> None:
    folder = build(inputs=inputs)
    assert ExportedEmbedder(folder).encode_query("heron").sentence.shape == (SIZE,)


def test_unfit_graphs_are_reported_by_name(build: Build) -> None:
    with pytest.raises(ModelUnavailable, match="input that triskele does not have: 'pixel_values'"):
        ExportedEmbedder(build("a", inputs=("input_ids", "pixel_values"))).encode_query("heron")
    other = [tiny_onnx.node("Gather", ["table", "input_ids"], "logits")]
    with pytest.raises(ModelUnavailable, match="expected token_embeddings or last_hidden_state"):
        ExportedEmbedder(build("b", nodes=other, outputs={"logits": ("batch", "length", SIZE)})).encode_query("heron")
    short = build("e5-c", files={"config.json": {"hidden_size": 9}}, pooling=None)
    with pytest.raises(ModelUnavailable, match="12 dimensions, expected 9"):
        ExportedEmbedder(short).encode_query("heron")


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_vectors_that_are_no_direction_are_refused(build: Build, value: float) -> None:
    folder = build()
    table = {"table": np.full((WORDS, SIZE), value, dtype=np.float32)}
    tiny_onnx.write(folder / "onnx" / "model.onnx", LOOKUP, table, HIDDEN)
    with pytest.raises(ModelUnavailable, match="NaN or infinite"):
        ExportedEmbedder(folder).encode_query("heron")


def test_unused_layer_is_refused(build: Build) -> None:
    kinds = [{"type": f"sentence_transformers.models.{kind}"} for kind in ("Transformer", "Pooling", "Dense")]
    with pytest.raises(ModelUnavailable, match="unsupported layer: Dense"):
        ExportedEmbedder(build("a", files={"modules.json": kinds}))
    assert ExportedEmbedder(build("b", files={"modules.json": kinds[:2]})).dimensions == SIZE


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"pooling_mode": "cls"}, "cls"),
        ({"pooling_mode": "mean", "include_prompt": True}, "mean"),
        ({"pooling_mode": "lasttoken"}, "last"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
    ],
)
def test_both_ways_to_say_the_pooling_are_read(build: Build, config: dict[str, Any], expected: str) -> None:
    folder = build(pooling=None, files={"1_Pooling/config.json": config | {"embedding_dimension": SIZE}})
    assert read_export(folder).prompts.pooling == expected


@pytest.mark.parametrize(
    "config",
    [
        {"pooling_mode": "max"},
        {"pooling_mode": ["mean", "cls"]},
        {"pooling_mode_max_tokens": True},
        {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True},
        {"pooling_mode": "mean", "include_prompt": False},
    ],
)
def test_unknown_pooling_is_refused(build: Build, config: dict[str, Any]) -> None:
    folder = build("e5-tiny", pooling=None, files={"1_Pooling/config.json": config})
    with pytest.raises(ModelUnavailable, match="unsupported pooling"):
        ExportedEmbedder(folder)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"sentence_bert_config.json": {"max_seq_length": 20}, "tokenizer_config.json": {"model_max_length": 30}}, 20),
        ({"sentence_bert_config.json": {}, "tokenizer_config.json": {"model_max_length": 30}}, 30),
        ({"tokenizer_config.json": {"model_max_length": 10**30}}, 38),
        ({"config.json": {"hidden_size": SIZE, "max_position_embeddings": 8192}}, 512),
        ({"config.json": {"hidden_size": SIZE}}, 512),
    ],
)
def test_the_longest_window_is_the_one_that_the_model_names(build: Build, files: dict[str, Any], expected: int) -> None:
    assert read_export(build(files=files)).max_tokens == expected


def test_fingerprint_follows_the_vectors(build: Build) -> None:
    marks = [ExportedEmbedder(build()).fingerprint]
    for prompts in ({"query": "other "}, {"document": "d"}):
        files = {"config_sentence_transformers.json": {"prompts": prompts}}
        marks.append(ExportedEmbedder(build(files=files)).fingerprint)
    assert marks.pop(1) == marks[0]
    (build() / "config_sentence_transformers.json").unlink()
    marks.append(ExportedEmbedder(build(pooling="cls")).fingerprint)
    folder = build()
    changed = TABLE.copy()
    changed[7, 3] += 1
    tiny_onnx.write(folder / "onnx" / "model.onnx", LOOKUP, {"table": changed}, HIDDEN)
    marks.append(ExportedEmbedder(folder).fingerprint)
    (folder / "onnx" / "model.onnx_data").write_bytes(b"weights beside the graph")
    marks.append(ExportedEmbedder(folder).fingerprint)
    assert len(set(marks)) == 5
    assert all(mark.startswith("plain-model@") for mark in marks)


@pytest.mark.parametrize("broken", ["onnx/model.onnx", "tokenizer.json", "config.json"])
@pytest.mark.parametrize("how", ["missing", "garbage"])
def test_damaged_folder_is_reported_in_one_line(build: Build, broken: str, how: str) -> None:
    folder = build("bge-large")
    (folder / "1_Pooling" / "config.json").unlink()
    (folder / broken).write_text("{garbage") if how == "garbage" else (folder / broken).unlink()
    with pytest.raises(ModelUnavailable) as caught:
        ExportedEmbedder(folder).encode_query("heron")
    assert "bge-large" in str(caught.value) and "\n" not in str(caught.value)


def test_names_lead_to_models(build: Build, tmp_path: Path) -> None:
    assert local_embedder("bundled") is bundled()
    assert isinstance(local_embedder(str(MODEL_FOLDER)), BundledEmbedder)
    assert isinstance(local_embedder(str(build())), ExportedEmbedder)
    weights = build("hub-model")
    (weights / "onnx" / "model.onnx").unlink()
    (weights / "model.safetensors").write_bytes(b"w")
    embedder = local_embedder(str(weights))
    assert isinstance(embedder, PairedEmbedder) and isinstance(embedder.sentences, HubEmbedder)
    (tmp_path / "empty").mkdir()
    for name in (str(tmp_path / "empty"), str(tmp_path / "absent"), "./absent", "absent", "a/b/c"):
        with pytest.raises(BadInput, match=r"unknown model|no model in"):
            local_embedder(name)


def test_a_model_without_tokens_borrows_those_of_the_bundled_one(build: Build) -> None:
    folder = build("bge-small-en")
    (folder / "1_Pooling" / "config.json").unlink()
    embedder, alone = local_embedder(str(folder)), ExportedEmbedder(folder)
    assert (embedder.dimensions, embedder.token_dimensions) == (SIZE, bundled().token_dimensions)
    assert embedder.fingerprint == f"{alone.fingerprint}+{bundled().fingerprint}"
    query = embedder.encode_query("grey heron")
    np.testing.assert_array_equal(query.sentence, alone.encode_query("grey heron").sentence)
    np.testing.assert_array_equal(query.tokens, bundled().encode_query("grey heron").tokens)
    documents = embedder.encode_documents(["heron", "grey mill"])
    assert [len(one.tokens) for one in documents] == [len(one.spans) for one in documents] == [1, 2]
    np.testing.assert_array_equal(documents[1].sentence, alone.encode_documents(["grey mill"])[0].sentence)
    assert embedder.encode_documents([]) == []
