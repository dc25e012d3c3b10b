"""A memory elsewhere: `Engine` over HTTP, with equal values and errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from copy import copy
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar
from urllib.parse import quote, urlencode

from triskele import __version__
from triskele.edge.error_messages import raised_again, store_elsewhere
from triskele.edge.http import codec
from triskele.edge.http.connections import (
    CLIENT_HEADER,
    OK,
    POSITION_HEADER,
    PRIVATE_HEADER,
    PROJECT_HEADER,
    REPORT_HEADER,
    VERSION_HEADER,
    Connection,
    Reply,
    ResidentConnection,
    ServerConnection,
)
from triskele.edge.http.operations import BY_METHOD, Operation
from triskele.engine.protocol import Agents, Concepts, Curation, Engine, Sharing
from triskele.errors import AccessDenied, BadInput, NotFound, TriskeleError, Unavailable
from triskele.requests import MAX_BATCH
from triskele.text import folders
from triskele.types import EVERYWHERE, USER, Injection
from triskele.validation import check_drafts, check_name, check_path, check_texts

if TYPE_CHECKING:
    from triskele.config import Settings
    from triskele.edge.hook.client import Address
    from triskele.replies.rooms import HookCall
    from triskele.requests import Draft
    from triskele.types import MemoryView, Outcome

_HOOK_PATIENCE_S = 10.0
# A process that starts answers when its store is open.
_START_S = 30.0
# A transfer may take as long as it moves.
_TRANSFER_S = 600.0
_NO_CONTENT, _UNAUTHORIZED = 204, 401
# How a server of another version may refuse unknown operations.
_UNKNOWN_TO_OTHERS = (404, 405, 409, 422)
_PIECE = 65536
# Lists over a query string: one text would pass for a list.
_LISTS = ("tags", "legs", "sensitivities", "origins", "add_tags", "remove_tags")

NO_HEADERS: Mapping[str, str] = {}
_JSON = {"Content-Type": "application/json"}

Value = TypeVar("Value")
Method = TypeVar("Method", bound=Callable[..., Any])


def forwarded(method: Method, *, placed: bool = False) -> Method:
    """Return a method that sends its arguments; `placed` adds the project."""

    @wraps(method)
    def forward(room: RemoteEngine | _Room, *arguments: Any, **options: Any) -> Any:
        engine, operation = room.engine, BY_METHOD[method]
        named = operation.named(*arguments, **options)
        return engine.send(operation, engine.in_project(named) if placed else named)

    # It has the type of the method, except for the class of `self`.
    untyped: Any = forward
    typed: Method = untyped
    return typed


class RemoteEngine:
    """A memory behind a connection; it refuses upkeep."""

    def __init__(
        self, connection: Connection, *, project: str = "", address: str = "", settings: Settings | None = None
    ) -> None:
        self.url = connection.url
        self.address = address or connection.url
        self.project = project
        self.actor = USER
        self.connection = connection
        self._settings = settings
        self._headers = {"User-Agent": f"triskele/{__version__}"}
        # Shared by those who act as others.
        self._position: dict[str, str] = {}

    def __enter__(self) -> Self:
        self.connection.refuse_closed()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    @property
    def engine(self) -> RemoteEngine:
        """The memory itself, as of its rooms."""
        return self

    @property
    def settings(self) -> Settings:
        """The settings of this machine, if the memory was opened with them."""
        if self._settings is None:
            raise store_elsewhere(self.url)
        return self._settings

    @property
    def upkeep(self) -> NoReturn:
        """Refuse what only the owner of the store can do."""
        raise store_elsewhere(self.url)

    def acting_as(self, actor: str, *, reads_private: bool = True) -> Self:
        """Return the same memory for another actor."""
        other = copy(self)
        other.actor = actor
        private = "yes" if reads_private else "no"
        client = quote(actor.removeprefix("client:"))
        other._headers = {**self._headers, CLIENT_HEADER: client, PRIVATE_HEADER: private}
        return other

    def working_in(self, folder: Path, project: str | None = None) -> Self:
        """Return the same memory for a project or a folder's name."""
        other = copy(self)
        # Folders are of this machine: on a server a project goes by the name of its folder.
        name = project or next(iter(folders.discover(folder).names()))
        other.project = check_name(name, "the project")
        return other

    # What the rows of the table say

    remember = forwarded(Engine.remember, placed=True)
    edit = forwarded(Engine.edit)
    forget = forwarded(Engine.forget)
    erase = forwarded(Engine.erase)
    restore = forwarded(Engine.restore)
    seal = forwarded(Engine.seal)
    reveal = forwarded(Engine.reveal)
    link = forwarded(Engine.link)
    unlink = forwarded(Engine.unlink)
    undo = forwarded(Engine.undo, placed=True)
    recall = forwarded(Engine.recall, placed=True)
    why_not = forwarded(Engine.why_not, placed=True)
    related = forwarded(Engine.related, placed=True)
    get = forwarded(Engine.get)
    browse = forwarded(Engine.browse, placed=True)
    journal = forwarded(Engine.journal)
    stats = forwarded(Engine.stats)
    export_memories = forwarded(Engine.export_memories)
    import_memories = forwarded(Engine.import_memories)

    def remember_all(self, drafts: Sequence[Draft]) -> list[Outcome]:
        """Store up to 100 memories in one transaction."""
        placed = [self.in_project(draft) for draft in check_drafts(drafts)]
        outcomes: list[Outcome] = self.send(BY_METHOD[Engine.remember_all], {"drafts": placed})
        return outcomes

    def lookup(self, ids: Iterable[str]) -> dict[str, MemoryView]:
        """Read the last versions of memories by their whole ids; unknown ones are left out."""
        return self._in_batches(Engine.lookup, ids)

    def shorten(self, ids: Iterable[str]) -> dict[str, str]:
        """Give the shortest unique prefix of each id, for display."""
        return self._in_batches(Engine.shorten, ids)

    # Rooms

    @property
    def concepts(self) -> Concepts:
        """The concept graph."""
        return _RemoteConcepts(self)

    @property
    def curation(self) -> Curation:
        """The review queue."""
        return _RemoteCuration(self)

    @property
    def agents(self) -> Agents:
        """What agents are given."""
        return _RemoteAgents(self)

    @property
    def sharing(self) -> Sharing:
        """Shares with other users."""
        return _RemoteSharing(self)

    def answer_hook(self, call: HookCall) -> Injection:
        """Send an event without the paths of this machine."""
        from triskele.agents.respond import is_answered

        patience_s = _HOOK_PATIENCE_S if call.deadline_s is None else call.deadline_s
        # A transcript does not leave this machine, so a server learns nothing from the end of a turn.
        if not is_answered(call) or call.event == "stop" or patience_s <= 0:
            return Injection()
        event = {
            "prompt": call.prompt,
            "session_id": call.session,
            "source": call.source,
            "reason": call.reason,
            "agent_id": call.agent,
        }
        # The way back takes time too: what comes late must not count as given.
        headers = {"X-Triskele-Deadline-Ms": f"{patience_s * 800:.0f}", PROJECT_HEADER: quote(self._project_of(call))}
        if call.sees_private or (self._settings and self._settings.agents.shows_private_to(call.client)):
            headers[PRIVATE_HEADER] = "yes"
        body = json.dumps(event).encode()
        reply = self._request("POST", f"/hook/{call.event}", headers=headers | _JSON, body=body, wait_s=patience_s)
        if reply.status not in (OK, _NO_CONTENT):
            raise self._raised(reply)
        return Injection(reply.content.decode("utf-8", "replace"))

    def _project_of(self, call: HookCall) -> str:
        """The named project, or the name of the agent's folder."""
        named = call.project or (self._settings.project if self._settings else "") or ""
        path = Path(call.folder)
        try:
            if named or path.is_absolute():
                return self.working_in(path, named or None).project
        except (OSError, ValueError, RuntimeError, BadInput):
            return EVERYWHERE
        return EVERYWHERE

    # Requests

    def in_project(self, options: Any) -> dict[str, Any]:
        """The options, with this memory's project if they name none."""
        is_named = options.get("project") is not None or options.get("all_projects")
        return {**options} if is_named else {**options, "project": self.project}

    def _in_batches(self, method: Callable[..., dict[str, Value]], ids: Iterable[str]) -> dict[str, Value]:
        wanted, values = sorted(set(ids)), dict[str, Value]()
        for start in range(0, len(wanted), MAX_BATCH):
            values |= self.send(BY_METHOD[method], {"ids": wanted[start : start + MAX_BATCH]})
        return values

    def send(self, operation: Operation, options: Mapping[str, Any]) -> Any:
        """Carry out an operation; an option that is absent is not sent."""
        self.connection.refuse_closed()
        lists = {name: check_texts(options[name], name) for name in _LISTS if options.get(name) is not None}
        named = {**options, **lists}
        file = check_path(named.pop(operation.file)) if operation.file else None
        path, rest = operation.fill(codec.to_json(named))
        headers, body, wait_s = NO_HEADERS, b"", _TRANSFER_S if file else 0
        if operation.has_body:
            headers, body = _JSON, json.dumps(rest, ensure_ascii=False).encode("utf-8", "surrogatepass")
        elif query := _query(rest):
            path = f"{path}?{query}"
        if operation.takes_file:
            # Notes that name no project get this memory's.
            headers = {PROJECT_HEADER: quote(self.project)}
        target = file if operation.gives_file else None
        with _pieces(file) if file and not target else nullcontext(body) as content:
            reply = self._request(operation.verb, path, headers=headers, body=content, wait_s=wait_s, target=target)
        if reply.status != OK:
            raise self._raised(reply)
        if position := reply.headers.get(POSITION_HEADER.lower()):
            # Another instance may answer next, and must have replayed the write.
            self._position[POSITION_HEADER] = position
        report = reply.headers.get(REPORT_HEADER.lower(), "")
        try:
            document = json.loads(report if target else reply.content.decode("utf-8", "replace"))
            return codec.from_json(operation.reply, document)
        except ValueError as error:
            hint = _other_version(reply) or "is it a triskele server?"
            raise Unavailable(f"{self.url} answered something else: {hint}") from error

    def _request(self, verb: str, path: str, *, headers: Mapping[str, str] = NO_HEADERS, **details: Any) -> Reply:
        return self.connection.request(verb, path, headers={**self._headers, **self._position, **headers}, **details)

    def _raised(self, reply: Reply) -> TriskeleError:
        """The error of a reply; an error that only another version explains names the version."""
        error = raised_again(reply.status, reply.content, reply.reason)
        if reply.status == _UNAUTHORIZED:
            return AccessDenied(
                f"{self.url} does not accept the key: it is wrong, expired or revoked; ask an admin for another one"
            )
        is_unknown = reply.status in _UNKNOWN_TO_OTHERS
        if is_unknown and not isinstance(error, NotFound) and (hint := _other_version(reply)):
            return Unavailable(f"{self.url} refused the request ({error}): {hint}")
        return error


