"""The keywords of a method as the strict schema of a request."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from functools import cache
from types import GenericAlias, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin
from typing import get_type_hints as type_hints

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from pydantic_core import ErrorDetails
from typing_extensions import TypedDict

from triskele import replies, requests, validation
from triskele import types as values
from triskele.config import MemorySettings, Settings
from triskele.errors import BadInput
from triskele.replies import rooms

if TYPE_CHECKING:
    from triskele.edge.http.operations import Operation

_NAMES = {**vars(requests), **vars(values), **vars(replies), **vars(rooms), "Settings": Settings, "FilePath": str}
_COMPLAINTS = 5
_STRICT = ConfigDict(extra="forbid", strict=True)


class Request:
    """The strict schema of a request."""

    def __init__(self, operation: Operation) -> None:
        self._fields = dict(_parameters(operation))
        self.adapter: TypeAdapter[dict[str, Any]] = TypeAdapter(_strict(operation.name, self._fields))

    def checked(self, path: Mapping[str, str], parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Check the options of path and body or query; refuse unknown ones."""
        if twice := path.keys() & parameters.keys():
            raise BadInput(f"{min(twice)} is in the path already")
        in_path = {name: text.split(",") if name == requests.IDS else text for name, text in path.items()}
        try:
            # In the mode of JSON, so that a text can be an enum or a time.
            return self.adapter.validate_json(json.dumps({**parameters, **in_path}))
        except ValidationError as error:
            raise self._refusal(error) from None

    def _refusal(self, error: ValidationError) -> BadInput:
        """Explain invalid values, in the words of the engine if possible, and what to send instead."""
        remedies: dict[str, str] = {}
        complaints = error.errors(include_url=False, include_context=False)
        for complaint in sorted(complaints, key=lambda each: each["type"] == "missing"):
            # Pydantic gives text that it cannot read as JSON no location.
            location = complaint["loc"] or ("",)
            name, fields = str(location[-1])[:40], self._fields_around(location)
            text, remedy = _complaint(complaint), ""
            if complaint["type"] == "missing":
                remedy = f"send {name!r}"
                # An unknown field that means this one explains both.
                if any(each.startswith(remedy) for each in remedies.values()):
                    continue
            elif complaint["type"] == "extra_forbidden" and name not in fields:
                near, hint = requests.nearest(name, fields)
                text = f"{_path(location)}: unknown field{hint}"
                remedy = f"send {near!r} instead of {name!r}" if near else ""
            remedies[text] = remedy
        shown = dict(list(remedies.items())[:_COMPLAINTS])
        return BadInput("; ".join(shown), remedy="; ".join(filter(None, dict.fromkeys(shown.values()))))

    def _fields_around(self, location: tuple[int | str, ...]) -> Mapping[str, Any]:
        """The fields of the object that holds a value of the request."""
        fields: Mapping[str, Any] = self._fields
        kind: Any = None
        for part in location[:-1]:
            kind = _plain(fields.get(part) if isinstance(part, str) else next(iter(get_args(kind)), None))
            fields = getattr(kind, "__annotations__", {})
        return fields

    def from_query(self, texts: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """The parameters of a query string, by the types of their keywords."""
        options: dict[str, Any] = {}
        for name, words in texts.items():
            kind = _plain(self._fields.get(name, str))
            if get_origin(kind) is list:
                options[name] = list(words)
            elif len(words) > 1:
                raise BadInput(f"{name[:40]}: given more than once")
            else:
                options[name] = _scalar(words[0], kind)
        return options


def _parameters(operation: Operation) -> Iterable[tuple[str, Any]]:
    """Each parameter or keyword of a method, with its type in JSON."""
    # The module of the method may import names for type checkers alone.
    hints = type_hints(operation.method, localns=_NAMES, include_extras=True)
    for name, parameter in list(operation.signature.parameters.items())[1:]:
        kind = hints[name]
        if name == operation.file:
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            yield from _keywords(get_args(kind)[0])
        elif parameter.kind is parameter.VAR_POSITIONAL:
            listed = _filled(_list_of(kind))
            yield name, Required[listed] if name in operation.in_path else NotRequired[listed]
        elif parameter.default is parameter.empty:
            yield name, Required[_filled(_wire(kind))]
        else:
            yield name, NotRequired[_wire(kind)]


def _complaint(complaint: ErrorDetails) -> str:
    location = complaint["loc"]
    field = next((part for part in reversed(location) if isinstance(part, str) and part in validation.FIELDS), "")
    if field and complaint["type"] != "missing":
        try:
            validation.FIELDS[field](complaint["input"], MemorySettings())
        except BadInput as error:
            return str(error)
        except (TypeError, ValueError, AttributeError):
            # Of another type than the engine ever sees.
            pass
    return f"{_path(location)}: {complaint['msg']}"


def _path(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part)[:40] for part in location[:6])


