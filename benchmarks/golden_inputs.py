"""What `benchmarks/golden.py` stores and asks, and what its stub services reply: plain values, equal for both sides."""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice, pairwise
from pathlib import Path
from statistics import median_low
from typing import Any

from triskele import validation
from triskele.bench.datasets import BenchDocument, Dataset, Window, windows
from triskele.bench.loaders import load_dataset
from triskele.config import DEFAULT_CATEGORIES, MemorySettings

CHARACTERS = 250_000
DIMENSIONS = 24
BEGIN = datetime(2025, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
ORIGINS = ("user", "agent", "import", "tool", "web")
LINKS = {"supersedes": "supersedes", "resolved_by": "resolved-by", "part_of": "part-of", "see_also": "see-also"}
_PROMPT_BEGIN, _PROMPT_END = "<question>\n", "\n</question>"

Version = dict[str, Any]
Link = dict[str, str]


@dataclass(frozen=True)
class Question:
    """A question, the options it is always asked with, and a memory for `near` and why-not."""

    text: str
    options: Mapping[str, Any]
    memory: str


@dataclass(frozen=True)
class GoldenSet:
    """Versions, links and questions; `middle` is a moment between their dates, project and tag are the commonest."""

    name: str
    versions: Sequence[Version]
    links: Sequence[Link]
    questions: Sequence[Question]
    middle: str
    project: str
    tag: str


def golden_set(folder: Path, questions: int, characters: int = CHARACTERS) -> GoldenSet:
    """Part of a data set; labels, validity, versions and links that it lacks are made up from numbers."""
    dataset = load_dataset(folder)
    queries = list(islice(dataset.queries[:: max(1, len(dataset.queries) // questions)], questions))
    needed = {document for query in queries for document in dataset.qrels.get(query.id, {})}
    documents = list(_part(dataset, needed, characters))
    meta = {document.id: document.meta for document in documents}
    pieces = windows(documents)
    created = [piece.created or BEGIN + number * timedelta(hours=6) for number, piece in enumerate(pieces)]
    middle, newest = median_low(created), _text(max(created) + DAY)
    current = [
        _version(number, piece, meta[piece.document], moment, middle)
        for number, (piece, moment) in enumerate(zip(pieces, created, strict=True))
    ]
    ids = {piece.document: version["id"] for piece, version in zip(pieces, current, strict=True)}
    own_links = [
        {"source": ids[document.id], "kind": kind, "target": ids[document.meta[name]]}
        for document in documents
        for name, kind in LINKS.items()
        if document.meta.get(name) in ids
    ]
    return GoldenSet(
        name=folder.name,
        versions=[version for each in current for version in _history(each)],
        links=[link | {"known_from": newest} for link in own_links or _links_of_neighbours(current)],
        questions=[_question(number, query.text, query.scope, current, newest) for number, query in enumerate(queries)],
        middle=_text(middle),
        project=_commonest(version["project"] for version in current if version["project"]),
        tag=_commonest(tag for version in current for tag in version["tags"]),
    )


def _commonest(names: Iterable[str]) -> str:
    """The name that occurs most, the first by alphabet of equals."""
    counts = Counter(names)
    return min(counts, key=lambda name: (-counts[name], name), default="")


def _part(dataset: Dataset, needed: set[str], characters: int) -> Iterator[BenchDocument]:
    """The first documents of each scope and those that the questions need, in the order of the set."""
    scopes = {document.scope for document in dataset.documents}
    left = dict.fromkeys(scopes, characters // len(scopes))
    for document in dataset.documents:
        if document.text.strip() and (document.id in needed or left[document.scope] > 0):
            left[document.scope] -= len(document.text)
            yield document


def _version(number: int, piece: Window, meta: Mapping[str, Any], created: datetime, middle: datetime) -> Version:
    """The current version of a memory; its number decides what the set does not say."""
    is_spoken = piece.role is not None or piece.speaker is not None
    starts, ends = meta.get("valid_from"), meta.get("valid_to")
    if starts is None and ends is None:
        starts = _text(middle) if number % 19 == 5 else None
        ends = _text(middle + DAY) if number % 17 == 3 else None
    return {
        "id": f"{number:07d}{_hash(f'{piece.document} {number}') % 10**9:09d}",
        "content": validation.check_content(piece.text, MemorySettings()),
        "category": meta.get("category") or DEFAULT_CATEGORIES[number % len(DEFAULT_CATEGORIES)],
        "tags": meta.get("tags") or [f"t{number % 5}"],
        "keywords": meta.get("keywords") or "",
        "importance": meta["importance"] if "importance" in meta else number * 37 % 101 / 100,
        "sensitivity": "private" if number % 29 == 7 else "open",
        "project": piece.scope or meta.get("project") or "",
        "origin": "import" if is_spoken else ORIGINS[number % len(ORIGINS)],
        "session": piece.session,
        "position": piece.position,
        "speaker": piece.speaker,
        "role": piece.role,
        "created_at": _text(created),
        "updated_at": _text(created),
        "valid_from": starts,
        "valid_to": ends,
        "version": 1,
        "known_from": _text(created),
        "known_to": None,
    }


def _history(version: Version) -> list[Version]:
    """A memory's versions: some have an older one, some are forgotten."""
    number, later = int(version["id"][:7]), _text(datetime.fromisoformat(version["created_at"]) + DAY)
    if number % 37 == 11:
        return [version | {"known_to": later}]
    if number % 23 != 4:
        return [version]
    words = version["content"].split()
    older = version | {"content": " ".join(["Before:", *words[: len(words) // 2 + 1]]), "known_to": later}
    return [older, version | {"version": 2, "known_from": later, "updated_at": later}]


def _links_of_neighbours(current: Sequence[Version]) -> Iterator[Link]:
    """Links of every kind; memories 5 to 7 of each 13 are a chain of three."""
    for number, (before, version) in enumerate(pairwise(current), start=1):
        if before["project"] == version["project"]:
            if number % 13 in (6, 7):
                yield {"source": version["id"], "kind": "supersedes", "target": before["id"]}
            for remainder, kind in ((9, "resolved-by"), (15, "part-of"), (21, "see-also")):
                if number % 31 == remainder:
                    yield {"source": before["id"], "kind": kind, "target": version["id"]}


def _question(number: int, text: str, scope: str | None, current: Sequence[Version], newest: str) -> Question:
    where: dict[str, Any] = {"all_projects": True} if scope is None else {"project": scope}
    ids = [version["id"] for version in current if scope is None or version["project"] == scope]
    return Question(text, {**where, "as_of": newest}, ids[number * 37 % len(ids)])


def _text(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def code_questions(tree: Path, count: int) -> list[str]:
    """First lines of docstrings and names of functions of a tree, spread over its files."""
    lines: list[str] = []
    for path in sorted(tree.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and (docstring := ast.get_docstring(node)):
                lines.append(docstring.partition("\n")[0] if len(lines) % 3 else node.name)
    return lines[:: max(1, len(lines) // count)][:count]


def stub_service(path: str, body: dict[str, Any]) -> tuple[int, Any]:
    """Replies of an embedding service, a reranker and a language model that depend on the texts alone."""
    if path.endswith("/embeddings"):
        rows = [{"index": number, "embedding": _vector(text)} for number, text in enumerate(body["input"])]
        return 200, {"data": rows, "usage": {"total_tokens": len(rows)}}
    if path.endswith("/rerank"):
        scores = [_overlap(body["query"], text) for text in body["documents"]]
        rows = [{"index": number, "relevance_score": score} for number, score in enumerate(scores)]
        return 200, {"data": rows, "usage": {"total_tokens": len(rows)}}
    prompt = body["messages"][-1]["content"]
    words = prompt.partition(_PROMPT_BEGIN)[2].partition(_PROMPT_END)[0].split()
    reply = "\n".join(" ".join(part) for part in (words[::-1], words[1:], words[::2]) if part)
    choice = {"message": {"content": reply or "nothing"}, "finish_reason": "stop"}
    return 200, {"choices": [choice], "usage": {"total_tokens": len(words)}}


def _vector(text: str) -> list[float]:
    rows = [_word_vector(word) for word in text.lower().split()]
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)] if rows else [1.0] * DIMENSIONS


@cache
def _word_vector(word: str) -> tuple[int, ...]:
    return tuple(byte - 127 for byte in hashlib.sha256(word.encode()).digest()[:DIMENSIONS])


def _overlap(question: str, text: str) -> float:
    words, wanted = set(text.lower().split()), set(question.lower().split())
    return len(words & wanted) / max(1, len(wanted)) + _hash(text) % 1000 / 4000


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
