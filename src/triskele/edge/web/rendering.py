"""Requests of browsers, their viewers, templates and responses."""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from functools import cache, cached_property
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import parse_qs, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from triskele import __version__
from triskele.edge.cli.view import plural, size
from triskele.edge.error_messages import error_line
from triskele.edge.http.access import ADMIN, ANONYMOUS, PRINCIPAL, READ, AccessPolicy, Principal
from triskele.edge.http.problems import problem_of
from triskele.edge.process import connect
from triskele.edge.web.sessions import HEADERS, PREFIX
from triskele.errors import BadInput, Conflict, TriskeleError
from triskele.text import timestamps
from triskele.types import LASTING, Action

if TYPE_CHECKING:
    from triskele.engine.local import LocalEngine
    from triskele.engine.protocol import Engine
    from triskele.types import Facets

MAX_TEXT = 4000
_FOREVER = {"Cache-Control": "private, max-age=31536000, immutable"}
_AGES = (("y", 365 * 86400), ("mo", 30 * 86400), ("d", 86400), ("h", 3600), ("min", 60))
_NOTES = {
    "unchanged": "Nothing changed.",
    "settled": "Settled; the server knows it after the next sync.",
    "rejected": "Rejected; it will not be proposed again.",
    "user": "Added a user. Make a key for them next.",
    "revoked": "Revoked; the key and its sessions no longer work.",
    "duplicate": "This text is already stored as this memory.",
    "raised": "This text is already stored as this memory; its origin is user now.",
}
_DONE = {
    Action.ADDED: "Added",
    Action.EDITED: "Edited",
    Action.FORGOTTEN: "Forgot",
    Action.RESTORED: "Restored",
    Action.LINKED: "Linked",
    Action.UNLINKED: "Unlinked",
    Action.SEALED: "Sealed",
    Action.REVEALED: "Revealed",
    Action.SHARED: "Shared",
    Action.UNSHARED: "No longer shared",
}


@dataclass(frozen=True)
class PageRequest:
    """A request of a browser, with the memory of its user."""

    policy: AccessPolicy
    principal: Principal
    http: Request
    body: bytes = b""

    @cached_property
    def engine(self) -> LocalEngine:
        """The memory of the user who sends the request."""
        return connect.store_of(self.policy.engine_of(self.principal))

    @cached_property
    def values(self) -> Mapping[str, list[str]]:
        """The fields of the query and of the form."""
        query = parse_qs(self.http.url.query, keep_blank_values=True)
        return {**query, **parse_qs(self.body.decode("utf-8", "replace"), keep_blank_values=True)}

    def text(self, name: str, default: str = "", *, most: int = MAX_TEXT) -> str:
        """One field; longer ones are refused."""
        value = self.values.get(name, [default])[-1]
        if len(value) > most:
            raise BadInput(f"{name} may have at most {most:,} characters")
        return value

    def many(self, name: str) -> list[str]:
        """All values of a field, without empty ones."""
        return [each for each in self.values.get(name, []) if each]

    def number(self, name: str, default: int, *, least: int = 1, most: int = 200) -> int:
        """A whole number between two bounds."""
        text = self.text(name)
        return min(max(int(text), least), most) if text.isascii() and text.isdigit() and len(text) < 10 else default

    def named(self, name: str) -> str:
        """A parameter of the path."""
        return str(self.http.path_params[name])


@dataclass(frozen=True)
class PageForm:
    """Fields of a form, each named as in the address of its page; the project may be empty: everywhere."""

    @classmethod
    def of(cls, request: PageRequest) -> Self:
        """Read an address or a form; empty fields have their defaults."""
        usual = {each.name: each.default for each in fields(cls) if isinstance(each.default, str)}
        texts = {name: request.text(name, default).strip() for name, default in usual.items()}
        return cls(**{name: text for name, text in texts.items() if text or name == "project"})

    def values(self) -> dict[str, Any]:
        """The fields that differ from the default."""
        return {each.name: value for each in fields(self) if (value := getattr(self, each.name)) != each.default}


Handler = Callable[[PageRequest], Response]


class PageRoute(NamedTuple):
    """Which function answers an address below /ui, and the scope it needs.

    `title` is its name in the navigation; a page without one is not listed. `is_local`: only on a personal machine.
    `has_content`: the navigation lists it only if this holds.
    """

    method: str
    path: str
    handler: Handler
    scope: str = READ
    is_local: bool = False
    title: str = ""
    has_content: Callable[[PageRequest], bool] | None = None

    @property
    def key(self) -> str:
        """The key that opens it, after `g`."""
        return self.title[:1].lower()

    def is_offered_to(self, viewer: Principal) -> bool:
        """Whether the navigation lists it; only a server has users to administer."""
        if viewer.user is None:
            return self.scope != ADMIN
        return not self.is_local and (self.scope != ADMIN or viewer.may(ADMIN))


