"""Times as people say them, in options, questions and memories."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from triskele.errors import BadInput
from triskele.text import periods
from triskele.types import Period

# A Sunday.
NOW = datetime(2026, 11, 15, 20, 30, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")

DAYS = {
    "2026-03-14": "14 March 2026",
    "2026/03/14": "14 March 2026",
    "14.03.2026": "14 March 2026",
    "2026-06": "1–30 June 2026",
    "2026": "1 January – 31 December 2026",
    "2026-W10": "2–8 March 2026",
    "2026-Q2": "1 April – 30 June 2026",
    "Q3 2026": "1 July – 30 September 2026",
    "Q3": "1 July – 30 September 2026",
    "Q4": "1 October – 31 December 2026",
    "third quarter of 2025": "1 July – 30 September 2025",
    "today": "15 November 2026",
    "yesterday": "14 November 2026",
    "the day before yesterday": "13 November 2026",
    "tomorrow": "16 November 2026",
    "last night": "14 November 2026",
    "this week": "9–15 November 2026",
    "last week": "2–8 November 2026",
    "next week": "16–22 November 2026",
    "last weekend": "7–8 November 2026",
    "this weekend": "14–15 November 2026",
    "last month": "1–31 October 2026",
    "this quarter": "1 October – 31 December 2026",
    "last quarter": "1 July – 30 September 2026",
    "this year": "1 January – 31 December 2026",
    "last year": "1 January – 31 December 2025",
    "in July": "1–31 July 2026",
    "july": "1–31 July 2026",
    "November": "1–30 November 2026",
    "in December": "1–31 December 2025",
    "July 2026": "1–31 July 2026",
    "July of 2025": "1–31 July 2025",
    "Sept. 2025": "1–30 September 2025",
    "May last year": "1–31 May 2025",
    "last May": "1–31 May 2026",
    "last December": "1–31 December 2025",
    "next May": "1–31 May 2027",
    "early July": "1–10 July 2026",
    "mid-July": "11–20 July 2026",
    "end of July 2025": "21–31 July 2025",
    "on 3 May": "3 May 2026",
    "3rd of May": "3 May 2026",
    "May 3rd, 2026": "3 May 2026",
    "December 1,2023": "1 December 2023",
    "24 December": "24 December 2025",
    "29 Feb 2024": "29 February 2024",
    "3-5 May 2026": "3–5 May 2026",
    "May 3–5": "3–5 May 2026",
    "since 1 November": "since 1 November 2026",
    "after May": "since 1 June 2026",
    "before June": "until 31 May 2026",
    "until June": "until 30 June 2026",
    "between March and May": "1 March – 31 May 2026",
    "between November and January": "1 November 2025 – 31 January 2026",
    "from March to May 2025": "1 March – 31 May 2025",
    "2026-05-01..2026-05-10": "1–10 May 2026",
    "3 May to 5 June 2025": "3 May – 5 June 2025",
    "two weeks ago": "26 October – 1 November 2026",
    "10 days ago": "5 November 2026",
    "a month ago": "1–31 October 2026",
    "3 years ago": "1 January – 31 December 2023",
    "a couple of days ago": "13 November 2026",
    "the last 3 weeks": "25 October – 15 November 2026",
    "past two months": "15 September – 15 November 2026",
    "last 24 hours": "14–15 November 2026",
    "2w": "1 November 2026",
    "3 days": "12 November 2026",
    "last Friday": "13 November 2026",
    "last Sunday": "8 November 2026",
    "Friday": "13 November 2026",
    "next Friday": "20 November 2026",
    "on Sunday": "15 November 2026",
    "in the summer of 2025": "1 June – 31 August 2025",
    "summer": "1 June – 31 August 2026",
    "last summer": "1 June – 31 August 2026",
    "winter 2024": "1 December 2024 – 28 February 2025",
    "first weekend of August 2023": "5–6 August 2023",
    "last Friday of May 2026": "29 May 2026",
    "second week of November": "8–14 November 2026",
    "first week of 2024": "1–7 January 2024",
    "Easter 2025": "20–21 April 2025",
    "Good Friday 2027": "26 March 2027",
    "Easter": "5–6 April 2026",
    "over Christmas": "24–26 December 2025",
    "New Year's Eve 2024": "31 December 2024",
    "Whitsun 2024": "19–20 May 2024",
    "the week before Easter": "29 March – 4 April 2026",
    "the week after Easter 2025": "22–28 April 2025",
    "the day before 3 May": "2 May 2026",
    "the month after July": "1–31 August 2026",
    "just before Christmas": "17–23 December 2025",
    "before Easter 2026": "until 4 April 2026",
    "between 18 and 22 May": "18–22 May 2026",
    "in the 1990s": "1 January 1990 – 31 December 1999",
}


@pytest.mark.parametrize(("words", "days"), DAYS.items())
def test_options_take_the_words_of_people(words: str, days: str) -> None:
    assert periods.describe(periods.parse_period(words, NOW, UTC), UTC) == days


@pytest.mark.parametrize(
    "words", ["", "soon", "31 February", "2026-13", "2026-02-30", "last banana", "blue", "since", "x" * 500, "0 May"]
)
def test_options_refuse_other_words_than_times(words: str) -> None:
    with pytest.raises(BadInput, match="last week"):
        periods.parse_period(words, NOW, UTC)


def test_exact_moments_have_no_length() -> None:
    moment = datetime(2026, 3, 14, 8, 30, tzinfo=UTC)
    assert periods.parse_period("2026-03-14T08:30:00Z", NOW, BERLIN) == Period(moment, moment, "2026-03-14T08:30:00Z")
    assert periods.parse_start("2026-03-14T09:30", NOW, BERLIN) == moment
    assert periods.parse_end("2026-03-14 09:30", NOW, BERLIN) == moment
    with pytest.raises(BadInput):
        periods.parse_period("2026-03-14T99:30", NOW, UTC)


def test_until_includes_its_period_and_refuses_open_sides() -> None:
    assert periods.parse_end("2026-06", NOW, UTC) == datetime(2026, 7, 1, tzinfo=UTC)
    assert periods.parse_start("2026-06", NOW, UTC) == datetime(2026, 6, 1, tzinfo=UTC)
    with pytest.raises(BadInput, match="no beginning"):
        periods.parse_start("before June", NOW, UTC)
    with pytest.raises(BadInput, match="no end"):
        periods.parse_end("since June", NOW, UTC)


def test_days_are_those_of_the_zone() -> None:
    late = datetime(2026, 11, 15, 23, 30, tzinfo=UTC)
    assert periods.describe(periods.parse_period("today", late, BERLIN), BERLIN) == "16 November 2026"
    summer = periods.parse_period("July 2026", late, BERLIN)
    assert summer.start == datetime(2026, 6, 30, 22, tzinfo=UTC)
    # The day on which clocks go back has 25 hours.
    day = periods.parse_period("2026-10-25", late, BERLIN)
    assert day.start is not None and day.end is not None
    assert day.end - day.start == timedelta(hours=25)


QUESTIONS = {
    "What did we decide in July?": "July: 1–31 July 2026",
    "what did we decide in july": "july: 1–31 July 2026",
    "What broke in May 2026?": "May 2026: 1–31 May 2026",
    "what happened in may?": "may: 1–31 May 2026",
    "What have we shipped since 1 November?": "since 1 November: since 1 November 2026",
    "what did we change since may": "since may: since 1 May 2026",
    "Who was on call between March and May?": "between March and May: 1 March – 31 May 2026",
    "Which bugs did we fix from March to May 2025?": "March to May 2025: 1 March – 31 May 2025",
    "What did Anna say last Friday?": "last Friday: 13 November 2026",
    "What did Anna say on Friday about the flood?": "Friday: 13 November 2026",
    "What happened on the 10th of February 2024?": "10th of February 2024: 10 February 2024",
    "What did Kate do on 29 Dec 2023?": "29 Dec 2023: 29 December 2023",
    "Which book did I finish two weeks ago?": "two weeks ago: 26 October – 1 November 2026",
    "How many plants did I buy in the last month?": "last month: 15 October – 15 November 2026",
    "Where did we travel in the summer of 2025?": "summer of 2025: 1 June – 31 August 2025",
    "Where were we last year in May?": "May: 1–31 May 2025",
    "What did we use before 2024?": "before 2024: until 31 December 2023",
    "What is planned for Q1 2027?": "Q1 2027: 1 January – 31 March 2027",
    "Revenue in Q3?": "Q3: 1 July – 30 September 2026",
    "What was the plan as of November 2023?": "November 2023: 1–30 November 2023",
    "Who wrote yesterday's report?": "yesterday: 14 November 2026",
    "What did we do over the weekend?": "weekend: 14–15 November 2026",
    "In 2025, who was our lawyer?": "2025: 1 January – 31 December 2025",
    "What did I note on 2026-05-03?": "2026-05-03: 3 May 2026",
    "On May 3 we met whom?": "May 3: 3 May 2026",
    "Which talks were held in the first week of October?": "first week of October: 1–7 October 2026",
    "What did we decide the week before Easter?": "the week before Easter: 29 March – 4 April 2026",
    "who was there over Christmas?": "Christmas: 24–26 December 2025",
    "where was Ivo between 18 and 22 May?": "between 18 and 22 May: 18–22 May 2026",
    "What was said this year in March?": "March: 1–31 March 2026",
}


@pytest.mark.parametrize(("question", "label"), QUESTIONS.items())
def test_a_question_names_its_period(question: str, label: str) -> None:
    period = periods.question_period(question, NOW, UTC)
    assert period is not None and periods.label(period, UTC) == label


TIMELESS = [
    "May I deploy on my own?",
    "May we use Redis?",
    "what may go wrong with the cache?",
    "Deploys may fail when the disk is full",
    "sign in may fail behind the proxy",
    "the step after that may 3 times retry",
    "which of the top 3 may change?",
    "Clients MAY send a header",
    "a server in MAY state",
    "Who is Theresa May?",
    "Did May call back?",
    "the gift from June",
    "a present for April",
    "What does April like to eat?",
    "a message by May",
    "Who joined the march on Washington?",
    "they march 20 miles a day",
    "how did the troops march in the rain?",
    "March Madness bracket rules",
    "What is May Day?",
    "a second opinion on the cache",
    "wait a second before the retry",
    "the second time the build broke",
    "which quarter pays best?",
    "second quarter dividend rules",
    "port 2024 is taken",
    "Windows Server 2019 licence",
    "the error 2013 of MySQL",
    "does it finish in 2000 ms?",
    "done in 2048 bits or more",
    "in 2000 lines of code",
    "after 2000 requests the worker restarts",
    "until 2100 tokens are used",
    "upgrade to 2026",
    "release 2024.1 of the IDE",
    "since 2024.1 the flag is gone",
    "version 2026-07-28 of the protocol",
    "which clients open with spec 2025-11-25?",
    "protocol 2025-06-18 support",
    "CVE-2026-1234",
    "commit 2026abcd",
    "the model claude-2026-05-01",
    "file notes/2026-05-03.md",
    "every Friday we ship",
    "what happens on Fridays?",
    "the Black Friday sale",
    "on Black Friday we freeze",
    "who is on call from Monday to Friday?",
    "on Friday evenings the office is closed",
    "self-care on Tuesday and Thursday mornings",
    "sat next to Sun on the bench",
    "Who owns Sun?",
    "dec 3 from the counter",
    "mar the surface",
    "the fall of the Berlin wall",
    "in the fall of Rome",
    "why did prices fall?",
    "What do we wear in winter?",
    "how do I configure beans in the Spring framework?",
    "in the spring boot app",
    "the next winter Olympics",
    "last time we met",
    "the last one standing",
    "this thing and the next step",
    "a week of work",
    "two weeks before 3 May",
    "where is the Christmas tree?",
    "who hides the Easter eggs?",
    "what to do in the new year budget",
    "in two weeks",
    "for three months",
    "how long is a month?",
    "the last two years of school",
    "USA Today article",
    "A Better Tomorrow director",
    "Who sings Home Alone Tonight?",
    "3.5 mayonnaise jars",
    "10 decades",
    "31 February",
    "the 40th President",
    "1 junction, 2 marchers",
    "when did we meet?",
    "What changed since the release?",
    "who came before Anna?",
    "Was the trip in May or the one in July longer?",
    "May I change the export tonight?",
    "can we deploy this week?",
    "",
]


@pytest.mark.parametrize("question", TIMELESS)
def test_a_question_without_a_time_has_none(question: str) -> None:
    assert periods.question_period(question, NOW, UTC) is None


@pytest.mark.parametrize(
    ("question", "is_alone"),
    [
        ("What happened in July?", True),
        ("what did we decide the week before Easter?", True),
        ("what's new since Monday", True),
        ("Anything planned for July 2027?", True),
        ("what happened to the pump in July?", False),
        ("which plants did we buy in July?", False),
        ("can we still read what I said yesterday?", False),
        ("what did the newsletter say in July?", False),
    ],
)
def test_names_only_a_time(question: str, is_alone: bool) -> None:
    period = periods.question_period(question, NOW, UTC)
    assert period is not None and periods.names_only(question, period) is is_alone


SINCE = {
    "Since May we deploy with Flux": "since 1 May 2026",
    "since may we deploy with Flux.": "since 1 May 2026",
    "We deploy with Flux since May.": "since 1 May 2026",
    "Since 1 November the API needs a token. Ask Anna for one.": "since 1 November 2026",
    "As of 3 November, the cache is off": "since 3 November 2026",
    "As of 2026-11-03 the cache is off": "since 3 November 2026",
    "From 2025 on we log in JSON": "since 1 January 2025",
    "From October we use ruff": "since 1 October 2026",
    "Starting in October we use ruff": "since 1 October 2026",
    "Anna has led the team since the summer of 2025": "since 1 June 2025",
    "We freeze deploys until 20 November": "until 20 November 2026",
    "Until January 2027 the old API stays online": "until 31 January 2027",
    "Until Friday the office is closed": "until 20 November 2026",
    "On 3 May we moved to Berlin": "since 3 May 2026",
    "On 14 July the cellar was flooded. The insurer came on 16 July.": "since 14 July 2026",
    "The washing machine flooded the cellar on 14 July": "since 14 July 2026",
    "On 3 March 2026 the auditor comes": "since 3 March 2026",
    "On the 20th of October 2025 the robot dropped a tray.": "since 20 October 2025",
    "2026-07-14: the cellar was flooded": "since 14 July 2026",
    "We met Anna on July 14th, 2025": "since 14 July 2025",
    "On 1 April the tax office lowered our prepayment": "since 1 April 2026",
}


@pytest.mark.parametrize(("text", "days"), SINCE.items())
def test_a_memory_says_when_it_holds(text: str, days: str) -> None:
    period = periods.validity(text, NOW, UTC)
    assert period is not None and periods.describe(period, UTC) == days


@pytest.mark.parametrize(
    "text",
    [
        "We deploy with Flux",
        "We may deploy since the tests pass",
        "Since we deploy with Flux, May is calm",
        "The numbers from May are wrong",
        "The report as of 3 May shows five errors",
        "We met in May",
        "On 3 March the auditor comes",
        "On 3 March 2027 the auditor comes",
        "We leave on 25 December",
        "Ravi's birthday is on 8 August",
        "The contract ends on 3 October",
        "The rehearsal is on 7 March and the move on 21 March",
        "The report of 3 May shows five errors",
        "On Friday the office closes at three",
        "I am looking for new shoes. The old ones fell apart on 3 October.",
        "In July we moved to Berlin",
        "Since when do we deploy with Flux? Since May?",
        "From January 2027 we use Rust",
        "Until May we deployed with Helm",
        "We deployed with Helm until May",
        "Before June we used Jenkins",
        "From March to May 2025 we used Jenkins",
        "It was broken since May until we fixed it",
        "We use ruff. Anna has been here since May.",
        "Since 2024.1 the flag is gone",
    ],
)
def test_unclear_or_hiding_words_set_no_validity(text: str) -> None:
    assert periods.validity(text, NOW, UTC) is None


def test_the_name_of_a_session_may_hold_its_day() -> None:
    assert periods.session_day("standup 2026-05-03", NOW, UTC) == datetime(2026, 5, 3, tzinfo=UTC)
    assert periods.session_day("2026-05-03", NOW, BERLIN) == datetime(2026, 5, 2, 22, tzinfo=UTC)
    for name in ("standup", "2027-05-03", "2026-13-03", "a12026-05-03", ""):
        assert periods.session_day(name, NOW, UTC) is None
