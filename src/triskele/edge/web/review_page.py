"""Conflicts, proposals, and what agents were given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from starlette.responses import Response

from triskele.edge.http.access import WRITE
from triskele.edge.web.memory_page import Piece, difference
from triskele.edge.web.rendering import PageRequest, PageRoute, gone_to, page
from triskele.edge.wording import VERBS, reasons_text
from triskele.errors import NotFound
from triskele.types import Verdict

if TYPE_CHECKING:
    from triskele.replies.rooms import Proposal

SHOWN = 50
CONVERSATIONS = 20


def show(request: PageRequest) -> Response:
    """Show conflicts, the review queue, counts of use and conversations."""
    engine = request.engine
    proposals = engine.curation.proposals()
    conflicts = [each for each in proposals if each.kind is Verdict.CONFLICT]
    waiting = [each for each in proposals if each.kind is not Verdict.CONFLICT]
    stats, number = engine.stats(), request.number("page", 1, most=1_000)
    # One more than is shown, to know whether there is another page.
    conversations = engine.agents.conversations(limit=CONVERSATIONS + 1, offset=(number - 1) * CONVERSATIONS)
    memories = {memory.id: memory for memory in stats.used}
    sides = (side for each in (*conflicts, *waiting[:SHOWN]) for side in (each.new, each.old) if side)
    return page(
        request,
        "review.html",
        "Review",
        conflicts=conflicts,
        waiting=len(waiting),
        shown=waiting[:SHOWN],
        pieces_of=_pieces,
        verbs=VERBS,
        reasons_text=reasons_text,
        used=[(memories[each.id], each) for each in stats.most_used if each.id in memories],
        days=stats.days,
        conversations=conversations[:CONVERSATIONS],
        number=number,
        is_last=len(conversations) <= CONVERSATIONS,
        short=request.engine.shorten([*memories, *(side.id for side in sides)]),
    )


def conversation(request: PageRequest) -> Response:
    """What one conversation was given, and what each of it cost."""
    conversations = request.engine.agents.conversations(key=request.named("key"))
    if not conversations:
        raise NotFound("unknown conversation: conversations are kept for 30 days")
    injected = conversations[0].given
    memories = request.engine.lookup([each.id for each in injected])
    return page(
        request,
        "conversation.html",
        "Review",
        conversation=conversations[0],
        injected=[(memories.get(each.id), each) for each in injected],
        held=sum(each.tokens for each in injected if not each.lost),
        short=request.engine.shorten(list(memories)),
    )


def _pieces(proposal: Proposal) -> Sequence[Piece]:
    """The difference of the two texts of a proposal."""
    return difference(proposal.old.content, proposal.new.content) if proposal.old else []


def keep(request: PageRequest) -> Response:
    """Settle a conflict: keep this machine's version or the server's."""
    version = request.named("version")
    if version not in ("mine", "theirs"):
        raise NotFound("a conflict has two versions: mine and theirs")
    settle = request.engine.curation.reject if version == "mine" else request.engine.curation.accept
    settle(request.named("id"))
    return gone_to("/review", said="settled")


def accept(request: PageRequest) -> Response:
    """Carry a proposal out; the page offers to undo it."""
    return gone_to("/review", request.engine.curation.accept(request.named("id")).batch)


def reject(request: PageRequest) -> Response:
    """Drop a proposal for good."""
    request.engine.curation.reject(request.named("id"))
    return gone_to("/review", said="rejected")


ROUTES: tuple[PageRoute, ...] = (
    PageRoute("GET", "/review", show, title="Review"),
    PageRoute("GET", "/conversation/{key:path}", conversation),
    PageRoute("POST", "/review/{id}/accept", accept, WRITE),
    PageRoute("POST", "/review/{id}/keep/{version}", keep, WRITE),
    PageRoute("POST", "/review/{id}/reject", reject, WRITE),
)
