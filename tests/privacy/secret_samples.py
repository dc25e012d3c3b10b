"""The labelled samples, made from templates: no key is stored, each is drawn from the seed of its template.

In a template ‹…› is a drawn part (an alphabet and a length, or a maker by name), ⟦…⟧ marks the secret, and ‹join›
keeps apart what a scanner of the repository would take for a key. A maker that encodes text takes a template of its
own, whose parts stand in braces: ‹b64of:glpat-{url:20}›.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
import string
import unicodedata
import uuid
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from triskele.privacy.financial import is_phrase, word_number

DATA = Path(__file__).parent.parent / "data"
TEMPLATES = DATA / "secrets.jsonl"
# Encoded keys, files and command lines of tools, and sentences in many languages.
FORMS = DATA / "secret_forms.jsonl"

BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase
BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
ALPHABETS = {
    "alnum": BASE62,
    "alpha": string.ascii_letters,
    "lower": string.ascii_lowercase + string.digits,
    "upper": string.ascii_uppercase + string.digits,
    "base32": string.ascii_uppercase + "234567",
    "bech": "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L",
    "bechlow": "qpzry9x8gf2tvdw0s3jn54khce6mua7l",
    "hex": "0123456789abcdef",
    "HEX": "0123456789ABCDEF",
    "Hex": "0123456789abcdefABCDEF",
    "digits": string.digits,
    "url": BASE62 + "-_",
    "b64": BASE62 + "+/",
}
# Everyday words that are on the list of BIP-39; enough to draw phrases from.
WORDS = (
    "apple arrow autumn basket beach bridge butter cabin camera candy castle cherry circle clock cloud coffee copper"
    " corn cousin cradle dance desert dinner doctor dolphin door dragon dream eagle early earth elephant engine"
    " family farm father fence field finger flower forest frozen garden garlic ghost giant ginger glass globe"
    " gold grape guitar hammer harbor hazard honey horse hotel island jacket jungle kitchen ladder lemon letter lion"
    " machine mango maple marble meadow melody mirror monkey mountain museum napkin noodle ocean office olive orange"
    " orbit oxygen palace paper parrot pencil pepper piano pilot planet potato puzzle quarter rabbit radio ribbon river"
    " rocket saddle salmon school shadow silver sister spider spoon square stone summer sunset table tennis ticket"
    " tiger tomato tower trumpet tunnel turtle umbrella uncle valley velvet village violin wagon walnut water whale"
    " window winter wolf wood yellow zebra"
).split()
IBAN_FORMS = {"DE": "18", "GB": "A4 14", "FR": "10 11", "CH": "5 12", "NL": "A4 10", "AT": "16", "ES": "20", "PL": "24"}

# Version bytes of extended keys (BIP-32, SLIP-132).
EXTENDED_KEYS = {
    "xprv": "0488ade4",
    "yprv": "049d7878",
    "zprv": "04b2430c",
    "tprv": "04358394",
    "xpub": "0488b21e",
    "zpub": "04b24746",
}

_PART = re.compile(r"‹([^›]+)›")
_INNER_PART = re.compile(r"\{(\w+(?::[\w:]*)?)\}")


@dataclass(frozen=True, slots=True)
class Sample:
    """One text; `start` to `end` is the secret in it, `kind` is None if there is none."""

    text: str
    kind: str | None
    like: str | None
    start: int
    end: int
    half: int


def load(templates: Path = TEMPLATES) -> list[Sample]:
    """Every sample of the file, the same in every run."""
    lines = templates.read_text(encoding="utf-8").split("\n")
    return [_make(json.loads(line.replace("‹join›", ""))) for line in lines if line]


def fill(template: str) -> str:
    """The template with its parts drawn."""
    draw = random.Random(hashlib.sha256(template.encode()).digest())
    return _PART.sub(lambda match: _part(match[1], draw), template)


def _make(row: dict[str, str]) -> Sample:
    filled = fill(row["text"])
    start, end = filled.find("⟦"), filled.find("⟧") - 1
    half = hashlib.sha256(row["text"].encode()).digest()[0] % 2
    text = filled.replace("⟦", "").replace("⟧", "")
    return Sample(text, row.get("kind"), row.get("like"), start, end, half)


def _part(said: str, draw: random.Random) -> str:
    name, _, rest = said.partition(":")
    if name in ALPHABETS:
        return _random(draw, ALPHABETS[name], int(rest))
    return MAKERS[name](draw, rest)


def _random(draw: random.Random, alphabet: str, length: int) -> str:
    return "".join(draw.choice(alphabet) for _ in range(length))


def _checked(draw: random.Random, length: str) -> str:
    body = _random(draw, BASE62, int(length))
    return body + _in_base(zlib.crc32(body.encode()), BASE62).rjust(6, "0")


def _in_base(number: int, alphabet: str) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, len(alphabet))
        digits = alphabet[digit] + digits
    return digits


def _password(draw: random.Random, _: str) -> str:
    word, other = draw.choice(WORDS), draw.choice(WORDS)
    number, sign = draw.randint(10, 9999), draw.choice("!$%&*?+_")
    forms = (
        f"{word.title()}{number}{sign}",
        f"{word}{other.title()}{number}",
        f"{word.title()}-{other.title()}-{number}",
        f"{_random(draw, BASE62, 6)}{sign}{_random(draw, BASE62, 4)}{number}",
        f"{sign}{word}{number}{other}",
        f"{word[0].upper()}{number}{other[:4]}{sign}{sign}",
    )
    return draw.choice(forms)


def _luhn(draw: random.Random, said: str, *, holds: bool = True) -> str:
    prefix, length, *group = re.split(r"[:\-]", said)
    body = prefix + _random(draw, string.digits, int(length) - len(prefix) - 1)
    doubled = (int(digit) * (2 - index % 2) for index, digit in enumerate(reversed(body)))
    total = sum(number - 9 if number > 9 else number for number in doubled)
    last = -total % 10
    digits = body + str(last if holds else (last + 1 + draw.randrange(9)) % 10)
    mark = "-" if "-" in said else " "
    return mark.join(re.findall(f"\\d{{1,{group[0]}}}", digits)) if group else digits


def _iban(draw: random.Random, said: str, *, holds: bool = True) -> str:
    country, _, group = said.partition(":")
    body = ""
    for piece in IBAN_FORMS[country].split():
        letters = piece.startswith("A")
        body += _random(draw, string.ascii_uppercase if letters else string.digits, int(piece.lstrip("A")))
    number = int("".join(str(int(character, 36)) for character in f"{body}{country}00"))
    check = 98 - number % 97
    text = f"{country}{check if holds else check % 97 + 2:02d}{body}"
    return " ".join(re.findall(".{1,4}", text)) if group else text


def _phrase(draw: random.Random, length: str, *, join: str = " ", holds: bool = True) -> str:
    words = [draw.choice(WORDS) for _ in range(int(length))]
    while is_phrase([word_number(word) or 0 for word in words]) is not holds:
        words[-1], words[-2] = draw.choice(WORDS), draw.choice(WORDS)
    if join == "n":
        return " ".join(f"{place}. {word}" for place, word in enumerate(words, 1))
    return join.join(words)


def _jwt(draw: random.Random, _: str) -> str:
    head = {"alg": draw.choice(["HS256", "RS256"]), "typ": "JWT"}
    body = {"sub": str(draw.randrange(10**6)), "iat": draw.randrange(10**9)}
    parts = (json.dumps(part, separators=(",", ":")).encode() for part in (head, body))
    signed = [base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts]
    return ".".join([*signed, _random(draw, ALPHABETS["url"], 43)])


def _discord(draw: random.Random, _: str) -> str:
    owner = base64.urlsafe_b64encode(str(draw.randint(10**17, 10**18)).encode()).decode().rstrip("=")
    return f"{owner}.{_random(draw, ALPHABETS['url'], 6)}.{_random(draw, ALPHABETS['url'], 38)}"


def _wallet_key(draw: random.Random, _: str) -> str:
    body = b"\x80" + draw.randbytes(32) + b"\x01"
    return _in_base(int.from_bytes(body + _double_hash(body)), BASE58)


def _lines(draw: random.Random, count: str) -> str:
    return "\n".join(_random(draw, ALPHABETS["b64"], 64) for _ in range(int(count)))


def _basic(draw: random.Random, _: str) -> str:
    return base64.b64encode(f"anna:{_password(draw, '')}".encode()).decode()


def _extended_key(draw: random.Random, version: str) -> str:
    body = bytes.fromhex(EXTENDED_KEYS[version]) + bytes(9) + draw.randbytes(65)
    return _in_base(int.from_bytes(body + _double_hash(body)), BASE58)


def _double_hash(body: bytes) -> bytes:
    return hashlib.sha256(hashlib.sha256(body).digest()).digest()[:4]


def _encoded(encode: Callable[[str], str]) -> Callable[[random.Random, str], str]:
    """A maker that draws the parts of its own template, then encodes the whole."""
    return lambda draw, template: encode(_INNER_PART.sub(lambda match: _part(match[1], draw), template))


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _bold(text: str) -> str:
    names = {"A": "CAPITAL", "a": "SMALL"}
    return "".join(
        unicodedata.lookup(f"MATHEMATICAL SANS-SERIF BOLD {names['A' if letter.isupper() else 'a']} {letter.upper()}")
        if letter.isascii() and letter.isalpha()
        else letter
        for letter in text
    )


def _wide(text: str) -> str:
    return "".join(chr(ord(letter) + 0xFEE0) if "!" <= letter <= "~" else letter for letter in text)


MAKERS: dict[str, Callable[[random.Random, str], str]] = {
    "crc": _checked,
    "pass": _password,
    "uuid": lambda draw, _: str(uuid.UUID(int=draw.getrandbits(128), version=4)),
    "luhn": _luhn,
    "badluhn": lambda draw, said: _luhn(draw, said, holds=False),
    "iban": _iban,
    "badiban": lambda draw, said: _iban(draw, said, holds=False),
    "bip39": _phrase,
    "bip39n": lambda draw, said: _phrase(draw, said, join="n"),
    "bip39c": lambda draw, said: _phrase(draw, said, join=", "),
    "bip39bad": lambda draw, said: _phrase(draw, said, holds=False),
    "jwt": _jwt,
    "discord": _discord,
    "wif": _wallet_key,
    "pem": _lines,
    "basic": _basic,
    "xkey": _extended_key,
    "b64x": lambda draw, length: quote(_random(draw, ALPHABETS["b64"], int(length)), safe=""),
    "b64of": _encoded(_base64),
    "b64url": _encoded(lambda text: _base64(text).rstrip("=").translate(str.maketrans("+/", "-_"))),
    "percent": _encoded(lambda text: quote(text, safe="")),
    "percents": _encoded(lambda text: "".join(f"%{byte:02X}" for byte in text.encode())),
    "wide": _encoded(_wide),
    "bold": _encoded(_bold),
    "zw": _encoded("\u200b".join),
}
