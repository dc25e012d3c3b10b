"""One run of the command line: who answers it, what it writes, and progress bars."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from triskele.edge.cli.view import has_colors, is_terminal, rendered, screen_width
from triskele.edge.process import command_line
from triskele.edge.process.command_line import NEVER_IGNORED
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
        return not self.as_json and sys.stdin is not None and sys.stdin.isatty()

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

    def open(self, *, at_store: bool = False) -> AbstractContextManager[Engine]:
        """Open the memory of this run, if need be in a new store; pending jobs are worked off after the output.

        `at_store`: in this process or on a server; the background process is not asked.
        """
        return (None if at_store else self._resident()) or self.stores.open()

    def open_existing(self, *, at_store: bool = False) -> AbstractContextManager[Engine]:
        """Open the memory, or a temporary empty one if there is no store."""
        return (None if at_store else self._resident()) or self.stores.open_existing()

    def _resident(self) -> AbstractContextManager[Engine] | None:
        """Open the memory in the background process; None if this process has to open it."""
        # An error that is looked into happens here.
        is_plain = self.store is None and _AT_STORE.isdisjoint(self.arguments) and "TRISKELE_DEBUG" not in os.environ
        if not (self.asks_resident and is_plain and _fits_request(self.arguments)):
            return None
        engine = command_line.open_resident(os.environ)
        self.resident_store = "" if engine is None else engine.address
        return engine

    def write_json(self, document: dict[str, Any]) -> None:
        """Write one JSON document to standard output."""
        self.has_answered = True
        takes_all = (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")
        click.echo(json.dumps(document, ensure_ascii=not takes_all, indent=2, allow_nan=False))

    def write(self, *parts: Renderable, is_list: bool = False) -> None:
        """Write for a person; a list in a file or a pipe has each text whole, on one line."""
        is_whole = is_list and not os.environ.get("COLUMNS") and not is_terminal(sys.stdout)
        show_parts(parts, width=_WHOLE_COLUMNS if is_whole else None)


def _fits_request(arguments: Sequence[str]) -> bool:
    """Whether a request may hold these words; a word that is not Unicode stays in this process."""
    try:
        return len(arguments) <= _MOST_WORDS and sum(len(word.encode()) for word in arguments) <= _MOST_BYTES
    except UnicodeEncodeError:
        return False


def warn_of_variables(invocation: Invocation) -> None:
    """Warn of environment variables that have no effect."""
    if any(name.startswith("TRISKELE_") and name not in NEVER_IGNORED for name in os.environ):
        invocation.stores.warn_of_variables()


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
    """A progress bar on standard error, only on a terminal; called with done, total and a label."""
    if not is_terminal(sys.stderr):
        yield lambda *_: None
        return
    bar = _ProgressBar(label, total)
    try:
        yield bar.advance
    finally:
        bar.write("")


@contextmanager
def staged_progress(label: str) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar for work in stages; called with stage, done and total."""
    with progress_bar(label) as advance:
        yield lambda stage, done, total: advance(done, total, stage)


class _ProgressBar:
    """One line on standard error, drawn at most ten times a second."""

    def __init__(self, label: str, total: int | None) -> None:
        self._label, self._total = label, total
        self._began = self._drawn_at = time.monotonic()
        self.write(label)

    def advance(self, done: int, of: int | None = None, now: str | None = None) -> None:
        """Show how much is done, and the time that is left."""
        total, moment = self._total if of is None else of, time.monotonic()
        if not total or (done < total and moment - self._drawn_at < _REDRAW_S):
            return
        self._drawn_at = moment
        full = round(_BAR_COLUMNS * min(done, total) / total)
        left = timedelta(seconds=round((moment - self._began) * (total - done) / done)) if done else ""
        self.write(f"{now or self._label} {'━' * full:{_BAR_COLUMNS}} {done}/{total} {left}")

    def write(self, line: str) -> None:
        """Replace the line."""
        click.echo(f"\r\x1b[K{line}", nl=False, err=True, color=True)
