"""Card numbers and IBANs: digits with a checksum, a right prefix and a right length."""

from __future__ import annotations

import re
from collections.abc import Iterator

from triskele.privacy.findings import Finding

_DIGITS = re.compile(
    r"(?<![\w.,\-+])(?:\d{4}[ \-]){2,4}\d{1,7}(?![\w\-]|[.,]\d)|(?<![\w.,\-+])\d{13,19}+(?![\w\-]|[.,]\d)"
    r"|(?<![\w.,\-+])\d{4}[ \-]\d{6}[ \-]\d{4,5}(?![\w\-]|[.,]\d)"
)
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
    r"(?i)order|bestell|tracking|sendung|invoice|rechnung|ticket|isbn|imei|serial|timestamp|snowflake|\bids?\b"
    r"|account no|phone|tel\b|build|test|sandbox|nummer|\bnr\b|\bno\."
)
_REACH = 40
# Longer ones are rare, and so is a longer number that is one.
_USUAL_DIGITS = 16

_IBAN = re.compile(
    r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?:[A-Z0-9]{11,30}+|(?: [A-Z0-9]{4}){2,7}+(?: [A-Z0-9]{1,3})?+)(?![A-Za-z0-9])"
)
_IBAN_LENGTHS = dict(
    pair.split("=")
    for pair in (
        "AD=24 AE=23 AL=28 AT=20 AZ=28 BA=20 BE=16 BG=22 BH=22 BR=29 BY=28 CH=21 CR=22 CY=28 CZ=24 DE=22 DK=18 DO=28"
        " EE=20 EG=29 ES=24 FI=18 FO=18 FR=27 GB=22 GE=22 GI=23 GL=18 GR=27 GT=28 HR=21 HU=28 IE=22 IL=23 IQ=23 IS=26"
        " IT=27 JO=30 KW=30 KZ=20 LB=28 LC=32 LI=21 LT=20 LU=20 LV=21 LY=25 MC=27 MD=24 ME=22 MK=19 MR=27 MT=31 MU=30"
        " NL=18 NO=15 PK=24 PL=28 PS=29 PT=25 QA=29 RO=24 RS=22 SA=24 SC=31 SE=24 SI=19 SK=24 SM=27 ST=25 SV=28 TL=23"
        " TN=24 TR=26 UA=29 VA=22 VG=24 XK=20"
    ).split()
)
_EXAMPLE_IBANS = frozenset(
    "DE89370400440532013000 GB82WEST12345698765432 GB29NWBK60161331926819 FR1420041010050500013M02606"
    " CH9300762011623852957 NL91ABNA0417164300 AT611904300234573201 ES9121000418450200051332"
    " DE02120300000000202051 BE68539007547034 IT60X0542811101000000123456 PL61109010140000071219812874".split()
)


def find_cards(text: str) -> Iterator[Finding]:
    """Numbers that an issuer may have given out, unless the words before call them something else."""
    for match in _DIGITS.finditer(text):
        digits = re.sub(r"\D", "", match[0])
        if not is_card(digits):
            continue
        around = max(0, match.start() - _REACH), match.start()
        doubtful = len(digits) > _USUAL_DIGITS or _OTHER_NUMBER.search(text, *around)
        if doubtful and not _CARD_WORD.search(text, *around):
            continue
        yield Finding("card", *match.span(), "a card number: issuer, length and check digit fit")


def is_card(digits: str) -> bool:
    """Whether an issuer, a length and the Luhn digit fit; the cards of test systems do not count."""
    return digits not in _TEST_CARDS and _issued(digits) and luhn_holds(digits) and len(set(digits)) > 3


def luhn_holds(digits: str) -> bool:
    """Whether the last digit is the check digit of the others."""
    doubled = (int(digit) * (1 + index % 2) for index, digit in enumerate(reversed(digits)))
    return sum(number - 9 if number > 9 else number for number in doubled) % 10 == 0


def _issued(digits: str) -> bool:
    return any(low <= digits[: len(low)] <= high and len(digits) in lengths for low, high, lengths in _ISSUERS)


def find_ibans(text: str) -> Iterator[Finding]:
    """Account numbers whose country, length and check digits fit."""
    for match in _IBAN.finditer(text):
        length = int(_IBAN_LENGTHS.get(match[0][:2], 0))
        end = _end_of(match[0], length)
        if length and end and is_iban(match[0][:end].replace(" ", "")):
            yield Finding("iban", match.start(), match.start() + end, "an IBAN: country, length and check digits fit")


def is_iban(text: str) -> bool:
    """Whether the number modulo 97 is 1, and it is no example of the documentation."""
    if text in _EXAMPLE_IBANS or len(text) != int(_IBAN_LENGTHS.get(text[:2], 0)):
        return False
    return int("".join(str(int(character, 36)) for character in text[4:] + text[:4])) % 97 == 1


def _end_of(written: str, length: int) -> int | None:
    """Where the first `length` characters end, not counting spaces; words in capitals may follow an IBAN."""
    count = 0
    for place, character in enumerate(written):
        count += character != " "
        if count == length:
            return place + 1 if place + 1 == len(written) or written[place + 1] == " " else None
    return None
