"""Documents that sync keeps between runs, and the conflicts among them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from triskele.errors import BadInput, NotFound
from triskele.replies.rooms import Proposal
from triskele.store.access import StoreAccess
from triskele.store.owner import OwnerStore
from triskele.store.values import START, Cursor, Document
from triskele.sync import CONFLICTS, merge, states
from triskele.sync.merge import NEVER, Links, Push, SyncedState
from triskele.sync.states import ProjectNames, Record
from triskele.text import timestamps
from triskele.text.ids import new_batch
from triskele.types import Origin, Role, Verdict

# The kinds of the documents that sync keeps.
STATE, SYNCED, WAITING, TAKING = "sync", "synced", "sync-waiting", "sync-taking"
_STATE_KEY = "state"
RETRY = "changed on the server meanwhile"
_MOMENTS = ("created_at", "updated_at", "valid_from", "valid_to")


class Notes:
    """What sync remembers between runs, as documents of the store."""

    def __init__(self, store: OwnerStore) -> None:
        self._store = store
        self._documents = store.documents

    def begin(self, address: str, *, is_elsewhere: bool = False) -> None:
        """Start a run; another server or user than before needs `is_elsewhere` and starts over."""
        state = self.state()
        is_moved = state.get("address") not in (None, address)
        if is_moved and state.get("user") and not is_elsewhere:
            raise BadInput(
                f"this store was synced with {state['address']} as {state['user']}:"
                f" `triskele sync --elsewhere` starts over with {address}"
            )
        if is_moved or is_elsewhere:
            self.start_over()
            self._documents.delete(STATE, [_STATE_KEY])
        # A run that failed before this one may have noted why, and nothing else.
        if "address" not in self.state():
            self.put_state(address=address)
        for batch, taken in self._documents.all(TAKING).items():
            if self._store.journal(batch=batch, limit=1):
                self.put_agreed({id: _agreed(value) for id, value in taken.items()})
        self.forget_taking()

    def state(self) -> dict[str, Any]:
        """The address of the server, whose memories they are there, both cursors and the time of the last run."""
        state: dict[str, Any] = self._documents.get(STATE, _STATE_KEY) or {}
        return state

    def put_state(self, **values: str) -> None:
        """Change some of the state."""
        before = self.state()
        if before | values != before:
            self._put(STATE, {_STATE_KEY: Document(before | values)})

    def count_sent(self, changes: int) -> None:
        """Add to the number of changes that were pushed in all."""
        self.put_state(sent=str(int(self.state().get("sent", "0")) + changes))

    def check_user(self, user: str) -> None:
        """Refuse a key of another user: two people's memories must not mix."""
        owner = self.state().get("user")
        if owner is None:
            self.put_state(user=user)
        elif owner != user:
            raise BadInput(f"the key belongs to {user}, this store was synced as {owner}: use a key of {owner}")

    def start_over(self) -> None:
        """Forget the synced states, because the server no longer has them."""
        for kind in (SYNCED, WAITING, CONFLICTS, TAKING):
            self._forget(kind)
        self.put_state(pulled="", pushed="")

    def queue(self) -> tuple[dict[str, str], Cursor]:
        """The memories that changed since the last push, each with who changed it, and the cursor after them."""
        cursor = Cursor(self.state().get("pushed", ""))
        if not self._store.holds(cursor):
            cursor = START
        actors: dict[str, str] = {}
        while (page := self._store.changes_since(cursor)).entries:
            cursor = page.cursor
            actors |= states.touched(self._store, page.entries)
        return actors, cursor

    def unsent(self) -> list[str]:
        """The memories with changes that are not pushed yet."""
        ids = sorted(self.queue()[0])
        memories, agreed, conflicts = states.latest(self._store, ids), self.agreed(ids), self.conflicts(ids)
        pushes = {id: merge.to_push(agreed[id], states.mine_of(memories.get(id))) for id in ids}
        return [id for id, push in pushes.items() if push is not Push.NOTHING and id not in conflicts]

    def agreed(self, ids: Iterable[str]) -> dict[str, SyncedState]:
        """What was agreed on for some memories."""
        wanted = sorted(set(ids))
        documents = self._documents.some(SYNCED, wanted)
        return {id: _agreed(documents[id]) if id in documents else NEVER for id in wanted}

    def put_agreed(self, agreed: Mapping[str, SyncedState]) -> None:
        """Note what is agreed on now."""
        before = self.agreed(agreed)
        changed = {id: Document(_values(each)) for id, each in agreed.items() if each != before[id]}
        self._put(SYNCED, changed)

    def put_taking(self, agreed: Mapping[str, SyncedState]) -> str:
        """Note what will be agreed on by a batch of changes, and give it a name; `begin` sees whether it was made."""
        batch = new_batch()
        if agreed:
            self._put(TAKING, {batch: Document({id: _values(each) for id, each in agreed.items()})})
        return batch

    def forget_taking(self) -> None:
        """What was taken is noted as agreed on."""
        self._forget(TAKING)

    def waiting(self) -> dict[str, str]:
        """Why memories wait."""
        return {id: value["reason"] for id, value in self._documents.all(WAITING).items()}

    def left_links(self) -> dict[str, Links]:
        """The links of the server that could not be opened here."""
        documents = self._documents.all(WAITING)
        return {id: _links(value["links"]) for id, value in documents.items() if value["links"]}

    def put_waiting(self, reasons: Mapping[str, str], links: Mapping[str, Links] | None = None) -> None:
        """Note why memories wait."""
        left = links or {}
        values = {id: {"reason": why, "links": sorted(left.get(id, ()))} for id, why in reasons.items()}
        self._put(WAITING, {id: Document(value) for id, value in values.items()})

    def forget_waiting(self, ids: Sequence[str]) -> None:
        """Some memories wait no more."""
        self._forget(WAITING, ids)

    def conflicts(self, ids: Sequence[str] | None = None) -> dict[str, Any]:
        """The conflicts, by memory."""
        return self._documents.all(CONFLICTS) if ids is None else self._documents.some(CONFLICTS, ids)

    def put_conflicts(self, conflicts: Mapping[str, Document]) -> None:
        """Keep the server's version in addition to that of this machine."""
        self._put(CONFLICTS, conflicts)

    def forget_conflicts(self, ids: Sequence[str]) -> None:
        """Some conflicts are settled."""
        self._forget(CONFLICTS, ids)

    def _put(self, kind: str, documents: Mapping[str, Document]) -> None:
        """Write documents of a kind, if there are any."""
        if documents:
            self._documents.put(kind, documents)

    def _forget(self, kind: str, ids: Sequence[str] | None = None) -> None:
        """Delete documents of a kind; write nothing if there are none."""
        if documents := self._documents.all(kind) if ids is None else self._documents.some(kind, ids):
            self._documents.delete(kind, list(documents))


