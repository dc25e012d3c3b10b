"""Other wordings of a question that was answered badly: asked for only then, and only where the question may leave."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import loopback
import pytest

from triskele.types import Sensitivity

FERRY = "The ferry timetable hangs at the pier: it leaves at six"
NAMES = ("Abel", "Berta", "Cyril", "Dora", "Emil", "Flora", "Gustav", "Hilda", "Igor", "Jana", "Karel", "Lena")
UNSURE = "quando parte a balsa?"


def _filled(engine: Any) -> None:
    for text in (FERRY, "The heron nests by the mill", *(f"{name} works on Mondays" for name in NAMES)):
        engine.remember(text)
    engine.upkeep.embed()


def test_an_unsure_answer_is_asked_for_in_other_words(configured: Any, far: loopback.Loopback) -> None:
    engine = configured("llm")
    _filled(engine)
    answer = engine.recall(UNSURE)
    assert answer.wordings == ("the ferry timetable", "when does the ferry leave")
    assert answer.hits[0].memory.content == FERRY
    assert {"wording 1", "wording 2"} <= set(answer.hits[0].legs)
    for hit in answer.hits:
        assert hit.score == pytest.approx(sum(leg.contribution for leg in hit.legs.values()) * hit.prior)
    assert len(far.seen) == 1 and UNSURE in far.sent
    assert [(day.endpoint, day.requests) for day in engine.upkeep.inspect().left] == [("llm", 1)]


def test_a_sure_answer_is_not(configured: Any, far: loopback.Loopback) -> None:
    engine = configured("llm")
    _filled(engine)
    answer = engine.recall("where does the heron nest, by the mill?")
    assert answer.confidence > 0.3 and answer.wordings == () and far.seen == []


def test_nobody_is_asked_unless_it_is_wanted(configured: Any, far: loopback.Loopback) -> None:
    engine = configured("llm", llm={"expand": False})
    _filled(engine)
    assert engine.recall(UNSURE).wordings == () and far.seen == [] and engine.models.hosts() == {}


def test_a_question_that_quotes_something_private_stays(configured: Any, far: loopback.Loopback) -> None:
    engine = configured("llm")
    _filled(engine)
    engine.remember("quando parte a balsa: nunca mais", sensitivity=Sensitivity.PRIVATE)
    assert far.seen == []
    answer = engine.recall("parte a balsa?")
    assert far.seen == [] and (answer.confidence > 0.3 or "is not sent" in answer.missing[0])


def test_a_failure_leaves_the_answer(configured: Any, far: loopback.Loopback) -> None:
    engine = configured("llm", llm={"timeout_s": 0.5})
    _filled(engine)
    far.turns.extend([loopback.refuse(400)])
    answer = engine.recall(UNSURE)
    assert answer.wordings == () and answer.missing[0].startswith("the question was not reworded")


@pytest.mark.slow
def test_a_command_of_the_users_may_answer(configured: Any, far: loopback.Loopback, tmp_path: Path) -> None:
    script = tmp_path / "answer.py"
    script.write_text("import sys\nsys.stdin.read()\nprint('the ferry timetable\\nwhen does the ferry leave')\n")
    command = {"service": "command", "command": [sys.executable, str(script)], "timeout_s": 30}
    engine = configured("llm", llm=command)
    _filled(engine)
    answer = engine.recall(UNSURE)
    assert answer.wordings[0] == "the ferry timetable" and answer.hits[0].memory.content == FERRY
    health = engine.upkeep.inspect()
    assert far.seen == [] and health.left[0].host == "command" and "command" in health.outside["llm"]


def test_the_head_is_read_again_once(configured: Any, far: loopback.Loopback) -> None:
    engine = configured("llm", "rerank")
    _filled(engine)
    answer = engine.recall(UNSURE, rerank="cross")
    assert answer.wordings and [seen.path for seen in far.seen].count("/v1/rerank") == 1
