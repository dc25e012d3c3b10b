"""Ids that sort by time and can be abbreviated to a prefix, and content hashes."""

from __future__ import annotations

import hashlib
import secrets
import threading
from dataclasses import replace
from datetime import UTC, datetime

from triskele.types import ALPHABET, ID_LENGTH, Memory

TIME_CHARACTERS = 7
RANDOM_CHARACTERS = ID_LENGTH - TIME_CHARACTERS

_START = datetime(2020, 1, 1, tzinfo=UTC)
_TICKS_PER_SECOND = 8
_TIME_LIMIT = 32**TIME_CHARACTERS - 1
_RANDOM_LIMIT = 32**RANDOM_CHARACTERS - 1
# Each id of a bulk import takes a tick of its own, up to an hour ahead of the clock: ids differ in their first eight
# characters. After that, wide steps within a tick keep prefixes short.
_MAX_LEAD = 3600 * _TICKS_PER_SECOND
_STEP = 2**30


def new_batch() -> str:
    """The name of a batch of changes."""
    return secrets.token_hex(6)


class IdMaker:
    """Makes ids that increase within a process, even if the clock stops or runs backwards."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = (-1, 0)

    def make(self, moment: datetime) -> str:
        """A new id: first the next free 125 ms of time, then random bits."""
        tick = int((moment - _START).total_seconds() * _TICKS_PER_SECOND)
        tick = min(max(tick, 0), _TIME_LIMIT)
        with self._lock:
            last_tick, last_random = self._last
            following = last_random + _STEP // 2 + secrets.randbelow(_STEP)
            if last_tick - tick < _MAX_LEAD or following > _RANDOM_LIMIT:
                self._last = (max(tick, last_tick + 1), secrets.randbelow(_RANDOM_LIMIT // 2))
            else:
                self._last = (last_tick, following)
            return _base32(self._last[0], TIME_CHARACTERS) + _base32(self._last[1], RANDOM_CHARACTERS)


def content_hash(content: str) -> str:
    """The hash that identifies equal texts and everything derived from them."""
    return hashlib.sha256(content.encode()).hexdigest()


def same_words(one: Memory, other: Memory) -> bool:
    """Whether two versions are equal in everything that a user can change."""
    aligned = replace(
        one, version=other.version, updated_at=other.updated_at, known_from=other.known_from, known_to=other.known_to
    )
    return aligned == other


def _base32(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, 32)
        digits.append(ALPHABET[digit])
    return "".join(reversed(digits))
