"""Processes that embed the same store: killed ones, and several at once."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from toy_model import Toy, assert_whole, fill, open_toy, until

from triskele.engine.local import LocalEngine
from triskele.store.values import EMBED


def _start(home: Path) -> subprocess.Popen[str]:
    here = str(Path(__file__).parent)
    code = f"import sys; sys.path.insert(0, {here!r}); import toy_model; toy_model.work({str(home)!r})"
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def _kill_in_the_middle(process: subprocess.Popen[str], engine: LocalEngine, after: float) -> None:
    """Kill a process some time after it has embedded anything."""
    left = engine.store.jobs.count(EMBED)
    until(lambda: engine.store.jobs.count(EMBED) < left or process.poll() is not None)
    time.sleep(after)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def _wait_until_begun(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"


@pytest.mark.slow
def test_a_killed_process_loses_nothing_and_damages_nothing(tmp_path: Path, toy: Toy) -> None:
    count, random = 400, Random("kills")
    with open_toy(tmp_path / "home") as engine:
        fill(engine, count)
    for _ in range(4):
        process = _start(tmp_path / "home")
        _wait_until_begun(process)
        with open_toy(tmp_path / "home") as engine:
            # A random moment is the point here, not a wait for something.
            _kill_in_the_middle(process, engine, after=random.random() * 0.05)
            assert len(engine.recall("memory", limit=200).hits) == 200
            health = engine.upkeep.inspect(deep=True, repair=False)
            assert (health.findings, health.vectors_damaged, health.vectors_orphaned) == ((), 0, 0)
    with open_toy(tmp_path / "home") as engine:
        engine.upkeep.embed()
        assert_whole(engine, count)


@pytest.mark.slow
def test_processes_that_embed_at_once_neither_double_nor_spoil_anything(tmp_path: Path, toy: Toy) -> None:
    with open_toy(tmp_path / "home") as engine:
        fill(engine, 120)
    processes = [_start(tmp_path / "home") for _ in range(2)]
    for process in processes:
        _wait_until_begun(process)
    calls: Counter[str] = Counter()
    for process in processes:
        out, _ = process.communicate()
        assert process.returncode == 0
        calls.update(out.splitlines())
    assert calls == {f"memory number {number} here": 1 for number in range(120)}
    with open_toy(tmp_path / "home") as engine:
        engine.upkeep.embed()
        assert_whole(engine, 120)
