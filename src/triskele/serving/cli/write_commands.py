"""Commands that change memories: add, edit, link, forget, undo."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from triskele.errors import BadInput, Conflict
from triskele.serving import shapes
from triskele.serving.cli.invocation import Invocation, common, examples
from triskele.serving.cli.options import (
    category_option,
    id_argument,
    id_option,
    listed,
    secrecy_options,
    writing_place,
    written_project,
)
from triskele.types import Action, JournalEntry, LinkKind, Outcome, Sensitivity

if TYPE_CHECKING:
    from triskele.engine import Engine
    from triskele.recall.hosted.egress_log import Sent

# A text may begin with a dash: an unknown option is then the text.
_SHOWN_MEMORIES = 10
_ANY_TEXT = {"ignore_unknown_options": True}


@click.command(
    context_settings=_ANY_TEXT,
    epilog=examples(
        'triskele add "We deploy with Argo CD, not Helm hooks" --category decisions --tags deploy',
        'triskele add "SMS go out through Pingwell" --supersedes 1kpn46',
        "cat notes.txt | triskele add - --split --everywhere",
    ),
)
@click.argument("text", metavar="TEXT|-")
@category_option("The category (facts unless given).")
@click.option("--tags", metavar="A,B", default="", help="Labels to filter by, separated by commas.")
@click.option("--keywords", metavar="WORDS", default="", help="Other words to find it by.")
@click.option("--importance", type=float, default=0.5, show_default=True, help="From 0 to 1.")
@writing_place
@secrecy_options
@click.option("--valid-from", metavar="DATE", help="True from this day on.")
@click.option("--valid-to", metavar="DATE", help="No longer true from this day on.")
@click.option("--session", metavar="S", help="The conversation or document it comes from.")
@click.option("--position", type=int, help="Its position there.")
@click.option("--split", is_flag=True, help="Split a longer text at sentence ends into several memories.")
@id_option("--supersedes", "The older memory that this one replaces.")
@common
def add(
    invocation: Invocation,
    text: str,
    tags: str,
    project: str | None,
    everywhere: bool,
    sensitivity: Sensitivity | None,
    title: str | None,
    split: bool,
    supersedes: str | None,
    **details: Any,
) -> None:
    """Store a short text; a dash reads it from standard input."""
    if split and supersedes is not None:
        raise click.UsageError("--split and --supersedes exclude each other: only one memory can replace the old one")
    details["tags"] = listed(tags)
    details["project"] = written_project(project, everywhere)
    details |= {"sensitivity": sensitivity, "title": title}
    content = given_text(text)
    with invocation.open() as engine:
        if split:
            outcomes = engine.remember_all(engine.draft_pieces(content, **details))
        else:
            outcomes = [engine.remember(content, supersedes=supersedes, **details)]
        _report_added(invocation, engine, outcomes, is_split=split, is_marked=sensitivity is Sensitivity.SECRET)


def _report_added(
    invocation: Invocation, engine: Engine, outcomes: Sequence[Outcome], *, is_split: bool, is_marked: bool
) -> None:
    secrets = [each.id for each in outcomes if each.sensitivity is Sensitivity.SECRET]
    detected = [] if is_marked else secrets
    if invocation.as_json:
        first = next((each for each in outcomes if each.action is Action.ADDED), outcomes[0])
        document = {**shapes.outcome(first), "project": first.project, "batch": _batch(outcomes)}
        document |= {"secret": bool(secrets), "detected": bool(detected)}
        if is_split:
            document["memories"] = [shapes.outcome(each) for each in outcomes]
        return invocation.write_json(document)
    from triskele.serving.cli import reports

    short = engine.store.shorten(each.id for each in outcomes)
    sealed = list(engine.store.memories(detected).values())
    return invocation.write(reports.added(outcomes, short), *reports.detected_secrets(sealed, short))


@click.command(
    epilog=examples(
        'triskele edit 1kpn46 "SMS go out through Pingwell"',
        "triskele edit 1kpn46 --importance 0.9 --tags sms,provider",
        "triskele edit 1kpn46            (opens your editor)",
    ),
)
@id_argument()
@click.argument("text", metavar="[TEXT|-]", required=False)
@category_option("Another category.")
@click.option("--tags", metavar="A,B", help="Replace its tags; empty removes them.")
@click.option("--keywords", metavar="WORDS", help="Replace its keywords; empty removes them.")
@click.option("--importance", type=float, help="From 0 to 1.")
@writing_place
@secrecy_options
@click.option("--valid-from", metavar="DATE", help="True from this day on; `none` removes it.")
@click.option("--valid-to", metavar="DATE", help="No longer true from this day on; `none` removes it.")
@common
def edit(
    invocation: Invocation,
    id: str,
    text: str | None,
    tags: str | None,
    project: str | None,
    everywhere: bool,
    sensitivity: Sensitivity | None,
    **details: str | None,
) -> None:
    """Change a memory; the older version stays in the history."""
    changes: dict[str, Any] = {name: value for name, value in details.items() if value is not None}
    changes |= {name: None for name in ("valid_from", "valid_to") if changes.get(name) == "none"}
    if tags is not None:
        changes["tags"] = listed(tags)
    if (place := written_project(project, everywhere)) is not None:
        changes["project"] = place
    if sensitivity is not None:
        changes["sensitivity"] = sensitivity
    if text is not None:
        changes["content"] = given_text(text)
    with invocation.open_existing() as engine:
        before = engine.sent(id)
        outcome = engine.edit(id, **(changes or _edited_by_hand(invocation, engine, id)))
        sent = [] if outcome.sensitivity is Sensitivity.OPEN else before
        _report_changes(invocation, engine, [outcome], {"project": outcome.project}, sent=sent)


def _edited_by_hand(invocation: Invocation, engine: Engine, id: str) -> dict[str, str]:
    memory = engine.get(id)
    if memory.sensitivity is Sensitivity.SECRET:
        # An editor may leave the text in temporary files.
        raise BadInput("a secret cannot be opened in an editor: give its new text on standard input (`-`)")
    if invocation.as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
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
        return _report_changes(invocation, engine, outcomes, {"kept_copies": shapes.plain(copies)}, copies=copies)


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
    epilog=examples("triskele undo", "triskele undo --batch 3f9c21d07a4e"),
)
@click.option("--batch", metavar="B", help="Undo this batch (see `triskele history`) instead of the last change.")
@common
def undo(invocation: Invocation, batch: str | None) -> None:
    """Undo the last change, or a whole batch such as an import."""
    with invocation.open_existing() as engine:
        _report_changes(invocation, engine, engine.undo(batch))


def _report_changes(
    invocation: Invocation,
    engine: Engine,
    outcomes: Sequence[Outcome],
    more: Mapping[str, Any] | None = None,
    copies: Sequence[Path] = (),
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
    from triskele.serving.cli import reports

    entries = _entries(engine, outcomes)
    ids = {each.id for each in outcomes} | {entry.other for entry in entries.values() if entry.other}
    return invocation.write(reports.changes(outcomes, entries, engine.store.shorten(ids), copies=copies, sent=sent))


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
    if sys.stdin is None:
        raise BadInput("standard input is closed")
    if sys.stdin.isatty():
        click.echo("Type the memory, then press Ctrl-D on an empty line.", err=True)
    # One byte more than allowed shows that there is too much.
    taken = sys.stdin.buffer.read(MAX_BYTES + 1)
    if len(taken) > MAX_BYTES:
        raise BadInput(
            f"standard input is longer than {MAX_BYTES // 1_000_000} MB: a memory is one short fact"
            " (`triskele import` reads whole files)"
        )
    try:
        return taken.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"standard input is not UTF-8 text (byte {error.start})") from error
