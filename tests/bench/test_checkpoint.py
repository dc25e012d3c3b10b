"""An interrupted run goes on where it stopped, and only if nothing has changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from triskele.bench import bench
from triskele.bench.bench import run_bench

ARMS = ["fts", "lexical", "default"]


class PowerCut(Exception):
    """The run ends here."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The arms that were really asked, in their order."""
    arms: list[str] = []
    plain = bench.measure_arm

    def measure(harness: Any, arm: Any, *rest: Any, **more: Any) -> Any:
        arms.append(arm.name)
        return plain(harness, arm, *rest, **more)

    monkeypatch.setattr(bench, "measure_arm", measure)
    return arms


def interrupted(folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
    """A run that measures every arm and ends before it can say so."""

    def cut(*_: Any, **__: Any) -> Any:
        raise PowerCut

    with monkeypatch.context() as patched:
        patched.setattr(bench, "_report", cut)
        with pytest.raises(PowerCut):
            run_bench(folder, arms=ARMS, **options)


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    values = [{name: arm["overall"] for name, arm in report["arms"].items()} for report in (one, other)]
    legs = [{name: arm["legs"] for name, arm in report["arms"].items()} for report in (one, other)]
    told = [report["abstention"] for report in (one, other)]
    return values[0] == values[1] and legs[0] == legs[1] and told[0] == told[1]


def test_finished_arms_are_not_asked_again(
    write_dataset: Callable[..., Path], asked: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = write_dataset()
    interrupted(folder, monkeypatch)
    assert asked == ARMS
    asked.clear()
    resumed = run_bench(folder, arms=[*ARMS, "rrf"], out=tmp_path / "resumed")
    assert asked == ["rrf"]
    asked.clear()
    anew = run_bench(folder, arms=[*ARMS, "rrf"], out=tmp_path / "anew")
    assert asked == [*ARMS, "rrf"]
    assert same(resumed, anew)
    for name in ("queries.tsv", "runs/default.trec"):
        assert (tmp_path / "resumed" / name).read_bytes() == (tmp_path / "anew" / name).read_bytes()


def test_a_changed_program_or_other_questions_ask_again(
    write_dataset: Callable[..., Path], asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_dataset()
    interrupted(folder, monkeypatch)
    asked.clear()
    interrupted(folder, monkeypatch, max_queries=2)
    assert asked == ARMS
    asked.clear()
    monkeypatch.setattr(bench, "_program", lambda: "another")
    run_bench(folder, arms=ARMS, max_queries=2)
    assert asked == ARMS


def test_a_damaged_file_is_asked_again(
    write_dataset: Callable[..., Path], asked: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = write_dataset()
    interrupted(folder, monkeypatch)
    asked.clear()
    kept = sorted((tmp_path / "cache" / "unfinished").rglob("*.json"))
    assert len(kept) == len(ARMS)
    kept[0].write_text("{")
    run_bench(folder, arms=ARMS)
    assert len(asked) == 1
    assert not list((tmp_path / "cache" / "unfinished").rglob("*.json"))
