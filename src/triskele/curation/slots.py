"""Find the one span in which two texts differ, and judge whether it is another value of the same slot."""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import NamedTuple

from triskele.curation.wording import OPPOSITES, ComparedWord, WordKind, Words, content, forms, stem
from triskele.text.spellings import is_acronym, same
from triskele.text.words import fold

_VERBS = """
    is are has have run listen live work go take expire begin end cost return leave use keep meet book log ship store
    manage deploy write need report belong point route serve pay drink pair lint track call retry sit stand mean send
    prefer say own lead support plan move study teach sell rent get allow like speak play know offer read follow visit
    close open arrive happen reach contain
"""
PRESENT = frozenset(map(stem, _VERBS.split()))
_PAST = frozenset("was were met visited bought lost went saw had made took got found hired released fixed".split())
# They take one value at a time; what others take, such as likes or supports, may be said of several.
_SINGLE = frozenset(map(stem, "take cost expire return end begin listen live work last weigh pay".split()))
# What one has, needs or supports may be one of several.
_SEVERAL = frozenset(map(stem, "has have need support own like speak play know offer read follow visit".split()))
_QUALIFYING = frozenset("for of about during because except".split())
_TITLES = frozenset("my our the its his her their your".split())
_VERBAL = frozenset("is are was were be".split())
_HELPING = frozenset("is are be been has have had get gets not always only never now".split())
CLAUSES = frozenset("because since instead after as but until so".split())
# Shorter names begin too many others.
_LEAST_PREFIX = 4
_JOINTS = CLAUSES | {"and", "which", "who", "that", "when", "where", "while", "if"}


class Difference(NamedTuple):
    """One replaced span: the common words before it, both values, and the common words after it."""

    prefix: list[ComparedWord]
    old: list[ComparedWord]
    new: list[ComparedWord]
    suffix: list[ComparedWord]
    added: list[ComparedWord]


def one_difference(before: Words, after: Words) -> Difference | None:
    """The only span in which two texts differ; more words at the end of the newer one may follow."""
    old, new = without_articles(before), [w for w in without_articles(after) if w.kind is not WordKind.FILLER]
    old = [word for word in old if word.kind is not WordKind.FILLER]
    matcher = SequenceMatcher(None, forms(old), forms(new), autojunk=False)
    steps = [step for step in matcher.get_opcodes() if step[0] != "equal"]
    added: list[ComparedWord] = []
    if steps and steps[-1][0] == "insert" and steps[-1][1] == len(old) and len(steps) > 1:
        added = new[steps[-1][3] :]
        new = new[: steps[-1][3]]
        steps = steps[:-1]
    if not steps:
        return None
    start, end, first, last = steps[0][1], steps[-1][2], steps[0][3], steps[-1][4]
    prefix, suffix = old[:start], old[end:]
    if not suffix and not added:
        value, rest = _cut(new[first:last])
        return Difference(prefix, old[start:end], value, suffix, rest)
    return Difference(prefix, old[start:end], new[first:last], suffix, added)


def _until_mark(sequence: Words) -> list[ComparedWord]:
    """The words up to the next clause."""
    ends = (place for place, word in enumerate(sequence) if word.kind is WordKind.MARK or fold(word.text) in _JOINTS)
    return list(sequence[: next(ends, len(sequence))])


def _cut(span: list[ComparedWord]) -> tuple[list[ComparedWord], list[ComparedWord]]:
    """A value and what a comma, a bracket or a clause adds to it."""
    for position, word in enumerate(span):
        if position and (word.text in (",", ";", "(", "—", "–") or fold(word.text) in CLAUSES):
            return span[:position], span[position:]
    return span, []


def without_articles(sequence: Words) -> list[ComparedWord]:
    """The words without articles and the ends of sentences."""
    return [word for word in sequence if word.form not in ("the", "a", "an") and word.text not in ".!?"]


class _Slot(NamedTuple):
    """The position of a value: its verb, the words between, the preposition before it, and the kinds of both values."""

    verb: str
    between: list[ComparedWord]
    preposition: str
    kind: WordKind
    is_of_one_kind: bool

    @property
    def told(self) -> list[ComparedWord]:
        """The words between the verb and the value."""
        return content(self.between)


def slot_confidence(
    difference: Difference, old: list[ComparedWord], new: list[ComparedWord], *, is_marked: bool
) -> float:
    """How sure it is that both values fill the same slot of the same subject; `is_marked` texts say "now"."""
    prefix = difference.prefix
    if _are_opposites(old, new):
        return 0.95 if prefix else 0.6
    if prefix and _predicate([*prefix[:1], *_until_mark(difference.suffix)]) is not None:
        # The verb follows: the span belongs to the subject, and distinguishes two things.
        return 0.3
    verb = _predicate(prefix)
    if verb is None:
        return _holder_confidence(difference, old, new, is_marked)
    if _is_past(prefix[: verb + 1]) and not is_marked:
        return 0.4
    slot = _slot(prefix[verb:], old, new)
    if not slot.is_of_one_kind or slot.kind is WordKind.PLACE:
        return 0.6 if is_marked else 0.3
    return _value_confidence(slot, difference, old, new, is_marked)


def _is_past(clause: Words) -> bool:
    """Whether a clause up to its verb describes a single past event."""
    return any(fold(word.text) in _PAST for word in clause) or _is_finished(clause, len(clause) - 1)


def _is_finished(sequence: Words, position: int) -> bool:
    """Whether a verb is in the past: "is deployed" and "has moved" are not."""
    text, before = fold(sequence[position].text), fold(sequence[position - 1].text) if position else ""
    return text.endswith("ed") and sequence[position].form != text and before not in _HELPING


