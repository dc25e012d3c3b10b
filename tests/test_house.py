"""The numbers of the source tree stay within the bounds of house.toml, and the bounds follow the numbers."""

from __future__ import annotations

import ast

import house
import pytest

BOUNDS = house.read_bounds(house.BOUNDS.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def report() -> house.Report:
    return house.measure()


@pytest.mark.slow
def test_every_number_is_within_its_bound(report: house.Report) -> None:
    problems = [bound.problem(name, report[name]) for name, bound in BOUNDS.items()]
    assert not any(problems), "\n".join(filter(None, problems))


def test_goals_are_not_above_their_bounds() -> None:
    assert not [name for name, bound in BOUNDS.items() if bound.goal > bound.most]


def test_a_bound_follows_its_number_with_little_slack() -> None:
    falling, limit = house.Bound(1000, 10, falls=True), house.Bound(700, 700, falls=False)
    assert [bool(falling.problem("lines", number)) for number in (1001, 1000, 990, 989)] == [True, False, False, True]
    assert "lower the bound of lines to 989" in falling.problem("lines", 989)
    assert [bool(house.Bound(10, 0, falls=True).problem("casts", number)) for number in (8, 7)] == [False, True]
    assert [bool(limit.problem("file", number)) for number in (701, 700, 1)] == [True, False, False]


def test_lower_never_raises_a_bound() -> None:
    text = "# why\nlines = { bound = 100, goal = 10 }\nfiles = { bound = 7, goal = 5 }\nlargest = { limit = 70 }\n"
    changed = house.lowered(text, {"lines": 90, "files": 8, "largest": 50})
    assert changed == text.replace("bound = 100", "bound = 90")


def test_lower_lowers_a_goal_that_is_passed() -> None:
    assert house.lowered("words = { bound = 9, goal = 9 }\n", {"words": 8}) == "words = { bound = 8, goal = 8 }\n"


def test_layers_count_a_cycle_as_one_module() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set[str]()}
    groups = house.import_cycles(edges)
    assert sorted(map(sorted, groups)) == [["a"], ["b", "c"], ["d"]]
    assert house.import_layers(edges, groups) == 3


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("triskele.engine", "core"),
        ("triskele.edge.cli.main", "edge"),
        ("triskele.agents.fence", "core"),
        ("triskele.server.tenants", "server"),
        ("triskele.server.postgres.truth", "server"),
        ("triskele.code.search", "code"),
        ("triskele", "core"),
    ],
)
def test_each_module_belongs_to_a_group(name: str, group: str) -> None:
    assert house.Module(name, "", ast.parse("")).group == group


def test_counts_in_a_module() -> None:
    source = (
        "DEPTH = -3\nNAME = 'x'\n"
        "def f(engine):\n    import b\n    found = engine.store\n    return [each for each in found]\n"
    )
    module = house.Module("triskele.edge.x", source, ast.parse(source))
    assert list(module.imports({"b", "c"})) == [({"b"}, True)]
    assert list(module.locals_that_say_nothing()) == ["found"]
    assert (module.engine_insides(), module.numeric_constants(), module.lines) == (1, 1, 6)
    assert list(module.functions()) == [(4, "triskele.edge.x:f")]
