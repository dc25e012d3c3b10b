"""Memories and answers on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from triskele.edge.shapes import mark, shown_content
from triskele.replies import UseCount
from triskele.text import periods, timestamps
from triskele.types import LEAST_CONFIDENCE, Answer, Hit, Link, LinkKind, Memory

if TYPE_CHECKING:
    from triskele.engine.upkeep import SyncState
    from triskele.replies import MemoryDetails, MemoryView, Proposal
    from triskele.sync.loop import SyncReport

_CONFLICT_PREFIX = "[in conflict] "
_SETTLE = "`triskele list --conflicts` shows both versions, `triskele sync --resolve ID --keep mine|theirs` settles one"
ID, QUIET, MATCH, OLD, GOOD, WARNING = "cyan", "dim", "bold", "yellow", "green", "yellow"
_DEFAULT_IMPORTANCE = 0.5
# Terminals obey control characters; each is replaced by one character so that spans stay valid.
_CONTROLS = {code: "�" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
# Line breaks that a table does not recognise.
_CONTROLS |= {0x2028: " ", 0x2029: " "}
_SEEN_FROM_TARGET = {
    LinkKind.SUPERSEDES: "superseded by",
    LinkKind.RESOLVED_BY: "resolves",
    LinkKind.PART_OF: "has the part",
    LinkKind.SEE_ALSO: "see also",
}

_TIME_LINES = {
    "as_of": "As of {}, as known now.",
    "known_at": "As known on {}.",
    "since": "Since {}.",
    "until": "Until {}, included.",
    "valid_from": "Valid from {}.",
    "valid_to": "No longer valid from {}.",
}

Short = Mapping[str, str]


def visible(text: str) -> str:
    """Text without control characters."""
    return text.translate(_CONTROLS)


def day(moment: datetime) -> str:
    """A date in the user's zone."""
    return moment.astimezone().strftime("%Y-%m-%d")


def minute(moment: datetime) -> str:
    """A date and time in the user's zone."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M")


def place(project: str | None) -> str:
    """A project in words."""
    if project is None:
        return "all projects"
    return f"project {project}" if project else "everywhere"


def memories(count: int, which: str = "") -> str:
    """A number of memories, in words."""
    return f"{count:,} {which}{'memory' if count == 1 else 'memories'}"


def counted(count: int, noun: str) -> str:
    """A number with its noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def note(text: str, style: str = "") -> Text:
    """One line of text."""
    return Text(visible(text), style=style)


def ids_in(found: Answer) -> set[str]:
    """All ids that the output of an answer mentions."""
    ids = {hit.memory.id for hit in found.hits} | {memory.id for memory in found.resolutions}
    ids |= {hit.stands_for for hit in found.hits if hit.stands_for}
    return ids | {end for hit in found.hits for link in hit.links for end in (link.source, link.target)}


def answer(
    found: Answer,
    short: Short,
    *,
    explain: bool = False,
    times: Mapping[str, Any] | None = None,
    embeds_here: bool = True,
) -> RenderableType:
    """The hits of a recall, best first; `times` are the time options as they were understood.

    `embeds_here`: the store is on this machine; a server embeds by itself.
    """
    # The answer itself shows since and until.
    asked = time_lines({name: time for name, time in (times or {}).items() if name not in ("since", "until")})
    if not found.hits:
        return _nothing(found, asked)
    table = _entries()
    for rank, hit in enumerate(found.hits, start=1):
        table.add_row(Text(f"{rank}", style=QUIET), Text(short[hit.memory.id], style=ID), _hit(hit, short, explain))
    parts: list[RenderableType] = [table]
    if found.confidence < LEAST_CONFIDENCE:
        parts.insert(0, note("Nothing fits well; these are the nearest.", style=WARNING))
    if found.resolutions:
        resolved = _entries()
        for each in found.resolutions:
            resolved.add_row(Text("→", style=GOOD), Text(short[each.id], style=ID), _memory_lines(each))
        parts += [note("Resolved by", style=MATCH), resolved]
    parts += [*_times(found), *asked]
    summary = (memories(len(found.hits)), place(found.project), f"confidence {found.confidence:.2f}")
    parts.append(note(" · ".join((*summary, f"recall took {found.took_ms:.0f} ms")), style=QUIET))
    return Group(*parts, *_reservations(found, embeds_here))


