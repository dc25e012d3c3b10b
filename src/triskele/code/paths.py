"""Facts from a path: its words, and whether it is a test."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from triskele.code.words import parts, words

TEST, BENCHMARK, EXAMPLE, DOCUMENTATION, STUB, LEGACY = (
    "test",
    "benchmark",
    "example",
    "documentation",
    "stub",
    "legacy",
)

# The words of a question that ask for a class of paths, as stems.
ASKED_BY: Mapping[str, frozenset[str]] = {
    TEST: frozenset({"test", "spec", "fixtur", "mock", "harness"}),
    BENCHMARK: frozenset({"benchmark", "bench", "perf"}),
    EXAMPLE: frozenset({"exampl", "demo", "sampl", "tutori"}),
    DOCUMENTATION: frozenset({"doc", "document", "readm", "changelog", "guid"}),
    STUB: frozenset({"stub", "declar", "type"}),
    LEGACY: frozenset({"legaci", "compat", "deprec", "backport"}),
}
_FOLDERS: Mapping[str, str] = {
    **dict.fromkeys("test tests __tests__ spec specs testing unittest e2e testdata fixtures".split(), TEST),
    **dict.fromkeys("bench benches benchmark benchmarks perf".split(), BENCHMARK),
    **dict.fromkeys("example examples demo demos sample samples docs_src tutorial".split(), EXAMPLE),
    **dict.fromkeys("doc docs documentation".split(), DOCUMENTATION),
    **dict.fromkeys("compat _compat legacy deprecated".split(), LEGACY),
}
_TEST_NAME = re.compile(
    r"^(?:test_.*|conftest|.*_test|.*_spec|.*[.-](?:test|spec|e2e)|.*[a-z0-9](?:Tests?|Spec|Suite|IT))$"
)
_PROSE = frozenset({".md", ".markdown", ".rst", ".txt"})


@dataclass(frozen=True, slots=True)
class PathFacts:
    """Words of a file's name and folders, and the path's class."""

    stem: str
    stem_words: frozenset[str]
    folder_words: frozenset[str]
    outer_words: frozenset[str]
    kind: str

    @staticmethod
    def of(path: str) -> PathFacts:
        """Read a path inside a tree."""
        file = PurePosixPath(path)
        name = file.name.split(".")[0] if file.name.count(".") > 1 else file.stem
        folders = file.parts[:-1]
        # The module of a package is named by its folder.
        if name in _INDEXES and folders:
            name = folders[-1]
        return PathFacts(
            "".join(_words(name)),
            frozenset(_words(name)),
            frozenset(_words(folders[-1])) if folders else frozenset(),
            frozenset(word for folder in folders[:-1] for word in _words(folder)),
            _kind(file),
        )


_INDEXES = frozenset({"__init__", "index", "mod", "main", "lib"})


def _words(text: str) -> list[str]:
    return [part for word in words(text) for part in parts(word)]


def shown_path(path: str) -> str:
    """A path that every stream can encode."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _kind(place: PurePosixPath) -> str:
    if place.suffix.lower() in _PROSE:
        return DOCUMENTATION
    name = place.name.removesuffix(place.suffix)
    if _TEST_NAME.match(name):
        return TEST
    for folder in place.parts[:-1]:
        if (kind := _FOLDERS.get(folder.lower())) is not None:
            return kind
    if place.suffix == ".pyi" or place.name.endswith((".d.ts", ".d.cts", ".d.mts")):
        return STUB
    return ""