class _Room:
    """A part of the memory on a server."""

    def __init__(self, engine: RemoteEngine) -> None:
        self.engine = engine


class _RemoteConcepts(_Room):
    show = forwarded(Concepts.show, placed=True)
    path = forwarded(Concepts.path, placed=True)
    overview = forwarded(Concepts.overview)
    neighbourhood = forwarded(Concepts.neighbourhood)
    merge = forwarded(Concepts.merge)
    split = forwarded(Concepts.split)


class _RemoteCuration(_Room):
    proposals = forwarded(Curation.proposals)
    accept = forwarded(Curation.accept)
    reject = forwarded(Curation.reject)


class _RemoteAgents(_Room):
    digest = forwarded(Agents.digest, placed=True)
    conversations = forwarded(Agents.conversations)

    def respond(self, call: HookCall) -> Injection:
        return self.engine.answer_hook(call)


class _RemoteSharing(_Room):
    shares = forwarded(Sharing.shares)
    share = forwarded(Sharing.share)
    unshare = forwarded(Sharing.unshare)
    trust = forwarded(Sharing.trust)
    groups = forwarded(Sharing.groups)


def _other_version(reply: Reply) -> str:
    """A sentence about the server's version if it differs."""
    version = reply.headers.get(VERSION_HEADER.lower(), __version__)
    if version == __version__:
        return ""
    return f"it runs triskele {version[:20]}, this is {__version__}; upgrade the older one"


