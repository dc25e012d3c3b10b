"""Detection on the labelled samples, at the edges of its rules, and on texts made to slow it down."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import secret_samples
from hypothesis import given
from hypothesis import strategies as st

from triskele.privacy import detect
from triskele.privacy.api_keys import PROVIDERS, Provider, find_provider_keys
from triskele.privacy.detect import find
from triskele.privacy.findings import Finding, merge
from triskele.privacy.formats import COMMANDS, Command

SAMPLES = secret_samples.load()
GUILTY = [sample for sample in SAMPLES if sample.kind]
INNOCENT = [sample for sample in SAMPLES if sample.kind is None]
FORMS = secret_samples.load(secret_samples.FORMS)
LONG = 200_000


def _kinds(text: str) -> list[str]:
    return [finding.kind for finding in find(text)]


def _covers(sample: secret_samples.Sample) -> bool:
    return any(finding.start <= sample.start and sample.end <= finding.end for finding in find(sample.text))


@pytest.mark.parametrize("half", [0, 1])
def test_find_reaches_its_recall_and_precision(half: int) -> None:
    covered = sum(_covers(sample) for sample in GUILTY if sample.half == half)
    false = sum(bool(find(sample.text)) for sample in INNOCENT if sample.half == half)
    all_of_them = sum(sample.half == half for sample in GUILTY)
    assert covered / all_of_them >= 0.95
    assert covered / (covered + false) >= 0.95


@pytest.mark.parametrize("half", [0, 1])
def test_find_reads_encoded_forms_tools_and_languages(half: int) -> None:
    samples = [sample for sample in FORMS if sample.half == half]
    covered = [_covers(sample) for sample in samples if sample.kind]
    false = sum(bool(find(sample.text)) for sample in samples if sample.kind is None)
    assert sum(covered) / len(covered) >= 0.93
    assert sum(covered) / (sum(covered) + false) >= 0.99


@pytest.mark.parametrize(
    ("kind", "template"),
    [
        ("github-token", "q=token%3D⟦ghp_‹alnum:36›⟧%26x"),
        ("github-token", "data: ⟦‹b64of:ghp_{alnum:36}›⟧"),
        ("github-token", "⟦‹wide:ghp_{alnum:36}›⟧"),
        ("github-token", "⟦‹zw:ghp_{alnum:36}›⟧"),
        ("azure-sas", "https://a.blob.core.windows.net/b?⟦sv=2022-11-02&sr=b&sig=‹b64x:43›%3D⟧"),
        ("azure-key", "⟦SharedAccessKey=‹b64:43›=⟧"),
        ("private-key", "Private-Lines: 1\n⟦‹b64:47›=⟧\nPrivate-MAC: ‹hex:64›"),
        ("private-key", "⟦‹b64:64›\n-----END RSA PRIVATE KEY-----⟧"),
        ("private-key", "⟦-----BEGIN RSA PRIVATE KEY-----‹b64:200›⟧"),
        ("private-key", "client-key-data: ⟦‹b64:80›⟧"),
        ("secret", "kubeadm join --token ⟦‹lower:6›.‹lower:16›⟧"),
        ("password", "db1:5432:garden:app:⟦‹pass›⟧"),
        ("password", "redis-cli -a ⟦‹pass›⟧ ping"),
        ("wallet-key", "private key: ⟦0x‹hex:64›⟧"),
        ("wallet-key", "⟦‹xkey:xprv›⟧"),
        ("password", "WIFI:T:WPA;S:Attic;P:⟦‹pass›⟧;;"),
        ("password", "пароль от роутера: ⟦‹pass›⟧"),
        ("password", "비밀번호는 ⟦‹pass›⟧입니다"),
        ("password", "hasło to ⟦‹pass›⟧"),
        ("pin", "код домофона: ⟦‹digits:4›⟧"),
    ],
)
def test_find_returns_the_whole_of_every_form(kind: str, template: str) -> None:
    before, secret, after = re.split("[⟦⟧]", secret_samples.fill(template))
    (finding,) = find(before + secret + after)
    assert finding.kind == kind
    assert finding.start <= len(before) and len(before + secret) <= finding.end


# Names of programs and keywords stand in «», options are exact.
COMMAND_LINES = {
    "redis-cli": ["«redis-cli» -h cache -a ⟦‹alnum:14›⟧ ping", "«rediscli_auth»=⟦‹alnum:14›⟧ cat keys"],
    "redis": ["6379> «auth» ⟦‹alnum:14›⟧", "«requirepass» ⟦‹alnum:14›⟧", "«masterauth» ⟦‹alnum:14›⟧"],
    "mysql": ["«mysqldump» -uapp -p⟦‹alnum:14›⟧ garden", "«mariadb» -uapp -p⟦‹alnum:14›⟧ garden"],
    "mongo": ["«mongosh» garden -u admin -p ⟦‹alnum:14›⟧"],
    "curl": [
        "«curl» -u admin:⟦‹alnum:14›⟧ box7",
        "«wget» --user admin:⟦‹alnum:14›⟧ box7",
        "«http» -a admin:⟦‹alnum:14›⟧ box7",
    ],
    "wget": ["«wget» --ftp-password=⟦‹alnum:14›⟧ box7"],
    "sshpass": ["«sshpass» -p ⟦‹alnum:14›⟧ ssh box7"],
    "login": ["«docker login» -u ci -p ⟦‹alnum:14›⟧", "helm «registry login» --password ⟦‹alnum:14›⟧"],
    "htpasswd": ["«htpasswd» -bc .users anna ⟦‹alnum:14›⟧"],
    "smbclient": ["«smbclient» //nas/media -U anna%⟦‹alnum:14›⟧"],
    "net use": ["«net use» Z: nas «/user»:anna ⟦‹alnum:14›⟧"],
    "openssl": [
        "«openssl» rsa -in a.pem -passin pass:⟦‹alnum:14›⟧",
        "«openssl» enc -aes-256-cbc -salt -k ⟦‹alnum:14›⟧ -in a",
        "«openssl» aes-256-cbc -d -k '⟦‹alnum:14›⟧'",
    ],
    "7z": ["«7za» x a.7z -p⟦‹alnum:14›⟧", "«unrar» x -p⟦‹alnum:14›⟧ a.rar"],
    "zip": ["«unzip» -P ⟦‹alnum:14›⟧ docs.zip"],
    "ldap": ["«ldapsearch» -x -w ⟦‹alnum:14›⟧"],
    "sqlcmd": ["«sqlcmd» -S db1 -U sa -P ⟦‹alnum:14›⟧"],
    "rabbitmqctl": ["«rabbitmqctl» add_user worker ⟦‹alnum:14›⟧"],
    "mosquitto": ["«mosquitto_pub» -u sensor -P ⟦‹alnum:14›⟧"],
    "ipmitool": ["«ipmitool» -U admin -P ⟦‹alnum:14›⟧ power status"],
    "snmp": ["«snmpwalk» -v3 -u anna -A ⟦‹alnum:14›⟧"],
    "remote desktop": ["«xfreerdp» /u:anna /p:⟦‹alnum:14›⟧", "«rdesktop» -u anna -p ⟦‹alnum:14›⟧"],
    "chpasswd": ["«echo» anna:⟦‹alnum:14›⟧ | «chpasswd»", "«printf» anna:⟦‹alnum:14›⟧ | sudo «chpasswd»"],
    "a pipe": [
        "«echo» ⟦‹alnum:14›⟧ | «sudo» -S make install",
        "«echo» ⟦‹alnum:14›⟧ | «kinit»",
        "echo ⟦‹alnum:14›⟧ | «passwd» --stdin",
    ],
    "gpg": ["«gpg» --passphrase ⟦‹alnum:14›⟧ -d notes.gpg"],
    "keytool": ["«keytool» -list -storepass ⟦‹alnum:14›⟧"],
    "lftp": ["«lftp» -u anna,⟦‹alnum:14›⟧ box7"],
    "wpa_passphrase": ["«wpa_passphrase» Attic ⟦‹alnum:14›7⟧"],
    "nmcli": ["«nmcli» connection modify Attic wifi-sec.«psk» ⟦‹alnum:14›⟧"],
    "SQL": ["create user anna «identified by» '⟦‹alnum:14›⟧'"],
    "WireGuard": ["[Interface]\n«privatekey» = ⟦‹b64:43›=⟧", "the wireguard «private key» is ⟦‹b64:43›=⟧"],
    "XML": ["<«password»>⟦‹pass›⟧</«password»>", "<user>joe</user><«db.pwd»>⟦‹pass›⟧</«db.pwd»>"],
    "Terraform": [
        '«variable "db_password"» {\n  type = string\n  «default» = "⟦‹pass›⟧"\n}',
        '«variable» "api_token" { «default» = "⟦‹alnum:40›⟧" }',
    ],
    "LDAP": ["«bindpw» ⟦‹pass›⟧", "«bind_pw» = ⟦‹pass›⟧", "«rootpw»: ⟦‹pass›⟧"],
    "a cookie": [
        "«cookie: sessionid»=⟦‹lower:32›⟧",
        "«cookie»: theme=dark; csrftoken=‹alnum:32›; ⟦sid=‹hex:32›⟧",
        "«set-cookie: session»=⟦‹url:40›⟧; Path=/; HttpOnly",
    ],
    "two-factor login": [
        "the «2fa seed» of the mailbox «is» ⟦‹base32:32›⟧",
        "«totp secret»: ⟦‹base32:16›⟧",
        "my «mfa key is» ⟦k4ud ‹base32:4› ‹base32:4› ‹base32:4›⟧",
    ],
    "SNMP": ["«snmp-server community» ⟦‹pass›⟧ RO"],
    "a login": ["server«.login»('joe@box7', '⟦‹pass›⟧')", 'imap«.login»(user, password="⟦‹pass›⟧")'],
    "a password file": [
        "joe:⟦$apr1$‹alnum:8›$‹alnum:22›⟧",
        "joe:⟦$2y$05$‹alnum:53›⟧",
        "joe:{«sha»}⟦‹b64:27›=⟧",
        "root:⟦$6$‹alnum:16›$‹alnum:86›⟧:19000:0:99999:7:::",
        "root:⟦$y$j9T$‹alnum:22›$‹alnum:43›⟧:19000:0:99999:7:::",
    ],
}
KEYWORDS = [
    "«private-lines»: 1\n⟦‹b64:47›=⟧",
    "«sig»=⟦‹b64x:43›⟧%3D&sv=2022-11-02",
    "«client-key-data»: ⟦‹b64:80›⟧",
    "«token»: ⟦‹lower:6›.‹lower:16›⟧",
    "kubeadm init «--certificate-key» ⟦‹hex:64›⟧",
    "«wifi»:T:WPA;S:Attic;P:⟦‹alnum:14›⟧;;",
    "<«keymaterial»>⟦‹alnum:14›⟧<",
    "«wep_key0»=⟦‹alnum:14›⟧",
    "«wpa_psk»=⟦‹alnum:14›⟧",
    "«pre-shared-key»=⟦‹alnum:14›⟧",
    "«option key» '⟦‹alnum:14›⟧'",
    "«psk»=⟦‹hex:64›⟧",
    "«puk» ⟦‹digits:8›⟧",
    "the «password is» ⟦‹alnum:14›⟧",
    "the «api key of the shop is now» ⟦‹alnum:32›⟧",
    "«https://hooks.slack.com»/services/T‹upper:9›/B‹upper:9›/⟦‹alnum:24›⟧",
    "«https://discord.com»/api/webhooks/‹digits:18›/⟦‹url:68›⟧",
    "«accountkey»=⟦‹b64:86›==⟧",
    "«sharedaccesskey»=⟦‹b64:43›=⟧",
    "box7.«azurewebsites.net»/api/hook?code=⟦‹url:50›⟧",
]


@pytest.mark.parametrize("write", [str.lower, str.capitalize, str.upper])
@pytest.mark.parametrize("template", [*KEYWORDS, *(line for lines in COMMAND_LINES.values() for line in lines)])
def test_find_ignores_the_case_of_programs_and_keywords(template: str, write: Callable[[str], str]) -> None:
    filled = secret_samples.fill(re.sub("«(.+?)»", lambda match: write(match[1]), template))
    before, secret, _ = re.split("[⟦⟧]", filled)
    ends = len(before), len(before + secret)
    text = re.sub("[⟦⟧]", "", filled)
    assert any(finding.start <= ends[0] and ends[1] <= finding.end for finding in find(text))


def test_commands_have_lines_in_every_case() -> None:
    assert set(COMMAND_LINES) == {command.name for command in COMMANDS}


# Tables, Ethereum keys and Telegram tokens, and every line of a command.
PLACES = [
    "| host | user | password |\n|---|---|---|\n| db1 | joe | ⟦‹pass›⟧ |",
    "| service | **Admin password** | note |\n|:--|---|---|\n| mail | `⟦‹pass›⟧` | old |",
    "host,user,password,note\ndb1,joe,⟦‹pass›⟧,old",
    "host\tpasswort\ndb1\t⟦‹pass›⟧",
    "mail;joe;x\nhost;pwd;note\nmail;⟦‹pass›⟧;joe",
    "the ethereum key of the faucet is ⟦0x‹hex:64›⟧",
    "ETH_KEY=⟦0x‹hex:64›⟧",
    "my metamask key ⟦‹hex:64›⟧",
    "⟦‹digits:10›:‹url:35›⟧",
    "curl https://api.telegram.org/⟦bot‹digits:10›:AA‹url:33›⟧/getMe",
    "ftp account: joe:⟦‹lower:5›7‹lower:3›4b⟧",
    "FTP account: joe / ⟦‹pass›⟧",
    "ftp user joe:⟦‹pass›⟧",
    "Use ⟦‹pass›⟧ as the password for the NAS",
    "use '⟦‹pass›⟧' as password on box7",
    "Nimm ⟦‹pass›⟧ als Passwort für die NAS",
    "Login NAS: joe / ⟦‹alnum:6›7‹alnum:3›4B⟧",
    "Login for the router: admin / ⟦‹pass›⟧",
    "the wifi in the attic, its key is ⟦‹pass›⟧",
    "our wifi network's key is ⟦‹alnum:9›7⟧",
    "the password is ⟦‹alnum:4›qZRfTbWk⟧",
    *(line.replace("«", "").replace("»", "") for lines in COMMAND_LINES.values() for line in lines),
]


@pytest.mark.parametrize("template", PLACES)
def test_find_reads_ten_values_in_every_place(template: str) -> None:
    # Each number of line ends draws another value.
    for lines in range(10):
        before, secret, after = re.split("[⟦⟧]", secret_samples.fill(template + "\n" * lines))
        assert any(
            finding.start <= len(before) and len(before + secret) <= finding.end
            for finding in find(before + secret + after)
        )


@pytest.mark.parametrize(
    "text",
    [
        "The WireGuard private key lies in /etc/wireguard/key",
        "the private key stays, the public key is kQ7zX2mWp9Lr4TvB8nYc3DfG6hJkQ7zX2mWp9Lr4Tv0=",
        "<password>${env.NEXUS_PASSWORD}</password>",
        "<password>required</password>",
        "<pass>12/12</pass>",
        "| Method | Password | Passkey |\n|---|---|---|\n| works offline | yes | v2.1 |",
        "| test | pass | fail |\n|---|---|---|\n| unit | 12ok | 3 |",
        "| user | password |\n|---|---|\n| joe | in Bitwarden 7 |",
        "| user | password hash |\n|---|---|\n| joe | bcrypt12 |",
        "We ask for user, password\nand later, a code2, too",
        'variable "db_password" {\n  type = string\n  sensitive = true\n}',
        'variable "region" { default = "eu-west-1" }',
        'variable "token_lifetime" { default = "3600s" }',
        "bindpw is read from a file",
        "bindpw /etc/ldap.secret",
        "Cookie: sessionid=<id>",
        "Set-Cookie: sid=...; SameSite=Lax",
        "Cookie: _ga=GA1.2.1234.5678; lang=de",
        "The cookie: authentication keeps users signed in",
        "2FA seed is stored in the vault",
        "The authenticator key is REQUIRED for all",
        "The OTP key is with Anna this time",
        "snmp-server community strings must change",
        "snmp-server community public RO",
        "openssl enc -aes-256-cbc -k $PASS -in a",
        "openssl enc -aes-256-cbc -kfile pass2.txt",
        "server.login(user, password)",
        "server.login('joe', 'password')",
        "Hashes begin with $2y$10$ or $6$",
        "make foo CC=$1/$2 out:$6$path/to/some/file/of/the/build",
        "Use Argon2id as our password hash function",
        "Use Argon2id as password hashing",
        "Use KeePassXC2 as the password manager",
        "Use OAuth2 as the login",
        "We use Keycloak24 as the login provider",
        "Login flow: web / oauth2-proxy",
        "Login for docs: web / PostgreSQL15",
        "Deploy login-service: image / login-service:1.4.2",
        "Account: Anna / 2024-budget",
        "ftp login: anonymous:anonymous",
        "ftp host: files.example.org:2121",
        "wifi: the key is on the fridge",
        "wifi router: hot key is Ctrl+F5",
        "the wlan driver, its key is wpa_supplicant",
        "The wifi guest key is WPA2-PSK",
        "the password is userPasswordField",
        "1700000000:the-time-of-the-build-of-the-image2x",
        "1700000000:a94a8fe5ccb19ba61c4c0873d391e987982",
    ],
)
def test_places_without_a_secret_are_innocent(text: str) -> None:
    assert find(text) == []


@pytest.mark.parametrize("words", ["ETH_KEY_HASH=", "the eth tx is ", "ethereum public key ", "method key: sha256 "])
def test_numbers_of_ethereum_that_are_no_keys_are_innocent(words: str) -> None:
    assert find(secret_samples.fill(f"{words}0x‹hex:64›")) == []


@pytest.mark.parametrize(
    "sample", [sample for sample in (*GUILTY, *FORMS) if sample.kind], ids=lambda sample: sample.kind
)
def test_find_needs_no_small_first_letter(sample: secret_samples.Sample) -> None:
    text = sample.text[0].upper() + sample.text[1:]
    assert sample.start == 0 or _covers(replace(sample, text=text)) or not _covers(sample)


@pytest.mark.parametrize(
    "text",
    [
        "We run MongoDB with docker run -p 27017:27017 mongo",
        "MongoDB keeps its files in mkdir -p data/db",
        "MySQL runs as docker run -p3306:3306 mysql:8",
        "mongo in docker run -p 127.0.0.1:27017:27017/tcp",
        "> Auth failed",
        "> Auth tokens expire",
        "HTTP answers are cached by curl",
        "The puk of the hockey team is black",
    ],
)
def test_prose_with_names_of_programs_is_innocent(text: str) -> None:
    assert find(text) == []


@pytest.mark.parametrize(
    "template",
    ["tx 0x‹hex:64›", "token: 0x‹hex:64›", "key holder 0x‹Hex:40›", "key: ‹xkey:xpub›", "key: sha384-‹b64:64›"],
)
def test_hashes_addresses_and_public_keys_are_innocent(template: str) -> None:
    assert _kinds(secret_samples.fill(template)) == []


def test_samples_of_forms_are_three_hundred() -> None:
    assert sum(sample.kind is not None for sample in FORMS) >= 300
    assert sum(sample.kind is None for sample in FORMS) >= 300
    assert len({sample.text for sample in FORMS}) == len(FORMS)


def test_the_samples_are_many_and_half_of_them_innocent() -> None:
    assert len(SAMPLES) >= 400 and len(INNOCENT) * 2 >= len(SAMPLES)
    assert len({sample.text for sample in SAMPLES}) == len(SAMPLES)


@pytest.mark.parametrize("templates", [secret_samples.TEMPLATES, secret_samples.FORMS], ids=lambda path: path.stem)
def test_no_template_holds_a_secret(templates: Path) -> None:
    # A scanner of the repository would find nothing either: what the templates hold are forms.
    stored = "\n".join(re.sub(r"‹[^›]*›", "‹›", line) for line in templates.read_text().splitlines())
    assert not list(find_provider_keys(stored))


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.kind)
def test_providers_differ_by_their_form(provider: Provider) -> None:
    own = [sample for sample in GUILTY if sample.kind == provider.kind]
    assert own and all(sample.kind in _kinds(sample.text) for sample in own)


def test_there_are_forty_kinds_of_keys() -> None:
    assert len({provider.kind for provider in PROVIDERS}) >= 40


@pytest.mark.parametrize("prefix", ["ghp_", "npm_", "gsk_", "hf_", "AIza", "r8_"])
def test_a_key_cut_short_or_grown_is_none(prefix: str) -> None:
    length = {"ghp_": 36, "npm_": 36, "gsk_": 52, "hf_": 34, "AIza": 35, "r8_": 37}[prefix]
    body = secret_samples.fill(f"‹alpha:{length}›")
    assert _kinds(prefix + body)
    assert not _kinds(prefix + body[:-1]) and not _kinds(f"{prefix}{body}Q")


def test_valid_checksum_is_reported() -> None:
    right = secret_samples.fill("ghp_‹crc:30›")
    wrong = right[:-1] + ("A" if right[-1] != "A" else "B")
    assert "checksum holds" in find(right)[0].why
    assert "checksum" not in find(wrong)[0].why


def test_a_web_token_must_decode() -> None:
    token = secret_samples.fill("‹jwt›")
    assert _kinds(token) == ["jwt"]
    head, body, sign = token.split(".")
    assert _kinds(f"{head}.eyJ{'A' * len(body)}.{sign}") == []


def test_a_locked_private_key_is_one_too() -> None:
    head = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0123456789ABCDEF\n\n"
    begin, body, end = secret_samples.fill(
        "-----BEGIN RSA PRIVATE KEY-----\n|‹pem:4›|\n-----END RSA PRIVATE KEY-----"
    ).split("|")
    (finding,) = find(begin + head + body + end)
    assert (finding.kind, finding.start, finding.end) == ("private-key", 0, len(begin + head + body + end))


def test_one_wrong_digit_makes_a_card_innocent() -> None:
    card = secret_samples.fill("‹luhn:4:16›")
    for position in range(1, 16):
        changed = card[:position] + str((int(card[position]) + 1) % 10) + card[position + 1 :]
        assert _kinds(f"card {changed}") == []
    assert _kinds(f"card {card}") == ["card"]
    assert _kinds(f"order {card}") == []


def test_one_wrong_character_makes_an_iban_innocent() -> None:
    account = secret_samples.fill("‹iban:DE›")
    assert _kinds(account) == ["iban"]
    for position in range(4, 22):
        changed = account[:position] + str((int(account[position]) + 1) % 10) + account[position + 1 :]
        assert _kinds(changed) == []


def test_capitals_behind_an_iban_are_no_part_of_it() -> None:
    account = secret_samples.fill("‹iban:DE:4›")
    (finding,) = find(f"{account} AN ANNA")
    assert finding.end == len(account)


@pytest.mark.parametrize(
    ("phrase", "hint", "found"),
    [
        ("legal winner thank year wave sausage worth useful legal winner thank yellow", "", True),
        ("legal winner thank year wave sausage worth useful legal winner thank zone", "", False),
        ("legal winner thank year wave sausage worth useful legal winner thank zone", "wallet seed: ", True),
        ("legal winner thank year wave sausage worth useful legal winner thank", "wallet seed: ", False),
        ("abandon " * 11 + "about", "", False),
    ],
)
def test_a_wallet_phrase_needs_its_checksum_or_a_hint(phrase: str, hint: str, found: bool) -> None:
    assert ("seed-phrase" in _kinds(hint + phrase)) is found


@pytest.mark.parametrize("text", ["kQ7zX2mWp9Lr4TvB8nYc3DfG6hJ", "see kQ7zX2mWp9Lr4TvB8nYc3DfG6hJ for more"])
def test_randomness_alone_is_no_secret(text: str) -> None:
    assert find(text) == []
    assert _kinds("api key: " + text.replace("see ", "").replace(" for more", "")) == ["secret"]


def test_overlapping_findings_become_one_that_covers_all() -> None:
    first, second = Finding("a", 5, 10, "one"), Finding("b", 0, 7, "two")
    assert merge([first, second]) == [Finding("a", 0, 10, "one")]
    assert merge([second, first]) == [Finding("b", 0, 10, "two")]
    assert merge([Finding("a", 5, 6, ""), Finding("b", 0, 5, "")]) == [Finding("b", 0, 5, ""), Finding("a", 5, 6, "")]


@pytest.mark.parametrize("sample", GUILTY, ids=lambda sample: sample.kind)
def test_no_reason_quotes_the_secret(sample: secret_samples.Sample) -> None:
    secret = sample.text[sample.start : sample.end]
    pieces = {secret[at : at + 5] for at in range(len(secret) - 4)}
    drawn = [piece for piece in pieces if any(character.isdigit() for character in piece)]
    assert not any(piece in finding.why for finding in find(sample.text) for piece in drawn)


@given(
    st.text(max_size=300)
    | st.lists(st.sampled_from("password: is key token sk- = ' 4 DE PIN eyJ . @ ://".split())).map("".join)
)
def test_any_text_gives_ordered_findings_inside_it(text: str) -> None:
    end = 0
    for finding in find(text):
        assert end <= finding.start < finding.end <= len(text)
        end = finding.end


# Long values after a word for password: every judgement of a value meets its worst case.
HARD_VALUES = [
    f"pw: {value} "
    for value in (f"1{'a' * 100}!", f"1{'.1' * 50}é", f"a{'_a' * 50}!", "a-" * 50, f"{'/' * 100}!", "@a." * 30)
]
ATTACKS = {
    "find_private_keys": [
        "-----BEGIN RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----AAAA",
        "-----BEGIN A B C ",
        "-----END RSA PRIVATE KEY-----AAAA",
        "Private-Lines: 4\n" + "aB3/" * 10 + " ",
        "MIIaaaaBADANBgkqhkiG9w0BAQEF",
        "b3BlbnNzaC1rZXktdjEA",
    ],
    "find_web_tokens": ["eyJ", "eyJhbGciOi.", "eyJhbGciOi.eyJhbGciOi.", "eyJ[[[[[[[["],
    "find_provider_keys": ["sk-", "-", ".", "A1b2", "K", "1/123456789012", "eyJ", "xox", "a-us"],
    "find_aws_secrets": ["AKIAABCDEFGHIJKLMNOP ", "aws ", "aws secret ", "aB3/" * 10 + " "],
    "find_url_passwords": ["a://", "a:", "a://b:", "http://a:b", "a+", "@"],
    "find_azure_signatures": ["sig=", "sig=" + "a1" * 30 + "&", "&sv=1&sig=" + "a1" * 30],
    "find_kubernetes_keys": ["client-key-data: ", "token: ", "token=abcdef.", "K10" + "a1" * 40, "--certificate-key "],
    "find_pgpass_passwords": ["a:", "a:5432:", "a:*:b:c:", "*:*:", "\\:", "a:5432:b:c:d1!x "],
    "find_wifi_keys": ["WIFI:", "WIFI:T:a;", "WIFI:P:", "T:a;", "psk=", "option key '", "<keyMaterial>", "\\;"],
    "find_wallet_keys": ["xprv", "private key ", "private key: 0x" + "a1" * 32 + " ", "from_key(", "0x" + "a1" * 32],
    "find_command_passwords": [
        "mysql ",
        "mysql -p",
        "curl -u a:",
        "curl -u ",
        "redis-cli -a ",
        "echo a",
        "net use /user:a ",
        "7z -p",
        "> AUTH a",
        "identified by '",
        "wpa_passphrase a ",
        "cookie: sid=a1b2",
        "cookie:",
        "<password>",
        "<password>a1",
        'variable "db_password" { ',
        "2fa key a ",
        "a:$6$a$",
        ".login(a,",
        "private key ",
    ],
    "find_table_passwords": ["password|a1b2c3\n", "password|", "password,pw\na1b2c3!,b\n", "pw;", "|"],
    "find_passwords_in_languages": [
        "пароль ",
        "пароль: aB3",
        "parola a1 ",
        "密码",
        "密码是aB3!",
        "contraseña es a1B! ",
        "aB3!は",
    ],
    "find_cards": ["4", "4444 ", "4444-4444-", "4111 1111 1111 1111 "],
    "find_ibans": ["DE", "DE12 ", "DE12 3456 7890 ", "DE123456789012345678901234567890"],
    "find_phrases": ["apple ", "apple,,,", "apple 1. ", "wallet apple "],
    "find_codes": ["PIN ", "door code ", "PIN a ", "1-", "recovery code ", "backup codes: abcd-1234 "],
    "find_passwords": [
        "wifi a ",
        "ftp a:",
        "login a / ",
        "login a a / a1b2c3d4",
        "a1B2c3 as my ",
        "password A-b_2/",
        "pw is ",
        "pw:",
        "pass=",
        "passphrase: ab ",
        "curl -u ",
        "a is my ",
        "login: ",
        "ab ",
        *HARD_VALUES,
    ],
    "find_keys": ["key ", "api key is A-b_2/", "token:", "basic ", "key = a", "auth", "secret'"],
}


def _work(rule: Callable[[str], Iterator[Finding]], text: str) -> float:
    started = time.process_time()
    for _ in rule(text):
        pass
    return time.process_time() - started


def _grows_in_line(rule: Callable[[str], Iterator[Finding]], piece: str) -> bool:
    """Twice the text is no four times the work; a busy machine gets three tries."""
    text = piece * (LONG // len(piece))
    return any(_work(rule, text) < 3.2 * _work(rule, text[: LONG // 2]) + 0.05 for _ in range(3))


def test_every_rule_is_attacked() -> None:
    assert set(ATTACKS) == {rule.__name__ for rule in detect.RULES}


@pytest.mark.slow
@pytest.mark.parametrize("rule", detect.RULES, ids=lambda rule: rule.__name__)
def test_a_rule_takes_time_in_proportion(rule: Callable[[str], Iterator[Finding]]) -> None:
    pieces = ATTACKS[rule.__name__]
    assert [piece for piece in pieces if not _grows_in_line(rule, piece)] == []
    # One start and an endless body.
    assert _grows_in_line(lambda text: rule(pieces[0] + text), "a1B2")


@pytest.mark.slow
@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.kind)
def test_a_form_takes_time_in_proportion(provider: Provider) -> None:
    for mark in provider.marks:
        assert _grows_in_line(lambda text: find_provider_keys(text, [provider]), f"{mark}0a1b")
        assert _grows_in_line(lambda text, mark=mark: find_provider_keys(mark + text, [provider]), "0a1b2c3d")


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_a_command_takes_time_in_proportion(command: Command) -> None:
    for mark in command.marks:
        assert _grows_in_line(lambda text: list(command.form.finditer(text)), f"{mark} -p a:b ")
        assert _grows_in_line(lambda text, mark=mark: list(command.form.finditer(mark + text)), "a1 -x ")


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece", ["%41", "%25", "％", "e\u0301", "\u200b", "aGVsbG8gd29ybGQ", "aGVsbG8gd29ybGQ" * 5 + "\n", "a"]
)
def test_decoding_takes_time_in_proportion(piece: str) -> None:
    assert _grows_in_line(lambda text: (find(text), iter(()))[1], piece)


@pytest.mark.parametrize(
    "text",
    [
        "token%3D{}%26page%3D2",
        "token%253D{}%2526",
        "e\u0301e\u0301 ２ {} ﬁ",
        "\u200b{}\u200b",
        "%E2%82%AC%20{}%20%ff",
    ],
)
def test_a_finding_in_a_decoded_text_points_at_the_original(text: str) -> None:
    token = secret_samples.fill("ghp_‹alnum:36›")
    (finding,) = find(text.format(token))
    assert text.format(token)[finding.start : finding.end] == token


@given(st.text(alphabet="%25E2AC４ｐ\u0301\u200bﬁ가ᄀ각 aGk=pw:!", max_size=60))
def test_any_encoded_text_gives_ordered_findings_inside_it(text: str) -> None:
    end = 0
    for finding in find(f"{text}password: Hunter!2345"):
        assert end <= finding.start < finding.end <= len(text) + 21
        end = finding.end


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("User: mira\nPassword:\n  Tr0ub4dor&3\nURL: intranet", "Tr0ub4dor&3"),
        ("**Password:**\n`kelp-Reed77!`", "kelp-Reed77!"),
        ("Wifi password:\r\n\r\n- blue-Kelp_99\r\n", "blue-Kelp_99"),
        ("Passwort der Garage:\nkelp2024!", "kelp2024!"),
    ],
)
def test_find_reads_a_password_on_the_next_line(text: str, value: str) -> None:
    assert [text[found.start : found.end] for found in find(text)] == [value]


@pytest.mark.parametrize(
    "text",
    [
        "password:\n  secretKeyRef:\n    name: x1",
        "password:\n- min_length_8\n- max-length-64",
        "Password:\nsee the vault, page 3",
        "Password:\nhttps://vault.example/x1",
        "Password:\n\n\nmira2024x",
    ],
)
def test_next_line_is_not_always_a_password(text: str) -> None:
    assert find(text) == []


@pytest.mark.parametrize(
    ("kind", "template"),
    [
        ("password", "password: ‹lower:4›1234567"),
        ("password", "db password is Abcdefg1!"),
        ("secret", "api key: ‹alnum:10›abcdefg‹alnum:20›7"),
        ("github-token", "ghp_‹alnum:8›1234567‹alnum:21›"),
        ("groq-key", "gsk_abcdefghijkl‹alnum:40›"),
        ("wallet-key", "private key: 0x‹hex:30›00000000‹hex:26›"),
    ],
)
def test_find_reads_a_key_with_a_sequence_in_it(kind: str, template: str) -> None:
    # Each number of lines draws another value.
    assert [_kinds(secret_samples.fill(template + "\n" * lines)) for lines in range(10)] == [[kind]] * 10


@pytest.mark.parametrize(
    "text",
    [
        "password: 12345678",
        "password: abcdefgh",
        "token: sk_test_1234567890abcdef",
        "key: ghp_abcdefghijklmnopqrstuvwxyz1234567890",
        "AKIA1234567890ABCDEF",
        "api key: 00000000-0000-0000-0000-000000000000",
        "private key: 0x" + "0123456789abcdef" * 4,
    ],
)
def test_a_sequence_alone_is_a_placeholder(text: str) -> None:
    assert find(text) == []


@pytest.mark.parametrize("text", ["PIN the version to 8841", "Pin the image to 2024", "Pin our runner at 2204"])
def test_to_pin_a_version_is_no_pin(text: str) -> None:
    assert find(text) == []
    assert _kinds("The PIN the bank gave me is 8841") == ["pin"]
