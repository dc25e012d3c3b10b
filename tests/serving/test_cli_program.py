"""The program as a whole: help, version, what it imports, signals, pipes, streams."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from triskele import __version__
from triskele.serving.cli.main import COMMANDS, cli

Run = Callable[..., Any]
PROGRAM = [sys.executable, "-c", "from triskele.serving.cli.main import main; main()"]
HEAVY = ("apsw", "tantivy", "rich", "numpy", "Stemmer", "platformdirs", "triskele.engine", "triskele.stores")


@pytest.mark.parametrize("flag", ["--version", "--help"])
def test_nothing_heavy_is_imported(home: Path, flag: str) -> None:
    code = (
        "import sys\nfrom triskele.serving.cli.main import main\n"
        f"sys.argv = ['triskele', {flag!r}]\n"
        "try:\n    main()\nexcept SystemExit as left:\n    assert left.code == 0\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert done.stdout.startswith(f"triskele {__version__}\n" if flag == "--version" else "Usage: triskele ")


def test_an_answer_for_programs_needs_no_rich(home: Path) -> None:
    code = (
        "import sys\nfrom triskele.serving.cli.main import main\nsys.argv = ['triskele', 'list', '--json']\n"
        "try:\n    main()\nexcept SystemExit:\n    print('rich' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "False"


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_help_with_examples_and_json(run: Run, name: str) -> None:
    out = run(name, "--help").out
    assert f"Usage: triskele {name} " in out
    assert "Examples:\n    triskele " in out
    assert "--json" in out and "--store" in out


def test_the_commands_are_those_of_the_contract() -> None:
    words = (
        "demo add recall why-not show edit forget link history undo list stats import export backup restore reindex"
        " doctor config bench eval graph secrets completion install uninstall serve hook mcp models"
    )
    assert set(COMMANDS) == set(words.split())


def test_help_lists_every_command_in_one_line_each(run: Run) -> None:
    out = run("--help").out
    assert run().out == out
    for name in COMMANDS:
        command = cli.get_command(None, name)  # type: ignore[arg-type]
        assert f"  {name.ljust(10)}  {command.get_short_help_str(80)}\n" in out


def test_json_may_stand_before_the_command(run: Run) -> None:
    assert run("--json", "list").json["memories"] == []


def test_store_may_stand_before_or_after_the_command(run: Run, home: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'notes.db'}"
    run("--store", url, "add", "one fact")
    assert len(run("list", "--store", url, "--json").json["memories"]) == 1
    assert not home.exists()


def test_every_answer_names_the_project(run: Run) -> None:
    id = run("add", "one fact", "--json").json["id"]
    commands = (["list"], ["show", id], ["stats"], ["recall", "fact"], ["history"], ["reindex"], ["doctor"])
    assert [run(*command, "--json").json["project"] for command in commands] == ["shop"] * len(commands)


def test_ctrl_c_is_quiet(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("triskele.engine.Engine.recall", interrupt)
    ran = run("recall", "x")
    assert (ran.code, ran.out, ran.err) == (130, "", "")


def test_a_reader_that_leaves_is_no_failure(program: Run) -> None:
    program("add", "-", "--split", stdin=b"".join(b"Sentence number %d is here. " % n for n in range(20_000)))
    with subprocess.Popen([*PROGRAM, "export"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as writing:
        assert writing.stdout is not None and writing.stderr is not None
        writing.stdout.readline()
        writing.stdout.close()
        assert writing.stderr.read() == b""
        assert writing.wait(timeout=30) == 0


def test_a_full_disk_under_the_output_is_told(home: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*PROGRAM, "config", "--json"], stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 3
    assert done.stderr == b"triskele: No space left on device\n"


def test_a_terminal_that_cannot_say_everything(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    done = subprocess.run([*PROGRAM, "add", "短信 — ok", "--json"], capture_output=True, check=True)
    id = json.loads(done.stdout)["id"]
    shown = subprocess.run([*PROGRAM, "show", id, "--json"], capture_output=True, check=True)
    assert json.loads(shown.stdout)["content"] == "短信 — ok"
    assert subprocess.run([*PROGRAM, "recall", "短信"], capture_output=True, check=True).stderr == b""


def test_a_terminal_gets_colour_unless_it_says_no(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("add", "We deploy with Argo CD")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[1;32mArgo\x1b[0m" in run("recall", "argo").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in run("recall", "argo").out


def test_progress_is_shown_on_standard_error_alone(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    ran = run("reindex", "--json")
    assert "Indexing" in ran.err
    assert ran.json["indexed"] == 0
