"""The virtual /memories folder: the commands of the file memory tool, over memories that are checked and journaled."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from triskele.agents import echo
from triskele.agents.file_memory import FileMemory
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput, NotFound, TriskeleError
from triskele.types import Origin, Sensitivity

PATH = "/memories/notes.md"


@pytest.fixture
def engine(open_engine: Callable[..., LocalEngine]) -> LocalEngine:
    return open_engine().acting_as("client:test")


@pytest.fixture
def folder(engine: LocalEngine) -> FileMemory:
    return FileMemory(engine, "garden")


def call(folder: FileMemory, command: str, path: str = PATH, **more: Any) -> str:
    return folder.run({"command": command, "path": path, **more})


def contents(engine: LocalEngine) -> list[str]:
    return [memory.content for memory in sorted(engine.browse().memories, key=lambda memory: memory.position or 0)]


def test_a_file_is_its_paragraphs(folder: FileMemory, engine: LocalEngine) -> None:
    assert call(folder, "create", file_text="The roses drink.\nOn Mondays.\n\n\nThe cat sleeps.\n").endswith(PATH)
    assert contents(engine) == ["The roses drink.\nOn Mondays.", "The cat sleeps."]
    [first, *_] = sorted(engine.browse().memories, key=lambda memory: memory.position or 0)
    assert (first.origin, first.session, first.project) == (Origin.AGENT, PATH, "garden")
    assert engine.recall("roses").hits[0].memory.id == first.id
    assert call(folder, "view").split("\n")[1:] == [
        "     1\tThe roses drink.",
        "     2\tOn Mondays.",
        "     3\t",
        "     4\tThe cat sleeps.",
    ]
    assert call(folder, "view", view_range=[4, -1]).split("\n")[1:] == ["     4\tThe cat sleeps."]
    assert f"\t{PATH}" in call(folder, "view", "/memories")


def test_create_refuses_an_echo(folder: FileMemory, engine: LocalEngine) -> None:
    memory = engine.store.history(engine.remember("The roses drink on Mondays.", project="garden").id)[-1]
    note = partial(echo.note_injection, engine.store, [memory], conversation="talk", tokens={memory.id: 9})
    engine.deferred_writes.put(note)
    with pytest.raises(BadInput, match="this repeats memory"):
        call(folder, "create", file_text="The cat sleeps.\n\nThe roses drink on Mondays.")
    assert contents(engine) == ["The roses drink on Mondays."]


def test_str_replace_leaves_other_paragraphs_and_can_be_undone(folder: FileMemory, engine: LocalEngine) -> None:
    call(folder, "create", file_text="The roses drink.\n\nThe cat sleeps.")
    ids = {memory.content: memory.id for memory in engine.browse().memories}
    assert "edited" in call(folder, "str_replace", old_str="cat", new_str="dog")
    assert {memory.content: memory.id for memory in engine.browse().memories} == {
        "The roses drink.": ids["The roses drink."],
        "The dog sleeps.": ids["The cat sleeps."],
    }
    call(folder, "insert", insert_line=0, insert_text="First of all.\n\n")
    assert contents(engine) == ["First of all.", "The roses drink.", "The dog sleeps."]
    engine.undo()
    assert contents(engine) == ["The roses drink.", "The dog sleeps."]
    assert {entry.actor for entry in engine.store.journal()} == {"client:test"}


def test_rename_and_delete(folder: FileMemory, engine: LocalEngine) -> None:
    call(folder, "create", "/memories/a/one.md", file_text="One.")
    call(folder, "create", "/memories/a/two.md", file_text="Two.")
    folder.run({"command": "rename", "old_path": "/memories/a", "new_path": "/memories/b"})
    assert "/memories/b/two.md" in call(folder, "view", "/memories")
    with pytest.raises(BadInput, match="already exists"):
        call(folder, "create", "/memories/b/one.md", file_text="x")
    call(folder, "delete", "/memories/b/one.md")
    assert contents(engine) == ["Two."]
    call(folder, "delete", "/memories/b")
    with pytest.raises(NotFound, match="does not exist"):
        call(folder, "view", "/memories/b/two.md")
    engine.undo()
    assert contents(engine) == ["Two."]


def test_the_same_checks_as_everywhere(folder: FileMemory, engine: LocalEngine) -> None:
    call(folder, "create", file_text="Keys\n\nThe password of the router is xK9#mP2$vL5q.")
    [secret] = [memory for memory in engine.browse().memories if memory.sensitivity is Sensitivity.SECRET]
    assert "xK9" not in secret.content and "xK9" not in call(folder, "view") and "[SECRET]" in call(folder, "view")
    call(folder, "str_replace", old_str="Keys", new_str="Doors")
    assert engine.get(secret.id).version == 1
    engine.remember("Only for me", sensitivity=Sensitivity.PRIVATE)
    engine.remember("In another place", project="kitchen")
    engine.remember("The gate is green")
    shown = call(folder, "view", "/memories/triskele/facts.md")
    assert "gate" in shown and "Only for me" not in shown and "another place" not in shown


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ({"command": "format"}, "unknown command"),
        ({"command": "view", "path": "/etc/passwd"}, "inside /memories"),
        ({"command": "view", "path": "/memories/../etc"}, "inside /memories"),
        ({"command": "view", "path": "/memories/%2e%2e/etc"}, "inside /memories"),
        ({"command": "view"}, "inside /memories"),
        ({"command": "create", "path": PATH}, "file_text is missing"),
        ({"command": "create", "path": PATH, "file_text": " \n"}, "would be empty"),
        ({"command": "create", "path": "/memories", "file_text": "x"}, "cannot be changed"),
        ({"command": "create", "path": "/memories/triskele/facts.md", "file_text": "x"}, "read-only"),
        ({"command": "str_replace", "path": "/memories/a.md", "old_str": "zebra", "new_str": "x"}, "did not appear"),
        ({"command": "str_replace", "path": "/memories/a.md", "old_str": "a", "new_str": "x"}, "Multiple occurrences"),
        ({"command": "insert", "path": "/memories/a.md", "insert_line": 9, "insert_text": "x"}, r"\[0, 1\]"),
        ({"command": "delete", "path": "/memories/none.md"}, "does not exist"),
        ({"command": "rename", "old_path": "/memories/a.md", "new_path": "/memories/a.md"}, "already exists"),
    ],
)
def test_errors_are_answers(folder: FileMemory, command: dict[str, Any], message: str) -> None:
    call(folder, "create", "/memories/a.md", file_text="a and a")
    with pytest.raises(TriskeleError, match=message):
        folder.run(command)
