"""A memory on a server: the everyday methods of `Engine`, with the same values and the same errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from urllib.parse import quote, urlsplit

import httpx

from triskele import __version__
from triskele.base.files import expanded
from triskele.base.project import discover
from triskele.config import ServerSettings, Settings
from triskele.errors import BadInput, TriskeleError, Unavailable
from triskele.exchange.records import ImportReport
from triskele.recall.why_not import WhyNot
from triskele.serving import shapes
from triskele.serving.http import replies
from triskele.serving.http.bodies import MAX_BATCH
from triskele.serving.http.problems import raised_again
from triskele.serving.http.replies import adapter
from triskele.stores.protocols import Census, UseCount
from triskele.types import Answer, JournalEntry, Link, LinkKind, Memory, Outcome, Sort
from triskele.validation import MAX_LIMIT

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_TIMEOUT_S = 60.0
# A transfer may take as long as it moves.
_TRANSFER = httpx.Timeout(60.0, write=600.0, read=600.0)

Value = TypeVar("Value")


class RemoteMemory:
    """A memory on a server; what only the owner of the store can do is refused with a hint."""

    def __init__(self, url: str, key: str, *, project: str = "", transport: httpx.BaseTransport | None = None) -> None:
        self.url = _checked(url)
        self.project = project
        headers = {"Authorization": f"Bearer {_checked_key(key)}", "User-Agent": f"triskele/{__version__}"}
        # The environment is not read: a variable set in a project's folder could redirect requests.
        self._http = httpx.Client(
            base_url=self.url, headers=headers, timeout=_TIMEOUT_S, trust_env=False, transport=transport
        )

    def __enter__(self) -> RemoteMemory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise BadInput(f"this works only where the store is, not over {self.url}: run it there, or unset server.url")

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    # Writing

    def remember(self, content: str, *, supersedes: str | None = None, **details: Any) -> Outcome:
        """Store one memory durably; details are those of `Engine.remember`."""
        body = {**self._written(details), "content": content, "supersedes": supersedes}
        return self._asked(Outcome, "POST", "/v1/memories", json=body)

    def remember_all(self, memories: Iterable[Mapping[str, Any]]) -> list[Outcome]:
        """Store up to 100 memories in one transaction, each given by its `content` and details."""
        body = {"memories": [self._written(each) for each in memories]}
        return self._asked(list[Outcome], "POST", "/v1/batch", json=body)

    def edit(self, reference: str, **changes: Any) -> Outcome:
        """Change a memory's content or details; the older version stays in the history."""
        return self._asked(Outcome, "PATCH", _one(reference), json=changes)

    def forget(self, *references: str) -> list[Outcome]:
        """Stop recalling these memories; history and undo keep them."""
        return self._asked(list[Outcome], "POST", "/v1/forget", json={"ids": references})

    def erase(self, *references: str) -> list[Outcome]:
        """Remove these memories for good; backups made before keep them."""
        return [self._asked(Outcome, "DELETE", _one(each), params={"hard": True}) for each in references]

    def restore(self, reference: str) -> Outcome:
        """Bring a forgotten memory back."""
        return self._asked(Outcome, "POST", f"{_one(reference)}/restore")

    def reveal(self, reference: str) -> str:
        """The text of a secret; the journal notes that it was shown."""
        return self._asked(replies.SecretReply, "POST", f"{_one(reference)}/reveal").text

    def link(self, source: str, kind: LinkKind, target: str) -> Outcome:
        """Link two memories."""
        return self._asked(Outcome, "POST", "/v1/links", json={"source": source, "kind": kind, "target": target})

    def unlink(self, source: str, kind: LinkKind, target: str) -> Outcome:
        """Close a link; the history keeps it."""
        return self._asked(Outcome, "DELETE", "/v1/links", params={"source": source, "kind": kind, "target": target})

    def undo(
        self, batch: str | None = None, *, project: str | None = None, all_projects: bool = False
    ) -> list[Outcome]:
        """Undo a batch, or the last change to the project."""
        body = {"batch": batch, "project": self._place(project), "all_projects": all_projects}
        return self._asked(list[Outcome], "POST", "/v1/undo", json=body)

    # Reading

    def recall(self, text: str, *, project: str | None = None, **options: Any) -> Answer:
        """The memories that answer a question, each with its reasons; options are those of `Engine.recall`."""
        body = {**_given(options), "query": text, "project": self._place(project)}
        return replies.to_answer(self._asked(replies.RecallReply, "POST", "/v1/recall", json=body))

    def why_not(self, reference: str, text: str, *, project: str | None = None, **options: Any) -> WhyNot:
        """Why a memory is not among the hits of this recall, and what would bring it there."""
        body = {**_given(options), "id": reference, "query": text, "project": self._place(project)}
        return replies.to_why_not(self._asked(replies.WhyNotReply, "POST", "/v1/why-not", json=body))

    def browse(self, *, sort: Sort = Sort.RECENCY, project: str | None = None, **filters: Any) -> list[Memory]:
        """Memories of a scope, newest or most important first; at most 200 at a time."""
        asked = {**_given(filters), "sort": sort, "project": self._place(project)}
        page = self._asked(replies.PageReply, "GET", "/v1/memories", params=asked)
        return [replies.to_memory(each) for each in page.memories]

    def get(self, reference: str) -> Memory:
        """The current version of a memory, or the last one of a forgotten one."""
        return replies.to_memory(self._shown(reference))

    def resolve(self, reference: str) -> str:
        """The id that a prefix stands for."""
        return self._shown(reference).id

    def versions(self, reference: str) -> list[Memory]:
        """Every version of a memory, oldest first."""
        return list(self._told(reference).versions)

    def history(self, reference: str) -> list[JournalEntry]:
        """What happened to a memory, oldest first."""
        return list(self._told(reference).entries)

    def links(self, reference: str) -> list[Link]:
        """The links of a memory, in either direction."""
        return self._asked(list[Link], "GET", f"{_one(reference)}/links")

    def superseded(self, ids: Iterable[str]) -> set[str]:
        """Those of these memories that another one replaces."""
        return {each.id for each in self._all(ids) if each.superseded}

    # Copies of the store, and what left it for hosted models, are the server's to tell.

    erased_copies: tuple[Path, ...] = ()

    def earlier_copies(self) -> list[Path]:
        """No copies of the store on this machine."""
        return []

    def sent(self, _: str) -> list[str]:
        """Nothing left this machine for a hosted model."""
        return []

    @property
    def after_answer(self) -> RemoteStore:
        """What would be written after an answer."""
        return self.store

    @property
    def store(self) -> RemoteStore:
        """What the commands read besides."""
        return RemoteStore(self)

    def census(self) -> Census:
        """Counts of what is stored."""
        counted = self._asked(replies.CensusReply, "GET", "/v1/stats")
        return Census(**{name: getattr(counted, name) for name in Census.__slots__})

    # Transfer

    def export_memories(
        self, target: Path, *, include_private: bool = False, with_secrets: bool = False, current_only: bool = False
    ) -> None:
        """Write all memories to a new file, one JSON record a line."""
        params = {"private": include_private, "with_secrets": with_secrets, "current_only": current_only}
        with self._errors(), self._http.stream("GET", "/v1/export", params=params, timeout=_TRANSFER) as answer:
            if answer.status_code != httpx.codes.OK:
                raise raised_again(answer.status_code, answer.read(), answer.reason_phrase)
            with target.open("xb") as file:
                for piece in answer.iter_bytes():
                    file.write(piece)

    def import_memories(
        self,
        source: Path,
        *,
        format: str = "jsonl",
        dry_run: bool = False,
        project: str | None = None,
        keep_origin: bool = False,
    ) -> ImportReport:
        """Import the memories of a file, all or none."""
        params = {"format": format, "dry_run": dry_run, "keep_origin": keep_origin}
        if project is not None:
            params["project"] = project
        with source.open("rb") as file:
            return self._asked(
                ImportReport, "POST", "/v1/import", params=params, content=_pieces(file), timeout=_TRANSFER
            )

    def _shown(self, reference: str) -> replies.MemoryReply:
        return self._asked(replies.MemoryReply, "GET", _one(reference))

    def _all(self, ids: Iterable[str]) -> list[replies.MemoryReply]:
        wanted, found = sorted(set(ids)), []
        for start in range(0, len(wanted), MAX_BATCH):
            body = {"ids": wanted[start : start + MAX_BATCH]}
            found += self._asked(list[replies.MemoryReply], "POST", "/v1/lookup", json=body)
        return found

    def _told(self, reference: str) -> replies.HistoryReply:
        return self._asked(replies.HistoryReply, "GET", f"{_one(reference)}/history")

    def _place(self, project: str | None) -> str:
        return self.project if project is None else project

    def _written(self, details: Mapping[str, Any]) -> dict[str, Any]:
        return {**_given(details), "project": self._place(details.get("project"))}

    def _asked(self, kind: type[Value], method: str, path: str, **details: Any) -> Value:
        """The answer to a request as a value; a problem is raised as the engine would raise it."""
        if "json" in details:
            details["json"] = shapes.plain(details["json"])
        if "params" in details:
            details["params"] = shapes.plain(details["params"])
        with self._errors():
            answer = self._http.request(method, path, **details)
        if answer.status_code != httpx.codes.OK:
            raise raised_again(answer.status_code, answer.content, answer.reason_phrase)
        try:
            value: Value = adapter(kind).validate_json(answer.content)
            return value
        except ValueError as error:
            raise Unavailable(f"{self.url} answered something else: is it a triskele server?") from error

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except TriskeleError:
            raise
        except (httpx.TransportError, httpx.StreamError) as error:
            # Its message may hold the request.
            raise Unavailable(f"the server {self.url} does not answer ({type(error).__name__})") from None


