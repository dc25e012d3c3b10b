"""The review queue of a memory: proposals of curation, and conflicts of a sync."""

from __future__ import annotations

from triskele.curation.proposals import Proposals
from triskele.errors import BadInput, Conflict, NotFound
from triskele.replies.rooms import Proposal, Reviewed
from triskele.store.access import StoreAccess
from triskele.sync import CONFLICTS, notes
from triskele.text.ids import new_batch
from triskele.types import Sensitivity, Verdict, is_client


class LocalCuration:
    """The queue of one memory."""

    def __init__(self, engine: StoreAccess) -> None:
        self._engine = engine
        self._queue = Proposals(engine)

    def proposals(self, *, kind: str | None = None) -> list[Proposal]:
        """List pending proposals, oldest first; conflicts of a sync come first."""
        if kind is not None and kind not in tuple(Verdict):
            raise BadInput(f"unknown kind of proposal {kind[:40]!r}: choose one of {', '.join(Verdict)}")
        pending = [*notes.conflicts(self._engine.store), *self._queue.list()]
        hidden = None if self._engine.reads_private else Sensitivity.PRIVATE
        shown = [each for each in pending if hidden not in {side.sensitivity for side in (each.new, each.old) if side}]
        return [proposal for proposal in shown if kind in (None, proposal.kind)]

    def accept(self, *ids: str, above: float | None = None, batch: str | None = None) -> Reviewed:
        """Accept proposals in one batch, or as part of `batch`; of a conflict take the server's version.

        A proposal is skipped if one accepted before it replaced or forgot one of its memories.
        """
        if is_client(self._engine.actor):
            raise Conflict("only the user accepts proposals: `triskele review`")
        accepted, skipped = list[str](), list[str]()
        batch = batch or new_batch()
        for id in self._chosen(ids, above):
            (accepted if self._is_accepted(id, batch) else skipped).append(id)
        return Reviewed(accepted=tuple(accepted), skipped=tuple(skipped), batch=batch if accepted else "")

    def reject(self, *ids: str) -> Reviewed:
        """Reject proposals, which are not made again; of a conflict keep the version of this machine."""
        chosen = self._chosen(ids, None)
        for id in chosen:
            if self._is_conflict(id):
                notes.resolve(self._engine, id, keep_mine=True)
            else:
                self._queue.reject(id)
        return Reviewed(rejected=tuple(chosen))

    def _chosen(self, ids: tuple[str, ...], above: float | None) -> list[str]:
        """The whole ids of the proposals that a review names."""
        if bool(ids) == (above is not None):
            raise BadInput("give the ids of proposals, or the least confidence")
        if above is not None:
            return [proposal.id for proposal in self._queue.list() if proposal.confidence >= above]
        return list(dict.fromkeys(id if self._is_conflict(id) else self._queue.get(id).id for id in ids))

    def _is_conflict(self, id: str) -> bool:
        return bool(self._engine.store.documents.some(CONFLICTS, [id]))

    def _is_accepted(self, id: str, batch: str) -> bool:
        """Whether a proposal was carried out; one whose memories changed since it was read is not."""
        if self._is_conflict(id):
            notes.resolve(self._engine, id, keep_mine=False, batch=batch)
            return True
        try:
            self._queue.accept(id, batch=batch)
        except (Conflict, NotFound):
            return False
        return True
