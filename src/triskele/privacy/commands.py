"""Passwords on command lines: each tool has its own option for them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from triskele.privacy.findings import Finding
from triskele.privacy.randomness import DOCUMENTED, is_placeholder

_VALUE = r"(?P<quote>['\"])?(?P<value>(?(quote)[^'\"\n]{4,80}+|[^\s'\"\-][^\s'\"]{3,79}+))"
_PAIR = r"(?P<quote>['\"])?[^\s:'\"]{1,60}+:(?P<value>(?(quote)[^'\"\n]{4,80}+|[^\s'\"]{4,80}+))"
_BETWEEN = r"\b[^\n|]{0,120}?\s"


@dataclass(frozen=True, slots=True)
class Command:
    """A tool, and the form of the option that takes a password; searched only where the text holds a mark."""

    name: str
    marks: tuple[str, ...]
    form: re.Pattern[str]


def _command(name: str, marks: str, form: str) -> Command:
    return Command(name, tuple(marks.split(",")), re.compile(form, re.M))


def _option(name: str, marks: str, program: str, option: str, value: str = _VALUE) -> Command:
    return _command(name, marks, rf"\b(?:{program}){_BETWEEN}(?:{option}){value}")


COMMANDS: tuple[Command, ...] = (
    _option("redis-cli", "redis-cli", "redis-cli", r"-a\s?|--pass[= ]"),
    _command(
        "redis", "AUTH,requirepass,masterauth", rf"(?:> AUTH|^requirepass|^masterauth) (?:\w{{1,20}} )?{_VALUE}['\"]?$"
    ),
    _command("redis-cli", "REDISCLI_AUTH", rf"\bREDISCLI_AUTH={_VALUE}"),
    _option("mysql", "mysql,mariadb", r"mysql\w{0,10}|mariadb[\w\-]{0,10}", r"-p(?=[^\s\-])|--password[= ]"),
    _option("mongo", "mongo", r"mongo\w{0,10}", r"-p\s?|--password[= ]"),
    _option("curl", "curl,wget,http ", "curl|wget|http", r"-u\s?|--user[= ]|--proxy-user[= ]|-U\s|-a\s", _PAIR),
    _option("wget", "wget", "wget", r"--(?:http-|ftp-|proxy-)?password[= ]"),
    _option("sshpass", "sshpass", "sshpass", r"-p\s?"),
    _option("login", "login", r"(?:docker|podman|buildah|oras|nerdctl|registry|az|oc) login", r"-p[= ]|--password[= ]"),
    _command("htpasswd", "htpasswd", rf"\bhtpasswd -\w{{0,4}}b\w{{0,4}}\s\S{{1,80}}+\s\S{{1,40}}+\s{_VALUE}"),
    _option("smbclient", "smbclient,rpcclient", "smbclient|rpcclient", r"-U\s?['\"]?[^\s%'\"]{1,60}+%"),
    _command("net use", "net use", rf"\bnet use\b[^\n]{{0,120}}?\s/user:\S{{1,60}}+\s{_VALUE}"),
    _command("openssl", "pass:", rf"\s-pass(?:in|out)?\s['\"]?pass:{_VALUE}"),
    _option("7z", "7z,rar ", "7z[ar]?|(?:un)?rar", r"-p(?=[^\s\-])"),
    _option("zip", "zip", "(?:un)?zip", r"-P\s?"),
    _option("ldap", "ldap", r"ldap\w{2,12}", r"-w\s?"),
    _option("sqlcmd", "sqlcmd,bcp ", "sqlcmd|bcp", r"-P\s?"),
    _command(
        "rabbitmqctl",
        "rabbitmqctl",
        rf"\brabbitmqctl (?:add_user|change_password|authenticate_user)\s\S{{1,60}}+\s{_VALUE}",
    ),
    _option("mosquitto", "mosquitto_", r"mosquitto_\w{3}", r"-P\s?"),
    _option("ipmitool", "ipmitool", "ipmitool", r"-P\s?"),
    _option("snmp", "snmp", r"snmp\w{3,9}", r"-[AX]\s?"),
    _option("remote desktop", "freerdp,rdesktop", r"[xw]?freerdp|rdesktop", r"/p:|-p\s?"),
    _command("chpasswd", "chpasswd", rf"\b(?:echo|printf)\s{_PAIR}['\"]?\s{{0,3}}\|[^\n]{{0,20}}?\bchpasswd"),
    _command(
        "a pipe",
        "echo",
        rf"\becho\s(?:-n\s)?{_VALUE}['\"]?\s{{0,3}}\|[^\n]{{0,20}}?(?:sudo -S|kinit|passwd --stdin|--password-stdin)",
    ),
    _option("gpg", "passphrase", "gpg2?|borg|restic|ssh-keygen", r"--passphrase[= ]|-N\s"),
    _option("keytool", "keytool,jarsigner", "keytool|jarsigner", r"-(?:store|key|deststore|srcstore)pass\s"),
    _option("lftp", "lftp,ncftp", "lftp|ncftp", r"-u\s?['\"]?[^\s,'\"]{1,60}+,"),
    _command(
        "wpa_passphrase",
        "wpa_passphrase",
        rf"\bwpa_passphrase\s(?:['\"][^'\"\n]{{1,32}}+['\"]|\S{{1,32}}+)\s(?=['\"]?[^\s'\"]{{0,63}}\d){_VALUE}",
    ),
    _option("nmcli", "nmcli", "nmcli", r"password\s|\S{0,20}psk\s"),
    _command("SQL", "IDENTIFIED BY,identified by", rf"(?i)\bidentified by (?:password )?(?=['\"]){_VALUE}"),
)


def find_command_passwords(text: str) -> Iterator[Finding]:
    """Passwords that a command line hands to a tool."""
    for command in COMMANDS:
        if any(mark in text for mark in command.marks):
            for match in command.form.finditer(text):
                if _is_given(match["value"]):
                    yield Finding("password", *match.span("value"), f"a password given to {command.name}")


def _is_given(value: str) -> bool:
    """Neither a variable nor a word of the documentation, nor a redirection or an option."""
    return not is_placeholder(value) and value.lower() not in DOCUMENTED and value[0] not in "-<>|&;("
