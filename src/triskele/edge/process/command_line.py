"""A command's request to the background process: who sends it, and the engine that answers."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from triskele import __version__
from triskele.edge.hook import client
from triskele.errors import BadInput, Conflict

if TYPE_CHECKING:
    from triskele.edge.http.client import RemoteEngine
    from triskele.engine.protocol import Engine

PATH = "/command-line"
_FOLDER, _ENVIRONMENT, _VERSION = "X-Triskele-Folder", "X-Triskele-Environment", "X-Triskele-Version"
# The folders below which settings are.
_FOLDERS = ("HOME", "XDG_DATA_HOME", "LOCALAPPDATA")
# Variables that are no settings.
READ_ELSEWHERE = frozenset(
    "TRISKELE_" + name
    for name in (
        "BENCH_CACHE BENCH_DATA CLIENT_TOKEN CONFIG DEBUG HOOK_DEADLINE_MS KEY LOOPBACK NEW_PASSPHRASE PASSPHRASE"
        " VAULT_KEY"
    ).split()
)
# What no run ignores: knowing that costs no look at the settings.
NEVER_IGNORED = {*READ_ELSEWHERE, "TRISKELE_HOME", "TRISKELE_PROJECT", "TRISKELE_SERVER", "TRISKELE_STORE"}


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A run of the command line: its working folder, and the environment that its settings depend on."""

    folder: str
    environ: Mapping[str, str]
    version: str = __version__

    @classmethod
    def of_process(cls, folder: str) -> CommandLine:
        """Describe this process."""
        names = [name for name in os.environ if name.startswith("TRISKELE_") or name in _FOLDERS]
        return cls(folder, {name: os.environ[name] for name in names})

    @classmethod
    def of_headers(cls, headers: Mapping[str, str]) -> CommandLine | None:
        """Read the sender of a request; None if it is no command."""
        if _ENVIRONMENT not in headers:
            return None
        environ = json.loads(unquote(headers[_ENVIRONMENT]))
        folder = unquote(headers.get(_FOLDER, ""), errors="surrogateescape")
        return cls(folder, environ, headers.get(_VERSION, ""))

    def headers(self) -> dict[str, str]:
        """The headers of its requests."""
        folder = quote(self.folder, errors="surrogateescape")
        return {_FOLDER: folder, _ENVIRONMENT: quote(json.dumps(self.environ)), _VERSION: self.version}

    def engine(self, engine: Engine) -> Engine:
        """The memory for this command, in its project; refused if the command has other settings, version or key."""
        from triskele import config

        if self.version != __version__:
            raise Conflict(f"the command is of version {self.version}, this process is {__version__}")
        if "TRISKELE_KEY" in self.environ or "TRISKELE_KEY" in os.environ:
            raise Conflict("the command has another key")
        if not os.path.isabs(self.folder):
            raise BadInput("the command names no folder")
        own, settings = engine.settings, config.load(self.environ)
        # None of them changes an answer: the command names its project, and here the background process embeds.
        agents = replace(settings.agents, background=own.agents.background)
        if replace(settings, project=own.project, origins=own.origins, agents=agents) != own:
            raise Conflict("the command has other settings than the background process")
        if settings.store.is_file and not os.path.isabs(settings.store.url.removeprefix("sqlite:///")):
            raise Conflict("the address of the store depends on the folder or home of the command")
        return engine.working_in(Path(self.folder), settings.project)


def open_resident(environ: Mapping[str, str]) -> RemoteEngine | None:
    """Open the memory in the background process; None if none serves this command."""
    address = client.Address(environ)
    if not address.is_tcp and not os.path.exists(address.socket(client.HTTP)):
        return None
    from triskele.edge.http.client import connect_resident

    with suppress(OSError):
        return connect_resident(address, PATH, CommandLine.of_process(os.getcwd()).headers())
    return None
