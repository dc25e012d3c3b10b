"""Commands that connect agents and browsers: serve, hook, mcp, memory-tool, ui, install, uninstall."""

from __future__ import annotations

import html
import json
import os
import sys
import threading
import time
import webbrowser
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from triskele import config
from triskele.edge.cli.commands import command
from triskele.edge.cli.config import store_setting
from triskele.edge.cli.demo import store_samples
from triskele.edge.cli.documents import Document, picked
from triskele.edge.cli.invocation import Invocation, standard_input
from triskele.edge.cli.options import together
from triskele.edge.cli.view import GOOD, ID, MATCH, QUIET, WARNING, has_terminal, note, project_label
from triskele.edge.cli.write import text_or_input
from triskele.edge.hook import client as hook_client
from triskele.edge.hook.client import Address
from triskele.edge.install import installer
from triskele.edge.install.installer import InstallTarget
from triskele.edge.install.table import CLIENTS, Client
from triskele.edge.process import connect, listener, resident
from triskele.edge.wording import one_line, shown_content
from triskele.errors import BadInput, Conflict, NotFound, StoreClosed, Unavailable
from triskele.types import client_actor

if TYPE_CHECKING:
    from triskele.edge.cli.view import Styled
    from triskele.edge.install.installer import Change
    from triskele.edge.process.engine_host import SettingsWatch
    from triskele.engine.protocol import Engine

_START_S = 60.0
_ANSWER_S = 10.0
_PAUSE_S = 0.05
_REDIRECT = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={}"><title>triskele</title>'
_TARGET = together(
    click.argument("client", metavar="CLIENT", type=click.Choice(list(CLIENTS))),
    click.option("--dry-run", is_flag=True, help="Show the changes; write nothing."),
    click.option("--diff", is_flag=True, help="Show the exact changes of the files."),
    click.option("--yes", is_flag=True, help="Write without asking."),
    click.option("--project", is_flag=True, help="Only for the current folder."),
)
_OTHER_STORE = (
    "The store, owner or server is not that of the settings file: hooks will stay silent, and MCP works without the"
    " background process. Name the store in config.toml instead ([store] url, [server] url)."
)


@command(
    "triskele serve --status",
    "triskele serve --http 127.0.0.1:8377",
    "triskele serve --http 0.0.0.0:8080      (users with keys: TRISKELE_STORE=postgresql://…)",
    "triskele serve --stop",
)
@click.option("--http", metavar="HOST:PORT", help="Also serve HTTP: on loopback with the token, or users with keys.")
@click.option("--socket", metavar="PATH", type=click.Path(path_type=Path), help="Also serve on this unix socket.")
@click.option("--demo", is_flag=True, help="Serve two users and sample memories from a throw-away Postgres.")
@click.option("--status", is_flag=True, help="Only show the process that serves this data folder.")
@click.option("--stop", is_flag=True, help="Only stop the process that serves this data folder.")
def serve(invocation: Invocation, http: str | None, socket: Path | None, demo: bool, status: bool, stop: bool) -> None:
    """Serve hooks, MCP and commands from one process until idle.

    Hooks, `triskele mcp` and commands that leave texts to embed start it when they need it.
    """
    if status and stop:
        raise click.UsageError("give --status or --stop, not both")
    environ = invocation.environ()
    if status or stop:
        address = hook_client.Address(environ)
        health = resident.stop(address) if stop else resident.health(address)
        if health is None:
            raise NotFound("no process serves this data folder")
        process = f"process {health['pid']}, version {health['version']}, {health['store']}"
        line = f"{'Stopped' if stop else 'Serving:'} {process}"
        return invocation.emit({"stopped": stop, **health, "project": None}, lambda: line)
    if demo:
        return _serve_demo(invocation, http or "127.0.0.1:0")
    if http:
        connect.require_store(invocation.stores.chosen())
    is_public = not invocation.stores.settings().store.is_file
    resident.serve(
        environ,
        http=listener.http_address(http, is_public=is_public) if http else None,
        socket=socket.absolute() if socket else None,
        ready=lambda addresses: _report_addresses(invocation, addresses),
    )
    return resident.exit_now()


