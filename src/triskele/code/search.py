"""The interface of code search: index, search, symbols, state, removal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from threading import Lock

from triskele.code import embedding, symbols, tree_index
from triskele.code.corpus import CodeCorpus
from triskele.code.embedding import CodeVectors, VectorFile
from triskele.code.languages import require
from triskele.code.parsing import Definition, digest_of
from triskele.code.paths import shown_path
from triskele.code.question import CodeQuestion
from triskele.code.ranking import CodePlan, RankedChunk, rank
from triskele.code.rules import PENALTY
from triskele.code.secrets import SourceText, decoded, masked_line
from triskele.code.symbols import Located, Reference
from triskele.code.tree_index import Progress, TreeIndex, TreeManifest
from triskele.code.walk import read
from triskele.code.words import numbers_of, term, whole, words
from triskele.config import BUNDLED, NO_MODEL
from triskele.errors import BadInput, IndexUnavailable, NotFound
from triskele.models.bundled import embedder_in, kept_names, kept_weights
from triskele.models.embedder import Embedder
from triskele.models.local import local_embedder
from triskele.text.words import fold

MAX_LIMIT = 50
MAX_SNIPPET_LINES = 60
# The share of the best definition's terms that a definition needs to be shown for it.
_NEARLY = 0.8
_SHOWN = {
    "words": "words",
    "stem_match": "file name",
    "folder_match": "folder",
    "definition": "defines it",
    "dense_share": "meaning",
}


@dataclass(frozen=True, slots=True)
class CodeHit:
    """A piece of code in an answer; `line` begins the match."""

    path: str
    start_line: int
    end_line: int
    line: int
    symbol: str
    score: float
    snippet: str
    evidence: Mapping[str, float]
    reason: str


@dataclass(frozen=True, slots=True)
class CodeAnswer:
    """Hits of a question, with files waiting and share embedded."""

    root: str
    hits: tuple[CodeHit, ...]
    files: int
    waiting: int
    embedded: float

    @property
    def is_partial(self) -> bool:
        """Whether files of the tree were not searched."""
        return self.waiting > 0


@dataclass(frozen=True, slots=True)
class SymbolAnswer:
    """Where a symbol is defined and used."""

    root: str
    definitions: tuple[Located, ...]
    references: tuple[Reference, ...]


@dataclass(frozen=True, slots=True)
class TreeStatus:
    """State of one index, with the share that earlier weights embedded."""

    root: str
    files: int
    lines: int
    chunks: int
    definitions: int
    waiting: int
    embedded: float
    skipped: Mapping[str, int]
    languages: Mapping[str, int]
    bytes_on_disk: int
    by_earlier: float = 0.0


class CodeSearch:
    """Searches one tree; keeps the last state in memory."""

    def __init__(self, home: Path, root: Path, embedder: Embedder | None = None, earlier: Sequence[str] = ()) -> None:
        self._home = home
        self._index = TreeIndex(home, root)
        self._embedder = embedder
        # Kept weights, by their fingerprints: they answer until an update has embedded as much.
        self._earlier = earlier
        self._state: tuple[TreeManifest, CodeCorpus] | None = None
        self._known: tuple[CodeCorpus, list[int], CodeVectors, Embedder] | None = None
        self._reading = Lock()

    @property
    def root(self) -> Path:
        """The folder that is searched."""
        return self._index.root

    def index(self, progress: Progress | None = None, *, rebuild: bool = False) -> TreeStatus:
        """Index what changed; words are searchable after each batch."""
        self._index.update(progress, rebuild=rebuild)
        return self.status()

    def embed(self, progress: Progress | None = None, budget_s: float = float("inf")) -> int:
        """Embed what waits; answers how many texts are left."""
        if self._embedder is None:
            return 0
        corpus, _ = self._corpus()
        return embedding.embed(
            self.root,
            corpus,
            self._file(self._embedder),
            self._embedder,
            self._index.folder,
            progress=progress or (lambda *_: None),
            budget_s=budget_s,
        )

    def search(self, text: str, *, limit: int = 10, under: str = "", plan: CodePlan | None = None) -> CodeAnswer:
        """The best places for a question, in what the tree holds now."""
        if not text.strip():
            raise BadInput("the question is empty")
        if not 1 <= limit <= MAX_LIMIT:
            raise BadInput(f"limit must be between 1 and {MAX_LIMIT}, not {limit}")
        require()
        corpus, waiting = self._corpus()
        vectors, embedder = self._vectors(corpus)
        question = CodeQuestion(text)
        # Hits outside the folder asked for are dropped, so ask for more of them.
        most = limit if not under else MAX_LIMIT * 4
        ranked = rank(corpus, question, limit=most, plan=plan, vectors=vectors, embedder=embedder)
        ranked = [each for each in ranked if corpus.paths[each.row].startswith(under)][:limit]
        sources = {row: self._source(corpus, row) for row in {each.row for each in ranked}}
        terms = AskedTerms(corpus.rarity(question.terms))
        hits = tuple(_hit(corpus, question, each, sources[each.row], terms) for each in ranked)
        return CodeAnswer(str(self.root), hits, corpus.size, waiting, vectors.share if vectors else 0.0)

    def ranked_paths(self, text: str, plan: CodePlan, *, limit: int = 10) -> list[str]:
        """The best files for a question, without snippets: what evaluation compares."""
        corpus, _ = self._corpus()
        vectors, embedder = self._vectors(corpus) if plan.dense_weight else (None, self._embedder)
        # Several hits may be of one file.
        ranked = rank(corpus, CodeQuestion(text), limit=3 * limit, plan=plan, vectors=vectors, embedder=embedder)
        return list(dict.fromkeys(corpus.paths[each.row] for each in ranked))[:limit]

    def symbol(self, name: str, *, under: str = "") -> SymbolAnswer:
        """Definitions and uses of a name."""
        if not name.strip():
            raise BadInput("the name is empty")
        require()
        corpus, _ = self._corpus()
        definitions = symbols.find_definitions(corpus, name.strip(), under)
        uses = symbols.find_references(self.root, corpus, name.strip(), definitions)
        references = tuple(Reference(shown_path(each.path), each.line, masked_line(each.text)) for each in uses)
        return SymbolAnswer(str(self.root), tuple(map(_shown, definitions)), references)

    def mentioned(self, text: str) -> list[Located]:
        """The definitions that a text names."""
        return [_shown(each) for each in symbols.mentioned(self._corpus()[0], text)]

    def status(self) -> TreeStatus:
        """Counts of what is indexed and of what is left out."""
        manifest = self._index.manifest()
        corpus = CodeCorpus(manifest, self._index.segments_of(manifest))
        own = None if self._embedder is None else CodeVectors(corpus, self._file(self._embedder))
        best, _ = self._vectors(corpus)
        return TreeStatus(
            root=str(self.root),
            files=corpus.size,
            lines=int(corpus.file_lines.sum()),
            chunks=len(corpus.chunk_content),
            definitions=len(corpus.definition_content),
            waiting=manifest.waiting,
            embedded=own.share if own else 0.0,
            skipped=manifest.skipped,
            languages=dict(Counter(corpus.languages).most_common()),
            bytes_on_disk=sum(path.stat().st_size for path in self._index.folder.iterdir()),
            by_earlier=best.share if best is not None and self.reads_earlier else 0.0,
        )

    def remove(self) -> None:
        """Delete the index; the tree stays as it is."""
        self._index.remove()
        self._state = None

    def _corpus(self) -> tuple[CodeCorpus, int]:
        """The tree as it is now, with how many files wait."""
        with self._reading:
            before = self._state[0] if self._state is not None and self._index.is_current() else self._index.manifest()
            try:
                manifest, left = self._index.refresh(before)
                parts = self._index.segments_of(manifest)
            except IndexUnavailable:
                # A rebuild may have replaced the segments between two reads.
                manifest, left = self._index.refresh(self._index.manifest())
                parts = self._index.segments_of(manifest)
            if self._state is None or self._state[0] is not manifest:
                self._state = manifest, CodeCorpus(manifest, parts)
            return self._state[1], left + manifest.waiting

    @property
    def reads_earlier(self) -> bool:
        """Whether earlier weights answered the last question."""
        return self._known is not None and self._known[3] is not self._embedder

    def _file(self, embedder: Embedder) -> VectorFile:
        return VectorFile(self._index.folder, embedder.fingerprint, embedder.dimensions)

    def _vectors(self, corpus: CodeCorpus) -> tuple[CodeVectors | None, Embedder | None]:
        """The vectors that answer, and the model that made them."""
        if self._embedder is None:
            return None, None
        names = self._embedder.fingerprint, *self._earlier
        sizes = [VectorFile(self._index.folder, name, 0).size() for name in names]
        if self._known is None or self._known[:2] != (corpus, sizes):
            best, embedder = CodeVectors(corpus, self._file(self._embedder)), self._embedder
            for name, size in zip(self._earlier, sizes[1:], strict=True):
                folder = kept_weights(self._home, name) if size and best.share < 1 else None
                if folder is not None:
                    earlier = embedder_in(folder)
                    vectors = CodeVectors(corpus, self._file(earlier))
                    best, embedder = (vectors, earlier) if vectors.share > best.share else (best, embedder)
            self._known = corpus, sizes, best, embedder
        return self._known[2:]

    def _source(self, corpus: CodeCorpus, row: int) -> SourceText:
        """A file now; a changed one is searched for secrets again."""
        source = read(self.root, corpus.paths[row]) or b""
        is_same = digest_of(source).hex() == corpus.digests[row]
        return SourceText(decoded(source), corpus.secrets_of(row) if is_same else None)


def _hit(
    corpus: CodeCorpus, question: CodeQuestion, ranked: RankedChunk, source: SourceText, asked: AskedTerms
) -> CodeHit:
    first, last = corpus.chunk_lines[ranked.chunk].tolist()
    matched = _matching(corpus, question, ranked.chunk, source.lines, asked)
    return CodeHit(
        shown_path(corpus.paths[ranked.row]),
        first,
        last,
        first if matched is None else max(first, matched.start_line),
        "" if matched is None else matched.qualified,
        round(ranked.score, 4),
        source.shown(first, min(last, first + MAX_SNIPPET_LINES - 1)),
        {name: round(value, 4) for name, value in ranked.evidence.items()},
        _reason(ranked.evidence),
    )


def _shown(each: Located) -> Located:
    signature = masked_line(each.definition.signature)
    return Located(shown_path(each.path), replace(each.definition, signature=signature))


def _matching(
    corpus: CodeCorpus, question: CodeQuestion, chunk: int, lines: list[str], asked: AskedTerms
) -> Definition | None:
    """The definition of a chunk that answers a question best.

    A container has the terms of what it holds: the innermost definition with nearly as many is the answer.
    """
    first, last = corpus.chunk_lines[chunk].tolist()
    inside = [corpus.definitions[place] for place in corpus.definitions_of(int(corpus.chunk_content[chunk]))]
    inside = [each for each in inside if each.start_line <= last and each.end_line >= first]
    names = {whole(name) for name, _ in question.symbols}
    named = [each for each in inside if whole(each.name) in names and each.start_line >= first] if names else []
    if named or len(inside) < 2:
        return next(iter(named or inside), None)
    by_line = asked.by_line(lines[first - 1 : last], first)
    scores = [_term_weight(asked, each, by_line) for each in inside]
    near = [each for each, score in zip(inside, scores, strict=True) if score >= _NEARLY * max(scores)]
    first_symbol = int(corpus.chunk_symbol[chunk])
    if max(scores) <= 0 and first_symbol >= 0:
        return corpus.definitions[first_symbol]
    return max(near, key=lambda each: (each.depth, -each.start_line))


class AskedTerms(dict[str, frozenset[int]]):
    """The question's terms in each word, computed once per word."""

    def __init__(self, rarity: Mapping[str, float]) -> None:
        super().__init__()
        self.weights = {term(name): weight for name, weight in rarity.items()}
        self._numbers = frozenset(self.weights)
        # A stem may end in another letter than its word.
        self._begins = {name[:-1] or name for name in rarity if not name.startswith("=")}

    def __missing__(self, word: str) -> frozenset[int]:
        folded = fold(word)
        # Most words have none of the terms, and to stem them costs more than this.
        is_near = any(begin in folded for begin in self._begins)
        self[word] = numbers = self._numbers & numbers_of(word) if is_near else frozenset()
        return numbers

    def of(self, text: str) -> set[int]:
        """The terms of the question that a text has."""
        return {number for word in words(text) for number in self[word]}

    def by_line(self, lines: Sequence[str], first: int) -> dict[int, set[int]]:
        """The question's terms in each line that has any."""
        folded = [*enumerate(map(fold, lines), first)]
        near = {number for begin in self._begins for number, line in folded if begin in line}
        return {number: self.of(lines[number - first]) for number in near}


