"""Print the numbers of the source tree beside their bounds and goals in house.toml.

    python scripts/house.py [--json | --lower]

A number counts places to look at; `--json` prints all of them, `--lower` lowers each bound to the number of today. A
bound never rises by itself. Files that git ignores do not count.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import statistics
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
BOUNDS = ROOT / "house.toml"
# Locals that say how a value came about instead of what it holds.
SAY_NOTHING = frozenset("found said told kept asked made given known place standing each others".split())
# Case matters for the first: Python's own `is None` does not count.
ODD_ENGLISH = re.compile(
    r"\bis none\b|(?i:\b(whoever|nobody|somebody|anew|take heed|by heart|those of|of \w+ alone|what is no\b"
    r"|so long as it|, and not\b)\b)"
)
CASTS = re.compile(r"\bcast\(|# type: ignore")
IS_SERVER = re.compile(r"\b(invocation\.remote|uses_server|is_remote|refuse_server|only_at_the_store)\b")
ENGINE_INSIDES = {"store", "runtime", "lexical", "vault", "after_answer"}
# The rooms that may use them.
ABOVE_THE_STORE = tuple(f"triskele.{room}" for room in "bench recall index store curation engine".split())
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
PAGES = ("README.md", "CONTRIBUTING.md", "docs/architecture.md", "CHANGELOG.md", "docs/benchmarks.md")
# What is neither named here nor in a module named here is core; the longest name decides.
GROUPS = {
    **{name: name for name in ("edge", "server", "bench", "code")},
    **dict.fromkeys(("store.sharing", "store.corpus_protocol"), "server"),
    "edge.process.syncing": "core",
}  # fmt: skip
GROUP_NAMES = ("core", "edge", "server", "bench", "code")

Report = dict[str, Any]
Edges = dict[str, set[str]]


@dataclass(frozen=True)
class Module:
    """A module of the package with its syntax tree."""

    name: str
    text: str
    tree: ast.Module

    @staticmethod
    def read(path: Path) -> Module:
        """Parse a file below src."""
        parts = path.relative_to(ROOT / "src").with_suffix("").parts
        text = path.read_text(encoding="utf-8")
        return Module(".".join(parts[:-1] if parts[-1] == "__init__" else parts), text, ast.parse(text))

    @property
    def room(self) -> str:
        """The first two parts of the name."""
        return ".".join(self.name.split(".")[:2])

    @property
    def group(self) -> str:
        """One of `GROUP_NAMES`."""
        parts = self.name.split(".")[1:]
        prefixes = (".".join(parts[:size]) for size in range(len(parts), 0, -1))
        return next((GROUPS[prefix] for prefix in prefixes if prefix in GROUPS), "core")

    @cached_property
    def lines(self) -> int:
        """Number of lines."""
        return self.text.count("\n")

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node of the tree."""
        return list(ast.walk(self.tree))

    def functions(self) -> Iterator[tuple[int, str]]:
        """The size of each function, with its name."""
        for node in self.nodes:
            if isinstance(node, FUNCTIONS):
                yield (node.end_lineno or 0) - node.lineno + 1, f"{self.name}:{node.name}"

    def imports(self, names: set[str]) -> Iterator[tuple[set[str], bool]]:
        """The modules that each import names, and whether it runs inside a function or class."""
        top: set[int] = set()
        for node in self.tree.body:
            top.update(map(id, ast.walk(node)) if isinstance(node, ast.If) else [id(node)])
        for node in self.nodes:
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield _imported(node) & names - {self.name}, id(node) not in top

    def locals_that_say_nothing(self) -> Iterator[str]:
        """Assigned names of `SAY_NOTHING`, without those of comprehensions."""
        targets = {
            id(name)
            for node in self.nodes
            if isinstance(node, COMPREHENSIONS)
            for generator in node.generators
            for name in ast.walk(generator.target)
        }
        for node in self.nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in targets:
                yield from {node.id} & SAY_NOTHING

    def engine_insides(self) -> int:
        """Uses of the engine's attributes where only its methods should be used."""
        return sum(
            isinstance(node, ast.Attribute)
            and node.attr in ENGINE_INSIDES
            and isinstance(node.value, ast.Name)
            and node.value.id in {"engine", "memory"}
            for node in ([] if self.name.startswith(ABOVE_THE_STORE) else self.nodes)
        )

    def numeric_constants(self) -> int:
        """Names of the module that are numbers."""
        values = (node.value for node in self.tree.body if isinstance(node, ast.Assign | ast.AnnAssign))
        plain = (value.operand if isinstance(value, ast.UnaryOp) else value for value in values)
        numbers = (value.value for value in plain if isinstance(value, ast.Constant))
        return sum(isinstance(number, int | float) and not isinstance(number, bool) for number in numbers)


