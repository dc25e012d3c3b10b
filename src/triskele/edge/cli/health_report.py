"""The report of `doctor`: damage, lost writes, repairs, and what was sent to hosted models and servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType

from triskele.edge.cli.render import GOOD, QUIET, WARNING, counted, minute, note, one_line
from triskele.edge.cli.reports import waiting_jobs

if TYPE_CHECKING:
    from triskele.engine.health import Health
    from triskele.engine.upkeep import SyncedServer
    from triskele.recall.hosted.egress_log import Day

_SHOWN_PROBLEMS = 10
_NO_MODEL = "✓ No hosted model is configured"


def health(found: Health, *, deep: bool, synced: Sequence[SyncedServer] = (), server: str = "") -> RenderableType:
    """The findings and repairs of `doctor`; `server` is the one that commands without `--store` use."""
    lines: list[RenderableType] = [note(f"✗ {each.subject}: {each.problem}", style="red") for each in found.findings]
    if found.findings:
        lines.append(note("This cannot be repaired: restore a backup with `triskele restore FILE`."))
    else:
        checked = "all checksums match" if deep else "integrity check passed"
        lines.append(note(f"✓ Database OK ({checked}).", style="green"))
    lines += _lost(found)
    lines += [note(f"· A killed backup or restore left {path}: it holds memories", WARNING) for path in found.leftovers]
    lines += [note(f"✓ Repaired: {what}.", style="green") for what in found.repaired]
    if found.repair_problem is not None:
        sign, style = ("✗", "red") if found.is_unrepaired else ("·", WARNING)
        lines.append(note(f"{sign} Nothing more could be repaired: {found.repair_problem}", style=style))
    if found.model_problem is not None:
        lines.append(note(f"✗ The model cannot be loaded, recall uses words only: {found.model_problem}", style="red"))
    lines += [note(f"· {each}.", style=WARNING) for each in found.corpus_notes]
    if found.vault_problem is not None:
        lines.append(note(f"✗ Secrets cannot be read: {found.vault_problem}", style="red"))
    for id in found.exposed[:_SHOWN_PROBLEMS]:
        lines.append(note(f"· {id} looks like a secret and is not sealed: triskele secrets seal {id}", style=WARNING))
    if len(found.exposed) > _SHOWN_PROBLEMS:
        lines.append(note(f"… and {len(found.exposed) - _SHOWN_PROBLEMS:,} more", style=WARNING))
    lines += _index(found)
    lines += [_mixed(name, others) for name, others in found.mixed.items()]
    lines += waiting_jobs(found.jobs)
    lines += _egress(found, synced, server)
    if not deep:
        lines.append(note("`triskele doctor --deep` also checks every checksum and every index entry.", style=QUIET))
    return Group(*lines)


def _index(found: Health) -> list[RenderableType]:
    """The state of the indexes where nothing was repaired."""
    if found.findings or found.repaired or found.repair_problem is not None:
        return []
    if found.is_unrepaired:
        faults = ("index fault", found.index_faults), ("damaged vector", found.vectors_damaged)
        counts = (*faults, ("erased vector", found.vectors_orphaned))
        left = ", ".join(counted(count, one) for one, count in counts if count)
        return [note(f"✗ Not repaired: {left}. `triskele doctor --deep` repairs this.", style="red")]
    if not found.repairs and found.index_behind != 0:
        return [note("· The index is not up to date: the next recall brings it there.", style=WARNING)]
    return [note("✓ Index up to date.", style="green")]


def _lost(found: Health) -> list[RenderableType]:
    """Acknowledged writes that were lost, and what is still known of them."""
    lines: list[RenderableType] = []
    for each in found.lost:
        last = minute(each.entries[-1].at)
        said = f"✗ {counted(len(each.entries), 'acknowledged write')} lost, the last of {last}:"
        lines.append(note(f"{said} the database is older than what was reported as stored.", style="red"))
        for entry in each.entries[-_SHOWN_PROBLEMS:]:
            text = f": {one_line(each.texts[entry.id])}" if entry.id in each.texts else ""
            lines.append(note(f"  {minute(entry.at)} {entry.action} {entry.id}{text}", style="red"))
        if each.kept is not None:
            said = f"  What is left of them is kept in {each.kept}; delete it when you no longer need it."
            lines.append(note(said, style=WARNING))
    for path, count in found.index_ahead.items():
        said = f"✗ An older index has {counted(count, 'version')} that the database lacks: writes were lost."
        lines += [note(said, style="red"), note(f"  The index is kept in {path}", style=WARNING)]
    if lines:
        lines.append(note("  Restore a newer backup with `triskele restore FILE`, or write them again."))
    return lines


def _mixed(name: str, others: Sequence[str]) -> RenderableType:
    """Memories that may be in the wrong project, and what to do."""
    said = f"· Older memories of {name} may belong to {' or '.join(others)}, a folder of the same name:"
    advice = f"see `triskele list --project {name}`, move one with `triskele edit ID --project {others[0]}`"
    return note(f"{said} {advice}", style=WARNING)


def clients_without_token(names: Sequence[str]) -> list[RenderableType]:
    """Clients that cannot see the private memories that the settings grant them."""
    return [
        note(f"· private_to names {name}, but its entry has no token: run `triskele install {name}` again", WARNING)
        for name in names
    ]


def _egress(found: Health, synced: Sequence[SyncedServer], server: str) -> list[RenderableType]:
    """The configured hosts and servers, and what was sent, by day."""
    named = ", ".join(f"{host} ({name})" for name, host in found.outside.items())
    stays_here = not server and not any(each.is_set for each in synced)
    said = f"{_NO_MODEL}; nothing leaves this machine." if stays_here else f"{_NO_MODEL}."
    said = f"· Open memories and queries may be sent to {named}." if named else said
    lines: list[RenderableType] = [note(f"· {problem}", style=WARNING) for problem in found.outside_problems]
    if named or not found.outside_problems:
        lines.append(note(said, style=WARNING if named else GOOD))
    lines += [note(_server(each), style=WARNING) for each in synced]
    if server:
        lines.append(note(f"· Commands without --store use the memory on {server}.", style=WARNING))
    if not found.left:
        where = "to a hosted model" if synced or server else "from this machine"
        return [*lines, note(f"✓ Nothing was sent {where}.", style=GOOD)]
    return [*lines, *(note(_day(day), style=WARNING) for day in found.left)]


def _server(synced: SyncedServer) -> str:
    """A server that this store is or was synced with, and the last sync."""
    verb = "are" if synced.is_set else "were"
    user = f" as {synced.user}" if synced.user else ""
    last = f"last sync {minute(synced.at)}" if synced.at else "no sync has finished yet"
    pushed = "" if synced.sent is None else f"{counted(synced.sent, 'change')} pushed, "
    return f"· Open memories {verb} synced with {synced.url}{user}: {pushed}{last}."


def _day(day: Day) -> str:
    billed = f", {counted(day.tokens, 'token')}" if day.tokens else ""
    billed += f", about {day.cost:,.4f} in your currency" if day.cost else ""
    requests = f"{counted(day.requests, 'request')} (failed ones included)"
    texts = f"{counted(day.texts, 'text')}, {counted(day.characters, 'character')} to {day.host} ({day.endpoint})"
    return f"· {day.day}: {texts}, {requests}{billed}"
