"""The caller of a tool: its project, and what it may see."""

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

# Protocol names of clients that differ from the name they are installed by.
_INSTALLED_AS = {
    "codex-mcp-client": "codex",
    "cursor-vscode": "cursor",
    "visual studio code": "vscode",
    "gemini-cli-mcp-client": "gemini",
}


@dataclass(frozen=True, slots=True)
class RequestSource:
    """The folder or the named project that requests come from; without either they have no project."""

    open_engine: Callable[[], Engine]
    folder: Path | None = None
    project: str | None = None

    def named(self, engine: Engine) -> str:
        """The project of the requests."""
        given = self.project or engine.settings.project
        if given is None and self.folder is not None and self.folder.is_absolute():
            given = project.resolve(self.folder)
        return validation.check_name(given or EVERYWHERE, "the project")


Request = Context[RequestSource, Any]


@dataclass(frozen=True, slots=True)
class Caller:
    """Engine, project and permissions of one request."""

    engine: Engine
    project: str
    reads_private: bool

    @property
    def sensitivities(self) -> frozenset[Sensitivity] | None:
        """The sensitivities that this client may read; None means all."""
        return None if self.reads_private else frozenset(Sensitivity) - {Sensitivity.PRIVATE}

    def may_read(self, memory: Memory) -> bool:
        """Whether this client may see the text of a memory."""
        return self.reads_private or memory.sensitivity is not Sensitivity.PRIVATE

    def get(self, reference: str) -> Memory:
        """A memory that this client may see and change."""
        memory = self.engine.get(reference)
        if not self.may_read(memory):
            raise BadInput(
                f"{memory.id} is private and this client may not see it: the user can add the client to private_to"
                f" in the [agents] section of the settings, or read it with `triskele show {memory.id}`"
            )
        return memory

    def looked_into(self, named: str) -> str:
        """The project to read: the named one, or the caller's."""
        return named or self.project

    def written_to(self, named: str, everywhere: bool) -> str:
        """The project to write to: the named one, or the caller's."""
        if named and everywhere:
            raise BadInput("give project or everywhere, not both")
        return EVERYWHERE if everywhere else named or self.project


def caller(request: Request) -> Caller:
    """The caller of a request."""
    source = request.request_context.lifespan_context
    engine = source.open_engine()
    return Caller(engine, source.named(engine), engine.settings.agents.shows_private_to(client_name(request)))


def client_name(request: Request) -> str | None:
    """The name that the client gives itself, as its install name; None where it gives none."""
    said = request.session.client_params
    if said is None:
        return None
    name: str = said.client_info.name.strip().lower()
    return _INSTALLED_AS.get(name, name)
