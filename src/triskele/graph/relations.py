"""Triples that a language model reads from open memories.

Nothing of it is truth: a document for each content holds what was read, and edges are made of them when they are asked
for. An edge ends with its memory, or when a newer memory states another object of a relation that has one at a
time; it is never deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from triskele.curation.decide import begins
from triskele.curation.wording import forms, words
from triskele.errors import BadInput, Unavailable
from triskele.models import llm_replies
from triskele.models.llm_replies import MOST_NAMES, MOST_RELATIONS, MOST_TEXTS, Triple
from triskele.store.access import StoreAccess
from triskele.store.values import Document
from triskele.text import timestamps
from triskele.text.spellings import block, key, same
from triskele.types import TRUST, LinkKind, Memory, Scope, Sensitivity, Sort

if TYPE_CHECKING:
    from triskele.models.llm import Llm
    from triskele.privacy.clearance import ClearedText

_TRIPLES, _RELATIONS, _NAMES = "triples", "relation-meanings", "triple-names"
_PAGE = 500
_CHARACTERS_PER_TOKEN = 4
_TOKENS_OF_A_REPLY = 40
# Names nearer than the one are the same; between both the language model is asked.
_SAME_NAME, _MAYBE_SAME = 0.97, 0.8
# A person who writes a memory in the first person.
SPEAKER = "user"
_FIRST_PERSON = frozenset({"i", "me", "my", "we", "us", "our", SPEAKER})


@dataclass(frozen=True, slots=True)
class Estimate:
    """The cost of reading the remaining memories, if known."""

    memories: int
    withheld: int
    requests: int
    tokens: int
    cost: float | None


@dataclass(frozen=True, slots=True)
class Extracted:
    """The result of a run; `problem` says why it ended early."""

    memories: int = 0
    triples: int = 0
    requests: int = 0
    left: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class RelationEdge:
    """An edge with the memory that states it."""

    subject: str
    relation: str
    object: str
    evidence: Memory
    valid_from: datetime
    valid_to: datetime | None = None

    def holds_at(self, moment: datetime) -> bool:
        """Whether it has not ended by then."""
        return self.valid_to is None or self.valid_to > moment


class RelationReader:
    """Reads triples of one store's memories, batch by batch."""

    def __init__(self, host: StoreAccess, may_call: Callable[[], bool]) -> None:
        self._host = host
        self._documents = host.store.documents
        self._may_call = may_call

    def estimate(self) -> Estimate:
        """Estimate the unread memories and their cost; send nothing."""
        pending, withheld = self._pending()
        batches = list(_batches(pending, MOST_TEXTS))
        characters = sum(llm_replies.prompt_characters([memory.content for memory in batch]) for batch in batches)
        tokens = characters // _CHARACTERS_PER_TOKEN + _TOKENS_OF_A_REPLY * len(pending)
        price = self._host.settings.llm.price_per_million
        cost = round(tokens * price / 1_000_000, 4) if price else None
        return Estimate(len(pending), withheld, len(batches), tokens, cost)

    def extract(self, *, limit: int | None = None, progress: Callable[[int], None] = lambda _done: None) -> Extracted:
        """Read at most `limit` remaining memories; a failure ends the run."""
        llm = self._host.llm
        if llm is None:
            raise BadInput("no language model is set: name one under [llm] in your settings and set curation.llm_calls")
        pending, _ = self._pending()
        done = Extracted(left=len(pending))
        for batch in _batches(pending[:limit], MOST_TEXTS):
            try:
                count = self._read(llm, batch)
            except Unavailable as error:
                return replace(done, problem=str(error))
            done = Extracted(
                done.memories + len(batch), done.triples + count, done.requests + 1, done.left - len(batch)
            )
            progress(done.memories)
        try:
            requests = self._define(llm) + self._resolve(llm)
        except Unavailable as error:
            return replace(done, problem=str(error))
        return replace(done, requests=done.requests + requests)

    def _call(self) -> None:
        if not self._may_call():
            raise Unavailable("the calls of today are used up (curation.llm_calls)")

    def _pending(self) -> tuple[list[Memory], int]:
        """Unread open memories, and how many may not be sent."""
        read = self._documents.all(_TRIPLES).keys()
        policy = self._host.egress_policy
        pending: dict[str, Memory] = {}
        withheld = 0
        for memory in live(self._host):
            if memory.content_hash in read or memory.content_hash in pending:
                continue
            if memory.sensitivity is not Sensitivity.OPEN or policy.memory(memory) is None:
                withheld += 1
            else:
                pending[memory.content_hash] = memory
        return list(pending.values()), withheld

    def _read(self, llm: Llm, batch: Sequence[Memory]) -> int:
        """Read and keep the grounded triples of a batch; return their number."""
        policy = self._host.egress_policy
        shown = [(memory, text) for memory in batch if (text := policy.memory(memory)) is not None]
        if not shown:
            return 0
        self._call()
        answers = llm_replies.read_triples(llm, [text for _, text in shown])
        at = timestamps.to_text(timestamps.now())
        documents: dict[str, Document] = {}
        count = 0
        for (memory, _), triples in zip(shown, answers, strict=True):
            grounded = [list(each) for each in dict.fromkeys(triples) if is_grounded(each, memory.content)]
            value = {"triples": grounded, "model": llm.name, "at": at}
            documents[memory.content_hash] = Document(value, about=[memory.id])
            count += len(grounded)
        self._documents.put(_TRIPLES, documents)
        return count

    # Which relations and names mean the same

    def _define(self, llm: Llm) -> int:
        """Ask for the meanings of new relations; return the requests."""
        meanings: Mapping[str, Any] = self._documents.all(_RELATIONS)
        told_by = self._told_by(lambda triple: [_plain(triple.relation)])
        used = sorted(told_by.keys() - meanings.keys())
        requests = 0
        half = MOST_RELATIONS // 2
        for fresh in _batches(used, half):
            leading = sorted({value["canonical"] for value in meanings.values()})
            defined: dict[str, dict[str, Any]] = {}
            # Each is compared with every known one, a part of them at a time, until it is one of them.
            for part in list(_batches(leading, half)) or [[]]:
                left = [text for text in fresh if text not in defined or defined[text]["canonical"] not in leading]
                requests += self._define_beside(llm, part, left, defined)
            documents = {text: Document(value, about=told_by[text]) for text, value in defined.items()}
            self._documents.put(_RELATIONS, documents)
            meanings = {**meanings, **defined}
        return requests

    def _define_beside(
        self, llm: Llm, known: Sequence[str], fresh: Sequence[str], defined: dict[str, dict[str, Any]]
    ) -> int:
        """Record meanings of new relations beside known ones; return the requests."""
        listed = [(text, cleared) for text in (*known, *fresh) if (cleared := self._cleared(text)) is not None]
        names = [text for text, _ in listed]
        if not set(names) & set(fresh):
            return 0
        self._call()
        meanings = llm_replies.define_relations(llm, [cleared for _, cleared in listed])
        for position, text in enumerate(names):
            if text in fresh:
                root = _root(names, meanings, position)
                before = defined.get(text, {"canonical": text})["canonical"]
                defined[text] = {"canonical": before if root == text else root, "single": meanings[position].is_single}
        return 1

    def _resolve(self, llm: Llm) -> int:
        """Join names that mean one thing; return the requests."""
        heads: Mapping[str, Any] = self._documents.all(_NAMES)
        told_by = self._told_by(lambda triple: [key(triple.subject), key(triple.object)])
        triples = [Triple(*each) for value in self._documents.all(_TRIPLES).values() for each in value["triples"]]
        texts = {key(name): name for triple in triples for name in (triple.subject, triple.object)}
        fresh = {own for own in texts if own and own not in heads}
        if not fresh:
            return 0
        doubtful, joined = self._alike(texts, fresh)
        requests = 0
        self._keep_heads(heads, fresh - {own for pair in doubtful for own in pair}, joined, told_by)
        for start in range(0, len(doubtful), MOST_NAMES):
            pairs, rest = doubtful[start : start + MOST_NAMES], doubtful[start + MOST_NAMES :]
            cleared = []
            for pair in pairs:
                sides = [side for own in pair if (side := self._cleared(texts[own])) is not None]
                cleared += [(pair, (sides[0], sides[1]))] if len(sides) == 2 else []
            if cleared:
                self._call()
                answers = llm_replies.same_names(llm, [sides for _, sides in cleared])
                requests += 1
                joined += [pair for (pair, _), same_thing in zip(cleared, answers, strict=True) if same_thing]
            # What was answered stays where a later request fails.
            self._keep_heads(heads, fresh - {own for pair in rest for own in pair}, joined, told_by)
        return requests

    def _keep_heads(
        self,
        known: Mapping[str, Any],
        settled: set[str],
        joined: Iterable[tuple[str, str]],
        told_by: Mapping[str, Sequence[str]],
    ) -> None:
        """Write the heads of resolved names and of names joined with them."""
        heads = {own: str(value["canonical"]) for own, value in known.items()} | {own: own for own in settled}
        before = dict(heads)
        for pair in joined:
            one, other = (_end(heads, own) for own in pair)
            if one in heads and other in heads:
                new, old = (one, other) if one in settled else (other, one)
                heads[new] = old
        ends = {own: _end(heads, own) for own in heads}
        changed = {own: end for own, end in ends.items() if own in settled or before[own] != end}
        documents = {own: Document({"canonical": end}, about=told_by.get(own, ())) for own, end in changed.items()}
        self._documents.put(_NAMES, documents)

    def _alike(self, texts: Mapping[str, str], fresh: set[str]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """Pairs with a new name: doubtful ones, and certain ones."""
        keys = sorted(texts)
        blocks: dict[str, list[str]] = {}
        for own in keys:
            blocks.setdefault(block(texts[own]), []).append(own)
        near = self._near(texts, keys)
        doubtful, joined = [], []
        for one in sorted(fresh):
            cosines = near(one)
            for other in sorted({*blocks[block(texts[one])], *cosines} - {one}):
                if other in fresh and other < one:
                    continue
                cosine = cosines.get(other, 0.0)
                if same(texts[one], texts[other]) is not None or cosine >= _SAME_NAME:
                    joined.append((one, other))
                elif cosine >= _MAYBE_SAME and not _differ_in_number(one, other):
                    doubtful.append((one, other))
        return doubtful, joined

    def _near(self, texts: Mapping[str, str], keys: Sequence[str]) -> Callable[[str], dict[str, float]]:
        """The near names of a name by cosine; none without a model."""
        embedder = self._host.embedder
        if embedder is None:
            return lambda _: {}
        import numpy as np

        encodings = embedder.encode_documents([texts[own] for own in keys])
        vectors = np.stack([encoding.sentence for encoding in encodings])
        places = {own: place for place, own in enumerate(keys)}

        def near(own: str) -> dict[str, float]:
            cosines = vectors @ vectors[places[own]]
            return {keys[place]: float(cosines[place]) for place in np.flatnonzero(cosines >= _MAYBE_SAME).tolist()}

        return near

    def _told_by(self, parts: Callable[[Triple], Iterable[str]]) -> dict[str, list[str]]:
        """The memories that hold each name or relation."""
        holders: dict[str, list[str]] = {}
        for memory, triple in _stated(self._host):
            for part in parts(triple):
                holders.setdefault(part, []).append(memory.id)
        return holders

    def _cleared(self, text: str) -> ClearedText | None:
        return self._host.egress_policy.question(text)[0]


def relations(host: StoreAccess, *, about: str | None = None, closed: bool = False) -> list[RelationEdge]:
    """The edges read so far, oldest first, about one name if given."""
    meanings, names = (host.store.documents.all(kind) for kind in (_RELATIONS, _NAMES))
    stated = sorted(_stated(host), key=lambda each: (begins(each[0]), each[0].id))
    replaced = _replaced(host, sorted({memory.id for memory, _ in stated}))
    edges = []
    for memory, triple in stated:
        relation = str(meanings.get(_plain(triple.relation), {}).get("canonical", _plain(triple.relation)))
        ends = [_head(name, names) for name in (triple.subject, triple.object)]
        until = min(filter(None, (memory.valid_to, replaced.get(memory.id))), default=None)
        edges.append(RelationEdge(ends[0], relation, ends[1], memory, begins(memory), until))
    single = {value["canonical"] for value in meanings.values() if value["single"]}
    now = timestamps.now()
    shown = [edge for edge in _closed(edges, single, now) if closed or edge.holds_at(now)]
    wanted = None if about is None else _head(about, names)
    return [edge for edge in shown if wanted is None or wanted in (edge.subject, edge.object)]


def is_grounded(triple: Triple, text: str) -> bool:
    """Whether a text holds the subject and object of a triple."""
    if key(triple.subject) == key(triple.object):
        return False
    held = set(forms(words(text)))
    is_own = bool(_FIRST_PERSON & held)
    for name in (triple.subject, triple.object):
        own = set(forms(words(name)))
        if not own or not (own <= held or (is_own and own <= _FIRST_PERSON)):
            return False
    return True


def _stated(host: StoreAccess) -> Iterator[tuple[Memory, Triple]]:
    """What current memories state, as far as it was read."""
    read = host.store.documents.all(_TRIPLES)
    for memory in live(host):
        if (value := read.get(memory.content_hash)) is not None:
            yield from ((memory, Triple(*each)) for each in value["triples"])


def live(host: StoreAccess) -> Iterator[Memory]:
    """All current memories, including those that are no longer valid."""
    scope = Scope(owner=host.store.owner, as_of=timestamps.now(), any_time=True)
    offset = 0
    while page := host.store.browse(scope, sort=Sort.RECENCY, limit=_PAGE, offset=offset):
        yield from page
        offset += len(page)


def _closed(edges: Iterable[RelationEdge], single: set[str], now: datetime) -> list[RelationEdge]:
    """The edges; a newer object of a single relation ends the older.

    A less trusted memory, or one of another project, ends nothing.
    """
    open_ones: dict[tuple[str, str, str], int] = {}
    listed: list[RelationEdge] = []
    for edge in edges:
        slot = (edge.evidence.project, edge.subject, edge.relation)
        index = open_ones.get(slot) if edge.relation in single else None
        if index is not None and not _may_end(edge, listed[index]):
            listed.append(edge)
            continue
        if index is not None and listed[index].object != edge.object:
            listed[index] = replace(listed[index], valid_to=edge.valid_from)
        if edge.holds_at(now):
            open_ones[slot] = len(listed)
        listed.append(edge)
    return listed


def _may_end(newer: RelationEdge, older: RelationEdge) -> bool:
    return TRUST.index(newer.evidence.origin) <= TRUST.index(older.evidence.origin)


def _replaced(host: StoreAccess, ids: Sequence[str]) -> dict[str, datetime]:
    """When memories were superseded, by their ids."""
    links = host.store.links(ids, kind=LinkKind.SUPERSEDES) if ids else []
    return {link.target: link.known_from for link in links if link.known_to is None}


def _head(name: str, names: Mapping[str, Any]) -> str:
    own = key(name)
    if own in _FIRST_PERSON:
        return SPEAKER
    return str(names.get(own, {}).get("canonical", own))


def _end(heads: Mapping[str, str], own: str) -> str:
    """The name at the end of a chain of joined ones."""
    while heads.get(own, own) != own:
        own = heads[own]
    return own


def _root(names: Sequence[str], meanings: Sequence[llm_replies.RelationMeaning], position: int) -> str:
    """The relation at the end of a chain of equal ones."""
    seen: list[int] = []
    while position not in seen:
        seen.append(position)
        position = meanings[position].same_as
    return names[min(seen[seen.index(position) :])]


def _plain(relation: str) -> str:
    return " ".join(relation.casefold().split())


def _differ_in_number(one: str, other: str) -> bool:
    numbers = [{part for part in name.split() if any(map(str.isdigit, part))} for name in (one, other)]
    return numbers[0] != numbers[1]


def _batches(items: Sequence[Any], size: int) -> Iterator[Any]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
