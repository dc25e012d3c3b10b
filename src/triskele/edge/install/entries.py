"""The entries of triskele in a client's configuration file: written and removed."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol

from triskele.edge.install import json_editor
from triskele.edge.install.table import (
    NAME,
    Client,
    ConfigFile,
    hook,
    is_our_hook,
    server,
    shared_hook,
    shared_server,
    tool_hook,
)
from triskele.errors import BadInput

_BYTE_ORDER_MARK = "\ufeff"
TOML_MARK = "# Written by `triskele install`; `triskele uninstall` removes it."
_TOML_HEADER = re.compile(r"[ \t]*\[{1,2}(?P<name>[^\]]*)")


class Entries(Protocol):
    """The entries in one file: functions from its text to its text."""

    def put(self, text: str) -> str:
        """The text with up-to-date entries."""

    def drop(self, text: str, original: str | None) -> str:
        """The text without the entries and without containers that they leave empty."""

    def shown(self) -> str:
        """The text to add by hand if the file cannot be changed."""


def entries_of(
    client: Client, file: ConfigFile, environment: Mapping[str, str], *, for_project: bool, calls_tools: bool = False
) -> Entries:
    """The entries for one file of a client."""
    is_shared = for_project and not file.is_personal
    if file.events is None:
        entry = shared_server(client) if is_shared else server(client, environment)
        return (TomlServer if file.format == "toml" else JsonServer)((*file.keys, NAME), entry)
    hooks_by_event = {
        name: (tool_hook(event) if calls_tools else None)
        or (shared_hook(client, event) if is_shared else hook(client, event, environment))
        for name, event in file.events.items()
    }
    hooks = JsonHooks(file.keys, hooks_by_event)
    if file.reserved_by is None or for_project:
        return hooks
    return EntryGroup((hooks, JsonListItem((file.reserved_by,), NAME)))


@dataclass(frozen=True, slots=True)
class EntryGroup:
    """Entries of several kinds in one file."""

    parts: tuple[Entries, ...]

    def put(self, text: str) -> str:
        """The text with all of them."""
        return reduce(lambda text, part: part.put(text), self.parts, text)

    def drop(self, text: str, original: str | None) -> str:
        """The text without any of them."""
        return reduce(lambda said, part: part.drop(said, original), self.parts, text)

    def shown(self) -> str:
        """One after the other."""
        return "\n".join(part.shown() for part in self.parts)


@dataclass(frozen=True, slots=True)
class JsonListItem:
    """An item in a list of strings."""

    path: tuple[str, ...]
    item: str

    def put(self, text: str) -> str:
        """The text with the item in the list."""
        mark, document = _opened(text)
        return text if self._at(document) is not None else mark + json_editor.append(document, self.path, self.item)

    def drop(self, text: str, original: str | None) -> str:
        """The text without the item, unless it was there before the install."""
        mark, document = _opened(text)
        at = self._at(document)
        if at is None or (original is not None and self._at(_opened(original)[1]) is not None):
            return text
        return mark + _pruned(json_editor.drop(document, (*self.path, at)), [self.path], original)

    def shown(self) -> str:
        """The item in its list."""
        return _nested(self.path, [self.item])

    def _at(self, document: str) -> int | None:
        slot = json_editor.find(document, self.path)
        words = slot.value if slot and isinstance(slot.value, list) else []
        return words.index(self.item) if self.item in words else None


@dataclass(frozen=True, slots=True)
class JsonServer:
    """The MCP server entry in a JSON file."""

    path: tuple[str, ...]
    entry: dict[str, Any]

    def put(self, text: str) -> str:
        """The text with the entry."""
        mark, text = _opened(text)
        slot = json_editor.find(text, self.path)
        return mark + (text if slot and slot.value == self.entry else json_editor.put(text, self.path, self.entry))

    def drop(self, text: str, original: str | None) -> str:
        """The text without the entry."""
        mark, document = _opened(text)
        if json_editor.find(document, self.path) is None:
            return text
        return mark + _pruned(json_editor.drop(document, self.path), [self.path[:-1]], original)

    def shown(self) -> str:
        """The entry with its keys."""
        return _nested(self.path, self.entry)


@dataclass(frozen=True, slots=True)
class JsonHooks:
    """Hooks in a JSON file, one group with one hook per event."""

    path: tuple[str, ...]
    hooks: dict[str, dict[str, Any]]

    def put(self, text: str) -> str:
        """The text with each hook once."""
        mark, text = _opened(text)
        present = {at[-4]: value for at, value in self._ours(text)}
        if len(list(self._ours(text))) == len(present) and present == self.hooks:
            return mark + text
        text = self._without(text)
        for event, entry in self.hooks.items():
            text = json_editor.append(text, (*self.path, event), {"hooks": [entry]})
        return mark + text

    def drop(self, text: str, original: str | None) -> str:
        """The text without the hooks, including hooks of earlier versions."""
        mark, document = _opened(text)
        paths = [(*self.path, event) for event in dict.fromkeys(at[-4] for at, _ in self._ours(document))]
        return mark + _pruned(self._without(document), [*paths, self.path], original) if paths else text

    def shown(self) -> str:
        """The hooks with their keys."""
        return _nested(self.path, {event: [{"hooks": [entry]}] for event, entry in self.hooks.items()})

    def _without(self, text: str) -> str:
        for at, _ in reversed(list(self._ours(text))):
            group = json_editor.find(text, at[:-2])
            is_alone = group is not None and len(group.value["hooks"]) == 1
            text = json_editor.drop(text, at[:-2] if is_alone else at)
        return text

    def _ours(self, text: str) -> Iterator[tuple[tuple[Any, ...], Any]]:
        """Our hooks, each with its path in the document."""
        slot = json_editor.find(text, self.path)
        events = slot.value if slot and isinstance(slot.value, dict) else {}
        for event, groups in events.items():
            for number, group in enumerate(groups if isinstance(groups, list) else []):
                hooks = group.get("hooks") if isinstance(group, dict) else None
                for position, entry in enumerate(hooks if isinstance(hooks, list) else []):
                    if is_our_hook(entry):
                        yield (*self.path, event, number, "hooks", position), entry


@dataclass(frozen=True, slots=True)
class TomlServer:
    """The table of our MCP server in a TOML file."""

    path: tuple[str, ...]
    entry: dict[str, Any]

    def put(self, text: str) -> str:
        """The text with the table."""
        return put_table(text, self.path, self.entry)

    def drop(self, text: str, original: str | None) -> str:  # noqa: ARG002 - no empty table remains
        """The text without the table."""
        return drop_table(text, self.path)

    def shown(self) -> str:
        """The table."""
        return table_text(self.path, self.entry)


def text_of(file: ConfigFile, data: bytes) -> str:
    """The text of a file, if it can be parsed and changed."""
    try:
        text = data.decode("utf-8")
        document = tomllib.loads(text) if file.format == "toml" else json_editor.parse(_opened(text)[1])
    except (ValueError, RecursionError) as error:
        raise BadInput(f"it is not valid {file.format.upper()} ({error})") from error
    if not isinstance(document, dict):
        raise BadInput("it is not an object at the top level")
    return text


def _opened(text: str) -> tuple[str, str]:
    """Byte order mark and document; an empty file is an object."""
    mark = _BYTE_ORDER_MARK if text.startswith(_BYTE_ORDER_MARK) else ""
    return mark, text.removeprefix(mark) if text.removeprefix(mark).strip() else "{}\n"


def _pruned(text: str, paths: list[tuple[str, ...]], original: str | None) -> str:
    for path in paths:
        slot = json_editor.find(text, path)
        is_empty = slot is not None and not slot.value
        if is_empty and (original is None or json_editor.find(_opened(original)[1], path) is None):
            text = json_editor.drop(text, path)
    return text


def _nested(path: tuple[str, ...], value: Any) -> str:
    for key in reversed(path):
        value = {key: value}
    return json.dumps(value, ensure_ascii=False, indent=2)


def put_table(text: str, path: Sequence[str], entry: Mapping[str, Any]) -> str:
    """Replace or append our table in a TOML document."""
    before = tomllib.loads(text)
    if _at(before, path) == entry:
        return text
    rest = drop_table(text, path)
    newline = "\r\n" if "\r\n" in text else "\n"
    gap = newline if rest.endswith("\n") else newline * 2
    table = f"{TOML_MARK}\n{table_text(path, entry)}".replace("\n", newline)
    changed = f"{rest}{gap if rest.strip() else ''}{table}"
    return _verified(changed, _changed(before, path, entry), path)


def drop_table(text: str, path: Sequence[str]) -> str:
    """Remove a table and its subtables from a TOML document.

    Edited by lines: tomlkit removes the comments after a table with it, and cannot remove from tables out of order.
    """
    before = tomllib.loads(text)
    if _at(before, path) is None:
        return text
    kept_lines, is_ours, trailing = list[str](), False, list[str]()
    for line in text.splitlines(keepends=True):
        header = _TOML_HEADER.match(line)
        if header:
            was_ours, is_ours = is_ours, _is_inside(header["name"], path)
            if is_ours and not was_ours:
                _drop_mark(kept_lines)
        if not is_ours:
            kept_lines += [*trailing, line]
            trailing.clear()
        elif header or not _is_blank_or_comment(line):
            trailing.clear()
        else:
            # Blank lines and comments after our last value belong to what follows.
            trailing.append(line)
    return _verified("".join([*kept_lines, *trailing]), _changed(before, path, None), path)


def table_text(path: Sequence[str], entry: Mapping[str, Any]) -> str:
    """A TOML table as text."""
    import tomlkit

    document = tomlkit.document()
    holder: Any = document
    for key in path[:-1]:
        holder[key] = tomlkit.table(is_super_table=True)
        holder = holder[key]
    holder[path[-1]] = tomlkit.item(dict(entry))
    return tomlkit.dumps(document)


def _is_inside(name: str, path: Sequence[str]) -> bool:
    parts = [part.strip().strip("\"'") for part in name.split(".")]
    return parts[: len(path)] == list(path)


def _is_blank_or_comment(line: str) -> bool:
    words = line.strip()
    return not words or words.startswith("#")


def _drop_mark(lines: list[str]) -> None:
    """Remove our own comment, and the blank line before it."""
    if lines and lines[-1].strip() == TOML_MARK:
        lines.pop()
        if len(lines) > 1 and not lines[-1].strip():
            lines.pop()


def _at(document: Any, path: Sequence[str]) -> Any:
    for key in path:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _changed(document: dict[str, Any], path: Sequence[str], entry: Mapping[str, Any] | None) -> dict[str, Any]:
    """Set or remove the value at a path of a document."""
    key, rest = path[0], path[1:]
    unchanged = {k: v for k, v in document.items() if k != key}
    if not rest:
        return unchanged if entry is None else {**unchanged, key: entry}
    inner = document.get(key, {})
    changed = _changed(inner if isinstance(inner, dict) else {}, rest, entry)
    return {**unchanged, key: changed} if changed else unchanged


def _verified(text: str, expected: dict[str, Any], path: Sequence[str]) -> str:
    """The text, if it has the expected values."""
    try:
        if _without_empty(tomllib.loads(text), path) == _without_empty(expected, path):
            return text
    except tomllib.TOMLDecodeError:
        pass
    raise BadInput(f"[{'.'.join(path)}] is written in a form that cannot be edited safely: change it by hand")


def _without_empty(document: dict[str, Any], path: Sequence[str]) -> dict[str, Any]:
    """Values without an empty parent table, which may be implicit."""
    return {key: value for key, value in document.items() if key != path[0] or value}
