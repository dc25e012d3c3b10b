"""Sync this store with a server: push what changed here, then pull what changed there.

Every step can be repeated: what was agreed on is noted after it is true on both sides, never before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from triskele.errors import BadInput, Conflict, NotFound, Unavailable
from triskele.store.access import StoreAccess
from triskele.store.values import Document
from triskele.sync import merge, states
from triskele.sync.merge import CLOSED, ERASED, NEVER, Links, LocalState, MergeStep, Push, Standing, SyncedState
from triskele.sync.notes import RETRY, Notes, plain_record
from triskele.sync.states import MOST_TIES, Outgoing, ProjectNames, PulledPage, PushReply, PushResult, Shown, Status
from triskele.text import timestamps
from triskele.text.ids import same_words
from triskele.types import Change, Connect, Disconnect, Forget, Link, MakePrivate, Memory, Revise, Sensitivity

_Item = TypeVar("_Item")
_ROUNDS, _TRIES = 4, 3
# How many pushes without a reply are remembered for one memory.
_MOST_SENT = 8
_CHUNK = 200
_MOST_ITEMS, _MOST_BYTES = 100, 40_000


class SyncServer(Protocol):
    """The server, however it is reached; any call may fail after the server has carried it out."""

    def push(self, items: Sequence[Outgoing], actor: str, user: str) -> PushReply:
        """Push changes made by one actor; refused if the key is not the user's."""
        ...

    def pull(self, cursor: str, user: str = "") -> PulledPage:
        """Pull the changes since a cursor; refused if a user is named and the key is not theirs."""
        ...


@dataclass(frozen=True, slots=True)
class SyncReport:
    """The result of one sync: changes pushed and pulled, and what is left."""

    pushed: int
    pulled: int
    waiting: Mapping[str, str]
    conflicts: tuple[str, ...]


@dataclass(slots=True)
class _Merged:
    """What the states of a page mean for this machine."""

    erasing: list[str] = field(default_factory=list)
    changes: dict[str, list[Change]] = field(default_factory=lambda: defaultdict(list))
    taking: dict[str, dict[str, SyncedState]] = field(default_factory=lambda: defaultdict(dict))
    sealing: list[str] = field(default_factory=list)
    closing: list[str] = field(default_factory=list)
    agreed: dict[str, SyncedState] = field(default_factory=dict)
    conflicts: dict[str, Document] = field(default_factory=dict)
    settled: list[str] = field(default_factory=list)
    waiting: dict[str, str] = field(default_factory=dict)
    taken: int = 0


