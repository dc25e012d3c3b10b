"""Two laptops and a server in one process, whose syncs can be cut and killed at every step."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from triskele import config
from triskele.edge.http import codec
from triskele.engine.local import LocalEngine
from triskele.errors import Unavailable
from triskele.server.operations import BY_METHOD, SyncRoom
from triskele.store import open as factory
from triskele.store.owner import Store
from triskele.store.writer import MemoryLimits
from triskele.sync import notes, states
from triskele.sync.loop import Sync, SyncReport
from triskele.sync.states import Outgoing, PulledPage, PushReply
from triskele.types import Memory, Outcome, Sensitivity

ADDRESS = "https://memory.example.com"
SIDES = ("a", "b", "server")
LAPTOPS = ("a", "b")


class Killed(BaseException):
    """The process ends here."""


class Faults:
    """Ends the process, or the network, at one step of many."""

    def __init__(self, at: int = -1, *, kind: type[BaseException] = Killed) -> None:
        self.at, self._kind, self.steps = at, kind, 0

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.at:
            raise self._kind("here")

    def around(self, action: Callable[..., Any]) -> Callable[..., Any]:
        """The action, with a step before it and one after it."""

        def faulty(*given: Any, **named: Any) -> Any:
            self.step()
            value = action(*given, **named)
            self.step()
            return value

        return faulty


class FaultyDocuments:
    """Documents whose writes are steps."""

    def __init__(self, documents: Any, faults: Faults) -> None:
        self._documents = documents
        self.put, self.delete = faults.around(documents.put), faults.around(documents.delete)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._documents, name)


class FaultyStore:
    """A store whose writes are steps."""

    def __init__(self, store: Any, faults: Faults) -> None:
        self._store = store
        self.documents = FaultyDocuments(store.documents, faults)
        self.register_folder = faults.around(store.register_folder)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class FaultyEngine:
    """An engine whose writes are steps."""

    def __init__(self, engine: LocalEngine, faults: Faults) -> None:
        self._engine, self._faults = engine, faults
        self.settings = engine.settings
        self.store: Any = FaultyStore(engine.store, faults)
        self.apply, self.seal = faults.around(engine.apply), faults.around(engine.seal)

    def acting_as(self, actor: str) -> FaultyEngine:
        return FaultyEngine(self._engine.acting_as(actor), self._faults)

    def erase(self, *ids: str) -> list[Outcome]:
        # Without the search indexes, which take longer than all the rest and hold nothing that syncs.
        self._faults.step()
        outcomes = self._engine.store.erase(ids, batch="sync", actor=self._engine.actor)
        self._faults.step()
        return outcomes


class Wire:
    """The server's operations behind the bytes of their requests and replies; the network is a step too."""

    def __init__(self, engine: LocalEngine, faults: Faults | None = None, *, page: int = 3) -> None:
        self._page = page
        self._faults = faults or Faults()
        served: Any = FaultyEngine(engine, self._faults)
        self._receiver = SyncRoom(served)
        self.heard: list[str] = []

    def push(self, items: Sequence[Outgoing], actor: str, user: str) -> PushReply:
        body = {"items": codec.to_json(items), "actor": actor, "user": user}
        self.heard.append(str(body))
        return self._answer(SyncRoom.push, body)

    def pull(self, cursor: str, user: str = "") -> PulledPage:
        return self._answer(SyncRoom.pull, {"cursor": cursor, "limit": self._page, "user": user})

    def _answer(self, method: Callable[..., Any], body: dict[str, Any]) -> Any:
        operation = BY_METHOD[method]
        options = operation.request.checked({}, json.loads(json.dumps(body)))
        self._faults.step()
        reply = json.dumps(codec.to_json(method(self._receiver, **options)))
        self._faults.step()
        return codec.from_json(operation.reply, json.loads(reply))


LIMITS = MemoryLimits()
Stores = dict[str, tuple[config.Settings, Store]]


@contextmanager
def opened(folder: Path, **addresses: str) -> Iterator[Stores]:
    """Three stores; every history has owners of its own in them."""
    stores: Stores = {}
    for name in SIDES:
        environment = {"TRISKELE_HOME": str(folder / name), "TRISKELE_RECALL_MODEL": "none"}
        environment |= {"TRISKELE_PRIVACY_KEY": "file", "TRISKELE_PROJECT": "garden"}
        environment |= {"TRISKELE_STORE": addresses[name]} if name in addresses else {}
        chosen = config.load(environment)
        chosen.home.mkdir(parents=True)
        stores[name] = chosen, factory.open_store(chosen, limits=LIMITS if name == "server" else None)
    try:
        yield stores
    finally:
        for _, store in stores.values():
            store.close()


_NUMBERS = count(1)


class World:
    """Two laptops of one user and a server."""

    def __init__(self, stores: Stores) -> None:
        owner = f"user{next(_NUMBERS)}"
        self.engines = {
            name: LocalEngine(replace(found, memory=replace(found.memory, owner=owner)), found.home, store=store)
            for name, (found, store) in stores.items()
        }
        self.server = self.engines["server"]
        self.heard: list[str] = []
        self.steps = 0

    def sync(self, name: str, *, here: int = -1, there: int = -1, cut: int = -1, most: int = 0) -> SyncReport | None:
        """Sync a laptop; it ends at a step of its own, or the server at one of its, or the network at one.

        `most` is the quota of memories on the server.
        """
        own = Faults(here)
        faults = Faults(cut, kind=Unavailable) if cut > 0 else Faults(there, kind=Unavailable)
        wire = Wire(self.server, faults)
        LIMITS.usual = most
        engine: Any = FaultyEngine(self.engines[name], own)
        try:
            return Sync(engine, wire, ADDRESS).run()
        except (Killed, Unavailable):
            return None
        finally:
            LIMITS.usual = 0
            self.heard += wire.heard
            self.steps = own.steps if there < 0 and cut < 0 else faults.steps

    def push_without_reply(self, name: str) -> None:
        """Let the server carry out all that a laptop pushes, and no reply come."""
        wire = Wire(self.server)
        push = wire.push

        def deaf(items: Sequence[Outgoing], actor: str, user: str) -> PushReply:
            push(items, actor, user)
            raise Unavailable("cut")

        wire.push = deaf  # type: ignore[method-assign]
        with pytest.raises(Unavailable):
            Sync(self.engines[name], wire, ADDRESS).run()

    def settle(self) -> None:
        """Sync both laptops until nothing moves."""
        for _ in range(3):
            for name in ("a", "b"):
                assert self.sync(name) is not None

    def _ids(self, name: str) -> list[str]:
        """By the journal: a walk through a whole store would pass the memories of all other histories."""
        return sorted({entry.id for entry in self.engines[name].store.journal(limit=100_000)})

    def latest(self, name: str) -> dict[str, Memory]:
        return states.latest(self.engines[name].store, self._ids(name))

    def says(self, name: str) -> dict[str, tuple[Any, ...]]:
        """The open memories of a side: what they say, and whether they stand."""
        return {
            id: (each.content, each.tags, each.project, each.known_to is None)
            for id, each in self.latest(name).items()
            if each.sensitivity is Sensitivity.OPEN
        }

    def standing(self, name: str) -> list[str]:
        return sorted(content for content, _, _, stands in self.says(name).values() if stands)

    def links(self, name: str) -> set[tuple[str, str, str]]:
        found = self.engines[name].store.links(self._ids(name))
        return {(each.source, each.kind.value, each.target) for each in found}

    def conflicts(self) -> set[str]:
        return {each.id for name in ("a", "b") for each in notes.conflicts(self.engines[name].store)}
