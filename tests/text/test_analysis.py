from __future__ import annotations

import pytest

from triskele.text.analysis import Analyzer, has_identifier, identifiers, shape, spellings

ENGLISH = Analyzer()


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("The deployments were failing", "deploy fails"),
        ("getUserById raises on None", "user"),
        ("getUserById raises on None", "getUserById"),
        ("set user_id before saving", "user_id"),
        ("set user_id before saving", "user"),
        ("see src/app/main.py for it", "main.py"),
        ("see src/app/main.py for it", "src/app/main.py"),
        ("ticket ACME-123 is open", "ACME-123"),
        ("HTTPServer restarts", "httpserver"),
        ("written in C++ and F#", "C++"),
        ("我们决定使用数据库迁移", "迁移"),
        ("我们决定使用数据库迁移", "数据库"),
        ("東京タワーで会う", "タワー"),
        ("Мы использовали новые сервисы", "сервис"),
        ("Die Donaudampfschifffahrtsgesellschaft zahlt", "donaudampfschifffahrtsgesellschaft"),
        ("Die Straße ist gesperrt", "STRASSE"),
        ("Café at noon", "cafe"),
        ("हिन्दी भाषा में लिखा", "हिन्दी"),
        ("Nate's dog barked", "nate"),
        ("O'Brien called", "O'Brien"),
    ],
)
def test_the_question_meets_the_text(text: str, asked: str) -> None:
    assert set(ENGLISH.query_terms(asked)) & set(ENGLISH.terms(text))


def test_question_words_are_not_looked_for() -> None:
    assert ENGLISH.query_terms("What is the name of the cat that you have?") == ["name", "cat"]


def test_a_question_of_nothing_but_stop_words_still_asks() -> None:
    assert ENGLISH.query_terms("to be or not to be") == ["to", "be", "or", "not"]


def test_query_terms_of_chinese_are_pairs() -> None:
    assert ENGLISH.query_terms("数据库") == ["数据", "据库"]
    assert ENGLISH.query_terms("库") == ["库"]


def test_spans_point_at_the_words() -> None:
    text = "Nate's Straße 数据库 user_id"
    for token in ENGLISH.tokens(text):
        assert 0 <= token.start < token.end <= len(text)
    spans = {token.text: text[token.start : token.end] for token in ENGLISH.tokens(text)}
    assert spans["nate"] == "Nate's"
    assert spans["数据"] == "数据"
    assert spans["user_id"] == "user_id"


@pytest.mark.parametrize(
    "text", ["", "   ", '"" AND OR NOT (*', "👍🏽👩‍👩‍👧", "\x00\x01", "'" * 5000, "a'" * 5000, "_" * 3000]
)
def test_odd_text_gives_terms_or_none_but_never_an_error(text: str) -> None:
    assert all(ENGLISH.terms(text))
    assert ENGLISH.query_terms(text) == ENGLISH.query_terms(text)


def test_other_languages_have_their_own_stems_and_none_is_possible() -> None:
    assert Analyzer("german").terms("Häuser") == Analyzer("german").terms("Häusern")
    assert Analyzer("none").terms("running") == ["running"]


def test_very_long_words_are_cut() -> None:
    assert max(len(term) for term in ENGLISH.terms("x" * 100_000)) == 100


def test_identifiers_are_words_with_digits_or_underscores() -> None:
    text = "On the 27th at 10am E18 and HRN-417, see new_checkout_v2 or and/or 2026-03-01 by well-known Ravi"
    assert [word.text for word in identifiers(text)] == ["e18", "hrn-417", "new_checkout_v2"]
    assert [text[word.start : word.end] for word in identifiers(text)] == ["E18", "HRN-417", "new_checkout_v2"]


def test_an_identifier_is_spelled_with_other_joints() -> None:
    assert spellings("hrn-417") == ["hrn_417", "hrn417"]
    assert {"hrn-417", "hrn_417", "h-rn417"} <= set(spellings("hrn417"))
    assert spellings("x" * 50) == []
    assert shape("hrn-417") == shape("hrn_99") != shape("bkr-99")


@pytest.mark.parametrize(
    ("text", "asked", "part"),
    [
        ("ERR_4312 means open", "ERR_9981", "ERR"),
        ("at https://x.example/d/Kq7HiX92/tills", "hi", "Hi"),
        ("see getUserById", "user", "User"),
        ("the well-known lake", "known", "known"),
        ("in l'eau", "eau", "eau"),
        ("in версия_новая", "новая", "новая"),
        ("ask Nate's dog", "nate", "Nate's"),
        ("see src/main.py", "src/main.py", "src/main.py"),
    ],
)
def test_first_places_are_those_of_the_matched_parts(text: str, asked: str, part: str) -> None:
    [places] = ENGLISH.first_places_of_each([text], frozenset(ENGLISH.query_terms(asked)))
    assert part in [text[token.start : token.end] for token in places]
    assert all(part in text[token.start : token.end] or len(places) > 1 for token in places)


@pytest.mark.parametrize(
    "text",
    [
        "https://x.example/d/Kq7HiX92/tills",
        "https://x.example/d?go=hi&next=2",
        "https://x.example/hi/2",
        "src/hi/2.py",
        "/hi",
        "~/hi",
        "hi/",
        "C:\\Users\\hi\\2",
        "\\\\share\\hi",
        "/users/{hi}/2",
        "app/[hi]/2",
        "hiThere",
        "sayHi",
        "say_hi",
        "say_hi_2",
        "r-2026-hi",
        "42-hi-7d2f",
        "KEY=hi",
        "x->hi",
        "std::hi",
        "hi.txt",
        "hi@x.example",
        "2.4.1",
        "v2.0",
        "10:2",
        "2026-2-1",
        "4,2",
    ],
)
def test_plain_terms_leave_out_parts_of_identifiers(text: str) -> None:
    assert ENGLISH.plain_terms(f"see ({text}), as ever").isdisjoint({"hi", "2"})
    assert ENGLISH.missing_words("hi 2", f"see {text}") == {"hi", "2"}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("Say hi, Bob", "HI!"),
        ("re-deploy on Friday", "deploy"),
        ("the “deploy”", "deploy"),
        ("*Deploys* fail", "deploy"),
        ("[deploy](https://x.example/a?b=c)", "deploy"),
        ("Nate's dog", "nate"),
        ("We use GitHub's runners", "github"),
        ("build7431", "build7431"),
        ("2 reviewers", "2"),
        ("我们用a=b数据库", "数据库"),
        ("Café at noon", "cafe"),
        ("ci/build7431/log", "build7431"),
        ("src/app/main.py", "main.py"),
    ],
)
def test_words_that_stand_alone_and_identifiers_are_not_missing(text: str, word: str) -> None:
    assert ENGLISH.missing_words(word, text) == frozenset()


@pytest.mark.parametrize("text", ["x92", "say_hi", "sayHi", "main.py", "C++", "MB-17", "see x/y now"])
def test_has_identifier_is_true_for_names_with_signs_and_digits(text: str) -> None:
    assert has_identifier(text)


@pytest.mark.parametrize("text", ["", "hi", "Deploy!", "well-known", "2", "10am", "Nate's", "deploy. Now", "数据库"])
def test_has_identifier_is_false_for_words_and_numbers(text: str) -> None:
    assert not has_identifier(text)
