"""The writings in which canaries are kept and asked for: as they are, in base64, in hex, for an address, cut in two."""

from __future__ import annotations

import base64
from collections.abc import Callable
from urllib.parse import quote

from canaries import Canary


def middle(canary: Canary) -> int:
    """Where to cut a memory so that both pieces hold a part of the secret."""
    return canary.memory.index(canary.secret) + len(canary.secret) // 2


def base64_of(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


# Every kind of canary meets every writing, for there are ten kinds in turn.
WRITINGS: tuple[Callable[[Canary], list[str]], ...] = (
    lambda canary: [canary.memory],
    lambda canary: [f"kept {canary.number}: {base64_of(canary.memory)}"],
    lambda canary: [f"kept {canary.number}: {canary.memory.encode().hex()}"],
    lambda canary: [f"kept {canary.number}: {quote(canary.memory, safe='')}"],
    lambda canary: [canary.memory[: middle(canary)], canary.memory[middle(canary) :]],
)


def written(canary: Canary) -> list[str]:
    """The texts that keep a canary, one or two."""
    return WRITINGS[canary.number // 10 % len(WRITINGS)](canary)


QUESTIONS: dict[str, Callable[[Canary], str]] = {
    "raw": lambda canary: f"why is there {canary.memory}",
    "alone": lambda canary: f"is {canary.secret} in use",
    "base64": lambda canary: f"who wrote {base64_of(canary.secret)}",
    "base64 inside": lambda canary: f"who wrote {base64_of('x' + canary.memory).rstrip('=')}",
    "hex": lambda canary: f"who wrote {canary.secret.encode().hex()}",
    "hex in pairs": lambda canary: f"who wrote {canary.secret.encode().hex(' ').upper()}",
    "url": lambda canary: f"where is {quote(canary.secret, safe='')}",
    "first half": lambda canary: f"what begins with {canary.memory[: middle(canary)]}",
    "second half": lambda canary: f"what ends with {canary.memory[middle(canary) :]}",
    "backwards": lambda canary: f"who wrote {canary.secret[::-1]}",
}
