"""Build questions from the recall log, memories, and pairs of memories."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, compress, pairwise

import numpy as np
from numpy.typing import NDArray

from triskele.bench.harness import in_use
from triskele.bench.own.questions import (
    EXACT,
    FROM_LINKS,
    FROM_WORDS,
    MULTI_HOP,
    PARAPHRASE,
    TYPES,
    OwnQuestion,
    delete_questions,
    make_question,
    questions_of,
    save_questions,
)
from triskele.curation import measures
from triskele.curation.measures import LoggedQuery
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput
from triskele.index.lexical import LexicalIndex
from triskele.store.vector_bytes import restored, sound_rows
from triskele.text.analysis import Analyzer
from triskele.text.words import STOP_WORDS
from triskele.types import LinkKind, Memory, Sensitivity

MAX_SIZE = 5000
# The maximum number of memories that are searched for pairs.
MAX_PAIRED = 5000
# A paraphrase shares at most this part of its terms with the memory that it asks for.
MAX_OVERLAP = 0.5
# Above this cosine two memories say nearly the same and one search retrieves both: no hop is needed.
MAX_COSINE = 0.5
# A word that more memories share says little about any two of them.
MAX_SHARING = 4
LOG, PHRASE, REWORDED, LINKS, TERMS = "log", "phrase", "reworded", "links", "terms"
_IMPORTANCE_BANDS = ((0.4, "low"), (0.7, "middle"))
_LONGEST_PHRASE = 80
_BORDER = re.compile(r"[.!?;:()\n]")
_OPENINGS = {
    "preferences": "what do we prefer about",
    "decisions": "what was decided about",
    "lessons": "what did we learn about",
    "procedures": "what are the steps for",
    "people": "who has to do with",
    "projects": "where do we stand with",
}
_ANY_OPENING = "what do we know about"


@dataclass(slots=True)
class BuildResult:
    """What a build added and refused, and all questions after it."""

    wanted: int
    added: list[OwnQuestion] = field(default_factory=list)
    dropped: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    questions: Mapping[str, OwnQuestion] = field(default_factory=dict)

    def missing(self) -> dict[str, int]:
        """How many questions of each type could not be made."""
        counts = Counter(question.type for question in self.questions.values())
        return {type: self.wanted - counts[type] for type in TYPES if counts[type] < self.wanted}


def build(engine: LocalEngine, *, size: int, seed: int) -> BuildResult:
    """Add questions until each type has a third; judged ones stay."""
    if not len(TYPES) <= size <= MAX_SIZE:
        raise BadInput(f"size must be between {len(TYPES)} and {MAX_SIZE:,}, not {size}")
    engine.upkeep.embed()
    # The recall log is written after the answers.
    engine.deferred_writes.flush()
    memories = in_use(engine)
    result = BuildResult(wanted=size // len(TYPES))
    stored = questions_of(engine)
    stale = [id for id, each in stored.items() if not each.judged and not set(each.sources) <= memories.keys()]
    delete_questions(engine.store, stale)
    result.dropped = len(stale)
    current = {id: each for id, each in stored.items() if id not in stale}
    result.added = _added(engine, memories, current, result, seed)
    save_questions(engine.store, result.added)
    result.questions = current | {each.id: each for each in result.added}
    return result


def _added(
    engine: LocalEngine, memories: Mapping[str, Memory], old: Mapping[str, OwnQuestion], result: BuildResult, seed: int
) -> list[OwnQuestion]:
    """New questions, logged ones first, until there are enough of each type."""
    counts = Counter(question.type for question in old.values())
    ids = set(old)
    added: list[OwnQuestion] = []

    def take(questions: Iterable[OwnQuestion], *types: str) -> None:
        for question in questions:
            if question.id not in ids and counts[question.type] < result.wanted:
                ids.add(question.id)
                counts[question.type] += 1
                added.append(question)
            if all(counts[type] >= result.wanted for type in types):
                return

    # Each generator asks about a memory once, also over several builds.
    used = {(source, each.generator) for each in old.values() for source in each.sources}
    chosen = spread((memory for memory in memories.values() if is_open(memory)), seed)
    take(_from_log(engine, memories, result), EXACT, PARAPHRASE)
    take(_exacts((memory for memory in chosen if (memory.id, PHRASE) not in used), engine), EXACT)
    take(_paraphrases((memory for memory in chosen if (memory.id, REWORDED) not in used), engine, result), PARAPHRASE)
    if counts[MULTI_HOP] < result.wanted:
        take(_multi_hops(pairs(engine, chosen[:MAX_PAIRED], result.wanted * 2), engine), MULTI_HOP)
    return added


def _from_log(engine: LocalEngine, memories: Mapping[str, Memory], result: BuildResult) -> Iterator[OwnQuestion]:
    for logged in measures.logged_queries(engine.store):
        top = memories.get(logged.hits[0]) if logged.hits else None
        if len(engine.lexical.analyzer.query_terms(logged.text)) < 2:
            result.refused["log: a single word"] += 1
        elif top is not None and not is_open(top):
            result.refused["log: about a private memory"] += 1
        else:
            yield _logged(logged, top, engine)


def _logged(asked: LoggedQuery, top: Memory | None, engine: LocalEngine) -> OwnQuestion:
    shared = overlap(asked.text, top.content, engine.lexical.analyzer) if top else 0.0
    kind = PARAPHRASE if shared <= MAX_OVERLAP else EXACT
    return make_question(asked.text, kind, LOG, project=asked.project, about=asked.hits)


def _exacts(memories: Iterable[Memory], engine: LocalEngine) -> Iterator[OwnQuestion]:
    for memory in memories:
        phrase = salient_phrase(memory.content, engine.lexical)
        if phrase is not None:
            yield _about([memory], phrase, EXACT, PHRASE, (FROM_WORDS,))


def _paraphrases(memories: Iterable[Memory], engine: LocalEngine, result: BuildResult) -> Iterator[OwnQuestion]:
    for memory in memories:
        text = reworded(memory, engine.lexical)
        if text is None:
            result.refused["paraphrase: no keywords or tags in other words"] += 1
        elif overlap(text, memory.content, engine.lexical.analyzer) > MAX_OVERLAP:
            share = f"{MAX_OVERLAP * 100:.0f} %"
            result.refused[f"paraphrase: shares more than {share} of its words with the memory"] += 1
        else:
            yield _about([memory], text, PARAPHRASE, REWORDED, (FROM_WORDS,))


def _multi_hops(found: Sequence[Pair], engine: LocalEngine) -> Iterator[OwnQuestion]:
    for pair in found:
        one, other = (salient_phrase(memory.content, engine.lexical) for memory in (pair.one, pair.other))
        if one and other:
            text = f"how does {one} relate to {other}?"
            if pair.shared:
                text = f"what do {one} and {other} have to do with {pair.shared}?"
            yield _about([pair.one, pair.other], text, MULTI_HOP, pair.generator, (FROM_LINKS, FROM_WORDS))


def _about(memories: Sequence[Memory], text: str, type: str, generator: str, circular: tuple[str, ...]) -> OwnQuestion:
    projects = {memory.project for memory in memories} - {""}
    return make_question(
        text,
        type,
        generator,
        project=projects.pop() if len(projects) == 1 else None,
        sources=tuple(memory.id for memory in memories),
        stratum=" + ".join(dict.fromkeys(map(stratum, memories))),
        circular=circular,
    )


# Sampling


def is_open(memory: Memory) -> bool:
    """Whether questions and external judges may use a memory."""
    return memory.sensitivity is Sensitivity.OPEN


def stratum(memory: Memory) -> str:
    """The category and the band of importance."""
    band = next((name for border, name in _IMPORTANCE_BANDS if memory.importance < border), "high")
    return f"{memory.category}/{band}"


def spread(memories: Iterable[Memory], seed: int) -> list[Memory]:
    """All memories in a seeded order in which the strata alternate."""
    groups: dict[str, list[Memory]] = {}
    for memory in sorted(memories, key=lambda each: each.id):
        groups.setdefault(stratum(memory), []).append(memory)
    chooser = random.Random(seed)
    for name in sorted(groups):
        chooser.shuffle(groups[name])
    ordered = [groups[name] for name in sorted(groups)]
    longest = max((len(group) for group in ordered), default=0)
    return [group[turn] for turn in range(longest) for group in ordered if turn < len(group)]


# Phrases


@dataclass(frozen=True, slots=True)
class WeightedWord:
    """A word with its position, and its rarity in the store."""

    text: str
    start: int
    end: int
    rarity: float

    @property
    def is_stop_word(self) -> bool:
        """Whether it is a stop word."""
        return self.text.lower() in STOP_WORDS


def words(text: str, index: LexicalIndex) -> list[WeightedWord]:
    """The words of a text in order, one per position."""
    tokens = sorted(index.analyzer.tokens(text), key=lambda token: (token.start, -token.end))
    rarity = index.view().rarity({token.text for token in tokens})
    spans: list[WeightedWord] = []
    for token in tokens:
        if spans and token.start == spans[-1].start and token.end == spans[-1].end:
            # An identifier is as rare as its rarest part; the whole is one of the parts.
            spans[-1] = WeightedWord(spans[-1].text, token.start, token.end, max(spans[-1].rarity, rarity[token.text]))
        elif not spans or token.start >= spans[-1].end:
            spans.append(WeightedWord(text[token.start : token.end], token.start, token.end, rarity[token.text]))
    return spans


def salient_phrase(text: str, index: LexicalIndex) -> str | None:
    """The rarest two or three consecutive words; None for stop words."""
    weighted = words(text, index)
    for length in (3, 2, 1):
        runs = [weighted[at : at + length] for at in range(len(weighted) - length + 1)]
        runs = [run for run in runs if _is_phrase(run, text)]
        if runs:
            best = max(runs, key=lambda run: (sum(word.rarity for word in run), -run[0].start))
            return " ".join(text[best[0].start : best[-1].end].split())
    return None


def _is_phrase(run: Sequence[WeightedWord], text: str) -> bool:
    between = (text[one.end : other.start] for one, other in pairwise(run))
    is_whole = not any(_BORDER.search(gap) for gap in between)
    has_content = not run[0].is_stop_word and not run[-1].is_stop_word
    return is_whole and has_content and run[-1].end - run[0].start <= _LONGEST_PHRASE


def reworded(memory: Memory, index: LexicalIndex) -> str | None:
    """A question of keywords, tags and the text's commonest words."""
    analyzer = index.analyzer
    own = set(analyzer.terms(memory.content))
    labels = [label for label in _labels(memory) if not own & set(analyzer.terms(label))]
    content = {word.text.lower(): word for word in words(memory.content, index) if not word.is_stop_word}
    by_rarity = sorted(content.values(), key=lambda word: (word.rarity, word.start))
    topic = sorted(by_rarity[: len(labels) + 1], key=lambda word: word.start) if labels else []
    if not topic:
        return None
    opening = _OPENINGS.get(memory.category, _ANY_OPENING)
    return f"{opening} {' '.join(labels)}, {' '.join(word.text for word in topic)}?"


