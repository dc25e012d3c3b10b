"""Senders of requests, their scopes, and policies that admit them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from triskele.errors import AccessDenied, BadInput
from triskele.text import timestamps
from triskele.validation import check_when, check_whole

if TYPE_CHECKING:
    from datetime import datetime

    from triskele.engine.protocol import Engine
    from triskele.requests import Moment

READ, WRITE, REVEAL, ADMIN = "read", "write", "reveal", "admin"
SCOPES = (READ, WRITE, REVEAL, ADMIN)
MAX_DAYS = 36_500
# Where the guard puts the principal of a request, and whether only processes of this user reach the listener.
PRINCIPAL, IS_OWNER = "triskele.principal", "triskele.is_owner"


@dataclass(frozen=True, slots=True)
class Quotas:
    """What one user may use; None leaves it to the settings of the server, 0 is no limit."""

    memories: int | None = None
    requests_per_minute: int | None = None
    model_tokens_per_day: int | None = None


# The quotas of the server's settings.
USUAL_QUOTAS = Quotas()


@dataclass(frozen=True, slots=True)
class Principal:
    """The sender of a request; no user on a personal machine."""

    user: str | None
    key: str
    scopes: frozenset[str]
    quotas: Quotas = USUAL_QUOTAS

    def may(self, scope: str) -> bool:
        """Whether the scopes of the key allow this one."""
        return scope in self.scopes

    def require(self, scope: str) -> None:
        """Refuse what the scopes of the key do not allow."""
        if not self.may(scope):
            raise AccessDenied(f"this key lacks the scope {scope}", remedy=f"use a key with the scope {scope}")


# The owner of a personal machine, who proved it with the token or by reaching an owner-only socket.
OWNER = Principal(None, "owner", frozenset(SCOPES))
ANONYMOUS = Principal(None, "", frozenset())
# What watches a server: it reads /health and /metrics, nothing of a memory.
PROBE = Principal(None, "probe", frozenset())


@dataclass(frozen=True, slots=True)
class Access:
    """A request for the audit log, without text of memories or questions."""

    principal: Principal
    operation: str
    target: str
    status: int
    address: str

    @property
    def is_refused(self) -> bool:
        """Whether the key or a quota did not allow the request."""
        return self.status in (403, 429)


def check_expiry(days: int | None, expires_at: Moment | None) -> datetime | None:
    """The moment at which a new key ends; None without end."""
    if days is None:
        return check_when(expires_at)
    if expires_at is not None:
        raise BadInput("a key ends by days or expires_at, not both: leave one out")
    return timestamps.now() + timedelta(days=check_whole(days, "days", least=1, most=MAX_DAYS))


class AccessPolicy:
    """The checks around each request; these are of a personal machine: one owner, no quotas, no audit."""

    has_users = False

    def __init__(self, open_engine: Callable[[], Engine]) -> None:
        self._open_engine = open_engine

    def engine_of(self, principal: Principal) -> Engine:
        """The memory of the principal."""
        del principal
        return self._open_engine()

    def admit(self, principal: Principal) -> None:
        """Count a request; refuse it if the user has sent too many."""

    def admit_models(self, principal: Principal) -> None:
        """Refuse a question if today's tokens of hosted models are used up."""

    def wrote(self, principal: Principal) -> None:
        """Note that a request of the principal changed something."""

    def audit(self, access: Access) -> None:
        """Record a request that changed something, revealed something or was refused."""
