"""An import takes all or nothing, killed or not, and can be taken back as one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from triskele.engine.local import LocalEngine
from triskele.errors import BadInput
from triskele.exchange import transfer
from triskele.exchange.transfer import export_memories, import_memories
from triskele.types import Action, Change, LinkKind, Origin, Outcome, Sensitivity

pytestmark = pytest.mark.slow

OpenEngine = Callable[..., LocalEngine]
SAMPLES = Path(__file__).parent / "samples"


def write_plain(path: Path, number: int) -> Path:
    lines = [json.dumps({"content": f"Locker {i} belongs to crew {i % 7}"}) for i in range(number)]
    path.write_text("\n".join(lines) + "\n")
    return path


def contents(engine: LocalEngine) -> list[str]:
    return sorted(memory.content for memory in engine.store.browse(engine.scope(all_projects=True), limit=10_000))


def test_plain_objects(open_engine: OpenEngine) -> None:
    engine = open_engine()
    report = import_memories(engine, SAMPLES / "plain.jsonl")
    assert (report.format, report.read, report.added, report.duplicates) == ("jsonl", 3, 3, 0)
    memories = {memory.content.split()[0]: memory for memory in engine.browse(all_projects=True).memories}
    assert {memory.origin for memory in memories.values()} == {Origin.IMPORT}
    assert memories["The"].tags == ("staging", "cluster") and memories["The"].importance == 0.8
    assert memories["The"].project == "garden"
    assert memories["Marta"].tags == ("marta", "review") and memories["Marta"].created_at.month == 2
    assert memories["Invoices"].project == "billing" and memories["Invoices"].keywords == "numbering fiscal"
    assert memories["Invoices"].valid_from is not None
    assert engine.recall("who likes short pull requests?").hits[0].memory.id == memories["Marta"].id


def test_plain_objects_of_a_conversation_say_who_spoke(open_engine: OpenEngine, tmp_path: Path) -> None:
    roles = ("user", "human", "model", "function", "system", "Assistant")
    lines = [{"role": role, "content": f"said by a {role}", "session": "talk"} for role in roles]
    lines.append({"speaker": "Ann", "text": "said by Ann"})
    file = tmp_path / "talk.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    engine = open_engine()
    assert import_memories(engine, file).added == len(lines)
    memories = {memory.content.removeprefix("said by a "): memory for memory in engine.browse().memories}
    assert [memories[role].role for role in roles] == ["user", "user", "assistant", "tool", "other", "assistant"]
    assert (memories["said by Ann"].speaker, memories["said by Ann"].role) == ("Ann", None)
    assert import_memories(engine, file).duplicates == len(lines)


def test_a_named_project_takes_everything(open_engine: OpenEngine) -> None:
    engine = open_engine()
    import_memories(engine, SAMPLES / "plain.jsonl", project="attic")
    assert {memory.project for memory in engine.browse(all_projects=True).memories} == {"attic"}


def test_import_writes_a_batch_per_project(open_engine: OpenEngine) -> None:
    engine = open_engine()
    one, other = (import_memories(engine, SAMPLES / "plain.jsonl", project=name) for name in ("attic", "cellar"))
    assert one.batch != other.batch
    engine.undo(one.batch)
    assert {memory.project for memory in engine.browse(all_projects=True).memories} == {"cellar"}


def test_a_dry_run_tells_and_writes_nothing(open_engine: OpenEngine) -> None:
    engine = open_engine()
    engine.remember("The staging cluster runs in Frankfurt.")
    before = engine.store.position()
    report = import_memories(engine, SAMPLES / "plain.jsonl", dry_run=True)
    assert (report.read, report.added, report.duplicates, report.problems) == (3, 2, 1, ())
    assert engine.store.position() == before
    assert [(each.action, each.category) for each in report.memories] == [
        ("duplicate", "facts"),
        ("added", "preferences"),
        ("added", "facts"),
    ]
    assert report.memories[1].content == "Marta prefers short pull requests."
    assert replace(report, memories=()) == import_memories(engine, SAMPLES / "plain.jsonl")


def test_the_same_text_twice_in_a_file(open_engine: OpenEngine, tmp_path: Path) -> None:
    file = tmp_path / "twice.jsonl"
    file.write_text('{"text": "One"}\n{"text": "One"}\n{"text": "One", "project": "other"}\n')
    report = import_memories(open_engine(), file)
    assert (report.read, report.added, report.duplicates) == (3, 2, 1)


def test_one_bad_line_keeps_everything_out(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine()
    file = write_plain(tmp_path / "many.jsonl", 1200)
    with file.open("a") as end:
        end.write('{"content": "x", "importance": 7}\n{"content": ""}\n{"content": "y", "color": 1}\nnonsense\n')
    with pytest.raises(BadInput) as caught:
        import_memories(engine, file)
    message = str(caught.value)
    assert "nothing was imported from many.jsonl" in message
    assert "4 problems" in message and "\n" not in message
    assert message.count("line 12") == 3
    assert engine.store.census().journal == 0
    report = import_memories(engine, file, dry_run=True)
    assert {problem.place for problem in report.problems} == {"line 1201", "line 1202", "line 1203", "line 1204"}
    assert (report.read, report.added, report.duplicates) == (1202, 1200, 0)


_DIE_AT = """
import os, signal, sys
from pathlib import Path
from triskele import config
from triskele.engine.local import LocalEngine
from triskele.exchange.transfer import import_memories
from triskele.store.writer import Writer

