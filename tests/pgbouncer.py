"""PgBouncer of the system in front of a Postgres of the tests: every transaction may get another connection."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from postgres import PostgresProcess

CONNECTIONS = 2
# Only a part of the name of its socket: it listens on no port.
_PORT = 6432
_START_S = 30.0
_SYSTEM_USER = "nobody"


class PgBouncer:
    """Its address for each database behind it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def url(self, direct: str) -> str:
        """The address of a database behind the pooler."""
        name = direct.partition("@/")[2].partition("?")[0]
        return f"postgresql://postgres@/{name}?host={self.folder}&port={_PORT}"


@contextmanager
def running_pgbouncer(server: PostgresProcess, connections: int = CONNECTIONS) -> Iterator[PgBouncer]:
    """A pooler in transaction mode, with a few connections to the server."""
    folder = Path(tempfile.mkdtemp(prefix="triskele-pgb-"))
    settings = folder / "pgbouncer.ini"
    settings.write_text(
        f"[databases]\n* = host={server.folder} user=postgres\n[pgbouncer]\npool_mode = transaction\n"
        f"unix_socket_dir = {folder}\nlisten_addr =\nlisten_port = {_PORT}\nauth_type = any\n"
        f"default_pool_size = {connections}\nmax_client_conn = 500\nserver_idle_timeout = 5\n"
    )
    # It refuses to run as root.
    user = _SYSTEM_USER if os.geteuid() == 0 else None
    if user is not None:
        shutil.chown(folder, user)
        folder.chmod(0o755)
    bouncer = PgBouncer(folder)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(["pgbouncer", str(settings)], stdout=log, stderr=log, user=user, cwd=folder)
    try:
        _wait_for(bouncer, server, process)
        yield bouncer
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(bouncer: PgBouncer, server: PostgresProcess, process: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + _START_S
    while True:
        try:
            psycopg.connect(bouncer.url(server.url()), connect_timeout=5).close()
            return
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > ends:
                raise RuntimeError((bouncer.folder / "log").read_text()[-2000:]) from None
            time.sleep(0.02)
