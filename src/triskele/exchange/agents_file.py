"""Import instruction files of coding agents: each bullet or paragraph is a memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from triskele.config import MemorySettings
from triskele.errors import BadInput
from triskele.exchange import frontmatter, sources
from triskele.exchange.markdown import FENCE, Block, blocks, fitting, labels, parted, sealed_pieces
from triskele.exchange.records import Item, Note
from triskele.privacy.detect import is_cut
from triskele.replies.rooms import Skipped
from triskele.types import Sensitivity

_FILE_NAMES = ("claude.md", "claude.local.md", "agents.md", "gemini.md")
_IMPORT = re.compile(r"\s*(?:[-*+]\s+)?@[\w~./-]+\s*$")
_BOILERPLATE = re.compile(r"this file provides guidance to .{1,200}$", re.IGNORECASE | re.DOTALL)
_TASTE = re.compile(
    r"\b(always|never|avoid|prefer|preferred|favou?r|instead of|rather than|must|should|do not|don['’]t|please"
    r"|style|conventions?|preferences?)\b",
    re.IGNORECASE,
)
_LESSON = re.compile(r"\b(gotcha|pitfall|beware|watch out|careful|lesson|learned|caveat)s?\b", re.IGNORECASE)
_DECISION = re.compile(r"\b(we|it was) (decided|chose|agreed|picked|settled)\b|\bdecision:", re.IGNORECASE)
# A command, or a sentence that begins with what to do.
_STEP = re.compile(
    r"^(?:[\w ]{1,30}: )?`[^`]+`|^(?:to \w+|run|use|install|build|test|start|stop|deploy|release|format|lint|check"
    r"|create|add|update|commit|push|call|copy|set|open|regenerate|generate|restart|execute|write|read|before|after|when)\b",
    re.IGNORECASE,
)
_HEADINGS = {
    kind: re.compile(rf"\b(?:{words})", re.IGNORECASE)
    for kind, words in {
        "lessons": "gotcha|pitfall|lesson|caveat|known issue|troubleshoot|watch out",
        "decisions": "decision",
        "people": "people|team|contact|who",
        "preferences": "style|convention|preference|rule|guideline|don.t|principle",
        "procedures": "command|build|test|deploy|workflow|how to|setup|set up|install|release|run|develop|usage",
    }.items()
}
_LONGEST_LEAD = 200


def recognises(path: Path, _head: str) -> bool:
    """A file with one of the known names."""
    return path.is_file() and path.name.lower() in _FILE_NAMES


def read(path: Path, settings: MemorySettings) -> Iterator[Item]:
    """The memories of one instruction file."""
    with sources.single_file(path):
        notes = list(parse(sources.text(path), settings))
    if not any(isinstance(note, Note) for note in notes):
        raise BadInput(f"{sources.printable(path.name)} holds no instructions")
    yield from notes


def parse(text: str, settings: MemorySettings) -> Iterator[Note | Skipped]:
    """The notes of a text, and what is left out."""
    items = list(_parsed(text, settings))
    notes = [item for item in items if isinstance(item, Note)]
    # Comments are left out: a secret in one does not seal the rest.
    whole = "\n".join(item.content for item in notes)
    sealed = iter(sealed_pieces(whole, [(item.content, item.details["sensitivity"] is not None) for item in notes]))
    for item in items:
        is_sealed = isinstance(item, Note) and next(sealed)
        yield item.with_details(sensitivity=Sensitivity.SECRET) if isinstance(item, Note) and is_sealed else item


def _parsed(text: str, settings: MemorySettings) -> Iterator[Note | Skipped]:
    """Bullets and paragraphs as notes; list introductions go with each bullet."""
    _, body, first_line = frontmatter.parse(text)
    for number, line in enumerate(body.split("\n"), first_line):
        if _IMPORT.match(line):
            yield Skipped(f"line {number}", f"refers to another file ({line.strip()[:80]}): import that file itself")
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
        if not waiting and _BOILERPLATE.match(block.text):
            yield Skipped(f"line {block.line}", "is the introduction that every such file has")
        elif not waiting:
            yield from _notes(block, settings)
    if lead is not None and waiting:
        yield from _notes(lead, settings)


def _notes(block: Block, settings: MemorySettings, lead: str = "") -> Iterator[Note]:
    headings = block.headings
    if block.text.startswith(("```", "~~~")) and headings:
        lead = f"{headings[-1]}:\n"
    whole = lead + block.text
    limit = settings.max_characters
    pieces = [(line, lead + text, secret) for line, text, secret in parted(block, limit - len(lead), lead.strip())]
    is_any_cut = is_cut(whole, [piece for _, piece, _ in pieces])
    for line, piece, is_secret in pieces:
        details = {
            "sensitivity": Sensitivity.SECRET if is_secret or is_any_cut else None,
            "category": category_of(piece, headings, settings),
            "tags": fitting(labels(name for name in headings if name.lower() not in _FILE_NAMES)),
        }
        yield Note(location=f"line {line}", content=piece, details=details)


def category_of(text: str, headings: Sequence[str], settings: MemorySettings) -> str:
    """The category of an instruction, by its words and heading."""
    under = next((kind for name in reversed(headings) for kind, words in _HEADINGS.items() if words.search(name)), "")
    prose = text.split("```", 1)[0]
    if under in ("lessons", "decisions", "people"):
        wanted = under
    elif _LESSON.search(prose):
        wanted = "lessons"
    elif _DECISION.search(prose):
        wanted = "decisions"
    elif _TASTE.search(prose) or under == "preferences":
        wanted = "preferences"
    elif _STEP.search(prose) or "```" in text or under == "procedures":
        wanted = "procedures"
    else:
        wanted = "facts"
    return wanted if wanted in settings.categories else settings.categories[0]


def _instructions(text: str) -> Iterator[str]:
    """The lines, with comments and imports blanked."""
    fence, in_comment = "", False
    for line in text.split("\n"):
        mark = FENCE.match(line)
        if not in_comment and mark:
            fence = "" if fence and mark[1].startswith(fence) else fence or mark[1]
        if fence or (mark and not in_comment):
            yield line
            continue
        shown, in_comment = _without_comment(line, in_comment)
        yield "" if _IMPORT.match(shown) else shown


def _without_comment(line: str, in_comment: bool) -> tuple[str, bool]:
    outside: list[str] = []
    while line:
        before, mark, line = line.partition("-->" if in_comment else "<!--")
        if not in_comment:
            outside.append(before)
        in_comment = in_comment != bool(mark)
    return "".join(outside), in_comment