def _times(found: Answer) -> list[RenderableType]:
    """The time that the question names, and the one that the options allow."""
    lines = [f"Time in the question: {periods.label(found.period)}"] if found.period else []
    lines += [f"Only memories from this time: {periods.label(found.within)}"] if found.within else []
    return [note(line, style=QUIET) for line in lines]


def _reservations(found: Answer, embeds_here: bool) -> list[Text]:
    """Notes on what the answer lacks."""
    lines = [note(f"{reason[:1].upper()}{reason[1:]}.", style=WARNING) for reason in found.missing]
    if found.wordings:
        lines.append(note("Also searched for: " + " · ".join(map(visible, found.wordings)), style=QUIET))
    if found.agreement is not None:
        said = f"{found.agreement.kept * 100:.0f} % of the top five are the same (tau {found.agreement.tau:.2f})"
        lines.append(note(f"Reranked by the cross-encoder: {said}.", style=QUIET))
    if found.waiting:
        advice = "; `triskele reindex` embeds everything" if embeds_here else ""
        lines.append(note(f"{memories(found.waiting)} not embedded yet, found by words only{advice}.", style=QUIET))
    return lines


def time_lines(times: Mapping[str, Any]) -> list[RenderableType]:
    """The time options of a call, each as it was understood."""
    return [note(_TIME_LINES[name].format(time["day"]), style=QUIET) for name, time in times.items()]


def _nothing(found: Answer, asked: Sequence[RenderableType]) -> RenderableType:
    wider = "" if found.project is None else ", --all-projects"
    return Group(
        note(f"Nothing found in {place(found.project)}."),
        *_times(found),
        *asked,
        note(f"Try other words{wider}, or look at `triskele list`.", style=QUIET),
    )


def _entries() -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1, overflow="fold")
    return table


def _hit(hit: Hit, short: Short, explain: bool) -> RenderableType:
    content = Text(visible(hit.memory.content))
    if hit.stands_for is None:
        for leg in hit.legs.values():
            for term in leg.terms:
                if term.start >= 0:
                    content.stylize(f"{MATCH} {GOOD}", term.start, term.end)
    content = Text(mark(hit.memory, hit.superseded), style=OLD) + content
    lines: list[RenderableType] = [content, _details(hit.memory), note(_reason(hit, short), style=QUIET)]
    if explain:
        lines += _account(hit, short)
    return Group(*lines, Text())


def _account(hit: Hit, short: Short) -> list[RenderableType]:
    """The parts of the score, and the links of the memory."""
    legs = (
        f"{name} rank {leg.rank}, score {leg.score:.2f}"
        + (f", adds {leg.contribution:.2f}" if leg.contribution != leg.score else "")
        for name, leg in hit.legs.items()
    )
    lines = [" · ".join((*legs, f"importance ×{hit.prior:.2f}", f"total {hit.score:.2f}"))]
    labels = dict.fromkeys(term.text for leg in hit.legs.values() for term in leg.terms if term.start < 0)
    if labels:
        lines.append("matched in tags, keywords or category: " + ", ".join(labels))
    if hit.links:
        lines.append(" · ".join(dict.fromkeys(_link_text(link, hit.memory.id, short) for link in hit.links)))
    return [note(line, style=QUIET) for line in lines]


def _reason(hit: Hit, short: Short) -> str:
    # Imported here: commands that recall nothing need no numpy.
    from triskele.recall.reasons import sentence

    return sentence(hit, lambda id: short.get(id, id)) if hit.reason else ""


def _link_text(link: Link, id: str, short: Short) -> str:
    if link.source == id:
        return f"{str(link.kind).replace('-', ' ')} {short[link.target]}"
    return f"{_SEEN_FROM_TARGET[link.kind]} {short[link.source]}"


