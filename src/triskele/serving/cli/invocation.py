"""What all commands share: store, output, progress bars, and the options that every command takes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

import click

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console, RenderableType

    from triskele.config import Settings
    from triskele.engine import Engine
    from triskele.serving.http.client import RemoteMemory

# How long a command may work after its output.
SPARE_S = 2.0
# Wide enough for a memory on one line.
_WHOLE_COLUMNS = 10_000
# Variables that are no settings.
_READ_ELSEWHERE = frozenset(
    "TRISKELE_" + name
    for name in (
        "BENCH_CACHE BENCH_DATA CLIENT_TOKEN CONFIG DEBUG HOOK_DEADLINE_MS KEY LOOPBACK NEW_PASSPHRASE PASSPHRASE"
        " VAULT_KEY"
    ).split()
)

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(slots=True)
class Invocation:
    """One run of the command line."""

    as_json: bool = False
    store: str | None = None
    has_answered: bool = False
    shows_all: bool = False
    related: tuple[str, ...] = ()
    """ids of memories that the resident process found related to the text being added"""
    remote: RemoteMemory | None = None
    """the memory on the server of the settings, once it was opened"""

    @property
    def is_resident(self) -> bool:
        """Whether the resident process runs it for a client."""
        return False

    def has_terminal(self) -> bool:
        """Whether the output goes to a terminal."""
        return sys.stdout.isatty()

    def settings(self) -> Settings:
        """The effective settings."""
        from triskele import config

        return config.load(store_url=self.store)

    def environ(self) -> dict[str, str]:
        """The environment for other processes on the same store."""
        return {**os.environ, "TRISKELE_STORE": self.store} if self.store else dict(os.environ)

    def open_engine(self) -> Engine:
        """The engine of this run, or the server's."""
        from pathlib import Path

        from triskele.config import sqlite_path
        from triskele.serving.chosen_memory import open_chosen

        settings = self._chosen()
        is_file = settings.store.url.startswith("sqlite:") and not settings.server.url
        path = sqlite_path(settings.store.url) if is_file else None
        was_empty = path is not None and path.is_file() and not path.stat().st_size
        engine = open_chosen(settings, os.environ, Path.cwd(), _passphrase)
        if settings.server.url:
            self.remote = cast("RemoteMemory", engine)
        if was_empty:
            click.echo(f"{path} was an empty file: it is a new store now", err=True)
        return engine

    def _chosen(self) -> Settings:
        """The settings of this run; a store that the command names is used itself."""
        settings = self.settings()
        return settings if self.store is None else replace(settings, server=replace(settings.server, url=""))

    def refuse_server(self) -> None:
        """Refuse a command that works on files of the store, where this machine uses a server."""
        if self.uses_server():
            from triskele.serving.error_messages import only_at_the_store

            raise only_at_the_store(self.settings().server.url)

    @contextmanager
    def open(self) -> Iterator[Engine]:
        """The engine of this run, or the server's; after the output it has what waits worked off."""
        with self.open_engine() as engine:
            yield engine
            sys.stdout.flush()
            if self.remote is None:
                self._work_off(engine)

    def uses_server(self) -> bool:
        """Whether this run uses the configured server; a store given on the command line is opened directly."""
        return bool(self._chosen().server.url)

    def _work_off(self, engine: Engine) -> None:
        """Leave waiting jobs to the resident process, or do what fits into a moment."""
        from triskele.errors import TriskeleError

        # The answer is out: nothing here is an error of the command.
        with suppress(TriskeleError, OSError):
            if not engine.runtime.has_jobs():
                return
            from triskele import config

            is_resident = engine.settings.agents.background and config.is_of_file(engine.settings, os.environ)
            if not (is_resident and _start_resident(self.environ())):
                engine.runtime.work_off(SPARE_S)

    @contextmanager
    def open_existing(self, *, is_needed: bool = False) -> Iterator[Engine]:
        """The memory that this run works on; if there is no store yet, a temporary empty one."""
        from triskele.config import sqlite_path
        from triskele.errors import NotFound, StoreUnavailable
        from triskele.stores import factory

        settings = self.settings()
        if self.uses_server() or factory.exists(settings):
            with self.open() as engine:
                yield engine
            return
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

    def restore(self, source: Path) -> tuple[Engine, Path | None]:
        """The memory after a backup replaced the store, and the path of the old content."""
        from triskele.engine import restore_memory

        self.refuse_server()
        return restore_memory(source, settings=self.settings(), ask=_passphrase)

    def write_json(self, document: dict[str, Any]) -> None:
        """Write one JSON document to standard output."""
        self.has_answered = True
        self.echo(json.dumps(document, ensure_ascii=not self.encodes_all(), indent=2, allow_nan=False))

    def write(self, *parts: RenderableType, is_list: bool = False) -> None:
        """Write for a person; a list in a file or a pipe has each text whole, on one line."""
        screen = self.console()
        if screen.is_terminal:
            return screen.print(*parts, sep="\n")
        if is_list and not os.environ.get("COLUMNS"):
            screen.width = _WHOLE_COLUMNS
        with screen.capture() as captured:
            screen.print(*parts, sep="\n")
        # Tables pad their cells with blanks: remove them in a file or a pipe.
        return self.echo("\n".join(line.rstrip() for line in captured.get().removesuffix("\n").split("\n")))

    def echo(self, text: str) -> None:
        """Write a line to standard output."""
        click.echo(text)

    def encodes_all(self) -> bool:
        """Whether standard output takes every character."""
        return (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")

    def console(self) -> Console:
        """The console of standard output."""
        return console()


def ignored_variables(environ: Mapping[str, str], settings: Settings) -> list[str]:
    """The variables of an environment that have no effect on the settings read from it, nor on anything else."""
    read = {origin.removeprefix("environment ") for origin in settings.origins.values()} | _READ_ELSEWHERE
    return sorted(
        name for name, value in environ.items() if name.startswith("TRISKELE_") and value and name not in read
    )


def _start_resident(environ: dict[str, str]) -> bool:
    """Whether a resident process runs or was started; it looks for waiting jobs itself."""
    from triskele.serving import hook_client

    place = hook_client.address(environ)
    try:
        if not hook_client.is_running(place):
            hook_client.start(place, environ)
    except (OSError, hook_client.NoAnswer):
        return False
    return True


@contextmanager
def _empty_memory(settings: Settings) -> Iterator[Engine]:
    """A memory without content, in a folder that goes away."""
    from tempfile import TemporaryDirectory

    from triskele.engine import open_memory

    with TemporaryDirectory(prefix="triskele-") as folder:
        store = replace(settings.store, url=f"sqlite:///{folder}/memories.db")
        with open_memory(settings=replace(settings, store=store)) as engine:
            yield engine


def standard_input() -> BinaryIO:
    """Standard input as bytes; refused if the caller closed it."""
    from triskele.errors import BadInput

    if sys.stdin is None:
        raise BadInput("standard input is closed")
    return sys.stdin.buffer


def _passphrase(prompt: str, is_new: bool) -> str | None:
    """A passphrase from the terminal; None if there is no terminal."""
    if sys.stdin is None or not sys.stdin.isatty():
        return None
    said: str = click.prompt(prompt, hide_input=True, confirmation_prompt=is_new, err=True)
    return said


def console(*, is_error: bool = False) -> Console:
    """A console that prints text as it is: no markup, no emoji codes, no highlighting."""
    from rich.console import Console

    is_plain = bool(os.environ.get("NO_COLOR"))
    return Console(
        stderr=is_error, markup=False, emoji=False, highlight=False, color_system=None if is_plain else "auto"
    )


@contextmanager
def progress_bar(label: str, total: int | None = None) -> Iterator[Callable[..., None]]:
    """A progress bar on standard error, only on a terminal; called with done, total and a label."""
    screen = console(is_error=True)
    if not screen.is_terminal:
        yield lambda *_: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True) as bar:
        task = bar.add_task(label, total=total)

        def advance(done: int, of: int | None = None, now: str | None = None) -> None:
            bar.update(task, completed=done, total=total if of is None else of, description=now or label)

        yield advance


def examples(*lines: str) -> str:
    """The examples at the end of a command's help."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def global_options(command: Command) -> Command:
    """`--json` and `--store`, before or after the name of the command."""
    for option in (
        click.option(
            "--store",
            metavar="URL",
            expose_value=False,
            callback=_take_store,
            help="Use another store.",
        ),
        click.option("--json", is_flag=True, expose_value=False, callback=_take_json, help="Print one JSON document."),
    ):
        command = option(command)
    return command


def common(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the global options and the invocation as its first argument."""
    return click.pass_obj(global_options(command))


def _take_store(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.ensure_object(Invocation).store = value


def _take_json(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(Invocation).as_json = True
