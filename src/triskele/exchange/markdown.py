"""Import and export Markdown and plain text notes: a memory for a file, its sections or its listed facts.

Headings become titles and tags, and links between notes become links between memories.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from typing import Any, TypeVar

from triskele import validation
from triskele.config import MemorySettings
from triskele.errors import BadInput
from triskele.exchange import frontmatter, sources
from triskele.exchange.frontmatter import Value
from triskele.exchange.json_text import shown
from triskele.exchange.records import Item, NamedLink, Note
from triskele.privacy.detect import find, is_cut
from triskele.replies.rooms import Problem, Skipped
from triskele.store.rows import LATER_COLUMNS
from triskele.text import timestamps
from triskele.types import Memory, Sensitivity

_Number = TypeVar("_Number", int, float)

PLAIN = ".txt"
SUFFIXES = (".md", ".markdown", PLAIN)
_SLUG_CHARACTERS = 48
_NAMES = {
    **dict.fromkeys(("date", "created"), "created_at"),
    **dict.fromkeys(("modified", "updated"), "updated_at"),
    "tag": "tags",
}
_HEADING = re.compile(r"(#{1,6})\s+(\S.*)$")
_HASHES = re.compile(r"^#{1,6}\s+", re.MULTILINE)
_ITEM = re.compile(r"(\s*)(?:[-*+]|\d{1,9}[.)])\s+(\S.*)$")
FENCE = re.compile(r"\s*(`{3,}|~{3,})")
_RULE = re.compile(r"\s*([-*_=])(?:\s*\1){2,}\s*$")
_MARKUP = re.compile(r"[*`_#\[\]]+|\(https?://[^)]*\)")
_WIKILINK = re.compile(r"!?\[\[([^\[\]|#^\n]{1,200})(?:[#^]([^\[\]|\n]{0,200}))?(?:\|([^\[\]\n]{1,200}))?\]\]")
_NOTE_LINK = re.compile(r"\[([^\[\]\n]{1,200})\]\((?!\w+:)([^()\s#]{1,200}\.(?:md|markdown))(?:#[^()\s]*)?\)")
# Where a line of a paragraph ends a statement, or is one by itself.
_STATED = re.compile(r"[.!?;:]\s*$")
_FIELD = re.compile(r"\s*(?:[-*+]\s+)?\w[\w .()/-]{0,40}[:=]\s*\S")
_TASK = re.compile(r"\[[ xX]\]\s")
# Fewer words are a name or a label.
_FACT_WORDS = 4
_LONGEST_HEADING = 300
_LONGEST_LABEL = 60
_TEXTS = ("sensitivity", "session", "created_at", "updated_at", "valid_from", "valid_to")
# The names in the head of a file, by field, in the order of the head.
_WRITTEN = {
    **{name: name for name in "id category tags keywords importance project sensitivity session position".split()},
    **{name: name for name in LATER_COLUMNS},
    "created_at": "created",
    "updated_at": "updated",
    "valid_from": "valid_from",
    "valid_to": "valid_to",
}
_USUAL = {("keywords", ""), ("sensitivity", Sensitivity.OPEN)}


def recognises(path: Path, _head: str) -> bool:
    """A folder, or a file that ends as Markdown or plain text does."""
    return path.is_dir() or path.name.lower().endswith(SUFFIXES)


def read(path: Path, settings: MemorySettings) -> Iterator[Item]:
    """The notes of a file, or of every Markdown and text file in a folder."""
    files, skipped = sources.files(path, SUFFIXES) if path.is_dir() else ([path], [])
    yield from skipped
    if not files:
        raise BadInput(f"no Markdown or text files in {sources.printable(path.name)}")
    is_empty = True
    for file in files:
        location = sources.location(file, path)
        try:
            reader = parse_plain if file.name.lower().endswith(PLAIN) else parse
            items: list[Item] = list(reader(sources.text(file), location, file.stem, settings))
        except BadInput as error:
            items = [Problem(location, str(error))]
        is_empty = is_empty and not items
        yield from items or [Skipped(location, "is empty")]
    if is_empty:
        raise BadInput(f"{sources.printable(path.name)} holds no text")


def parse_plain(text: str, location: str, stem: str, settings: MemorySettings) -> Iterator[Item]:
    """The memories of a text without markup: one for each paragraph or list item."""
    limit = settings.max_characters
    pieces = [part for block in blocks(text) for part in parted(block, limit)]
    details = _details({}, text, stem, settings)
    sealed = sealed_pieces(text, [(piece, holds_secret) for _, piece, holds_secret in pieces])
    for (line, piece, _), is_secret in zip(pieces, sealed, strict=True):
        yield Note(location=f"{location} line {line}", content=piece, details=_classed(details, is_secret))


def parse(text: str, location: str, stem: str, settings: MemorySettings) -> Iterator[Item]:
    """The memories that one file holds, and its links to other notes."""
    head, body, first_line = frontmatter.parse(text)
    values = {_NAMES.get(name, name): value for name, value in head.items()}
    first_line += body[: len(body) - len(body.lstrip())].count("\n")
    body = body.strip()
    title = _text(values.get("title", "")).strip()
    whole = f"{title}\n\n{body}".strip() if title.lower() not in body.lower() else body
    if not whole:
        return
    details = _details(values, whole, stem, settings)
    if "id" in values and len(whole) <= settings.max_characters:
        # triskele's own exports are read back word for word.
        yield Note(location=location, content=whole, details=details)
        return
    limit = settings.max_characters
    pieces = list(_pieces(body, first_line, limit))
    if not pieces:
        # A note that has only headings keeps them as its text.
        bare = validation.fitting_pieces(_HASHES.sub("", whole).strip(), limit)
        pieces = [(first_line, (), piece, False) for piece in bare if piece]
    sealed = sealed_pieces(whole, [(piece, holds_secret) for _, _, piece, holds_secret in pieces])
    for number, (line, headings, piece, _) in enumerate(pieces):
        tags = fitting((*details["tags"], *labels([title, *headings] if len(pieces) > 1 else ())))
        name = f"{stem.lower()}#{number}" if number else stem.lower()
        text, targets = _linked(_titled(piece, [title, *headings], limit))
        where = f"{location} line {line}" if len(pieces) > 1 else location
        yield Note(location=where, content=text, details=_classed(details, sealed[number]) | {"tags": tags}, name=name)
        yield from (NamedLink(name, target) for target in targets)


def _titled(piece: str, headings: Sequence[str], limit: int) -> str:
    """A piece with its nearest heading, unless it already contains the heading."""
    [*_, title] = ["", *labels(headings)]
    is_new = title and title.lower() not in piece.lower()
    titled = f"{title}\n\n{piece}" if is_new else piece
    return titled if len(titled) <= limit else piece


def _linked(text: str) -> tuple[str, list[str]]:
    """A text with the names of other notes instead of links to them, and the notes that it links to."""
    targets: list[str] = []

    def named(target: str, shown_as: str) -> str:
        targets.append(target.strip().replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".md").lower())
        return shown_as.strip()

    text = _WIKILINK.sub(lambda found: named(found[1], _shown_link(*found.groups())), text)
    text = _NOTE_LINK.sub(lambda found: named(found[2], found[1]), text)
    return text, list(dict.fromkeys(targets))


def _shown_link(target: str, heading: str | None, alias: str | None) -> str:
    """A wikilink as text; an alias keeps the name of its target, because people search for it."""
    name = target.rsplit("/", 1)[-1]
    if alias:
        return alias if name.casefold() in alias.casefold() else f"{alias} ({name})"
    return f"{name}: {heading}" if heading else name


def sealed_pieces(whole: str, pieces: Sequence[tuple[str, bool]]) -> list[bool]:
    """Which pieces of a text are secret, from the pieces and whether each is known to hold a secret.

    A piece whose secret only the rest of the text reveals, such as a key next to its id, is secret too; all are if a
    cut divides a secret, because no piece would be recognised.
    """
    flags = [holds_secret for _, holds_secret in pieces]
    findings = find(whole)
    if findings and is_cut(whole, [piece for piece, _ in pieces]):
        return [True] * len(flags)
    for value in dict.fromkeys(whole[each.start : each.end] for each in findings):
        positions = [position for position, (piece, _) in enumerate(pieces) if value in piece]
        if not any(flags[position] or find(pieces[position][0]) for position in positions):
            flags = [flag or position in positions for position, flag in enumerate(flags)]
    return flags


def _classed(details: dict[str, Any], is_secret: bool) -> dict[str, Any]:
    """The details of a piece; a file that is open by its own word stays open."""
    is_decided = details.get("sensitivity") == Sensitivity.OPEN
    return details | ({"sensitivity": Sensitivity.SECRET} if is_secret and not is_decided else {})


def fitting(tags: tuple[str, ...]) -> tuple[str, ...]:
    """The first tags, as many as a memory may have."""
    fitted: list[str] = []
    for tag in tags:
        if len(", ".join([*fitted, tag])) <= validation.MAX_LABEL_CHARACTERS:
            fitted.append(tag)
    return tuple(fitted)


def file_of(memory: Memory) -> tuple[str, str]:
    """The name and the text of a memory's file."""
    head = {name: _plain(getattr(memory, field)) for field, name in _WRITTEN.items() if _is_written(memory, field)}
    name = f"{_slug(memory.category) or 'memories'}/{'-'.join(filter(None, [_slug(memory.content), memory.id]))}.md"
    return name, f"{frontmatter.write(head)}\n{memory.content}\n"


