"""The review page: conflicts of a sync and proposals of curation, side by side, and what agents were given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.responses import Response

from triskele.errors import NotFound
from triskele.exchange import sync_notes
from triskele.serving.cli.curation_report import VERBS, reasons_text
from triskele.serving.web.memory_page import Piece, difference
from triskele.serving.web.rendering import PageRequest, PageRoute, gone_to, page
from triskele.stores.access_keys import WRITE

if TYPE_CHECKING:
    from triskele.curation.proposals import Proposal
    from triskele.exchange.sync_notes import SyncConflict

SHOWN = 50
CONVERSATIONS = 20
# More than stores keep.
_EVERY = 10_000


@dataclass(frozen=True, slots=True)
class ShownProposal:
    """A proposal with its wording and the difference of its two texts."""

    proposal: Proposal
    verb: str
    reasons: str
    pieces: Sequence[Piece]


@dataclass(frozen=True, slots=True)
class ShownConflict:
    """Both versions of a memory, and how they differ."""

    conflict: SyncConflict
    pieces: Sequence[Piece]


def show(asked: PageRequest) -> Response:
    """Conflicts, the queue, the newest counts of use, and the conversations that were given something."""
    engine = asked.engine
    waiting, conflicts = engine.proposals.list(), sync_notes.conflicts(engine.store)
    usage = engine.store.usage
    used, number = usage.most_used(10), asked.number("page", 1, most=1_000)
    # One more than is shown, to know whether there is another page.
    talks = usage.conversations(CONVERSATIONS + 1, (number - 1) * CONVERSATIONS)
    memories = engine.store.memories([each.id for each in used])
    ids = [
        *memories,
        *(each.id for each in conflicts),
        *(side.id for each in waiting[:SHOWN] for side in (each.new, each.old) if side),
    ]
    return page(
        asked,
        "review.html",
        "review",
        conflicts=[_both(each) for each in conflicts],
        waiting=len(waiting),
        shown=[_shown(each) for each in waiting[:SHOWN]],
        used=[(memories[each.id], each) for each in used if each.id in memories],
        days=usage.days(14),
        conversations=talks[:CONVERSATIONS],
        number=number,
        is_last=len(talks) <= CONVERSATIONS,
        short=asked.short([id for id in ids if id]),
    )


def conversation(asked: PageRequest) -> Response:
    """What one conversation was given, and what each of it cost."""
    key, usage = asked.named("key"), asked.engine.store.usage
    given = usage.given(key)
    talk = next((each for each in usage.conversations(_EVERY) if each.conversation == key), None)
    if talk is None:
        raise NotFound("unknown conversation: conversations are kept for 30 days")
    memories = asked.engine.store.memories([each.id for each in given])
    return page(
        asked,
        "conversation.html",
        "review",
        talk=talk,
        given=[(memories.get(each.id), each) for each in given],
        held=sum(each.tokens for each in given if not each.lost),
        short=asked.short(list(memories)),
    )


def _shown(proposal: Proposal) -> ShownProposal:
    pieces = difference(proposal.old.content, proposal.new.content) if proposal.old else []
    return ShownProposal(proposal, VERBS[proposal.kind], reasons_text(proposal.reasons), pieces)


def _both(conflict: SyncConflict) -> ShownConflict:
    return ShownConflict(conflict, difference(conflict.theirs.content, conflict.mine.content) if conflict.mine else [])


def keep(asked: PageRequest) -> Response:
    """Settle a conflict: keep the version of this machine or that of the server."""
    version = asked.named("version")
    if version not in ("mine", "theirs"):
        raise NotFound("a conflict has two versions: mine and theirs")
    sync_notes.resolve(asked.engine, asked.named("id"), keep_mine=version == "mine")
    return gone_to("/review", said="settled")


def accept(asked: PageRequest) -> Response:
    """Carry a proposal out; the page offers to undo it."""
    outcomes = asked.engine.proposals.accept(asked.named("id"))
    return gone_to("/review", outcomes[0].batch if outcomes else "")


def reject(asked: PageRequest) -> Response:
    """Drop a proposal for good."""
    asked.engine.proposals.reject(asked.named("id"))
    return gone_to("/review", said="rejected")


ROUTES: tuple[PageRoute, ...] = (
    PageRoute("GET", "/review", show),
    PageRoute("GET", "/conversation/{key:path}", conversation),
    PageRoute("POST", "/review/{id}/accept", accept, WRITE),
    PageRoute("POST", "/review/{id}/keep/{version}", keep, WRITE),
    PageRoute("POST", "/review/{id}/reject", reject, WRITE),
)
