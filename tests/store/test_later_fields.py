"""A new optional field of a memory: what was written without it keeps its hashes, fingerprints and formats."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from pydantic import ValidationError

import triskele
from triskele import config
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput
from triskele.exchange.archive import export_archive, import_archive
from triskele.exchange.transfer import export_memories
from triskele.server.sync_receiver import SyncRecord
from triskele.store.rows import LATER_COLUMNS, VERSION_LISTS, from_memory, row_hash, version_hash
from triskele.sync.states import FINGERPRINTED, fingerprint

# Where the field `mood` is added, after which text.
CHANGES = {
    "types.py": ("    shared_by: str | None = None\n", "    mood: str | None = None\n"),
    "store/rows.py": ("    SPOKEN,\n", "    ('mood',),\n"),
    "store/sqlite/schema.py": ("speaker TEXT, role TEXT,", " mood TEXT,"),
    "sync/states.py": ("    role: Role | None = None\n", "    mood: str | None = None\n"),
    "server/sync_receiver.py": ("    role: Role | None = None\n", "    mood: str | None = None\n"),
    "requests.py": ("    role: RoleName | None\n", "    mood: str | None\n"),
    "validation.py": ('("keywords", "session", "project", "speaker"', ', "mood"'),
}
LATER = """
import json, sys
from dataclasses import replace
from contextlib import nullcontext
from pathlib import Path
from triskele import config
from triskele.engine.local import LocalEngine
from triskele.exchange.archive import export_archive, import_archive
from triskele.exchange.transfer import export_memories
from triskele.server.sync_receiver import SyncRecord
from triskele.store.rows import VERSION_NAMES, from_memory, to_memory, version_hash
from triskele.sync import states
from triskele.types import Add

folder = Path(sys.argv[1])

def opened(name):
    environment = {"TRISKELE_HOME": str(folder / name), "TRISKELE_RECALL_MODEL": "none", "TRISKELE_PROJECT": "demo"}
    url = f"sqlite:///{folder / name / 'memories.db'}"
    return LocalEngine(config.load(environment, store_url=url), folder)

def digests(engine):
    memories = [memory for _, memory in engine.store.versions()]
    return {f"{m.id} {m.version}": [version_hash(from_memory(m)), states.fingerprint(m)] for m in memories}

assert VERSION_NAMES[-1] == "mood"
with opened("from-archive") as engine:
    import_archive(engine, folder / "old.archive", keep_origin=True)
    answers = {"archive": digests(engine)}
with opened("from-export") as engine:
    report = engine.import_memories(folder / "old.jsonl", keep_origin=True)
    answers["problems"] = [str(problem) for problem in report.problems]
    answers["export"] = digests(engine)
    kettle = engine.remember("The kettle is red", mood="glad")
    assert engine.get(kettle.id).mood == "glad"
    assert engine.edit(kettle.id, mood=None)[0].action == "edited" and engine.get(kettle.id).mood is None
    engine.edit(kettle.id, mood="calm")
    memory = next(memory for _, memory in engine.store.versions() if memory.known_to is None)
    calm = replace(memory, id="0" * 16, mood="calm")
    assert version_hash(from_memory(calm)) != version_hash(from_memory(replace(calm, mood=None)))
    assert states.fingerprint(calm) != states.fingerprint(replace(calm, mood=None))
    engine.store.apply([Add(calm, verbatim=True)], batch="calm")
    export_archive(engine, folder / "new.archive", include_private=True)
    export_memories(engine, folder / "new.jsonl")
    export_memories(engine, folder / "notes", format="markdown")
for name in ("new.archive", "new.jsonl", "notes"):
    with opened(f"from {name}") as engine:
        if name == "new.archive":
            import_archive(engine, folder / name, keep_origin=True)
        else:
            engine.import_memories(folder / name, keep_origin=True)
        moods = {memory.content: memory.mood for _, memory in engine.store.versions() if memory.mood}
        answers[name] = moods["The kettle is red"]
        assert name == "notes" or engine.store.memories([calm.id])[calm.id].mood == "calm"
