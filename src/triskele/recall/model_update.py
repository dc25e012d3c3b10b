"""An update that replaced the bundled encoder: the earlier one answers until the new one may take its place."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from triskele.config import BUNDLED, Settings
from triskele.errors import IndexUnavailable, StoreUnavailable
from triskele.index.local import SemanticIndex
from triskele.index.worker import embed_lacking, reason_of, restore_tokens
from triskele.models.bundled import FittingEmbedder, earlier_weights, embedder_in
from triskele.recall.model_switch import Switched, is_set, settle_update, switched
from triskele.stores.derived import COMPARE, EMBED
from triskele.stores.protocols import Cursor, OwnerStore

# What a killed process compared waits as long; a comparison takes seconds, and two of them do no harm.
LEASE_S = 300.0
# These errors do not count as a try.
_NOT_THE_MODEL = (StoreUnavailable, IndexUnavailable, OSError)
# There is one update at a time.
_KEY = "update"
_READING = "an update brought another model: until it has read {}, answers use the vectors of the one before"
_COMPARING = (
    "an update brought another model: until the two are compared on your judged questions, the one before answers"
)


class UpdateComparison(Protocol):
    """What the judged questions say about the weights of an update; `gate` is None if they are too few."""

    @property
    def gate(self) -> object | None:
        """The conditions with their figures."""
        ...

    @property
    def is_not_worse(self) -> bool:
        """Whether they show no loss."""
        ...

    def evidence(self) -> dict[str, Any]:
        """The figures as they are kept with the switch."""
        ...


Compare = Callable[[SemanticIndex, SemanticIndex], UpdateComparison]


class ModelUpdate:
    """Earlier weights that have read a store, and the new ones that are to replace them.

    With `compare`, which compares the earlier with the new ones, only those may be that are not worse.
    """

    def __init__(
        self, store: OwnerStore, earlier: SemanticIndex, new: SemanticIndex, compare: Compare | None = None
    ) -> None:
        self._store = store
        self._compare = compare
        self._new = new
        self._embedded: Cursor | None = None
        self._refused: set[str] = set()
        # Those who compare embed first, and that ends here again.
        self._settling = threading.Lock()
        self.earlier = earlier

    @property
    def is_gated(self) -> bool:
        """Whether the earlier weights answer until the outcome of a comparison is noted."""
        return self._compare is not None

    def is_over(self) -> bool:
        """Whether the new weights answer from now on."""
        if not self.is_gated:
            return self._has_read_everything()
        last = switched(self._store)
        return last is not None and last.weights == self._new.embedder.fingerprint

    def _has_read_everything(self) -> bool:
        """Whether the new weights have read everything but what they refuse."""
        if self._store.vectors.count_waiting():
            return False
        # A process of the earlier version may have taken the queue: an empty one alone says nothing.
        lacking = self._store.models.count_lacking(self._new.embedder.fingerprint)
        return lacking <= len(self._store.jobs.given_up(EMBED))

    def progress(self) -> tuple[int, str]:
        """How many texts the weights that answer have not read, and what an answer says about the update."""
        seen = self._store.models.seen()
        ahead = seen.get(self.earlier.embedder.fingerprint, 0) - seen.get(self._new.embedder.fingerprint, 0)
        # Counted by the queue, which is cheap; a program of the earlier version may have taken it.
        left = max(self._store.vectors.count_waiting(), ahead)
        if not left and self.is_gated:
            return 0, _COMPARING
        return max(left - ahead, 0), _READING.format(f"{left:,} more text{'s' * (left != 1)}")

    def embed_first(self, limit: int | None, *, wait: bool = True) -> int:
        """Embed what the earlier weights lack, where they were kept: what is written meanwhile is found by meaning."""
        if isinstance(self.earlier.embedder, FittingEmbedder):
            return 0
        position = self._store.position()
        if position == self._embedded:
            return 0
        if self._embedded is None:
            # Noted before the new weights read anything: once they have read more, counts no longer tell of an update.
            self._store.jobs.add(COMPARE, [_KEY])
        done = embed_lacking(self._store, self.earlier, self._refused, limit=limit, wait=wait)
        if limit is None or done < limit:
            self._embedded = position
        return done

    def settle(self) -> bool:
        """Compare once everything is read, in one process, and note the outcome; False if there is nothing to do."""
        if self._compare is None or not self._settling.acquire(blocking=False):
            return False
        try:
            return not self.is_over() and self._has_read_everything() and self._settled(self._compare)
        finally:
            self._settling.release()

    def _settled(self, compare: Compare) -> bool:
        last, jobs = switched(self._store), self._store.jobs
        try:
            jobs.add(COMPARE, [_KEY])
            is_claimed = bool(jobs.claim(COMPARE, 1, lease_s=LEASE_S))
        except StoreUnavailable:
            # It is read-only, or busy: the next time will do.
            return False
        if not is_claimed:
            given_up = jobs.given_up(COMPARE)
            return bool(given_up) and self._note(last, {"problem": given_up[0].error}, is_worse=False)
        try:
            if self.is_over():
                # Another process was faster.
                jobs.complete(COMPARE, [_KEY])
                return True
            found = self._compared(compare)
            return self._note(last, found.evidence(), is_worse=found.gate is not None and not found.is_not_worse)
        except Exception as error:
            is_fault = not isinstance(error, _NOT_THE_MODEL)
            with suppress(StoreUnavailable):
                if is_fault:
                    jobs.fail(COMPARE, [_KEY], reason_of(error))
                else:
                    jobs.release(COMPARE, [_KEY])
            if not is_fault:
                raise
            # The job keeps the reason; what was asked for meanwhile is answered all the same.
            return False
        except BaseException:
            with suppress(StoreUnavailable):
                jobs.release(COMPARE, [_KEY])
            raise

    def _compared(self, compare: Compare) -> UpdateComparison:
        """The outcome with all vectors of both: erasing during an update removes token vectors of the earlier ones."""
        embed_lacking(self._store, self.earlier, self._refused)
        restore_tokens(self._store, self.earlier)
        return compare(self.earlier, self._new)

    def _note(self, last: Switched | None, evidence: dict[str, Any], *, is_worse: bool) -> bool:
        names = self.earlier.embedder.fingerprint, self._new.embedder.fingerprint
        # Where somebody switched meanwhile, that counts.
        settle_update(self._store, last, *names, evidence, is_worse=is_worse)
        self._store.jobs.complete(COMPARE, [_KEY])
        return True

    def close(self) -> None:
        """Release the files and the memory of the earlier weights."""
        self.earlier.close()


def begun(
    settings: Settings, folder: Path, store: OwnerStore, new: SemanticIndex, compare: Compare | None
) -> ModelUpdate | None:
    """The update that put `new` in force, if earlier weights have read more, or were kept and wait to be compared."""
    # Not by the queue: a store that cannot be written now has none for this model.
    seen, last = store.models.seen(), switched(store)
    own = seen.pop(new.embedder.fingerprint, 0)
    if last is not None:
        # Those that an earlier update brought, and that were found worse, never answered.
        seen.pop(last.weights if last.name != BUNDLED else "", None)
    is_settled = is_set(settings) or (last is not None and last.weights == new.embedder.fingerprint)
    is_waiting = bool(store.jobs.count(COMPARE) or store.jobs.given_up(COMPARE))
    ahead = {name: count for name, count in seen.items() if is_waiting or count >= own}
    for name, kept in earlier_weights(settings.home, ahead):
        is_gated = kept is not None and compare is not None and not is_settled
        if is_gated or seen[name] > own:
            before = FittingEmbedder(new.embedder, name) if kept is None else embedder_in(kept)
            earlier = SemanticIndex.of(before, folder, store, tail_cap=settings.index.tail_cap)
            return ModelUpdate(store, earlier, new, compare if is_gated else None)
    return None
