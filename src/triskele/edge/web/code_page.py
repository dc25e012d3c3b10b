"""Code search over indexed trees, with memories about the hits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from starlette.responses import Response

from triskele.code import symbols, tree_index
from triskele.code.search import opened
from triskele.edge.web.rendering import PageRequest, PageRoute, fragment, page
from triskele.edge.web.search_page import segments
from triskele.errors import NotFound, TriskeleError
from triskele.models.bundled import place_of
from triskele.text.words import STOP_WORDS

LIMIT = 10
_MOST_MEMORIES = 5
_LEAST_LETTERS = 3
_HASHES = frozenset({"py", "rb", "sh", "bash", "toml", "yaml", "yml", "r", "pl", "mk", "dockerfile", "ex", "exs", "jl"})
_DASHES = frozenset({"sql", "lua", "hs", "elm"})
_STRING = r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`"
_KEYWORDS = frozenset(
    "and as async await break case catch class const continue def default defer del do elif else enum except export "
    "extends false final finally fn for from func function go if impl implements import in interface is lambda let "
    "match mod mut new nil none not null or package pass private protected pub public raise return self static struct "
    "super switch this throw trait true try type use var void while with yield".split()
)
_WORD = re.compile(r"[A-Za-z]+|\d+")

# The class of a piece, its text, and whether the question has its word.
CodePiece = tuple[str, str, bool]


def show(request: PageRequest) -> Response:
    """The page, with its answer if the address has a query."""
    return page(request, "code.html", "Code", **_answer(request))


def has_trees(request: PageRequest) -> bool:
    """Whether any tree is indexed."""
    return bool(tree_index.indexed_trees(request.engine.settings.home))


def places(request: PageRequest) -> Response:
    """Only the answer."""
    return fragment("_places.html", **_answer(request))


def _answer(request: PageRequest) -> dict[str, Any]:
    home = request.engine.settings.home
    trees = [str(each) for each in tree_index.indexed_trees(home)]
    text, tree = request.text("q"), request.text("tree", trees[0] if trees else "")
    values: dict[str, Any] = {"text": text, "trees": trees, "tree": tree, "problem": "", "answer": None}
    question = text.strip()
    if not question or not trees:
        return values
    try:
        # Only what the user indexed is read.
        if tree not in trees:
            raise NotFound(f"{tree or 'this folder'} is not indexed")
        model = place_of(request.engine.upkeep.model_in_force(), home)
        answer = opened(home, Path(tree), model).search(question, limit=LIMIT)
    except TriskeleError as error:
        return {**values, "problem": str(error)}
    symbols_shown = [hit.symbol for hit in answer.hits if hit.symbol]
    hits = request.engine.recall(question, all_projects=True, limit=20, logged=False).hits
    memories = [hit.memory for hit in hits if any(symbols.names(hit.memory.content, name) for name in symbols_shown)]
    memories = memories[:_MOST_MEMORIES]
    return {
        **values,
        "answer": answer,
        "shown": [(hit, highlighted(hit.snippet, Path(hit.path).suffix[1:], question)) for hit in answer.hits],
        "memories": memories,
        "short": request.engine.shorten([each.id for each in memories]),
    }


def highlighted(snippet: str, extension: str, question: str) -> list[CodePiece]:
    """Split a snippet into highlighted pieces and mark words of the question."""
    words = {word.lower() for word in _WORD.findall(question) if len(word) >= _LEAST_LETTERS} - STOP_WORDS
    pieces: list[CodePiece] = []
    for kind, piece in _tokens(snippet, extension.lower()):
        lowered = piece.lower()
        spans = [match.span() for word in words for match in re.finditer(re.escape(word), lowered)]
        pieces += [(kind, text, is_marked) for text, is_marked in segments(piece, spans)]
    return pieces


def _tokens(snippet: str, extension: str) -> Iterator[tuple[str, str]]:
    comment = (
        r"#[^\n]*" if extension in _HASHES else r"--[^\n]*" if extension in _DASHES else r"//[^\n]*|/\*[\s\S]*?\*/"
    )
    at = 0
    for match in re.finditer(rf"(?P<comment>{comment})|(?P<string>{_STRING})|(?P<word>\b\w+\b)", snippet):
        if match.start() > at:
            yield "", snippet[at : match.start()]
        kind, text, at = match.lastgroup or "", match.group(), match.end()
        if kind == "word":
            kind = "keyword" if text.lower() in _KEYWORDS else "number" if text[0].isdigit() else ""
        yield kind, text
    if at < len(snippet):
        yield "", snippet[at:]


ROUTES: tuple[PageRoute, ...] = (
    PageRoute("GET", "/code", show, is_local=True, title="Code", has_content=has_trees),
    PageRoute("GET", "/code/places", places, is_local=True),
)
