"""Facts that a sentence mentions in passing."""

from __future__ import annotations

import re

from triskele.curation.wording import WordKind, content, words

_LEAST_WORDS = 3
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
_OPENING = re.compile(
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


def told(sentence: str) -> list[str]:
    """The clauses of a sentence that state something about the writer."""
    clauses = [_OPENING.sub("", clause.strip(" ,;-–—")) for clause in _BREAK.split(sentence)]
    statements = [clause.strip(" ,;") for clause in clauses if not clause.rstrip().endswith("?")]
    return [clause for clause in statements if _is_told(clause)]


def _is_told(clause: str) -> bool:
    terms = content(words(clause))
    if len(terms) <= _LEAST_WORDS or _PASSING.search(clause):
        return False
    is_specific = any(word.kind in _SPECIFIC for word in terms) and _OWN.search(clause) is not None
    return is_specific or _TELLS.match(clause) is not None
