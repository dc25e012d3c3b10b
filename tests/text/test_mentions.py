from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triskele.text.mentions import MAX_MENTIONS, MAX_NAME_CHARACTERS, Kind, mentions


def named(text: str, kind: Kind | None = None) -> set[str]:
    return {mention.text for mention in mentions(text) if kind in (None, mention.kind)}


def subjects(text: str) -> list[str]:
    return [mention.text for mention in mentions(text) if mention.is_subject]


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ("Sylvie Germain\nSylvie Germain is a French author.", "Sylvie Germain"),
        ("# Argo CD\nWe deploy with it.", "Argo CD"),
        ("**Backups**\nThey run at night.", "Backups"),
        ("deploy window: Tuesday, 10 to 12", "deploy window"),
        ("- owner: Priya", "owner"),
        ("berthd is Tomasz Wrobel's.", "berthd"),
        ("heron-01 runs Postgres.", "heron-01"),
        ("The Foghorn queue belongs to nobody.", "Foghorn queue"),
        ("Priya Raghunathan maintains ledgerline.", "Priya Raghunathan"),
        ("Alfred Hitchcock Alfred Hitchcock made films.", "Alfred Hitchcock"),
        ("Иван Петров живёт в Туле.", "Иван Петров"),
        ("会议记录\n我们讨论了预算。", "会议记录"),
    ],
)
def test_the_subject_of_a_memory(text: str, subject: str) -> None:
    assert subjects(text)[0] == subject


@pytest.mark.parametrize(
    "text",
    [
        "It is raining.",
        "There was a meeting.",
        "The film is long.",
        "We moved to the new office.",
        "This means: nothing.",
        "This is a whole sentence that ends here.\nAnd another one.",
        "",
    ],
)
def test_no_subject_where_none_is_named(text: str) -> None:
    assert subjects(text) == []


def test_title_is_mentioned_with_and_without_its_parenthesis() -> None:
    assert subjects("Mercury (planet)\nIt is small.") == ["Mercury (planet)", "Mercury"]


def test_lead_that_may_be_a_common_noun_is_a_weak_subject() -> None:
    kinds = {m.text: m.kind for text in ("Obesity is a risk.", "berthd is slow.") for m in mentions(text)}
    assert kinds == {"Obesity": Kind.LEAD, "berthd": Kind.TITLE}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("we met Joost van Drunen there", {"Joost van Drunen"}),
        ("he saw Beauty and the Beast", {"Beauty and the Beast"}),
        ("then Alice and Bob came", {"Alice", "Bob"}),
        ("he left the Bank of England", {"Bank of England"}),
        ("by Joost van Drunen of the Bank of England", {"Joost van Drunen", "Bank of England"}),
        ("by Dr. J. R. Smith", {"Dr. J. R. Smith"}),
        ("he read George G. Stone", {"George G. Stone"}),
        ("on Henry IV's wish", {"Henry IV's"}),
        ("he asked Ronald McDonald", {"Ronald McDonald"}),
        ("in der Straße von Ömer Çelik", {"Straße von Ömer Çelik", "Ömer Çelik"}),
        ("the release of Windows 11", {"Windows 11", "Windows"}),
    ],
)
def test_mentions_contain_whole_names(text: str, names: set[str]) -> None:
    assert names <= named(text, Kind.NAME)


def test_a_first_word_is_a_name_where_the_text_says_so() -> None:
    mentioned = mentions("Restarted the server. Berlin was quiet, so we left Berlin.")
    assert [mention.text for mention in mentioned] == ["Berlin", "Berlin"]


@pytest.mark.parametrize(
    ("text", "not_named"),
    [
        ("Restarted the server.", "Restarted"),
        ("I think so. The rest waits.", "The"),
        ("we meet on Monday in March", "Monday"),
        ("Yesterday Priya left", "Yesterday Priya"),
        ("then Alice and Bob came", "Alice and Bob"),
    ],
)
def test_mentions_leave_out_other_capitalised_words(text: str, not_named: str) -> None:
    assert not_named not in named(text)


