"""Making new and changed memories: every text is validated and classified here before it is stored."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from triskele import requests, validation
from triskele.config import MemorySettings
from triskele.errors import BadInput
from triskele.privacy import detect
from triskele.privacy.findings import Finding
from triskele.text import periods, timestamps
from triskele.text.ids import IdMaker, content_hash
from triskele.types import Memory, Origin, SecretDraft, Sensitivity
from triskele.validation import Moment

if TYPE_CHECKING:
    from triskele.requests import Draft

# What an edit may change of the details that are indexed and shown in clear.
_LABELS = frozenset({"tags", "keywords", "project", "speaker"})
_EDITABLE = frozenset(requests.Changes.__optional_keys__ - {"title", "add_tags", "remove_tags"})
_DETAILS = frozenset(requests.Details.__optional_keys__ - {"title", "sensitivity", "created_at"})
# Fields that a memory may be without.
_EMPTY = frozenset({"session", "position", "speaker", "role", "valid_from", "valid_to"})
_MEMORY_FIELDS = [each.name for each in fields(Memory)]
# A shorter piece of a secret may be in a label by chance.
_LEAST_REPEATED = 4
_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*")


@dataclass(frozen=True, slots=True)
class Drafter:
    """Makes memories for one owner and, by default, one project."""

    settings: MemorySettings
    project: str
    _ids: IdMaker = field(default_factory=IdMaker)

    def draft(
        self,
        content: str,
        *,
        title: str | None = None,
        category: str | None = None,
        tags: Iterable[str] = (),
        keywords: str = "",
        importance: float = 0.5,
        sensitivity: Sensitivity | None = None,
        project: str | None = None,
        origin: Origin = Origin.USER,
        session: str | None = None,
        position: int | None = None,
        speaker: str | None = None,
        role: str | None = None,
        created_at: Moment | None = None,
        valid_from: Moment | None = None,
        valid_to: Moment | None = None,
    ) -> Memory:
        """A validated memory that is not stored yet; `project` None is the current project, "" all projects.

        Without a `sensitivity` the text decides: if it holds a secret, the memory becomes a secret.
        """
        settings, labels = self.settings, validation.check_texts(tags, "tags")
        text = validation.check_content(content, settings)
        refuse_secret_labels(tags=labels, keywords=keywords, session=session, project=project, speaker=speaker)
        now = timestamps.now()
        created = validation.check_moment(created_at) or periods.session_day(session or "", now) or now
        memory = Memory(
            id=self._ids.make(now),
            content=text,
            owner=settings.owner,
            created_at=created,
            updated_at=created,
            known_from=now,
            content_hash=content_hash(text),
            **self._checked(
                {
                    "category": category or validation.usual_category(settings),
                    "tags": labels,
                    "keywords": keywords,
                    "importance": importance,
                    "project": self.project if project is None else project,
                    "origin": origin,
                    "session": session,
                    "position": position,
                    "speaker": speaker,
                    "role": role,
                    "valid_from": valid_from,
                    "valid_to": valid_to,
                },
                _DETAILS,
            ),
        )
        validation.check_period(memory)
        validation.check_words(memory)
        chosen = None if sensitivity is None else validation.check_sensitivity(sensitivity)
        return classified(memory, chosen, settings, title=title)

    def draft_with_dates(self, content: str, **details: Any) -> Memory:
        """A draft with the validity that its words state, as in "Since May …"; a given one wins, a secret has none."""
        return with_told_period(self.draft(content, **details))

    def draft_pieces(
        self, text: str, *, position: int | None = None, sensitivity: Sensitivity | None = None, **details: Any
    ) -> list[Draft]:
        """A longer text as several memories to store, with consecutive positions."""
        return [
            {
                **details,  # type: ignore[typeddict-item]
                "content": piece,
                "sensitivity": kind,
                "position": None if position is None else position + index,
            }
            for index, (piece, kind) in enumerate(self.pieces(text, sensitivity))
        ]

    def pieces(self, text: str, sensitivity: Sensitivity | None) -> list[tuple[str, Sensitivity | None]]:
        """The paragraphs of a text, long ones cut at sentences; all are secret if a cut divides a secret."""
        limit = self.settings.max_characters
        cleaned = validation.clean(text, "the text")
        pieces = [piece for part in _PARAGRAPH.split(cleaned) for piece in validation.split_sentences(part, limit)]
        if not pieces:
            raise BadInput("the memory is empty")
        if sensitivity != Sensitivity.OPEN and detect.is_cut(text, pieces):
            sensitivity = Sensitivity.SECRET
        return [(piece, sensitivity) for piece in pieces]

    def revised(self, memory: Memory, changes: Mapping[str, Any], open_text: Callable[[], str]) -> Memory:
        """The memory with changes to its content or details; `open_text` returns the text of a secret."""
        values = dict(changes)
        if "tags" in values:
            values["tags"] = validation.check_texts(values["tags"], "tags")
        title = values.pop("title", None)
        checked = self._checked(values, _EDITABLE)
        refuse_secret_labels(**{name: values[name] for name in values.keys() & _LABELS})
        sensitivity = checked.get("sensitivity")
        was_secret = memory.sensitivity is Sensitivity.SECRET
        now = timestamps.now()
        if not values.keys() & {"content", "sensitivity"} and title is None:
            revised = replace(memory, **checked, updated_at=now)
            validation.check_period(revised)
            validation.check_words(revised)
            if was_secret and values.keys() & _LABELS:
                text = open_text()
                _refuse_repeats(revised, _values(text, detect.find(text)))
            return revised
        text = checked.get("content") or (open_text() if was_secret else memory.content)
        revised = replace(memory, **{**checked, "content": text, "content_hash": content_hash(text)}, updated_at=now)
        validation.check_period(revised)
        validation.check_words(revised)
        if sensitivity is None and memory.sensitivity is not Sensitivity.OPEN:
            sensitivity = memory.sensitivity
        result = classified(revised, sensitivity, self.settings, title=title)
        keeps_title = title is None and was_secret and "content" not in values and isinstance(result, SecretDraft)
        return replace(result, content=memory.content, content_hash=memory.content_hash) if keeps_title else result

    def _checked(self, values: Mapping[str, Any], allowed: Set[str]) -> dict[str, Any]:
        """The values of fields, each passed by its check; None is nothing where a field may be empty."""
        if unknown := sorted(values.keys() - allowed):
            raise BadInput(f"a memory's {', '.join(unknown)} cannot be edited")
        return {
            name: None if value is None and name in _EMPTY else validation.FIELDS[name](value, self.settings)
            for name, value in values.items()
        }


def with_told_period(memory: Memory) -> Memory:
    """A draft with the validity that its words state, unless it has one."""
    if memory.valid_from or memory.valid_to or memory.sensitivity is Sensitivity.SECRET:
        return memory
    period = periods.validity(memory.content, memory.created_at)
    return memory if period is None else replace(memory, valid_from=period.start, valid_to=period.end)


def classified(
    memory: Memory, given: Sensitivity | None, settings: MemorySettings, *, title: str | None = None
) -> Memory:
    """The memory with the given sensitivity or the one that its text requires; a given OPEN overrides the detection."""
    findings = detect.find(memory.content)
    is_secret = given is Sensitivity.SECRET or (bool(findings) and given is not Sensitivity.OPEN)
    if not is_secret:
        if title is not None:
            raise BadInput("a title applies only to secrets: mark the memory as one, or leave it out", remedy="secret")
        return replace(memory, sensitivity=given or Sensitivity.OPEN)
    return sealable(memory, findings, _checked_title(title, memory.content, findings, settings))


def sealable(memory: Memory, findings: Sequence[Finding], title: str | None = None) -> SecretDraft:
    """The memory as a secret: the title replaces its content, and its text is kept apart for the vault."""
    text = memory.content
    _refuse_repeats(memory, _values(text, findings))
    name = title or detect.title_for(text, findings)
    values = {each: getattr(memory, each) for each in _MEMORY_FIELDS}
    return SecretDraft(
        **{**values, "content": name, "content_hash": content_hash(name), "sensitivity": Sensitivity.SECRET}, text=text
    )


def refuse_secret_labels(
    *,
    tags: Iterable[str] = (),
    keywords: str = "",
    session: str | None = None,
    project: str | None = None,
    speaker: str | None = None,
) -> None:
    """Refuse a secret in a label, because labels are indexed and shown; the error names only its kind."""
    named = [*(("a tag", tag) for tag in tags), ("the keywords", keywords)]
    named += [("the session", session or ""), ("the project", project or ""), ("the speaker", speaker or "")]
    for what, label in named:
        for finding in detect.find(validation.check_text(label, what)):
            raise BadInput(
                f"{what} looks like a secret ({detect.label_of(finding.kind)}) and would be readable:"
                " leave it out, because only the text of a memory is sealed"
            )


def _values(text: str, findings: Sequence[Finding]) -> list[str]:
    secrets = [text[finding.start : finding.end] for finding in findings] or [text]
    return [value.lower() for value in secrets if len(value) >= _LEAST_REPEATED]


def _refuse_repeats(memory: Memory, values: Sequence[str]) -> None:
    for what, label in _labels(memory):
        if any(value in label.lower() for value in values):
            raise BadInput(f"{what} repeats the secret and would be readable: leave it out")


def _labels(memory: Memory) -> Iterator[tuple[str, str]]:
    yield from (("a tag", tag) for tag in memory.tags)
    yield from (("the keywords", memory.keywords), ("the session", memory.session or ""))
    yield from (("the project", memory.project), ("the speaker", memory.speaker or ""))


def _checked_title(title: str | None, text: str, findings: Sequence[Finding], settings: MemorySettings) -> str | None:
    if title is None:
        return None
    name = " ".join(validation.check_content(validation.check_text(title, "the title"), settings).split())
    if detect.find(name) or any(value in name.lower() for value in _values(text, findings)):
        raise BadInput("the title contains the secret: choose another title")
    return name
