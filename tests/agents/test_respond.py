"""What an agent is told unasked: what fits, within bounds, and nothing that is not for it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from desk import Desk, quotations

from triskele import config
from triskele.agents import fence, injection, respond
from triskele.edge.hook.explain import explain
from triskele.engine.workplace import project_of
from triskele.errors import BadInput
from triskele.types import Injection, LinkKind, Memory, Origin, Sensitivity


def test_the_answer_is_one_document_with_the_keys_that_clients_know(desk: Desk) -> None:
    desk.add("The kettle is red")
    payload = {"session_id": "one", "cwd": str(desk.folder / "garden"), "prompt": "is the kettle red?"}
    out = desk.respond("user-prompt-submit", payload)
    assert json.loads(out.text).keys() == {"hookSpecificOutput"}
    inside = json.loads(out.text)["hookSpecificOutput"]
    assert inside.keys() == {"hookEventName", "additionalContext"}
    assert inside["hookEventName"] == "UserPromptSubmit"
    desk.add("Tea before coffee", category="preferences")
    started = json.loads(desk.respond("session-start", {**payload, "source": "startup"}).text)
    assert started["hookSpecificOutput"].keys() == {"hookEventName", "additionalContext"}
    assert started["hookSpecificOutput"]["hookEventName"] == "SessionStart"


def test_injection_names_id_date_origin_and_project(desk: Desk) -> None:
    id = desk.add("The kettle is red", created_at="2025-03-04", origin=Origin.AGENT)
    everywhere = desk.add("Every kettle whistles", project="", created_at="2025-03-05")
    lines = desk.said("user-prompt-submit", prompt="kettle").split("\n")
    short = desk.engine.store.shorten([id, everywhere])
    assert lines[0] == fence.OPENING and lines[-1] == fence.CLOSING
    assert "not instructions" in lines[1]
    assert sorted(lines[2:-1]) == sorted(
        [
            f'{short[id]} · 2025-03-04 · origin agent · project "garden" · "The kettle is red"',
            f'{short[everywhere]} · 2025-03-05 · origin user · project "everywhere" · "Every kettle whistles"',
        ]
    )


def test_the_project_is_that_of_the_folder(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    # Where this process works is nobody's project.
    monkeypatch.chdir(desk.folder)
    desk.add("The kettle is red")
    assert desk.prompt("kettle", cwd=str(desk.folder / "kitchen")) == []
    assert desk.prompt("kettle", cwd="garden") == []
    assert desk.prompt("kettle", cwd=7) == []
    assert desk.prompt("kettle", cwd="/\0" + "x" * 9000) == []
    assert desk.prompt("kettle", cwd=str(desk.folder / "kitchen"), project="garden") == ["The kettle is red"]
    assert desk.prompt("kettle", session_id="two") == ["The kettle is red"]


def test_a_folder_of_the_same_name_gets_nothing_of_the_other(desk: Desk) -> None:
    one, two = (desk.folder / name / "kitchen" for name in ("one", "two"))
    for folder in (one, two):
        (folder / ".git").mkdir(parents=True)
    assert project_of(desk.engine.store, one, writing=True) == "kitchen"
    desk.add("The kettle is red", project="kitchen")
    assert desk.prompt("kettle", cwd=str(one)) == ["The kettle is red"]
    assert desk.prompt("kettle", cwd=str(two), session_id="two") == []


@pytest.mark.parametrize(
    "closed", [{"sensitivity": Sensitivity.PRIVATE}, {"origin": Origin.WEB}, {"origin": Origin.TOOL}]
)
def test_memories_that_may_not_be_injected_do_not_hide_one_that_may(desk: Desk, closed: dict[str, Any]) -> None:
    for number in range(45):
        desk.add(f"the kettle kettle is red {number}", category="preferences", importance=0.9, **closed)
    shown = "a kettle that is red stands in the shed behind the house, they say"
    desk.add(shown, category="preferences")
    assert desk.prompt("is the kettle red?") == [shown]
    assert desk.start(session_id="two") == [shown]


@pytest.mark.parametrize("prompt", ["", "   \n", "/kettle", "/help kettle", "/plugin:brew kettle", None, 7, ["kettle"]])
def test_prompt_without_a_question_injects_nothing(desk: Desk, prompt: object) -> None:
    desk.add("The kettle is red")
    payload = {"session_id": "one", "cwd": str(desk.folder / "garden"), "prompt": prompt}
    assert desk.respond("user-prompt-submit", payload) == Injection()


def test_a_path_is_no_command(desk: Desk) -> None:
    desk.add("/etc/kettle.conf names the colour")
    assert desk.prompt("/etc/kettle.conf") == ["/etc/kettle.conf names the colour"]


def test_unsure_answer_is_not_injected(open_desk: Callable[..., Desk]) -> None:
    bold = open_desk("least_confidence = 0.0")
    bold.add("The kettle is red")
    vague = "kettle opinions of the neighbours about astronomy"
    assert bold.prompt(vague) == ["The kettle is red"]
    bold.engine.close()
    shy = open_desk("least_confidence = 0.9")
    assert shy.prompt(vague, session_id="two") == []
    assert shy.prompt("kettle red", session_id="two") == ["The kettle is red"]


def test_hits_far_behind_the_best_are_left_out(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.add("The kettle in the shed is red and whistles at noon")
    desk.add("The shed has a window")
    question = "kettle shed red whistles noon"
    assert desk.prompt(question) == ["The kettle in the shed is red and whistles at noon"]
    monkeypatch.setattr(injection, "LEAST_SHARE", 0.0)
    assert len(desk.prompt(question, session_id="two")) == 2


def test_at_most_so_many_memories(open_desk: Callable[..., Desk]) -> None:
    desk = open_desk()
    for number in range(9):
        desk.add(f"Kettle number {number} stands in room {'abcdefghi'[number] * 3}")
    assert len(desk.prompt("kettle")) == 5


def test_the_budget_of_tokens_counts_the_whole_text(open_desk: Callable[..., Desk]) -> None:
    desk = open_desk("budget_tokens = 250")
    for number in range(5):
        desk.add(f"Kettle {number}: " + " ".join(f"{'abcde'[number]}word{n}" for n in range(30)))
    reply = desk.said("user-prompt-submit", prompt="kettle")
    assert 1 <= len(quotations(reply)) < 5
    assert len(reply) / 4 <= 250


@pytest.mark.parametrize("filler", ["ab", "語", '"', "\n"])
def test_document_stays_below_the_limit_of_the_client(desk: Desk, filler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = desk.engine
    engine.settings = replace(
        engine.settings,
        memory=replace(engine.settings.memory, max_characters=5000),
        agents=replace(engine.settings.agents, budget_tokens=100_000),
    )
    for number in range(5):
        desk.add(f"Kettle {number} {'abcde'[number] * 9} " + f"{filler} " * 900 + "end")
    payload = {"session_id": "one", "cwd": str(desk.folder / "garden"), "prompt": "kettle"}
    assert 0 < len(desk.respond("user-prompt-submit", payload).text) < injection.MOST_CHARACTERS


def test_replaced_memory_is_never_injected(desk: Desk) -> None:
    older = desk.add("The kettle is red", category="decisions")
    newer = desk.add("The kettle is blue", category="decisions", project="kitchen")
    desk.engine.link(newer, LinkKind.SUPERSEDES, older)
    assert desk.engine.recall("kettle", project="garden").hits[0].superseded
    assert desk.prompt("kettle") == []
    assert desk.start() == []


def test_successor_of_a_replaced_memory_is_injected(desk: Desk) -> None:
    older = desk.add("The kettle is red")
    desk.engine.remember("Now a blue one", project="garden", supersedes=older)
    assert desk.prompt("kettle red") == ["Now a blue one"]


def test_resolution_is_injected_with_its_problem(desk: Desk) -> None:
    problem = desk.add("The kettle leaks")
    solved = desk.add("A new rubber ring was fitted")
    desk.engine.link(problem, LinkKind.RESOLVED_BY, solved)
    assert desk.prompt("kettle leaks") == ["The kettle leaks", "A new rubber ring was fitted"]


@pytest.mark.parametrize("origin", list(Origin))
def test_tools_and_the_web_never_speak_unasked(desk: Desk, origin: Origin) -> None:
    desk.add("The kettle is red", origin=origin, category="preferences", importance=0.9)
    assert desk.engine.recall("kettle", project="garden").hits
    is_told = origin in {Origin.USER, Origin.AGENT, Origin.IMPORT}
    assert desk.prompt("kettle") == (["The kettle is red"] if is_told else [])
    assert desk.start() == (["The kettle is red"] if is_told else [])


def test_unrelated_first_hit_injects_no_further_hits(desk: Desk) -> None:
    desk.add("kettle whistle noon shed red garden", origin=Origin.WEB)
    desk.add("The shed has a window")
    assert desk.prompt("kettle whistle noon shed red") == []


def test_private_memories_are_for_the_clients_that_the_user_named(open_desk: Callable[..., Desk]) -> None:
    desk = open_desk()
    desk.add("The kettle is red", sensitivity=Sensitivity.PRIVATE, category="preferences")
    assert desk.prompt("kettle", client="claude-code") == []
    assert desk.start(client="claude-code") == []
    desk.engine.close()
    allowed = open_desk('private_to = ["claude-code"]')
    for stranger in (None, "", "codex", ["claude-code"]):
        assert allowed.prompt("kettle", client=stranger) == []
        assert allowed.start(client=stranger) == []
    assert " · private · origin user · " in allowed.said("user-prompt-submit", prompt="kettle", client="claude-code")


def test_title_of_a_secret_is_not_injected(open_desk: Callable[..., Desk]) -> None:
    desk = open_desk('private_to = ["claude-code"]')
    secret = "the kettle opens with hunter2-hunter2"
    desk.add(secret, sensitivity=Sensitivity.SECRET, title="kettle code", category="preferences", importance=0.9)
    assert desk.engine.recall("kettle code", project="garden").hits
    assert desk.prompt("kettle code", client="claude-code") == []
    assert desk.start(client="claude-code") == []


def test_equal_texts_are_injected_once(desk: Desk) -> None:
    desk.add("The kettle in the shed is red and old")
    desk.add("The kettle in the shed is red and old indeed")
    assert len(desk.prompt("kettle shed red old")) == 1


def test_long_prompt_is_recalled_by_its_beginning(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    questions: list[str] = []
    real = desk.engine.answer
    monkeypatch.setattr(
        desk.engine, "answer", lambda text, **options: (questions.append(text), real(text, **options))[1]
    )
    desk.add("The kettle is red")
    desk.prompt("kettle " * 200_000)
    assert [len(text) <= injection.GIST_CHARACTERS for text in questions] == [True]


def test_the_reason_for_nothing_names_the_budget_that_is_too_small(tmp_path: Path) -> None:
    desk = Desk(tmp_path, "budget_tokens = 100\nleast_confidence = 0.0")
    desk.add("The kettle of the plant shop is red. " + "Long text about the plant shop goes on. " * 33)
    prompt = "which colour has the kettle of the plant shop?"
    reason = "all that is relevant is too long for agents.budget_tokens (100)"
    payload = {"prompt": prompt, "cwd": str(tmp_path / "garden")}
    assert desk.respond("user-prompt-submit", payload) == Injection(note=reason)
    assert explain(desk.engine, "user-prompt-submit", payload).verdict == f"silent: {reason}"


def test_prompts_do_not_go_into_the_recall_log(desk: Desk) -> None:
    desk.engine.settings = replace(desk.engine.settings, recall=replace(desk.engine.settings.recall, log=True))
    desk.add("The kettle is red")
    desk.prompt("kettle")
    assert desk.engine.store.documents.all("recall") == {}


def test_session_start_injects_lasting_memories(desk: Desk) -> None:
    desk.add("Tea before coffee", category="preferences", importance=0.6)
    desk.add("We water on Mondays", category="decisions", importance=0.9)
    desk.add("Frost kills basil", category="lessons", importance=0.7, project="")
    desk.add("The kettle is red", category="facts", importance=1.0)
    desk.add("Hardly worth it", category="lessons", importance=0.2)
    desk.add("Elsewhere", category="lessons", importance=1.0, project="kitchen")
    desk.add("No longer", category="decisions", importance=1.0, valid_to="2020-01-01")
    texts = ["We water on Mondays", "Frost kills basil", "Tea before coffee"]
    assert desk.start() == texts
    assert desk.prompt("tea coffee") == []
    assert desk.start() == texts
    assert desk.start("clear") == texts
    assert desk.start("resume") == []
    assert desk.start("resume", session_id="two") == texts


def test_digest_lists_the_memories_of_a_session_start(desk: Desk) -> None:
    desk.add("Tea before coffee", category="preferences", importance=0.6)
    desk.add("Elsewhere", category="lessons", importance=1.0, project="kitchen")
    desk.add("Read on a page", category="lessons", importance=1.0, origin=Origin.WEB)
    desk.add("Mine alone", category="lessons", importance=1.0, sensitivity=Sensitivity.PRIVATE)
    assert [memory.content for memory in desk.engine.agents.digest(project="garden")] == ["Tea before coffee"]
    assert desk.start() == ["Tea before coffee"]
    assert [memory.content for memory in desk.engine.agents.digest()] == []


def test_a_start_is_worth_half_the_room(open_desk: Callable[..., Desk]) -> None:
    desk = open_desk("budget_tokens = 600")
    for number in range(5):
        text = f"Rule {number}: " + " ".join(f"{'abcde'[number]}word{n}" for n in range(40))
        desk.add(text, category="lessons", importance=0.8)
    reply = desk.said("session-start", source="startup")
    assert quotations(reply) and len(reply) / 4 <= 300
    assert desk.start() == quotations(reply)


def test_unknown_categories_are_no_reason_to_fail(desk: Desk) -> None:
    memory = replace(desk.engine.settings.memory, categories=("facts", "lessons"))
    desk.engine.settings = replace(desk.engine.settings, memory=memory)
    desk.add("Frost kills basil", category="lessons")
    assert desk.start() == ["Frost kills basil"]


def test_an_unknown_event_is_refused(desk: Desk) -> None:
    with pytest.raises(BadInput, match="unknown hook event 'lunch'"):
        desk.respond("lunch", {})


@pytest.mark.parametrize("event", respond.EVENTS)
def test_no_payload_makes_an_event_fail(desk: Desk, event: str) -> None:
    desk.add("The kettle is red", category="preferences")
    odd: list[Any] = [None, 1.5, True, [], {}, "x" * 100_000, "\ud800", "\0", "‮"]
    for value in odd:
        names = ("session_id", "cwd", "prompt", "source", "reason", "client", "project")
        desk.respond(event, dict.fromkeys(names, value))
        for name in names:
            desk.respond(event, {name: value})


def test_the_settings_are_the_users_alone(desk: Desk, tmp_path: Path) -> None:
    hostile = tmp_path / "garden" / "config.toml"
    hostile.write_text('[agents]\nprivate_to = ["claude-code"]\nleast_confidence = 0.0\n')
    environment = {"TRISKELE_HOME": str(desk.home), "TRISKELE_AGENTS_PRIVATE_TO": "claude-code"}
    assert config.load(environment).agents.private_to == ()


def test_a_second_prompt_asks_the_store_for_nothing_that_did_not_change(desk: Desk) -> None:
    desk.add("The roses are watered on Mondays")
    desk.prompt("when are the roses watered", session_id="warming")
    questions: list[str] = []

    def note(_cursor: object, sql: str, _bindings: object) -> bool:
        questions.append(sql)
        return True

    database = desk.engine.store._database  # type: ignore[attr-defined]
    counts = []
    for session in ("one", "two"):
        database.connection().exec_trace = note
        assert desk.prompt("when are the roses watered", session_id=session)
        counts.append(len(questions))
        # Heads, kinds of documents and links were asked for by the first prompt; what it noted changed none of them.
        assert not [sql for sql in questions if "FROM meta" in sql or "EXISTS (SELECT 1 FROM documents" in sql]
        questions.clear()
    assert counts[0] == counts[1]


def test_a_memory_by_hand(make_memory: Callable[..., Memory]) -> None:
    memory = make_memory("x", project="a" * 300, created_at=make_memory().created_at)
    assert len(fence.line(memory, fence.label(memory, {memory.id: memory.id}))) < 160


ROSES = "The roses are watered on Mondays"
NOT_THE_USERS = [
    {"prompt": f"<task-notification>{ROSES}"},
    {"prompt": f"<teammate-message>{ROSES}"},
    {"prompt": f"<system-reminder>{ROSES}"},
    {"prompt": f"<local-command-stdout>{ROSES}"},
    {"prompt": f"[Request interrupted] {ROSES}"},
    {"prompt": ROSES, "agent_id": "a1", "agent_type": "Explore"},
    *({"prompt": ROSES, "source": source} for source in ("loop_wakeup", "schedule_wakeup", "system", "poll_event")),
]


@pytest.mark.parametrize("payload", NOT_THE_USERS)
def test_prompts_that_are_not_the_users_get_and_count_nothing(
    open_desk: Callable[..., Desk], payload: dict[str, str]
) -> None:
    desk = open_desk("least_confidence = 0.0")
    id = desk.add(ROSES)
    assert desk.said("user-prompt-submit", **payload) == ""
    desk.engine.deferred_writes.flush()
    assert id not in desk.engine.store.usage.counts([id])
    assert desk.prompt(payload["prompt"].lstrip("<[")) == [ROSES]


@pytest.mark.parametrize("source", ["user", "sdk"])
def test_prompts_of_a_person_and_of_a_script_get_memories(open_desk: Callable[..., Desk], source: str) -> None:
    desk = open_desk("least_confidence = 0.0")
    desk.add(ROSES)
    assert ROSES in desk.said("user-prompt-submit", prompt="when are the roses watered?", source=source)


@pytest.mark.slow
def test_a_prompt_loads_neither_the_rules_of_learning_nor_masked_arrays(tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from triskele import config
from triskele.engine.local import LocalEngine
from triskele.replies.rooms import HookCall
with LocalEngine(config.load({{"TRISKELE_HOME": {str(tmp_path)!r}}}), Path("/")) as engine:
    before = "numpy.ma" in sys.modules or "triskele.privacy.detect" in sys.modules
    assert not engine.agents.respond(HookCall(event="user-prompt-submit", prompt="where do the tulips stand")).text
    print(before, {{"triskele.agents.learning", "triskele.privacy.detect", "numpy.ma"}} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split(" ", 1) == ["False", "set()\n"]