class RemoteStore:
    """The few reads of a store that everyday commands make; the server counts its recalls itself."""

    def __init__(self, memory: RemoteMemory) -> None:
        self._memory = memory
        self.usage = self

    def __getattr__(self, name: str) -> NoReturn:
        self._memory.__getattr__(name)

    def memories(self, ids: Iterable[str]) -> dict[str, Memory]:
        """The current versions of some memories."""
        return {each.id: replies.to_memory(each) for each in self._memory._all(ids) if not each.forgotten}

    def shorten(self, ids: Iterable[str]) -> dict[str, str]:
        """Whole ids: which prefixes are unique only the server knows."""
        return {id: id for id in ids}

    def journal(self, *, batch: str, limit: int) -> list[JournalEntry]:
        """The entries of a batch, oldest first."""
        return self.newest_entries(limit=min(limit, MAX_LIMIT), batch=batch)[::-1]

    def newest_entries(self, *, limit: int, batch: str | None = None) -> list[JournalEntry]:
        """The newest entries of the journal, newest first."""
        params = _given({"limit": limit, "batch": batch})
        return self._memory._asked(list[JournalEntry], "GET", "/v1/journal", params=params)

    def counts(self, _: Iterable[str]) -> dict[str, UseCount]:
        """No counts of use."""
        return {}

    def put(self, _: Callable[[], None]) -> None:
        """Leave nothing to write."""


