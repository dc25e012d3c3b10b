"""A resident whose answers are known beforehand: a program that takes its version and says when it is ready."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import triskele


def respond(engine: Any, event: str, payload: Mapping[str, Any]) -> str:
    """Recalls for a prompt; waits at a gate, tells who answers, or fails, for those who ask for that."""
    match event:
        case "user-prompt-submit":
            answer = engine.recall(payload["prompt"], limit=5, all_projects=True, logged=False)
            return "\n".join(hit.memory.content for hit in answer.hits)
        case "wait":
            return Path(payload["gate"]).read_text()
        case "who":
            return f"{os.getpid()} {triskele.__version__}"
        case "project":
            return str(payload.get("project"))
        case _:
            raise RuntimeError(payload["prompt"])


def main(version: str) -> None:
    """Serve as that version."""
    triskele.__version__ = version
    module = types.ModuleType("triskele.serving.hook.events")
    module.respond = respond  # type: ignore[attr-defined]
    sys.modules["triskele.serving.hook.events"] = module
    from triskele.errors import Conflict
    from triskele.serving import hook, resident

    hook.events = module  # type: ignore[attr-defined]

    try:
        resident.serve(os.environ, ready=lambda _: os.write(1, b"ready\n"))
        resident.exit_now()
    except Conflict:
        os.write(1, b"refused\n")


if __name__ == "__main__":
    main(sys.argv[1])
