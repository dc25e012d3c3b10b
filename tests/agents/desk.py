"""An agent's client over a store of its own, as hooks see it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from triskele import config
from triskele.engine.local import LocalEngine
from triskele.replies.rooms import HookCall
from triskele.types import Injection


class Desk:
    """An agent's client over a store of its own, working in a folder called garden."""

    def __init__(self, folder: Path, agents: str = "", *, model: str = "none") -> None:
        self.home = folder / "home"
        self.home.mkdir(exist_ok=True)
        (self.home / "config.toml").write_text(f"[agents]\n{agents}\n")
        for name in ("garden", "kitchen"):
            (folder / name / ".git").mkdir(parents=True, exist_ok=True)
        self.folder = folder
        environment = {"TRISKELE_HOME": str(self.home), "TRISKELE_RECALL_MODEL": model, "TRISKELE_PRIVACY_KEY": "file"}
        self.engine = LocalEngine(config.load(environment), Path("/"))

    def add(self, text: str, *, project: str = "garden", **details: Any) -> str:
        return self.engine.remember(text, project=project, **details).id

    def respond(self, event: str, payload: dict[str, Any]) -> Injection:
        """The answer to an event; the client and the project are what the server knows of the caller."""
        caller = {name: text for name in ("client", "project") if isinstance(text := payload.get(name), str)}
        call = replace(HookCall.of_payload(event, payload), **caller)  # type: ignore[arg-type]
        return self.engine.agents.respond(replace(call, deadline_s=payload.get("deadline_s")))

    def said(self, event: str, **payload: Any) -> str:
        """What reaches the model."""
        values = {"session_id": "one", "cwd": str(self.folder / "garden" / "beds"), **payload}
        out = self.respond(event, values).text
        return str(json.loads(out)["hookSpecificOutput"]["additionalContext"]) if out else ""

    def prompt(self, text: str, **payload: Any) -> list[str]:
        """The texts that a prompt is met with."""
        return quotations(self.said("user-prompt-submit", prompt=text, **payload))

    def start(self, source: str = "startup", **payload: Any) -> list[str]:
        return quotations(self.said("session-start", source=source, **payload))


def quotations(said: str) -> list[str]:
    """The texts between the first lines and the last of a fence."""
    return [json.loads(line.split(" · ", 4)[4]) for line in said.split("\n")[2:-1]]
