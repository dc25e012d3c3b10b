"""What a conversation was given: once, until it changes or a compaction loses it, and counted without waiting."""

from __future__ import annotations

from collections.abc import Callable

import apsw
import pytest
from desk import Desk

from triskele.agents import injection
from triskele.errors import BadInput
from triskele.types import Sensitivity


def test_respond_repeats_a_memory_only_after_its_text_changed(desk: Desk) -> None:
    id = desk.add("The kettle is red")
    assert desk.prompt("kettle") == ["The kettle is red"]
    assert desk.prompt("kettle") == []
    assert desk.prompt("kettle", session_id="two") == ["The kettle is red"]
    desk.engine.edit(id, importance=0.9)
    assert desk.prompt("kettle") == []
    desk.engine.edit(id, content="The kettle is blue")
    assert desk.prompt("kettle") == ["The kettle is blue"]
    assert desk.prompt("kettle") == []


def test_respond_repeats_memories_in_an_unnamed_conversation(desk: Desk) -> None:
    desk.add("The kettle is red")
    for session in (None, "", 5):
        assert desk.prompt("kettle", session_id=session) == ["The kettle is red"]


def test_respond_adds_no_worse_hits_for_injected_memories(desk: Desk) -> None:
    for number in range(9):
        desk.add(f"Kettle number {number} stands in room {'abcdefghi'[number] * 3}")
    assert len(desk.prompt("kettle")) == 5
    assert desk.prompt("kettle") == []


def test_injected_memories_survive_the_process(open_desk: Callable[..., Desk]) -> None:
    desk = open_desk()
    desk.add("The kettle is red")
    assert desk.prompt("kettle") == ["The kettle is red"]
    desk.engine.close()
    assert open_desk().prompt("kettle") == []


@pytest.mark.parametrize("way", ["pre-compact", "compact"])
def test_compaction_restores_injected_memories(desk: Desk, way: str) -> None:
    desk.add("The kettle is red")
    desk.add("Tea before coffee", category="preferences")
    assert desk.start() == ["Tea before coffee"]
    assert desk.prompt("kettle") == ["The kettle is red"]
    if way == "pre-compact":
        assert desk.said("pre-compact", trigger="auto") == ""
    assert desk.start("compact") == ["The kettle is red", "Tea before coffee"]
    assert desk.prompt("kettle") == []


def test_where_no_session_starts_after_a_compaction_the_next_prompt_does_it(desk: Desk) -> None:
    desk.add("The kettle is red")
    desk.add("Roses want sun")
    gone = desk.add("Lilies want shade")
    for words in ("kettle", "roses", "lilies"):
        assert desk.prompt(words) != []
    desk.said("pre-compact")
    desk.engine.forget(gone)
    assert desk.prompt("/status") == []
    assert desk.prompt("roses") == ["Roses want sun", "The kettle is red"]
    assert desk.prompt("kettle roses") == []


