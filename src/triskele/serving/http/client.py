"""A memory on a server: the everyday methods of `Engine`, with the same values and the same errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from urllib.parse import quote, urlsplit

import httpx

from triskele import __version__
from triskele.config import Settings
from triskele.curation.decide import PairDecision
from triskele.curation.projects import project_of
from triskele.curation.undo import UndoPlan
from triskele.errors import BadInput, NotFound, StoreClosed, TriskeleError, Unavailable
from triskele.exchange.records import ExportReport, ImportReport
from triskele.ingest import Drafter
from triskele.recall.why_not import WhyNot
from triskele.serving import shapes
from triskele.serving.error_messages import only_at_the_store
from triskele.serving.http import replies
from triskele.serving.http.bodies import MAX_BATCH
from triskele.serving.http.mount import (
    CLIENT_HEADER,
    POSITION_HEADER,
    PRIVATE_HEADER,
    PROJECT_HEADER,
    REPORT_HEADER,
    VERSION_HEADER,
)
from triskele.serving.http.problems import AccessDenied, raised_again
from triskele.serving.http.remote_store import RemoteStore
from triskele.serving.http.replies import adapter
from triskele.serving.statistics import MoreStatistics
from triskele.stores.protocols import Census
from triskele.types import USER, Answer, JournalEntry, Link, Memory, Outcome, Sort
from triskele.validation import FilePath, check_kind, check_name, check_path, check_text, check_texts

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_TIMEOUT_S = 60.0
# A transfer may take as long as it moves.
_TRANSFER = httpx.Timeout(60.0, write=600.0, read=600.0)

# How a server of another version may refuse unknown operations.
_UNKNOWN_TO_OTHERS = (404, 405, 409, 422)

# In the query of an address one text would pass for a list.
_LISTS = ("tags", "legs", "sensitivities", "origins")

Value = TypeVar("Value")


class RemoteMemory:
    """A memory on a server; what only the owner of the store can do is refused with a hint."""

    def __init__(
        self,
        url: str,
        key: str,
        *,
        project: str = "",
        settings: Settings | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.url = checked_address(url)
        self.project = project
        self.actor = USER
        self._settings = settings
        self._told = {"User-Agent": f"triskele/{__version__}"}
        headers = {"Authorization": f"Bearer {_checked_key(key)}"}
        # The environment is not read: a variable set in a project's folder could redirect requests.
        self._http = httpx.Client(
            base_url=self.url, headers=headers, timeout=_TIMEOUT_S, trust_env=False, transport=transport
        )

    def __enter__(self) -> RemoteMemory:
        self._refuse_closed()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise only_at_the_store(self.url)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    @property
    def settings(self) -> Settings:
        """The settings of this machine, if the memory was opened with them."""
        return self.__getattr__("settings") if self._settings is None else self._settings

    def acting_as(self, actor: str) -> RemoteMemory:
        """The same memory; the journal names this client instead of the user."""
        other = copy(self)
        other.actor = actor
        other._told = {**self._told, CLIENT_HEADER: quote(actor.removeprefix("client:"))}
        return other

    def working_in(self, folder: Path, named: str | None = None) -> RemoteMemory:
        """The same memory; its project is the named one, or that of this folder."""
        other = copy(self)
        other.project = check_name(named, "the project") if named else project_of(self.store, folder)  # type: ignore[arg-type]
        return other

    # The server does the embedding and indexing.

    def embed(self, **_: object) -> int:
        """Nothing to embed here."""
        self._refuse_closed()
        return 0

    def work_in_background(self) -> None:
        """Nothing to do here."""
        self._refuse_closed()

    # Writing

    def remember(self, content: str, *, supersedes: str | None = None, **details: Any) -> Outcome:
        """Store one memory durably; details are those of `Engine.remember`."""
        body = {**self._written(details), "content": content, "supersedes": supersedes}
        return self.asked(Outcome, "POST", "/v1/memories", json=body)

    def remember_all(self, memories: Iterable[Mapping[str, Any]]) -> list[Outcome]:
        """Store up to 100 memories in one transaction, each given by its `content` and details."""
        listed = list(memories)
        if not all(isinstance(each, Mapping) for each in listed):
            raise BadInput("each of the memories must be a dictionary with its `content`")
        body = {"memories": [self._written(each) for each in listed]}
        return self.asked(list[Outcome], "POST", "/v1/batch", json=body)

    def draft(self, content: str, **details: Any) -> Memory:
        """A checked memory that is not stored yet."""
        return Drafter(self.settings.memory, self.project).draft(content, **details)

    def draft_pieces(self, text: str, *, position: int | None = None, **details: Any) -> list[Mapping[str, Any]]:
        """A longer text as several memories for `remember_all`."""
        pieces = Drafter(self.settings.memory, self.project).pieces(text, details.pop("sensitivity", None))
        if len(pieces) > MAX_BATCH:
            raise BadInput(f"the text has {len(pieces):,} paragraphs, a server takes {MAX_BATCH} at once: import it")
        places = [None if position is None else position + place for place in range(len(pieces))]
        return [
            {**details, "content": piece, "sensitivity": kind, "position": place}
            for place, (piece, kind) in zip(places, pieces, strict=True)
        ]

    def edit(self, reference: str, **changes: Any) -> Outcome:
        """Change a memory's content or details; the older version stays in the history."""
        return self.asked(Outcome, "PATCH", _one(reference), json=_listed(changes))

    def forget(self, *references: str) -> list[Outcome]:
        """Stop recalling these memories; history and undo keep them."""
        return self.asked(list[Outcome], "POST", "/v1/forget", json={"ids": references})

    def erase(self, *references: str) -> list[Outcome]:
        """Remove these memories for good; backups made before keep them."""
        return [self.asked(Outcome, "DELETE", _one(each), params={"hard": True}) for each in references]

    def restore(self, reference: str) -> Outcome:
        """Bring a forgotten memory back."""
        return self.asked(Outcome, "POST", f"{_one(reference)}/restore")

    def reveal(self, reference: str) -> str:
        """The text of a secret; the journal notes that it was shown."""
        return self.asked(replies.SecretReply, "POST", f"{_one(reference)}/reveal").text

    def link(self, source: str, kind: str, target: str) -> Outcome:
        """Link two memories."""
        return self.asked(Outcome, "POST", "/v1/links", json=_tie(source, kind, target))

    def unlink(self, source: str, kind: str, target: str) -> Outcome:
        """Close a link; the history keeps it."""
        return self.asked(Outcome, "DELETE", "/v1/links", params=_tie(source, kind, target))

    def undo(self, batch: str | None = None, *, project: str | None = None, **wider: bool) -> list[Outcome]:
        """Undo a batch, or the last change to the project."""
        body = {"batch": batch, "project": self._place(project), **wider}
        return self.asked(list[Outcome], "POST", "/v1/undo", json=body)

    def undo_plan(self, batch: str | None = None, **wider: bool) -> UndoPlan:
        """What an undo would take back; the changes themselves are the server's."""
        params = given({"batch": batch, "project": self.project, **wider})
        found = self.asked(replies.UndoReply, "GET", "/v1/undo", params=params)
        versions = {(memory.id, memory.version): memory for memory in found.versions}
        return UndoPlan(found.entries, (), versions)

    def hook(self, event: str, payload: Mapping[str, str], *, sees_private: bool, timeout_s: float) -> str:
        """The text that a hook event gives an agent, in one request; `payload` names the project."""
        # The way back takes time too: what comes late must not count as given.
        headers = {"X-Triskele-Deadline-Ms": f"{timeout_s * 800:.0f}", PROJECT_HEADER: quote(self.project)}
        headers |= {PRIVATE_HEADER: "yes"} if sees_private else {}
        with self._errors():
            answer = self._http.post(
                f"/hook/{event}", json=dict(payload), headers={**self._told, **headers}, timeout=timeout_s
            )
        if answer.status_code not in (httpx.codes.OK, httpx.codes.NO_CONTENT):
            raise self._raised(answer)
        return answer.text

    # Reading

    def recall(self, text: str, *, project: str | None = None, **options: Any) -> Answer:
        """The memories that answer a question, each with its reasons; options are those of `Engine.recall`."""
        body = {**given(options), "query": text, "project": self._place(project)}
        return replies.to_answer(self.asked(replies.RecallReply, "POST", "/v1/recall", json=body))

    def why_not(self, reference: str, text: str, *, project: str | None = None, **options: Any) -> WhyNot:
        """Why a memory is not among the hits of this recall, and what would bring it there."""
        body = {**given(options), "id": reference, "query": text, "project": self._place(project)}
        return replies.to_why_not(self.asked(replies.WhyNotReply, "POST", "/v1/why-not", json=body))

    def browse(self, *, sort: str = Sort.RECENCY, project: str | None = None, **filters: Any) -> list[Memory]:
        """Memories of a scope, newest or most important first; at most 200 at a time."""
        asked = {**given(filters), "sort": sort, "project": self._place(project)}
        page = self.asked(replies.PageReply, "GET", "/v1/memories", params=asked)
        return [replies.to_memory(each) for each in page.memories]

    def get(self, reference: str) -> Memory:
        """The current version of a memory, or the last one of a forgotten one."""
        return replies.to_memory(self._shown(reference))

    def resolve(self, reference: str) -> str:
        """The id that starts with a prefix."""
        return self._shown(reference).id

    def versions(self, reference: str) -> list[Memory]:
        """Every version of a memory, oldest first."""
        return list(self._history(reference).versions)

    def history(self, reference: str) -> list[JournalEntry]:
        """What happened to a memory, oldest first."""
        return list(self._history(reference).entries)

    def links(self, reference: str) -> list[Link]:
        """The links of a memory, in either direction."""
        return self.asked(list[Link], "GET", f"{_one(reference)}/links")

    def related(self, memory: Memory, *, is_stored: bool = True) -> list[PairDecision]:
        """What a memory repeats, extends or contradicts, as the server finds it; the surest first."""
        body = {"id": memory.id} if is_stored else {"content": memory.content, "project": memory.project}
        found = self.asked(list[replies.RelatedReply], "POST", "/v1/related", json=body)
        return [PairDecision(each.verdict, memory, replies.to_memory(each.memory), each.confidence) for each in found]

    def superseded(self, ids: Iterable[str]) -> set[str]:
        """Those of these memories that another one replaces."""
        return {each.id for each in self.lookup(ids) if each.superseded}

    # Copies of the store, and what left it for hosted models, are known only to the server.

    erased_copies: tuple[Path, ...] = ()

    def earlier_copies(self) -> list[Path]:
        """No copies of the store on this machine."""
        return []

    def out_of_reach(self) -> list[str]:
        """What an erasure cannot reach, in words."""
        return [f"backups and write-ahead logs of {self.url}"]

    def sent(self, _: str) -> list[str]:
        """Nothing left this machine for a hosted model."""
        return []

    @property
    def after_answer(self) -> RemoteStore:
        """What would be written after an answer."""
        return self.store

    @property
    def store(self) -> RemoteStore:
        """Further reads that commands need."""
        return RemoteStore(self)

    def census(self) -> Census:
        """Counts of what is stored."""
        return _census(self.asked(replies.CensusReply, "GET", "/v1/stats", params={"more": False}))

    def statistics(self) -> tuple[Census, MoreStatistics]:
        """Counts of memories, and further statistics."""
        counted = self.asked(replies.CensusReply, "GET", "/v1/stats")
        if counted.more is None:
            raise Unavailable(f"{self.url} answered something else: is it a triskele server?")
        return _census(counted), counted.more

    # Transfer

    def export_memories(
        self,
        target: FilePath,
        *,
        include_private: bool = False,
        with_secrets: bool = False,
        current_only: bool = False,
    ) -> ExportReport:
        """Write all memories to a new file, one JSON record a line."""
        path = check_path(target)
        params = {"private": include_private, "with_secrets": with_secrets, "current_only": current_only}
        details: dict[str, Any] = {"params": params, "headers": self._told, "timeout": _TRANSFER}
        with self._errors(), self._http.stream("GET", "/v1/export", **details) as answer:
            if answer.status_code != httpx.codes.OK:
                answer.read()
                raise self._raised(answer)
            with path.open("xb") as file:
                for piece in answer.iter_bytes():
                    file.write(piece)
            return self._read(ExportReport, answer, answer.headers.get(REPORT_HEADER, "").encode())

    def import_memories(
        self,
        source: FilePath,
        *,
        format: str = "jsonl",
        dry_run: bool = False,
        project: str | None = None,
        keep_origin: bool = False,
    ) -> ImportReport:
        """Import the memories of a file, all or none; notes that name no project get this memory's."""
        params = given({"format": format, "dry_run": dry_run, "keep_origin": keep_origin, "project": project})
        headers = {PROJECT_HEADER: quote(self.project)}
        self._refuse_closed()
        with check_path(source).open("rb") as file:
            return self.asked(
                ImportReport,
                "POST",
                "/v1/import",
                params=params,
                headers=headers,
                content=_pieces(file),
                timeout=_TRANSFER,
            )

    def _shown(self, reference: str) -> replies.MemoryReply:
        return self.asked(replies.MemoryReply, "GET", _one(reference))

    def lookup(self, ids: Iterable[str]) -> list[replies.MemoryReply]:
        """The last versions of any number of memories."""
        return [each for some in self.in_batches(list[replies.MemoryReply], "/v1/lookup", ids) for each in some]

    def _history(self, reference: str) -> replies.HistoryReply:
        return self.asked(replies.HistoryReply, "GET", f"{_one(reference)}/history")

    def _place(self, project: str | None) -> str:
        return self.project if project is None else project

    def _written(self, details: Mapping[str, Any]) -> dict[str, Any]:
        return {**given(details), "project": self._place(details.get("project"))}

    def in_batches(self, kind: type[Value], path: str, ids: Iterable[str]) -> Iterator[Value]:
        """The answers for any number of memories."""
        wanted = sorted(set(ids))
        for start in range(0, len(wanted), MAX_BATCH):
            yield self.asked(kind, "POST", path, json={"ids": wanted[start : start + MAX_BATCH]})

    def asked(self, kind: type[Value], method: str, path: str, **details: Any) -> Value:
        """The answer to a request as a value; a problem is raised as the engine would raise it."""
        for name in ("json", "params"):
            if name in details:
                details[name] = shapes.plain(details[name])
        details["headers"] = {**self._told, **details.get("headers", {})}
        with self._errors():
            answer = self._http.request(method, path, **details)
        if answer.status_code != httpx.codes.OK:
            raise self._raised(answer)
        if position := answer.headers.get(POSITION_HEADER):
            # Another instance may answer next, and must have replayed the write.
            self._http.headers[POSITION_HEADER] = position
        return self._read(kind, answer, answer.content)

    def _read(self, kind: type[Value], answer: httpx.Response, content: bytes) -> Value:
        try:
            value: Value = adapter(kind).validate_json(content)
            return value
        except ValueError as error:
            said = _other_version(answer) or "is it a triskele server?"
            raise Unavailable(f"{self.url} answered something else: {said}") from error

    def _raised(self, answer: httpx.Response) -> TriskeleError:
        """The error of an answer; an error that only another version explains names the version."""
        found = raised_again(answer.status_code, answer.content, answer.reason_phrase)
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            return AccessDenied(
                f"{self.url} does not accept the key: it is wrong, expired or revoked; ask an admin for another one"
            )
        is_unknown = answer.status_code in _UNKNOWN_TO_OTHERS
        if is_unknown and not isinstance(found, NotFound) and (said := _other_version(answer)):
            return Unavailable(f"{self.url} refused the request ({found}): {said}")
        return found

    def _refuse_closed(self) -> None:
        if self._http.is_closed:
            raise StoreClosed(f"the memory on {self.url} is closed: connect again")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        self._refuse_closed()
        try:
            yield
        except TriskeleError:
            raise
        except (httpx.TransportError, httpx.StreamError) as error:
            # Its message may hold the request.
            raise Unavailable(f"the server {self.url} does not answer ({type(error).__name__})") from None


