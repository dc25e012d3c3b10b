"""What detection returns, and how findings that overlap become one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Finding:
    """A secret in a text: its kind, its place and the reason; never the secret itself."""

    kind: str
    start: int
    end: int
    why: str


def merge(findings: Iterable[Finding]) -> list[Finding]:
    """In order of place; where findings overlap, the first named keeps its kind and covers all of them."""
    kept: list[Finding] = []
    ranked = sorted(enumerate(findings), key=lambda pair: (pair[1].start, pair[0]))
    best = -1
    for rank, finding in ranked:
        if kept and finding.start < kept[-1].end:
            last = kept[-1]
            named = finding if rank < best else last
            kept[-1] = replace(named, start=last.start, end=max(last.end, finding.end))
            best = min(rank, best)
        else:
            kept.append(finding)
            best = rank
    return kept


def lowered(text: str) -> str:
    """The text in lower case, every character in its place."""
    low = text.lower()
    return low if len(low) == len(text) else "".join(map(_lowered, text))


def _lowered(character: str) -> str:
    low = character.lower()
    return low if len(low) == 1 else character
