"""What can be read and asked for without calling a tool: a memory, the project's digest, two prompts."""

from __future__ import annotations

from typing import Annotated

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError
from pydantic import Field

from triskele.errors import BadInput, TriskeleError
from triskele.serving import failures
from triskele.serving.hook import injection
from triskele.serving.hook.conversation import Conversation
from triskele.serving.mcp import answers, reading, wording
from triskele.serving.mcp.caller import Place, Request, caller

DIGEST_URI = "memory://digest"
_DIGEST_LINES = 50


def add_to(server: MCPServer[Place], place: Place) -> None:
    """Give a server its resources and prompts."""

    @server.resource(
        "memory://memories/{id}",
        name="memory",
        title="A memory",
        description=wording.MEMORY_RESOURCE,
        mime_type="application/json",
    )
    def memory(request: Request, id: str) -> str:
        try:
            return reading.details(caller(request), id).model_dump_json()
        except BadInput as error:
            raise ResourceNotFoundError(failures.line(failures.said(error))) from None
        except (TriskeleError, OSError) as error:
            raise ResourceError(failures.line(failures.said(error))) from None

    @server.resource(
        DIGEST_URI,
        name="digest",
        title="What stands in this project",
        description=wording.DIGEST_RESOURCE,
        mime_type="application/json",
    )
    def digest() -> str:
        try:
            return _digest(place).model_dump_json()
        except (TriskeleError, OSError) as error:
            raise ResourceError(failures.line(failures.said(error))) from None

    @server.prompt(name="remember", title="Remember", description=wording.REMEMBER_PROMPT)
    def remember(
        hint: Annotated[str, Field(description="What to remember in particular; may be left out.")] = "",
    ) -> str:
        return wording.remember_request(hint)

    @server.prompt(name="recall", title="Recall", description=wording.RECALL_PROMPT)
    def recall(topic: Annotated[str, Field(description="What to recall.")]) -> str:
        return wording.recall_request(topic)


def _digest(place: Place) -> answers.Listed:
    """What a conversation in this project would be given at its start, in full."""
    engine = place.open_engine()
    project = place.named(engine)
    memories = injection.standing(engine, Conversation(key=None, project=project, sees_private=False, given={}))
    lines = [answers.line(each) for each in memories[:_DIGEST_LINES]]
    return answers.Listed(memories=answers.fitting(lines), next_offset=None, project=project)
