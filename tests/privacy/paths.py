"""Every way into a store and every way out of it, walked with canaries; what was seen of them is returned."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from canaries import Canaries, Canary, Sighting, children
from click.testing import CliRunner
from mcp import Client

from triskele import config
from triskele.agents.file_memory import FileMemory
from triskele.agents.learning import learn
from triskele.edge.cli.main import cli
from triskele.edge.mcp.server import build
from triskele.engine.local import LocalEngine
from triskele.errors import TriskeleError
from triskele.exchange.transfer import export_memories, import_memories
from triskele.index.name_linking import read_names
from triskele.ingest import Drafter
from triskele.privacy import detect
from triskele.replies.rooms import HookCall
from triskele.store.values import Document
from triskele.types import Add, Sensitivity

FILLER = "The harbour crane was painted in spring. " * 40
# Erasing rewrites the whole file, so that only some canaries are sealed after the fact.
SEALED_LATER = 8
REFUSED_LABELS = 8

# As it is before any test takes it away.
_FIND = detect.find
_CRASH = """
import sys
from triskele.edge.cli.main import main
from triskele.store.sqlite.store import SqliteOwnerStore

def crash(store, changes, **_):
    held = list(changes)
    raise RuntimeError("the disk is on fire")

SqliteOwnerStore.apply = crash
sys.argv = ["triskele", "add", "-"]
main()
"""


def is_found(canary: Canary) -> bool:
    """Whether the rules know it; a drawn secret may look like a placeholder, and is then marked by hand."""
    return canary.found_by_rule and bool(_FIND(canary.memory))


class Walk:
    """One store in a folder: `home` and `out` are searched, `sources` hold what the user wrote."""

    def __init__(self, folder: Path, kit: Canaries, patch: pytest.MonkeyPatch) -> None:
        self.kit = kit
        self.said: list[str] = []
        self.home, self.out, self.sources, self.temporary = (
            folder / name for name in ("home", "out", "sources", "temporary")
        )
        for each in (self.out, self.sources, self.temporary):
            each.mkdir()
        environment = {"TRISKELE_PROJECT": "garden", "TRISKELE_PRIVACY_KEY": "file", "TRISKELE_RECALL_MODEL": "none"}
        environment |= {"TRISKELE_HOME": str(self.home), "TRISKELE_RECALL_LOG": "true"}
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.setattr(tempfile, "tempdir", str(self.temporary))
        self.engine = LocalEngine(config.load(), folder)

    def sightings(self) -> list[Sighting]:
        """Walk every path, then look everywhere."""
        by_rule = [canary for canary in self.kit.canaries if is_found(canary)]
        by_hand = [canary for canary in self.kit.canaries if not is_found(canary)]
        later, label, rest = by_rule[:SEALED_LATER], by_rule[: SEALED_LATER + REFUSED_LABELS], by_rule[SEALED_LATER:]
        with self._noted():
            self._seal_later(later)
        self._refuse_labels(label)
        self._fail(later[:4])
        for number, (name, write) in enumerate(WRITERS.items()):
            # Without one guard another one may refuse; the walk goes on.
            with self._noted():
                write(self, rest[number :: len(WRITERS)], name)
        for canary in by_hand:
            self.engine.remember(canary.memory, sensitivity=Sensitivity.SECRET)
        with self._noted():
            self._read([canary.memory.replace(canary.secret, "") for canary in by_rule[::90]])
        # A question is told back to whoever asked, and to nobody else.
        self.engine.recall(by_rule[0].memory)
        found = self._look()
        self.engine.close()
        return found + self._look()

    @contextmanager
    def _noted(self) -> Iterator[None]:
        try:
            yield
        except TriskeleError as error:
            self.said.append(str(error))

    def _seal_later(self, canaries: Sequence[Canary]) -> None:
        engine = self.engine
        ids = []
        for canary in canaries:
            id = engine.remember(canary.memory, sensitivity=Sensitivity.OPEN).id
            engine.edit(id, content=f"Anna Example said: {canary.memory}", sensitivity=Sensitivity.OPEN)
            engine.store.documents.put("question", {id: Document({"text": canary.memory}, about=[id])})
            ids.append(id)
        engine.lexical.catch_up()
        read_names(engine.store, engine.lexical)
        for id in ids:
            engine.seal(id)

    def _refuse_labels(self, canaries: Sequence[Canary]) -> None:
        for canary in canaries:
            for label in ({"tags": [canary.memory]}, {"keywords": canary.memory}, {"session": canary.memory}):
                with self._noted():
                    self.engine.remember("a label must not tell a secret", **label)

    def _read(self, questions: Sequence[str]) -> None:
        engine = self.engine
        engine.lexical.catch_up()
        read_names(engine.store, engine.lexical)
        ids = engine.store.find("", limit=6)
        for question in questions:
            self._run("recall", question, "--all-projects", "--explain")
            self._run("why-not", ids[0], question, "--json")
        for command in (["show", ids[0]], ["history", ids[0], "--json"], ["list", "--json"], ["secrets", "list"]):
            self._run(*command)
        self._run("edit", ids[1], "--importance", "0.9")
        self._run("undo")
        self._run("stats")
        self._run("doctor", "--deep", "--json")
        export_memories(engine, self.out / "all.jsonl", include_private=True)
        export_memories(engine, self.out / "notes", format="markdown", include_private=True)
        self._run("backup", str(self.out / "backup.db"))
        self.said.append(repr(engine.draft(self.kit.canaries[0].memory)))

    def _fail(self, canaries: Sequence[Canary]) -> None:
        """Complaints tell what is wrong and not what was written."""
        for canary in canaries:
            text = canary.memory
            for wrong in ({"text": [text]}, {"text": {"a": text}}, {"text": "x", text: 1}, {"text": "x", "tags": text}):
                file = _written(self.sources / "wrong.jsonl", [json.dumps(wrong)])
                self._run("import", str(file))
                self._run("import", str(file), "--dry-run", "--json")
            self._run("add", text, "--title", text)
            self._run("edit", "1kps", "--tags", text)

    def _run(self, *arguments: str) -> None:
        done = CliRunner().invoke(cli, list(arguments), prog_name="triskele")
        self.said += [done.stdout, done.stderr]

    def crash(self, canary: Canary) -> None:
        """Let the program die with a secret in its hands."""
        self.engine.close()
        for variables in ({}, {"TRISKELE_DEBUG": "1"}):
            process = subprocess.Popen(
                [sys.executable, "-c", _CRASH],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, **variables},
            )
            self.said += map(str, self.kit.in_processes([process.pid]))
            out, err = process.communicate(canary.memory.encode())
            assert process.returncode != 0
            self.said += [out.decode(), err.decode()]

    def _look(self) -> list[Sighting]:
        sightings = self.kit.in_text("\n".join(self.said), "said")
        for folder in (self.home, self.out, self.temporary):
            sightings += self.kit.in_folder(folder)
        return sightings + self.kit.in_processes(children(os.getpid()))


def _added(walk: Walk, canaries: Sequence[Canary], _: str) -> None:
    for canary in canaries:
        walk.engine.remember(canary.memory)


def _added_as_private(walk: Walk, canaries: Sequence[Canary], _: str) -> None:
    walk.engine.apply([Add(walk.engine.draft(canary.memory, sensitivity=Sensitivity.PRIVATE)) for canary in canaries])


def _edited(walk: Walk, canaries: Sequence[Canary], _: str) -> None:
    for canary in canaries:
        id = walk.engine.remember(f"to be told later, number {canary.number}").id
        walk.engine.edit(id, content=canary.memory)


def _split(walk: Walk, canaries: Sequence[Canary], _: str) -> None:
    for canary in canaries[:20]:
        drafter = Drafter(walk.engine.settings.memory, walk.engine.project)
        walk.engine.remember_all(drafter.draft_pieces(f"{FILLER}\n{canary.memory}\n{FILLER}"))
    _added(walk, canaries[20:], _)


def _stored_by_an_agent(walk: Walk, canaries: Sequence[Canary], _: str) -> None:
    """Through MCP; what the tools and the hook answer is looked at too."""

    async def store() -> None:
        async with Client(build(lambda: walk.engine)) as client:
            for number, canary in enumerate(canaries):
                done = await client.call_tool("memory_store", {"content": canary.memory, "everywhere": True})
                walk.said.append(str(done))
                if number % 10 == 0:
                    for tool in ("memory_list", "memory_stats"):
                        walk.said.append(str(await client.call_tool(tool, {})))

    anyio.run(store)
    for canary in canaries[::10]:
        # A question is told back to nobody here.
        call = HookCall(
            event="user-prompt-submit",
            session="s",
            folder=str(walk.sources),
            prompt=canary.memory,
            client="claude-code",
        )
        walk.said.append(walk.engine.agents.respond(call).text)


def _imported(make: Callable[[Path, Sequence[Canary]], Path]) -> Callable[[Walk, Sequence[Canary], str], None]:
    def write(walk: Walk, canaries: Sequence[Canary], name: str) -> None:
        folder = walk.sources / name
        folder.mkdir()
        import_memories(walk.engine, make(folder, canaries))

    return write


def _plain(folder: Path, canaries: Sequence[Canary]) -> Path:
    return _written(folder / "plain.jsonl", (json.dumps({"text": canary.memory}) for canary in canaries))


def _markdown(folder: Path, canaries: Sequence[Canary]) -> Path:
    for canary in canaries:
        _written(folder / f"{canary.number}.md", [canary.memory])
    return folder


def _agents(folder: Path, canaries: Sequence[Canary]) -> Path:
    return _written(folder / "AGENTS.md", (f"- {canary.memory}" for canary in canaries))


def _mcp(folder: Path, canaries: Sequence[Canary]) -> Path:
    entities = (
        {"type": "entity", "name": f"thing {canary.number}", "entityType": "thing", "observations": [canary.memory]}
        for canary in canaries
    )
    return _written(folder / "memory.json", map(json.dumps, entities))


def _notes(folder: Path, canaries: Sequence[Canary]) -> Path:
    return _written(folder / "MEMORY.md", (f"- {canary.memory}" for canary in canaries)).parent


def _transcript(folder: Path, canaries: Sequence[Canary]) -> Path:
    lines = (
        {"type": "user", "sessionId": "s", "message": {"role": "user", "content": canary.memory}} for canary in canaries
    )
    return _written(folder / "talk.jsonl", map(json.dumps, lines))


def _file_memory(walk: Walk, canaries: Sequence[Canary], name: str) -> None:
    folder = FileMemory(walk.engine, "garden")
    for canary in canaries:
        path = f"/memories/{name} {canary.number}.md"
        walk.said.append(folder.run({"command": "create", "path": path, "file_text": canary.memory}))


def _learned(walk: Walk, canaries: Sequence[Canary], name: str) -> None:
    for number, lead in enumerate(("Remember that ", "From now on we use this: ")):
        folder = walk.sources / f"{name} {number}"
        folder.mkdir()
        spoken = [replace(canary, memory=f"{lead}{canary.memory}") for canary in canaries]
        learn(walk.engine, _transcript(folder, spoken), dial="all", project="garden")


def _export_with_secrets(folder: Path, canaries: Sequence[Canary]) -> Path:
    environment = {"TRISKELE_HOME": str(folder), "TRISKELE_PROJECT": "garden", "TRISKELE_PRIVACY_KEY": "file"}
    with LocalEngine(config.load({**environment, "TRISKELE_RECALL_MODEL": "none"}), folder) as other:
        other.apply([Add(other.draft(canary.memory)) for canary in canaries])
        export_memories(other, folder / "all.jsonl", with_secrets=True)
    return folder / "all.jsonl"


def _written(path: Path, lines: Iterator[str] | Sequence[str] | Any) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


WRITERS: dict[str, Callable[[Walk, Sequence[Canary], str], None]] = {
    "add": _added,
    "private": _added_as_private,
    "edit": _edited,
    "split": _split,
    "an agent": _stored_by_an_agent,
    "jsonl": _imported(_plain),
    "markdown": _imported(_markdown),
    "agents": _imported(_agents),
    "mcp-memory": _imported(_mcp),
    "claude-notes": _imported(_notes),
    "transcript": _imported(_transcript),
    "file memory": _file_memory,
    "learn": _learned,
    "export with secrets": _imported(_export_with_secrets),
}