def _imported(node: ast.Import | ast.ImportFrom) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    return {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}


def tree_files(*patterns: str) -> list[Path]:
    """Files of the working tree that git does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    return [ROOT / name for name in dict.fromkeys(names) if name and (ROOT / name).is_file()]


def import_cycles(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """The modules grouped so that each group comes after all that it imports; a cycle is a group of several."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    grouped: set[str] = set()
    groups: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = lowest[name] = len(order)
        stack.append(name)
        for other in sorted(edges[name]):
            if other not in order:
                visit(other)
                lowest[name] = min(lowest[name], lowest[other])
            elif other not in grouped:
                lowest[name] = min(lowest[name], order[other])
        if lowest[name] == order[name]:
            start = stack.index(name)
            groups.append(stack[start:])
            grouped.update(stack[start:])
            del stack[start:]

    for name in sorted(edges):
        if name not in order:
            visit(name)
    return groups


def import_layers(edges: Mapping[str, set[str]], groups: list[list[str]]) -> int:
    """The longest chain of imports, in which a cycle counts as one module."""
    group_of = {name: number for number, group in enumerate(groups) for name in group}
    depths: list[int] = []
    for number, group in enumerate(groups):
        below = {group_of[other] for name in group for other in edges[name]} - {number}
        depths.append(1 + max((depths[other] for other in below), default=0))
    return max(depths, default=0)


def measure_imports(modules: list[Module]) -> Report:
    """Layers, cycles and imports inside functions."""
    names = {module.name for module in modules}
    edges: Edges = {name: set() for name in names}
    lazy = 0
    for module in modules:
        for imported, is_lazy in module.imports(names):
            edges[module.name] |= imported
            lazy += bool(imported) and is_lazy
    sys.setrecursionlimit(10_000)
    groups = import_cycles(edges)
    sizes = sorted((len(group) for group in groups if len(group) > 1), reverse=True)
    return {
        "import_layers": import_layers(edges, groups),
        "import_cycles": sizes,
        "largest_import_cycle": max(sizes, default=1),
        "lazy_imports": lazy,
    }


def measure_source() -> Report:
    """Sizes and counts of the package."""
    modules = [Module.read(path) for path in tree_files("src/*.py")]
    functions = sorted((entry for module in modules for entry in module.functions()), reverse=True)
    sizes = [size for size, _ in functions]
    rooms: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for module in modules:
        rooms[module.room] += module.lines
        lines[module.group] += module.lines
        files[module.group] += 1
    empty_names = Counter(name for module in modules for name in module.locals_that_say_nothing())
    return {
        "source_files": len(modules),
        "source_lines": lines.total(),
        **{f"{group}_files": files[group] for group in GROUP_NAMES},
        **{f"{group}_lines": lines[group] for group in GROUP_NAMES},
        "root_modules": sum(path.parent == ROOT / "src" / "triskele" for path in tree_files("src/triskele/*.py")),
        "largest_file": max(module.lines for module in modules),
        "function_median": statistics.median(sizes),
        "function_max": sizes[0],
        **measure_imports(modules),
        "casts_and_ignores": sum(len(CASTS.findall(module.text)) for module in modules),
        "engine_insides_used_outside": sum(module.engine_insides() for module in modules),
        "is_server": sum(len(IS_SERVER.findall(module.text)) for module in modules),
        "locals_that_say_nothing": empty_names.total(),
        "odd_english_lines": sum(bool(ODD_ENGLISH.search(line)) for m in modules for line in m.text.splitlines()),
        "numeric_constants_in_recall": sum(m.numeric_constants() for m in modules if m.room == "triskele.recall"),
        "files_that_name_the_field_speaker": sum("speaker" in module.text for module in modules),
        "rooms": dict(rooms.most_common()),
        "locals": dict(empty_names.most_common()),
        "longest_functions": {name: size for size, name in functions[:8]},
    }


