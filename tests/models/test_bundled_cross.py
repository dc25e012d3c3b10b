"""The cross-encoder that ships: what changes its logits, what it truncates, and that it respects its deadline."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

from triskele.errors import ModelUnavailable
from triskele.models.bundled import MODEL_FOLDER, BundledCrossEncoder, bundled_cross_encoder
from triskele.models.cross_encoder import Context, Reranker
from triskele.models.inference import CrossRuntime
from triskele.models.local import local_cross_encoder
from triskele.models.manifest import CROSS_FILE, read_manifest, read_verified


@pytest.fixture(scope="module")
def model() -> BundledCrossEncoder:
    return bundled_cross_encoder()


def rows(model: BundledCrossEncoder, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The token ids of everything that is scored from now on."""
    seen: list[list[int]] = []
    session = model._runtime().session

    class Watched:
        get_inputs, get_outputs = session.get_inputs, session.get_outputs

        def run(self, names: None, given: dict[str, np.ndarray]) -> list[np.ndarray]:
            seen.extend(given["input_ids"].tolist())
            return list(session.run(names, given))

    runtime = model._runtime()
    watched = CrossRuntime(Watched(), runtime.tokenizer, runtime.first, runtime.last, runtime.capacity, runtime.folder)
    monkeypatch.setattr(model, "_loaded", watched)
    return seen


def test_it_is_the_cross_encoder_named_bundled(model: BundledCrossEncoder) -> None:
    assert local_cross_encoder("bundled") is model
    assert model.name == read_manifest(MODEL_FOLDER).cross_name != ""


def test_an_answer_has_better_odds_than_a_stranger_and_the_right_speaker_than_the_wrong_one(
    model: BundledCrossEncoder,
) -> None:
    answer, stranger = model.score("Where does Nate live?", ["Nate moved to a flat in Berlin.", "Pasta needs salt."])
    assert answer > 0 > stranger
    right, wrong = model.score("Where does Nate live?", ["Nate: I moved to Berlin", "Ann: I moved to Berlin"])
    assert right > wrong + 1


def test_previous_turn_gives_context_to_a_short_answer(model: BundledCrossEncoder) -> None:
    question, answer = "Which instrument does Ann play?", ["Ann: The cello, since I was six."]
    fitting = Context("2024-05-01", ("Ben: Do you play an instrument, Ann?",))
    other = Context("2024-05-01", ("Ben: What was stolen from your car, Ann?",))
    assert model.score(question, answer, [fitting])[0] > model.score(question, answer, [other])[0]
    assert model.score(question, answer, [Context()])[0] == model.score(question, answer)[0]


def test_scores_do_not_depend_on_the_batch(model: BundledCrossEncoder) -> None:
    texts = ["the grey heron", "", "a mill by the river " * 90, "heron", "\ud800", "[SEP]", "the old heron"]
    alone = [model.score("where is the heron?", [text])[0] for text in texts]
    np.testing.assert_allclose(model.score("where is the heron?", texts), alone, atol=1e-4)
    assert model.score("anything", []).shape == (0,)


def test_every_part_is_cut_where_it_was_cut_in_training(
    model: BundledCrossEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = rows(model, monkeypatch)
    long = "heron " * 500
    model.score(long, ["one"])
    model.score("one", [long])
    model.score("one", ["one"], [Context(long, (long, long, long))])
    model.score(long, [long], [Context(long, (long,))])
    assert [len(row) for row in seen] == [1 + 48 + 1 + 1 + 1, 1 + 1 + 1 + 192 + 1, 5 + 16 + 40 + 40 + 1, 256]
    assert [row.count(102) for row in seen[:3]] == [2, 2, 3]


def test_score_needs_one_context_per_text(model: BundledCrossEncoder) -> None:
    with pytest.raises(ValueError, match="zip"):
        model.score("one", ["one", "two"], [Context()])


def test_who_has_no_time_left_does_not_wait_and_the_threads_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    model, go, begun = BundledCrossEncoder(), threading.Event(), threading.Semaphore(0)

    def hang(*given: object) -> np.ndarray:
        begun.release()
        go.wait(60)
        return np.zeros(1, dtype=np.float32)

    monkeypatch.setattr(model, "score", hang)
    for _ in range(2):
        with pytest.raises(TimeoutError):
            model.score_within(0, "one", ["two"])
        assert begun.acquire(timeout=60)
    with pytest.raises(TimeoutError):
        model.score_within(60, "one", ["two"])
    assert not begun.acquire(blocking=False)
    go.set()


def test_in_time_it_scores_as_ever(model: BundledCrossEncoder) -> None:
    given = "where is the heron?", ["the grey heron", "a mill"]
    np.testing.assert_array_equal(model.score_within(60, *given), model.score(*given))
    assert Reranker(model, timeout_s=60).rerank(given[0], {7: "a mill", 9: "the grey heron"}).order == (9, 7)


@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(b"x" + path.read_bytes()[1:]), Path.unlink])
def test_damaged_cross_encoder_is_reported_and_not_loaded(tmp_path: Path, damage: object) -> None:
    folder = tmp_path / "weights"
    shutil.copytree(MODEL_FOLDER, folder)
    assert callable(damage)
    damage(folder / CROSS_FILE)
    with pytest.raises(ModelUnavailable, match=CROSS_FILE):
        BundledCrossEncoder(folder).prepare()


def test_the_files_that_ship_are_those_of_the_manifest_and_small() -> None:
    manifest = read_manifest(MODEL_FOLDER)
    sums = {
        "minilm.onnx": manifest.graph_sha256,
        CROSS_FILE: manifest.cross_sha256,
        "tokenizer.json": manifest.tokenizer_sha256,
    }
    card = (MODEL_FOLDER / "MODEL_CARD.md").read_text(encoding="utf-8")
    for name, sha256 in sums.items():
        assert len(read_verified(MODEL_FOLDER / name, sha256)) < 25_000_000
        assert sha256 in card, f"the card names another {name}"
