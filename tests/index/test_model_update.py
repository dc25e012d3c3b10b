"""After an update that replaced the weights: earlier vectors that fit answer until the new model has read the texts."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from other_weights import other_weights

from triskele import config
from triskele.engine import Engine
from triskele.errors import StoreUnavailable
from triskele.index import worker
from triskele.models import bundled
from triskele.models.bundled import MODEL_FOLDER, BundledEmbedder, earlier_weights
from triskele.models.embedders import Encoding
from triskele.stores.derived import EMBED, MOST_TRIES
from triskele.types import Answer

KETTLE = "The kettle is red."
TEXTS = (*(f"Barge {number} is moored at jetty {number % 7}." for number in range(30)), KETTLE)
QUESTION = "which colour does the pot for tea have?"

OpenWith = Callable[[BundledEmbedder], Engine]


@pytest.fixture
def earlier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BundledEmbedder:
    """Weights that shipped before; their vectors fit, because they are the same weights in another file."""
    model = other_weights(tmp_path / "earlier")
    monkeypatch.setattr(bundled, "EARLIER", (model.fingerprint,))
    monkeypatch.setattr(bundled, "FITTING", (model.fingerprint,))
    return model


@pytest.fixture(params=["file", "postgres", "database"])
def open_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[OpenWith]:
    """Opens the same store with one model or another, as programs of two versions do."""
    environment = {"TRISKELE_HOME": str(tmp_path / "home"), "TRISKELE_RECALL_EMBED_FIRST": "0"}
    environment["TRISKELE_STORE_CORPUS"] = "database" if request.param == "database" else "local"
    url = None if request.param == "file" else request.getfixturevalue("postgres_url")
    with ExitStack() as stack:

        def opened(model: BundledEmbedder) -> Engine:
            monkeypatch.setattr(bundled, "_shared", model)
            engine = stack.enter_context(Engine(config.load(environment, store_url=url), tmp_path / "home"))
            assert engine.semantic() is not None
            return engine

        yield opened


@pytest.fixture
def updated(earlier: BundledEmbedder, open_with: OpenWith) -> Engine:
    """A store that the earlier weights have read, opened with those of today."""
    engine = open_with(earlier)
    engine.remember_all([engine.draft(text) for text in TEXTS])
    assert engine.embed() == len(TEXTS)
    engine.close()
    return open_with(BundledEmbedder())


def _asked(engine: Engine) -> Answer:
    return engine.recall(QUESTION, logged=False)


def _is_by_meaning(answer: Answer) -> bool:
    return answer.hits[0].memory.content == KETTLE and {"dense", "late"} <= set(answer.hits[0].legs)


def test_the_earlier_vectors_answer_until_the_new_model_has_read_the_texts(updated: Engine) -> None:
    answer = _asked(updated)
    assert _is_by_meaning(answer) and answer.waiting == 0
    assert answer.missing and "until it has read 31 more texts" in answer.missing[0]
    updated.remember("The new crane is yellow.")
    assert updated.embed(limit=12) == 12
    answer = _asked(updated)
    assert _is_by_meaning(answer) and answer.waiting == 1 and "20 more texts" in answer.missing[0]
    assert updated.embed() == 20
    answer = _asked(updated)
    assert _is_by_meaning(answer) and (answer.waiting, answer.missing) == (0, ())
    again = updated.recall("which machine is yellow?", logged=False)
    assert again.hits[0].memory.content == "The new crane is yellow." and "dense" in again.hits[0].legs


def test_the_last_texts_are_found_until_the_new_model_has_read_them(updated: Engine) -> None:
    assert updated.embed(limit=len(TEXTS) - 1) == len(TEXTS) - 1
    answer = _asked(updated)
    assert _is_by_meaning(answer) and "read 1 more text, answers" in answer.missing[0]
    assert updated.embed() == 1
    assert _is_by_meaning(_asked(updated)) and _asked(updated).missing == ()


def test_a_text_that_the_new_model_refuses_does_not_hold_the_update_up(
    updated: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = BundledEmbedder.encode_documents

    def refusing(model: BundledEmbedder, texts: Sequence[str]) -> list[Encoding]:
        if TEXTS[0] in texts:
            raise ValueError("not this one")
        return encode(model, texts)

    monkeypatch.setattr(BundledEmbedder, "encode_documents", refusing)
    for _ in range(MOST_TRIES):
        with suppress(ValueError):
            updated.embed(limit=len(TEXTS))
    assert [job.tries for job in updated.store.jobs.given_up(EMBED)] == [MOST_TRIES]
    assert _is_by_meaning(_asked(updated)) and _asked(updated).missing == ()


def test_a_store_that_cannot_be_written_when_it_is_opened_answers_from_the_earlier_vectors(
    earlier: BundledEmbedder, open_with: OpenWith, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> bool:
        raise StoreUnavailable("the store is read-only")

    with open_with(earlier) as engine:
        engine.remember_all([engine.draft(text) for text in TEXTS])
        engine.embed()
        monkeypatch.setattr(type(engine.store.vectors), "queue_for", refused)
    again = open_with(BundledEmbedder())
    assert again.store.vectors.count_waiting() == 0
    answer = _asked(again)
    assert _is_by_meaning(answer) and "31 more texts" in answer.missing[0]


def test_a_program_that_starts_in_the_middle_goes_on_there(updated: Engine, open_with: OpenWith) -> None:
    updated.embed(limit=12)
    updated.close()
    again = open_with(BundledEmbedder())
    answer = _asked(again)
    assert _is_by_meaning(answer) and "19 more texts" in answer.missing[0]
    assert again.embed() == 19 and _asked(again).missing == ()


def test_a_program_of_the_version_before_does_not_end_the_update(
    updated: Engine, earlier: BundledEmbedder, open_with: OpenWith
) -> None:
    updated.embed(limit=12)
    before = open_with(earlier)
    before.remember("The version before writes this.")
    assert before.embed() == 1
    answer = _asked(updated)
    assert _is_by_meaning(answer) and "20 more texts" in answer.missing[0]
    assert updated.embed() == 20 and updated.store.jobs.count(EMBED) == 0
    assert _is_by_meaning(_asked(updated)) and _asked(updated).missing == ()
    # Its own queue was taken: what it embedded now would stay in the queue and be embedded again.
    updated.remember("The later version writes this.")
    assert before.embed() == 0 and updated.embed() == 1


def test_one_command_with_another_model_does_not_stop_the_others(
    tmp_path: Path, open_with: OpenWith, monkeypatch: pytest.MonkeyPatch
) -> None:
    resident = open_with(BundledEmbedder())
    resident.remember(KETTLE)
    assert resident.embed() == 1
    folder = other_weights(tmp_path / "other", name="other")._folder
    settings = replace(resident.settings.recall, model=str(folder))
    origins = {**resident.settings.origins, "recall.model": "TRISKELE_RECALL_MODEL"}
    with Engine(replace(resident.settings, recall=settings, origins=origins), tmp_path / "home") as command:
        assert command.recall("jetty", logged=False).waiting == 1
    resident.remember(TEXTS[0])
    assert resident.embed(limit=16, wait=False) == 1 and resident.store.jobs.count(EMBED) == 0
    assert _is_by_meaning(_asked(resident)) and _asked(resident).waiting == 0
    # Nor does the other model have to give way for good.
    with Engine(replace(resident.settings, recall=settings, origins=origins), tmp_path / "home") as command:
        assert command.semantic() is not None and resident.embed() == 0 and command.embed() == 2


def test_what_is_erased_during_an_update_is_in_no_answer(updated: Engine) -> None:
    assert _is_by_meaning(_asked(updated))
    updated.erase(_asked(updated).hits[0].memory.id)
    assert KETTLE not in [hit.memory.content for hit in _asked(updated).hits]
    assert set(updated.store.models.seen().values()) == {len(TEXTS) - 1}
    updated.embed()
    answer = _asked(updated)
    assert answer.missing == () and KETTLE not in [hit.memory.content for hit in answer.hits]


def test_vectors_that_do_not_fit_are_not_read(
    updated: Engine, open_with: OpenWith, monkeypatch: pytest.MonkeyPatch
) -> None:
    updated.close()
    monkeypatch.setattr(bundled, "FITTING", ())
    answer = _asked(open_with(BundledEmbedder()))
    assert answer.waiting == len(TEXTS) and not any("dense" in hit.legs for hit in answer.hits)


def test_weights_that_were_kept_answer_even_where_theirs_do_not_fit(
    tmp_path: Path,
    updated: Engine,
    earlier: BundledEmbedder,
    open_with: OpenWith,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    updated.close()
    monkeypatch.setattr(bundled, "FITTING", ())
    monkeypatch.setattr(bundled, "MODEL_FOLDER", tmp_path / "earlier")
    monkeypatch.setattr(bundled, "_shared", earlier)
    bundled.keep_weights(tmp_path / "home")
    shutil.rmtree(tmp_path / "earlier")
    again = open_with(BundledEmbedder(MODEL_FOLDER))
    answer = _asked(again)
    assert _is_by_meaning(answer) and "31 more texts" in answer.missing[0]
    again.embed()
    assert _is_by_meaning(_asked(again)) and _asked(again).missing == ()


@pytest.fixture
def kept(tmp_path: Path, updated: Engine, earlier: BundledEmbedder, open_with: OpenWith) -> Engine:
    """The same store, where the version before has kept its weights."""
    updated.close()
    shutil.copytree(earlier._folder, tmp_path / "home" / "models" / earlier.fingerprint)
    return open_with(BundledEmbedder())


@pytest.mark.parametrize("is_at_work", [True, False])
def test_what_is_written_during_an_update_is_found_by_meaning_at_once(
    kept: Engine, earlier: BundledEmbedder, is_at_work: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.embed(limit=12)
    with monkeypatch.context() as held:
        # The new model reads nothing more: it may take an hour.
        held.setattr(worker, "embed_waiting", lambda *_, **__: 0)
        if is_at_work:
            kept.work_in_background()
        kept.remember("The new crane is yellow.")
        if is_at_work:
            ends = time.monotonic() + 60
            while kept.store.models.count_lacking(earlier.fingerprint) and time.monotonic() < ends:
                time.sleep(0.01)
        else:
            kept.embed(limit=1)
        answer = kept.recall("hoisting equipment", logged=False)
    assert answer.hits[0].memory.content == "The new crane is yellow." and answer.waiting == 0
    assert {"dense", "late"} <= set(answer.hits[0].legs) and "20 more texts" in answer.missing[0]
    assert kept.store.models.seen() == {earlier.fingerprint: 32, BundledEmbedder().fingerprint: 12}
    kept.embed()
    answer = kept.recall("hoisting equipment", logged=False)
    assert answer.hits[0].memory.content == "The new crane is yellow." and answer.missing == ()


def test_a_text_that_the_earlier_weights_refuse_does_not_hold_the_new_ones_up(
    kept: Engine, earlier: BundledEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode, refused = BundledEmbedder.encode_documents, "The new crane is yellow."

    def refusing(model: BundledEmbedder, texts: Sequence[str]) -> list[Encoding]:
        if model.fingerprint == earlier.fingerprint and refused in texts:
            raise ValueError("not this one")
        return encode(model, texts)

    monkeypatch.setattr(BundledEmbedder, "encode_documents", refusing)
    for text in (refused, "The old crane is blue."):
        kept.remember(text)
    assert kept.embed() == 33
    assert kept.store.models.seen() == {earlier.fingerprint: 32, BundledEmbedder().fingerprint: 33}
    assert _asked(kept).missing == ()


def test_vectors_that_fit_take_no_others_among_them(updated: Engine, earlier: BundledEmbedder) -> None:
    """Without their weights nothing can be made that is theirs: a new text is found by words until the end."""
    updated.remember("The new crane is yellow.")
    updated.embed(limit=12)
    assert updated.store.models.seen() == {earlier.fingerprint: 31, BundledEmbedder().fingerprint: 12}
    answer = updated.recall("crane yellow", logged=False)
    assert answer.hits[0].memory.content == "The new crane is yellow." and answer.waiting == 1


def test_of_weights_that_have_read_as_much_the_latest_answer_and_are_returned_to(
    tmp_path: Path, earlier: BundledEmbedder, open_with: OpenWith, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a store that 0.1.0 and then the version after it have read completely: the vectors of 0.1.0 do not fit."""
    oldest = other_weights(tmp_path / "oldest", "y")
    monkeypatch.setattr(bundled, "EARLIER", (oldest.fingerprint, earlier.fingerprint))
    for model in (oldest, earlier):
        with open_with(model) as engine:
            engine.remember_all([engine.draft(text) for text in TEXTS if model is oldest])
            assert engine.embed() == len(TEXTS)
    answer = _asked(open_with(BundledEmbedder()))
    assert _is_by_meaning(answer) and "31 more texts" in answer.missing[0]
    kept = tmp_path / "home" / "models"
    for model in (oldest, earlier):
        shutil.copytree(model._folder, kept / model.fingerprint)
    seen = {oldest.fingerprint: 31, earlier.fingerprint: 31}
    names = [name for name, folder in earlier_weights(tmp_path / "home", seen) if folder is not None]
    assert names == [earlier.fingerprint, oldest.fingerprint]
    assert [*earlier_weights(tmp_path, seen)] == [(earlier.fingerprint, None)]
