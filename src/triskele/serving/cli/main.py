"""The `triskele` command: imports a command's module by name and reports each error in one line."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

import click

from triskele import __version__
from triskele.errors import BadInput, Conflict, NotFound, TriskeleError, Unavailable
from triskele.serving.cli.invocation import Invocation, examples, global_options
from triskele.serving.error_messages import error_line, printable_line

# A command's module is imported on call: `--version` must cost nothing.
SECTIONS: dict[str, dict[str, str]] = {
    "Start here": {"demo": "demo:demo"},
    "Remember": {
        "add": "write_commands:add",
        "edit": "write_commands:edit",
        "link": "write_commands:link",
        "forget": "write_commands:forget",
        "undo": "write_commands:undo",
    },
    "Recall": {
        "recall": "read_commands:recall",
        "why-not": "read_commands:why_not",
        "show": "read_commands:show",
        "list": "read_commands:list_memories",
        "history": "read_commands:history",
        "stats": "read_commands:stats",
    },
    "Agents": {
        "install": "agent_commands:install",
        "uninstall": "agent_commands:uninstall",
        "serve": "agent_commands:serve",
        "hook": "agent_commands:hook",
        "mcp": "agent_commands:mcp",
    },
    "Graph": {"graph": "graph_commands:graph"},
    "Secrets": {"secrets": "store_commands:secrets"},
    "Import and export": {"import": "transfer_commands:import_", "export": "transfer_commands:export"},
    "Models": {"models": "model_commands:models"},
    "Store": {
        "backup": "store_commands:backup",
        "restore": "store_commands:restore",
        "reindex": "store_commands:reindex",
        "doctor": "store_commands:doctor",
        "config": "store_commands:config",
        "completion": "store_commands:completion",
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
    """The table of commands, each imported when it is needed."""

    def list_commands(self, _: click.Context) -> list[str]:
        """All commands, in the order of the help."""
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
        """The called command; a misspelled name gets a suggestion."""
        if args[0] not in COMMANDS and not ctx.resilient_parsing:
            from difflib import get_close_matches

            for close in get_close_matches(args[0], COMMANDS, n=1):
                raise click.UsageError(f"unknown command {args[0]!r}: did you mean {close}?", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands by section."""
        width = max(map(len, COMMANDS))
        for title, names in SECTIONS.items():
            with formatter.section(title):
                commands = ((name, self.get_command(ctx, name)) for name in names)
                formatter.write_dl(
                    [(name.ljust(width), command.get_short_help_str(80)) for name, command in commands if command]
                )

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """The context of a command line; click would answer an interrupt with an empty line."""
        try:
            return super().make_context(*args, **extra)
        except KeyboardInterrupt:
            raise click.Abort from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a closed pipe is not an error."""
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
        """Run a command line and exit with its code."""
        extra.setdefault("prog_name", "triskele")
        extra.setdefault("obj", Invocation())
        extra["standalone_mode"] = False
        _prepare_streams()
        arguments = list(extra.get("args") or (args[0] if args else None) or sys.argv[1:])
        try:
            result = super().main(*args, **extra)
        except (KeyboardInterrupt, click.Abort, Exception) as error:
            message, code = ("interrupted", INTERRUPTED) if _is_interrupt(error) else _described(error)
            _write_error(message, extra["obj"], arguments)
            sys.exit(code)
        sys.exit(result if isinstance(result, int) else DONE)


def _prepare_streams() -> None:
    """Escape characters that a stream cannot encode, and discard output where a stream is closed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _is_interrupt(error: BaseException) -> bool:
    """Whether Ctrl-C led to this error, maybe wrapped by the code that it interrupted."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, KeyboardInterrupt | click.Abort):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _described(error: BaseException) -> tuple[str, int]:
    """The message of an error in one line, and the exit code."""
    if os.environ.get("TRISKELE_DEBUG"):
        raise error
    if isinstance(error, click.ClickException):
        return printable_line(error.format_message() + _help_hint(error)), BAD_INPUT
    for kind, code in _EXIT_CODES:
        if isinstance(error, kind):
            return error_line(error), code
    fault = f"a fault inside triskele: {type(error).__name__}: {error} (TRISKELE_DEBUG=1 shows where)"
    return printable_line(fault), UNAVAILABLE


def _write_error(message: str, invocation: Invocation, arguments: list[str]) -> None:
    """One line on standard error; with --json also one document on standard output."""
    click.echo(f"triskele: {message}", err=True)
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if (invocation.as_json or "--json" in options) and not invocation.has_answered:
        invocation.write_json({"error": message})


def _help_hint(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f" (see {context.command_path} --help)" if context else ""


def _silence_output() -> None:
    """The pipe is closed: send the interpreter's last flush to nowhere."""
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
    """Long-term memory for AI agents: store short memories and recall them, with reasons.

    An id may be shortened to its first characters, as in git. Every command takes --json, and --help with examples.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main() -> None:
    """The entry point of the `triskele` program."""
    # Queries run one at a time, and their small matrix products are slower with more threads.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    cli()
