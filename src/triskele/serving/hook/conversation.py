"""Who is given memories: where they work, in which conversation, and what they were given before."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triskele import validation
from triskele.base import project
from triskele.engine import EVERYWHERE, Engine
from triskele.errors import BadInput
from triskele.stores.usage import Given
from triskele.types import Memory, Origin, Sensitivity

# Who may speak to an agent unasked: what tools and the web said is found by asking alone.
INJECTED_ORIGINS = frozenset({Origin.USER, Origin.AGENT, Origin.IMPORT})
_KEY_CHARACTERS = 32


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation of an agent with its user; without a `key` nobody knows which."""

    key: str | None
    project: str
    sees_private: bool
    given: Mapping[str, Given]

    @staticmethod
    def of(engine: Engine, payload: Mapping[str, Any]) -> Conversation:
        """The conversation that a hook was called in."""
        key = key_of(payload)
        given = {} if key is None else {each.id: each for each in engine.store.uses.given(key)}
        is_trusted = engine.settings.agents.shows_private_to(text_in(payload, "client"))
        return Conversation(key, _project(engine, payload), is_trusted, given)

    def may_see(self, memory: Memory) -> bool:
        """Whether a memory may be given here without having been asked for."""
        is_shown = memory.sensitivity is Sensitivity.OPEN or (
            memory.sensitivity is Sensitivity.PRIVATE and self.sees_private
        )
        return is_shown and memory.origin in INJECTED_ORIGINS and memory.project in (self.project, EVERYWHERE)

    def is_news(self, memory: Memory) -> bool:
        """Whether the context does not hold a memory as it stands."""
        before = self.given.get(memory.id)
        return before is None or before.lost or before.content_hash != memory.content_hash

    def lost(self) -> list[str]:
        """What a compaction took out of the context, the newest first."""
        return [each.id for each in self.given.values() if each.lost]


def key_of(payload: Mapping[str, Any]) -> str | None:
    """The name under which a conversation is known; its own name is nobody's business."""
    session = text_in(payload, "session_id")
    return hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:_KEY_CHARACTERS] if session else None


def text_in(payload: Mapping[str, Any], name: str) -> str:
    """A text of a payload; empty where there is none."""
    value = payload.get(name)
    return value if isinstance(value, str) else ""


def current(engine: Engine, memories: Iterable[Memory], conversation: Conversation) -> list[Memory]:
    """Those memories that may be seen and that nothing has replaced."""
    seen = [memory for memory in memories if conversation.may_see(memory)]
    superseded = engine.superseded([memory.id for memory in seen]) if seen else set()
    return [memory for memory in seen if memory.id not in superseded]


def _project(engine: Engine, payload: Mapping[str, Any]) -> str:
    """The project that the user named, else that of the agent's folder; without either only what belongs everywhere."""
    named = text_in(payload, "project") or engine.settings.project
    path = Path(text_in(payload, "cwd"))
    try:
        if named:
            return validation.check_name(named, "the project")
        return validation.check_name(project.resolve(path), "the project") if path.is_absolute() else EVERYWHERE
    except (OSError, ValueError, RuntimeError, BadInput):
        return EVERYWHERE
