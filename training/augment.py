"""Rules that make further training pairs: third- and first-person questions, split turns, dates."""

from __future__ import annotations

import datetime
import random
import re

TURN = re.compile(r"(?:^|(?<=[.?!,)\-\w] ))([A-Z][A-Za-z.'#]*(?: [A-Z][A-Za-z.']*){0,2}|[a-z0-9_\-]{2,20}): ")
SPEAKER = re.compile(r"^([#\w][\w.'#\- ]{0,30}?): (?=\S)")
SENTENCE = re.compile(r"(?<=[.!?])\s+(?=\S)")
WORD = re.compile(r"[a-z0-9']+")
THIRD_PERSON = (
    (r"\bare you\b", "is {name}"), (r"\bwere you\b", "was {name}"), (r"\bdo you\b", "does {name}"),
    (r"\bdon't you\b", "doesn't {name}"), (r"\bhave you\b", "has {name}"), (r"\bhaven't you\b", "hasn't {name}"),
    (r"\baren't you\b", "isn't {name}"), (r"\byou're\b", "{name} is"), (r"\byou are\b", "{name} is"),
    (r"\byou have\b", "{name} has"), (r"\byou've\b", "{name} has"), (r"\byou'd\b", "{name} would"),
    (r"\byours?\b", "{name}'s"), (r"\byourself\b", "themselves"), (r"\byou\b", "{name}"),
)  # fmt: skip
FIRST_PERSON = (
    (r"\bdoes {name}\b", "do I"), (r"\bhas {name}\b", "have I"), (r"\bis {name}\b", "am I"),
    (r"\b{name}'s\b", "my"), (r"\b{name} is\b", "I am"), (r"\b{name} has\b", "I have"), (r"\b{name}\b", "I"),
)  # fmt: skip
OPENERS = r"^(?:(?:and|but|so|well|yeah|yes|no|oh|ok|okay|hey|lol|wow|by the way|also|anyway)\b[ ,.!]*)+"


def split_speaker(text: str) -> tuple[str, str]:
    """The speaker (or nothing) and what was said."""
    found = SPEAKER.match(text)
    return (found.group(1).strip(), text[found.end() :]) if found else ("", text)


def split_turns(text: str) -> list[tuple[str, str]]:
    """The turns of a passage with several speakers."""
    starts = list(TURN.finditer(text))
    ends = [*(found.start() for found in starts[1:]), *([len(text)] if starts else [])]
    turns = [(found.group(1), text[found.end() : end].strip()) for found, end in zip(starts, ends, strict=True)]
    return [(speaker, said) for speaker, said in turns if said]


def question_about(asked: str, name: str) -> str:
    """The last question put to a person, as a question about them; empty if it is not such a question."""
    sentences = SENTENCE.split(asked.strip())
    question = sentences[-1].strip() if sentences else ""
    question = re.sub(OPENERS, "", question, flags=re.I).strip()
    words = WORD.findall(question.lower())
    if not question.endswith("?") or not 4 <= len(words) <= 22 or not {"you", "your"} & set(words):
        return ""
    if {"i", "me", "my", "we", "us", "our", "i'm", "i've"} & set(words):
        return ""
    for pattern, replacement in THIRD_PERSON:
        question = re.sub(pattern, replacement.format(name=name), question, flags=re.I)
    return question[0].upper() + question[1:]


def question_by(question: str, name: str) -> str:
    """A question about a person, as they would ask it themselves; empty if it does not name them."""
    if not re.search(rf"\b{re.escape(name)}\b", question):
        return ""
    for pattern, replacement in FIRST_PERSON:
        question = re.sub(pattern.format(name=re.escape(name)), replacement, question)
    return question


def split_turn(question: str, said: str) -> tuple[str, str] | None:
    """The text before the sentence that fits the question best, and that sentence with the rest."""
    sentences = SENTENCE.split(said)
    if len(sentences) < 2:
        return None
    wanted = set(WORD.findall(question.lower()))
    overlap = [len(wanted & set(WORD.findall(sentence.lower()))) for sentence in sentences]
    best = overlap.index(max(overlap))
    if best == 0 or overlap[best] < 2:
        return None
    before, rest = " ".join(sentences[:best]), " ".join(sentences[best:])
    return (before, rest) if min(len(before), len(rest)) >= 20 else None


def make_dates(count: int, rng: random.Random) -> list[str]:
    """Moments in the forms that chats and transcripts write."""
    forms = ("%I:%M %p on %d %B, %Y", "%d.%m.%Y, %H:%M:%S", "%B-%d-%Y", "%Y/%m/%d (%a) %H:%M", "%Y-%m-%d", "%B %d, %Y")
    first = datetime.datetime(2015, 1, 1)
    moments = (first + datetime.timedelta(minutes=rng.randrange(11 * 365 * 24 * 60)) for _ in range(count))
    return [moment.strftime(rng.choice(forms)) for moment in moments]
