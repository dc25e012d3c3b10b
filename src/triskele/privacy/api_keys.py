"""Find API keys by their provider's form or a word before them.

Every repetition is bounded and possessive, so that no text makes a rule look at a place more than a few hundred times.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter

from triskele.privacy.findings import Finding, is_placeholder, looks_random, matches_near

_AN = "[A-Za-z0-9]"
_HEX = "[0-9a-f]"
_URL = r"[\w\-]"
_B64 = "[A-Za-z0-9+/]"


@dataclass(frozen=True, slots=True)
class Provider:
    """A form of key, tried on texts that hold its mark."""

    kind: str
    label: str
    marks: tuple[str, ...]
    form: re.Pattern[str]


def _rule(label: str, marks: str, form: str, *, kind: str = "", before: str = r"(?<![A-Za-z0-9])") -> Provider:
    kind = kind or label.lower().replace(" ", "-")
    return Provider(kind, label, tuple(marks.split()), re.compile(f"{before}(?:{form})", re.ASCII))


def _exact(prefix: str, alphabet: str, length: int) -> str:
    """A body of exactly this length; a longer run does not match."""
    return f"{prefix}{alphabet}{{{length}}}(?!{alphabet})"


PROVIDERS: tuple[Provider, ...] = (
    _rule("Anthropic key", "sk-ant-", rf"sk-ant-[a-z]{{2,8}}\d\d-{_URL}{{40,200}}+"),
    _rule("OpenRouter key", "sk-or-", _exact(r"sk-or-v1-", _HEX, 64)),
    _rule(
        "OpenAI key",
        "sk-",
        rf"sk-(?:proj|svcacct|admin|None)-{_URL}{{40,220}}+|sk-{_AN}{{20}}T3BlbkFJ{_AN}{{20}}|{_exact('sk-', _AN, 48)}",
    ),
    _rule("DeepSeek key", "sk-", _exact("sk-", _HEX, 32)),
    _rule(
        "GitHub token",
        "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
        rf"{_exact('gh[pousr]_', _AN, 36)}|{_exact(f'github_pat_{_AN}{{22}}_', _AN, 59)}",
    ),
    _rule(
        "GitLab token",
        "glpat- gldt- glrt- glptt- glsoat- glcbt- glimt- glft- glagent- gloas-",
        rf"glptt-{_HEX}{{40}}|gloas-{_HEX}{{64}}"
        rf"|gl(?:pat|dt|rt|soat|cbt|imt|ft|agent)-(?=[\w\-]{{0,60}}\d){_URL}{{20,64}}+(?:\.[0-9a-z]{{2}}\.[0-9a-z]{{9}})?",
    ),
    _rule("AWS key id", "AKIA ASIA ABIA ACCA", _exact("A(?:KI|SI|BI|CC)A", "[A-Z2-7]", 16)),
    _rule("Google API key", "AIza", _exact("AIza", _URL, 35), kind="google-key"),
    _rule(
        "Google OAuth token",
        "GOCSPX- ya29. 1//0",
        rf"GOCSPX-{_URL}{{28}}|ya29\.{_URL}{{30,400}}+|1//0{_URL}{{40,200}}+",
        kind="google-oauth",
    ),
    _rule(
        "Slack token",
        "xox xapp-",
        rf"xox[abeoprs]-(?=[\w\-]{{0,60}}\d{{6}})[A-Za-z0-9\-]{{20,250}}+|xapp-\d-[A-Z0-9]{{8,14}}-\d{{10,16}}-{_HEX}{{64}}",
    ),
    _rule(
        "Slack webhook",
        "hooks.slack.com/",
        rf"(?i:https://hooks\.slack\.com)/(?:services|workflows)/[A-Z0-9]{{8,14}}/[A-Z0-9]{{8,14}}/{_AN}{{16,40}}+",
    ),
    _rule(
        "Stripe key",
        "sk_live_ rk_live_ sk_test_ rk_test_ whsec_",
        rf"[sr]k_(?:live|test)_{_AN}{{20,250}}+|whsec_{_B64}{{32,64}}+",
    ),
    _rule("Twilio key", "SK", _exact("SK", _HEX, 32)),
    _rule("SendGrid key", "SG.", rf"SG\.{_URL}{{22}}\.{_exact('', _URL, 43)}"),
    _rule(
        "Mailgun key",
        "key- -",
        rf"{_exact('key-', _HEX, 32)}|{_exact(f'{_HEX}{{32}}-{_HEX}{{8}}-', _HEX, 8)}(?!-)",
        before=r"(?<![A-Za-z0-9\-])",
    ),
    _rule("Mailchimp key", "-us", rf"{_HEX}{{32}}-us\d{{1,2}}(?!\w)"),
    _rule("npm token", "npm_", _exact("npm_", _AN, 36)),
    _rule("PyPI token", "pypi-", rf"pypi-Ag(?:EIcHlwaS5vcmc|ENdGVzdC5weXBpLm9yZw){_URL}{{50,400}}+"),
    _rule("Hugging Face token", "hf_ api_org_", _exact("(?:hf|api_org)_", "[A-Za-z]", 34), kind="huggingface-token"),
    _rule("DigitalOcean token", "_v1_", _exact("do[opr]_v1_", _HEX, 64)),
    _rule(
        "Doppler token", "dp.", rf"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_\-]{{2,35}}\.)?{_AN}{{40,44}}(?!{_AN})"
    ),
    _rule("Linear key", "lin_", rf"{_exact('lin_api_', _AN, 40)}|{_exact('lin_oauth_', _HEX, 64)}"),
    _rule("Notion token", "secret_ ntn_", rf"{_exact('secret_', _AN, 43)}|ntn_{_AN}{{40,50}}(?!{_AN})"),
    _rule("Figma token", "fig", _exact("fig[dou]_", _URL, 40)),
    _rule("Shopify token", "shp", _exact("shp(?:at|ca|pa|ss)_", "[0-9a-fA-F]", 32)),
    _rule(
        "Square token",
        "sq0 EAAA",
        rf"{_exact('sq0atp-', _URL, 22)}|{_exact('sq0csp-', _URL, 43)}|{_exact('EAAA', _URL, 60)}",
    ),
    _rule(
        "Telegram bot token",
        ":",
        rf"(?:bot)?\d{{8,10}}:(?=[\w\-]{{0,34}}[a-z])(?=[\w\-]{{0,34}}[A-Z])(?=[\w\-]{{0,34}}\d){_exact('', _URL, 35)}",
        kind="telegram-token",
    ),
    _rule(
        "Discord webhook",
        "/api/webhooks/",
        rf"(?i:https://(?:\w{{1,10}}\.)?discord(?:app)?\.com)/api/webhooks/\d{{17,20}}/{_URL}{{60,80}}+",
    ),
    _rule("Discord token", ".", rf"[MNO]{_URL}{{22,27}}\.{_URL}{{6}}\.{_URL}{{27,45}}+"),
    _rule("Databricks token", "dapi", rf"{_exact('dapi', _HEX, 32)}(?:-\d)?"),
    _rule("Vault token", "hvs. hvb. hvr.", rf"hv[sbr]\.{_URL}{{24,300}}+"),
    _rule("Grafana token", "glsa_ glc_", rf"glsa_{_AN}{{32}}_{_HEX}{{8}}|glc_{_B64}{{32,400}}+={{0,3}}+"),
    _rule(
        "New Relic key",
        "NRAK- NRII- NRAL",
        rf"{_exact('NRAK-', '[A-Z0-9]', 27)}|{_exact('NRII-', _URL, 32)}|{_HEX}{{36}}NRAL(?!\w)",
        kind="newrelic-key",
    ),
    _rule("Sentry token", "sntry", rf"{_exact('sntryu_', _HEX, 64)}|sntrys_eyJ{_B64}{{20,400}}+={{0,2}}+_{_B64}{{43}}"),
    _rule("Postman key", "PMAK-", rf"PMAK-{_HEX}{{24}}-{_exact('', _HEX, 34)}"),
    _rule("Supabase key", "sbp_ sb_secret_", rf"{_exact('sbp_', _HEX, 40)}|{_exact('sb_secret_', _URL, 31)}"),
    _rule("Cloudflare key", "v1.0-", rf"v1\.0-{_HEX}{{24}}-{_exact('', _HEX, 146)}"),
    _rule(
        "Vercel token", "vercel_blob_rw_ vck_ vcp_", rf"vercel_blob_rw_{_AN}{{16}}_{_AN}{{30}}|vc[kp]_{_AN}{{24,64}}+"
    ),
    _rule("Fly token", "fo1_ fm1 fm2_", rf"{_exact('fo1_', _URL, 43)}|(?:FlyV1 )?fm[12][ar]?_{_B64}{{80,800}}+"),
    _rule("Replicate token", "r8_", _exact("r8_", _AN, 37)),
    _rule("Groq key", "gsk_", _exact("gsk_", _AN, 52)),
    _rule("xAI key", "xai-", _exact("xai-", _AN, 80)),
    _rule("Voyage key", "pa-", _exact("pa-", _URL, 43), before=r"(?<![\w\-])"),
    _rule("Perplexity key", "pplx-", _exact("pplx-", _AN, 48)),
    _rule("Atlassian token", "ATATT3", rf"ATATT3{_URL}{{100,300}}+(?:=[0-9A-F]{{8}})?"),
    _rule("Dropbox token", "sl.", rf"sl\.(?:u\.)?{_URL}{{120,400}}+"),
    _rule("Airtable token", "pat", rf"pat{_AN}{{14}}\.{_exact('', _HEX, 64)}"),
    _rule(
        "Azure key",
        "accountkey= sharedaccesskey= Q~ azurewebsites.net/",
        rf"(?i:AccountKey)={_B64}{{86}}==|(?i:SharedAccessKey)={_B64}{{43}}=|[\w.~\-]{{3}}[78]Q~[\w.~\-]{{31,34}}+"
        rf"|(?i:azurewebsites\.net)/[\w\-/]{{1,80}}+\?code=[\w\-/%+]{{40,80}}+={{0,2}}+",
    ),
    _rule("Heroku key", "HRKU-", rf"HRKU-{_URL}{{30,64}}+"),
    _rule("PlanetScale token", "pscale_", r"pscale_(?:tkn|pw|oauth)_[\w=.\-]{32,64}+"),
    _rule("Pulumi token", "pul-", _exact("pul-", _HEX, 40)),
    _rule("RubyGems key", "rubygems_", _exact("rubygems_", _HEX, 48)),
    _rule("Terraform token", ".atlasv1.", rf"{_AN}{{14}}\.atlasv1\.[\w=\-]{{60,70}}+"),
    _rule("Docker token", "dckr_", rf"dckr_(?:pat|oat)_{_URL}{{27,36}}+"),
    _rule("age key", "AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[02-9AC-HJ-NP-Z]{58}"),
    _rule("1Password token", "ops_eyJ", rf"ops_eyJ{_B64}{{100,1500}}+={{0,2}}+", kind="onepassword-token"),
    _rule("Tailscale key", "tskey-", rf"tskey-[a-z]{{3,12}}-{_AN}{{8,24}}-{_AN}{{20,48}}+"),
    _rule("LangSmith key", "lsv2_", rf"lsv2_(?:pt|sk)_{_HEX}{{32}}_{_HEX}{{10}}"),
    _rule("Pinecone key", "pcsk_", rf"pcsk_{_AN}{{4,8}}_{_AN}{{40,80}}+"),
    _rule("Tavily key", "tvly-", rf"tvly-(?:dev-|prod-)?{_AN}{{32}}(?!{_AN})"),
    _rule("Netlify token", "nfp_", _exact("nfp_", _AN, 36)),
    _rule("Resend key", "re_", rf"re_{_AN}{{8}}_{_exact('', _AN, 24)}"),
    _rule("Buildkite token", "bkua_", _exact("bkua_", _HEX, 40)),
    _rule("Brevo key", "xkeysib- xsmtpsib-", rf"x(?:key|smtp)sib-{_HEX}{{64}}-{_AN}{{16}}"),
    _rule("Dynatrace token", "dt0", r"dt0[a-z]\d\d\.[A-Z2-7]{24}\.[A-Z2-7]{64}"),
    _rule("Alibaba key", "LTAI", rf"LTAI{_AN}{{16,20}}(?!{_AN})"),
    _rule("crates.io token", "cio", _exact("cio", _AN, 32), kind="cargo-token"),
    _rule("Prefect key", "pnu_ pnb_", _exact("pn[ub]_", "[a-z0-9]", 36)),
    _rule("JFrog token", "AKCp cmVmdGtu", rf"{_exact('AKCp', _AN, 69)}|{_exact('cmVmdGtu', _AN, 56)}"),
    _rule("Asana token", "/", rf"[12]/\d{{12,18}}(?:/\d{{12,18}})?:{_exact('', _HEX, 32)}", before=r"(?<![\w/])"),
    _rule("Bitcoin key", "5 K L", rf"[5KL][1-9A-HJ-NP-Za-km-z]{{50,51}}(?!{_AN})"),
)

_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_CHECKED = ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "npm_")
_CHECK_DIGITS = 6
_QUOTE_MARKS = "\"'`“”„‘’«»"
_STRONG_HINT = (
    r"(?:api|access|auth|secret|signing|encryption|service|licen[cs]e|bearer|session|refresh|client|webhook|shared"
    r"|consumer|master|app|bot|deploy|personal|totp|2fa|otp)[\s_\-]?(?:access[\s_\-]?)?(?:keys?|tokens?|secrets?|schlüssel)|apikey"
    r"|(?:authorization[\"']?\s?[:=]\s?[\"']?)?(?:bearer|token)(?=\s[^\s]{16})|zugriffstoken|zugangstoken"
)
_WEAK_HINT = r"(?:secret|token|credentials?|(?<![a-z])key|schlüssel|geheimnis|auth)(?![a-z])"
_KEY = re.compile(rf"(?i)(?P<strong>{_STRONG_HINT})|(?P<weak>{_WEAK_HINT})")
_KEY_LINK = re.compile(
    rf"[{_QUOTE_MARKS}]?(?:(?P<bridge>[\w \-'’/&()]{{0,50}}?)\s{{0,3}}+(?P<set>:=|={{1,2}}|:|→|->)\s{{0,3}}+"
    r"|(?P<words>[\w \-'’/&()]{0,50}?)\s(?P<is>(?i:is|was|ist|war|lautet))\s(?i:now\s|jetzt\s)?"
    rf"|(?P<space>\s))[{_QUOTE_MARKS}]?(?P<value>[A-Za-z0-9_\-+/=.~]{{16,300}}+)"
)
_OTHER_KEYS = re.compile(
    r"(?i)public|publishable|cache|primary|foreign|partition|sort(?:ing)? key|idempotency|dedup|object|\bs3\b|\brow"
    r"|hash|sha\d|md5|checksum|digest|etag|fingerprint|commit|(?<![a-z])ids?\b|path|file|name\b|known|translation"
    r"|kms|gpg|arn:|count|limit|\bsite|request|trace|uuid|revision|integrity|base64,|vectors|pinned|tree|submodule"
    r"|\bpage\b|pagina|continuation|cursor"
)
# Addresses, extended public keys and hashes; a transaction hash looks like a key, so a weak hint is not enough for it.
_NO_KEY = re.compile(r"0x[0-9a-fA-F]{40}|[xyztuvYZUV]pub[1-9A-HJ-NP-Za-km-z]{100,110}|(?i:sha(?:1|256|384|512)-.*+)")
_LIKE_TRANSACTION = re.compile(r"0x[0-9a-fA-F]{64}")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_REACH = 30
# What looks random is as long as this, and without a digit twice as long.
_LONG_VALUE = re.compile(r"(?<![A-Za-z0-9_\-+/=.~])[A-Za-z0-9_\-+/=.~]{20,}+")
_LONG_WITHOUT_DIGIT = 40
_DIGIT = re.compile(r"\d")
# What is made of so few characters is a placeholder.
_FEW = 2
# A hint has up to 40 characters, and up to 70 are between it and its value.
_HINT_REACH, _HINT_AFTER = 160, 60
# No form of a key is shorter, and none has other characters but the space after FlyV1.
_KEY_RUN = re.compile(r"(?<![\w\-+/=.~%:?])[\w\-+/=.~%:?]{20,}+", re.ASCII)
_FLY = "FlyV1 "
_BASIC = re.compile(r"(?i)(?:\bbasic\s+|\b_?auth[\"']?\s?[:=]\s?[\"']?)(?P<value>[A-Za-z0-9+/]{8,300}+={0,2}+)")


def find_provider_keys(text: str, providers: Iterable[Provider] = PROVIDERS) -> Iterator[Finding]:
    """Keys and tokens that match the form of their provider."""
    runs, moves = _key_runs(text)
    low = runs.lower()
    for provider in providers:
        if any(mark in runs or mark in low for mark in provider.marks):
            for match in provider.form.finditer(runs):
                check = _CHECKS.get(provider.kind)
                if not is_placeholder(match[0]) and (check is None or check(match[0])):
                    at = match.start() + moves[bisect_right(moves, match.start(), key=itemgetter(0)) - 1][1]
                    yield Finding(provider.kind, at, at + len(match[0]), _why(provider, match[0]))


def _key_runs(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Runs of a text long enough for a key, with offsets."""
    runs: list[str] = []
    moves: list[tuple[int, int]] = []
    at = 0
    for run in _KEY_RUN.finditer(text):
        start = run.start() - (len(_FLY) if text.endswith(_FLY, 0, run.start()) else 0)
        runs.append(text[start : run.end()])
        moves.append((at, start - at))
        at += run.end() - start + 1
    return "\n".join(runs), moves


