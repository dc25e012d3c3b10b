"""Compares two texts by rules: same fact, more, or another value.

A rule that is unsure says so by its confidence: below `SURE` nothing is changed without a person or a language model.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from triskele.curation.amounts import are_about_one_thing, is_denied, other_amount
from triskele.curation.durations import is_lasting
from triskele.curation.slots import (
    CLAUSES,
    PRESENT,
    are_one_name,
    may_be_one_name,
    one_difference,
    slot_confidence,
    turns_to_past,
    value_kind,
    without_articles,
)
from triskele.curation.wording import (
    LINKING,
    MOST_WORDS,
    ComparedWord,
    WordKind,
    Words,
    content,
    forms,
    negations,
    words,
)
from triskele.replies.rooms import Rationale
from triskele.text.words import fold
from triskele.types import SURE, Verdict

# From this confidence on a rule counts more than the share of common words.
_LIKELY = 0.6
_UNSURE = 0.7
# What does not last is not worth a proposal.
_PASSING = 0.4
# Fewer words state no fact.
_LEAST_WORDS = 2


@dataclass(frozen=True, slots=True)
class Relation:
    """What a newer text is to an older one."""

    verdict: Verdict
    confidence: float = 0.0
    reasons: tuple[Rationale, ...] = ()

    @property
    def is_sure(self) -> bool:
        """Whether it may be applied without a review."""
        return self.verdict is not Verdict.ADD and self.confidence >= SURE


UNRELATED = Relation(Verdict.ADD)
_CHANGE = frozenset(
    """moved move switched changed replaced replacing raised lowered increased reduced cut postponed extended renamed
    upgraded downgraded promoted migrated rewritten set bumped shifted handed converted""".split()
)
_ENDED = frozenset("stopped removed retired disabled dropped abandoned deprecated cancelled ended quit closed".split())
_ADDITIONS = LINKING | frozenset("(,;:—–.")
_LONGEST_VALUE = 5
_NOW = frozenset({"now", "instead", "anymore"})
# They say that something comes in addition.
_ALSO = frozenset("also too additionally both".split())


def compare(old: str, new: str, cosine: float = math.nan) -> Relation:
    """Compare a newer text with an older one."""
    before, after = words(old), words(new)
    if not content(before) or not content(after):
        return UNRELATED
    if forms(_bare(before)) == forms(_bare(after)):
        return Relation(Verdict.NOOP, 1.0, (Rationale("same words"),))
    if max(len(before), len(after)) > MOST_WORDS:
        return _long_texts(before, after)
    if min(len(content(before)), len(content(after))) < _LEAST_WORDS:
        return UNRELATED
    relations = [relation for rule in _RULES if (relation := rule(before, after)) is not None]
    best = max(relations, key=lambda relation: relation.confidence, default=UNRELATED)
    if best.is_sure and not (_is_one_statement(before) and _is_one_statement(after)):
        return replace(best, confidence=_UNSURE)
    if best.verdict is not Verdict.NOOP and not (is_lasting(old, before) and is_lasting(new, after)):
        best = replace(best, confidence=min(best.confidence, _PASSING))
    if best.confidence >= _LIKELY:
        return best
    doubtful = (_unlike(before, after), best, _resembling(before, after, cosine))
    return max(doubtful, key=lambda relation: relation.confidence)


def _is_one_statement(sequence: Words) -> bool:
    """Whether a text is a single sentence and not a question."""
    return not any(
        word.text == "?" or (word.text in ".!" and sequence[place + 1 :]) for place, word in enumerate(sequence)
    )


def _bare(sequence: Words) -> list[ComparedWord]:
    """Without punctuation, articles and fillers."""
    return [
        word
        for word in sequence
        if word.kind not in (WordKind.MARK, WordKind.FILLER) and word.form not in ("the", "a", "an", "that")
    ]


def _long_texts(before: Words, after: Words) -> Relation:
    """Compare long texts as wholes: nearly equal ones are proposed."""
    alike = SequenceMatcher(None, forms(content(before)), forms(content(after)), autojunk=False).ratio()
    if alike >= 0.9 and _critical(before) == _critical(after) and negations(before) == negations(after):
        return Relation(Verdict.NOOP, 0.8, (Rationale("nearly the same words"),))
    return UNRELATED


def _critical(sequence: Words) -> Counter[str]:
    kinds = (WordKind.NUMBER, WordKind.DATE, WordKind.NAME, WordKind.PLACE)
    return Counter(word.form for word in sequence if word.kind in kinds)


def _reordered(before: Words, after: Words) -> Relation | None:
    """The same content words, in order, moved, in the passive, or mixed."""
    old, new = forms(content(before)), forms(content(after))
    if Counter(old) != Counter(new) or negations(before) % 2 != negations(after) % 2:
        return None
    is_same = any(old[turn:] + old[:turn] == new for turn in range(len(old))) or _is_passive(before, after)
    return Relation(Verdict.NOOP, 0.95 if is_same else 0.6, (Rationale("same words in another order"),))


def _is_passive(before: Words, after: Words) -> bool:
    """Whether one text is the passive form of the other."""
    old, new = forms(content(before)), forms(content(after))
    if _has(before, "by") != _has(after, "by"):
        return any([*old[turn + 1 :], old[turn], *old[:turn]] == new for turn in range(len(old)))
    if _begins_with_we(before) == _begins_with_we(after):
        return False
    if _begins_with_we(before):
        old, new = new, old
    return any(new == [old[turn], *old[:turn], *old[turn + 1 :]] for turn in range(1, len(old)))


def _has(sequence: Words, word: str) -> bool:
    return any(fold(each.text) == word for each in sequence)


def _begins_with_we(sequence: Words) -> bool:
    return fold(sequence[0].text) in ("we", "you")


def _extended(before: Words, after: Words) -> Relation | None:
    """All of the older text, and more after a connecting word."""
    old, new = without_articles(before), without_articles(after)
    plain = [word for word in old if word.kind is not WordKind.MARK]
    matched = 0
    for position, word in enumerate(new):
        if matched < len(plain) and word.form == plain[matched].form:
            matched += 1
        elif matched < len(plain) and word.kind is not WordKind.MARK:
            return None
        elif matched < len(plain):
            continue
        else:
            return _growth(new[position:], new[:position])
    return None


def _growth(added: Words, kept: Words) -> Relation | None:
    text = " ".join(word.text for word in added)
    first = fold(added[0].text)
    if first not in _ADDITIONS or not content(added):
        return Relation(Verdict.UPDATE, 0.4, (Rationale("more words", "", text),))
    listed = first == "and" or added[0].kind is WordKind.MARK
    narrowed = any(word.kind is WordKind.PLACE for word in added) and not listed
    denied = negations(added[:4]) > 0 and not listed
    ended = any(fold(word.text) in _ENDED | {"until", "instead"} for word in added)
    if narrowed or denied or ended or first in ("or", "than", "of", "except", "if", "before", "when"):
        return Relation(Verdict.UPDATE, 0.5, (Rationale("more words", "", text),))
    # One more prepositional phrase may narrow a rule, but a whole clause adds to it.
    return Relation(Verdict.UPDATE, 0.95, (Rationale("the same and more", _said(kept), text),))


def _denied(before: Words, after: Words) -> Relation | None:
    """The same content words, with one text negating the other."""
    reason = Rationale("denied", _said(before), _said(after))
    old = content(before)
    last = _end_of_match(forms(old), after)
    if last is None:
        return _denied_in_general(before, after, reason)
    core, tail = after[: last + 1], after[last + 1 :]
    if negations(core) % 2 == negations(before) % 2:
        return None
    if Counter(forms(content(core))) - Counter(forms(old)):
        return Relation(Verdict.SUPERSEDE, 0.5, (reason,))
    if tail and content(tail) and fold(tail[0].text) not in _ADDITIONS | {"anymore"}:
        return Relation(Verdict.SUPERSEDE, 0.6, (reason,))
    return Relation(Verdict.SUPERSEDE, 0.97, (reason,))


def _denied_in_general(before: Words, after: Words, reason: Rationale) -> Relation | None:
    """A general negation that covers the older text."""
    old, new = forms(content(before)), forms(content(after))
    if negations(before) or negations(after) != 1 or len(new) < 2 or old[: len(new)] != new:
        return None
    is_list = any(fold(word.text) in (",", "and", "or") for word in before)
    return Relation(Verdict.SUPERSEDE, 0.6 if is_list else 0.93, (reason,))


def _end_of_match(old: Sequence[str], after: Words) -> int | None:
    """The position of the last older word, if all occur."""
    left, last = Counter(old), -1
    for position, word in enumerate(after):
        if left.get(word.form, 0) > 0:
            left[word.form] -= 1
            last = position
    return None if any(left.values()) else last


def _stopped(before: Words, after: Words) -> Relation | None:
    """ "We stopped using X", "X has been removed": all words of the older text, with a verb that ends it."""
    ends = [word for word in after if fold(word.text) in _ENDED]
    if not ends or negations(before) != negations(after) or any(fold(word.text) in _ENDED for word in before):
        return None
    old, new = Counter(forms(content(before))), Counter(forms(content(after)))
    missing, extra = old - new, new - old - Counter(forms(ends))
    if not missing:
        return Relation(
            Verdict.SUPERSEDE, 0.95 if not extra else 0.6, (Rationale("ended", _said(before), ends[0].text),)
        )
    return None


def _changed_value(before: Words, after: Words) -> Relation | None:
    """The same subject and the same slot with another value."""
    remaining, rejected = _split_rejected(after)
    is_rejected = bool(rejected) and set(forms(content(rejected))) <= set(forms(before))
    newer = remaining if is_rejected else list(after)
    if negations(before) != negations(newer) or Counter(forms(content(before))) == Counter(forms(content(newer))):
        return None
    if any(fold(word.text) in _ALSO for word in after):
        return None
    difference = one_difference(before, newer)
    if difference is None or not difference.old or not difference.new:
        return None
    old, new = _value(difference.old), _value(difference.new)
    if not old or not new or max(len(old), len(new)) > _LONGEST_VALUE:
        return None
    if are_one_name(old, new):
        return Relation(Verdict.NOOP, _UNSURE, (Rationale("other name", _said(old), _said(new)),))
    reason = Rationale("changed value", _said(difference.old), _said(difference.new))
    if is_rejected and set(forms(content(rejected))) <= {*forms(difference.old), *forms(difference.suffix)}:
        confidence = 0.95 if content(difference.prefix) else 0.6
    else:
        is_marked = not _NOW.isdisjoint(fold(word.text) for word in after)
        confidence = slot_confidence(difference, old, new, is_marked=is_marked)
        confidence = min(confidence, _PASSING) if turns_to_past(before, after) else confidence
    if may_be_one_name(old, new) or any(word.kind is WordKind.PLACE for word in difference.added):
        confidence = min(confidence, 0.5)
    return Relation(Verdict.SUPERSEDE, confidence, (reason,)) if confidence else None


def _value(span: Words) -> list[ComparedWord]:
    return [word for word in span if word.kind not in (WordKind.MARK, WordKind.FILLER)]


def _split_rejected(after: Words) -> tuple[list[ComparedWord], list[ComparedWord]]:
    """The text without "instead of X" or ", not X", and X."""
    texts = [fold(word.text) for word in after]
    for position in range(1, len(texts)):
        is_instead = texts[position : position + 2] == ["instead", "of"]
        is_not = after[position].kind is WordKind.NEGATION and texts[position - 1] in (",", "but", "and")
        if is_instead or is_not:
            end = position + 1 + is_instead
            while end < len(texts) and after[end].kind is not WordKind.MARK and texts[end] not in CLAUSES:
                end += 1
            start = position if is_instead else position - 1
            return [*after[:start], *after[end:]], list(after[position + 1 + is_instead : end])
    return list(after), []


def _moved(before: Words, after: Words) -> Relation | None:
    """ "X was raised to 50 MB", "we switched X from A to B": the older subject, a verb of change and a value."""
    verbs = [place for place, word in enumerate(after) if fold(word.text) in _CHANGE]
    if not verbs or any(fold(word.text) in _CHANGE for word in before):
        return None
    value = _new_value(after)
    if not value:
        return None
    old, new = content(before), content(after)
    gone = Counter(forms(old)) - Counter(forms(new))
    named = _between(after, "from", ("to",))
    reason = Rationale("moved on", _said(before), _said(value))
    extra = Counter(forms(new)) - Counter(forms(old)) - Counter(forms(value))
    extra -= Counter(word.form for word in after if fold(word.text) in _CHANGE)
    extra.pop("from", None)
    if named and {word.form for word in content(named)} <= set(forms(old)) and content(named):
        rest = Counter(forms(old)) - Counter(forms(content(named)))
        repeated = sum(rest.values()) - sum((rest - Counter(forms(new))).values())
        unsaid = rest - Counter(forms(new))
        is_same = not extra and sum(unsaid.values()) <= 1 and (repeated >= 1 or set(unsaid) <= {"use"})
        return Relation(Verdict.SUPERSEDE, 0.95 if is_same else 0.6, (reason,))
    lost = [word for word in old if word.form in gone and word.form not in PRESENT]
    kind = value_kind(value)
    same_kind = bool(lost) and kind is not WordKind.WORD and all(word.kind is kind for word in lost)
    shared = len(old) - sum(gone.values())
    if same_kind and not extra and shared >= 2:
        return Relation(Verdict.SUPERSEDE, 0.93, (reason,))
    return Relation(Verdict.SUPERSEDE, 0.5, (reason,)) if are_about_one_thing(before, after) else None


def _new_value(after: Words) -> list[ComparedWord]:
    """The words after the last "to", "with" or "by"."""
    start = next(position for position, word in enumerate(after) if fold(word.text) in _CHANGE)
    value: list[ComparedWord] = []
    for position in range(start + 1, len(after)):
        if fold(after[position].text) in ("to", "with", "by", "until"):
            value = list(_until_clause(after[position + 1 :]))
    return value


def _until_clause(rest: Words) -> Iterator[ComparedWord]:
    for word in rest:
        if word.kind is WordKind.MARK or fold(word.text) in CLAUSES | {"for", "in", "now"}:
            return
        if word.kind is not WordKind.LINKING:
            yield word


def _between(after: Words, start: str, ends: tuple[str, ...]) -> list[ComparedWord]:
    texts = [fold(word.text) for word in after]
    if start not in texts:
        return []
    position = texts.index(start)
    rest = texts[position + 1 :]
    stop = next((number for number, word in enumerate(rest) if word in ends), None)
    return [] if stop is None else list(after[position + 1 : position + 1 + stop])


def _unlike(before: Words, after: Words) -> Relation:
    """The same thing in other words, with another number or denied in one of the texts: never sure."""
    if (amounts := other_amount(before, after)) is not None:
        return Relation(Verdict.SUPERSEDE, _LIKELY, (Rationale("other amount", *amounts),))
    if is_denied(before, after):
        return Relation(Verdict.SUPERSEDE, _LIKELY, (Rationale("denied", _said(before), _said(after)),))
    return UNRELATED


def _resembling(before: Words, after: Words, cosine: float) -> Relation:
    """Propose a close wording with equal numbers and names as known."""
    old, new = set(forms(content(before))), set(forms(content(after)))
    alike = len(old & new) / max(len(old | new), 1)
    if _critical(before) != _critical(after) or negations(before) % 2 != negations(after) % 2:
        return UNRELATED
    if alike >= 0.6 or (cosine >= 0.9 and alike >= 0.4):
        return Relation(Verdict.NOOP, min(0.85, 0.4 + alike / 2), (Rationale("similar words", f"{alike:.2f}"),))
    return UNRELATED


def _said(sequence: Words) -> str:
    return " ".join(word.text for word in sequence)


_RULES = (_reordered, _extended, _denied, _stopped, _changed_value, _moved)
