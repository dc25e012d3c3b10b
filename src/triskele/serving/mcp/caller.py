"""Who is asking: the project worked in, and what the client may be told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context

from triskele import validation
from triskele.base import project
from triskele.engine import EVERYWHERE, Engine
from triskele.errors import BadInput
from triskele.types import Memory, Sensitivity

# What clients call themselves in the protocol, where that is not the name by which they are installed.
_INSTALLED_AS = {
    "codex-mcp-client": "codex",
    "cursor-vscode": "cursor",
    "visual studio code": "vscode",
    "gemini-cli-mcp-client": "gemini",
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where requests come from: a folder, or a project by name; without either they belong everywhere."""

    open_engine: Callable[[], Engine]
    folder: Path | None = None
    project: str | None = None

    def named(self, engine: Engine) -> str:
        """The project worked in."""
        given = self.project or engine.settings.project
        if given is None and self.folder is not None and self.folder.is_absolute():
            given = project.resolve(self.folder)
        return validation.check_name(given or EVERYWHERE, "the project")


Request = Context[Place, Any]


@dataclass(frozen=True, slots=True)
class Caller:
    """One request's engine, project and permissions."""

    engine: Engine
    project: str
    reads_private: bool

    def may_read(self, memory: Memory) -> bool:
        """Whether this client may learn what a memory says."""
        return self.reads_private or memory.sensitivity is not Sensitivity.PRIVATE

    def get(self, reference: str) -> Memory:
        """A memory that this client may read or change."""
        memory = self.engine.get(reference)
        if not self.may_read(memory):
            raise BadInput(
                f"{memory.id} is private and this client may not see it: the user can add the client to private_to"
                f" in the [agents] section of the settings, or read it with `triskele show {memory.id}`"
            )
        return memory

    def looked_into(self, named: str) -> str:
        """The project that a reader names, or the one worked in."""
        return named or self.project

    def written_to(self, named: str, everywhere: bool) -> str:
        """The project that a writer names, or the one worked in."""
        if named and everywhere:
            raise BadInput("project and everywhere exclude each other")
        return EVERYWHERE if everywhere else named or self.project


def caller(request: Request) -> Caller:
    """Who makes this request."""
    place = request.request_context.lifespan_context
    engine = place.open_engine()
    return Caller(engine, place.named(engine), engine.settings.agents.shows_private_to(client_name(request)))


def client_name(request: Request) -> str | None:
    """The client by the name that it is installed by; None where it did not say."""
    said = request.session.client_params
    if said is None:
        return None
    name: str = said.client_info.name.strip().lower()
    return _INSTALLED_AS.get(name, name)
