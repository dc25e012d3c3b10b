"""The review queue: what curation would change, or keep, until the user accepts or rejects it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from triskele.curation.decide import PairDecision, changes_of
from triskele.errors import AmbiguousId, BadInput, Conflict, NotFound
from triskele.ingest import with_told_period
from triskele.replies.rooms import Proposal, Rationale
from triskele.store.rows import LATER_COLUMNS
from triskele.store.values import Document
from triskele.text import timestamps
from triskele.types import CURATION, Add, Memory, Origin, Outcome, Role, Verdict, is_client, is_secret

if TYPE_CHECKING:
    from triskele.store.access import StoreAccess

_OPEN, _REJECTED, _ACCEPTED = "proposal", "proposal-rejected", "proposal-accepted"
# More than anyone reviews; further ones are found again by `triskele curate`.
MOST = 1000
_MOST_REJECTED = 10_000
_ID_CHARACTERS = 10
# Named here: inside the class `list` is a method.
Outcomes = list[Outcome]
# The details of a captured memory that its document keeps besides the text.
_KEPT = ("category", "project", "origin", "session", *LATER_COLUMNS, "importance")


class Proposals:
    """The queue of one memory."""

    def __init__(self, access: StoreAccess) -> None:
        self._access = access
        self._documents = access.store.documents

    def list(self) -> list[Proposal]:
        """What waits for a review, oldest first; what its memories outdated is dropped."""
        values: Mapping[str, Any] = self._documents.all(_OPEN)
        ids = {id for value in values.values() for id in (value["new"], value["old"]) if id}
        memories = self._access.store.memories(ids)
        retired = self._access.superseded(sorted(ids)) if ids else set()
        current = {id: memory for id, memory in memories.items() if id not in retired}
        # A memory that was replaced can still be forgotten.
        memories_of = {key: memories if value["kind"] == Verdict.FORGET else current for key, value in values.items()}
        read = {key: self._read(key, value, memories_of[key]) for key, value in values.items()}
        if outdated := [key for key, proposal in read.items() if proposal is None]:
            self._documents.delete(_OPEN, outdated)
        return sorted((each for each in read.values() if each is not None), key=lambda each: (each.created, each.id))

    def get(self, reference: str) -> Proposal:
        """One proposal by its id or the beginning of it."""
        fitting = [each for each in self.list() if reference and each.id.startswith(reference)]
        if not fitting:
            raise NotFound(f"no proposal {reference}: `triskele review list` shows those that wait")
        if len(fitting) > 1 and reference not in {each.id for each in fitting}:
            raise AmbiguousId(f"{reference} fits several proposals: {', '.join(each.id for each in fitting)}")
        return next((each for each in fitting if each.id == reference), fitting[0])

    def accept(self, reference: str, *, batch: str | None = None) -> Outcomes:
        """Apply a proposal as a batch of the journal, which can be undone; clients cannot accept."""
        if is_client(self._access.actor):
            raise Conflict("only the user accepts proposals: `triskele review`")
        proposal = self.get(reference)
        curation, value = self._access.acting_as(CURATION), self._documents.get(_OPEN, proposal.id)
        if proposal.is_stored:
            decision = PairDecision(proposal.kind, proposal.new, proposal.old, proposal.confidence, proposal.reasons)
            outcomes = curation.apply(changes_of(decision), batch=batch)
        else:
            outcomes = curation.apply([Add(self._drafted(value))], batch=batch)
        about = sorted({id for id in (value["new"], value["old"]) if id} | {each.id for each in outcomes})
        written_batch = next((each.batch for each in outcomes if each.batch), None)
        self._keep_accepted(proposal.id, value, written_batch, about)
        self._documents.delete(_OPEN, [proposal.id])
        return outcomes

    def undone(self, batch: str, outcomes: Iterable[Outcome]) -> None:
        """Bring the proposals back that were accepted in an undone batch; if it was itself such an undo, accept again.

        `outcomes` come from the undo.
        """
        accepted: Mapping[str, Any] = self._documents.all(_ACCEPTED)
        by = next((each.batch for each in outcomes if each.batch), None)
        if undone := {key: each for key, each in accepted.items() if each["batch"] == batch}:
            opened = {
                each["proposal"]: Document(
                    {**each["value"], "undone_by": by, "about": each["about"]}, about=each["about"]
                )
                for each in undone.values()
            }
            self._documents.put(_OPEN, opened)
            self._documents.delete(_ACCEPTED, list(undone))
        waiting: Mapping[str, Any] = self._documents.all(_OPEN)
        again = {key: value for key, value in waiting.items() if value.get("undone_by") == batch}
        for key, value in again.items():
            self._keep_accepted(key, value, by, value["about"])
        if again:
            self._documents.delete(_OPEN, list(again))

    def _keep_accepted(self, id: str, value: Mapping[str, Any], batch: str | None, about: Sequence[str]) -> None:
        """Keep an accepted proposal, so that an undo of the batch can bring it back."""
        if batch is not None:
            # It may hold the text: it goes when one of these memories is erased or sealed.
            document = Document({"proposal": id, "batch": batch, "value": value, "about": about}, about=about)
            # By time: the newest are kept.
            self._documents.put(_ACCEPTED, {f"{timestamps.to_text(timestamps.now())} {id}": document}, most=MOST)

    def reject(self, reference: str) -> None:
        """Drop a proposal; the same one is not made again."""
        proposal = self.get(reference)
        about = [each.id for each in (proposal.new, proposal.old) if each is not None and proposal.is_stored]
        value = {"at": timestamps.to_text(timestamps.now())}
        self._documents.put(_REJECTED, {proposal.id: Document(value, about=about)}, most=_MOST_REJECTED)
        self._documents.delete(_OPEN, [proposal.id])

    def offer(self, decisions: Iterable[PairDecision]) -> int:
        """Queue decisions for a review; those known or rejected before are left out. Returns how many are new."""
        offered = {}
        for decision in decisions:
            value = _value(decision.verdict, decision.confidence, decision.reasons, new=decision.new, old=decision.old)
            offered[_key_of(decision)] = Document(value, about=[memory.id for memory in decision.memories])
        return self._put(offered)

    def is_rejected(self, decision: PairDecision) -> bool:
        """Whether the user has rejected the same."""
        return bool(self._documents.some(_REJECTED, [_key_of(decision)]))

    def offer_texts(self, drafts: Iterable[tuple[Memory, float, tuple[Rationale, ...]]]) -> int:
        """Queue captured texts; a secret is refused, because only the vault may hold it. Returns how many are new."""
        offered = {}
        for memory, confidence, reasons in drafts:
            if is_secret(memory):
                raise BadInput("a secret cannot wait in the queue: store or drop it")
            value = _value(Verdict.ADD, confidence, reasons)
            value["text"] = memory.content
            value["details"] = {name: getattr(memory, name) for name in _KEPT if getattr(memory, name) is not None}
            value["details"]["created_at"] = timestamps.to_text(memory.created_at)
            offered[_key(Verdict.ADD, memory.project, memory.content)] = Document(value)
        return self._put(offered)

    def _put(self, offered: dict[str, Document]) -> int:
        earlier = {*self._documents.some(_OPEN, offered), *self._documents.some(_REJECTED, offered)}
        room = MOST - len(self._documents.all(_OPEN)) if offered else 0
        fresh = {key: value for key, value in offered.items() if key not in earlier}
        queued = dict(list(fresh.items())[: max(room, 0)])
        if queued:
            self._documents.put(_OPEN, queued)
        return len(queued)

    def _read(self, key: str, value: Mapping[str, Any], current: Mapping[str, Memory]) -> Proposal | None:
        old = None
        if value["kind"] == Verdict.ADD:
            new: Memory | None = replace(self._drafted(value), id=key)
        else:
            new, old = (_as_proposed(current, value, side) for side in ("new", "old"))
            if old is None and value["old"]:
                return None
        if new is None:
            return None
        return Proposal(
            id=key,
            kind=Verdict(value["kind"]),
            new=new,
            old=old,
            reasons=tuple(Rationale(*reason) for reason in value["reasons"]),
            confidence=value["confidence"],
            created=timestamps.parse(value["created"]),
        )

    def _drafted(self, value: Mapping[str, Any]) -> Memory:
        details = dict(value["details"])
        details["origin"] = Origin(details["origin"])
        details["role"] = Role(details["role"]) if details.get("role") else None
        return with_told_period(self._access.draft(value["text"], **details))


def _as_proposed(current: Mapping[str, Memory], value: Mapping[str, Any], side: str) -> Memory | None:
    """The memory of a proposal, if its text is still the one that was compared."""
    memory = current.get(value[side])
    return memory if memory is not None and memory.content_hash == value[f"{side}_hash"] else None


def _value(
    verdict: Verdict,
    confidence: float,
    reasons: tuple[Rationale, ...],
    *,
    new: Memory | None = None,
    old: Memory | None = None,
) -> dict[str, Any]:
    return {
        "kind": verdict.value,
        "new": new.id if new else None,
        "new_hash": new.content_hash if new else None,
        "old": old.id if old else None,
        "old_hash": old.content_hash if old else None,
        "confidence": round(confidence, 3),
        "reasons": [list(reason) for reason in reasons],
        "created": timestamps.to_text(timestamps.now()),
    }


def _key_of(decision: PairDecision) -> str:
    return _key(decision.verdict, *(part for memory in decision.memories for part in (memory.id, memory.content_hash)))


def _key(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:_ID_CHARACTERS]
