"""The import direction of the rooms: what a line may know follows from where it stands."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

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


def _room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def _imports(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, node.lineno
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)


def _files() -> list[Path]:
    return [path for path in sorted(SOURCE.rglob("*.py")) if path.name != "__init__.py" or path.parent != SOURCE]


@pytest.mark.parametrize("path", _files(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_downwards(path: Path) -> None:
    level = {room: number for number, rooms in enumerate(LAYERS) for room in rooms}
    own = _room(path)
    assert own in level, f"{own} is a room without a place in the import direction"
    for module, line in _imports(path):
        other = module.split(".")[1] if module.startswith("triskele.") else None
        if other in level and other != own:
            assert level[other] < level[own], f"{path.name}:{line} imports {module}: {own} may not know {other}"


@pytest.mark.parametrize("path", _files(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_sql_stays_in_the_stores(path: Path) -> None:
    speaks_sql = any(module.split(".")[0] in {"apsw", "sqlite3", "psycopg"} for module, _ in _imports(path))
    allowed = _room(path) in {"stores", "evaluation"}
    assert allowed or not speaks_sql


def test_files_and_functions_stay_small() -> None:
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        assert text.count("\n") <= 500, f"{path.name} is too long"
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                size = (node.end_lineno or 0) - node.lineno + 1
                assert size <= 70, f"{path.name}:{node.name} has {size} lines"


def test_no_room_without_a_name() -> None:
    names = {path.stem for path in SOURCE.rglob("*.py")}
    assert not names & {"utils", "helpers", "common", "misc"}


def test_the_public_names_are_there() -> None:
    import triskele

    assert sorted(triskele.__all__) == ["__version__", "open"]
    assert all(hasattr(triskele, name) for name in triskele.__all__)