@pytest.mark.parametrize(
    ("text", "kind", "found"),
    [
        ('she sang "Peter Pan" twice', Kind.QUOTE, "Peter Pan"),
        ("we read «Война и мир»", Kind.QUOTE, "Война и мир"),
        ("他看了《红楼梦》", Kind.QUOTE, "红楼梦"),
        ("call `parse_config()` first", Kind.CODE, "parse_config()"),
        ("set max_slot_wal_keep_size now", Kind.CODE, "max_slot_wal_keep_size"),
        ("set DECODER_WORKERS=4", Kind.CODE, "DECODER_WORKERS"),
        ("call getUserById soon", Kind.CODE, "getUserById"),
        ("see Foghorn.Gate.close for it", Kind.CODE, "Foghorn.Gate.close"),
        ("the host heron-01 is down", Kind.CODE, "heron-01"),
        ("edit src/app/main.py and go", Kind.PATH, "src/app/main.py"),
        ("look in /etc/nginx/conf.d please", Kind.PATH, "/etc/nginx/conf.d"),
        ("open https://docs.example.com/x?y=1 now", Kind.HOST, "docs.example.com"),
        ("since v2.4.1 it works", Kind.VERSION, "v2.4.1"),
        ("fixed in #1423 at last", Kind.ISSUE, "#1423"),
        ("blocked by MB-1650", Kind.ISSUE, "MB-1650"),
        ("ask @tomasz about it", Kind.PERSON, "tomasz"),
        ("due on 3 May 2024", Kind.DATE, "3 May 2024"),
        ("due on 2024-05-03", Kind.DATE, "2024-05-03"),
        ("due on May 3, 2024", Kind.DATE, "May 3, 2024"),
    ],
)
def test_mentions_contain_identifiers_and_dates(text: str, kind: Kind, found: str) -> None:
    assert found in named(text, kind)


def test_labels_are_mentions_without_a_place() -> None:
    mentioned = mentions("nothing here", ["argo-cd", "deploy"], "rollout, blue green")
    assert [(m.text, m.kind, m.start) for m in mentioned] == [
        ("argo-cd", Kind.TAG, -1),
        ("deploy", Kind.TAG, -1),
        ("rollout", Kind.KEYWORD, -1),
        ("blue green", Kind.KEYWORD, -1),
    ]


def test_an_endless_label_names_nothing() -> None:
    assert mentions("", ["x" * (MAX_NAME_CHARACTERS + 1), "fine"])[0].text == "fine"


def test_keywords_without_commas_are_words() -> None:
    assert [m.text for m in mentions("", (), "rollout canary")] == ["rollout", "canary"]


@given(st.text(max_size=300))
def test_every_mention_stands_where_it_says(text: str) -> None:
    mentioned = mentions(text)
    assert all(text[m.start : m.end] == m.text for m in mentioned)
    assert all(0 < len(m.text) <= MAX_NAME_CHARACTERS for m in mentioned)
    assert mentioned == mentions(text)


# Patterns that go back and forth would take minutes for these; the time limit of the tests ends them.
PIECES = """a A a. a_ " "a~ 'a~ ` /a a/ a- 1. Ab~of~ Ab~and~the~ https:// @a # 北 「 A.~ (AB)~ aA 1~January~ ABC- a::"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece", [*(piece.replace("~", " ") for piece in PIECES.split()), "\n", "e\u0301", "\u200d", "a1" * 50 + "."]
)
def test_a_hundred_thousand_characters_take_one_pass(piece: str) -> None:
    text = piece * (100_000 // len(piece))
    assert len(mentions(text)) <= MAX_MENTIONS


def test_ordinary_punctuation_names_nothing() -> None:
    assert named(string.punctuation + " … — ¿¡") == set()
