"""The tools, resources and prompts that the conformance suite expects; only tests serve them."""

from __future__ import annotations

import base64
import json
from typing import Annotated, Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp.shared.exceptions import MCPError
from mcp.types import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    AudioContent,
    CallToolResult,
    ClientCapabilities,
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    EmbeddedResource,
    ImageContent,
    InputRequiredResult,
    ListRootsRequest,
    MissingRequiredClientCapabilityErrorData,
    SamplingCapability,
    SamplingMessage,
    TextContent,
    TextResourceContents,
)
from pydantic import Field

FIXTURE = "For the conformance suite."
# A picture and a sound of next to nothing.
PNG = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
        "0000000c49444154789c63f8cfc0000003010100c9fe92ef0000000049454e44ae426082"
    )
).decode()
WAV = base64.b64encode(b"RIFF$\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0@\x1f\0\0@\x1f\0\0\1\0\x08\0data\0\0\0\0").decode()
SCHEMA_2020 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def text(said: str) -> TextContent:
    return TextContent(type="text", text=said)


def image() -> ImageContent:
    return ImageContent(type="image", data=PNG, mime_type="image/png")


def embedded(uri: str, said: str, kind: str = "text/plain") -> EmbeddedResource:
    return EmbeddedResource(type="resource", resource=TextResourceContents(uri=uri, mime_type=kind, text=said))


def form(message: str, name: str, kind: str = "string") -> ElicitRequest:
    schema = {"type": "object", "properties": {name: {"type": kind}}, "required": [name]}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def sample(question: str) -> CreateMessageRequest:
    messages = [SamplingMessage(role="user", content=text(question))]
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=messages, max_tokens=100))


def done(said: str) -> CallToolResult:
    return CallToolResult(content=[text(said)])


def add_to(server: MCPServer[Any]) -> None:
    """Give a server everything that the suite asks for."""
    _contents(server)
    _resources(server)
    _prompts(server)
    _questions(server)


def _contents(server: MCPServer[Any]) -> None:
    contents: dict[str, list[Any]] = {
        "test_simple_text": [text("This is a simple text response for testing.")],
        "test_image_content": [image()],
        "test_audio_content": [AudioContent(type="audio", data=WAV, mime_type="audio/wav")],
        "test_embedded_resource": [embedded("test://embedded-resource", "This is an embedded resource content.")],
        "test_multiple_content_types": [
            text("Multiple content types test:"),
            image(),
            embedded("test://mixed-content-resource", '{"test":"data","value":123}', "application/json"),
        ],
    }
    for name, blocks in contents.items():
        _answer(server, name, blocks)

    @server.tool(description=FIXTURE)
    def test_error_handling() -> str:
        raise ToolError("This tool intentionally returns an error for testing")

    @server.tool(description=FIXTURE)
    def json_schema_2020_12_tool() -> str:
        return "unused"

    tool = server._tool_manager.get_tool("json_schema_2020_12_tool")
    assert tool is not None
    tool.parameters = SCHEMA_2020

    @server.tool(description=FIXTURE)
    def test_custom_headers(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
        return region

    @server.tool(description=FIXTURE)
    def test_missing_capability(ctx: Context) -> str:
        said = ctx.client_capabilities
        if said is None or said.sampling is None:
            needed = MissingRequiredClientCapabilityErrorData(
                required_capabilities=ClientCapabilities(sampling=SamplingCapability())
            )
            raise MCPError(
                MISSING_REQUIRED_CLIENT_CAPABILITY,
                "this tool needs sampling",
                needed.model_dump(by_alias=True, mode="json", exclude_none=True),
            )
        return "sampling is there"


def _answer(server: MCPServer[Any], name: str, blocks: list[Any]) -> None:
    def answer() -> CallToolResult:
        return CallToolResult(content=blocks)

    server.add_tool(answer, name=name, description=FIXTURE)


def _resources(server: MCPServer[Any]) -> None:
    @server.resource("test://static-text", mime_type="text/plain")
    def static_text() -> str:
        return "This is the content of the static text resource."

    @server.resource("test://static-binary", mime_type="image/png")
    def static_binary() -> bytes:
        return base64.b64decode(PNG)

    @server.resource("test://template/{id}/data", mime_type="application/json")
    def template(id: str) -> str:
        return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})


def _prompts(server: MCPServer[Any]) -> None:
    @server.prompt(description=FIXTURE)
    def test_simple_prompt() -> str:
        return "This is a simple prompt for testing."

    @server.prompt(description=FIXTURE)
    def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
        return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"

    @server.prompt(description=FIXTURE)
    def test_prompt_with_embedded_resource(resourceUri: str) -> list[UserMessage]:  # noqa: N803
        quoted = embedded(resourceUri, "Embedded resource content for testing.")
        return [UserMessage(quoted), UserMessage("Please process the embedded resource above.")]

    @server.prompt(description=FIXTURE)
    def test_prompt_with_image() -> list[UserMessage]:
        return [UserMessage(image()), UserMessage("Please analyze the image above.")]

    @server.prompt(description=FIXTURE)
    def test_input_required_result_prompt(ctx: Context) -> str | InputRequiredResult:
        if not ctx.input_responses:
            question = form("What context should the prompt use?", "context")
            return InputRequiredResult(input_requests={"user_context": question})
        return "A prompt with context"


def _questions(server: MCPServer[Any]) -> None:
    asked: dict[str, tuple[dict[str, Any], str | None]] = {
        "elicitation": ({"user_name": form("What is your name?", "name")}, None),
        "sampling": ({"capital_question": sample("What is the capital of France?")}, None),
        "list_roots": ({"client_roots": ListRootsRequest()}, None),
        "request_state": ({"confirm": form("Please confirm", "ok", "boolean")}, "state"),
        "tampered_state": ({"confirm": form("Please confirm", "ok", "boolean")}, "state"),
        "multiple_inputs": (
            {
                "user_name": form("What is your name?", "name"),
                "greeting": sample("Generate a greeting"),
                "client_roots": ListRootsRequest(),
            },
            "state",
        ),
    }
    for name, (requests, state) in asked.items():
        _question(server, f"test_input_required_result_{name}", requests, state)

    @server.tool(description=FIXTURE)
    def test_input_required_result_multi_round(ctx: Context) -> CallToolResult | InputRequiredResult:
        steps = {None: ("step1", "name", "one"), "one": ("step2", "color", "two")}
        if ctx.request_state == "two":
            return done("all steps taken")
        step, field, state = steps[ctx.request_state]
        return InputRequiredResult(input_requests={step: form(f"{step}: {field}?", field)}, request_state=state)

    @server.tool(description=FIXTURE)
    def test_input_required_result_capabilities(ctx: Context) -> CallToolResult | InputRequiredResult:
        said, requests = ctx.client_capabilities, {}
        if said is not None and said.sampling is not None:
            requests["sampled"] = sample("What is the capital of France?")
        if said is not None and said.elicitation is not None:
            requests["told"] = form("What is your name?", "name")
        return InputRequiredResult(input_requests=requests)


def _question(server: MCPServer[Any], name: str, requests: dict[str, Any], state: str | None) -> None:
    def ask(ctx: Context) -> CallToolResult | InputRequiredResult:
        answers = ctx.input_responses or {}
        if not requests.keys() <= answers.keys():
            return InputRequiredResult(input_requests=requests, request_state=state)
        return done(f"Hello, {sorted(answers)} state-ok" if ctx.request_state == state else "another state")

    server.add_tool(ask, name=name, description=FIXTURE)
