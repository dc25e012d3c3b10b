"""The subject of a memory: its heading or title, the key of "key: value", or X in "X is …".

The X of "Obesity is …" may be a name or not, because every sentence begins with a capital: it is a weak subject.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from triskele.base.text import COMMON_WORDS
from triskele.graph.names import ARTICLES, PARTICLES, Span, Word, is_capital, stands_out

MAX_TITLE_WORDS = 12
MAX_KEY_WORDS = 5
MAX_TITLE_CHARACTERS = 80
_MARKUP = re.compile(r"[ \t]*+(?:#{1,6}[ \t]++|[-*+>][ \t]++)?+[*_\"“«]{0,3}")
_PARENTHESIS = re.compile(r" ?\([^()]{1,60}\)$")
_SENTENCE_END = (".", "!", "?", "。", "！", "？", ",", ";")

# Words between a subject and what is said about it.
COPULAS = frozenset(
    """
    is was are were isn't wasn't aren't has had have belongs means runs lives needs uses handles owns maintains keeps
    stores requires supports became becomes refers wants moved serves sends reads writes listens looks will must should
    can cannot may does doesn't expects returns speaks replaced replaces ist war sind waren hat gehört est était sont
    """.split()
)


class Subject(NamedTuple):
    """The span of a subject, and whether it may not be a name."""

    start: int
    end: int
    is_weak: bool = False


def subjects(text: str, listed: Sequence[Word]) -> list[Subject]:
    """The forms of the subject, the longest first; empty if a text has no clear subject."""
    begin = len(text) - len(text.lstrip())
    stop = text.find("\n", begin)
    has_more = stop >= 0 and bool(text[stop : stop + 1000].strip())
    line_end = stop if stop >= 0 else len(text)
    if has_more and (titled := _title(text, begin, line_end)):
        return [Subject(*span) for span in _forms(text, *titled)]
    if keyed := _key(text, begin, line_end):
        return [Subject(*keyed)]
    led = _lead(listed)
    if not led:
        return []
    return [Subject(*led, is_weak=not _is_name([word for word in listed if led[0] <= word.start < led[1]]))]


def _is_name(lead: Sequence[Word]) -> bool:
    """Whether a lead looks like a name apart from the capital at the start of the sentence."""
    first = lead[0].text
    is_plain_name = len(lead) == 1 and first.islower()
    return is_plain_name or stands_out(first) or any(is_capital(word.text) for word in lead[1:])


def _title(text: str, begin: int, end: int) -> Span | None:
    """A first line that is not a sentence."""
    matched = _MARKUP.match(text, begin, end)
    start = matched.end() if matched else begin
    if end - start > 2 * MAX_TITLE_CHARACTERS:
        return None
    title = text[start:end].rstrip().rstrip('#*_ "”»:')
    if not title or len(title) > MAX_TITLE_CHARACTERS or len(title.split()) > MAX_TITLE_WORDS:
        return None
    is_sentence = title.endswith(_SENTENCE_END) and not title.endswith(("!", "?"))
    return None if is_sentence else (start, start + len(title))


def _forms(text: str, start: int, end: int) -> Iterator[Span]:
    """A title as it is, and without a trailing parenthesis."""
    yield start, end
    stripped = _PARENTHESIS.sub("", text[start:end])
    if stripped and len(stripped) < end - start:
        yield start, start + len(stripped)


def _key(text: str, begin: int, end: int) -> Span | None:
    """The key of `key: value`, a few words long."""
    matched = _MARKUP.match(text, begin, end)
    start = matched.end() if matched else begin
    colon = text.find(":", start, min(end, start + MAX_TITLE_CHARACTERS))
    if colon < 0 or text[colon + 1 : colon + 2] not in (" ", "\t", "*", "\n", ""):
        return None
    key = text[start:colon].rstrip("*_ ")
    listed = key.lower().split()
    is_short = 0 < len(listed) <= MAX_KEY_WORDS
    # "This means: …" has no subject before the colon.
    return (start, start + len(key)) if is_short and (listed[0] == "the" or listed[0] not in COMMON_WORDS) else None


def _lead(listed: Sequence[Word]) -> Span | None:
    """The words before the first verb of the first sentence: a few, and no pronoun."""
    if repeated := _repeated(listed):
        return repeated
    first = 1 if listed and listed[0].text.lower() in ARTICLES else 0
    for place in range(first, min(first + MAX_KEY_WORDS + 1, len(listed))):
        word = listed[place]
        if place > first and word.text.lower() in COPULAS and word.joins:
            # "The film is …" refers to something that was named before.
            return (listed[first].start, listed[place - 1].end) if _is_telling(listed[first:place], first) else None
        if (place > first and not word.joins) or (
            word.text.lower() in COMMON_WORDS and word.text.lower() not in PARTICLES
        ):
            break
    return _leading_name(listed, first)


def _is_telling(lead: Sequence[Word], articles: int) -> bool:
    return not articles or len(lead) > 1 or is_capital(lead[0].text)


def _repeated(listed: Sequence[Word]) -> Span | None:
    """A title that its text repeats at once, when the line break between them was lost."""
    texts = [word.text for word in listed[: 2 * MAX_KEY_WORDS]]
    for size in range(len(texts) // 2, 0, -1):
        if texts[:size] == texts[size : 2 * size] and is_capital(texts[0]):
            return listed[0].start, listed[size - 1].end
    return None


def _leading_name(listed: Sequence[Word], first: int) -> Span | None:
    """A name of two or more words at the start of a text."""
    end = first
    while end < len(listed) and end - first < MAX_KEY_WORDS and is_capital(listed[end].text):
        if (end > first and not listed[end].joins) or listed[end].text.lower() in COMMON_WORDS:
            break
        end += 1
    return (listed[first].start, listed[end - 1].end) if end - first >= 2 else None
