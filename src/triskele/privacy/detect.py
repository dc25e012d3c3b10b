"""Finds secrets in a text, by rules that look at every place a bounded number of times."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from triskele.privacy import api_keys, commands, financial, formats, passwords
from triskele.privacy.encodings import base64_texts, compatible, percent_decoded
from triskele.privacy.findings import Finding, merge


def find(text: str) -> list[Finding]:
    """Every secret in the text, encoded ones included, in order of place and without overlaps."""
    view = compatible(text)
    if view is None:
        return merge(_findings(text))
    return merge(_moved(finding, *view.original(finding.start, finding.end)) for finding in _findings(view.text))


def is_cut(text: str, pieces: Sequence[str]) -> bool:
    """Whether a secret of the text stands in none of its pieces as a whole."""
    if len(pieces) < 2:
        return False
    return any(all(text[found.start : found.end] not in piece for piece in pieces) for found in find(text))


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
    commands.find_command_passwords,
    passwords.find_passwords,
    passwords.find_passwords_in_languages,
    api_keys.find_keys,
)
