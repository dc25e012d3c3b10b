"""Stores that a command opens itself, where the background process does not answer, and their settings."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triskele import config
from triskele.config import OUTSIDE, VARIABLES, Settings, sqlite_path
from triskele.edge.cli.view import has_terminal
from triskele.edge.hook import client
from triskele.edge.process import connect
from triskele.edge.process.command_line import READ_ELSEWHERE
from triskele.errors import BadInput, NotFound, StoreUnavailable, TriskeleError

if TYPE_CHECKING:
    from triskele.engine.local import LocalEngine
    from triskele.engine.protocol import Engine

# How long a command may work after its output.
SPARE_S = 2.0


class Stores:
    """Opens the memory of one run, on this machine or on a server."""

    def __init__(self, store: str | None, environ: Mapping[str, str]) -> None:
        self._store = store
        self._environ = environ

    def settings(self) -> Settings:
        """The effective settings."""
        return config.load(store_url=self._store)

    def chosen(self) -> Settings:
        """The settings of this run; a store that the command names is used itself."""
        settings = self.settings()
        return settings if self._store is None else replace(settings, server=replace(settings.server, url=""))

    def address(self) -> str:
        """Where the memory of this run is."""
        return connect.address_of(self.chosen())

    def exists(self) -> bool:
        """Whether the memory of this run exists already; a server's does."""
        return connect.exists(self.chosen())

    @contextmanager
    def open(self, *, creates: bool = False, is_needed: bool = False) -> Iterator[Engine]:
        """Open the memory; without a store create one, raise if one is needed, or open a temporary empty one.

        Pending jobs are worked off after the output.
        """
        if not (creates or self.exists()):
            with self._open_nothing(is_needed) as engine:
                yield engine
            return
        with self.open_engine() as engine:
            yield engine
            sys.stdout.flush()
            if (store := connect.local(engine)) is not None:
                _work_off(store, self._environ)

    @contextmanager
    def open_local(self, *, creates: bool = False, is_needed: bool = False) -> Iterator[LocalEngine]:
        """Open the store of this run; refused if the memory is on a server."""
        connect.require_store(self.chosen())
        with self.open(creates=creates, is_needed=is_needed) as engine:
            yield connect.store_of(engine)

    @contextmanager
    def _open_nothing(self, is_needed: bool) -> Iterator[Engine]:
        """A memory without content, whose file goes away."""
        from tempfile import TemporaryDirectory

        settings = self.chosen()
        path = sqlite_path(settings.store.url)
        state = "is an empty file" if path.exists() else "does not exist yet"
        missing = f"the store {path} {state}: `triskele add` creates it"
        if is_needed:
            raise StoreUnavailable(missing)
        try:
            with TemporaryDirectory(prefix="triskele-") as folder:
                store = replace(settings.store, url=f"sqlite:///{folder}/memories.db")
                with connect.open_store(replace(settings, store=store), Path.cwd()) as engine:
                    yield engine
        except NotFound as error:
            raise NotFound(f"{error} ({missing})") from None
        click.echo(missing, err=True)

    def open_engine(self) -> Engine:
        """The memory of this run; what waits in a store stays."""
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
        from triskele.engine.opening import restore_memory

        settings = self.chosen()
        connect.require_store(settings)
        return restore_memory(source, settings=settings, ask=_passphrase)

    def warn_of_variables(self) -> None:
        """Warn of environment variables that have no effect."""
        with suppress(BadInput):
            settings = config.load()
            for name in ignored_variables(os.environ, settings):
                click.echo(f"triskele: {_about_ignored(name, settings)}", err=True)


def ignored_variables(environ: Mapping[str, str], settings: Settings) -> list[str]:
    """The variables of an environment that have no effect."""
    read = {origin.removeprefix("environment ") for origin in settings.origins.values()} | READ_ELSEWHERE
    return sorted(name for name in environ if name.startswith("TRISKELE_") and environ[name] and name not in read)


def _about_ignored(name: str, settings: Settings) -> str:
    """Say why an environment variable has no effect, and name another."""
    from difflib import get_close_matches

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


def _work_off(engine: LocalEngine, environ: Mapping[str, str]) -> None:
    """Leave pending jobs to the background process, or work for a moment."""
    # The answer is out: nothing here is an error of the command.
    with suppress(TriskeleError, OSError):
        if not engine.background.has_pending():
            return
        if engine.settings.agents.background and config.is_of_file(engine.settings, os.environ):
            address = client.Address(environ)
            with suppress(OSError, client.NoAnswer):
                # It finds pending jobs itself.
                if not client.is_running(address):
                    client.start(address, environ)
                return
        engine.background.process(SPARE_S)


def _passphrase(prompt: str, is_new: bool) -> str | None:
    """A passphrase from the terminal; None if there is no terminal."""
    if not has_terminal():
        return None
    passphrase: str = click.prompt(prompt, hide_input=True, confirmation_prompt=is_new, err=True)
    return passphrase
