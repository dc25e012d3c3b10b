"""How commands are declared: options of every command, examples, groups, and help in two sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click

from triskele.edge.cli.invocation import Invocation

_GLOBAL = ("json", "store")
# Options that compare ways to rank.
_MEASURING = ("legs", "fusion", "rerank", "order", "near")

Function = TypeVar("Function", bound=Callable[..., Any])
Declaration = Callable[[Callable[..., Any]], click.Command]


def command(*lines: str, everyday: Sequence[str] = (), **details: Any) -> Declaration:
    """A command with examples and the global options; its function gets the invocation and may return an exit code.

    `everyday` names the options of its short help.
    """
    if everyday:
        details |= {"cls": EverydayCommand, "everyday": everyday}

    def declared(function: Callable[..., Any]) -> click.Command:
        run: Callable[..., Any] = click.pass_obj(global_options(function))
        declare: Callable[..., click.Command] = click.command(epilog=examples(*lines), **details)
        return declare(run)

    return declared


def command_group(
    *lines: str, name: str | None = None, alone: Callable[[Invocation], object] | None = None
) -> Callable[[Callable[[], None]], OrderedGroup]:
    """A group of commands with examples; without a command it runs `alone`, or shows its help."""

    def declared(described: Callable[[], None]) -> OrderedGroup:
        @global_options
        @click.pass_context
        def run(context: click.Context) -> None:
            if context.invoked_subcommand is None and alone is not None:
                alone(context.ensure_object(Invocation))
            elif context.invoked_subcommand is None:
                click.echo(context.get_help())

        details: dict[str, Any] = {"help": described.__doc__, "epilog": examples(*lines)}
        return click.group(name or described.__name__, cls=OrderedGroup, invoke_without_command=True, **details)(run)

    return declared


class OrderedGroup(click.Group):
    """A group that lists commands in the order of their definition."""

    def subcommand(self, *lines: str, **details: Any) -> Declaration:
        """A command of this group, with examples."""

        def declared(function: Callable[..., Any]) -> click.Command:
            self.add_command(added := command(*lines, **details)(function))
            return added

        return declared

    def list_commands(self, _: click.Context) -> list[str]:
        """The commands in order."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The called command."""
        if not ctx.resilient_parsing and args[0] not in self.commands and not args[0].startswith("-"):
            raise unknown_command(args[0], self.commands, ctx)
        return super().resolve_command(ctx, args)


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


def examples(*lines: str) -> str:
    """The examples at the end of a command's help."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def global_options(command: Function) -> Function:
    """`--json` and `--store`, before or after the name of the command."""
    for option in (
        click.option("--store", metavar="URL", expose_value=False, callback=_take_store, help="Use another store."),
        click.option("--json", is_flag=True, expose_value=False, callback=_take_json, help="Print one JSON document."),
    ):
        command = option(command)
    # They come last in the help.
    params: list[click.Parameter] = vars(command)["__click_params__"]
    params[:] = params[-2:] + params[:-2]
    return command


def _take_store(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.ensure_object(Invocation).store = value


def _take_json(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(Invocation).as_json = True


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


@command(
    "triskele help --all",
    "triskele help recall --all",
    "triskele help secrets reveal",
    name="help",
)
@click.argument("words", metavar="[COMMAND]...", nargs=-1)
@click.option("--all", "shows_all", is_flag=True, help="Also the advanced commands and options.")
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
