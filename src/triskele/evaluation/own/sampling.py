"""Which memories may be asked about, and in what order, so that every kind of them gets its turn."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from triskele.engine import Engine
from triskele.types import Memory, Sensitivity

_EVERY_ONE = 2**31
_BANDS = ((0.4, "low"), (0.7, "middle"))


def in_use(engine: Engine) -> dict[str, Memory]:
    """The memories that recall can serve now, superseded ones left out, by id."""
    found = engine.browse(all_projects=True, any_time=False, limit=_EVERY_ONE)
    gone = engine.superseded([memory.id for memory in found])
    return {memory.id: memory for memory in found if memory.id not in gone}


def is_open(memory: Memory) -> bool:
    """Whether questions may be made of it and an outside judge may read it."""
    return memory.sensitivity is Sensitivity.OPEN


def stratum(memory: Memory) -> str:
    """Its category and how important it is."""
    band = next((name for border, name in _BANDS if memory.importance < border), "high")
    return f"{memory.category}/{band}"


def spread(memories: Iterable[Memory], seed: int) -> list[Memory]:
    """All of them in an order of the seed in which the strata take turns."""
    groups: dict[str, list[Memory]] = {}
    for memory in sorted(memories, key=lambda each: each.id):
        groups.setdefault(stratum(memory), []).append(memory)
    chooser = random.Random(seed)
    for name in sorted(groups):
        chooser.shuffle(groups[name])
    return _in_turns([groups[name] for name in sorted(groups)])


def _in_turns(groups: Sequence[list[Memory]]) -> list[Memory]:
    longest = max((len(group) for group in groups), default=0)
    return [group[turn] for turn in range(longest) for group in groups if turn < len(group)]
