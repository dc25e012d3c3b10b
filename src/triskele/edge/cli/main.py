"""The `triskele` command: imports a command's module by name and reports each error in one line."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from itertools import chain
from typing import Any

import click

from triskele import __version__
from triskele.edge.cli.commands import did_you_mean, examples, global_options, unknown_command, write_more
from triskele.edge.cli.invocation import Invocation
from triskele.edge.error_messages import error_line, printable_line
from triskele.edge.process.command_line import NEVER_IGNORED
from triskele.errors import IN_BATCH, BadInput, Conflict, NotFound, TriskeleError, VaultLocked

# The commands of each module, by the sections of the help. A module is imported on call: `--version` must cost nothing.
SECTIONS = {
    "Start here": {"demo": "demo", "agents": "ui"},
    "Remember": {"write": "add edit link forget undo"},
    "Recall": {"read": "recall why-not show list history stats"},
    "Agents": {"agents": "install uninstall serve hook mcp memory-tool"},
    "Curation": {"curation": "learn review curate"},
    "Server": {"server": "users keys shares"},
    "Projects": {"store": "projects"},
    "Graph": {"graph": "graph"},
    "Code": {"code": "code"},
    "Secrets": {"store": "secrets"},
    "Import, export and sync": {"transfer": "import export sync"},
    "Models": {"models": "models"},
    "Store": {"store": "backup restore reindex doctor", "config": "config", "commands": "completion"},
    "Measure": {"measure": "bench eval"},
    "Help": {"commands": "help"},
}
COMMANDS = {
    name: module for section in SECTIONS.values() for module, names in section.items() for name in names.split()
}
# What `triskele --help` shows; `triskele help --all` shows every section.
EVERYDAY = {
    "Start here": "demo ui",
    "Every day": "add recall show list edit forget undo",
    "Agents and files": "install import export doctor",
}
# What other programs call it.
ALIASES = {
    "recall": ("search", "find", "query", "ask"),
    "add": ("remember", "store", "save", "note", "new"),
    "forget": ("delete", "remove", "rm"),
    "edit": ("update", "change", "correct"),
    "show": ("get", "view", "cat"),
    "list": ("ls",),
    "history": ("log",),
    "undo": ("revert",),
    "stats": ("status", "info"),
    "config": ("settings",),
    "doctor": ("check", "verify"),
    "mcp": ("server",),
}
_OPTION_CHARACTERS = 16
_COMMAND_OF = {alias: name for name, aliases in ALIASES.items() for alias in aliases}

# Their standard error belongs to the client.
_FOR_AGENTS = ("hook", "mcp", "memory-tool")

DONE, ANSWER_IS_NO, BAD_INPUT, UNAVAILABLE, INTERRUPTED = 0, 1, 2, 3, 130
_EXTRA = re.compile(r"unexpected extra arguments? \((.*)\)", re.DOTALL)
# What people mean by words after a command that takes none.
_INSTEAD = {"undo": ": did you mean --batch {}?", "list": ": `triskele recall` searches for words"}
# The options that do what an error names as its remedy.
_REMEDIES = {
    "secret": "--secret",
    "split": "--split",
    "closed": "--closed",
    "all projects or closed": "--all-projects, --closed",
}
# The first class that fits decides.
_EXIT_CODES = {(NotFound, Conflict): ANSWER_IS_NO, (BadInput,): BAD_INPUT, (TriskeleError, OSError): UNAVAILABLE}


class Commands(click.Group):
    """The commands, each imported on call."""

    def list_commands(self, _: click.Context) -> list[str]:
        """List all commands in the order of the help."""
        return list(COMMANDS)

    def get_command(self, _: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command of this name."""
        if cmd_name not in COMMANDS:
            return None
        functions = vars(import_module(f"triskele.edge.cli.{COMMANDS[cmd_name]}"))
        name = cmd_name.replace("-", "_")
        # Python has a `list` itself: the command is `list_`.
        command: click.Command = functions.get(name) or functions[f"{name}_"]
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The called command, by its name or another program's word for it."""
        name = args[0]
        if name not in COMMANDS and not ctx.resilient_parsing:
            if name in _COMMAND_OF:
                click.echo(f"triskele: {name} is called {_COMMAND_OF[name]} here", err=True)
                return self.resolve_command(ctx, [_COMMAND_OF[name], *args[1:]])
            if name.startswith("-"):
                raise _no_such_option(name, [flag for param in self.params for flag in param.opts], ctx)
            raise unknown_command(name, [*COMMANDS, *_COMMAND_OF], ctx, _COMMAND_OF)
        variables = [word for word in os.environ if word.startswith("TRISKELE_") and word not in NEVER_IGNORED]
        if variables and name not in _FOR_AGENTS and not ctx.resilient_parsing:
            ctx.ensure_object(Invocation).stores.warn_of_variables()
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the everyday commands, or all of them, by section."""
        shows_all = ctx.ensure_object(Invocation).shows_all
        everyday = {title: names.split() for title, names in EVERYDAY.items()}
        sections = {title: " ".join(modules.values()).split() for title, modules in SECTIONS.items()}
        width = max(map(len, COMMANDS))
        for title, names in (sections if shows_all else everyday).items():
            with formatter.section(title):
                commands = ((name, self.get_command(ctx, name)) for name in names)
                formatter.write_dl(
                    [(name.ljust(width), command.get_short_help_str(80)) for name, command in commands if command]
                )
        if not shows_all:
            advanced = ", ".join(name for name in COMMANDS if name not in chain(*everyday.values()))
            write_more(formatter, f"{advanced} (triskele help --all)")

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Create the context; click would answer an interrupt with an empty line."""
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
            # Discard the interpreter's last flush.
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return DONE
        except KeyboardInterrupt:
            raise click.Abort from None
        return result

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command line and exit with its code."""
        extra.setdefault("prog_name", "triskele")
        invocation: Invocation = extra.setdefault("obj", Invocation())
        extra["standalone_mode"] = False
        _prepare_streams()
        invocation.arguments = arguments = list(extra.get("args") or (args[0] if args else None) or sys.argv[1:])
        try:
            result = self._run(invocation, partial(super().main, *args, **extra))
        except (KeyboardInterrupt, click.Abort, Exception) as error:
            message, code = ("interrupted", INTERRUPTED) if _is_interrupt(error) else _described(error, arguments)
            click.echo(f"triskele: {message}", err=True)
            options = arguments[: arguments.index("--")] if "--" in arguments else arguments
            if (invocation.as_json or "--json" in options) and not invocation.has_answered:
                invocation.write_json({"error": message})
            sys.exit(code)
        sys.exit(result if isinstance(result, int) else DONE)

    def _run(self, invocation: Invocation, run: Callable[[], Any]) -> Any:
        """Run a command; again in this process if the vault is locked for the background process."""
        try:
            return run()
        except VaultLocked:
            if not invocation.resident_store:
                raise
        # This process can ask for the passphrase, and its environment may hold the key.
        invocation.asks_resident = False
        return run()


def _prepare_streams() -> None:
    """Escape what a stream cannot encode; discard output to closed ones."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _is_interrupt(error: BaseException) -> bool:
    """Whether Ctrl-C caused this error, directly or wrapped."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, KeyboardInterrupt | click.Abort):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _described(error: BaseException, arguments: Sequence[str]) -> tuple[str, int]:
    """The message of an error in one line, and its exit code."""
    if os.environ.get("TRISKELE_DEBUG"):
        raise error
    if isinstance(error, click.NoSuchOption):
        # Click names one letter of a word such as -hello.
        letter = error.option_name[1:] if len(error.option_name) == 2 else ""
        whole = (word for word in arguments if letter and word[:1] == "-" != word[1:2] and letter in word)
        error = _no_such_option(next(whole, error.option_name), error.possibilities or (), error.ctx)
    if isinstance(error, click.ClickException):
        message = error.format_message().removesuffix(".")
        if isinstance(error, click.UsageError) and (extra := _EXTRA.search(message)) is not None:
            message = _too_much(extra[1], error.ctx)
        context = error.ctx if isinstance(error, click.UsageError) else None
        advice = f" (see {context.command_path} --help)" if context else ""
        return printable_line(message[:1].lower() + message[1:] + advice), BAD_INPUT
    for kinds, code in _EXIT_CODES.items():
        if isinstance(error, kinds):
            remedy = getattr(error, "remedy", "")
            batch = remedy.removeprefix(IN_BATCH) if remedy.startswith(IN_BATCH) else ""
            hint = f"`triskele undo --batch {batch}`" if batch else _REMEDIES.get(remedy)
            return error_line(error) + (f" ({hint})" if hint else ""), code
    fault = f"a fault inside triskele: {type(error).__name__}: {error} (TRISKELE_DEBUG=1 shows where)"
    return printable_line(fault), UNAVAILABLE


def _no_such_option(name: str, options: Sequence[str], context: click.Context | None) -> click.UsageError:
    """The error for an unknown option, with a hint."""
    takes_text = context is not None and any(isinstance(param, click.Argument) for param in context.command.params)
    hint = did_you_mean(name, options)
    if not hint and takes_text:
        hint = "; a text that begins with a dash goes after --"
    # The rest may be a private text.
    word = name.split()[0]
    shown = word if word == name and len(word) <= _OPTION_CHARACTERS else f"{word[:_OPTION_CHARACTERS]}…"
    return click.UsageError(f"unknown option {shown!r}{hint}", context)


def _too_much(words: str, context: click.Context | None) -> str:
    """The message for more words than a command takes, with a hint."""
    command = context.command if context else None
    if command is None or any(isinstance(param, click.Argument) for param in command.params):
        return f"too many words ({words}): put a text of several words in quotes"
    hint = _INSTEAD.get(command.name or "", "").format(words)
    return f"{command.name} takes no words ({words}){hint}"


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
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
    invocation = Invocation()
    try:
        cli(obj=invocation)
    except SystemExit as end:
        # The background process answered: the output is flushed, and an orderly exit has nothing else to close.
        if invocation.resident_store and invocation.asks_resident:
            os._exit(int(end.code or DONE))
        raise
