"""A store whose settings name hosted models, all at a capture on this machine, walked with canaries."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import loopback
import pytest
from canaries import Canaries, Canary, Sighting, make
from click.testing import CliRunner
from models.conftest import as_compatible as as_embedder
from models.test_hosted_reranker import as_voyage
from models.test_llm import as_compatible as as_chat
from writings import QUESTIONS, written

from triskele import config
from triskele.edge.cli.main import cli
from triskele.engine.local import LocalEngine
from triskele.exchange.transfer import export_memories, import_memories
from triskele.index.dense import DenseIndex
from triskele.index.lexical import LexicalIndex
from triskele.models.egress import NotCleared
from triskele.privacy.detect import find
from triskele.recall.hosted.services import CandidateReranker, HostedServices
from triskele.types import Add, Memory, Sensitivity

VARIABLE = "CAPTURE_KEY"
OPEN = [f"the runbook of lorry {number} lies on the shelf beside the kettle" for number in range(12)]
HARMLESS = ("who waters the office plants in summer", "which kettle stands on the shelf")
TWIN = "Ottilie sold the vineyard for 91250 talers"
# Rewriting the whole file takes its time, so that only some are closed after they were open.
SEALED_LATER, CLOSED_LATER, EDITED = 2, 2, 4
# So many questions that left are enough to say that something is wrong.
ENOUGH = 20

_RECORDER = """
import json, os, sys
said = sys.stdin.read()
with open({log!r}, "a") as file:
    file.write(said + "\\n" + "\\n".join(sys.argv) + "\\n" + json.dumps(dict(os.environ), ensure_ascii=False) + "\\n")
