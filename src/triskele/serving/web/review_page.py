"""The review page: what curation proposes, side by side, and what was handed to agents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.responses import Response

from triskele.serving.cli.curation_report import VERBS, reasons_text
from triskele.serving.web.memory_page import Piece, difference
from triskele.serving.web.rendering import Handler, PageRequest, gone_to, page

if TYPE_CHECKING:
    from triskele.curation.proposals import Proposal

SHOWN = 50


@dataclass(frozen=True, slots=True)
class ShownProposal:
    """A proposal with what it says and how its two texts differ."""

    proposal: Proposal
    verb: str
    reasons: str
    pieces: Sequence[Piece]


def show(asked: PageRequest) -> Response:
    """The queue, the newest counts of use, and what one conversation was given."""
    engine = asked.engine
    waiting = engine.proposals.list()
    usage = engine.store.usage
    used, conversation = usage.most_used(20), asked.text("conversation", most=200).strip()
    given = usage.given(conversation) if conversation else []
    memories = engine.store.memories([*(each.id for each in used), *(each.id for each in given)])
    ids = [*memories, *(side.id for each in waiting[:SHOWN] for side in (each.new, each.old) if side)]
    return page(
        asked,
        "review.html",
        "review",
        waiting=len(waiting),
        shown=[_shown(each) for each in waiting[:SHOWN]],
        used=[(memories[each.id], each) for each in used if each.id in memories],
        days=usage.days(14),
        conversation=conversation,
        given=[(memories.get(each.id), each) for each in given],
        short=asked.short([id for id in ids if id]),
    )


def _shown(proposal: Proposal) -> ShownProposal:
    pieces = difference(proposal.old.content, proposal.new.content) if proposal.old else []
    return ShownProposal(proposal, VERBS[proposal.kind], reasons_text(proposal.reasons), pieces)


def accept(asked: PageRequest) -> Response:
    """Carry a proposal out; the page offers to undo it."""
    outcomes = asked.engine.proposals.accept(asked.named("id"))
    return gone_to("/review", outcomes[0].batch if outcomes else "")


def reject(asked: PageRequest) -> Response:
    """Drop a proposal for good."""
    asked.engine.proposals.reject(asked.named("id"))
    return gone_to("/review", said="rejected")


ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("GET", "/review", show),
    ("POST", "/review/{id}/accept", accept),
    ("POST", "/review/{id}/reject", reject),
)
