"""A hosted model beside the local one: what it may read, what it adds, and what becomes of what it said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import loopback
import pytest

from triskele.config import HOSTED
from triskele.engine.local import LocalEngine
from triskele.store.values import EMBED
from triskele.types import Answer, Sensitivity

OPEN = ("The heron nests by the old mill", "A loaf costs two crowns at the market", "Mr Abel repairs clocks")
PRIVATE = "Anna meets the heron watcher on Thursday nights"


def _filled(engine: LocalEngine) -> dict[str, str]:
    ids = {text: engine.remember(text).id for text in OPEN}
    ids[PRIVATE] = engine.remember(PRIVATE, sensitivity=Sensitivity.PRIVATE).id
    engine.upkeep.embed()
    return ids


def _hosted_vectors(engine: LocalEngine) -> int:
    return sum(count for name, count in engine.store.models.seen().items() if name.startswith(HOSTED))


def _contents(answer: Answer) -> list[str]:
    return [hit.memory.content for hit in answer.hits]


def test_without_settings_nobody_is_asked(configured: Any, far: loopback.Loopback) -> None:
    engine = configured()
    _filled(engine)
    engine.recall("heron")
    assert engine.models.services() is None and engine.models.hosts() == {} and engine.models.embed_hosted() == 0
    assert far.seen == [] and engine.upkeep.inspect().left == ()


def test_open_memories_are_read_and_private_ones_stay(configured: Any, far: loopback.Loopback) -> None:
    engine = configured("hosted")
    _filled(engine)
    assert engine.models.embed_hosted() == 3 == _hosted_vectors(engine)
    assert all(text in far.sent for text in OPEN) and "Anna" not in far.sent and "Thursday" not in far.sent
    assert engine.models.embed_hosted() == 0


def test_the_local_model_still_waits_for_its_own(configured: Any) -> None:
    engine = configured("hosted")
    for text in OPEN:
        engine.remember(text)
    assert engine.models.embed_hosted() == 3
    assert engine.store.jobs.count(EMBED) == 3 and engine.upkeep.embed() == 3


def test_what_the_hosted_model_knows_counts(configured: Any) -> None:
    engine = configured("hosted")
    _filled(engine)
    before = _contents(engine.recall("Where does the wader raise its young?"))
    engine.models.embed_hosted()
    after = engine.recall("Where does the wader raise its young?")
    assert after.missing == ()
    scores = {hit.memory.content: hit.legs["dense"].score for hit in after.hits}
    assert scores[OPEN[0]] == max(scores.values())
    # Whom the hosted model may not read is judged by the local one, on the same scale.
    assert PRIVATE in scores or PRIVATE not in before


def test_a_question_that_quotes_something_private_stays(configured: Any, far: loopback.Loopback) -> None:
    engine = configured("hosted")
    _filled(engine)
    engine.models.embed_hosted()
    asked = len(far.seen)
    answer = engine.recall("When does Anna meet the heron watcher?")
    assert len(far.seen) == asked and "is not sent" in answer.missing[0]
    assert PRIVATE in _contents(answer)


def test_while_the_vault_cannot_be_read_no_question_leaves(
    configured: Any, far: loopback.Loopback, tmp_path: Path
) -> None:
    engine = configured("hosted")
    _filled(engine)
    engine.remember("the gate opens with the usual word", sensitivity=Sensitivity.SECRET, title="gate")
    engine.models.embed_hosted()
    engine.close()
    (tmp_path / "home" / "vault.key").rename(tmp_path / "elsewhere.key")
    engine, asked = configured("hosted"), len(far.seen)
    answer = engine.recall("where is the mill?")
    assert len(far.seen) == asked and "is not sent" in answer.missing[0]


def test_a_question_with_the_words_of_a_sealed_text_stays(configured: Any, far: loopback.Loopback) -> None:
    engine = configured("hosted")
    _filled(engine)
    engine.remember("the gate opens with juniper marmalade", sensitivity=Sensitivity.SECRET, title="gate")
    engine.models.embed_hosted()
    asked = len(far.seen)
    assert "is not sent" in engine.recall("is it juniper marmalade?").missing[0]
    assert len(far.seen) == asked


def test_who_cannot_wait_asks_nobody_elsewhere(configured: Any, far: loopback.Loopback) -> None:
    engine = configured("hosted", "rerank", "llm", rerank={"always": True})
    _filled(engine)
    engine.models.embed_hosted()
    asked = len(far.seen)
    answer = engine.recall("quando parte a balsa?", local_only=True)
    assert len(far.seen) == asked and answer.missing == () and answer.wordings == () and answer.agreement is None


@pytest.mark.parametrize("turn", [loopback.refuse(500), loopback.half, loopback.say({"data": []})])
def test_a_failure_costs_the_hosted_half_alone(configured: Any, far: loopback.Loopback, turn: loopback.Turn) -> None:
    engine = configured("hosted")
    _filled(engine)
    engine.models.embed_hosted()
    far.turns.append(turn)
    answer = engine.recall("where does the heron nest?")
    assert answer.missing[0].startswith("the hosted model was not used")
    assert _contents(answer)[0] == OPEN[0]


def test_what_becomes_private_is_taken_back_and_told(configured: Any, far: loopback.Loopback, tmp_path: Path) -> None:
    engine = configured("hosted")
    ids = _filled(engine)
    engine.models.embed_hosted()
    engine.recall("mill")
    folder = tmp_path / "home" / "memories.db.index"
    engine.lexical.catch_up()
    (before,) = engine.get(ids[OPEN[0]]).sent
    assert before.host == "127.0.0.1" and list(engine.get(ids[PRIVATE]).sent) == []
    engine.edit(ids[OPEN[0]], sensitivity=Sensitivity.PRIVATE)
    assert _hosted_vectors(engine) == 2 and not list(folder.glob(f"dense-*{HOSTED}*"))
    asked = far.sent.count(OPEN[0])
    assert engine.models.embed_hosted() == 0 and far.sent.count(OPEN[0]) == asked
    engine.recall("a loaf from the market")
    assert far.sent.count(OPEN[0]) == asked


def test_the_same_text_in_a_private_memory_holds_it_back(configured: Any, far: loopback.Loopback) -> None:
    engine = configured("hosted")
    engine.remember("the heron is back", project="one")
    engine.remember("the heron is back", project="two", sensitivity=Sensitivity.PRIVATE)
    assert engine.models.embed_hosted() == 0 and far.seen == []


def test_the_text_of_a_sealed_memory_is_held_back_wherever_it_stands(configured: Any, far: loopback.Loopback) -> None:
    engine = configured("hosted", "rerank")
    engine.remember("the gate opens with juniper marmalade", sensitivity=Sensitivity.SECRET, title="gate")
    engine.remember("the gate opens with juniper marmalade", project="other")
    engine.remember(OPEN[0])
    assert engine.models.embed_hosted() == 1 and "juniper" not in far.sent
    assert engine.models.embed_hosted() == 0


def test_an_open_memory_that_quotes_a_sealed_one_is_held_back(configured: Any, far: loopback.Loopback) -> None:
    engine = configured("hosted")
    engine.remember("the gate opens with juniper marmalade", sensitivity=Sensitivity.SECRET, title="gate")
    engine.remember("Otto said that juniper marmalade is what opens it")
    assert engine.models.embed_hosted() == 0 and far.seen == []


def test_the_account_tells_machines_apart(configured: Any, far: loopback.Loopback) -> None:
    engine = configured("hosted")
    engine.remember(OPEN[0])
    engine.models.embed_hosted()
    engine.close()
    engine = configured("hosted", hosted={"url": far.url.replace("127.0.0.1", "localhost") + "/v1"})
    engine.remember(OPEN[1])
    engine.models.embed_hosted()
    assert {(day.host, day.requests) for day in engine.upkeep.inspect().left} >= {("127.0.0.1", 1), ("localhost", 1)}


def test_what_looks_like_a_secret_is_held_back_even_where_it_is_open(configured: Any, far: loopback.Loopback) -> None:
    engine = configured("hosted")
    engine.remember("the example password is hunter2hunter2", sensitivity=Sensitivity.OPEN)
    for text in OPEN:
        engine.remember(text)
    assert engine.models.embed_hosted() == 3 and "hunter2" not in far.sent


def test_what_was_sent_stays_told_through_every_step(configured: Any) -> None:
    engine = configured("hosted")
    id = engine.remember(OPEN[0]).id
    engine.models.embed_hosted()
    engine.edit(id, sensitivity=Sensitivity.PRIVATE)
    assert len(engine.get(id).sent) == 1
    engine.seal(id, title="heron")
    assert len(engine.get(id).sent) == 1


def test_what_becomes_private_while_it_is_being_read_is_not_kept(configured: Any, far: loopback.Loopback) -> None:
    engine = configured("hosted")
    first = engine.remember(OPEN[0]).id

    def turn(handler: loopback.Handler) -> None:
        engine.edit(first, sensitivity=Sensitivity.PRIVATE)
        handler.reply(200, {"data": [{"index": 0, "embedding": [1.0] * loopback.DIMENSIONS}]})

    far.turns.append(turn)
    engine.models.embed_hosted()
    assert _hosted_vectors(engine) == 0


def test_the_account_says_to_whom_when_and_how_much_but_not_what(configured: Any) -> None:
    engine = configured("hosted")
    _filled(engine)
    engine.models.embed_hosted()
    engine.recall("where is the mill?")
    health = engine.upkeep.inspect()
    assert set(health.outside) == {"hosted", "hosted questions"}
    texts, questions = health.left
    assert (texts.endpoint, texts.requests, texts.texts) == ("hosted", 1, 3)
    assert texts.characters == sum(map(len, OPEN)) == texts.tokens and texts.cost == 0
    assert (questions.endpoint, questions.requests, questions.texts) == ("hosted questions", 1, 1)
    assert "heron" not in json.dumps([str(day) for day in health.left])


def test_every_try_is_counted(configured: Any, far: loopback.Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = configured("hosted")
    outside = engine.models.services()
    assert outside is not None
    monkeypatch.setattr(outside.client, "_pause", lambda seconds: None)
    engine.remember(OPEN[0])
    far.turns.append(loopback.refuse(500))
    engine.models.embed_hosted()
    assert engine.upkeep.inspect().left[0].requests == 2


@pytest.mark.parametrize("variable", ["TRISKELE_HOSTED_URL", "TRISKELE_HOSTED_SERVICE", "TRISKELE_LLM_COMMAND"])
def test_no_variable_of_the_environment_leads_anywhere(configured: Any, variable: str) -> None:
    from triskele import config

    engine = configured("hosted")
    settings = config.load({"TRISKELE_HOME": str(engine.settings.home), variable: "https://evil.example"})
    assert "evil" not in repr(settings)


@pytest.mark.parametrize("where", [{"key": "NOWHERE"}, {"key": "/nowhere/key"}])
def test_a_key_that_is_not_there_costs_no_answer_and_is_told(
    configured: Any, far: loopback.Loopback, where: dict[str, str]
) -> None:
    engine = configured("hosted", hosted=where)
    engine.remember(OPEN[0])
    answer = engine.recall("heron")
    assert _contents(answer) == [OPEN[0]] and f"hosted.{next(iter(where))}" in answer.missing[0]
    assert engine.upkeep.inspect().outside_problems == answer.missing and far.seen == []


@pytest.mark.parametrize(
    ("section", "wrong", "said"),
    [
        ("hosted", {"service": "acme"}, "unknown embedding service 'acme'"),
        ("hosted", {"dimensions": 0}, "are unknown"),
        ("hosted", {"url": "http://example.com/v1"}, "must begin with https://"),
        ("rerank", {"service": "", "model": "/nowhere/at/all"}, "unknown cross-encoder"),
        ("rerank", {"key": "NOWHERE", "always": True}, "has no NOWHERE"),
        ("llm", {"service": "command", "command": []}, "no command is set"),
    ],
)
def test_a_mistake_in_the_settings_costs_no_answer_and_is_told(
    configured: Any, far: loopback.Loopback, section: str, wrong: dict[str, Any], said: str
) -> None:
    engine = configured(section, **{section: wrong})
    engine.remember(OPEN[0])
    answer = engine.recall("heron")
    assert _contents(answer) == [OPEN[0]] and far.seen == []
    assert answer.missing[0].startswith(f"[{section}] of your settings is not used") and said in answer.missing[0]
    assert engine.upkeep.inspect().outside_problems == answer.missing


def test_a_key_may_lie_in_a_file(configured: Any, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{loopback.KEY}\n")
    engine = configured("hosted", hosted={"key": str(tmp_path / "key")})
    engine.remember(OPEN[0])
    assert engine.models.embed_hosted() == 1


def test_the_background_reads_for_both(configured: Any) -> None:
    engine = configured("hosted")
    engine.work_in_background()
    engine.remember(OPEN[0])
    worker = engine.background._worker
    assert worker is not None and worker._thread is not None
    for _ in range(2000):
        if _hosted_vectors(engine) and not engine.store.jobs.count(EMBED):
            break
        worker._thread.join(0.01)
    assert _hosted_vectors(engine) == 1 and engine.store.jobs.count(EMBED) == 0
