"""Every call that an owner can make with the ids, rows, keys and names of another one.

The oracle is a store in which the other owner never was: each call must answer there as it does beside the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any

from triskele.errors import TriskeleError
from triskele.replies import Census, NameCounts
from triskele.store.corpus_protocol import CorpusStore, WeightedTerms, WordCounts
from triskele.store.owner import OwnerStore
from triskele.store.sharing import ShareStore
from triskele.store.values import BY_HAND, EMBED, NAMES, START, VAULT, Cursor, Document, Named, Use
from triskele.text import timestamps
from triskele.text.ids import content_hash
from triskele.types import (
    Add,
    Change,
    Connect,
    Disconnect,
    Forget,
    Link,
    LinkKind,
    MakePrivate,
    Memory,
    Reveal,
    Revise,
    Scope,
    Sealed,
    Sensitivity,
    Sort,
)

MODEL, HOSTED = "model@1", "hosted-model@1"
# What is larger is a time in microseconds.
_TIMES = 10**12
# Fields that hold numbers of a pool.
_NUMBERS = {
    "seq",
    "undoes",
    "row",
    "slot",
    "mention",
    "merge",
    "name",
    "concept",
    "before",
    "after",
    "source",
    "target",
    "number",
}
KEYS, TALK, PRINT, BATCH, KIND, SPEAKER = "the keys", "talk", "print", "first", "song", "Dana"
ANALYZER, WORD, DIMENSIONS = "words@1", "argo", 4
PLACE = "path:/home/ada/garden"


@dataclass(frozen=True)
class Known:
    """What one owner has and the other may try: memories, a link, and the numbers that the store gave."""

    memories: tuple[Memory, ...]
    secret: Memory
    link: Link
    rows: tuple[int, ...]
    slots: tuple[int, ...] = ()
    names: tuple[int, ...] = ()
    places: tuple[int, ...] = ()

    @property
    def id(self) -> str:
        """One of the memories."""
        return self.memories[0].id


def made(make: Callable[..., Memory]) -> tuple[Memory, ...]:
    """The memories of one owner, the last of them a secret."""
    texts = [f"Argo is run by Helm {number}" for number in range(3)]
    secret = make("a title", sensitivity=Sensitivity.SECRET)
    return (*(make(text, project="garden", speaker=SPEAKER) for text in texts), secret)


def seed_truth(store: OwnerStore, drafts: Sequence[Memory]) -> Known:
    """Memories that stand, were edited, were forgotten and are sealed, and a link."""
    *memories, secret = (replace(memory, owner=store.owner) for memory in drafts)
    link = Link(source=memories[0].id, kind=LinkKind.SUPERSEDES, target=memories[1].id, known_from=timestamps.now())
    store.documents.put(VAULT, {"keys": Document(KEYS)})
    store.apply([Add(memory) for memory in memories], batch=BATCH)
    store.apply([Add(secret, sealed=Sealed(b"sealed", content_hash(KEYS))), Connect(link)], batch="second")
    store.apply([Revise(replace(memories[0], tags=("edited",)), base=1), Forget(memories[2].id)], batch="third")
    store.register_folder([PLACE], lambda _: "garden")
    places = tuple(each.number for each in store.folders())
    return Known(tuple(memories), secret, link, tuple(row for row, _ in store.versions()), places=places)


def seed_derived(store: OwnerStore, known: Known) -> Known:
    """Vectors of two models, names, documents, jobs and usage."""
    first, second = known.memories[:2]
    store.vectors.use_model(MODEL)
    slots = store.vectors.save(MODEL, {first.content_hash: b"vector"})
    slots |= store.vectors.save(HOSTED, {second.content_hash: b"hosted"})
    argo, helm, kite = (Named(text.lower(), text[:1], text, False, "name") for text in ("Argo", "Helm", "Kite"))
    argo = replace(argo, kind="title")
    store.names.save({known.rows[0]: [argo, helm, kite], known.rows[1]: [argo]}, read=known.rows[:1])
    names = store.names.find(["argo", "helm"])
    store.names.set_concepts({names["helm"].name: names["argo"].name}, BY_HAND)
    store.documents.put(KIND, {"a": Document("x", about=[first.id])})
    store.jobs.add("other", ["key"])
    store.jobs.fail("other", ["key"], "refused")
    if store.corpus is not None:
        store.corpus.prepare(MODEL, DIMENSIONS)
        store.corpus.index_words(ANALYZER, _counted, 100)
    store.usage.injected(TALK, [Use(first.id, 3, first.content_hash, (PRINT,))])
    store.usage.recalled([Use(second.id, 2)])
    return replace(known, slots=tuple(slots.values()), names=tuple(name.name for name in names.values()))


def truth_of(store: OwnerStore) -> list[Any]:
    """All that can be read of an owner's truth."""
    scope = Scope(owner=store.owner, as_of=timestamps.parse("2030-01-01"))
    return [
        list(store.versions()),
        list(store.all_links()),
        store.journal(),
        store.sealed(),
        store.position(),
        replace(store.census(), bytes=0),
        store.browse(scope),
        store.changes_since(START),
        store.folders(),
    ]


