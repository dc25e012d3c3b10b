"""What a new memory repeats: found by the resident process, asked about by the client, never waited for long."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from triskele import __main__ as program
from triskele.curation.curator import Curator
from triskele.engine import Engine
from triskele.serving.cli import related_memories, remote
from triskele.serving.cli.invocation import Invocation
from triskele.serving.cli.related_memories import OnlyClientAsks

OpenEngine = Callable[..., Engine]
KNOWN = "We deploy the shop with Argo CD every Monday"


def request(engine: Engine, *arguments: str, is_terminal: bool = False) -> dict[str, Any]:
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
def engine(open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    monkeypatch.setattr(remote, "_check_settings", lambda *_: None)
    made = open_engine()
    made.remember(KNOWN, project="garden")
    return made


def test_a_resident_process_whose_recall_hangs_answers_by_words(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    monkeypatch.setattr(Curator, "hints", lambda *_: gate.wait(60) and [])
    said = remote.run(engine, request(engine, "add", "We deploy the shop with Argo CD each Monday!"))
    gate.set()
    assert "It repeats" in said and KNOWN in said
    assert engine.census().memories == 2


def test_recall_that_is_quick_enough_answers(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(related_memories, "DEADLINE_S", 60.0)
    monkeypatch.setattr(Curator, "word_hints", lambda *_: [])
    assert "It repeats" in remote.run(engine, request(engine, "add", "We deploy the shop with Argo CD each Monday!"))


def test_the_resident_process_names_what_the_client_has_to_ask_about(engine: Engine) -> None:
    with pytest.raises(OnlyClientAsks) as asked:
        remote.run(engine, request(engine, "add", f"{KNOWN}!", is_terminal=True))
    [known] = engine.browse(project="garden")
    assert asked.value.ids == (known.id,)
    head = b"HTTP/1.1 204 No Content\r\nDate: x\r\nX-Triskele-Related: " + known.id.encode()
    assert program._related(head) == (known.id,)
    assert program._related(b"HTTP/1.1 204 No Content") == ()


def test_the_client_asks_about_what_the_resident_process_found(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Curator, "word_hints", lambda *_: [])
    [known] = engine.browse(project="garden")
    draft = engine.draft(f"{KNOWN}!", project="garden")
    assert related_memories.related(Invocation(), engine, draft) == []
    [found] = related_memories.related(Invocation(related=(known.id,)), engine, draft)
    assert found.old == known and found.is_sure
