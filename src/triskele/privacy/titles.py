"""Names a secret without showing any of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from triskele.privacy.api_keys import PROVIDERS
from triskele.privacy.findings import Finding

_LABELS = {provider.kind: provider.label for provider in PROVIDERS} | {
    "private-key": "Private key",
    "gcp-service-account": "Google service account",
    "jwt": "Web token",
    "aws-secret": "AWS secret",
    "azure-sas": "Azure signature",
    "wallet-key": "Wallet key",
    "url-password": "URL with password",
    "card": "Card number",
    "iban": "IBAN",
    "seed-phrase": "Wallet phrase",
    "pin": "PIN",
    "recovery-code": "Recovery code",
    "password": "Password",
    "secret": "Secret",
}
# Kinds made of words: what stands behind them may still belong to them.
_WORDY = frozenset({"password", "seed-phrase", "recovery-code"})
_ANNOUNCES = re.compile(
    r"(?i)(?:pass|pw|kennwort|key|schlüssel|login|credential|zugang|seed|phrase|wallet|recovery|codes?\b)[^\n:=\"]{0,40}+[:=\"]?"
)
_WORD = re.compile(r"(?<!\S)[(\"'„“]?(?P<word>[A-Za-zÀ-ÿ][a-zà-ÿ]{1,19}+|[A-Z]{2,5}+)[.,;:!?)\"'“”]{0,2}+(?!\S)")
_SAID_BY_LABEL = frozenset(
    "key keys token tokens secret secrets password passwort kennwort passphrase pin pw pwd pass code api iban card"
    " konto schlüssel login user username credentials value bearer authorization basic export true false"
    " null none".split()
)
_SMALL = frozenset(
    "the an of for to in on at is was are it its this that my our your her his and or with from by be use used remember"
    " please again new old one do not lose der die das ein eine für von vom im am an auf ist war und oder mit mein"
    " unser lautet bitte neu alt".split()
)
_MAX_WORDS = 6
# A piece of a secret this long must not stand in a title.
_PIECE = 3


def label_of(kind: str) -> str:
    """A kind of finding in words."""
    return _LABELS[kind]


def title_for(text: str, findings: Sequence[Finding]) -> str:
    """The kinds of the secrets, then plain words around them; without findings anything may be the secret."""
    labels = list(dict.fromkeys(_LABELS[finding.kind] for finding in findings)) or ["Secret"]
    said = {word.lower() for label in labels for word in label.split()}
    words = [word for word in _words_around(text, findings) if word.lower() not in said]
    return ", ".join(filter(None, [" and ".join(labels[:2]), " ".join(words[:_MAX_WORDS])]))


def _words_around(text: str, findings: Sequence[Finding]) -> Iterator[str]:
    pieces = _pieces(text[finding.start : finding.end] for finding in findings)
    seen: set[str] = set()
    for start, end in _free(text, findings):
        for match in _WORD.finditer(text, start, end):
            word = match["word"]
            plain = word.lower()
            dull = plain in _SMALL or plain in _SAID_BY_LABEL or plain in seen
            if not dull and not _pieces([word]) & pieces:
                seen.add(plain)
                yield word


def _free(text: str, findings: Sequence[Finding]) -> Iterator[tuple[int, int]]:
    """The spans between the secrets; around one made of words only what stands before the word that announces it."""
    start = 0
    for finding in findings:
        if finding.kind in _WORDY:
            announced = list(_ANNOUNCES.finditer(text, start, finding.start))
            yield start, announced[-1].end() if announced else start
            return
        yield start, finding.start
        start = finding.end
    if findings:
        yield start, len(text)


def _pieces(values: Iterable[str]) -> set[str]:
    return {
        value[at : at + _PIECE] for value in map(str.lower, values) for at in range(max(1, len(value) - _PIECE + 1))
    }
