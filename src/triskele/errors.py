"""Everything that triskele raises on purpose.

TriskeleError
├── BadInput                 the caller's text or options; exit code 2
│   ├── NotFound             no such memory
│   ├── AmbiguousId          a prefix that fits several
│   └── UnknownEvent         a hook event that triskele does not answer
├── Conflict                 the change does not fit what is stored; exit code 1
│   └── NotAllowed           the memory is another user's, and the share does not allow the change
└── Unavailable              a dependency cannot serve; exit code 3
    ├── StoreUnavailable     the store is busy, read-only or full
    │   ├── StoreClosed      the memory was used after it was closed
    │   ├── StoreDamaged     the file is damaged, or not a database
    │   ├── StoreNewer       a newer version of triskele wrote the file
    │   └── StoreOlder       triskele wrote the file before its first release
    ├── IndexUnavailable     a derived index can be neither read nor rebuilt
    ├── ModelUnavailable     a model file is missing, damaged or returns invalid values
    │   └── EndpointUnavailable  (models/egress.py) a hosted service does not answer as it should
    ├── VaultLocked          the key of the vault is missing, or the passphrase is wrong
    ├── VaultDamaged         (privacy/key_sources.py) a sealed text or the document of the keys was altered
    ├── QuotaExceeded        a quota of the user on a server is used up
    └── AccessDenied         a server refuses the key
"""

from __future__ import annotations

# The remedy of a refused undo: the batch to undo instead, behind these letters.
IN_BATCH = "batch "
# What is wrong with a store or backup from before the first release, and how its memories get into a new store.
BEFORE_RELEASE = (
    "was written before the first release: run `triskele export FILE --private --with-secrets` with the checkout that"
    " wrote it, and `triskele import FILE --keep-origin` with this one into a new store"
)


class TriskeleError(Exception):
    """The base of all errors that a caller may catch; `remedy` is what to do next, for interfaces that show it."""

    def __init__(self, message: str = "", *, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy


class BadInput(TriskeleError):
    """The text or the options given cannot be used as they are."""


class NotFound(BadInput):
    """No memory with this id or prefix."""


class AmbiguousId(BadInput):
    """The prefix fits more than one memory."""


class UnknownEvent(BadInput):
    """No hook event has this name."""


class Conflict(TriskeleError):
    """The change does not fit what is stored now."""


class NotAllowed(Conflict):
    """The memory is another user's, and the share does not allow the change."""


class Unavailable(TriskeleError):
    """Something that triskele depends on cannot serve."""


class StoreUnavailable(Unavailable):
    """The store is busy, read-only or full."""


class StoreClosed(StoreUnavailable):
    """The store was used after it was closed."""


class StoreDamaged(StoreUnavailable):
    """The store's file is broken, or no database at all."""


class StoreNewer(StoreUnavailable):
    """A newer version of triskele wrote the store."""


class StoreOlder(StoreUnavailable):
    """Triskele wrote the store before its first release."""


class VaultLocked(Unavailable):
    """The key is not available: a wrong passphrase, or a key file or keyring entry missing or open to others."""


class AccessDenied(Unavailable):
    """The key is missing, unknown, expired or revoked, or its scopes do not allow the request."""


class QuotaExceeded(Unavailable):
    """A quota of the user is used up: memories, requests a minute or model tokens."""


class IndexUnavailable(Unavailable):
    """A derived index can be neither read nor rebuilt."""


class ModelUnavailable(Unavailable):
    """A model file is missing, damaged or gives no usable answer."""
