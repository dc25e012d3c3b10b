"""The resident process: one per store, holding model and indexes once for every hook and MCP client of its owner.

A kernel lock held for life says who serves. Whoever starts while an older version serves, or while the one that serves
is leaving, listens first, takes over the way that leads there and waits for the lock: somebody is always listening.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triskele import __version__, config
from triskele.base.locks import file_lock
from triskele.errors import Conflict, TriskeleError
from triskele.serving import failures, hook_client, listening
from triskele.serving.hook_client import Address
from triskele.serving.listening import Ears, Extra

_LOCK_S = 0.2
_M_ARENA_MAX = -8
_HEALTH_S = 10.0


@dataclass(frozen=True, slots=True)
class Wishes:
    """Where to listen beside the usual place."""

    http: tuple[str, int] | None = None
    socket: Path | None = None

    def granted(self) -> Iterator[Extra]:
        """The open sockets."""
        if self.http is not None:
            yield Extra(listening.loopback_socket(*self.http))
        if self.socket is not None:
            yield listening.chosen_socket(self.socket)


NO_WISHES = Wishes()


class Turn:
    """Whose turn it is: one process at a time may start, and one may live."""

    def __init__(self, place: Address, inherited: int | None = None) -> None:
        self._place = place
        self._start = ExitStack()
        self._life = ExitStack()
        self._has_begun = inherited is not None
        if inherited is not None:
            self._start.callback(os.close, inherited)
        self.is_alive = False

    def begin(self) -> bool:
        """Be the one that starts; whoever started us may have left us that."""
        if not self._has_begun:
            self._has_begun = self._start.enter_context(file_lock(Path(self._place.file("starting")), timeout_s=0))
        return self._has_begun

    def live(self, timeout_s: float = 0.0) -> bool:
        """Take the lock for life where it is free."""
        with ExitStack() as attempt:
            if attempt.enter_context(file_lock(Path(self._place.file("lock")), timeout_s=timeout_s)):
                self._life = attempt.pop_all()
                self.is_alive = True
        return self.is_alive

    def settle(self) -> None:
        """Called by one that listens: as soon as it lives, the next one may start."""
        if self._has_begun and (self.is_alive or self.live()):
            self._start.close()
            self._has_begun = False

    def end(self, ears: Ears) -> None:
        """Remove the sockets unless a successor is about to take their place."""
        if self.begin():
            ears.close_doors()

    def close(self) -> None:
        """Let the next one live."""
        self._start.close()
        self._life.close()


def serve(
    environ: Mapping[str, str],
    wishes: Wishes = NO_WISHES,
    *,
    inherited: int | None = None,
    ready: Callable[[dict[str, str]], None] = lambda _: None,
) -> None:
    """Serve until told to leave, idle or replaced; Conflict where somebody serves already.

    `inherited` is the open lock on being the one that starts, where the starter left it to us.
    """
    _share_heaps()
    place = hook_client.address(environ)
    settings = config.load(environ)
    listening.make_folders(place)
    with ExitStack() as stack:
        turn = Turn(place, inherited)
        stack.callback(turn.close)
        _refuse_second(place, turn)
        extra = [stack.enter_context(closing(each)) for each in wishes.granted()]
        ears = stack.enter_context(closing(listening.listen(place)))
        turn.settle()
        # Imported when the sockets listen: whoever comes meanwhile waits and is not refused.
        import asyncio

        from triskele.serving.household import Household
        from triskele.serving.service import Service

        household = Household(settings)
        stack.callback(household.close)
        service = Service(place, household, ears, extra)
        stack.callback(turn.end, ears)
        asyncio.run(service.run(turn, lambda: ready(service.places())))


def health(place: Address, timeout_s: float = _HEALTH_S) -> dict[str, Any] | None:
    """What the resident says about itself; None where nobody answers."""
    import json

    with suppress(OSError, ValueError, hook_client.Silence):
        status, _, text = hook_client.exchange(place, "GET /health", (), b"", timeout_s)
        found = json.loads(text)
        return found if status == 200 and isinstance(found, dict) else None
    return None


def stop(place: Address, timeout_s: float = 30.0) -> dict[str, Any] | None:
    """Ask the resident to leave and wait until it has; what it said about itself before, None where there is none."""
    found = health(place)
    if found is not None:
        os.kill(int(found["pid"]), signal.SIGTERM)
        with file_lock(Path(place.file("lock")), timeout_s=timeout_s) as is_gone:
            if not is_gone:
                raise Conflict(f"process {found['pid']} is still at work: try again in a moment")
    return found


def main() -> None:
    """Serve as the process that a hook or a bridge started: nobody watches, so the log is told."""
    # One question at a time: more threads for its small products cost more than they give.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    place = hook_client.address(os.environ)
    try:
        inherited = int(sys.argv[1]) if sys.argv[1:] else None
        serve(os.environ, inherited=inherited, ready=lambda _: _close_errors())
    except Conflict:
        return
    except (TriskeleError, OSError) as error:
        hook_client.log(place, f"the resident cannot serve: {failures.line(failures.said(error))}")
        sys.exit(3)
    leave()


def leave() -> None:
    """End the process; a thread that still waits for a locked store does not keep it."""
    sys.stdout.flush()
    os._exit(0)


def _refuse_second(place: Address, turn: Turn) -> None:
    from triskele.serving.versions import release

    if not turn.begin():
        raise Conflict("another resident is starting for this store")
    if not turn.live(_LOCK_S):
        found = health(place)
        if found is not None and release(str(found["version"])) >= release(__version__):
            raise Conflict(f"process {found['pid']} serves this store already (triskele serve --stop ends it)")


def _share_heaps() -> None:
    """Two heaps for all threads, where the C library lets one choose: one for each takes twice the memory."""
    import ctypes

    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)


def _close_errors() -> None:
    """What was said until now tells why a start failed; later words could quote what somebody asked."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


if __name__ == "__main__":
    main()
