"""Help in two sizes: the everyday commands and options, and all of them under `triskele help --all`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from triskele.edge.cli.invocation import Invocation, common, examples

_GLOBAL = ("json", "store")


class EverydayCommand(click.Command):
    """A command whose help shows a few options; `triskele help COMMAND --all` shows the others."""

    def __init__(self, *args: Any, everyday: Sequence[str] = (), **details: Any) -> None:
        super().__init__(*args, **details)
        self._everyday = everyday

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The everyday options in their order, the advanced ones, and those of every command."""
        options = [each for each in self.params if isinstance(each, click.Option)]
        shown = [each for name in self._everyday for each in options if each.name == name]
        own = self.get_help_option(ctx)
        shared = [*(each for each in options if each.name in _GLOBAL), *([own] if own else [])]
        advanced = [each for each in options if each not in shown and each not in shared]
        _write_options(formatter, ctx, "Options", shown)
        if ctx.ensure_object(Invocation).shows_all:
            _write_options(formatter, ctx, "Advanced options", advanced)
        _write_options(formatter, ctx, "Options of every command", shared)
        if advanced and not ctx.obj.shows_all:
            names = ", ".join(each.opts[0] for each in advanced)
            write_more(formatter, f"{names} (triskele help {ctx.info_name} --all)")


def did_you_mean(word: str, known: Iterable[str], names: Mapping[str, str] | None = None) -> str:
    """The known word that is most like this one; `names` maps words of other programs to those of triskele."""
    from difflib import get_close_matches

    close = get_close_matches(word, list(known), n=1)
    return f": did you mean {(names or {}).get(close[0], close[0])}?" if close else ""


def unknown_command(
    word: str, known: Iterable[str], context: click.Context | None, names: Mapping[str, str] | None = None
) -> click.UsageError:
    """A command that does not exist, with what was meant."""
    return click.UsageError(f"unknown command {word!r}{did_you_mean(word, known, names)}", context)


def write_more(formatter: click.HelpFormatter, text: str) -> None:
    """A paragraph that names what the help leaves out."""
    with formatter.section("Advanced"):
        formatter.write_text(text)


def _write_options(
    formatter: click.HelpFormatter, ctx: click.Context, title: str, options: Sequence[click.Option]
) -> None:
    records = [record for record in (each.get_help_record(ctx) for each in options) if record is not None]
    if records:
        with formatter.section(title):
            formatter.write_dl(records)


@click.command(
    "help",
    epilog=examples("triskele help --all", "triskele help recall --all", "triskele help secrets reveal"),
)
@click.argument("words", metavar="[COMMAND]...", nargs=-1)
@click.option("--all", "shows_all", is_flag=True, help="Also the advanced commands and options.")
@common
@click.pass_context
def help_(context: click.Context, invocation: Invocation, words: tuple[str, ...], shows_all: bool) -> None:
    """Show help, for triskele or for a command."""
    invocation.shows_all = shows_all
    shown = context.find_root()
    for word in words:
        group = shown.command
        found = group.get_command(shown, word) if isinstance(group, click.Group) else None
        if found is None:
            known = group.list_commands(shown) if isinstance(group, click.Group) else ()
            raise unknown_command(word, known, context)
        shown = click.Context(found, info_name=word, parent=shown)
    text = shown.get_help()
    if invocation.as_json:
        return invocation.write_json({"command": shown.command_path, "help": text})
    return click.echo(text)