def _other_version(answer: httpx.Response) -> str:
    """A sentence about the server's other version; empty if it is the same or unknown."""
    version = answer.headers.get(VERSION_HEADER, __version__)
    if version == __version__:
        return ""
    return f"it runs triskele {version[:20]}, this is {__version__}; upgrade the older one"


def _census(counted: replies.CensusReply) -> Census:
    return Census(**{name: getattr(counted, name) for name in Census.__slots__})


def connect(url: str, key: str, *, project: str = "") -> RemoteMemory:
    """The memory on a server; `project` is the default of calls without one."""
    return RemoteMemory(url, key, project=project)


def _one(reference: str) -> str:
    return f"/v1/memories/{quote(check_text(reference, 'an id'), safe='')}"


def _tie(source: str, kind: str, target: str) -> dict[str, str]:
    return {"source": source, "kind": check_kind(kind), "target": target}


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are set."""
    return {name: value for name, value in _listed(options).items() if value is not None}


def _listed(options: Mapping[str, Any]) -> dict[str, Any]:
    lists = {name: check_texts(options[name], name) for name in _LISTS if options.get(name) is not None}
    return {**options, **lists}


def _pieces(file: Any) -> Iterator[bytes]:
    while piece := file.read(65536):
        yield piece


def checked_address(url: str) -> str:
    """The address of a server; refuse one that is not valid, holds a key or exposes texts on the network."""
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid or parts.query or parts.fragment or "@" in url or " " in url:
        raise BadInput("not the address of a server: write it like https://memory.example.com")
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        raise BadInput(f"the address of {parts.hostname} must begin with https:// (http:// is for this machine only)")
    return url.rstrip("/")


def _checked_key(key: str) -> str:
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise BadInput("the key is empty or holds an invalid character: copy it again")
    return key
