"""What the vault raises: it cannot be opened, or what it keeps was altered."""

from __future__ import annotations

from triskele.errors import Unavailable


class VaultLocked(Unavailable):
    """The key cannot be had: a wrong passphrase, or a key file or keyring entry that is gone or open to others."""


class VaultDamaged(Unavailable):
    """A sealed content or the document of the keys was altered, cut off or belongs elsewhere."""


STAYS = "titles, tags and every other memory stay readable"


def lost(what: str, advice: str) -> VaultLocked:
    """The error of a key that is gone: what to do, what is lost without it and what is not."""
    return VaultLocked(f"{what}: {advice}; without it the contents of secret memories cannot be read, {STAYS}")
