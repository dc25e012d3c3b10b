"""Clients, the files that they read, and the entries for them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import triskele
from triskele.errors import BadInput
from triskele.text.files import expanded

NAME = "triskele"
HOOK = Path(triskele.__file__).parent / "edge" / "hook" / "start.py"

# The hook's own limit is far lower; this one is for a machine that hangs.
_HOOK_SECONDS = 5
_EVENTS = {"UserPromptSubmit": "user-prompt-submit", "SessionStart": "session-start", "PreCompact": "pre-compact"}
# Arguments are shown to every user of the machine: a hook gets the file of its token.
TOKEN_FILE = "token file"
_OPTIONS = {
    "TRISKELE_HOME": "--home",
    "TRISKELE_STORE": "--store",
    "TRISKELE_CONFIG": "--config",
    TOKEN_FILE: "--token-file",
}
_CLAUDE_EVENTS = {**_EVENTS, "SessionEnd": "session-end"}
HOOK_TOOL = "memory_hook"
# Events at which a client is connected to its servers: not yet at the start of a session, no longer at its end.
_CONNECTED = frozenset({"user-prompt-submit", "pre-compact"})
_HOOK_FIELDS = ("prompt", "session_id", "cwd", "source", "agent_id")
_VERSION_S = 10


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A file of a client; the variable `moved_by` moves its folder.

    `reserved_by` is the list of server names that repositories may not define: without the name triskele, a repository
    could replace the server by its own. A project's file that `is_personal` is one that teams do not commit.
    """

    user: str
    project: str
    keys: tuple[str, ...]
    format: Literal["json", "toml"] = "json"
    moved_by: str | None = None
    events: Mapping[str, str] | None = None
    reserved_by: str | None = None
    is_personal: bool = False


@dataclass(frozen=True, slots=True)
class Client:
    """A client that triskele can be installed into.

    From the version `tool_hooks_since` of its program on, its hooks can call a tool of a running server.
    """

    name: str
    title: str
    files: tuple[ConfigFile, ...]
    names_transport: bool = False
    hook_as_line: bool = False
    advice: str = ""
    program: str = ""
    tool_hooks_since: tuple[int, ...] | None = None


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
                    is_personal=True,
                ),
            ),
            names_transport=True,
            advice="Restart Claude Code; /mcp and /hooks list triskele.",
            program="claude",
            tool_hooks_since=(2, 1, 118),
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
            advice="Restart Codex and trust the hooks under /hooks: until then Codex skips them.",
        ),
        Client(
            name="cursor",
            title="Cursor",
            files=(ConfigFile("~/.cursor/mcp.json", ".cursor/mcp.json", ("mcpServers",)),),
            names_transport=True,
            advice="Restart Cursor; its settings list triskele under MCP.",
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
            advice="Restart Gemini CLI; /mcp lists triskele. For its successor run `triskele install antigravity`.",
        ),
        Client(
            name="antigravity",
            title="Antigravity CLI",
            files=(
                ConfigFile("~/.gemini/antigravity-cli/mcp_config.json", ".agents/mcp_config.json", ("mcpServers",)),
            ),
            advice="Restart agy; /mcp lists triskele.",
        ),
    )
}


def user_path(file: ConfigFile, environment: Mapping[str, str]) -> Path:
    """The path of the user's own file."""
    moved = environment.get(file.moved_by) if file.moved_by else None
    if moved:
        return expanded(moved) / Path(file.user).name
    if file.user.startswith("{config}"):
        # Imported here: only this client needs it.
        import platformdirs

        folder = platformdirs.user_config_dir(appname=None, appauthor=False, roaming=True)
        return Path(file.user.format(config=folder))
    return Path(file.user).expanduser()


def server(client: Client, environment: Mapping[str, str] | None) -> dict[str, Any]:
    """The entry that starts `triskele mcp`; without an environment it is for a file that a team commits."""
    words = [NAME, "mcp"]
    if environment is not None:
        import site

        # Keeps modules of the working folder out; -I would hide packages installed with `pip install --user`.
        flag = "-P" if HOOK.is_relative_to(site.getusersitepackages()) else "-I"
        words = _plain_words([_interpreter(), flag, "-m", "triskele", "mcp"])
        _plain_words(environment.values())
    entry: dict[str, Any] = {"type": "stdio"} if client.names_transport else {}
    entry |= {"command": words[0], "args": words[1:]}
    return entry | ({"env": dict(environment)} if environment else {})


def has_tool_hooks(client: Client, path: str) -> bool:
    """Whether the installed client can call tools from hooks."""
    # An older program would refuse such a hook.
    program = shutil.which(client.program, path=path) if client.tool_hooks_since else None
    return program is not None and _version(program) >= (client.tool_hooks_since or ())


@cache
def _version(program: str) -> tuple[int, ...]:
    """The version that a program prints; empty if it prints none."""
    try:
        run = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=_VERSION_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    version = re.match(r"(\d+)\.(\d+)\.(\d+)", run.stdout.strip())
    return tuple(map(int, version.groups())) if version else ()


def tool_hook(event: str) -> dict[str, Any] | None:
    """The hook that calls the server, for events with a running server."""
    if event not in _CONNECTED:
        return None
    arguments = {"event": event, **{name: f"${{{name}}}" for name in _HOOK_FIELDS}}
    return {"type": "mcp_tool", "server": NAME, "tool": HOOK_TOOL, "input": arguments, "timeout": _HOOK_SECONDS}


def hook(client: Client, event: str, environment: Mapping[str, str] | None) -> dict[str, Any]:
    """The entry that runs the hook at an event; without an environment it is for a file that a team commits."""
    words = [NAME, "hook", event, "--client", client.name]
    if environment is not None:
        # As arguments, not as environment: not every client passes an environment on.
        options = [word for name, value in environment.items() for word in (_OPTIONS[name], value)]
        words = _plain_words([_interpreter(), "-I", "-S", str(HOOK), *words[2:], *options])
    if client.hook_as_line:
        line = subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)
        return {"type": "command", "command": line, "timeout": _HOOK_SECONDS}
    return {"type": "command", "command": words[0], "args": words[1:], "timeout": _HOOK_SECONDS}


def is_our_hook(entry: Any) -> bool:
    """Whether an entry runs a triskele hook or calls the triskele server."""
    if not isinstance(entry, dict):
        return False
    if entry.get("type") == "mcp_tool":
        return (entry.get("server"), entry.get("tool")) == (NAME, HOOK_TOOL)
    arguments = entry.get("args")
    words = [entry.get("command"), *(arguments if isinstance(arguments, list) else [])]
    texts = [word.replace("\\", "/") for word in words if isinstance(word, str)]
    return any("triskele/edge/hook/" in word for word in texts) or " ".join(texts).startswith(f"{NAME} hook ")


def _interpreter() -> str:
    if not sys.executable:
        raise BadInput("the path of this Python is unknown: start triskele by its program file")
    if "uv" in Path(sys.executable).parts and any(part.startswith("archive-v") for part in Path(sys.executable).parts):
        raise BadInput("triskele runs from the cache of uvx, which is temporary: run `uv tool install triskele` first")
    # Not resolved: Python finds the packages of a virtual environment by the link inside it.
    return os.path.abspath(sys.executable)


def _plain_words(words: Iterable[str]) -> list[str]:
    """The words, if every client passes them on unchanged."""
    for word in words:
        # Several clients replace variables in their configuration.
        if "$" in word or not word.isprintable():
            raise BadInput(f"clients would not pass {word!a} on unchanged: use a folder with a plain name")
    return list(words)
