"""Help in two sizes: everyday commands and options, and all of them under `triskele help --all`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from triskele.edge.cli.invocation import Invocation, common, examples

_GLOBAL = ("json", "store")
# Options that compare ways to rank.
_MEASURING = ("legs", "fusion", "rerank", "order", "near")


class EverydayCommand(click.Command):
    """A command with short help; `triskele help COMMAND --all` shows the rest."""

    def __init__(self, *args: Any, everyday: Sequence[str] = (), **details: Any) -> None:
        super().__init__(*args, **details)
        self._everyday = everyday

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write everyday and global options, and the others or their names."""
        options = [param for param in self.params if isinstance(param, click.Option)]
        everyday = [option for name in self._everyday for option in options if option.name == name]
        own = self.get_help_option(ctx)
        shared = [*(option for option in options if option.name in _GLOBAL), *([own] if own else [])]
        measuring = [option for option in options if option.name in _MEASURING]
        advanced = [option for option in options if option not in (*everyday, *shared, *measuring)]
        shows_all = ctx.ensure_object(Invocation).shows_all
        _write_options(formatter, ctx, "Options", everyday)
        if shows_all:
            _write_options(formatter, ctx, "Advanced options", advanced)
            _write_options(formatter, ctx, "Options for measuring", measuring)
        _write_options(formatter, ctx, "Options of every command", shared)
        for title, rest in (("Advanced", advanced), ("For measuring", measuring)):
            if rest and not shows_all:
                names = ", ".join(option.opts[0] for option in rest)
                write_more(formatter, f"{names} (triskele help {ctx.info_name} --all)", title)


def did_you_mean(word: str, words: Iterable[str], meanings: Mapping[str, str] | None = None) -> str:
    """A hint at the most similar word, translated by `meanings`."""
    from difflib import get_close_matches

    close = get_close_matches(word, list(words), n=1)
    return f": did you mean {(meanings or {}).get(close[0], close[0])}?" if close else ""


def unknown_command(
    word: str, commands: Iterable[str], context: click.Context | None, meanings: Mapping[str, str] | None = None
) -> click.UsageError:
    """The error for a command that does not exist, with a hint."""
    return click.UsageError(f"unknown command {word!r}{did_you_mean(word, commands, meanings)}", context)


def write_more(formatter: click.HelpFormatter, text: str, title: str = "Advanced") -> None:
    """Write a paragraph that names what the help leaves out."""
    with formatter.section(title):
        formatter.write_text(text)


def _write_options(
    formatter: click.HelpFormatter, ctx: click.Context, title: str, options: Sequence[click.Option]
) -> None:
    records = [record for record in (option.get_help_record(ctx) for option in options) if record is not None]
    if records:
        with formatter.section(title):
            formatter.write_dl(records)


@click.command(
    "help", epilog=examples("triskele help --all", "triskele help recall --all", "triskele help secrets reveal")
)
@click.argument("words", metavar="[COMMAND]...", nargs=-1)
@click.option("--all", "shows_all", is_flag=True, help="Also the advanced commands and options.")
@common
@click.pass_context
def help_(context: click.Context, invocation: Invocation, words: tuple[str, ...], shows_all: bool) -> None:
    """Show help, for triskele or for a command."""
    invocation.shows_all = shows_all
    described = context.find_root()
    for word in words:
        group = described.command
        command = group.get_command(described, word) if isinstance(group, click.Group) else None
        if command is None:
            names = group.list_commands(described) if isinstance(group, click.Group) else ()
            raise unknown_command(word, names, context)
        described = click.Context(command, info_name=word, parent=described)
    text = described.get_help()
    if invocation.as_json:
        return invocation.write_json({"command": described.command_path, "help": text})
    return click.echo(text)
