"""review, curate, and what add says about related memories."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click
import pytest

from triskele.curation import curator
from triskele.edge.cli import curation

Run = Callable[..., Any]
Add = Callable[..., str]

OLD, NEW = "Payroll runs on Nomad", "Payroll now runs on Kubernetes"


@pytest.fixture
def proposed(run: Run, add: Add) -> tuple[str, str, str]:
    """The older memory, the newer one, and the proposal on both."""
    old, new = add(OLD), add(NEW)
    run("curate")
    [proposal] = run("review", "list", "--json").json["proposals"]
    return old, new, proposal["id"]


def test_curate_counts_earlier_proposals_as_pending(run: Run, proposed: tuple[str, str, str]) -> None:
    assert "0 new proposals, 1 in all: review with `triskele review`." in run("curate").out
    run("review", "reject", proposed[2])
    assert "in all" not in run("curate").out


def test_add_names_related_memories(run: Run, add: Add) -> None:
    old = add(OLD)
    shown = run("add", NEW)
    # Ids are shown as long as they need to be.
    [named] = re.findall(f"It may replace (\\w+): {OLD}", shown.out)
    assert old.startswith(named)
    assert "triskele link" in shown.out
    [similar] = run("add", "payroll runs on kubernetes now!", "--json").json["similar"][:1]
    assert (similar["relation"], similar["content"]) == ("duplicate", NEW)


def test_add_names_no_unrelated_memories_or_with_curation_off(run: Run, add: Add, home: Any) -> None:
    add(OLD)
    assert run("add", "The kettle is red", "--json").json.get("similar") is None
    (home / "config.toml").write_text("[curation]\nmode = 'off'\n")
    assert run("add", NEW, "--json").json.get("similar") is None


@pytest.mark.parametrize(
    ("answer", "superseded", "count"), [("replace", True, 2), ("keep", False, 2), ("cancel", False, 1)]
)
def test_add_asks_about_related_memories_on_a_terminal(
    run: Run, add: Add, monkeypatch: pytest.MonkeyPatch, answer: str, superseded: bool, count: int
) -> None:
    old = add(OLD)
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
    monkeypatch.setattr(click, "prompt", lambda *_args, **_options: answer)
    assert run("add", NEW).code == (1 if answer == "cancel" else 0)
    assert run("show", old, "--json").json["superseded"] is superseded
    assert len(run("list", "--json").json["memories"]) == count


def test_curate_dry_run_changes_nothing(run: Run, add: Add) -> None:
    add(OLD)
    add(NEW)
    shown = run("curate", "--dry-run")
    assert "contradiction" in shown.out and "Nomad became Kubernetes" in shown.out
    assert run("review", "list", "--json").json == {"proposals": []}
    assert run("curate", "--dry-run", "--apply", "0.95").is_refused(2, "exclude each other")


def test_curate_applies_with_consent_and_can_be_undone(run: Run, add: Add, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curator, "LEAST_A_DAY", 0)
    old = add(OLD)
    add(NEW)
    assert run("curate", "--apply", "0.9").is_refused(2, "--yes")
    result = run("curate", "--apply", "0.9", "--yes", "--json").json
    assert [(each["action"], each["content"]) for each in result["applied"]] == [("supersede", NEW)]
    assert run("show", old, "--json").json["superseded"]
    assert run("undo", "--batch", result["batch"], "--yes").code == 0
    assert not run("show", old, "--json").json["superseded"]


def test_review_accept_by_id_can_be_undone(run: Run, proposed: tuple[str, str, str]) -> None:
    old, _, id = proposed
    shown = run("review", "list").out
    assert id in shown and "replaces" in shown
    batch = run("review", "accept", id[:6], "--json").json["accepted"][id]
    assert run("show", old, "--json").json["superseded"]
    run("undo", "--batch", batch, "--yes")
    assert not run("show", old, "--json").json["superseded"]


@pytest.fixture
def chain(run: Run, add: Add) -> list[str]:
    """Three values of one thing: each newer one would replace each older one."""
    ids = [add(f"We use Postgres {number} for the shop") for number in (14, 15, 16)]
    run("curate")
    assert len(run("review", "list", "--json").json["proposals"]) == 3
    return ids


def test_review_accept_is_one_batch(run: Run, chain: list[str]) -> None:
    shown = run("review", "accept", "--above", "0.1").out
    assert "2 proposals accepted (undo: triskele undo --batch" in shown
    assert [run("show", id, "--json").json["superseded"] for id in chain] == [True, True, False]
    run("undo", "--yes")
    assert [run("show", id, "--json").json["superseded"] for id in chain] == [False, False, False]
    assert [run("show", id, "--json").json["valid_to"] for id in chain] == [None, None, None]


def test_review_accept_names_skipped_proposals(run: Run, chain: list[str]) -> None:
    waiting = {each["id"] for each in run("review", "list", "--json").json["proposals"]}
    result = run("review", "accept", *waiting, "--json").json
    [skipped] = result["skipped"]
    assert {*result["accepted"], skipped} == waiting and len(set(result["accepted"].values())) == 1
    run("undo", "--yes")
    run("curate")
    assert "1 proposal skipped, outdated by one accepted before" in run("review", "accept", "--above", "0.1").out


def test_review_reject_is_final(run: Run, proposed: tuple[str, str, str]) -> None:
    run("review", "reject", proposed[2])
    run("curate")
    assert run("review", "list").out == "No proposals to review.\n"
    assert run("review", "accept", proposed[2]).is_refused(1, "no proposal")
    assert run("review", "accept").is_refused(2, "--above")


def test_review_takes_single_keys(
    run: Run, proposed: tuple[str, str, str], add: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    add("The kettle is red")
    add("the kettle is red.")
    run("curate")
    keys = iter("xra")
    monkeypatch.setattr(curation, "has_keys", lambda: True)
    monkeypatch.setattr(click, "getchar", lambda: next(keys))
    shown = run("review")
    assert "The newer memory replaces the older one?" in shown.out
    assert shown.out.rstrip().endswith("1 accepted, 1 rejected, 0 left.")
    assert not run("show", proposed[0], "--json").json["superseded"]


def test_review_skips_outdated_proposals(run: Run, chain: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curation, "has_keys", lambda: True)
    monkeypatch.setattr(click, "getchar", lambda: "a")
    shown = run("review").out
    assert "1 proposal skipped" in shown
    assert shown.rstrip().endswith("2 accepted, 0 rejected, 0 left.")
    run("undo", "--yes")
    assert [run("show", id, "--json").json["superseded"] for id in chain] == [False, False, False]


def test_review_without_a_terminal_names_the_commands(run: Run, proposed: tuple[str, str, str]) -> None:
    assert run("review", "--json").is_refused(2, "review list")
    assert run("review", "list", "--json").json["proposals"][0]["id"] == proposed[2]


def test_eval_run_curation_prints_scores(run: Run) -> None:
    halves = run("eval", "run", "curation", "--json").json["halves"]
    assert [half["half"] for half in halves] == ["tune", "test", "spoken"]
    assert halves[1]["verdicts"]["supersede"]["precision"] >= 0.97
    assert "False merges" in run("eval", "run", "curation").out
