"""What people read: the help of every command and a scripted session, in one file.

A change of wording shows in the diff of that file; TRISKELE_WRITE_GOLDEN=1 rewrites it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from triskele.edge.cli.main import cli

Run = Callable[..., Any]
# Read before the fixtures clear the environment.
WRITES = bool(os.environ.get("TRISKELE_WRITE_GOLDEN"))
GOLDEN = Path(__file__).parent.parent / "data" / "messages.txt"
_ONCE = (
    (re.compile(r"\b1[a-z0-9]{15}\b"), "<id>"),
    (re.compile(r"\b1k[a-z0-9]{6,12}\b"), "<id>"),
    (re.compile(r"\b[0-9a-f]{12}\b"), "<batch>"),
    (re.compile(r"\d{4}-\d\d-\d\d( \d\d:\d\d)?"), "<date>"),
    (re.compile(r"\b[\d.,]+ (ms|s|kB|MB)\b"), r"<number> \1"),
    (re.compile(r"/[^\s:;,()]*/(home|shop)\b"), r"<\1>"),
    (re.compile(r"/\S*/(\w+\.(?:jsonl|md))"), r"<folder>/\1"),
    # A longer path begins a line of its own.
    (re.compile(r"\s+(?=<folder>/)"), " "),
    # Columns follow the length of an id.
    (re.compile(r"(?<=\S)  +"), "  "),
    (re.compile(r"(?m)^ {6,}"), "      "),
    (re.compile(r"─{3,}"), "───"),
)


_SETTINGS: Any = {"max_content_width": 100, "help_option_names": ["-h", "--help"]}


def _timeless(text: str) -> str:
    for pattern, name in _ONCE:
        text = pattern.sub(name, text)
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def _help_texts() -> Iterator[str]:
    def walk(command: click.Command, path: str, parent: click.Context | None) -> Iterator[str]:
        context = click.Context(command, info_name=path.rpartition(" ")[2], parent=parent, **_SETTINGS)
        yield f"$ {path} --help\n{_timeless(context.get_help())}"
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                assert child is not None
                yield from walk(child, f"{path} {name}", context)

    yield from walk(cli, "triskele", None)


def _session(run: Run, tmp_path: Path) -> Iterator[str]:
    def ask(*arguments: str, stdin: str | None = None) -> str:
        ran = run(*arguments, stdin=stdin)
        words = " ".join(f'"{word}"' if " " in word else word for word in arguments)
        code = f"(exit {ran.code})\n" if ran.code else ""
        return f"$ triskele {_timeless(words)}{_timeless(ran.out)}{_timeless(ran.err)}{code}"

    yield ask("list")
    yield ask("recall", "how do we deploy?")
    yield ask("secrets", "list")
    id = run("add", "We deploy with Argo CD", "-q").out.strip()
    yield ask("add", "We deploy with Argo CD")
    yield ask("add", "We deploy with Flux", "--supersedes", id)
    yield ask("add", "The password of the build box is hunter2-Xy9!")
    yield ask("recall", "how do we deploy?", "--explain")
    yield ask("recall", "argo", "--superseded")
    yield ask("show", id)
    yield ask("edit", id, "We deployed with Argo CD")
    yield ask("edit", id, "We deployed with Argo CD")
    yield ask("undo")
    yield ask("history", id)
    yield ask("forget", id)
    yield ask("undo", "--batch", "ffffffffffff")
    yield ask("undo")
    yield ask("why-not", id, "cheese")
    notes = tmp_path / "notes.jsonl"
    notes.write_text('{"content": "One note"}\n{"content": "Another note"}\n')
    yield ask("import", str(notes), "--dry-run")
    yield ask("import", str(notes))
    logins = tmp_path / "logins.md"
    logins.write_text("# Staging\n\nRuns on quay-3.\n\n- The password of ada is hunter2-Xy9!\n")
    yield ask("import", str(logins), "--dry-run")
    yield ask("undo")
    yield ask("undo", "--yes")
    yield ask("secrets", "list")
    yield ask("graph", "show", "Argo CD")
    yield ask("list", "--all-projects")
    yield ask("export", str(tmp_path / "out.jsonl"))
    yield ask("hook", "user-prompt-submit", "--explain", stdin='{"prompt": "how do we deploy?"}')
    event = json.dumps({"prompt": "how do we deploy?", "cwd": str(Path.cwd())})
    yield ask("hook", "user-prompt-submit", "--explain", stdin=event)
    yield ask("serve", "--status")
    yield ask("config", "set", "recall.limt", "5")
    yield ask("forget", "--hard", id)
    yield ask("forget", "--hard", id, "--yes")
    yield ask("undo")
    yield ask("reindex")
    yield ask("doctor")
    yield ask("search", "--frob", "x")
    yield ask("frobnicate")


def test_messages_are_as_agreed(run: Run, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("TRISKELE_RECALL_MODEL", "none")
    messages = "\n".join([*_help_texts(), *_session(run, tmp_path)])
    if WRITES:
        GOLDEN.write_text(messages, encoding="utf-8")
    assert messages == GOLDEN.read_text(encoding="utf-8"), "changed on purpose? rewrite it with TRISKELE_WRITE_GOLDEN=1"
