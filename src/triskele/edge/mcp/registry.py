"""Tools, resources and prompts, and the errors of tools."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from functools import cache, cached_property
from typing import Annotated, Any

from anyio import to_thread
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError, ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails

from triskele.edge import error_messages
from triskele.edge.http.access import READ, Access
from triskele.edge.http.problems import problem_of
from triskele.edge.install.table import HOOK_TOOL
from triskele.edge.mcp import descriptions, schemas, tools_code, tools_read, tools_write
from triskele.edge.mcp.caller import CallerContext, Request, caller, http_request, principal_of
from triskele.errors import BadInput, TriskeleError

logger = logging.getLogger(__name__)
_COMPLAINTS = 3

READS = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
ADDS = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
REPLACES = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False)
UNDOES = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=False)
REVEALS = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False)

_TABLE: tuple[tuple[Callable[..., Any], str, str, ToolAnnotations], ...] = (
    (tools_write.memory_store, "Remember a fact", descriptions.STORE, ADDS),
    (tools_read.memory_recall, "Recall memories", descriptions.RECALL, READS),
    (tools_read.memory_get, "Read a memory", descriptions.GET, READS),
    (tools_read.memory_list, "Browse memories", descriptions.LIST, READS),
    (tools_write.memory_update, "Correct a memory", descriptions.UPDATE, REPLACES),
    (tools_write.memory_forget, "Forget memories", descriptions.FORGET, REPLACES),
    (tools_write.memory_link, "Connect memories", descriptions.LINK, ADDS),
    (tools_write.memory_undo, "Undo a change", descriptions.UNDO, UNDOES),
    (tools_read.memory_stats, "Count memories", descriptions.STATS, READS),
    (tools_read.memory_why_not, "Explain a missing memory", descriptions.WHY_NOT, READS),
    (tools_read.memory_reveal, "Reveal a secret", descriptions.REVEAL, REVEALS),
    (tools_code.code_search, "Search code", descriptions.CODE_SEARCH, READS),
    (tools_code.code_symbol, "Look up a symbol", descriptions.CODE_SYMBOL, READS),
    (tools_code.code_status, "List indexed code", descriptions.CODE_STATUS, READS),
)
_SHARES: tuple[tuple[Callable[..., Any], str, str, ToolAnnotations], ...] = (
    (tools_write.memory_share, "Share memories", descriptions.SHARE, REPLACES),
    (tools_write.memory_unshare, "End a share", descriptions.UNSHARE, REPLACES),
)


class MemoryTool(Tool):
    """Refuses unknown arguments and reports each error in one line."""

    @cached_property
    def output_schema(self) -> None:
        """None: answers are structured, but no model reads a schema of 20 kB for them."""

    async def run(self, arguments: dict[str, Any], context: Context[Any, Any], convert_result: bool = False) -> Any:
        """Call the tool."""
        properties = self.parameters["properties"]
        if unknown := sorted(arguments.keys() - properties.keys()):
            message = f"no argument {', '.join(unknown)}: {self.name} takes {', '.join(properties)}"
            raise ToolError(error_messages.printable_line(message))
        status = 500
        try:
            answer = await super().run(arguments, context, convert_result)
            if isinstance(answer, CallToolResult) and answer.structured_content is not None:
                # The SDK indents the JSON of the text.
                text = json.dumps(answer.structured_content, ensure_ascii=False)
                answer = answer.model_copy(update={"content": [TextContent(type="text", text=text)]})
            status = 200
            return answer
        except ToolError as error:
            status = problem_of(error.__cause__).status if error.__cause__ else 422
            raise ToolError(error_messages.printable_line(self._message(error))) from None
        finally:
            await to_thread.run_sync(self._note, context, status)

    def _message(self, error: ToolError) -> str:
        cause = error.__cause__
        if isinstance(cause, ValidationError):
            errors = cause.errors(include_url=False)[:_COMPLAINTS]
            return "; ".join(dict.fromkeys(_complaint(self.parameters, each) for each in errors))
        if isinstance(cause, TriskeleError | OSError):
            return error_messages.error_text(cause)
        if isinstance(cause, ToolError) or cause is None:
            return str(cause or error)
        # The message may quote a memory: log only the type.
        logger.error("a fault in %s: %s", self.name, type(cause).__name__)
        return f"a fault inside triskele: {type(cause).__name__} in {self.name}"

    def _note(self, context: Request, status: int) -> None:
        """Audit calls that change, reveal or were refused, if there are users."""
        policy, http = context.request_context.lifespan_context.policy, http_request(context)
        address = http.client.host if http is not None and http.client else ""
        access = Access(principal_of(context), f"mcp {self.name}", "", status, address)
        if self.annotations == READS and not access.is_refused:
            return
        policy.audit(access)
        if status == 200:
            policy.wrote(access.principal)


@cache
def tools(*, shares: bool = False) -> tuple[Tool, ...]:
    """All tools; `shares` adds the tools of a server with users."""
    about = "Answer a hook event. For hooks of clients, not for models."
    hook = MemoryTool.from_function(
        tools_read.memory_hook, name=HOOK_TOOL, description=about, annotations=READS, structured_output=False
    )
    return (*(_tool(*row) for row in (*_TABLE, *(_SHARES if shares else ()))), hook)


def _tool(function: Callable[..., Any], title: str, description: str, annotations: ToolAnnotations) -> Tool:
    tool = MemoryTool.from_function(function, title=title, description=description, annotations=annotations)
    properties = {name: _concise(schema) for name, schema in tool.parameters["properties"].items()}
    tool.parameters = {
        **{name: part for name, part in tool.parameters.items() if name != "title"},
        "properties": properties,
        "additionalProperties": False,
    }
    return tool


def _concise(schema: dict[str, Any]) -> dict[str, Any]:
    """An argument without its title, empty default and null, because agents pay for every token."""
    schema = {**schema, **schema.get("anyOf", [{}])[0]}
    return {
        name: part
        for name, part in schema.items()
        if name not in ("title", "anyOf") and (name != "default" or part not in ("", False, None, []))
    }


def _complaint(parameters: dict[str, Any], error: ErrorDetails) -> str:
    """What an argument must be, by the schema that the client has."""
    field, *index = error["loc"]
    if error["type"] == "missing":
        return f"{field} is missing: it must be {allowed(parameters['properties'][field])}"
    schema = parameters["properties"][field]
    if index and isinstance(index[0], int) and "items" in schema:
        field, schema = f"{field}[{index[0]}]", schema["items"]
    value = error["input"]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{field} must be {allowed(schema)}" + (f", not {value}" if is_number else "")


def allowed(schema: dict[str, Any]) -> str:
    """The values that a schema allows, in words."""
    if "enum" in schema:
        *most, last = schema["enum"]
        return f"{', '.join(most)} or {last}"
    kind = schema["type"]
    if kind == "boolean":
        return "true or false"
    if kind == "array":
        return f"a list{_extent(schema, 'Items')} texts"
    if kind == "string":
        return f"a text{_extent(schema, 'Length')} characters" if "maxLength" in schema else "a text"
    least, most = schema["minimum"], schema["maximum"]
    return f"a {'whole number' if kind == 'integer' else 'number'} from {least:,} to {most:,}"


def _extent(schema: dict[str, Any], what: str) -> str:
    least, most = schema.get(f"min{what}"), f"{schema[f'max{what}']:,}"
    return f" of at most {most}" if least is None else f" of {least:,} to {most}"


DIGEST_URI = "memory://digest"
_DIGEST_LINES = 50


def add_resources(server: MCPServer[CallerContext], source: CallerContext) -> None:
    """Add resources and prompts to a server."""

    @server.resource(
        "memory://memories/{id}",
        name="memory",
        title="A memory",
        description=descriptions.MEMORY_RESOURCE,
        mime_type="application/json",
    )
    def memory(request: Request, id: str) -> str:
        try:
            return schemas.memory_details(caller(request).get(id)).model_dump_json()
        except BadInput as error:
            raise ResourceNotFoundError(error_messages.error_line(error)) from None
        except (TriskeleError, OSError) as error:
            raise ResourceError(error_messages.error_line(error)) from None

    @server.resource(
        DIGEST_URI,
        name="digest",
        title="Standing memories of this project",
        description=descriptions.DIGEST_RESOURCE,
        mime_type="application/json",
    )
    def digest() -> str:
        try:
            principal = source.sender()
            principal.require(READ)
            engine = source.placed(source.policy.engine_of(principal))
            memories = engine.agents.digest(project=engine.project)[:_DIGEST_LINES]
            lines = schemas.fitting([schemas.line(memory) for memory in memories])
            return schemas.Listed(memories=lines, next_offset=None, project=engine.project).model_dump_json()
        except (TriskeleError, OSError) as error:
            raise ResourceError(error_messages.error_line(error)) from None

    @server.prompt(name="remember", title="Remember", description=descriptions.REMEMBER_PROMPT)
    def remember(
        hint: Annotated[str, Field(description="What to remember in particular; may be left out.")] = "",
    ) -> str:
        return descriptions.remember_request(hint)

    @server.prompt(name="recall", title="Recall", description=descriptions.RECALL_PROMPT)
    def recall(topic: Annotated[str, Field(description="What to recall.")]) -> str:
        return descriptions.recall_request(topic)
