"""Recognise two texts about one thing that give another amount, or of which one negates the other.

The budget "is $65" and was "raised to $75". Pure, and never sure: the findings are only proposed."""

from __future__ import annotations

from triskele.curation.wording import ComparedWord, WordKind, Words, content, stem

_LEAST_SHARED = 2
_LEAST_OVERLAP = 0.6
# They say little about what is counted.
_PLAIN = frozenset(
    stem(word)
    for word in """i i've i'm i'd i'll we we've we're our us my me it so as get got more about around total recently
    currently want try look make sure need help plan set start kinda gonna stressed worried frustrated overwhelmed
    excited considering thinking managed finally already also which that's increased adjusted extended reduced raised
    lowered improved reached added month monthly week weekly daily year annual""".split()
)
# A date or a year is a time, not an amount.
_WHEN = frozenset(
    map(stem, "january february march april may june july august september october november december".split())
)
# "Two days ago" is a time, too.
_DISTANCES = frozenset(map(stem, "ago later earlier before".split()))
_UNITS = "$€%"


def other_amount(before: Words, after: Words) -> tuple[str, str] | None:
    """The differing amounts of one thing in equal units, if any."""
    old, new = _amounts(before), _amounts(after)
    changed = [unit for unit in old.keys() & new.keys() if old[unit] != new[unit]]
    if len(old) != 1 or len(new) != 1 or not changed or not are_about_one_thing(before, after):
        return None
    return old[changed[0]], new[changed[0]]


def is_denied(before: Words, after: Words) -> bool:
    """Whether one of two texts negates with "never" what the other states."""
    counts = [sum(word.form == "never" for word in text) for text in (before, after)]
    return sorted(counts) == [0, 1] and are_about_one_thing(before, after)


def _amounts(sequence: Words) -> dict[str, str]:
    """The numbers of a text by unit; ambiguous units are left out."""
    amounts: dict[str, set[str]] = {}
    for position, word in enumerate(sequence):
        following, after = [*sequence[position + 1 : position + 3], None, None][:2]
        is_distance = after is not None and after.form in _DISTANCES
        if word.kind is WordKind.NUMBER and word.text != "%" and not is_distance and (unit := _unit(word, following)):
            amounts.setdefault(unit, set()).add(word.form)
    return {unit: min(numbers) for unit, numbers in amounts.items() if len(numbers) == 1}


def _unit(word: ComparedWord, following: ComparedWord | None) -> str:
    if word.text[:1] in _UNITS:
        return word.text[0]
    if following is None or following.form in _WHEN or following.kind in (WordKind.MARK, WordKind.LINKING):
        return ""
    return following.form


def are_about_one_thing(before: Words, after: Words) -> bool:
    """Whether most content words of one text are in the other."""
    old, new = _telling(before), _telling(after)
    shared = old & new
    return len(shared) >= _LEAST_SHARED and len(shared) / min(len(old), len(new)) >= _LEAST_OVERLAP


def _telling(sequence: Words) -> set[str]:
    return {word.form for word in content(sequence) if word.kind is not WordKind.NUMBER} - _PLAIN
