"""Commands that change memories: add, edit, link, forget, undo."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from triskele.edge.cli.commands import command
from triskele.edge.cli.documents import Document, entry_document, shown, times
from triskele.edge.cli.invocation import Invocation, show_parts, standard_input
from triskele.edge.cli.memory_view import (
    added_view,
    changes_view,
    secrets_view,
    time_lines,
    undo_plan_view,
    undo_summary,
    undone_view,
)
from triskele.edge.cli.options import EVERY, category_option, memory_id, secrecy_options, tags_option, writing_place
from triskele.edge.cli.view import QUIET, more, note, plural
from triskele.edge.wording import excerpt, one_line, passed_over_lines, shown_content
from triskele.errors import BadInput, Conflict, NotFound, TriskeleError, Unavailable
from triskele.types import CONTEXT, Action, Erasure, History, LinkKind, Period, Role, Sensitivity, is_secret

if TYPE_CHECKING:
    from triskele.edge.cli.view import Renderable, ShortIds
    from triskele.engine.protocol import Engine
    from triskele.types import MemoryDetails, Outcome, Related

MAX_BYTES = 4_000_000
_SHOWN_MEMORIES = 10
_MOST_RELATED = 3
_RELATED_CHARACTERS = 80
_RELATION_VERBS = {"duplicate": "repeats", "update": "extends", "contradiction": "may replace"}
_REPLACE, _KEEP, _CANCEL = "replace", "keep", "cancel"
_NONE = "none"
_ROLES = [role.value for role in Role]
# With any of these, the text alone does not tell how related memories relate to it.
_CONTEXT = [name for name in CONTEXT if name not in ("project", "position")]


@command(
    'triskele add "We deploy with Argo CD, not Helm hooks" --category decisions --tags deploy',
    'triskele add "SMS go out through Pingwell" --supersedes 1kpn46',
    "cat notes.txt | triskele add - --split --everywhere",
    everyday=("category", "tags", "supersedes", "everywhere", "quiet"),
)
@click.argument("text", metavar="TEXT|-")
@category_option("The category (else by its words), one of")
@tags_option("Labels to filter by, separated by commas.", absent=[])
@click.option("--keywords", metavar="WORDS", default="", help="Other words to find it by.")
@click.option("--importance", type=float, default=0.5, show_default=True, help="From 0 to 1.")
@writing_place
@secrecy_options
@click.option("--valid-from", metavar="DATE", help="True from this day on.")
@click.option("--valid-to", metavar="DATE", help="No longer true from this day on.")
@click.option("--session", metavar="S", help="The conversation or document it comes from.")
@click.option("--position", type=int, help="Its position there.")
@click.option("--speaker", metavar="NAME", help="Who said it.")
@click.option("--role", type=click.Choice(_ROLES), help="Whose words they are.")
@click.option("--split", is_flag=True, help="Store each paragraph as a memory; long ones are cut at sentence ends.")
@memory_id("--supersedes", metavar="ID", help="The older memory that this one replaces.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the id.")
def add(invocation: Invocation, text: str, split: bool, supersedes: str | None, quiet: bool, **details: Any) -> None:
    """Store a short text; a dash reads it from standard input."""
    if split and supersedes is not None:
        raise click.UsageError("--split and --supersedes exclude each other: only one memory can replace the old one")
    content = text_or_input(text)
    with invocation.open(creates=True) as engine:
        related: Sequence[Related] | None = None
        if split:
            from triskele.ingest import Drafter

            outcomes = engine.remember_all(Drafter(engine.settings.memory, "").draft_pieces(content, **details))
        else:
            if supersedes is None and not quiet and _may_ask(invocation, content, details):
                supersedes, related = _ask(engine, content, details["project"])
            outcomes = [engine.remember(content, supersedes=supersedes, **details)]
        if quiet and not invocation.as_json:
            return click.echo("\n".join(outcome.id for outcome in outcomes))
        if split or supersedes is not None or outcomes[0].action is not Action.ADDED:
            related = []
        elif related is None:
            # The memory is stored: an answer that fails now is no error of the command.
            related = []
            with suppress(Unavailable):
                related = engine.related(id=outcomes[0].id)[:_MOST_RELATED]
        return _report_added(invocation, engine, outcomes, details, related, supersedes, is_split=split)


def _may_ask(invocation: Invocation, content: str, details: Mapping[str, Any]) -> bool:
    """Whether to ask about older memories first; secrets are never compared."""
    if not (invocation.can_ask() and sys.stdout.isatty()) or any(details[name] is not None for name in _CONTEXT):
        return False
    from triskele.privacy import detect

    sensitivity = details["sensitivity"]
    return sensitivity is not Sensitivity.SECRET and (sensitivity is not None or not detect.find(content))


def _ask(engine: Engine, content: str, project: str | None) -> tuple[str | None, Sequence[Related]]:
    """Ask whether a text replaces a memory; returns its id, and related memories."""
    related = engine.related(content=content, project=project)[:_MOST_RELATED]
    best = next((memory for memory in related if memory.is_sure), None)
    if best is None:
        return None, related
    click.echo(_related_line(best, engine.shorten([best.memory.id])), err=True)
    answers = click.Choice([_REPLACE, _KEEP, _CANCEL])
    answer = click.prompt("replace it, keep both, or cancel", type=answers, default=_KEEP, err=True)
    if answer == _CANCEL:
        raise Conflict("nothing was added")
    return best.memory.id if answer == _REPLACE else None, related


def _related_line(related: Related, short: ShortIds) -> str:
    text = excerpt(related.memory.content, _RELATED_CHARACTERS)
    return f"It {_RELATION_VERBS[related.relation]} {short[related.memory.id]}: {text}"


def _report_added(
    invocation: Invocation,
    engine: Engine,
    outcomes: Sequence[Outcome],
    details: Mapping[str, Any],
    related: Sequence[Related],
    superseded: str | None,
    *,
    is_split: bool,
) -> None:
    """Show the outcomes of an add, with what detection and the text itself decided."""
    memories = engine.lookup(outcome.id for outcome in outcomes)
    moments = times(details)
    secrets = [outcome.id for outcome in outcomes if outcome.sensitivity is Sensitivity.SECRET]
    detected = [] if details["sensitivity"] is Sensitivity.SECRET else secrets
    added = [outcome for outcome in outcomes if outcome.action is Action.ADDED]
    periods: dict[str, Document] = {}
    if not (details["valid_from"] or details["valid_to"]):
        new = (memories[outcome.id] for outcome in added if outcome.id in memories)
        dated = (memory for memory in new if memory.valid_from or memory.valid_to)
        periods = {memory.id: shown(Period(memory.valid_from, memory.valid_to)) for memory in dated}

    def view() -> Iterator[Renderable]:
        replaced = [engine.get(superseded).id] if superseded is not None else []
        ids = (outcome.id for outcome in outcomes)
        short = engine.shorten([*ids, *replaced, *(each.memory.id for each in related)])
        yield from added_view(outcomes, short)
        yield from (note(f"It supersedes {short[id]}.", QUIET) for id in replaced)
        yield from time_lines(moments)
        for id, period in list(periods.items())[:_SHOWN_MEMORIES]:
            undo = f"`triskele edit {short[id]} {'--valid-from' if memories[id].valid_from else '--valid-to'} none`"
            yield note(f"Valid {period['days']}, as its text says; {undo} removes that.", QUIET)
        yield from secrets_view([memories[id] for id in detected], memories.values(), short)
        yield from (note(_related_line(each, short)) for each in related)
        for other in related[:1]:
            ends = f"{short[outcomes[0].id]} supersedes {short[other.memory.id]}"
            yield note(f"To replace it: triskele link {ends}")

    first = added[0] if added else outcomes[0]
    document = {**shown(first), "project": first.project, "batch": _batch(outcomes)}
    document |= {"secret": bool(secrets), "detected": bool(detected), "times": moments, "valid": periods.get(first.id)}
    if related:
        document["similar"] = [
            {
                "id": each.memory.id,
                "relation": each.relation,
                "confidence": round(each.confidence, 3),
                "content": shown_content(each.memory, False),
            }
            for each in related
        ]
    if is_split:
        document["memories"] = outcomes
    invocation.emit(document, view)


@command(
    'triskele edit 1kpn46 "SMS go out through Pingwell"',
    "triskele edit 1kpn46 --importance 0.9 --tags sms,provider",
    "triskele edit 1kpn46            (opens your editor)",
    "triskele edit 1kpn46 --restore",
)
@memory_id()
@click.argument("text", metavar="[TEXT|-]", required=False)
@category_option("Another category.")
@tags_option("Replace its tags; empty removes them.")
@click.option("--keywords", metavar="WORDS", help="Replace its keywords; empty removes them.")
@click.option("--importance", type=float, help="From 0 to 1.")
@writing_place
@secrecy_options
@click.option("--speaker", metavar="NAME", help="Who said it; empty removes it.")
@click.option("--role", type=click.Choice([*_ROLES, _NONE]), help="Whose words they are; `none` removes it.")
@click.option("--valid-from", metavar="DATE", help="True from this day on; `none` removes it.")
@click.option("--valid-to", metavar="DATE", help="No longer true from this day on; `none` removes it.")
@click.option("--restore", is_flag=True, help="Bring a forgotten memory back, unchanged.")
def edit(invocation: Invocation, id: str, text: str | None, restore: bool, **options: Any) -> None:
    """Change a memory; the older version stays in the history."""
    changes = {name: value for name, value in options.items() if value is not None}
    changes |= {name: None for name in ("valid_from", "valid_to", "role") if changes.get(name) == _NONE}
    if text is not None:
        changes["content"] = text_or_input(text)
    if restore and changes:
        raise click.UsageError("--restore brings a memory back unchanged: change it with a second command")
    # Nothing may end while a person types in an editor.
    with invocation.open(at_store=not (changes or restore)) as engine:
        before = engine.get(id)
        seals = options["sensitivity"] is Sensitivity.SECRET and not (is_secret(before) or before.forgotten)
        erasure = Erasure(outcomes=())
        if restore:
            [outcome] = engine.restore(before.id)
        elif seals and changes.keys() <= {"sensitivity", "title"}:
            erasure = engine.seal(before.id, title=changes.get("title"))
            [outcome] = erasure.outcomes
        else:
            [outcome] = engine.edit(before.id, **(changes or _edited_by_hand(invocation, before)))
        sent = () if outcome.sensitivity is Sensitivity.OPEN else before.sent
        details = {"project": outcome.project, "times": times(changes)}
        _report(invocation, engine, replace(erasure, outcomes=(outcome,), sent=sent), **details)


def _edited_by_hand(invocation: Invocation, memory: MemoryDetails) -> dict[str, str]:
    from triskele.engine.undo import changeable

    # Before the editor opens: what is typed there would be lost.
    changeable(memory)
    if memory.sensitivity is Sensitivity.SECRET:
        # An editor may leave the text in temporary files.
        raise BadInput("a secret cannot be opened in an editor: give its new text on standard input (`-`)")
    if not (invocation.can_ask() and sys.stdout.isatty()):
        raise BadInput("nothing to change: give a new text or an option such as --tags")
    return {"content": click.edit(memory.content, extension=".txt") or memory.content}


@command("triskele link 1kpn46 supersedes 1kq2b7", "triskele link 1kpn46 see-also 1kq2b7 --remove")
@memory_id("source")
@click.argument("kind", metavar="KIND", type=click.Choice([kind.value for kind in LinkKind]))
@memory_id("target")
@click.option("--remove", is_flag=True, help="Remove the link; the history keeps it.")
def link(invocation: Invocation, source: str, kind: str, target: str, remove: bool) -> None:
    """Link two memories, read as SOURCE KIND TARGET.

    KIND is supersedes, resolved-by, part-of or see-also.
    """
    with invocation.open() as engine:
        outcome = (engine.unlink if remove else engine.link)(source, kind, target)
        ends = {"source": outcome.id, "kind": kind, "target": engine.get(target).id}
        _report(invocation, engine, Erasure(outcomes=(outcome,)), **ends)


@command("triskele forget 1kpn46", "triskele forget --hard 1kpn46 1kq2b7 --yes")
@memory_id("ids", metavar="ID...", nargs=-1, required=True)
@click.option(
    "--hard", is_flag=True, help="Erase the text from every file of the store; it cannot be undone. Asks first."
)
@click.option("--yes", is_flag=True, help="Erase without asking; needed where there is no terminal.")
def forget(invocation: Invocation, ids: tuple[str, ...], hard: bool, yes: bool) -> None:
    """Stop recalling memories; undo brings them back, unless --hard."""
    with invocation.open() as engine:
        if hard and not yes:
            _confirm_erasure(invocation, engine, ids)
        if not hard:
            return _report(invocation, engine, Erasure(outcomes=tuple(engine.forget(*ids))))
        erasure = engine.erase(*ids)
        copies = {"kept_copies": erasure.remaining_copies, "erased_copies": erasure.erased_copies}
        if erasure.out_of_reach:
            copies["out_of_reach"] = erasure.out_of_reach
        return _report(invocation, engine, replace(erasure, sent=()), **copies)


def _confirm_erasure(invocation: Invocation, engine: Engine, ids: Sequence[str]) -> None:
    """Show what would be erased and ask for consent."""
    memories = {memory.id: memory for memory in map(engine.get, ids)}
    if not invocation.can_ask():
        raise BadInput("erasing cannot be undone: confirm it with --yes")
    for memory in list(memories.values())[:_SHOWN_MEMORIES]:
        text = "(forgotten)" if memory.forgotten else shown_content(memory, False)
        click.echo(f"{memory.id}  {one_line(text)}", err=True)
    for line in more(len(memories) - _SHOWN_MEMORIES):
        click.echo(line.plain, err=True)
    if not click.confirm(f"Erase {plural(len(memories), 'memory')}? This cannot be undone.", err=True):
        raise Conflict("not confirmed: nothing was erased")


@command("triskele undo", "triskele undo --batch 3f9c21d07a4e --yes", "triskele undo --anyone")
@click.option("--batch", metavar="B", help="Undo this batch (see `triskele history`) instead of the last change.")
@click.option("--all-projects", is_flag=True, help="The last change of any project.")
@click.option("--anyone", is_flag=True, help="The last change of anyone, agents included.")
@click.option(
    "--yes",
    is_flag=True,
    help="Do not ask. Needed without a terminal to undo several memories or someone else's change.",
)
def undo(invocation: Invocation, batch: str | None, all_projects: bool, anyone: bool, yes: bool) -> None:
    """Undo your last change here, or a batch such as an import.

    "Here" is the current project and what is stored for every project. It shows the change, and asks first if it
    changes several memories or if someone else made it.
    """
    with invocation.open() as engine:
        try:
            planned = engine.undo(batch, all_projects=all_projects, anyone=anyone, dry_run=True)
        except NotFound as error:
            hint = ": `triskele history` shows the batches" if batch else _wider_undo(engine)
            raise NotFound(f"{error}{hint}") from None
        what, is_plain = undo_summary(planned), planned.size == 1 and planned.is_own(engine.actor)
        asks = not (yes or is_plain)
        if asks and not invocation.can_ask():
            raise BadInput(f"this would undo {what}: confirm it with `triskele undo --batch {planned.batch} --yes`")
        if not invocation.as_json:
            ids = {id for entry in planned.entries for id in entry.memories}
            show_parts(undo_plan_view(planned, engine.shorten(ids)))
        if asks and not click.confirm(f"Undo {what}?", err=True):
            raise Conflict("not confirmed: nothing was undone")
        undone = engine.undo(planned.batch)
        invocation.emit(
            _changes_document(engine, undone.outcomes),
            lambda: undone_view(undone.outcomes, *_changes(engine, undone.outcomes)),
            undone=[entry_document(entry, versions[0] if versions else None) for entry, versions in undone.named()],
            notes=passed_over_lines(planned),
        )


def _wider_undo(engine: Engine) -> str:
    """A hint at the last change of other projects or actors."""
    with suppress(TriskeleError):
        other = engine.undo(all_projects=True, anyone=True, dry_run=True)
        is_here = engine.project in other.projects or "" in other.projects
        options = ("" if is_here else " --all-projects") + ("" if other.is_own(engine.actor) else " --anyone")
        what = undo_summary(other)
        return f" of yours in project {engine.project}: `triskele undo{options}` undoes {what}"
    return ""


def _report(invocation: Invocation, engine: Engine, erasure: Erasure, **details: Any) -> None:
    """Show the outcomes of a command, with the copies of the texts."""

    def view() -> Iterator[Renderable]:
        history, short = _changes(engine, erasure.outcomes)
        yield from changes_view(erasure, history.entries, short)
        yield from time_lines(details.get("times", {}))

    invocation.emit({**_changes_document(engine, erasure.outcomes), "sent": erasure.sent, **details}, view)


def _changes_document(engine: Engine, outcomes: Sequence[Outcome]) -> Document:
    """Outcomes as a list, and a single one also at top level."""
    document = {"changes": outcomes, "batch": _batch(outcomes), "project": engine.project, "sent": ()}
    return {**shown(outcomes[0]), **document} if len(outcomes) == 1 else document


def _batch(outcomes: Sequence[Outcome]) -> str | None:
    return next((outcome.batch for outcome in outcomes if outcome.batch), None)


def _changes(engine: Engine, outcomes: Sequence[Outcome]) -> tuple[History, ShortIds]:
    """The journal entries of changes, and short ids of their memories."""
    batches = {outcome.seq: outcome.batch for outcome in outcomes if outcome.seq is not None}
    histories = [engine.journal(batch=batch, limit=EVERY) for batch in dict.fromkeys(batches.values())]
    entries = [entry for history in histories for entry in history.entries if entry.seq in batches]
    versions = tuple(memory for history in histories for memory in history.versions)
    folders = tuple(folder for history in histories for folder in history.folders)
    ids = {outcome.id for outcome in outcomes} | {id for entry in entries for id in entry.memories}
    return History(tuple(entries), versions, folders), engine.shorten(ids)


def text_or_input(text: str) -> str:
    """The text, or standard input for a dash."""
    if text != "-":
        return text
    standard = standard_input()
    if standard.isatty():
        click.echo("Type the memory, then press Ctrl-D on an empty line.", err=True)
    # One byte more than allowed shows that there is too much.
    content = standard.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise BadInput(
            f"standard input is longer than {MAX_BYTES // 1_000_000} MB: a memory is one short fact"
            " (`triskele import` reads whole files)"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"standard input is not UTF-8 text (byte {error.start})") from error
