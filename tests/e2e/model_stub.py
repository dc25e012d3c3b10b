"""A stand-in for the model behind Claude Code: keeps every request, and answers with words or with calls of tools."""

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
        return "\n".join(_texts(self.requests[-1]["messages"]))

    @property
    def tools(self) -> set[str]:
        """The names of the tools that the last request offers."""
        return {tool["name"] for tool in self.requests[-1]["tools"]}

    def calls(self, tool: str, **arguments: Any) -> None:
        """Let the next answer be a call of a tool."""
        self.answers.append({"type": "tool_use", "id": f"toolu_{len(self.answers)}", "name": tool, "input": arguments})

    def next_answer(self) -> Block:
        return self.answers.pop(0) if self.answers else {"type": "text", "text": "understood"}


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