@command(
    "triskele hook session-start < event.json",
    """printf '{"prompt": "how do we deploy?", "cwd": "%s"}' "$PWD" | triskele hook user-prompt-submit --explain""",
)
@click.argument("event", metavar="EVENT")
@click.option("--client", metavar="NAME", default="", expose_value=False, help="The name of the client.")
@click.option("--explain", is_flag=True, help="Explain what the hook would give, and why; nothing is counted.")
def hook(invocation: Invocation, event: str, explain: bool) -> None:
    """Answer a hook event of an agent with relevant memories.

    EVENT is user-prompt-submit, session-start, pre-compact, stop or session-end; the client's JSON comes on standard
    input. An error never fails a prompt: it prints nothing and goes to run/hook.log in the data folder.
    """
    if explain:
        return _explain_hook(invocation, event)
    return hook_client.answer(event, invocation.environ(), time.monotonic())


def _explain_hook(invocation: Invocation, event: str) -> None:
    """Explain what the hook does with the event on standard input."""
    from triskele.edge.hook import explain as explanation

    try:
        payload = json.loads(standard_input().read() or b"{}")
    except ValueError:
        payload = None
    if not isinstance(payload, dict):
        raise BadInput("the event on standard input must be one JSON object")
    with invocation.stores.open_local() as engine:
        explained = explanation.explain(engine, event, payload)
        considered = [{**picked(each.memory, "id content"), "left_out": each.left_out} for each in explained.considered]

        def view() -> Iterator[Styled]:
            project = f" ({project_label(explained.project)})" if explained.has_looked else ""
            verb = "is " if explained.verdict.startswith("silent") else ""
            yield note(f"The hook {verb}{explained.verdict}{project}.", MATCH)
            if explained.has_looked:
                yield note(explained.where, QUIET)
            short = engine.shorten(each.memory.id for each in explained.considered)
            for candidate in explained.considered:
                sign = note("✗ ", WARNING) if candidate.left_out else note("✓ ", GOOD)
                reason = f" ({candidate.left_out})" if candidate.left_out else ""
                text = note(f"  {one_line(shown_content(candidate.memory, False))}{reason}")
                yield sign + note(short[candidate.memory.id], ID) + text

        document = {**picked(explained, "verdict confidence project"), "folder": explained.folder or None}
        invocation.emit({**document, "considered": considered}, view)


@command("triskele memory-tool --client my-agent < call.json", name="memory-tool")
@click.option("--client", metavar="NAME", default="", help="The name of the agent, for the journal.")
def memory_tool(invocation: Invocation, client: str) -> None:
    """Answer one call of the file memory tool (memory_20250818).

    The call is JSON on standard input; its paths are in /memories, a virtual folder over the memories of this project.
    """
    from triskele.agents.file_memory import FileMemory

    try:
        call = json.loads(text_or_input("-"))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"standard input is not one JSON object ({error})") from None
    if not isinstance(call, dict):
        raise BadInput("standard input is not one JSON object")
    with invocation.stores.open_local(creates=True) as engine:
        answer = FileMemory(engine.acting_as(client_actor(client)), engine.project).run(call)
        invocation.emit({"output": answer, "project": engine.project}, lambda: answer)


def _serve_demo(invocation: Invocation, http: str) -> None:
    """Serve from a database that goes away."""
    from triskele.server.demo import demo_environment, what_to_try

    address = listener.http_address(http, is_public=True)
    with demo_environment(store_samples) as (environ, keys):

        def ready(addresses: dict[str, str]) -> None:
            _report_addresses(invocation, addresses, what_to_try(addresses["http"], keys), keys=dict(keys))

        resident.serve(environ, http=address, ready=ready)
    resident.exit_now()


def _report_addresses(invocation: Invocation, addresses: dict[str, str], advice: str = "", **details: Any) -> None:
    """Show where the process listens."""
    lines = [advice] if advice else []
    lines += [f"{name.replace('_', ' ')}: {address}" for name, address in addresses.items()]
    until = "" if "http" in addresses and "token_file" not in addresses else " until idle"
    lines.append(f"Serving{until}; press Ctrl-C to stop.")
    document = {**addresses, **details, "pid": os.getpid(), "project": None}
    invocation.emit(document, lambda: "\n".join(lines))


