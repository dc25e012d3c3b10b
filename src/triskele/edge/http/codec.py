"""Values as JSON and back: fields of dataclasses, and flat hits."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from enum import Enum
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from triskele import types as values
from triskele.text import timestamps
from triskele.types import Answer, Hit, HitEvidence, LegEvidence, Memory

Decoder = Callable[[Any], Any]


def to_json(value: Any) -> Any:
    """A value as JSON, with ISO 8601 times and dataclasses as objects."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, datetime):
        return timestamps.to_text(value)
    if isinstance(value, Hit):
        return _flat(value)
    if is_dataclass(value) and not isinstance(value, type):
        shape = {name: to_json(getattr(value, name)) for name in _names(type(value))}
        # The owner of a shared memory is the user who shares it.
        return {**shape, "owner": shape["shared_by"] or shape["owner"]} if isinstance(value, Memory) else shape
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {key: to_json(item) for key, item in value._asdict().items()}
    if isinstance(value, Sequence | set | frozenset):
        return [to_json(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON")


def from_json(kind: Any, value: Any) -> Any:
    """Read a value of a type that `to_json` wrote; raise ValueError for other input."""
    try:
        return _decoder(kind)(value)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a value of {kind}: {type(error).__name__}") from error


def reply_type(method: Callable[..., Any]) -> Any:
    """The type of a method's result; its module may import names for type checkers alone."""
    result = types.SimpleNamespace(__annotations__={"return": method.__annotations__["return"]})
    return _hints(result, method.__globals__)["return"]


def _hints(annotated: Any, names: dict[str, Any] | None = None) -> dict[str, Any]:
    """The types of annotations; modules whose classes take time to make are only imported if one is named."""
    classes = dict(vars(values))
    for module in ("triskele.replies", "triskele.replies.rooms"):
        try:
            return get_type_hints(annotated, names, classes)
        except NameError:
            classes |= vars(import_module(module))
    return get_type_hints(annotated, names, classes)


@cache
def _names(kind: Any) -> tuple[str, ...]:
    """The fields of a dataclass; an answer has its fit besides."""
    return (*(each.name for each in fields(kind) if each.init), *(["fit"] if kind is Answer else []))


def _flat(hit: Hit) -> dict[str, Any]:
    """A hit with the fields of its memory."""
    return {
        **to_json(hit.memory),
        "score": hit.score,
        "reason": hit.reason,
        "evidence": to_json(hit.legs),
        "prior": hit.prior,
        "superseded": hit.superseded,
        "words": list(hit.words),
        "stands_for": hit.stands_for,
        "links": to_json(hit.links),
        "decay": hit.decay,
    }


def _unflat(value: Mapping[str, Any]) -> Hit:
    legs = from_json(Mapping[str, LegEvidence], value["evidence"])
    return Hit(
        memory=from_json(Memory, value),
        score=value["score"],
        evidence=HitEvidence(reason=value["reason"], legs=legs, words=tuple(value["words"])),
        prior=value["prior"],
        superseded=value["superseded"],
        stands_for=value["stands_for"],
        links=from_json(tuple[values.Link, ...], value["links"]),
        decay=value["decay"],
    )


@cache
def _decoder(kind: Any) -> Decoder:
    """What turns JSON into values of a type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Hit:
        return _unflat
    if kind is datetime:
        return timestamps.parse
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    if is_dataclass(kind):
        initial = [each for each in fields(kind) if each.init]
        required = {each.name for each in initial if each.default is MISSING and each.default_factory is MISSING}
        return _record(kind, [each.name for each in initial], required)
    if hasattr(kind, "_field_defaults"):
        return _record(kind, kind._fields, set(kind._fields) - kind._field_defaults.keys())
    if origin in (Union, types.UnionType):
        inner = [_decoder(each) for each in arguments if each is not type(None)]
        return lambda value: None if value is None else inner[0](value)
    if origin in (tuple, list, Sequence):
        decode_item, collect = _decoder(arguments[0]), list if origin is list else tuple
        return lambda value: collect(map(decode_item, value))
    if origin in (dict, Mapping):
        item = _decoder(arguments[1])
        return lambda value: {key: item(inner) for key, inner in value.items()}
    if kind in (int, float, str, bool):
        return lambda value: _scalar(kind, value)
    # Literals and what has no type are as they are.
    return lambda value: value


def _record(kind: Any, names: Sequence[str], required: set[str]) -> Decoder:
    hints = _hints(kind)
    decoders = {name: _decoder(hints[name]) for name in names}

    def decode(value: Any) -> Any:
        missing = required - value.keys()
        if missing:
            raise KeyError(min(missing))
        return kind(**{name: decode(value[name]) for name, decode in decoders.items() if name in value})

    return decode


def _scalar(kind: type, value: Any) -> Any:
    if isinstance(value, bool) is not (kind is bool) or not isinstance(value, int | float if kind is float else kind):
        raise TypeError(f"not a {kind.__name__}")
    return value