def derived_of(store: OwnerStore) -> list[Any]:
    """All that can be read of what is derived from it, and of documents and usage."""
    names = [name.name for name in store.names.known()]
    return [
        [store.vectors.page(model) for model in (MODEL, HOSTED)],
        list(store.vectors.catalog(MODEL)),
        store.vectors.waiting(),
        [store.models.lacking(MODEL), store.models.clear_for(HOSTED), store.models.withheld(), store.models.seen()],
        [
            list(store.names.known()),
            store.names.mentions(),
            store.names.merges(names),
            store.names.unread(),
        ],
        [store.names.edges(name) for name in names],
        [store.documents.all(kind) for kind in (KIND, VAULT)],
        [store.jobs.count(kind) for kind in (EMBED, NAMES, "other")],
        [store.usage.most_used(), store.usage.days(), store.usage.given(TALK), store.usage.echoed([PRINT])],
        [] if store.corpus is None else [store.corpus.statistics([WORD])],
    ]


def outcome_of(call: Callable[[OwnerStore, Known], Any], store: OwnerStore, known: Known) -> Any:
    """The shape of what a call gives, or how it fails."""
    try:
        return shape(call(store, known))
    except TriskeleError as error:
        return type(error), str(error)


def shape(answer: Any, *, is_number: bool = False) -> Any:
    """An answer without times, sizes and the numbers of rows, slots and names: one file has one pool of each."""
    match answer:
        case int() if is_number and not isinstance(answer, bool):
            return "none" if answer < 0 else "number"
        case int() | datetime():
            return "time" if isinstance(answer, datetime) or answer > _TIMES else answer
        case Cursor():
            return "start" if answer == START else "cursor"
        case float() | bytes() | str() | None:
            return answer
        case Census() | NameCounts():
            return replace(answer, bytes=0)
        case Mapping():
            return [(shape(key, is_number=True), shape(value, is_number=True)) for key, value in answer.items()]
        case tuple() if hasattr(answer, "_fields"):
            named = zip(answer._fields, answer, strict=True)
            return [shape(value, is_number=name in _NUMBERS) for name, value in named]
        case tuple():
            return [shape(value, is_number=True) for value in answer]
        case Iterable():
            return [shape(each) for each in answer]
    return [shape(getattr(answer, each.name), is_number=each.name in _NUMBERS) for each in fields(answer)]


def _apply(*changes: Callable[[OwnerStore, Known], Change]) -> list[Callable[[OwnerStore, Known], Any]]:
    return [lambda store, known, make=make: store.apply([make(store, known)], batch=BATCH) for make in changes]


def _read_at_once(store: OwnerStore, known: Known) -> Any:
    with store.snapshot():
        return [list(store.versions()), store.memories([known.id])]


def _scopes(store: OwnerStore, known: Known) -> list[Scope]:
    owners = (known.memories[0].owner, store.owner)
    return [Scope(owner=owner, as_of=timestamps.now(), any_time=True) for owner in owners]


def _titled(store: OwnerStore, known: Known) -> Memory:
    """An open memory as a secret: a title in the place of its text."""
    open_one, title = known.memories[1], "a title of it"
    return replace(
        open_one, owner=store.owner, content=title, content_hash=content_hash(title), sensitivity=Sensitivity.SECRET
    )


Call = Callable[[OwnerStore, Known], Any]
Calls = dict[str, list[Call]]


def each_call(calls: Calls) -> Iterator[tuple[str, Call]]:
    """Every call with its place: the name of its method and its number there."""
    for method, listed in calls.items():
        yield from ((f"{method} {number}", call) for number, call in enumerate(listed))


