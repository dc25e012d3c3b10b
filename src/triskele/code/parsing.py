"""Parse a source file: definitions, comments, and chunks with terms per field."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from triskele.code import chunking
from triskele.code.languages import FUNCTION, HEADING, MODULE, TYPE, VALUE, grammar
from triskele.code.secrets import Span, decoded, secrets_in
from triskele.code.words import counts, term, words

if TYPE_CHECKING:
    from tree_sitter import Node

BODY, NAME, OTHER, COMMENT, HEAD = range(5)
FIELDS = 5
MAX_DEFINITIONS = 5000
MAX_SIGNATURE = 200
MAX_NAME = 200
_HEAD_LINES = 40
_LICENCE = re.compile(r"licen[sc]e|copyright|\(c\)|spdx", re.I)
_ORDER = (TYPE, FUNCTION, VALUE, HEADING, MODULE)
_IDENTIFIER = ("identifier", "type_identifier", "simple_identifier", "field_identifier", "constant", "word")
# Macros make grammars take statements for definitions.
_KEYWORDS = frozenset({"if", "for", "while", "switch", "return", "else", "do", "catch"})
# A default value may be a secret, and an index holds none.
_LITERAL = re.compile(r"([\"'`])((?:\\.|(?!\1)[^\\])*+)\1", re.S)
# If quotes do not pair, as with an apostrophe: any text between two of them.
_UNPAIRED = re.compile(r"([\"'`])[^\"'`]{8,}+\1")
_LONG_LITERAL = 8
_SIGNATURE_END = re.compile(r"[{;]|=>|:\s*$", re.M)


@dataclass(frozen=True, slots=True)
class Definition:
    """A name that a file defines, with container, kind, lines and signature."""

    name: str
    container: str
    kind: str
    start_line: int
    end_line: int
    depth: int
    signature: str

    @property
    def qualified(self) -> str:
        """The name, prefixed by the names of its containers."""
        return f"{self.container}.{self.name}" if self.container else self.name


@dataclass(frozen=True, slots=True)
class ParsedChunk:
    """A piece of a file with lines, definition and term frequencies.

    `key` names its text, so that its vector survives changes to other parts of the file.
    """

    start_line: int
    end_line: int
    symbol: int
    key: int
    fields: tuple[Mapping[int, float], ...]


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """Everything indexed of one content, with the spans of its secrets."""

    digest: bytes
    language: str
    lines: int
    secrets: tuple[Span, ...]
    definitions: tuple[Definition, ...]
    chunks: tuple[ParsedChunk, ...]


@dataclass(frozen=True, slots=True)
class _Syntax:
    """Definitions, comments and spans of a text; empty without a grammar."""

    definitions: tuple[Definition, ...] = ()
    comments: tuple[tuple[int, int], ...] = ()
    spans: tuple[tuple[int, int], ...] = ()


def digest_of(source: bytes) -> bytes:
    """The name of a content."""
    return blake2b(source, digest_size=16).digest()


def parse(source: bytes, language: str) -> ParsedFile:
    """Parse a file's bytes; broken and unknown ones still give chunks."""
    syntax = _syntax(source, language)
    starts = chunking.line_starts(source)
    spans = syntax.spans or chunking.windows(source, starts)
    return ParsedFile(
        digest_of(source),
        language,
        len(starts),
        secrets_in(decoded(source)),
        syntax.definitions,
        _chunks(source, syntax, spans, starts),
    )


def _syntax(source: bytes, language: str) -> _Syntax:
    known_grammar = grammar(language)
    if known_grammar is None:
        return _Syntax()
    root = known_grammar.parser.parse(source).root_node
    captures = known_grammar.captures(root)
    comments = sorted((node.start_byte, node.end_byte) for node in captures.get("comment", ()))
    return _Syntax(_definitions(captures, source), tuple(comments), tuple(chunking.pieces(root, source)))


def _definitions(captures: Mapping[str, list[Node]], source: bytes) -> tuple[Definition, ...]:
    kinds: dict[tuple[int, int], tuple[Node, str]] = {}
    # A node that fits several kinds is what comes last: an arrow function is a function, not a value.
    for kind in reversed(_ORDER):
        for node in captures.get(kind, ()):
            kinds[node.start_byte, -node.end_byte] = node, kind
    definitions: list[Definition] = []
    around: list[tuple[int, str, str]] = []
    for (start, _), (node, kind) in sorted(kinds.items(), key=lambda each: each[0]):
        while around and around[-1][0] <= start:
            around.pop()
        name = _name(node)
        is_local = kind == VALUE and bool(around) and around[-1][2] == FUNCTION
        if not name or is_local or _is_use(node) or len(definitions) >= MAX_DEFINITIONS:
            continue
        *scopes, name = name.replace("::", ".").split(".")
        container = ".".join([*(each[1] for each in around), *scopes])[:MAX_NAME]
        first, last = node.start_point[0] + 1, node.end_point[0] + 1
        depth = sum(1 for each in around if each[2] != MODULE)
        definitions.append(Definition(name, container, kind, first, last, depth, _signature(node, source)))
        if kind != HEADING and kind != VALUE:
            around.append((node.end_byte, name, kind))
    return tuple(definitions)