def conflicts(store: OwnerStore) -> list[Proposal]:
    """The memories that were changed here and on the server, as proposals to take the server's version."""
    documents, projects = Notes(store).conflicts(), ProjectNames(store)
    mine = states.latest(store, sorted(documents))
    theirs = {
        id: states.memory_of(id, _record(value["record"]), store.owner, projects) for id, value in documents.items()
    }
    return [
        Proposal(
            id=id,
            kind=Verdict.CONFLICT,
            new=memory,
            old=mine.get(id),
            reasons=(),
            confidence=0.0,
            created=memory.updated_at,
        )
        for id, memory in theirs.items()
    ]


def resolve(access: StoreAccess, id: str, *, keep_mine: bool, batch: str | None = None) -> None:
    """Settle a conflict; the next sync pushes what is kept here, and the other version stays in the history."""
    store, notes = access.store, Notes(access.store)
    conflict = notes.conflicts([id]).get(id)
    if conflict is None:
        raise NotFound(f"{id} has no conflict: `triskele list --conflicts` shows all")
    if not keep_mine:
        theirs = states.memory_of(id, _record(conflict["record"]), store.owner, ProjectNames(store))
        access.apply(states.changes_for(theirs, states.latest(store, [id]).get(id)), batch=batch)
    [agreed] = notes.agreed([id]).values()
    notes.put_agreed({id: replace(agreed, mine=conflict["theirs"], theirs=conflict["token"], sent=())})
    notes.put_waiting({id: RETRY})
    notes.forget_conflicts([id])


def _agreed(value: Mapping[str, Any]) -> SyncedState:
    return SyncedState(value["mine"], value["theirs"], tuple(value["sent"]), _links(value["links"]))


def _values(agreed: SyncedState) -> dict[str, Any]:
    return {"mine": agreed.mine, "theirs": agreed.theirs, "sent": agreed.sent, "links": sorted(agreed.links)}


def _links(values: Iterable[Sequence[str]]) -> Links:
    return frozenset((kind, target) for kind, target in values)


def plain_record(record: Record) -> dict[str, Any]:
    """A record as a JSON value."""
    values = asdict(record).items()
    return {name: timestamps.to_text(value) if isinstance(value, datetime) else value for name, value in values}


def _record(values: Mapping[str, Any]) -> Record:
    moments = {name: values[name] and timestamps.parse(values[name]) for name in _MOMENTS}
    lists = {"tags": tuple(values["tags"]), "keys": tuple(values["keys"]), "origin": Origin(values["origin"])}
    return Record(**{**values, **moments, **lists, "role": values["role"] and Role(values["role"])})
