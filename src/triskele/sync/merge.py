"""Merge the states of a memory on a laptop and a server: pure decisions over fingerprints and tokens.

A fingerprint identifies the content of a memory on one side, in the form of that side. A token identifies a state of
the server, and only the server can read it. No clock is compared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

# The token of a memory that was erased for good.
ERASED = "erased"
# The beginnings of the tokens of memories that the server does not show: taken back by a laptop, or closed there.
WITHDRAWN = ("private", "secret")

Links = frozenset[tuple[str, str]]


class Standing(StrEnum):
    """What a side has of a memory."""

    ABSENT = "absent"
    OPEN = "open"
    FORGOTTEN = "forgotten"
    PRIVATE = "private"
    SECRET = "secret"
    ERASED = "erased"


CLOSED = (Standing.PRIVATE, Standing.SECRET)


@dataclass(frozen=True, slots=True)
class LocalState:
    """The state on this machine."""

    standing: Standing
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class ServerState:
    """The state on the server, with the fingerprint that it would have here."""

    standing: Standing
    token: str
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class SyncedState:
    """The last synced state; `sent` are the fingerprints of pushes whose replies may not have arrived."""

    mine: str = ""
    theirs: str = ""
    sent: tuple[str, ...] = ()
    links: Links = frozenset()

    @property
    def is_shared(self) -> bool:
        """Whether the server has the memory, as far as is known."""
        return is_shown(self.theirs)


NEVER = SyncedState()


class Push(StrEnum):
    """What to send to the server about a memory."""

    NOTHING = "nothing"
    RECORD = "record"
    WITHDRAWAL = "withdrawal"
    ERASURE = "erasure"


class MergeStep(StrEnum):
    """What to do here with a state of the server."""

    NOTHING = "nothing"
    SETTLE = "settle"
    PUSH = "push"
    TAKE = "take"
    ABSORB = "absorb"
    WITHDRAW = "withdraw"
    ERASE = "erase"
    CONFLICT = "conflict"


# The step, and what both sides agree on once it is done.
MergeResult = tuple[MergeStep, SyncedState]


def is_shown(token: str) -> bool:
    """Whether a token is that of a memory that the server shows."""
    return bool(token) and token != ERASED and not token.startswith(WITHDRAWN)


def to_push(agreed: SyncedState, mine: LocalState) -> Push:
    """What to push about a memory that changed here."""
    may_be_there = agreed.is_shared or bool(agreed.sent)
    if mine.standing is Standing.ABSENT:
        return Push.ERASURE if may_be_there or agreed.theirs.startswith(WITHDRAWN) else Push.NOTHING
    if mine.standing in CLOSED:
        return Push.WITHDRAWAL if may_be_there else Push.NOTHING
    if mine.fingerprint == agreed.mine or agreed.theirs == ERASED:
        return Push.NOTHING
    # A memory that was forgotten before its first push is not sent.
    is_new_and_gone = mine.standing is Standing.FORGOTTEN and not may_be_there
    return Push.NOTHING if is_new_and_gone else Push.RECORD


def merge(agreed: SyncedState, mine: LocalState, theirs: ServerState) -> MergeResult:
    """What to do with a state of the server, and what is agreed once that is done."""
    settled = replace(agreed, mine=mine.fingerprint, theirs=theirs.token, sent=())
    if theirs.standing is Standing.ERASED:
        return (MergeStep.SETTLE if mine.standing is Standing.ABSENT else MergeStep.ERASE), SyncedState(theirs=ERASED)
    if theirs.standing in CLOSED:
        return _merge_withdrawn(agreed, mine, theirs, settled)
    if theirs.fingerprint in agreed.sent:
        # The push arrived, its reply did not.
        agreed = replace(agreed, mine=theirs.fingerprint, theirs=theirs.token, sent=())
    if mine.standing is Standing.ABSENT:
        return _merge_absent(agreed, theirs)
    if mine.fingerprint == theirs.fingerprint:
        return MergeStep.SETTLE, settled
    taken = replace(settled, mine=theirs.fingerprint)
    if theirs.token == agreed.theirs or (theirs.fingerprint == agreed.mine and agreed.is_shared):
        # The server has no change: push the local one.
        return MergeStep.PUSH, replace(agreed, theirs=theirs.token)
    if mine.standing in CLOSED:
        return _merge_closed(agreed, mine, theirs, taken)
    is_gone = mine.standing is theirs.standing is Standing.FORGOTTEN
    if is_gone or (mine.fingerprint == agreed.mine and agreed.theirs):
        return MergeStep.TAKE, taken
    return MergeStep.CONFLICT, agreed


def _merge_withdrawn(agreed: SyncedState, mine: LocalState, theirs: ServerState, settled: SyncedState) -> MergeResult:
    if theirs.token == agreed.theirs:
        is_open = mine.standing in (Standing.OPEN, Standing.FORGOTTEN)
        return (MergeStep.PUSH if is_open and mine.fingerprint != agreed.mine else MergeStep.NOTHING), agreed
    if mine.standing is Standing.ABSENT:
        return MergeStep.NOTHING, agreed
    return (MergeStep.SETTLE if mine.standing in CLOSED else MergeStep.WITHDRAW), settled


def _merge_absent(agreed: SyncedState, theirs: ServerState) -> MergeResult:
    if agreed.theirs or agreed.sent:
        # Erased here; the server does not know it yet.
        return MergeStep.PUSH, agreed
    if theirs.standing is Standing.FORGOTTEN:
        return MergeStep.NOTHING, agreed
    return MergeStep.TAKE, SyncedState(theirs.fingerprint, theirs.token)


def _merge_closed(agreed: SyncedState, mine: LocalState, theirs: ServerState, taken: SyncedState) -> MergeResult:
    """Closed here and open there: taken back, unless it was opened there since; a secret is never opened by others."""
    if not agreed.theirs.startswith(WITHDRAWN):
        return MergeStep.ABSORB, replace(agreed, mine=theirs.fingerprint, theirs=theirs.token, sent=())
    is_as_agreed = mine.standing is Standing.PRIVATE and mine.fingerprint == agreed.mine
    return (MergeStep.TAKE, taken) if is_as_agreed else (MergeStep.CONFLICT, agreed)


def merged_links(agreed: Links, mine: Links, theirs: Links) -> Links:
    """The links of both sides: what either added, without what either removed."""
    return (mine & theirs) | (mine - agreed) | (theirs - agreed)