def _labels(memory: Memory) -> list[str]:
    labels = [*re.split(r"[\s,;]+", memory.keywords), *(word for tag in memory.tags for word in tag.split())]
    return [word for word in dict.fromkeys(map(str.lower, labels)) if word and word not in STOP_WORDS][:3]


def overlap(question: str, text: str, analyzer: Analyzer) -> float:
    """The share of a question's terms that a text contains."""
    wanted = analyzer.query_terms(question)
    terms = set(analyzer.terms(text))
    return sum(term in terms for term in wanted) / len(wanted) if wanted else 1.0


# Pairs


@dataclass(frozen=True, slots=True)
class Pair:
    """Two memories that are linked, or that share the word in `shared`."""

    one: Memory
    other: Memory
    generator: str
    shared: str = ""


def pairs(engine: LocalEngine, memories: Sequence[Memory], limit: int) -> list[Pair]:
    """Pairs for one question: linked or sharing rare words, far in meaning.

    Linked pairs come first; without a model there are none.
    """
    vectors = _vectors(engine, memories)
    pair_of: dict[frozenset[str], Pair] = {}
    for pair in (*_linked(engine, memories), *_sharing(engine, memories)):
        if len(pair_of) >= limit:
            break
        name = frozenset({pair.one.id, pair.other.id})
        if name not in pair_of and _is_far(pair, vectors):
            pair_of[name] = pair
    return list(pair_of.values())


