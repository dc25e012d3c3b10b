"""Periods and points in time in words: as options name them, questions ask for them, and memories state them.

Every function takes the moment that words count from and the zone of the reader; None is the zone of the system.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from triskele.errors import BadInput
from triskele.text.time_grammar import TIME_HINT, Match, Point, Span, Today, back, one_day, rules
from triskele.text.words import SENTENCE_END, has_topic
from triskele.types import Memory, Period

EXAMPLES = '2026-03-14, 2026-06, "last week", "in July", "since 1 November"'
_LONGEST = 80
_YEARS_AHEAD = 20
# Characters before a time that may hold the words that lead to it.
_REACH = 40

# Words that are also verbs or names: times only in the right company.
_VERBS = frozenset({"may", "march", "mar"})
_NAMES = frozenset({"april", "may", "june"})
_SHORTEST_NAME = 4
_FREE_MONTH = r"by|for|of|from"

_UNIT_BEFORE = re.compile(
    r"\b(?:the\s+(?P<one>day|week|month)|(?P<near>just|shortly|right)"
    r"|(?:minute|hour|day|week|month|year|night|morning|weekend)s?)\s+$",
    re.IGNORECASE,
)
_VERSION_BEFORE = re.compile(
    r"\b(?:spec|specification|version|revision|protocol|api|release|edition|schema|migration|build|tag|branch|ticket"
    r"|rfc|usa)\s+$",
    re.IGNORECASE,
)
_PRODUCT_AFTER = re.compile(r"\s+(?:boot|framework|cloud|mvc|security|batch|olympic|games|day\b)", re.IGNORECASE)
_PARTS_AFTER = re.compile(r"(?:\s+(?:and|or)\s+\w+day)?\s+(?:mornings|afternoons|evenings|nights)\b", re.IGNORECASE)
# A capital inside a sentence: the title of a film, the name of a newspaper.
_TITLE_BEFORE = re.compile(r"\w[’']?s?\s+$")
_COUNTED_AFTER = re.compile(
    r"\s+(?:(?!(?:was|is|has|does|as|us|this|his|its)\b)[a-z]+s|m|h|g|km|kg|mb|gb|px|usd|eur|euro|rpm|people)\b"
)
_CLAUSE_END = re.compile(r"\s*(?:$|[?.!,;:)])")
_BETWEEN = re.compile(r"\bbetween\s+(?:the\s+)?$", re.IGNORECASE)
_FROM = re.compile(r"\bfrom\s+(?:the\s+)?$", re.IGNORECASE)
_AND = re.compile(r"\s*,?\s*and\s+(?:the\s+)?", re.IGNORECASE)
_TO = re.compile(r"\s*(?:\bto\b|\buntil\b|\btill\b|\bthrough\b|-|–|\.\.)\s*(?:the\s+)?", re.IGNORECASE)
_ONWARDS = re.compile(r"\s+(?:on|onwards?)\b(?!\s+(?:the|a)\b)", re.IGNORECASE)
_MODIFIERS = {
    "since": r"(?:ever\s+)?since|starting(?:\s+(?:in|on|from|with))?",
    "after": r"after|later\s+than",
    "before": r"before|prior\s+to|earlier\s+than",
    "until": r"until|till|up\s+to|through|no\s+later\s+than",
    "at": r"in|on|during|around|throughout|as\s+of|over|by|from|for|of|at|back\s+in",
}
_MODIFIER = re.compile(
    r"\b(?:" + "|".join(f"(?P<{name}>{words})" for name, words in _MODIFIERS.items()) + r")\s+(?:the\s+)?$",
    re.IGNORECASE,
)
_LEADING = re.compile(rf"^(?:{_MODIFIERS['at']})\s+(?:the\s+)?", re.IGNORECASE)
_BARE = re.compile(r"(?P<count>\d{1,3})\s*(?P<unit>d|w|m|y|days?|weeks?|months?|years?)", re.IGNORECASE)
_UNITS = {"d": "day", "w": "week", "m": "month", "y": "year"}
_IN_NAME = re.compile(r"(?<!\d)((?:19|20)\d\d-\d\d-\d\d)(?!\d)")

_BEGINS = re.compile(r"(?:ever\s+)?since|from|as\s+of|starting(?:\s+(?:in|on|from|with))?|effective", re.IGNORECASE)
_ENDS = re.compile(r"until|till", re.IGNORECASE)
_HOLDS = re.compile(r"\b(?:since|from|as\s+of|starting|effective|until|till|on)\s|^\d", re.IGNORECASE)
_RANGE = re.compile(r"\s(?:to|until|till|through)\s|–|\.\.", re.IGNORECASE)
_PAST = re.compile(r"\b(?:was|were|had|did|used\s+to|(?:we|i|they|he|she|it)\s+\w+ed)\b", re.IGNORECASE)
_ON_DAY = re.compile(r"(?<!\bis )(?<!\bare )(?<!\bend )(?<!\bends )(?<!\bdue )\bon\s.*\d", re.IGNORECASE)
_HAPPENED = re.compile(rf"{_PAST.pattern}|\b(?:\w\w+ed|went|came|took|got|paid|met|left|began|broke|fell|lost|chose)\b")
_NEAR = timedelta(days=92)
_ASKS_LEAVE = re.compile(r"\W*(?:may|can|could|should|shall|must)\s+(?:i|we)\b", re.IGNORECASE)
# What is asked of any time: such words tell no memories apart.
_ASKS_WHAT = re.compile(r"\b(?:happen(?:s|ed)?|decided?|agreed?|planned|changed?|went|broken?|news?|events?)\b")


def question_period(text: str, now: datetime, zone: tzinfo | None = None) -> Period | None:
    """The period that a question asks for; None without one, or with several that exclude each other."""
    points = _nested(_joined(text, list(_points(text, _today(now, zone)))))
    if len(points) != 1:
        return None
    period = _period(points[0].span, text[points[0].begin : points[0].end], zone)
    # "May we deploy tonight?" names the time of an act to come, not of a memory.
    is_of_act = _ASKS_LEAVE.match(text) and (period.end is None or period.end > now)
    return None if is_of_act else period


def names_only(text: str, period: Period) -> bool:
    """Whether a question asks what happened in a period, and names nothing else."""
    return not has_topic(_ASKS_WHAT.sub("", text.replace(period.words, "").lower()))


def parse_period(text: str, now: datetime, zone: tzinfo | None = None, *, ahead: bool = False) -> Period:
    """The period that the value of an option names; an exact moment is a period without length."""
    words = " ".join(text.split())
    try:
        period = _named(words, now, zone, ahead=ahead) if len(words) <= _LONGEST else None
    except (ValueError, OverflowError):
        # A date that no calendar has.
        period = None
    if period is None:
        raise BadInput(f"not a date: {text[:40]!r} (write for example {EXAMPLES})")
    return period


def _named(words: str, now: datetime, zone: tzinfo | None, *, ahead: bool) -> Period | None:
    if (moment := _moment(words, zone)) is not None:
        return Period(moment, moment, words)
    if words.lower() == "now":
        return Period(now, now, words)
    if re.fullmatch(r"\d{4}-\d\d-\d\d", words):
        return _period(one_day(date.fromisoformat(words)), words, zone)
    if bare := _BARE.fullmatch(words):
        day = back(_today(now, zone).day, _UNITS[bare["unit"][0].lower()], int(bare["count"]))
        return _period(one_day(day), words, zone)
    today = replace(_today(now, zone), ahead=ahead)
    for point in _joined(words, list(_points(words, today, is_option=True)), is_option=True):
        if (point.begin, point.end) == (0, len(words)):
            return _period(point.span, words, zone)
    return None


def parse_start(text: str, now: datetime, zone: tzinfo | None = None) -> datetime:
    """The beginning of the period that an option names."""
    period = parse_period(text, now, zone)
    if period.start is None:
        raise BadInput(f"{text[:40]!r} has no beginning: name a day, a month or a year")
    return period.start


def parse_end(text: str, now: datetime, zone: tzinfo | None = None) -> datetime:
    """The end of the period that an option names, which belongs to it: until June includes June."""
    period = parse_period(text, now, zone)
    if period.end is None:
        raise BadInput(f"{text[:40]!r} has no end: name a day, a month or a year")
    return period.end


def validity(text: str, now: datetime, zone: tzinfo | None = None) -> Period | None:
    """The beginning or end of validity that the text of a memory states, or the day on which something happened.

    Only clear words count: at the beginning of the text, or in its only sentence. A beginning in the future and an end
    in the past would hide the memory from every query made today, so they are left out.
    """
    content = text.strip().rstrip(".!")
    if content.endswith("?") or not _HOLDS.search(content):
        return None
    is_single = not re.search(SENTENCE_END, content)
    for ahead in (False, True):
        today = replace(_today(now, zone), ahead=ahead)
        for point in _joined(content, list(_points(content, today))):
            phrase = content[point.begin : point.end]
            if point.begin and not (is_single and _stands_free(content, point)):
                continue
            period = _held(content, point, _period(point.span, phrase, zone), now, ahead=ahead)
            if period is not None:
                return period
    return _happened(content, now, zone, is_single=is_single)


def _happened(text: str, now: datetime, zone: tzinfo | None, *, is_single: bool) -> Period | None:
    """Since the past day on which something happened: the beginning of a text, or the only time in a sentence."""
    points = _joined(text, list(_points(text, _today(now, zone))))
    if not points:
        return None
    point, phrase = points[0], text[points[0].begin : points[0].end]
    is_on_day = _ON_DAY.match(text, point.begin, point.end) and (not point.begin or (is_single and len(points) == 1))
    start = _period(point.span, phrase, zone).start
    if start is None or start > now or not (is_on_day or (phrase[0].isdigit() and not point.begin)):
        return None
    # "On 25 July we leave", written in June, means the coming one.
    is_past = point.has_year or now - start < 2 * _NEAR or _HAPPENED.search(text)
    return Period(start, None, phrase) if is_past else None


def _stands_free(text: str, point: Point) -> bool:
    """Whether words inside a sentence state its validity: since anywhere, until at its end."""
    phrase = text[point.begin : point.end]
    rivals = re.findall(r"\b(?:until|till|before)\b", text[: point.begin] + text[point.end :], re.IGNORECASE)
    is_since = re.match(r"(?:ever\s+)?since\b", phrase, re.IGNORECASE) is not None
    return not rivals and (is_since or (_ENDS.match(phrase) is not None and point.end == len(text)))


def _held(text: str, point: Point, period: Period, now: datetime, *, ahead: bool) -> Period | None:
    phrase = text[point.begin : point.end]
    if not ahead and _BEGINS.match(phrase) and period.start is not None and period.start <= now:
        is_over = period.end is not None and period.end <= now
        is_point = re.match(r"(?:from|as\s+of|effective)\b", phrase, re.IGNORECASE) and not _RANGE.search(phrase)
        return None if is_over and not is_point else replace(period, end=None if is_point else period.end)
    if ahead and _ENDS.match(phrase) and period.start is None and period.end is not None and period.end > now:
        # "Until May", written in November, usually means last May.
        is_near = point.has_year or period.end - now < _NEAR
        return period if is_near and not _PAST.search(text) else None
    return None


def session_day(name: str, now: datetime, zone: tzinfo | None = None) -> datetime | None:
    """The day in the name of a session, such as `standup 2026-05-03`; None without one, or with one to come."""
    if (match := _IN_NAME.search(name)) is None:
        return None
    try:
        start = _midnight(date.fromisoformat(match[1]), zone)
    except ValueError:
        return None
    return start if start <= now else None


def memory_time(memory: Memory) -> datetime:
    """When a memory is about: since when it holds, else the day of its session or of its creation."""
    return memory.valid_from or memory.created_at


def held(memory: Memory) -> Period | None:
    """The time in which a memory is valid; None if it always is."""
    always = memory.valid_from is None and memory.valid_to is None
    return None if always else Period(memory.valid_from, memory.valid_to)


def label(period: Period, zone: tzinfo | None = None) -> str:
    """A period with the words that it came from, as in `July 2026: 1–31 July 2026`."""
    days = describe(period, zone)
    return days if not period.words or period.words.lower() == days.lower() else f"{period.words}: {days}"


def describe(period: Period, zone: tzinfo | None = None) -> str:
    """The days of a period, the last one included."""
    first = None if period.start is None else period.start.astimezone(zone)
    last = None if period.end is None else period.end.astimezone(zone) - timedelta(microseconds=1)
    if first is None and last is None:
        return "any time"
    if last is None:
        return f"since {_day(first)}"
    if first is None:
        return f"until {_day(last)}"
    if first >= last or first.date() == last.date():
        return _day(first)
    if first.year != last.year:
        return f"{_day(first)} – {_day(last)}"
    same = first.month == last.month
    return f"{first.day}–{_day(last)}" if same else f"{first.day} {first:%B} – {_day(last)}"


def say_moment(moment: datetime, zone: tzinfo | None = None) -> str:
    """A point in time in words: its day, and the time of day unless it is midnight."""
    local = moment.astimezone(zone)
    return _day(local) if local.time() == time() else f"{_day(local)}, {local:%H:%M}"


def _day(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment.day} {moment:%B %Y}"


def _today(now: datetime, zone: tzinfo | None) -> Today:
    return Today(now.astimezone(zone).date())


def _moment(text: str, zone: tzinfo | None) -> datetime | None:
    """An ISO date with a time of day."""
    if not re.match(r"\d{4}-\d\d-\d\d[T ]\d", text):
        return None
    return _aware(datetime.fromisoformat(text), zone)


def _midnight(day: date, zone: tzinfo | None) -> datetime:
    return _aware(datetime.combine(day, time()), zone)


def _aware(moment: datetime, zone: tzinfo | None) -> datetime:
    return (moment.replace(tzinfo=zone) if zone and moment.tzinfo is None else moment).astimezone(UTC)


def _period(span: Span, words: str, zone: tzinfo | None) -> Period:
    start, end = (None if side is None else _midnight(side, zone) for side in span)
    return Period(start, end, _LEADING.sub("", words))


def _points(text: str, today: Today, *, is_option: bool = False) -> Iterator[Point]:
    """The times in a text; outside of time options each must be sure, or the end of a range."""
    taken: list[tuple[int, int]] = []
    for pattern, resolve, needs in rules() if TIME_HINT.search(text) else ():
        for match in pattern.finditer(text):
            begin, end = match.span()
            if any(begin < other_end and other_begin < end for other_begin, other_end in taken):
                continue
            if not is_option and not _is_time(match, today, is_bare=bool(needs)):
                continue
            try:
                span = resolve(match, today)
            except (ValueError, OverflowError, IndexError):
                # A date that no calendar has.
                continue
            if span is not None:
                taken.append((begin, end))
                is_sure = is_option or not needs or _is_led(match, needs)
                yield Point(begin, end, span, has_year=_has_year(match), is_sure=is_sure)


def _before(text: str, at: int) -> str:
    """The words before a place: as many as a time is led by."""
    return text[max(0, at - _REACH) : at]


def _has_year(match: Match) -> bool:
    groups = match.groupdict()
    # A month, a season and a quarter without a year have an empty one.
    return bool(groups.get("year") or groups.get("y") or groups.get("shift")) or not groups.keys() & {"year", "y"}


def _is_led(match: Match, needs: str) -> bool:
    """Whether the words before a time are those that it needs."""
    word = (match.groupdict().get("month") or "").lower()
    if word and word not in _NAMES:
        needs = f"{needs}|{_FREE_MONTH}"
    before = _before(match.string, match.start())
    if _FROM.search(before) and _ONWARDS.match(match.string, match.end()):
        return True
    if not re.search(rf"(?:^|[^\w])(?:{needs})\s+(?:the\s+)?$", before, re.IGNORECASE):
        return False
    if match.groupdict().get("month", "") in _VERBS:
        # In lower case it may be a verb: "sign in may fail".
        is_since = re.search(r"\bsince\s+$", before, re.IGNORECASE) is not None
        return is_since or _CLAUSE_END.match(match.string, match.end()) is not None
    return True


def _is_time(match: Match, today: Today, *, is_bare: bool) -> bool:
    """Whether what looks like a time in a sentence is one."""
    groups, text, after = match.groupdict(), match.string, match.end()
    before = _before(text, match.start())
    if _VERSION_BEFORE.search(before):
        return False
    if month := groups.get("month"):
        return _is_month(match, month, is_bare=is_bare)
    if weekday := groups.get("weekday"):
        return len(weekday) >= _SHORTEST_NAME and not _PARTS_AFTER.match(text, after)
    if groups.get("season"):
        is_one = not is_bare or match[0].lower().startswith("the")
        return is_one and not _PRODUCT_AFTER.match(text, after)
    if groups.get("unit") == "weekend" and is_bare:
        return match[0].lower().startswith("the")
    if not groups and match[0][0].isupper():
        return not _TITLE_BEFORE.search(before)
    year = groups.get("year")
    if is_bare and year and "q" not in groups:
        return int(year) <= today.day.year + _YEARS_AHEAD and not _COUNTED_AFTER.match(text, after)
    return True


def _is_month(match: Match, month: str, *, is_bare: bool) -> bool:
    word, groups = month.rstrip("."), match.groupdict()
    if _PRODUCT_AFTER.match(match.string, match.end()) or (word.isupper() and word.lower() in _VERBS):
        return False
    if is_bare:
        # Led by the right word or the end of a range; a short one is capitalised.
        return len(word) >= _SHORTEST_NAME or word.lower() == "may" or not word.islower()
    is_exact = bool(groups.get("year")) or re.search(r"\d(?:st|nd|rd|th)\b", match[0], re.IGNORECASE) is not None
    is_named = re.search(r"\b(?:of|last year|this year|next year)\b", match[0], re.IGNORECASE) is not None
    if not word.islower() or is_exact or is_named:
        return True
    if word in _VERBS:
        return groups.get("shift") is not None and _CLAUSE_END.match(match.string, match.end()) is not None
    return len(word) >= _SHORTEST_NAME


def _joined(text: str, found: Sequence[Point], *, is_option: bool = False) -> list[Point]:
    """The times in their order, ranges as one, each with the word before it: since, before, until."""
    points = sorted(found, key=lambda point: point.begin)
    joined: list[Point] = []
    while points:
        point = points.pop(0)
        following = _range(text, point, points[0], is_option=is_option) if points else None
        if following is not None:
            joined.append(following)
            points.pop(0)
        elif point.is_sure:
            joined += _modified(text, point)
    return joined


def _range(text: str, first: Point, last: Point, *, is_option: bool) -> Point | None:
    """Two times as one period, if the words around them say so."""
    between = text[first.end : last.begin]
    reach = max(0, first.begin - _REACH)
    opening = _BETWEEN.search(text[: first.begin], reach) if _AND.fullmatch(between) else None
    if opening is None:
        if not _TO.fullmatch(between):
            return None
        opening = _FROM.search(text[: first.begin], reach)
        is_clear = is_option or last.is_sure or (opening is not None and _AND.search(between) is None)
        if not is_clear or _is_habit(text, first, last):
            return None
    first_span = first.span
    if not first.has_year:
        first_span = _moved_before(first_span, last)
    start, end = first_span.start, last.span.end
    if start is None or end is None or start >= end:
        return None
    begin = opening.start() if opening else first.begin
    return Point(begin, last.end, Span(start, end), has_year=last.has_year)


def _is_habit(text: str, first: Point, last: Point) -> bool:
    """From Monday to Friday is every week."""
    ends = (text[first.begin : first.end], text[last.begin : last.end])
    return all(re.fullmatch(r"[a-z]+day", said, re.IGNORECASE) for said in ends)


def _moved_before(span: Span, last: Point) -> Span:
    """A time without a year, moved to the last year in which it comes before the end of a range."""
    if span.start is None or span.end is None or last.span.end is None:
        return span
    years = last.span.end.year - span.start.year
    for shift in (years, years - 1):
        moved = Span(*(back(side, "year", -shift) for side in (span.start, span.end)))
        if moved.start is not None and moved.start < last.span.end:
            return moved
    return span


def _modified(text: str, point: Point) -> list[Point]:
    """A time with the words before it; none if units are counted from it, as in two days before 3 May."""
    modifier = _MODIFIER.search(text, max(0, point.begin - _REACH), point.begin)
    kind = modifier.lastgroup if modifier else None
    if modifier is None or kind is None:
        return [point]
    start, end = point.span
    counted = _UNIT_BEFORE.search(text, max(0, modifier.start() - _REACH), modifier.start())
    if kind in ("before", "after") and counted:
        if not counted.lastgroup or start is None or end is None:
            return []
        unit = (counted["one"] or "week").lower()
        beside = Span(back(start, unit, 1), start) if kind == "before" else Span(end, back(end, unit, -1))
        return [replace(point, begin=counted.start(), span=beside)]
    is_onwards = modifier[0].lower().startswith("from") and _ONWARDS.match(text, point.end)
    spans = {"since": (start, None), "after": (end, None), "before": (None, start), "until": (None, end)}
    span = Span(start, None) if is_onwards else Span(*spans.get(kind, point.span))
    onwards = is_onwards.end() if is_onwards else point.end
    return [replace(point, begin=modifier.start(), end=onwards, span=span)]


def _nested(points: Sequence[Point]) -> list[Point]:
    """One time if all agree: the narrowest one inside all others, or the month of a year that is named separately."""
    if len(points) == 2:
        for year, other in (points, points[::-1]):
            if not other.has_year and _is_year(year.span):
                points = [replace(other, span=_moved_before(other.span, year))]
                break
    narrow = [point for point in points if all(_holds(other.span, point.span) for other in points)]
    return narrow[:1]


def _is_year(span: Span) -> bool:
    start, end = span
    return start is not None and end is not None and (end.year, end.timetuple().tm_yday) == (start.year + 1, 1)


def _holds(outer: Span, inner: Span) -> bool:
    starts = outer.start is None or (inner.start is not None and outer.start <= inner.start)
    return starts and (outer.end is None or (inner.end is not None and inner.end <= outer.end))
