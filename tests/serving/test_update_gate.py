"""After an update that replaced the encoder: it comes into use only if it is not worse on the judged questions."""

from __future__ import annotations

import csv
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from noise_weights import noise_weights
from other_weights import other_weights
from sample_team import TEAM, rows_of

from triskele import config
from triskele.engine import Engine
from triskele.errors import StoreUnavailable
from triskele.evaluation.own import gate
from triskele.evaluation.own.questions import Label, make_question, save_labels, save_questions
from triskele.models import bundled
from triskele.models.bundled import BundledEmbedder
from triskele.recall import model_switch, model_update
from triskele.recall.plan import Plan, adopt
from triskele.serving.chosen_memory import gated
from triskele.stores.derived import COMPARE, MOST_TRIES
from triskele.types import Answer

# Of paraphrases, words alone find few.
ASKED = 56
NEW_TEXT = "The new crane is yellow."
Open = Callable[..., Engine]
Release = Callable[..., None]


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Release:
    """Installs a version that ships these weights, after those that shipped earlier ones and kept them."""

    def install(weights: BundledEmbedder, *earlier: BundledEmbedder, keeps: bool = True) -> None:
        for each in earlier if keeps else ():
            kept = tmp_path / "home" / "models" / each.fingerprint
            if not kept.exists():
                shutil.copytree(each._folder, kept)
        monkeypatch.setattr(bundled, "_shared", weights)
        monkeypatch.setattr(bundled, "EARLIER", tuple(each.fingerprint for each in earlier))
        monkeypatch.setattr(bundled, "FITTING", ())

    return install


@pytest.fixture(params=["file", "postgres"])
def opened(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Open]:
    """Opens the same store, as programs do that can compare."""
    environment = {"TRISKELE_HOME": str(tmp_path / "home"), "TRISKELE_RECALL_EMBED_FIRST": "0"}
    url = None if request.param == "file" else request.getfixturevalue("postgres_url")
    with ExitStack() as stack:

        def open_one() -> Engine:
            settings = config.load(environment, store_url=url)
            return gated(stack.enter_context(Engine(settings, tmp_path / "home")))

        yield open_one


@pytest.fixture
def good() -> BundledEmbedder:
    return BundledEmbedder()


@pytest.fixture
def alike(tmp_path: Path) -> BundledEmbedder:
    return other_weights(tmp_path / "alike")


@pytest.fixture
def noise(tmp_path: Path) -> BundledEmbedder:
    return noise_weights(tmp_path / "noise")


def _fill(engine: Engine, asked: int = ASKED) -> list[str]:
    """Store the answers to some paraphrases of the sample, and judge these; returns the questions."""
    texts = {row["id"]: row["text"] for row in rows_of("corpus.jsonl")}
    questions = {row["id"]: row["text"] for row in rows_of("queries.jsonl") if row["type"] == "paraphrase"}
    grades: dict[str, dict[str, int]] = {}
    for row in csv.DictReader((TEAM / "qrels.tsv").read_text().splitlines(), delimiter="\t"):
        if row["qid"] in questions:
            grades.setdefault(row["qid"], {})[row["docid"]] = int(row["grade"])
    chosen = [id for id, found in grades.items() if max(found.values()) >= 2][:asked]
    documents = sorted({document for id in chosen for document in grades[id]})
    outcomes = engine.remember_all([engine.draft(texts[each], project="") for each in documents])
    ids = dict(zip(documents, [outcome.id for outcome in outcomes], strict=True))
    made = {id: make_question(questions[id], "paraphrase", "test", judged="hand") for id in chosen}
    save_questions(engine.store, made.values())
    labels = [
        Label(question=made[id].id, memory=ids[document], grade=grade, by="hand")
        for id in chosen
        for document, grade in grades[id].items()
    ]
    save_labels(engine.store, labels, {each.id: each for each in made.values()})
    return [questions[id] for id in chosen]


def _model(engine: Engine) -> str:
    """The weights that answer."""
    answering = engine.runtime.answering()
    assert answering is not None
    return answering.embedder.fingerprint


def _asked(engine: Engine, text: str = "which machine is yellow?") -> Answer:
    return engine.recall(text, logged=False, all_projects=True)


def _updated(
    release: Release, opened: Open, before: BundledEmbedder, after: BundledEmbedder, asked: int = ASKED, **how: Any
) -> Engine:
    """A store with judged questions that the earlier weights have read, opened by the version after it."""
    release(before)
    with opened() as engine:
        _fill(engine, asked)
        engine.embed()
    release(after, before, **how)
    return opened()