def _linked(engine: LocalEngine, memories: Sequence[Memory]) -> Iterator[Pair]:
    by_id = {memory.id: memory for memory in memories}
    for link in engine.store.links(list(by_id)):
        if link.kind is not LinkKind.SUPERSEDES and link.source in by_id and link.target in by_id:
            yield Pair(by_id[link.source], by_id[link.target], LINKS)


def _sharing(engine: LocalEngine, memories: Sequence[Memory]) -> Iterator[Pair]:
    """Pairs that share a rare tag or name, the rarest first."""
    holders: dict[str, list[Memory]] = {}
    for memory in memories:
        for word in _names(memory, engine):
            holders.setdefault(word, []).append(memory)
    rare = [group for group in holders.items() if 2 <= len(group[1]) <= MAX_SHARING]
    for word, group in sorted(rare, key=lambda item: len(item[1])):
        for one, other in combinations(group, 2):
            yield Pair(one, other, TERMS, word)


def _names(memory: Memory, engine: LocalEngine) -> list[str]:
    """Tags, names and identifiers: a rare word of everyday language connects nothing."""
    weighted = words(memory.content, engine.lexical)
    names = [word.text for word in weighted if not word.is_stop_word and word.text[1:].lower() != word.text[1:]]
    names += [word.text for word, before in zip(weighted[1:], weighted, strict=False) if _is_name(word, before, memory)]
    return list(dict.fromkeys([*memory.tags, *names]))


def _is_name(word: WeightedWord, before: WeightedWord, memory: Memory) -> bool:
    """Whether a word is capitalised in the middle of a sentence."""
    is_inside = memory.content[before.end : word.start].isspace()
    return not word.is_stop_word and word.text[:1].isupper() and is_inside


def _vectors(engine: LocalEngine, memories: Iterable[Memory]) -> Mapping[str, NDArray[np.float32]]:
    semantic = engine.semantic()
    if semantic is None:
        return {}
    wanted = {memory.content_hash for memory in memories}
    vectors: dict[str, NDArray[np.float32]] = {}
    last = 0
    while page := engine.store.vectors.page(semantic.embedder.fingerprint, after=last):
        records = [(digest, raw) for _, digest, raw in page if digest in wanted]
        rows, is_sound = sound_rows([raw for _, raw in records], semantic.embedder.dimensions)
        sound = compress((digest for digest, _ in records), is_sound)
        vectors |= zip(sound, restored(rows), strict=True)
        last = page[-1][0]
    return vectors


def _is_far(pair: Pair, vectors: Mapping[str, NDArray[np.float32]]) -> bool:
    one, other = vectors.get(pair.one.content_hash), vectors.get(pair.other.content_hash)
    return one is not None and other is not None and float(one @ other) < MAX_COSINE
