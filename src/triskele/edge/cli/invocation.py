"""One run of the command line: who answers it, what it writes, and progress bars."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from triskele.edge.cli.documents import shown
from triskele.edge.cli.view import has_colors, has_terminal, is_terminal, rendered, screen_width
from triskele.edge.process import command_line
from triskele.errors import BadInput

if TYPE_CHECKING:
    from triskele.edge.cli.stores import Stores
    from triskele.edge.cli.view import Renderable
    from triskele.engine.protocol import Engine

# What a request to the background process holds, and options that need standard input or more than one request.
_MOST_WORDS, _MOST_BYTES = 100, 30_000
_AT_STORE = frozenset({"-", "--split"})
# Wide enough for a memory on one line.
_WHOLE_COLUMNS = 10_000
_BAR_COLUMNS = 40
_REDRAW_S = 0.1
_TERMINAL = "/dev/tty"

View = Callable[[], "str | Iterable[Renderable]"]


@dataclass(slots=True)
class Invocation:
    """One run of the command line."""

    as_json: bool = False
    store: str | None = None
    has_answered: bool = False
    shows_all: bool = False
    arguments: Sequence[str] = ()
    asks_resident: bool = True
    """whether the background process may answer, which has model and indexes in memory"""
    resident_store: str = ""
    """the store of the background process that answers; empty if none does"""

    def can_ask(self) -> bool:
        """Whether a person can answer a question."""
        return not self.as_json and has_terminal()

    @property
    def stores(self) -> Stores:
        """Opens what the background process does not answer for."""
        # Imported here: settings and stores take as long to import as all else that a command needs.
        from triskele.edge.cli.stores import Stores

        return Stores(self.store, self.environ())

    def environ(self) -> dict[str, str]:
        """The environment for other processes on the same store."""
        return {**os.environ, "TRISKELE_STORE": self.store} if self.store else dict(os.environ)

    def embeds_here(self) -> bool:
        """Whether this machine embeds the memories, rather than a server."""
        return bool(self.resident_store) or not self.stores.chosen().server.url

    def address(self) -> str:
        """Where the memory of this run is."""
        return self.resident_store or self.stores.address()

    def open(self, *, creates: bool = False, at_store: bool = False) -> AbstractContextManager[Engine]:
        """Open the memory of this run; without a store create one, or open a temporary empty one.

        `at_store`: in this process or on a server; the background process is not asked.
        """
        # An error that is looked into happens here.
        is_plain = self.store is None and _AT_STORE.isdisjoint(self.arguments) and "TRISKELE_DEBUG" not in os.environ
        if self.asks_resident and is_plain and not at_store and _fits_request(self.arguments):
            engine = command_line.open_resident(os.environ)
            self.resident_store = "" if engine is None else engine.address
            if engine is not None:
                return engine
        return self.stores.open(creates=creates)

    def emit(self, reply: Any, view: View, *, is_list: bool = False, is_beside_data: bool = False, **more: Any) -> None:
        """Write the view of a reply or, with --json, its document with `more` fields.

        A view beside data that is on standard output goes to standard error.
        """
        if self.as_json:
            return self.write_json({**shown(reply), **shown(more)})
        parts = view()
        if isinstance(parts, str):
            return click.echo(parts)
        # In a file or a pipe a list has each text whole, on one line.
        is_whole = is_list and not os.environ.get("COLUMNS") and not is_terminal(sys.stdout)
        return show_parts(parts, width=_WHOLE_COLUMNS if is_whole else None, is_error=is_beside_data)

    def write_json(self, document: dict[str, Any]) -> None:
        """Write one JSON document to standard output."""
        self.has_answered = True
        takes_all = (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")
        click.echo(json.dumps(document, ensure_ascii=not takes_all, indent=2, allow_nan=False))


def _fits_request(arguments: Sequence[str]) -> bool:
    """Whether a request may hold these words; a word that is not Unicode stays in this process."""
    try:
        return len(arguments) <= _MOST_WORDS and sum(len(word.encode()) for word in arguments) <= _MOST_BYTES
    except UnicodeEncodeError:
        return False


def has_keys() -> bool:
    """Whether a terminal can be read, even if standard input is redirected."""
    if has_terminal():
        return True
    with suppress(OSError):
        os.close(os.open(_TERMINAL, os.O_RDWR))
        return True
    return False


def read_key() -> str:
    """Wait for a key; empty if the terminal is closed."""
    try:
        return click.getchar()
    except EOFError:
        return ""


def standard_input() -> BinaryIO:
    """Standard input as bytes; refused if the caller closed it."""
    if sys.stdin is None:
        raise BadInput("standard input is closed")
    return sys.stdin.buffer


def show_parts(parts: Iterable[Renderable | str], *, width: int | None = None, is_error: bool = False) -> None:
    """Write parts of a view, with styles on a terminal."""
    colored = has_colors(sys.stderr if is_error else sys.stdout)
    text = rendered(parts, screen_width() if width is None else width, colored=colored)
    click.echo(text, err=is_error, color=colored)


@contextmanager
def progress_bar(label: str, total: int | None = None) -> Iterator[Callable[..., None]]:
    """One line on standard error, only on a terminal; called with done, total and a label."""
    if not is_terminal(sys.stderr):
        yield lambda *_: None
        return
    began = drawn_at = time.monotonic()

    def write(line: str) -> None:
        click.echo(f"\r\x1b[K{line}", nl=False, err=True, color=True)

    def advance(done: int, of: int | None = None, now: str | None = None) -> None:
        """Show how much is done and the time that is left, at most ten times a second."""
        nonlocal drawn_at
        most, moment = total if of is None else of, time.monotonic()
        if not most or (done < most and moment - drawn_at < _REDRAW_S):
            return
        drawn_at = moment
        full = round(_BAR_COLUMNS * min(done, most) / most)
        left = timedelta(seconds=round((moment - began) * (most - done) / done)) if done else ""
        write(f"{now or label} {'━' * full:{_BAR_COLUMNS}} {done}/{most} {left}")

    write(label)
    try:
        yield advance
    finally:
        write("")


@contextmanager
def staged_progress(label: str) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar for work in stages; called with stage, done and total."""
    with progress_bar(label) as advance:
        yield lambda stage, done, total: advance(done, total, stage)
