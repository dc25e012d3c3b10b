"""What views are made of: numbers, dates and words for people, and tables of one look."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from triskele.edge.cli.layout import Column, Table, Text

ID, QUIET, MATCH, OLD, GOOD, WARNING, BAD = "cyan", "dim", "bold", "yellow", "green", "yellow", "red"
_BAR_CHARACTERS = 24
# Terminals obey control characters; each is replaced by one character so that spans stay valid.
_CONTROLS = {code: "�" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
# Line breaks that a table does not recognise.
_CONTROLS |= {0x2028: " ", 0x2029: " "}

ShortIds = Mapping[str, str]


def visible(text: str) -> str:
    """Replace control characters."""
    return text.translate(_CONTROLS)


def one_line(text: str) -> str:
    """Join the lines of a text."""
    return " ".join(visible(text).split())


def excerpt(text: str, length: int) -> str:
    """Cut a text to one line of at most this many characters."""
    line = one_line(text)
    return line if len(line) <= length else f"{line[: length - 1]}…"


def day(moment: datetime) -> str:
    """A date in the user's zone."""
    return moment.astimezone().strftime("%Y-%m-%d")


def minute(moment: datetime) -> str:
    """A date and time in the user's zone."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M")


def plural(count: int, noun: str) -> str:
    """A number with its noun: 1 memory, 2 memories."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun.removesuffix('y')}ies" if noun.endswith("ry") else f"{count:,} {noun}s"


def size(count: int) -> str:
    """A number of bytes with its unit."""
    value = float(count)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def project_label(project: str | None) -> str:
    """A project in words."""
    if project is None:
        return "all projects"
    return f"project {project}" if project else "everywhere"


def plan_label(values: Mapping[str, Any]) -> str:
    """The differences of a ranking plan from the shipped one."""
    return ", ".join(f"{name} {_setting(value)}" for name, value in values.items()) or "as shipped"


def _setting(value: Any) -> str:
    if isinstance(value, Mapping):
        return "(" + ", ".join(f"{name} {number:g}" for name, number in value.items()) + ")"
    return str(value)


def note(text: str, style: str = "") -> Text:
    """A text without control characters."""
    return Text(visible(text), style)


def number(count: int) -> Text:
    """A number at the right of its column."""
    return Text(f"{count:,}", is_right=True)


def more(count: int, what: str = "", *, style: str = QUIET) -> list[Text]:
    """A line that counts what a list leaves out, if anything."""
    return [note(f"… and {count:,} more{what}", style)] if count > 0 else []


def table(*headings: str, last_takes_rest: bool = False, has_header: bool = True) -> Table:
    """A table without lines; the last column may take the remaining width."""
    columns = [Column(heading) for heading in headings]
    columns[-1].takes_rest = last_takes_rest
    return Table(*columns, has_header=has_header)


def numbered_rows() -> Table:
    """Rows of a number or sign, an id and a text."""
    return Table(Column(), Column(), Column(wraps=True), gap=1)


def pairs(rows: Iterable[tuple[str, Text]]) -> Table:
    """Names on the left, values on the right."""
    columns = Table(Column(style=QUIET), Column(wraps=True))
    for name, value in rows:
        columns.add_row(name, value)
    return columns


def bars(counts: Mapping[str, int]) -> Table:
    """Names with their numbers, and a bar for each."""
    most = max(counts.values())
    rows = table("", "", "", has_header=False)
    for name, count in counts.items():
        bar = "▪" * max(1, round(_BAR_CHARACTERS * count / most))
        rows.add_row(note(name or "everywhere"), number(count), note(bar, ID))
    return rows
