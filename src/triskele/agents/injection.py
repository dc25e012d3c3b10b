"""Chooses the memories that an agent gets without asking."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from triskele import validation
from triskele.agents import fence
from triskele.errors import BadInput
from triskele.index.corpus import is_said_by
from triskele.recall.confidence import text_of
from triskele.recall.question import form_of
from triskele.recall.scores import pack
from triskele.replies.rooms import HookCall, InjectedMemory
from triskele.store.access import StoreAccess
from triskele.store.sharing import OwnerShares
from triskele.text import timestamps
from triskele.text.analysis import Analyzer, has_identifier
from triskele.text.words import SENTENCE_END, has_topic, tokens_of
from triskele.types import EVERYWHERE, Answer, Hit, Memory, Origin, Sensitivity, Sort

# A longer prompt is reduced to what it is about: the rest is often pasted text, which hides the request.
WHOLE_CHARACTERS = 500
GIST_CHARACTERS = 1000
_FIRST_CHARACTERS, _LAST_CHARACTERS = 200, 300
_LOOKED_AT_CHARACTERS = 4000
_MOST_NAMES = 20
_FENCED = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_PASTED = re.compile(r"^(?:>|\t| {4}|\S*\d{2}:\d{2}:\d{2}|\s*(?:at|File) \S).*$", re.MULTILINE)
_NAMES = re.compile(r"(?<![.!?]\s)(?<!^)\b(?:[A-Z][\w-]{2,}|\w+[_/.-]\w[\w/.-]*|[A-Za-z]+\d[\w-]*)", re.MULTILINE)
# More hits than are given: superseded hits and near-duplicates are left out.
CONSIDERED = 20
# A hit below this share of the best score is not worth its tokens.
LEAST_SHARE = 0.5
# More distract more than they help.
MOST_MEMORIES = 5
# Clients cut longer texts.
MOST_CHARACTERS = 9500
STANDING = ("preferences", "decisions", "lessons")
STANDING_IMPORTANCE = 0.5
_STANDING_LOOKED_AT = 50
# What others share must not hide the user's own.
_STANDING_LOOKED_AT_SHARED = 1000
_SLASH_COMMAND = re.compile(r"/[\w:.-]+(\s|$)")
# How clients begin what they write themselves in the user's place: reports of subagents, messages of other sessions,
# wake-ups of loops, output of commands, the summary after a compaction.
_NOT_THE_USER = re.compile(
    r"\s*(?:<(?:task-notification|teammate-message|agent-message|cross-session-message|system-reminder|tick"
    r"|scheduled-\w+|\w+-idle-wake|local-command|command-(?:name|message|args)|bash-(?:input|stdout|stderr)"
    r"|user-prompt-submit-hook)\b"
    r"|\[Request interrupted|\[SYSTEM NOTIFICATION|Caveat: The messages below were generated"
    r"|This session is being continued from a previous conversation)",
    re.IGNORECASE,
)
# `sdk` is a prompt on the command line of the client; other sources are loops, schedules and messages.
_USERS = frozenset({"", "user", "sdk", "startup", "resume", "clear", "compact"})


@dataclass(frozen=True, slots=True)
class InjectedText:
    """The injected memories as a JSON document, or a note why none."""

    memories: tuple[Memory, ...] = ()
    tokens: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    document: str = ""
    note: str = ""


def query_of(prompt: str) -> str:
    """The query of a prompt; empty for a command to the client."""
    query = prompt.strip()
    if _SLASH_COMMAND.match(query):
        return ""
    return query if len(query) <= WHOLE_CHARACTERS else gist(query)


def gist(prompt: str) -> str:
    """The first sentence, names and last request of a long prompt, which recall weighs most."""
    if len(prompt) > 2 * _LOOKED_AT_CHARACTERS:
        prompt = f"{prompt[:_LOOKED_AT_CHARACTERS]}\n{prompt[-_LOOKED_AT_CHARACTERS:]}"
    prose = _PASTED.sub("", _FENCED.sub("\n", prompt)).strip() or prompt
    sentences = [each.strip() for each in re.split(SENTENCE_END, prose) if each and each.strip()]
    first, last = sentences[0][:_FIRST_CHARACTERS], ""
    for sentence in reversed(sentences[1:]):
        if last and len(last) + len(sentence) > _LAST_CHARACTERS:
            break
        last = f"{sentence[-_LAST_CHARACTERS:]} {last}".strip()
    candidates = (name.rstrip(".-/") for name in _NAMES.findall(prompt))
    names = [name for name in dict.fromkeys(candidates) if name not in first and name not in last]
    opening = " ".join([first, *names[:_MOST_NAMES]])[: GIST_CHARACTERS - len(last) - 1]
    return f"{opening} {last}".strip()


def is_from_user(call: HookCall) -> bool:
    """Whether a person caused an event, not a subagent or a loop."""
    return call.source in _USERS and not call.agent and not _NOT_THE_USER.match(call.prompt)


# Text of tools and web pages is recalled only on request, never injected.
INJECTED_ORIGINS = frozenset({Origin.USER, Origin.AGENT, Origin.IMPORT})
_KEY_CHARACTERS = 32


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation of an agent; `key` is None if unnamed."""

    key: str | None
    project: str
    sees_private: bool
    injected: Mapping[str, InjectedMemory]
    client: str = ""
    trusted: frozenset[str] = frozenset()

    @staticmethod
    def of(access: StoreAccess, call: HookCall) -> Conversation:
        """The conversation of a hook call."""
        key, store = key_of(call.session), access.store
        injected = {} if key is None else {each.id: each for each in store.usage.given(key)}
        sees_private = call.sees_private or access.settings.agents.shows_private_to(call.client)
        return Conversation(
            key, project_in(access, call), sees_private, injected, call.client, trusted_users(store.shares)
        )

    @property
    def filters(self) -> dict[str, Any]:
        """The scope of what may be injected here."""
        shown = {Sensitivity.OPEN, Sensitivity.PRIVATE} if self.sees_private else {Sensitivity.OPEN}
        return {"project": self.project, "sensitivities": shown, "origins": INJECTED_ORIGINS}

    def may_see(self, memory: Memory) -> bool:
        """Whether a memory may be injected here."""
        allowed = self.filters
        is_shown = memory.sensitivity in allowed["sensitivities"] and memory.origin in allowed["origins"]
        return is_shown and memory.project in (self.project, EVERYWHERE) and self.trusts(memory)

    def trusts(self, memory: Memory) -> bool:
        """Whether a memory belongs to the reader or a trusted user."""
        return memory.shared_by is None or memory.shared_by in self.trusted

    def best_score(self, answer: Answer) -> float:
        """The score of the best trusted hit."""
        return next((hit.score for hit in answer.hits if self.trusts(hit.memory)), 0.0)

    def is_not_in_context(self, memory: Memory) -> bool:
        """Whether the context does not hold the current version of a memory."""
        before = self.injected.get(memory.id)
        return before is None or before.lost or before.content_hash != memory.content_hash

    def not_in_context(self, memories: Iterable[Memory]) -> list[Memory]:
        """The memories whose current version the context does not hold."""
        return [memory for memory in memories if self.is_not_in_context(memory)]


