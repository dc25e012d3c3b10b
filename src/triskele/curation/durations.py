"""Decide whether a text is a lasting statement: a subject that means the same out of context, and a verb.

Chatter, wishes, questions and facts of the moment are not; only a lasting one replaces another text unreviewed."""

from __future__ import annotations

import re
from itertools import pairwise

from triskele.curation.slots import PRESENT
from triskele.curation.wording import ComparedWord, WordKind, Words
from triskele.text.words import fold

# A subject that is clear only in its conversation.
_POINTING = frozenset(
    """it its that thats this these those there here they theyre he hes she shes you youre your yours who what why how
    where when which someone something everything everyone one if unless whether""".split()
)
# What people say to each other without stating anything.
_CHATTER = frozenset(
    """hey hi hello wow yeah yes yep yup no nope nah haha hahaha lol omg ok okay oh ooh ah aww hmm sure thanks thank
    thx congrats congratulations sorry good great nice best well cool awesome amazing sounds sound looks look glad
    happy hope bye welcome cheers appreciate exactly absolutely definitely totally right true not so but and or
    because give tell show explain list provide help suggest create generate rewrite summarize describe make find
    compare translate continue maybe perhaps probably can't cant cannot let's lets been got getting miss wish
    wishing see way same however furthermore moreover additionally conversely ultimately overall finally therefore thus
    meanwhile otherwise instead then also enjoy""".split()
)
# Rules are often written as commands.
_COMMANDS = frozenset(
    """use never always do don please write run put avoid prefer deploy test name store keep log tag squash ship review
    commit add set format call send ask pin""".split()
)
_FINITE = frozenset(
    """is are was were am be has have had do does did can could will would shall should may might must needs means
    gets became got went moved left""".split()
)
_FIRST_PERSON = r"(?:i|we)(?:['’](?:m|re|ve|d|ll))?"
_OF_THE_MOMENT = re.compile(
    # Thoughts, wishes and possibilities.
    rf"\A{_FIRST_PERSON} (?:(?:just|really|still|do|also|kinda|honestly|actually) |(?:do|can|could|would) ?n['’o]t )*"
    r"(?:guess|think|thought|know|knew|hope|wish|want|wanted|wanna|would|could|might|may|feel|felt|mean|see|saw|wonder"
    r"|believe|suppose|bet|understand|agree|remember|forgot|wait|gonna|plan|need|hear|heard|like to|love to|look)\b"
    rf"|\A(?:i|we)['’]ll\b|\A(?:i|we)(?:['’]ve| have) been (?:meaning|thinking|wondering|looking|trying|feeling)\b"
    # Present states and activities.
    rf"|\A(?:i['’]m|im|we['’]re|i am|we are|my \w+ is|our \w+ is) (?:not |just |still |also |currently |always )*"
    r"(?:so|very|really|too|pretty|eager|confident|interested|here|back|home|sure|sorry|glad|happy|sad|tired|excited|proud|ready|busy|down|up|at"
    r"|(?!working|living|studying|learning|taking|using|training)\w+ing)\b"
    r"|\b(?:tonight|yesterday|right now|this (?:morning|afternoon|evening|week|weekend|month|year)"
    r"|last (?:night|week|weekend|month|year|summer|winter)|the other day|ago|just now)\b",
    re.IGNORECASE,
)
_LONGEST_SUBJECT = 8
_SHORT = 3
# A piece of a document or program: its subject is in another part.
_FRAGMENT = re.compile(
    r"\A\s*(?:#{1,6}\s|[-+•>|]\s|\*|__|~~~|//|[{}\[\]<$\"'`“‘])|[:;,{}=\\|]\s*\Z|\*\*\s*\Z"
    r"|\w\(.*\)[;,]?\s*\Z|\A[^\s:]+: *[\[{]"
)


def is_lasting(text: str, sequence: Words) -> bool:
    """Whether a text, and its words, state something that lasts."""
    spoken = [word for word in sequence if word.kind is not WordKind.MARK]
    if (
        not spoken
        or "?" in text
        or text.rstrip().endswith("!")
        or _OF_THE_MOMENT.search(text)
        or _FRAGMENT.search(text)
    ):
        return False
    if all(map(_is_of_title, spoken)):
        return False
    first = fold(re.sub(r"['’]\w+$", "", spoken[0].text))
    if first in _POINTING or first in _CHATTER:
        return False
    if first in _COMMANDS:
        # "Keep it up", "do that".
        following = fold(spoken[1].text) if len(spoken) > 1 else "me"
        is_request = first in ("write", "name") and following in ("a", "an")
        return not is_request and following not in _POINTING | {"up", "me", "us"}
    return has_verb(spoken)


def _is_of_title(word: ComparedWord) -> bool:
    """Whether a word is written as in a title."""
    is_small = len(word.text) <= _SHORT and word.text not in _FINITE and word.form not in PRESENT
    return is_small or not word.text[0].islower()


def has_verb(said: Words) -> bool:
    """Whether a finite verb follows a subject."""
    for before, word in pairwise(said[: _LONGEST_SUBJECT + 1]):
        form = fold(word.text)
        # "3 hours" and "Lamp Posts" hold no verb.
        is_guessed = before.kind is not WordKind.NUMBER and word.text[0].islower() and _looks_finite(form)
        if fold(before.text) != "to" and (form in _FINITE or word.form in PRESENT or is_guessed):
            return True
    return bool(re.search(r"['’](?:s|m|re|ve|ll|d)$", said[0].text)) or _looks_finite(fold(said[0].text))


def _looks_finite(form: str) -> bool:
    """ "deploys", "reviewed": a verb or plural with its ending."""
    return len(form) > 3 and form.endswith(("s", "ed")) and not form.endswith(("ss", "us", "is"))
