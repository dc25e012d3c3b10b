"""One request to an operation: what it holds, who may send it, and what it answers."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from anyio import to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from triskele.edge.http import codec, leg_times
from triskele.edge.http.access import IS_OWNER, PRINCIPAL, Principal
from triskele.edge.http.connections import CLIENT_HEADER, POSITION_HEADER, PROJECT_HEADER, REPORT_HEADER
from triskele.edge.http.keys import ADMIN, REVEAL, WRITE
from triskele.edge.http.mount import MAX_IMPORT, ApiContext
from triskele.edge.http.operations import Operation
from triskele.edge.process import command_line
from triskele.edge.process.command_line import CommandLine
from triskele.engine.local import LocalEngine
from triskele.engine.protocol import Engine
from triskele.errors import BadInput
from triskele.replies import Erasure, ExportReport, Undone
from triskele.server.operations import Administration, Process, SyncRoom
from triskele.types import Answer, Memory, Outcome, client_actor

MAX_BODY = 64 * 1024
MAX_QUERY_BYTES = 4096
# Where an operation leaves the ids that it changed, for the logs.
TARGET = "triskele.target"
JSON, NDJSON = "application/json", "application/x-ndjson"
_PIECE = 65536
_MAX_NAME = 200
_MAX_TARGETS = 10


@dataclass(frozen=True)
class Call:
    """A request that was admitted; `client` is the agent that it is made for, `project` where the program works."""

    principal: Principal
    context: ApiContext
    client: str = ""
    project: str = ""
    command: CommandLine | None = None

    @cached_property
    def engine(self) -> LocalEngine:
        """The memory of the principal, for its agent and in its project."""
        engine = self.context.policy.engine_of(self.principal)
        if self.command is not None:
            return self.command.engine(engine)
        if self.client:
            engine = engine.acting_as(client_actor(self.client))
        return engine.working_in(Path(Path.cwd().anchor), self.project) if self.project else engine

    @property
    def administration(self) -> Administration:
        """Users, keys, groups and the audit log."""
        return Administration(self.context.policy, self.principal)

    @property
    def syncroom(self) -> SyncRoom:
        """What a laptop syncs with."""
        return SyncRoom(self.engine)

    @property
    def process(self) -> Process:
        """The state of the process."""
        return Process(lambda: self.engine)


async def serve(operation: Operation, request: Request, context: ApiContext) -> Response:
    """Serve one request; every refusal is an exception."""
    principal: Principal = request.scope[PRINCIPAL]
    principal.require(operation.scope)
    if operation.takes_file:
        options = operation.request.checked({}, _parameters(operation, request))
        with tempfile.TemporaryDirectory(prefix="triskele-") as folder:
            file = Path(folder) / f"import{'.md' if options.get('format') == 'markdown' else '.jsonl'}"
            await _receive(request, file)
            return await to_thread.run_sync(_answer, operation, request, context, {**options, "source": file})
    given = await _body(request) if operation.has_body else _parameters(operation, request)
    path = {name: request.path_params[name] for name in operation.in_path}
    options = operation.request.checked(path, given)
    if operation.gives_file:
        if options.get("with_secrets"):
            principal.require(REVEAL)
        return await to_thread.run_sync(_export, operation, request, context, options)
    return await to_thread.run_sync(_answer, operation, request, context, options)


def _answer(operation: Operation, request: Request, context: ApiContext, options: dict[str, Any]) -> Response:
    call = _admitted(operation, request, context, options)
    # Only a database has positions.
    written = None if operation.scope == ADMIN else getattr(call.engine.store, "written", None)
    if written is not None:
        written.follow(request.headers.get(POSITION_HEADER, ""))
    value = _carried_out(operation, call, options)
    if operation.scope == WRITE:
        context.policy.wrote(call.principal)
    request.scope[TARGET] = _target(value)
    headers = {POSITION_HEADER: str(written)} if written is not None and str(written) else None
    return Response(json.dumps(codec.to_json(value), ensure_ascii=False), headers=headers, media_type=JSON)


def _admitted(operation: Operation, request: Request, context: ApiContext, options: Mapping[str, Any]) -> Call:
    principal: Principal = request.scope[PRINCIPAL]
    context.policy.admit(principal)
    command = CommandLine.of_headers(request.headers) if request.scope.get(IS_OWNER) else None
    if operation.asks_model and command is None:
        question = str(options.get("text", ""))
        if len(question.encode("utf-8", "surrogatepass")) > MAX_QUERY_BYTES:
            raise BadInput(f"the question is longer than {MAX_QUERY_BYTES:,} bytes: ask in fewer words")
        context.policy.admit_models(principal)
    client, project = (_header(request, name) for name in (CLIENT_HEADER, PROJECT_HEADER))
    return Call(principal, context, client, project, command)


def _carried_out(operation: Operation, call: Call, options: dict[str, Any]) -> Any:
    """Call the method; a recall is timed."""
    method = attrgetter(f"{operation.owner}.{operation.method.__name__}")(call)
    several = options.pop("ids", None) if operation.takes_several else None
    is_recall = operation.method is Engine.recall
    if is_recall and call.command is not None:
        command_line.embed_newest(call.engine)
    with leg_times.timed(call.engine if is_recall else None) as spent_s:
        value = method(*(several or ()), **options)
    if isinstance(value, Answer):
        for leg, seconds in {**spent_s, "all": value.took_ms / 1000}.items():
            call.context.metrics.observe("triskele_recall_seconds", seconds, leg=leg)
    return value


def _export(operation: Operation, request: Request, context: ApiContext, options: dict[str, Any]) -> Response:
    call = _admitted(operation, request, context, options)
    folder = Path(tempfile.mkdtemp(prefix="triskele-"))
    target = folder / "export.jsonl"
    try:
        report: ExportReport = call.engine.export_memories(target, **options)
    except BaseException:
        _remove(target)
        raise
    headers = {REPORT_HEADER: json.dumps(codec.to_json(report))}
    return StreamingResponse(_streamed(target), headers=headers, media_type=NDJSON)


def _target(value: Any) -> str:
    """The ids that a reply is about, for the audit log."""
    if isinstance(value, Erasure | Undone):
        value = list(value.outcomes)
    if isinstance(value, list):
        return ",".join(each.id for each in value[:_MAX_TARGETS] if isinstance(each, Outcome))
    return value.id if isinstance(value, Outcome | Memory) else ""


def _header(request: Request, name: str) -> str:
    """A percent-encoded header; refused if it is not a valid name."""
    text = unquote(request.headers.get(name, ""), errors="replace")
    if len(text) > _MAX_NAME or not text.isprintable():
        raise BadInput(f"the header {name} holds no name")
    return text


def _parameters(operation: Operation, request: Request) -> dict[str, Any]:
    query = request.query_params
    return operation.request.from_query({name: query.getlist(name) for name in query})


async def _body(request: Request) -> dict[str, Any]:
    content = bytearray()
    async for piece in request.stream():
        content += piece
        if len(content) > MAX_BODY:
            raise HTTPException(413, f"the body of this request may have at most {MAX_BODY:,} bytes")
    if not content:
        return {}
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise HTTPException(415, f"the body must be {JSON}")
    try:
        body = json.loads(bytes(content))
    except (ValueError, RecursionError):
        raise HTTPException(400, "the body is not valid JSON") from None
    if not isinstance(body, dict):
        raise BadInput("the body must be a JSON object")
    return body


async def _receive(request: Request, file: Path) -> None:
    size = 0
    with file.open("wb") as target:
        async for piece in request.stream():
            size += len(piece)
            if size > MAX_IMPORT:
                raise HTTPException(413, f"an import may have at most {MAX_IMPORT:,} bytes: send several")
            await to_thread.run_sync(target.write, piece)
    if not size:
        raise BadInput("the import is empty: send the file as the body of the request")


async def _streamed(path: Path) -> AsyncIterator[bytes]:
    """The bytes of a temporary file, which is removed with its folder afterwards."""
    try:
        with path.open("rb") as file:
            while piece := await to_thread.run_sync(file.read, _PIECE):
                yield piece
    finally:
        _remove(path)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.rmdir(path.parent)
