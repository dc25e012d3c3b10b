"""Find card numbers, IBANs, wallet keys and phrases by checksum or context."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path

from triskele.privacy.findings import Finding, is_placeholder, lowered, matches_near

_DIGITS = re.compile(
    r"(?<![\w.,\-+])(?:\d{4}[ \-]){2,4}\d{1,7}(?![\w\-]|[.,]\d)|(?<![\w.,\-+])\d{13,19}+(?![\w\-]|[.,]\d)"
    r"|(?<![\w.,\-+])\d{4}[ \-]\d{6}[ \-]\d{4,5}(?![\w\-]|[.,]\d)"
)
# Every card number is in one.
_DIGIT_RUN = re.compile(r"\d[\d \-]{10,}+")
_DIGITS_AFTER = 4
# Prefix range, then the lengths that its cards have.
_ISSUERS = (
    ("4", "4", (13, 16, 19)),
    ("51", "55", (16,)),
    ("2221", "2720", (16,)),
    ("34", "34", (15,)),
    ("37", "37", (15,)),
    ("6011", "6011", (16, 19)),
    ("644", "659", (16, 19)),
    ("300", "305", (14,)),
    ("36", "36", (14,)),
    ("38", "39", (14,)),
    ("3528", "3589", (16,)),
    ("62", "62", (16, 17, 18, 19)),
)
# Published by payment providers for tests.
_TEST_CARDS = frozenset(
    "4242424242424242 4000056655665556 4111111111111111 4012888888881881 4000000000000002 4000000000009995"
    " 5555555555554444 5105105105105100 2223003122003222 5200828282828210 378282246310005 371449635398431"
    " 6011111111111117 6011000990139424 30569309025904 38520000023237 3056930009020004 36227206271667"
    " 3530111333300000 3566002020360505 6200000000000005".split()
)
_CARD_WORD = re.compile(r"(?i)card|karte|visa|master|amex|american express|credit|kredit|debit|diners|jcb|\bcc\b|pay")
_OTHER_NUMBER = re.compile(
    r"(?i)order|bestell|tracking|sendung|invoice|rechnung|ticket|isbn|\bean\b|gtin|barcode|imei|serial|timestamp|snowflake|\bids?\b"
    r"|account no|phone|tel\b|build|test|sandbox|nummer|\bnr\b|\bno\."
)
_REACH = 40
# Longer card numbers are rare, so they need a word such as "card" before them.
_USUAL_DIGITS = 16

_IBAN = re.compile(
    r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?:[A-Z0-9]{11,30}+|(?: [A-Z0-9]{4}){2,7}+(?: [A-Z0-9]{1,3})?+)(?![A-Za-z0-9])"
)
_IBAN_LENGTHS = {
    pair[:2]: int(pair[3:])
    for pair in (
        "AD=24 AE=23 AL=28 AT=20 AZ=28 BA=20 BE=16 BG=22 BH=22 BR=29 BY=28 CH=21 CR=22 CY=28 CZ=24 DE=22 DK=18 DO=28"
        " EE=20 EG=29 ES=24 FI=18 FO=18 FR=27 GB=22 GE=22 GI=23 GL=18 GR=27 GT=28 HR=21 HU=28 IE=22 IL=23 IQ=23 IS=26"
        " IT=27 JO=30 KW=30 KZ=20 LB=28 LC=32 LI=21 LT=20 LU=20 LV=21 LY=25 MC=27 MD=24 ME=22 MK=19 MR=27 MT=31 MU=30"
        " NL=18 NO=15 PK=24 PL=28 PS=29 PT=25 QA=29 RO=24 RS=22 SA=24 SC=31 SE=24 SI=19 SK=24 SM=27 ST=25 SV=28 TL=23"
        " TN=24 TR=26 UA=29 VA=22 VG=24 XK=20"
    ).split()
}
_EXAMPLE_IBANS = frozenset(
    "DE89370400440532013000 GB82WEST12345698765432 GB29NWBK60161331926819 FR1420041010050500013M02606"
    " CH9300762011623852957 NL91ABNA0417164300 AT611904300234573201 ES9121000418450200051332"
    " DE02120300000000202051 BE68539007547034 IT60X0542811101000000123456 PL61109010140000071219812874".split()
)

LENGTHS = (24, 21, 18, 15, 12)

# Three bytes of each word's SHA-256, in the order of the list: no word of the list is stored.
_WORD_LIST = Path(__file__).with_name("bip39.txt")
_FINGERPRINT_BYTES = 3
_BITS_PER_WORD = 11
_SEED_WORD = re.compile(r"(?<![^\W_])[a-zA-Z]{3,8}+(?![^\W_])")
# Between two words of a phrase: a space, a comma, or the number of the next word.
_SEED_GAP = re.compile(r"[\s,;]{0,3}+(?:\d{1,2}[.):]?)?+[\s,;]{0,2}+")
_SEED_HINT = re.compile(
    r"(?i)\b(?:seed|mnemonic|recovery|wallet|backup|ledger|trezor|metamask|cold storage|wiederherstellung|merkwörter)"
)
_SEED_REACH = 120

_WALLET_HINT = re.compile(
    r"(?:priv(?:ate)?[\s_\-]?key(?:toaccount|s)?|private[rn]? schlüssel|from_?key|wallet(?=\()|accounts?[\"']?\s?:\s?\["
    r"|(?:signer|deployer|owner|secret|spend|minter|wallet|metamask|(?<![a-z])eth(?:ereum)?)"
    r"[\s_\-]?(?:key|private)|cl[ée] privée|clave privada|chave privada"
    r"|chiave privata|klucz prywatny|приватн\w{1,4} ключ\w{0,3}|закрыт\w{1,4} ключ\w{0,3}|私钥|私鑰|秘密鍵|개인 ?키)"
)
# The words between a hint and its key: a word such as "hash" there makes the value innocent.
_WALLET_KEY = re.compile(r"(?P<between>[^\n;.]{0,60}?)(?<![0-9a-zA-Z])(?P<key>(?:0x)?[0-9a-f]{64})(?![0-9a-z])")
_OTHER_HEX = re.compile(
    r"(?<![a-z])(?:tx|txn|txid|hash|transaction|block|topic|root|slot|signature|digest|sha256|public|pub)"
)
_EXTENDED_KEY = re.compile(r"(?<![A-Za-z0-9])[xyztuvYZUV]prv[1-9A-HJ-NP-Za-km-z]{107,108}(?![A-Za-z0-9])")
_HEX_KEY = re.compile(r"[0-9a-fA-F]{64}")
_WALLET_REACH = 160


def find_cards(text: str) -> Iterator[Finding]:
    """Find card numbers, unless the words before name another number."""
    runs = (run.span() for run in _DIGIT_RUN.finditer(text))
    for match in matches_near(_DIGITS, text, runs, before=0, after=_DIGITS_AFTER):
        digits = re.sub(r"\D", "", match[0])
        if not is_card(digits):
            continue
        around = max(0, match.start() - _REACH), match.start()
        doubtful = len(digits) > _USUAL_DIGITS or _OTHER_NUMBER.search(text, *around)
        if doubtful and not _CARD_WORD.search(text, *around):
            continue
        yield Finding("card", *match.span(), "a card number: issuer, length and check digit fit")


def is_card(digits: str) -> bool:
    """Whether issuer, length and Luhn digit fit; test cards do not count."""
    is_issued = any(low <= digits[: len(low)] <= high and len(digits) in lengths for low, high, lengths in _ISSUERS)
    return is_issued and digits not in _TEST_CARDS and luhn_holds(digits) and len(set(digits)) > 3


def luhn_holds(digits: str) -> bool:
    """Whether the last digit is the check digit of the others."""
    doubled = (int(digit) * (1 + index % 2) for index, digit in enumerate(reversed(digits)))
    return sum(number - 9 if number > 9 else number for number in doubled) % 10 == 0


def find_ibans(text: str) -> Iterator[Finding]:
    """Account numbers whose country, length and check digits fit."""
    for match in _IBAN.finditer(text):
        end = _end_of(match[0], _IBAN_LENGTHS.get(match[0][:2], 0))
        if end and is_iban(match[0][:end].replace(" ", "")):
            yield Finding("iban", match.start(), match.start() + end, "an IBAN: country, length and check digits fit")


def is_iban(text: str) -> bool:
    """Whether the number modulo 97 is 1; published examples do not count."""
    if text in _EXAMPLE_IBANS or len(text) != _IBAN_LENGTHS.get(text[:2]):
        return False
    return int("".join(str(int(character, 36)) for character in text[4:] + text[:4])) % 97 == 1


def _end_of(written: str, length: int) -> int | None:
    """Position after `length` characters, not counting spaces; None inside a word."""
    count = 0
    for position, character in enumerate(written):
        count += character != " "
        if count == length:
            return position + 1 if position + 1 == len(written) or written[position + 1] == " " else None
    return None


def find_wallet_keys(text: str) -> Iterator[Finding]:
    """Find extended private keys, and hexadecimal keys after a word for them."""
    if "prv" in text:
        yield from (
            Finding("wallet-key", *match.span(), "an extended private key") for match in _EXTENDED_KEY.finditer(text)
        )
    if not _HEX_KEY.search(text):
        return
    low = lowered(text)
    for hint in _WALLET_HINT.finditer(low):
        match = _WALLET_KEY.match(low, hint.end(), hint.end() + _WALLET_REACH)
        if match and not _OTHER_HEX.search(match["between"]) and not is_placeholder(match["key"]):
            yield Finding("wallet-key", *match.span("key"), f"64 hexadecimal digits after “{hint[0]}”")


def find_phrases(text: str) -> Iterator[Finding]:
    """Find runs of list words with a checksum, or after "seed"."""
    for run in _runs(text):
        start = run[0][1]
        phrase, why = run, "words of the BIP-39 list after a hint"
        if not _SEED_HINT.search(text, max(0, start - _SEED_REACH), start):
            phrase, why = _checked_phrase(run), "words of the BIP-39 list with a valid checksum"
        if phrase:
            yield Finding("seed-phrase", phrase[0][1], phrase[-1][2], why)


@lru_cache(maxsize=50_000)
def word_number(word: str) -> int | None:
    """The place of a word in the list."""
    return _numbers().get(hashlib.sha256(word.lower().encode()).digest()[:_FINGERPRINT_BYTES])


def is_phrase(numbers: Sequence[int]) -> bool:
    """Whether the last bits of the words are their checksum."""
    if len(numbers) not in LENGTHS:
        return False
    bits = len(numbers) * _BITS_PER_WORD
    check_bits = bits // 33
    whole = 0
    for number in numbers:
        whole = whole << _BITS_PER_WORD | number
    entropy = (whole >> check_bits).to_bytes((bits - check_bits) // 8)
    return hashlib.sha256(entropy).digest()[0] >> (8 - check_bits) == whole & ((1 << check_bits) - 1)


Word = tuple[int, int, int]


def _runs(text: str) -> Iterator[list[Word]]:
    """Lists of neighbouring list words as (number, start, end)."""
    run: list[Word] = []
    for match in _SEED_WORD.finditer(text):
        number = word_number(match[0])
        if run and (number is None or not _SEED_GAP.fullmatch(text, run[-1][2], match.start())):
            if len(run) >= min(LENGTHS):
                yield run
            run = []
        if number is not None:
            run.append((number, match.start(), match.end()))
    if len(run) >= min(LENGTHS):
        yield run


def _checked_phrase(run: list[Word]) -> list[Word]:
    """The longest phrase with a checksum at an end of the run."""
    for piece in (piece for size in LENGTHS if size <= len(run) for piece in (run[:size], run[-size:])):
        numbers = [number for number, _, _ in piece]
        # Random phrases repeat few words.
        if is_phrase(numbers) and len(set(numbers)) * 2 > len(numbers):
            return piece
    return []


@cache
def _numbers() -> dict[bytes, int]:
    listed = base64.b64decode(_WORD_LIST.read_text(encoding="ascii"))
    places = range(0, len(listed), _FINGERPRINT_BYTES)
    return {listed[place : place + _FINGERPRINT_BYTES]: number for number, place in enumerate(places)}
