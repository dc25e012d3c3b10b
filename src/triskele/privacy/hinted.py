"""Keys of no known form: values that look drawn at random, after a word that says so."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator

from triskele.privacy.findings import Finding
from triskele.privacy.randomness import looks_random

_QUOTES = "\"'`“”„‘’«»"
_STRONG_HINT = (
    r"(?:api|access|auth|secret|signing|encryption|service|licen[cs]e|bearer|session|refresh|client|webhook|shared"
    r"|consumer|master|app|bot|deploy|personal|totp|2fa|otp)[\s_\-]?(?:access[\s_\-]?)?(?:keys?|tokens?|secrets?|schlüssel)|apikey"
    r"|(?:authorization[\"']?\s?[:=]\s?[\"']?)?(?:bearer|token)(?=\s[^\s]{16})|zugriffstoken|zugangstoken"
)
_WEAK_HINT = r"(?:secret|token|credentials?|(?<![a-z])key|schlüssel|geheimnis|auth)(?![a-z])"
_KEY = re.compile(rf"(?i)(?P<strong>{_STRONG_HINT})|(?P<weak>{_WEAK_HINT})")
_KEY_LINK = re.compile(
    rf"[{_QUOTES}]?(?:(?P<bridge>[\w \-'’/&()]{{0,50}}?)\s{{0,3}}+(?P<set>:=|={{1,2}}|:|→|->)\s{{0,3}}+"
    r"|(?P<words>[\w \-'’/&()]{0,50}?)\s(?P<is>is|was|ist|war|lautet)\s(?:now\s|jetzt\s)?"
    rf"|(?P<space>\s))[{_QUOTES}]?(?P<value>[A-Za-z0-9_\-+/=.~]{{16,300}}+)"
)
_OTHER_KEYS = re.compile(
    r"(?i)public|publishable|cache|primary|foreign|partition|sort(?:ing)? key|idempotency|dedup|object|\bs3\b|\brow"
    r"|hash|sha\d|md5|checksum|digest|etag|fingerprint|commit|(?<![a-z])ids?\b|path|file|name\b|known|translation"
    r"|kms|gpg|arn:|count|limit|\bsite|request|trace|uuid|revision|integrity|base64,|vectors|pinned|tree|submodule"
)
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_REACH = 30


def find_keys(text: str) -> Iterator[Finding]:
    """Values that look drawn at random, after a word such as "api key"; randomness alone is never enough."""
    for hint in _KEY.finditer(text):
        link = _KEY_LINK.match(text, hint.end(), hint.end() + 400)
        if link and _is_key(text, hint, link):
            yield Finding("secret", *link.span("value"), f"looks random and stands after “{hint[0].strip().lower()}”")
    for match in re.finditer(r"(?i)\bbasic\s+(?P<value>[A-Za-z0-9+/]{8,300}+={0,2}+)", text):
        if _is_pair(match["value"]):
            yield Finding("secret", *match.span("value"), "a name and password in Basic form")


def _is_key(text: str, hint: re.Match[str], link: re.Match[str]) -> bool:
    value = link["value"].rstrip(".")
    if _OTHER_KEYS.search(text, max(0, hint.start() - _REACH), link.start("value")):
        return False
    if hint["strong"] is None and (link["space"] or _UUID.fullmatch(value)):
        return False
    return looks_random(value) and "/" not in value[:1] and not _is_path(value)


def _is_path(value: str) -> bool:
    """Pieces between dots, slashes and dashes that are mostly words."""
    pieces = [piece for piece in re.split(r"[./_\-]", value) if piece]
    wordy = sum(len(piece) for piece in pieces if re.fullmatch(r"[A-Za-z]?[a-z]{2,}|[A-Z]{2,}|\d{1,4}", piece))
    return wordy * 2 > len(value)


def _is_pair(value: str) -> bool:
    try:
        user, mark, word = base64.b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return False
    return bool(user and mark) and len(word) >= 3 and word.isprintable()
