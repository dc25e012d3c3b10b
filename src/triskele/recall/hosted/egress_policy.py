"""Which texts may leave: open memories that nothing withheld says too, and questions that quote nothing withheld."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from triskele.base.ids import content_hash
from triskele.errors import Unavailable
from triskele.privacy.clearance import Cleared, Quotes, clear_memory, clear_question
from triskele.privacy.detect import find
from triskele.privacy.encodings import readings
from triskele.stores.protocols import Cursor, OwnerStore, SealedRow
from triskele.stores.vault import StoreVault
from triskele.types import Memory, is_secret

QUOTES_SOMETHING = "the question stays here: it quotes something private, or holds a secret"

_Source = tuple[str, int, str] | SealedRow


class EgressPolicy:
    """Clears the texts of one store; after a change of it, what is new and must stay here is read."""

    def __init__(self, store: OwnerStore, safe: StoreVault) -> None:
        self._store = store
        self._safe = safe
        self._lock = threading.Lock()
        self._known: tuple[str, Cursor] | None = None
        self._private, self._secret, self._sealed = Quotes.of(()), Quotes.of(()), Quotes.of(())
        self._withheld: set[str] = set()
        self._read: set[_Source] = set()
        self._problem = ""

    def question(self, text: str) -> tuple[Cleared | None, str]:
        """The cleared question, or None with the reason why it stays here."""
        with self._lock:
            self._refresh()
            if self._problem:
                return None, f"the question stays here: {self._problem}"
            cleared = None if self._secret.shares(text) else clear_question(text, self._private)
        return cleared, "" if cleared is not None else QUOTES_SOMETHING

    def memory(self, memory: Memory) -> Cleared | None:
        """The text of an open memory, unless it looks like or quotes a secret, or one that stays here says the same."""
        with self._lock:
            self._refresh()
            # One word of a short secret gives a question away; a memory may hold it for any other reason.
            is_known = memory.content_hash in self._withheld or self._sealed.shares(memory.content)
            if self._problem or is_known or find(memory.content):
                return None
            return clear_memory(memory)

    def quotes_secret(self, text: str) -> bool:
        """Whether a text tells of a secret, or nobody can tell."""
        with self._lock:
            self._refresh()
            return bool(self._problem) or self._secret.shares(text) or any(map(find, readings(text)))

    def _refresh(self) -> None:
        now = (self._store.epoch(), self._store.position())
        if now == self._known:
            return
        withheld = self._store.models.withheld()
        texts: dict[_Source, str] = {(each.id, each.version, each.content_hash): each.content for each in withheld}
        rows = self._store.sealed() if any(map(is_secret, withheld)) else []
        if not self._read <= {*texts, *rows}:
            # Something is gone for good: nobody need take heed of it any more.
            self._private, self._secret, self._sealed = Quotes.of(()), Quotes.of(()), Quotes.of(())
            self._withheld, self._read = set(), set()
        self._read_sealed([row for row in rows if row not in self._read])
        self._private.add(text for source, text in texts.items() if source not in self._read)
        self._withheld |= {memory.content_hash for memory in withheld if not is_secret(memory)}
        self._read |= texts.keys()
        self._known = None if self._problem else now

    def _read_sealed(self, rows: Sequence[SealedRow]) -> None:
        try:
            # Whoever asks a question is not asked for a passphrase.
            with self._safe.unasked():
                opened = [self._safe.open(row) for row in rows]
        except Unavailable as error:
            # Nobody can tell whether a text quotes a secret that cannot be read.
            self._problem = str(error)
            return
        self._problem = ""
        self._secret.add_secrets(opened)
        self._sealed.add(opened)
        self._withheld |= set(map(content_hash, opened))
        self._read |= set(rows)
