"""A command line on a store of its own, run inside the test process or as a real program."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sample_team import answers_of_the_sample

from triskele.edge.cli import stores
from triskele.edge.cli.main import cli

PROJECT = "shop"


@dataclass(frozen=True)
class Ran:
    """What a command line left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)

    def is_refused(self, code: int, *words: str) -> bool:
        """Checks for exactly one line of complaint, which says these words."""
        assert self.code == code, (self.code, self.err)
        assert not self.out or json.loads(self.out) == {"error": self.err.removeprefix("triskele: ").strip()}
        assert "Traceback" not in self.err
        assert self.err.startswith("triskele: ")
        assert self.err.endswith("\n") and self.err.count("\n") == 1, self.err
        for word in words:
            assert word in self.err
        return True


Run = Callable[..., Ran]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh data folder, and a project folder to work in."""
    for name in [name for name in os.environ if name.startswith("TRISKELE_")]:
        monkeypatch.delenv(name)
    home = tmp_path / "home"
    work = tmp_path / PROJECT
    work.mkdir()
    # The folder must be a project of its own, wherever the tests run.
    (work / ".git").mkdir()
    monkeypatch.setenv("TRISKELE_HOME", str(home))
    monkeypatch.setenv("TRISKELE_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TRISKELE_PRIVACY_KEY", "file")
    monkeypatch.setenv("TRISKELE_AGENTS_BACKGROUND", "false")
    # What a command embeds after its output is a test of its own.
    monkeypatch.setattr(stores, "SPARE_S", 0.0)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(work)
    return home


@pytest.fixture
def run(home: Path) -> Run:
    """Runs a command line in this process."""

    def run_one(*arguments: str, stdin: str | bytes | None = None) -> Ran:
        result = CliRunner().invoke(cli, list(arguments), input=stdin, prog_name="triskele")
        return Ran(result.exit_code, result.stdout, result.stderr)

    return run_one


@pytest.fixture
def program(home: Path) -> Run:
    """Runs a command line as a program of its own; arguments may be bytes."""

    def run_one(*arguments: str | bytes, stdin: bytes = b"") -> Ran:
        command = [sys.executable, "-c", "from triskele.edge.cli.main import main; main()", *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=60, check=False)
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    return run_one


@pytest.fixture
def add(run: Run) -> Callable[..., str]:
    """Remembers a text and gives its id."""

    def add_one(text: str, *options: str) -> str:
        return str(run("add", text, *options, "--json").json["id"])

    return add_one


@pytest.fixture
def team(home: Path, team_home: Path) -> Path:
    """The sample memories as the user's own."""
    shutil.copytree(team_home, home)
    return home


@pytest.fixture
def answers(team: Path) -> dict[str, dict[str, int]]:
    """What the sample's own labels say: grades of memories by the words of the question."""
    return answers_of_the_sample()