def _keywords(request: Any) -> Iterable[tuple[str, Any]]:
    """The keywords of a request type, each with its description."""
    texts = _descriptions(request)
    for name, kind in type_hints(request, localns=_NAMES, include_extras=True).items():
        wire = _wire(get_args(kind)[0] if get_origin(kind) in (Required, NotRequired) else kind)
        if name in texts:
            wire = Annotated[wire, Field(description=texts[name])]
        yield name, Required[wire] if name in request.__required_keys__ else NotRequired[wire]


@cache
def _descriptions(request: Any) -> Mapping[str, str]:
    """The texts below keywords of a request type and of its bases."""
    texts: dict[str, str] = {}
    tree = ast.parse(inspect.getsource(requests))
    own = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    pending = [request.__name__]
    while pending and (node := own.get(pending.pop())) is not None:
        pending += [base.id for base in node.bases if isinstance(base, ast.Name)]
        for field, text in zip(node.body, node.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                texts[ast.unparse(field.target)] = ast.literal_eval(text.value)
    return texts


def _strict(name: str, fields: Mapping[str, Any]) -> Any:
    # pydantic demands the TypedDict of typing_extensions before Python 3.12; type checkers want a literal name.
    typed_dict: Any = TypedDict
    return with_config(_STRICT)(typed_dict(name, dict(fields)))


def _wire(kind: Any) -> Any:
    """A type in JSON: bounded lists, texts for times and enums."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        members = [each for each in arguments if not (isinstance(each, type) and issubclass(each, (datetime, Enum)))]
        return Union[tuple(map(_wire, members))]  # noqa: UP007
    if origin in (Sequence, Iterable, list, tuple):
        return _list_of(arguments[0])
    if requests.is_request(kind):
        return _strict(kind.__name__, dict(_keywords(kind)))
    return kind


def _list_of(kind: Any) -> Any:
    listed: Any = GenericAlias(list, (_wire(kind),))
    return Annotated[listed, Field(max_length=requests.MAX_BATCH)]


def _filled(kind: Any) -> Any:
    """A required list has an item."""
    return Annotated[kind, Field(min_length=1)] if get_origin(_plain(kind)) is list else kind


def _plain(kind: Any) -> Any:
    """A type without marks, descriptions and null."""
    while get_origin(kind) in (Required, NotRequired, Annotated):
        kind = get_args(kind)[0]
    if get_origin(kind) in (Union, UnionType):
        kind = next(each for each in get_args(kind) if each is not type(None))
        return _plain(kind)
    return kind


def _scalar(text: str, kind: Any) -> Any:
    """Convert a parameter; an invalid one stays a text, which is refused."""
    if kind is bool and text in ("true", "false"):
        return text == "true"
    if kind in (int, float) and get_origin(kind) is not Literal:
        try:
            return kind(text) if text.isascii() and len(text) < 20 else text
        except ValueError:
            return text
    return text
