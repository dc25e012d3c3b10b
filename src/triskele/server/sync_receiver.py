"""Receive the sync of a laptop: take pushed states of memories, and list what changed since a cursor.

A push may be repeated: what the server has already is answered as done. The journal is the log of what changed; its
entries of erased memories are the tombstones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from triskele.errors import BadInput, Conflict, NotFound, QuotaExceeded
from triskele.store.access import StoreAccess
from triskele.store.owner import OwnerStore
from triskele.store.values import Cursor, Document
from triskele.sync import states
from triskele.sync.merge import WITHDRAWN, Push, Standing
from triskele.sync.states import (
    MOST_KEYS,
    ProjectNames,
    PulledPage,
    PushReply,
    PushResult,
    Record,
    Shown,
    Status,
    fingerprint,
    token_of,
    version_in,
)
from triskele.text import timestamps
from triskele.text.ids import content_hash
from triskele.types import (
    Action,
    Add,
    Change,
    Connect,
    Disconnect,
    LinkKind,
    Memory,
    Origin,
    Outcome,
    Role,
    Sensitivity,
)
from triskele.validation import MAX_POSITION

_CURSOR = re.compile("([0-9]{1,18}@[0-9]{1,18})?")
MAX_PULLED = 500

_Text = Annotated[str, Field(min_length=1)]
_Label = Annotated[str, Field(max_length=500)]
_Name = Annotated[str, Field(max_length=200)]
_Id = Annotated[str, Field(pattern="^[0-9a-hjkmnp-tv-z]{16}$")]
_Key = Annotated[str, Field(pattern="^(git|name):", max_length=600)]
_Links = Annotated[list[tuple[LinkKind, _Id]], Field(max_length=1000)]


class _Strict(BaseModel):
    """A part of a push: unknown fields and values of another type are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class SyncRecord(_Strict):
    """The state of an open memory; `keys` identify its project, whatever it is called here."""

    content: _Text
    category: _Name
    tags: Annotated[list[_Label], Field(max_length=64)] = []
    keywords: _Label = ""
    importance: Annotated[float, Field(ge=0, le=1)] = 0.5
    origin: Origin = Origin.USER
    session: _Name | None = None
    position: Annotated[int, Field(ge=0, le=MAX_POSITION)] | None = None
    speaker: _Name | None = None
    role: Role | None = None
    created_at: AwareDatetime
    updated_at: AwareDatetime
    valid_from: AwareDatetime | None = None
    valid_to: AwareDatetime | None = None
    forgotten: bool = False
    project: _Name = ""
    keys: Annotated[list[_Key], Field(max_length=MOST_KEYS)] = []

    # An unknown field comes from a newer laptop.
    model_config = ConfigDict(extra="allow", json_schema_extra={"additionalProperties": False})

    @model_validator(mode="after")
    def _refuse_unknown(self) -> Self:
        """Refuse unknown fields that hold something: they would be lost."""
        if unknown := [name for name, value in (self.model_extra or {}).items() if value is not None]:
            raise PydanticCustomError("extra_forbidden", "unknown field {name}", {"name": unknown[0][:40]})
        return self


class SyncItem(_Strict):
    """What changed of a memory; `base` is the token of the state that the change was made on."""

    id: _Id
    push: Literal[Push.RECORD, Push.WITHDRAWAL, Push.ERASURE, Push.NOTHING]
    base: Annotated[str, Field(max_length=100)] = ""
    record: SyncRecord | None = None
    sensitivity: Literal[Sensitivity.PRIVATE, Sensitivity.SECRET] = Sensitivity.PRIVATE
    linked: _Links = []
    unlinked: _Links = []


# The kind of the documents that mark memories as withdrawn by a laptop, not erased.
_WITHDRAWN = "sync-withdrawn"
_TRIES = 5


def push(access: StoreAccess, items: Sequence[SyncItem], *, actor: str, user: str) -> PushReply:
    """Take changes of a laptop."""
    _check_user(access.store, user)
    acting = access.acting_as(states.sync_actor(actor))
    return PushReply(tuple(_Receiver(acting).push(items)), access.store.owner)


