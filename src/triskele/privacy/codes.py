"""PINs, door codes and recovery codes: too short to be told without the word before them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from triskele.privacy.findings import Finding

_PIN = re.compile(
    r"(?:\bPIN|\bPin\b|-PIN|\bPUK|(?i:\bpin(?= (?:is|code|of|for)\b|:)"
    r"|\b(?:door|gate|alarm|entry|lock|locker|keypad|unlock|garage)[ \-]codes?"
    r"|\b(?:safe|lock) (?:code|combination)|\bcombination (?:of|for) [a-z ]{0,20}\b(?:lock|safe)\b"
    r"|\b(?:tür|tresor|alarm|zugangs|schloss)-?code|\bgeheimzahl|\bcode(?= ?\d{4,6}#)))"
    r"(?P<between>[A-Za-zäöüß (),]{0,40}+)[:=]?\s{0,2}+"
    r"(?P<value>\d{4,8}+#?|\d{1,2}(?:[ \-]\d{1,2}){2,3}+)(?![\w.,]?\d|\w)"
)


_CODES = re.compile(
    r"(?i)\b(?:recovery|backup|2fa|scratch|wiederherstellungs|one-time)[ \-]?codes?\b[\w ]{0,30}+[:=]?\s{0,2}+"
    r"(?P<value>(?=[a-z\-]{0,10}\d)[a-z0-9]{4,10}(?:-[a-z0-9]{4,10}){1,3}(?:[\s,]{1,2}+[a-z0-9]{4,10}(?:-[a-z0-9]{4,10}){1,3}){0,15}+)"
)


def find_codes(text: str) -> Iterator[Finding]:
    """Short numbers after a word such as PIN or door code, and lists of recovery codes."""
    for match in _PIN.finditer(text):
        yield Finding("pin", *match.span("value"), "a short number after a word for PIN or door code")
    for match in _CODES.finditer(text):
        yield Finding("recovery-code", *match.span("value"), "stands after a word for recovery code")
