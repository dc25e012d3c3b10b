"""The `triskele` command: finds the module of a command by name and turns every failure into one line."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

import click

from triskele import __version__
from triskele.errors import BadInput, Conflict, NotFound, TriskeleError, Unavailable
from triskele.serving import failures
from triskele.serving.cli.invocation import Invocation, examples, global_options

# A command's module is imported when the command is called, so that `--version` costs nothing.
SECTIONS: dict[str, dict[str, str]] = {
    "Start here": {"demo": "demo:demo"},
    "Remember": {
        "add": "remembering:add",
        "edit": "remembering:edit",
        "link": "remembering:link",
        "forget": "remembering:forget",
        "undo": "remembering:undo",
    },
    "Recall": {
        "recall": "reading:recall",
        "why-not": "reading:why_not",
        "show": "reading:show",
        "list": "reading:list_memories",
        "history": "reading:history",
        "stats": "reading:stats",
    },
    "Agents": {
        "install": "clients:install",
        "uninstall": "clients:uninstall",
        "serve": "agents:serve",
        "hook": "agents:hook",
        "mcp": "mcp:mcp",
    },
    "Connect": {"graph": "connecting:graph"},
    "Secrets": {"secrets": "secrecy:secrets"},
    "Import and export": {"import": "moving:import_", "export": "moving:export"},
    "Models": {"models": "models:models"},
    "Look after the store": {
        "backup": "upkeep:backup",
        "restore": "upkeep:restore",
        "reindex": "upkeep:reindex",
        "doctor": "upkeep:doctor",
        "config": "upkeep:config",
        "completion": "upkeep:completion",
    },
    "Measure": {"bench": "bench_commands:bench", "eval": "eval_commands:eval_"},
}
COMMANDS = {name: place for section in SECTIONS.values() for name, place in section.items()}

DONE, ANSWER_IS_NO, BAD_INPUT, UNAVAILABLE, INTERRUPTED = 0, 1, 2, 3, 130
# The first class that fits decides.
_EXIT_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (NotFound, ANSWER_IS_NO),
    (Conflict, ANSWER_IS_NO),
    (BadInput, BAD_INPUT),
    (Unavailable, UNAVAILABLE),
    (TriskeleError, UNAVAILABLE),
    (OSError, UNAVAILABLE),
)


class Commands(click.Group):
    """The table of commands, imported one by one as they are needed."""

    def list_commands(self, _: click.Context) -> list[str]:
        """Every command, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, _: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name."""
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name].split(":")
        command: click.Command = getattr(import_module(f"triskele.serving.cli.{module}"), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is called; a near miss is answered with what was probably meant."""
        if args[0] not in COMMANDS and not ctx.resilient_parsing:
            from difflib import get_close_matches

            for close in get_close_matches(args[0], COMMANDS, n=1):
                raise click.UsageError(f"no command {args[0]!r}: did you mean {close}?", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands by what one wants to do."""
        width = max(map(len, COMMANDS))
        for title, names in SECTIONS.items():
            with formatter.section(title):
                commands = ((name, self.get_command(ctx, name)) for name in names)
                formatter.write_dl(
                    [(name.ljust(width), command.get_short_help_str(80)) for name, command in commands if command]
                )

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a reader that has left, or a user who has had enough, is no failure to talk about."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            _silence_output()
            return DONE
        except KeyboardInterrupt:
            raise click.Abort from None
        return result

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command line and leave with its exit code."""
        extra.setdefault("prog_name", "triskele")
        extra.setdefault("obj", Invocation())
        extra["standalone_mode"] = False
        _prepare_streams()
        try:
            result = super().main(*args, **extra)
        except (KeyboardInterrupt, click.Abort):
            sys.exit(INTERRUPTED)
        except Exception as error:
            sys.exit(_tell(error))
        sys.exit(result if isinstance(result, int) else DONE)


def _prepare_streams() -> None:
    """No character is a reason to fail, and a closed stream swallows what is written to it."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _tell(error: Exception) -> int:
    """One line on standard error, and the exit code."""
    if os.environ.get("TRISKELE_DEBUG"):
        raise error
    if isinstance(error, click.ClickException):
        click.echo(_line(error.format_message() + _where_to_read(error)), err=True)
        return BAD_INPUT
    for kind, code in _EXIT_CODES:
        if isinstance(error, kind):
            click.echo(_line(failures.said(error)), err=True)
            return code
    said = f"{type(error).__name__}: {error}"
    click.echo(_line(f"a fault inside triskele: {said} (TRISKELE_DEBUG=1 shows where)"), err=True)
    return UNAVAILABLE


def _where_to_read(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f" (see {context.command_path} --help)" if context else ""


def _line(message: str) -> str:
    return f"triskele: {failures.line(message)}"


def _silence_output() -> None:
    """Nobody reads any more: let the interpreter's last flush go nowhere."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError:
        return


@click.group(
    cls=Commands,
    invoke_without_command=True,
    epilog=examples(
        "triskele demo", 'triskele add "We deploy with Argo CD" --category decisions', 'triskele recall "deploy"'
    ),
)
@click.version_option(__version__, prog_name="triskele", message="%(prog)s %(version)s")
@global_options
@click.pass_context
def cli(context: click.Context) -> None:
    """Long-term memory for AI agents: short memories, found again, with reasons.

    Ids may be given by their first characters, as in git. Every command takes --json for programs and --help with
    examples.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main() -> None:
    """Where the `triskele` program begins."""
    # One question at a time: more threads for its small products cost more than they give.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    cli()