def connect(url: str, key: str, *, project: str = "", settings: Settings | None = None) -> RemoteEngine:
    """Open the memory on a server, in a project."""
    return RemoteEngine(ServerConnection(url, key), project=project, settings=settings)


def connect_resident(address: Address, path: str, headers: Mapping[str, str]) -> RemoteEngine | None:
    """Open the memory in the background process; None if it refuses at this path to answer."""
    connection = ResidentConnection(address, headers)
    try:
        reply = connection.request("POST", path, {}, wait_s=_START_S)
        details = json.loads(reply.content) if reply.status == OK else None
    except (Unavailable, ValueError):
        return None
    return None if details is None else RemoteEngine(connection, **details)


def _query(options: Mapping[str, Any]) -> str:
    """Options as a query string; what is None is left out."""
    words = {name: json.dumps(value) if isinstance(value, bool) else value for name, value in options.items()}
    return urlencode({name: value for name, value in words.items() if value is not None}, doseq=True)


@contextmanager
def _pieces(path: Path) -> Iterator[Iterator[bytes]]:
    """Open a file for a request that sends it."""
    if path.is_dir():
        raise BadInput(f"a server takes one file at a time, and {path} is a folder: import its files")
    with path.open("rb") as file:
        yield iter(partial(file.read, _PIECE), b"")


if TYPE_CHECKING:
    _implements: type[Engine] = RemoteEngine
