"""The demonstration: a year of a small team's memories in a throw-away store, and telling questions to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from tempfile import TemporaryDirectory
from typing import Any

from triskele import config
from triskele.base import timestamps
from triskele.engine import Engine, open_memory
from triskele.types import Add, Answer, Change, Connect, Link, LinkKind, Memory

SHOWN_HITS = 2
_LINKS = {
    "supersedes": LinkKind.SUPERSEDES,
    "resolved_by": LinkKind.RESOLVED_BY,
    "part_of": LinkKind.PART_OF,
    "see_also": LinkKind.SEE_ALSO,
}


@dataclass(frozen=True, slots=True)
class Scene:
    """A question with what its answer shows."""

    shows: str
    query: str
    as_of: str | None = None

    @property
    def command(self) -> str:
        """What one would type."""
        return f'triskele recall "{self.query}"' + (f" --as-of {self.as_of}" if self.as_of else "")


SCENES = (
    Scene("An identifier, exactly as it is written in the code", "sounding_decode_backlog"),
    Scene("Not one word in common, found by meaning", "Why did Apple browser folks get stuck unable to sign in?"),
    Scene("A question in plain words", "How do I restore the database from a backup?"),
    Scene("An outdated memory matches, its successor answers", "When may we deploy to production?"),
    Scene("The same question, asked about the past", "When may we deploy to production?", as_of="2025-05-01"),
    Scene("An incident brings along what resolved it", "Why were boats sent to a place that was already taken?"),
    Scene("A word inside a Chinese sentence", "短信验证"),
)


@contextmanager
def throw_away_memory(progress: Callable[[int], None] | None = None) -> Iterator[Engine]:
    """The sample memories in a folder that is gone afterwards."""
    with TemporaryDirectory(prefix="triskele-demo-") as folder:
        settings = config.load({"TRISKELE_HOME": folder, "TRISKELE_PROJECT": "demo"})
        with open_memory(settings=settings) as engine:
            engine.apply(_changes(engine))
            engine.reindex()
            engine.embed(progress=progress)
            yield engine


def answer(engine: Engine, scene: Scene) -> Answer:
    """What the sample memories say to a scene's question."""
    return engine.recall(scene.query, as_of=scene.as_of, all_projects=True, limit=SHOWN_HITS)


def _changes(engine: Engine) -> list[Change]:
    corpus = resources.files("triskele.samples") / "team" / "corpus.jsonl"
    rows = [json.loads(line) for line in corpus.read_text(encoding="utf-8").splitlines()]
    memories = {row["id"]: _draft(engine, row) for row in rows}
    links = [
        Link(
            source=memories[row["id"]].id, kind=kind, target=memories[row["meta"][name]].id, known_from=timestamps.now()
        )
        for row in rows
        for name, kind in _LINKS.items()
        if name in row["meta"]
    ]
    return [*map(Add, memories.values()), *map(Connect, links)]


def _draft(engine: Engine, row: dict[str, Any]) -> Memory:
    details = {name: value for name, value in row["meta"].items() if name not in _LINKS}
    return engine.draft(row["text"], created_at=details.pop("created"), **details)