class Sync:
    """Syncs one owner's store with a server; `address` identifies the server."""

    def __init__(self, access: StoreAccess, server: SyncServer, address: str) -> None:
        self._access = access
        self._store = access.store
        self._server = server
        self._address = address
        self._notes = Notes(access.store)
        self._pushed = self._pulled = 0

    def run(self, *, is_elsewhere: bool = False) -> SyncReport:
        """Push, then pull; again, while the server's answers leave something to push."""
        self._notes.begin(self._address, is_elsewhere=is_elsewhere)
        if not self._user:
            # Known before anything is sent, so that no later request reaches the memories of another user.
            self._notes.check_user(self._server.pull("").user)
        before = self._pushed
        try:
            for number in range(_ROUNDS):
                self._push(is_first=not number)
                self._pull()
                if RETRY not in self._notes.waiting().values():
                    break
        finally:
            self._notes.count_sent(self._pushed - before)
        self._notes.put_state(at=timestamps.to_text(timestamps.now()))
        return SyncReport(self._pushed, self._pulled, self._notes.waiting(), tuple(self._notes.conflicts()))

    @property
    def _user(self) -> str:
        return str(self._notes.state().get("user") or "")

    # Push

    def _push(self, *, is_first: bool) -> None:
        actors, cursor = self._notes.queue()
        waiting = self._notes.waiting()
        ids = [*(id for id, reason in waiting.items() if is_first or reason == RETRY), *actors]
        if is_first:
            self._open_left_links()
        chunks = list(_chunks(list(dict.fromkeys(ids))))
        pushed = {id for some in chunks for id in self._push_records(some, actors)}
        pushed |= {id for some in chunks for id in self._push_links(some)}
        self._notes.forget_waiting(sorted({*ids} - pushed - self._notes.left_links().keys()))
        self._notes.put_state(pushed=cursor)

    def _push_records(self, ids: Sequence[str], actors: Mapping[str, str]) -> list[str]:
        """Push memories that changed; returns those that were pushed."""
        memories, projects = states.latest(self._store, ids), ProjectNames(self._store)
        agreed = self._with_resolved(ids, memories)
        conflicts = self._notes.conflicts(ids)
        by_actor: dict[str, list[Outgoing]] = defaultdict(list)
        mine = {id: states.mine_of(memories.get(id)) for id in ids}
        withheld = dict[str, str]()
        for id in ids:
            push = Push.NOTHING if id in conflicts else merge.to_push(agreed[id], mine[id])
            if push is Push.RECORD and (reason := states.secret_in(memories[id])):
                withheld[id] = reason
            elif push is not Push.NOTHING:
                by_actor[actors.get(id, "")].append(_outgoing(push, id, agreed[id], memories.get(id), projects))
        self._notes.put_waiting(withheld)
        for actor, items in by_actor.items():
            for batch in _batches(items):
                self._send(batch, actor, mine, agreed)
        return [*withheld, *(item.id for items in by_actor.values() for item in items)]

    def _with_resolved(self, ids: Sequence[str], known: Mapping[str, Memory]) -> dict[str, SyncedState]:
        """What was agreed; a memory that was changed after its conflict was found is the answer to it."""
        agreed = self._notes.agreed(ids)
        for id, conflict in self._notes.conflicts(ids).items():
            if conflict["mine"] != states.mine_of(known.get(id)).fingerprint:
                agreed[id] = replace(agreed[id], mine=conflict["theirs"], theirs=conflict["token"], sent=())
                self._notes.put_agreed({id: agreed[id]})
                self._notes.forget_conflicts([id])
        return agreed

    def _send(
        self, batch: Sequence[Outgoing], actor: str, mine: Mapping[str, LocalState], agreed: Mapping[str, SyncedState]
    ) -> None:
        records = [item.id for item in batch if item.push is Push.RECORD]
        # Recorded first: if the reply is lost, the notes say what the server may have.
        self._notes.put_agreed({id: _sending(agreed[id], mine[id].fingerprint) for id in records})
        reply = self._told(batch, actor)
        self._notes.check_user(reply.user)
        kinds = {item.id: item.push for item in batch}
        done, stale = dict[str, SyncedState](), list[Shown]()
        for result in reply.results:
            if result.status is Status.DONE:
                done[result.id] = _agreed_after(kinds[result.id], result, mine[result.id], agreed[result.id])
            elif result.status is Status.REFUSED:
                self._notes.put_waiting({result.id: result.reason})
            elif result.known is not None and result.status is Status.STALE:
                stale.append(result.known)
        self._pushed += len(done)
        withdrawn = [id for id in done if kinds[id] is Push.WITHDRAWAL]
        self._notes.put_agreed(self._untied(withdrawn) | done)
        self._notes.forget_waiting(list(done))
        self._merge(stale)
        for result in reply.results:
            if result.status is Status.DUPLICATE and result.known is not None:
                self._adopt(result.id, result.known)

    def _told(self, batch: Sequence[Outgoing], actor: str) -> PushReply:
        """Push a batch; one by one if the server refuses it, so that a single item does not block the rest."""
        try:
            return self._server.push(batch, actor, self._user)
        except NotFound:
            # No server that syncs.
            raise
        except BadInput as error:
            if len(batch) == 1:
                refused = PushResult(batch[0].id, Status.REFUSED, reason=str(error), links=batch[0].unlinked)
                return PushReply((refused,), self._user)
        results = tuple(result for item in batch for result in self._told([item], actor).results)
        return PushReply(results, self._user)

    def _untied(self, withdrawn: Sequence[str]) -> dict[str, SyncedState]:
        """The synced states without links to withdrawn memories: if these come back, the links count as new."""
        sources = {link.source for link in self._store.links(withdrawn)}
        agreed = self._notes.agreed(sources)
        return {
            id: replace(each, links=frozenset(tie for tie in each.links if tie[1] not in withdrawn))
            for id, each in agreed.items()
        }

    def _adopt(self, id: str, known: Shown) -> None:
        """The server has the text of a new memory under another id: that one stays, and takes over the links."""
        self._merge([known])
        memories = states.latest(self._store, [id, known.id])
        mine, theirs = memories.get(id), memories.get(known.id)
        if mine is None or theirs is None or theirs.known_to or theirs.content != mine.content:
            return self._notes.put_waiting({id: f"the server has the same text as {known.id}"})
        self._notes.put_agreed({id: NEVER})
        now, moved = timestamps.now(), list[Change]()
        for link in self._store.links([id]):
            source, target = (known.id if end == id else end for end in (link.source, link.target))
            if source != target:
                moved.append(Connect(Link(source=source, kind=link.kind, target=target, known_from=now)))
        forget: list[Change] = [Revise(mine, base=mine.version), Forget(id)]
        access = self._access.acting_as(states.sync_actor(known.actor))
        try:
            access.apply([*moved, *forget])
        except Conflict:
            # A moved link may close a circle.
            access.apply(forget)
        return self._notes.forget_waiting([id])

    def _push_links(self, ids: Sequence[str]) -> list[str]:
        """Push links that changed; returns the memories whose links were pushed."""
        links = states.links_of(self._store, ids)
        agreed = self._notes.agreed({*ids, *_targets(links.values())})
        agreed |= self._notes.agreed(_targets(agreed[id].links for id in ids) - agreed.keys())
        items = []
        for id in ids:
            mine, before = (_shared(some, agreed) for some in (links[id], agreed[id].links))
            if mine != before and agreed[id].is_shared:
                items += _tying(id, sorted(mine - before), sorted(before - mine))
        refused = set[str]()
        for batch in _batches(items):
            refused |= self._note_links(batch, self._told(batch, ""))
        pushed = list(dict.fromkeys(item.id for item in items))
        self._notes.forget_waiting([id for id in pushed if id not in refused])
        return pushed

    def _note_links(self, items: Sequence[Outgoing], reply: PushReply) -> set[str]:
        """Note the links that the server has now; whose it refused."""
        self._notes.check_user(reply.user)
        sent, agreed = {item.id: item for item in items}, self._notes.agreed(item.id for item in items)
        for result in reply.results:
            item, before, there = sent[result.id], agreed[result.id], frozenset(result.links)
            both = (before.links | (frozenset(item.linked) & there)) - (frozenset(item.unlinked) - there)
            self._notes.put_agreed({item.id: replace(before, links=both)})
        reasons = {each.id: each.reason for each in reply.results if each.status is Status.REFUSED}
        self._notes.put_waiting(reasons)
        return {*reasons}

    # Pull

    def _pull(self) -> None:
        cursors = set[str]()
        while (cursor := self._notes.state().get("pulled", "")) not in cursors:
            cursors.add(cursor)
            page = self._server.pull(cursor, self._user)
            self._notes.check_user(page.user)
            if page.is_reset:
                self._notes.start_over()
                continue
            self._merge(page.items)
            self._notes.put_state(pulled=page.cursor)
            if page.is_end:
                return
        raise Unavailable("the server keeps sending the same changes: try again later")

    def _merge(self, items: Sequence[Shown]) -> None:
        """Merge states of the server; repeat if a memory was changed here meanwhile."""
        if not items:
            return
        for _ in range(_TRIES):
            try:
                self._merge_records(items)
                break
            except (Conflict, NotFound):
                continue
        else:
            raise Conflict("the memories change faster than they can be synced: try again")
        self._merge_links([item for item in items if item.record is not None])

    def _merge_records(self, items: Sequence[Shown]) -> None:
        ids, projects = [item.id for item in items], ProjectNames(self._store)
        memories, agreed = states.latest(self._store, ids), self._notes.agreed(ids)
        merged = _Merged()
        for item in items:
            theirs, memory = states.theirs_of(item, self._store.owner, projects)
            mine = states.mine_of(memories.get(item.id))
            step, after = merge.merge(agreed[item.id], mine, theirs)
            self._carry_out(merged, step, item, memories.get(item.id), memory)
            merged.agreed[item.id] = after
            if step is MergeStep.TAKE:
                merged.taking[item.actor][item.id] = after
            if step is MergeStep.CONFLICT:
                merged.conflicts[item.id] = self._conflict(item, mine, theirs.fingerprint)
            else:
                merged.settled.append(item.id)
        self._apply(merged)

    def _carry_out(
        self, merged: _Merged, step: MergeStep, item: Shown, known: Memory | None, theirs: Memory | None
    ) -> None:
        id, changes = item.id, merged.changes[item.actor]
        match step:
            case MergeStep.ERASE:
                merged.erasing.append(id)
            case MergeStep.TAKE if theirs is not None:
                changes += states.changes_for(theirs, known)
                merged.taken += 1
            case MergeStep.ABSORB if theirs is not None and known is not None:
                changes += _absorbing(theirs, known)
                merged.sealing += [id] if known.sensitivity is Sensitivity.SECRET else []
                merged.waiting[id] = RETRY
            case MergeStep.WITHDRAW if known is not None:
                merged.closing.append(id)
                if item.standing is Standing.SECRET:
                    merged.sealing.append(id)
                else:
                    changes += _withdrawing(known)
            case MergeStep.PUSH:
                merged.waiting[id] = RETRY

    def _apply(self, merged: _Merged) -> None:
        if merged.erasing:
            self._access.erase(*merged.erasing)
        for actor, changes in merged.changes.items():
            if changes:
                # Recorded first: if the process dies here, the notes say what was synced.
                batch = self._notes.put_taking(merged.taking[actor])
                self._access.acting_as(states.sync_actor(actor)).apply(changes, batch=batch)
        for id in merged.sealing:
            self._seal(id)
        for id, memory in states.latest(self._store, merged.closing).items():
            merged.agreed[id] = replace(merged.agreed[id], mine=states.fingerprint(memory))
        self._notes.put_conflicts(merged.conflicts)
        self._notes.forget_conflicts(merged.settled)
        self._notes.put_waiting(merged.waiting)
        self._notes.put_agreed(merged.agreed)
        self._notes.forget_taking()
        self._pulled += merged.taken + len(merged.erasing) + len(merged.closing)

    def _seal(self, id: str) -> None:
        """Make a memory secret; or private, if the vault is locked."""
        try:
            self._access.seal(id)
        except Unavailable:
            [memory] = states.latest(self._store, [id]).values()
            if memory.sensitivity is Sensitivity.OPEN:
                self._access.apply(_withdrawing(memory))

    def _conflict(self, item: Shown, mine: LocalState, theirs: str) -> Document:
        before = self._notes.conflicts([item.id]).get(item.id)
        assert item.record is not None
        value = {"mine": mine.fingerprint, "theirs": theirs, "token": item.token, "record": plain_record(item.record)}
        if before is not None:
            value["mine"] = before["mine"]
        return Document(value, about=[item.id])

    def _merge_links(self, items: Sequence[Shown]) -> None:
        links = states.links_of(self._store, [item.id for item in items])
        theirs = {item.id: frozenset(item.links) for item in items}
        agreed = self._notes.agreed({*links, *_targets(links.values()), *_targets(theirs.values())})
        agreed |= self._notes.agreed(_targets(agreed[id].links for id in links) - agreed.keys())
        for id in links:
            if not agreed[id].is_shared:
                continue
            before, mine, there = (_shared(some, agreed) for some in (agreed[id].links, links[id], theirs[id]))
            wanted = merge.merged_links(before, mine, there)
            left = self._linked(id, wanted - mine, mine - wanted)
            if there - left != agreed[id].links:
                self._notes.put_agreed({id: replace(agreed[id], links=there - left)})
            if left:
                reason = "a link of the server would make memories supersede each other in a cycle"
                self._notes.put_waiting({id: reason}, links={id: left})
            elif wanted != there:
                self._notes.put_waiting({id: RETRY})

    def _linked(self, id: str, opening: Links, closing: Links) -> Links:
        """Open and close links; those that could not be opened."""
        now = timestamps.now()
        changes: list[Change] = [Disconnect(states.link_of(id, tie, now)) for tie in sorted(closing)]
        access = self._access.acting_as(states.sync_actor(""))
        if changes:
            access.apply(changes)
        left = set()
        for tie in sorted(opening):
            try:
                access.apply([Connect(states.link_of(id, tie, now))])
            except (Conflict, NotFound):
                left.add(tie)
        return frozenset(left)

    def _open_left_links(self) -> None:
        for id, links in self._notes.left_links().items():
            left = self._linked(id, links, frozenset())
            [agreed] = self._notes.agreed([id]).values()
            self._notes.put_agreed({id: replace(agreed, links=agreed.links | (links - left))})
            if not left:
                self._notes.forget_waiting([id])


