"""A cross-encoder over the head of a real recall, here and elsewhere; whatever it does, there is an answer."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import loopback
import pytest

from triskele import config
from triskele.curation import measures
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput
from triskele.types import Answer, Sensitivity

QUESTION = "how do releases reach the cluster?"

pytestmark = pytest.mark.slow


@pytest.fixture
def team(team_home: Path, trained_cross_encoder: Path, tmp_path: Path) -> Iterator[LocalEngine]:
    home = tmp_path / "home"
    shutil.copytree(team_home, home)
    (home / "config.toml").write_text(f'[rerank]\nmodel = "{trained_cross_encoder}"\ntimeout_s = 30\n')
    with LocalEngine(config.load({"TRISKELE_HOME": str(home), "TRISKELE_PROJECT": "demo"}), tmp_path) as engine:
        yield engine


def _ids(answer: Answer) -> list[str]:
    return [hit.memory.id for hit in answer.hits]


def test_a_real_cross_encoder_orders_the_head_anew(team: LocalEngine) -> None:
    plain = team.recall(QUESTION, limit=40)
    read = team.recall(QUESTION, limit=10, rerank="cross")
    assert read.missing == () and set(_ids(read)) <= set(_ids(plain)) and _ids(read) != _ids(plain)[:10]
    assert read.agreement is not None and -1 <= read.agreement.tau < 1 and plain.agreement is None
    for hit in read.hits:
        assert hit.score == pytest.approx(sum(leg.contribution for leg in hit.legs.values()) * hit.prior)
    by_rank = sorted(read.hits, key=lambda hit: hit.legs["cross"].rank)
    assert [hit.legs["cross"].score for hit in by_rank] == sorted(
        (hit.legs["cross"].score for hit in read.hits), reverse=True
    )


def test_every_question_is_counted(team: LocalEngine) -> None:
    assert measures.agreement(team.store) is None
    said = [team.recall(text, rerank="cross").agreement for text in (QUESTION, "who knows about billing?")]
    team.deferred_writes.flush()
    found = measures.agreement(team.store)
    assert found is not None and (found.asked, found.answered) == (2, 2)
    assert found.kept == pytest.approx(sum(each.kept for each in said if each is not None) / 2)


def test_it_is_off_unless_asked_for_or_always_on(team: LocalEngine) -> None:
    assert team.recall(QUESTION).agreement is None
    home = team.settings.home
    (home / "config.toml").write_text((home / "config.toml").read_text() + "always = true\n")
    with LocalEngine(config.load({"TRISKELE_HOME": str(home), "TRISKELE_PROJECT": "demo"}), home) as always:
        assert always.recall(QUESTION).agreement is not None
        assert always.recall(QUESTION, rerank="off").agreement is None


def test_without_a_cross_encoder_the_wish_is_refused(configured: Any) -> None:
    with pytest.raises(BadInput, match="no cross-encoder is set"):
        configured().recall("heron", rerank="cross")


def test_a_folder_without_a_model_is_told(configured: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in (str(tmp_path / "empty"), str(tmp_path / "none")):
        with pytest.raises(BadInput, match="cross-encoder"):
            configured("rerank", rerank={"service": "", "model": name}).recall("heron", rerank="cross")


def _river(configured: Any) -> LocalEngine:
    engine: LocalEngine = configured("rerank")
    engine.remember("heron")
    engine.remember("the heron by the river")
    engine.remember(
        "a very long diary of mine that tells of grey birds near the water all year", sensitivity=Sensitivity.PRIVATE
    )
    engine.remember("a note about the heron, the river and the mill at the bend of it")
    engine.upkeep.embed()
    return engine


def test_elsewhere_open_memories_are_read_and_private_ones_keep_their_places(
    configured: Any, far: loopback.Loopback
) -> None:
    engine = _river(configured)
    before = engine.recall("heron by the river")
    after = engine.recall("heron by the river", rerank="cross")
    private = next(n for n, hit in enumerate(before.hits) if hit.memory.sensitivity is Sensitivity.PRIVATE)
    assert after.hits[private].memory == before.hits[private].memory and "cross" not in after.hits[private].legs
    assert "diary" not in far.sent and "at the bend" in far.sent
    open_ones = [len(hit.memory.content) for hit in after.hits if "cross" in hit.legs]
    assert open_ones == sorted(open_ones, reverse=True), "this server likes long texts"


def test_an_open_memory_that_says_the_same_as_a_private_one_is_not_read(
    configured: Any, far: loopback.Loopback
) -> None:
    engine = _river(configured)
    engine.remember("the otter fishes at the weir", project="here")
    engine.remember("the otter fishes at the weir", project="there", sensitivity=Sensitivity.PRIVATE)
    engine.upkeep.embed()
    engine.recall("heron, mill, fishing and weirs", rerank="cross", all_projects=True, limit=20)
    assert far.seen and "otter" not in far.sent


@pytest.mark.parametrize("turn", [loopback.refuse(500), loopback.half, loopback.hang, loopback.say({"data": []})])
def test_a_failure_leaves_the_order_and_is_told(configured: Any, far: loopback.Loopback, turn: loopback.Turn) -> None:
    engine = _river(configured)
    before = engine.recall("heron by the river")
    far.turns.append(turn)
    after = engine.recall("heron by the river", rerank="cross")
    assert _ids(after) == _ids(before) and after.agreement is None and after.missing[0].startswith("not reranked")
    engine.deferred_writes.flush()
    found = measures.agreement(engine.store)
    assert found is not None and (found.asked, found.answered) == (1, 0)


def test_a_question_that_quotes_something_private_is_not_read_again(configured: Any, far: loopback.Loopback) -> None:
    engine = _river(configured)
    answer = engine.recall("the very long diary of grey birds", rerank="cross")
    assert far.seen == [] and "is not sent" in answer.missing[0]
