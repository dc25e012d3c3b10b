"""Which questions may leave: those that quote nothing private or secret."""

from __future__ import annotations

import threading

from triskele.errors import Unavailable
from triskele.privacy.clearance import Cleared, clear_question
from triskele.privacy.quotes import Quotes
from triskele.safe import Safe
from triskele.stores.protocol import SealedRow, Store
from triskele.types import is_secret

QUOTES_SOMETHING = "the question stays here: it quotes something private, or holds a secret"

_Source = tuple[str, int, str] | SealedRow


class Clearing:
    """Clears the questions of one store; after a change of it, what is new and must stay here is read."""

    def __init__(self, store: Store, safe: Safe) -> None:
        self._store = store
        self._safe = safe
        self._lock = threading.Lock()
        self._known: tuple[str, int] | None = None
        self._quotes = Quotes.of(())
        self._read: set[_Source] = set()
        self._problem = ""

    def question(self, text: str) -> tuple[Cleared | None, str]:
        """The cleared question, or None with the reason why it stays here."""
        with self._lock:
            self._refresh()
            if self._problem:
                return None, self._problem
            cleared = clear_question(text, self._quotes)
        return cleared, "" if cleared is not None else QUOTES_SOMETHING

    def _refresh(self) -> None:
        now = (self._store.lineage(), self._store.last_seq())
        if now == self._known:
            return
        withheld = self._store.models.withheld()
        texts: dict[_Source, str] = {(each.id, each.version, each.content_hash): each.content for each in withheld}
        rows = self._store.sealed() if any(map(is_secret, withheld)) else []
        if not self._read <= {*texts, *rows}:
            # Something is gone for good: nobody need take heed of it any more.
            self._quotes, self._read = Quotes.of(()), set()
        self._problem = ""
        try:
            self._quotes.add_secrets([self._safe.open(row) for row in rows if row not in self._read])
            self._read |= set(rows)
        except Unavailable as error:
            # Nobody can tell whether the question quotes a secret that cannot be read.
            self._problem = f"the question stays here: {error}"
        self._quotes.add(text for source, text in texts.items() if source not in self._read)
        self._read |= texts.keys()
        self._known = now