def trusted_users(shares: OwnerShares | None) -> frozenset[str]:
    """The users whose memories may be injected."""
    return frozenset() if shares is None else frozenset(shares.trusted())


def key_of(session: str) -> str | None:
    """A hash of the session id, which the store must not hold."""
    return hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:_KEY_CHARACTERS] if session else None


def project_in(access: StoreAccess, call: HookCall) -> str:
    """The named project, else the project of the agent's folder."""
    named, path = call.project or access.settings.project, Path(call.folder)
    try:
        if named:
            return validation.check_name(named, "the project")
        return access.working_in(path).project if path.is_absolute() else EVERYWHERE
    except (OSError, ValueError, RuntimeError, BadInput):
        return EVERYWHERE


class Injector:
    """Chooses the memories that one conversation is given."""

    def __init__(self, access: StoreAccess, conversation: Conversation) -> None:
        self._access = access
        self._store = access.store
        self._settings = access.settings
        self._conversation = conversation

    def recalled(self, query: str) -> Answer:
        """The answer to a prompt; longer if untrusted memories take places.

        A prompt without a topic is not asked: its answer is empty.
        """
        conversation = self._conversation
        if not has_topic(query):
            return Answer(hits=(), resolutions=(), confidence=0.0, project=conversation.project, took_ms=0.0)
        ask = partial(self._access.answer, query, local_only=True, **conversation.filters)
        answer = ask(limit=CONSIDERED)
        if all(conversation.trusts(hit.memory) for hit in answer.hits):
            return answer
        return ask(trusted=conversation.trusted, limit=validation.MAX_LIMIT)

    def for_prompt(self, query: str, answer: Answer) -> list[Memory]:
        """The memories for a prompt, best first, then memories lost to compaction."""
        relevant = self._relevant(query, answer) if answer.confidence >= self._settings.agents.least_confidence else []
        return self._conversation.not_in_context([*relevant[:MOST_MEMORIES], *self.lost_to_compaction()])

    def why_nothing(self, query: str, answer: Answer, chosen: Sequence[Memory]) -> str:
        """Why a prompt gets none of the memories of an answer, without any text of them; `chosen` did not fit."""
        least = self._settings.agents.least_confidence
        if chosen:
            return f"all that is relevant is too long for agents.budget_tokens ({self._settings.agents.budget_tokens})"
        if not has_topic(query):
            return "the prompt has no topic"
        if not answer.hits:
            return "nothing was found that this client may see"
        if answer.confidence < least:
            return f"the confidence {answer.confidence:.2f} is below agents.least_confidence ({least:g})"
        if not self.holders(query, answer.hits):
            return "no memory holds a word of the prompt as a word of its own"
        confidence = f"{answer.confidence:.2f}"
        return f"all that is relevant is in the conversation already, or not trusted (confidence {confidence})"

    def holders(self, query: str, hits: Sequence[Hit]) -> Sequence[Hit]:
        """The hits that hold a bare word of a short prompt.

        Several words may also match by meaning: then the best hit does not hold them all.
        """
        words = " ".join(filter(has_topic, query.split()))
        if not form_of(query).is_search or has_identifier(words):
            return hits
        analyzer = Analyzer(self._settings.index.language)
        if not (terms := analyzer.plain_terms(words)):
            return hits
        older = self._store.memories([hit.stands_for for hit in hits if hit.stands_for])
        matched = [older.get(hit.stands_for or "", hit.memory) for hit in hits]
        # A question that names who said it shares every term with what they said.
        shared = [
            terms if is_said_by(memory, query) else terms & analyzer.plain_terms(text_of(memory)) for memory in matched
        ]
        is_by_meaning = len(terms) > 1 and shared[:1] != [terms]
        return hits if is_by_meaning else [hit for hit, some in zip(hits, shared, strict=True) if some]

    def _relevant(self, query: str, answer: Answer) -> list[Memory]:
        best = self._conversation.best_score(answer)
        hits = self.holders(query, [hit for hit in answer.hits if self._conversation.trusts(hit.memory)])
        near = [hit for hit in hits if hit.score >= LEAST_SHARE * best and not hit.superseded]
        untrusted = self.untrusted_writers([hit.memory for hit in near])
        written = tuple(hit for hit in near if hit.memory.id not in untrusted)
        # Leave out near-duplicates, whatever the budget.
        packed = pack(replace(answer, hits=written), validation.MAX_BUDGET)
        return [*(hit.memory for hit in packed.hits), *self._current(packed.resolutions)]

    def lost_to_compaction(self) -> list[Memory]:
        """Valid memories that the context lost in a compaction, newest first."""
        lost = [each.id for each in self._conversation.injected.values() if each.lost]
        if not lost:
            return []
        current_versions, now = self._store.memories(lost), timestamps.now()
        memories = [current_versions[id] for id in lost if id in current_versions]
        valid = [memory for memory in memories if memory.valid_to is None or memory.valid_to > now]
        return self._conversation.not_in_context(self._current(valid))

    def standing(self) -> list[Memory]:
        """The most important preferences, decisions and lessons of a project."""
        limit = _STANDING_LOOKED_AT if self._store.shares is None else _STANDING_LOOKED_AT_SHARED
        scopes = [
            self._access.scope(category=category, **self._conversation.filters)
            for category in STANDING
            if category in self._settings.memory.categories
        ]
        memories = [
            memory
            for scope in scopes
            for memory in self._store.browse(scope, sort=Sort.IMPORTANCE, limit=limit)
            if memory.importance >= STANDING_IMPORTANCE
        ]
        memories.sort(key=lambda memory: (memory.importance, memory.updated_at, memory.id), reverse=True)
        return self._conversation.not_in_context(self._current(memories))

    def _current(self, memories: Iterable[Memory]) -> list[Memory]:
        """The memories that may be injected here and are not superseded."""
        visible = [memory for memory in memories if self._conversation.may_see(memory)]
        left_out = self._access.superseded([memory.id for memory in visible]) if visible else set()
        left_out |= self.untrusted_writers(visible).keys()
        return [memory for memory in visible if memory.id not in left_out]

    def untrusted_writers(self, memories: Sequence[Memory]) -> dict[str, str]:
        """The untrusted users who wrote some of these texts, by id."""
        shares = self._store.shares
        writers = {} if shares is None else shares.writers(memories)
        return {id: writer for id, writer in writers.items() if writer not in self._conversation.trusted}

    def prompt_text(self, memories: Iterable[Memory]) -> InjectedText:
        """The text that a prompt is given."""
        return self._text("UserPromptSubmit", memories, self._settings.agents.budget_tokens)

    def start_text(self) -> tuple[InjectedText, list[Memory]]:
        """The text that a session starts with, and the memories it was chosen from."""
        lost = self.lost_to_compaction()
        memories = [*lost, *self.standing()]
        # Half of the budget, unless memories were lost.
        return self._text("SessionStart", memories, self._settings.agents.budget_tokens // (1 if lost else 2)), memories

    def _text(self, event: str, memories: Iterable[Memory], budget: int) -> InjectedText:
        """As many of these memories as fit the budget, in their order."""
        wanted = list({memory.id: memory for memory in memories}.values())
        short = self._store.shorten(memory.id for memory in wanted)
        tokens, length = _frame(event)
        room, characters = budget - tokens, MOST_CHARACTERS - length
        labels = {memory.id: fence.label(memory, short) for memory in wanted}
        chosen: list[tuple[Memory, str, int]] = []
        for memory in wanted:
            line = fence.line(memory, labels[memory.id])
            # The document is JSON: it escapes the line once more, and the line break after it.
            tokens, length = tokens_of(line), len(fence.as_json(line))
            if len(chosen) < MOST_MEMORIES and tokens <= room and length < characters:
                chosen.append((memory, line, tokens))
                room, characters = room - tokens, characters - length
        if not chosen:
            return InjectedText()
        taken, lines, tokens_each = zip(*chosen, strict=True)
        ids = [memory.id for memory in taken]
        labels = {id: labels[id] for id in ids}
        return InjectedText(tuple(taken), dict(zip(ids, tokens_each, strict=True)), labels, _document(event, lines))


@cache
def _frame(event: str) -> tuple[int, int]:
    """Tokens of the fence and characters of the document around the lines."""
    return tokens_of(fence.fenced(())), len(_document(event, ()))


def _document(event: str, lines: Sequence[str]) -> str:
    """The JSON that clients read; they reject other keys."""
    return fence.as_json({"hookSpecificOutput": {"hookEventName": event, "additionalContext": fence.fenced(lines)}})
