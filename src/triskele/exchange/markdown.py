"""Markdown notes: a file is a memory, or several when it says more than one memory may hold."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from triskele import validation
from triskele.base import timestamps
from triskele.config import MemorySettings
from triskele.errors import BadInput
from triskele.exchange import frontmatter, sources
from triskele.exchange.blocks import Block, blocks, labels
from triskele.exchange.frontmatter import Value
from triskele.exchange.json_text import shown
from triskele.exchange.records import Item, Note, Problem, Skipped
from triskele.privacy.detect import is_cut
from triskele.types import Memory, Sensitivity

SUFFIXES = (".md", ".markdown")
_SLUG_CHARACTERS = 48
_NAMES = {"date": "created", "created_at": "created", "updated_at": "updated", "modified": "updated", "tag": "tags"}
_TEXTS = ("sensitivity", "session", "created", "updated", "valid_from", "valid_to")


def recognises(path: Path, _head: str) -> bool:
    """A folder, or a file with a Markdown ending."""
    return path.is_dir() or path.name.lower().endswith(SUFFIXES)


def read(path: Path, settings: MemorySettings) -> Iterator[Item]:
    """The notes of a file, or of every Markdown file in a folder."""
    found, skipped = sources.files(path, SUFFIXES) if path.is_dir() else ([path], [])
    yield from skipped
    if not found:
        raise BadInput(f"no Markdown files in {sources.printable(path.name)}")
    is_empty = True
    for file in found:
        place = sources.place(file, path)
        try:
            items: list[Item] = list(parse(sources.text(file), place, file.stem, settings))
        except BadInput as error:
            items = [Problem(place, str(error))]
        is_empty = is_empty and not items
        yield from items or [Skipped(place, "is empty")]
    if is_empty:
        raise BadInput(f"{sources.printable(path.name)} holds no text")


def parse(text: str, place: str, stem: str, settings: MemorySettings) -> Iterator[Note]:
    """The memories that one file holds."""
    head, body, first_line = frontmatter.parse(text)
    values = {_NAMES.get(name, name): value for name, value in head.items()}
    first_line += body[: len(body) - len(body.lstrip())].count("\n")
    body = body.strip()
    title = _text(values.get("title", "")).strip()
    whole = f"{title}\n\n{body}".strip() if title.lower() not in body.lower() else body
    if not whole:
        return
    details = _details(values, whole, stem, settings)
    if len(whole) <= settings.max_characters:
        yield Note(place=place, content=whole, **details)
        return
    pieces = list(_pieces(body, first_line, settings.max_characters))
    details |= _class_of_pieces(whole, [piece for _, _, piece in pieces], details)
    for line, headings, piece in pieces:
        tags = fitting((*details["tags"], *labels([title, *headings])), settings)
        yield Note(place=f"{place} line {line}", content=piece, **(details | {"tags": tags}))


def _class_of_pieces(whole: str, pieces: Sequence[str], details: Mapping[str, Any]) -> dict[str, str]:
    """A secret that a cut goes through would be known by none of its pieces, so that all of them are secret."""
    is_decided = details.get("sensitivity") == Sensitivity.OPEN
    return {"sensitivity": Sensitivity.SECRET.value} if not is_decided and is_cut(whole, pieces) else {}


def fitting(tags: tuple[str, ...], settings: MemorySettings) -> tuple[str, ...]:
    """As many of the tags, first ones first, as a memory may carry."""
    kept: list[str] = []
    for tag in tags:
        if len(", ".join([*kept, tag])) <= settings.max_label_characters:
            kept.append(tag)
    return tuple(kept)


def file_of(memory: Memory) -> tuple[str, str]:
    """The name and the text of the file that tells a memory."""
    values: dict[str, str | float | tuple[str, ...]] = {"id": memory.id, "category": memory.category}
    values |= {"tags": memory.tags} if memory.tags else {}
    values |= {"keywords": memory.keywords} if memory.keywords else {}
    values |= {"importance": memory.importance, "project": memory.project}
    values |= {"sensitivity": memory.sensitivity.value} if memory.sensitivity is not Sensitivity.OPEN else {}
    values |= {"session": memory.session} if memory.session is not None else {}
    values |= {"position": memory.position} if memory.position is not None else {}
    values |= {"created": timestamps.to_text(memory.created_at), "updated": timestamps.to_text(memory.updated_at)}
    values |= {"valid_from": timestamps.to_text(memory.valid_from)} if memory.valid_from else {}
    values |= {"valid_to": timestamps.to_text(memory.valid_to)} if memory.valid_to else {}
    name = f"{_slug(memory.category) or 'memories'}/{'-'.join(filter(None, [_slug(memory.content), memory.id]))}.md"
    return name, f"{frontmatter.write(values)}\n{memory.content}\n"


def _details(values: dict[str, Value], body: str, stem: str, settings: MemorySettings) -> dict[str, Any]:
    tags = _list(values.get("tags", ""))
    if "id" not in values:
        tags = tuple(tag.lstrip("#") for tag in tags)
    usual = "facts" if "facts" in settings.categories else settings.categories[0]
    category = _text(values.get("category", "")).strip().lower() or usual
    if category not in settings.categories:
        # Other programs' categories are free words; as a tag the word is not lost.
        tags, category = (*tags, category), usual
    details: dict[str, Any] = {"tags": tags, "category": category, "keywords": _keywords(values, body, stem)}
    details |= {name: _text(values[name]) for name in _TEXTS if values.get(name)}
    details |= {"project": _text(values["project"])} if "project" in values else {}
    details |= {"importance": _number(values["importance"])} if values.get("importance") else {}
    details |= {"position": _whole(values["position"])} if values.get("position") else {}
    return details


def _keywords(values: dict[str, Value], body: str, stem: str) -> str:
    """The keywords given; without any, the file's name helps to find what the text does not repeat."""
    given = " ".join(_text(values.get(name, ""), " ") for name in ("keywords", "aliases")).strip()
    name = re.sub(r"[-_\s]+", " ", stem).strip()
    if given or "id" in values or name.lower() in body.lower():
        return given
    return name


def _pieces(body: str, first_line: int, limit: int) -> Iterator[tuple[int, tuple[str, ...], str]]:
    """Sections where they fit, else their blocks, else sentences."""
    for headings, group in groupby(blocks(body, first_line), key=lambda block: block.headings):
        section = list(group)
        whole = "\n".join(_as_written(block) for block in section).strip()
        if len(whole) <= limit:
            yield section[0].line, headings, whole
            continue
        for block in section:
            for piece in [block.text] if len(block.text) <= limit else validation.split_sentences(block.text, limit):
                yield block.line, headings, piece


def _as_written(block: Block) -> str:
    return f"- {block.text}" if block.is_item else f"{block.text}\n"


def _text(value: Value, separator: str = ", ") -> str:
    return value if isinstance(value, str) else separator.join(value)


def _list(value: Value) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    return tuple(part.strip() for part in parts if part.strip())


def _number(value: Value) -> float:
    try:
        return float(_text(value))
    except ValueError:
        raise BadInput(f"{shown(_text(value))} is not a number") from None


def _whole(value: Value) -> int:
    try:
        return int(_text(value))
    except ValueError:
        raise BadInput(f"{shown(_text(value))} is not a whole number") from None


def _slug(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text[:200]).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain)[:_SLUG_CHARACTERS].strip("-")
