"""A Markdown text as the pieces that a reader sees: paragraphs and list items, each under its headings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

_HEADING = re.compile(r"(#{1,6})\s+(\S.*)$")
_ITEM = re.compile(r"(\s*)(?:[-*+]|\d{1,9}[.)])\s+(\S.*)$")
_FENCE = re.compile(r"\s*(`{3,}|~{3,})")
_RULE = re.compile(r"\s*([-*_=])(?:\s*\1){2,}\s*$")
_MARKUP = re.compile(r"[*`_#\[\]]+|\(https?://[^)]*\)")
_LONGEST_HEADING = 300
_LONGEST_LABEL = 60


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph or list item with the code that follows it."""

    line: int
    headings: tuple[str, ...]
    text: str
    is_item: bool


@dataclass(slots=True)
class _Open:
    """The block that is being read."""

    line: int
    indent: int
    is_item: bool
    lines: list[str] = field(default_factory=list)
    fence: str = ""
    after_blank: bool = False


def blocks(text: str, first_line: int = 1) -> Iterator[Block]:
    """The blocks of a text in order."""
    headings: dict[int, str] = {}
    current: _Open | None = None
    for number, line in enumerate(text.split("\n"), first_line):
        if current is not None and _continues(current, line):
            continue
        heading = _HEADING.match(line)
        if not line.strip() or _RULE.match(line):
            continue
        if current is not None:
            yield _closed(current, headings)
        current = None if heading else _opened(number, line)
        if heading:
            level, name = len(heading[1]), heading[2].rstrip().rstrip("#").rstrip()
            headings = {depth: kept for depth, kept in headings.items() if depth < level} | {level: name}
    if current is not None:
        yield _closed(current, headings)


def labels(headings: Iterable[str]) -> tuple[str, ...]:
    """Headings as tags: without markup, not too long."""
    plain = (
        " ".join(_MARKUP.sub(" ", heading[:_LONGEST_HEADING]).split())[:_LONGEST_LABEL].strip() for heading in headings
    )
    return tuple(label for label in plain if label)


def _continues(block: _Open, line: str) -> bool:
    """Take a line into the block, if it is one of its own."""
    if block.fence:
        block.lines.append(line)
        mark = line.strip()
        if mark.startswith(block.fence) and not mark.strip(block.fence[0]):
            block.fence, block.after_blank = "", True
        return True
    if fence := _FENCE.match(line):
        # Code belongs to the words before it, across a blank line too.
        block.fence = fence[1]
        block.lines.append(line)
        return True
    if not line.strip() or _RULE.match(line):
        block.after_blank = True
        return False
    return not _HEADING.match(line) and _takes_in(block, line)


def _takes_in(block: _Open, line: str) -> bool:
    is_inside = block.is_item and len(line) - len(line.lstrip()) > block.indent
    if not is_inside and (block.after_blank or _ITEM.match(line)):
        return False
    if block.after_blank:
        block.lines.append("")
    block.after_blank = False
    block.lines.append(line[block.indent :] if is_inside else line)
    return True


def _opened(number: int, line: str) -> _Open:
    item = _ITEM.match(line)
    if item:
        return _Open(number, len(item[1]), True, [item[2]])
    block = _Open(number, len(line) - len(line.lstrip()), False)
    if not _continues(block, line):
        block.lines.append(line)
    return block


def _closed(block: _Open, headings: dict[int, str]) -> Block:
    return Block(block.line, tuple(headings.values()), "\n".join(block.lines).strip(), block.is_item)
