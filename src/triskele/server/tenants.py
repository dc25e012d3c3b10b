"""A server with users: the user of a key, one engine for each user, quotas, and the audit log."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from triskele.config import ServerSettings, Settings
from triskele.edge.http.access import Access, AccessPolicy, Principal
from triskele.engine.background import DeferredWrites
from triskele.engine.local import LocalEngine
from triskele.errors import QuotaExceeded
from triskele.store import open as stores
from triskele.store.writer import MemoryLimits
from triskele.text import timestamps

if TYPE_CHECKING:
    from triskele.edge.http.access import Quotas
    from triskele.server.accounts import Accounts
    from triskele.server.keys import VerifiedKey
    from triskele.store.owner import Store

_MINUTE_S = 60.0


@dataclass(slots=True)
class _Window:
    """The requests of a user since a moment."""

    began: float
    count: int = 0


class Tenants(AccessPolicy):
    """The access policy of a server: one owner for each user of the database."""

    has_users = True

    def __init__(self, settings: Settings, accounts: Accounts, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.accounts = accounts
        self._settings = settings
        self._clock = clock
        self._mutex = threading.Lock()
        self._store: Store | None = None
        self._engines: OrderedDict[str, LocalEngine] = OrderedDict()
        self._opening: dict[str, threading.Lock] = {}
        self._windows: dict[str, _Window] = {}
        self._to_curate: dict[str, LocalEngine] = {}
        # Not the queue of an engine: a write waits until that one is empty.
        self.after_writes = DeferredWrites()
        self.after_writes.start()
        self._is_closed = False

    @property
    def limits(self) -> ServerSettings:
        """The quotas of users without their own."""
        return self._settings.server

    def verify(self, key: str) -> Principal | None:
        """The user of a key; None if it is not valid."""
        verified = self.accounts.verify(key)
        return None if verified is None else _principal(verified)

    def sign_in(self, key: str, most_s: float) -> tuple[str, float, Principal] | None:
        """A browser session for a key: its text, how long it lasts and whose it is; None for an invalid key."""
        verified = self.accounts.verify(key)
        if verified is None:
            return None
        text, ends = self.accounts.open_session(verified.key, timedelta(seconds=most_s))
        return text, (ends - timestamps.now()).total_seconds(), _principal(verified)

    def session(self, text: str) -> Principal | None:
        """The user of a browser session, with the scopes that the key has now; None if it has ended."""
        verified = self.accounts.session(text)
        return None if verified is None else _principal(verified)

    def sign_out(self, text: str) -> None:
        """End a browser session."""
        self.accounts.end_session(text)

    def engine_of(self, principal: Principal) -> LocalEngine:
        """The memory of a user; on a socket of this machine, that of the owner of the settings."""
        return self.engine(self._settings.memory.owner if principal.user is None else principal.user)

    def engine(self, user: str) -> LocalEngine:
        """The memory of a user by name, opened on demand; the one that was used least recently is closed."""
        with self._mutex:
            opening = self._opening.setdefault(user, threading.Lock())
        with opening:
            with self._mutex:
                if (current := self._engines.get(user)) is not None:
                    self._engines.move_to_end(user)
                    return current
            opened = self._opened(user)
            with self._mutex:
                self._engines[user] = opened
                spare = max(0, len(self._engines) - self._settings.server.open_memories)
                dropped = [self._engines.popitem(last=False)[1] for _ in range(spare)]
        for engine in dropped:
            # A request may still use it: none takes as long.
            later = threading.Timer(_MINUTE_S, _close, [engine])
            later.daemon = True
            later.start()
        return opened

    def _opened(self, user: str) -> LocalEngine:
        memory = replace(self._settings.memory, owner=user)
        # The root folder has no project: every request names its own.
        engine = LocalEngine(replace(self._settings, memory=memory), Path(Path.cwd().anchor), store=self._shared())
        engine.work_in_background()
        return engine

    def _shared(self) -> Store:
        with self._mutex:
            if self._store is None:
                self._store = stores.open_store(self._settings, limits=MemoryLimits(self.limits.memories_per_user))
            return self._store

    def admit(self, principal: Principal) -> None:
        """Count a request of a user in this minute."""
        most = _limit(principal.quotas.requests_per_minute, self.limits.requests_per_minute)
        user = principal.user or ""
        with self._mutex:
            now = self._clock()
            window = self._windows.setdefault(user, _Window(now))
            if now - window.began >= _MINUTE_S:
                window.began, window.count = now, 0
            window.count += 1
            wait_s = window.began + _MINUTE_S - now
            is_over = bool(most) and window.count > most
        if is_over:
            raise QuotaExceeded(f"more than {most:,} requests in a minute: wait", remedy=str(max(1, round(wait_s))))

    def admit_models(self, principal: Principal) -> None:
        """Refuse questions once the day's tokens of hosted models are used up."""
        most = _limit(principal.quotas.model_tokens_per_day, self.limits.model_tokens_per_day)
        if not most:
            return
        spent = self.engine_of(principal).upkeep.hosted_tokens_today()
        if spent >= most:
            raise QuotaExceeded(f"{spent:,} tokens of hosted models were used today, the quota is {most:,}: wait a day")

    def wrote(self, principal: Principal) -> None:
        """Let curation compare what a user wrote with what is near, once the answer is out."""
        engine = self.engine_of(principal)
        with self._mutex:
            self._to_curate[engine.settings.memory.owner] = engine
        self.after_writes.put(self._curate)

    def _curate(self) -> None:
        """Curate for all who wait, one at a time: questions of people need the processor and the connections."""
        while (engine := self._next_to_curate()) is not None:
            # A bounded step: what is left of a large import follows with the next writes.
            engine.upkeep.curate_new()

    def _next_to_curate(self) -> LocalEngine | None:
        with self._mutex:
            if self._is_closed or not self._to_curate:
                return None
            return self._to_curate.pop(next(iter(self._to_curate)))

    def audit(self, access: Access) -> None:
        """Add a request to the audit log."""
        self.accounts.note(
            user=access.principal.user or "",
            key=access.principal.key,
            operation=access.operation,
            target=access.target,
            status=access.status,
            address=access.address,
        )

    def open_memories(self) -> list[LocalEngine]:
        """The memories of users that are open now."""
        with self._mutex:
            return list(self._engines.values())

    def drop(self, user: str) -> None:
        """Close the memory of a user that is erased."""
        with self._mutex:
            engine = self._engines.pop(user, None)
        if engine is not None:
            _close(engine)

    @classmethod
    def open(cls, settings: Settings) -> Tenants:
        """The users of the database of the settings."""
        # Imported here: the driver is an extra.
        from triskele.server.accounts import Accounts

        return cls(settings, Accounts(settings.store.url))

    def close(self) -> None:
        """Close every memory and connection."""
        with self._mutex:
            self._is_closed = True
            engines, self._engines = list(self._engines.values()), OrderedDict()
        self.after_writes.close()
        for engine in engines:
            _close(engine)
        if self._store is not None:
            self._store.close()
        self.accounts.close()


def _principal(found: VerifiedKey) -> Principal:
    allowed = set(found.key.scopes) - (set() if found.user.is_admin else {"admin"})
    return Principal(found.user.name, found.key.id, frozenset(allowed), found.user.quotas)


def _limit(own: int | None, usual: int) -> int:
    return usual if own is None else own


def _close(engine: LocalEngine) -> None:
    with suppress(Exception):
        engine.close()


def quotas_in_force(quotas: Quotas, limits: ServerSettings) -> dict[str, int]:
    """The quotas of a user, with the server's quotas as defaults; 0 is no limit."""
    return {
        "memories": _limit(quotas.memories, limits.memories_per_user),
        "requests_per_minute": _limit(quotas.requests_per_minute, limits.requests_per_minute),
        "model_tokens_per_day": _limit(quotas.model_tokens_per_day, limits.model_tokens_per_day),
    }
