"""Models that are broken, unknown or in a folder: words answer, and the reason is told."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from embedded_notes import NOTES, PARAPHRASES, QUESTIONS, by_words, fill, open_engine, scored

from triskele.engine.local import LocalEngine
from triskele.errors import BadInput, ModelUnavailable
from triskele.models.manifest import GRAPH_FILE, MANIFEST_FILE, TOKENIZER_FILE
from triskele.recall.plan import Plan
from triskele.store.values import EMBED

BUNDLED = sys.modules["triskele.models.bundled"]


def _model_folder(folder: Path, damage: str) -> Path:
    folder.mkdir()
    for name in (GRAPH_FILE, MANIFEST_FILE, TOKENIZER_FILE):
        (folder / name).symlink_to(BUNDLED.MODEL_FOLDER / name)
    graph, manifest = folder / GRAPH_FILE, folder / MANIFEST_FILE
    if damage == "gone":
        graph.unlink()
    elif damage == "wrong checksum":
        graph.unlink()
        graph.write_bytes(b"not the weights")
    elif damage == "no tokenizer":
        (folder / TOKENIZER_FILE).unlink()
    elif damage == "no graph at all":
        import hashlib

        described = json.loads(manifest.read_text())
        graph.unlink()
        manifest.unlink()
        graph.write_bytes(b"garbage with the right checksum")
        described["sha256"][GRAPH_FILE] = hashlib.sha256(graph.read_bytes()).hexdigest()
        manifest.write_text(json.dumps(described))
    elif damage == "no manifest":
        manifest.unlink()
    return folder


DAMAGES = ("gone", "wrong checksum", "no tokenizer", "no graph at all", "no manifest")


@pytest.fixture
def break_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Puts a damaged copy of the model in the place of the bundled one."""
    real = BUNDLED.BundledEmbedder

    def put(damage: str) -> Path:
        folder = _model_folder(tmp_path / "model", damage)
        monkeypatch.setattr(BUNDLED, "_shared", None)
        monkeypatch.setattr(BUNDLED, "BundledEmbedder", lambda: real(folder))
        return folder

    return put


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_broken_model_is_told_and_words_answer(
    engine: LocalEngine, break_model: Callable[[str], Path], damage: str
) -> None:
    folder = break_model(damage)
    fill(engine)
    answer = engine.ask(QUESTIONS[0], Plan(prior=0), limit=50)
    assert scored(answer) == by_words(engine, QUESTIONS[0])
    [said] = answer.missing
    if damage != "no manifest":
        assert str(folder) in said
    health = engine.upkeep.inspect()
    assert health.model_problem is not None
    assert str(folder) in health.model_problem
    assert health.findings == ()


def test_a_broken_model_does_not_stop_what_needs_none(
    engine: LocalEngine, break_model: Callable[[str], Path], tmp_path: Path
) -> None:
    break_model("gone")
    ids = fill(engine)
    engine.erase(ids[0])
    engine.upkeep.backup(tmp_path / "copy.db")
    engine.upkeep.restore_backup(tmp_path / "copy.db")
    engine.upkeep.reindex()
    assert engine.why_not(ids[1], "something else altogether").verdict
    with pytest.raises(ModelUnavailable):
        engine.upkeep.embed()
    assert engine.store.jobs.count(EMBED) == len(NOTES) - 1


def test_a_sound_model_has_no_problem(embedded: tuple[LocalEngine, list[str]]) -> None:
    engine, _ = embedded
    health = engine.upkeep.inspect(deep=True)
    assert health.model_problem is None
    assert (health.vectors_damaged, health.vectors_orphaned, health.waiting) == (0, 0, 0)


def test_who_wants_no_model_has_no_problem_with_it(tmp_path: Path, break_model: Callable[[str], Path]) -> None:
    break_model("gone")
    with open_engine(tmp_path / "home", model="none") as engine:
        assert engine.upkeep.inspect().model_problem is None


# Another local model


def test_a_model_in_a_folder_is_used_by_its_path(tmp_path: Path) -> None:
    folder = _model_folder(tmp_path / "model", "")
    with open_engine(tmp_path / "home", model=str(folder)) as engine:
        ids = fill(engine)
        engine.upkeep.embed()
        for question, place in PARAPHRASES[:2]:
            assert engine.recall(question).hits[0].memory.id == ids[place]


def test_a_model_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    with (
        open_engine(tmp_path, model=str(tmp_path / "nowhere")) as engine,
        pytest.raises(BadInput, match="unknown model"),
    ):
        engine.recall("anything")
