"""Finds secrets in a text, by rules that look at every place a bounded number of times."""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from triskele.privacy import blocks, codes, hinted, numbers, phrases, prose
from triskele.privacy.findings import Finding, merge
from triskele.privacy.providers import PROVIDERS, Provider
from triskele.privacy.randomness import is_placeholder

_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_CHECKED = ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "npm_")
_CHECK_DIGITS = 6


def find(text: str) -> list[Finding]:
    """Every secret in the text, in order of place, none overlapping another."""
    return merge(finding for rule in RULES for finding in rule(text))


def is_cut(text: str, pieces: Sequence[str]) -> bool:
    """Whether a secret of the text stands in none of its pieces as a whole."""
    if len(pieces) < 2:
        return False
    return any(all(text[found.start : found.end] not in piece for piece in pieces) for found in find(text))


def find_provider_keys(text: str, providers: Iterable[Provider] = PROVIDERS) -> Iterator[Finding]:
    """Keys and tokens told by the form that their provider gave them."""
    for provider in providers:
        if any(mark in text for mark in provider.marks):
            for match in provider.form.finditer(text):
                if not is_placeholder(match[0]) and _CHECKS.get(provider.kind, _any)(match[0]):
                    yield Finding(provider.kind, *match.span(), _why(provider, match[0]))


def _why(provider: Provider, value: str) -> str:
    """A checksum makes certain, but its failing acquits nobody: forms change."""
    return f"the form of {_an(provider.label)}{', and its checksum holds' if _checksum_holds(value) else ''}"


def _an(label: str) -> str:
    return f"{'an' if label[0] in 'AEIOaeio' else 'a'} {label}"


def _checksum_holds(value: str) -> bool:
    """Whether the last six characters are the CRC-32 of those after the prefix."""
    if not value.startswith(_CHECKED):
        return False
    body = value.partition("_")[2]
    return zlib.crc32(body[:-_CHECK_DIGITS].encode()) == _number(body[-_CHECK_DIGITS:], _BASE62)


def _number(digits: str, alphabet: str) -> int:
    number = 0
    for digit in digits:
        number = number * len(alphabet) + alphabet.index(digit)
    return number


def _names_an_account(value: str) -> bool:
    """The first part of a Discord token is a number in base 64."""
    head = value.partition(".")[0]
    try:
        return base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)).isdigit()
    except binascii.Error:
        return False


def _is_wallet_key(value: str) -> bool:
    """The last four bytes are the double SHA-256 of the others."""
    raw = _number(value, _BASE58).to_bytes(40).lstrip(b"\0")
    return hashlib.sha256(hashlib.sha256(raw[:-4]).digest()).digest()[:4] == raw[-4:]


def _any(_: str) -> bool:
    return True


_CHECKS: dict[str, Callable[[str], bool]] = {"discord-token": _names_an_account, "bitcoin-key": _is_wallet_key}

# Where rules overlap, the earlier one names the finding.
RULES: tuple[Callable[[str], Iterator[Finding]], ...] = (
    blocks.find_private_keys,
    blocks.find_web_tokens,
    find_provider_keys,
    blocks.find_aws_secrets,
    blocks.find_url_passwords,
    numbers.find_cards,
    numbers.find_ibans,
    phrases.find_phrases,
    codes.find_codes,
    prose.find_passwords,
    hinted.find_keys,
)