def turns_to_past(before: Words, after: Words) -> bool:
    """Whether the newer text says in the past what the older one says in the present: "lives" and "lived"."""
    past = {word.form for place, word in enumerate(after) if _is_finished(after, place)}
    return any(word.form in past and not fold(word.text).endswith("ed") for word in before)


def _slot(predicate: Words, old: Words, new: Words) -> _Slot:
    between = list(predicate[1:])
    preposition = fold(between[-1].text) if between and between[-1].kind is WordKind.LINKING else ""
    if not preposition and old[0].kind is WordKind.LINKING and new[0].form == old[0].form:
        preposition = old[0].form
    kinds = value_kind(old), value_kind(new)
    kind = WordKind.NAME if kinds[0] is WordKind.NUMBER and _names(old) != _names(new) else kinds[0]
    return _Slot(predicate[0].form, between, preposition, kind, kinds[0] is kinds[1])


def _names(span: Words) -> list[str]:
    """The names of a value: "Postgres 14" and "Postgres 16" differ only in the number."""
    return [word.form for word in span if word.kind is WordKind.NAME]


def _value_confidence(slot: _Slot, difference: Difference, old: Words, new: Words, is_marked: bool) -> float:
    is_number = slot.kind is WordKind.NUMBER
    if slot.preposition in _QUALIFYING and not (slot.preposition == "for" and is_number):
        return 0.3
    if not is_number and any(word.kind in (WordKind.NAME, WordKind.NUMBER) for word in slot.told):
        return 0.5
    if slot.kind is WordKind.WORD or _has_predicate(old) or _has_predicate(new):
        return 0.6 if is_marked else 0.4
    if slot.verb in _SEVERAL and (slot.told or not (slot.preposition or is_number)):
        return 0.5
    if is_marked:
        return 0.95 if slot.preposition or is_number or _is_single(difference, slot.verb) else 0.6
    return _number_confidence(slot) if is_number else _name_confidence(slot, difference)


def _number_confidence(slot: _Slot) -> float:
    """The number of a ticket or a room identifies a thing; that of a limit is a value."""
    is_label = bool(slot.told) and not any(word.kind is WordKind.LINKING for word in slot.between)
    return 0.5 if is_label and slot.verb not in (*_SINGLE, "is", "are") else 0.93


def _name_confidence(slot: _Slot, difference: Difference) -> float:
    if not slot.told and not slot.preposition:
        return 0.95 if _is_single(difference, slot.verb) else 0.5
    if slot.told and slot.kind is WordKind.DATE:
        return 0.5
    return 0.93 if slot.preposition else 0.5


def _has_predicate(span: Words) -> bool:
    """Whether a span is more than a value: words, and a preposition that leads to the value."""
    return any(word.kind is WordKind.LINKING and fold(word.text) != "and" for word in span[1:])


def _predicate(prefix: Words) -> int | None:
    """The position of the verb: a subject comes before it."""
    for position, word in enumerate(prefix):
        if position and (word.form in PRESENT or fold(word.text) in _VERBAL | _PAST):
            return position
    return None


def _is_single(difference: Difference, verb: str) -> bool:
    """Whether the verb takes one value at a time."""
    if verb in _SINGLE:
        return True
    subject = difference.prefix[: _predicate(difference.prefix)]
    is_definite = bool(subject) and (
        fold(subject[0].text) in _TITLES or any(word.text.endswith(("'s", "’s")) for word in subject)
    )
    if verb in ("is", "are"):
        return is_definite or len(content(subject)) >= 2
    return verb == "use" and any(fold(word.text) == "for" for word in difference.suffix)


def _holder_confidence(difference: Difference, old: Words, new: Words, is_marked: bool) -> float:
    """ "X is my dentist": the value comes first, and the rest names a role that one holds."""
    rest = difference.suffix
    if difference.prefix or not rest or not is_marked:
        return 0.0
    if fold(rest[0].text) in _VERBAL and len(rest) > 1 and fold(rest[1].text) in _TITLES:
        return 0.93
    return 0.5 if value_kind(old) is value_kind(new) else 0.0


def value_kind(span: Words) -> WordKind:
    """The kind of a value: its number, else its date, else its name; places identify things."""
    for kind in (WordKind.PLACE, WordKind.NUMBER, WordKind.DATE, WordKind.NAME):
        if any(word.kind is kind for word in span):
            return kind
    return WordKind.WORD


def are_one_name(old: Words, new: Words) -> bool:
    """Whether two values are names of one thing by their form: "GitHub Actions" and "Github actions", an acronym."""
    one, other = (" ".join(word.text for word in span) for span in (old, new))
    return bool(_names(old) and _names(new)) and (
        same(one, other) is not None or is_acronym(one, other) or is_acronym(other, one)
    )


def may_be_one_name(old: Words, new: Words) -> bool:
    """Whether a name begins with the other one: "Mongo" and "MongoDB", but also "Java" and "JavaScript"."""
    if len(old) != 1 or len(new) != 1 or not value_kind(old) is value_kind(new) is WordKind.NAME:
        return False
    short, long = sorted((fold(old[0].text), fold(new[0].text)), key=len)
    return len(short) >= _LEAST_PREFIX and long.startswith(short) and long[len(short) :].isalpha()


def _are_opposites(old: Words, new: Words) -> bool:
    old_texts, new_texts = [fold(word.text) for word in old], [fold(word.text) for word in new]
    return len(old_texts) == len(new_texts) == 1 and frozenset((old_texts[0], new_texts[0])) in OPPOSITES
