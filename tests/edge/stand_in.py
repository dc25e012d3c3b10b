"""A resident whose answers are known beforehand: a program that takes its version and says when it is ready."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import triskele
from triskele.agents.respond import LocalAgents
from triskele.replies.rooms import HookCall
from triskele.types import Injection


def respond(agents: LocalAgents, call: HookCall) -> Injection:
    """Recalls for a prompt; waits at a gate, tells who answers, or fails, for those who ask for that."""
    match call.event:
        case "user-prompt-submit":
            answer = agents._access.answer(call.prompt, limit=5, all_projects=True)
            return Injection("\n".join(hit.memory.content for hit in answer.hits))
        case "wait":
            return Injection(Path(call.prompt).read_text())
        case "who":
            return Injection(f"{os.getpid()} {triskele.__version__}")
        case "project":
            return Injection(call.project)
        case _:
            raise RuntimeError(call.prompt)


def main(version: str) -> None:
    """Serve as that version."""
    triskele.__version__ = version
    LocalAgents.respond = respond  # type: ignore[method-assign]
    from triskele.edge.process import resident
    from triskele.errors import Conflict

    try:
        resident.serve(os.environ, ready=lambda _: os.write(1, b"ready\n"))
        resident.exit_now()
    except Conflict:
        os.write(1, b"refused\n")


if __name__ == "__main__":
    main(sys.argv[1])