def pull(access: StoreAccess, cursor: str, *, limit: int, user: str) -> PulledPage:
    """List what changed since a cursor, as it is now."""
    _check_user(access.store, user)
    if not _CURSOR.fullmatch(cursor):
        raise BadInput(f"not a cursor: {cursor[:40]!r}")
    if not 1 <= limit <= MAX_PULLED:
        raise BadInput(f"limit must be between 1 and {MAX_PULLED}, not {limit}")
    store, since = access.store, Cursor(cursor)
    if not store.holds(since):
        return PulledPage(items=(), cursor="", is_end=False, is_reset=True, user=store.owner)
    page = store.changes_since(since, limit)
    actors = states.touched(store, page.entries)
    _end_withdrawals(access, list(actors))
    items = shown(store, list(actors), actors)
    is_end = len(page.entries) < limit
    return PulledPage(items=tuple(items), cursor=page.cursor, is_end=is_end, user=store.owner)


def _check_user(store: OwnerStore, user: str) -> None:
    """Refuse the key of another user before anything is carried out: two people's memories must not mix."""
    owner = store.owner
    if user not in ("", owner):
        # No BadInput: nothing is wrong with the items.
        raise Conflict(f"the key belongs to {owner}, this store was synced as {user}: use a key of {user}")


def shown(store: OwnerStore, ids: Sequence[str], actors: dict[str, str]) -> list[Shown]:
    """Some memories as a laptop may see them; what never existed is left out."""
    projects = ProjectNames(store)
    links = states.links_of(store, ids)
    memories = states.latest(store, sorted({*ids, *(target for ties in links.values() for _, target in ties)}))
    withdrawn = store.documents.some(_WITHDRAWN, ids)
    items = []
    for id in ids:
        memory = memories.get(id)
        if memory is None:
            token = states.tombstone(store, id, withdrawn)
            state = Standing(token) if token else Standing.ABSENT
            items += [Shown(id, state, token)] if token else []
        elif memory.sensitivity is not Sensitivity.OPEN:
            items.append(Shown(id, states.standing_of(memory), token_of(memory)))
        else:
            ties = sorted(tie for tie in links[id] if _is_open(memories.get(tie[1])))
            record = states.record_of(memory, projects)
            actor = actors.get(id, "")
            items.append(Shown(id, states.standing_of(memory), token_of(memory), record, tuple(ties), actor))
    return items


def _is_open(memory: Memory | None) -> bool:
    return memory is not None and memory.sensitivity is Sensitivity.OPEN


def _end_withdrawals(access: StoreAccess, ids: Sequence[str]) -> None:
    """Erase what an earlier push closed and marked, and was stopped before it erased."""
    store = access.store
    memories = states.latest(store, sorted(store.documents.some(_WITHDRAWN, ids)))
    left = [id for id, memory in memories.items() if not _is_open(memory) and _is_half_withdrawn(store, memory)]
    if left:
        access.acting_as(states.WITHDRAWAL).erase(*left)


def _is_half_withdrawn(store: OwnerStore, memory: Memory) -> bool:
    """Whether a withdrawal closed it, and stopped before it erased it."""
    entries = store.journal(id=memory.id, limit=states.ALL_ENTRIES)
    makers = [each.actor for each in entries if (each.id, each.version) == (memory.id, memory.version)]
    return makers[-1:] == [states.WITHDRAWAL]


@dataclass(frozen=True, slots=True)
class _Planned:
    """What a pushed record means here: a reply that is known already, or changes and the state after them."""

    item: SyncItem
    reply: PushResult | None = None
    changes: tuple[Change, ...] = ()
    after: Memory | None = None
    before: Memory | None = None

    @property
    def is_new(self) -> bool:
        """Whether it adds a memory."""
        return bool(self.changes) and isinstance(self.changes[0], Add)

    @property
    def makes_current(self) -> bool:
        """Whether a memory is current after it that was not before."""
        return bool(self.changes) and _is_current(self.after) and not _is_current(self.before)


