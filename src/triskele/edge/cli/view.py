"""Styled texts and tables fitted to the width of the output, and formats of numbers and dates for people.

Written here because a library for terminals takes longer to import than most commands run.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cache
from itertools import pairwise, zip_longest
from typing import Any, Protocol, TextIO

from triskele.edge.wording import visible

_CODES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "cyan": 36}
_WORD = re.compile(r"\s*\S+\s*")
_BLANKS = re.compile(r"\s+$")
_USUAL_COLUMNS = 80
_TAB = 8
ID, QUIET, MATCH, OLD, GOOD, WARNING, BAD = "cyan", "dim", "bold", "yellow", "green", "yellow", "red"
_BAR_CHARACTERS = 24
ShortIds = Mapping[str, str]
Row = Sequence["Styled | str"]


class Renderable(Protocol):
    """What a view consists of."""

    def lines(self, width: int) -> list[Styled]:
        """The lines that fit into a width."""


class Styled:
    """A text with styles on spans of it; `is_right` moves it to the right of its column."""

    def __init__(self, plain: str = "", style: str = "", *, is_right: bool = False) -> None:
        self.plain = plain
        self.is_right = is_right
        self.spans = [(0, len(plain), style)] if style else []

    def __add__(self, other: Styled) -> Styled:
        sum_, shift = Styled(self.plain + other.plain), len(self.plain)
        sum_.spans = self.spans + [(start + shift, end + shift, style) for start, end, style in other.spans]
        return sum_

    def __getitem__(self, piece: slice) -> Styled:
        first, last, _ = piece.indices(len(self.plain))
        part = Styled(self.plain[first:last])
        spans = ((max(start, first) - first, min(end, last) - first, style) for start, end, style in self.spans)
        part.spans = [span for span in spans if span[0] < span[1]]
        return part

    def painted(self) -> str:
        """The text with the codes of its styles for a terminal."""
        borders = sorted({0, len(self.plain), *(border for start, end, _ in self.spans for border in (start, end))})
        text = ""
        for first, last in pairwise(borders):
            styles = (style for start, end, style in self.spans if start <= first and last <= end)
            codes = ";".join(str(_CODES[word]) for style in styles for word in style.split())
            text += f"\x1b[{codes}m{self.plain[first:last]}\x1b[0m" if codes else self.plain[first:last]
        return text

    def lines(self, width: int) -> list[Styled]:
        """The lines that fit into a width; long words are broken."""
        return [_cropped(piece, width) for line in self._own_lines() for piece in _wrapped(line, width)]

    def cut_lines(self, width: int) -> list[Styled]:
        """Its own lines; longer ones end in an ellipsis."""
        return [
            line if cells(line.plain) <= width else _cropped(line, width - 1) + Styled("…")
            for line in self._own_lines()
        ]

    def _own_lines(self) -> Iterator[Styled]:
        """Split at line breaks, and expand tabs."""
        start = 0
        for plain in self.plain.split("\n"):
            line = self[start : start + len(plain)]
            while (tab := line.plain.find("\t")) >= 0:
                line = line[:tab] + Styled(" " * (_TAB - cells(line.plain[:tab]) % _TAB)) + line[tab + 1 :]
            yield line
            start += len(plain) + 1

    def columns(self) -> int:
        """The width of its longest line."""
        return max(cells(line.plain) for line in self._own_lines())


def stacked(*texts: Styled) -> Styled:
    """Texts below each other."""
    stack, *rest = texts
    for text in rest:
        stack += Styled("\n") + text
    return stack


class Table:
    """Rows of cells without lines around them, below their headings if there are any.

    A column that wraps is named by its number; other texts that are too long are cut.
    """

    def __init__(
        self,
        headings: Sequence[str],
        rows: Iterable[Row],
        *,
        wraps: Collection[int] = (),
        gap: int = 2,
        last_takes_rest: bool = False,
    ) -> None:
        self._rows = [[Styled(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
        if headings:
            self._rows.insert(0, [Styled(heading, QUIET) for heading in headings])
        self._wraps, self._gap, self._last_takes_rest = wraps, gap, last_takes_rest

    def lines(self, width: int) -> list[Styled]:
        """The lines that fit into a width."""
        widths = self._widths(width)
        return [_cropped(line, width) for row in self._rows for line in self._row_lines(row, widths)]

    def _row_lines(self, row: Sequence[Styled], widths: Sequence[int]) -> Iterator[Styled]:
        blocks = [self._cell_lines(number, cell, widths[number]) for number, cell in enumerate(row)]
        for pieces in zip_longest(*blocks, fillvalue=Styled()):
            line = Styled()
            for piece, width in zip(pieces, widths, strict=True):
                line += piece + Styled(" " * (width - cells(piece.plain)))
            yield line

    def _cell_lines(self, number: int, cell: Styled, width: int) -> list[Styled]:
        inner = width - self._gap_after(number)
        if inner < 1:
            return []
        lines = cell.lines(inner) if number in self._wraps else cell.cut_lines(inner)
        return [Styled(" " * (inner - cells(line.plain))) + line for line in lines] if cell.is_right else lines

    def _gap_after(self, number: int) -> int:
        return self._gap if number + 1 < len(self._rows[0]) else 0

    def _widths(self, width: int) -> list[int]:
        """The width of each column, with the gap after it."""
        numbers = range(len(self._rows[0]))
        widths = [self._needed(number, width) or 1 for number in numbers]
        if self._last_takes_rest:
            widths[-1] = max(1, width - sum(widths[:-1]))
        if sum(widths) <= width:
            return widths
        # First the columns that can be wrapped, from the widest on; then all alike.
        while self._wraps and (excess := sum(widths) - width) > 0:
            ranked = sorted({0, *(widths[number] for number in self._wraps)})
            if len(ranked) < 2:
                break
            is_widest = [number in self._wraps and widths[number] == ranked[-1] for number in numbers]
            widths = _reduced(widths, excess, [ranked[-1] - ranked[-2] if widest else 0 for widest in is_widest])
        if (excess := sum(widths) - width) > 0:
            widths = _reduced(widths, excess, widths)
        return [self._needed(number, size) for number, size in enumerate(widths)]

    def _needed(self, number: int, width: int) -> int:
        """The width of a column's longest line, with the gap after it, at most `width`."""
        gap = self._gap_after(number)
        return max(0, width) if width <= gap else min(width, gap + max(row[number].columns() for row in self._rows))


