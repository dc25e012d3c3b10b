"""An instance killed while it embeds and indexes: its files rank as those of a new instance afterwards.

`TRISKELE_INSTANCE_KILLS` sets how often.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib import resources
from pathlib import Path
from random import Random

import pytest

from triskele import config
from triskele.engine.local import LocalEngine

KILLS = int(os.environ.get("TRISKELE_INSTANCE_KILLS", "3"))
_TAIL_CAP = 8
# A process that embeds and indexes without end, and tells after each step that it is still there.
INSTANCE = """
import sys
from pathlib import Path
from triskele import config
from triskele.engine.local import LocalEngine
from triskele.index.dense import DenseIndex
from triskele.index.lexical import LexicalIndex
home, url, tail_cap = sys.argv[1:]
environment = {"TRISKELE_HOME": home, "TRISKELE_PROJECT": "demo"}
LexicalIndex.tail_cap = DenseIndex.tail_cap = int(tail_cap)
engine = LocalEngine(config.load(environment, store_url=url), Path(home))
step = 0
while True:
    print(step, flush=True)
    engine.upkeep.embed(limit=4)
    engine.recall("who owns the release of the service?", limit=5, logged=False)
    if step % 3 == 2:
        engine.lexical.flush()
    step += 1
"""


def _texts(name: str) -> list[str]:
    lines = (resources.files("triskele.samples") / "team" / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines]


def _open(home: Path, url: str) -> LocalEngine:
    environment = {"TRISKELE_HOME": str(home), "TRISKELE_PROJECT": "demo"}
    engine = LocalEngine(config.load(environment, store_url=url), home.parent)
    engine.lexical.tail_cap = _TAIL_CAP
    if (semantic := engine.semantic()) is not None:
        semantic.dense.tail_cap = _TAIL_CAP
    return engine


def _killed_while_indexing(home: Path, url: str, steps: int) -> None:
    command = [sys.executable, "-c", INSTANCE, str(home), url, str(_TAIL_CAP)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(1 + steps):
            assert process.stdout.readline(), "the instance ended by itself"
        process.send_signal(signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.timeout(300 + 20 * KILLS)
def test_instance_killed_while_indexing_ranks_as_a_new_one(tmp_path: Path, postgres_url: str) -> None:
    texts, draw = _texts("corpus.jsonl")[:90], Random(11)
    share = -(-len(texts) // KILLS)
    with _open(tmp_path / "writer", postgres_url) as writer:
        for number in range(KILLS):
            for text in texts[number * share : (number + 1) * share]:
                writer.remember(text)
            writer.forget(writer.browse(limit=1).memories[0].id)
            _killed_while_indexing(tmp_path / "killed", postgres_url, draw.randrange(6))
    with _open(tmp_path / "killed", postgres_url) as killed, _open(tmp_path / "new", postgres_url) as new:
        killed.upkeep.embed()
        for engine in (killed, new):
            engine.recall("warm", limit=1)
            engine.lexical.flush()
        health = killed.upkeep.inspect(deep=True, repair=False)
        assert (health.findings, health.index_faults, health.vectors_damaged, health.waiting) == ((), 0, 0, 0)
        assert killed.lexical.damaged() == 0
        for question in _texts("queries.jsonl")[::32]:
            options = {"limit": 50, "logged": False}
            left, right = (engine.recall(question, **options).hits for engine in (killed, new))
            assert [(hit.memory.id, hit.score) for hit in left] == [(hit.memory.id, hit.score) for hit in right]
            assert left
