"""Commands that change what is remembered: add, edit, link, forget, undo."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from triskele.errors import BadInput
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
from triskele.serving.cli.stdin import given_text
from triskele.types import Action, JournalEntry, LinkKind, Outcome, Sensitivity

if TYPE_CHECKING:
    from triskele.engine import Engine
    from triskele.recall.hosted.egress_log import Sent

# A text may begin with a dash; what looks like an unknown option is then the text.
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
@category_option("What kind of memory it is (facts unless said).")
@click.option("--tags", metavar="A,B", default="", help="Labels to filter by, separated by commas.")
@click.option("--keywords", metavar="WORDS", default="", help="Other words that people may search for.")
@click.option("--importance", type=float, default=0.5, show_default=True, help="From 0 to 1.")
@writing_place
@secrecy_options
@click.option("--valid-from", metavar="DATE", help="True from this day on.")
@click.option("--valid-to", metavar="DATE", help="No longer true from this day on.")
@click.option("--session", metavar="S", help="The conversation or document that it comes from.")
@click.option("--position", type=int, help="Its place there.")
@click.option("--split", is_flag=True, help="Cut a longer text at sentence ends into several memories.")
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
    """Remember a short text; a dash reads it from standard input."""
    if split and supersedes is not None:
        raise click.UsageError("--split and --supersedes exclude each other: say which memory replaces the old one")
    details["tags"] = listed(tags)
    details["project"] = written_project(project, everywhere)
    details |= {"sensitivity": sensitivity, "title": title}
    content = given_text(text)
    with invocation.open() as engine:
        if split:
            outcomes = engine.remember_all(engine.draft_pieces(content, **details))
        else:
            outcomes = [engine.remember(content, supersedes=supersedes, **details)]
        _tell_added(invocation, engine, outcomes, is_split=split, is_marked=sensitivity is Sensitivity.SECRET)


def _tell_added(
    invocation: Invocation, engine: Engine, outcomes: Sequence[Outcome], *, is_split: bool, is_marked: bool
) -> None:
    stored = engine.get(outcomes[0].id)
    kept = engine.store.memories([each.id for each in outcomes])
    secrets = [each for each in kept.values() if each.sensitivity is Sensitivity.SECRET]
    taken = [] if is_marked else secrets
    batch = next((entry.batch for entry in _entries(engine, outcomes).values()), None)
    if invocation.as_json:
        first = next((each for each in outcomes if each.action is Action.ADDED), outcomes[0])
        document = {**shapes.outcome(first), "project": stored.project, "batch": batch}
        document |= {"secret": bool(secrets), "detected": bool(taken)}
        if is_split:
            document["memories"] = [shapes.outcome(each) for each in outcomes]
        return invocation.write_json(document)
    from triskele.serving.cli import reports

    short = engine.store.shorten(each.id for each in outcomes)
    return invocation.write(reports.added(outcomes, short, stored.project), *reports.taken_for_secrets(taken, short))


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
@click.option("--tags", metavar="A,B", help="All its tags; empty removes them.")
@click.option("--keywords", metavar="WORDS", help="All its keywords; empty removes them.")
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
    """Change a memory; the older version stays in its history."""
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
        memory = engine.get(outcome.id)
        sent = [] if memory.sensitivity is Sensitivity.OPEN else before
        _tell_changes(invocation, engine, [outcome], {"project": memory.project}, sent=sent)


def _edited_by_hand(invocation: Invocation, engine: Engine, id: str) -> dict[str, str]:
    memory = engine.get(id)
    if memory.sensitivity is Sensitivity.SECRET:
        # An editor would leave the text in files of its own.
        raise BadInput("a secret is not opened in an editor: give its new text through a dash, from standard input")
    if invocation.as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise BadInput("nothing to change: give a new text or an option such as --tags")
    return {"content": click.edit(memory.content, extension=".txt") or memory.content}


@click.command(
    epilog=examples("triskele link 1kpn46 supersedes 1kq2b7", "triskele link 1kpn46 see-also 1kq2b7 --remove"),
)
@id_argument("source")
@click.argument("kind", metavar="KIND", type=click.Choice([kind.value for kind in LinkKind]))
@id_argument("target")
@click.option("--remove", is_flag=True, help="Take the link back; that it stood stays known.")
@common
def link(invocation: Invocation, source: str, kind: str, target: str, remove: bool) -> None:
    """Connect two memories, read as SOURCE KIND TARGET.

    KIND is supersedes, resolved-by, part-of or see-also.
    """
    with invocation.open_existing() as engine:
        change = engine.unlink if remove else engine.link
        outcome = change(source, LinkKind(kind), target)
        ends = {"source": outcome.id, "kind": kind, "target": engine.resolve(target)}
        _tell_changes(invocation, engine, [outcome], ends)


@click.command(
    epilog=examples("triskele forget 1kpn46", "triskele forget --hard 1kpn46 1kq2b7"),
)
@id_argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option(
    "--hard", is_flag=True, help="Erase the text from every file of the store, beyond undo; asks first on a terminal."
)
@click.option("--yes", is_flag=True, help="Do not ask before erasing.")
@common
def forget(invocation: Invocation, ids: tuple[str, ...], hard: bool, yes: bool) -> None:
    """Stop recalling memories; undo brings them back, unless --hard."""
    with invocation.open_existing() as engine:
        references = list(dict.fromkeys(engine.resolve(id) for id in ids))
        if hard and not yes and not invocation.as_json and sys.stdin.isatty():
            click.confirm(f"Erase {len(references)} for good, beyond undo?", abort=True, err=True)
        if not hard:
            return _tell_changes(invocation, engine, engine.forget(*references))
        outcomes = engine.erase(*references)
        copies = engine.earlier_copies()
        return _tell_changes(invocation, engine, outcomes, {"kept_copies": shapes.plain(copies)}, copies=copies)


@click.command(
    epilog=examples("triskele undo", "triskele undo --batch 3f9c21d07a4e"),
)
@click.option("--batch", metavar="B", help="This batch (see `triskele history`) instead of the last change.")
@common
def undo(invocation: Invocation, batch: str | None) -> None:
    """Take back the last change, or a whole batch such as an import."""
    with invocation.open_existing() as engine:
        _tell_changes(invocation, engine, engine.undo(batch))


def _tell_changes(
    invocation: Invocation,
    engine: Engine,
    outcomes: Sequence[Outcome],
    more: Mapping[str, Any] | None = None,
    copies: Sequence[Path] = (),
    sent: Sequence[Sent] = (),
) -> None:
    entries = _entries(engine, outcomes)
    if invocation.as_json:
        changes = [shapes.outcome(each) for each in outcomes]
        # One change reads as itself; the list is there for programs that always take lists.
        single = changes[0] if len(changes) == 1 else {}
        batch = next((entry.batch for entry in entries.values()), None)
        return invocation.write_json(
            {
                **single,
                "changes": changes,
                "batch": batch,
                "project": engine.project,
                "sent": shapes.plain(sent),
                **(more or {}),
            }
        )
    from triskele.serving.cli import reports

    ids = {each.id for each in outcomes} | {entry.other for entry in entries.values() if entry.other}
    return invocation.write(reports.changes(outcomes, entries, engine.store.shorten(ids), copies=copies, sent=sent))


def _entries(engine: Engine, outcomes: Sequence[Outcome]) -> dict[int, JournalEntry]:
    """The journal's lines for these changes, all written together."""
    written = {each.seq for each in outcomes if each.seq is not None}
    if not written:
        return {}
    lines = engine.store.journal(after=min(written) - 1, limit=max(written) - min(written) + 1)
    return {line.seq: line for line in lines if line.seq in written}
