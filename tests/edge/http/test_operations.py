"""Each row of operations: its names exist, its scope guards it, and clients read what the engine reads."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import click
import pytest
from loopback_server import TOKEN, serving
from starlette.testclient import TestClient

import triskele
from triskele.edge.cli.main import cli
from triskele.edge.http import operations
from triskele.edge.http.access import SCOPES, Principal
from triskele.edge.http.app import Application, ListenerRules
from triskele.edge.http.client import RemoteEngine
from triskele.edge.http.dispatch import OPERATIONS
from triskele.edge.http.operations import BY_METHOD, Operation
from triskele.edge.mcp.registry import tools
from triskele.engine.local import LocalEngine
from triskele.engine.protocol import Agents, Concepts, Curation, Engine, Sharing
from triskele.server import operations as server_operations
from triskele.server.operations import Administration, Process, SyncRoom
from triskele.types import Answer

pytestmark = pytest.mark.slow

BY_NAME = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
# The arguments of every read of a personal memory; `ID` stands for its first memory.
ID = "<id>"
READS: dict[Callable[..., Any], dict[str, Any]] = {
    Engine.recall: {"text": "what deploys the shop?"},
    Engine.why_not: {"id": ID, "text": "what deploys the shop?"},
    Engine.related: {"content": "Argo CD no longer deploys the shop"},
    Engine.get: {"id": ID},
    Engine.lookup: {"ids": [ID]},
    Engine.browse: {"tags": ["deploy"], "facets": True},
    Engine.journal: {"limit": 5},
    Engine.shorten: {"ids": [ID]},
    Engine.stats: {},
    Concepts.show: {"name": "Argo CD"},
    Concepts.path: {"start": "Argo CD", "end": "Kubernetes"},
    Concepts.overview: {},
    Concepts.neighbourhood: {"concept": "Argo CD", "most": 20},
    Curation.proposals: {},
    Agents.digest: {},
    Agents.conversations: {"limit": 3},
}

# Events of hooks have a path of their own, and each side opens and closes its own memory.
WITHOUT_ROW = {Agents.respond, Engine.acting_as, Engine.working_in, Engine.close}


def test_every_method_of_the_protocol_has_a_row() -> None:
    assert _methods(Engine, Concepts, Curation, Agents, Sharing) - BY_METHOD.keys() == WITHOUT_ROW
    assert _methods(Process, Administration, SyncRoom) == server_operations.BY_METHOD.keys()


def _methods(*rooms: type) -> set[Callable[..., Any]]:
    named = (pair for room in rooms for pair in vars(room).items())
    return {method for name, method in named if inspect.isfunction(method) and not name.startswith("_")}


@BY_NAME
def test_operation_names_existing_tool_and_command(operation: Operation) -> None:
    assert operation.tool in {"", *(tool.name for tool in tools(shares=True))}
    command: click.Command | None = cli
    for name in operation.command.split():
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), name)
    assert command is not None


@BY_NAME
def test_operation_refuses_keys_without_its_scope(application: Application, operation: Operation) -> None:
    others = frozenset(SCOPES) - {operation.scope}
    rules = ListenerRules(frozenset({"localhost"}), verify=lambda _: Principal(None, "a-key", others))
    client = TestClient(application.for_listener(rules), base_url="http://localhost")
    path = operation.path.format(**dict.fromkeys(operation.in_path, "1kpn46vy"))
    answer = client.request(operation.verb, path, headers={"Authorization": "Bearer a-key"})
    assert answer.status_code == 403
    assert answer.json()["detail"] == f"this key lacks the scope {operation.scope}"


@pytest.fixture
def engine(open_engine: Callable[..., LocalEngine]) -> LocalEngine:
    engine = open_engine()
    for text in ("Argo CD deploys the shop", "Argo CD runs on Kubernetes", "The shop sells tulips"):
        engine.remember(text, tags=["deploy"], importance=0.9)
    return engine


@pytest.fixture
def remote(application: Application) -> Iterator[RemoteEngine]:
    with (
        serving(application, lambda port: ListenerRules.local(TOKEN, port)) as url,
        triskele.connect(url, TOKEN, project="garden") as memory,
    ):
        yield memory


def test_every_read_is_compared_with_the_engine() -> None:
    reads = {row.method for row in operations.OPERATIONS if row.scope == "read" and not row.gives_file}
    assert {method for method in reads if not method.__qualname__.startswith("Sharing")} <= READS.keys()


@pytest.mark.parametrize("method", READS, ids=lambda method: method.__qualname__)
def test_remote_engine_reads_what_the_engine_reads(
    remote: RemoteEngine, engine: LocalEngine, method: Callable[..., Any]
) -> None:
    [id] = [memory.id for memory in engine.browse(limit=1).memories]
    arguments = {name: _with_id(value, id) for name, value in READS[method].items()}
    values = [_called(memory, method, arguments) for memory in (remote, engine)]
    assert values[0] == values[1]
    assert type(values[0]) is type(values[1])


def _with_id(value: Any, id: str) -> Any:
    return id if value == ID else [id] if value == [ID] else value


def _called(memory: Engine, method: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    room = BY_METHOD[method].owner.partition(".")[2]
    value = getattr(getattr(memory, room) if room else memory, method.__name__)(**arguments)
    return dataclasses.replace(value, took_ms=0.0) if isinstance(value, Answer) else value
