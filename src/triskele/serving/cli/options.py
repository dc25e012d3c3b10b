"""Options and arguments that several commands share, with what the shell can complete of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

from triskele.errors import TriskeleError
from triskele.recall.plan import AS_RANKED, FUSIONS, LEGS, NEAR, ORDERS, RERANKS
from triskele.serving.cli.invocation import Invocation
from triskele.types import Sensitivity

MAX_LISTED = 1000
# By shares is how the default does it.
_FUSIONS = tuple(method for method in FUSIONS if method != "share")
_COMPLETIONS = 25
_HINT_CHARACTERS = 60

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _known_ids(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    try:
        with context.ensure_object(Invocation).open_existing(is_needed=True) as engine:
            ids = engine.store.find(incomplete.lower(), limit=_COMPLETIONS)
            known = engine.store.memories(ids)
    except (TriskeleError, OSError, ValueError):
        # A shell that completes has no place for complaints.
        return []
    hints = {id: " ".join(known[id].content.split())[:_HINT_CHARACTERS] if id in known else "forgotten" for id in ids}
    return [CompletionItem(id, help=hint) for id, hint in hints.items()]


def _known_categories(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    try:
        names = context.ensure_object(Invocation).settings().memory.categories
    except TriskeleError:
        return []
    return [name for name in names if name.startswith(incomplete.lower())]


def id_argument(name: str = "id", **details: Any) -> Decorator:
    """A memory, by its id or the beginning of it."""
    return click.argument(name, shell_complete=_known_ids, **details)


def id_option(flag: str, help: str) -> Decorator:
    """A memory named by an option."""
    return click.option(flag, metavar="ID", shell_complete=_known_ids, help=help)


def category_option(help: str, **details: Any) -> Decorator:
    """One of the configured categories."""
    return click.option("--category", metavar="C", shell_complete=_known_categories, help=help, **details)


def tag_filter(command: Callable[..., Any]) -> Callable[..., Any]:
    """Only memories with these tags."""
    return click.option("--tag", "tags", metavar="T", multiple=True, help="Only with this tag (may be repeated).")(
        command
    )


def reading_place(command: Callable[..., Any]) -> Callable[..., Any]:
    """Where to look: one project with what belongs everywhere, or all."""
    everywhere = click.option("--all-projects", is_flag=True, help="Look into every project.")
    one = click.option("--project", metavar="P", help="Look into this project instead of the one worked in.")
    return one(everywhere(command))


def asking_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What a question may be narrowed to, and how its answers are ranked."""
    limit = click.option("--limit", type=int, help="At most this many hits (10 unless set otherwise).")
    as_of = click.option("--as-of", metavar="DATE", help="What was true then, as known now.")
    known_at = click.option("--known-at", metavar="DATE", help="What was known then, older versions included.")
    narrowed = tag_filter(reading_place(as_of(known_at(_ranking(command)))))
    return limit(category_option("Only this category.")(narrowed))


def _ranking(command: Callable[..., Any]) -> Callable[..., Any]:
    """How to rank, for those who want to compare."""
    legs = click.option("--legs", metavar="A,B", callback=_legs, help=f"Which legs to ask, of {', '.join(LEGS)}.")
    fusion = click.option(
        "--fusion",
        type=click.Choice(_FUSIONS),
        default="default",
        show_default=True,
        help="How their scores are joined.",
    )
    rerank = click.option(
        "--rerank",
        type=click.Choice(RERANKS),
        default="default",
        show_default=True,
        help="Whether words are compared one by one, or a cross-encoder reads the best again.",
    )
    order = click.option(
        "--order",
        type=click.Choice([order for order in ORDERS if order != NEAR]),
        default=AS_RANKED,
        show_default=True,
        help="The best once more in another order: unlike each other first, or those most talked about.",
    )
    near = click.option("--near", metavar="ID", help="The best by how few names lie between them and this memory.")
    return legs(fusion(rerank(order(near(command)))))


def _legs(_: click.Context, __: click.Parameter, value: str | None) -> list[str] | None:
    if value is None:
        return None
    names = listed(value)
    unknown = [name for name in names if name not in LEGS]
    if unknown or not names:
        raise click.BadParameter(f"choose among {', '.join(LEGS)}, not {value!r}")
    return names


def writing_place(command: Callable[..., Any]) -> Callable[..., Any]:
    """Where a memory belongs: one project, or every one."""
    everywhere = click.option("--everywhere", is_flag=True, help="The memory belongs to every project.")
    one = click.option("--project", metavar="P", help="Store it for this project instead of the one worked in.")
    return one(everywhere(command))


def secrecy_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Who may learn of a memory; without any of them its text decides."""

    def one_of(*flags: str, value: Sensitivity, help: str) -> Decorator:
        return click.option(*flags, "sensitivity", flag_value=value, type=Sensitivity, default=None, help=help)

    title = click.option("--title", metavar="WORDS", help="What a secret goes by; made by a safe rule where left out.")
    private = one_of("--private", value=Sensitivity.PRIVATE, help="Never leaves this machine.")
    secret = one_of("--secret", value=Sensitivity.SECRET, help="Sealed in the vault, found by title and tags.")
    not_secret = one_of("--not-secret", "--open", value=Sensitivity.OPEN, help="Open, whatever it looks like or was.")
    return private(secret(not_secret(title(command))))


def only_one(first: object, second: object, names: str) -> None:
    """Refuse two options that exclude each other."""
    if first and second:
        raise click.UsageError(f"{names} exclude each other: give one of them")


def written_project(project: str | None, everywhere: bool) -> str | None:
    """The project to write to: None is the one worked in, empty is everywhere."""
    only_one(project is not None, everywhere, "--project and --everywhere")
    return "" if everywhere else project


def listed(text: str) -> list[str]:
    """The parts of a comma-separated option."""
    return [part.strip() for part in text.split(",") if part.strip()]
