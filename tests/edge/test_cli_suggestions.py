"""Every command answers a misspelled option, and words that it does not take, with what was meant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import click
import pytest

from triskele.edge.cli.main import cli

Run = Callable[..., Any]


def _commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from _commands(command, (*path, name))


COMMANDS = dict(_commands(cli))
GROUPS = {path: command for path, command in COMMANDS.items() if isinstance(command, click.Group)}
LEAVES = {path: command for path, command in COMMANDS.items() if path not in GROUPS}
WORDLESS = [
    path for path, command in LEAVES.items() if not any(isinstance(each, click.Argument) for each in command.params)
]


def _options(command: click.Command) -> list[str]:
    flags = [flag for each in command.params for flag in each.opts if flag.startswith("--")]
    return [flag for flag in flags if len(flag) > 5]


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_misspelled_option_gets_a_suggestion(run: Run, path: tuple[str, ...]) -> None:
    for flag in _options(LEAVES[path]):
        misspelled = flag[:-2] + flag[-1] + flag[-2] + "x"
        assert run(*path, misspelled).is_refused(2, f"unknown option {misspelled[:16]!r}"[:16], "did you mean --"), flag


@pytest.mark.parametrize("path", [(), *GROUPS], ids=" ".join)
def test_misspelled_command_gets_a_suggestion(run: Run, path: tuple[str, ...]) -> None:
    group = GROUPS[path] if path else cli
    for name in (name for name in group.list_commands(click.Context(group)) if len(name) > 3):
        assert run(*path, f"{name[:-1]}xq").is_refused(2, "unknown command", "did you mean"), name
    assert run("help", *path, "recalx" if not path else f"{group.list_commands(click.Context(group))[0]}x").is_refused(
        2, "did you mean"
    )


@pytest.mark.parametrize("path", WORDLESS, ids=" ".join)
def test_words_for_a_command_without_arguments_are_refused(run: Run, path: tuple[str, ...]) -> None:
    assert run(*path, "3").is_refused(2, f"{path[-1]} takes no words (3)")


def test_undo_suggests_batch_for_a_word(run: Run) -> None:
    assert run("undo", "3").is_refused(2, "did you mean --batch 3?")
    assert run("list", "cheese").is_refused(2, "`triskele recall`")
    assert run("recall", "two", "words").is_refused(2, "too many words (words)", "in quotes")
