"""Text from the command line or, for a dash, from standard input: never more than a bounded piece of it."""

from __future__ import annotations

import sys

import click

from triskele.errors import BadInput

MAX_BYTES = 4_000_000


def given_text(text: str) -> str:
    """The text itself; a dash stands for standard input."""
    return _read() if text == "-" else text


def _read() -> str:
    if sys.stdin is None:
        raise BadInput("there is no standard input to read from")
    if sys.stdin.isatty():
        click.echo("Write the memory, then press Ctrl-D on a line of its own.", err=True)
    # One byte more than allowed tells too much from just enough, and leaves the rest unread.
    taken = sys.stdin.buffer.read(MAX_BYTES + 1)
    if len(taken) > MAX_BYTES:
        raise BadInput(
            f"standard input holds more than {MAX_BYTES // 1_000_000} MB: a memory is one short fact"
            " (`triskele import` takes whole files)"
        )
    try:
        return taken.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"standard input is not UTF-8 text (byte {error.start})") from error