@cache
def environment() -> Environment:
    """The templates, which escape every value."""
    templates = Environment(
        loader=PackageLoader("triskele.edge.web", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {each.__name__: each for each in (age, day, moment, pairs, plural, query, size)}
    templates.filters["count"] = "{:,}".format
    templates.globals |= {"static": static, "prefix": PREFIX, "version": __version__}
    return templates


def page(request: PageRequest, template: str, active: str, *, status: int = 200, **values: Any) -> Response:
    """Render a page; after a change it offers to undo it."""
    batch, note = request.text("done", most=64), request.text("said", most=20)
    plain = {"text": _NOTES[note], "can_undo": False} if note in _NOTES else None
    notice = change_notice(request.engine, batch) if batch else plain
    values |= {"active": active, "notice": notice, "viewer": request.principal, "request": request}
    return fragment(template, status=status, **values)


def fragment(template: str, *, status: int = 200, headers: Mapping[str, str] | None = None, **values: Any) -> Response:
    """A page, or a part of one."""
    text = environment().get_template(template).render(values)
    return Response(text, status, {**HEADERS, **(headers or {})}, "text/html")


def gone_to(path: str, batch: str = "", **query_values: str) -> Response:
    """Send the browser to a page that reports a batch."""
    values = query({**query_values, **({"done": batch} if batch else {})})
    return Response(status_code=204, headers={**HEADERS, "HX-Redirect": f"{PREFIX}{path}{values}"})


def failure(request: Request, error: TriskeleError) -> Response:
    """Render an error as a notice for scripts, else as a page."""
    status = 409 if isinstance(error, Conflict) else problem_of(error).status
    message = error_line(error)
    if request.headers.get("hx-request") == "true":
        headers = {"HX-Retarget": "#notice", "HX-Reswap": "innerHTML"}
        return fragment("_error.html", status=status, headers=headers, message=message)
    viewer = request.scope[PRINCIPAL] or ANONYMOUS
    return fragment("error.html", status=status, active="", notice=None, viewer=viewer, message=message, code=status)


def facets_of(engine: Engine) -> Facets:
    """How many current memories each project, category, origin and tag has."""
    facets = engine.browse(all_projects=True, limit=1, facets=True).facets
    assert facets is not None
    return facets


def change_notice(engine: Engine, batch: str) -> dict[str, Any] | None:
    """What a batch did, in words; None for an unknown one."""
    entries = engine.journal(batch=batch, limit=10_000).entries[::-1]
    if not entries:
        return None
    ids_by_verb: dict[str, set[str]] = {}
    for entry in entries:
        ids_by_verb.setdefault(_DONE.get(entry.action, str(entry.action)), set()).add(entry.id)
    first, *rest = (f"{done} {plural(len(ids), 'memory')}" for done, ids in ids_by_verb.items())
    summary = ", ".join([first, *(part[0].lower() + part[1:] for part in rest)])
    can_undo = any(entry.action not in {*LASTING, Action.ERASED} for entry in entries)
    is_undo = entries[0].undoes is not None
    return {"text": f"Undone: {summary}" if is_undo else summary, "batch": batch, "can_undo": can_undo}


@cache
def _static_files() -> dict[str, tuple[bytes, str, str]]:
    """Bytes, type and hash of each static file, by name."""
    folder = resources.files(__package__).joinpath("static")
    files = [*folder.iterdir(), *folder.joinpath("vendor").iterdir()]
    contents = {each.name: each.read_bytes() for each in files if each.name.endswith((".js", ".css", ".svg"))}
    return {
        name: (data, mimetypes.guess_type(name)[0] or "application/octet-stream", hashlib.sha256(data).hexdigest()[:12])
        for name, data in contents.items()
    }


def static(name: str) -> str:
    """The address of a static file; it changes with the content."""
    return f"{PREFIX}/static/{name}?v={_static_files()[name][2]}"


def static_file(name: str) -> Response:
    """A static file, which browsers may keep."""
    file = _static_files().get(name)
    if file is None:
        return Response("There is no such file.", 404, HEADERS)
    data, kind, _ = file
    return Response(data, headers={**HEADERS, **_FOREVER, "Content-Type": f"{kind}; charset=utf-8"})


def age(value: datetime) -> str:
    """How long ago, in one unit, with the moment as its title."""
    seconds = (timestamps.now() - value).total_seconds()
    text = next((f"{int(seconds // length)} {unit}" for unit, length in _AGES if seconds >= length), "now")
    return _time("age", f"{value:%Y-%m-%dT%H:%MZ}", text)


def day(value: datetime | str | None) -> str:
    """A date."""
    text = value[:10] if isinstance(value, str) else "" if value is None else f"{value:%Y-%m-%d}"
    return _time("day", text, text) if text else ""


def moment(value: datetime | None) -> str:
    """A date and the time of the day, in UTC without a script."""
    return "" if value is None else _time("moment", f"{value:%Y-%m-%dT%H:%MZ}", f"{value:%Y-%m-%d %H:%M}")


def _time(form: str, iso: str, text: str) -> Markup:
    """A time that a script shows in a form of the browser's locale."""
    return Markup('<time datetime="{}" data-as="{}">{}</time>').format(iso, form, text)


def pairs(values: Iterable[Any]) -> list[tuple[str, str]]:
    """Values of a list of choices that are shown as they are."""
    return [(str(value), str(value)) for value in values]


def query(values: Mapping[str, Any]) -> str:
    """Fields as the query of an address, without empty ones."""
    named = {name: value for name, value in values.items() if value not in ("", None, [], ())}
    return f"?{urlencode(named, doseq=True)}" if named else ""
