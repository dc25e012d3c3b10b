"""Make new and changed memories: validate and classify every text before it is stored."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Unpack

from triskele import requests, validation
from triskele.config import MemorySettings
from triskele.errors import BadInput
from triskele.privacy import detect
from triskele.privacy.findings import Finding
from triskele.text import periods, timestamps
from triskele.text.ids import IdMaker, content_hash
from triskele.text.statements import stated_category
from triskele.types import Memory, Origin, SecretDraft, Sensitivity

if TYPE_CHECKING:
    from triskele.requests import Details, Draft

_DETAILS = frozenset(requests.Details.__optional_keys__ - {"title", "sensitivity", "created_at"})
# Fields that a memory may be without.
_EMPTY = frozenset(each.name for each in fields(Memory) if each.default is None)
_MEMORY_FIELDS = [each.name for each in fields(Memory)]
# The fields that an edit changes, in their order.
EDITABLE = tuple(name for name in _MEMORY_FIELDS if name in requests.Changes.__optional_keys__)
# A shorter piece of a secret may be in a label by chance.
_LEAST_REPEATED = 4
_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*")


@dataclass(frozen=True, slots=True)
class Drafter:
    """Makes memories for one owner and, by default, one project."""

    settings: MemorySettings
    project: str
    _ids: IdMaker = field(default_factory=IdMaker)

    def draft(self, content: str, **details: Unpack[Details]) -> Memory:
        """A validated memory that is not stored yet; without a project it gets the current one.

        Without a `sensitivity` the text decides: if it holds a secret, the memory becomes a secret.
        """
        settings, values = self.settings, dict[str, Any](details)
        title, sensitivity, created_at = (values.pop(name, None) for name in ("title", "sensitivity", "created_at"))
        values["tags"] = validation.check_texts(values.get("tags", ()), "tags")
        text = validation.check_content(content, settings)
        refuse_secret_labels(values)
        now = timestamps.now()
        created = validation.check_moment(created_at) or periods.session_day(values.get("session") or "", now) or now
        values["category"] = values.get("category") or validation.usual_category(settings)
        if values.get("project") is None:
            values["project"] = self.project
        memory = Memory(
            id=self._ids.make(now),
            content=text,
            owner=settings.owner,
            created_at=created,
            updated_at=created,
            known_from=now,
            content_hash=content_hash(text),
            **self._checked(values, _DETAILS),
        )
        validation.check_consistent(memory)
        chosen = None if sensitivity is None else validation.FIELDS["sensitivity"](sensitivity, settings)
        return classified(memory, chosen, settings, title=title)

    def draft_as_worded(self, content: str, **details: Any) -> Memory:
        """A draft with the category and validity that its words state; given ones win, a secret has none."""
        memory = self.draft(content, **details)
        # Preferences and decisions open sessions: words of a tool or a page do not get there by themselves.
        is_trusted = memory.origin not in (Origin.TOOL, Origin.WEB)
        if is_trusted and not details.get("category") and memory.sensitivity is not Sensitivity.SECRET:
            category = stated_category(memory.content)
            memory = replace(memory, category=category) if category in self.settings.categories else memory
        return with_told_period(memory)

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
        checked = self._checked(values, frozenset(EDITABLE))
        refuse_secret_labels(values)
        sensitivity = checked.get("sensitivity")
        was_secret = memory.sensitivity is Sensitivity.SECRET
        is_reread = bool(values.keys() & {"content", "sensitivity"}) or title is not None
        if is_reread:
            text = checked.get("content") or (open_text() if was_secret else memory.content)
            checked |= {"content": text, "content_hash": content_hash(text)}
        revised = replace(memory, **checked, updated_at=timestamps.now())
        validation.check_consistent(revised)
        if not is_reread:
            if was_secret and values.keys() & {"tags", *validation.LABELS}:
                text = open_text()
                _refuse_repeats(revised, _values(text, detect.find(text)))
            return revised
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
    titled = replace(memory, content=name, content_hash=content_hash(name), sensitivity=Sensitivity.SECRET)
    return with_text(titled, text)


def with_text(memory: Memory, text: str) -> SecretDraft:
    """A secret together with its text."""
    return SecretDraft(**{name: getattr(memory, name) for name in _MEMORY_FIELDS}, text=text)


def checked_details(memory: Memory, settings: MemorySettings) -> dict[str, Any]:
    """The details that a memory has, as validation would store them."""
    details = {name: getattr(memory, name) for name in _MEMORY_FIELDS if name in _DETAILS}
    return {name: validation.FIELDS[name](value, settings) for name, value in details.items() if value is not None}


def labels_of(memory: Memory) -> dict[str, Any]:
    """The details of a memory that are indexed and shown in clear."""
    return {name: getattr(memory, name) for name in ("tags", *validation.LABELS)}


def refuse_secret_labels(labels: Mapping[str, Any]) -> None:
    """Refuse a secret in a label, because labels are indexed and shown; the error names only its kind."""
    for what, label in _named(labels):
        for finding in detect.find(validation.check_text(label, what)):
            raise BadInput(
                f"{what} looks like a secret ({detect.label_of(finding.kind)}) and would be readable:"
                " leave it out, because only the text of a memory is sealed"
            )


def _named(labels: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield from (("a tag", tag) for tag in labels.get("tags", ()))
    yield from ((what, labels.get(name) or "") for name, what in validation.LABELS.items())


def _values(text: str, findings: Sequence[Finding]) -> list[str]:
    secrets = [text[finding.start : finding.end] for finding in findings] or [text]
    return [value.lower() for value in secrets if len(value) >= _LEAST_REPEATED]


def _refuse_repeats(memory: Memory, values: Sequence[str]) -> None:
    for what, label in _named(labels_of(memory)):
        if any(value in label.lower() for value in values):
            raise BadInput(f"{what} repeats the secret and would be readable: leave it out")


def _checked_title(title: str | None, text: str, findings: Sequence[Finding], settings: MemorySettings) -> str | None:
    if title is None:
        return None
    name = " ".join(validation.check_content(validation.check_text(title, "the title"), settings).split())
    if detect.find(name) or any(value in name.lower() for value in _values(text, findings)):
        raise BadInput("the title contains the secret: choose another title")
    return name
