"""An update that brought another encoder: the kept weights answer until the new ones have read everything."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from other_weights import other_weights

from triskele import config
from triskele.engine.local import LocalEngine
from triskele.errors import ModelUnavailable, StoreUnavailable
from triskele.index import worker
from triskele.models import bundled
from triskele.models.bundled import BundledEmbedder
from triskele.models.embedder import Encoding
from triskele.models.inference import BundledRuntime
from triskele.recall import model_switch
from triskele.recall.plan import Plan, adopt
from triskele.store.values import EMBED, MOST_TRIES
from triskele.types import Answer

pytestmark = pytest.mark.slow

KETTLE = "The kettle is red."
CRANE = "The new crane is yellow."
TEXTS = (*(f"Barge {number} is moored at jetty {number % 7}." for number in range(30)), KETTLE)
QUESTION = "which colour does the pot for tea have?"

Install = Callable[[BundledEmbedder], None]
Open = Callable[[], LocalEngine]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a version that ships these weights, and keeps them in the data folder as the resident process does."""

    def installed(weights: BundledEmbedder) -> None:
        monkeypatch.setattr(bundled, "_shared", weights)
        monkeypatch.setattr(bundled, "MODEL_FOLDER", weights._folder)
        bundled.keep_weights(tmp_path / "home")

    return installed


@pytest.fixture
def earlier(tmp_path: Path) -> BundledEmbedder:
    return other_weights(tmp_path / "earlier", name="triskele-minilm-l6-2")


@pytest.fixture
def new() -> BundledEmbedder:
    return BundledEmbedder()