TRUTH: Calls = {
    "apply": _apply(
        lambda _, known: Add(known.memories[0], verbatim=True),
        lambda store, known: Add(replace(known.memories[0], owner=store.owner), verbatim=True),
        lambda store, known: Add(replace(known.memories[1], owner=store.owner)),
        lambda _, known: Revise(replace(known.memories[1], tags=("theirs",)), base=1),
        lambda store, known: Revise(replace(known.memories[1], owner=store.owner, tags=("theirs",)), base=1),
        lambda _, known: Forget(known.id),
        lambda _, known: Connect(replace(known.link, kind=LinkKind.SEE_ALSO)),
        lambda _, known: Disconnect(known.link),
        lambda _, known: Reveal(known.secret.id),
        lambda _, known: MakePrivate(known.id),
    ),
    "folders": [lambda store, _: store.folders()],
    "register_folder": [
        lambda store, _: store.register_folder([PLACE, "path:/elsewhere"], lambda known: f"one of {len(known)}"),
    ],
    "erase": [lambda store, known: store.erase([known.id], batch=BATCH)],
    "seal": [
        lambda store, known: store.seal([(known.secret, Sealed(b"theirs", content_hash(KEYS)))], batch=BATCH),
        lambda store, known: store.seal(
            [(replace(known.secret, owner=store.owner), Sealed(b"theirs", content_hash(KEYS)))], batch=BATCH
        ),
        lambda store, known: store.seal([(_titled(store, known), Sealed(b"theirs", content_hash(KEYS)))], batch=BATCH),
    ],
    "sealed": [lambda store, _: store.sealed(), lambda store, known: store.sealed([known.secret.id])],
    "reseal": [lambda store, known: store.reseal({(known.secret.id, 1): b"theirs"})],
    "find": [lambda store, known: store.find(known.id), lambda store, known: store.find(known.id[:4])],
    "shorten": [lambda store, known: store.shorten([known.id])],
    "memories": [
        lambda store, known: store.memories([known.id]),
        lambda store, known: store.memories([known.id], known_at=timestamps.now()),
    ],
    "history": [lambda store, known: store.history(known.id)],
    "rows": [lambda store, known: store.rows(known.rows)],
    "succession": [lambda store, known: store.succession([known.id], 3)],
    "superseding_ids": [lambda store, known: store.superseding_ids(known.rows)],
    "versions": [lambda store, _: store.versions(), lambda store, known: store.versions([known.id])],
    "links": [lambda store, known: store.links([known.id])],
    "all_links": [lambda store, _: store.all_links()],
    "browse": [
        lambda store, known: [
            store.browse(scope, sort=sort) for scope in _scopes(store, known) for sort in Sort if sort != "relevance"
        ]
    ],
    "journal": [
        lambda store, _: store.journal(),
        lambda store, known: store.journal(id=known.id),
        lambda store, _: store.journal(batch=BATCH),
    ],
    "newest_entries": [lambda store, _: store.newest_entries(limit=100)],
    "changes_since": [lambda store, _: store.changes_since(START)],
    "position": [lambda store, _: store.position()],
    "holds": [lambda store, _: store.holds(START), lambda store, _: store.holds(store.position())],
    # The one thing that owners share: which run of the journals this is.
    "epoch": [lambda store, _: bool(store.epoch())],
    "snapshot": [_read_at_once],
    "census": [lambda store, _: store.census()],
    "count": [lambda store, known, scope=number: store.count(_scopes(store, known)[scope]) for number in (0, 1)],
}


def _heads(store: OwnerStore, _: Known) -> Any:
    heads = store.heads(MODEL)
    risen = [heads.slot > 0, heads.mention > 0, heads.regrouping > 0]
    return [heads.journal, risen, heads.unembedded, heads.unread]


WHOLE: Calls = {"heads": [_heads]}

VECTORS: Calls = {
    "waiting": [lambda store, _: store.vectors.waiting()],
    "texts": [lambda store, known: store.vectors.texts([memory.content_hash for memory in known.memories])],
    "use_model": [lambda store, _: store.vectors.use_model("their model")],
    "save": [
        lambda store, known: store.vectors.save(MODEL, {known.memories[1].content_hash: b"theirs"}),
        lambda store, known: store.vectors.save(
            MODEL, {known.memories[2].content_hash: b"v"}, tokens={known.memories[2].content_hash: b"t"}
        ),
    ],
    "token_page": [lambda store, _: store.vectors.token_page(MODEL)],
    "complete": [
        lambda store, known: store.vectors.complete(MODEL, [memory.content_hash for memory in known.memories])
    ],
    "drop": [lambda store, known: store.vectors.drop(known.slots)],
    "page": [lambda store, _: store.vectors.page(MODEL)],
    "contents": [
        lambda store, known: store.vectors.contents(known.slots),
        lambda store, known: store.vectors.contents(known.slots, queued=False),
    ],
    "catalog": [
        lambda store, _: store.vectors.catalog(MODEL),
        lambda store, known: store.vectors.catalog(MODEL, [known.id]),
    ],
    "newly_placed": [lambda store, _: store.vectors.newly_placed(MODEL, after=0)],
}


