"""The rooms: import direction, no cycles, and names that mean one thing."""

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
    {"replies", "requests"},
    {"text", "samples"},
    {"config"},
    {"privacy", "validation"},
    {"ingest", "models", "store"},
    {"index"},
    {"recall"},
    {"curation", "exchange", "code"},
    {"graph", "agents", "sync"},
    {"engine"},
    {"bench"},
    {"edge"},
    {"server"},
    {"__main__"},
]

# Only these modules import a room that most processes never load; their imports may point upwards.
DOORS: dict[str, set[str]] = {
    "bench": {
        "edge.cli.curation",
        "edge.cli.measure",
        "edge.cli.models",
        "edge.web.quality_page",
    },
    "code": {
        "bench.code_suite",
        "edge.cli.code",
        "edge.mcp.tools_code",
        "edge.web.code_page",
    },
    "server": {
        "engine.models",
        "edge.cli.server",
        "edge.cli.agents",
        "edge.http.dispatch",
        "edge.process.resident",
        "edge.process.service",
        "edge.process.syncing",
        "edge.web.admin_page",
        "edge.web.sessions",
    },
}

# The same thing on both sides of an edge: the library's value, and its shape in the answers of MCP.
SAME_CLASS = {
    "Changes": {"requests", "edge"},
    "Hit": {"types", "edge"},
    "MemoryDetails": {"types", "edge"},
    "Stage": {"types", "edge"},
    "WhyNot": {"types", "edge"},
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


def test_every_room_has_its_layer() -> None:
    assert {_room(path) for path in _files()} <= set().union(*LAYERS)


def test_imports_point_downwards() -> None:
    level = {room: number for number, rooms in enumerate(LAYERS) for room in rooms}
    wrong = []
    for path in _files():
        own, name = _room(path), _module(path).removeprefix("triskele.")
        for module, line, is_for_types in _imports_of(path):
            other = module.split(".")[1] if module.startswith("triskele.") else own
            if other == own or other not in level:
                continue
            if name not in DOORS[other] if other in DOORS else level[other] >= level[own] and not is_for_types:
                wrong.append(f"{path.relative_to(SOURCE)}:{line} imports {module}: {own} may not import {other}")
    assert not wrong, "\n".join(wrong)


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
    hidden = "def f():\n    from triskele.text import names\n"
    typed = "if TYPE_CHECKING:\n    from triskele.text import names\n"
    assert Import("triskele.text.names", 2, is_for_types=False) in _imports(ast.parse(hidden))
    assert [each.is_for_types for each in _imports(ast.parse(typed))] == [True, True]


def test_sql_stays_in_the_stores() -> None:
    drivers = {"apsw", "sqlite3", "psycopg"}
    rooms = {_room(path) for path in _files() if any(row.module.split(".")[0] in drivers for row in _imports_of(path))}
    assert rooms and rooms <= {"store", "server", "bench"}


@pytest.mark.parametrize("database", ["store.sqlite", "server.postgres"])
def test_only_store_open_loads_a_database(database: str) -> None:
    graph, own = _import_graph(SOURCE), f"triskele.{database}"
    shared = {name for name in graph if name.startswith("triskele.store.") and not name.startswith(own)}
    texts = {_module(path): path.read_text() for path in _files()}
    # A module may also be loaded by its name.
    users = {name for name in shared if f'"{own}.' in texts[name] or any(used.startswith(own) for used in graph[name])}
    assert users == {"triskele.store.open"}


def test_the_rules_of_writing_hold_no_statement() -> None:
    texts = (
        node.value
        for node in ast.walk(ast.parse((SOURCE / "store" / "writer.py").read_text()))
        if isinstance(node, ast.Constant)
    )
    assert not [
        text
        for text in texts
        if isinstance(text, str) and text.split(" ")[0] in {"SELECT", "INSERT", "UPDATE", "DELETE"}
    ]


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


def test_no_module_is_named_for_leftovers() -> None:
    names = {path.stem for path in SOURCE.rglob("*.py")}
    assert not names & {"utils", "helpers", "common", "misc"}


def test_the_public_names_are_there() -> None:
    import triskele

    assert sorted(triskele.__all__) == ["Engine", "__version__", "connect", "open"] == sorted(dir(triskele))
    assert all(hasattr(triskele, name) for name in triskele.__all__)


@pytest.mark.parametrize("room", sorted(DOORS))
def test_every_door_leads_to_its_room(room: str) -> None:
    modules = {_module(path).removeprefix("triskele."): path for path in _files()}
    users = {
        name
        for name, path in modules.items()
        if any(
            each.module.startswith(f"triskele.{room}.") or each.module == f"triskele.{room}"
            for each in _imports_of(path)
        )
    }
    assert DOORS[room] <= users
