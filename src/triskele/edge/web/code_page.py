"""Code search over indexed trees, with memories about the hits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from triskele.code import symbols, tree_index
from triskele.code.search import CodeAnswer, opened
from triskele.edge.web.rendering import PageRequest, PageRoute, fragment, page
from triskele.edge.web.search_page import segments
from triskele.errors import NotFound, TriskeleError
from triskele.models.bundled import place_of
from triskele.text.words import STOP_WORDS

if TYPE_CHECKING:
    from triskele.types import Memory

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
    trees = [str(each) for each in tree_index.indexed_trees(request.engine.settings.home)]
    chosen = request.text("tree", trees[0] if trees else "")
    return page(
        request,
        "code.html",
        "Code",
        trees=trees,
        tree=chosen,
        text=request.text("q"),
        **_answer(request, trees, chosen),
    )


def places(request: PageRequest) -> Response:
    """Only the answer."""
    trees = [str(each) for each in tree_index.indexed_trees(request.engine.settings.home)]
    return fragment("_places.html", text=request.text("q"), **_answer(request, trees, request.text("tree")))


def _answer(request: PageRequest, trees: Sequence[str], tree: str) -> dict[str, Any]:
    nothing: dict[str, Any] = {"answer": None, "shown": [], "memories": [], "problem": "", "short": {}}
    text = request.text("q").strip()
    if not text or not trees:
        return nothing
    try:
        # Only what the user indexed is read.
        if tree not in trees:
            raise NotFound(f"{tree or 'this folder'} is not indexed")
        home = request.engine.settings.home
        model = place_of(request.local.upkeep.model_in_force(), home)
        answer = opened(home, Path(tree), model).search(text, limit=LIMIT)
    except TriskeleError as error:
        return {**nothing, "problem": str(error)}
    memories = _memories(request, text, answer)
    return {
        **nothing,
        "answer": answer,
        "shown": [(hit, highlighted(hit.snippet, Path(hit.path).suffix[1:], text)) for hit in answer.hits],
        "memories": memories,
        "short": request.engine.shorten([each.id for each in memories]),
    }


def _memories(request: PageRequest, text: str, answer: CodeAnswer) -> list[Memory]:
    """The memories that fit the question and name one of the places."""
    named = [hit.symbol for hit in answer.hits if hit.symbol]
    hits = request.engine.recall(text, all_projects=True, limit=20, logged=False).hits
    fitting = [hit.memory for hit in hits if any(symbols.names(hit.memory.content, name) for name in named)]
    return fitting[:_MOST_MEMORIES]


def highlighted(snippet: str, extension: str, question: str) -> list[CodePiece]:
    """Split a snippet into highlighted pieces and mark words of the question."""
    wanted = {word.lower() for word in _WORD.findall(question) if len(word) >= _LEAST_LETTERS} - STOP_WORDS
    return [
        (kind, text, is_marked)
        for kind, piece in _tokens(snippet, extension.lower())
        for text, is_marked in segments(piece, _spans(piece, wanted))
    ]


def _tokens(snippet: str, extension: str) -> Iterator[tuple[str, str]]:
    comment = (
        r"#[^\n]*" if extension in _HASHES else r"--[^\n]*" if extension in _DASHES else r"//[^\n]*|/\*[\s\S]*?\*/"
    )
    at = 0
    for match in re.finditer(rf"(?P<comment>{comment})|(?P<string>{_STRING})|(?P<word>\b\w+\b)", snippet):
        if match.start() > at:
            yield "", snippet[at : match.start()]
        yield _kind(match.lastgroup or "", match.group()), match.group()
        at = match.end()
    if at < len(snippet):
        yield "", snippet[at:]


def _kind(group: str, text: str) -> str:
    if group != "word":
        return group
    return "keyword" if text.lower() in _KEYWORDS else "number" if text[0].isdigit() else ""


def _spans(text: str, wanted: set[str]) -> Iterator[tuple[int, int]]:
    lowered = text.lower()
    for word in wanted:
        yield from ((match.start(), match.end()) for match in re.finditer(re.escape(word), lowered))


ROUTES: tuple[PageRoute, ...] = (
    PageRoute("GET", "/code", show, is_local=True, title="Code"),
    PageRoute("GET", "/code/places", places, is_local=True),
)
