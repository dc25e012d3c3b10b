"""The form of a text: a question asks what is stored; a request or remark needs the rules that apply to it."""

from __future__ import annotations

import re

from triskele.text.words import STOP_WORDS

_BARE_WORDS = 3
# Fewer words are rather a title or a search.
_LEAST_REQUEST = 5
_WORD = re.compile(r"\w+")
_ASKS = re.compile(
    r"\?|^\W*(?:in )?(?:who|what|when|where|which|whose|whom|why|how|did|does|do|is|are|was|were|has|have|had|can|could"
    r"|would|will|should)\b",
    re.IGNORECASE,
)
# A question for advice is a request as well, unless it asks for advice that was given before.
_ASKS_ADVICE = re.compile(
    r"\b(?:recommend\w*|suggest(?!ed)\w*|advi[cs]e|tips|ideas?|looking for|for me|help (?:me|us)"
    r"|(?:can|could|should|might) (?:i|we)|(?:i|we) (?:can|could|should|might)|i(?:['’]d| would) (?:like|love)"
    r"|best way to|(?:some|a) (?:good|great|fun|nice)|what are some)\b",
    re.IGNORECASE,
)
_LOOKS_BACK = re.compile(
    r"\b(?:\w+ (?:said|told|mentioned|suggested|recommended|gave)"
    r"|did|was|were|had|has|have|been|remind|remember|previous(?:ly)?|earlier|last)\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?:]['\"”’)]*\s+")


def is_request(text: str) -> bool:
    """Whether a text wants something done or remarks on something, instead of asking what is stored."""
    if _ASKS.search(text):
        return _ASKS_ADVICE.search(text) is not None and _LOOKS_BACK.search(text) is None
    return len(_WORD.findall(text)) >= _LEAST_REQUEST


def is_search(text: str) -> bool:
    """Whether a text is a few words, none of them a stop word."""
    words = _WORD.findall(text.lower())
    return 0 < len(words) <= _BARE_WORDS and STOP_WORDS.isdisjoint(words) and "?" not in text


def start_of_last_sentence(text: str) -> int:
    """Where the last sentence of a text begins."""
    return max((match.end() for match in _SENTENCE_END.finditer(text)), default=0)