def _term_weight(asked: AskedTerms, each: Definition, by_line: Mapping[int, set[int]]) -> float:
    """Share of the question in a definition; its name counts twice."""
    inside = {
        number for line, numbers in by_line.items() if each.start_line <= line <= each.end_line for number in numbers
    }
    return sum(asked.weights[number] for numbers in (inside, asked.of(each.name)) for number in numbers)


def _reason(evidence: Mapping[str, float]) -> str:
    parts = [f"{label} {evidence[name]:.2f}" for name, label in _SHOWN.items() if evidence.get(name, 0) > 0]
    if evidence.get(PENALTY, 1) != 1:
        parts.append(f"kind of file ×{evidence[PENALTY]:.2f}")
    return ", ".join(parts) or "meaning alone"


@lru_cache(maxsize=8)
def opened(home: Path, root: Path, model: str = NO_MODEL) -> CodeSearch:
    """The search over one tree, kept for the next question."""
    embedder = None if model == NO_MODEL else local_embedder(model)
    return CodeSearch(home, root, embedder, kept_names(home) if model == BUNDLED else ())


def locate(home: Path, path: str | Path) -> tuple[Path, str]:
    """The indexed tree that contains a path, and the folder inside."""
    target = tree_index.resolve(path)
    for root in (target, *target.parents):
        if TreeIndex(home, root).exists:
            inside = target.relative_to(root).as_posix()
            return root, "" if inside == "." else inside + ("/" if target.is_dir() else "")
    raise NotFound(f"{target} is not indexed: run `triskele code index {target}`")
