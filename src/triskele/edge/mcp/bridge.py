"""The bridge between a client's standard streams and a server's socket.

The server may end at any time. Unanswered requests that only read are then sent to the next server; for others the
client gets the error that it is unknown whether the change was made.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from triskele.edge.mcp.descriptions import MODERN_KEY, Message, handshake_answer

# Tools that change nothing; a test compares the list with the annotations of the tools.
READ_ONLY = frozenset(
    "memory_recall memory_get memory_list memory_stats memory_why_not code_search code_symbol code_status".split()
)
_LISTS = ("tools/list", "resources/list", "resources/templates/list", "prompts/list")
_READS = frozenset({"initialize", "server/discover", "ping", "resources/read", "prompts/get", *_LISTS})
UNKNOWN = (
    "the memory process ended before it answered, and it is unknown whether the change was made:"
    " look with memory_list (newest first) before you try again"
)
LOST = "the memory process ended twice during this request: change it, or let the user run `triskele doctor`"
TOO_LONG = "the message is longer than 4 MB"
MAX_LINE = 4 * 1024 * 1024
# A longer line is read to its end, but its id is not looked for.
_MAX_PARSED_LINE = 4 * MAX_LINE
# The SDK parses JSON of up to 200 levels, and adds some of its own.
MAX_DEPTH = 100
DRAIN_S = 20.0
_AHEAD = 1000
_PARSE_ERROR, _INVALID_REQUEST, _INTERNAL_ERROR = -32700, -32600, -32603
_AGAIN = "triskele-again-"
_CLIENT = 0


class Wire(Protocol):
    """A connection to a server."""

    def sendall(self, data: bytes, /) -> None:
        """Send all of it."""

    def recv(self, size: int, /) -> bytes:
        """Up to `size` bytes; empty at the end."""

    def close(self) -> None:
        """Close it."""


@dataclass(slots=True)
class PendingRequest:
    """A request that waits for its answer."""

    id: Any
    line: bytes
    method: str
    may_repeat: bool
    is_modern: bool
    is_repeated: bool = False


class Bridge:
    """Carries messages both ways; one thread does the work, others only read."""

    def __init__(self, open_connection: Callable[[], Wire], output: BinaryIO) -> None:
        self._open_connection = open_connection
        self._output = output
        self._inbox: queue.SimpleQueue[tuple[int, bytes | None]] = queue.SimpleQueue()
        self._ahead = threading.BoundedSemaphore(_AHEAD)
        self._wire: Wire | None = None
        self._generation = _CLIENT
        self._pending: dict[str, PendingRequest] = {}
        self._handshake: list[Message] = []
        self._is_initialized = False

    def run(self, source: BinaryIO) -> None:
        """Carry messages until the client closes its side and its requests are answered."""
        threading.Thread(target=self._read_client, args=(source,), daemon=True).start()
        ends: float | None = None
        while ends is None or self._pending:
            try:
                origin, line = self._inbox.get(timeout=None if ends is None else max(0.0, ends - time.monotonic()))
            except queue.Empty:
                break
            if origin == _CLIENT and line is None:
                ends = time.monotonic() + DRAIN_S
            elif origin == _CLIENT and line is not None:
                self._ahead.release()
                self._from_client(line)
            elif origin == self._generation:
                self._from_server(line) if line is not None else self._recover()
        self._hang_up()

    # Threads that only read

    def _read_client(self, source: BinaryIO) -> None:
        for line in client_lines(source):
            if line.strip():
                self._ahead.acquire()
                self._inbox.put((_CLIENT, line))
        self._inbox.put((_CLIENT, None))

    def _read_server(self, wire: Wire, generation: int) -> None:
        for line in lines(wire):
            self._inbox.put((generation, line))
        self._inbox.put((generation, None))

    # From the client

    def _from_client(self, line: bytes) -> None:
        if (refused := refusal(line)) is not None:
            return self._send(refused)
        message: Message = json.loads(line)
        if "method" in message:
            self._note(message, line)
            return self._pass_on(line) if self._wire else self._begin(message, line)
        answer = self._answer_to_server(message)
        return None if answer is None else self._pass_on(_line(answer))

    def _note(self, message: Message, line: bytes) -> None:
        """Keep a request until it is answered, and the handshake for the next server."""
        method, params = str(message["method"]), message.get("params")
        details = params if isinstance(params, dict) else {}
        if method in ("initialize", "notifications/initialized"):
            self._handshake = [message] if method == "initialize" else [*self._handshake[:1], message]
        elif method == "notifications/cancelled":
            self._pending.pop(_key(details.get("requestId")), None)
        if isinstance(message.get("id"), str | int):
            meta, tool = details.get("_meta"), str(details.get("name"))
            may_repeat = method in _READS or (method == "tools/call" and tool in READ_ONLY)
            is_modern = isinstance(meta, dict) and MODERN_KEY in meta
            self._pending[_key(message["id"])] = PendingRequest(message["id"], line, method, may_repeat, is_modern)

    def _begin(self, message: Message, line: bytes) -> None:
        """Answer the handshake at once; the server gets it when it is connected."""
        answer = handshake_answer(message)
        if answer is None:
            return self._pass_on(line)
        self._answered(message["id"])
        self._send(answer)
        return self._connect()

    def _answered(self, id: Any) -> None:
        request = self._pending.pop(_key(id), None)
        self._is_initialized = self._is_initialized or (request is not None and request.method == "initialize")

    def _pass_on(self, line: bytes) -> None:
        if self._wire is None:
            self._connect()
        try:
            if self._wire is not None:
                self._wire.sendall(line if line.endswith(b"\n") else line + b"\n")
        except OSError:
            # The reading thread reports the end, after the last answers.
            return

    # From the server

    def _from_server(self, line: bytes) -> None:
        message = _object(line)
        if message is None:
            return
        if "method" in message:
            self._send(self._server_request(message))
        elif not str(message.get("id")).startswith(_AGAIN):
            self._answered(message.get("id"))
            self._write(line)

    def _server_request(self, message: Message) -> Message:
        """A server's request under an id that no later server uses: a consent must not answer another request."""
        params = message.get("params")
        if "id" in message:
            return {**message, "id": self._unique_id(message["id"])}
        if message["method"] == "notifications/cancelled" and isinstance(params, dict):
            return {**message, "params": {**params, "requestId": self._unique_id(params.get("requestId"))}}
        return message

    def _answer_to_server(self, message: Message) -> Message | None:
        """The client's answer under the server's own request id; None if that server ended."""
        generation, _, id = str(message.get("id")).partition(":")
        if generation != str(self._generation):
            return None
        # An unknown id is ignored.
        with suppress(ValueError):
            return {**message, "id": json.loads(id)}
        return None

    def _unique_id(self, id: Any) -> str:
        return f"{self._generation}:{_key(id)}"

    # Connections

    def _connect(self) -> None:
        self._wire = self._open_connection()
        self._generation += 1
        threading.Thread(target=self._read_server, args=(self._wire, self._generation), daemon=True).start()
        if self._is_initialized:
            first, *rest = self._handshake
            for message in ({**first, "id": f"{_AGAIN}{self._generation}"}, *rest):
                self._pass_on(_line(message))

    def _recover(self) -> None:
        """The server ended: send reads to the next one, and answer the rest with an error."""
        self._hang_up()
        unanswered, self._pending = self._pending, {}
        for key, request in unanswered.items():
            if not request.may_repeat or request.is_repeated:
                self._send(_unanswered(request))
                continue
            request.is_repeated = True
            self._pending[key] = request
        for request in list(self._pending.values()):
            self._pass_on(request.line)

    def _hang_up(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def _send(self, message: Message) -> None:
        self._write(_line(message))

    def _write(self, line: bytes) -> None:
        self._output.write(line)
        self._output.flush()


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
        return _failure(None, _TOO_DEEP, _PARSE_ERROR)
    except ValueError as error:
        why = TOO_LONG if len(line) > MAX_LINE else f"the line is not JSON: {_reason(error)}"
        return _failure(None, why, _PARSE_ERROR)
    objection = _objection(line, message)
    return None if objection is None else _failure(_id_of(message), objection, _INVALID_REQUEST)


def not_a_message(line: bytes) -> Message:
    """The error answer to JSON that is not a JSON-RPC message."""
    return _failure(_id_of(json.loads(line)), "the line is not a JSON-RPC message", _INVALID_REQUEST)


_TOO_DEEP = f"the message is nested deeper than {MAX_DEPTH} levels"


def _objection(line: bytes, message: Any) -> str | None:
    if not isinstance(message, dict):
        return "a message must be one JSON object"
    if len(line) > MAX_LINE:
        return TOO_LONG
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


def _reason(error: ValueError) -> str:
    # The message of other errors may quote the line.
    return error.msg if isinstance(error, json.JSONDecodeError) else "it is not UTF-8"


def _id_of(message: Any) -> Any:
    """The id of a request; None if it is another message, or not a valid id."""
    id = message.get("id") if isinstance(message, dict) and "method" in message else None
    is_valid = isinstance(id, int) or (isinstance(id, str) and not _has_lone_surrogate({"id": id}))
    return id if is_valid and not isinstance(id, bool) else None


def lines(wire: Wire) -> Iterator[bytes]:
    """The lines of a server until its connection ends."""
    rest = b""
    while True:
        try:
            piece = wire.recv(65536)
        except OSError:
            return
        if not piece:
            return
        *whole, rest = (rest + piece).split(b"\n")
        yield from (line + b"\n" for line in whole if line.strip())


def _unanswered(request: PendingRequest) -> Message:
    if request.may_repeat:
        return _failure(request.id, LOST)
    if request.method != "tools/call":
        return _failure(request.id, UNKNOWN)
    result: Message = {"content": [{"type": "text", "text": UNKNOWN}], "isError": True}
    if request.is_modern:
        result["resultType"] = "complete"
    return {"jsonrpc": "2.0", "id": request.id, "result": result}


def _failure(id: Any, message: str, code: int = _INTERNAL_ERROR) -> Message:
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}


def _object(line: bytes) -> Message | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _line(message: Message) -> bytes:
    return json.dumps(message, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def _key(id: Any) -> str:
    return json.dumps(id)
