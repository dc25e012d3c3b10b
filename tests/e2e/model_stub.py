"""A stand-in for the model behind a client: keeps every request, and answers with words or with calls of tools.

It speaks as the services of Claude Code (messages), Codex (responses) and Gemini CLI (generateContent) do.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Block = dict[str, Any]


@dataclass
class Model:
    """What was asked, and what to answer next; with nothing left to answer it says that it understood."""

    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    answers: list[Block] = field(default_factory=list)

    @property
    def text(self) -> str:
        """Every text of the last request's messages."""
        asked = self.requests[-1]
        return "\n".join(_texts(asked.get("messages") or asked.get("input") or asked.get("contents")))

    @property
    def tools(self) -> set[str]:
        """The names of the tools that the last request offers."""
        return set(_tool_names(self.requests[-1]["tools"]))

    def calls(self, tool: str, **arguments: Any) -> None:
        """Let the next answer be a call of a tool."""
        self.answers.append({"type": "tool_use", "id": f"toolu_{len(self.answers)}", "name": tool, "input": arguments})

    def next_answer(self) -> Block:
        return self.answers.pop(0) if self.answers else {"type": "text", "text": "understood"}


def _tool_names(tools: list[dict[str, Any]], prefix: str = "") -> Iterator[str]:
    """The names of tools; those inside a namespace follow its name."""
    for tool in tools:
        inner = tool.get("tools") or tool.get("functionDeclarations")
        if inner:
            yield from _tool_names(inner, f"{tool['name']}__" if tool.get("name") else "")
        elif "name" in tool:
            yield prefix + tool["name"]


def _texts(value: Any) -> Iterator[str]:
    """All texts inside messages, those of results of tools among them."""
    if isinstance(value, str):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _texts(each)


@contextmanager
def serving() -> Iterator[Model]:
    """A model on loopback."""
    model = Model()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
            for ending, said in _OTHERS.items():
                if self.path.partition("?")[0].endswith(ending):
                    model.requests.append(asked)
                    return self.answer("text/event-stream", said(model.next_answer()))
            if not self.path.startswith("/v1/messages") or "count_tokens" in self.path:
                return self.answer("application/json", json.dumps({"input_tokens": 1}))
            # A client asks small models for titles and the like: only a request with tools is the agent's own.
            if not asked.get("tools"):
                return self.answer(*_said({"type": "text", "text": "ok"}, is_stream=bool(asked.get("stream"))))
            model.requests.append(asked)
            return self.answer(*_said(model.next_answer(), is_stream=bool(asked.get("stream"))))

        def do_GET(self) -> None:
            self.answer("application/json", "{}")

        def answer(self, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        model.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield model
        server.shutdown()
        thread.join()


def _said(block: Block, *, is_stream: bool) -> tuple[str, str]:
    ends = "tool_use" if block["type"] == "tool_use" else "end_turn"
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "stub", "stop_sequence": None}
    usage = {"input_tokens": 1, "output_tokens": 1}
    if not is_stream:
        return "application/json", json.dumps({**message, "content": [block], "stop_reason": ends, "usage": usage})
    if block["type"] == "tool_use":
        empty, piece = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    else:
        empty, piece = {"type": "text", "text": ""}, {"type": "text_delta", "text": block["text"]}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "content": [], "stop_reason": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": empty},
        {"type": "content_block_delta", "index": 0, "delta": piece},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": ends, "stop_sequence": None}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    return "text/event-stream", "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events)


def _responses(block: Block) -> str:
    """An answer as the service of Codex streams it."""
    if block["type"] == "tool_use":
        space, _, name = block["name"].rpartition("__")
        called = {"type": "function_call", "id": "fc_1", "call_id": block["id"], "namespace": space, "name": name}
        item: Block = {**called, "arguments": json.dumps(block["input"])}
    else:
        content = [{"type": "output_text", "text": block["text"]}]
        item = {"type": "message", "role": "assistant", "id": "msg_1", "content": content}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    events: list[Block] = [
        {"type": "response.created", "response": {"id": "resp_1"}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"id": "resp_1", "usage": usage}},
    ]
    return "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events)


def _generated(block: Block) -> str:
    """An answer as the service of Gemini CLI streams it."""
    called = {"functionCall": {"name": block.get("name"), "args": block.get("input")}}
    part = called if block["type"] == "tool_use" else {"text": block["text"]}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    return f"data: {json.dumps({'candidates': [candidate], 'usageMetadata': usage})}\n\n"


_OTHERS = {"/responses": _responses, ":streamGenerateContent": _generated}
