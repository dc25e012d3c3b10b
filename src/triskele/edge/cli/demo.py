"""The demo: sample memories in a temporary store, and questions that show what recall does."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from triskele import config
from triskele.edge.cli.commands import command
from triskele.edge.cli.documents import shown
from triskele.edge.cli.invocation import Invocation, progress_bar
from triskele.edge.cli.memory_view import answer_view, ids_in
from triskele.edge.cli.view import ID, MATCH, QUIET, note
from triskele.edge.process import connect
from triskele.text import timestamps
from triskele.types import Add, Change, Connect, Link, LinkKind

if TYPE_CHECKING:
    from triskele.edge.cli.view import Renderable
    from triskele.engine.local import LocalEngine

_SHOWN_HITS = 2
_LINKS = {kind.replace("-", "_"): kind for kind in LinkKind}


@dataclass(frozen=True, slots=True)
class Scene:
    """A question, and what its answer shows."""

    shows: str
    query: str
    as_of: str | None = None

    @property
    def command(self) -> str:
        """The command to type."""
        return f'triskele recall "{self.query}"' + (f" --as-of {self.as_of}" if self.as_of else "")


SCENES = (
    Scene("An identifier, exactly as it is written in the code", "sounding_decode_backlog"),
    Scene("No word in common, found by meaning", "Why did Apple browser folks get stuck unable to sign in?"),
    Scene("A question in plain words", "How do I restore the database from a backup?"),
    Scene("An outdated memory matches, its successor answers", "When may we deploy to production?"),
    Scene("The same question, asked about the past", "When may we deploy to production?", as_of="2025-05-01"),
    Scene("An incident comes with its resolution", "Why were boats sent to a place that was already taken?"),
    Scene("A word inside a Chinese sentence", "短信验证"),
)


def store_samples(settings: config.Settings) -> None:
    """Store the sample memories, in the project `demo`."""
    with connect.open_store(replace(settings, project="demo"), Path.cwd()) as engine:
        engine.apply(_changes(engine))
        engine.upkeep.embed()


@contextmanager
def temporary_memory(progress: Callable[[int], None] | None = None) -> Iterator[LocalEngine]:
    """The sample memories in a temporary folder."""
    with TemporaryDirectory(prefix="triskele-demo-") as folder:
        settings = config.load({"TRISKELE_HOME": folder, "TRISKELE_PROJECT": "demo"})
        with connect.open_store(settings, Path.cwd()) as engine:
            engine.apply(_changes(engine))
            engine.upkeep.reindex()
            engine.upkeep.embed(progress=progress)
            yield engine


def _changes(engine: LocalEngine) -> list[Change]:
    corpus = resources.files("triskele.samples") / "team" / "corpus.jsonl"
    rows = [json.loads(line) for line in corpus.read_text(encoding="utf-8").splitlines()]
    memories = {}
    for row in rows:
        details = {name: value for name, value in row["meta"].items() if name not in _LINKS}
        memories[row["id"]] = engine.draft(row["text"], created_at=details.pop("created"), **details)
    now = timestamps.now()
    links = [
        Link(source=memories[row["id"]].id, kind=kind, target=memories[row["meta"][name]].id, known_from=now)
        for row in rows
        for name, kind in _LINKS.items()
        if name in row["meta"]
    ]
    return [*map(Add, memories.values()), *map(Connect, links)]


@command("triskele demo", "triskele demo --json")
def demo(invocation: Invocation) -> None:
    """Show recall on sample memories, in a temporary store."""
    started = time.perf_counter()
    with progress_bar("Embedding") as progress, temporary_memory(progress) as engine:
        took_s = time.perf_counter() - started
        answers = [
            (scene, engine.recall(scene.query, as_of=scene.as_of, all_projects=True, limit=_SHOWN_HITS))
            for scene in SCENES
        ]
        count = engine.stats().memories

        scenes = [{**shown(scene), **shown(answer)} for scene, answer in answers]

        def view() -> Iterator[Renderable]:
            yield note(f"{count} memories of a small software team, loaded into a temporary store in {took_s:.1f} s.")
            yield note("The people and the company are fictional.", QUIET)
            for number, (scene, answer) in enumerate(answers, start=1):
                title, command = note(f"{number}. {scene.shows}", MATCH), note(f"$ {scene.command}", ID)
                yield from (note(""), title, command, note(""))
                yield from answer_view(answer, engine.shorten(ids_in(answer)), explain=True)
            yield from (note(""), note("Now with your own memories:", MATCH))
            yield note('$ triskele add "We deploy with Argo CD, not Helm hooks" --category decisions', ID)
            yield note('$ triskele recall "how do we deploy?"', ID)

        invocation.emit({"memories": count, "scenes": scenes, "project": engine.project}, view)
