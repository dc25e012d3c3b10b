"""Link names: store the names in new memories, and find new names in older memories too."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from triskele.index.lexical import LexicalIndex, Shards
from triskele.index.lifecycle import alone
from triskele.index.shard import Found
from triskele.store.owner import OwnerStore
from triskele.store.values import NAMES, Name, Named
from triskele.text import timestamps
from triskele.text.analysis import Analyzer
from triskele.text.mentions import Kind, Mention, mentions
from triskele.text.spellings import Gazetteer, Names, Reason, block, expansions, key, runs
from triskele.text.words import COMMON_WORDS
from triskele.types import Memory, Scope

SWEEP = 20_000
BATCH = 256
# The reader of names holds the lease of the only job of this kind, longer than reading this many texts takes.
_READER = "names reader"
LEASE_S, _LEASE_S_PER_TEXT = 15.0, 0.01
_POLL_S = 0.05
# Kinds that link memories; a lead or a date says nothing beyond its own memory.
_NAMING = frozenset(Kind) - {Kind.LEAD, Kind.DATE, Kind.VERSION}
# The kind of a name that another memory introduced and this one contains as well.
FOUND = "found"
# A name in more memories than these links nothing, so that the search ends there.
_MOST_OLDER = 50
# A search for one name costs about as much as reading this many texts.
_TEXTS_PER_SEARCH = 4
_SHORTEST = 2

Progress = Callable[[int], None]
Unread = Sequence[tuple[int, Memory]]


def read_names(
    store: OwnerStore,
    lexical: LexicalIndex,
    *,
    limit: int | None = None,
    wait: bool = True,
    progress: Progress | None = None,
) -> int:
    """Read the names of memories that wait, oldest first; returns how many were read.

    One reader at a time: a text is read for all names known before it. Without `wait` other writers come first; with it
    and without a limit the call ends when nothing waits, here or in other processes.
    """
    done = 0
    while (limit is None or done < limit) and (waiting := store.jobs.count(NAMES)):
        most = min(SWEEP, waiting if limit is None else limit - done)
        with alone(store, _READER, LEASE_S + _LEASE_S_PER_TEXT * most, wait=wait) as is_reader:
            sweep = store.names.unread(most) if is_reader else []
            for read in _read(sweep, store, lexical, wait=wait) if sweep else ():
                done += read
                if progress is not None:
                    progress(done)
        if not sweep and (is_reader or limit is not None or not wait):
            break
        if not is_reader:
            _wait_for_reader(store, waiting)
    return done


def _wait_for_reader(store: OwnerStore, waiting: int) -> None:
    """Wait until another reader has read more of what waits, or may have died."""
    ends = time.monotonic() + LEASE_S
    while store.jobs.count(NAMES) == waiting and time.monotonic() < ends:
        time.sleep(_POLL_S)


def _read(sweep: Unread, store: OwnerStore, lexical: LexicalIndex, *, wait: bool) -> Iterator[int]:
    """First the names of the whole sweep, then every text for all names known by then, in durable steps."""
    owners = {memory.owner for _, memory in sweep}
    # One view for the whole sweep: a fresh one would read the position of the store for every single name.
    texts = _Texts(lexical.view(), lexical.analyzer)
    known = {owner: _Known.at_hand(owner, store, texts, sweep) for owner in owners}
    older: dict[int, list[Named]] = {}
    for owner, names in known.items():
        fresh = names.meet([memory for _, memory in sweep if memory.owner == owner])
        for row, named in _older(names, fresh, store, before=sweep[0][0]):
            older.setdefault(row, []).append(named)
    if older:
        store.names.save(older, wait=wait)
    for start in range(0, len(sweep), BATCH):
        batch = sweep[start : start + BATCH]
        found = {row: known[memory.owner].named(memory) for row, memory in batch}
        store.names.save(found, read=[row for row, _ in batch], wait=wait)
        yield len(batch)


class _Texts(NamedTuple):
    """The texts of a store as the lexical index holds them."""

    shards: Shards
    analyzer: Analyzer

    def spread(self, name: str) -> int:
        """The number of texts that contain the rarest term of a name."""
        return self.shards.rarest(self.analyzer.terms(name))

    def search(self, name: str, scope: Scope) -> list[Found]:
        """The texts that contain a term of a name, best first."""
        return self.shards.search(list(dict.fromkeys(self.analyzer.terms(name))), scope, limit=_MOST_OLDER)


def _older(known: _Known, fresh: Mapping[str, str], store: OwnerStore, *, before: int) -> Iterator[tuple[int, Named]]:
    """Memories read earlier that contain a new name."""
    # Most new names are new terms too, which no older text contains.
    wanted = {own: text for own, text in fresh.items() if before > 1 and known.texts.spread(text) > 1}
    by = _by_search if len(wanted) * _TEXTS_PER_SEARCH < before else _by_reading
    return by(known, wanted, store, before)


def _by_search(known: _Known, wanted: Mapping[str, str], store: OwnerStore, before: int) -> Iterator[tuple[int, Named]]:
    """Search for each name: the cost of a few new memories does not grow with the store."""
    names = list(wanted)
    for start in range(0, len(names), BATCH):
        yield from _searched(known, {own: wanted[own] for own in names[start : start + BATCH]}, store, before)


def _searched(known: _Known, wanted: Mapping[str, str], store: OwnerStore, before: int) -> Iterator[tuple[int, Named]]:
    """Search for some names, and read each text that may hold any of them once."""
    scope = Scope(owner=known.owner, as_of=timestamps.now(), any_time=True)
    rows = {
        own: [hit.row for hit in known.texts.search(text, scope) if hit.row < before] for own, text in wanted.items()
    }
    memories = store.rows({row for each in rows.values() for row in each})
    folded = {row: memory.content.casefold() for row, memory in memories.items()}
    keys: dict[int, set[str]] = {}
    for own, text in wanted.items():
        for row in sorted(memories.keys() & set(rows[own])):
            # A cheap test first: most texts contain only a part of the name.
            if folded[row].isascii() and not all(word in folded[row] for word in own.split()):
                continue
            if row not in keys:
                keys[row] = known.gazetteer.keys(memories[row].content)
            if own in keys[row]:
                yield row, known.as_named(own, text, FOUND)


def _by_reading(
    known: _Known, wanted: Mapping[str, str], store: OwnerStore, before: int
) -> Iterator[tuple[int, Named]]:
    """Read every older text once for all names: cheaper if there are many new ones."""
    for row, memory in store.versions():
        if row >= before:
            return
        if memory.owner == known.owner:
            for key_found in known.gazetteer.keys(memory.content) & wanted.keys():
                yield row, known.as_named(key_found, wanted[key_found], FOUND)


class _Known:
    """The names of one owner that some texts may contain, and which of them are the same."""

    def __init__(self, owner: str, texts: _Texts, names: Iterable[Name], akin: Iterable[Name]) -> None:
        self.owner = owner
        self.texts = texts
        self.gazetteer = Gazetteer(name.text.lower() if name.any_case else name.text for name in names)
        self._names = Names({name.text: name.key for name in akin})
        self._aliases: dict[str, tuple[str, str]] = {}

    @staticmethod
    def at_hand(owner: str, store: OwnerStore, texts: _Texts, sweep: Unread) -> _Known:
        """Every name for many texts; for a few, those that they could contain."""
        if len(sweep) > BATCH:
            names = list(store.names.known())
            return _Known(owner, texts, names, names)
        memories = [memory for _, memory in sweep if memory.owner == owner]
        keys = {run for memory in memories for run in runs(memory.content)}
        blocks = {block(mention.text) for memory in memories for mention in _mentioned(memory)}
        names = sorted(store.names.find(keys).values(), key=lambda name: name.name)
        return _Known(owner, texts, names, store.names.akin(blocks))

    def meet(self, memories: Iterable[Memory]) -> dict[str, str]:
        """Add the names of more memories; returns the new ones by key."""
        fresh: dict[str, str] = {}
        for memory in memories:
            for acronym, expansion in expansions(memory.content):
                self._aliases[key(acronym)] = (key(expansion), Reason.ACRONYM)
            for mention in _mentioned(memory):
                own = key(mention.text)
                if mention.kind in _NAMING and _is_content_word(own) and self.gazetteer.add(mention.text):
                    fresh[own] = mention.text
        return fresh

    def named(self, memory: Memory) -> list[Named]:
        """Everything that a memory mentions, its subject first, each name once."""
        found: dict[str, Named] = {}
        for mention in sorted(_mentioned(memory), key=lambda mention: not mention.is_subject):
            own = key(mention.text)
            if len(own) >= _SHORTEST and own not in found:
                found[own] = self.as_named(own, mention.text, mention.kind)
        for match in self.gazetteer.find(memory.content):
            if match.key not in found:
                found[match.key] = self.as_named(match.key, memory.content[match.start : match.end], FOUND)
        return list(found.values())

    def as_named(self, own: str, text: str, kind: str) -> Named:
        """A name with what it is the same as."""
        joins = self._aliases.get(own)
        if joins is None:
            concept, reason = self._names.resolve(text)
            joins = (concept, str(reason)) if reason is not None and concept != own else None
            if reason is None:
                self._names.add(text, own)
        spread = self.texts.spread(text)
        text = text.removesuffix("'s").removesuffix("’s")
        return Named(own, block(text), text, not any(map(str.isupper, text)), kind, joins, spread)


@lru_cache(maxsize=BATCH)
def _mentioned(memory: Memory) -> list[Mention]:
    return mentions(memory.content, memory.tags, memory.keywords)


def _is_content_word(own: str) -> bool:
    return len(own) >= _SHORTEST and own not in COMMON_WORDS and any(map(str.isalpha, own))
