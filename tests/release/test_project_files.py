"""The files of a release: pinned actions, few permissions, steps that name what exists, short texts."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
USES = re.compile(r"uses: (?P<action>[\w./-]+)@(?P<commit>[0-9a-f]{40}) # (?P<version>v\d+\.\d+\.\d+)")
PATHS = re.compile(r"(?:locks|scripts|integrations|\.ci)/[\w./-]+")


def jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every job, by workflow and name."""
    for path in WORKFLOWS:
        for name, job in yaml.safe_load(path.read_text())["jobs"].items():
            yield f"{path.stem}.{name}", job


def commands() -> str:
    """Every line that a step runs."""
    return "\n".join(step.get("run", "") for _, job in jobs() for step in job.get("steps", ()))


def test_every_action_is_pinned_to_one_commit() -> None:
    lines = [line.strip() for path in WORKFLOWS for line in path.read_text().splitlines() if " uses: " in line]
    pins = [USES.search(line) for line in lines if "uses: ./" not in line]
    assert all(pins), lines
    commits = {(pin["action"], pin["commit"], pin["version"]) for pin in pins if pin}
    assert len(commits) == len({action for action, *_ in commits})


def test_only_jobs_that_publish_may_write() -> None:
    tops = [yaml.safe_load(path.read_text())["permissions"] for path in WORKFLOWS]
    assert tops == [{"contents": "read"}] * len(WORKFLOWS)
    granted = {name: set(job.get("permissions", {}).items()) - {("contents", "read")} for name, job in jobs()}
    writing = {
        name: {scope for scope, right in rights if right == "write"} for name, rights in granted.items() if rights
    }
    assert writing == {
        "docs.publish": {"pages", "id-token"},
        "release.pypi": {"id-token"},
        "release.image": {"packages", "id-token", "attestations"},
        "release.registry": {"id-token"},
        "release.github": {"contents"},
    }


def test_nothing_is_published_that_was_not_used() -> None:
    needs = {name.removeprefix("release."): job.get("needs", []) for name, job in jobs() if name.startswith("release.")}
    assert needs["wheel"] == "version" and needs["pypi"] == needs["image"] == "wheel"
    assert needs["registry"] == "pypi" and set(needs["github"]) == {"pypi", "image"}


def test_no_step_pastes_an_expression_into_a_shell() -> None:
    assert "${{" not in commands()


def test_steps_name_existing_files_and_targets() -> None:
    assert all((ROOT / path).exists() for path in PATHS.findall(commands()))
    targets = set(re.findall(r"^([a-z0-9]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    # The workflow of the site starts with its first page.
    targets |= set() if (ROOT / "docs" / "site").exists() else {"site"}
    assert set(re.findall(r"\bmake ([a-z0-9]+)", commands())) <= targets


@pytest.mark.parametrize("name", ["SECURITY.md", "VERSIONING.md"])
def test_project_files_are_short(name: str) -> None:
    assert len((ROOT / name).read_text().split()) <= 350


def test_python_versions_are_those_of_the_package() -> None:
    matrix = dict(jobs())["wheel.use"]["strategy"]["matrix"]
    classified = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert matrix["python"] == classified and len(matrix["system"]) == 3


@pytest.mark.slow
@pytest.mark.needs("actionlint")
def test_actionlint_has_nothing_to_say() -> None:
    done = subprocess.run(["actionlint", *WORKFLOWS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