class _Receiver:
    """Carries out one push: erasures, then all records in one transaction, then links."""

    def __init__(self, access: StoreAccess) -> None:
        self._access = access
        self._store = access.store

    @cached_property
    def _projects(self) -> ProjectNames:
        return ProjectNames(self._store)

    def push(self, items: Sequence[SyncItem]) -> list[PushResult]:
        """Carry out the items; one result for each, in any order."""
        _end_withdrawals(self._access, [item.id for item in items])
        results = self._erased([item for item in items if item.push is Push.ERASURE])
        results += self._withdrawn([item for item in items if item.push is Push.WITHDRAWAL])
        results += self._recorded([item for item in items if item.push is Push.RECORD])
        return results + [self._tied(item) for item in items if item.push is Push.NOTHING]

    def _erased(self, items: Sequence[SyncItem]) -> list[PushResult]:
        """Erase a memory regardless of its base; a withdrawn one is erased again, for laptops that kept it."""
        ids = [item.id for item in items]
        memories = states.latest(self._store, ids)
        marked = self._store.documents.some(_WITHDRAWN, ids).keys() - memories.keys()
        if marked:
            # The journal records erasures only of existing memories.
            self._access.apply([Add(_placeholder(id, self._store.owner), verbatim=True) for id in sorted(marked)])
        if memories or marked:
            self._access.erase(*memories, *sorted(marked))
        self._store.documents.delete(_WITHDRAWN, ids)
        return [PushResult(item.id, Status.DONE, str(Standing.ERASED)) for item in items]

    def _withdrawn(self, items: Sequence[SyncItem]) -> list[PushResult]:
        """Erase a memory that became private on a laptop, unless it was changed here: that change would be lost."""
        ids = [item.id for item in items]
        memories, marks = states.latest(self._store, ids), self._store.documents.some(_WITHDRAWN, ids)
        results, taken_back = [], list[str]()
        for item in items:
            memory = memories.get(item.id)
            if memory is None:
                token = states.tombstone(self._store, item.id, marks)
                results.append(PushResult(item.id, Status.DONE, token or str(item.sensitivity)))
            elif not _is_open(memory):
                results.append(PushResult(item.id, Status.DONE, token_of(memory)))
            elif item.base != token_of(memory) or not self._closed(memory, item.sensitivity):
                results.append(self._stale(item))
            else:
                taken_back.append(item.id)
                results.append(PushResult(item.id, Status.DONE, str(item.sensitivity)))
        if taken_back:
            self._access.acting_as(states.WITHDRAWAL).erase(*taken_back)
        return results

    def _closed(self, memory: Memory, sensitivity: Sensitivity) -> bool:
        """Mark a memory and make it private before it is erased: that fails if it was changed meanwhile."""
        self._store.documents.put(_WITHDRAWN, {memory.id: Document(str(sensitivity))})
        private = replace(memory, sensitivity=Sensitivity.PRIVATE)
        try:
            self._access.acting_as(states.WITHDRAWAL).apply(states.changes_for(private, memory))
        except (Conflict, NotFound):
            return False
        return True

    def _recorded(self, items: Sequence[SyncItem]) -> list[PushResult]:
        for _ in range(_TRIES if items else 0):
            planned = self._plan(items)
            try:
                planned, outcomes = self._admitted(planned)
            except (Conflict, NotFound):
                # Another push was quicker: compare again.
                continue
            self._store.documents.delete(_WITHDRAWN, [each.item.id for each in planned if each.is_new])
            return [self._result(each, outcomes.get(each.item.id)) for each in planned]
        if items:
            raise Conflict("other pushes change the same memories: try again")
        return []

    def _admitted(self, planned: list[_Planned]) -> tuple[list[_Planned], dict[str, Outcome]]:
        """Apply what was planned; beyond the quota, refuse the items that make a memory current."""
        try:
            return planned, self._applied(planned)
        except QuotaExceeded as error:
            admitted = [_refused(each, error) if each.makes_current else each for each in planned]
            return admitted, self._applied(admitted)

    def _applied(self, planned: Sequence[_Planned]) -> dict[str, Outcome]:
        """The first outcome of each memory."""
        changes = [change for each in planned for change in each.changes]
        outcomes = iter(self._access.apply(changes) if changes else ())
        by_memory = {each.item.id: list(islice(outcomes, len(each.changes))) for each in planned}
        return {id: own[0] for id, own in by_memory.items() if own}

    def _result(self, planned: _Planned, outcome: Outcome | None) -> PushResult:
        if planned.reply is not None:
            return planned.reply
        assert planned.after is not None
        if outcome is not None and outcome.action is Action.DUPLICATE:
            if outcome.sensitivity is not Sensitivity.OPEN:
                # A private memory has the same text: it is not returned, and this one is stored as a second memory.
                try:
                    self._access.apply([Add(planned.after, verbatim=True)])
                except QuotaExceeded as error:
                    return PushResult(planned.item.id, Status.REFUSED, reason=str(error))
            else:
                [twin] = shown(self._store, [outcome.id], {})
                return PushResult(planned.item.id, Status.DUPLICATE, known=twin)
        return PushResult(planned.item.id, Status.DONE, token_of(planned.after))

    def _plan(self, items: Sequence[SyncItem]) -> list[_Planned]:
        ids = [item.id for item in items]
        memories, withdrawn = states.latest(self._store, ids), self._store.documents.some(_WITHDRAWN, ids)
        sharers = states.shared_by_others(self._store, [id for id in ids if id not in memories])
        planned = []
        for item in items:
            try:
                if item.id in sharers:
                    raise BadInput(f"{sharers[item.id]} shares the memory with this id: only they can change it")
                memory = self._memory(item)
            except BadInput as error:
                planned.append(_Planned(item, PushResult(item.id, Status.REFUSED, reason=str(error))))
                continue
            stored = memories.get(item.id)
            planned.append(self._against(item, memory, stored) if stored else self._as_new(item, memory, withdrawn))
        return planned

    def _memory(self, item: SyncItem) -> Memory:
        if item.record is None:
            raise BadInput("a record is missing")
        values = {name: getattr(item.record, name) for name in SyncRecord.model_fields}
        record = Record(**{**values, "tags": tuple(values["tags"]), "keys": tuple(values["keys"])})
        memory = states.memory_of(item.id, record, self._store.owner, self._projects)
        return states.checked(memory, self._access.settings.memory)

    def _as_new(self, item: SyncItem, memory: Memory, withdrawn: dict[str, str]) -> _Planned:
        token = states.tombstone(self._store, item.id, withdrawn)
        if token and not (token.startswith(WITHDRAWN) and item.base == token):
            return _Planned(item, self._stale(item))
        is_duplicate_sought = not item.base and memory.known_to is None
        return _Planned(item, None, tuple(states.changes_for(memory, None, verbatim=not is_duplicate_sought)), memory)

    def _against(self, item: SyncItem, memory: Memory, known: Memory) -> _Planned:
        token = token_of(known)
        if known.sensitivity is Sensitivity.OPEN and fingerprint(known) == fingerprint(memory):
            return _Planned(item, PushResult(item.id, Status.DONE, token))
        if item.base == token:
            changes = tuple(states.changes_for(memory, known))
            return _Planned(item, None, changes, states.taken(memory, known), known)
        pushed = fingerprint(_standing(memory))
        # A forget makes no version: it may be of the one that it was based on.
        first = version_in(item.base) + (memory.known_to is None)
        later = [each for each in self._store.history(item.id) if each.version >= first]
        earlier = next((each for each in later if fingerprint(_standing(each)) == pushed), None)
        if earlier is not None and (memory.known_to is None or self._was_forgotten(earlier)):
            # It came before, and was changed since.
            state = replace(_standing(earlier), known_to=memory.known_to)
            return _Planned(item, PushResult(item.id, Status.DONE, token_of(state)))
        return _Planned(item, self._stale(item))

    def _was_forgotten(self, version: Memory) -> bool:
        """Whether a version was forgotten and a later one is current."""
        entries = self._store.journal(id=version.id)
        return any(each.action is Action.FORGOTTEN and each.previous == version.version for each in entries)

    def _stale(self, item: SyncItem) -> PushResult:
        [current] = shown(self._store, [item.id], {})
        return PushResult(item.id, Status.STALE, known=current)

    def _tied(self, item: SyncItem) -> PushResult:
        """Open and close links; those that cannot be are left out, and the first reason is returned."""
        now, reasons = timestamps.now(), list[str]()
        changes: list[Change] = [Disconnect(states.link_of(item.id, tie, now)) for tie in item.unlinked]
        changes += [Connect(states.link_of(item.id, tie, now)) for tie in item.linked]
        try:
            self._access.apply(changes)
        except (Conflict, NotFound):
            reasons = [reason for change in changes if (reason := self._refusal(change))]
        links = tuple(sorted(states.links_of(self._store, [item.id])[item.id]))
        status = Status.REFUSED if reasons else Status.DONE
        return PushResult(item.id, status, reason="; ".join(reasons[:1]), links=links)

    def _refusal(self, change: Change) -> str:
        """Why one change cannot be made; empty if it was made."""
        try:
            self._access.apply([change])
        except (Conflict, NotFound) as error:
            return str(error)
        return ""


def _is_current(memory: Memory | None) -> bool:
    return memory is not None and memory.known_to is None


def _refused(planned: _Planned, error: QuotaExceeded) -> _Planned:
    return _Planned(planned.item, PushResult(planned.item.id, Status.REFUSED, reason=str(error)))


def _placeholder(id: str, owner: str) -> Memory:
    """A private memory without content, to be erased so that the journal names its id."""
    now, text = timestamps.now(), "erased"
    return Memory(
        id=id,
        content=text,
        content_hash=content_hash(text),
        sensitivity=Sensitivity.PRIVATE,
        owner=owner,
        created_at=now,
        updated_at=now,
        known_from=now,
        known_to=now,
    )


def _standing(memory: Memory) -> Memory:
    return replace(memory, known_to=None)
