"""Rules that find texts worth remembering in the user's own turns of a conversation.

Requests to remember, standing rules, corrections, decisions, preferences, and who people are. Pure."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from triskele.curation.wording import WordKind, content, words
from triskele.privacy.findings import Finding, lowered
from triskele.text.statements import POINTING, REPORTED, is_statement, statement
from triskele.text.words import SENTENCE_END
from triskele.types import SpokenTurn

# The dial: from which confidence on a candidate is stored, and from which on it waits for a review.
DIALS = {"strict": (0.9, 2.0), "normal": (0.8, 0.6), "all": (0.5, 0.4)}
# Facts mentioned in passing are kept only at the dial `all`.
_IN_PASSING = 0.55
_PASSED = "told in passing"
_LONGEST = 400
_LEAST_WORDS = 2
SKIP_MARKER = "#no-memory"
_OFF_THE_RECORD = re.compile(r"off the record|(?:do not|don['’]t) (?:remember|store|save|keep) (?:this|that)\b", re.I)
_FENCED = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`(?=\s*$)", re.DOTALL)
_PASTED = re.compile(r"^(?:>|\t| {4}|\S*\d{2}:\d{2}:\d{2}|\s*(?:at|File) \S|\s*<).*$", re.MULTILINE)
_SENTENCE = re.compile(SENTENCE_END)


@dataclass(frozen=True, slots=True)
class CapturedText:
    """A text worth keeping, with the rule that found it."""

    text: str
    rule: str
    category: str
    confidence: float
    turn: SpokenTurn
    needs_review: bool = False


_VAGUE = re.compile(r"(?:it|that|this|they|he|she|there|those|these)\b", re.IGNORECASE)


def capture(turns: Iterable[SpokenTurn]) -> list[CapturedText]:
    """The texts worth keeping, in order; none of a marked session."""
    captured: dict[str, CapturedText] = {}
    for turn in on_record(turns):
        for sentence in own_sentences(turn.text) if turn.role == "user" else ():
            candidate = _candidate(sentence, turn)
            for captured_text in [candidate] if candidate is not None else _told(sentence, turn):
                captured.setdefault(captured_text.text.casefold(), captured_text)
    return list(captured.values())


def on_record(turns: Iterable[SpokenTurn]) -> list[SpokenTurn]:
    """The turns that may be learned from: typed, in no session with the skip marker, not off the record.

    The answer to a turn that is off the record is left out too.
    """
    typed = [turn for turn in turns if turn.is_typed]
    skipped = marked_sessions(typed)
    recorded, is_off = [], False
    for turn in typed:
        if turn.role == "user":
            is_off = _OFF_THE_RECORD.search(turn.text) is not None
        if not is_off and turn.session not in skipped:
            recorded.append(turn)
    return recorded


def marked_sessions(turns: Iterable[SpokenTurn]) -> set[str]:
    """The sessions that the user marked to be left out."""
    return {turn.session for turn in turns if turn.role == "user" and turn.is_typed and SKIP_MARKER in turn.text}


def own_sentences(text: str) -> list[str]:
    """A text without code and pasted output."""
    own = _PASTED.sub("", _FENCED.sub("\n", text))
    return [" ".join(part.split()) for part in _SENTENCE.split(own) if part.strip()]


def _candidate(sentence: str, turn: SpokenTurn) -> CapturedText | None:
    if len(sentence) > _LONGEST or not is_statement(sentence):
        return None
    rule, fact = statement(sentence)
    if rule is None or len(content(words(fact))) < _LEAST_WORDS:
        return None
    confidence = rule.confidence - (0.3 if _VAGUE.match(fact) else 0.0)
    return CapturedText(_capitalised(fact), rule.name, rule.category, round(confidence, 2), turn)


def _told(sentence: str, turn: SpokenTurn) -> list[CapturedText]:
    """What a sentence states besides its question."""
    if len(sentence) > _LONGEST or re.search(f"{REPORTED}|{POINTING}", sentence, re.IGNORECASE):
        return []
    return [CapturedText(_capitalised(each), _PASSED, "facts", _IN_PASSING, turn) for each in asides(sentence)]


def _capitalised(text: str) -> str:
    first = text.split(" ", 1)[0]
    # A name such as pnpm or eBay keeps its letters.
    return text if not first.islower() or not first.isalpha() else text[0].upper() + text[1:]


def secrets_from_turn(captured: CapturedText, secrets: Sequence[Finding]) -> Iterator[Finding]:
    """The secrets of the turn that reach into a captured text."""
    if not secrets:
        return
    text, places = _without_spaces(captured.text)
    own, own_places = _without_spaces(captured.turn.text)
    starts = [match.start() for match in re.finditer(f"(?={re.escape(text)})", own)]
    for secret in secrets:
        if not starts:
            # The wording is new, so any part of it may repeat the secret.
            yield replace(secret, start=0, end=len(captured.text))
        for start in starts:
            first, end = (bisect_left(own_places, place) - start for place in (secret.start, secret.end))
            first, end = max(first, 0), min(end, len(places))
            if first < end:
                yield replace(secret, start=places[first], end=places[end - 1] + 1)


def _without_spaces(text: str) -> tuple[str, list[int]]:
    """The text in lower case without spaces, and each character's position."""
    low = lowered(text)
    places = [place for place, character in enumerate(low) if not character.isspace()]
    return "".join(low[place] for place in places), places


