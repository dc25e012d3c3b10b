"""Times in English text: a table of expressions, each with the days that it means.

Precision comes first: "may", "march", "second" and plain numbers are times only if the words around them say so.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from typing import NamedTuple

_FULL = "january february march april may june july august september october november december".split()
_SHORT = {name[:3]: number for number, name in enumerate(_FULL, start=1)} | {"sept": 9}
_MONTHS = {name: number for number, name in enumerate(_FULL, start=1)} | _SHORT
_DAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
_WEEKDAYS = {name: number for number, name in enumerate(_DAYS)} | {name[:3]: at for at, name in enumerate(_DAYS)}
_COUNTS = "one two three four five six seven eight nine ten eleven twelve".split()
_NUMBERS = {name: number for number, name in enumerate(_COUNTS, start=1)}
_NUMBERS |= {"a": 1, "an": 1, "couple": 2, "few": 4, "several": 5}
_ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4}
# In the northern half of the world; winter begins in December of its year.
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
# Month, first day and number of days; without a month, days after Easter Sunday.
_HOLIDAYS = {"christmas eve": (12, 24, 1), "christmas day": (12, 25, 1), "christmas": (12, 24, 3)}
_HOLIDAYS |= {"new year's eve": (12, 31, 1), "new year's day": (1, 1, 1), "halloween": (10, 31, 1)}
_HOLIDAYS |= {"good friday": (0, -2, 1), "easter": (0, 0, 2), "easter monday": (0, 1, 1), "whitsun": (0, 49, 2)}
_PARTS = {"early": 0, "beginning": 0, "start": 0, "mid": 1, "middle": 1, "late": 2, "end": 2}
_SHIFTS = {"last": -1, "previous": -1, "past": -1, "this": 0, "current": 0, "next": 1, "coming": 1}
_WEEK = timedelta(days=7)
_DAY = timedelta(days=1)
_FARTHEST = 200


class Span(NamedTuple):
    """Days from `start` until before `end`; a side that is None is open."""

    start: date | None
    end: date | None


@dataclass(frozen=True, slots=True)
class Today:
    """The day that words count from; `ahead` takes the coming May instead of the last one."""

    day: date
    ahead: bool = False

    def year_of(self, month: int, day: int = 1) -> int:
        """The year of a date without one: its last occurrence, or its next one."""
        year = self.day.year
        if self.ahead:
            return year + ((month, day) < (self.day.month, self.day.day if day > 1 else 1))
        return year - ((month, day) > (self.day.month, self.day.day))


@dataclass(frozen=True, slots=True)
class Point:
    """A time at a place in a text; one that is not sure counts only at an end of a range."""

    begin: int
    end: int
    span: Span
    has_year: bool = True
    is_sure: bool = True


Match = re.Match[str]
Resolved = Span | None


def month_span(year: int, month: int, count: int = 1) -> Span:
    """Whole months."""
    last = month - 1 + count
    return Span(date(year, month, 1), date(year + last // 12, last % 12 + 1, 1))


def year_span(year: int) -> Span:
    """A whole year."""
    return Span(date(year, 1, 1), date(year + 1, 1, 1))


def one_day(day: date) -> Span:
    """A whole day."""
    return Span(day, day + _DAY)


def _number(text: str) -> int:
    text = text.lower().removeprefix("a ").removesuffix(" of")
    return int(text) if text.isdigit() else _NUMBERS[text]


def _month(match: Match) -> int:
    return _MONTHS[match["month"].lower().rstrip(".")]


def _years_of(match: Match, today: Today, month: int, day: int = 1) -> int:
    if match["year"]:
        return int(match["year"])
    shift = match.groupdict().get("shift")
    return today.day.year + _SHIFTS[shift.lower()] if shift else today.year_of(month, day)


def _iso(match: Match, _: Today) -> Span:
    year, month, day = int(match["y"]), int(match["m"]), match["d"]
    return one_day(date(year, month, int(day))) if day else month_span(year, month)


def _iso_week(match: Match, _: Today) -> Span:
    start = date.fromisocalendar(int(match["y"]), int(match["w"]), 1)
    return Span(start, start + _WEEK)


def _quarter(match: Match, today: Today) -> Span:
    quarter = match["q"].lower()
    first = (_ORDINALS[quarter] if quarter in _ORDINALS else int(quarter)) * 3 - 2
    return month_span(_years_of(match, today, first), first, 3)


def _days(match: Match, today: Today) -> Resolved:
    month, first, last = _month(match), int(match["first"]), int(match["last"])
    year = _years_of(match, today, month, first)
    return Span(date(year, month, first), date(year, month, last) + _DAY) if first < last else None


def _date(match: Match, today: Today) -> Span:
    month, day = _month(match), int(match["day"])
    return one_day(date(_years_of(match, today, month, day), month, day))


def _part(match: Match, today: Today) -> Span:
    month = _month(match)
    year = _years_of(match, today, month)
    start = date(year, month, (1, 11, 21)[_PARTS[match["part"].lower()]])
    end = month_span(year, month).end if start.day == 21 else start + timedelta(days=10)
    return Span(start, end)


def _part_of_year(match: Match, _: Today) -> Span:
    return month_span(int(match["year"]), (1, 5, 9)[_PARTS[match["part"].lower()]], 4)


def _in_month(match: Match, today: Today) -> Resolved:
    """The second week, the last Friday, the first weekend of a month."""
    month, which, unit = _month(match), match["which"].lower(), match["unit"].lower()
    start, end = month_span(_years_of(match, today, month), month)
    assert start is not None and end is not None
    if unit == "week":
        begun = end - _WEEK if which == "last" else start + (_ORDINALS[which] - 1) * _WEEK
        return Span(begun, begun + _WEEK)
    weekday = 5 if unit == "weekend" else _WEEKDAYS[unit]
    first = start + timedelta(days=(weekday - start.weekday()) % 7)
    days = [first + place * _WEEK for place in range(5) if first + place * _WEEK < end]
    day = days[-1 if which == "last" else _ORDINALS[which] - 1]
    return Span(day, day + timedelta(days=2 if unit == "weekend" else 1))


def _week_of_year(match: Match, _: Today) -> Span:
    year, is_last = int(match["year"]), match["which"].lower() == "last"
    return Span(date(year, 12, 25), date(year + 1, 1, 1)) if is_last else Span(date(year, 1, 1), date(year, 1, 8))


def _whole_month(match: Match, today: Today) -> Span:
    month = _month(match)
    return month_span(_years_of(match, today, month), month)


def _shifted_month(match: Match, today: Today) -> Span:
    return _shifted_months(match["shift"], today, _month(match))


def _season(match: Match, today: Today) -> Span:
    first = _SEASONS[match["season"].lower()]
    if match["year"] or not match["shift"]:
        return month_span(_years_of(match, today, first), first, 3)
    return _shifted_months(match["shift"], today, first, 3)


def _shifted_months(shift: str, today: Today, first: int, count: int = 1) -> Span:
    """Last May is the one before now, this May the one of this year, next May the coming one."""
    moved, year = _SHIFTS[shift.lower()], today.day.year
    start, end = month_span(year, first, count)
    assert start is not None and end is not None
    return month_span(year - (moved < 0 and end > today.day) + (moved > 0 and start <= today.day), first, count)


def back(day: date, unit: str, count: int) -> date:
    """The day that many units earlier; the last day of the month if the month is shorter."""
    if unit in ("month", "year"):
        months = day.year * 12 + day.month - 1 - count * (12 if unit == "year" else 1)
        year, month = divmod(months, 12)
        return date(year, month + 1, min(day.day, monthrange(year, month + 1)[1]))
    return day - timedelta(days=count * {"week": 7, "day": 1}.get(unit, 0))


def _around(day: date, unit: str) -> Span:
    """The day, week, month, quarter or year that holds a day."""
    monday = day - day.weekday() * _DAY
    if unit in ("week", "weekend"):
        return Span(monday if unit == "week" else monday + 5 * _DAY, monday + _WEEK)
    count = {"month": 1, "quarter": 3, "year": 12}.get(unit)
    return month_span(day.year, (day.month - 1) // count * count + 1, count) if count else one_day(day)


def _ago(match: Match, today: Today) -> Resolved:
    count, unit = _number(match["count"]), match["unit"].lower()
    if count > _FARTHEST:
        return None
    if match["count"].lower().endswith("few"):
        return Span(back(today.day, unit, 5), back(today.day, unit, 2) + _DAY)
    return _around(back(today.day, unit, count), unit)


def _rolling(match: Match, today: Today) -> Resolved:
    """The last three weeks end today."""
    count = _number(match["count"] or "1")
    unit = match["unit"].lower()
    if unit == "hour":
        return Span(today.day - timedelta(days=-(-count // 24)), today.day + _DAY)
    return Span(back(today.day, unit, count), today.day + _DAY) if count <= _FARTHEST else None


def _shifted(match: Match, today: Today) -> Span:
    unit, shift = match["unit"].lower(), _SHIFTS[match["shift"].lower()]
    months = {"month": 1, "quarter": 3, "year": 12}.get(unit)
    moved = back(today.day, "month", -shift * months) if months else today.day + shift * _WEEK
    return _around(moved, unit)


def _weekend(_: Match, today: Today) -> Span:
    """The last weekend; on one, this one."""
    return _around(today.day - (today.day.weekday() < 5) * _WEEK, "weekend")


def _shifted_weekday(match: Match, today: Today) -> Span:
    shift, weekday = _SHIFTS[match["shift"].lower()], _WEEKDAYS[match["weekday"].lower()]
    back = (today.day.weekday() - weekday) % 7
    if shift == 0:
        return one_day(today.day - timedelta(days=today.day.weekday() - weekday))
    return one_day(today.day - timedelta(days=back or 7) if shift < 0 else today.day + timedelta(days=7 - back))


def _weekday(match: Match, today: Today) -> Span:
    back = (today.day.weekday() - _WEEKDAYS[match["weekday"].lower()]) % 7
    return one_day(today.day + timedelta(days=(7 - back) % 7) if today.ahead else today.day - timedelta(days=back))


def _easter(year: int) -> date:
    """Easter Sunday, by the rule of Oudin."""
    golden, century = year % 19, year // 100
    moon = (century - century // 4 - (8 * century + 13) // 25 + 19 * golden + 15) % 30
    moon -= moon // 28 * (1 - 29 // (moon + 1) * ((21 - golden) // 11))
    return date(year, 3, 28) + _DAY * (moon - (year + year // 4 + moon + 2 - century + century // 4) % 7)


def _holiday(match: Match, today: Today) -> Span:
    month, day, days = _HOLIDAYS[" ".join(match["holiday"].lower().replace("’", "'").split())]

    def first(year: int) -> date:
        return date(year, month, day) if month else _easter(year) + day * _DAY

    near = first(today.day.year)
    start = first(int(match["year"] or today.year_of(near.month, near.day)))
    return Span(start, start + days * _DAY)


_DAY_WORDS = {"the day before yesterday": -2, "yesterday": -1, "last night": -1, "today": 0, "tonight": 0}
_DAY_WORDS |= {"this morning": 0, "this afternoon": 0, "this evening": 0, "tomorrow": 1, "the day after tomorrow": 2}


def _day_word(match: Match, today: Today) -> Span:
    return one_day(today.day + timedelta(days=_DAY_WORDS[" ".join(match[0].lower().split())]))


def _decade(match: Match, _: Today) -> Span:
    return Span(date(int(match["year"]), 1, 1), date(int(match["year"]) + 10, 1, 1))


def _year(match: Match, _: Today) -> Span:
    return year_span(int(match["year"]))


def _any(words: object) -> str:
    return "|".join(sorted(map(str, words), key=len, reverse=True))  # type: ignore[call-overload]


_M = rf"(?P<month>(?:{_any(_FULL)})\b|(?:{_any(_SHORT)})\b\.?)"
_Y = r"(?P<year>(?:19|20)\d\d)(?![\w]|[.:/-]\d)"
_OPTIONAL_YEAR = rf"(?:(?:,\s*|\s+)(?:of\s+)?(?:{_Y}|(?P<shift>last|this|next)\s+year\b))?"
_D = r"(?:st|nd|rd|th)?"
_FIRST_TO_LAST = rf"(?P<first>\d\d?){_D}\s?(?:-|–|to|through|and)\s?(?P<last>\d\d?){_D}"
_H = rf"(?P<holiday>{_any(_HOLIDAYS)})".replace(" ", r"\s+").replace("'", "['’]")
_WD = rf"(?P<weekday>(?:{_any(_DAYS)})\b|(?:{_any(name[:3] for name in _DAYS)})\b)"
_N = rf"(?P<count>(?:a\s)?(?:couple(?:\sof)?|few)|\d{{1,3}}|{_any(_NUMBERS)})"
_OPEN = r"(?<![\w/:#@-])(?<![^.]\.)"
_SHIFTED = "(?P<shift>last|this|next|previous|past|coming|current)"
_CLOSED = r"(?![\w]|[.:/-]\d)"

_LASTING = r"(?:(?<=\bin\s)|(?<=\bfor\s)|(?<=\bover\s)|(?<=\bduring\s)|(?<=\bwithin\s))"

_IN = r"in|during|since|until|till|before|after|around|throughout|as\sof"

Rule = tuple[re.Pattern[str], Callable[[Match, Today], Resolved], str]
_Row = tuple[str, Callable[[Match, Today], Resolved], str]


def _rule(pattern: str, resolve: Callable[[Match, Today], Resolved], needs: str = "") -> _Row:
    return _OPEN + pattern, resolve, needs


@cache
def rules() -> tuple[Rule, ...]:
    """The expressions, compiled when a text first hints at a time: most commands never need them."""
    return tuple((re.compile(pattern, re.IGNORECASE), resolve, needs) for pattern, resolve, needs in _TABLE)


# What every time has: a digit, or a part of one of these words.
_HINTS = (*_FULL, *_SHORT, *_SEASONS, *"day week month year quarter morrow night morning evening".split())
_HINTS += tuple("christmas easter whitsun halloween".split())
# Anything that a time could be made of: a text without it names none.
TIME_HINT = re.compile(rf"\d|{'|'.join(_HINTS)}|afternoon", re.IGNORECASE)


# The more exact first: what one rule took, no later one sees.
_TABLE: tuple[_Row, ...] = (
    _rule(rf"(?P<y>(?:19|20)\d\d)-(?P<m>\d\d)(?:-(?P<d>\d\d)(?:T[\d:.]+Z?)?)?{_CLOSED}", _iso),
    _rule(rf"(?P<y>(?:19|20)\d\d)/(?P<m>\d\d)/(?P<d>\d\d){_CLOSED}", _iso),
    _rule(rf"(?P<d>\d\d?)\.(?P<m>\d\d?)\.(?P<y>(?:19|20)\d\d){_CLOSED}", _iso),
    _rule(rf"(?P<y>(?:19|20)\d\d)-?W(?P<w>\d\d){_CLOSED}", _iso_week),
    _rule(rf"(?P<year>(?:19|20)\d\d)[- ]?Q(?P<q>[1-4]){_CLOSED}", _quarter),
    _rule(rf"Q(?P<q>[1-4])(?:\s+(?:of\s+)?|/){_Y}", _quarter),
    _rule(rf"(?P<q>{_any(_ORDINALS)})\s+quarter\s+(?:of\s+)?{_Y}", _quarter),
    _rule(rf"(?:between\s+)?{_FIRST_TO_LAST}\s+(?:of\s+)?{_M}{_OPTIONAL_YEAR}", _days),
    _rule(rf"{_M}\s+(?:between\s+)?{_FIRST_TO_LAST}(?![\w]|[.:/]\d){_OPTIONAL_YEAR}", _days),
    _rule(rf"(?:the\s+)?(?P<day>\d\d?){_D}(?:\s+of)?\s+{_M}{_OPTIONAL_YEAR}", _date),
    _rule(rf"{_M}\s+(?:the\s+)?(?P<day>\d\d?){_D}{_CLOSED}{_OPTIONAL_YEAR}", _date),
    _rule(rf"(?:the\s+)?(?P<part>{_any(_PARTS)})(?:\s+of|\s+in|-)?\s*{_M}{_OPTIONAL_YEAR}", _part),
    _rule(rf"(?:the\s+)?(?P<part>{_any(_PARTS)})(?:\s+of|\s+in|-)?\s*{_Y}", _part_of_year),
    _rule(
        rf"(?:the\s+)?(?P<which>{_any(_ORDINALS)}|last)\s+(?P<unit>week|weekend|{_any(_DAYS)})\s+(?:of|in)\s+{_M}"
        rf"{_OPTIONAL_YEAR}",
        _in_month,
    ),
    _rule(rf"(?:the\s+)?(?P<which>first|last)\s+week\s+of\s+{_Y}", _week_of_year),
    _rule(rf"{_M},?\s+(?:of\s+)?(?:{_Y}|(?P<shift>last|this|next)\s+year\b)", _whole_month),
    _rule(rf"{_SHIFTED}\s+{_M}", _shifted_month),
    _rule(rf"{_M}(?P<year>)", _whole_month, _IN),
    _rule(rf"(?:the\s+)?(?P<shift>)(?P<season>{_any(_SEASONS)})\s+(?:of\s+)?{_Y}", _season),
    _rule(rf"{_SHIFTED}\s+(?P<season>{_any(_SEASONS)})(?P<year>)\b", _season),
    _rule(rf"(?:the\s+)?(?P<shift>)(?P<season>{_any(_SEASONS)})(?P<year>)\b(?!\s+of\b)", _season, _IN),
    _rule(rf"{_H}\s+(?:of\s+)?{_Y}", _holiday),
    _rule(rf"{_H}(?P<year>)\b", _holiday, f"{_IN}|at|over"),
    _rule(rf"the\s+(?P<q>{_any(_ORDINALS)})\s+quarter(?P<year>)\b", _quarter, f"{_IN}|for"),
    _rule(rf"Q(?P<q>[1-4])(?P<year>){_CLOSED}", _quarter, f"{_IN}|for"),
    _rule(rf"{_N}\s+(?P<unit>day|week|month|year)s?\s+ago\b", _ago),
    _rule(rf"(?:the\s+)?(?:last|past|previous)\s+{_N}\s+(?P<unit>hour|day|week|month|year)s?\b(?!\s+of\b)", _rolling),
    _rule(rf"{_LASTING}the\s+(?:last|past)\s(?P<count>)(?P<unit>day|week|month|year)\b(?!\s+of\b)", _rolling),
    _rule(rf"(?:the\s+)?{_SHIFTED}\s+(?P<unit>weekend|week|month|quarter|year)\b(?!\s+of\b)", _shifted),
    _rule(r"(?:the\s+)?(?P<shift>)(?P<unit>weekend)\b(?!\s+of\b)", _weekend, "over|on|during"),
    _rule("(?:" + _any(_DAY_WORDS).replace(" ", r"\s+") + r")\b", _day_word),
    _rule(rf"{_SHIFTED}\s+{_WD}", _shifted_weekday),
    _rule(_WD, _weekday, "on|since|until|till|before|after"),
    _rule(r"the\s+(?P<year>(?:19|20)\d0)s\b", _decade),
    _rule(_Y, _year, f"{_IN}|by|for|of|year"),
)
