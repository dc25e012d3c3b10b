"""Texts and tables of commands, fitted to a width."""

from __future__ import annotations

import pytest

from triskele.edge.cli.view import (
    ID,
    MATCH,
    QUIET,
    Framed,
    Indented,
    Renderable,
    Styled,
    Table,
    bars,
    note,
    numbered_rows,
    pairs,
    rendered,
    screen_width,
    stacked,
)

LONG = "The deployment of the 短信验证 service goes through https://example.com/aaaaaaaaaaaaaaaaa"


def plain(part: Renderable, width: int = 30) -> list[str]:
    return rendered([part], width, colored=False).split("\n")


def test_text_is_wrapped_at_words_and_long_words_are_broken() -> None:
    lines = ["The deployment of the 短信验证", "service goes through", "https://example.com/aaaaaaaaaa", "aaaaaaa"]
    assert plain(note(LONG)) == lines
    assert plain(note("a\n\nb \tc")) == ["a", "", "b       c"]


def test_wide_characters_take_two_columns() -> None:
    assert plain(note("短信验证短信验证"), 5) == ["短信", "验证", "短信", "验证"]
    assert plain(Table((), [[note("短信验证")]]), 6) == ["短信 …"]


def test_numbered_rows_wrap_their_text_beside_the_number() -> None:
    one = (Styled("1", is_right=True), note("1kpn46"), stacked(note(LONG), note("said by Ada")))
    ten = (Styled("10", is_right=True), note("1kq2"), note("short"))
    first, *rest, last = plain(numbered_rows([one, ten]), 40)
    assert first == " 1 1kpn46 The deployment of the 短信验证"
    assert {line[:10] for line in rest} == {" " * 10} and rest[-1].strip() == "said by Ada"
    assert last == "10 1kq2   short"


def test_the_last_column_of_a_table_takes_the_rest_and_is_cut() -> None:
    rows = Table(("id", "memory"), [(note("1kpn46", ID), note(LONG))], last_takes_rest=True)
    assert plain(rows) == ["id      memory", "1kpn46  The deployment of the…"]
    assert plain(rows, 1000)[1] == f"1kpn46  {LONG}"


def test_a_column_is_as_wide_as_its_text_with_tabs() -> None:
    rows = Table(("id", "text"), [(note("x"), note("red\tblue"))])
    assert plain(rows, 80)[1] == "x   red     blue"


def test_columns_that_wrap_give_way_from_the_widest_on() -> None:
    details = pairs([("tags", note("red")), ("keywords", note("kettle tea water stove"))])
    assert plain(details, 24) == ["tags      red", "keywords  kettle tea", "          water stove"]


def test_a_frame_has_its_title_in_the_border() -> None:
    framed = ["╭─ 1kpn46 ─────────────╮", "│ We deploy            │", "╰──────────────────────╯"]
    assert plain(Framed(note("We deploy"), note("1kpn46", ID)), 24) == framed
    assert plain(Indented(note("We deploy"), 2)) == ["  We deploy"]


def test_styles_are_written_for_terminals_alone() -> None:
    line = note("1kpn46", ID) + note(" We deploy")
    line.spans.append((10, 16, MATCH))
    assert rendered([line], 80, colored=True) == "\x1b[36m1kpn46\x1b[0m We \x1b[1mdeploy\x1b[0m"
    assert rendered([line], 9, colored=True) == "\x1b[36m1kpn46\x1b[0m We\n\x1b[1mdeploy\x1b[0m"
    assert rendered([line], 80, colored=False) == "1kpn46 We deploy"
    assert rendered([note("", QUIET)], 80, colored=True) == ""


def test_bars_are_as_long_as_their_numbers() -> None:
    assert plain(bars({"facts": 24, "": 12}), 60) == [f"facts       24  {'▪' * 24}", f"everywhere  12  {'▪' * 12}"]


def test_screen_width_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "123")
    assert screen_width() == 123