def _plain(value: Any) -> Any:
    return timestamps.to_text(value) if isinstance(value, datetime) else value


def _is_written(memory: Memory, field: str) -> bool:
    """Whether the head of a file names a field: not if it is empty or as usual."""
    value = getattr(memory, field)
    return value is not None and value != () and (field, value) not in _USUAL


def _details(values: dict[str, Value], body: str, stem: str, settings: MemorySettings) -> dict[str, Any]:
    tags = _list(values.get("tags", ""))
    if "id" not in values:
        tags = tuple(tag.lstrip("#") for tag in tags)
    usual = validation.usual_category(settings)
    category = _text(values.get("category", "")).strip().lower() or usual
    if category not in settings.categories:
        # A category of another program is kept as a tag.
        tags, category = (*tags, category), usual
    details: dict[str, Any] = {"tags": tags, "category": category, "keywords": _keywords(values, body, stem)}
    details |= {name: _text(values[name]) for name in _TEXTS if values.get(name)}
    if "id" in values:
        # Elsewhere a role is a job or a duty.
        details |= {name: _text(values[name]) for name in LATER_COLUMNS if values.get(name)}
    details |= {"project": _text(values["project"])} if "project" in values else {}
    details |= {"importance": _number(values["importance"], float, "number")} if values.get("importance") else {}
    details |= {"position": _number(values["position"], int, "whole number")} if values.get("position") else {}
    return details


