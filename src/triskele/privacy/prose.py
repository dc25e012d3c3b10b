"""Passwords, told by the words around them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import zip_longest

from triskele.privacy.findings import Finding
from triskele.privacy.randomness import DOCUMENTED, is_placeholder, looks_chosen, looks_strong

_PASSWORD = re.compile(
    r"(?i)(?:pass(?:word|wort|[ \-]?phrase|code|wd)|\bpsk\b|kennwort|contrase[ñn]a|mot de passe|\bsenha|wachtwoord"
    r"|parola d'ordine|(?<![a-z])pwd?|(?<![a-z])pass(?=[\"']?\s?[:=])|密码|密碼|パスワード"
    r"|(?:wi-?fi|wlan|wpa[23]?|network|netzwerk)[\s\-]?(?:key|schlüssel))(?![a-z_]|\.\w)"
)
# "Password manager", "password reset": the words after these are about something else.
_ABOUT = re.compile(
    r"(?i)[\s\-]+(?:manager|policy|field|reset|length|strength|hash|file|prompt|rules?|generator|login|check|rotation"
    r"|authentication|auth|failed|for user|hint|requirements?|input|column|is asked|is stored|protected|instead"
    r"|form|page|store|safe|box|by|from|must|will|can|should|has to|vergessen|abgelaufen|muss|liegt|steht)\b"
)
_QUOTES = "\"'`“”„‘’«»"
_LINK = re.compile(
    rf"(?P<set>[{_QUOTES}]?[ \t]{{0,3}}+(?::=|={{1,3}}>?|:|：|->|→|—>)[ \t]{{0,3}}+)"
    r"|(?P<tells>\s+(?:lautete?)(?:\s+(?:jetzt|nun))?\s+)"
    r"|(?P<is>['’]s\s|\s+(?:is|was|used to be|ist|war|es|est|é|è|wurde)"
    r"(?:\s+(?:now|jetzt|nun|set to|auf|still|noch))?\s+|是\s?|为\s?|は\s?)"
    r"|(?P<to>\s+(?:to|auf)\s+)"
    r"|(?P<beside>\s{1,3}+[(]?)"
)
_VALUE = re.compile(rf"[{_QUOTES}](?P<quoted>[^{_QUOTES}\n]{{3,80}}+)[{_QUOTES}]|(?P<bare>[^\s{_QUOTES}]\S{{2,119}}+)")
_BRIDGE = re.compile(r"[\w \-'’/&@()]{0,50}+")
_CHANGE = re.compile(r"(?i)\b(?:chang|set|reset|updat|now|geänder|gesetzt|neu)")
_DIGITS = re.compile(r"\d{8,24}|\d{4}(?:-\d{4}){2,5}")
# Several words written as one, longer than single words are.
_NO_WORD = 20
_PLAIN = re.compile(r"[A-Za-zäöüß]{6,30}")
# What stands after "password:" without being one.
_NOT_PASSWORDS = frozenset(
    "optional required mandatory missing unknown invalid empty default string secret password passwort hidden disabled"
    " enabled stored rotated expired changed wrong correct needed allowed forgotten vergessen abgelaufen erforderlich"
    " obligatoria obligatoire pflicht leer keines nothing something encrypted hashed masked redacted bitwarden keepass"
    " unchanged undefined nullable argon2id bcrypt sha256 sha512 base64 utf8".split()
)
_PASSPHRASE = re.compile(
    r"(?i)pass(?:phrase|wort|word)[\w ]{0,30}+[:=] ?(?P<words>[a-zäöüß]{2,14}+(?: [a-zäöüß]{2,14}+){3,9}+)[ .]{0,2}+$",
    re.M,
)
_FUNCTION_WORDS = frozenset(
    "the is are in see ask stored for to of and or must at least das der die im ist und siehe".split()
)
_REVERSED = re.compile(
    r"(?i)(?<!\S)(?P<value>\S{6,64}+)\s(?:is|was|ist|war)\s(?:the|my|our|her|his|das|mein|unser)\s"
    r"(?:\w{1,20}+[ \-]){0,2}(?:password|passwort|kennwort|pwd?|passphrase|login)\b"
)
_PAIR = re.compile(
    r"(?i)\b(?:log[ \-]?ins?|credentials?|zugangsdaten|zugang|anmeldung|router|account|konto)\b[^\n]{0,40}?"
    r"(?:[:/,]|\s(?:und|and|with|mit))\s?(?P<value>(?=[^\s\d]{0,63}\d)(?=[\w.\-]{0,63}[!$%&*?+#^~])[^\s:/,=]{6,64}+)"
)
_COMMANDS = re.compile(
    r"\bsshpass\s+-p\s?['\"]?(?P<sshpass>[^\s'\"]{4,80}+)"
    r"|\b(?:curl|wget|http)\b[^\n]{0,60}?\s(?:-u|--user|-a)\s?['\"]?[^\s:'\"]{1,60}+:(?P<curl>[^\s'\"]{4,80}+)"
    r"|\bdocker login\b[^\n]{0,60}?\s-p\s['\"]?(?P<docker>[^\s'\"]{4,80}+)"
    r"|\bhtpasswd -\w{0,4}b\w{0,4}\s\S{1,80}+\s\S{1,40}+\s(?P<htpasswd>[^\s'\"]{4,80}+)"
    r"|\bmysql(?:dump)?\b[^\n]{0,60}?\s-p(?P<mysql>[^\s'\"]{4,80}+)"
)
_WINDOW = 110


def find_passwords(text: str) -> Iterator[Finding]:
    """Passwords after a word that announces them, before one, and in well-known commands."""
    hints = list(_PASSWORD.finditer(text))
    for hint, following in zip_longest(hints, hints[1:]):
        yield from _after(text, hint, following.start() if following else len(text))
    for match in _REVERSED.finditer(text):
        if looks_strong(match["value"]):
            yield Finding("password", *match.span("value"), "called the password afterwards")
    for match in _PAIR.finditer(text):
        if looks_strong(match["value"]):
            yield Finding("password", *match.span("value"), "stands after a name in a login")
    for match in _COMMANDS.finditer(text):
        name = str(match.lastgroup)
        if not is_placeholder(match[name]) and match[name].lower() not in DOCUMENTED:
            yield Finding("password", *match.span(name), f"a password given to {name}")
    for match in _PASSPHRASE.finditer(text):
        if not _FUNCTION_WORDS & set(match["words"].lower().split()):
            yield Finding("password", *match.span("words"), "words after a word for password")


def _after(text: str, hint: re.Match[str], until: int) -> Iterator[Finding]:
    """What the hint announces, by a link that stands before the next hint."""
    if _ABOUT.match(text, hint.end()):
        return
    bridge = _BRIDGE.match(text, hint.end(), hint.end() + _WINDOW)
    reach = bridge.end() if bridge else hint.end()
    for link in _LINK.finditer(text, hint.end(), min(until, reach + 8)):
        value = _VALUE.match(text, link.end(), link.end() + 130)
        if value and _announced(text, hint, link, value):
            start, end = _trimmed(text, value)
            yield Finding("password", start, end, f"stands after “{hint[0].lower()}”")
            return
        if link["set"]:
            return


def _announced(text: str, hint: re.Match[str], link: re.Match[str], value: re.Match[str]) -> bool:
    """Whether this link makes this value a password."""
    start, end = _trimmed(text, value)
    word = text[start:end]
    close = link.start() == hint.end()
    if word.lower() in _NOT_PASSWORDS | DOCUMENTED or is_placeholder(word):
        return False
    if value["quoted"] and (close or link["set"] or link["is"]):
        return len(word) >= 4
    if link["set"] or link["tells"]:
        return looks_chosen(word) or _DIGITS.fullmatch(word) is not None or (close and _is_plain(text, start, end))
    if link["to"]:
        return looks_chosen(word) and _CHANGE.search(text, max(0, hint.start() - 50), link.start()) is not None
    if link["is"]:
        return looks_chosen(word) or (word.isalpha() and len(word) >= _NO_WORD)
    return close and (looks_strong(word) or _DIGITS.fullmatch(word) is not None)


def _is_plain(text: str, start: int, end: int) -> bool:
    """One plain word and nothing behind it on its line."""
    rest = text[end : end + 3].partition("\n")[0].strip(" .,'\"`")
    return not rest and _PLAIN.fullmatch(text, start, end) is not None


def _trimmed(text: str, value: re.Match[str]) -> tuple[int, int]:
    start, end = value.span("quoted" if value["quoted"] else "bare")
    while end > start + 1 and text[end - 1] in f".,;:)]}}{_QUOTES}":
        end -= 1
    return start, end
