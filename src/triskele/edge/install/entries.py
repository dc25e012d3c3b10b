"""The entries of triskele in a client's configuration file: written and removed."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from typing import Any

from triskele.edge.install import json_editor
from triskele.edge.install.table import NAME, Client, ConfigFile, hook, is_our_hook, server, tool_hook
from triskele.errors import BadInput

_BYTE_ORDER_MARK = "\ufeff"
TOML_MARK = "# Written by `triskele install`; `triskele uninstall` removes it."
_BLANK_OR_COMMENT = re.compile(r"\s*(#|$)")
_TOML_HEADER = re.compile(r"[ \t]*\[{1,2}(?P<name>[^\]]*)")


def entries_of(
    client: Client, file: ConfigFile, environment: Mapping[str, str], *, for_project: bool, calls_tools: bool = False
) -> Entries:
    """The entries for one file of a client."""
    # A file that a team commits holds no paths of one machine.
    own = None if for_project and not file.is_personal else environment
    if file.events is None:
        path, entry = (*file.keys, NAME), server(client, own)
        return TomlServer(path, entry) if file.format == "toml" else JsonEntries((_Value(path, entry),))
    hooks_by_event = {
        name: (tool_hook(event) if calls_tools else None) or hook(client, event, own)
        for name, event in file.events.items()
    }
    hooks = _Hooks(file.keys, hooks_by_event)
    if file.reserved_by is None or for_project:
        return JsonEntries((hooks,))
    return JsonEntries((hooks, _ListItem((file.reserved_by,), NAME)))


@dataclass(frozen=True, slots=True)
class JsonEntries:
    """The entries in a JSON file, whose byte order mark stays."""

    parts: tuple[_Value | _Hooks | _ListItem, ...]

    def put(self, text: str) -> str:
        """The text with up-to-date entries."""
        mark, document = _opened(text)
        return mark + reduce(lambda document, part: part.put(document), self.parts, document)

    def drop(self, text: str, original: str | None) -> str:
        """The text without the entries and without containers that they leave empty."""
        mark, document = _opened(text)
        before = None if original is None else _opened(original)[1]
        rest = reduce(lambda rest, part: part.drop(rest, before), self.parts, document)
        return text if rest == document else mark + rest

    def shown(self) -> str:
        """The text to add by hand if the file cannot be changed."""
        documents = [reduce(lambda value, key: {key: value}, reversed(part.path), part.value) for part in self.parts]
        return "\n".join(json.dumps(document, ensure_ascii=False, indent=2) for document in documents)


@dataclass(frozen=True, slots=True)
class _Value:
    """The value at a path, such as the entry of the MCP server."""

    path: tuple[str, ...]
    value: Any

    def put(self, document: str) -> str:
        slot = json_editor.find(document, self.path)
        return document if slot and slot.value == self.value else json_editor.put(document, self.path, self.value)

    def drop(self, document: str, original: str | None) -> str:
        if json_editor.find(document, self.path) is None:
            return document
        return _pruned(json_editor.drop(document, self.path), [self.path[:-1]], original)


@dataclass(frozen=True, slots=True)
class _ListItem:
    """An item in a list of strings; it stays if it was there before the install."""

    path: tuple[str, ...]
    item: str

    @property
    def value(self) -> list[str]:
        return [self.item]

    def put(self, document: str) -> str:
        is_there = self._position(document) is not None
        return document if is_there else json_editor.append(document, self.path, self.item)

    def drop(self, document: str, original: str | None) -> str:
        position = self._position(document)
        if position is None or (original is not None and self._position(original) is not None):
            return document
        return _pruned(json_editor.drop(document, (*self.path, position)), [self.path], original)

    def _position(self, document: str) -> int | None:
        slot = json_editor.find(document, self.path)
        words = slot.value if slot and isinstance(slot.value, list) else []
        return words.index(self.item) if self.item in words else None


@dataclass(frozen=True, slots=True)
class _Hooks:
    """Hooks, one group with one hook per event; hooks of earlier versions are removed too."""

    path: tuple[str, ...]
    hooks: dict[str, dict[str, Any]]

    @property
    def value(self) -> dict[str, Any]:
        return {event: [{"hooks": [entry]}] for event, entry in self.hooks.items()}

    def put(self, document: str) -> str:
        ours = list(self._ours(document))
        present = {path[-4]: value for path, value in ours}
        if len(ours) == len(present) and present == self.hooks:
            return document
        document = self._without(document)
        for event, groups in self.value.items():
            document = json_editor.append(document, (*self.path, event), groups[0])
        return document

    def drop(self, document: str, original: str | None) -> str:
        paths = [(*self.path, event) for event in dict.fromkeys(path[-4] for path, _ in self._ours(document))]
        return _pruned(self._without(document), [*paths, self.path], original) if paths else document

    def _without(self, document: str) -> str:
        for path, _ in reversed(list(self._ours(document))):
            group = json_editor.find(document, path[:-2])
            is_alone = group is not None and len(group.value["hooks"]) == 1
            document = json_editor.drop(document, path[:-2] if is_alone else path)
        return document

    def _ours(self, document: str) -> Iterator[tuple[tuple[Any, ...], Any]]:
        """Our hooks, each with its path in the document."""
        slot = json_editor.find(document, self.path)
        events = slot.value if slot and isinstance(slot.value, dict) else {}
        for event, groups in events.items():
            for number, group in enumerate(groups if isinstance(groups, list) else []):
                hooks = group.get("hooks") if isinstance(group, dict) else None
                for position, entry in enumerate(hooks if isinstance(hooks, list) else []):
                    if is_our_hook(entry):
                        yield (*self.path, event, number, "hooks", position), entry


@dataclass(frozen=True, slots=True)
class TomlServer:
    """The table of our MCP server in a TOML file.

    Edited by lines: tomlkit removes the comments after a table with it, and cannot remove from tables out of order.
    """

    path: tuple[str, ...]
    entry: dict[str, Any]

    def put(self, text: str) -> str:
        """The text with the table, replaced or appended."""
        if self._parsed(text)[0] == self.entry:
            return text
        rest = self.drop(text)
        newline = "\r\n" if "\r\n" in text else "\n"
        gap = newline if rest.endswith("\n") else newline * 2
        table = f"{TOML_MARK}\n{self.shown()}".replace("\n", newline)
        return self._verified(f"{rest}{gap if rest.strip() else ''}{table}", text, self.entry)

    def drop(self, text: str, original: str | None = None) -> str:  # noqa: ARG002 - no empty table remains
        """The text without the table and its subtables."""
        if self._parsed(text)[0] is None:
            return text
        lines, is_ours, trailing = list[str](), False, list[str]()
        for line in text.splitlines(keepends=True):
            if header := _TOML_HEADER.match(line):
                keys = [key.strip().strip("\"'") for key in header["name"].split(".")]
                was_ours, is_ours = is_ours, keys[: len(self.path)] == list(self.path)
                if is_ours and not was_ours:
                    _drop_mark(lines)
            if not is_ours:
                lines += [*trailing, line]
                trailing.clear()
            elif header or not _BLANK_OR_COMMENT.match(line):
                trailing.clear()
            else:
                # Blank lines and comments after our last value belong to what follows.
                trailing.append(line)
        return self._verified("".join([*lines, *trailing]), text, None)

    def _parsed(self, text: str) -> tuple[Any, dict[str, Any]]:
        """The value at the path, and the document without it and without an empty table around it."""
        document, (key, name) = tomllib.loads(text), self.path
        table = document.get(key)
        value = table.pop(name, None) if isinstance(table, dict) else None
        return value, {other: item for other, item in document.items() if other != key or item}

    def _verified(self, text: str, before: str, entry: Mapping[str, Any] | None) -> str:
        """The text, if it differs from the one before by the entry only."""
        with suppress(tomllib.TOMLDecodeError):
            if self._parsed(text) == (entry, self._parsed(before)[1]):
                return text
        raise BadInput(f"[{'.'.join(self.path)}] is written in a form that cannot be edited safely: change it by hand")

    def shown(self) -> str:
        """The table as text."""
        import tomlkit

        key, name = self.path
        table = tomlkit.table(is_super_table=True)
        table[name] = tomlkit.item(self.entry)
        return tomlkit.dumps({key: table})


Entries = JsonEntries | TomlServer


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


def _drop_mark(lines: list[str]) -> None:
    """Remove our own comment, and the blank line before it."""
    if lines and lines[-1].strip() == TOML_MARK:
        lines.pop()
        if len(lines) > 1 and not lines[-1].strip():
            lines.pop()
