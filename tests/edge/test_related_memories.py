"""What a new memory repeats: found by the resident process, asked about by the client, never waited for long."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from triskele import __main__ as program
from triskele.curation.curator import Curator
from triskele.edge.cli import related_memories, remote
from triskele.edge.cli.invocation import Invocation
from triskele.edge.cli.related_memories import OnlyClientAsks
from triskele.engine import local
from triskele.engine.local import LocalEngine

OpenEngine = Callable[..., LocalEngine]
KNOWN = "We deploy the shop with Argo CD every Monday"


def request(engine: LocalEngine, *arguments: str, is_terminal: bool = False) -> dict[str, Any]:
    """A command as the client of the resident process sends it."""
    environ = {
        "TRISKELE_HOME": str(engine.settings.home),
        "TRISKELE_RECALL_MODEL": "none",
        "TRISKELE_PROJECT": "garden",
    }
    return {
        "arguments": list(arguments),
        "folder": str(engine.settings.home),
        "environ": environ,
        "is_terminal": is_terminal,
        "width": 80,
        "height": 25,
        "terminal": {},
    }


@pytest.fixture
def engine(open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch) -> LocalEngine:
    """The engine of a resident process, which embeds in a thread."""
    monkeypatch.setattr(remote, "_check_settings", lambda *_: None)
    made = open_engine()
    made.remember(KNOWN, project="garden")
    made.work_in_background()
    return made


def test_a_resident_process_whose_recall_hangs_answers_by_words(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    monkeypatch.setattr(Curator, "related", lambda *_: gate.wait(60) and [])
    said = remote.run(engine, request(engine, "add", "We deploy the shop with Argo CD each Monday!"))
    gate.set()
    assert "It repeats" in said and KNOWN in said
    assert engine.store.census().memories == 2


def test_recall_that_is_quick_enough_answers(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "RELATED_S", 60.0)
    monkeypatch.setattr(Curator, "related_by_words", lambda *_: [])
    assert "It repeats" in remote.run(engine, request(engine, "add", "We deploy the shop with Argo CD each Monday!"))


def test_related_by_words_only_until_a_model_is_open(open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = open_engine()
    engine.remember(KNOWN)
    monkeypatch.setattr(Curator, "related", lambda *_: pytest.fail("recall would load a model"))
    [found] = engine.related(content=f"{KNOWN}!")
    assert (found.memory.content, found.relation) == (KNOWN, "duplicate")


def test_the_resident_process_names_what_the_client_has_to_ask_about(engine: LocalEngine) -> None:
    with pytest.raises(OnlyClientAsks) as asked:
        remote.run(engine, request(engine, "add", f"{KNOWN}!", is_terminal=True))
    [known] = engine.browse(project="garden").memories
    [word] = asked.value.words
    assert word.startswith(f"{known.id}:duplicate:")
    head = b"HTTP/1.1 204 No Content\r\nDate: x\r\nX-Triskele-Related: " + word.encode()
    assert program._related(head) == (word,)
    assert program._related(b"HTTP/1.1 204 No Content") == ()


@pytest.mark.parametrize("word", ["{}:contradiction:0.95", "{}", "1zzzzzzzzzzzzzzz:update:0.95", "{}:other:0.95"])
def test_the_client_asks_about_what_the_resident_process_found(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    engine = open_engine()
    known = engine.remember(KNOWN, project="garden").id
    monkeypatch.setattr(Curator, "related_by_words", lambda *_: [])
    invocation = Invocation(related=(word.format(known),))
    monkeypatch.setattr(related_memories.click, "prompt", lambda *_, **__: "replace")
    is_known = "contradiction" in word
    older, related = related_memories.ask(invocation, engine, "We deploy by hand", "garden")
    assert (older, [each.relation for each in related]) == ((known, ["contradiction"]) if is_known else (None, []))
