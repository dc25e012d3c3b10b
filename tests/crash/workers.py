"""What the processes of the crash tests do; each function runs in a child that may be killed at any moment."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import apsw

from triskele import config
from triskele.engine import workplace
from triskele.engine.local import LocalEngine
from triskele.index.lexical import LexicalIndex
from triskele.store.writer import Writer
from triskele.types import LinkKind, Sensitivity

TAIL_CAP = 8
LETTERS = "bcdfghjklmnpqrtvwxz"


def open_store(path: str) -> LocalEngine:
    environment = {
        "TRISKELE_HOME": str(Path(path).parent),
        "TRISKELE_PROJECT": "crash",
        "TRISKELE_RECALL_MODEL": "none",
        "TRISKELE_PRIVACY_KEY": "file",
    }
    engine = LocalEngine(config.load(environment, store_url=f"sqlite:///{path}"), Path(path).parent)
    engine.lexical.tail_cap = TAIL_CAP
    return engine


class Log:
    """Lines that are in the kernel's hands when a call returns, so that a kill loses none."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def say(self, **line: Any) -> None:
        os.write(self._descriptor, json.dumps(line).encode() + b"\n")


def write(store: str, log: str, seed: int) -> None:
    """Add, edit, forget and link without end; tell each write before it starts and after it returned."""
    Scribe(open_store(store), Log(log), Random(seed)).write_for_ever()


class Scribe:
    """A writer of own memories: no other process touches them, so their state is certain."""

    def __init__(self, engine: LocalEngine, log: Log, random: Random) -> None:
        self.engine = engine
        self.log = log
        self.random = random
        self.own: dict[str, str] = {}

    def write_for_ever(self) -> None:
        deeds = [self.add] * 4 + [self.edit] * 2 + [self.forget, self.link, self.catch_up, self.recall]
        while True:
            self.random.choice(deeds)()

    def add(self) -> None:
        content = f"{self._word()} was added"
        self._tell("add", lambda: self.engine.remember(content).id, content=content)

    def edit(self) -> None:
        if self.own:
            id, content = self._someone(), f"{self._word()} was edited"
            self._tell("edit", lambda: self.engine.edit(id, content=content)[0].id, id=id, content=content)

    def forget(self) -> None:
        if len(self.own) > 3:
            id = self._someone()
            self._tell("forget", lambda: self.engine.forget(id)[0].id, id=id)
            del self.own[id]

    def link(self) -> None:
        if len(self.own) > 1:
            source, target = self.random.sample(sorted(self.own), 2)
            self._tell("link", lambda: self.engine.link(source, LinkKind.SEE_ALSO, target).id, id=source, other=target)

    def catch_up(self) -> None:
        self.engine.lexical.catch_up(wait_s=self.random.choice((0, 60)))

    def recall(self) -> None:
        if self.own:
            id = self._someone()
            word = self.own[id].split()[0]
            ids = [hit.memory.id for hit in self.engine.recall(word).hits]
            if ids != [id]:
                self.log.say(did="wrong", id=id, word=word, found=ids)

    def _tell(self, deed: str, act: Callable[[], str], *, content: str | None = None, **details: Any) -> None:
        self.log.say(started=deed, content=content, **details)
        id = act()
        self.log.say(did=deed, content=content, **{**details, "id": id})
        if content is not None:
            self.own[id] = content

    def _word(self) -> str:
        return "".join(self.random.choices(LETTERS, k=12))

    def _someone(self) -> str:
        return self.random.choice(sorted(self.own))


def add_many(store: str, log: str, gate: str, count: int, name: str) -> None:
    """Open the store and add memories, as soon as the gate opens for all."""
    _pass(gate)
    engine, log_of = open_store(store), Log(log)
    for number in range(count):
        content = f"{name} says {number}"
        log_of.say(did="add", id=engine.remember(content).id, content=content)
    engine.close()


def open_and_add(store: str, log: str, gate: str, times: int, name: str) -> None:
    """Open, add and close again and again, so that first and last connections meet."""
    _pass(gate)
    entries = Log(log)
    for number in range(times):
        with open_store(store) as engine:
            content = f"{name} visits {number}"
            entries.say(did="add", id=engine.remember(content).id, content=content)


def read_until(store: str, log: str, gate: str, stop: str) -> None:
    """Recall without a pause until a file says stop."""
    _pass(gate)
    engine, entries = open_store(store), Log(log)
    while not os.path.exists(stop):
        hits = engine.recall("says", limit=50).hits
        assert all("says" in hit.memory.content for hit in hits)
        entries.say(did="recall", found=len(hits))
    engine.close()


def stall_in_catch_up(store: str, log: str) -> None:
    """Stop while the index is being written, with every lock held."""
    _stall(LexicalIndex, "_documents", Log(log))
    open_store(store).lexical.catch_up()


def stall_in_rebuild(store: str, log: str) -> None:
    """Stop while a new index is being built beside the old one."""
    _stall(LexicalIndex, "_documents", Log(log))
    open_store(store).upkeep.reindex()


def stall_before_rename(store: str, log: str) -> None:
    """Stop when the old index is gone and the new one has not taken its place."""
    _stall(Path, "rename", Log(log))
    open_store(store).upkeep.reindex()


def stall_in_transaction(store: str, log: str) -> None:
    """Stop after rows were written and before they were committed."""
    _stall(Writer, "_note", Log(log))
    open_store(store).remember("never committed")


def die_at(store: str, work: str, step: int, file: str) -> None:
    """Do a piece of work and die as by a power cut at one of its steps; ends by itself after the last."""
    left = step

    def count() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*values: Any, **named: Any) -> Any:
            count()
            return call(*values, **named)

        return stepping

    def trace(connection: apsw.Connection) -> None:
        connection.exec_trace = lambda *_: count() or True

    for name in ("rename", "replace", "link", "unlink", "mkdir", "fsync", "write", "rmdir"):
        setattr(os, name, counted(getattr(os, name)))
    if work != "create":
        with open_store(store) as engine:
            engine.store.census()
    apsw.connection_hooks.append(trace)
    with open_store(store) as engine:
        DEEDS[work](engine, Path(file))


def _seal_first(engine: LocalEngine, _: Path) -> None:
    engine.remember("the alarm code is kqzjvwxpgfdb", sensitivity=Sensitivity.SECRET, title="Alarm")


def _seal(engine: LocalEngine, _: Path) -> None:
    [marked] = engine.recall("guarded").hits
    engine.seal(marked.memory.id, title="Pond")


DEEDS: dict[str, Callable[[LocalEngine, Path], object]] = {
    "backup": lambda engine, file: engine.upkeep.backup(file),
    "restore": lambda engine, file: engine.upkeep.restore_backup(file),
    "first secret": _seal_first,
    "seal": _seal,
    "rotate": lambda engine, _: engine.vault.rotate(renew=True),
    "create": lambda engine, _: engine.store.census(),
}


def stall_in_project_rename(store: str, log: str) -> None:
    """Stop when the memories of a project were renamed and its folder was not."""
    _stall(Writer, "_move_folder", Log(log))
    engine = open_store(store)
    engine.apply(workplace.rename(engine.store, "crash", "renamed"))


def _stall(owner: type, name: str, log: Log) -> None:
    def stop(*_: Any, **__: Any) -> Any:
        log.say(did="stall")
        signal.pause()

    setattr(owner, name, stop)


def _pass(gate: str) -> None:
    """Wait at a named pipe until somebody opens its other end."""
    with open(gate, "rb"):
        return