@pytest.fixture(params=["file", "postgres", "database"])
def opened(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Opens the same store, as programs of the installed version do."""
    environment = {"TRISKELE_HOME": str(tmp_path / "home")}
    monkeypatch.setattr(LocalEngine, "embed_first", 0)
    environment["TRISKELE_STORE_CORPUS"] = "database" if request.param == "database" else "local"
    url = None if request.param == "file" else request.getfixturevalue("postgres_url")
    with ExitStack() as stack:
        yield lambda: stack.enter_context(LocalEngine(config.load(environment, store_url=url), tmp_path / "home"))


@pytest.fixture
def read(install: Install, earlier: BundledEmbedder, opened: Open) -> None:
    """A store that the earlier weights have read."""
    install(earlier)
    with opened() as engine:
        engine.remember_all([{"content": text} for text in TEXTS])
        assert engine.upkeep.embed() == len(TEXTS)


@pytest.fixture
def updated(read: None, install: Install, new: BundledEmbedder, opened: Open) -> LocalEngine:
    """The same store after the update."""
    install(new)
    return opened()


def _model(engine: LocalEngine) -> str:
    semantic = engine.semantic()
    assert semantic is not None
    return semantic.embedder.fingerprint


def _asked(engine: LocalEngine, text: str = QUESTION) -> Answer:
    return engine.recall(text, logged=False)


def _is_by_meaning(answer: Answer, content: str = KETTLE) -> bool:
    is_whole = (answer.waiting, answer.missing) == (0, ())
    return is_whole and answer.hits[0].memory.content == content and {"dense", "late"} <= set(answer.hits[0].legs)


def _advance(engine: LocalEngine, limit: int) -> int | None:
    engine.semantic()
    return engine.models.advance_update(limit)


def _finish(engine: LocalEngine) -> int:
    """Embed what waits, and end the update, as `triskele reindex` does."""
    return engine.upkeep.embed() + (engine.models.advance_update() or 0)


def test_update_is_a_switch_that_kept_weights_bridge(
    updated: LocalEngine, earlier: BundledEmbedder, new: BundledEmbedder
) -> None:
    assert _model(updated) == earlier.fingerprint and _is_by_meaning(_asked(updated))
    assert _advance(updated, 12) == 12 and updated.models.update() == (new.fingerprint, 19)
    updated.remember(CRANE)
    assert updated.upkeep.embed(limit=16) == 1 and _is_by_meaning(_asked(updated, "hoisting equipment"), CRANE)
    assert _finish(updated) == 20
    assert _model(updated) == new.fingerprint and updated.models.update() is None
    assert _is_by_meaning(_asked(updated)) and _is_by_meaning(_asked(updated, "hoisting equipment"), CRANE)
    last = model_switch.switched(updated.store)
    assert last is not None and (last.name, last.before, last.weights) == (
        "bundled",
        earlier.fingerprint,
        new.fingerprint,
    )


def test_rollback_after_an_update_returns_to_the_kept_weights(
    updated: LocalEngine, earlier: BundledEmbedder, new: BundledEmbedder, opened: Open, tmp_path: Path
) -> None:
    _finish(updated)
    assert model_switch.roll_back(updated.store, tmp_path / "home").name == earlier.fingerprint
    updated.remember(CRANE)
    for engine in (updated, opened()):
        engine.upkeep.embed()
        assert _model(engine) == earlier.fingerprint and _is_by_meaning(_asked(engine, "hoisting equipment"), CRANE)
    model_switch.roll_back(updated.store, tmp_path / "home")
    assert _model(updated) == new.fingerprint == _model(opened())


@pytest.mark.parametrize("is_at_work", [True, False])
def test_text_written_during_an_update_is_found_by_meaning_at_once(
    updated: LocalEngine, earlier: BundledEmbedder, is_at_work: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The new weights may take an hour.
    monkeypatch.setattr(worker, "embed_beside", lambda *_, **__: 0)
    if is_at_work:
        updated.work_in_background()
    updated.remember(CRANE)
    ends = time.monotonic() + 60
    while is_at_work and updated.store.jobs.count(EMBED) and time.monotonic() < ends:
        time.sleep(0.01)
    updated.upkeep.embed(limit=1)
    assert _is_by_meaning(_asked(updated, "hoisting equipment"), CRANE) and _model(updated) == earlier.fingerprint


def test_worker_finishes_an_update_and_no_recall_does(
    updated: LocalEngine, earlier: BundledEmbedder, new: BundledEmbedder, opened: Open
) -> None:
    beside = opened()
    _asked(updated)
    assert beside.store.models.seen() == {earlier.fingerprint: len(TEXTS)}
    updated.work_in_background()
    ends = time.monotonic() + 60
    while _model(beside) != new.fingerprint and time.monotonic() < ends:
        time.sleep(0.02)
    assert _model(beside) == new.fingerprint and _is_by_meaning(_asked(beside)) and _is_by_meaning(_asked(updated))


def test_worker_tries_again_when_another_process_was_at_it(
    updated: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "LEASE_S", 0.2)
    updated.semantic()
    with worker.alone(updated.store, f"{EMBED} {BundledEmbedder().fingerprint}", 30, wait=True) as is_alone:
        assert is_alone and updated.models.advance_update(64) == 0
        updated.work_in_background()
        time.sleep(0.5)
        assert len(updated.store.models.seen()) == 1
    ends = time.monotonic() + 60
    while model_switch.switched(updated.store) is None and time.monotonic() < ends:
        time.sleep(0.02)
    assert model_switch.switched(updated.store) is not None


def test_refused_text_does_not_hold_an_update_up(
    updated: LocalEngine, new: BundledEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = BundledEmbedder.encode_documents

    def refusing(model: BundledEmbedder, texts: Sequence[str]) -> list[Encoding]:
        if model.fingerprint == new.fingerprint and TEXTS[0] in texts:
            raise ValueError("not this one")
        return encode(model, texts)

    monkeypatch.setattr(BundledEmbedder, "encode_documents", refusing)
    assert _finish(updated) == len(TEXTS) - 1
    assert _model(updated) == new.fingerprint and _asked(updated).waiting == 1
    for _ in range(MOST_TRIES):
        with pytest.raises(ValueError, match="not this one"):
            updated.upkeep.embed(limit=1)
    assert _is_by_meaning(_asked(updated))


def test_weights_that_cannot_be_loaded_do_not_come_into_force(
    updated: LocalEngine, earlier: BundledEmbedder, new: BundledEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    _advance(updated, 12)
    load = BundledRuntime.load

    def damaged(folder: Path, *rest: Any) -> BundledRuntime:
        if folder == new._folder:
            raise ModelUnavailable("A model file does not match its checksum")
        return load(folder, *rest)

    monkeypatch.setattr(BundledRuntime, "load", damaged)
    new._loaded = None
    with pytest.raises(ModelUnavailable, match="checksum"):
        _finish(updated)
    assert _model(updated) == earlier.fingerprint and _is_by_meaning(_asked(updated))


def test_store_that_cannot_be_written_answers_by_the_kept_weights(
    updated: LocalEngine, earlier: BundledEmbedder, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> bool:
        raise StoreUnavailable("the store is read-only")

    for writer, method in ((updated.store.vectors, "use_model"), (updated.store.jobs, "claim")):
        monkeypatch.setattr(type(writer), method, refused)
    engine = opened()
    assert _is_by_meaning(_asked(engine)) and _model(engine) == earlier.fingerprint
    with pytest.raises(StoreUnavailable):
        _advance(engine, 12)
    assert _is_by_meaning(_asked(engine))


def test_program_that_starts_in_the_middle_continues_there(
    updated: LocalEngine, earlier: BundledEmbedder, new: BundledEmbedder, opened: Open
) -> None:
    _advance(updated, 12)
    updated.close()
    again = opened()
    assert _is_by_meaning(_asked(again)) and _model(again) == earlier.fingerprint
    assert _finish(again) == 19 and _model(again) == new.fingerprint


def test_program_of_the_earlier_version_follows_the_update(
    read: None, install: Install, earlier: BundledEmbedder, new: BundledEmbedder, opened: Open
) -> None:
    before = opened()
    assert _model(before) == earlier.fingerprint
    install(new)
    updated = opened()
    _advance(updated, 12)
    install(earlier)
    before.remember(CRANE)
    assert before.upkeep.embed() == 1 and before.models.update() is None
    assert opened().models.update() is None
    install(new)
    assert _finish(updated) == 20 and _model(updated) == new.fingerprint
    install(earlier)
    assert _model(before) == new.fingerprint and _is_by_meaning(_asked(before, "hoisting equipment"), CRANE)
    assert before.upkeep.embed() == 0 and model_switch.switched(before.store) == model_switch.switched(updated.store)


def test_program_without_the_weights_in_force_leaves_the_queue_alone(
    updated: LocalEngine, install: Install, earlier: BundledEmbedder, new: BundledEmbedder, opened: Open, tmp_path: Path
) -> None:
    _finish(updated)
    shutil.rmtree(tmp_path / "home" / "models")
    install(earlier)
    before = opened()
    assert _model(before) == earlier.fingerprint and _is_by_meaning(_asked(before))
    install(new)
    updated.remember(CRANE)
    assert updated.upkeep.embed() == 1
    updated.remember("The later version writes this.")
    install(earlier)
    assert before.upkeep.embed() == 0
    install(new)
    assert updated.upkeep.embed() == 1


def test_one_command_with_another_model_does_not_stop_the_others(
    tmp_path: Path, opened: Open, new: BundledEmbedder
) -> None:
    resident = opened()
    resident.remember(KETTLE)
    assert resident.upkeep.embed() == 1
    folder = other_weights(tmp_path / "other", name="other")._folder
    settings = replace(resident.settings.recall, model=str(folder))
    origins = {**resident.settings.origins, "recall.model": "TRISKELE_RECALL_MODEL"}
    with LocalEngine(replace(resident.settings, recall=settings, origins=origins), tmp_path / "home") as command:
        assert command.recall("jetty", logged=False).waiting == 1
    resident.remember(TEXTS[0])
    assert resident.upkeep.embed(limit=16, wait=False) == 1 and resident.store.jobs.count(EMBED) == 0
    assert _is_by_meaning(_asked(resident))
    # Nor does the other model have to give way for good.
    with LocalEngine(replace(resident.settings, recall=settings, origins=origins), tmp_path / "home") as command:
        assert command.semantic() is not None and resident.upkeep.embed() == 0 and command.upkeep.embed() == 2


def test_memory_erased_during_an_update_is_in_no_answer(updated: LocalEngine, new: BundledEmbedder) -> None:
    _advance(updated, 31)
    updated.erase(_asked(updated).hits[0].memory.id)
    assert KETTLE not in [hit.memory.content for hit in _asked(updated).hits]
    assert set(updated.store.models.seen().values()) == {len(TEXTS) - 1}
    _finish(updated)
    answer, semantic = _asked(updated, "Where is barge 3?"), updated.semantic()
    assert semantic is not None and semantic.embedder.fingerprint == new.fingerprint
    assert len(semantic.tokens.missing(semantic.catalog.view().slots)) == 0
    assert answer.missing == () and KETTLE not in [hit.memory.content for hit in answer.hits]


@pytest.mark.parametrize("is_damaged", [True, False])
def test_without_whole_kept_weights_words_answer(
    updated: LocalEngine, earlier: BundledEmbedder, new: BundledEmbedder, opened: Open, tmp_path: Path, is_damaged: bool
) -> None:
    kept = tmp_path / "home" / "models" / earlier.fingerprint
    if is_damaged:
        (kept / "minilm.onnx").unlink()
        (kept / "minilm.onnx").write_bytes(b"other bytes")
    else:
        shutil.rmtree(kept)
    engine = opened()
    answer = _asked(engine)
    assert answer.waiting == len(TEXTS) and not any("dense" in hit.legs for hit in answer.hits)
    assert engine.upkeep.embed() == len(TEXTS) and _is_by_meaning(_asked(engine)) and _model(engine) == new.fingerprint


def test_latest_of_kept_weights_that_have_read_as_much_answers(
    updated: LocalEngine, install: Install, earlier: BundledEmbedder, new: BundledEmbedder, opened: Open, tmp_path: Path
) -> None:
    install(other_weights(tmp_path / "oldest", "y", name="triskele-minilm-l6"))
    oldest = opened()
    # A version that was never updated: it leaves the weights in force that have read the store.
    assert _model(oldest) == earlier.fingerprint and oldest.models.update() is None
    switched = oldest.models.candidate_model("bundled")
    worker.embed_beside(oldest.store, switched, set())
    install(new)
    assert _model(opened()) == earlier.fingerprint


def test_next_update_replaces_the_weights_of_the_one_before(
    updated: LocalEngine, install: Install, earlier: BundledEmbedder, new: BundledEmbedder, opened: Open, tmp_path: Path
) -> None:
    # No resident process has kept them: whoever puts them in force does.
    shutil.rmtree(tmp_path / "home" / "models" / new.fingerprint)
    _finish(updated)
    later = other_weights(tmp_path / "later", "z", name="triskele-minilm-l6-4")
    install(later)
    engine = opened()
    assert _model(engine) == new.fingerprint
    _finish(engine)
    last = model_switch.switched(engine.store)
    assert _model(engine) == later.fingerprint and last is not None and last.before == new.fingerprint


def test_switch_by_hand_during_an_update_is_obeyed(
    updated: LocalEngine, earlier: BundledEmbedder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = other_weights(tmp_path / "other", name="other")._folder
    finish = model_switch.finish_update

    def switched_meanwhile(*given: Any) -> None:
        model_switch.put_in_force(updated.store, str(folder), "bundled", {})
        finish(*given)

    monkeypatch.setattr("triskele.engine.models.finish_update", switched_meanwhile)
    _finish(updated)
    assert _model(updated).startswith("other@") and updated.models.update() is None
    model_switch.roll_back(updated.store, tmp_path / "home")
    assert updated.models.model == "bundled"


def test_setting_names_the_bundled_model_and_the_update_ends(
    updated: LocalEngine, earlier: BundledEmbedder, new: BundledEmbedder, tmp_path: Path
) -> None:
    settings = replace(updated.settings, origins={**updated.settings.origins, "recall.model": "config.toml"})
    with LocalEngine(settings, tmp_path / "home") as engine:
        assert _model(engine) == earlier.fingerprint
        _finish(engine)
        assert _model(engine) == new.fingerprint


def test_adopted_plan_rests_after_an_update(updated: LocalEngine, earlier: BundledEmbedder) -> None:
    plan = Plan(legs=frozenset({"lexical"}))
    adopt(updated.store, plan, fingerprint=earlier.fingerprint, questions=60)
    assert updated.adopted() is not None
    _finish(updated)
    assert updated.adopted() is None


KILLED = """
import sys, time
from pathlib import Path
from triskele import config
from triskele.engine.local import LocalEngine
from triskele.models import bundled
from triskele.engine import models
from triskele.index import worker

home, weights, marker, step = sys.argv[1:]
bundled.MODEL_FOLDER = Path(weights)
bundled._shared = bundled.BundledEmbedder(Path(weights))

def stopped(*_, **__):
    Path(marker).touch()
    time.sleep(600)

setattr(worker if step == "_embed_accepted" else models, step, stopped)
engine = LocalEngine(config.load({"TRISKELE_HOME": home}), Path(home))
engine.upkeep.embed()
engine.models.advance_update()
"""


@pytest.mark.parametrize("opened", ["file"], indirect=True)
@pytest.mark.parametrize("step", ["_embed_accepted", "finish_update"])
def test_killed_process_leaves_the_kept_weights_in_force_and_another_ends_the_update(
    updated: LocalEngine, earlier: BundledEmbedder, new: BundledEmbedder, opened: Open, tmp_path: Path, step: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    updated.close()
    marker = tmp_path / "reached"
    arguments = [tmp_path / "home", new._folder, marker, step]
    with subprocess.Popen([sys.executable, "-c", KILLED, *map(str, arguments)]) as process:
        ends = time.monotonic() + 120
        while not marker.exists() and process.poll() is None and time.monotonic() < ends:
            time.sleep(0.02)
        with opened() as beside:
            assert _model(beside) == earlier.fingerprint and _is_by_meaning(_asked(beside))
            if step == "_embed_accepted":
                assert beside.models.advance_update(64) == 0, "one process reads at a time"
        process.kill()
    assert marker.exists() and process.returncode == -signal.SIGKILL
    engine = opened()
    assert _model(engine) == earlier.fingerprint and _is_by_meaning(_asked(engine))
    # It waits until the lease of the killed process has run out.
    _finish(engine)
    last = model_switch.switched(engine.store)
    assert last is not None and last.weights == new.fingerprint == _model(engine)
