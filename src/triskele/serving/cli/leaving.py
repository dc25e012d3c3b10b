"""What left this machine, told to a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import RenderableType

from triskele.recall.hosted.egress_log import Day, Sent
from triskele.serving.cli.render import GOOD, WARNING, note


def left(days: Sequence[Day], outside: Mapping[str, str], problems: Sequence[str]) -> list[RenderableType]:
    """To whom texts may go, and what went or was to go, day by day."""
    named = ", ".join(f"{host} ({name})" for name, host in outside.items())
    said = f"· Open memories and questions may go to {named}." if named else "✓ Nobody is named to send anything to."
    lines: list[RenderableType] = [note(f"✗ {problem}", style="red") for problem in problems]
    if named or not problems:
        lines.append(note(said, style=WARNING if named else GOOD))
    if not days:
        return [*lines, note("✓ Nothing has left this machine.", style=GOOD)]
    return [*lines, *(note(_day(day), style=WARNING) for day in days)]


def _day(day: Day) -> str:
    billed = f", {day.tokens:,} tokens" if day.tokens else ""
    billed += f", about {day.cost:,.4f} in your currency" if day.cost else ""
    asked = f"{day.requests:,} request{'' if day.requests == 1 else 's'}"
    sent = f"{day.texts:,} texts, {day.characters:,} characters to {day.host} ({day.endpoint})"
    return f"· {day.day}: {sent}, {asked}, tries that failed included{billed}"


def sent(found: Sequence[Sent]) -> list[RenderableType]:
    """That somebody else has the text of a memory already."""
    lines = [f"The text was sent to {each.host} before: first {each.first}, last {each.last}." for each in found]
    advice = ["What was sent cannot be taken back: change what it tells, or ask them to delete it."] if found else []
    return [note(line, style=WARNING) for line in [*lines, *advice]]