def _details(memory: Memory) -> Text:
    parts = [memory.category, *(f"#{tag}" for tag in memory.tags), memory.project or "everywhere"]
    parts += [f"shared by {memory.shared_by}"] if memory.shared_by else []
    parts += [*said_by(memory), day(memory.created_at)]
    if memory.importance != _DEFAULT_IMPORTANCE:
        parts.append(f"importance {memory.importance:g}")
    if memory.sensitivity != "open":
        parts.append(str(memory.sensitivity))
    parts += _validity(memory)
    return note(" · ".join(parts), style=QUIET)


def said_by(memory: Memory) -> list[str]:
    """The speaker and the role of a memory, if it has them."""
    return [part for part in (memory.speaker, memory.role) if part]


def _validity(memory: Memory) -> list[str]:
    since = f"from {day(memory.valid_from)}" if memory.valid_from else ""
    until = f"until {day(memory.valid_to)}" if memory.valid_to else ""
    said = " ".join(part for part in (since, until) if part)
    return [f"valid {said}"] if said else []


def _memory_lines(memory: Memory) -> RenderableType:
    return Group(Text(visible(shown_content(memory, False))), _details(memory), Text())


def memory(value: MemoryDetails, short: Short) -> RenderableType:
    """One memory with all details."""
    content = Text(mark(value, value.superseded), style=OLD) + Text(visible(value.content), style="")
    title = Text(short[value.id], style=ID) + note(f" {value.category}")
    panel = Panel(content, title=title, title_align="left", border_style=QUIET)
    rows = {
        "id": value.id,
        "project": value.project or "everywhere",
        "tags": ", ".join(value.tags),
        "keywords": value.keywords,
        "importance": f"{value.importance:g}",
        "sensitivity": str(value.sensitivity),
        "origin": str(value.origin),
        "shared by": value.shared_by or "",
        "said by": " · ".join(said_by(value)),
        "from": " at ".join(str(part) for part in (value.session, value.position) if part is not None),
        "valid": " ".join(_validity(value)).removeprefix("valid "),
        "created": minute(value.created_at),
        "updated": minute(value.updated_at) if value.version > 1 else "",
        "forgotten": minute(value.known_to) if value.known_to else "",
        "version": str(value.version),
        "used": _used(value.used) if value.used else "",
        "conflict": f"changed here and on the server: {_SETTLE}" if value.in_conflict else "",
    }
    table = pairs((name, note(said)) for name, said in rows.items() if said)
    for link in value.links:
        table.add_row(note("link", style=QUIET), _linked(link, value.id, value.linked, short))
    return Group(panel, Padding(table, (0, 2)))


def _used(count: UseCount) -> str:
    said = f"recalled {counted(count.recalled, 'time')}, injected {counted(count.injected, 'time')}"
    return f"{said}, about {counted(count.tokens, 'token')}, last on {day(count.last)}"


def _linked(link: Link, id: str, others: Mapping[str, Memory], short: Short) -> Text:
    other = link.target if link.source == id else link.source
    names = {**short, other: short.get(other, other)}
    said = shown_content(others[other], False) if other in others else "(forgotten)"
    return note(_link_text(link, id, names)) + note("  " + one_line(said), style=QUIET)