home, file, left = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
note = Writer._note

def dying(*values, **named):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    return note(*values, **named)

Writer._note = dying
with LocalEngine(config.load({"TRISKELE_HOME": str(home), "TRISKELE_PROJECT": "garden"}), home) as engine:
    import_memories(engine, file, keep_origin=True)
"""


@pytest.mark.parametrize("at", [1, 7, 9, 14])
def test_a_killed_import_leaves_nothing_and_can_be_done_again(at: int, open_engine: OpenEngine, tmp_path: Path) -> None:
    source = open_engine(tmp_path / "source.db")
    ids = [source.remember(f"Boat {i}").id for i in range(6)]
    for id in ids[::2]:
        source.edit(id, content=f"Ship {id}")
    for one, other in pairwise(ids):
        source.link(one, LinkKind.SEE_ALSO, other)
    source.unlink(ids[0], LinkKind.SEE_ALSO, ids[1])
    file = tmp_path / "export.jsonl"
    export_memories(source, file)
    home = tmp_path / "home"
    died = subprocess.run([sys.executable, "-c", _DIE_AT, str(home), str(file), str(at)], check=False)
    assert died.returncode == -signal.SIGKILL
    target = open_engine()
    assert list(target.store.versions()) == [] and target.store.journal() == []
    import_memories(target, file, keep_origin=True)
    assert [m for _, m in target.store.versions()] == [m for id in ids for m in source.store.history(id)]
    assert list(target.store.all_links()) == list(source.store.all_links())


def test_an_undone_import_can_be_done_again(open_engine: OpenEngine, tmp_path: Path) -> None:
    source, target = open_engine(), open_engine(tmp_path / "target.db")
    one, other = (source.remember(text).id for text in ("The tap drips", "The tap was mended"))
    source.link(other, LinkKind.SUPERSEDES, one)
    export_memories(source, tmp_path / "export.jsonl")
    for _ in range(3):
        report = import_memories(target, tmp_path / "export.jsonl")
        assert (report.added, report.links) == (2, 1)
        assert len(contents(target)) == 2 and target.superseded([one]) == {one}
        target.undo(report.batch)
        assert contents(target) == [] and list(target.get(one).links) == []
    stood = [(link.known_from, link.known_to) for link in target.store.all_links()]
    assert all(closed is not None and closed <= reopened for (_, closed), (reopened, _) in pairwise(stood))


def test_undo_takes_back_the_last_import(open_engine: OpenEngine) -> None:
    engine = open_engine()
    for _ in range(2):
        engine.remember("Kept") if not contents(engine) else None
        import_memories(engine, SAMPLES / "plain.jsonl")
        engine.undo()
        assert contents(engine) == ["Kept"]


def test_import_skips_a_concurrently_stored_text(
    open_engine: OpenEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine()
    apply = engine.apply
    stored: list[str] = []

    def raced(changes: Sequence[Change], **options: Any) -> list[Outcome]:
        if not stored:
            stored.append("")
            stored.append(engine.remember("Anthropic: Builds AI systems").id)
        return apply(changes, **options)

    monkeypatch.setattr(engine, "apply", raced)
    report = import_memories(engine, SAMPLES / "mcp_graph.json")
    assert (report.read, report.added, report.duplicates, report.links) == (3, 2, 1, 1)
    [link] = engine.store.all_links()
    assert link.target == stored[1]


def test_import_reports_progress(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine()
    steps: list[tuple[int, int | None]] = []
    import_memories(
        engine, write_plain(tmp_path / "many.jsonl", 1200), progress=lambda done, total: steps.append((done, total))
    )
    assert steps == [(500, None), (1000, None), (0, 1200), (1200, 1200)]
    steps.clear()
    export_memories(engine, tmp_path / "out.jsonl", progress=lambda done, total: steps.append((done, total)))
    assert steps == [(500, 1201), (1000, 1201), (1201, 1201)]


def test_all_under_one_batch(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine()
    report = import_memories(engine, SAMPLES / "mcp_memory.json")
    entries = engine.store.journal()
    assert {entry.batch for entry in entries} == {report.batch}
    actions = [entry.action for entry in entries]
    assert actions == sorted(actions) and actions.count(Action.LINKED) == report.links == 2


def test_an_import_may_be_private(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine()
    (tmp_path / "a.jsonl").write_text('{"text": "My shoe size is 43", "sensitivity": "private"}\n')
    import_memories(engine, tmp_path / "a.jsonl")
    assert engine.browse().memories[0].sensitivity is Sensitivity.PRIVATE
    (tmp_path / "b.jsonl").write_text('{"text": "x", "sensitivity": "hush"}\n')
    with pytest.raises(BadInput, match="line 1: unknown sensitivity 'hush'"):
        import_memories(engine, tmp_path / "b.jsonl")


BAD_PLAIN = {
    '{"content": 3}': "content must be text, not a number",
    '{"tags": ["a"]}': "has neither content nor text",
    '{"content": "a", "text": "b"}': "has the same field under two names",
    '{"content": "a", "tags": [1]}': "each of tags must be text",
    '{"content": "a", "importance": NaN}': "NaN is not a JSON number",
    '{"content": "a", "importance": "high"}': "importance must be a number",
    '{"content": "a", "position": 1.5}': "position must be a whole number",
    '{"content": "a", "created_at": "31.12.2025"}': "not a date",
    '{"content": "\\ud800"}': "not valid Unicode",
    '{"content": "a\\u0000b"}': "NUL",
    '{"content": "%s"}' % ("x" * 1401): "1,401 characters, the limit is 1,400: split it",
    '{"content": %s}' % ("[" * 50_000 + "]" * 50_000): "nested too deeply",
    '{"content": %s}' % ("9" * 5000): "is not valid JSON",
    "[1, 2]": "is not a JSON object",
    '{"content": "a"': "is not valid JSON",
    '{"content": "%s"}' % ("x" * 1_000_000): "is longer than 1,000,000 bytes",
}


@pytest.mark.parametrize("line", BAD_PLAIN, ids=lambda line: str(line)[:30])
def test_bad_lines(line: str, open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine()
    file = tmp_path / "bad.jsonl"
    file.write_text(f'{{"content": "good"}}\n{line}\n{{"content": "good too"}}\n')
    with pytest.raises(BadInput, match="line 2: ") as caught:
        import_memories(engine, file)
    assert BAD_PLAIN[line] in str(caught.value)
    assert len(str(caught.value)) < 300
    assert engine.store.census().journal == 0


def test_endless_problems_end(open_engine: OpenEngine, tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text('{"content": "good"}\n' + "{}\n" * 5000)
    report = import_memories(open_engine(), file, dry_run=True)
    assert len(report.problems) == transfer.MAX_PROBLEMS


def test_unknown_formats(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine()
    with pytest.raises(BadInput, match="unknown format 'yaml': choose one of claude-notes, agents, markdown"):
        import_memories(engine, SAMPLES / "plain.jsonl", format="yaml")
    with pytest.raises(BadInput, match="unknown format 'agents': choose one of jsonl, markdown"):
        export_memories(engine, tmp_path / "x", format="agents")


PEM = "-----BEGIN PRIVATE KEY-----\n" + "\n".join("MIIEvQIBADANBgkqhkiG9w0BAQEFAASC" * 2 for _ in range(40))


@pytest.mark.parametrize("way", ["markdown", "agents", "mcp-memory"])
def test_a_note_that_is_cut_through_a_secret_is_secret_in_all_its_pieces(
    way: str, open_engine: OpenEngine, tmp_path: Path
) -> None:
    engine = open_engine()
    name = {"markdown": "a.md", "agents": "AGENTS.md", "mcp-memory": "memory.json"}[way]
    entity = {"type": "entity", "name": "box", "entityType": "thing", "observations": [PEM]}
    (tmp_path / name).write_text(json.dumps(entity) + "\n" if way == "mcp-memory" else f"The key of the box:\n{PEM}\n")
    report = import_memories(engine, tmp_path / name, format=way)
    assert report.added == report.secrets > 1
    assert {memory.sensitivity for memory in engine.browse().memories} == {Sensitivity.SECRET}
    # Run again it adds nothing, although titles alone would not tell.
    assert import_memories(engine, tmp_path / name, format=way).added == 0
