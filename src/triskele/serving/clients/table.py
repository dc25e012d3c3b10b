"""The table of clients: which files each of them reads, and what triskele writes into them."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import triskele
from triskele.errors import BadInput

NAME = "triskele"
HOOK = Path(triskele.__file__).parent / "serving" / "hook_start.py"

# Our own limit is far below; this one is for a machine that hangs.
_HOOK_SECONDS = 5
_EVENTS = {"UserPromptSubmit": "user-prompt-submit", "SessionStart": "session-start", "PreCompact": "pre-compact"}
_OPTIONS = {"TRISKELE_HOME": "--home", "TRISKELE_STORE": "--store", "TRISKELE_CONFIG": "--config"}
_CLAUDE_EVENTS = {**_EVENTS, "SessionEnd": "session-end"}


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """One file of a client; `moved_by` names the variable that moves the folder it is in.

    `reserved_by` is a list in which the user refuses servers of repositories by name: without ours in it, a repository
    could put a server of its own in the place of triskele.
    """

    user: str
    project: str
    keys: tuple[str, ...]
    format: Literal["json", "toml"] = "json"
    moved_by: str | None = None
    events: Mapping[str, str] | None = None
    reserved_by: str | None = None


@dataclass(frozen=True, slots=True)
class Client:
    """An agent that triskele can be installed into."""

    name: str
    title: str
    files: tuple[ConfigFile, ...]
    names_transport: bool = False
    hook_as_line: bool = False
    advice: str = ""


CLIENTS: dict[str, Client] = {
    client.name: client
    for client in (
        Client(
            name="claude-code",
            title="Claude Code",
            files=(
                ConfigFile("~/.claude.json", ".mcp.json", ("mcpServers",), moved_by="CLAUDE_CONFIG_DIR"),
                ConfigFile(
                    "~/.claude/settings.json",
                    ".claude/settings.local.json",
                    ("hooks",),
                    moved_by="CLAUDE_CONFIG_DIR",
                    events=_CLAUDE_EVENTS,
                    reserved_by="disabledMcpjsonServers",
                ),
            ),
            names_transport=True,
            advice="Start Claude Code anew; /mcp and /hooks show triskele there.",
        ),
        Client(
            name="codex",
            title="Codex",
            files=(
                ConfigFile(
                    "~/.codex/config.toml", ".codex/config.toml", ("mcp_servers",), "toml", moved_by="CODEX_HOME"
                ),
                ConfigFile(
                    "~/.codex/hooks.json", ".codex/hooks.json", ("hooks",), moved_by="CODEX_HOME", events=_EVENTS
                ),
            ),
            hook_as_line=True,
            advice="Start Codex anew and trust the hooks under /hooks: Codex skips them until you do.",
        ),
        Client(
            name="cursor",
            title="Cursor",
            files=(ConfigFile("~/.cursor/mcp.json", ".cursor/mcp.json", ("mcpServers",)),),
            names_transport=True,
            advice="Start Cursor anew; its settings list triskele under MCP.",
        ),
        Client(
            name="vscode",
            title="VS Code",
            files=(ConfigFile("{config}/Code/User/mcp.json", ".vscode/mcp.json", ("servers",)),),
            names_transport=True,
            advice="In VS Code run `MCP: List Servers` and start triskele.",
        ),
        Client(
            name="gemini",
            title="Gemini CLI",
            files=(ConfigFile("~/.gemini/settings.json", ".gemini/settings.json", ("mcpServers",)),),
            advice="Start Gemini CLI anew; /mcp shows triskele there.",
        ),
    )
}


def place(file: ConfigFile, environment: Mapping[str, str]) -> Path:
    """Where the user's own file is."""
    moved = environment.get(file.moved_by) if file.moved_by else None
    if moved:
        return Path(moved).expanduser().absolute() / Path(file.user).name
    if file.user.startswith("{config}"):
        # Imported here: only this client needs it.
        import platformdirs

        folder = platformdirs.user_config_dir(appname=None, appauthor=False, roaming=True)
        return Path(file.user.format(config=folder))
    return Path(file.user).expanduser()


def server(client: Client, environment: Mapping[str, str]) -> dict[str, Any]:
    """The entry that makes the client start `triskele mcp`."""
    command, *arguments = _sound([_interpreter(), _isolation(), "-m", "triskele", "mcp"])
    _sound(environment.values())
    entry: dict[str, Any] = {"type": "stdio"} if client.names_transport else {}
    entry |= {"command": command, "args": arguments}
    return entry | ({"env": dict(environment)} if environment else {})


def hook(client: Client, event: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """The entry that makes the client call the hook client at an event."""
    # As arguments of our own: a client that left them out would run an interpreter without anything to do.
    places = [word for name, value in environment.items() for word in (_OPTIONS[name], value)]
    words = _sound([_interpreter(), "-I", "-S", str(HOOK), event, "--client", client.name, *places])
    if client.hook_as_line:
        line = subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)
        return {"type": "command", "command": line, "timeout": _HOOK_SECONDS}
    return {"type": "command", "command": words[0], "args": words[1:], "timeout": _HOOK_SECONDS}


def is_our_hook(entry: Any) -> bool:
    """Whether a hook calls our client, wherever that was installed."""
    if not isinstance(entry, dict):
        return False
    arguments = entry.get("args")
    words = [entry.get("command"), *(arguments if isinstance(arguments, list) else [])]
    return any(isinstance(word, str) and "triskele/serving/hook_" in word.replace("\\", "/") for word in words)


def _interpreter() -> str:
    if not sys.executable:
        raise BadInput("it is unknown which Python runs here: start triskele by its program")
    if "uv" in Path(sys.executable).parts and any(part.startswith("archive-v") for part in Path(sys.executable).parts):
        raise BadInput("triskele runs from uvx's cache, which may be emptied: run `uv tool install triskele` first")
    # Not resolved: the link inside a virtual environment is what finds its packages.
    return os.path.abspath(sys.executable)


def _isolation() -> str:
    """The flag that keeps a `triskele` or `json.py` in the folder that one works in from being run instead."""
    import site

    # -I would hide packages that were installed with `pip install --user`.
    return "-P" if HOOK.is_relative_to(site.getusersitepackages()) else "-I"


def _sound(words: Iterable[str]) -> list[str]:
    """The words, if every client hands them on as they are."""
    for word in words:
        # Several clients replace variables in what they read.
        if "$" in word or not word.isprintable():
            raise BadInput(f"other programs would not take {word!a} as it is: use a folder with a plain name")
    return list(words)