def connect(url: str, key: str, *, project: str = "") -> RemoteMemory:
    """The memory on a server; `project` is used where a call names none."""
    return RemoteMemory(url, key, project=project)


def of_settings(settings: Settings, environ: Mapping[str, str], folder: Path) -> RemoteMemory:
    """The memory on the server that the settings name; its project is that of the settings, or of the folder."""
    project = settings.project if settings.project is not None else discover(folder).name
    is_of_environment = settings.origins.get("server.url", "").startswith("environment")
    key = key_of(settings.server, environ, is_of_environment=is_of_environment)
    return connect(settings.server.url, key, project=project)


def key_of(settings: ServerSettings, environ: Mapping[str, str], *, is_of_environment: bool) -> str:
    """The key for the server of the settings; that of a file is never sent to a server that a variable names."""
    if key := environ.get("TRISKELE_KEY"):
        return key
    if is_of_environment or not settings.key_file:
        raise BadInput("a server is set but no key: set TRISKELE_KEY, or server.url and server.key_file in config.toml")
    try:
        return expanded(settings.key_file).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read the key in {settings.key_file}: {error}") from error


def _one(reference: str) -> str:
    return f"/v1/memories/{quote(reference, safe='')}"


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are set; tags given as any collection."""
    return {name: value for name, value in options.items() if value is not None}


def _pieces(file: Any) -> Iterator[bytes]:
    while piece := file.read(65536):
        yield piece


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or "@" in url:
        raise BadInput("not the address of a server: write it like https://memory.example.com")
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        raise BadInput(f"the address of {parts.hostname} must begin with https:// (http:// is for this machine only)")
    return url.rstrip("/")


def _checked_key(key: str) -> str:
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise BadInput("the key is empty or holds an invalid character: copy it again")
    return key
