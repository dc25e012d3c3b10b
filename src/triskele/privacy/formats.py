"""Secrets in the formats of tools: key files, tokens, URLs, configuration files and Wi-Fi codes."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator

from triskele.privacy.findings import Finding
from triskele.privacy.randomness import DOCUMENTED, is_placeholder, looks_chosen, looks_random

_BEGIN = re.compile(r"-----BEGIN (?P<name>(?:[A-Z0-9]{2,12} ){0,3}PRIVATE KEY(?: BLOCK)?)-----")
_BODY = re.compile(r"(?:[A-Z][A-Za-z\-]{2,12}+: [^\n\\]{1,80}+|[A-Za-z0-9+/=\s]|\\[nr]){1,20000}+")
_END = re.compile(r"-----END [A-Z0-9 ]{5,40}-----")
_PRIVATE_END = re.compile(r"-----END (?:[A-Z0-9]{2,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----")
# Read backwards from the END line of a block whose BEGIN line is gone.
_BODY_BACKWARDS = re.compile(r"(?:[A-Za-z0-9+/=\s]|[nr]\\){1,8000}+")
_BODY_REACH = 8000
_LEAST_BODY = 40
# PKCS#8 and OpenSSH bodies start with these bytes; public keys do not.
_BARE_BODY = re.compile(
    r"(?<![A-Za-z0-9+/])(?:MII[A-Za-z0-9+/]{4}BADANBgkqhkiG9w0BAQEF|b3BlbnNzaC1rZXktdjEA)(?:[A-Za-z0-9+/=]|\\[nr]|\n){60,20000}+"
)
_PUTTY = re.compile(
    r"Private-Lines: {0,2}\d{1,4}(?:\s|\\[rn]){1,6}+"
    r"(?P<body>[A-Za-z0-9+/]{24,80}+={0,2}+(?:(?:\s|\\[rn]){1,6}[A-Za-z0-9+/]{4,80}+={0,2}(?![\w\-]*:)){0,400}+)"
)

_JWT = re.compile(r"(?<![\w\-])eyJ[\w\-]{8,2000}+\.(?P<body>eyJ[\w\-]{4,8000}+)\.[\w\-]{16,2000}+")
_URL = re.compile(
    r"\b[a-zA-Z][a-zA-Z0-9+.\-]{1,20}+://(?P<user>[^\s:/@?#\"'<>]{0,100}+):(?P<word>[^\s@\"'<>]{1,200}+)@[\w\[]"
)
_AWS_ID = re.compile(r"(?<![A-Za-z0-9])A(?:KI|SI)A[A-Z2-7]{16}(?![A-Z0-9])")
_AWS_HINT = re.compile(r"(?i)aws[\w .\-]{0,20}?secret")
_AWS_SECRET = re.compile(r"(?<![A-Za-z0-9+/=])[A-Za-z0-9+/]{40}(?![A-Za-z0-9+/=])")
_AWS_REACH = 160
_SAS_SIGNATURE = re.compile(r"(?<![A-Za-z])sig=(?P<value>[A-Za-z0-9%+/_\-]{40,120}+={0,2}+)")
_SAS_QUERY = re.compile(r"[^\s?\"'<>;]{0,800}$")
_SAS_FIELD = re.compile(r"(?:^|&|=)(?:sv|se|sp|sr|si|skn|st|srt)=")
_SAS_REACH = 800

_KUBERNETES = re.compile(
    r"client-key-data[\"']?\s{0,3}:\s{0,3}[\"']?(?P<key>[A-Za-z0-9+/]{40,20000}+={0,2}+)"
    r"|token[\"']?(?:\s{0,3}:\s{0,3}|[= ])[\"']?(?P<bootstrap>[a-z0-9]{6}\.[a-z0-9]{16})(?![\w.])"
    r"|(?<![A-Za-z0-9])(?P<node>K10[0-9a-f]{64}::[\w\-]{1,40}:[\w.]{16,80}+)"
    r"|--certificate-key[= ](?P<certificate>[0-9a-f]{64})(?![0-9a-f])"
)
_PGPASS = re.compile(
    r"(?<![^\s\"'])(?:\\[:\\]|[\w.\-*/\[\]]){1,253}+:(?:\d{4,5}|\*):(?:[A-Za-z_][\w\-]{0,62}+|\*):[A-Za-z_][\w\-.@]{0,62}+"
    r":(?P<value>(?:\\[:\\]|[^\s:\"'\\]){5,120}+)"
)
_WIFI_CODE = re.compile(
    r"WIFI:(?:[A-OQ-Z]:(?:\\.|[^;\\\n]){0,100}+;){0,6}P:\"?(?P<value>(?:\\.|[^;\\\n\"]){5,100}+)\"?;"
)
_WIFI_FILES = re.compile(
    r"(?:<keyMaterial>|\bwep_key\d=\"?|\bwpa_psk=|\b[pP]re-?[sS]hared-?[kK]ey=)(?P<value>[^\s<\"]{5,64}+)"
    r"|\boption key ['\"](?P<uci>[^'\"\n]{5,64}+)['\"]"
    r"|\bpsk=(?P<hash>[0-9a-fA-F]{64})(?![0-9a-fA-F])"
)
_WIFI_FILE_MARKS = ("keyMaterial", "wep_key", "wpa_psk", "hared", "option key", "psk=")


def find_private_keys(text: str) -> Iterator[Finding]:
    """PEM, PGP and PuTTY blocks with a body, also where their first or last line was cut off."""
    end = 0
    for match in _BEGIN.finditer(text) if "-----BEGIN" in text else ():
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
    if "-----END" in text:
        yield from _headless(text)
    if "Private-Lines" in text:
        yield from (
            Finding("private-key", *match.span("body"), "the private lines of a PuTTY key")
            for match in _PUTTY.finditer(text)
        )
    if "BADANBgkqhkiG9w0BAQEF" in text or "b3BlbnNzaC1rZXktdjEA" in text:
        yield from (
            Finding("private-key", *match.span(), "the first bytes of a private key")
            for match in _BARE_BODY.finditer(text)
        )


def _headless(text: str) -> Iterator[Finding]:
    """Blocks of which only the body and the last line are left."""
    for match in _PRIVATE_END.finditer(text):
        before = text[max(0, match.start() - _BODY_REACH) : match.start()]
        body = _BODY_BACKWARDS.match(before[::-1])
        if body and _is_body(body[0][::-1]):
            yield Finding("private-key", match.start() - body.end(), match.end(), "the last lines of a private key")


def _is_body(body: str) -> bool:
    """A long piece without a space: sentences about such files have none."""
    pieces = re.split(r"\s|\\[nr]", body)
    return max(len(piece) for piece in pieces) >= _LEAST_BODY


def find_web_tokens(text: str) -> Iterator[Finding]:
    """Tokens whose first two parts decode to JSON."""
    if "eyJ" not in text:
        return
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
    if "://" not in text:
        return
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


def find_azure_signatures(text: str) -> Iterator[Finding]:
    """Shared access signatures: the query up to its signature, which opens the storage by itself."""
    if "sig=" not in text:
        return
    for match in _SAS_SIGNATURE.finditer(text):
        before = _SAS_QUERY.search(text, max(0, match.start() - _SAS_REACH), match.start())
        start = before.start() if before else match.start()
        around = text[start : match.start()], text[match.end() : match.end() + 60]
        if any(map(_SAS_FIELD.search, around)) and not is_placeholder(match["value"]):
            yield Finding("azure-sas", start, match.end(), "a shared access signature of Azure")


def find_kubernetes_keys(text: str) -> Iterator[Finding]:
    """Client keys, bootstrap tokens and node tokens of a cluster."""
    if "client-key-data" in text or "token" in text or "K10" in text or "certificate-key" in text:
        for match in _KUBERNETES.finditer(text):
            part = str(match.lastgroup)
            if not is_placeholder(match[part]):
                kind = "private-key" if part == "key" else "secret"
                yield Finding(kind, *match.span(part), "a key or token of a Kubernetes cluster")


def find_pgpass_passwords(text: str) -> Iterator[Finding]:
    """The last field of a line `host:port:database:user:password`."""
    if text.count(":") < 4:
        return
    for match in _PGPASS.finditer(text):
        word = match["value"]
        if word.lower() not in DOCUMENTED and looks_chosen(word):
            yield Finding("password", *match.span("value"), "the last field of a .pgpass line")


def find_wifi_keys(text: str) -> Iterator[Finding]:
    """The key in a Wi-Fi code and in the configuration files of Wi-Fi tools."""
    patterns = [_WIFI_CODE] if "WIFI:" in text else []
    if any(mark in text for mark in _WIFI_FILE_MARKS):
        patterns.append(_WIFI_FILES)
    for match in (match for pattern in patterns for match in pattern.finditer(text)):
        part = str(match.lastgroup)
        if match[part].lower() not in DOCUMENTED and not is_placeholder(match[part]):
            yield Finding("password", *match.span(part), "the key of a Wi-Fi network")
