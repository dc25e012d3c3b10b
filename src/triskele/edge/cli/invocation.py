"""The context of a command: its store, its output, progress bars and the options that every command takes."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from triskele.edge.cli.layout import has_colors, is_terminal, rendered, screen_width
from triskele.errors import BadInput, NotFound, StoreUnavailable, TriskeleError

if TYPE_CHECKING:
    from pathlib import Path

    from triskele.config import Settings
    from triskele.edge.cli.layout import Part
    from triskele.engine.local import LocalEngine
    from triskele.engine.protocol import Engine

# How long a command may work after its output.
SPARE_S = 2.0
# What a request to the background process holds, and options that need standard input or more than one request.
_MOST_WORDS, _MOST_BYTES = 100, 30_000
_AT_STORE = frozenset({"-", "--split"})
# Wide enough for a memory on one line.
_WHOLE_COLUMNS = 10_000
_BAR_COLUMNS = 40
_REDRAW_S = 0.1
# Variables that are no settings.
_READ_ELSEWHERE = frozenset(
    "TRISKELE_" + name
    for name in (
        "BENCH_CACHE BENCH_DATA CLIENT_TOKEN CONFIG DEBUG HOOK_DEADLINE_MS KEY LOOPBACK NEW_PASSPHRASE PASSPHRASE"
        " VAULT_KEY"
    ).split()
)
# What no run ignores: knowing that costs no look at the settings.
_NEVER_IGNORED = {*_READ_ELSEWHERE, "TRISKELE_HOME", "TRISKELE_PROJECT", "TRISKELE_SERVER", "TRISKELE_STORE"}


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

    def settings(self) -> Settings:
        """The effective settings."""
        from triskele import config

        return config.load(store_url=self.store)

    def environ(self) -> dict[str, str]:
        """The environment for other processes on the same store."""
        return {**os.environ, "TRISKELE_STORE": self.store} if self.store else dict(os.environ)

    def chosen(self) -> Settings:
        """The settings of this run; a store that the command names is used itself."""
        settings = self.settings()
        return settings if self.store is None else replace(settings, server=replace(settings.server, url=""))

    def embeds_here(self) -> bool:
        """Whether this machine embeds the memories, rather than a server."""
        return bool(self.resident_store) or not self.chosen().server.url

    def address(self) -> str:
        """Where the memory of this run is."""
        if self.resident_store:
            return self.resident_store
        from triskele.edge.process import connect

        return connect.address_of(self.chosen())

    @contextmanager
    def open(self, *, at_store: bool = False) -> Iterator[Engine]:
        """Open the memory of this run, if need be in a new store; pending jobs are worked off after the output.

        `at_store`: in this process or on a server; the background process is not asked.
        """
        from triskele.edge.process import connect

        if not at_store and (resident := self._resident()) is not None:
            with resident:
                yield resident
            return
        with self.open_engine() as engine:
            yield engine
            sys.stdout.flush()
            if (store := connect.local(engine)) is not None:
                _work_off(store, self.environ())

    @contextmanager
    def open_existing(self, *, is_needed: bool = False, at_store: bool = False) -> Iterator[Engine]:
        """Open the memory; if there is no store, open a temporary empty one, or raise if one is needed."""
        if not at_store and (resident := self._resident()) is not None:
            with resident:
                yield resident
            return
        with self.open(at_store=True) if self.exists() else self._nothing(is_needed) as engine:
            yield engine

    def _resident(self) -> Engine | None:
        """Open the memory in the background process; None if this process has to open it."""
        # An error that is looked into happens here.
        is_plain = self.store is None and _AT_STORE.isdisjoint(self.arguments) and "TRISKELE_DEBUG" not in os.environ
        if not (self.asks_resident and is_plain and _fits_request(self.arguments)):
            return None
        from triskele.edge.process import command_line

        engine = command_line.open_resident(os.environ)
        self.resident_store = "" if engine is None else engine.address
        return engine

    def open_local(self) -> AbstractContextManager[LocalEngine]:
        """Open the store of this run; refused if the memory is on a server."""
        return self._local(self.open(at_store=True))

    def open_local_existing(self, *, is_needed: bool = False) -> AbstractContextManager[LocalEngine]:
        """Open the store; without a store open a temporary empty one, or raise if one is needed."""
        return self._local(self.open_existing(is_needed=is_needed, at_store=True))

    @contextmanager
    def _local(self, opening: AbstractContextManager[Engine]) -> Iterator[LocalEngine]:
        from triskele.edge.process import connect

        connect.require_store(self.chosen())
        with opening as engine:
            yield connect.store_of(engine)

    @contextmanager
    def _nothing(self, is_needed: bool) -> Iterator[Engine]:
        """A memory without content, whose file goes away."""
        from triskele.config import sqlite_path

        settings = self.chosen()
        path = sqlite_path(settings.store.url)
        state = "is an empty file" if path.exists() else "does not exist yet"
        missing = f"the store {path} {state}: `triskele add` creates it"
        if is_needed:
            raise StoreUnavailable(missing)
        try:
            with _empty_memory(settings) as engine:
                yield engine
        except NotFound as error:
            raise NotFound(f"{error} ({missing})") from None
        click.echo(missing, err=True)

    def exists(self) -> bool:
        """Whether the memory of this run exists already; a server's does."""
        from triskele.edge.process import connect

        return connect.exists(self.chosen())

    def open_engine(self) -> Engine:
        """The memory of this run; what waits in a store stays."""
        from pathlib import Path

        from triskele.config import sqlite_path
        from triskele.edge.process import connect

        settings = self.chosen()
        is_file = settings.store.is_file and not connect.server_of(settings)
        path = sqlite_path(settings.store.url) if is_file else None
        was_empty = path is not None and path.is_file() and not path.stat().st_size
        engine = connect.open_engine(settings, os.environ, Path.cwd(), _passphrase)
        if was_empty:
            click.echo(f"{path} was an empty file: it is a new store now", err=True)
        return engine

    def restore(self, source: Path) -> tuple[LocalEngine, Path | None]:
        """The memory after a backup replaced the store, and the path of the old content."""
        from triskele.edge.process import connect
        from triskele.engine.opening import restore_memory

        settings = self.chosen()
        connect.require_store(settings)
        return restore_memory(source, settings=settings, ask=_passphrase)

    def write_json(self, document: dict[str, Any]) -> None:
        """Write one JSON document to standard output."""
        self.has_answered = True
        takes_all = (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")
        self.echo(json.dumps(document, ensure_ascii=not takes_all, indent=2, allow_nan=False))

    def write(self, *parts: Part, is_list: bool = False) -> None:
        """Write for a person; a list in a file or a pipe has each text whole, on one line."""
        is_whole = is_list and not os.environ.get("COLUMNS") and not is_terminal(sys.stdout)
        show_parts(parts, width=_WHOLE_COLUMNS if is_whole else None)

    def echo(self, text: str) -> None:
        """Write a line to standard output."""
        click.echo(text)


def _fits_request(arguments: Sequence[str]) -> bool:
    """Whether a request may hold these words; a word that is not Unicode stays in this process."""
    try:
        return len(arguments) <= _MOST_WORDS and sum(len(word.encode()) for word in arguments) <= _MOST_BYTES
    except UnicodeEncodeError:
        return False


def ignored_variables(environ: Mapping[str, str], settings: Settings) -> list[str]:
    """The variables of an environment that have no effect."""
    read = {origin.removeprefix("environment ") for origin in settings.origins.values()} | _READ_ELSEWHERE
    return sorted(name for name in environ if name.startswith("TRISKELE_") and environ[name] and name not in read)


def warn_of_variables() -> None:
    """Warn of environment variables that have no effect."""
    if not any(name.startswith("TRISKELE_") and name not in _NEVER_IGNORED for name in os.environ):
        return
    from triskele import config

    with suppress(BadInput):
        settings = config.load()
        for name in ignored_variables(os.environ, settings):
            click.echo(f"triskele: {_about_ignored(name, settings)}", err=True)


def _about_ignored(name: str, settings: Settings) -> str:
    """Say why an environment variable has no effect, and name another."""
    from difflib import get_close_matches

    from triskele.config import OUTSIDE, VARIABLES

    usual = {f"TRISKELE_{key.replace('.', '_')}".upper(): key for key in settings.origins}
    word = name.removeprefix("TRISKELE_")
    if name in usual and usual[name] not in VARIABLES:
        return f"{name} has no effect: only the settings file sets it (`triskele config set {usual[name]} VALUE`)"
    variables = {
        variable.removeprefix("TRISKELE_"): VARIABLES.get(key, variable)
        for variable, key in usual.items()
        if key.partition(".")[0] not in OUTSIDE
    }
    close = [suffix for suffix in variables if suffix.endswith(f"_{word}")] or get_close_matches(word, variables, n=1)
    hint = f"did you mean {variables[close[0]]}?" if close else "`triskele config` lists the settings"
    return f"{name} is not a setting and has no effect: {hint}"


def _work_off(engine: LocalEngine, environ: dict[str, str]) -> None:
    """Leave pending jobs to the background process, or work for a moment."""
    # The answer is out: nothing here is an error of the command.
    with suppress(TriskeleError, OSError):
        if not engine.background.has_pending():
            return
        from triskele import config

        is_resident = engine.settings.agents.background and config.is_of_file(engine.settings, os.environ)
        if not (is_resident and _start_resident(environ)):
            engine.background.process(SPARE_S)


def _start_resident(environ: dict[str, str]) -> bool:
    """Start the background process, which finds pending jobs itself."""
    from triskele.edge.hook import client

    address = client.Address(environ)
    try:
        if not client.is_running(address):
            client.start(address, environ)
    except (OSError, client.NoAnswer):
        return False
    return True


@contextmanager
def _empty_memory(settings: Settings) -> Iterator[LocalEngine]:
    """A memory without content, in a folder that goes away."""
    from tempfile import TemporaryDirectory

    from triskele.engine.opening import open_memory

    with TemporaryDirectory(prefix="triskele-") as folder:
        store = replace(settings.store, url=f"sqlite:///{folder}/memories.db")
        with open_memory(settings=replace(settings, store=store)) as engine:
            yield engine


def standard_input() -> BinaryIO:
    """Standard input as bytes; refused if the caller closed it."""
    if sys.stdin is None:
        raise BadInput("standard input is closed")
    return sys.stdin.buffer


def _passphrase(prompt: str, is_new: bool) -> str | None:
    """A passphrase from the terminal; None if there is no terminal."""
    if sys.stdin is None or not sys.stdin.isatty():
        return None
    passphrase: str = click.prompt(prompt, hide_input=True, confirmation_prompt=is_new, err=True)
    return passphrase


def show_parts(parts: Iterable[Part | str], *, width: int | None = None, is_error: bool = False) -> None:
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
