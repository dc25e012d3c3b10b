"""The `ui` command: starts the resident process if none runs, signs in, and opens the pages in a browser."""

from __future__ import annotations

import html
import json
import os
import time
import webbrowser
from pathlib import Path

import click

from triskele.edge.cli.invocation import Invocation, common, examples
from triskele.edge.hook import client
from triskele.edge.hook.client import Address
from triskele.errors import BadInput, Conflict, Unavailable

_START_S = 60.0
_ANSWER_S = 10.0
_PAUSE_S = 0.05
_REDIRECT = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={}"><title>triskele</title>'


@click.command(epilog=examples("triskele ui", "triskele ui --no-browser"))
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@common
def ui(invocation: Invocation, no_browser: bool) -> None:
    """Open your memories in a browser: search, edit, graph.

    The background process serves the pages on this machine only. The address signs one browser in, once and within
    ten minutes; the session lasts twelve hours, or until the process ends.
    """
    if invocation.uses_server():
        url = invocation.address()
        raise BadInput(f"the pages show the store of this machine, and your memory is at {url}: open {url}/ui")
    environ = invocation.environ()
    place = client.address(environ)
    url = sign_in_address(place, environ)
    is_open = not no_browser and not invocation.as_json and _open(place, url)
    if invocation.as_json:
        return invocation.write_json({"url": url, "project": None})
    return click.echo(f"{'Opened' if is_open else 'Open'} {url}")


def sign_in_address(place: Address, environ: dict[str, str]) -> str:
    """The address that signs a browser in; starts a resident process if none runs."""
    ends = time.monotonic() + _START_S
    while True:
        try:
            answer = client.exchange(place, "POST /sign-in", client.choice_headers(place), b"", _ANSWER_S)
            return _address(answer[0], answer[2])
        except (FileNotFoundError, ConnectionRefusedError):
            client.start(place, environ)
        except (ConnectionError, TimeoutError, BlockingIOError):
            # Another process takes over, or the backlog is full.
            pass
        if time.monotonic() > ends:
            log = os.path.join(place.run, "hook.log")
            raise Unavailable(f"the background process does not start: see {log} and {place.file('err')}")
        time.sleep(_PAUSE_S)


def _address(status: int, text: bytes) -> str:
    if status == 200:
        return str(json.loads(text)["url"])
    if status == 409:
        raise Conflict(f"{client.OTHER_STORE}: name the store in config.toml, or choose another TRISKELE_HOME")
    raise Conflict("the background process is of another version: stop it with `triskele serve --stop` and try again")


def _open(place: Address, url: str) -> bool:
    """Open the browser by a page that only this user can read: arguments of programs can be seen by others."""
    path = Path(place.file("open.html"))
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(_REDIRECT.format(html.escape(url)))
    try:
        return webbrowser.open(path.as_uri())
    except webbrowser.Error:
        return False
