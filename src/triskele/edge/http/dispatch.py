"""The API: requests to operations, checked, admitted, carried out and recorded."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from triskele.edge.http import codec, openapi, operations, problems
from triskele.edge.http.access import ADMIN, IS_OWNER, PRINCIPAL, PROBE, READ, REVEAL, WRITE, AccessPolicy, Principal
from triskele.edge.http.app import MAX_IMPORT, AppContext, error_place
from triskele.edge.http.connections import CLIENT_HEADER, POSITION_HEADER, PRIVATE_HEADER, PROJECT_HEADER, REPORT_HEADER
from triskele.edge.http.metrics import CONFIDENCE, MEDIA_TYPE, Gauges
from triskele.edge.http.operations import JSON, NDJSON, Operation
from triskele.edge.process import connect
from triskele.edge.process.command_line import CommandLine
from triskele.engine.local import LocalEngine
from triskele.engine.protocol import Engine
from triskele.errors import AccessDenied, BadInput, NotFound, Unavailable
from triskele.recall.scores import timed
from triskele.replies import Undone
from triskele.server import operations as server_operations
from triskele.server.operations import Administration, Process, SyncRoom
from triskele.server.tenants import Tenants
from triskele.types import Answer, Erasure, Memory, Outcome, client_actor

MAX_BODY = 64 * 1024
MAX_QUERY_BYTES = 4096
# Where an operation leaves the ids that it changed, for the logs.
TARGET = "triskele.target"
_PIECE = 65536
_MAX_NAME = 200
_MAX_TARGETS = 10
OPERATIONS: Sequence[Operation] = (*operations.OPERATIONS, *server_operations.OPERATIONS)


@dataclass(frozen=True)
class Call:
    """An admitted request, with its agent, project and command."""

    principal: Principal
    policy: AccessPolicy
    client: str = ""
    project: str = ""
    proven: str = ""
    """the client that a token proves"""
    reads_private: bool = False
    """whether the client's machine lets it read private memories"""
    command: CommandLine | None = None

    @cached_property
    def engine(self) -> LocalEngine:
        """The memory of the principal, for its agent and in its project."""
        engine = connect.store_of(self.policy.engine_of(self.principal))
        if self.command is not None:
            return connect.store_of(self.command.engine(engine))
        if self.client:
            is_shown = self.reads_private or engine.settings.agents.shows_private_to(self.proven)
            engine = engine.acting_as(client_actor(self.client), reads_private=is_shown)
        return engine.working_in(Path(Path.cwd().anchor), self.project) if self.project else engine

    @property
    def administration(self) -> Administration:
        """Users, keys, groups and the audit log of a server with users."""
        if not isinstance(self.policy, Tenants):
            raise NotFound("this memory has one owner and no users: users need a Postgres store")
        return Administration(self.policy.accounts)

    @property
    def syncroom(self) -> SyncRoom:
        """What a laptop syncs with."""
        return SyncRoom(self.engine)

    @property
    def process(self) -> Process:
        """The state of the process."""
        return Process(self.policy, self.principal, lambda: self.engine)


def http_app(context: AppContext) -> Starlette:
    """The application of all operations, their document, and the metrics."""

    gauges = Gauges(context.open_memories)

    async def metrics(request: Request) -> Response:
        if (principal := request.scope[PRINCIPAL]) is not PROBE:
            principal.require(READ)
        text = await to_thread.run_sync(lambda: context.metrics.render(gauges.read()))
        return PlainTextResponse(text, media_type=MEDIA_TYPE)

    by_path: dict[str, dict[str, Operation]] = {}
    for operation in OPERATIONS:
        by_path.setdefault(operation.path, {})[operation.verb] = operation
    document = openapi.document(OPERATIONS)
    static = {
        "/openapi.json": Response(json.dumps(document), media_type=JSON),
        "/docs": HTMLResponse(openapi.page(document), headers=openapi.PAGE_HEADERS),
        "/docs/style.css": Response(openapi.STYLE, media_type="text/css"),
    }
    app = Starlette(
        routes=[
            *(Route(path, _Served(methods, context).respond, methods=[*methods]) for path, methods in by_path.items()),
            *(Route(path, response, methods=["GET"]) for path, response in static.items()),
            Route("/metrics", metrics),
        ],
        exception_handlers={HTTPException: problems.refusal, AccessDenied: problems.refusal},
    )
    app.router.redirect_slashes = False
    return app


