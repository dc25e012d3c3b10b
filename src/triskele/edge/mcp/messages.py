"""Read bounded lines as JSON-RPC messages, and answer invalid lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

from triskele.edge.mcp.descriptions import Message

TOO_LONG = "the message is longer than 4 MB"
MAX_LINE = 4 * 1024 * 1024
# A longer line is read to its end, but its id is not looked for.
_MAX_PARSED_LINE = 4 * MAX_LINE
# The SDK parses JSON of up to 200 levels, and adds some of its own.
MAX_DEPTH = 100
_TOO_DEEP = f"the message is nested deeper than {MAX_DEPTH} levels"
_NO_MESSAGE = "the line is not a JSON-RPC message"
_PARSE_ERROR, _INVALID_REQUEST, INTERNAL_ERROR = -32700, -32600, -32603


def client_lines(source: BinaryIO) -> Iterator[bytes]:
    """Lines of a client; of a line that is far too long only the beginning."""
    while line := source.readline(_MAX_PARSED_LINE):
        yield line
        while line and not line.endswith(b"\n"):
            line = source.readline(_MAX_PARSED_LINE)


def refusal(line: bytes) -> Message | None:
    """The error answer to a line that is not a message, or one that the SDK would drop; None if it is fine."""
    try:
        message = json.loads(line)
    except RecursionError:
        return failure(None, _TOO_DEEP, _PARSE_ERROR)
    except ValueError as error:
        # The message of other errors may quote the line.
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "it is not UTF-8"
        return failure(None, TOO_LONG if len(line) > MAX_LINE else f"the line is not JSON: {reason}", _PARSE_ERROR)
    objection = _objection(line, message)
    return None if objection is None else failure(_id_of(message), objection, _INVALID_REQUEST)


def not_a_message(line: bytes) -> Message:
    """The error answer to JSON that is not a JSON-RPC message."""
    return failure(_id_of(json.loads(line)), _NO_MESSAGE, _INVALID_REQUEST)


def _objection(line: bytes, message: Any) -> str | None:
    if not isinstance(message, dict):
        return "a message must be one JSON object"
    if len(line) > MAX_LINE:
        return TOO_LONG
    if "method" in message and "id" in message and not _is_id(message["id"]):
        return "the id of a request must be a string or a whole number"
    if not {"method", "result", "error"} & message.keys():
        return _NO_MESSAGE
    if line.count(b"{") + line.count(b"[") > MAX_DEPTH and _is_too_deep(message):
        return _TOO_DEEP
    if b"\\u" in line and _has_lone_surrogate(message):
        return "the message holds a lone surrogate, which is not valid Unicode"
    return None


def _is_too_deep(message: Message) -> bool:
    level: list[Any] = [message]
    for _ in range(MAX_DEPTH):
        level = [item for each in level for item in (each.values() if isinstance(each, dict) else each)]
        level = [item for item in level if isinstance(item, dict | list)]
        if not level:
            return False
    return True


def _has_lone_surrogate(message: Message) -> bool:
    try:
        json.dumps(message, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _id_of(message: Any) -> Any:
    """The id of a request; None if it is another message, or not a valid id."""
    id = message.get("id") if isinstance(message, dict) and "method" in message else None
    return id if _is_id(id) and not _has_lone_surrogate({"id": id}) else None


def _is_id(id: Any) -> bool:
    return isinstance(id, str | int) and not isinstance(id, bool)


def failure(id: Any, message: str, code: int = INTERNAL_ERROR) -> Message:
    """The error answer to a request."""
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}


def parsed(line: bytes) -> Message | None:
    """The message of a line; None if it is no JSON object."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


def line_of(message: Message) -> bytes:
    """A message as a line."""
    return json.dumps(message, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
