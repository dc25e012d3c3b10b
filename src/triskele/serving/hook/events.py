"""Answers to hook events: one JSON document for the model, or nothing.

A payload is the client's JSON. The server adds, where known, `client` (its name), `project` (named by the user),
`answer_by` (monotonic clock: after that time the client has stopped waiting, and nothing counts as given),
`is_written_later` (whether it flushes by itself what an answer leaves to write) and `log` (a function that is told why
a prompt gets nothing).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from triskele.curation import usage
from triskele.engine import Engine
from triskele.errors import UnknownEvent
from triskele.serving.hook import FORWARDED, injection
from triskele.serving.hook.injection import Conversation, Injection, key_of, text_in

if TYPE_CHECKING:
    from triskele.serving.http.client import RemoteMemory

NOTHING = ""
_PATIENCE_S = 10.0
# Sources of a session start with an empty context.
_FRESH = frozenset({"startup", "clear"})


def respond(engine: Engine, event: str, payload: Mapping[str, Any]) -> str:
    """The text that the hook writes to standard output."""
    if event not in _ANSWERS:
        raise UnknownEvent(f"unknown hook event {event[:40]!r}: choose one of {', '.join(_ANSWERS)}")
    if not injection.is_from_user(payload):
        return NOTHING
    if engine.settings.server.url:
        return _asked_of_server(engine, event, payload)
    # What the last answer gave counts before the next one.
    engine.after_answer.flush()
    return _ANSWERS[event](engine, payload)


def _asked_of_server(engine: Engine, event: str, payload: Mapping[str, Any]) -> str:
    """The answer of a server in one request; transcripts and paths stay here."""
    if event == "stop":
        return NOTHING
    ends = payload.get("answer_by")
    left_s = ends - time.monotonic() if isinstance(ends, float) else _PATIENCE_S
    if left_s <= 0:
        return NOTHING
    told = {name: text_in(payload, name) for name in FORWARDED}
    place = copy(cast("RemoteMemory", engine))
    place.project = injection.project_in(engine, payload)
    is_trusted = injection.sees_private(engine, payload)
    return place.hook(event, told, sees_private=is_trusted, timeout_s=left_s)


def _user_prompt_submit(engine: Engine, payload: Mapping[str, Any]) -> str:
    query = injection.query_of(text_in(payload, "prompt"))
    if not query:
        return NOTHING
    conversation = Conversation.of(engine, payload)
    answer = injection.recalled(engine, query, conversation)
    memories = injection.for_prompt(engine, query, answer, conversation)
    budget = engine.settings.agents.budget_tokens
    given = injection.injection(engine, "UserPromptSubmit", memories, budget=budget)
    if not given.memories and callable(log := payload.get("log")):
        log(f"user-prompt-submit gave nothing: {injection.silence(engine, query, answer, memories)}")
    return NOTHING if _is_late(payload) else _given(engine, given, conversation, payload)


def _session_start(engine: Engine, payload: Mapping[str, Any]) -> str:
    source, key = text_in(payload, "source"), key_of(payload)
    if key is not None and source in _FRESH:
        engine.store.usage.forget(key)
    if key is not None and source == "compact":
        engine.store.usage.lose(key)
    conversation = Conversation.of(engine, payload)
    lost = injection.lost_to_compaction(engine, conversation)
    memories = [*lost, *injection.standing(engine, conversation)]
    budget = injection.start_budget(engine, lost)
    given = injection.injection(engine, "SessionStart", memories, budget=budget)
    return NOTHING if _is_late(payload) else _given(engine, given, conversation, payload)


def _pre_compact(engine: Engine, payload: Mapping[str, Any]) -> str:
    if (key := key_of(payload)) is not None:
        engine.store.usage.lose(key)
    return _stop(engine, payload)


def _stop(engine: Engine, payload: Mapping[str, Any]) -> str:
    # The background process learns from the turns since the last time.
    if engine.settings.curation.learn != "off":
        # Imported here: a prompt needs none of the rules that it loads.
        from triskele.serving import learning

        learning.queue(engine, payload, Conversation.of(engine, payload).project)
    return NOTHING


def _session_end(engine: Engine, payload: Mapping[str, Any]) -> str:
    if (key := key_of(payload)) is not None:
        is_cleared = text_in(payload, "reason") == "clear"
        (engine.store.usage.forget if is_cleared else engine.store.usage.end)(key)
    return NOTHING


def _is_late(payload: Mapping[str, Any]) -> bool:
    ends = payload.get("answer_by")
    return isinstance(ends, float) and time.monotonic() > ends


def _given(engine: Engine, given: Injection, conversation: Conversation, payload: Mapping[str, Any]) -> str:
    if given.memories:
        engine.after_answer.put(
            partial(
                usage.note_injection,
                engine.store,
                given.memories,
                conversation=conversation.key,
                tokens=given.tokens,
                labels=given.labels,
                client=conversation.client,
                project=conversation.project,
            ),
            wakes=not payload.get("is_written_later"),
        )
    return given.document


_ANSWERS: dict[str, Callable[[Engine, Mapping[str, Any]], str]] = {
    "user-prompt-submit": _user_prompt_submit,
    "session-start": _session_start,
    "pre-compact": _pre_compact,
    "stop": _stop,
    "session-end": _session_end,
}
EVENTS = tuple(_ANSWERS)
