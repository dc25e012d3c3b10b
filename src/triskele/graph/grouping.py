"""Merges and splits concepts by hand, and keeps these decisions."""

from __future__ import annotations

from collections.abc import Sequence

from triskele.graph.view import View
from triskele.replies.rooms import Regrouped
from triskele.store.values import BY_HAND, Merge, Name


def merge(view: View, one: str, other: str) -> Regrouped:
    """Move all names of one concept to the other."""
    moving, target = view.find(one), view.find(other)
    concept = view.name_of(target.concept)
    if moving.concept == target.concept:
        return Regrouped((), concept)
    names = view.store.names.members([moving.concept])
    view.store.names.set_concepts({name.name: target.concept for name in names}, BY_HAND)
    return Regrouped(tuple(name.text for name in names), concept)


def split(view: View, text: str) -> Regrouped:
    """Split a name from its concept; return the concept it left."""
    name = view.find(text)
    group = view.store.names.members([name.concept])
    leaving = _leaving(name, group, view.store.names.merges(each.name for each in group))
    staying = [each for each in group if each not in leaving]
    if not staying:
        return Regrouped((), view.name_of(name.concept))
    # The number of a concept is that of one of its names: the side that loses it takes its first name's.
    moving = staying if any(each.name == name.concept for each in leaving) else leaving
    head = min(each.name for each in moving)
    view.store.names.set_concepts({each.name: head for each in moving}, BY_HAND)
    left = head if moving is staying else name.concept
    return Regrouped(tuple(each.text for each in leaving), view.name_of(left))


def _leaving(name: Name, group: Sequence[Name], merges: Sequence[Merge]) -> list[Name]:
    """The name, and the names of the same merge."""
    last = {merge.name: merge for merge in merges}
    own = last.get(name.name)
    if own is not None:
        came = [each for each in group if each.name in last and last[each.name][2:] == own[2:]]
        is_merge = own.after == name.concept and all(each.name != own.after for each in came)
        if is_merge:
            return came
    return [name]
