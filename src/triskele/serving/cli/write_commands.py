"""Commands that change memories: add, edit, link, forget, undo."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from triskele.base import periods
from triskele.errors import BadInput, Conflict, NotFound, TriskeleError
from triskele.serving import shapes
from triskele.serving.cli.help_screens import EverydayCommand
from triskele.serving.cli.invocation import Invocation, common, examples, standard_input
from triskele.serving.cli.options import (
    category_option,
    id_argument,
    id_option,
    secrecy_options,
    tags_option,
    writing_place,
    written_project,
)
from triskele.types import Action, JournalEntry, LinkKind, Memory, Outcome, Role, Sensitivity

if TYPE_CHECKING:
    from triskele.curation.decide import PairDecision
    from triskele.curation.undo import UndoPlan
    from triskele.engine import Engine
    from triskele.recall.hosted.egress_log import Sent

_SHOWN_MEMORIES = 10
_NONE = "none"
_ROLES = [role.value for role in Role]


@click.command(
    cls=EverydayCommand,
    everyday=("category", "tags", "supersedes", "everywhere", "quiet"),
    epilog=examples(
        'triskele add "We deploy with Argo CD, not Helm hooks" --category decisions --tags deploy',
        'triskele add "SMS go out through Pingwell" --supersedes 1kpn46',
        "cat notes.txt | triskele add - --split --everywhere",
    ),
)
@click.argument("text", metavar="TEXT|-")
@category_option("The category (facts unless given), one of")
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
@id_option("--supersedes", "The older memory that this one replaces.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the id.")
@common
def add(
    invocation: Invocation,
    text: str,
    tags: list[str],
    project: str | None,
    everywhere: bool,
    sensitivity: Sensitivity | None,
    title: str | None,
    split: bool,
    supersedes: str | None,
    quiet: bool,
    **details: Any,
) -> None:
    """Store a short text; a dash reads it from standard input."""
    if split and supersedes is not None:
        raise click.UsageError("--split and --supersedes exclude each other: only one memory can replace the old one")
    details["tags"] = tags
    details["project"] = written_project(project, everywhere)
    details |= {"sensitivity": sensitivity, "title": title}
    content = given_text(text)
    from triskele.serving.cli import related_memories

    asked: list[PairDecision] | None = None
    with invocation.open() as engine:
        if split:
            outcomes = engine.remember_all(engine.draft_pieces(content, **details))
        else:
            if supersedes is None and not quiet and related_memories.can_ask(invocation):
                supersedes, asked = related_memories.ask(invocation, engine, engine.draft(content, **details))
            outcomes = [engine.remember(content, supersedes=supersedes, **details)]
        if quiet and not invocation.as_json:
            return invocation.echo("\n".join(each.id for each in outcomes))
        is_given = bool(details["valid_from"] or details["valid_to"])
        added = [each.id for each in outcomes if each.action is Action.ADDED and not is_given]
        dated = [memory for memory in engine.store.memories(added).values() if periods.held(memory)]
        is_marked = sensitivity is Sensitivity.SECRET
        is_plain = not split and supersedes is None and outcomes[0].action is Action.ADDED
        related = asked if is_plain else []
        if related is None:
            related = related_memories.related(invocation, engine, engine.get(outcomes[0].id))
        times = shapes.times(details)
        return _report_added(
            invocation,
            engine,
            outcomes,
            dated,
            times,
            older=supersedes,
            related=related,
            is_split=split,
            is_marked=is_marked,
        )


def _report_added(
    invocation: Invocation,
    engine: Engine,
    outcomes: Sequence[Outcome],
    dated: Sequence[Memory],
    times: shapes.Shape,
    *,
    older: str | None,
    related: Sequence[PairDecision],
    is_split: bool,
    is_marked: bool,
) -> None:
    from triskele.serving.cli import related_memories

    secrets = [each.id for each in outcomes if each.sensitivity is Sensitivity.SECRET]
    detected = [] if is_marked else secrets
    if invocation.as_json:
        first = next((each for each in outcomes if each.action is Action.ADDED), outcomes[0])
        document = {**shapes.outcome(first), "project": first.project, "batch": _batch(outcomes)}
        document |= {"secret": bool(secrets), "detected": bool(detected), "times": times}
        document["valid"] = {memory.id: shapes.period(periods.held(memory)) for memory in dated}.get(first.id)
        if related:
            document["similar"] = related_memories.shape(related)
        if is_split:
            document["memories"] = [shapes.outcome(each) for each in outcomes]
        return invocation.write_json(document)
    from triskele.serving.cli import render, reports

    replaced = [engine.resolve(older)] if older is not None else []
    short = engine.store.shorten([*(each.id for each in outcomes), *replaced])
    sealed = list(engine.store.memories(detected).values())
    added = engine.store.memories(each.id for each in outcomes).values()
    successions = [render.note(f"It supersedes {short[id]}.", style=render.QUIET) for id in replaced]
    told = [*successions, *render.time_lines(times), *reports.dated(dated, short)]
    lines = [*told, *reports.detected_secrets(sealed, short), *reports.example_keys(added)]
    hints = map(render.note, related_memories.lines(related, engine, outcomes[0].id))
    return invocation.write(reports.added(outcomes, short), *lines, *hints)


@click.command(
    epilog=examples(
        'triskele edit 1kpn46 "SMS go out through Pingwell"',
        "triskele edit 1kpn46 --importance 0.9 --tags sms,provider",
        "triskele edit 1kpn46            (opens your editor)",
        "triskele edit 1kpn46 --restore",
    ),
)
@id_argument()
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
@common
def edit(
    invocation: Invocation,
    id: str,
    text: str | None,
    tags: list[str] | None,
    project: str | None,
    everywhere: bool,
    sensitivity: Sensitivity | None,
    restore: bool,
    **details: str | None,
) -> None:
    """Change a memory; the older version stays in the history."""
    changes: dict[str, Any] = {name: value for name, value in details.items() if value is not None}
    changes |= {name: None for name in ("valid_from", "valid_to", "role") if changes.get(name) == _NONE}
    if tags is not None:
        changes["tags"] = tags
    if (place := written_project(project, everywhere)) is not None:
        changes["project"] = place
    if sensitivity is not None:
        changes["sensitivity"] = sensitivity
    if text is not None:
        changes["content"] = given_text(text)
    if restore and changes:
        raise click.UsageError("--restore brings a memory back unchanged: change it with a second command")
    with invocation.open_existing() as engine:
        before = engine.sent(id)
        if restore:
            outcome = engine.restore(id)
        else:
            outcome = engine.edit(id, **(changes or _edited_by_hand(invocation, engine, id)))
        sent = [] if outcome.sensitivity is Sensitivity.OPEN else before
        about = {"project": outcome.project, "times": shapes.times(changes)}
        _report_changes(invocation, engine, [outcome], about, sent=sent)


def _edited_by_hand(invocation: Invocation, engine: Engine, id: str) -> dict[str, str]:
    from triskele.curation.undo import changeable

    # Before the editor opens: what is typed there would be lost.
    memory = changeable(engine.get(id))
    if memory.sensitivity is Sensitivity.SECRET:
        # An editor may leave the text in temporary files.
        raise BadInput("a secret cannot be opened in an editor: give its new text on standard input (`-`)")
    if invocation.as_json or sys.stdin is None or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise BadInput("nothing to change: give a new text or an option such as --tags")
    return {"content": click.edit(memory.content, extension=".txt") or memory.content}


@click.command(
    epilog=examples("triskele link 1kpn46 supersedes 1kq2b7", "triskele link 1kpn46 see-also 1kq2b7 --remove"),
)
@id_argument("source")
@click.argument("kind", metavar="KIND", type=click.Choice([kind.value for kind in LinkKind]))
@id_argument("target")
@click.option("--remove", is_flag=True, help="Remove the link; the history keeps it.")
@common
def link(invocation: Invocation, source: str, kind: str, target: str, remove: bool) -> None:
    """Link two memories, read as SOURCE KIND TARGET.

    KIND is supersedes, resolved-by, part-of or see-also.
    """
    with invocation.open_existing() as engine:
        change = engine.unlink if remove else engine.link
        outcome = change(source, LinkKind(kind), target)
        ends = {"source": outcome.id, "kind": kind, "target": engine.resolve(target)}
        _report_changes(invocation, engine, [outcome], ends)


@click.command(
    epilog=examples("triskele forget 1kpn46", "triskele forget --hard 1kpn46 1kq2b7 --yes"),
)
@id_argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option(
    "--hard", is_flag=True, help="Erase the text from every file of the store; it cannot be undone. Asks first."
)
@click.option("--yes", is_flag=True, help="Erase without asking; needed where there is no terminal.")
@common
def forget(invocation: Invocation, ids: tuple[str, ...], hard: bool, yes: bool) -> None:
    """Stop recalling memories; undo brings them back, unless --hard."""
    with invocation.open_existing() as engine:
        references = list(dict.fromkeys(engine.resolve(id) for id in ids))
        if hard and not yes:
            _confirm_erasure(invocation, engine, references)
        if not hard:
            return _report_changes(invocation, engine, engine.forget(*references))
        outcomes = engine.erase(*references)
        copies = engine.earlier_copies()
        told = {"kept_copies": shapes.plain(copies), "erased_copies": shapes.plain(engine.erased_copies)}
        if beyond := engine.out_of_reach():
            told["out_of_reach"] = beyond
        return _report_changes(invocation, engine, outcomes, told, copies=[*map(str, copies), *beyond])


def _confirm_erasure(invocation: Invocation, engine: Engine, ids: Sequence[str]) -> None:
    """Show what would be erased and ask for consent."""
    if invocation.as_json or sys.stdin is None or not sys.stdin.isatty():
        raise BadInput("erasing cannot be undone: confirm it with --yes")
    from triskele.serving.cli import render

    memories = engine.store.memories(ids)
    for id in ids[:_SHOWN_MEMORIES]:
        text = shapes.shown_content(memories[id], False) if id in memories else "(forgotten)"
        click.echo(f"{id}  {render.one_line(text)}", err=True)
    if len(ids) > _SHOWN_MEMORIES:
        click.echo(f"… and {len(ids) - _SHOWN_MEMORIES:,} more", err=True)
    if not click.confirm(f"Erase {render.memories(len(ids))}? This cannot be undone.", err=True):
        raise Conflict("not confirmed: nothing was erased")


@click.command(
    epilog=examples("triskele undo", "triskele undo --batch 3f9c21d07a4e --yes", "triskele undo --anyone"),
)
@click.option("--batch", metavar="B", help="Undo this batch (see `triskele history`) instead of the last change.")
@click.option("--all-projects", is_flag=True, help="The last change of any project.")
@click.option("--anyone", is_flag=True, help="The last change of anyone, agents included.")
@click.option(
    "--yes",
    is_flag=True,
    help="Undo without asking; without a terminal needed for several memories, or another's change.",
)
@common
def undo(invocation: Invocation, batch: str | None, all_projects: bool, anyone: bool, yes: bool) -> None:
    """Undo your last change here, or a batch such as an import.

    "Here" is the current project and what is stored for every project. It shows the change, and asks first if it
    changes several memories or if someone else made it.
    """
    with invocation.open_existing() as engine:
        try:
            planned = _planned(invocation, engine, batch, all_projects=all_projects, anyone=anyone)
        except NotFound as error:
            hint = ": `triskele history` shows the batches" if batch else _wider_undo(invocation, engine)
            raise NotFound(f"{error}{hint}") from None
        is_plain = planned.size == 1 and planned.is_own(engine.actor)
        if not (yes or is_plain):
            _confirm_undo(invocation, engine, planned)
        elif not invocation.as_json:
            _show_plan(invocation, engine, planned)
        _report_undone(invocation, engine, planned, engine.undo(planned.batch))


def _planned(invocation: Invocation, engine: Engine, batch: str | None, **wider: bool) -> UndoPlan:
    if invocation.remote is not None:
        return invocation.remote.undo_plan(batch, **wider)
    from triskele.curation.undo import plan

    return plan(engine.store, engine.actor, engine.project, batch, **wider)


def _wider_undo(invocation: Invocation, engine: Engine) -> str:
    """A hint at the last change outside the project and the user's own changes."""
    with suppress(TriskeleError):
        other = _planned(invocation, engine, None, all_projects=True, anyone=True)
        from triskele.serving.cli import reports

        is_here = engine.project in other.projects or "" in other.projects
        options = ("" if is_here else " --all-projects") + ("" if other.is_own(engine.actor) else " --anyone")
        return f" of yours in project {engine.project}: `triskele undo{options}` undoes {reports.undo_summary(other)}"
    return ""