@command("triskele mcp", "triskele mcp --in-process", "claude mcp add triskele -- triskele mcp")
@click.option("--in-process", is_flag=True, help="Serve in this process, without the background process.")
def mcp(invocation: Invocation, in_process: bool) -> None:
    """Serve an agent over standard input and output (MCP)."""
    from triskele.edge.mcp import bridge

    lazy_engine, environ = _LazyEngine(invocation), invocation.environ()

    def connect_server() -> bridge.Connection:
        if not in_process:
            try:
                return bridge.connect_resident(environ)
            except (bridge.ResidentUnavailable, OSError, hook_client.NoAnswer) as error:
                text = f"the resident process is not available, this process serves instead: {error}"
                click.echo(text, err=True)
        return bridge.serve_in_process(environ, lazy_engine.open_engine)

    # What else is written to standard output goes to standard error.
    own_output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        bridge.Bridge(connect_server, own_output).run(standard_input())
    except BrokenPipeError:
        # The client closed its end.
        return
    except KeyboardInterrupt:
        # A thread still reads standard input, which an orderly exit would wait for.
        lazy_engine.close()
        click.echo("triskele: interrupted", err=True)
        os._exit(130)
    finally:
        lazy_engine.close()


class _LazyEngine:
    """Opens the engine on the first request, and again after settings change."""

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation
        self._mutex = threading.Lock()
        self._opened: tuple[Engine, SettingsWatch] | None = None
        self._is_over = False

    def open_engine(self) -> Engine:
        """Return the engine; a failed open is tried again."""
        from triskele.edge.process.engine_host import SettingsWatch, retire_when_unused

        with self._mutex:
            if self._is_over:
                raise StoreClosed("triskele is stopping")
            if self._opened is not None and self._opened[1].is_outdated():
                # New settings may forbid what old ones allowed; requests that run keep the old engine.
                self._opened = None
            if self._opened is None:
                watch = SettingsWatch(self._invocation.stores.settings())
                engine = retire_when_unused(self._invocation.stores.open_engine())
                if (store := connect.local(engine)) is not None:
                    store.work_in_background()
                self._opened = engine, watch
            return self._opened[0]

    def close(self) -> None:
        """Close the engine; a request that comes later is refused."""
        with self._mutex:
            self._is_over = True
            if self._opened is not None:
                self._opened[0].close()
                self._opened = None


@command("triskele ui", "triskele ui --no-browser")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
def ui(invocation: Invocation, no_browser: bool) -> None:
    """Open your memories in a browser: search, edit, graph.

    The background process serves the pages on this machine only. The address signs one browser in, once and within
    ten minutes; the session lasts twelve hours, or until the process ends.
    """
    if url := connect.server_of(invocation.stores.chosen()):
        raise BadInput(f"the pages show the store of this machine, and your memory is at {url}: open {url}/ui")
    environ = invocation.environ()
    address = hook_client.Address(environ)
    url = _sign_in(address, environ)
    is_open = not no_browser and not invocation.as_json and _open(address, url)
    invocation.emit({"url": url, "project": None}, lambda: f"{'Opened' if is_open else 'Open'} {url}")


def _sign_in(address: Address, environ: dict[str, str]) -> str:
    """Get a URL that signs a browser in, from the background process."""
    ends = time.monotonic() + _START_S
    while True:
        try:
            headers = hook_client.choice_headers(address)
            status, _, text = hook_client.exchange(address, "POST /sign-in", headers, b"", _ANSWER_S)
            break
        except (FileNotFoundError, ConnectionRefusedError):
            hook_client.start(address, environ)
        except (ConnectionError, TimeoutError, BlockingIOError):
            # Another process takes over, or the backlog is full.
            pass
        if time.monotonic() > ends:
            log = os.path.join(address.run, "hook.log")
            raise Unavailable(f"the background process does not start: see {log} and {address.file('err')}")
        time.sleep(_PAUSE_S)
    if status == 200:
        return str(json.loads(text)["url"])
    if status == 409:
        raise Conflict(f"{hook_client.OTHER_STORE}: name the store in config.toml, or choose another TRISKELE_HOME")
    raise Conflict("the background process is of another version: stop it with `triskele serve --stop` and try again")


def _open(address: Address, url: str) -> bool:
    """Open the browser by a page that only this user can read."""
    # The arguments of programs can be seen by others.
    path = Path(address.file("open.html"))
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(_REDIRECT.format(html.escape(url)))
    with suppress(webbrowser.Error):
        return webbrowser.open(path.as_uri())
    return False


