"""Pairs of memories that one question can ask for together: linked or sharing a rare word, but not near in meaning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from triskele.engine import Engine
from triskele.evaluation.own.phrases import Word, words
from triskele.types import LinkKind, Memory

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Above this the two say nearly the same, and one search finds both: no hop is needed.
MAX_COSINE = 0.5
# A word that more memories share than this says little about any two of them.
MOST_SHARING = 4
LINKS, TERMS = "links", "terms"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two memories and what holds them together: a link, or the word in `shared`."""

    one: Memory
    other: Memory
    generator: str
    shared: str = ""


def pairs(engine: Engine, memories: Sequence[Memory], limit: int) -> list[Pair]:
    """Pairs far enough apart in meaning, linked ones first; none where no model can tell."""
    vectors = _vectors(engine, memories)
    found: dict[frozenset[str], Pair] = {}
    for pair in (*_linked(engine, memories), *_sharing(engine, memories)):
        if len(found) >= limit:
            break
        name = frozenset({pair.one.id, pair.other.id})
        if name not in found and _is_far(pair, vectors):
            found[name] = pair
    return list(found.values())


def _linked(engine: Engine, memories: Sequence[Memory]) -> Iterator[Pair]:
    known = {memory.id: memory for memory in memories}
    for link in engine.store.links(list(known)):
        if link.kind is not LinkKind.SUPERSEDES and link.source in known and link.target in known:
            yield Pair(known[link.source], known[link.target], LINKS)


def _sharing(engine: Engine, memories: Sequence[Memory]) -> Iterator[Pair]:
    """Pairs that share a tag or a name that few have, the rarest first, in the order of the memories."""
    holders: dict[str, list[Memory]] = {}
    for memory in memories:
        for word in _telling(memory, engine):
            holders.setdefault(word, []).append(memory)
    rare = [group for group in holders.items() if 2 <= len(group[1]) <= MOST_SHARING]
    for word, group in sorted(rare, key=lambda item: len(item[1])):
        for one, other in combinations(group, 2):
            yield Pair(one, other, TERMS, word)


def _telling(memory: Memory, engine: Engine) -> list[str]:
    """Tags, names and identifiers: a rare word of everyday language connects nothing."""
    found = words(memory.content, engine.lexical)
    names = [word.text for word in found if word.is_telling and word.text[1:].lower() != word.text[1:]]
    names += [word.text for word, before in zip(found[1:], found, strict=False) if _is_name(word, before, memory)]
    return list(dict.fromkeys([*memory.tags, *names]))


def _is_name(word: Word, before: Word, memory: Memory) -> bool:
    """Whether a word is capitalised in the middle of a sentence."""
    return word.is_telling and word.text[:1].isupper() and memory.content[before.end : word.start].isspace()


def _vectors(engine: Engine, memories: Iterable[Memory]) -> Mapping[str, NDArray[np.float32]]:
    import numpy as np

    meaning = engine.meaning()
    if meaning is None:
        return {}
    wanted = {memory.content_hash for memory in memories}
    found: dict[str, NDArray[np.float32]] = {}
    last = 0
    while page := engine.store.vectors.page(meaning.embedder.fingerprint, after=last):
        found |= {digest: np.frombuffer(raw, dtype="<f4") for _, digest, raw in page if digest in wanted}
        last = page[-1][0]
    return found


def _is_far(pair: Pair, vectors: Mapping[str, NDArray[np.float32]]) -> bool:
    one, other = vectors.get(pair.one.content_hash), vectors.get(pair.other.content_hash)
    return one is not None and other is not None and float(one @ other) < MAX_COSINE
