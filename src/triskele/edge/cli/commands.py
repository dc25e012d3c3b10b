"""How commands are declared: options of every command, examples, groups, help in two sizes, and completion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import click

from triskele.edge.cli.invocation import Invocation

_GLOBAL = ("as_json", "store")
# Options that compare ways to rank.
_MEASURING = ("legs", "fusion", "rerank", "order", "near")

Declaration = Callable[[Callable[..., Any]], click.Command]


def command(*lines: str, everyday: Sequence[str] = (), **details: Any) -> Declaration:
    """A command with examples and the global options; its function gets the invocation and may return an exit code.

    `everyday` names the options of its short help.
    """
    if everyday:
        details |= {"cls": EverydayCommand, "everyday": everyday}

    def declared(function: Callable[..., Any]) -> click.Command:
        declare: Callable[..., click.Command] = click.command(epilog=examples(*lines), **details)
        return declare(click.pass_obj(global_options(function)))

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
        described, named = {"Options": everyday}, {"Advanced": advanced, "For measuring": measuring}
        if ctx.ensure_object(Invocation).shows_all:
            described |= {"Advanced options": advanced, "Options for measuring": measuring}
            named.clear()
        described["Options of every command"] = shared
        for title, group in described.items():
            if records := [record for option in group if (record := option.get_help_record(ctx)) is not None]:
                with formatter.section(title):
                    formatter.write_dl(records)
        for title, group in named.items():
            if group:
                names = ", ".join(option.opts[0] for option in group)
                write_more(formatter, f"{names} (triskele help {ctx.info_name} --all)", title)


def examples(*lines: str) -> str:
    """The examples at the end of a command's help."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def global_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--json` and `--store`, before or after the name of the command, and last in its help."""

    def take(context: click.Context, option: click.Parameter, value: str | bool | None) -> None:
        if value not in (None, False):
            setattr(context.ensure_object(Invocation), str(option.name), value)

    shared: dict[str, Any] = {"expose_value": False, "callback": take}
    click.option("--store", metavar="URL", help="Use another store.", **shared)(command)
    click.option("--json", "as_json", is_flag=True, help="Print one JSON document.", **shared)(command)
    params: list[click.Parameter] = vars(command)["__click_params__"]
    params[:] = params[-2:] + params[:-2]
    return command


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


@command("triskele help --all", "triskele help recall --all", "triskele help secrets reveal", name="help")
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
    invocation.emit({"command": described.command_path, "help": text}, lambda: text)


@command(
    "triskele completion bash > ~/.local/share/bash-completion/completions/triskele",
    "triskele completion fish > ~/.config/fish/completions/triskele.fish",
    'source <(triskele completion zsh)      (in ~/.zshrc, after "compinit")',
)
@click.argument("shell", metavar="bash|zsh|fish", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(context: click.Context, invocation: Invocation, shell: str) -> None:
    """Print a completion script for a shell."""
    from click.shell_completion import get_completion_class

    maker = get_completion_class(shell)
    assert maker is not None
    script = maker(context.find_root().command, {}, "triskele", "_TRISKELE_COMPLETE").source()
    invocation.emit({"shell": shell, "script": script}, lambda: script)
