"""A finding: one sentence about what makes a benchmark's numbers worth less than they look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

SHOWN_EXAMPLES = 5


class Severity(StrEnum):
    """Whether a number must not be believed, or has to be read with something in mind."""

    ALARM = "alarm"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a guard has to say; only `examples` hold anything of the data set's own."""

    guard: str
    severity: Severity
    said: str
    arm: str | None = None
    stratum: str | None = None
    examples: tuple[str, ...] = ()

    def to_json(self, *, public: bool = False) -> dict[str, Any]:
        """The finding as plain values; a public one has no examples."""
        about = {"guard": self.guard, "severity": str(self.severity), "said": self.said}
        named = {"arm": self.arm, "stratum": self.stratum}
        shown = {} if public else {"examples": list(self.examples[:SHOWN_EXAMPLES])}
        return about | {key: value for key, value in named.items() if value is not None} | shown


def ordered(findings: Sequence[Finding]) -> list[Finding]:
    """Alarms first, each kind as it came."""
    return sorted(findings, key=lambda finding: finding.severity is not Severity.ALARM)
