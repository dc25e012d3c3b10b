"""A virtual `/memories` folder for clients of the file memory tool (`memory_20250818`).

A file is a session called by its path, and each of its paragraphs is a memory: checked, scoped, journaled and found by
recall like any other. Memories that no file holds can be read in `/memories/triskele/`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any

from triskele import validation
from triskele.agents import echo
from triskele.errors import BadInput, NotFound
from triskele.store.access import StoreAccess
from triskele.text import timestamps
from triskele.types import Add, Change, Forget, Memory, Origin, Revise, Sensitivity, Sort, is_secret

ROOT = "/memories"
# Read-only files, one for each category.
OTHERS = f"{ROOT}/triskele"
_MOST = 5000
_MOST_LINES = 999_999
_SNIPPET_LINES = 4
_GAP = "\n\n"
_SECRET = "[SECRET] "
_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*")
_LONGEST_PATH = 200


@dataclass(frozen=True, slots=True)
class FileMemory:
    """The virtual folder of one project, without private memories."""

    access: StoreAccess
    project: str

    def run(self, command: Mapping[str, Any]) -> str:
        """Carry out one call of the tool; its answer, or an error with the message for the model."""
        known: dict[str, Callable[[Mapping[str, Any]], str]] = {
            "view": self._view,
            "create": self._create,
            "str_replace": self._replace,
            "insert": self._insert,
            "delete": self._delete,
            "rename": self._rename,
        }
        name = command.get("command")
        if name not in known:
            raise BadInput(f"unknown command {str(name)[:40]!r}: choose one of {', '.join(known)}")
        return known[str(name)](command)

    def _view(self, command: Mapping[str, Any]) -> str:
        path = _path(command, "path")
        files = self._files()
        if path in files:
            return _numbered(path, _text(files[path]), command.get("view_range"))
        inside = {name: held for name, held in files.items() if path == ROOT or name.startswith(f"{path}/")}
        if not inside and path != ROOT:
            raise _missing(path)
        sizes = {name: len(_text(held).encode()) for name, held in inside.items()}
        lines = [f"{_size(sum(sizes.values()))}\t{path}", *(f"{_size(size)}\t{name}" for name, size in sizes.items())]
        return "\n".join([f"Here're the files and directories up to 2 levels deep in {path}:", *lines])

    def _create(self, command: Mapping[str, Any]) -> str:
        path, files = _own(command, "path"), self._files()
        if path in files or any(name.startswith(f"{path}/") for name in files):
            raise BadInput(f"Error: File {path} already exists")
        self._write(path, [], _string(command, "file_text"))
        return f"File created successfully at: {path}"

    def _replace(self, command: Mapping[str, Any]) -> str:
        path, held, text = self._opened(command)
        old, new = _string(command, "old_str"), _string(command, "new_str", is_optional=True)
        if not old or (count := text.count(old)) == 0:
            raise BadInput(f"No replacement was performed, old_str `{old}` did not appear verbatim in {path}.")
        if count > 1:
            lines = [number for number, line in enumerate(text.split("\n"), 1) if old.split("\n")[0] in line]
            raise BadInput(
                f"No replacement was performed. Multiple occurrences of old_str `{old}` in lines: {lines}."
                " Please ensure it is unique"
            )
        changed = self._write(path, held, text.replace(old, new))
        return f"The memory file has been edited.\n{_snippet(changed, text.index(old))}"

    def _insert(self, command: Mapping[str, Any]) -> str:
        path, held, text = self._opened(command)
        lines, at = text.split("\n"), command.get("insert_line")
        if not isinstance(at, int) or not 0 <= at <= len(lines):
            raise BadInput(
                f"Error: Invalid `insert_line` parameter: {at}."
                f" It should be within the range of lines of the file: [0, {len(lines)}]"
            )
        added = _string(command, "insert_text" if "insert_text" in command else "new_str").removesuffix("\n")
        self._write(path, held, "\n".join([*lines[:at], *added.split("\n"), *lines[at:]]))
        return f"The file {path} has been edited."

    def _delete(self, command: Mapping[str, Any]) -> str:
        path, files = _own(command, "path"), self._files()
        gone = [each for name, held in files.items() if name == path or name.startswith(f"{path}/") for each in held]
        if not gone:
            raise _missing(path)
        self.access.apply([Forget(memory.id) for memory in gone])
        return f"Successfully deleted {path}"

    def _rename(self, command: Mapping[str, Any]) -> str:
        old, new, files = _own(command, "old_path"), _own(command, "new_path"), self._files()
        if any(name == new or name.startswith(f"{new}/") for name in files):
            raise BadInput(f"Error: The destination {new} already exists")
        moved = {name: held for name, held in files.items() if name == old or name.startswith(f"{old}/")}
        if not moved:
            raise _missing(old)
        now = timestamps.now()
        changes = [
            _revised(memory, now, session=validation.check_name(new + name.removeprefix(old), "the path"))
            for name, held in moved.items()
            for memory in held
        ]
        self.access.apply(changes)
        return f"Successfully renamed {old} to {new}"

    def _opened(self, command: Mapping[str, Any]) -> tuple[str, list[Memory], str]:
        path = _own(command, "path")
        held = self._files().get(path)
        if held is None:
            raise _missing(path)
        return path, held, _text(held)

    def _files(self) -> dict[str, list[Memory]]:
        """The files by path, each with its memories in order."""
        shown = frozenset(Sensitivity) - {Sensitivity.PRIVATE}
        scope = replace(self.access.scope(project=self.project, sensitivities=shown), any_time=True)
        memories = self.access.store.browse(scope, sort=Sort.RECENCY, limit=_MOST)
        files: dict[str, list[Memory]] = {}
        for memory in sorted(memories, key=lambda each: (each.position or 0, each.id)):
            is_ours = memory.session is not None and memory.session.startswith(f"{ROOT}/")
            files.setdefault(str(memory.session) if is_ours else f"{OTHERS}/{memory.category}.md", []).append(memory)
        return dict(sorted(files.items()))

    def _write(self, path: str, held: Sequence[Memory], text: str) -> str:
        """Give a file another text in one journaled change; paragraphs that stay keep their memories."""
        paragraphs = [part for part in _PARAGRAPH.split(validation.clean(text, "the file")) if part.strip()]
        if not paragraphs:
            raise BadInput(f"{path} would be empty: delete it instead")
        # What was given a moment ago may wait to be noted.
        self.access.deferred_writes.flush()
        limit = self.access.settings.memory.max_characters
        pieces = [piece for part in paragraphs for piece in validation.fitting_pieces(part.strip(), limit)]
        changes, now = list[Change](), timestamps.now()
        matcher = SequenceMatcher(a=[_shown(memory) for memory in held], b=pieces, autojunk=False)
        for tag, start, end, begin, stop in matcher.get_opcodes():
            shared = min(end - start, stop - begin)
            changes += [Forget(memory.id) for memory in held[start + shared : end]]
            for offset, position in enumerate(range(begin, stop)):
                older = held[start + offset] if offset < shared else None
                changes += self._paragraph(pieces[position], path, position, older, now, is_same=tag == "equal")
        self.access.apply(changes)
        return _GAP.join(pieces)

    def _paragraph(
        self, text: str, path: str, position: int, older: Memory | None, now: Any, *, is_same: bool
    ) -> list[Change]:
        if is_same and older is not None:
            return [] if older.position == position else [_revised(older, now, position=position)]
        echo.refuse(self.access.store, text, project=self.project)
        drafted = self.access.draft(
            text, project=self.project, origin=Origin.AGENT, session=path, position=position, created_at=now
        )
        if older is None or is_secret(older) or is_secret(drafted):
            return [*([Forget(older.id)] if older else []), Add(drafted)]
        changed = replace(older, content=drafted.content, content_hash=drafted.content_hash, position=position)
        return [_revised(changed, now)]


def _revised(memory: Memory, now: Any, **changes: Any) -> Revise:
    return Revise(replace(memory, updated_at=now, **changes), base=memory.version)


def _shown(memory: Memory) -> str:
    return f"{_SECRET}{memory.content}" if is_secret(memory) else memory.content


def _text(held: Sequence[Memory]) -> str:
    return _GAP.join(map(_shown, held))


def _path(command: Mapping[str, Any], name: str) -> str:
    """A path inside the folder; anything that leads out of it is refused."""
    given = command.get(name)
    path = given.rstrip("/") if isinstance(given, str) else ""
    parts = path.split("/")
    is_inside = path == ROOT or path.startswith(f"{ROOT}/")
    if not is_inside or {"", ".", ".."} & set(parts[1:]) or "%" in path or "\\" in path or not path.isprintable():
        raise BadInput(f"Error: {name} must be a path inside {ROOT}")
    if len(path) > _LONGEST_PATH:
        raise BadInput(f"Error: {name} is longer than {_LONGEST_PATH} characters")
    return path


def _own(command: Mapping[str, Any], name: str) -> str:
    """A path that may be written."""
    path = _path(command, name)
    if path == ROOT:
        raise BadInput(f"Error: {ROOT} itself cannot be changed")
    if path == OTHERS or path.startswith(f"{OTHERS}/"):
        raise BadInput(f"Error: files in {OTHERS} are read-only: they show memories that were not written here")
    return path


def _string(command: Mapping[str, Any], name: str, *, is_optional: bool = False) -> str:
    value = command.get(name, "" if is_optional else None)
    if not isinstance(value, str):
        raise BadInput(f"Error: {name} is missing or not a text")
    return value


def _missing(path: str) -> NotFound:
    return NotFound(f"The path {path} does not exist. Please provide a valid path.")


def _numbered(path: str, text: str, view_range: Any) -> str:
    lines = text.split("\n")
    first, last = 1, len(lines)
    if isinstance(view_range, list | tuple) and len(view_range) == 2 and all(isinstance(n, int) for n in view_range):
        first, last = max(1, view_range[0]), len(lines) if view_range[1] == -1 else min(len(lines), view_range[1])
    shown = [f"{number:6}\t{lines[number - 1]}" for number in range(first, min(last, _MOST_LINES) + 1)]
    return "\n".join([f"Here's the content of {path} with line numbers:", *shown])


def _snippet(text: str, at: int) -> str:
    lines, near = text.split("\n"), text[:at].count("\n")
    first = max(0, near - _SNIPPET_LINES)
    return "\n".join(
        f"{number:6}\t{line}" for number, line in enumerate(lines[first : near + _SNIPPET_LINES + 1], first + 1)
    )


def _size(count: int) -> str:
    return f"{count / 1024:.1f}K"