def _outgoing(push: Push, id: str, agreed: SyncedState, memory: Memory | None, projects: ProjectNames) -> Outgoing:
    if push is Push.RECORD:
        assert memory is not None
        projects.note(memory.project)
        return Outgoing(id, push, agreed.theirs, states.record_of(memory, projects))
    closed = memory.sensitivity if memory is not None and push is Push.WITHDRAWAL else Sensitivity.PRIVATE
    return Outgoing(id, push, agreed.theirs, sensitivity=closed)


def _tying(id: str, linked: Sequence[tuple[str, str]], unlinked: Sequence[tuple[str, str]]) -> list[Outgoing]:
    """Changes of links in items of a bounded size; closed ones first, because an open link may conflict with them."""
    closing = [Outgoing(id, Push.NOTHING, unlinked=tuple(some)) for some in _chunks(unlinked, MOST_TIES)]
    return closing + [Outgoing(id, Push.NOTHING, linked=tuple(some)) for some in _chunks(linked, MOST_TIES)]


def _sending(agreed: SyncedState, fingerprint: str) -> SyncedState:
    before = tuple(each for each in agreed.sent if each != fingerprint)
    return replace(agreed, sent=(*before, fingerprint)[-_MOST_SENT:])


def _agreed_after(push: Push, result: PushResult, mine: LocalState, agreed: SyncedState) -> SyncedState:
    if push is Push.ERASURE:
        return SyncedState(theirs=ERASED)
    links: Links = frozenset() if push is Push.WITHDRAWAL else agreed.links
    return SyncedState(mine.fingerprint, result.token, links=links)


