"""Words that commands, pages and tools share."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from triskele.text import timestamps
from triskele.types import Memory, is_secret

if TYPE_CHECKING:
    from triskele.replies import Share
    from triskele.types import SmallestChange

SUPERSEDED_PREFIX = "[SUPERSEDED] "
SECRET_PREFIX = "[SECRET] "


def shown_content(memory: Memory, superseded: bool) -> str:
    """The text with its prefixes; of a secret only the title."""
    return mark(memory, superseded) + memory.content


def mark(memory: Memory, superseded: bool) -> str:
    """The prefix of a superseded memory, and of a secret."""
    return (SUPERSEDED_PREFIX if superseded else "") + (SECRET_PREFIX if is_secret(memory) else "")


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
            parts.append(names[option] if value is True else f"{names[option]} {_option_value(value)}")
    return " ".join(parts)


def _option_value(value: Any) -> str:
    return timestamps.to_text(value) if isinstance(value, datetime) else str(value) or "''"