def _counted(memory: Memory) -> WordCounts:
    """The words of a version, as an analyzer without rules would count them."""
    words = memory.content.lower().split()
    return WordCounts({word: (words.count(word), 0) for word in words}, (len(words), 0), (len(words), 0))


def _in_corpus(call: Callable[[CorpusStore, Scope, Known], Any]) -> Callable[[OwnerStore, Known], Any]:
    """A call of what ranks inside the database; nothing if a store has none."""

    def walk(store: OwnerStore, known: Known) -> Any:
        scope = Scope(owner=store.owner, as_of=timestamps.parse("2030-01-01"))
        if store.corpus is None:
            return None
        store.corpus.prepare(MODEL, DIMENSIONS)
        return call(store.corpus, scope, known)

    return walk


_ASKED = WeightedTerms({WORD: (1.0, 1.0)}, ((1.0, 0.0), (1.0, 0.0)))


def _in_shares(call: Callable[[ShareStore, Known], Any]) -> Callable[[OwnerStore, Known], Any]:
    return lambda store, known: None if store.shares is None else call(store.shares, known)


SHARES: Calls = {
    "share": [
        _in_shares(lambda shares, known: shares.share("memory", known.id, "user", "alice")),
        _in_shares(lambda shares, _: shares.share("tag", "edited", "group", "crew", access="write")),
    ],
    "unshare": [
        _in_shares(lambda shares, known: shares.unshare("memory", known.id, "user", "alice")),
        _in_shares(lambda shares, _: shares.unshare("tag", "edited", "group", "crew")),
    ],
    "given": [_in_shares(lambda shares, _: shares.given())],
    "received": [_in_shares(lambda shares, _: shares.received())],
    "groups": [_in_shares(lambda shares, _: shares.groups())],
    "trust": [_in_shares(lambda shares, _: shares.trust("alice"))],
    "trusted": [_in_shares(lambda shares, _: shares.trusted())],
    "distrust": [_in_shares(lambda shares, _: shares.distrust("alice"))],
}
CORPUS: Calls = {
    "problem": [_in_corpus(lambda corpus, _, __: corpus.problem)],
    "warning": [_in_corpus(lambda corpus, _, __: corpus.warning)],
    "prepare": [_in_corpus(lambda corpus, _, __: corpus.prepare(MODEL, DIMENSIONS))],
    "is_behind": [_in_corpus(lambda corpus, _, __: [corpus.is_behind(each, MODEL) for each in (ANALYZER, "other")])],
    "index_words": [
        _in_corpus(lambda corpus, _, __: corpus.index_words(ANALYZER, _counted, 100)),
        _in_corpus(lambda corpus, _, __: corpus.index_words("other", _counted, 100)),
    ],
    "index_vectors": [_in_corpus(lambda corpus, _, __: corpus.index_vectors(MODEL, lambda _: None, 100))],
    "statistics": [_in_corpus(lambda corpus, _, __: corpus.statistics([WORD]))],
    "count": [_in_corpus(lambda corpus, scope, _: corpus.count(scope).versions)],
    "candidates": [
        _in_corpus(lambda corpus, scope, _: len(corpus.candidates(scope, MODEL, _ASKED, None, limit=5))),
        _in_corpus(
            lambda corpus, scope, _: len(corpus.candidates(scope, MODEL, _ASKED, None, limit=5, is_narrow=True))
        ),
    ],
    "facts": [_in_corpus(lambda corpus, scope, known: len(corpus.facts(known.rows, scope, 2)))],
    "speakers": [_in_corpus(lambda corpus, scope, _: corpus.speakers(scope))],
    "rows_of_speaker": [_in_corpus(lambda corpus, scope, _: len(corpus.rows_of_speaker([SPEAKER], scope, 5)))],
    "vectors": [_in_corpus(lambda corpus, _, known: list(corpus.vectors(MODEL, known.rows).values()))],
    "tokens": [_in_corpus(lambda corpus, _, known: list(corpus.tokens(MODEL, known.rows).values()))],
}