def _absorbing(theirs: Memory, known: Memory) -> list[Change]:
    """Let the server's version enter the history of a memory that is private here."""
    assert states.standing_of(known) in CLOSED
    version = replace(theirs, sensitivity=Sensitivity.PRIVATE, version=known.version, known_to=None)
    if same_words(version, known):
        return []
    changes: list[Change] = [Revise(version, base=known.version)]
    changes += [Revise(replace(known, known_to=None), base=known.version + 1), MakePrivate(known.id)]
    return [*changes, *([Forget(known.id)] if known.known_to else [])]


def _withdrawing(known: Memory) -> list[Change]:
    """Make a memory private in all its versions."""
    private = replace(known, sensitivity=Sensitivity.PRIVATE, known_to=None)
    changes: list[Change] = [Revise(private, base=known.version), MakePrivate(known.id)]
    return [*changes, *([Forget(known.id)] if known.known_to else [])]


def _targets(links: Iterable[Links]) -> set[str]:
    return {target for some in links for _, target in some}


def _shared(links: Links, agreed: Mapping[str, SyncedState]) -> Links:
    """Those links whose other end both sides hold."""
    return frozenset(tie for tie in links if agreed[tie[1]].is_shared)


def _chunks(items: Sequence[_Item], size: int = _CHUNK) -> Iterator[Sequence[_Item]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _batches(items: Sequence[Outgoing]) -> Iterator[list[Outgoing]]:
    """As many items as one request may have, and one for each memory."""
    batch, size = list[Outgoing](), 0
    for item in items:
        weight = (
            600
            + 60 * len((*item.linked, *item.unlinked))
            + (0 if item.record is None else 6 * sum(map(len, (item.record.content, *item.record.tags))))
        )
        is_full = size + weight > _MOST_BYTES or len(batch) == _MOST_ITEMS
        if batch and (is_full or batch[-1].id == item.id):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += weight
    if batch:
        yield batch
