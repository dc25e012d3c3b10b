"""What the JSON of an agent's client says about an event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triskele.replies import HookCall


def hook_call(event: str, payload: Mapping[str, Any]) -> HookCall:
    """Read a client's JSON; who calls, for which project and how long it waits is not in it."""
    return HookCall(
        event=event,
        prompt=text_in(payload, "prompt"),
        session=text_in(payload, "session_id"),
        source=text_in(payload, "source"),
        reason=text_in(payload, "reason"),
        agent=text_in(payload, "agent_id"),
        transcript=text_in(payload, "transcript_path"),
        folder=text_in(payload, "cwd"),
    )


def text_in(payload: Mapping[str, Any], name: str) -> str:
    """A text field of a payload; empty if it is missing."""
    value = payload.get(name)
    return value if isinstance(value, str) else ""
