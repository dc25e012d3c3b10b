"""Find where names are defined, used and mentioned."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from triskele.code import words
from triskele.code.corpus import CodeCorpus
from triskele.code.languages import HEADING, MODULE, grammar
from triskele.code.parsing import Definition
from triskele.code.question import split_symbol
from triskele.code.walk import read

MAX_DEFINITIONS = 50
MAX_REFERENCES = 100
MAX_SCANNED = 300
MAX_LINE = 200
# Languages that call each other's names.
_FAMILIES = ({"javascript", "typescript", "tsx", "vue", "svelte"}, {"c", "cpp", "objc"}, {"java", "kotlin", "scala"})
_MENTION = re.compile(
    r"`([^`\s]{2,100})`|\b([A-Za-z_]\w*(?:(?:\.|::)[A-Za-z_]\w*)+|[a-z]+[A-Z]\w*|[A-Z]\w*[a-z]\w*[A-Z]\w*|\w+_\w+)\b"
)


@dataclass(frozen=True, slots=True)
class Located:
    """A definition and the file that has it."""

    path: str
    definition: Definition


@dataclass(frozen=True, slots=True)
class Reference:
    """A place where a name is used, and its line."""

    path: str
    line: int
    text: str


def find_definitions(corpus: CodeCorpus, symbol: str, under: str = "") -> list[Located]:
    """Definitions of a name: exact spelling first, then outer ones."""
    name, container = split_symbol(symbol)
    ranked: list[tuple[tuple[bool, int, str, int], Located]] = []
    for position in corpus.by_name.get(words.whole(name), ()):
        definition = corpus.definitions[position]
        if definition.kind == HEADING or (container and not _is_in(definition, container)):
            continue
        nearness = definition.name != name, definition.depth + (definition.kind == MODULE)
        for row in corpus.files_of.get(int(corpus.definition_content[position]), ()):
            path = corpus.paths[row]
            if path.startswith(under):
                ranked.append(((*nearness, path, definition.start_line), Located(path, definition)))
    return [definition for _, definition in sorted(ranked, key=lambda pair: pair[0])[:MAX_DEFINITIONS]]


def _is_in(each: Definition, container: str) -> bool:
    return each.container.rsplit(".", 1)[-1].lower() == container.lower()


def find_references(root: Path, corpus: CodeCorpus, symbol: str, definitions: list[Located]) -> list[Reference]:
    """Uses of a name as identifier in languages that can see it."""
    name, _ = split_symbol(symbol)
    spelled = definitions[0].definition.name if definitions else name
    of_path = dict(zip(corpus.paths, corpus.languages, strict=True))
    languages = {language for each in definitions for language in _family(of_path[each.path])}
    own = {(each.path, each.definition.start_line) for each in definitions if each.definition.name == spelled}
    references: list[Reference] = []
    for row in _holding(corpus, spelled):
        if languages and corpus.languages[row] not in languages:
            continue
        uses = _uses(root, corpus.paths[row], corpus.languages[row], spelled)
        references += [each for each in uses if (each.path, each.line) not in own]
        if len(references) >= MAX_REFERENCES:
            break
    return references[:MAX_REFERENCES]


def _family(language: str) -> set[str]:
    return next((family for family in _FAMILIES if language in family), {language})


def _holding(corpus: CodeCorpus, name: str) -> list[int]:
    """The files that contain a name, the most important first."""
    wanted = words.whole(name) if len(words.parts(name)) > 1 else words.stem(name.lower())
    contents = set(corpus.contents_with(wanted).tolist())
    rows = [row for row, content in enumerate(corpus.content_of.tolist()) if content in contents]
    order = np.argsort([bool(corpus.path_facts[row].kind) for row in rows], kind="stable")
    return [rows[at] for at in order[:MAX_SCANNED].tolist()]


def _uses(root: Path, path: str, language: str, name: str) -> Iterator[Reference]:
    source, known_grammar = read(root, path) or b"", grammar(language)
    key = name.encode()
    if known_grammar is None or key not in source:
        return
    tree = known_grammar.parser.parse(source).root_node
    lines = source.split(b"\n")
    seen = 0
    for match in re.finditer(rb"(?<![\w$])" + re.escape(key) + rb"(?![\w$])", source):
        node = tree.descendant_for_byte_range(match.start(), match.end())
        if node is None or node.text != key or "comment" in node.type or "string" in node.type:
            continue
        line = node.start_point[0] + 1
        if line != seen:
            seen = line
            yield Reference(path, line, lines[line - 1].decode("utf-8", "replace").strip()[:MAX_LINE])


def mentioned(corpus: CodeCorpus, text: str, limit: int = 5) -> list[Located]:
    """Definitions that a text names, if at most three share the name."""
    located: dict[tuple[str, int], Located] = {}
    for match in _MENTION.finditer(text):
        places = find_definitions(corpus, (match[1] or match[2]).removesuffix("()"))
        exact = [hit for hit in places if hit.definition.name == split_symbol(match[1] or match[2])[0]]
        if 0 < len(exact) <= 3:
            for hit in exact:
                located.setdefault((hit.path, hit.definition.start_line), hit)
    return list(located.values())[:limit]


def names(text: str, symbol: str) -> bool:
    """Whether a text names a symbol, alone or after its container."""
    name, container = split_symbol(symbol)
    spelled = rf"{re.escape(container)}(?:\.|::|#|->){re.escape(name)}" if container else re.escape(name)
    return re.search(rf"(?<!\w){spelled}(?!\w)", text) is not None