def _keywords(values: dict[str, Value], body: str, stem: str) -> str:
    """The given keywords; without any, the file's name if the text does not contain it."""
    keywords = " ".join(_text(values.get(name, ""), " ") for name in ("keywords", "aliases")).strip()
    name = re.sub(r"[-_\s]+", " ", stem).strip()
    if keywords or "id" in values or name.lower() in body.lower():
        return keywords
    return name


def _pieces(body: str, first_line: int, limit: int) -> Iterator[tuple[int, tuple[str, ...], str, bool]]:
    """Sections if they fit, else their blocks, else sentences; listed facts and secrets are separate pieces."""
    for headings, group in groupby(blocks(body, first_line), key=lambda block: block.headings):
        section, context = list(group), "".join(f"# {name}\n" for name in headings[-1:])
        for run, holds_secret in _runs([block.text for block in section], context):
            together = [section[position] for position in run]
            for chosen in [together] if holds_secret else _apart(together):
                whole = "\n".join(f"- {each.text}" if each.is_item else f"{each.text}\n" for each in chosen).strip()
                if len(chosen) == 1 and chosen[0].is_item and not holds_secret:
                    whole = chosen[0].text
                is_divisible = holds_secret and len(chosen) == 1
                if len(whole) <= limit and not is_divisible:
                    yield chosen[0].line, headings, whole, holds_secret
                    continue
                for block in chosen:
                    for line, piece, is_secret in parted(block, limit, context):
                        yield line, headings, piece, is_secret or (holds_secret and not is_divisible)


def _apart(section: Sequence[Block]) -> Iterator[list[Block]]:
    """Blocks that belong together: an item of a list of facts is a separate block, everything else stays as written."""
    together: list[Block] = []
    for is_item, group in groupby(section, key=lambda block: block.is_item):
        listed = list(group)
        # What introduces a list says what its items are about.
        is_introduced = bool(together) and together[-1].text.rstrip().endswith(":")
        if is_item and not is_introduced and _are_facts(listed):
            yield from [together] if together else []
            yield from ([block] for block in listed)
            together = []
        else:
            together += listed
    yield from [together] if together else []


def _are_facts(items: Sequence[Block]) -> bool:
    """Whether every item of a list is a statement: steps, tasks and single words mean something together only."""
    plain = (block.text.split("\n", 1)[0] for block in items)
    is_long = all(len(text.split()) >= _FACT_WORDS and not _TASK.match(text) for text in plain)
    return len(items) > 1 and is_long and not any(block.is_numbered for block in items)


def parted(block: Block, limit: int, context: str = "") -> Iterator[tuple[int, str, bool]]:
    """A block divided around its secrets and into pieces that fit: the line, the piece, whether it holds a secret.

    `context` is the text before the block: words there may show that a value is a secret.
    """
    text = block.text
    parts = [text] if "```" in text or "~~~" in text else _statements(text)
    for run, holds_secret in _runs(parts, context):
        line = block.line + sum(part.count("\n") + 1 for part in parts[: run[0]])
        for piece in validation.fitting_pieces("\n".join(parts[position] for position in run), limit):
            yield line, piece, holds_secret


