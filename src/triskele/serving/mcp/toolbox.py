"""The tools in the order in which clients see them, and how their failures are told."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from functools import cache
from typing import Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import ValidationError

from triskele.errors import TriskeleError
from triskele.serving import failures
from triskele.serving.mcp import reading, revealing, wording, writing

logger = logging.getLogger(__name__)

LOOKS = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
ADDS = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
REPLACES = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False)
TURNS_BACK = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=False)
DISCLOSES = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False)

_TABLE: tuple[tuple[Callable[..., Any], str, str, ToolAnnotations], ...] = (
    (writing.memory_store, "Remember a fact", wording.STORE, ADDS),
    (reading.memory_recall, "Recall memories", wording.RECALL, LOOKS),
    (reading.memory_get, "Read a memory", wording.GET, LOOKS),
    (reading.memory_list, "Browse memories", wording.LIST, LOOKS),
    (writing.memory_update, "Correct a memory", wording.UPDATE, REPLACES),
    (writing.memory_forget, "Forget memories", wording.FORGET, REPLACES),
    (writing.memory_link, "Connect memories", wording.LINK, ADDS),
    (writing.memory_undo, "Undo a change", wording.UNDO, TURNS_BACK),
    (reading.memory_stats, "Count memories", wording.STATS, LOOKS),
    (reading.memory_why_not, "Explain a missing memory", wording.WHY_NOT, LOOKS),
    (revealing.memory_reveal, "Reveal a secret", wording.REVEAL, DISCLOSES),
)


class MemoryTool(Tool):
    """A tool that knows its arguments and tells every failure in one line."""

    async def run(self, arguments: dict[str, Any], context: Context[Any, Any], convert_result: bool = False) -> Any:
        """Call the tool."""
        known = self.parameters["properties"]
        if unknown := sorted(arguments.keys() - known.keys()):
            raise ToolError(failures.line(f"no argument {', '.join(unknown)}: {self.name} takes {', '.join(known)}"))
        try:
            return _compact(await super().run(arguments, context, convert_result))
        except ToolError as error:
            raise ToolError(failures.line(_said(self.name, error))) from None


def _compact(result: Any) -> Any:
    """The text copy of an answer without the blanks that a reader of JSON does not need."""
    if isinstance(result, CallToolResult) and result.structured_content is not None:
        text = json.dumps(result.structured_content, ensure_ascii=False)
        return result.model_copy(update={"content": [TextContent(type="text", text=text)]})
    return result


@cache
def tools() -> tuple[Tool, ...]:
    """Every tool, made once."""
    return tuple(_tool(*row) for row in _TABLE)


def _tool(function: Callable[..., Any], title: str, description: str, annotations: ToolAnnotations) -> Tool:
    tool = MemoryTool.from_function(function, title=title, description=description, annotations=annotations)
    tool.parameters = {**_without_titles(tool.parameters), "additionalProperties": False}
    return tool


def _without_titles(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema without the titles that only repeat the names: agents pay for every word."""
    kept = {name: value for name, value in schema.items() if name != "title" or not isinstance(value, str)}
    return {name: _without_titles(value) if isinstance(value, dict) else value for name, value in kept.items()}


def _said(tool: str, error: ToolError) -> str:
    cause = error.__cause__
    if isinstance(cause, ValidationError):
        return "; ".join(_complaint(each) for each in cause.errors(include_url=False, include_input=False)[:3])
    if isinstance(cause, TriskeleError | OSError):
        return failures.said(cause)
    if isinstance(cause, ToolError) or cause is None:
        return str(cause or error)
    # Its words may be those of a memory, which no log is to hold.
    logger.error("a fault in %s: %s", tool, type(cause).__name__)
    return f"a fault inside triskele: {type(cause).__name__} in {tool}"


def _complaint(error: Any) -> str:
    return f"{'.'.join(str(part) for part in error['loc'])}: {error['msg']}"
