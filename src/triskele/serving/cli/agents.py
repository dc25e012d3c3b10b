"""Commands that agents' clients start: the resident process and the hook."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from triskele.errors import NotFound
from triskele.serving.cli.invocation import Invocation, common, examples


@click.command(
    epilog=examples(
        "triskele serve --status",
        "triskele serve --http 127.0.0.1:8377",
        "triskele serve --stop",
    ),
)
@click.option("--http", metavar="HOST:PORT", help="Serve HTTP on loopback as well; requests need the token.")
@click.option("--socket", metavar="PATH", type=click.Path(path_type=Path), help="Serve at another unix socket as well.")
@click.option("--status", is_flag=True, help="Only tell who serves this store now.")
@click.option("--stop", is_flag=True, help="Only end the process that serves this store now.")
@common
def serve(invocation: Invocation, http: str | None, socket: Path | None, status: bool, stop: bool) -> None:
    """Serve hooks and MCP from one process until it is idle.

    Hooks and `triskele mcp` start it by themselves when they need it; other commands never do.
    """
    from triskele.serving import listening, resident

    if status and stop:
        raise click.UsageError("give --status or --stop, not both")
    environ = invocation.environ()
    if status or stop:
        return _tell(invocation, environ, stop=stop)
    wishes = resident.Wishes(listening.loopback_address(http) if http else None, socket.absolute() if socket else None)
    resident.serve(environ, wishes, ready=lambda places: _tell_places(invocation, places))
    return resident.leave()


@click.command(
    epilog=examples(
        "triskele hook session-start < event.json",
        'echo \'{"prompt": "how do we deploy?"}\' | triskele hook user-prompt-submit',
    ),
)
@click.argument("event", metavar="EVENT")
@click.option("--client", metavar="NAME", default="", help="Who asks, by the name under which it was installed.")
@common
def hook(invocation: Invocation, event: str, client: str) -> None:
    """Answer an event of an agent with the memories that matter.

    EVENT is user-prompt-submit, session-start, pre-compact, stop or session-end; the client's JSON comes on standard
    input. It never fails a prompt: whatever goes wrong is silence and a line in run/hook.log of the data folder.
    """
    from triskele.serving import hook_client

    hook_client.answer(event, client, invocation.environ(), time.monotonic())


def _tell(invocation: Invocation, environ: dict[str, str], *, stop: bool) -> None:
    from triskele.serving import hook_client, resident

    place = hook_client.address(environ)
    found = resident.stop(place) if stop else resident.health(place)
    if found is None:
        raise NotFound("nobody serves this store now")
    if invocation.as_json:
        return invocation.write_json({"stopped": stop, **found, "project": None})
    done = "Stopped" if stop else "Serving:"
    return click.echo(f"{done} process {found['pid']}, version {found['version']}, {found['store']}")


def _tell_places(invocation: Invocation, places: dict[str, str]) -> None:
    if invocation.as_json:
        return invocation.write_json({**places, "pid": os.getpid(), "project": None})
    for name, place in places.items():
        click.echo(f"{name.replace('_', ' ')}: {place}")
    return click.echo("Serving until idle; Ctrl-C ends it.")