MODELS: Calls = {
    "lacking": [lambda store, _: store.models.lacking("any")],
    "count_lacking": [lambda store, _: store.models.count_lacking("any")],
    "clear_for": [lambda store, _: store.models.clear_for("hosted-any")],
    "count_clear_for": [lambda store, _: store.models.count_clear_for("hosted-any")],
    "save": [lambda store, known: store.models.save(HOSTED, {known.memories[0].content_hash: b"theirs"})],
    "withheld": [lambda store, _: store.models.withheld()],
    "seen": [lambda store, _: str(store.models.seen())],
}

MENTIONED_NAMES: Calls = {
    "unread": [lambda store, _: store.names.unread()],
    "save": [
        lambda store, known: store.names.save(
            {known.rows[0]: [Named("kite", "k", "Kite", False, "name")]}, read=known.rows
        )
    ],
    "mentions": [lambda store, _: store.names.mentions()],
    "known": [lambda store, _: store.names.known()],
    "find": [lambda store, _: store.names.find(["argo", "helm"])],
    "akin": [lambda store, _: store.names.akin(["A", "H"])],
    "numbered": [lambda store, known: store.names.numbered(known.names)],
    "common": [
        lambda store, _: store.names.common(-1),
        lambda store, known: store.names.common(-1, known.names),
    ],
    "grouped": [lambda store, _: store.names.grouped()],
    "members": [lambda store, known: store.names.members(known.names)],
    "set_concepts": [
        lambda store, known: store.names.set_concepts(dict.fromkeys(known.names, known.names[0]), "theirs")
    ],
    "merges": [lambda store, known: store.names.merges(known.names)],
    "edges": [
        lambda store, known: [store.names.edges(name) for name in known.names],
        lambda store, known: [store.names.edges(name, projects=["garden"]) for name in known.names],
    ],
    "counts": [lambda store, _: store.names.counts()],
    "forget": [lambda store, _: store.names.forget()],
}

JOBS: Calls = {
    "add": [lambda store, known: store.jobs.add(EMBED, [known.memories[0].content_hash])],
    "claim": [lambda store, _: [len(store.jobs.claim(kind)) for kind in (EMBED, NAMES, "other")]],
    "complete": [lambda store, known: store.jobs.complete(NAMES, map(str, known.rows))],
    "fail": [lambda store, known: store.jobs.fail(NAMES, map(str, known.rows), "theirs")],
    "count": [lambda store, _: [store.jobs.count(kind) for kind in (EMBED, NAMES, "other")]],
    "failed": [lambda store, _: store.jobs.failed("other")],
    "release": [lambda store, known: store.jobs.release(NAMES, map(str, known.rows))],
    "retry": [lambda store, _: store.jobs.retry("other")],
    "counts": [lambda store, _: store.jobs.counts()],
}

DOCUMENTS: Calls = {
    "put": [
        lambda store, _: store.documents.put(KIND, {"a": Document("theirs")}, most=1),
        lambda store, known: store.documents.put(KIND, {"b": Document("theirs", about=[known.id])}),
        # More than are kept: the oldest of this owner go.
        lambda store, _: store.documents.put(KIND, {key: Document("theirs") for key in "bc"}, most=1),
    ],
    "all": [lambda store, _: [store.documents.all(kind) for kind in (KIND, VAULT)]],
    "some": [lambda store, _: store.documents.some(KIND, ["a"])],
    "get": [lambda store, _: store.documents.get(KIND, "a")],
    "delete": [lambda store, _: store.documents.delete(KIND, ["a"])],
    "swap": [lambda store, _: store.documents.swap(KIND, "a", "x", "theirs")],
}

USAGE: Calls = {
    "recalled": [lambda store, known: store.usage.recalled([Use(known.id, 1)])],
    "injected": [
        lambda store, known: store.usage.injected(TALK, [Use(known.id, 1, known.memories[0].content_hash, ("other",))])
    ],
    "conversations": [lambda store, _: store.usage.conversations()],
    "given": [lambda store, _: store.usage.given(TALK)],
    "lose": [lambda store, _: store.usage.lose(TALK)],
    "forget": [lambda store, _: store.usage.forget(TALK)],
    "end": [lambda store, _: store.usage.end(TALK)],
    "counts": [lambda store, known: store.usage.counts([memory.id for memory in known.memories])],
    "most_used": [lambda store, _: store.usage.most_used()],
    "days": [lambda store, _: store.usage.days()],
    "echoed": [lambda store, _: store.usage.echoed([PRINT])],
    "flush": [lambda store, _: store.usage.flush()],
}
