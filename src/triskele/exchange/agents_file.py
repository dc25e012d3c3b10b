"""Instruction files of coding agents (CLAUDE.md, AGENTS.md): each bullet or paragraph is a memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from triskele import validation
from triskele.config import MemorySettings
from triskele.errors import BadInput
from triskele.exchange import frontmatter, sources
from triskele.exchange.blocks import Block, blocks, labels
from triskele.exchange.markdown import fitting
from triskele.exchange.records import Item, Note
from triskele.privacy.detect import is_cut
from triskele.types import Sensitivity

_FILE_NAMES = ("claude.md", "claude.local.md", "agents.md", "gemini.md")
_IMPORT = re.compile(r"\s*(?:[-*+]\s+)?@[\w~./-]+\s*$")
_BOILERPLATE = re.compile(r"this file provides guidance to .{1,200}$", re.IGNORECASE | re.DOTALL)
_TASTE = re.compile(
    r"\b(always|never|avoid|prefer|preferred|favou?r|instead of|rather than|must|should|do not|don['’]t|please"
    r"|style|conventions?|preferences?)\b",
    re.IGNORECASE,
)
_FENCE = re.compile(r"\s*(`{3,}|~{3,})")
_LONGEST_LEAD = 200


def recognises(path: Path, _head: str) -> bool:
    """A file with one of the known names."""
    return path.is_file() and path.name.lower() in _FILE_NAMES


def read(path: Path, settings: MemorySettings) -> Iterator[Item]:
    """The memories of one instruction file."""
    if path.is_dir():
        raise BadInput(f"{sources.printable(path.name)} is a folder, this format is one file")
    try:
        notes = list(parse(sources.text(path), settings))
    except BadInput as error:
        raise BadInput(f"{sources.printable(path.name)} {error}") from error
    if not notes:
        raise BadInput(f"{sources.printable(path.name)} holds no instructions")
    yield from notes


def parse(text: str, settings: MemorySettings) -> Iterator[Note]:
    """Bullets and paragraphs as notes; a line that introduces a list goes with each of its bullets."""
    _, body, first_line = frontmatter.parse(text)
    lead: Block | None = None
    waiting = False
    for block in blocks("\n".join(_instructions(body)), first_line):
        if block.is_item and lead is not None and lead.headings == block.headings:
            waiting = False
            yield from _notes(block, settings, f"{lead.text} ")
            continue
        if lead is not None and waiting:
            yield from _notes(lead, settings)
        waiting = not block.is_item and block.text.endswith(":") and len(block.text) <= _LONGEST_LEAD
        lead = block if waiting else None
        if not waiting and not _BOILERPLATE.match(block.text):
            yield from _notes(block, settings)
    if lead is not None and waiting:
        yield from _notes(lead, settings)


def _notes(block: Block, settings: MemorySettings, lead: str = "") -> Iterator[Note]:
    headings = block.headings
    if block.text.startswith(("```", "~~~")) and headings:
        lead = f"{headings[-1]}:\n"
    whole = lead + block.text
    limit = settings.max_characters
    pieces = [whole] if len(whole) <= limit else validation.split_sentences(whole, limit)
    sensitivity = Sensitivity.SECRET.value if is_cut(whole, pieces) else None
    for piece in pieces:
        yield Note(
            place=f"line {block.line}",
            content=piece,
            sensitivity=sensitivity,
            category=_category(" ".join([*headings, piece]), settings),
            tags=fitting(labels(name for name in headings if name.lower() not in _FILE_NAMES), settings),
        )


def _category(text: str, settings: MemorySettings) -> str:
    wanted = "preferences" if _TASTE.search(text.split("```", 1)[0]) else "procedures"
    return wanted if wanted in settings.categories else settings.categories[0]


def _instructions(text: str) -> Iterator[str]:
    """The lines without comments and imports, which become empty so that line numbers stay true."""
    fence, in_comment = "", False
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if not in_comment and mark:
            fence = "" if fence and mark[1].startswith(fence) else fence or mark[1]
        if fence or (mark and not in_comment):
            yield line
            continue
        kept, in_comment = _without_comment(line, in_comment)
        yield "" if _IMPORT.match(kept) else kept


def _without_comment(line: str, in_comment: bool) -> tuple[str, bool]:
    kept: list[str] = []
    while line:
        before, mark, line = line.partition("-->" if in_comment else "<!--")
        if not in_comment:
            kept.append(before)
        in_comment = in_comment != bool(mark)
    return "".join(kept), in_comment
