"""Sessions on a server, kept in its database for all instances."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyio import to_thread
from starlette.requests import Request

from triskele.edge.http.access import Access, Principal
from triskele.edge.web.sessions import SESSION_S, OpenedSession, PageSessions

if TYPE_CHECKING:
    from triskele.server.tenants import Tenants

_OPERATION = "sign_in"


class KeySessions(PageSessions):
    """Sessions of users; one ends when its key expires or is revoked."""

    signed_out_page = "sign-in.html"

    def __init__(self, tenants: Tenants) -> None:
        self._tenants = tenants

    async def opened(self, request: Request, proof: str) -> OpenedSession | None:
        """A session for a key, which the audit log notes."""
        return await to_thread.run_sync(self._opened, proof.strip(), request.client.host if request.client else "")

    def _opened(self, key: str, address: str) -> OpenedSession | None:
        session = self._tenants.sign_in(key, SESSION_S)
        if session is None:
            return None
        value, lasts_s, principal = session
        self._tenants.audit(Access(principal, _OPERATION, "", 204, address))
        return OpenedSession(value, lasts_s)

    async def principal(self, value: str) -> Principal | None:
        """The user of a session, with the present scopes of the key."""
        return await to_thread.run_sync(self._tenants.session, value) if value else None

    async def closed(self, value: str) -> None:
        """End a session on every instance."""
        await to_thread.run_sync(self._tenants.sign_out, value)
