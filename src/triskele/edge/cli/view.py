"""Formats of numbers, dates and words for people, and layouts of rich.

Nothing imports rich before something is shown: it takes longer to load than most commands run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table
    from rich.text import Text

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
    from rich.text import Text

    return Text(visible(text), style=style)


def number(count: int) -> Text:
    """A number at the right of its column."""
    from rich.text import Text

    return Text(f"{count:,}", justify="right")


def group(*parts: RenderableType) -> Group:
    """Parts below each other."""
    from rich.console import Group

    return Group(*parts)


def more(count: int, what: str = "", *, style: str = QUIET) -> list[Text]:
    """A line that counts what a list leaves out, if anything."""
    return [note(f"… and {count:,} more{what}", style)] if count > 0 else []


def table(*headings: str, last_takes_rest: bool = False, has_header: bool = True) -> Table:
    """A table without lines; the last column may take the remaining width."""
    from rich.table import Table

    columns = Table(
        box=None,
        padding=(0, 2, 0, 0),
        pad_edge=False,
        header_style=QUIET,
        expand=last_takes_rest,
        show_header=has_header,
    )
    for heading in headings:
        takes_rest = last_takes_rest and heading == headings[-1]
        columns.add_column(heading, no_wrap=True, overflow="ellipsis", ratio=1 if takes_rest else None)
    return columns


def numbered_rows() -> Table:
    """Rows of a number or sign, an id and a text."""
    from rich.table import Table

    rows = Table.grid(padding=(0, 1, 0, 0))
    rows.add_column(justify="right", no_wrap=True)
    rows.add_column(no_wrap=True)
    rows.add_column(ratio=1, overflow="fold")
    return rows


def pairs(rows: Iterable[tuple[str, RenderableType]]) -> Table:
    """Names on the left, values on the right."""
    from rich.table import Table

    columns = Table.grid(padding=(0, 2, 0, 0))
    columns.add_column(style=QUIET, no_wrap=True)
    columns.add_column(overflow="fold")
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
