"""Wallet phrases: twelve to twenty-four words of the BIP-39 list, told by fingerprints of its words."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path

from triskele.privacy.findings import Finding

KIND = "seed-phrase"
LENGTHS = (24, 21, 18, 15, 12)

# Three bytes of each word's SHA-256, in the order of the list: no word of the list is stored.
_LIST = Path(__file__).with_name("bip39.txt")
_FINGERPRINT_BYTES = 3
_BITS_PER_WORD = 11
_WORD = re.compile(r"(?<![^\W_])[a-zA-Z]{3,8}+(?![^\W_])")
# Between two words of a phrase: a space, a comma, or the number of the next word.
_GAP = re.compile(r"[\s,;]{0,3}+(?:\d{1,2}[.):]?)?+[\s,;]{0,2}+")
_HINT = re.compile(
    r"(?i)\b(?:seed|mnemonic|recovery|wallet|backup|ledger|trezor|metamask|cold storage|wiederherstellung|merkwörter)"
)
_HINT_REACH = 120


def find_phrases(text: str) -> Iterator[Finding]:
    """Runs of list words whose checksum holds, or that stand after a word such as "seed"."""
    for run in _runs(text):
        yield from _phrases_of(text, run)


@lru_cache(maxsize=50_000)
def number_of(word: str) -> int | None:
    """The place of a word in the list."""
    return _numbers().get(_fingerprint(word.lower()))


def is_phrase(numbers: Sequence[int]) -> bool:
    """Whether the last bits of the words are the checksum of the others."""
    if len(numbers) not in LENGTHS:
        return False
    bits = len(numbers) * _BITS_PER_WORD
    check_bits = bits // 33
    whole = 0
    for number in numbers:
        whole = whole << _BITS_PER_WORD | number
    entropy = (whole >> check_bits).to_bytes((bits - check_bits) // 8)
    return hashlib.sha256(entropy).digest()[0] >> (8 - check_bits) == whole & ((1 << check_bits) - 1)


Word = tuple[int, int, int]


def _runs(text: str) -> Iterator[list[Word]]:
    """Lists of neighbouring list words as (number, start, end)."""
    run: list[Word] = []
    for match in _WORD.finditer(text):
        number = number_of(match[0])
        if run and (number is None or not _GAP.fullmatch(text, run[-1][2], match.start())):
            if len(run) >= min(LENGTHS):
                yield run
            run = []
        if number is not None:
            run.append((number, match.start(), match.end()))
    if len(run) >= min(LENGTHS):
        yield run


def _phrases_of(text: str, run: list[Word]) -> Iterator[Finding]:
    """The whole run after a hint; without one, a phrase with a checksum where the run begins or ends."""
    if _HINT.search(text, max(0, run[0][1] - _HINT_REACH), run[0][1]):
        yield _finding(run, "words of the BIP-39 list after a hint")
        return
    for piece in (piece for size in LENGTHS if size <= len(run) for piece in (run[:size], run[-size:])):
        if is_phrase([word[0] for word in piece]) and _plausible(piece):
            yield _finding(piece, "words of the BIP-39 list with a valid checksum")
            return


def _plausible(run: list[Word]) -> bool:
    """A drawn phrase hardly repeats a word; the examples of the standard do little else."""
    return len({word[0] for word in run}) * 2 > len(run)


def _finding(run: list[Word], why: str) -> Finding:
    return Finding(KIND, run[0][1], run[-1][2], why)


def _fingerprint(word: str) -> bytes:
    return hashlib.sha256(word.encode()).digest()[:_FINGERPRINT_BYTES]


@cache
def _numbers() -> dict[bytes, int]:
    listed = base64.b64decode(_LIST.read_text(encoding="ascii"))
    places = range(0, len(listed), _FINGERPRINT_BYTES)
    return {listed[place : place + _FINGERPRINT_BYTES]: number for number, place in enumerate(places)}
