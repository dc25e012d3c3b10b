"""The OpenAPI 3.1 document of the operations, and its page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from triskele import __version__
from triskele.edge.http.operations import JSON, NDJSON, Operation
from triskele.edge.http.problems import MEDIA_TYPE, ProblemDetails
from triskele.types import Fit

_REF = "#/components/schemas/{model}"
# What any operation may answer besides its own reply.
_ALWAYS = {
    400: "The request is malformed",
    401: "No valid key",
    403: "The key lacks the scope, or the request comes from another site",
    413: "The request is too large",
    421: "The Host header names another server",
    422: "A value cannot be used",
    429: "A quota of the user is used up",
    503: "The store or a dependency is unavailable",
}
_MORE = {404: "No such memory", 409: "The change does not fit what is stored", 415: "The body is not JSON"}
_DESCRIPTION = (
    "Long-term memory: words, meaning and connections. Send a key as `Authorization: Bearer KEY`. Errors are problem"
    " documents (RFC 9457); `remedy` names what would help."
)

Schema = dict[str, Any]


def document(operations: Sequence[Operation]) -> Schema:
    """The whole document."""
    types: list[tuple[Any, JsonSchemaMode, TypeAdapter[Any]]] = [
        (ProblemDetails, "serialization", TypeAdapter(ProblemDetails))
    ]
    for operation in operations:
        types.append((operation, "serialization", TypeAdapter(operation.reply)))
        types.append((operation, "validation", operation.request.adapter))
    schemas, rest = TypeAdapter.json_schemas(types, ref_template=_REF)
    components: Schema = rest.get("$defs", {})
    components["Hit"] = _flat_hit(components)
    components["Answer"]["properties"]["fit"] = TypeAdapter(Fit).json_schema()
    components["Answer"]["required"].append("fit")
    paths: dict[str, Schema] = {}
    for operation in operations:
        request = schemas[operation, "validation"]
        if "$ref" in request:
            # No other operation uses the schema of a request.
            request = components.pop(request["$ref"].rpartition("/")[2])
        described = _described(operation, request, schemas[operation, "serialization"])
        paths.setdefault(operation.path, {})[operation.verb.lower()] = described
    problem = {"schema": {"$ref": _REF.format(model=ProblemDetails.__name__)}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "triskele",
            "version": __version__,
            "description": _DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"key": []}],
        "tags": [{"name": name} for name in dict.fromkeys(operation.tag for operation in operations)],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "A key, or the token."}},
            "responses": {
                str(status): {"description": text, "content": {MEDIA_TYPE: problem}}
                for status, text in sorted((_ALWAYS | _MORE).items())
            },
        },
    }


def _flat_hit(components: Mapping[str, Schema]) -> Schema:
    """A hit as `codec` writes it, with memory and evidence flat."""
    memory, hit, evidence = (components[name] for name in ("Memory", "Hit", "HitEvidence"))
    own = {name: schema for name, schema in hit["properties"].items() if name not in ("memory", "evidence")}
    properties = {
        **memory["properties"],
        **own,
        "reason": evidence["properties"]["reason"],
        "words": evidence["properties"]["words"],
        "evidence": evidence["properties"]["legs"],
    }
    return {**hit, "properties": properties, "required": list(properties)}


def _described(operation: Operation, request: Schema, reply: Schema) -> Schema:
    kind, schema = (NDJSON, {"type": "string"}) if operation.gives_file else (JSON, reply)
    responses: Schema = {"200": {"description": "Done", "content": {kind: {"schema": schema}}}}
    statuses = {*_ALWAYS, *_MORE} - (set() if operation.has_body else {415})
    responses |= {str(status): {"$ref": f"#/components/responses/{status}"} for status in sorted(statuses)}
    described: Schema = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
        "responses": responses,
        "x-scope": operation.scope,
    }
    in_path = {"type": "string", "minLength": 1, "maxLength": 2000}
    parameters = [{"name": name, "in": "path", "required": True, "schema": in_path} for name in operation.in_path]
    properties = {name: schema for name, schema in request["properties"].items() if name not in operation.in_path}
    required = [name for name in request.get("required", ()) if name not in operation.in_path]
    if operation.has_body:
        body = {**request, "properties": properties, "required": required}
        if not required:
            del body["required"]
        described["requestBody"] = {"required": bool(required), "content": {JSON: {"schema": body}}}
    else:
        parameters += [
            {"name": name, "in": "query", "required": name in required, "schema": _without_null(schema)}
            for name, schema in properties.items()
        ]
    if parameters:
        described["parameters"] = parameters
    if operation.takes_file:
        described["requestBody"] = {"required": True, "content": {"application/octet-stream": {}}}
    return described


def _without_null(schema: Schema) -> Schema:
    """A schema without null, which a query string cannot hold."""
    if "anyOf" not in schema:
        return schema
    (kind,) = (each for each in schema["anyOf"] if each != {"type": "null"})
    return {**{name: value for name, value in schema.items() if name not in ("anyOf", "default")}, **kind}


# No script, nothing from other hosts.
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
STYLE = resources.files(__package__).joinpath("docs.css").read_text(encoding="utf-8")


def page(document: Schema) -> str:
    """The document as a page without scripts."""
    parts = [
        "<!doctype html><html lang=en><head><meta charset=utf-8><title>triskele API</title>",
        '<link rel=stylesheet href="/docs/style.css"></head><body>',
        f"<h1>triskele API <small>{escape(__version__)}</small></h1><p>{escape(_DESCRIPTION)}</p>",
        '<p>The whole document: <a href="/openapi.json">/openapi.json</a></p>',
    ]
    for tag in document["tags"]:
        parts.append(f"<h2>{escape(tag['name'])}</h2>")
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                if tag["name"] in operation["tags"]:
                    parts.append(_section(method, path, operation, document["components"]["schemas"]))
    return "".join([*parts, "</body></html>"])


def _section(method: str, path: str, operation: Schema, schemas: Schema) -> str:
    lines = [f"scope: {operation['x-scope']}"]
    for parameter in operation.get("parameters", ()):
        lines.append(f"{parameter['in']} {parameter['name']}: {json.dumps(parameter['schema'])}")
    for name, described in (("body", operation.get("requestBody")), ("reply", operation["responses"]["200"])):
        for kind, content in (described or {}).get("content", {}).items():
            schema = content.get("schema", {})
            schema = schemas.get(schema.get("$ref", "").rpartition("/")[2], schema)
            lines.append(f"{name} ({kind}): {json.dumps(schema, indent=2)}")
    title = f"<b>{method.upper()}</b> <code>{escape(path)}</code> {escape(operation['summary'])}"
    return f"<details><summary>{title}</summary><pre>{escape(chr(10).join(lines))}</pre></details>"
