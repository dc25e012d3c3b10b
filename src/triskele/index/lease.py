"""Work that one process of a store does at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from triskele.store.protocols import OwnerStore

# The key of the only job of its kind.
_KEY = "lease"


@contextmanager
def alone(store: OwnerStore, work: str, lease_s: float, *, wait: bool) -> Iterator[bool]:
    """Be the only process at some work for a while; False if another one is. The lease of a killed one runs out."""
    began = time.monotonic()
    is_alone = bool(store.jobs.claim(work, lease_s=lease_s, wait=wait))
    if not is_alone:
        # The first process makes the job; one that another has claimed stays as it is.
        store.jobs.add(work, [_KEY])
        is_alone = bool(store.jobs.claim(work, lease_s=lease_s, wait=wait))
    try:
        yield is_alone
    finally:
        # After the lease it may be another's.
        if is_alone and time.monotonic() - began < lease_s:
            store.jobs.release(work, [_KEY])
