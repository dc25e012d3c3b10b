"""`triskele models`: another model reads beside the old one and comes into use only where it is not worse."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_onnx
from other_weights import other_weights
from sample_team import grades_of, questions_of, written

from triskele.edge.cli import stores
from triskele.engine.opening import open_memory
from triskele.models import bundled
from triskele.models.bundled import MODEL_FOLDER, BundledEmbedder
from triskele.recall import model_switch

pytestmark = pytest.mark.slow

Run = Callable[..., Any]
SIZE, WORDS = 12, 30_522


@pytest.fixture
def copy(tmp_path: Path) -> str:
    """The bundled model under another name: as good as the old one."""
    folder = tmp_path / "copy"
    shutil.copytree(MODEL_FOLDER, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "name": "copy"}))
    return str(folder)


@pytest.fixture
def noise(tmp_path: Path) -> str:
    """A model whose vectors mean nothing."""
    folder = tmp_path / "noise"
    table = np.random.default_rng(5).normal(size=(WORDS, SIZE)).astype(np.float32)
    nodes = [tiny_onnx.node("Gather", ["table", "input_ids"], "last_hidden_state")]
    outputs: Any = {"last_hidden_state": ("batch", "length", SIZE)}
    tiny_onnx.write(folder / "onnx" / "model.onnx", nodes, {"table": table}, outputs)
    shutil.copy(MODEL_FOLDER / "tokenizer.json", folder)
    (folder / "config.json").write_text(json.dumps({"hidden_size": SIZE, "max_position_embeddings": 128}))
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": SIZE, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return str(folder)


@pytest.fixture
def judged(run: Run, tmp_path: Path, answers: Mapping[str, Mapping[str, int]]) -> None:
    """Sixty judged questions."""
    questions = questions_of(answers, 20)
    run("eval", "build", "--import", written(tmp_path / "q.jsonl", questions))
    run("eval", "judge", "--scripted", written(tmp_path / "g.jsonl", grades_of(questions, answers)))


def _seen() -> list[int]:
    with open_memory() as engine:
        return sorted(engine.store.models.seen().values())


@pytest.mark.usefixtures("judged")
def test_switch_uses_an_equal_model_and_rollback_is_immediate(run: Run, copy: str) -> None:
    before = run("recall", "how do releases reach the cluster?", "--json").json
    done = run("models", "switch", copy, "--json").json
    assert done["switched"] and done["model"] == copy and done["before"] == "bundled"
    assert done["evidence"]["gate"]["questions"] >= 50 and done["evidence"]["gate"]["broken"] == []
    listed = run("models", "list", "--json").json
    assert listed["local"]["fingerprint"].startswith("copy") and listed["local"]["waiting"] == 0
    after = run("recall", "how do releases reach the cluster?", "--json").json
    assert [hit["id"] for hit in after["hits"]] == [hit["id"] for hit in before["hits"]]
    run("add", "a new fact about kettles")
    assert run("recall", "kettles", "--json").json["hits"][0]["evidence"]["dense"]
    back = run("models", "rollback", "--json").json
    assert (back["model"], back["waiting"]) == ("bundled", 1)
    assert run("models", "list", "--json").json["local"]["name"] == "bundled"
    assert run("recall", "kettles", "--json").json["hits"][0]["evidence"]["dense"]


@pytest.mark.usefixtures("judged")
def test_switch_refuses_a_worse_model(run: Run, noise: str) -> None:
    refused = run("models", "switch", noise)
    assert refused.code == 1 and "✗ MRR" in refused.out and "bundled stays in use" in refused.out
    assert run("models", "list", "--json").json["local"]["name"] == "bundled"
    assert run("stats", "--json").json["waiting"] == 0, "the old model's queue is as it was"
    assert run("models", "rollback").is_refused(1, "nothing to return to")


def test_switch_without_judged_questions_needs_untested(run: Run, add: Any, noise: str) -> None:
    for text in ("the kettle is red", "the mill is old", "the heron is grey"):
        add(text)
    run("reindex")
    refused = run("models", "switch", noise)
    assert refused.code == 1 and "too few to compare" in refused.out and "--untested" in refused.out
    assert run("models", "switch", noise, "--untested", "--json").json["switched"]
    assert _seen() == [3, 3], "vectors of both lengths, each under its own mark"
    listed = run("models", "list").out
    assert "Vectors kept of other models" in listed and "triskele models rollback" in listed
    assert run("recall", "kettle", "--json").json["hits"][0]["content"] == "the kettle is red"


def test_interrupted_switch_continues(run: Run, add: Any, noise: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from triskele.index import worker

    for number in range(5):
        add(f"fact number {number}")
    run("reindex")
    monkeypatch.setattr(worker, "BATCH", 2)
    embed = worker._embed
    calls: list[int] = []

    def cut(texts: dict[str, str], *rest: Any, **options: Any) -> None:
        calls.append(len(texts))
        if len(calls) == 2:
            raise KeyboardInterrupt
        embed(texts, *rest, **options)

    monkeypatch.setattr(worker, "_embed", cut)
    assert run("models", "switch", noise, "--untested").code == 130
    assert _seen() == [2, 5]
    with open_memory() as engine:
        assert engine.models.model == "bundled" and model_switch.switched(engine.store) is None
    calls.clear()
    monkeypatch.setattr(worker, "_embed", embed)
    assert run("models", "switch", noise, "--untested").code == 0
    assert _seen() == [5, 5]


def test_switch_saves_the_absolute_path_of_a_folder(
    run: Run, add: Any, noise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    add("the kettle is red")
    run("reindex")
    monkeypatch.chdir(Path(noise).parent)
    assert run("models", "switch", "./noise", "--untested", "--json").json["model"] == noise
    monkeypatch.chdir("/")
    assert run("recall", "kettle", "--all-projects", "--json").json["hits"][0]["evidence"]["dense"]
    shutil.rmtree(noise)
    assert run("recall", "kettle", "--all-projects", "--json").json["missing"] == [
        "searched by words only: no model is installed"
    ]
    assert run("models", "rollback", "--json").json["model"] == "bundled"


def test_hub_name_is_no_local_folder(run: Run, add: Any, noise: str, monkeypatch: pytest.MonkeyPatch) -> None:
    add("anything")
    work = Path(noise).parent / "work"
    shutil.copytree(noise, work / "owner" / "model")
    monkeypatch.chdir(work)
    monkeypatch.setenv("TRISKELE_RECALL_MODEL", "owner/model")
    assert "searched by words only" in run("recall", "anything", "--json").json["missing"][0]


def test_switch_is_refused_if_a_setting_names_a_model(
    run: Run, add: Any, noise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    add("anything")
    monkeypatch.setenv("TRISKELE_RECALL_MODEL", "bundled")
    assert run("models", "switch", noise).is_refused(2, "recall.model is set", "remove it there first")


@pytest.mark.parametrize("name", ["nonsense", "/nowhere/at/all", "bundled"])
def test_switch_refuses_unknown_models(run: Run, add: Any, name: str) -> None:
    add("anything")
    assert run("models", "switch", name).is_refused(2, name)


def test_forget_hard_erases_vectors_of_every_model(run: Run, add: Any, noise: str, home: Path) -> None:
    id = add("the heron sleeps in the reeds")
    add("the mill is old")
    run("reindex")
    assert run("models", "switch", noise, "--untested").code == 0
    run("recall", "heron")
    assert len(list(home.rglob("tokens-*"))) >= 2
    run("forget", id, "--hard", "--yes")
    assert _seen() == [1, 1]
    folders = [path for path in home.rglob("tokens-*") if path.is_dir()]
    assert len(folders) == 1


@pytest.fixture
def update_to(home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[BundledEmbedder], None]:
    """Installs a version with other weights; the resident process of each version keeps its own."""

    def update(weights: BundledEmbedder) -> None:
        bundled.keep_weights(home)
        monkeypatch.setattr(bundled, "_shared", weights)
        monkeypatch.setattr(bundled, "MODEL_FOLDER", weights._folder)

    return update


@pytest.fixture
def later(tmp_path: Path) -> BundledEmbedder:
    return other_weights(tmp_path / "later", name="triskele-minilm-l6-4")


def test_models_list_shows_an_update_until_it_ends(
    run: Run, add: Any, later: BundledEmbedder, update_to: Callable[[BundledEmbedder], None]
) -> None:
    earlier = bundled.bundled().fingerprint
    add("the kettle is red")
    run("reindex")
    update_to(later)
    during = run("models", "list", "--json").json
    assert (during["local"]["name"], during["local"]["fingerprint"], during["local"]["read"]) == (earlier, earlier, 1)
    assert during["update"] == {"fingerprint": later.fingerprint, "read": 0, "waiting": 1}
    listed = run("models", "list").out
    assert "In use once everything is embedded" in listed and "0 texts embedded, 1 waiting" in listed
    output = run("reindex").out.replace("\n", " ")
    assert f"{later.fingerprint} is in use; `triskele models rollback` returns to {earlier}." in output
    after = run("models", "list", "--json").json
    assert (after["local"]["name"], after["local"]["before"], after["update"]) == ("bundled", earlier, None)
    assert after["kept"] == {earlier: 1} and "is in use" not in run("reindex").out, "said once"


def test_rollback_after_an_update_works_offline(
    run: Run, add: Any, later: BundledEmbedder, update_to: Callable[[BundledEmbedder], None], home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    earlier = bundled.bundled()
    add("the kettle is red")
    run("reindex")
    update_to(later)
    run("reindex")
    with monkeypatch.context() as lost:
        lost.setattr(bundled, "_kept_folder", lambda home, fingerprint: home / "nowhere" / fingerprint)
        assert run("models", "rollback").is_refused(1, "save the folder triskele/models/weights of that version")
    assert "triskele models rollback" in run("models", "list").out and _seen() == [1, 1]
    back = run("models", "rollback", "--json").json
    assert back["waiting"] == 0 and back["before"] == "bundled" and back["model"] == earlier.fingerprint
    assert run("recall", "what colour has the pot for tea?", "--json").json["hits"][0]["evidence"]["dense"]
    ran = run("config", "get", "recall.model")
    assert ran.out == "bundled\n" and f"{back['model']} is in use" in ran.err
    # What a store holds is right on every machine, and after the folder was moved.
    moved = home.rename(home.with_name("moved"))
    monkeypatch.setenv("TRISKELE_HOME", str(moved))
    assert run("models", "list", "--json").json["local"]["fingerprint"] == earlier.fingerprint
    assert run("models", "rollback", "--json").json["model"] == "bundled"
    assert run("config", "get", "recall.model").err == ""
    assert run("models", "switch", earlier.fingerprint, "--untested", "--json").json["switched"]
    # Who returns to the version that ships these weights needs no kept ones.
    shutil.rmtree(moved / "models")
    monkeypatch.setattr(bundled, "_shared", earlier)
    assert run("models", "list", "--json").json["local"]["fingerprint"] == earlier.fingerprint


@pytest.mark.usefixtures("judged")
def test_switch_during_an_update_compares_with_the_kept_weights(
    run: Run, noise: str, later: BundledEmbedder, update_to: Callable[[BundledEmbedder], None]
) -> None:
    earlier = bundled.bundled().fingerprint
    update_to(later)
    assert run("models", "switch", "bundled").is_refused(2, "an update is bringing it into use")
    refused = run("models", "switch", noise)
    assert refused.code == 1 and "✗ MRR" in refused.out and f"{earlier} stays in use" in refused.out
    assert run("models", "list", "--json").json["update"]["read"] == 0
    assert run("models", "switch", noise, "--untested", "--json").json["before"] == earlier
    assert run("models", "list", "--json").json["update"] is None
    assert run("models", "rollback", "--json").json["model"] == earlier


def test_reindex_finishes_an_update_without_a_background_process(
    run: Run, add: Any, later: BundledEmbedder, update_to: Callable[[BundledEmbedder], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    add("the kettle is red")
    run("reindex")
    update_to(later)
    monkeypatch.setattr(stores, "SPARE_S", 5.0)
    run("recall", "kettle")
    assert run("models", "list", "--json").json["local"]["fingerprint"] == later.fingerprint
