"""Languages by file extension, and their grammars from a wheel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from triskele.errors import Unavailable

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Query

TYPE, FUNCTION, VALUE, HEADING, MODULE = "type", "function", "value", "heading", "module"

_EXTENSIONS = {
    "python": "py pyi pyw",
    "javascript": "js mjs cjs jsx",
    "typescript": "ts mts cts",
    "tsx": "tsx",
    "go": "go",
    "rust": "rs",
    "java": "java",
    "c": "c h",
    "cpp": "cc cpp cxx hh hpp hxx ipp inl",
    "csharp": "cs",
    "ruby": "rb rake",
    "php": "php",
    "kotlin": "kt kts",
    "swift": "swift",
    "bash": "sh bash",
    "markdown": "md markdown",
    "sql": "sql",
    "scala": "scala",
    "lua": "lua",
    "elixir": "ex exs",
    "haskell": "hs",
    "dart": "dart",
    "zig": "zig",
    "perl": "pl pm",
    "r": "r",
    "julia": "jl",
    "objc": "m mm",
    "rst": "rst",
    "proto": "proto",
    "toml": "toml",
    "yaml": "yaml yml",
    "cmake": "cmake",
    "css": "css scss",
    "vue": "vue",
    "svelte": "svelte",
}
BY_EXTENSION: Mapping[str, str] = {
    extension: language for language, extensions in _EXTENSIONS.items() for extension in extensions.split()
}
_CPP_HEADER = (b"class ", b"namespace ", b"template", b"std::")

# The same words mean the same thing in every grammar that has them.
_KINDS: Mapping[str, str] = {
    TYPE: """class_definition class_declaration abstract_class_declaration interface_declaration type_alias_declaration
        enum_declaration struct_item enum_item trait_item union_item type_item type_spec class_specifier
        struct_specifier union_specifier enum_specifier type_definition record_declaration struct_declaration
        delegate_declaration trait_declaration object_declaration protocol_declaration annotation_type_declaration
        create_table create_view type_alias typealias_declaration trait_definition object_definition
        class_interface class_implementation message""",
    FUNCTION: """function_definition function_declaration method_definition method_declaration constructor_declaration
        function_item macro_definition generator_function_declaration function_signature method_signature
        abstract_method_signature init_declaration create_function create_procedure preproc_function_def
        local_function_statement protocol_function_declaration singleton_method function_signature_item
        secondary_constructor compact_constructor_declaration service""",
    VALUE: """const_item static_item variable_declarator const_spec var_spec preproc_def property_declaration
        enumerator enum_variant public_field_definition""",
    HEADING: "atx_heading setext_heading title",
    MODULE: "mod_item namespace_declaration namespace_definition internal_module file_scoped_namespace_declaration",
}
# Patterns beyond the names of nodes; those that a grammar does not have are left out.
_PATTERNS: Mapping[str, tuple[str, ...]] = {
    TYPE: ("(class name: (_)) @type",),
    FUNCTION: (
        "(method name: (_)) @function",
        "(variable_declarator value: [(arrow_function) (function_expression)]) @function",
        "(assignment_expression right: [(arrow_function) (function_expression)]) @function",
        "(public_field_definition value: (arrow_function)) @function",
    ),
    VALUE: ("(module (assignment left: (identifier)) @value)",),
    MODULE: ("(module name: (_)) @module", "(impl_item) @module"),
}
_COMMENTS = "comment line_comment block_comment multiline_comment doc_comment html_block"
_DOCSTRINGS = ("(module . (comment)* . (string) @comment)", "(block . (comment)* . (string) @comment)")


@dataclass(frozen=True, slots=True)
class Grammar:
    """A language's parser, and its query for definitions and comments."""

    parser: Parser
    query: Query

    def captures(self, root: Node) -> Mapping[str, list[Node]]:
        """Nodes below a root by kind: type, function, value, heading, comment."""
        from tree_sitter import QueryCursor

        return QueryCursor(self.query).captures(root)


def language_of(path: str, head: bytes = b"") -> str | None:
    """Language of a file by name and first bytes; None for others."""
    name = PurePosixPath(path)
    language = BY_EXTENSION.get(name.suffix[1:].lower())
    if language is None and not name.suffix and head.startswith(b"#!"):
        line = head.split(b"\n", 1)[0]
        return "python" if b"python" in line else "bash" if b"sh" in line else None
    if language == "c" and name.suffix == ".h" and any(word in head for word in _CPP_HEADER):
        return "cpp"
    return language


def require() -> None:
    """Raise Unavailable with the missing extra's name if no grammars are installed."""
    try:
        import tree_sitter_language_pack  # noqa: F401
    except ImportError as error:
        raise Unavailable("code search needs the extra `code`: run pip install 'triskele[code]'") from error


@cache
def grammar(language: str) -> Grammar | None:
    """The grammar of a language; None if the wheel has none."""
    require()
    from tree_sitter import Query, QueryError
    from tree_sitter_language_pack import get_language, get_parser

    try:
        parsed_language, parser = get_language(language), get_parser(language)  # type: ignore[arg-type]
    except LookupError:
        return None
    lines: list[str] = []
    for line in _query_lines():
        with suppress(QueryError):
            Query(parsed_language, line)
            lines.append(line)
    return Grammar(parser, Query(parsed_language, "\n".join(lines)))


def _query_lines() -> Iterator[str]:
    for what, kinds in _KINDS.items():
        yield from (f"({kind}) @{what}" for kind in kinds.split())
        yield from _PATTERNS.get(what, ())
    yield from (f"({kind}) @comment" for kind in _COMMENTS.split())
    yield from _DOCSTRINGS