def _reduced(widths: Sequence[int], excess: int, most: Sequence[int]) -> list[int]:
    """Take an excess evenly from the widths that may give something, from each at most so much."""
    givers, result = sum(map(bool, most)), []
    for width, limit in zip(widths, most, strict=True):
        share = min(limit, round(excess / givers)) if limit and givers else 0
        result.append(width - share)
        excess -= share
        givers -= bool(limit)
    return result


class Indented:
    """A part with space at both sides."""

    def __init__(self, part: Renderable, left: int, right: int = 0) -> None:
        self._part, self._left, self._right = part, left, right

    def lines(self, width: int) -> list[Styled]:
        """The lines that fit into a width."""
        return [Styled(" " * self._left) + line for line in self._part.lines(width - self._left - self._right)]


class Framed:
    """A text in a frame with a title."""

    def __init__(self, text: Styled, title: Styled) -> None:
        self._text, self._title = text, title

    def lines(self, width: int) -> list[Styled]:
        """The lines that fit into a width."""
        side, top, inner = Styled("│", QUIET), "─", width - 4
        title = _cropped(Styled(" ") + self._title + Styled(" "), inner)
        rest = Styled(top * (inner - cells(title.plain)), QUIET)
        body = [line + Styled(" " * (inner - cells(line.plain))) for line in self._text.lines(inner)]
        return [
            Styled(f"╭{top}", QUIET) + title + rest + Styled(f"{top}╮", QUIET),
            *(side + Styled(" ") + line + Styled(" ") + side for line in body),
            Styled(f"╰{top * (width - 2)}╯", QUIET),
        ]


def cells(text: str) -> int:
    """The number of columns that a text takes in a terminal."""
    return len(text) if text.isascii() and text.isprintable() else sum(map(_character_cells, text))


