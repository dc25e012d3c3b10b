"""Documents frozen in tests/data; TRISKELE_WRITE_GOLDEN=1 rewrites them."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
# Read before fixtures clear the environment.
WRITES = bool(os.environ.get("TRISKELE_WRITE_GOLDEN"))
SHOWN_DIFFERENCES = 8


def check(document: Any, golden: Path) -> None:
    """Compare a document with the frozen one, and name where they differ."""
    if WRITES:
        golden.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    agreed = json.loads(golden.read_text(encoding="utf-8"))
    lines = list(islice(differences(agreed, document), SHOWN_DIFFERENCES))
    advice = f"changed on purpose? rewrite {golden.name} with TRISKELE_WRITE_GOLDEN=1"
    assert not lines, "\n".join([*lines, advice])


def differences(expected: Any, actual: Any, path: str = "") -> Iterator[str]:
    """Where two documents differ, as sentences that begin with a path."""
    before, now = _parts(expected), _parts(actual)
    if before is None or now is None or isinstance(expected, list) != isinstance(actual, list):
        if not _is_same(expected, actual):
            yield f"{path} was {json.dumps(expected)[:200]} and is {json.dumps(actual)[:200]}"
        return
    for key in {**before, **now}:
        at = f"{path}.{_name(before.get(key), key)}"
        if key not in now:
            yield f"{at} is missing"
        elif key not in before:
            yield f"{at} is new"
        else:
            yield from differences(before[key], now[key], at)


def _parts(value: Any) -> dict[Any, Any] | None:
    if isinstance(value, list):
        return dict(enumerate(value))
    return value if isinstance(value, dict) else None


def _name(value: Any, key: Any) -> Any:
    """The command or tool that an item of a list describes, or its key."""
    if not isinstance(key, int) or not isinstance(value, dict):
        return key
    return value.get("argv") or value.get("name") or key


def _is_same(expected: Any, actual: Any) -> bool:
    if isinstance(expected, float) and isinstance(actual, float):
        # Encoders give other last digits on other processors; benchmarks/golden.py compares scores to the bit.
        return math.isclose(expected, actual, rel_tol=1e-3, abs_tol=1e-9)
    return type(expected) is type(actual) and bool(expected == actual)