def test_after_a_compaction_no_more_than_one_parcel_comes_back(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(injection, "MOST_MEMORIES", 2)
    for word in ("kettle", "roses", "lilies"):
        desk.add(f"All about {word}")
        desk.prompt(word)
    desk.said("pre-compact")
    assert desk.prompt("nothing that is known") == ["All about lilies", "All about roses"]
    assert desk.prompt("nothing that is known") == []
    # The rest is not in the context, so that it may be told when it matters.
    assert desk.prompt("kettle") == ["All about kettle"]


def test_compaction_restores_only_injectable_memories(desk: Desk) -> None:
    id = desk.add("The kettle is red")
    desk.prompt("kettle")
    desk.engine.edit(id, sensitivity=Sensitivity.PRIVATE)
    assert desk.start("compact") == []


def test_resumed_conversation_continues_and_cleared_one_starts_over(desk: Desk) -> None:
    desk.add("The kettle is red")
    desk.prompt("kettle")
    assert desk.said("stop", last_assistant_message="The kettle is red") == ""
    assert desk.said("session-end", reason="logout") == ""
    desk.start("resume")
    assert desk.prompt("kettle") == []
    desk.said("session-end", reason="clear")
    assert desk.prompt("kettle") == ["The kettle is red"]


def test_late_response_counts_no_injection(desk: Desk) -> None:
    desk.add("The kettle is red", category="preferences")
    assert desk.prompt("kettle", deadline_s=-1.0) == []
    assert desk.start(deadline_s=-1.0) == []
    assert desk.engine.store.usage.days() == []
    assert desk.prompt("kettle", deadline_s=3600.0) == ["The kettle is red"]


def test_busy_store_neither_delays_nor_repeats_injections(desk: Desk) -> None:
    desk.add("The kettle is red")
    other = apsw.Connection(str(desk.home / "memories.db"))
    other.execute("BEGIN IMMEDIATE")
    # Whoever waited here would fail the test by its time limit.
    desk.engine.store._database.connection().set_busy_timeout(3_600_000)  # type: ignore[attr-defined]
    desk.engine.store._database._busy_timeout_s = 3600.0  # type: ignore[attr-defined]
    assert desk.prompt("kettle") == ["The kettle is red"]
    assert desk.prompt("kettle") == []
    desk.said("pre-compact")
    assert desk.start("compact") == ["The kettle is red"]
    assert desk.prompt("kettle") == []
    other.close()
    desk.said("session-end")
    [count] = desk.engine.store.usage.most_used()
    assert count.injected == 2


def test_a_failing_ledger_does_not_fail_the_prompt(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.add("The kettle is red")
    connection = desk.engine.store._database.connection()  # type: ignore[attr-defined]
    connection.execute("DROP TABLE usage_days")
    assert desk.prompt("kettle") == ["The kettle is red"]
    assert desk.prompt("kettle") == []


def test_respond_counts_injections(desk: Desk) -> None:
    id = desk.add("The kettle is red")
    desk.add("Roses want sun")
    reply = desk.said("user-prompt-submit", prompt="kettle")
    desk.prompt("kettle", session_id="two")
    desk.engine.deferred_writes.flush()
    [count] = desk.engine.store.usage.most_used()
    assert (count.id, count.recalled, count.injected) == (id, 0, 2)
    assert count.tokens == 2 * -(-len(reply.split("\n")[2]) // 4)
    [day] = desk.engine.store.usage.days()
    assert (day.recalled, day.injected, day.tokens) == (0, 2, count.tokens)


def test_store_does_not_hold_the_name_of_a_conversation(desk: Desk) -> None:
    desk.add("The kettle is red")
    desk.prompt("kettle", session_id="Quetzalcoatlus")
    desk.engine.close()
    assert not any(b"Quetzalcoatlus" in path.read_bytes() for path in desk.home.rglob("*") if path.is_file())


def test_the_end_of_a_subagent_does_not_end_the_conversation(desk: Desk) -> None:
    desk.add("The roses are watered on Mondays")
    assert desk.prompt("when are the roses watered?")
    desk.said("session-end", agent_id="a1", reason="clear")
    assert desk.prompt("when are the roses watered?") == []


def test_conversations_lists_the_newest_first_and_one_with_its_injections(desk: Desk) -> None:
    ids = [desk.add("The kettle is red"), desk.add("Roses want sun")]
    desk.prompt("kettle", client="codex")
    desk.prompt("roses", session_id="two")
    desk.engine.deferred_writes.flush()
    agents = desk.engine.agents
    newest, oldest = agents.conversations()
    assert (oldest.client, oldest.project, oldest.memories, oldest.given) == ("codex", "garden", 1, ())
    assert agents.conversations(limit=1) == [newest] and agents.conversations(limit=1, offset=1) == [oldest]
    [one] = agents.conversations(key=oldest.conversation)
    assert ([each.id for each in one.given], one.tokens) == ([ids[0]], oldest.tokens)
    assert agents.conversations(key="nobody") == []
    with pytest.raises(BadInput, match="offset"):
        agents.conversations(offset=-1)


def test_respond_names_the_injected_memories(desk: Desk) -> None:
    id = desk.add("The kettle is red")
    payload = {"session_id": "one", "cwd": str(desk.folder / "garden"), "prompt": "kettle"}
    answer = desk.respond("user-prompt-submit", payload)
    desk.engine.deferred_writes.flush()
    assert (answer.memories, answer.tokens, answer.note) == ((id,), desk.engine.stats().days[0].tokens, "")
    again = desk.respond("user-prompt-submit", payload)
    assert (again.text, again.memories, again.tokens) == ("", (), 0)
    assert again.note.startswith("all that is relevant is in the conversation already")
