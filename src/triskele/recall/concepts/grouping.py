"""Joining and parting names by hand, and reading everything anew without losing what was decided so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from triskele.index.entity_linking import read_names
from triskele.index.lexical import LexicalIndex
from triskele.index.mentions import MentionIndex
from triskele.recall.concepts.view import Concept, View
from triskele.stores.protocol import BY_HAND, Merge, Name, Store


@dataclass(frozen=True, slots=True)
class Regrouped:
    """The names that were joined to a concept, or left one; none where it was so already."""

    names: tuple[str, ...]
    concept: Concept


def merge(view: View, one: str, other: str) -> Regrouped:
    """Let all names of one concept stand for the other from now on."""
    moving, target = view.find(one), view.find(other)
    concept = view.concept(target)
    if moving.concept == target.concept:
        return Regrouped((), concept)
    names = view.store.names.members([moving.concept])
    view.store.names.regroup({name.name: target.concept for name in names}, BY_HAND)
    return Regrouped(tuple(name.text for name in names), concept)


def split(view: View, text: str) -> Regrouped:
    """Take a name out of its concept, with those that were joined together with it; tells what it left."""
    name = view.find(text)
    group = view.store.names.members([name.concept])
    leaving = _leaving(name, group, view.store.names.merges(each.name for each in group))
    staying = [each for each in group if each not in leaving]
    if not staying:
        return Regrouped((), view.concept(name))
    # Numbers of concepts are those of one of their names: whoever loses it takes its first.
    moving = staying if any(each.name == name.concept for each in leaving) else leaving
    head = min(each.name for each in moving)
    view.store.names.regroup({each.name: head for each in moving}, BY_HAND)
    left = head if moving is staying else name.concept
    return Regrouped(tuple(each.text for each in leaving), view.concepts([left])[left])


def _leaving(name: Name, group: Sequence[Name], merges: Sequence[Merge]) -> list[Name]:
    """The name, and where a merge brought it along with others, these too."""
    last = {merge.name: merge for merge in merges}
    own = last.get(name.name)
    if own is not None:
        came = [each for each in group if each.name in last and last[each.name][2:] == own[2:]]
        is_merge = own.after == name.concept and all(each.name != own.after for each in came)
        if is_merge:
            return came
    return [name]


def rebuild(
    store: Store, words: LexicalIndex, mentions: MentionIndex, *, progress: Callable[[int], None] | None = None
) -> int:
    """Read the names of every version anew; returns how many were read."""
    store.names.forget()
    # The file still tells of mentions that are gone.
    mentions.rebuild()
    return read_names(store, words, progress=progress)