def _why(provider: Provider, value: str) -> str:
    """Name the checksum if it is valid; an invalid one proves nothing."""
    article = "an" if provider.label[0] in "AEIOaeio" else "a"
    return f"the form of {article} {provider.label}{', and its checksum holds' if _checksum_holds(value) else ''}"


def _checksum_holds(value: str) -> bool:
    """Whether the last six characters are the CRC-32 of the rest."""
    if not value.startswith(_CHECKED):
        return False
    body = value.partition("_")[2]
    return zlib.crc32(body[:-_CHECK_DIGITS].encode()) == _number(body[-_CHECK_DIGITS:], _BASE62)


def _number(digits: str, alphabet: str) -> int:
    number = 0
    for digit in digits:
        number = number * len(alphabet) + alphabet.index(digit)
    return number


def _names_an_account(value: str) -> bool:
    """Whether the first part of a Discord token is a base64 number."""
    head = value.partition(".")[0]
    try:
        return base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)).isdigit()
    except binascii.Error:
        return False


def _is_wallet_key(value: str) -> bool:
    """The last four bytes are the double SHA-256 of the others."""
    raw = _number(value, _BASE58).to_bytes(40).lstrip(b"\0")
    return hashlib.sha256(hashlib.sha256(raw[:-4]).digest()).digest()[:4] == raw[-4:]


