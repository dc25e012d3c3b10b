"""The page of an admin: users, keys and audit log."""

from __future__ import annotations

from starlette.responses import Response

from triskele.edge.http.access import ADMIN, MAX_DAYS, SCOPES, Quotas, check_expiry
from triskele.edge.web.rendering import PageRequest, PageRoute, fragment, gone_to, page
from triskele.errors import BadInput, NotFound
from triskele.server.keys import AccessKey
from triskele.server.tenants import Tenants, quotas_in_force
from triskele.text import timestamps

_LINES = 50
_QUOTAS = ("memories", "requests_per_minute", "model_tokens_per_day")


def show(request: PageRequest) -> Response:
    """The page with all users and keys."""
    tenants = _tenants(request)
    users = tenants.accounts.users()
    return page(
        request,
        "admin.html",
        "Users",
        users=[(user, quotas_in_force(user.quotas, tenants.limits)) for user in users],
        keys=[(key, _state(key)) for key in reversed(tenants.accounts.keys())],
        own_key=request.principal.key,
        scopes=SCOPES,
        lines=tenants.accounts.audit(limit=_LINES),
    )


def _state(key: AccessKey) -> str:
    """Why a key can no longer be used; empty if it can."""
    is_over = key.expires_at is not None and key.expires_at <= timestamps.now()
    return "revoked" if key.revoked_at is not None else "expired" if is_over else ""


def create_user(request: PageRequest) -> Response:
    """Add a user; a key is made for them next."""
    quotas = Quotas(*(_quota(request, name) for name in _QUOTAS))
    name, is_admin = request.text("name", most=64).strip(), bool(request.text("is_admin", most=8))
    _tenants(request).accounts.create_user(name, is_admin=is_admin, quotas=quotas)
    return gone_to("/admin", said="user")


def _quota(request: PageRequest, name: str) -> int | None:
    text = request.text(name, most=12).strip()
    if text and not (text.isascii() and text.isdigit()):
        raise BadInput("a quota is a whole number; empty leaves it to the settings of the server, 0 is no limit")
    return int(text) if text else None


def create_key(request: PageRequest) -> Response:
    """Make a key and show it, once."""
    user, label, scopes = request.text("user", most=64), request.text("label", most=100), tuple(request.many("scope"))
    ends = check_expiry(request.number("days", 0, least=0, most=MAX_DAYS) or None, None)
    text, key = _tenants(request).accounts.create_key(user, label=label, scopes=scopes, expires_at=ends)
    return fragment("_new_key.html", text=text, key=key)


def revoke_key(request: PageRequest) -> Response:
    """End a key and its sessions at once."""
    _tenants(request).accounts.revoke_key(request.named("id"))
    return gone_to("/admin", said="revoked")


def _tenants(request: PageRequest) -> Tenants:
    if not isinstance(request.policy, Tenants):
        raise NotFound("there is no such page")
    return request.policy


ROUTES: tuple[PageRoute, ...] = (
    PageRoute("GET", "/admin", show, ADMIN, title="Users"),
    PageRoute("POST", "/admin/users", create_user, ADMIN),
    PageRoute("POST", "/admin/keys", create_key, ADMIN),
    PageRoute("POST", "/admin/keys/{id}/revoke", revoke_key, ADMIN),
)
