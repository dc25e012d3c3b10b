"""The screen for judging by hand: one question, one candidate, one key."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from triskele.edge.cli.invocation import show_parts
from triskele.edge.cli.view import ID, MATCH, QUIET, WARNING, Indented, day, is_terminal, note, plural, screen_width
from triskele.edge.wording import visible
from triskele.errors import BadInput

if TYPE_CHECKING:
    from triskele.bench.own.judge import JudgingItem, JudgingSession
    from triskele.edge.cli.view import Renderable, Styled

_GRADES = (("0", "unrelated"), ("1", "related, no answer"), ("2", "answers in part"), ("3", "answers it"))
_OTHER_KEYS = (("u", "undo"), ("s", "skip the question"), ("q", "stop; grades are kept"))
_TERMINAL = "/dev/tty"
_LEAVING = frozenset({"q", "Q", "", "\x04"})


def has_keys() -> bool:
    """Whether a terminal can be read, even if standard input is redirected."""
    if sys.stdin is not None and sys.stdin.isatty():
        return True
    try:
        os.close(os.open(_TERMINAL, os.O_RDWR))
    except OSError:
        return False
    return True


def show(session: JudgingSession) -> None:
    """Show pair after pair until none is left or the judge stops."""
    if not has_keys():
        raise BadInput("judging needs a terminal: import grades from a file with --scripted FILE")
    message = ""
    while (item := session.item()) is not None:
        if is_terminal(sys.stdout):
            click.clear()
        show_parts(_view(item, message))
        key = read_key()
        message = ""
        if key in _LEAVING:
            return
        if key in dict(_GRADES):
            session.grade(int(key))
        elif key in ("u", "U"):
            message = "" if session.undo() else "Nothing to undo in this session."
        elif key in ("s", "S"):
            session.skip()
        else:
            message = f"No key {visible(key)!r}: press one of those above."


def _view(item: JudgingItem, message: str) -> Iterator[Renderable]:
    memory = item.memory
    details = [memory.category, day(memory.created_at), *memory.tags]
    yield note(f"{plural(item.questions_left, 'question')} left · memory {item.number} of {item.total}", QUIET)
    rule = note("─" * screen_width(), QUIET)
    yield from (note(""), note(item.question.text, MATCH), rule)
    yield Indented(note(memory.content), 2, 2)
    yield Indented(note(" · ".join(details), QUIET), 2, 2)
    yield from (rule, _keys(_GRADES), _keys(_OTHER_KEYS))
    if message:
        yield note(message, WARNING)


def _keys(keys: tuple[tuple[str, str], ...]) -> Styled:
    line = note("")
    for key, meaning in keys:
        line = line + note(f"{key} ", ID) + note(f"{meaning}   ")
    return line


def read_key() -> str:
    """Wait for a key; empty if the terminal is closed."""
    try:
        return click.getchar()
    except EOFError:
        return ""