@command("triskele install claude-code --dry-run", "triskele install codex --yes", "triskele install vscode --project")
@_TARGET
@click.option("--learn", is_flag=True, help="Also learn from conversations (curation.learn = normal).")
def install(invocation: Invocation, learn: bool, **options: Any) -> None:
    """Install triskele into an agent, after showing what changes.

    CLIENT is claude-code, codex, cursor, vscode, gemini or antigravity.
    """
    _change_client(invocation, "install", **options)
    if learn:
        _let_learn(invocation, dry_run=options["dry_run"])


def _let_learn(invocation: Invocation, *, dry_run: bool) -> None:
    """Turn learning on, unless it is set already."""
    if (dial := invocation.stores.settings().curation.learn) != "off":
        click.echo(f"triskele already learns from conversations (curation.learn = {dial}).", err=True)
    elif dry_run:
        click.echo("triskele would learn from conversations (curation.learn = normal).", err=True)
    else:
        file = store_setting("curation.learn", "normal")
        click.echo(f"triskele learns from conversations from now on (curation.learn = normal in {file}).", err=True)


@command("triskele uninstall claude-code", "triskele uninstall vscode --project --dry-run")
@_TARGET
def uninstall(invocation: Invocation, **options: Any) -> None:
    """Remove triskele from an agent; other entries stay.

    CLIENT is claude-code, codex, cursor, vscode, gemini or antigravity.
    """
    _change_client(invocation, "uninstall", **options)


def _change_client(
    invocation: Invocation, action: str, *, client: str, dry_run: bool, diff: bool, yes: bool, project: bool
) -> None:
    """Install into a client or uninstall from it, with consent, and report the changed files."""
    settings, row, installs = invocation.stores.settings(), CLIENTS[client], action == "install"
    target = InstallTarget.of(settings, os.environ, Path.cwd() if project else None)
    try:
        changes = (installer.plan_install if installs else installer.plan_uninstall)(row, target)
    except installer.FileRefused as error:
        if error.by_hand and not invocation.as_json:
            click.echo(error.by_hand)
        raise
    if installs and not config.is_of_file(settings, os.environ):
        click.echo(_OTHER_STORE, err=True)
    verb = "Adds to" if installs else "Removes from"
    plan = [f"{verb} {change.path}: {change.purpose}" for change in changes if change.is_needed]
    lines = _differences(changes) if diff else plan
    # A script need not confirm an uninstall: only our own entries go, and a copy is kept.
    asks = bool(plan) and not (dry_run or yes) and (installs or has_terminal())
    if asks:
        _consent(invocation, row, changes, lines)
        lines = []
    if not dry_run:
        changes = (installer.install if installs else installer.uninstall)(changes, target)
    advice = row.advice if installs else ""
    if not plan:
        lines.append(f"Nothing to change: triskele is {'already' if installs else 'not'} installed in {row.title}.")
    elif dry_run:
        lines.append("Nothing was written.")
    else:
        for change in filter(lambda change: change.is_needed, changes):
            backup = f" (before: {change.backup})" if change.backup else ""
            lines.append(f"{'Removed' if change.after is None else 'Wrote'} {change.path}{backup}")
        lines += [advice] if advice else []
    document = {"client": row.name, "action": action, "dry_run": dry_run, "files": list(map(_file, changes))}
    invocation.emit({**document, "advice": advice}, lambda: "\n".join(lines))


def _consent(invocation: Invocation, client: Client, changes: list[Change], lines: list[str]) -> None:
    """Show what changes and ask for consent; `d` shows the diff."""
    if not has_terminal():
        raise BadInput("there is no terminal to ask on, nothing was written: add --yes to write, or --dry-run to look")
    question = f"Write this for {client.title}? (y: yes, n: no, d: show the diff)"
    while True:
        for line in lines:
            click.echo(line, err=invocation.as_json)
        reply = click.prompt(question, default="n", err=True).strip().lower()
        if reply in ("y", "yes"):
            return
        if reply not in ("d", "diff"):
            raise Conflict("not confirmed: nothing was written")
        lines = _differences(changes)


def _differences(changes: list[Change]) -> list[str]:
    """The diffs with control and direction characters escaped."""
    lines = [line.removesuffix("\r") for change in changes for line in change.difference.split("\n")[:-1]]
    return ["".join(c if c.isprintable() or c == "\t" else ascii(c)[1:-1] for c in line) for line in lines]


def _file(change: Change) -> Document:
    what = "unchanged"
    if change.is_needed:
        what = "created" if change.before is None else "removed" if change.after is None else "changed"
    return {"path": change.path, "change": what, "diff": change.difference, "backup": change.backup}
