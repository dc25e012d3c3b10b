"""The page of an admin: users, their keys, and the newest lines of the audit log; no memories."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from starlette.responses import Response

from triskele.edge.http.keys import ADMIN, SCOPES, AccessKey, Quotas
from triskele.edge.web.rendering import PageRequest, PageRoute, fragment, gone_to, page
from triskele.errors import BadInput, NotFound
from triskele.server.tenants import Tenants, quotas_in_force
from triskele.text import timestamps

_LINES = 50
_MOST_DAYS = 36500
_QUOTAS = ("memories", "requests_per_minute", "model_tokens_per_day")


@dataclass(frozen=True, slots=True)
class ShownKey:
    """A key, whether it still opens anything, and whether this page was opened with it."""

    key: AccessKey
    state: str
    is_own: bool

    @property
    def is_open(self) -> bool:
        """Whether it can be revoked."""
        return self.state == ""


def show(asked: PageRequest) -> Response:
    """The page with all users and keys."""
    tenants = _tenants(asked)
    users = tenants.accounts.users()
    return page(
        asked,
        "admin.html",
        "admin",
        users=[(user, quotas_in_force(user.quotas, tenants.limits)) for user in users],
        keys=[_shown(each, asked) for each in reversed(tenants.accounts.keys())],
        scopes=SCOPES,
        lines=tenants.accounts.audit(limit=_LINES),
    )


def _shown(key: AccessKey, asked: PageRequest) -> ShownKey:
    is_over = key.expires_at is not None and key.expires_at <= timestamps.now()
    state = "revoked" if key.revoked_at is not None else "expired" if is_over else ""
    return ShownKey(key, state, key.id == asked.principal.key)


def create_user(asked: PageRequest) -> Response:
    """Add a user; a key is made for them next."""
    quotas = Quotas(*(_quota(asked, name) for name in _QUOTAS))
    name, is_admin = asked.text("name", most=64).strip(), bool(asked.text("is_admin", most=8))
    _tenants(asked).accounts.create_user(name, is_admin=is_admin, quotas=quotas)
    return gone_to("/admin", said="user")


def _quota(asked: PageRequest, name: str) -> int | None:
    text = asked.text(name, most=12).strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        raise BadInput("a quota is a whole number; empty leaves it to the settings of the server, 0 is no limit")
    return int(text)


def create_key(asked: PageRequest) -> Response:
    """Make a key and show it, once."""
    days = asked.number("days", 0, least=0, most=_MOST_DAYS)
    details: dict[str, Any] = {"label": asked.text("label", most=100), "scopes": tuple(asked.many("scope"))}
    if days:
        details["expires_at"] = timestamps.now() + timedelta(days=days)
    text, made = _tenants(asked).accounts.create_key(asked.text("user", most=64), **details)
    return fragment("_new_key.html", text=text, key=made)


def revoke_key(asked: PageRequest) -> Response:
    """End a key and its sessions at once."""
    _tenants(asked).accounts.revoke_key(asked.named("id"))
    return gone_to("/admin", said="revoked")


def _tenants(asked: PageRequest) -> Tenants:
    if not isinstance(asked.policy, Tenants):
        raise NotFound("there is no such page")
    return asked.policy


ROUTES: tuple[PageRoute, ...] = (
    PageRoute("GET", "/admin", show, ADMIN),
    PageRoute("POST", "/admin/users", create_user, ADMIN),
    PageRoute("POST", "/admin/keys", create_key, ADMIN),
    PageRoute("POST", "/admin/keys/{id}/revoke", revoke_key, ADMIN),
)
