"""Which of two versions is newer."""

from __future__ import annotations


def release(version: str) -> tuple[int, ...]:
    """A version as numbers; whatever follows the digits of a part does not count."""
    parts = []
    for part in version.split(".")[:4]:
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        parts.append(int(digits) if digits and len(digits) < 10 else 0)
    return (*parts, *(0,) * (4 - len(parts)))
