"""The egress policy: open memories may leave, and queries and turns that quote nothing private or secret."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from triskele.errors import Unavailable
from triskele.privacy.clearance import ClearedText, Quotes, Shingles, clear_memory, clear_question, holds_word
from triskele.privacy.detect import find
from triskele.privacy.encodings import readings
from triskele.store.owner import OwnerStore
from triskele.store.values import Cursor, SealedRow
from triskele.store.vault import StoreVault
from triskele.text.ids import content_hash
from triskele.text.mentions import Kind, mentions
from triskele.types import Memory, Sensitivity, is_secret

QUOTES_SOMETHING = "the question is not sent: it quotes something private, or contains a secret"

_NAMES = frozenset({Kind.TITLE, Kind.NAME, Kind.PERSON, Kind.HOST, Kind.CODE, Kind.QUOTE})

_Source = tuple[str, int, str] | SealedRow


class EgressPolicy:
    """Decides which texts of one store may leave; after a change it reads what is new and withheld."""

    def __init__(self, store: OwnerStore, vault: StoreVault) -> None:
        self._store = store
        self._vault = vault
        self._lock = threading.Lock()
        self._known: tuple[str, Cursor] | None = None
        self._problem = ""
        self._begin()

    def _begin(self) -> None:
        self._private, self._secret, self._sealed = Quotes.of(()), Quotes.of(()), Quotes.of(())
        self._names, self._shingles = Quotes.of(()), Shingles()
        self._withheld: set[str] = set()
        self._read: set[_Source] = set()

    def question(self, text: str) -> tuple[ClearedText | None, str]:
        """The cleared query, or None with the reason why it stays on this machine."""
        with self._lock:
            self._refresh()
            if self._problem:
                return None, f"the question is not sent: {self._problem}"
            is_quoting = self._secret.shares(text) or self._tells_name(text)
            cleared = None if is_quoting else clear_question(text, self._private)
        return cleared, "" if cleared is not None else QUOTES_SOMETHING

    def memory(self, memory: Memory) -> ClearedText | None:
        """The text of an open memory; None if it looks like or quotes a secret, or nearly repeats a withheld text."""
        with self._lock:
            self._refresh()
            # One word of a short secret is enough to withhold a query; a memory may contain it for another reason.
            is_known = memory.content_hash in self._withheld or self._sealed.shares(memory.content)
            is_known = is_known or self._shingles.resembles(memory.content)
            if self._problem or is_known or find(memory.content):
                return None
            return clear_memory(memory)

    def quotes_secret(self, text: str) -> bool:
        """Whether a text quotes a secret; also true while the secrets cannot be read."""
        with self._lock:
            self._refresh()
            return bool(self._problem) or self._secret.shares(text) or any(map(find, readings(text)))

    def _tells_name(self, text: str) -> bool:
        """Whether a text contains a name that occurs only in withheld memories."""
        words = set(self._names.shared_words(text))
        # Rarely any: only then the open memories are read.
        for _, memory in self._store.versions() if words else ():
            if memory.sensitivity is Sensitivity.OPEN:
                words = {word for word in words if not holds_word(memory.content, word)}
                if not words:
                    break
        return bool(words)

    def _refresh(self) -> None:
        now = (self._store.epoch(), self._store.position())
        if now == self._known:
            return
        withheld = self._store.models.withheld()
        texts: dict[_Source, str] = {(each.id, each.version, each.content_hash): each.content for each in withheld}
        rows = self._store.sealed() if any(map(is_secret, withheld)) else []
        if not self._read <= {*texts, *rows}:
            # Something was erased: it need not be withheld any more.
            self._begin()
        self._read_sealed([row for row in rows if row not in self._read])
        fresh = [text for source, text in texts.items() if source not in self._read]
        self._private.add(fresh)
        self._shingles.add(fresh)
        # The title of a secret is made to be shown.
        private = {each.content for each in withheld if not is_secret(each)}.intersection(fresh)
        self._names.add_names(each.text for text in private for each in mentions(text) if each.kind in _NAMES)
        self._withheld |= {memory.content_hash for memory in withheld if not is_secret(memory)}
        self._read |= texts.keys()
        self._known = None if self._problem else now

    def _read_sealed(self, rows: Sequence[SealedRow]) -> None:
        try:
            # A recall never asks for a passphrase.
            with self._vault.unasked():
                opened = [self._vault.open(row) for row in rows]
        except Unavailable as error:
            # Whether a text quotes a secret that cannot be read is unknown.
            self._problem = str(error)
            return
        self._problem = ""
        self._secret.add_secrets(opened)
        self._sealed.add(opened)
        self._shingles.add(opened)
        self._withheld |= set(map(content_hash, opened))
        self._read |= set(rows)
