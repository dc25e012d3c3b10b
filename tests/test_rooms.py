"""The rooms: import direction, no cycles, sizes, and names that mean one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "triskele"

# Every room may import the ones on lines above its own, and its own.
LAYERS: list[set[str]] = [
    {"types", "errors"},
    {"base", "samples"},
    {"config"},
    {"privacy", "validation"},
    {"ingest", "models", "stores", "graph"},
    {"index"},
    {"recall"},
    {"curation", "exchange", "code"},
    {"engine"},
    {"evaluation"},
    {"serving"},
    {"__main__"},
]
MAX_LAYERS = 12
MAX_ROOT_MODULES = 8
MAX_ROOMS = 13
# 200 for what 0.1.0 could do; code search, recovery, projects, time and evidence added the rest (decision 36).
MAX_FILES = 344

# What one warm recall runs through; before the rooms were drawn it was 40 files and 590 switches between them.
MAX_RECALL_FILES = 31
MAX_RECALL_SWITCHES = 240

# The same thing on both sides of an edge: the library's value, and its shape in the answers of MCP.
SAME_CLASS = {
    "Hit": {"types", "serving"},
    "Stage": {"recall", "serving"},
    "Stats": {"recall", "serving"},
    "WhyNot": {"recall", "serving"},
}


def _room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


class Import(NamedTuple):
    """What is imported, in which line, and whether type checkers alone see it."""

    module: str
    line: int
    is_for_types: bool


def _imports(tree: ast.AST) -> Iterator[Import]:
    """The imports of a tree; those inside functions count, because they run."""
    typed: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            typed.update(range(node.lineno, (node.end_lineno or 0) + 1))
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            yield from (Import(name, node.lineno, node.lineno in typed) for name in names)
        elif isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, node.lineno in typed) for alias in node.names)


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def _imports_of(path: Path) -> tuple[Import, ...]:
    return tuple(_imports(_tree(path)))


def _files() -> list[Path]:
    return [path for path in sorted(SOURCE.rglob("*.py")) if path.name != "__init__.py" or path.parent != SOURCE]


@pytest.mark.parametrize("path", _files(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_downwards(path: Path) -> None:
    level = {room: number for number, rooms in enumerate(LAYERS) for room in rooms}
    own = _room(path)
    assert own in level, f"{own} is a room without a place in the import direction"
    for module, line, _ in _imports_of(path):
        other = module.split(".")[1] if module.startswith("triskele.") else None
        if other in level and other != own:
            assert level[other] < level[own], f"{path.name}:{line} imports {module}: {own} may not import {other}"


def _module(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _import_graph(root: Path) -> dict[str, set[str]]:
    modules = {_module(path): path for path in sorted(root.rglob("*.py"))}
    return {
        module: {
            name
            for name, _, is_for_types in _imports_of(path)
            # A package that is named in the import of one of its modules is not itself used.
            if not is_for_types and name in modules and name != module and not module.startswith(f"{name}.")
        }
        for module, path in modules.items()
    }


@pytest.mark.parametrize("room", sorted(path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()))
def test_no_room_has_an_import_cycle(room: str) -> None:
    try:
        TopologicalSorter(_import_graph(SOURCE / room)).prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' → '.join(error.args[1])}")


def test_a_cycle_is_seen_inside_functions_and_not_for_types() -> None:
    hidden = "def f():\n    from triskele.graph import names\n"
    typed = "if TYPE_CHECKING:\n    from triskele.graph import names\n"
    assert Import("triskele.graph.names", 2, is_for_types=False) in _imports(ast.parse(hidden))
    assert [each.is_for_types for each in _imports(ast.parse(typed))] == [True, True]


@pytest.mark.parametrize("path", _files(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_sql_stays_in_the_stores(path: Path) -> None:
    speaks_sql = any(each.module.split(".")[0] in {"apsw", "sqlite3", "psycopg"} for each in _imports_of(path))
    allowed = _room(path) in {"stores", "evaluation"}
    assert allowed or not speaks_sql


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_no_store_needs_the_database_of_the_other(kind: str) -> None:
    graph, own = _import_graph(SOURCE / "stores"), f"triskele.stores.{kind}"
    shared = {name for name in graph if not name.startswith(own)}
    users = {name for name in shared if any(used.startswith(own) for used in graph[name])}
    # It imports the one that an address names, when it is asked for it.
    assert users == {"triskele.stores.factory"}


def test_the_rules_of_writing_hold_no_statement() -> None:
    texts = (
        node.value
        for node in ast.walk(ast.parse((SOURCE / "stores" / "writer.py").read_text()))
        if isinstance(node, ast.Constant)
    )
    assert not [
        text
        for text in texts
        if isinstance(text, str) and text.split(" ")[0] in {"SELECT", "INSERT", "UPDATE", "DELETE"}
    ]


def test_files_and_functions_stay_small() -> None:
    for path in SOURCE.rglob("*.py"):
        assert path.read_text().count("\n") <= 500, f"{path.name} is too long"
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.FunctionDef):
                size = (node.end_lineno or 0) - node.lineno + 1
                assert size <= 70, f"{path.name}:{node.name} has {size} lines"


def test_the_tree_stays_small() -> None:
    root = [path for path in SOURCE.iterdir() if path.suffix == ".py"]
    rooms = [path for path in SOURCE.iterdir() if path.is_dir() and any(path.rglob("*.py"))]
    files = list(SOURCE.rglob("*.py"))
    assert len(LAYERS) <= MAX_LAYERS
    assert len(root) <= MAX_ROOT_MODULES, sorted(path.name for path in root)
    assert len(rooms) <= MAX_ROOMS, sorted(path.name for path in rooms)
    assert len(files) <= MAX_FILES, f"{len(files)} files"


def test_a_recall_runs_through_few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SOURCE.parent.parent / "scripts"))
    import trace_recall

    trace = trace_recall.typical_recall()
    assert len(trace.files) <= MAX_RECALL_FILES, sorted(trace.files)
    assert trace.switches <= MAX_RECALL_SWITCHES, trace.files.most_common()


def test_no_two_public_classes_share_a_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in SOURCE.rglob("*.py"):
        for node in _tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(SOURCE)))
    shared = {name: paths for name, paths in places.items() if len(paths) > 1}
    rooms = {name: {_room(SOURCE / path) for path in paths} for name, paths in shared.items()}
    wrong = {name: shared[name] for name in shared if rooms[name] != SAME_CLASS.get(name)}
    assert not wrong


def test_no_two_modules_of_a_room_share_a_name() -> None:
    places: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in SOURCE.rglob("*.py"):
        if path.name != "__init__.py":
            places[_room(path), path.stem].append(str(path.relative_to(SOURCE)))
    assert not {key: paths for key, paths in places.items() if len(paths) > 1}


def test_no_module_is_named_for_leftovers() -> None:
    names = {path.stem for path in SOURCE.rglob("*.py")}
    assert not names & {"utils", "helpers", "common", "misc"}


def test_the_public_names_are_there() -> None:
    import triskele

    assert sorted(triskele.__all__) == ["__version__", "connect", "open"]
    assert all(hasattr(triskele, name) for name in triskele.__all__)