def measure_documents() -> Report:
    """Words of the documents, and lines of the tests."""
    decisions = [_words(path) for path in tree_files("docs/decisions/*.md") if path.name != "README.md"]
    pages = [path for path in tree_files("docs/*.md", "README.md", "CONTRIBUTING.md") if "site" not in path.parts]
    return {
        "test_lines": sum(path.read_text(encoding="utf-8").count("\n") for path in tree_files("tests/*.py")),
        "words": {name: _words(ROOT / name) for name in PAGES},
        "decisions": len(decisions),
        "decision_words_median": statistics.median(decisions or [0]),
        "docs_words": sum(map(_words, pages)),
    }


def _words(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").split()) if path.is_file() else 0


def measure_program() -> Report:
    """What only the running program shows: the files of a recall, and the settings."""
    import trace_recall

    from triskele import config

    trace = trace_recall.typical_recall()
    settings = config.load({"TRISKELE_HOME": os.devnull, "TRISKELE_CONFIG": os.devnull})
    return {
        "recall_files": len(trace.files),
        "recall_switches": trace.switches,
        # Where each setting came from is none.
        "settings": _leaves(settings) - 1,
    }


def _leaves(settings: Any) -> int:
    values = (getattr(settings, field.name) for field in fields(settings))
    return sum(_leaves(value) if is_dataclass(value) else 1 for value in values)


def measure() -> Report:
    """Every number."""
    return measure_source() | measure_documents() | measure_program()


@dataclass(frozen=True)
class Bound:
    """What a number may be, and should become; a limit may lie above it, a falling bound follows it."""

    most: int
    goal: int
    falls: bool

    def problem(self, name: str, number: int) -> str:
        """What is wrong with the number or its bound; empty if nothing is."""
        if number > self.most:
            return f"{name} is {number:,}; at most {self.most:,} are allowed"
        if self.falls and self.most - number > max(2, self.most // 100):
            return f"lower the bound of {name} to {number:,}: python scripts/house.py --lower"
        return ""


def read_bounds(text: str) -> dict[str, Bound]:
    """The bounds of a house.toml."""
    return {
        name: Bound(row.get("bound", row.get("limit")), row.get("goal", row.get("limit")), "bound" in row)
        for name, row in tomllib.loads(text).items()
    }


def lowered(text: str, numbers: Mapping[str, int]) -> str:
    """A house.toml in which every bound, and every goal, above its number is that number."""
    for name, bound in read_bounds(text).items():
        number = numbers[name]
        if bound.falls and number < bound.most:
            row = f"\\g<1>{number}, goal = {min(number, bound.goal)}"
            text = re.sub(rf"(?m)^({name} += \{{ bound = )\d+, goal = \d+", row, text)
    return text


def _table(report: Report, bounds: Mapping[str, Bound]) -> Iterable[str]:
    yield f"{'':34} {'today':>8} {'bound':>8} {'goal':>8}"
    for name, value in report.items():
        if name in bounds:
            yield f"{name:34} {value:8} {bounds[name].most:8} {bounds[name].goal:8}"
        elif isinstance(value, dict):
            yield f"{name}: {', '.join(f'{key} {count}' for key, count in value.items())}"
        else:
            yield f"{name:34} {value!s:>8}"


def main() -> None:
    """Print the numbers, or lower the bounds."""
    parser = argparse.ArgumentParser(description="Print the numbers of the source tree.")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--lower", action="store_true", help="lower each bound of house.toml to today's number")
    arguments = parser.parse_args()
    report = measure()
    text = BOUNDS.read_text(encoding="utf-8")
    if arguments.lower:
        BOUNDS.write_text(lowered(text, report), encoding="utf-8")
    elif arguments.json:
        print(json.dumps(report))
    else:
        print("\n".join(_table(report, read_bounds(text))))


if __name__ == "__main__":
    main()