print("another wording of it")
"""


def answer(path: str, body: dict[str, Any]) -> loopback.Answer:
    """As each service does, told by the address."""
    if path.endswith("/embeddings"):
        return as_embedder(path, body)
    return as_voyage(path, body) if path.endswith("/rerank") else as_chat(path, body)


class Capture:
    """One store in a folder, and whatever left it."""

    def __init__(
        self, folder: Path, count: int, patch: pytest.MonkeyPatch, server: loopback.Loopback, llm: str = "compatible"
    ) -> None:
        self.server = server
        self.secrets = Canaries(make(count))
        hidden = [canary for canary in make(count * 5 // 2, seed=21) if not canary.found_by_rule]
        self.privates = Canaries(hidden)
        # What a rule finds, or what quotes another secret, would never leave, open or not.
        phrase = "archived beneath oaken rafters, lighthouse lantern room, seventh staircase"
        told = (replace(each, memory=f"{phrase}, {each.number}: {each.secret}") for each in make(60, seed=22))
        later = [canary for canary in told if canary.secret.isalnum() and not find(canary.memory)]
        self.sealed_later, self.closed_later = later[:SEALED_LATER], later[SEALED_LATER : SEALED_LATER + CLOSED_LATER]
        self.later = Canaries([*self.sealed_later, *self.closed_later])
        self.strangers = Canaries(canary for canary in make(30, seed=23) if find(canary.secret))
        self.said: list[str] = []
        self.shown: list[str] = []
        self.failures: list[str] = []
        self.facts: dict[str, bool] = {}
        self.home, self.out, self.sources, self.temporary = (
            folder / name for name in ("home", "out", "sources", "temporary")
        )
        for each in (self.home, self.out, self.sources, self.temporary):
            each.mkdir()
        self.recorded = folder / "recorded"
        self.recorded.touch()
        self._settle(patch, llm)
        self.engine = LocalEngine(config.load(), folder)
        self._after = 0

    def _settle(self, patch: pytest.MonkeyPatch, llm: str) -> None:
        recorder = self.home.parent / "recorder.py"
        recorder.write_text(_RECORDER.format(log=str(self.recorded)))
        at = {"url": f"{self.server.url}/v1", "key": VARIABLE, "model": "tiny"}
        sections: dict[str, dict[str, Any]] = {
            "hosted": at | {"service": "compatible", "dimensions": loopback.DIMENSIONS, "timeout_s": 60},
            "rerank": at | {"service": "voyage", "model": "rerank-tiny", "timeout_s": 60},
            "llm": at | {"service": "compatible", "expand": True, "timeout_s": 60},
        }
        if llm == "command":
            command = [sys.executable, "-I", str(recorder)]
            sections["llm"] = {"service": "command", "command": command, "expand": True, "timeout_s": 60}
        lines = [
            line
            for name, values in sections.items()
            for line in (f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items()))
        ]
        (self.home / "config.toml").write_text("\n".join(lines))
        variables = {"TRISKELE_HOME": str(self.home), "TRISKELE_PROJECT": "garden", "TRISKELE_PRIVACY_KEY": "file"}
        for name, value in {**variables, VARIABLE: loopback.KEY}.items():
            patch.setenv(name, value)
        for index in (LexicalIndex, DenseIndex):
            patch.setattr(index, "tail_cap", 1)
        patch.setattr(tempfile, "tempdir", str(self.temporary))

    @property
    def outside(self) -> HostedServices:
        services = self.engine.models.services()
        assert services is not None
        return services

    @property
    def reviewer(self) -> CandidateReranker:
        assert self.outside.reranker is not None
        return self.outside.reranker

    def sightings(self, *, is_hasty: bool = False) -> list[Sighting]:
        """Walk every path, then look everywhere; in haste the first wrong step is the last one."""
        steps: list[Callable[[], None]] = [self._write, self._embed, self._ask_while_locked, self._be_careless]
        steps += [self._close_later, self._ask, self._embed, self._recall, self._look_after]
        for step in steps:
            with self._noted():
                step()
            if is_hasty and (problems := self._wrong()):
                self.engine.close()
                return problems
        self.engine.close()
        return self._wrong() + self._in_places()

    @contextmanager
    def _noted(self) -> Iterator[None]:
        # Without one guard another one may refuse; the walk goes on.
        try:
            yield
        except Exception as error:
            self.failures.append(repr(error))

    def _write(self) -> None:
        engine = self.engine
        engine.apply([Add(engine.draft(text)) for text in OPEN])
        engine.remember(TWIN, sensitivity=Sensitivity.PRIVATE)
        engine.remember(TWIN, project="orchard", sensitivity=Sensitivity.OPEN)
        for kit, mark in ((self.secrets, Sensitivity.SECRET), (self.privates, Sensitivity.PRIVATE)):
            added, imported = kit.canaries[EDITED::2], kit.canaries[EDITED + 1 :: 2]
            engine.apply([Add(engine.draft(text, sensitivity=mark)) for each in added for text in written(each)])
            rows = [json.dumps({"text": text, "sensitivity": mark}) for each in imported for text in written(each)]
            file = self.sources / f"{mark}.jsonl"
            file.write_text("\n".join(rows))
            import_memories(engine, file)
            for canary in kit.canaries[:EDITED]:
                self._edit(canary, mark)

    def _edit(self, canary: Canary, mark: Sensitivity) -> None:
        """One into the text of a memory that was open; of a private one the second half goes into another field."""
        id = self.engine.remember(f"a placeholder with the number {canary.number}").id
        if mark is Sensitivity.PRIVATE:
            half = len(canary.memory) // 2
            fields: dict[str, Any] = {"content": canary.memory[:half], "keywords": canary.memory[half:]}
            self.engine.edit(id, **fields, sensitivity=mark)
        else:
            self.engine.edit(id, content=canary.memory, **({} if canary.found_by_rule else {"sensitivity": mark}))

    def _embed(self) -> None:
        self.engine.upkeep.embed()
        self.engine.models.embed_hosted()
        self._run("reindex")

    def _close_later(self) -> None:
        engine = self.engine
        ids = {
            canary.number: engine.remember(canary.memory, sensitivity=Sensitivity.OPEN).id
            for canary in self.later.canaries
        }
        engine.models.embed_hosted()
        self.facts["what was open arrived"] = all(map(self._has_arrived, [each.memory for each in self.later.canaries]))
        assert self.outside.hosted is not None
        mark = self.outside.hosted.texts.fingerprint
        digests = {engine.get(id).content_hash for id in ids.values()}
        vectors = [vector for _, digest, vector in engine.store.vectors.page(mark) if digest in digests]
        self._after = len(self.server.seen)
        close = [("edit", ids[each.number], "--private", "--json") for each in self.closed_later]
        seal = [("secrets", "seal", ids[each.number], "--json") for each in self.sealed_later]
        # After a question the vectors lie in a file; of those who had asked before, only a new process writes it anew.
        engine.recall(HARMLESS[0])
        told = self._told("closed", close, vectors)
        self._run("recall", HARMLESS[0])
        told += self._told("sealed", seal, vectors)
        self.facts["what was sent is told"] = all(json.loads(said)["sent"] for said in told)
        left = [digest for _, digest, _ in engine.store.vectors.page(mark) if digest in digests]
        self.facts["hosted vectors are purged"] = len(vectors) == len(ids) and left == []

    def _told(self, how: str, commands: Sequence[Sequence[str]], vectors: Sequence[bytes]) -> list[str]:
        """What is said to whoever closes memories, whose vectors lie in a file before and in none after it."""
        were_there = self._in_files(vectors)
        outputs = [self._run(*command) for command in commands]
        self.facts[f"no file tells what was {how}"] = were_there and not self._in_files(vectors)
        return outputs

    def _in_files(self, vectors: Sequence[bytes]) -> bool:
        files = b"".join(path.read_bytes() for path in self.home.rglob("dense-*/**/*") if path.is_file())
        return any(vector in files for vector in vectors)

    def _ask(self) -> None:
        """Every canary in every writing, each by one of the three ways out in turn."""
        # The newest are private and secret ones, the oldest are open.
        memories = self.engine.store.browse(self.engine.scope(), limit=1_000_000)
        ways = self._ways(dict(enumerate([*memories[:10], *memories[-10:]])))
        ways[1](HARMLESS[1])
        before = len(self.server.seen)
        planted = [*self.secrets.canaries, *self.privates.canaries, *self.later.canaries]
        for number, canary in enumerate(planted):
            for place, question in enumerate(QUESTIONS.values()):
                ways[(number + place) % len(ways)](question(canary))
            if len(self.server.seen) > before + ENOUGH:
                break
        # A secret that nobody has ever kept.
        for number, canary in enumerate(self.strangers.canaries):
            ways[number % len(ways)](f"is {canary.secret} in use")

    def _ways(self, memories: dict[int, Memory]) -> Sequence[Callable[[str], object]]:
        hosted, rewording = self.outside.hosted, self.outside.rewriter
        assert hosted is not None and rewording is not None
        scope = self.engine.scope()
        return (
            lambda text: hosted.nearness(text, scope),
            lambda text: self.reviewer.review(text, memories),
            rewording.wordings,
        )

    def _recall(self) -> None:
        for number, question in enumerate(QUESTIONS.values()):
            canaries = (self.secrets, self.privates)[number % 2].canaries
            self.engine.recall(question(canaries[7 * number % len(canaries)]), rerank="cross")
        for question in HARMLESS:
            self.engine.recall(question, rerank="cross")
        # Private memories are among the hits; the cross-encoder reads the others.
        hits = self.engine.recall("any diary on the shelf", rerank="cross").hits
        self.facts["private memories are recalled"] = Sensitivity.PRIVATE in [hit.memory.sensitivity for hit in hits]

    def _be_careless(self) -> None:
        """As a provider would that forgets to ask for clearance."""
        text = self.secrets.canaries[0].memory
        body = {"model": "tiny", "input": [text], "encoding_format": "float"}
        with suppress(NotCleared):
            self.outside.client.post("hosted", "/embeddings", body, lambda said: said["usage"]["total_tokens"])
        with suppress(NotCleared):
            assert self.outside.rewriter is not None
            self.outside.rewriter.llm.complete((text,), most_tokens=20)

    def _look_after(self) -> None:
        for command in ("reindex", "models list", "doctor --deep", "doctor --json", "config"):
            self.said.append(self._run(*command.split()))
        # It names the memories that were used most, private ones too.
        self.shown.append(self._run("stats"))
        export_memories(self.engine, self.out / "all.jsonl")
        export_memories(self.engine, self.out / "notes", format="markdown")
        (self.out / "ledger").write_text(
            json.dumps([self.engine.store.documents.all(kind) for kind in ("departures", "sent")], ensure_ascii=False)
        )

    def _ask_while_locked(self) -> None:
        """No question may leave while nobody can tell what the vault holds."""
        folder = self.home.parent
        self.engine.close()
        (key,) = self.home.glob("*.key")
        key.rename(folder / "away")
        self.engine = self.reopened()
        before = len(self.server.seen)
        ways = self._ways({})
        for number, canary in enumerate(self.secrets.canaries[:50]):
            ways[number % len(ways)](canary.memory)
        ways[0](HARMLESS[0])
        self.facts["with a locked vault nothing leaves"] = len(self.server.seen) == before
        self.engine.close()
        (folder / "away").rename(key)
        self.engine = self.reopened()

    def _run(self, *arguments: str) -> str:
        done = CliRunner().invoke(cli, list(arguments), prog_name="triskele")
        if done.exit_code != 0:
            self.failures.append(f"{arguments[0]}: {done.output[-300:]}")
        return done.stdout

    def _has_arrived(self, text: str) -> bool:
        return json.dumps(text)[1:-1].encode() in self.server.captured

    def arrivals(self) -> dict[str, bool]:
        """What did arrive, lest the proof be empty: open memories and harmless questions, at each of the three."""
        asked = {path: [seen.body for seen in self.server.seen if seen.path == f"/v1/{path}"] for path in _PATHS}
        asked["chat/completions"] += [self.recorded.read_text()]
        arrived = {path: json.dumps(bodies) for path, bodies in asked.items()}
        found = {path: any(question in said for question in HARMLESS) for path, said in arrived.items()}
        found["documents"] = any(OPEN[0] in body["documents"] for body in asked["rerank"])
        return found | {text: self._has_arrived(text) for text in OPEN}

    def reopened(self) -> LocalEngine:
        """The memory after the walk."""
        return LocalEngine(config.load(), self.home.parent)

    def _wrong(self) -> list[Sighting]:
        """What left and should not have, and what should hold and does not."""
        captured, recorded = self.server.captured, self.recorded.read_bytes()
        sightings = [Sighting(-1, name, "facts") for name, holds in self.facts.items() if not holds]
        for kit in (self.secrets, self.privates, self.strangers):
            sightings += kit.in_bytes(captured, "capture") + kit.in_bytes(recorded, "command")
        bodies = [seen.body for seen in self.server.seen[self._after :]] if self._after else []
        sightings += self.later.in_text(json.dumps(bodies, ensure_ascii=False), "capture after closing")
        sightings += self.later.in_bytes(recorded, "command")
        if self._has_arrived(TWIN) or loopback.KEY.encode() in recorded:
            sightings.append(Sighting(-1, "raw", "capture: the text of a private memory, or a key"))
        return sightings

    def _in_places(self) -> list[Sighting]:
        """What is seen on this machine where it must not be; private texts may be in the store's own files."""
        sightings: list[Sighting] = []
        for kit in (self.secrets, self.privates):
            sightings += kit.in_text("\n".join([*self.said, *self.failures]), "said") + kit.in_processes()
            sightings += kit.in_folder(self.out) + kit.in_folder(self.temporary)
        sightings += self.secrets.in_text("\n".join(self.shown), "shown")
        return sightings + self.secrets.in_folder(self.home) + Canaries(self.sealed_later).in_folder(self.home)


_PATHS = ("embeddings", "rerank", "chat/completions")
