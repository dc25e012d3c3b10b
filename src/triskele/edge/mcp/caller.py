"""The caller of a tool: its project, and what it may see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context
from starlette.requests import Request as HttpRequest

from triskele.edge.http.access import OWNER, PRINCIPAL, READ, AccessPolicy, Principal
from triskele.edge.install.config_files import TokenFile
from triskele.engine.protocol import Engine
from triskele.engine.views import NOT_NAMED
from triskele.errors import AccessDenied, BadInput
from triskele.types import EVERYWHERE, MemoryDetails, Sensitivity, client_actor

# Protocol names of clients that differ from the name they are installed by.
_INSTALLED_AS = {
    "codex-mcp-client": "codex",
    "cursor-vscode": "cursor",
    "visual studio code": "vscode",
    "gemini-cli-mcp-client": "gemini",
    "antigravity-cli": "antigravity",
}


@dataclass(frozen=True, slots=True)
class CallerContext:
    """What a connection brings: folder or project, token, and policy."""

    policy: AccessPolicy
    folder: Path | None = None
    project: str | None = None
    token: str = ""
    sender: Callable[[], Principal] = lambda: OWNER
    """who asks for a resource without variables, which does not get its request"""

    def placed(self, engine: Engine) -> Engine:
        """The memory in the project of the requests."""
        # The root folder has no project: what names none belongs everywhere.
        folder = self.folder if self.folder and self.folder.is_absolute() else Path(Path.cwd().anchor)
        return engine.working_in(folder, self.project or engine.settings.project)


Request = Context[CallerContext, Any]
# A client that the settings name proves by its token that it is the one that was installed.
_NO_TOKEN = "its entry has no valid token, so the user can run `triskele install {}` again"


@dataclass(frozen=True, slots=True)
class Caller:
    """Engine, project and permissions of one request."""

    engine: Engine
    source: CallerContext
    reads_private: bool
    hint: str = ""
    principal: Principal = OWNER

    def admit_models(self) -> None:
        """Refuse a question if today's hosted model tokens are used up."""
        self.source.policy.admit_models(self.principal)

    @property
    def project(self) -> str:
        """The project of the request."""
        return self.engine.project

    @property
    def sensitivities(self) -> tuple[Sensitivity, ...] | None:
        """The sensitivities that this client may read; None means all."""
        return None if self.reads_private else (Sensitivity.OPEN, Sensitivity.SECRET)

    def get(self, id: str) -> MemoryDetails:
        """A memory that this client may see and change."""
        try:
            return self.engine.get(id)
        except AccessDenied as error:
            raise BadInput(str(error).replace(NOT_NAMED, self.hint or NOT_NAMED)) from None

    def write_project(self, named: str, everywhere: bool) -> str | None:
        """The project to write to: the named one; None is the caller's."""
        if named and everywhere:
            raise BadInput("give project or everywhere, not both")
        return EVERYWHERE if everywhere else named or None


def caller(request: Request, scope: str = READ) -> Caller:
    """The caller of a request, whose key must have the scope."""
    source = request.request_context.lifespan_context
    principal = principal_of(request)
    principal.require(scope)
    claimed = client_name(request)
    source.policy.admit(principal)
    shared, http = source.policy.engine_of(principal), http_request(request)
    tokens, agents = TokenFile.of(shared.settings.home), shared.settings.agents
    token = source.token or ("" if http is None else http.headers.get("x-triskele-client-token", ""))
    reads_private = agents.shows_private_to(tokens.client_of(token))
    engine = source.placed(shared.acting_as(client_actor(claimed), reads_private=reads_private))
    hint = _NO_TOKEN.format(claimed) if not reads_private and agents.shows_private_to(claimed) else ""
    return Caller(engine, source, reads_private, hint, principal)


def http_request(request: Request) -> HttpRequest | None:
    """The request over HTTP; None on other transports."""
    http = request.request_context.request
    return http if isinstance(http, HttpRequest) else None


def principal_of(request: Request) -> Principal:
    """The holder of the key over HTTP, else the machine's owner."""
    http = http_request(request)
    return OWNER if http is None else http.scope.get(PRINCIPAL, OWNER)


def client_name(request: Request) -> str | None:
    """The client's own name as an install name; None without one."""
    parameters = request.session.client_params
    if parameters is None:
        return None
    name: str = parameters.client_info.name.strip().lower()
    return _INSTALLED_AS.get(name, name)
