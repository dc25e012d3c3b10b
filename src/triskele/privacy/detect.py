"""Find secrets in a text by bounded rules, and name them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from triskele.privacy import api_keys, financial, formats, passwords
from triskele.privacy.api_keys import PROVIDERS
from triskele.privacy.encodings import base64_texts, compatible, percent_decoded
from triskele.privacy.findings import Finding, merge
from triskele.text.words import TITLE_STOP_WORDS


def find(text: str) -> list[Finding]:
    """Find every secret, also encoded ones, in order and without overlaps."""
    view = compatible(text)
    if view is None:
        return merge(_findings(text))
    return merge(_moved(finding, *view.original(finding.start, finding.end)) for finding in _findings(view.text))


def is_cut(text: str, pieces: Sequence[str]) -> bool:
    """Whether splitting the text into these pieces splits one of its secrets."""
    if len(pieces) < 2:
        return False
    # Notes lose the indent of their lines.
    squeezed = ["".join(piece.split()) for piece in pieces]
    return any(
        all("".join(text[found.start : found.end].split()) not in piece for piece in squeezed) for found in find(text)
    )


def _findings(text: str) -> Iterator[Finding]:
    yield from _plain(text)
    view = percent_decoded(text)
    if view:
        for finding in _plain(view.text):
            yield _moved(finding, *view.original(finding.start, finding.end), ", percent-encoded")
    for decoded, start, end in base64_texts(text):
        for finding in _plain(decoded):
            yield _moved(finding, start, end, ", in base64")


def _plain(text: str) -> Iterator[Finding]:
    return (finding for rule in RULES for finding in rule(text))


def _moved(finding: Finding, start: int, end: int, how: str = "") -> Finding:
    return replace(finding, start=start, end=end, why=finding.why + how)


# Where rules overlap, the earlier one names the finding.
RULES: tuple[Callable[[str], Iterator[Finding]], ...] = (
    formats.find_private_keys,
    formats.find_web_tokens,
    api_keys.find_provider_keys,
    formats.find_aws_secrets,
    formats.find_azure_signatures,
    formats.find_url_passwords,
    formats.find_kubernetes_keys,
    formats.find_pgpass_passwords,
    formats.find_wifi_keys,
    financial.find_cards,
    financial.find_ibans,
    financial.find_phrases,
    financial.find_wallet_keys,
    passwords.find_codes,
    formats.find_command_passwords,
    formats.find_table_passwords,
    passwords.find_passwords,
    passwords.find_passwords_in_languages,
    api_keys.find_keys,
)


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
# Kinds made of words: the words after a finding may still belong to the secret.
_WORD_KINDS = frozenset({"password", "seed-phrase", "recovery-code"})
_ANNOUNCES = re.compile(
    r"(?i)(?:pass|pw|kennwort|key|schlüssel|login|credential|zugang|seed|phrase|wallet|recovery|codes?\b)[^\n:=\"]{0,40}+[:=\"]?"
)
_PLAIN_WORD = re.compile(r"(?<!\S)[(\"'„“]?(?P<word>[A-Za-zÀ-ÿ][a-zà-ÿ]{1,19}+|[A-Z]{2,5}+)[.,;:!?)\"'“”]{0,2}+(?!\S)")
_SAID_BY_LABEL = frozenset(
    "key keys token tokens secret secrets password passwort kennwort passphrase pin pw pwd pass code api iban card"
    " konto schlüssel login user username credentials value bearer authorization basic export true false"
    " null none".split()
)
_MAX_WORDS = 6
# The shortest piece of a secret that a title must not hold.
_PIECE = 3


def label_of(kind: str) -> str:
    """The name of a kind of finding."""
    return _LABELS[kind]


def title_for(text: str, findings: Sequence[Finding]) -> str:
    """Title of a secret: its kinds, then plain words around it."""
    labels = list(dict.fromkeys(_LABELS[finding.kind] for finding in findings)) or ["Secret"]
    label_words = {word.lower() for label in labels for word in label.split()}
    words = [word for word in _words_around(text, findings) if word.lower() not in label_words]
    return ", ".join(filter(None, [" and ".join(labels[:2]), " ".join(words[:_MAX_WORDS])]))


def _words_around(text: str, findings: Sequence[Finding]) -> Iterator[str]:
    pieces = _pieces(text[finding.start : finding.end] for finding in findings)
    seen: set[str] = set()
    for start, end in _spans_between(text, findings):
        for match in _PLAIN_WORD.finditer(text, start, end):
            word = match["word"]
            plain = word.lower()
            dull = plain in TITLE_STOP_WORDS or plain in _SAID_BY_LABEL or plain in seen
            if not dull and not _pieces([word]) & pieces:
                seen.add(plain)
                yield word


def _spans_between(text: str, findings: Sequence[Finding]) -> Iterator[tuple[int, int]]:
    """Spans between the secrets that a title may quote."""
    start = 0
    for finding in findings:
        if finding.kind in _WORD_KINDS:
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
