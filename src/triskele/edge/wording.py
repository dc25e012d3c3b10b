"""Words that commands, pages and tools share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from triskele.text import timestamps
from triskele.types import Memory, Verdict, is_secret

if TYPE_CHECKING:
    from triskele.replies import Undone
    from triskele.replies.rooms import Rationale, Share
    from triskele.types import SmallestChange

SUPERSEDED_PREFIX = "[SUPERSEDED] "
SECRET_PREFIX = "[SECRET] "
FITS = {"good": "", "weak": "Weak match. Closest:", "none": "No good match. Closest:"}
VERBS = {
    Verdict.ADD: "keep",
    Verdict.UPDATE: "extends",
    Verdict.SUPERSEDE: "replaces",
    Verdict.NOOP: "repeats",
    Verdict.FORGET: "forget",
}
_REASONS = {
    "same words": "the same words",
    "nearly the same words": "nearly the same words, with equal numbers and names",
    "same words in another order": "the same words in another order",
    "similar words": "most of the words are the same ({before}), and all numbers and names",
    "more words": "the same words and more: {after}",
    "the same and more": "says the same and adds: {after}",
    "denied": "one denies what the other says",
    "ended": "says that it ended ({after})",
    "changed value": "{before} became {after}",
    "other name": "{before} and {after} are names of one thing",
    "moved on": "it moved on to {after}",
    "other amount": "another number for the same thing: {before} and {after}",
    "other speaker": "another person says it",
    "part of a conversation": "a turn of a conversation",
    "language model": "the language model says: {after}",
    "ended on": "no longer valid since {before}",
    "part of a forgotten memory": "it is part of a memory that was forgotten",
    "holds for a time of its own": "one of them has its own validity period",
}
_REASON_CHARACTERS = 60
# Terminals obey control characters; each is replaced by one character so that spans stay valid.
_CONTROLS = {code: "�" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
# Line breaks that a table does not recognise.
_CONTROLS |= {0x2028: " ", 0x2029: " "}


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


def shown_content(memory: Memory, superseded: bool) -> str:
    """The text with its prefixes; of a secret only the title."""
    return mark(memory, superseded) + memory.content


def mark(memory: Memory, superseded: bool) -> str:
    """The prefix of a superseded memory, and of a secret."""
    return (SUPERSEDED_PREFIX if superseded else "") + (SECRET_PREFIX if is_secret(memory) else "")


def reason_text(reason: Rationale) -> str:
    """One reason as a phrase."""
    form = _REASONS.get(reason.rule, reason.rule)
    before, after = (excerpt(text, _REASON_CHARACTERS) for text in (reason.before, reason.after))
    return form.format(before=before, after=after)


def reasons_text(reasons: Sequence[Rationale]) -> str:
    """All reasons in one line."""
    return "; ".join(map(reason_text, reasons))


def share_line(share: Share) -> str:
    """A share in one line."""
    return f"{share.subject} {share.target} with {share.grantee_kind} {share.grantee} ({share.access})"


def query_change(change: SmallestChange, names: Mapping[str, str]) -> str:
    """A change of a question in words; `names` are its options."""
    parts = [f"ask also for “{change.words}”"] if change.words else []
    for option, value in change.options.items():
        if option not in names:
            continue
        if value is None or value == ():
            parts.append(f"leave out {names[option]}")
        else:
            text = timestamps.to_text(value) if isinstance(value, datetime) else str(value) or "''"
            parts.append(names[option] if value is True else f"{names[option]} {text}")
    return " ".join(parts)


def passed_over_lines(undone: Undone) -> list[str]:
    """What an undo passed over, in sentences."""
    return [f"Passed over {id}, which {end}." for id, end in undone.passed_over.items()]