print(json.dumps(answers))
"""


@pytest.fixture
def later(tmp_path: Path) -> Path:
    """A copy of the source in which a memory has one more optional field."""
    source = Path(triskele.__file__).parent
    copy = tmp_path / "later" / "triskele"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("*.onnx", "__pycache__", "weights"))
    for name, (text, addition) in CHANGES.items():
        before = (copy / name).read_text(encoding="utf-8")
        assert before.count(text) == 1, f"{name} has another form"
        (copy / name).write_text(before.replace(text, text + addition), encoding="utf-8")
    return copy.parent


@pytest.mark.slow
def test_archives_exports_hashes_and_fingerprints_outlive_a_new_field(tmp_path: Path, later: Path) -> None:
    environment = {"TRISKELE_HOME": str(tmp_path / "old"), "TRISKELE_RECALL_MODEL": "none", "TRISKELE_PROJECT": "demo"}
    with LocalEngine(config.load(environment), tmp_path) as engine:
        lamp = engine.remember("The lamp of Zoë Marsh is green", speaker="Zoë", role="user").id
        engine.edit(lamp, content="The lamp of Zoë Marsh is blue")
        engine.remember("We deploy with Helm", tags=["ops"])
        export_archive(engine, tmp_path / "old.archive", include_private=True)
        export_memories(engine, tmp_path / "old.jsonl")
        memories = [memory for _, memory in engine.store.versions()]
    expected = {f"{m.id} {m.version}": [version_hash(from_memory(m)), fingerprint(m)] for m in memories}

    done = subprocess.run(
        [sys.executable, "-c", LATER, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(later)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    assert answers["problems"] == []
    assert answers["archive"] == answers["export"] == expected
    assert answers["new.archive"] == answers["new.jsonl"] == answers["notes"] == "calm"


def test_an_archive_without_the_first_columns_is_refused(tmp_path: Path) -> None:
    """Only later columns may be missing."""
    environment = {"TRISKELE_HOME": str(tmp_path / "one"), "TRISKELE_RECALL_MODEL": "none"}
    with LocalEngine(config.load(environment), tmp_path) as engine:
        engine.remember("We deploy with Helm")
        export_archive(engine, tmp_path / "one.archive", include_private=True)
    head, *rest = (tmp_path / "one.archive").read_text().splitlines(keepends=True)
    values = json.loads(head)
    values["columns"]["versions"].remove("content")
    (tmp_path / "one.archive").write_text("".join([json.dumps(values, separators=(",", ":")) + "\n", *rest]))
    environment["TRISKELE_HOME"] = str(tmp_path / "two")
    with (
        LocalEngine(config.load(environment), tmp_path) as engine,
        pytest.raises(BadInput, match="another version"),
    ):
        import_archive(engine, tmp_path / "one.archive", keep_origin=True)


def test_version_hash_leaves_out_empty_later_columns() -> None:
    first = [f"value {number}" for number in range(len(VERSION_LISTS[0]))]
    rest = [None] * (len(LATER_COLUMNS) - 2)
    assert version_hash([*first, None, None, *rest]) == row_hash(first)
    assert version_hash([*first, None, "user", *rest]) == row_hash([*first, None, "user"])


def test_the_lists_begin_as_they_were_released() -> None:
    """A changed list would make every row damaged and every synced memory a conflict."""
    assert (len(VERSION_LISTS[0]), len(FINGERPRINTED[0])) == (20, 13)
    assert VERSION_LISTS[:2] == (VERSION_LISTS[0], ("speaker", "role"))


@pytest.mark.parametrize(("mood", "is_refused"), [(None, False), ("calm", True)])
def test_a_pushed_memory_may_have_an_unknown_field_only_without_a_value(mood: str | None, is_refused: bool) -> None:
    """A newer laptop sends fields that this server would lose."""
    at = "2026-05-02T10:00:00Z"
    record = {"content": "x", "category": "facts", "created_at": at, "updated_at": at, "mood": mood}
    with pytest.raises(ValidationError, match="unknown field mood") if is_refused else nullcontext():
        SyncRecord.model_validate_json(json.dumps(record))
