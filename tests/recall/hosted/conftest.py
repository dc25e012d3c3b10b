"""A capture on this machine that answers as an embedder, a reranker and a language model, and engines that know it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import loopback
import pytest

from triskele import config
from triskele.engine.local import LocalEngine

# What the far model knows: each subject has a direction of its own, whatever words name it.
SUBJECTS = {
    "heron": 0, "wader": 0,
    "mill": 1, "grinder": 1,
    "ferry": 2, "crossing": 2,
    "bread": 3, "loaf": 3,
}  # fmt: skip
REWRITES = "the ferry timetable\nwhen does the ferry leave"

Configured = Callable[..., LocalEngine]


def vector(text: str) -> list[float]:
    found = [0.05] * loopback.DIMENSIONS
    for word, place in SUBJECTS.items():
        found[place] += text.lower().count(word)
    return found


def answer(path: str, body: dict[str, Any]) -> loopback.Answer:
    if path == "/v1/embeddings":
        rows = [{"index": number, "embedding": vector(text)} for number, text in enumerate(body["input"])]
        return 200, {"data": rows, "usage": {"total_tokens": sum(map(len, body["input"]))}}
    if path == "/v1/rerank":
        scored = [{"index": n, "relevance_score": len(text)} for n, text in enumerate(body["documents"])]
        return 200, {"data": scored, "usage": {"total_tokens": 26}}
    if path == "/v1/chat/completions":
        choice = {"message": {"content": REWRITES}, "finish_reason": "stop"}
        return 200, {"choices": [choice], "usage": {"total_tokens": 9}}
    return 404, {}


@pytest.fixture
def far() -> Iterator[loopback.Loopback]:
    """The machine elsewhere."""
    with loopback.serving(answer) as state:
        yield state


@pytest.fixture
def configured(far: loopback.Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Configured]:
    """Opens engines whose settings file names the machine elsewhere for what a test asks."""
    monkeypatch.setenv("FAR_KEY", loopback.KEY)
    opened: list[LocalEngine] = []
    common = {"url": f"{far.url}/v1", "key": "FAR_KEY", "model": "far"}
    sections: dict[str, dict[str, Any]] = {
        "hosted": common | {"service": "compatible", "dimensions": loopback.DIMENSIONS},
        "rerank": common | {"service": "voyage"},
        "llm": common | {"service": "compatible", "expand": True},
    }

    def open_one(*names: str, **changes: Any) -> LocalEngine:
        home = tmp_path / "home"
        home.mkdir(exist_ok=True)
        lines = []
        for name in names:
            section = sections[name] | changes.get(name, {})
            lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in section.items())]
        (home / "config.toml").write_text("\n".join(lines))
        environment = {"TRISKELE_HOME": str(home), "TRISKELE_PROJECT": "river", "TRISKELE_PRIVACY_KEY": "file"}
        opened.append(LocalEngine(config.load(environment), tmp_path))
        return opened[-1]

    yield open_one
    for engine in opened:
        engine.close()
