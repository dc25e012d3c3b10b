"""English sentences that state something worth keeping, and the category that each form has."""

from __future__ import annotations

import re
from typing import NamedTuple

from triskele.text.words import SENTENCE_END

# Patterns are compiled at their first use, because every process imports this module.


class Rule(NamedTuple):
    """A form of sentences; the group `fact` of its pattern is what to keep."""

    name: str
    category: str
    confidence: float
    pattern: str


_WE = r"(?:we|our \w+|the team|in this (?:project|repo|repository|team),? we)"
_DECIDED = r"(?:decided|agreed|chose|settled on|switched|moved|migrated|no longer|stopped|will no longer|dropped)"
_KIN = r"(?:manager|boss|lead|wife|husband|partner|daughter|son|sister|brother|mother|father|team|doctor|dentist)"
ASKED = "asked to remember"
# Tried in this order; the first that fits decides.
STATEMENT_RULES = (
    Rule(
        ASKED,
        "facts",
        0.95,
        r"(?:please |and |also )*(?:remember|note|keep in mind|don['’]t forget|do not forget|for the record|fyi"
        r"|for future reference|take note)(?: (?:that|my preference|this))*\s*[,:]?\s+(?!to )(?P<fact>.+)",
    ),
    Rule(
        "standing rule",
        "preferences",
        0.95,
        r"(?:please )?(?:from now on|going forward|in (?:the )?future|henceforth),?\s+(?P<fact>.+)",
    ),
    Rule("standing rule", "preferences", 0.9, r"(?:please )?(?P<fact>(?:always|never) \w+.+)"),
    Rule("standing rule", "preferences", 0.85, r"(?P<fact>(?:do not|don['’]t) (?:use|write|add|put|push|commit) .+)"),
    Rule(
        "correction",
        "facts",
        0.85,
        r"(?:no|nope|wrong|actually|not quite|that['’]s (?:wrong|not right))[,.!:]?\s+(?:actually,? )?"
        r"(?P<fact>we (?!can\b|could|should|need to|have to|must|want)\w+ .+"
        r"|(?:our|the|my|they|i)\b(?! other\b| one\b).*\b(?:is|are|was|were|use|uses|live|lives|run|runs|has|have"
        r"|prefer|write|keep|want|goes|starts)\b.+)",
    ),
    Rule("decision", "decisions", 0.9, rf"(?P<fact>{_WE} (?:have |had |just |now )?{_DECIDED}\b.+)"),
    Rule("preference", "preferences", 0.9, r"(?P<fact>i (?:really |always |generally )?prefer .+)"),
    Rule("preference", "preferences", 0.85, r"(?P<fact>i(?:['’]d| would) rather .+)"),
    Rule(
        "preference",
        "preferences",
        0.85,
        r"(?P<fact>i (?:hate|dislike|love|can['’]t stand|never want)\b(?! (?:it|this|that)[.,!]*$).+)",
    ),
    Rule("who someone is", "people", 0.9, r"(?P<fact>my name is \w.+)"),
    Rule("who someone is", "people", 0.85, rf"(?P<fact>my {_KIN} (?:\w+ )?(?:is|are|lives|works|starts|has)\b.+)"),
    Rule("who someone is", "people", 0.85, r"(?P<fact>i work (?:at|for|as|in|with) .+)"),
    Rule("who someone is", "people", 0.85, r"(?P<fact>i(?:['’]m| am) (?:allergic to|vegetarian|vegan|the|an?) \w.+)"),
    Rule(
        "who someone is",
        "people",
        0.85,
        r"(?P<fact>(?-i:[A-Z]\w+) (?:is (?:our|my|the (?:new )?)|leads |owns |manages |maintains |reports to )\w?.+)",
    ),
    Rule("what we do", "facts", 0.8, rf"(?P<fact>{_WE} (?:always |never |only )?(?:use|write|deploy|keep|test)\b.+)"),
    Rule("what we do", "facts", 0.7, r"(?P<fact>our [\w -]+? (?:is|are|runs?|lives?|changes?|starts?|ends?)\b.+)"),
)
_QUESTION = (
    r"\?\s*$|^(?:can|could|would|should|shall|do|does|did|is|are|was|were|will|why|how|what|when|where|who|which)\b"
    r"(?! not\b)"
)
_SUPPOSED = (
    r"\b(?:if (?:we|i|you|it|our)|what if|suppose|imagine|let['’]s say|maybe|perhaps|probably|might|i think|i guess"
    r"|not sure|should (?:we|i)|could (?:we|i))\b"
)
# Words that tell a person from a tool: "Marta leads …", not "Redis is our …".
_PERSON = r"\b(?:i|my|leads|reports to|manager|boss|lead|owner|founder|designer|developer|engineer|lawyer|doctor)\b"
# It points at what only this conversation shows.
POINTING = (
    r"\b(?:this|that|these|those) (?:file|function|test|class|line|one|error|bug|branch|commit|diff|pr|variable|method"
    r"|change|approach|code)\b|\bline \d+|\b(?:above|below)\b|\boption [A-Z0-9]\b"
)
REPORTED = r"\b(?:he|she|they|it|error|log|message|page) (?:said|says|wrote|claims)\b"
_QUOTED = r"[\"“”].{3,}?[\"“”]"


def is_statement(sentence: str) -> bool:
    """Whether a sentence is a statement, not a question, supposition or quotation."""
    patterns = (_QUESTION, _SUPPOSED, POINTING, REPORTED, _QUOTED)
    return not any(re.search(pattern, sentence, re.IGNORECASE) for pattern in patterns)


def statement(sentence: str) -> tuple[Rule | None, str]:
    """The first rule that a sentence fits, and the fact that it states."""
    for rule in STATEMENT_RULES:
        if (match := re.match(rule.pattern, sentence, re.IGNORECASE)) is not None:
            return rule, match["fact"].strip(" ,:;-")
    return None, ""


def stated_category(text: str) -> str | None:
    """The category of the statement that a text begins with, if a rule fits."""
    sentence = re.split(SENTENCE_END, text.strip(), maxsplit=1)[0]
    rule, fact = statement(sentence) if is_statement(sentence) else (None, "")
    if rule is None or (rule.category == "people" and re.search(_PERSON, fact, re.IGNORECASE) is None):
        return None
    return stated_category(fact) if rule.name == ASKED else rule.category
