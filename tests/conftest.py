"""What tests of several rooms share: memories to store and engines to store them in."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from triskele import config
from triskele.edge.cli.demo import temporary_memory
from triskele.engine.local import LocalEngine
from triskele.store.sqlite.store import SqliteStore
from triskele.text import timestamps
from triskele.text.ids import IdMaker, content_hash
from triskele.types import Memory

if TYPE_CHECKING:
    from models.kernels import Network
    from postgres import PostgresProcess

PROJECT = "garden"

# No command of a test may leave a process behind.
os.environ["TRISKELE_AGENTS_BACKGROUND"] = "false"

# A busy machine is no reason to fail.
settings.register_profile("patient", deadline=None)
# For `make quick`, which names it.
settings.register_profile("quick", deadline=None, max_examples=20)
settings.load_profile("patient")


@pytest.fixture
def make_memory() -> Callable[..., Memory]:
    """Builds memories that differ in id, whatever else is the same."""
    ids = IdMaker()

    def make(content: str = "the office plant drinks on Mondays", **details: Any) -> Memory:
        now = timestamps.now()
        values = {"id": ids.make(now), "created_at": now, "updated_at": now, "known_from": now} | details
        return Memory(content=content, content_hash=content_hash(content), **values)

    return make


@pytest.fixture
def open_engine(tmp_path: Path) -> Iterator[Callable[..., LocalEngine]]:
    """Opens engines that recall by words, on the same store unless told another path, and closes them all."""
    opened: list[LocalEngine] = []

    def open_one(
        path: Path | None = None,
        *,
        tail_cap: int = 256,
        busy_timeout_s: float = 30.0,
        model: str = "none",
        owner: str = "me",
    ) -> LocalEngine:
        environment = {
            "TRISKELE_HOME": str(tmp_path / "home"),
            "TRISKELE_PROJECT": PROJECT,
            "TRISKELE_RECALL_MODEL": model,
            "TRISKELE_PRIVACY_KEY": "file",
            "TRISKELE_MEMORY_OWNER": owner,
        }
        url = f"sqlite:///{path or tmp_path / 'home' / 'memories.db'}"
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(SqliteStore.__init__.__kwdefaults__, "busy_timeout_s", busy_timeout_s)
            opened.append(LocalEngine(config.load(environment, store_url=url), tmp_path))
        opened[-1].lexical.tail_cap = tail_cap
        return opened[-1]

    yield open_one
    for engine in opened:
        engine.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresProcess]:
    """One Postgres server for all tests; a test that kills it starts it again."""
    # Imported here: most tests need none of it.
    from postgres import running_server

    with running_server() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_address(postgres: PostgresProcess) -> Iterator[Callable[[str], str]]:
    """The address by which tests reach a database: its own, or behind PgBouncer where the environment asks for it."""
    if not os.environ.get("TRISKELE_PGBOUNCER"):
        yield lambda url: url
        return
    from pgbouncer import running_pgbouncer

    with running_pgbouncer(postgres, connections=20) as bouncer:
        yield bouncer.url


@pytest.fixture
def new_postgres(postgres: PostgresProcess, postgres_address: Callable[[str], str]) -> Iterator[Callable[[], str]]:
    """Gives addresses of databases that have the tables of this version and no rows."""
    taken: list[str] = []

    def take_one() -> str:
        taken.append(postgres.create_migrated())
        return postgres_address(taken[-1])

    yield take_one
    for url in taken:
        postgres.give_back(url)


@pytest.fixture
def postgres_url(new_postgres: Callable[[], str]) -> str:
    """The address of one such database."""
    return new_postgres()


@pytest.fixture(scope="session")
def team_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with the sample memories, embedded; a test that changes it copies it first."""
    home = tmp_path_factory.mktemp("team") / "home"
    with temporary_memory() as engine:
        engine.close()
        shutil.copytree(engine.settings.home, home)
    return home


@pytest.fixture(scope="session")
def trained_network(team_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Network:
    """A small cross-encoder in numpy that learned from the sample questions of the tune half."""
    # Imported here: most tests need none of it.
    from models import trained

    folder = tmp_path_factory.mktemp("lessons")
    shutil.copytree(team_home, folder / "home")
    environment = {"TRISKELE_HOME": str(folder / "home"), "TRISKELE_PROJECT": "demo"}
    with LocalEngine(config.load(environment), folder) as engine:
        return trained.learn(trained.untrained(), trained.lessons(engine))


@pytest.fixture(scope="session")
def trained_cross_encoder(trained_network: Network, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a model folder; a test that changes it copies it first."""
    from models import trained

    return trained.export(trained_network, tmp_path_factory.mktemp("models") / "team-cross")
