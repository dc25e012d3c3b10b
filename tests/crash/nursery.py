"""A warm process that has imported everything, opened nothing, and forks a worker in milliseconds.

Reads one JSON command per line: spawn, kill or wait. It ends its workers when its input ends, and every worker carries
an alarm of its own, so nothing outlives a test that was itself killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

import workers

WORKER_LIMIT_S = 300


def main() -> None:
    """Serve commands until the input ends, or nobody listens any more."""
    children: set[int] = set()
    try:
        for line in sys.stdin:
            answer = _obey(json.loads(line), children)
            sys.stdout.write(f"{answer}\n")
            sys.stdout.flush()
    finally:
        for pid in sorted(children):
            _kill(pid, children)


def _obey(command: dict[str, Any], children: set[int]) -> int:
    match command["do"]:
        case "spawn":
            pid = _spawn(getattr(workers, command["work"]), command["arguments"])
            children.add(pid)
            return pid
        case "kill":
            return _kill(command["pid"], children)
        case "wait":
            children.discard(command["pid"])
            return os.waitstatus_to_exitcode(os.waitpid(command["pid"], 0)[1])
        case unknown:
            raise ValueError(unknown)


def _kill(pid: int, children: set[int]) -> int:
    os.kill(pid, signal.SIGKILL)
    children.discard(pid)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _spawn(work: Callable[..., None], arguments: list[Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    signal.alarm(WORKER_LIMIT_S)
    os.close(sys.stdin.fileno())
    try:
        work(*arguments)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    main()