def _confirm_undo(invocation: Invocation, engine: Engine, planned: UndoPlan) -> None:
    """Show what would be undone and ask for consent."""
    from triskele.serving.cli import reports

    what = reports.undo_summary(planned)
    if invocation.as_json or sys.stdin is None or not sys.stdin.isatty():
        raise BadInput(f"this would undo {what}: confirm it with `triskele undo --batch {planned.batch} --yes`")
    _show_plan(invocation, engine, planned)
    if not click.confirm(f"Undo {what}?", err=True):
        raise Conflict("not confirmed: nothing was undone")


def _show_plan(invocation: Invocation, engine: Engine, planned: UndoPlan) -> None:
    from triskele.serving.cli import reports

    ids = {id for entry in planned.entries for id in entry.ends}
    invocation.write(reports.undo_plan(planned, engine.store.places(), engine.store.shorten(ids)))


def _report_undone(invocation: Invocation, engine: Engine, planned: UndoPlan, outcomes: Sequence[Outcome]) -> None:
    if invocation.as_json:
        undone = [
            {
                **shapes.journal_entry(entry),
                "content": shapes.shown_content(versions[0], False) if versions else None,
                "project": versions[0].project if versions else None,
            }
            for entry in planned.entries
            for versions in [planned.named(entry)]
        ]
        return _report_changes(invocation, engine, outcomes, {"undone": undone})
    from triskele.serving.cli import reports

    short = engine.store.shorten({each.id for each in outcomes} | {id for id, _ in planned.versions})
    histories = {each.id: engine.store.history(each.id) for each in outcomes[: reports.SHOWN_OUTCOMES]}
    places = engine.store.places()
    return invocation.write(reports.undone(outcomes, histories, _entries(engine, outcomes), places, short))


