"""demo and bench."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

Run = Callable[..., Any]


def test_demo_shows_every_scene_and_creates_no_files(run: Run, home: Path) -> None:
    out = run("demo").out
    for words in ("$ triskele recall", "sounding_decode_backlog", "replaces ", "--as-of 2025-05-01", "短信验证"):
        assert words in out
    assert "lexical rank 1" in out
    assert not home.exists()


def test_demo_answers_fit_their_scenes(run: Run) -> None:
    document = run("demo", "--json").json
    assert document["memories"] == 312
    identifier, semantic, question, successor, past, incident, chinese = document["scenes"]
    assert "Safari" in semantic["hits"][0]["content"]
    assert "lexical" not in semantic["hits"][0]["evidence"]
    assert "sounding_decode_backlog" in identifier["hits"][0]["content"]
    assert "restic restore" in question["hits"][0]["content"]
    assert successor["hits"][0]["stands_for"] == past["hits"][0]["id"]
    assert "Tuesdays and Thursdays" in past["hits"][0]["content"]
    assert "pg_advisory_xact_lock" in incident["resolutions"][0]["content"]
    assert "短信验证" in chinese["hits"][0]["content"]


def test_demo_ignores_the_settings_of_the_user(run: Run, home: Path) -> None:
    home.mkdir()
    (home / "config.toml").write_text("nonsense = 1\n")
    assert run("demo", "--json").json["memories"] == 312


def test_bench_measures_the_bundled_sample(run: Run, tmp_path: Path) -> None:
    options = ("--arms", "lexical", "--max-queries", "12", "--seed", "3", "--out", str(tmp_path / "out"))
    document = run("bench", "team", *options, "--json").json
    assert set(document) >= {"dataset", "manifest", "arms", "comparisons"}
    assert set(document["arms"]) == {"fts", "lexical"}
    assert document["arms"]["lexical"]["overall"]["n"] == 12
    assert set(document["comparisons"][0]) >= {"a", "b", "stratum", "metric", "delta", "ci95", "p", "p_holm"}
    assert any((tmp_path / "out").iterdir())


def test_bench_finds_a_data_set_by_name(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(str(resources.files("triskele.samples") / "team"), tmp_path / "shelf" / "crew")
    monkeypatch.setenv("TRISKELE_BENCH_DATA", str(tmp_path / "shelf"))
    out = run("bench", "crew", "--arms", "lexical", "--max-queries", "12").out
    assert "ndcg@10" in out and "lexical − fts" in out


def test_bench_refuses_unknown_names(run: Run) -> None:
    assert run("bench", "nowhere").is_refused(2, "nowhere")
    assert run("bench", "team", "--arms", "telepathy").is_refused(2, "telepathy")
