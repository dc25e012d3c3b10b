"""Operations of the API: what each takes, needs and returns, and how one request is served."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from anyio import to_thread
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from triskele import validation
from triskele.config import MemorySettings
from triskele.engine import Engine
from triskele.errors import BadInput
from triskele.exchange.records import ExportReport
from triskele.recall.plan import Plan
from triskele.serving.http.access import PRINCIPAL, Principal
from triskele.serving.http.bodies import Strict
from triskele.serving.http.mount import (
    CLIENT_HEADER,
    MAX_IMPORT,
    POSITION_HEADER,
    PROJECT_HEADER,
    REPORT_HEADER,
    ApiContext,
)
from triskele.serving.http.replies import adapter
from triskele.stores.access_keys import ADMIN, READ, WRITE
from triskele.types import Memory, Outcome, client_actor

MAX_BODY = 64 * 1024

# Where an operation leaves the id that it was about, for the logs.
TARGET = "triskele.target"
JSON, NDJSON = "application/json", "application/x-ndjson"
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,18})")
_PIECE = 65536
_COMPLAINTS = 5
_MAX_NAME = 200
# Fields that the engine checks too: its messages are clearer.
_CHECKS: Mapping[str, Callable[[Any], object]] = {
    "content": partial(validation.check_content, settings=MemorySettings()),
    "keywords": partial(validation.check_keywords, settings=MemorySettings()),
    "tags": lambda tag: validation.check_tags([tag], MemorySettings()),
    "importance": validation.check_importance,
    "limit": validation.check_limit,
    "budget": validation.check_budget,
    "sort": validation.check_sort,
    "kind": validation.check_kind,
    "query": partial(validation.check_text, what="the question"),
    "category": partial(validation.check_text, what="the category"),
    "title": partial(validation.check_text, what="the title"),
    "position": validation.check_position,
    "role": validation.check_role,
    **dict.fromkeys(("sensitivity", "sensitivities"), validation.check_sensitivity),
    **dict.fromkeys(("origin", "origins"), validation.check_origin),
    "speaker": validation.check_speaker,
    "project": partial(validation.check_name, what="the project"),
    "session": partial(validation.check_name, what="the session"),
    "legs": lambda leg: Plan(legs=frozenset([leg])),
    "fusion": lambda fusion: Plan(fusion=fusion),
    "rerank": lambda rerank: Plan(rerank=rerank),
    "order": lambda order: Plan(order=order),
    **dict.fromkeys(
        ("as_of", "known_at", "since", "until", "created_at", "valid_from", "valid_to"), validation.check_when
    ),
    **dict.fromkeys(("id", "ids", "source", "target", "near", "supersedes"), validation.check_prefix),
}


@dataclass(frozen=True, slots=True)
class Call:
    """One request as an operation sees it: parsed and allowed."""

    principal: Principal
    context: ApiContext
    path: dict[str, str]
    body: Any = None
    query: Any = None
    file: Path | None = None
    client: str = ""
    """the agent that the request is made for; empty for a person"""
    project: str = ""
    """the project that the program works in, for requests without one"""

    @property
    def engine(self) -> Engine:
        """The memory of the principal, as its agent and in its project."""
        engine = self.context.policy.engine_of(self.principal)
        if self.client:
            engine = engine.acting_as(client_actor(self.client))
        return engine.working_in(Path(Path.cwd().anchor), self.project) if self.project else engine


@dataclass(frozen=True, slots=True)
class Exported:
    """A temporary file with an export, and what it holds."""

    path: Path
    report: ExportReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One row of the API: method and path, the scope it needs, the types of its parts, and what it does."""

    name: str
    method: str
    path: str
    summary: str
    run: Callable[[Call], Any]
    reply: Any
    tag: str
    scope: str = READ
    body: type[Strict] | None = None
    query: type[Strict] | None = None
    media: str = JSON
    takes_file: bool = False
    errors: tuple[int, ...] = ()
    is_audited: bool = False


async def serve(operation: Operation, request: Request, context: ApiContext) -> Response:
    """Serve one request; every refusal is an exception."""
    principal: Principal = request.scope[PRINCIPAL]
    principal.require(operation.scope)
    query = _query(operation, request)
    if operation.takes_file:
        folder = tempfile.mkdtemp(prefix="triskele-")
        file = Path(folder) / f"import{'.md' if query.format == 'markdown' else '.jsonl'}"
        try:
            await _received(request, file)
            return await to_thread.run_sync(_answer, operation, request, context, None, query, file)
        finally:
            file.unlink(missing_ok=True)
            os.rmdir(folder)
    body = await _body(operation, request)
    return await to_thread.run_sync(_answer, operation, request, context, body, query, None)