def _report_changes(
    invocation: Invocation,
    engine: Engine,
    outcomes: Sequence[Outcome],
    more: Mapping[str, Any] | None = None,
    copies: Sequence[object] = (),
    sent: Sequence[Sent] = (),
) -> None:
    if invocation.as_json:
        changes = [shapes.outcome(each) for each in outcomes]
        # A single change is also at the top level; the list is for programs that always read lists.
        single = changes[0] if len(changes) == 1 else {}
        return invocation.write_json(
            {
                **single,
                "changes": changes,
                "batch": _batch(outcomes),
                "project": engine.project,
                "sent": shapes.plain(sent),
                **(more or {}),
            }
        )
    from triskele.serving.cli import render, reports

    entries = _entries(engine, outcomes)
    ids = {each.id for each in outcomes} | {id for entry in entries.values() for id in entry.ends}
    short = engine.store.shorten(ids)
    shown = reports.changes(outcomes, entries, short, copies=copies, erased=engine.erased_copies, sent=sent)
    return invocation.write(shown, *render.time_lines((more or {}).get("times", {})))


def _batch(outcomes: Sequence[Outcome]) -> str | None:
    return next((each.batch for each in outcomes if each.batch), None)


def _entries(engine: Engine, outcomes: Sequence[Outcome]) -> dict[int, JournalEntry]:
    """The journal entries of these changes."""
    written = {each.seq: each.batch for each in outcomes if each.seq is not None}
    entries = [entry for batch in set(written.values()) for entry in engine.store.journal(batch=batch, limit=2**31)]
    return {entry.seq: entry for entry in entries if entry.seq in written}


MAX_BYTES = 4_000_000


def given_text(text: str) -> str:
    """The text, or standard input for a dash."""
    return _read() if text == "-" else text


def _read() -> str:
    standard = standard_input()
    if standard.isatty():
        click.echo("Type the memory, then press Ctrl-D on an empty line.", err=True)
    # One byte more than allowed shows that there is too much.
    taken = standard.read(MAX_BYTES + 1)
    if len(taken) > MAX_BYTES:
        raise BadInput(
            f"standard input is longer than {MAX_BYTES // 1_000_000} MB: a memory is one short fact"
            " (`triskele import` reads whole files)"
        )
    try:
        return taken.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"standard input is not UTF-8 text (byte {error.start})") from error
