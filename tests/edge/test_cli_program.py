"""The program as a whole: help, version, what it imports, signals, pipes, streams."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from triskele import __version__
from triskele.edge.cli.main import ALIASES, COMMANDS, cli

pytestmark = pytest.mark.slow

Run = Callable[..., Any]
PROGRAM = [sys.executable, "-c", "from triskele.edge.cli.main import main; main()"]
HEAVY = ("apsw", "tantivy", "numpy", "Stemmer", "platformdirs", "triskele.engine", "triskele.store")


@pytest.mark.parametrize("flag", ["--version", "--help"])
def test_version_and_help_import_nothing_heavy(home: Path, flag: str) -> None:
    code = (
        "import sys\nfrom triskele.edge.cli.main import main\n"
        f"sys.argv = ['triskele', {flag!r}]\n"
        "try:\n    main()\nexcept SystemExit as left:\n    assert left.code == 0\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert done.stdout.startswith(f"triskele {__version__}\n" if flag == "--version" else "Usage: triskele ")


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_help_with_examples_and_json(run: Run, name: str) -> None:
    out = run(name, "--help").out
    assert f"Usage: triskele {name} " in out
    assert "Examples:\n    triskele " in out
    assert "--json" in out and "--store" in out


def test_commands_are_those_of_the_contract() -> None:
    words = (
        "demo add recall why-not show edit forget link history undo list stats import export backup restore reindex"
        " doctor config bench eval graph secrets completion install uninstall serve hook mcp memory-tool models"
        " projects code review curate learn ui users keys shares sync help"
    )
    assert set(COMMANDS) == set(words.split())


def _line(name: str) -> str:
    command = cli.get_command(None, name)  # type: ignore[arg-type]
    assert command is not None
    return f"  {name.ljust(max(map(len, COMMANDS)))}  {command.get_short_help_str(80)}\n"


def test_everyday_help_has_about_a_dozen_commands_and_names_the_others(run: Run) -> None:
    out = run("--help").out
    assert run().out == run("-h").out == run("help").out == out
    assert [name for name in COMMANDS if _line(name) in out] == (
        "demo ui add edit forget undo recall show list install import export doctor".split()
    )
    advanced = out[out.index("Advanced:") : out.index("Examples:")]
    assert all(f"{name}" in advanced for name in COMMANDS if _line(name) not in out)
    assert "triskele help --all" in " ".join(advanced.split())


def test_all_help_lists_every_command_in_one_line_each(run: Run) -> None:
    out = run("help", "--all").out
    assert all(_line(name) in out for name in COMMANDS)


def test_recall_shows_a_few_options_and_names_the_others(run: Run) -> None:
    everyday, everything = run("recall", "-h").out, run("help", "recall", "--all").out
    options = everyday[everyday.index("Options:") : everyday.index("Options of every command:")]
    assert 3 <= options.count("\n  --") <= 5 and "--limit" in options
    assert "Advanced options:" in everything


@pytest.mark.parametrize("name", ["recall", "why-not"])
def test_help_describes_options_for_measuring_only_with_all(run: Run, name: str) -> None:
    everyday, everything = run(name, "-h").out, run("help", name, "--all").out
    names = everyday[everyday.index("For measuring:") : everyday.index("Examples:")]
    assert "--legs, --fusion, --rerank, --order, --near" in names
    assert "[default|rrf" not in everyday
    assert "[default|rrf" in everything[everything.index("Options for measuring:") :]


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("hook", "serve", "mcp")])
def test_h_is_help_of_every_command(run: Run, name: str) -> None:
    assert run(name, "-h").out == run(name, "--help").out


def test_aliases_run_the_command(run: Run) -> None:
    id = run("remember", "We deploy with Argo CD", "--json").json["id"]
    for word in ("search", "find"):
        ran = run(word, "deploy", "--json")
        assert [hit["id"] for hit in ran.json["hits"]] == [id]
        assert ran.err == f"triskele: {word} is called recall here\n"
    assert run("delete", id, "--json").json["action"] == "forgotten"
    assert all(alias not in COMMANDS for aliases in ALIASES.values() for alias in aliases)


def test_json_works_before_the_command(run: Run) -> None:
    assert run("--json", "list").json["memories"] == []


def test_store_works_before_and_after_the_command(run: Run, home: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'notes.db'}"
    run("--store", url, "add", "one fact")
    assert len(run("list", "--store", url, "--json").json["memories"]) == 1
    assert not home.exists()


def test_json_names_the_project(run: Run) -> None:
    id = run("add", "one fact", "--json").json["id"]
    commands = (["list"], ["show", id], ["stats"], ["recall", "fact"], ["history"], ["reindex"], ["doctor"])
    assert [run(*command, "--json").json["project"] for command in commands] == ["shop"] * len(commands)


def test_ctrl_c_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("triskele.engine.local.LocalEngine.recall", interrupt)
    ran = run("recall", "x")
    assert (ran.code, ran.out, ran.err) == (130, "", "triskele: interrupted\n")


def test_closed_pipe_is_no_error(program: Run) -> None:
    program("add", "-", "--split", stdin=b"".join(b"Sentence number %d is here. " % n for n in range(20_000)))
    with subprocess.Popen([*PROGRAM, "export"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as writing:
        assert writing.stdout is not None and writing.stderr is not None
        writing.stdout.readline()
        writing.stdout.close()
        assert writing.stderr.read() == b""
        assert writing.wait(timeout=30) == 0


def test_full_disk_under_the_output_is_reported(home: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*PROGRAM, "config", "--json"], stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 3
    assert done.stderr == b"triskele: No space left on device\n"


def test_output_escapes_characters_of_other_encodings(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    done = subprocess.run([*PROGRAM, "add", "短信 — ok", "--json"], capture_output=True, check=True)
    id = json.loads(done.stdout)["id"]
    shown = subprocess.run([*PROGRAM, "show", id, "--json"], capture_output=True, check=True)
    assert json.loads(shown.stdout)["content"] == "短信 — ok"
    assert subprocess.run([*PROGRAM, "recall", "短信"], capture_output=True, check=True).stderr == b""


def test_terminal_gets_colour_unless_no_color_is_set(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("add", "We deploy with Argo CD")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[1;32mArgo\x1b[0m" in run("recall", "argo").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in run("recall", "argo").out


def test_progress_goes_to_standard_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    ran = run("reindex", "--json")
    assert "Indexing" in ran.err
    assert ran.json["indexed"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("command", [["stats"], ["demo"], ["list", "--json"], ["recall", "who", "--json"]])
def test_an_interrupt_at_any_moment_is_one_line(home: Path, run: Run, command: list[str]) -> None:
    run("add", "The kettle is red")
    # Told from inside `main`: before it a signal is the script's own.
    begun = (
        "import os, signal, triskele.__main__ as program, builtins; imported = builtins.__import__\n"
        "def first(*given):\n"
        "    builtins.__import__ = imported\n"
        "    os.write(1, b'!')\n"
        "    return imported(*given)\n"
        "builtins.__import__ = first\n"
        "program.main()"
    )
    for delay_ms in (3, 10, 30, 60, 120, 200, 300, 500, 900):
        pipe = subprocess.PIPE
        with subprocess.Popen([sys.executable, "-c", begun, *command], stdout=pipe, stderr=pipe) as running:
            assert running.stdout is not None and running.stdout.read(1) == b"!"
            time.sleep(delay_ms / 1000)
            running.send_signal(signal.SIGINT)
            out, err = running.communicate(timeout=60)
        # -2: the signal came when all was said and the interpreter was gone.
        assert (running.returncode, err) in ((130, b"triskele: interrupted\n"), (0, b""), (-2, b"")), (delay_ms, err)
        assert running.returncode == 130 or out
