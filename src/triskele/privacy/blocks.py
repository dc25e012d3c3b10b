"""Secrets with a structure: private key blocks, JSON web tokens, URLs with a password, pairs of AWS keys."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator

from triskele.privacy.findings import Finding
from triskele.privacy.randomness import DOCUMENTED, is_placeholder, looks_random

_BEGIN = re.compile(r"-----BEGIN (?P<name>(?:[A-Z0-9]{2,12} ){0,3}PRIVATE KEY(?: BLOCK)?)-----")
_BODY = re.compile(r"(?:[A-Z][A-Za-z\-]{2,12}+: [^\n\\]{1,80}+|[A-Za-z0-9+/=\s]|\\[nr]){1,20000}+")
_END = re.compile(r"-----END [A-Z0-9 ]{5,40}-----")
_LEAST_BODY = 40

_JWT = re.compile(r"(?<![\w\-])eyJ[\w\-]{8,2000}+\.(?P<body>eyJ[\w\-]{4,8000}+)\.[\w\-]{16,2000}+")
_URL = re.compile(
    r"\b[a-zA-Z][a-zA-Z0-9+.\-]{1,20}+://(?P<user>[^\s:/@?#\"'<>]{0,100}+):(?P<word>[^\s@\"'<>]{1,200}+)@[\w\[]"
)
_AWS_ID = re.compile(r"(?<![A-Za-z0-9])A(?:KI|SI)A[A-Z2-7]{16}(?![A-Z0-9])")
_AWS_HINT = re.compile(r"(?i)aws[\w .\-]{0,20}?secret")
_AWS_SECRET = re.compile(r"(?<![A-Za-z0-9+/=])[A-Za-z0-9+/]{40}(?![A-Za-z0-9+/=])")
_AWS_REACH = 160


def find_private_keys(text: str) -> Iterator[Finding]:
    """PEM and PGP blocks with a body, also when their end was cut off."""
    end = 0
    for match in _BEGIN.finditer(text):
        if match.start() < end:
            continue
        body = _BODY.match(text, match.end())
        if body is None or not _is_body(body[0]):
            continue
        closed = _END.match(text, body.end())
        end = closed.end() if closed else body.end()
        of_google = '"service_account"' in text
        yield Finding(
            "gcp-service-account" if of_google else "private-key", match.start(), end, f"a block of {match['name']}"
        )


def _is_body(body: str) -> bool:
    """A long piece without a space: sentences about such files have none."""
    pieces = re.split(r"\s|\\[nr]", body)
    return max(len(piece) for piece in pieces) >= _LEAST_BODY


def find_web_tokens(text: str) -> Iterator[Finding]:
    """Tokens whose first two parts decode to JSON."""
    for match in _JWT.finditer(text):
        head = match[0].partition(".")[0]
        if _is_json(head) and _is_json(match["body"]):
            yield Finding("jwt", *match.span(), "a JSON web token: head and body decode")


def _is_json(part: str) -> bool:
    try:
        return isinstance(json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))), dict)
    except (binascii.Error, ValueError, RecursionError):
        return False


def find_url_passwords(text: str) -> Iterator[Finding]:
    """The password of `scheme://user:password@host`."""
    for match in _URL.finditer(text):
        user, word = match["user"], match["word"]
        if word.lower() in DOCUMENTED or word == user or is_placeholder(word) or (word.isdigit() and len(word) <= 5):
            continue
        yield Finding("url-password", *match.span("word"), "the password of a URL")


def find_aws_secrets(text: str) -> Iterator[Finding]:
    """Forty random characters next to an AWS key id, or after the words "aws … secret"."""
    for anchor in (*_AWS_ID.finditer(text), *_AWS_HINT.finditer(text)):
        for match in _AWS_SECRET.finditer(text, anchor.end(), anchor.end() + _AWS_REACH):
            if looks_random(match[0], least=40):
                yield Finding("aws-secret", *match.span(), "forty random characters beside an AWS key")