@cache
def _character_cells(character: str) -> int:
    # Imported here: it costs as much as a layout, and most texts are ASCII.
    import unicodedata

    if unicodedata.category(character) in ("Cc", "Cf", "Me", "Mn"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _cropped(text: Styled, width: int) -> Styled:
    """A text without what is beyond a width; half of a wide character becomes a blank."""
    if cells(text.plain) <= width:
        return text
    size = 0
    for position, character in enumerate(text.plain):
        if size + _character_cells(character) > width:
            return text[:position] + Styled(" " * (width - size))
        size += _character_cells(character)
    return text


def _wrapped(line: Styled, width: int) -> Iterator[Styled]:
    """The pieces of a line, broken before words that do not fit, and in words that are too long for any line."""
    breaks = [0, *_breaks(line.plain, width), len(line.plain)]
    for start, end in pairwise(breaks):
        piece = line[start:end]
        excess = len(piece.plain) - width
        if excess > 0 and (blanks := _BLANKS.search(piece.plain)) is not None:
            piece = piece[: end - start - min(excess, len(blanks[0]))]
        yield piece


def _breaks(line: str, width: int) -> Iterator[int]:
    used = 0
    for word in _WORD.finditer(line):
        size = cells(word[0].rstrip())
        if size <= width - used:
            used += cells(word[0])
        elif size > width:
            if word.start():
                yield word.start()
            used = 0
            for position, character in enumerate(word[0], word.start()):
                if used + _character_cells(character) > width:
                    yield position
                    used = 0
                used += _character_cells(character)
        elif used and word.start():
            yield word.start()
            used = cells(word[0])


def is_terminal(stream: TextIO) -> bool:
    """Whether a stream is for a person; FORCE_COLOR decides it without a look."""
    forced = os.environ.get("FORCE_COLOR")
    return stream.isatty() if forced is None else forced != ""


def has_terminal() -> bool:
    """Whether standard input is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


def has_colors(stream: TextIO) -> bool:
    """Whether a stream is a terminal that shows styles."""
    is_dumb = os.environ.get("TERM", "").lower() in ("dumb", "unknown")
    return is_terminal(stream) and not is_dumb and not os.environ.get("NO_COLOR")


def screen_width() -> int:
    """The columns of the terminal, on whichever standard stream it is."""
    if (columns := os.environ.get("COLUMNS", "")).isdigit() and int(columns):
        return int(columns)
    for stream in range(3):
        with suppress(OSError, ValueError):
            return os.get_terminal_size(stream).columns or _USUAL_COLUMNS
    return _USUAL_COLUMNS


def rendered(parts: Iterable[Renderable | str], width: int, *, colored: bool) -> str:
    """Parts as text; blanks at the end of lines are removed."""
    lines = (line for part in parts for line in (Styled(part) if isinstance(part, str) else part).lines(width))
    return "\n".join((line.painted() if colored else line.plain).rstrip() for line in lines)


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
    differences = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            value = f"({', '.join(f'{part} {weight:g}' for part, weight in value.items())})"
        differences.append(f"{name} {value}")
    return ", ".join(differences) or "as shipped"


def note(text: str, style: str = "") -> Styled:
    """A text without control characters."""
    return Styled(visible(text), style)


def number(count: int) -> Styled:
    """A number at the right of its column."""
    return Styled(f"{count:,}", is_right=True)


def more(count: int, what: str = "", *, style: str = QUIET, indent: str = "") -> list[Styled]:
    """A line that counts what a list leaves out, if anything."""
    return [note(f"{indent}… and {count:,} more{what}", style)] if count > 0 else []


def numbered_rows(rows: Iterable[Sequence[Styled]]) -> Table:
    """Rows of a number or sign, an id and a text."""
    return Table((), rows, wraps={2}, gap=1)


def pairs(rows: Iterable[tuple[str, Styled]]) -> Table:
    """Names on the left, values on the right."""
    return Table((), ((Styled(name, QUIET), value) for name, value in rows), wraps={1})


def bars(counts: Mapping[str, int]) -> Table:
    """Names with their numbers, and a bar for each."""
    most, rows = max(counts.values()), []
    for name, count in counts.items():
        bar = "▪" * max(1, round(_BAR_CHARACTERS * count / most))
        rows.append((note(name or "everywhere"), number(count), note(bar, ID)))
    return Table((), rows)