def _answer(
    operation: Operation, request: Request, context: ApiContext, body: Any, query: Any, file: Path | None
) -> Response:
    principal: Principal = request.scope[PRINCIPAL]
    policy = context.policy
    policy.admit(principal)
    client, project = (_told(request, name) for name in (CLIENT_HEADER, PROJECT_HEADER))
    call = Call(principal, context, dict(request.path_params), body, query, file, client, project)
    # Only a database has positions.
    written = None if operation.scope == ADMIN else getattr(policy.engine_of(principal).store, "written", None)
    if written is not None:
        written.follow(request.headers.get(POSITION_HEADER, ""))
    value = operation.run(call)
    if operation.scope == WRITE:
        policy.wrote(principal)
    request.scope[TARGET] = value.id if isinstance(value, Outcome | Memory) else ""
    if isinstance(value, Exported):
        told = {REPORT_HEADER: adapter(ExportReport).dump_json(value.report).decode()}
        return StreamingResponse(_streamed(value.path), headers=told, media_type=operation.media)
    headers = {POSITION_HEADER: str(written)} if written is not None and str(written) else None
    return Response(adapter(operation.reply).dump_json(value), headers=headers, media_type=JSON)


def _told(request: Request, name: str) -> str:
    """A percent-encoded header; refused if it is not a valid name."""
    text = unquote(request.headers.get(name, ""), errors="replace")
    if len(text) > _MAX_NAME or not text.isprintable():
        raise BadInput(f"the header {name} holds no name")
    return text


def given(asked: Strict) -> dict[str, Any]:
    """The fields of a request part by name."""
    return {name: getattr(asked, name) for name in type(asked).model_fields}


async def _body(operation: Operation, request: Request) -> Any:
    content = bytearray()
    async for piece in request.stream():
        content += piece
        if len(content) > MAX_BODY:
            raise HTTPException(413, f"the body of this request may have at most {MAX_BODY:,} bytes")
    if operation.body is None:
        return None
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise HTTPException(415, f"the body must be {JSON}")
    return _parsed(operation.body, bytes(content))


def _parsed(kind: type[BaseModel], content: bytes) -> Any:
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        raise _complaint(error) from None


def _complaint(error: ValidationError) -> Exception:
    found = error.errors(include_url=False, include_context=False)
    if any(each["type"] == "json_invalid" for each in found):
        return HTTPException(400, "the body is not valid JSON")
    return BadInput("; ".join(dict.fromkeys(map(_sentence, found[:_COMPLAINTS]))))


def _sentence(complaint: ErrorDetails) -> str:
    """What is wrong with a value; the engine's message if the engine checks such values too."""
    place = complaint["loc"][:6]
    field = next((part for part in reversed(place) if isinstance(part, str)), "")
    try:
        _CHECKS.get(field, str)(complaint["input"])
    except BadInput as error:
        return str(error)
    except (TypeError, ValueError, AttributeError):
        # Of another type than the engine ever sees.
        pass
    return f"{'.'.join(str(part)[:40] for part in place)}: {complaint['msg']}"


def _query(operation: Operation, request: Request) -> Any:
    given = request.query_params
    if operation.query is None:
        if given:
            raise BadInput(f"unknown parameter {next(iter(given))[:40]!r}: this operation takes none")
        return None
    properties = operation.query.model_json_schema()["properties"]
    values: dict[str, Any] = {}
    for name in given:
        kind = properties.get(name, {})
        words = given.getlist(name)
        if kind.get("type") == "array":
            values[name] = words
        elif len(words) > 1:
            raise BadInput(f"{name[:40]}: given more than once")
        else:
            values[name] = _scalar(words[0], str(kind.get("type", "string")))
    try:
        # In the mode of JSON, so that a text can be an enum.
        return operation.query.model_validate_json(adapter(dict[str, Any]).dump_json(values))
    except ValidationError as error:
        raise _complaint(error) from None


def _scalar(text: str, kind: str) -> Any:
    """A parameter as a value of its type; an invalid one stays a text, which the model refuses."""
    if kind == "integer" and _INTEGER.fullmatch(text):
        return int(text)
    if kind == "boolean" and text in ("true", "false"):
        return text == "true"
    return text


async def _received(request: Request, file: Path) -> None:
    taken = 0
    with file.open("wb") as target:
        async for piece in request.stream():
            taken += len(piece)
            if taken > MAX_IMPORT:
                raise HTTPException(413, f"an import may have at most {MAX_IMPORT:,} bytes: send several")
            await to_thread.run_sync(target.write, piece)
    if not taken:
        raise BadInput("the import is empty: send the file as the body of the request")


async def _streamed(path: Path) -> AsyncIterator[bytes]:
    """The bytes of a temporary file, which is removed with its folder afterwards."""
    try:
        with path.open("rb") as file:
            while piece := await to_thread.run_sync(file.read, _PIECE):
                yield piece
    finally:
        path.unlink(missing_ok=True)
        path.parent.rmdir()
