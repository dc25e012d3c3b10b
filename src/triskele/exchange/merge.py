"""The first pass for an export of another store: which of its versions and links are new here, and which clash."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from triskele.base import timestamps
from triskele.base.ids import same_words
from triskele.errors import BadInput
from triskele.exchange.plan import Plan
from triskele.exchange.records import Problem, StoredLink, StoredVersion
from triskele.stores.protocol import Store
from triskele.stores.vault import row_of
from triskele.types import Add, Change, Link, LinkKind, Memory, Revise


def for_export(store: Store, versions: Sequence[StoredVersion], links: Sequence[StoredLink]) -> Plan:
    """Everything that stands in the export stands in the store afterwards, unless it was edited here since."""
    problems: list[Problem] = []
    histories: dict[str, list[StoredVersion]] = defaultdict(list)
    for version in versions:
        histories[version.memory.id].append(version)
    ends = {end for tie in links for end in (tie.link.source, tie.link.target)}
    here: dict[str, list[Memory]] = defaultdict(list)
    for _, memory in store.versions(sorted(histories.keys() | ends)):
        here[memory.id].append(memory)
    groups: list[tuple[Change, ...]] = []
    for id, history in histories.items():
        try:
            groups.append(tuple(_new_versions(id, history, here.get(id, []))))
        except BadInput as error:
            problems.append(Problem(history[0].place, str(error)))
    known = histories.keys() | here.keys()
    problems += [
        Problem(tie.place, f"the link's end {end} is neither in the file nor in the store")
        for tie in links
        for end in (tie.link.source, tie.link.target)
        if end not in known
    ]
    problems += _circles(store, [tie.link for tie in links])
    return Plan(
        read=len(histories),
        duplicates=groups.count(()),
        groups=tuple(group for group in groups if group),
        links=tuple(_new_links(store, [tie.link for tie in links])),
        problems=tuple(problems),
    )


def _new_versions(id: str, read: Sequence[StoredVersion], here: Sequence[Memory]) -> Iterator[Change]:
    history = sorted((version.memory for version in read), key=lambda memory: memory.version)
    _check_history(id, history)
    known = {memory.version: memory for memory in here}
    for memory in history:
        there = known.get(memory.version)
        if there is not None and replace(there, known_to=memory.known_to, origin=memory.origin) != row_of(memory):
            raise BadInput(f"memory {id} has another version {memory.version} here")
    new = [memory for memory in history if memory.version not in known]
    if not new:
        yield from _brought_back(history[-1], max(here, key=lambda memory: memory.version))
        return
    _check_succession(id, new, here)
    yield from (Add(memory, verbatim=True) for memory in new)


def _brought_back(memory: Memory, here: Memory) -> Iterator[Change]:
    """A memory that stands in the export and was forgotten here, unchanged, is remembered again."""
    row = replace(row_of(memory), origin=here.origin)
    if memory.known_to is None and here.known_to is not None and same_words(here, row):
        yield Revise(row, base=here.version)


def _check_history(id: str, history: Sequence[Memory]) -> None:
    for older, newer in pairwise(history):
        if older.version == newer.version:
            raise BadInput(f"memory {id} has version {older.version} twice")
        if older.known_to is None:
            raise BadInput(f"memory {id} has version {newer.version}, and yet version {older.version} was never closed")


def _check_succession(id: str, new: Sequence[Memory], here: Sequence[Memory]) -> None:
    standing = next((memory for memory in here if memory.known_to is None), None)
    latest = max((memory.version for memory in here), default=0)
    for memory in new:
        if standing is not None and memory.version > standing.version:
            raise BadInput(
                f"memory {id} stands at version {standing.version} here and the file brings version {memory.version}:"
                " forget it here first, or import into another store"
            )
        if memory.known_to is None and memory.version < latest:
            raise BadInput(f"memory {id} went on to version {latest} here, in the file it stands at {memory.version}")


def _new_links(store: Store, links: Sequence[Link]) -> Iterator[Link]:
    here = list(store.all_links())
    standing = {_ends(link) for link in here if link.known_to is None}
    begun = {(*_ends(link), link.known_from) for link in here}
    now = timestamps.now()
    for link in links:
        key = (*_ends(link), link.known_from)
        if link.known_to is None and _ends(link) not in standing:
            standing.add(_ends(link))
            # A link that was cut here and is made anew has not stood all the time.
            yield replace(link, known_from=now) if key in begun else link
        elif link.known_to is not None and key not in begun:
            yield link


def _ends(link: Link) -> tuple[str, LinkKind, str]:
    return link.source, link.kind, link.target


def _circles(store: Store, links: Sequence[Link]) -> Iterator[Problem]:
    new = [link for link in links if link.kind is LinkKind.SUPERSEDES and link.known_to is None]
    ids = sorted({end for link in new for end in (link.source, link.target)})
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for link in [*new, *store.links(ids, kind=LinkKind.SUPERSEDES)]:
        sorter.add(link.source, link.target)
    try:
        sorter.prepare()
    except CycleError as error:
        yield Problem("the links", f"memories supersede each other in a circle: {', '.join(error.args[1][:5])}")
