"""Commands of the command line that the resident process runs for a client; `triskele.__main__` is the client."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triskele import config
from triskele.edge.cli.invocation import Invocation, ignored_variables
from triskele.edge.cli.main import cli
from triskele.edge.process import connect
from triskele.errors import BadInput, Conflict, Unavailable

if TYPE_CHECKING:
    from rich.console import Console

    from triskele.config import Settings
    from triskele.engine.protocol import Engine


@dataclass(slots=True)
class RemoteInvocation(Invocation):
    """One run of a command for a client: its engine, and its terminal."""

    engine: Engine | None = None
    is_terminal: bool = False
    size: tuple[int, int] = (80, 25)
    environ_of_client: Mapping[str, str] = field(default_factory=dict)
    output: io.StringIO = field(default_factory=io.StringIO)

    @property
    def is_resident(self) -> bool:
        """Whether the resident process runs it for a client."""
        return True

    def has_terminal(self) -> bool:
        """Whether the client's output goes to a terminal."""
        return self.is_terminal

    def settings(self) -> Settings:
        """The settings of the resident process, which are those of the client."""
        assert self.engine is not None
        return self.engine.settings

    @contextmanager
    def open(self) -> Iterator[Engine]:
        """The engine of the resident process; its background embeds what waits."""
        if self.engine is None or self.store is not None:
            raise Conflict("only the client can open another store")
        yield self.engine

    @contextmanager
    def open_existing(self, *, is_needed: bool = False) -> Iterator[Engine]:  # noqa: ARG002
        """The engine of the resident process."""
        with self.open() as engine:
            yield engine

    def echo(self, text: str) -> None:
        """Collect a line of output."""
        self.output.write(text + "\n")

    def encodes_all(self) -> bool:
        """Whether the client's output takes every character; the client asks only if it does."""
        return True

    def console(self) -> Console:
        """A console like the client's."""
        from rich.console import Console

        environ = dict(self.environ_of_client)
        return Console(
            file=self.output,
            force_terminal=self.is_terminal,
            width=self.size[0],
            height=self.size[1],
            markup=False,
            emoji=False,
            highlight=False,
            color_system=None if environ.get("NO_COLOR") else "auto",
            _environ=environ,
        )


def run(engine: Engine, request: Mapping[str, Any]) -> str:
    """The output of a command; an error is left to the client, which then runs the command itself."""
    _check_settings(engine.settings, request["environ"])
    memory = engine.working_in(Path(request["folder"]), request["environ"].get("TRISKELE_PROJECT"))
    invocation = RemoteInvocation(
        engine=memory,
        is_terminal=bool(request["is_terminal"]),
        size=(int(request["width"]), int(request["height"])),
        environ_of_client=request["terminal"],
    )
    if request["arguments"][0] == "recall" and (store := connect.local(engine)) is not None:
        # As in the client's own process; texts that are being embedded in the background count as waiting.
        with suppress(Unavailable, OSError):
            store.upkeep.embed(limit=store.embed_first, wait=False)
    with cli.make_context("triskele", list(request["arguments"]), obj=invocation) as context:
        cli.invoke(context)
    return invocation.output.getvalue()


def _check_settings(own: Settings, environ: Mapping[str, str]) -> None:
    """Refuse a client whose environment or settings file would have it answer otherwise."""
    theirs = config.load(environ)
    if "TRISKELE_KEY" in environ or "TRISKELE_KEY" in os.environ:
        raise BadInput("the client has another key")
    if ignored_variables(environ, theirs):
        raise BadInput("the client has variables to name on its standard error")
    # Neither changes an answer: the request names its project, and here the resident process embeds.
    agents = replace(theirs.agents, background=own.agents.background)
    if replace(theirs, project=own.project, origins=own.origins, agents=agents) != own:
        raise BadInput("the client has other settings")
