"""Options and arguments that several commands share, with their shell completion."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from triskele.edge.cli.invocation import Invocation
from triskele.errors import BadInput, TriskeleError
from triskele.requests import FusionName, LegName, OrderName, RerankName
from triskele.text.files import check_utf8, expanded
from triskele.types import Sensitivity

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from triskele.engine.protocol import Engine

MAX_LISTED = 1000
# A list without an end.
EVERY = 2**31 - 1
_LEGS: tuple[str, ...] = get_args(LegName)
_FUSIONS = tuple(method for method in get_args(FusionName) if method != "share")
_COMPLETIONS = 25
_HINT_CHARACTERS = 60

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class FilePath(click.Path):
    """A path with `~` expanded; a database path must be UTF-8."""

    def __init__(self, *, is_database: bool = False) -> None:
        super().__init__(path_type=Path)
        self._is_database = is_database

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path of an argument."""
        if not value:
            raise BadInput("the path is empty")
        text = os.fsdecode(super().convert(value, param, ctx))
        path = expanded(text) if text.startswith("~") else Path(text)
        return check_utf8(path) if self._is_database else path


def _known_ids(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    try:
        with context.ensure_object(Invocation).stores.open_local(is_needed=True) as engine:
            memories = engine.lookup(engine.find(incomplete.lower(), limit=_COMPLETIONS))
    except (TriskeleError, OSError, ValueError):
        # Completion must not print errors.
        return []
    from click.shell_completion import CompletionItem

    items = []
    for id, memory in memories.items():
        hint = "forgotten" if memory.forgotten else " ".join(memory.content.split())[:_HINT_CHARACTERS]
        items.append(CompletionItem(id, help=hint))
    return items


def _known_categories(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    try:
        names = context.ensure_object(Invocation).stores.settings().memory.categories
    except TriskeleError:
        return []
    return [name for name in names if name.startswith(incomplete.lower())]


def memory_id(name: str = "id", **details: Any) -> Decorator:
    """A memory by its id or the start of it, as an argument or an option."""
    declare = click.option if name.startswith("-") else click.argument
    return declare(name, shell_complete=_known_ids, **details)


class _CategoryOption(click.Option):
    """An option whose help names the configured categories."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """The option and its help."""
        record = super().get_help_record(ctx)
        names = ", ".join(_known_categories(ctx, self, ""))
        return (record[0], f"{record[1].removesuffix('.')}: {names}.") if record and names else record


def category_option(help: str) -> Decorator:
    """The option for one of the configured categories."""
    return click.option("--category", metavar="C", cls=_CategoryOption, shell_complete=_known_categories, help=help)


def tags_option(help: str, *, absent: list[str] | None = None) -> Decorator:
    """Tags, as `--tags a,b` or as `--tag a --tag b`."""

    def parts(_: click.Context, __: click.Parameter, value: tuple[str, ...]) -> list[str] | None:
        return listed(",".join(value)) if value else absent

    return click.option("--tags", "--tag", "tags", metavar="A,B", multiple=True, callback=parts, help=help)


def together(*options: Decorator) -> Decorator:
    """Several options as one decorator, in the order of the help."""

    def decorated(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorated


def _legs(_: click.Context, __: click.Parameter, value: str | None) -> list[str] | None:
    if value is None:
        return None
    names = listed(value)
    unknown = [name for name in names if name not in _LEGS]
    if unknown or not names:
        raise click.BadParameter(f"choose among {', '.join(_LEGS)}, not {value!r}")
    return names


def _sensitivity(*flags: str, value: Sensitivity, help: str) -> Decorator:
    return click.option(*flags, "sensitivity", flag_value=value, type=Sensitivity, default=None, help=help)


def choice_option(flag: str, names: Iterable[str], default: str, help: str) -> Decorator:
    """An option that is one of these words."""
    words = click.Choice(list(map(str, names)))
    return click.option(flag, type=words, default=str(default), show_default=True, help=help)


def limit_option(default: int, help: str) -> Decorator:
    """`--limit` of a list."""
    return click.option("--limit", type=click.IntRange(1, MAX_LISTED), default=default, show_default=True, help=help)


def reading_place(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options `project` and `all_projects`, of which only one is given."""

    @wraps(command)
    def run(*args: Any, **options: Any) -> Any:
        if options["project"] is not None and options["all_projects"]:
            raise click.UsageError("--project and --all-projects exclude each other: give one of them")
        return command(*args, **options)

    return together(
        click.option("--project", metavar="P", help="Search this project instead of the current one."),
        click.option("--all-projects", is_flag=True, help="Search every project."),
    )(run)


def writing_place(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option `project`, where a memory is written: None is the current one, empty is everywhere."""

    @wraps(command)
    def run(*args: Any, project: str | None, everywhere: bool, **options: Any) -> Any:
        if project is not None and everywhere:
            raise click.UsageError("--project and --everywhere exclude each other: give one of them")
        if project is not None and not project.strip():
            raise BadInput("--project is empty: name a project, or write for all of them with --everywhere")
        return command(*args, project="" if everywhere else project, **options)

    return together(
        click.option("--project", metavar="P", help="Store it in this project instead of the current one."),
        click.option("--everywhere", is_flag=True, help="The memory applies to every project."),
    )(run)


filter_options = together(
    category_option("Only this category."),
    tags_option("Only with these tags, separated by commas.", absent=[]),
    reading_place,
    click.option("--since", metavar="WHEN", help='Only from then on: 2026-06, yesterday, "last week", July.'),
    click.option("--until", metavar="WHEN", help="Only until then, that day, month or year included."),
)
# Ranking options, to compare methods.
_ranking = together(
    click.option("--legs", metavar="A,B", callback=_legs, help=f"The legs to use, of {', '.join(_LEGS)}."),
    choice_option("--fusion", _FUSIONS, "default", "How the scores of the legs are fused."),
    choice_option(
        "--rerank",
        get_args(RerankName),
        "default",
        "Rerank by late interaction, by a cross-encoder (gated: only unsure answers), or not at all.",
    ),
    choice_option(
        "--order",
        get_args(OrderName),
        "ranked",
        "Reorder the top hits by diversity or by how often their names are mentioned.",
    ),
    click.option("--near", metavar="ID", help="Reorder the top hits by their graph distance from this memory."),
)
asking_options = together(
    click.option("--limit", type=int, help="The maximum number of hits (10 unless configured)."),
    filter_options,
    click.option("--as-of", metavar="DATE", help="What was true on that date, as known now."),
    click.option("--known-at", metavar="DATE", help="What was known on that date, in the versions of that day."),
    _ranking,
)
# The sensitivity of a memory; without an option, detection decides.
secrecy_options = together(
    _sensitivity("--private", value=Sensitivity.PRIVATE, help="Never sent to a hosted model, and not synced."),
    _sensitivity("--secret", value=Sensitivity.SECRET, help="Sealed in the vault, found by its title and tags."),
    _sensitivity("--not-secret", "--open", value=Sensitivity.OPEN, help="Open, even if it looks like a secret."),
    click.option("--title", metavar="WORDS", help="The title of a secret; if omitted, one that does not contain it."),
)


def shown_project(engine: Engine, place: Mapping[str, Any]) -> str | None:
    """The project that a command reads, by the options of `reading_place`; None is all of them."""
    if place["all_projects"]:
        return None
    return engine.project if place["project"] is None else place["project"]


def listed(text: str) -> list[str]:
    """The parts of a comma-separated option."""
    return [part.strip() for part in text.split(",") if part.strip()]