def test_weights_that_are_not_worse_come_into_use_and_a_rollback_returns(
    release: Release, opened: Open, noise: BundledEmbedder, good: BundledEmbedder
) -> None:
    engine = _updated(release, opened, noise, good)
    assert _model(engine) == noise.fingerprint and "more texts" in _asked(engine).missing[0]
    engine.embed()
    assert _model(engine) == good.fingerprint and _asked(engine).missing == ()
    last = model_switch.switched(engine.store)
    assert last is not None and (last.name, last.before) == ("bundled", noise.fingerprint)
    assert last.evidence["questions"] >= gate.MIN_QUESTIONS and all(
        check["passed"] for check in last.evidence["gate"]["checks"]
    )
    model_switch.roll_back(engine.store)
    assert _model(engine) == noise.fingerprint
    assert _model(opened()) == noise.fingerprint, "a choice by hand is not compared again"
    model_switch.roll_back(engine.store)
    assert _model(engine) == good.fingerprint == _model(opened())


def test_weights_that_are_worse_stay_out_until_somebody_insists(
    release: Release, opened: Open, noise: BundledEmbedder, good: BundledEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = _updated(release, opened, good, noise)
    questions = _fill(engine)
    before = [[hit.memory.id for hit in _asked(engine, text).hits] for text in questions]
    engine.embed()
    last = model_switch.switched(engine.store)
    assert last is not None and (last.name, last.before, last.weights) == (
        good.fingerprint,
        "bundled",
        noise.fingerprint,
    )
    assert not all(check["passed"] for check in last.evidence["gate"]["checks"])
    assert _model(engine) == good.fingerprint and _asked(engine).missing == ()
    assert [[hit.memory.id for hit in _asked(engine, text).hits] for text in questions] == before
    assert "not in use" in (engine.inspect().update_note or "")
    # What is written from now on is read by the weights in use, and nothing is compared again.
    monkeypatch.setattr(gate, "compare_update", None)
    for each in (engine, opened()):
        each.remember(f"{NEW_TEXT} {id(each)}", project="")
        each.embed()
        assert _model(each) == good.fingerprint
        assert "dense" in _asked(each).hits[0].legs and NEW_TEXT in _asked(each).hits[0].memory.content
    model_switch.put_in_force(engine.store, "bundled", good.fingerprint, {})
    engine.embed()
    assert _model(engine) == noise.fingerprint == _model(opened())


def test_the_weights_of_the_update_after_that_are_tried_again(
    release: Release, opened: Open, noise: BundledEmbedder, good: BundledEmbedder, alike: BundledEmbedder
) -> None:
    engine = _updated(release, opened, good, noise)
    engine.embed()
    engine.close()
    # Both earlier ones have read everything; those that were found worse are later.
    release(alike, good, noise)
    engine = opened()
    assert _model(engine) == good.fingerprint
    engine.embed()
    assert _model(engine) == alike.fingerprint
    last = model_switch.switched(engine.store)
    assert last is not None and last.before == good.fingerprint


def test_where_the_kept_weights_are_missing_the_new_ones_answer(
    release: Release, opened: Open, noise: BundledEmbedder, good: BundledEmbedder, tmp_path: Path
) -> None:
    engine = _updated(release, opened, good, noise)
    engine.embed()
    assert _model(engine) == good.fingerprint
    shutil.rmtree(tmp_path / "home" / "models")
    again = opened()
    again.embed()
    assert _model(again) == noise.fingerprint, "as on a second machine that never kept them"


@pytest.mark.parametrize("asked", [0, gate.MIN_QUESTIONS - 1])
def test_too_few_judged_questions_decide_nothing(
    release: Release, opened: Open, noise: BundledEmbedder, good: BundledEmbedder, asked: int
) -> None:
    release(good)
    with opened() as engine:
        _fill(engine, asked)
        engine.remember(NEW_TEXT, project="")
        engine.embed()
    release(noise, good)
    engine = opened()
    engine.embed()
    last = model_switch.switched(engine.store)
    assert _model(engine) == noise.fingerprint and last is not None and last.before == good.fingerprint
    assert last.evidence["gate"] is None and last.evidence["questions"] == asked


def test_weights_that_were_not_kept_are_not_compared(
    release: Release, opened: Open, noise: BundledEmbedder, good: BundledEmbedder
) -> None:
    engine = _updated(release, opened, good, noise, keeps=False)
    engine.embed()
    assert _model(engine) == noise.fingerprint and model_switch.switched(engine.store) is None


def test_a_setting_is_obeyed(
    release: Release, opened: Open, noise: BundledEmbedder, good: BundledEmbedder, tmp_path: Path
) -> None:
    engine = _updated(release, opened, good, noise)
    settings = replace(engine.settings, origins={**engine.settings.origins, "recall.model": "config.toml"})
    engine.close()
    with gated(Engine(settings, tmp_path / "home")) as engine:
        engine.embed()
        assert _model(engine) == noise.fingerprint and model_switch.switched(engine.store) is None


def test_the_worker_compares_and_no_recall_does(
    release: Release, opened: Open, noise: BundledEmbedder, good: BundledEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[str] = []
    compare, ended = gate.compare_update, threading.Event()

    def noted(*given: Any) -> gate.ModelComparison:
        compared.append(threading.current_thread().name)
        return compare(*given)

    note = model_update.settle_update

    def ending(*given: Any, **named: Any) -> bool:
        is_noted = note(*given, **named)
        ended.set()
        return is_noted

    monkeypatch.setattr(gate, "compare_update", noted)
    monkeypatch.setattr(model_update, "settle_update", ending)
    engine = _updated(release, opened, good, noise)
    engine.embed(limit=1000)
    assert _model(engine) == good.fingerprint and compared == []
    assert "until the two are compared" in _asked(engine).missing[0] and compared == []
    engine.work_in_background()
    assert ended.wait(60) and compared == ["triskele-worker"]
    assert _model(engine) == good.fingerprint and _asked(engine).missing == ()


def test_a_comparison_that_was_cut_short_is_done_again(
    release: Release, opened: Open, noise: BundledEmbedder, good: BundledEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = _updated(release, opened, good, noise)

    def cut(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as during:
        during.setattr(gate, "compare_update", cut)
        with pytest.raises(KeyboardInterrupt):
            engine.embed()
    assert model_switch.switched(engine.store) is None and _model(opened()) == good.fingerprint
    engine.embed()
    assert model_switch.switched(engine.store) is not None


def test_one_process_compares_at_a_time(
    release: Release, opened: Open, noise: BundledEmbedder, good: BundledEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = _updated(release, opened, good, noise)
    engine.embed(limit=1000)
    other, compare, calls = opened(), gate.compare_update, 0

    def meanwhile(*given: Any) -> gate.ModelComparison:
        nonlocal calls
        calls += 1
        other.embed()
        assert model_switch.switched(other.store) is None and _model(other) == good.fingerprint
        return compare(*given)

    monkeypatch.setattr(gate, "compare_update", meanwhile)
    engine.embed()
    other.embed()
    assert calls == 1 and _model(other) == good.fingerprint == _model(engine)
    assert other.store.jobs.count(COMPARE) == 0


def test_a_lease_of_a_killed_process_ends(
    release: Release, opened: Open, noise: BundledEmbedder, good: BundledEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nor does one that ends too early begin a second comparison inside the first.
    monkeypatch.setattr(model_update, "LEASE_S", 0.0)
    engine = _updated(release, opened, good, noise)
    engine.embed(limit=1000)
    engine.store.jobs.add(COMPARE, ["update"])
    assert engine.store.jobs.claim(COMPARE, lease_s=3600)
    engine.embed()
    assert model_switch.switched(engine.store) is None
    engine.store.jobs.release(COMPARE, ["update"])
    assert engine.store.jobs.claim(COMPARE, lease_s=0.0)
    engine.embed()
    assert model_switch.switched(engine.store) is not None


def test_who_switches_during_the_comparison_is_obeyed(
    release: Release, opened: Open, noise: BundledEmbedder, good: BundledEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, compare = _updated(release, opened, noise, good), gate.compare_update

    def rolled_back(*given: Any) -> gate.ModelComparison:
        found = compare(*given)
        model_switch.roll_back(engine.store, noise.fingerprint)
        return found

    monkeypatch.setattr(gate, "compare_update", rolled_back)
    engine.embed()
    last = model_switch.switched(engine.store)
    assert last is not None and last.evidence == {} and _model(engine) == noise.fingerprint


def test_a_comparison_that_always_fails_does_not_hold_the_update_up(
    release: Release, opened: Open, noise: BundledEmbedder, good: BundledEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = _updated(release, opened, noise, good)

    def failing(*_: object) -> None:
        raise ZeroDivisionError("a text of somebody")

    monkeypatch.setattr(gate, "compare_update", failing)
    for _ in range(MOST_TRIES):
        engine.embed()
        assert _model(engine) == noise.fingerprint
    engine.embed()
    last = model_switch.switched(engine.store)
    assert last is not None and last.evidence["problem"] == "ZeroDivisionError" and _model(engine) == good.fingerprint


def test_a_store_that_cannot_be_written_stays_as_it_is(
    release: Release, opened: Open, noise: BundledEmbedder, good: BundledEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = _updated(release, opened, good, noise)
    engine.embed(limit=1000)

    def refused(*_: object, **__: object) -> None:
        raise StoreUnavailable("the store is read-only")

    monkeypatch.setattr(type(engine.store.jobs), "add", refused)
    monkeypatch.setattr(gate, "compare_update", None)
    engine.embed()
    assert _model(engine) == good.fingerprint and _asked(engine).hits
    assert model_switch.switched(engine.store) is None


def test_each_is_compared_with_the_plan_that_it_would_have(
    release: Release, opened: Open, alike: BundledEmbedder, good: BundledEmbedder
) -> None:
    """Weights adopted with the earlier encoder rest with the new one, and count for the earlier one meanwhile."""
    release(alike)
    with opened() as engine:
        _fill(engine)
        engine.embed()
        # Words alone: worse than what ships.
        adopt(engine.store, Plan(legs=frozenset({"lexical"})), fingerprint=alike.fingerprint, questions=ASKED)
        assert engine.adopted() is not None
    release(good, alike)
    engine = opened()
    assert engine.adopted() is not None
    engine.embed()
    last = model_switch.switched(engine.store)
    assert last is not None and engine.adopted() is None
    assert last.evidence["gate"]["now"]["recall@10"] > last.evidence["gate"]["before"]["recall@10"]


KILLED = """
import sys, time
from pathlib import Path
from triskele import config
from triskele.engine import Engine
from triskele.evaluation.own import gate
from triskele.models import bundled
from triskele.recall import model_update
from triskele.serving.chosen_memory import gated

home, weights, earlier, marker, step = sys.argv[1:]
bundled._shared = bundled.BundledEmbedder(Path(weights))
bundled.EARLIER, bundled.FITTING = (earlier,), ()

def stopped(*_, **__):
    Path(marker).touch()
    time.sleep(600)

setattr(gate if step == "compare_update" else model_update, step, stopped)
settings = config.load({"TRISKELE_HOME": home})
gated(Engine(settings, Path(home))).embed()
"""


@pytest.mark.parametrize("opened", ["file"], indirect=True)
@pytest.mark.parametrize("step", ["embed_lacking", "compare_update", "settle_update"])
def test_a_process_that_is_killed_leaves_the_earlier_weights_in_use_and_another_ends_the_update(
    release: Release,
    opened: Open,
    noise: BundledEmbedder,
    good: BundledEmbedder,
    tmp_path: Path,
    step: str,
) -> None:
    engine, marker = _updated(release, opened, good, noise), tmp_path / "reached"
    engine.close()
    arguments = [tmp_path / "home", noise._folder, good.fingerprint, marker, step]
    with subprocess.Popen([sys.executable, "-c", KILLED, *map(str, arguments)]) as process:
        ends = time.monotonic() + 120
        while not marker.exists() and process.poll() is None and time.monotonic() < ends:
            time.sleep(0.02)
        # Another one at work meanwhile neither compares nor decides.
        with opened() as beside:
            beside.embed(limit=1000)
            beside.runtime.settle_update()
            is_held = step != "embed_lacking"
            assert (model_switch.switched(beside.store) is None) == is_held and _model(beside) == good.fingerprint
        process.kill()
    assert marker.exists() and process.returncode == -signal.SIGKILL
    engine = opened()
    assert _model(engine) == good.fingerprint
    # As after its lease.
    engine.store.jobs.release(COMPARE, ["update"])
    engine.embed()
    last = model_switch.switched(engine.store)
    assert last is not None and last.weights == noise.fingerprint and _model(engine) == good.fingerprint
    assert engine.store.jobs.count(COMPARE) == 0


def test_a_text_that_only_the_new_weights_have_read_does_not_skip_the_comparison(
    release: Release, opened: Open, noise: BundledEmbedder, good: BundledEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _updated(release, opened, good, noise) as engine:
        engine.remember("The new crane is yellow.", project="")
        engine.runtime.semantic()
        earlier = engine.runtime._update.earlier.embedder
        encode = earlier.encode_documents

        def refusing(texts: Sequence[str]) -> Any:
            if any("crane" in text for text in texts):
                raise ValueError("no")
            return encode(texts)

        monkeypatch.setattr(earlier, "encode_documents", refusing)
        # With a limit nothing is compared: as if the process had ended before.
        engine.runtime.embed(limit=10_000, wait=True, progress=None)
        monkeypatch.undo()
    release(noise, good)
    engine = opened()
    seen = engine.store.models.seen()
    assert seen[noise.fingerprint] > seen[good.fingerprint]
    engine.embed()
    last = model_switch.switched(engine.store)
    assert last is not None and last.evidence and _model(engine) == good.fingerprint
