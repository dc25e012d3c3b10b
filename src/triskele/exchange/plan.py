"""The first pass of an import: everything read is checked against itself and the store before anything is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from triskele.base import timestamps
from triskele.base.ids import content_hash
from triskele.config import Settings
from triskele.errors import BadInput
from triskele.exchange.json_text import shown
from triskele.exchange.records import Note, Problem, Tie
from triskele.stores.protocol import Store
from triskele.stores.vault import StoreVault
from triskele.types import Add, Change, Link, LinkKind, Memory, Origin, Outcome, Sensitivity, Unsealed, is_secret

Identity = tuple[str | int | datetime | None, ...]


class Engine(Protocol):
    """What an import needs of the engine."""

    @property
    def settings(self) -> Settings:
        """The settings it was opened with."""
        ...

    @property
    def project(self) -> str:
        """The project worked in."""
        ...

    @property
    def store(self) -> Store:
        """Where memories are kept."""
        ...

    def draft(
        self,
        content: str,
        *,
        category: str,
        tags: Iterable[str],
        keywords: str,
        importance: float,
        sensitivity: Sensitivity | None,
        project: str | None,
        origin: Origin,
        session: str | None,
        position: int | None,
        created_at: datetime | str | None,
        valid_from: datetime | str | None,
        valid_to: datetime | str | None,
    ) -> Memory:
        """A checked memory that is not stored yet."""
        ...

    @property
    def safe(self) -> StoreVault:
        """Where secrets are sealed."""
        ...

    def apply(self, changes: Sequence[Change], *, batch: str | None = None) -> list[Outcome]:
        """Carry out changes as one transaction."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What an import will do: per memory the changes that belong together, then the links."""

    read: int
    duplicates: int
    groups: tuple[tuple[Change, ...], ...]
    links: tuple[Link, ...]
    problems: tuple[Problem, ...] = ()


def for_notes(engine: Engine, notes: Sequence[Note], ties: Iterable[Tie], project: str | None) -> Plan:
    """New memories from other people's notes; text that the project already holds is not taken again."""
    problems: list[Problem] = []
    known = {_identity(memory): memory.id for memory in _standing(engine)} if notes else {}
    sealed: dict[Identity, str] | None = None
    names: dict[str, str] = {}
    groups: list[tuple[Change, ...]] = []
    for note in notes:
        try:
            memory = _drafted(engine, note, project)
        except BadInput as error:
            problems.append(Problem(note.place, str(error)))
            continue
        if isinstance(memory, Unsealed):
            # Behind equal titles there may be different secrets: their texts are compared.
            sealed = _secrets(engine) if sealed is None else sealed
            id = sealed.setdefault(_identity(memory, content_hash(memory.text)), memory.id)
        else:
            id = known.setdefault(_identity(memory), memory.id)
        if id == memory.id:
            groups.append((Add(memory),))
        if note.name is not None:
            names[note.name] = id
    return Plan(
        read=len(notes),
        duplicates=len(notes) - len(groups) - len(problems),
        groups=tuple(groups),
        links=() if problems else tuple(_new_links(engine.store, names, ties)),
        problems=tuple(problems),
    )


def _drafted(engine: Engine, note: Note, project: str | None) -> Memory:
    limit = engine.settings.memory.max_characters
    if len(note.content) > limit and len(note.content.strip()) > limit:
        raise BadInput(
            f"the memory has {len(note.content):,} characters, the limit is {limit:,}: cut it into single facts"
        )
    if note.sensitivity not in (None, *Sensitivity):
        raise BadInput(f"unknown sensitivity {shown(note.sensitivity or '')}: one of {', '.join(Sensitivity)}")
    memory = engine.draft(
        note.content,
        category=note.category,
        tags=note.tags,
        keywords=note.keywords,
        importance=note.importance,
        sensitivity=None if note.sensitivity is None else Sensitivity(note.sensitivity),
        project=note.project if project is None else project,
        origin=Origin.IMPORT,
        session=note.session,
        position=note.position,
        created_at=note.created,
        valid_from=note.valid_from,
        valid_to=note.valid_to,
    )
    return memory if note.updated is None else replace(memory, updated_at=timestamps.parse(note.updated))


def _standing(engine: Engine) -> Iterator[Memory]:
    owner = engine.settings.memory.owner
    versions = (memory for _, memory in engine.store.versions() if memory.known_to is None and memory.owner == owner)
    return (memory for memory in versions if not is_secret(memory))


def _secrets(engine: Engine) -> dict[Identity, str]:
    """The secrets that stand, by their texts."""
    rows = {(row.id, row.version): row for row in engine.store.sealed()}
    standing = engine.store.memories(sorted({id for id, _ in rows}))
    found = ((memory, rows.get((memory.id, memory.version))) for memory in standing.values())
    return {
        _identity(memory, content_hash(engine.safe.open(row))): memory.id for memory, row in found if row is not None
    }


def _identity(memory: Memory, digest: str | None = None) -> Identity:
    """By what the store recognises a memory that it already holds."""
    place = (memory.project, memory.session, memory.position)
    return (digest or memory.content_hash, *place, memory.valid_from, memory.valid_to)


def _new_links(store: Store, names: dict[str, str], ties: Iterable[Tie]) -> Iterator[Link]:
    pairs = {(names[tie.one], names[tie.other]): None for tie in ties if tie.one in names and tie.other in names}
    there = {(link.source, link.target) for link in store.links(sorted(set(names.values())), kind=LinkKind.SEE_ALSO)}
    now = timestamps.now()
    for source, target in pairs:
        if source != target and (source, target) not in there and (target, source) not in there:
            there.add((source, target))
            yield Link(source=source, kind=LinkKind.SEE_ALSO, target=target, known_from=now)
