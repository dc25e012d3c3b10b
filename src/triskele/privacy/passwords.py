"""Find passwords and PINs by the words around them, in thirty languages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import zip_longest

from triskele.privacy.findings import (
    DOCUMENTED,
    Finding,
    is_placeholder,
    looks_chosen,
    looks_strong,
    lowered,
    matches_near,
)
from triskele.text.words import SENTENCE_WORDS

# Matched on lower case, and every branch begins with a letter: the search skips other places fast.
_PASSWORD = re.compile(
    r"(?:pass(?:word|wort|[ \-]?phrase|code|wd)|psk\b(?<!\wpsk)|kennwort|p(?<![a-z]p)wd?"
    r"|pass(?<![a-z]pass)(?=[\"']?\s?[:=])"
    r"|(?:wi-?fi|wlan)[a-zäöüß ,'’]{0,30}?[ \-](?:key|schlüssel)(?=\s(?:is|ist)\s)"
    r"|(?:wi-?fi(?: guest)?|wlan|wpa[23]?|network|netzwerk)[\s\-]?(?:key|schlüssel))(?![a-z_]|\.\w)"
)
# "Password manager", "password reset": no password follows.
_ABOUT = re.compile(
    r"(?i)[\s\-]+(?:manager|policy|field|reset|length|strength|hash|file|prompt|rules?|generator|login|check|rotation"
    r"|authentication|auth|failed|for user|hint|requirements?|input|column|is asked|is stored|protected|instead"
    r"|form|page|store|safe|box|by|from|must|will|can|should|has to|vergessen|abgelaufen|muss|liegt|steht)\b"
)
_QUOTES = "\"'`“”„‘’«»"
_LINK = re.compile(
    rf"(?i)(?P<set>[{_QUOTES}]?[ \t]{{0,3}}+(?::=|={{1,3}}>?|:|：|->|→|—>)[ \t]{{0,3}}+)"
    r"|(?P<tells>\s+(?:lautete?|heißt|hieß)(?:\s+(?:jetzt|nun))?\s+)"
    r"|(?P<is>['’]s\s|\s+(?:is|was|used to be|ist|war|es|est|é|è|wurde)"
    r"(?:\s+(?:now|jetzt|nun|set to|auf|still|noch))?\s+)"
    r"|(?P<to>\s+(?:to|auf)\s+)"
    r"|(?P<beside>\s{1,3}+[(]?)"
)
_VALUE = re.compile(rf"[{_QUOTES}](?P<quoted>[^{_QUOTES}\n]{{3,80}}+)[{_QUOTES}]|(?P<bare>[^\s{_QUOTES}]\S{{2,119}}+)")
# A value alone on the next line or the one after it; identifiers there are keys of a document.
_BELOW = re.compile(
    rf"[*_]{{0,2}}[ \t]{{0,3}}\r?\n(?:[ \t]{{0,8}}\r?\n)?[ \t]{{0,8}}(?:[-*>•][ \t]{{1,3}})?[{_QUOTES}]?"
    rf"(?P<below>(?![a-z]+(?:[_\-][a-z0-9]+)+[{_QUOTES}\s])[^\s{_QUOTES}]{{5,120}}+)[{_QUOTES}]?[ \t]{{0,3}}"
    r"(?=\r?\n|\Z)"
)
_BRIDGE = re.compile(r"[\w \-'’/&@()]{0,50}+")
_CHANGE = re.compile(r"(?i)\b(?:chang|set|reset|updat|now|geänder|gesetzt|neu)")
_DIGITS = re.compile(r"\d{8,24}|\d{4}(?:-\d{4}){2,5}")
# Longer than a single word: several words written as one.
_NO_WORD = 20
_PLAIN = re.compile(r"[A-Za-zäöüß]{6,30}")
# Words after "password:" that are not passwords.
_NOT_PASSWORDS = frozenset(
    "optional required mandatory missing unknown invalid empty default string secret password passwort hidden disabled"
    " enabled stored rotated expired changed wrong correct needed allowed forgotten vergessen abgelaufen erforderlich"
    " obligatoria obligatoire pflicht leer keines nothing something encrypted hashed masked redacted bitwarden keepass"
    " unchanged undefined nullable argon2id bcrypt sha256 sha512 base64 utf8 obbligatoria obbligatorio facoltativa"
    " verplicht optioneel obrigatória obligatorio opcional facultatif wymagane povinné obligatoriskt zorunlu pakollinen"
    " kötelező obligatorie påkrævet påkrevd pflichtfeld pflichtangabe eingabefeld zwingend freiwillig notwendig"
    " benötigt richiesta richiesto requerida requerido requise vereist krävs obligatory unset skipped"
    " wpa2-psk wpa3-sae wpa2-personal".split()
)
_PASSPHRASE = re.compile(
    r"(?i)pass(?:phrase|wort|word)[\w ]{0,30}+[:=] ?(?P<words>[a-zäöüß]{2,14}+(?: [a-zäöüß]{2,14}+){3,9}+)[ .]{0,2}+$",
    re.M,
)
_REVERSED = re.compile(
    rf"(?i)(?<!\S)[{_QUOTES}]?(?P<value>[^\s{_QUOTES}]\S{{4,62}}[^\s{_QUOTES}])[{_QUOTES}]?\s"
    r"(?:(?:is|was|ist|war)\s(?:the|my|our|her|his|das|mein|unser)|(?P<as>as|als))\s"
    r"(?:\w{1,20}+[ \-]){0,2}(?:password|passwort|kennwort|pwd?|passphrase|(?(as)(?!)|login))\b"
    # "As the password cipher" names no password.
    r"(?(as)(?=\s{0,3}(?:$|[^\w\s]|(?:for|on|of|in|to|at|and|from|there|here|für|auf|bei|von|vom|im|am|und)\b)))",
    re.M,
)
_REVERSED_MARKS = ("passw", "kennwort", "pw", "passphrase", "login")
_PAIR_MARKS = ("login", "log in", "log-in", "credential", "zugang", "anmeldung", "router", "account", "konto", "ftp")
_PAIR = re.compile(
    r"(?i)\b(?:log[ \-]?ins?|credentials?|zugangsdaten|zugang|anmeldung|router|account|konto)\b[^\n]{0,40}?"
    r"(?:[:/,]|\s(?:und|and|with|mit))\s?(?P<value>(?=[^\s\d]{0,63}\d)(?=[\w.\-]{0,63}[!$%&*?+#^~])[^\s:/,=]{6,64}+)"
)
# "FTP account: joe:…", "Login NAS: joe / …".
_NAME_AND_PASSWORD = re.compile(
    r"(?i)\b(?:log[ \-]?in|credentials?|zugangsdaten|zugang|account|konto|ftp(?: \w{1,10}+)?)\b[\w \-.]{0,40}?:?[ ]"
    r"[\w.@\-]{2,60}+(?: ?/ ?|:)(?P<value>[^\s/]{8,64}+)(?=[ \t]*+(?:$|[,;(]))",
    re.M,
)
# Versions as in "login-service:1.4.2", "PostgreSQL15", "Report2024Q3", "S256Challenge".
_NAME_AND_VERSION = re.compile(
    r"[a-z\d]*[.:\-][a-z\d.:\-]*|[A-Za-z]+(?:(?:19|20)\d\d\w{0,2}|\d{1,2}(?:\.[\d.]+)?|\d+[a-z]?(?:[A-Z][a-z]{2,})+)"
)
_INNER_DIGITS = re.compile(r"[a-zA-Z]*\d+[a-zA-Z]+\d\w*|[a-zA-Z]*\d{3,}[a-zA-Z]+")
_WINDOW = 110

_PIN = re.compile(
    r"(?:\bPIN|\bPin\b|-PIN|\bPUK|(?i:\bpuks?\b|\bpin(?= (?:is|code|of|for)\b|:)"
    r"|\b(?:door|gate|alarm|entry|lock|locker|keypad|unlock|garage)[ \-]codes?"
    r"|\b(?:safe|lock) (?:code|combination)|\bcombination (?:of|for) [a-z ]{0,20}\b(?:lock|safe)\b"
    r"|\b(?:tür|tresor|alarm|zugangs|schloss)-?code|\bgeheimzahl|\bpincode|\bcode(?= ?\d{4,6}#)))"
    # "Pin the version to 8841" is no PIN.
    r"(?! (?:the|this|that|our|your|all|every|it|a)\b[a-z ]{0,30} (?:to|at|on) \d)"
    r"(?P<between>[A-Za-zäöüß (),]{0,40}+)[:=]?\s{0,2}+"
    r"(?P<value>\d{4,8}+#?|\d{1,2}(?:[ \-]\d{1,2}){2,3}+)(?![\w.,]?\d|\w)"
)
_CODES = re.compile(
    r"(?i)\b(?:recovery|backup|2fa|scratch|wiederherstellungs|one-time)[ \-]?codes?\b[\w ]{0,30}+[:=]?\s{0,2}+"
    r"(?P<value>(?=[a-z\-]{0,10}\d)[a-z0-9]{4,10}(?:-[a-z0-9]{4,10}){1,3}(?:[\s,]{1,2}+[a-z0-9]{4,10}(?:-[a-z0-9]{4,10}){1,3}){0,15}+)"
)

# Words for password in languages that put spaces between words: a stem to look for first, then the forms.
_SPACED = {
    "contrase": "contrase(?:ñ|n|ny)as?",
    "clave": "clave",
    "de passe": "mots? de passe",
    "mdp": "mdp",
    "clé ": "clé (?:wi-?fi|wpa2?|wlan|réseau|du (?:wi-?fi|réseau))",
    "senha": "senhas?",
    "palavra": r"palavras?[\- ]passe",
    "la password": "la password",
    "parola ": "parola (?:d'ordine|chiave)",
    "chiave": "chiave (?:del |di |della )?(?:wi-?fi|rete|wpa2?)",
    "wachtwoord": "wachtwoord(?:en)?",
    "parol": "parol(?:a|ă|e)(?:s[ıi]|n[ıi]z|m[ıi]z|y[ıi]|m)?|parool",
    "ifre": "[şs]ifre(?:si|niz|miz|yi|m)?",
    "hasł": "hasł(?:o|a|em|u)",
    "hasl": "hasl(?:o|a|em|u)",
    "hesl": "hesl(?:o|a|em|u)",
    "gesl": "gesl(?:o|a)",
    "lozink": "lozink(?:a|e|u)",
    "slaptažod": "slaptažodis",
    "lösenord": "lösenord(?:et)?",
    "passord": "passord(?:et)?",
    "adgangskode": "adgangskoden?",
    "kodeord": "kodeord(?:et)?",
    "lykilorð": "lykilorð(?:ið)?",
    "salasana": "salasana(?:si|ni)?",
    "jelsz": "jelsz(?:ó|ava|avam)",
    "sandi": "(?:kata )?sandi(?:nya)?",
    "kata laluan": "kata laluan(?:nya)?",
    "mật": "mật khẩu",
    "парол": "парол(?:ь|я|ю|ем|і|а|ата)",
    "пасс": "пасс(?:ворд)?",
    "лозинк": "лозинк(?:а|е|у)",
    "ключ": "ключ (?:от |к |від |до )(?:wi-?fi|вай-?фа[а-яіїє]+|сети)",
    "κωδικ": "κωδικ(?:ός|ό|ού|ος|ο)(?: πρόσβασης)?",
    "συνθηματικ": "συνθηματικό",
}
_SPACED_WORDS = re.compile(rf"(?:{'|'.join(_SPACED.values())})(?![^\W\d_])")
# Words in scripts without spaces, or with particles written onto the word.
_JOINED_WORDS = re.compile(
    r"密码|密碼|口令|パスワード|暗証番号|비밀번호|비번|암호(?!화)|패스워드|पासवर्ड|পাসওয়ার্ড|รหัสผ่าน|พาสเวิร์ด"
    r"|كلمة\s(?:ال)?(?:مرور|سر)|الرقم السري|رمز (?:ال)?(?:عبور|مرور)|گذرواژه|סיסמ[הא]"
)
_SENTENCE_END = re.compile(r"\n|[.!?؟](?=\s|$)|。|；|;\s")
_TOKEN = re.compile(r"[!#-&(-/0-_a-~\u00c0-\u052f]{4,80}+")
_IS = frozenset(
    "es est é è e is ist to jest brzmi je zní är er on este είναι là adalah ialah yaitu это є це هي هو है हैं היא הוא คือ"
    " teraz теперь тепер nu maintenant désormais ahora agora adesso ora şimdi nyní lautet sono".split()
)
_JOINED_IS = ("は", "是", "为", "為", "는", "은", "คือ", "を", "를", "을", "成", "成了", "है")
_TO = frozenset("на na en a à in para por til till إلى auf ke menjadi în sang thành към σε naar बदलकर".split())
_SET_END = tuple(":=→>—–-")
_NUMBER = re.compile(r"\d{6,24}|\d{4,8}#|\d{4}(?:-\d{4}){2,5}")
_NAME_AND_YEAR = re.compile(r"[A-Za-z]{3,20}+(?:19|20)\d\d")
_SIGN = re.compile(r"[!$%&*?+#^~_@=]")
_NAMED_BEFORE = re.compile(r"(?P<value>[!-~]{6,64}+)\s?(?:が|は|是我的|是)\s?(?:パスワード|密码|密碼)")
_REACH = 70
_LONGEST = 80
_LOCAL_PIN = re.compile(
    r"(?:пин(?:-?код)?|pin-?kod|暗証番号|门禁密码|현관 ?비밀번호"
    r"|код (?:от |від |до |к )?(?:домофон|двер|подъезд|під'їзд|сейф|калитк|ворот|замк)[а-яіїє]{0,3}"
    r"|kod do (?:furtki|bramy|drzwi|domofonu|sejfu|alarmu)|kód (?:od|ke|k) (?:vrátek|dveří|alarmu|sejfu)"
    r"|code (?:de la |du |de l'|d')(?:porte|portail|immeuble|alarme|coffre|carte)"
    r"|codice (?:del |della |dell')(?:cancello|porta|portone|allarme|cassaforte|carta)"
    r"|código (?:del |de la |do |da )(?:puerta|portal|alarma|caja|porta|portão|alarme|cofre|tarjeta)"
    r"|(?:kapı|alarm|kasa) (?:kodu|şifresi)|(?:deur|poort|alarm)code|(?:port|dörr|larm)kod(?:en)?)"
    r"(?P<between>[^\d\n.;]{0,30}+)(?P<value>\d{4,8}+#?)(?![\w.,]?\d|\w)"
)
# Every PIN and code begins one.
_DIGIT_GROUP = re.compile(r"\d[\d \-]{2,}+")
# The longest word for PIN has 40 characters, and 40 are between it and the number.
_PIN_REACH, _PIN_AFTER = 160, 8
_CODE_MARKS = ("recovery", "backup", "2fa", "scratch", "wiederherstellungs", "one-time")


def find_passwords(text: str) -> Iterator[Finding]:
    """Passwords after or before an English or German word for password."""
    low = lowered(text)
    hints = list(_PASSWORD.finditer(low))
    for hint, following in zip_longest(hints, hints[1:]):
        yield from _after(text, hint, following.start() if following else len(text))
    for match in _REVERSED.finditer(text) if any(mark in low for mark in _REVERSED_MARKS) else ():
        if looks_strong(match["value"]):
            yield Finding("password", *match.span("value"), "stands before a word for password")
    if any(mark in low for mark in _PAIR_MARKS):
        for match in (*_PAIR.finditer(text), *_NAME_AND_PASSWORD.finditer(text)):
            if (looks_strong if match.re is _PAIR else _looks_drawn)(match["value"]):
                yield Finding("password", *match.span("value"), "stands after a name in a login")
    for match in _PASSPHRASE.finditer(text):
        if not SENTENCE_WORDS & set(match["words"].lower().split()):
            yield Finding("password", *match.span("words"), "words after a word for password")


def _looks_drawn(value: str) -> bool:
    """Whether a value looks strong or random, unlike a name and its version."""
    is_random = value.isalpha() or _INNER_DIGITS.fullmatch(value) is not None
    return not _NAME_AND_VERSION.fullmatch(value) and (looks_strong(value) or (is_random and looks_chosen(value)))


def _after(text: str, hint: re.Match[str], until: int) -> Iterator[Finding]:
    """The password after a hint and a link such as "is"."""
    if _ABOUT.match(text, hint.end()):
        return
    bridge = _BRIDGE.match(text, hint.end(), hint.end() + _WINDOW)
    reach = bridge.end() if bridge else hint.end()
    for link in _LINK.finditer(text, hint.end(), min(until, reach + 8)):
        value = _VALUE.match(text, link.end(), link.end() + 130)
        if value and _announced(text, hint, link, value):
            start, end = _trimmed(text, value)
            yield Finding("password", start, end, f"stands after “{hint[0]}”")
            return
        if link["set"]:
            yield from _below(text, hint, link) if value is None else ()
            return


def _below(text: str, hint: re.Match[str], link: re.Match[str]) -> Iterator[Finding]:
    """The password on the line after "Password:"."""
    match = _BELOW.match(text, link.end())
    word = match["below"] if match else ""
    is_known = word.lower() in _NOT_PASSWORDS | DOCUMENTED or word.endswith(":") or "://" in word
    if match and not is_known and looks_chosen(word):
        yield Finding("password", *match.span("below"), f"stands on the line after “{hint[0]}”")


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
    """Whether a value is one plain word that ends its line."""
    rest = text[end : end + 3].partition("\n")[0].strip(" .,'\"`")
    return not rest and _PLAIN.fullmatch(text, start, end) is not None


def _trimmed(text: str, value: re.Match[str]) -> tuple[int, int]:
    start, end = value.span("quoted" if value["quoted"] else "bare")
    while end > start + 1 and text[end - 1] in f".,;:)]}}{_QUOTES}":
        end -= 1
    return start, end


def find_codes(text: str) -> Iterator[Finding]:
    """Find short numbers after "PIN" and the like, and recovery codes."""
    groups, low = [match.span() for match in _DIGIT_GROUP.finditer(text)], lowered(text)
    for form, read in ((_PIN, text), (_LOCAL_PIN, low)):
        for match in matches_near(form, read, groups, before=_PIN_REACH, after=_PIN_AFTER):
            yield Finding("pin", *match.span("value"), "a short number after a word for PIN or door code")
    for match in _CODES.finditer(text) if any(mark in low for mark in _CODE_MARKS) else ():
        yield Finding("recovery-code", *match.span("value"), "stands after a word for recovery code")


def find_passwords_in_languages(text: str) -> Iterator[Finding]:
    """Find passwords after words for password in other languages."""
    low = lowered(text)
    for word in _words_for_password(low):
        limit = min(word.end() + _REACH, len(text))
        ends = _SENTENCE_END.search(text, word.end(), limit)
        yield from _first_password(text, word, ends.start() if ends else limit)
    if not text.isascii():
        for match in _NAMED_BEFORE.finditer(text):
            if looks_strong(match["value"]):
                yield Finding("password", *match.span("value"), "stands before a word for password")


def _words_for_password(low: str) -> Iterator[re.Match[str]]:
    if any(stem in low for stem in _SPACED):
        for word in _SPACED_WORDS.finditer(low):
            if not low[word.start() - 1 : word.start()].isalpha():
                yield word
    if not low.isascii():
        yield from _JOINED_WORDS.finditer(low)


def _first_password(text: str, word: re.Match[str], end: int) -> Iterator[Finding]:
    for token in _TOKEN.finditer(text, word.end(), end + _LONGEST):
        start, stop = token.start(), token.end()
        if start >= end:
            return
        while stop > start and text[stop - 1] in ".,;:)]}":
            stop -= 1
        while start < stop and text[start] in "([{":
            start += 1
        if _is_password(text[word.end() : start], text[start:stop]):
            yield Finding("password", start, stop, f"stands after “{word[0]}”")
            return


def _is_password(between: str, value: str) -> bool:
    """Whether the words before a value make it a password."""
    if value.lower() in _NOT_PASSWORDS | DOCUMENTED or is_placeholder(value) or "://" in value:
        return False
    link = between.rstrip().rstrip(f"{_QUOTES}「『(").rstrip()
    last = link.rpartition(" ")[2].lower()
    number = _NUMBER.fullmatch(value) is not None
    if link.endswith(_SET_END) or last in _IS or link.endswith(_JOINED_IS):
        return looks_chosen(value) or number
    if not link or last in _TO:
        return looks_strong(value) or (number and not last)
    if _NAME_AND_YEAR.fullmatch(value):
        return False
    digits = sum(character.isdigit() for character in value)
    return looks_strong(value) and (digits >= 3 or _SIGN.search(value) is not None)
