"""An export that is imported and exported again is the same file, whatever happened to the memories."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from triskele.engine.local import LocalEngine
from triskele.exchange.jsonl import FORMAT
from triskele.exchange.transfer import export_memories, import_memories
from triskele.types import LinkKind, Sensitivity

OpenEngine = Callable[..., LocalEngine]
PASSWORD = "the wifi password is Tq8/+xPv2#kd"
EVERYTHING = {"include_private": True, "with_secrets": True}


@pytest.fixture
def engine(open_engine: OpenEngine) -> LocalEngine:
    """Memories of every class, and some that went from one to another."""
    engine = open_engine()
    lamp = engine.remember("The lamp is green", tags=["home"], importance=0.9, valid_from="2026-01-01").id
    engine.edit(lamp, content="The lamp is blue")
    engine.edit(lamp, tags=["home", "light"])
    engine.edit(lamp, speaker="Zoë", role="user")
    engine.remember("I would take the green one", speaker="Joanna", session="talk", position=1)
    engine.remember("The green one is sold out", role="assistant", session="talk", position=2)
    engine.forget(engine.remember("A forgotten remark").id)
    engine.remember("A remark that came back")
    _supersede(engine)
    _link(engine, lamp)
    secret = engine.remember(PASSWORD, title="Wifi of the office").id
    engine.edit(secret, tags=["wifi"])
    engine.forget(engine.remember("the garage password is Kp4#wq9z!Lm2").id)
    engine.remember("The doctor said rest", sensitivity=Sensitivity.PRIVATE)
    closed = engine.remember("Harmless so far").id
    engine.edit(closed, content="Now confidential", sensitivity=Sensitivity.PRIVATE)
    opened = engine.remember("Not to be told yet", sensitivity=Sensitivity.PRIVATE).id
    engine.edit(opened, content="The party is on Friday", sensitivity=Sensitivity.OPEN)
    _open_secrets(engine)
    return engine


def _supersede(engine: LocalEngine) -> None:
    first = engine.remember("We deploy with Helm").id
    second = engine.remember("We deploy with Argo CD", supersedes=first).id
    engine.remember("We deploy with Flux", supersedes=second)
    engine.forget(engine.remember("We deploy by hand", supersedes=first).id)


def _link(engine: LocalEngine, lamp: str) -> None:
    shade = engine.remember("The shade is of paper").id
    engine.link(shade, LinkKind.PART_OF, lamp)
    engine.unlink(shade, LinkKind.PART_OF, lamp)
    engine.link(shade, LinkKind.PART_OF, lamp)
    engine.link(lamp, LinkKind.SEE_ALSO, shade)
    engine.unlink(lamp, LinkKind.SEE_ALSO, shade)


def _open_secrets(engine: LocalEngine) -> None:
    engine.edit(engine.remember("the test password is hunter2hunter2").id, sensitivity=Sensitivity.OPEN)
    again = engine.remember("the demo password is demo1234demo").id
    engine.edit(again, sensitivity=Sensitivity.OPEN)
    engine.edit(again, content="the demo password is on the wall")
    never = engine.remember("the sample password is sample1234", sensitivity=Sensitivity.OPEN).id
    engine.forget(never)


@pytest.mark.parametrize("options", [{}, {"include_private": True}, {"with_secrets": True}, EVERYTHING])
def test_a_second_export_equals_the_first(
    engine: LocalEngine, open_engine: OpenEngine, tmp_path: Path, options: dict[str, Any]
) -> None:
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    export_memories(engine, first, **options)
    other = open_engine(tmp_path / "other" / "memories.db")
    import_memories(other, first, keep_origin=True)
    export_memories(other, second, **options)
    assert second.read_text().splitlines() == first.read_text().splitlines()
    assert other.upkeep.inspect(deep=True).findings == ()
    assert import_memories(engine, first, keep_origin=True).added == 0


def test_everything_is_every_version_and_link(engine: LocalEngine, tmp_path: Path) -> None:
    report = export_memories(engine, tmp_path / "all.jsonl", **EVERYTHING)
    header = json.loads((tmp_path / "all.jsonl").read_text().split("\n")[0])
    census = engine.store.census()
    assert header == {"triskele": FORMAT, "versions": census.versions, "links": len(list(engine.store.all_links()))}
    assert report.written == census.memories + census.forgotten
    assert (report.left_out_private, report.left_out_secret, report.left_out_versions) == (0, 0, 0)


def test_export_contains_speaker_and_role(engine: LocalEngine, open_engine: OpenEngine, tmp_path: Path) -> None:
    export_memories(engine, tmp_path / "said.jsonl")
    other = open_engine(tmp_path / "other" / "memories.db")
    import_memories(other, tmp_path / "said.jsonl")
    speakers = {memory.content: (memory.speaker, memory.role) for memory in other.browse(limit=1000).memories}
    assert speakers["The lamp is blue"] == ("Zoë", "user")
    assert speakers["I would take the green one"] == ("Joanna", None)
    assert speakers["The green one is sold out"] == (None, "assistant")
    assert speakers["A remark that came back"] == (None, None)


def test_every_export_contains_open_memories(engine: LocalEngine, tmp_path: Path) -> None:
    report = export_memories(engine, tmp_path / "open.jsonl")
    text = (tmp_path / "open.jsonl").read_text()
    current = {
        memory.content for memory in engine.browse(limit=1000).memories if memory.sensitivity is Sensitivity.OPEN
    }
    exported = {json.loads(line).get("memory", {}).get("content") for line in text.splitlines()}
    assert current <= exported
    assert not any(word in text for word in ("Tq8", "Kp4#", "Wifi of", "Not to be told", "Harmless", "doctor"))
    assert (report.left_out_private, report.left_out_secret, report.left_out_versions) == (2, 2, 3)


def test_a_whole_export_fills_the_gaps_of_a_plain_one(
    engine: LocalEngine, open_engine: OpenEngine, tmp_path: Path
) -> None:
    plain, whole, again = (tmp_path / f"{name}.jsonl" for name in ("plain", "whole", "again"))
    export_memories(engine, plain)
    export_memories(engine, whole, **EVERYTHING)
    other = open_engine(tmp_path / "other" / "memories.db")
    import_memories(other, plain, keep_origin=True)
    import_memories(other, whole, keep_origin=True)
    export_memories(other, again, **EVERYTHING)
    assert sorted(again.read_text().splitlines()) == sorted(whole.read_text().splitlines())
