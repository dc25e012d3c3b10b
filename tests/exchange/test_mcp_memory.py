"""The reference server's memory file: every observation and relation becomes a memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from triskele.engine.local import LocalEngine
from triskele.errors import BadInput
from triskele.exchange import mcp_memory
from triskele.exchange.transfer import import_memories
from triskele.types import LinkKind

OpenEngine = Callable[..., LocalEngine]
SAMPLES = Path(__file__).parent / "samples"


def test_lines_of_entities_and_relations(open_engine: OpenEngine) -> None:
    engine = open_engine()
    report = import_memories(engine, SAMPLES / "mcp_memory.json")
    assert (report.format, report.read, report.added, report.links) == ("mcp-memory", 8, 8, 2)
    memories = {memory.content: memory for memory in engine.browse().memories}
    assert set(memories) == {
        "John_Smith: Speaks fluent Spanish",
        "John_Smith: Graduated in 2019",
        "John_Smith: Prefers morning meetings",
        "Anthropic: Builds AI systems",
        "Quiet Harbour: project",
        "John_Smith works_at Anthropic",
        "John_Smith maintains Quiet Harbour",
        "John_Smith knows Somebody Unknown",
    }
    john = memories["John_Smith: Speaks fluent Spanish"]
    assert (john.tags, john.category, john.origin) == (("john_smith", "person"), "people", "import")
    links = {(link.source, link.kind, link.target) for link in engine.get(john.id).links}
    assert links == {
        (john.id, LinkKind.SEE_ALSO, memories["Anthropic: Builds AI systems"].id),
        (john.id, LinkKind.SEE_ALSO, memories["Quiet Harbour: project"].id),
    }


def test_one_object_with_lists(open_engine: OpenEngine) -> None:
    engine = open_engine()
    report = import_memories(engine, SAMPLES / "mcp_graph.json")
    assert (report.format, report.added, report.links) == ("mcp-memory", 3, 1)
    # What the lines hold beyond it is new; the rest, and the link, are known.
    report = import_memories(engine, SAMPLES / "mcp_memory.json")
    assert (report.added, report.duplicates, report.links) == (5, 3, 1)
    dry = import_memories(engine, SAMPLES / "mcp_memory.json", dry_run=True)
    assert (dry.added, dry.duplicates, dry.links) == (0, 8, 0)


def test_ties_are_bounded(open_engine: OpenEngine, tmp_path: Path) -> None:
    entities = [{"type": "entity", "name": f"n{i}", "entityType": "t", "observations": ["o"]} for i in range(60)]
    relations = [{"type": "relation", "from": "n0", "to": f"n{i}", "relationType": "knows"} for i in range(60)]
    file = tmp_path / "memory.json"
    file.write_text("\n".join(map(json.dumps, [*entities, *relations])))
    report = import_memories(open_engine(), file)
    assert (report.added, report.links) == (120, mcp_memory.MAX_TIES_PER_ENTITY)


def test_a_long_observation_is_cut(open_engine: OpenEngine, tmp_path: Path) -> None:
    record = {"type": "entity", "name": "Log", "entityType": "t", "observations": ["It rained all day. " * 100]}
    (tmp_path / "memory.json").write_text(json.dumps(record))
    engine = open_engine()
    assert import_memories(engine, tmp_path / "memory.json").added == 2
    assert all(memory.content.startswith("Log: It rained") for memory in engine.browse().memories)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"type": "entity", "entityType": "x", "observations": []}', "the name must be text, not null"),
        ('{"type": "entity", "name": " ", "observations": []}', "has an empty name"),
        ('{"type": "entity", "name": "a", "observations": "b"}', "the observations must be a list"),
        ('{"type": "entity", "name": "a", "observations": [3]}', "each of the observations must be text"),
        ('{"type": "relation", "from": "a", "to": "b"}', "the relationType must be text"),
        ('{"type": "mood", "name": "a"}', "is neither an entity nor a relation: type 'mood'"),
        ('{"name": "a"}', "is neither an entity nor a relation: type None"),
        ('{"type": "entity", "name": "%s"}' % ("x" * 201), "a name longer than 200"),
        ("nonsense", "is not valid JSON"),
        ('{"type": "entity", "na', "is cut off: the file is incomplete"),
    ],
)
def test_bad_lines(line: str, message: str, open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine()
    end = "" if "cut off" in message else "\n"
    file = tmp_path / "memory.json"
    file.write_text('{"type": "entity", "name": "good", "entityType": "", "observations": ["x"]}\n' + line + end)
    with pytest.raises(BadInput, match=f"line 2: .*{message}"):
        import_memories(engine, file)
    assert engine.store.census().journal == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"entities": [', "the file: is not valid JSON"),
        ('{"entities": {}}', "entities: is not a list"),
        ('{"entities": [1]}', "entity 1: is not a JSON object"),
        ('{"entities": [], "relations": []}', "holds neither entities nor relations"),
        ('{"entities": %s' % ("[" * 50_000), "the file: is nested too deeply"),
    ],
)
def test_bad_objects(text: str, message: str, open_engine: OpenEngine, tmp_path: Path) -> None:
    (tmp_path / "memory.json").write_text(text)
    with pytest.raises(BadInput, match=message):
        import_memories(open_engine(), tmp_path / "memory.json")
