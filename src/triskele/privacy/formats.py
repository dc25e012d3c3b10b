"""Find secrets in formats of tools: key files, URLs, configuration, commands."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from triskele.privacy.findings import DOCUMENTED, Finding, is_placeholder, looks_chosen, looks_random, lowered

_BEGIN = re.compile(r"-----BEGIN (?P<name>(?:[A-Z0-9]{2,12} ){0,3}PRIVATE KEY(?: BLOCK)?)-----")
_BODY = re.compile(r"(?:[A-Z][A-Za-z\-]{2,12}+: [^\n\\]{1,80}+|[A-Za-z0-9+/=\s]|\\[nr]){1,20000}+")
_END = re.compile(r"-----END [A-Z0-9 ]{5,40}-----")
_PRIVATE_END = re.compile(r"-----END (?:[A-Z0-9]{2,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----")
# Read backwards from the END line of a block whose BEGIN line is missing.
_BODY_BACKWARDS = re.compile(r"(?:[A-Za-z0-9+/=\s]|[nr]\\){1,8000}+")
_BODY_REACH = 8000
_LEAST_BODY = 40
# PKCS#8 and OpenSSH bodies start with these bytes; public keys do not.
_BARE_BODY = re.compile(
    r"(?<![A-Za-z0-9+/])(?:MII[A-Za-z0-9+/]{4}BADANBgkqhkiG9w0BAQEF|b3BlbnNzaC1rZXktdjEA)(?:[A-Za-z0-9+/=]|\\[nr]|\n){60,20000}+"
)
_PUTTY = re.compile(
    r"(?i:Private-Lines): {0,2}\d{1,4}(?:\s|\\[rn]){1,6}+"
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
_SAS_SIGNATURE = re.compile(r"(?<![A-Za-z])(?i:sig)=(?P<value>[A-Za-z0-9%+/_\-]{40,120}+={0,2}+)")
# Read backwards from the signature.
_SAS_QUERY = re.compile(r"[^\s?\"'<>;]{0,800}+")
_SAS_FIELD = re.compile(r"(?i)(?:^|&|=)(?:sv|se|sp|sr|si|skn|st|srt)=")
_SAS_REACH = 800

_KUBERNETES = re.compile(
    r"(?i:client-key-data)[\"']?\s{0,3}:\s{0,3}[\"']?(?P<key>[A-Za-z0-9+/]{40,20000}+={0,2}+)"
    r"|(?i:token)[\"']?(?:\s{0,3}:\s{0,3}|[= ])[\"']?(?P<bootstrap>[a-z0-9]{6}\.[a-z0-9]{16})(?![\w.])"
    r"|(?<![A-Za-z0-9])(?P<node>K10[0-9a-f]{64}::[\w\-]{1,40}:[\w.]{16,80}+)"
    r"|(?i:--certificate-key)[= ](?P<certificate>[0-9a-f]{64})(?![0-9a-f])"
)
_KUBERNETES_MARKS = ("client-key-data", "token", "certificate-key")
_PGPASS_PORT = re.compile(r":(?:\d{4,5}|\*):[A-Za-z_*]")
_PGPASS = re.compile(
    r"(?<![^\s\"'])(?:\\[:\\]|[\w.\-*/\[\]]){1,253}+:(?:\d{4,5}|\*):(?:[A-Za-z_][\w\-]{0,62}+|\*):[A-Za-z_][\w\-.@]{0,62}+"
    r":(?P<value>(?:\\[:\\]|[^\s:\"'\\]){5,120}+)"
)
_WIFI = re.compile(
    r"(?i:WIFI):(?:[A-OQ-Z]:(?:\\.|[^;\\\n]){0,100}+;){0,6}P:\"?(?P<code>(?:\\.|[^;\\\n\"]){5,100}+)\"?;"
    r"|(?i:<keyMaterial>|\bwep_key\d=\"?|\bwpa_psk=|\bpre-?shared-?key=)(?P<value>[^\s<\"]{5,64}+)"
    r"|\b(?i:option key) ['\"](?P<uci>[^'\"\n]{5,64}+)['\"]"
    r"|\b(?i:psk)=(?P<hash>[0-9a-fA-F]{64})(?![0-9a-fA-F])"
)
_WIFI_MARKS = ("wifi:", "keymaterial", "wep_key", "wpa_psk", "hared", "option key", "psk=")


def find_private_keys(text: str) -> Iterator[Finding]:
    """Find PEM, PGP and PuTTY blocks, also truncated ones."""
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
    if "private-lines" in lowered(text):
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
    """Blocks whose first line is missing."""
    for match in _PRIVATE_END.finditer(text):
        before = text[max(0, match.start() - _BODY_REACH) : match.start()]
        body = _BODY_BACKWARDS.match(before[::-1])
        if body and _is_body(body[0][::-1]):
            yield Finding("private-key", match.start() - body.end(), match.end(), "the last lines of a private key")


def _is_body(body: str) -> bool:
    """Whether a body holds a long piece without a space."""
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
    """Find forty random characters near an AWS key id or "aws secret"."""
    keys = _AWS_ID.finditer(text) if "AKIA" in text or "ASIA" in text else ()
    hints = _AWS_HINT.finditer(text) if "aws" in lowered(text) else ()
    for anchor in (*keys, *hints):
        for match in _AWS_SECRET.finditer(text, anchor.end(), anchor.end() + _AWS_REACH):
            if looks_random(match[0], least=40):
                yield Finding("aws-secret", *match.span(), "forty random characters beside an AWS key")


def find_azure_signatures(text: str) -> Iterator[Finding]:
    """Shared access signatures: the query up to and including its signature."""
    if "sig=" not in lowered(text):
        return
    for match in _SAS_SIGNATURE.finditer(text):
        before = _SAS_QUERY.match(text[max(0, match.start() - _SAS_REACH) : match.start()][::-1])
        start = match.start() - (before.end() if before else 0)
        around = text[start : match.start()], text[match.end() : match.end() + 60]
        if any(map(_SAS_FIELD.search, around)) and not is_placeholder(match["value"]):
            yield Finding("azure-sas", start, match.end(), "a shared access signature of Azure")


def find_kubernetes_keys(text: str) -> Iterator[Finding]:
    """Client keys, bootstrap tokens and node tokens of a cluster."""
    low = lowered(text)
    if "K10" in text or any(mark in low for mark in _KUBERNETES_MARKS):
        for match in _KUBERNETES.finditer(text):
            part = str(match.lastgroup)
            if not is_placeholder(match[part]):
                kind = "private-key" if part == "key" else "secret"
                yield Finding(kind, *match.span(part), "a key or token of a Kubernetes cluster")


def find_pgpass_passwords(text: str) -> Iterator[Finding]:
    """The last field of a line `host:port:database:user:password`."""
    if not _PGPASS_PORT.search(text):
        return
    for match in _PGPASS.finditer(text):
        word = match["value"]
        if word.lower() not in DOCUMENTED and looks_chosen(word):
            yield Finding("password", *match.span("value"), "the last field of a .pgpass line")


def find_wifi_keys(text: str) -> Iterator[Finding]:
    """Find keys in Wi-Fi codes and configuration files of Wi-Fi tools."""
    low = lowered(text)
    for match in _WIFI.finditer(text) if any(mark in low for mark in _WIFI_MARKS) else ():
        part = str(match.lastgroup)
        if match[part].lower() not in DOCUMENTED and not is_placeholder(match[part]):
            yield Finding("password", *match.span(part), "the key of a Wi-Fi network")


_COMMAND_VALUE = r"(?P<quote>['\"])?(?P<value>(?(quote)[^'\"\n]{4,80}+|[^\s'\"\-][^\s'\"]{3,79}+))"
_COMMAND_PAIR = r"(?P<quote>['\"])?[^\s:'\"]{1,60}+:(?P<value>(?(quote)[^'\"\n]{4,80}+|[^\s'\"]{4,80}+))"
# "MongoDB: docker run -p 27017:27017" maps ports.
_PORTS = re.compile(r"(?:\d{1,3}(?:\.\d{1,3}){3}:)?\d{1,5}:\d{1,5}(?:/[a-z]{3})?[.,;)]{0,2}")
_BETWEEN = r"\b[^\n|]{0,120}?\s"


def _is_given(value: str) -> bool:
    """Whether the value is no variable, placeholder, port mapping, redirection or option."""
    is_known = is_placeholder(value) or value.lower() in DOCUMENTED or _PORTS.fullmatch(value)
    return not is_known and value[0] not in "-<>|&;("


@dataclass(frozen=True, slots=True)
class Command:
    """A tool and the option, setting or call that gives it a secret, tried on texts with a mark."""

    name: str
    marks: tuple[str, ...]
    form: re.Pattern[str]
    accepts: Callable[[str], bool]
    kind: str


def _command(
    name: str, marks: str, form: str, accepts: Callable[[str], bool] = _is_given, kind: str = "password"
) -> Command:
    return Command(name, tuple(marks.split(",")), re.compile(form, re.M), accepts, kind)


def _option(name: str, marks: str, program: str, option: str, value: str = _COMMAND_VALUE) -> Command:
    return _command(name, marks, rf"\b(?i:{program}){_BETWEEN}(?:{option}){value}")


COMMANDS: tuple[Command, ...] = (
    _option("redis-cli", "redis-cli", "redis-cli", r"-a\s?|--pass[= ]"),
    _command(
        "redis",
        "auth,requirepass",
        rf"(?:> AUTH|(?i:(?:\d\]?|redis)> auth|^requirepass|^masterauth)) (?:\w{{1,20}} )?{_COMMAND_VALUE}['\"]?$",
    ),
    _command("redis-cli", "rediscli_auth", rf"\b(?i:REDISCLI_AUTH)={_COMMAND_VALUE}"),
    _option("mysql", "mysql,mariadb", r"mysql\w{0,10}|mariadb[\w\-]{0,10}", r"-p(?=[^\s\-])|--password[= ]"),
    # MongoDB is the product, no program.
    _option("mongo", "mongo", r"(?!(?-i:MongoDB)\b)mongo\w{0,10}", r"-p\s?|--password[= ]"),
    _option("curl", "curl,wget,http ", "curl|wget|http", r"-u\s?|--user[= ]|--proxy-user[= ]|-U\s|-a\s", _COMMAND_PAIR),
    _option("wget", "wget", "wget", r"--(?:http-|ftp-|proxy-)?password[= ]"),
    _option("sshpass", "sshpass", "sshpass", r"-p\s?"),
    _option("login", "login", r"(?:docker|podman|buildah|oras|nerdctl|registry|az|oc) login", r"-p[= ]|--password[= ]"),
    _command(
        "htpasswd", "htpasswd", rf"\b(?i:htpasswd) -\w{{0,4}}b\w{{0,4}}\s\S{{1,80}}+\s\S{{1,40}}+\s{_COMMAND_VALUE}"
    ),
    _option("smbclient", "smbclient,rpcclient", "smbclient|rpcclient", r"-U\s?['\"]?[^\s%'\"]{1,60}+%"),
    _command("net use", "net use", rf"\b(?i:net use)\b[^\n]{{0,120}}?\s(?i:/user):\S{{1,60}}+\s{_COMMAND_VALUE}"),
    _command("openssl", "pass:", rf"\s-pass(?:in|out)?\s['\"]?pass:{_COMMAND_VALUE}"),
    _option("openssl", "openssl", r"openssl (?:enc|aes|des|aria|camellia|chacha)[\w\-]*", r"-[kK]\s"),
    _option("7z", "7z,rar ", "7z[ar]?|(?:un)?rar", r"-p(?=[^\s\-])"),
    _option("zip", "zip", "(?:un)?zip", r"-P\s?"),
    _option("ldap", "ldap", r"ldap\w{2,12}", r"-w\s?"),
    _option("sqlcmd", "sqlcmd,bcp ", "sqlcmd|bcp", r"-P\s?"),
    _command(
        "rabbitmqctl",
        "rabbitmqctl",
        rf"\b(?i:rabbitmqctl) (?:add_user|change_password|authenticate_user)\s\S{{1,60}}+\s{_COMMAND_VALUE}",
    ),
    _option("mosquitto", "mosquitto_", r"mosquitto_\w{3}", r"-P\s?"),
    _option("ipmitool", "ipmitool", "ipmitool", r"-P\s?"),
    _option("snmp", "snmp", r"snmp\w{3,9}", r"-[AX]\s?"),
    _option("remote desktop", "freerdp,rdesktop", r"[xw]?freerdp|rdesktop", r"/p:|-p\s?"),
    _command(
        "chpasswd", "chpasswd", rf"\b(?i:echo|printf)\s{_COMMAND_PAIR}['\"]?\s{{0,3}}\|[^\n]{{0,20}}?\b(?i:chpasswd)"
    ),
    _command(
        "a pipe",
        "echo",
        rf"\b(?i:echo)\s(?:-n\s)?{_COMMAND_VALUE}['\"]?\s{{0,3}}\|[^\n]{{0,20}}?"
        r"(?:(?i:sudo) -S|(?i:kinit)|(?i:passwd) --stdin|--password-stdin)",
    ),
    _option("gpg", "passphrase", "gpg2?|borg|restic|ssh-keygen", r"--passphrase[= ]|-N\s"),
    _option("keytool", "keytool,jarsigner", "keytool|jarsigner", r"-(?:store|key|deststore|srcstore)pass\s"),
    _option("lftp", "lftp,ncftp", "lftp|ncftp", r"-u\s?['\"]?[^\s,'\"]{1,60}+,"),
    _command(
        "wpa_passphrase",
        "wpa_passphrase",
        rf"\b(?i:wpa_passphrase)\s(?:['\"][^'\"\n]{{1,32}}+['\"]|\S{{1,32}}+)\s(?=['\"]?[^\s'\"]{{0,63}}\d){_COMMAND_VALUE}",
    ),
    _option("nmcli", "nmcli", "nmcli", r"(?i:password|\S{0,20}psk)\s"),
    _command("SQL", "identified by", rf"(?i)\bidentified by (?:password )?(?=['\"]){_COMMAND_VALUE}"),
    _command(
        "WireGuard", "private", r"(?i:private[ _]?key)\W{0,4}[\w ]{0,20}?(?P<value>[\w+/]{43}=)", kind="private-key"
    ),
    _command("XML", "</", r"<(?i:[\w.\-]{0,30}?(?:pass(?:word|wd)?|pwd))>(?P<value>[^<>\s]{5,80}+)</", looks_chosen),
    _command(
        "Terraform",
        "variable",
        r"\b(?i:variable)\s{1,3}+\"(?i:[\w\-]{0,60}?(?:passw(?:or)?d|pwd|secret|token|api_?key))\"\s{0,3}+"
        r"\{[^}]{0,400}?\b(?i:default)\s{0,20}+=\s{0,3}+\"(?P<value>[^\"\n]{5,200}+)\"",
        looks_chosen,
    ),
    _command(
        "LDAP", "bind,rootpw", rf"\b(?i:bind_?pw|rootpw)\b\s{{0,3}}+[:=]?\s{{0,3}}+{_COMMAND_VALUE}", looks_chosen
    ),
    _command(
        "a cookie",
        "cookie:",
        r"\b(?i:cookie):[^\n]{0,400}?(?i:sess|sid|auth|token|jwt|login|remember)[\w.\-]{0,30}+="
        r"(?P<value>[^\s;\"',]{16,2000}+(?:; ?[\w.\-]{1,60}+=[^\s;\"',]{1,2000}+){0,20})",
        looks_chosen,
        "secret",
    ),
    _command(
        "two-factor login",
        "2fa,otp,mfa,two-factor,authenticator",
        r"(?i:2fa|otp|mfa|two-factor|authenticator)[ _\-](?i:seed|secret|key)\b[^\n.:=]{0,60}?"
        r"(?:\s(?i:is|ist|was|war)|[:=])\s?(?P<value>[A-Z2-7]{16,64}+(?!\w)"
        r"|(?=[A-Za-z ]{0,79}[2-7])(?:[A-Za-z2-7]{4} ){3,15}[A-Za-z2-7]{4}(?!\w))",
        kind="secret",
    ),
    _command("SNMP", "snmp-server", rf"\b(?i:snmp-server community)\s(?:\d\s)?{_COMMAND_VALUE}", looks_chosen),
    _command(
        "a login",
        ".login(",
        r"\.(?i:login)\(\s{0,9}+[^,()\n]{1,80}+,\s{0,9}+(?:\w{1,20}+\s?=\s?)?['\"](?P<value>[^'\"\n]{5,80}+)['\"]",
        looks_chosen,
    ),
    _command(
        "a password file",
        "$1$,$2,$5$,$6$,$7$,$y$,$gy$,$apr1$,$argon2,sha",
        r"(?<![\w.@\-])[\w.@\-]{1,64}+:(?:\{(?i:s?sha(?:256|512)?)\}|(?=\$))"
        r"(?P<value>(?<=\})[\w+/]{27,120}+={0,2}|\$(?i:apr1|[1567y]|gy|2[abxy]|argon2(?:id?|d))\$(?:[\w./+=,\-]{1,60}+\$){1,3}+[\w./+\-]{20,100}+)",
        kind="secret",
    ),
)
# "Pass" counts tests more often than it names passwords.
_PASSWORD_HEADING = re.compile(
    r"(?i)[\s*_\"'`]*(?:\w{1,20}[ _\-])?(?:passw(?:or)?d|passwort|kennwort|passphrase|pwd?)[\s*_\"'`]*"
)
_LINE = re.compile(r"[^\n]+")


def find_command_passwords(text: str) -> Iterator[Finding]:
    """Passwords in the options of command lines."""
    low = lowered(text)
    for command in COMMANDS:
        if any(mark in low for mark in command.marks):
            for match in command.form.finditer(text):
                if command.accepts(match["value"]):
                    why = f"a {command.kind.replace('-', ' ')} given to {command.name}"
                    yield Finding(command.kind, *match.span("value"), why)


def find_table_passwords(text: str) -> Iterator[Finding]:
    """Chosen values below a heading such as "password" in Markdown, CSV and tabs."""
    mark, heads = "|", list[str]()
    for line in _LINE.finditer(text):
        if len(line[0].split(mark)) != len(heads):
            mark = next((each for each in "|\t;," if each in line[0]), "|")
            heads = line[0].split(mark)
            heads = heads if len(heads) > 1 and any(map(_PASSWORD_HEADING.fullmatch, heads)) else []
        at = line.start()
        for head, cell in zip(heads, line[0].split(mark), strict=False):
            value = cell.strip(" \t\r\"'`")
            if _PASSWORD_HEADING.fullmatch(head) and " " not in value and looks_chosen(value.strip("*")):
                start = at + cell.index(value)
                yield Finding("password", start, start + len(value), "stands in a column of passwords")
            at += len(cell) + 1