def pairs(rows: Iterable[tuple[str, RenderableType]]) -> Table:
    """Names on the left, values on the right."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style=QUIET, no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, value)
    return table


def one_line(text: str) -> str:
    """A text without its line breaks."""
    return " ".join(visible(text).split())


def table(*headings: str, last_takes_rest: bool = False) -> Table:
    """A table without lines; the last column may take the remaining width."""
    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style=QUIET, expand=last_takes_rest)
    for heading in headings:
        takes_rest = last_takes_rest and heading == headings[-1]
        made.add_column(heading, no_wrap=True, overflow="ellipsis", ratio=1 if takes_rest else None)
    return made


def listing(
    listed: Sequence[MemoryView], short: Short, project: str | None, *, offset: int = 0, limit: int
) -> RenderableType:
    """Memories line by line; those in conflict are marked."""
    if not listed:
        return _empty_listing(project, offset)
    # Inside one project its name is redundant.
    places = ["project"] if project is None else []
    sharers = ["shared by"] if any(each.shared_by for each in listed) else []
    made = table("id", "updated", "category", *places, *sharers, "memory", last_takes_rest=True)
    for each in listed:
        details = [day(each.updated_at), each.category, *([each.project or "everywhere"] if places else [])]
        details += [each.shared_by or ""] if sharers else []
        before = Text(_CONFLICT_PREFIX * each.in_conflict + mark(each, each.superseded), style=OLD)
        made.add_row(
            Text(short[each.id], style=ID),
            *(note(detail, style=QUIET) for detail in details),
            before + Text(one_line(each.content)),
        )
    following = f" · more with --offset {offset + limit}" if len(listed) == limit else ""
    counted = f"{offset + 1} to {offset + len(listed)} · {place(project)}{following}"
    settling = [note(f"{_SETTLE}.", style=QUIET)] if any(each.in_conflict for each in listed) else []
    return Group(made, note(counted, style=QUIET), *settling)


def _empty_listing(project: str | None, offset: int) -> RenderableType:
    wider = "" if project is None else "Try --all-projects, or "
    begin = f'{wider}add one: triskele add "…"'
    return Group(
        note(f"No {'more ' if offset else ''}memories in {place(project)}."),
        note(begin[0].upper() + begin[1:], style=QUIET),
    )


def size(count: int) -> str:
    """A number of bytes with its unit."""
    value = float(count)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def synced(done: SyncReport) -> RenderableType:
    """The result of a sync."""
    lines = [f"{counted(done.pushed, 'change')} pushed, {counted(done.pulled, 'change')} pulled."]
    if done.waiting:
        lines.append(f"{len(done.waiting):,} waiting: `triskele sync --status` says why.")
    if done.conflicts:
        lines.append(f"{counted(len(done.conflicts), 'conflict')}: {_SETTLE}.")
    return Group(*map(note, lines))


def sync_state(found: SyncState, short: Mapping[str, str]) -> RenderableType:
    """What waits and why."""
    server = found.url or "no server (set sync.url)"
    lines = [f"Server: {server}{f' as {found.user}' if found.user else ''}"]
    lines.append(f"Last sync: {minute(timestamps.parse(found.at)) if found.at else 'never'}")
    lines += [f"The last try failed: {found.error}"] if found.error else []
    lines.append(f"{counted(len(found.unsent), 'change')} to push.")
    lines += [f"{short[id]} waits: {reason}" for id, reason in found.waiting.items()]
    lines += [f"{short[id]} is in conflict: it was changed here and on the server." for id in found.conflicts]
    lines += [f"{_SETTLE}."] if found.conflicts else []
    if found.left_here:
        lines.append(
            f"{memories(found.left_here, 'private or secret ')} {'stays' if found.left_here == 1 else 'stay'} here."
        )
    return Group(*map(note, lines))


def resolved(id: str, kept: str) -> RenderableType:
    """That a conflict is settled."""
    if kept == "mine":
        return note(f"Kept this machine's version of {id}; the next sync sends it.")
    return note(f"Kept the server's version of {id}.")


def conflicts(found: Sequence[Proposal], short: Mapping[str, str]) -> RenderableType:
    """Both versions of every memory in conflict."""
    if not found:
        return note("No conflicts.")
    made = table("id", "version", "memory", last_takes_rest=True)
    for each in found:
        for side, memory in (("mine", each.old), ("theirs", each.new)):
            made.add_row(Text(short[each.id], style=ID), note(side, style=QUIET), Text(_said(memory)))
    return Group(made, note(f"{counted(len(found), 'conflict')} · {_SETTLE}", style=QUIET))


def _said(memory: Memory | None) -> str:
    if memory is None:
        return "(erased)"
    return f"{'(forgotten) ' if memory.known_to else ''}{one_line(mark(memory, False) + memory.content)}"
