"""Processes to kill, their output until then, and gates that let several start at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


class Nursery:
    """The test's end of a warm process that forks workers."""

    def __init__(self, folder: Path) -> None:
        self._errors = folder / "workers.err"
        with self._errors.open("wb") as errors:
            script = str(Path(__file__).parent / "nursery.py")
            self._process = subprocess.Popen(
                [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )

    def spawn(self, work: str, *arguments: Any) -> int:
        """Start a worker and give its process id."""
        return self._ask(do="spawn", work=work, arguments=[str(a) if isinstance(a, Path) else a for a in arguments])

    def kill(self, pid: int) -> None:
        """Kill a worker as a power failure would; returns when it has ended."""
        assert self._ask(do="kill", pid=pid) == -9, self.said()

    def wait(self, *pids: int) -> None:
        """Wait for workers that end by themselves, and without an error."""
        assert [self._ask(do="wait", pid=pid) for pid in pids] == [0] * len(pids), self.said()

    def ended(self, pid: int) -> int:
        """Wait for a worker that may kill itself, and give its exit code."""
        return self._ask(do="wait", pid=pid)

    def said(self) -> str:
        """The tracebacks of workers that failed."""
        return self._errors.read_text()[-4000:]

    def close(self) -> None:
        """End all that still runs."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _ask(self, **command: Any) -> int:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, self.said()
        return int(answer)


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    opened = Nursery(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def read_log() -> Callable[[Path], list[dict[str, Any]]]:
    """The whole lines of a log; a last one cut short by a kill was never acknowledged."""

    def read(path: Path) -> list[dict[str, Any]]:
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    return read


@pytest.fixture
def make_gate(tmp_path: Path) -> Callable[[], Path]:
    """Named pipes at which workers wait for each other."""
    numbers = iter(range(1000))

    def make() -> Path:
        path = tmp_path / f"gate-{next(numbers)}"
        os.mkfifo(path)
        return path

    return make


@pytest.fixture
def opened_gate() -> Callable[[Path], Any]:
    """Lets everyone through a gate as long as the block lasts."""

    @contextmanager
    def hold(gate: Path) -> Iterator[None]:
        with gate.open("wb"):
            yield

    return hold