_CHECKS: dict[str, Callable[[str], bool]] = {"discord-token": _names_an_account, "bitcoin-key": _is_wallet_key}


def find_keys(text: str) -> Iterator[Finding]:
    """Find random-looking values after a word such as "api key"."""
    for hint in matches_near(_KEY, text, _long_values(text), before=_HINT_REACH, after=_HINT_AFTER):
        link = _KEY_LINK.match(text, hint.end(), hint.end() + 400)
        if link and _is_key(text, hint, link):
            yield Finding("secret", *link.span("value"), f"looks random and stands after “{hint[0].strip().lower()}”")
    low = text.lower()
    for match in _BASIC.finditer(text) if "basic" in low or "auth" in low else ():
        if _is_pair(match["value"]):
            yield Finding("secret", *match.span("value"), "a name and password in Basic form")


def _long_values(text: str) -> Iterator[tuple[int, int]]:
    """The places that a random value may lie in."""
    for run in _LONG_VALUE.finditer(text):
        is_long = len(run[0]) >= _LONG_WITHOUT_DIGIT or _DIGIT.search(run[0]) is not None
        if is_long and len(set(run[0])) > _FEW:
            yield run.span()


def _is_key(text: str, hint: re.Match[str], link: re.Match[str]) -> bool:
    value = link["value"].rstrip(".")
    line = text.rfind("\n", 0, hint.start()) + 1
    if _OTHER_KEYS.search(text, max(line, hint.start() - _REACH), link.start("value")):
        return False
    weak = hint["strong"] is None
    if _NO_KEY.fullmatch(value) or (weak and (link["space"] or _UUID.fullmatch(value))):
        return False
    if _LIKE_TRANSACTION.fullmatch(value) and (weak or link["space"]):
        return False
    return looks_random(value) and "/" not in value[:1] and not _is_path(value)


def _is_path(value: str) -> bool:
    """Pieces between dots, slashes and dashes that are mostly words."""
    pieces = [piece for piece in re.split(r"[./_\-]", value) if piece]
    wordy = sum(len(piece) for piece in pieces if re.fullmatch(r"[A-Za-z]?[a-z]{2,}|[A-Z]{2,}|\d{1,4}", piece))
    return wordy * 2 > len(value)


def _is_pair(value: str) -> bool:
    try:
        user, mark, word = base64.b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return False
    return bool(user and mark) and len(word) >= 3 and word.isprintable()
