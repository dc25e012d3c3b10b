"""The answers to an agent's hooks: one JSON document that reaches the model, or silence.

A payload is the client's JSON; whoever received it adds, where known, `client` (its name), `project` (named by the
user) and `answer_by` (on the monotonic clock): after that nobody listens, and nothing counts as given.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from triskele.curation import usage
from triskele.engine import Engine
from triskele.errors import BadInput
from triskele.serving.hook import injection
from triskele.serving.hook.conversation import Conversation, key_of, text_in
from triskele.serving.hook.injection import Parcel

SILENCE = ""
# Contexts that begin empty, whatever the conversation was given before.
_FRESH = frozenset({"startup", "clear"})


def respond(engine: Engine, event: str, payload: Mapping[str, Any]) -> str:
    """What a hook writes to its standard output."""
    if event not in _ANSWERS:
        raise BadInput(f"no hook event {event[:40]!r}: choose one of {', '.join(_ANSWERS)}")
    return _ANSWERS[event](engine, payload)


def _user_prompt_submit(engine: Engine, payload: Mapping[str, Any]) -> str:
    asked = injection.question(text_in(payload, "prompt"))
    if not asked:
        return SILENCE
    conversation = Conversation.of(engine, payload)
    memories = injection.for_prompt(engine, asked, conversation)
    budget = engine.settings.agents.budget_tokens
    parcel = injection.parcel(engine, "UserPromptSubmit", memories, budget=budget)
    return SILENCE if _is_late(payload) else _given(engine, parcel, conversation)


def _session_start(engine: Engine, payload: Mapping[str, Any]) -> str:
    source, key = text_in(payload, "source"), key_of(payload)
    if key is not None and source in _FRESH:
        engine.store.uses.forget(key)
    if key is not None and source == "compact":
        engine.store.uses.lose(key)
    conversation = Conversation.of(engine, payload)
    regained = injection.regained(engine, conversation)
    memories = [*regained, *injection.standing(engine, conversation)]
    # What an agent has not asked about yet is worth less room than what it has.
    budget = engine.settings.agents.budget_tokens // (1 if regained else 2)
    parcel = injection.parcel(engine, "SessionStart", memories, budget=budget)
    return SILENCE if _is_late(payload) else _given(engine, parcel, conversation)


def _pre_compact(engine: Engine, payload: Mapping[str, Any]) -> str:
    if (key := key_of(payload)) is not None:
        engine.store.uses.lose(key)
    return SILENCE


def _stop(_engine: Engine, _payload: Mapping[str, Any]) -> str:
    return SILENCE


def _session_end(engine: Engine, payload: Mapping[str, Any]) -> str:
    if (key := key_of(payload)) is not None:
        is_cleared = text_in(payload, "reason") == "clear"
        (engine.store.uses.forget if is_cleared else engine.store.uses.end)(key)
    return SILENCE


def _is_late(payload: Mapping[str, Any]) -> bool:
    ends = payload.get("answer_by")
    return isinstance(ends, float) and time.monotonic() > ends


def _given(engine: Engine, parcel: Parcel, conversation: Conversation) -> str:
    if parcel.memories:
        tokens = {memory.id: each for memory, each in zip(parcel.memories, parcel.tokens, strict=True)}
        usage.note_injection(engine.store, parcel.memories, conversation=conversation.key, tokens=tokens)
    return parcel.document


_ANSWERS: dict[str, Callable[[Engine, Mapping[str, Any]], str]] = {
    "user-prompt-submit": _user_prompt_submit,
    "session-start": _session_start,
    "pre-compact": _pre_compact,
    "stop": _stop,
    "session-end": _session_end,
}
EVENTS = tuple(_ANSWERS)
