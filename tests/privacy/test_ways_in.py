"""Every way into a store finds the same secrets, in texts and in labels."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import secret_samples
from click.testing import CliRunner

from triskele import config
from triskele.edge.cli.main import cli
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput
from triskele.exchange.transfer import IMPORTS, import_memories
from triskele.types import Sensitivity, is_secret

pytestmark = pytest.mark.slow

SAMPLES = [sample for sample in secret_samples.load(secret_samples.FORMS) if sample.kind and "\n" not in sample.text]
# One of each kind, and none that a format would read as its own markup.
CHOSEN = list({sample.kind: sample for sample in SAMPLES if sample.text[0].isalpha()}.values())
TEXTS = [sample.text for sample in CHOSEN]
# Tags are kept in lower case, which some keys are not recognised in.
IN_LABELS = [text for text in TEXTS if len(text) < 200]


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalEngine]:
    environment = {"TRISKELE_HOME": str(tmp_path / "home"), "TRISKELE_PROJECT": "garden"}
    environment |= {"TRISKELE_PRIVACY_KEY": "file", "TRISKELE_RECALL_MODEL": "none"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with LocalEngine(config.load(), tmp_path) as opened:
        yield opened


def _plain(folder: Path, text: str) -> Path:
    return _written(folder / "plain.jsonl", json.dumps({"text": text}))


def _markdown(folder: Path, text: str) -> Path:
    _written(folder / "note.md", text)
    return folder


def _agents(folder: Path, text: str) -> Path:
    return _written(folder / "AGENTS.md", f"- {text}")


def _mcp(folder: Path, text: str) -> Path:
    entity = {"type": "entity", "name": "thing", "entityType": "thing", "observations": [text]}
    return _written(folder / "memory.json", json.dumps(entity))


def _transcript(folder: Path, text: str) -> Path:
    line = {"type": "user", "sessionId": "s", "message": {"role": "user", "content": text}}
    return _written(folder / "talk.jsonl", json.dumps(line))


def _notes(folder: Path, text: str) -> Path:
    return _written(folder / "MEMORY.md", f"- {text}").parent


def _written(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{text}\n")
    return path


FILES: dict[str, Callable[[Path, str], Path]] = {
    "jsonl": _plain,
    "markdown": _markdown,
    "agents": _agents,
    "mcp-memory": _mcp,
    "transcript": _transcript,
    "claude-notes": _notes,
}


def test_every_format_is_tried() -> None:
    assert FILES.keys() == IMPORTS.keys()


@pytest.mark.parametrize("format", FILES)
def test_an_imported_secret_is_sealed(engine: LocalEngine, tmp_path: Path, format: str) -> None:
    for number, text in enumerate(TEXTS):
        folder = tmp_path / f"in{number}"
        import_memories(engine, FILES[format](folder, text), format=format)
    memories = [memory for _, memory in engine.store.versions()]
    assert len(memories) == len(TEXTS) and all(map(is_secret, memories))


@pytest.mark.parametrize("label", ["tags", "keywords", "session", "project", "speaker"])
def test_a_secret_in_an_imported_label_is_refused(engine: LocalEngine, tmp_path: Path, label: str) -> None:
    for number, text in enumerate(IN_LABELS):
        record = {"text": f"kettle {number}", label: [text] if label == "tags" else text}
        with pytest.raises(BadInput):
            import_memories(engine, _written(tmp_path / f"{number}.jsonl", json.dumps(record)))
    assert not list(engine.store.versions())


@pytest.mark.parametrize("label", ["tags", "keywords"])
def test_a_secret_in_front_matter_is_refused(engine: LocalEngine, tmp_path: Path, label: str) -> None:
    folder = tmp_path / "notes"
    value: Any = ["home", IN_LABELS[0]] if label == "tags" else IN_LABELS[0]
    _written(folder / "note.md", f"---\n{label}: {json.dumps(value)}\n---\nthe kettle is red")
    with pytest.raises(BadInput):
        import_memories(engine, folder)
    assert not list(engine.store.versions())


@pytest.mark.parametrize("text", TEXTS, ids=[str(sample.kind) for sample in CHOSEN])
def test_the_command_line_refuses_the_same_labels(engine: LocalEngine, text: str) -> None:
    id = engine.remember("the kettle is red").id
    tag = text.replace(",", " ")
    for option, value in (("--tags", tag), ("--keywords", text), ("--speaker", text)):
        for command in (["edit", id, option, value], ["add", "the pot is blue", option, value]):
            done = CliRunner().invoke(cli, command, prog_name="triskele")
            # The longest are no names already by their length.
            is_told = "looks like a secret" in done.stderr or "the speaker is longer than" in done.stderr
            assert done.exit_code != 0 and is_told and text not in done.stderr
    assert engine.get(id).sensitivity is Sensitivity.OPEN and engine.get(id).version == 1
