"""Decode percent signs, escapes, hexadecimal, base64, compatibility forms and reversed texts.

A `DecodedText` maps each of its characters to the original; `decodings` and `readings` are plain texts.
"""

from __future__ import annotations

import base64
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote

_STANDARD = str.maketrans("-_", "+/")
_INVISIBLE = re.compile("[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]")
_MARKS = "\u0300-\u036f\u1160-\u11ff\u3099\u309a"
_CLUSTER = re.compile(f"[^\x00-\x7f{_MARKS}][{_MARKS}]*+|[\x00-\x7f][{_MARKS}]++|[{_MARKS}]++")
_PERCENT = re.compile("(?:%[0-9a-fA-F]{2})++")
# Long enough for a short key; a line of a wrapped file has 60 characters or more.
_BASE64_RUN = re.compile(
    r"(?<![A-Za-z0-9+/_\-])(?:[A-Za-z0-9+/_\-]{60,120}+\r?\n[ \t]{0,16}+){0,200}[A-Za-z0-9+/_\-]{22,20000}+={0,2}+"
)
# Enough characters to reject binary content.
_BASE64_PROBE = 20
_BINARY = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class DecodedText:
    """A decoded text, with the original span of each character."""

    text: str
    starts: list[int]
    ends: list[int]

    def original(self, start: int, end: int) -> tuple[int, int]:
        """The span of the original that these characters come from."""
        return self.starts[start], self.ends[end - 1]


def compatible(text: str) -> DecodedText | None:
    """The NFKC form without invisible characters; None if nothing changes."""
    if text.isascii() or (unicodedata.is_normalized("NFKC", text) and not _INVISIBLE.search(text)):
        return None
    return _view(text, _CLUSTER, _as_compatible)


def percent_decoded(text: str) -> DecodedText | None:
    """Decode percent signs, also doubled ones; None if there are none."""
    if "%" not in text or not _PERCENT.search(text):
        return None
    once = _view(text, _PERCENT, _as_decoded)
    if not _PERCENT.search(once.text):
        return once
    twice = _view(once.text, _PERCENT, _as_decoded)
    return DecodedText(twice.text, [once.starts[at] for at in twice.starts], [once.ends[at - 1] for at in twice.ends])


def base64_texts(text: str) -> Iterator[tuple[str, int, int]]:
    """Decode runs of base64 to text, with their spans; skip binary content."""
    for run in _BASE64_RUN.finditer(text):
        if run[0][:_BASE64_PROBE].isalpha() and run[0][:_BASE64_PROBE].islower():
            continue
        if _is_text(_decode_base64(run[0][:_BASE64_PROBE])):
            content = _decode_base64(re.sub(r"\s", "", run[0]))
            if _is_text(content):
                yield content.decode("utf-8"), *run.span()


def _decode_base64(run: str) -> bytes:
    digits = run.rstrip("=").translate(_STANDARD)
    whole = digits[: len(digits) - (len(digits) % 4 == 1)]
    return base64.b64decode(whole + "=" * (-len(whole) % 4))


def _is_text(content: bytes) -> bool:
    try:
        decoded = content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return bool(decoded) and _BINARY.search(decoded) is None


# A character of the view, and how many characters of the match it comes from.
Decoded = Iterable[tuple[str, int]]


def _view(text: str, pattern: re.Pattern[str], decode: Callable[[str], Decoded]) -> DecodedText:
    parts: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    done = 0
    for match in pattern.finditer(text):
        parts.append(text[done : match.start()])
        starts.extend(range(done, match.start()))
        ends.extend(range(done + 1, match.start() + 1))
        done = match.start()
        for characters, length in decode(match[0]):
            parts.append(characters)
            starts.extend([done] * len(characters))
            ends.extend([done + length] * len(characters))
            done += length
        done = match.end()
    parts.append(text[done:])
    starts.extend(range(done, len(text)))
    ends.extend(range(done + 1, len(text) + 1))
    return DecodedText("".join(parts), starts, ends)


def _as_compatible(cluster: str) -> Decoded:
    return [(_INVISIBLE.sub("", unicodedata.normalize("NFKC", cluster)), len(cluster))]


def _as_decoded(run: str) -> Decoded:
    content = bytes.fromhex(run.replace("%", ""))
    try:
        return [(character, 3 * len(character.encode())) for character in content.decode("utf-8")]
    except UnicodeDecodeError:
        return [(run, len(run))]


_ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})")
_HEX = re.compile(r"(?:(?:0x|\\x)?[0-9a-fA-F]{2}[\s:,;-]{0,2}){6,}+")
_NO_DIGIT = re.compile(r"0x|[^0-9a-fA-F]")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{11,}+")
# Binary content rarely has this many printable characters in a row.
_LEGIBLE = re.compile(r"[^\x00-\x08\x0e-\x1f\x7f-\x9f\ufffd]{6,}+")


def decodings(text: str) -> list[str]:
    """The text and its decodings, not nested ones."""
    plain = [text, unquote(text), unquote(text.replace("+", " ")), _ESCAPED.sub(_unescaped, text)]
    return list(dict.fromkeys([*plain, *filter(None, _decoded_runs(text))]))


def readings(text: str) -> list[str]:
    """The decodings of a text, and the text backwards."""
    return [*decodings(text), text[::-1]]


def _unescaped(found: re.Match[str]) -> str:
    return chr(int(found[1], 16))


def _decoded_runs(text: str) -> Iterator[str]:
    for run in _HEX.findall(text):
        digits = _NO_DIGIT.sub("", run)
        # A piece of a longer run may begin in the middle of a character.
        for start in range(2):
            yield _legible(bytes.fromhex(digits[start : start + (len(digits) - start) // 2 * 2]))
    for run in _BASE64.findall(text):
        for start in range(4):
            digits = run[start : start + (len(run) - start) // 4 * 4].translate(_STANDARD)
            rest = run[start + len(digits) :].translate(_STANDARD)
            yield _legible(base64.b64decode(digits + (rest.ljust(4, "=") if len(rest) > 1 else "")))


def _legible(content: bytes) -> str:
    """The printable parts of bytes, without NUL so that UTF-16 is readable."""
    return " ".join(_LEGIBLE.findall(content.replace(b"\0", b"").decode("utf-8", "replace")))
