"""Learning from transcripts: kept once, never what recall gave, secrets sealed, and the hook only queues."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from triskele.agents import echo, learning, respond
from triskele.engine.local import LocalEngine
from triskele.replies.rooms import HookCall
from triskele.types import CURATION, Add, Injection, Origin, Role, Sensitivity

pytestmark = pytest.mark.slow

OpenEngine = Callable[..., LocalEngine]


def transcript(path: Path, *texts: str) -> Path:
    """A transcript of Claude Code in which the user says these texts."""
    with path.open("a") as file:
        for text in texts:
            message = {"role": "user", "content": text}
            file.write(json.dumps({"type": "user", "sessionId": "s1", "message": message}) + "\n")
    return path


def learning_engine(open_engine: OpenEngine, dial: str = "normal") -> LocalEngine:
    engine = open_engine()
    engine.settings = replace(engine.settings, curation=replace(engine.settings.curation, learn=dial))
    return engine


def test_what_the_user_asked_for_is_kept_once_with_who_said_it(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine()
    path = transcript(tmp_path / "talk.jsonl", "Remember that the lab closes at 18:00", "now fix the tests")
    learned = learning.learn(engine, path)
    [memory] = learned.kept
    kept = engine.get(memory.id)
    assert (kept.content, kept.role, kept.origin) == ("The lab closes at 18:00", Role.USER, Origin.USER)
    assert kept.session is not None and "s1" not in kept.session
    assert {entry.actor for entry in engine.store.journal(batch=learned.batch)} == {CURATION}
    assert learning.learn(engine, path).turns == 0
    transcript(path, "from now on answer in French")
    assert [memory.content for memory in learning.learn(engine, path).kept] == ["Answer in French"]
    assert engine.store.census().memories == 2


def test_a_marked_conversation_stays_left_out_when_it_grows(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine()
    path = transcript(tmp_path / "talk.jsonl", "#no-memory for this one", "Remember that the lab closes at 18:00")
    learning.learn(engine, path)
    transcript(path, "Remember that the gate is green")
    learning.learn(engine, path)
    assert engine.store.census().memories == 0


def test_a_captured_fact_carries_the_expiry_that_it_tells(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine()
    path = transcript(
        tmp_path / "talk.jsonl",
        "Remember that the office is closed until 5 June 2099",
        "Our canteen is in the east wing until 5 June 2099",
    )
    learning.learn(engine, path)
    [proposal] = engine.proposals.list()
    engine.proposals.accept(proposal.id)
    ends = [memory.valid_to for memory in engine.browse().memories]
    assert len(ends) == 2 and all(end is not None and end.year == 2099 for end in ends)


def test_what_is_less_sure_waits_and_a_dry_run_keeps_nothing(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine()
    path = transcript(tmp_path / "talk.jsonl", "Our canteen is in the east wing", "I prefer tables over lists")
    dry = learning.learn(engine, path, is_dry=True)
    assert (len(dry.kept), len(dry.proposed)) == (1, 1)
    assert (engine.store.census().memories, engine.proposals.list()) == (0, [])
    learning.learn(engine, path)
    [proposal] = engine.proposals.list()
    assert proposal.new.content == "Our canteen is in the east wing"
    assert engine.store.census().memories == 1


def test_a_turn_that_fits_a_pattern_of_the_settings_is_left_out(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine()
    curation = replace(engine.settings.curation, learn_skip=(r"^/\w+", "project falcon"))
    engine.settings = replace(engine.settings, curation=curation)
    path = transcript(
        tmp_path / "talk.jsonl",
        "Remember that Project Falcon starts in May",
        "/note remember that the gate is green",
        "Remember that the lab closes at 18:00",
    )
    assert [memory.content for memory in learning.learn(engine, path).kept] == ["The lab closes at 18:00"]


def test_a_known_fact_is_not_kept_again_and_a_changed_one_is_proposed(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine()
    engine.remember("The lab closes at 18:00")
    path = transcript(
        tmp_path / "talk.jsonl", "Remember that the lab closes at 18:00!", "note that the lab closes at 19:00"
    )
    learned = learning.learn(engine, path)
    assert ([memory.content for memory in learned.kept], learned.skipped) == (["The lab closes at 19:00"], 1)
    [proposal] = engine.proposals.list()
    assert (proposal.kind, proposal.new.content) == ("supersede", "The lab closes at 19:00")


def test_a_secret_is_sealed_if_asked_for_and_never_queued(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine()
    secret = "hunter2-Kelp-9931-Quartz"
    path = transcript(
        tmp_path / "talk.jsonl",
        f"Remember that the password of the printer is {secret}",
        f"our password is {secret}",
        f"we decided that the password is {secret}",
    )
    learned = learning.learn(engine, path)
    assert [memory.sensitivity for memory in learned.kept] == [Sensitivity.SECRET]
    assert secret not in engine.get(learned.kept[0].id).content
    assert engine.proposals.list() == []
    engine.store.documents.put("flush", {})
    assert all(secret not in str(engine.store.documents.all(kind)) for kind in ("proposal", "learned", "learn-queue"))


@pytest.mark.parametrize("opening", ["remember: ", "remember that ", "from now on ", "please note: ", "we use ", ""])
@pytest.mark.parametrize(
    "line",
    [
        "sshpass -p {} ssh root@10.0.0.4",
        "curl -u admin:{} https://dav.example.org/calendar",
        "mysql -uapp -p{} garden",
        "mongosh garden -u admin -p {}",
        "redis-cli -h cache -a {} ping",
        "wget --password={} https://files.example.org",
        "docker login registry.example.org -u ci -p {}",
        "unzip -P {} photos.zip today",
        "ldapsearch -x -w {} -b dc=example",
        "echo {} | sudo -S make install",
        "token: abcdef.{}",
        "always log in by sshpass -p {} ssh box7",
    ],
)
def test_learn_keeps_no_password_of_a_command_readable(
    open_engine: OpenEngine, tmp_path: Path, line: str, opening: str
) -> None:
    engine = open_engine()
    secret = "kelp9931quartz72"
    path = transcript(tmp_path / "talk.jsonl", opening + line.format(secret), "Remember that the lab closes at 18:00")
    learned = learning.learn(engine, path, dial="all")
    assert {memory.sensitivity for memory in learned.kept[:-1]} <= {Sensitivity.SECRET}
    assert len(learned.kept) == 2 or not opening.startswith("remember")
    assert learned.kept[-1].content == "The lab closes at 18:00"
    assert not any(secret in memory.content for memory in [*engine.browse().memories, *learned.proposed])
    engine.close()
    files = [file for file in tmp_path.rglob("*") if file.is_file() and file != path]
    assert files
    assert [file.name for file in files if secret in file.read_bytes().decode("latin-1").lower()] == []


def test_learn_seals_a_password_that_a_sentence_end_cuts(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine()
    path = transcript(tmp_path / "talk.jsonl", "Remember that the gate opens with pw: 'kelp. quartz! 9931x' after six")
    [memory] = learning.learn(engine, path).kept
    assert (memory.content, memory.sensitivity) == ("Password, gate opens", Sensitivity.SECRET)


def _recalled(engine: LocalEngine, count: int) -> list[str]:
    forms = (
        "the {0} service is deployed with {1} by the {2} team",
        "the {2} team keeps the backups of {0} in {1}",
        "{1} answers questions about {0} in the {2} office",
    )
    names = [f"{one}{two}" for one in ("kelp", "reed", "opal", "jade", "iris") for two in range(20)]
    tools, teams = ("Nomad", "Vault", "Mira", "Gdansk"), ("north", "data", "harbour", "night", "mobile")
    texts = [forms[n % 3].format(names[n % 100], tools[n % 4], teams[n % 5]) for n in range(count)]
    outcomes = engine.apply([Add(engine.draft(text)) for text in texts])
    memories = list(engine.store.memories([each.id for each in outcomes]).values())
    echo.note_injection(engine.store, memories, conversation="talk", tokens=dict.fromkeys((m.id for m in memories), 9))
    return [memory.content for memory in memories]


def _reworded(text: str, number: int) -> str:
    """The same text as an agent or a person would say it again."""
    match number % 4:
        case 0:
            return text.replace("the ", "").replace("service is", "service is currently") + "!"
        case 1:
            return f"{text.upper()[0]}{text[1:]} now"
        case 2:
            return text.replace(" in ", " inside ").replace(" with ", " using ")
        case _:
            return text.replace("deployed", "deploys").replace("keeps", "kept").replace("answers", "answered")


@pytest.mark.parametrize(("reword", "most"), [(False, 0.01), (True, 0.05)])
def test_what_recall_gave_does_not_come_back(
    open_engine: OpenEngine, tmp_path: Path, reword: bool, most: float
) -> None:
    engine = open_engine()
    texts = _recalled(engine, 300)
    said = [_reworded(text, number) if reword else text for number, text in enumerate(texts)]
    path = transcript(tmp_path / "talk.jsonl", *(f"Remember that {text}" for text in said))
    learned = learning.learn(engine, path)
    assert learned.turns == len(texts)
    assert len(learned.kept) + len(learned.proposed) <= most * len(texts)
    assert learned.skipped >= (1 - most) * len(set(texts))


def test_the_stop_hook_queues_and_the_background_learns(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = learning_engine(open_engine)
    path = transcript(tmp_path / "talk.jsonl", "Remember that the lab closes at 18:00")
    for event in ("stop", "pre-compact"):
        call = HookCall(event=event, session="s1", transcript=str(path), project="garden")
        assert engine.agents.respond(call) == Injection()
    assert engine.store.census().memories == 0
    assert [learning.work_off(engine), learning.work_off(engine)] == [1, 0]
    assert engine.browse().memories[0].project == "garden"


def test_nothing_is_queued_unless_the_settings_say_so(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine()
    path = transcript(tmp_path / "talk.jsonl", "Remember that the lab closes at 18:00")
    engine.agents.respond(HookCall(event="stop", session="s1", transcript=str(path)))
    assert engine.store.documents.all("learn-queue") == {}
    assert learning.work_off(learning_engine(open_engine)) == 0


def test_a_transcript_that_cannot_be_read_is_dropped(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = learning_engine(open_engine)
    (tmp_path / "bad.json").write_text("[")
    respond.queue_transcript(engine.store, str(tmp_path / "bad.json"), "garden")
    respond.queue_transcript(engine.store, str(tmp_path / "gone.jsonl"), "garden")
    respond.queue_transcript(engine.store, "relative.jsonl", "garden")
    assert learning.work_off(engine) == 0
    assert engine.store.documents.all("learn-queue") == {}


def test_the_command_shows_and_keeps(run: Callable[..., Any], tmp_path: Path) -> None:
    path = transcript(tmp_path / "talk.jsonl", "Remember that the lab closes at 18:00")
    dry = run("learn", str(path), "--dry-run", "--json").json
    assert [each["content"] for each in dry["kept"]] == ["The lab closes at 18:00"]
    assert (dry["proposed"], dry["skipped"], dry["batch"]) == ([], 0, None)
    assert "The lab closes at 18:00" in run("learn", str(path)).out
    assert run("recall", "lab", "--json").json["hits"][0]["role"] == "user"
    assert run("learn", str(tmp_path / "gone.jsonl")).is_refused(2, "no such file")


@pytest.mark.parametrize("content", ["These are notes.\nNo transcript.\n", '{"name": "x"}\n{"name": "y"}\n', "[1, 2"])
def test_a_file_that_is_no_transcript_is_named_as_such(run: Callable[..., Any], tmp_path: Path, content: str) -> None:
    (tmp_path / "notes.txt").write_text(content)
    assert run("learn", str(tmp_path / "notes.txt")).code == 2