def _statements(text: str) -> list[str]:
    """The lines of a block; lines of one wrapped sentence stay together."""
    lines = text.split("\n")
    statements = lines[:1]
    for last, line in pairwise(lines):
        if _STATED.search(last) or _FIELD.match(last) or _FIELD.match(line) or _ITEM.match(line):
            statements.append(line)
        else:
            statements[-1] += f"\n{line}"
    return statements


def _runs(parts: Sequence[str], context: str) -> list[tuple[list[int], bool]]:
    """The positions of parts that belong together, with whether they hold a secret.

    Parts that share a secret stay together, and a line that introduces one ("Login:") goes with it.
    """
    starts = list(accumulate((len(part) + 1 for part in parts), initial=len(context) + 1))
    owners = [0] * len(parts)
    for number, finding in enumerate(find("\n".join((context, *parts))), 1):
        spans = enumerate(zip(starts, map(len, parts), strict=False))
        held = [at for at, (begin, size) in spans if finding.start < begin + size and begin < finding.end]
        owner = next((owners[position] for position in held if owners[position]), number)
        for position in held:
            owners[position] = owner
    for position in reversed(range(len(parts) - 1)):
        if not owners[position] and owners[position + 1] and parts[position].rstrip().endswith(":"):
            owners[position] = owners[position + 1]
    return [(list(run), bool(owner)) for owner, run in groupby(range(len(parts)), key=owners.__getitem__)]


def _text(value: Value, separator: str = ", ") -> str:
    return value if isinstance(value, str) else separator.join(value)


def _list(value: Value) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    return tuple(part.strip() for part in parts if part.strip())


def _number(value: Value, kind: type[_Number], what: str) -> _Number:
    try:
        return kind(_text(value))
    except ValueError:
        raise BadInput(f"{shown(_text(value))} is not a {what}") from None


def _slug(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text[:200]).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain)[:_SLUG_CHARACTERS].strip("-")


@dataclass(slots=True)
class Block:
    """A paragraph or list item with the code that follows it."""

    line: int
    headings: tuple[str, ...]
    indent: int
    is_item: bool = False
    is_numbered: bool = False
    lines: list[str] = field(default_factory=list)
    fence: str = ""
    after_blank: bool = False

    @property
    def text(self) -> str:
        """Its lines, without those that are blank at the ends."""
        return "\n".join(self.lines).strip()

    def takes(self, line: str) -> bool:
        """Add the next line of the text if it continues the block."""
        if self.fence:
            self.lines.append(line)
            mark = line.strip()
            if mark.startswith(self.fence) and not mark.strip(self.fence[0]):
                self.fence, self.after_blank = "", True
            return True
        if fence := FENCE.match(line):
            # Code belongs to the text before it, across a blank line too.
            self.fence = fence[1]
            self.lines.append(line)
            return True
        if not line.strip() or _RULE.match(line):
            self.after_blank = True
            return False
        return not _HEADING.match(line) and self._takes_text(line)

    def _takes_text(self, line: str) -> bool:
        is_inside = self.is_item and len(line) - len(line.lstrip()) > self.indent
        if not is_inside and (self.after_blank or _ITEM.match(line)):
            return False
        if self.after_blank:
            self.lines.append("")
        self.after_blank = False
        self.lines.append(line[self.indent :] if is_inside else line)
        return True


def blocks(text: str, first_line: int = 1) -> Iterator[Block]:
    """The blocks of a text in order."""
    headings: dict[int, str] = {}
    block: Block | None = None
    for number, line in enumerate(text.split("\n"), first_line):
        if (block is not None and block.takes(line)) or not line.strip() or _RULE.match(line):
            continue
        if block is not None:
            yield block
        if heading := _HEADING.match(line):
            level, name = len(heading[1]), heading[2].rstrip().rstrip("#").rstrip()
            headings = {depth: title for depth, title in headings.items() if depth < level} | {level: name}
            block = None
        else:
            block = _begun(line, number, tuple(headings.values()))
    if block is not None:
        yield block


def _begun(line: str, number: int, headings: tuple[str, ...]) -> Block:
    if item := _ITEM.match(line):
        return Block(number, headings, len(item[1]), True, line.lstrip()[0].isdigit(), [item[2]])
    block = Block(number, headings, len(line) - len(line.lstrip()))
    block.takes(line)
    return block


def labels(headings: Iterable[str]) -> tuple[str, ...]:
    """Headings as tags, without markup and shortened."""
    plain = (
        " ".join(_MARKUP.sub(" ", heading[:_LONGEST_HEADING]).split())[:_LONGEST_LABEL].strip() for heading in headings
    )
    return tuple(label for label in plain if label)