def _is_use(node: Node) -> bool:
    """Whether a node only names something, as `struct point *p` does."""
    if node.type == "variable_declarator":
        value = node.child_by_field_name("value")
        return value is not None and (value.text or b"").startswith((b"require(", b"await import("))
    return node.type.endswith("_specifier") and node.child_by_field_name("body") is None


def _name(node: Node) -> str:
    """The name that a node defines."""
    at: Node | None = node
    for _ in range(8):
        if at is None:
            return ""
        if at.child_count == 0 or at.type in ("inline", "qualified_identifier", "heading_content", "scoped_identifier"):
            break
        at = _towards_name(at)
    if at is None or at is node:
        return ""
    text = (at.text or b"").decode("utf-8", "replace").strip().split("(")[0]
    return text[:MAX_NAME] if "\n" not in text and text not in _KEYWORDS else ""


def _towards_name(node: Node) -> Node | None:
    fields = ("heading_content", "name", "declarator", "left", "property", "type")
    for field in fields:
        if (child := node.child_by_field_name(field)) is not None:
            return child
    for child in node.named_children:
        if child.type in _IDENTIFIER:
            return child
    return next(
        (child for child in node.named_children if child.type in ("object_reference", "variable_declaration")), None
    )


def _signature(node: Node, source: bytes) -> str:
    text = source[node.start_byte : min(node.end_byte, node.start_byte + MAX_SIGNATURE * 2)].decode("utf-8", "replace")
    text = _LITERAL.sub(_shortened, text)
    if any(_LITERAL.sub("", text).count(quote) for quote in "\"'`"):
        text = _UNPAIRED.sub(r"\1…\1", text)
    end = _SIGNATURE_END.search(text)
    return " ".join((text[: end.start()] if end else text.split("\n", 1)[0]).split())[:MAX_SIGNATURE]


def _shortened(literal: re.Match[str]) -> str:
    return literal[0] if len(literal[2]) < _LONG_LITERAL else f"{literal[1]}…{literal[1]}"


def _chunks(
    source: bytes, syntax: _Syntax, spans: Sequence[tuple[int, int]], starts: Sequence[int]
) -> tuple[ParsedChunk, ...]:
    lines = [(chunking.line_of(starts, start), chunking.line_of(starts, max(start, end - 1))) for start, end in spans]
    owned = _owners(lines, syntax.definitions)
    comments, head = _comments_by_chunk(source, spans, syntax.comments, starts)
    names: list[list[str]] = [[] for _ in spans]
    other_names: list[list[str]] = [[] for _ in spans]
    firsts = [first for first, _ in lines]
    for definition in syntax.definitions:
        chunk = max(bisect_right(firsts, definition.start_line) - 1, 0)
        (other_names if definition.kind in (VALUE, MODULE) else names)[chunk].append(definition.name)
    chunks = []
    for chunk, (start, end) in enumerate(spans):
        content = source[start:end].decode("utf-8", "replace")
        body = words(content)
        is_first = chunk == 0
        fields = (
            counts(body),
            counts(words(" ".join(names[chunk]))),
            counts(words(" ".join(other_names[chunk]))),
            counts(words(comments[chunk])),
            counts(words(head)) if is_first else {},
        )
        chunks.append(ParsedChunk(*lines[chunk], owned[chunk], term(content), fields))
    return tuple(chunks)


def _owners(lines: Sequence[tuple[int, int]], definitions: Sequence[Definition]) -> list[int]:
    """The definition that each chunk shows: the innermost, or the first."""
    owners: list[int] = []
    for first, last in lines:
        inside = [n for n, each in enumerate(definitions) if first <= each.start_line <= last]
        around = [n for n, each in enumerate(definitions) if each.start_line < first <= each.end_line]
        best = [n for n in inside if definitions[n].kind in (TYPE, FUNCTION)] or inside
        owners.append(best[0] if best else around[-1] if around else -1)
    return owners


def _comments_by_chunk(
    source: bytes, spans: Sequence[tuple[int, int]], comments: Sequence[tuple[int, int]], starts: Sequence[int]
) -> tuple[list[str], str]:
    """Comments of each chunk, and the file's first one besides licences."""
    by_chunk = [""] * len(spans)
    places = [start for start, _ in spans]
    head = ""
    for start, end in comments:
        text = source[start:end].decode("utf-8", "replace")
        if not head and not _LICENCE.search(text) and chunking.line_of(starts, start) <= _HEAD_LINES:
            head = text
        by_chunk[max(bisect_right(places, start) - 1, 0)] += text + "\n"
    return by_chunk, head
