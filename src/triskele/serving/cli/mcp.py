"""The command that agents' clients start: MCP over standard input and output."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, BinaryIO

import click

from triskele.serving.cli.invocation import Invocation, common, examples

if TYPE_CHECKING:
    from triskele.engine import Engine


@click.command(
    epilog=examples("triskele mcp", "triskele mcp --in-process", "claude mcp add triskele -- triskele mcp"),
)
@click.option("--in-process", is_flag=True, help="Serve from this process, without the resident one.")
@common
def mcp(invocation: Invocation, in_process: bool) -> None:
    """Serve an agent over standard input and output (MCP)."""
    from triskele.serving.mcp.bridge import Bridge
    from triskele.serving.mcp.dialing import Dialer

    shelter = _Shelter(invocation)
    dialer = Dialer(
        invocation.environ(), shelter.open_engine, in_process=in_process, tell=lambda said: click.echo(said, err=True)
    )
    try:
        Bridge(dialer, _own_output()).run(sys.stdin.buffer)
    except BrokenPipeError:
        # The client left; there is nobody to tell.
        return
    except KeyboardInterrupt:
        # A thread still reads standard input, and the interpreter would stumble over it at its end.
        shelter.close()
        os._exit(130)
    finally:
        shelter.close()


class _Shelter:
    """The engine of a process that serves by itself, opened when a request needs it."""

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation
        self._mutex = threading.Lock()
        self._engine: Engine | None = None

    def open_engine(self) -> Engine:
        """The engine; tried again after a failure."""
        with self._mutex:
            if self._engine is None:
                self._engine = self._invocation.open()
                self._engine.work_in_background()
            return self._engine

    def close(self) -> None:
        """Let go of the store."""
        with self._mutex:
            if self._engine is not None:
                self._engine.close()
                self._engine = None


def _own_output() -> BinaryIO:
    """Standard output for messages alone: whatever else writes there reaches standard error."""
    own = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return own