class _Served:
    """Serves the operations of one path, counts them, and reports their errors."""

    def __init__(self, methods: Mapping[str, Operation], context: AppContext) -> None:
        self._methods = methods
        self._context = context
        self._policy = context.policy

    async def respond(self, request: Request) -> Response:
        """Answer one request."""
        # A route for GET takes HEAD too.
        operation = self._methods["GET" if request.method == "HEAD" else request.method]
        started = time.perf_counter()
        try:
            response = await self._serve(operation, request)
        except Exception as error:
            response = problems.response_of(error)
            self._context.metrics.count("triskele_errors_total", kind=type(error).__name__)
            if response.status_code >= 500:
                self._context.log(f"{operation.name} failed: {error_place(error)}")
        took_s = time.perf_counter() - started
        if operation.scope == WRITE and response.status_code == 200:
            self._context.metrics.observe("triskele_store_seconds", took_s)
        target, is_change = request.scope.get(TARGET, ""), operation.scope != READ
        await self._context.note(request, response, operation.name, target, took_s, is_change=is_change)
        return response

    async def _serve(self, operation: Operation, request: Request) -> Response:
        """Serve one request; every refusal is an exception."""
        principal: Principal = request.scope[PRINCIPAL]
        principal.require(operation.scope)
        if operation.has_body:
            parameters = await _body(request)
        else:
            query = request.query_params
            parameters = operation.request.from_query({name: query.getlist(name) for name in query})
        path = {name: request.path_params[name] for name in operation.in_path}
        options = operation.request.checked(path, parameters)
        if options.get("with_secrets"):
            principal.require(REVEAL)
        if not operation.takes_file:
            return await to_thread.run_sync(self._answer, operation, request, options)
        with tempfile.TemporaryDirectory(prefix="triskele-") as folder:
            file = Path(folder) / f"import{'.md' if options.get('format') == 'markdown' else '.jsonl'}"
            await _receive(request, file)
            return await to_thread.run_sync(self._answer, operation, request, {**options, operation.takes_file: file})

    def _answer(self, operation: Operation, request: Request, options: dict[str, Any]) -> Response:
        call = self._admitted(operation, request, options)
        if operation.gives_file:
            return _exported(call.engine, options)
        # Only a database has positions.
        written = None if operation.scope == ADMIN else getattr(call.engine.store, "written", None)
        if written is not None:
            written.follow(request.headers.get(POSITION_HEADER, ""))
        value = self._carried_out(operation, call, options)
        if operation.scope == WRITE:
            self._policy.wrote(call.principal)
        request.scope[TARGET] = _target(value)
        headers = {POSITION_HEADER: str(written)} if written is not None and str(written) else None
        return Response(json.dumps(codec.to_json(value), ensure_ascii=False), headers=headers, media_type=JSON)

    def _admitted(self, operation: Operation, request: Request, options: Mapping[str, Any]) -> Call:
        principal: Principal = request.scope[PRINCIPAL]
        self._policy.admit(principal)
        command = CommandLine.of_headers(request.headers) if request.scope.get(IS_OWNER) else None
        if operation.asks_model and command is None:
            question = str(options.get("text", ""))
            if len(question.encode("utf-8", "surrogatepass")) > MAX_QUERY_BYTES:
                raise BadInput(f"the question is longer than {MAX_QUERY_BYTES:,} bytes: ask in fewer words")
            self._policy.admit_models(principal)
        client, project = (_header(request, name) for name in (CLIENT_HEADER, PROJECT_HEADER))
        proven = self._context.client_of(request.headers.get("x-triskele-client-token", "")) or ""
        # The holder of a key reads private memories anyway; the settings of its machine name the agents that may.
        is_allowed = request.headers.get(PRIVATE_HEADER) == "yes" and not request.scope.get(IS_OWNER)
        return Call(principal, self._policy, client, project, proven, is_allowed, command)

    def _carried_out(self, operation: Operation, call: Call, options: dict[str, Any]) -> Any:
        """Call the method; a recall is timed."""
        method = attrgetter(f"{operation.owner}.{operation.method.__name__}")(call)
        ids = options.pop("ids", ()) if operation.takes_several else ()
        if operation.method is Engine.recall and call.command is not None:
            embed_newest(call.engine)
        with timed() as seconds_of:
            value = method(*ids, **options)
        if isinstance(value, Answer):
            self._context.metrics.observe(CONFIDENCE, value.confidence)
            for leg, seconds in {**seconds_of, "all": value.took_ms / 1000}.items():
                self._context.metrics.observe("triskele_recall_seconds", seconds, leg=leg)
        return value


def _exported(engine: Engine, options: dict[str, Any]) -> Response:
    """The memories as a stream from a temporary file."""
    with ExitStack() as stack:
        target = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="triskele-"))) / "export.jsonl"
        report = engine.export_memories(target, **options)
        # The folder goes after the last byte.
        pieces = _streamed(target, stack.pop_all())
    return StreamingResponse(pieces, headers={REPORT_HEADER: json.dumps(codec.to_json(report))}, media_type=NDJSON)


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


async def _streamed(path: Path, stack: ExitStack) -> AsyncIterator[bytes]:
    """Yield the bytes of a file, then close what it depends on."""
    with stack, path.open("rb") as file:
        while piece := await to_thread.run_sync(file.read, _PIECE):
            yield piece


def embed_newest(engine: LocalEngine) -> None:
    """Embed the newest memories before a command's recall, unless the background does."""
    with suppress(Unavailable, OSError):
        engine.upkeep.embed(limit=engine.embed_first, wait=False)