def sorted_out(candidates: Sequence[CapturedText], dial: str) -> tuple[list[CapturedText], list[CapturedText]]:
    """The texts to store and to propose at one dial setting."""
    stored, proposed = DIALS[dial]
    keep = [each for each in candidates if each.confidence >= stored and not each.needs_review]
    return keep, [each for each in candidates if proposed <= each.confidence and each not in keep]


# Facts that a sentence mentions in passing

_LEAST_ASIDE_WORDS = 3
_ASKING = (
    r"(?:can|could|would|will|do|does|did|should|is|are|how|what|which|where|why|when|any)"
    r" (?:you|i|we|it|there|they|the|to|should|do|can|are|is|my|some|that|else|much|many|long|tips|advice)\b"
    r"|i(?:['’]m| am) (?:\w+ )?(?:not sure|wondering|worried|curious|trying|looking|thinking|hoping|struggling)\b"
    r"|i (?:was wondering|want|need|wonder|think|hope|guess|don['’]t know|would like)\b|i['’](?:d like|ll|d love)\b"
)
# Where a clause ends and a question, or another clause about the person, begins.
_BREAK = re.compile(
    rf"(?:\s*[,;:]|\s+[-–—])\s+(?=(?:(?:and|but|so|or) )?(?:{_ASKING}))"
    r"|(?:,?\s+|\s+[-–—]\s+)(?:and|but|so|because|especially since|since|now that|although|though|while)\s+"
    rf"(?=(?:(?:my|our|i['’]ve|i have|i)\b|{_ASKING}))"
    r"|\s+(?=(?:can|could|would) you\b)",
    re.IGNORECASE,
)
_ASIDE_OPENING = re.compile(
    r"\A(?:(?:by the way|btw|also|actually|anyway|and|but|so|well|oh|yeah|yes|hi|hey|hmm|speaking of (?:which|that)|"
    r"now that|especially since|since|because|for example|in fact|just to confirm|recently|lately)\b[,!]?\s+)+",
    re.IGNORECASE,
)
_OFTEN = r"(?:just |also |already |recently |currently |now |usually |typically |always |never |only |actually |even )*"
_TELLS = re.compile(
    rf"\A(?:i(?:['’]ve| have) {_OFTEN}(?!to\b|been (?:thinking|trying|wondering|looking|meaning)\b)\w+ .+"
    rf"|(?:my|our) (?:[\w'’-]+ ){{1,6}}?{_OFTEN}(?:is|are|was|were|has|have|had|\w+s|\w+ed|went|ran|took|got) .+"
    rf"|(?:i|we) {_OFTEN}(?:have|had|use|live|work|own|play|take|took|go|went|wake|got|get|bought|met|ran|run|study"
    r"|speak|collect|drive|drove|spent|pay|paid|read|made|make|eat|ate|drink|drank|prefer|love|like|enjoy|hate|grew|was"
    r"|teach|taught|swim|bike|cook|write|wrote|won|lost|found|sold|left|gave|sing|paint|keep|do(?:n['’]t)?|\w{3,}ed) .+"
    rf"|i(?:['’]?m| am) {_OFTEN}(?:allergic|an?|the|from|in|on|married|engaged|vegetarian|vegan|training|studying"
    r"|working|living|learning|taking|reading|watching|playing|using|\d+)\b.+)",
    re.IGNORECASE | re.DOTALL,
)
# Wishes and feelings of the moment are not worth keeping.
_PASSING = re.compile(
    r"\A(?:i|we) (?:\w+ )?(?:love|like) (?:the idea|that|this|it|to|how|your)\b|\bi would\b|\bsounds?\b"
    r"|\A(?:i|we) was (?:thinking|wondering|hoping)\b|\b(?:these|those) \w+!\Z"
    r"|\A(?:i|we) (?:\w+ )?(?:wanted|wished|hoped|needed|agreed|noticed that you|tried to|got it)\b",
    re.IGNORECASE,
)


# A plan or a worry is worth keeping if it names something: a number, a day, a person.
_OWN = re.compile(r"\b(?:i|my|our|we)\b", re.IGNORECASE)
_SPECIFIC = frozenset({WordKind.NUMBER, WordKind.DATE, WordKind.NAME})


def asides(sentence: str) -> list[str]:
    """The clauses of a sentence that state something about the writer."""
    clauses = [_ASIDE_OPENING.sub("", clause.strip(" ,;-–—")) for clause in _BREAK.split(sentence)]
    statements = [clause.strip(" ,;") for clause in clauses if not clause.rstrip().endswith("?")]
    return [clause for clause in statements if _is_aside(clause)]


def _is_aside(clause: str) -> bool:
    terms = content(words(clause))
    if len(terms) <= _LEAST_ASIDE_WORDS or _PASSING.search(clause):
        return False
    is_specific = any(word.kind in _SPECIFIC for word in terms) and _OWN.search(clause) is not None
    return is_specific or _TELLS.match(clause) is not None
