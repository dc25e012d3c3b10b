"""The operations over HTTP: a row for each method of `Engine`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from triskele.edge.http.access import READ, REVEAL, WRITE
from triskele.edge.http.codec import reply_type
from triskele.engine.protocol import Agents, Concepts, Curation, Engine, Sharing
from triskele.requests import IDS
from triskele.validation import check_prefix, check_text, check_texts

if TYPE_CHECKING:
    from triskele.edge.http.keywords import Request

# Where a call finds the object of a method; what is not listed is an attribute of the call.
_OBJECTS = {
    "Engine": "engine",
    **{room.__name__: f"engine.{room.__name__.lower()}" for room in (Concepts, Curation, Agents, Sharing)},
}
JSON, NDJSON = "application/json", "application/x-ndjson"
_IN_PATH = re.compile(r"{(\w+)}")


@dataclass(frozen=True, eq=False)
class Operation:
    """A method, the request that calls it, and the scope it needs.

    `asks_model`: it counts against the quota of hosted models. `takes_file` and `gives_file`: the parameter whose file
    is the body of the request or of the reply. `tool` and `command` name the operation for agents and in a terminal.
    """

    method: Callable[..., Any]
    verb: str
    path: str
    scope: str = READ
    asks_model: bool = False
    takes_file: str = ""
    gives_file: str = ""
    tool: str = ""
    command: str = ""

    @property
    def name(self) -> str:
        """The name of the method, with that of its room."""
        room = self.owner.rpartition(".")[2]
        is_room = "." in self.owner or room.endswith("room")
        return f"{room.removesuffix('room')}.{self.method.__name__}" if is_room else self.method.__name__

    @property
    def owner(self) -> str:
        """The attribute of a call that has the method."""
        kind = self.method.__qualname__.split(".")[0]
        return _OBJECTS.get(kind, kind.lower())

    @property
    def tag(self) -> str:
        """The part of the API that it belongs to."""
        return self.path.split("/")[2]

    @property
    def summary(self) -> str:
        """What it does: the first line of the method's docstring."""
        return (self.method.__doc__ or "").partition("\n")[0].removesuffix(".")

    @property
    def file(self) -> str:
        """The parameter that is a file; empty without one."""
        return self.takes_file or self.gives_file

    @property
    def has_body(self) -> bool:
        """Whether the request is JSON, rather than a query string."""
        return self.verb in ("POST", "PUT", "PATCH") and not self.takes_file

    @cached_property
    def in_path(self) -> tuple[str, ...]:
        """The names of the path parameters."""
        return tuple(_IN_PATH.findall(self.path))

    @cached_property
    def signature(self) -> Signature:
        """The signature of the method."""
        return signature(self.method)

    @cached_property
    def takes_several(self) -> bool:
        """Whether the method takes ids as positional arguments."""
        return any(each.kind is each.VAR_POSITIONAL for each in self.signature.parameters.values())

    def named(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        """The arguments of a call by name; absent ones are left out."""
        named = self.signature.bind(None, *arguments, **options).arguments
        del named["self"]
        for name in [name for name in named if self.signature.parameters[name].kind is Parameter.VAR_KEYWORD]:
            named |= named.pop(name)
        return named

    @cached_property
    def request(self) -> Request:
        """The keywords of the method, as a strict schema."""
        # Imported here: the client needs no schema, and pydantic costs more than all of click.
        from triskele.edge.http.keywords import Request

        return Request(self)

    @cached_property
    def reply(self) -> Any:
        """The type of the method's result."""
        return reply_type(self.method)

    def fill(self, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """The path with its parameters, and the options that are left."""
        left, path = dict(options), self.path
        for name in self.in_path:
            value = left.pop(name)
            if name == IDS:
                text = ",".join(map(check_prefix, check_texts(value, name)))
            else:
                text = check_prefix(value) if name == "id" else check_text(value, f"the {name}")
            path = path.replace(f"{{{name}}}", quote(text, safe=","))
        return path, left


_ALL, _ONE, _SOME = "/v1/memories", "/v1/memories/{id}", "/v1/memories/{ids}"

OPERATIONS: Sequence[Operation] = (
    Operation(Engine.remember, "POST", _ALL, WRITE, tool="memory_store", command="add"),
    Operation(Engine.remember_all, "POST", "/v1/batch", WRITE, command="add"),
    Operation(Engine.edit, "PATCH", _SOME, WRITE, tool="memory_update", command="edit"),
    Operation(Engine.forget, "DELETE", _SOME, WRITE, tool="memory_forget", command="forget"),
    Operation(Engine.erase, "POST", f"{_SOME}/erase", WRITE, command="forget"),
    Operation(Engine.restore, "POST", f"{_SOME}/restore", WRITE, command="edit"),
    Operation(Engine.seal, "POST", f"{_ONE}/seal", WRITE, command="secrets seal"),
    Operation(Engine.reveal, "POST", f"{_ONE}/reveal", REVEAL, tool="memory_reveal", command="secrets reveal"),
    Operation(Engine.link, "POST", "/v1/links", WRITE, tool="memory_link", command="link"),
    Operation(Engine.unlink, "DELETE", "/v1/links", WRITE, command="link"),
    Operation(Engine.undo, "POST", "/v1/undo", WRITE, tool="memory_undo", command="undo"),
    Operation(Engine.recall, "POST", "/v1/recall", asks_model=True, tool="memory_recall", command="recall"),
    Operation(Engine.why_not, "POST", "/v1/why-not", asks_model=True, tool="memory_why_not", command="why-not"),
    Operation(Engine.related, "POST", "/v1/related", asks_model=True, command="add"),
    Operation(Engine.get, "GET", _ONE, tool="memory_get", command="show"),
    Operation(Engine.lookup, "POST", "/v1/lookup"),
    Operation(Engine.browse, "GET", _ALL, tool="memory_list", command="list"),
    Operation(Engine.journal, "GET", "/v1/journal", command="history"),
    Operation(Engine.shorten, "POST", "/v1/shorten"),
    Operation(Engine.stats, "GET", "/v1/stats", tool="memory_stats", command="stats"),
    Operation(Engine.export_memories, "GET", "/v1/export", gives_file="target", command="export"),
    Operation(Engine.import_memories, "POST", "/v1/import", WRITE, takes_file="source", command="import"),
    Operation(Concepts.show, "GET", "/v1/concept", command="graph show"),
    Operation(Concepts.path, "GET", "/v1/concept-path", command="graph path"),
    Operation(Concepts.overview, "GET", "/v1/concepts", command="graph stats"),
    Operation(Concepts.neighbourhood, "GET", "/v1/neighbourhood"),
    Operation(Concepts.merge, "POST", "/v1/concepts/merge", WRITE, command="graph merge"),
    Operation(Concepts.split, "POST", "/v1/concepts/split", WRITE, command="graph split"),
    Operation(Curation.proposals, "GET", "/v1/proposals", WRITE, command="review list"),
    Operation(Curation.accept, "POST", "/v1/proposals/accept", WRITE, command="review accept"),
    Operation(Curation.reject, "POST", "/v1/proposals/reject", WRITE, command="review reject"),
    Operation(Agents.digest, "GET", "/v1/digest"),
    Operation(Agents.conversations, "GET", "/v1/conversations"),
    Operation(Sharing.shares, "GET", "/v1/shares", command="shares list"),
    Operation(Sharing.share, "POST", "/v1/shares", WRITE, tool="memory_share", command="shares add"),
    Operation(Sharing.unshare, "DELETE", "/v1/shares", WRITE, tool="memory_unshare", command="shares remove"),
    Operation(Sharing.trust, "PUT", "/v1/trusted/{user}", WRITE, command="shares trust"),
    Operation(Sharing.groups, "GET", "/v1/groups", command="shares groups list"),
)
BY_METHOD: Mapping[Callable[..., Any], Operation] = {operation.method: operation for operation in OPERATIONS}
