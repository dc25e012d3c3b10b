"""Answers to hook events: one JSON document for the model, or nothing."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from triskele import validation
from triskele.agents import echo, injection
from triskele.agents.injection import Conversation, InjectedText, Injector, key_of
from triskele.errors import TriskeleError, UnknownEvent
from triskele.replies.rooms import ConversationUse, HookCall
from triskele.store.access import StoreAccess
from triskele.store.owner import OwnerStore
from triskele.store.values import Document
from triskele.types import Injection, Memory

# Sources of a session start with an empty context.
_FRESH = frozenset({"startup", "clear"})


class LocalAgents:
    """What agents are given from one memory."""

    def __init__(self, access: StoreAccess) -> None:
        self._access = access

    def respond(self, call: HookCall) -> Injection:
        """Answer an event of an agent's client before its deadline."""
        ends = None if call.deadline_s is None else time.monotonic() + call.deadline_s
        if not is_answered(call):
            return Injection()
        # What the last answer gave counts before the next one.
        self._access.deferred_writes.flush()
        text, conversation = _ANSWERS[call.event](self._access, call)
        if not text.memories or conversation is None or (ends is not None and time.monotonic() > ends):
            return Injection(note=text.note)
        self._access.deferred_writes.put(
            partial(
                echo.note_injection,
                self._access.store,
                text.memories,
                conversation=conversation.key,
                tokens=text.tokens,
                labels=text.labels,
                client=conversation.client,
                project=conversation.project,
            )
        )
        return Injection(text.document, tuple(text.tokens), sum(text.tokens.values()))

    def digest(self, *, project: str | None = None) -> list[Memory]:
        """List the public memories that sessions of a project start with."""
        named = self._access.project if project is None else validation.check_name(project, "the project")
        trusted = injection.trusted_users(self._access.store.shares)
        return Injector(self._access, Conversation(None, named, False, {}, trusted=trusted)).standing()

    def conversations(self, *, key: str | None = None, limit: int = 20, offset: int = 0) -> list[ConversationUse]:
        """List conversations with their injections, newest first."""
        most = validation.check_whole(limit, "limit", most=validation.MAX_LISTED)
        after = validation.check_whole(offset, "offset", most=validation.MAX_OFFSET)
        stored = self._access.store.usage
        if key is None:
            return stored.conversations(most, after)
        named = stored.conversations(most, after, key=key)
        return [replace(each, given=tuple(stored.given(key))) for each in named]


def is_answered(call: HookCall) -> bool:
    """Whether a person caused the event; refuse unknown events."""
    if call.event not in EVENTS:
        raise UnknownEvent(f"unknown hook event {call.event[:40]!r}: choose one of {', '.join(EVENTS)}")
    return injection.is_from_user(call)


_Answered = tuple[InjectedText, Conversation | None]
_NOTHING: _Answered = (InjectedText(), None)


def _user_prompt_submit(access: StoreAccess, call: HookCall) -> _Answered:
    query = injection.query_of(call.prompt)
    if not query:
        return _NOTHING
    conversation = Conversation.of(access, call)
    injector = Injector(access, conversation)
    answer = injector.recalled(query)
    memories = injector.for_prompt(query, answer)
    text = injector.prompt_text(memories)
    if not text.memories:
        text = InjectedText(note=injector.why_nothing(query, answer, memories))
    return text, conversation


def _session_start(access: StoreAccess, call: HookCall) -> _Answered:
    key, usage = key_of(call.session), access.store.usage
    if key is not None and call.source in _FRESH:
        usage.forget(key)
    if key is not None and call.source == "compact":
        usage.lose(key)
    conversation = Conversation.of(access, call)
    text, _ = Injector(access, conversation).start_text()
    return text, conversation


def _pre_compact(access: StoreAccess, call: HookCall) -> _Answered:
    if (key := key_of(call.session)) is not None:
        access.store.usage.lose(key)
    return _stop(access, call)


def _stop(access: StoreAccess, call: HookCall) -> _Answered:
    # The background process learns from the turns since the last time.
    if access.settings.curation.learn != "off":
        queue_transcript(access.store, call.transcript, injection.project_in(access, call))
    return _NOTHING


def _session_end(access: StoreAccess, call: HookCall) -> _Answered:
    if (key := key_of(call.session)) is not None:
        usage = access.store.usage
        (usage.forget if call.reason == "clear" else usage.end)(key)
    return _NOTHING


_ANSWERS: dict[str, Callable[[StoreAccess, HookCall], _Answered]] = {
    "user-prompt-submit": _user_prompt_submit,
    "session-start": _session_start,
    "pre-compact": _pre_compact,
    "stop": _stop,
    "session-end": _session_end,
}
EVENTS = tuple(_ANSWERS)


# The transcripts that wait until the background process learns from them

QUEUE = "learn-queue"
_MAX_QUEUED = 200


def transcript_key(path: Path) -> str:
    """A hash of the path of a transcript."""
    return hashlib.sha256(str(path.expanduser().absolute()).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def queue_transcript(store: OwnerStore, transcript: str, project: str) -> None:
    """Queue a transcript by its absolute path."""
    if Path(transcript).is_absolute():
        with suppress(TriskeleError):
            queue_again(store, transcript_key(Path(transcript)), {"path": transcript, "project": project})


def queue_again(store: OwnerStore, key: str, entry: Mapping[str, Any]) -> None:
    """Queue an entry that was taken out before."""
    store.documents.put(QUEUE, {key: Document(entry)}, most=_MAX_QUEUED, durable=False)
