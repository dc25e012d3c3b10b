"""Step 1: a question as the legs read it, with terms, rarity, encoding and titles; and the sources of a recall."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from triskele.errors import ModelUnavailable
from triskele.index.corpus import Bools, Corpus, Floats, Vectors, Words
from triskele.models.embedder import Embedder, Encoding
from triskele.recall.plan import Plan
from triskele.recall.scores import DENSE, LEXICAL, step
from triskele.store.owner import OwnerStore
from triskele.text.analysis import Analyzer, identifiers, spellings
from triskele.text.periods import question_period
from triskele.text.spellings import MAX_PARTS, parts
from triskele.text.time_grammar import TIME_HINT
from triskele.text.words import COMMON_WORDS, STOP_WORDS
from triskele.types import Memory, Query, Scope, Sort

if TYPE_CHECKING:
    from triskele.models.cross_encoder import Context, Reranking

LEXICAL_ONLY = "searched by words only"
WITHOUT_MODEL = f"{LEXICAL_ONLY}: no model is installed"
# How many turns of a conversation on either side count for a candidate.
REACH = 2
# What a rule or a preference is written with.
RULE_WORDS = ("always", "never", "prefer", "usually", "avoid")
# A name that is the subject of more memories than this is no title.
MAX_OWNERS = 10
_SHORTEST_TITLE = 3
# The last sentence of a request says what is wanted; the others give context.
LAST_SENTENCE = 3.0
_IN_NO_TEXT = "\0"
_LEAST_WEIGHT = 1e-6
_RARITY_POWER = 0.7
_LONGEST_WORD = 50
# Most questions have neither digits nor underscores, so no identifier.
_HAS_IDENTIFIER = re.compile(r"[\d_]").search
_LETTERS = re.compile(r"\w*")
_RUNS = re.compile(r"\w+").finditer
_HAS_LETTER = re.compile(r"[^\W_]").search
# A memory whose subject occurs in a query, and where it starts and ends there.
Title = tuple[int, int, int]
_rule_tokens: dict[str, Floats] = {}

_BARE_WORDS = 3
# Fewer words are rather a title or a search.
_LEAST_REQUEST = 5
_WORD = re.compile(r"\w+")
_ASKS = re.compile(
    r"[?？؟](?=\s|$|['\"”’)])"
    r"|^\W*(?:(?:and|at|for|from|in|on|to) )?(?:who|what|when|where|which|whose|whom|why|how)\b"
    r"|^\W*(?:did|does|do|is|are|was|were|has|have|had|can|could|would|will|should)\b"
    r"|^\W*(?:(?:please )?(?:tell|show|remind|give) (?:me|us)|notes? (?:about|on)|i wonder)\b",
    re.IGNORECASE,
)
# A question for advice is a request as well, unless it asks for a person, a place, a time, or for advice of before.
_ASKS_ADVICE = re.compile(
    r"\b(?:recommend\w*|suggest(?!ed)\w*|advi[cs]e|tips|ideas?|looking for|for me|help (?:me|us)"
    r"|(?:can|could|should|might) (?:i|we)|(?:i|we) (?:can|could|should|might)|i(?:['’]d| would) (?:like|love)"
    r"|(?:can|could|would|will) you (?:please )?(?:add|book|build|change|draft|fix|make|refactor|rename|set|turn|write)"
    r"|best way to|(?:some|a) (?:good|great|fun|nice)|what are some)\b",
    re.IGNORECASE,
)
_ASKS_FACT = re.compile(
    r"^\W*(?:(?:and|at|for|from|in|on|to) )?(?:who|whom|where|when|how (?:many|much|long|often))\b"
    r"|\b(?:\w+ (?:said|told|mentioned|suggested|recommended|gave)"
    r"|did|was|were|had|has|have|been|remind|remember|previous(?:ly)?|earlier|last)\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?:]['\"”’)]*\s+(?=\S)")


@dataclass(frozen=True, slots=True)
class TextForm:
    """What a text wants: a request or remark wants something done, which rules apply to; a question may be one too."""

    asks: bool = False
    is_request: bool = False
    is_search: bool = False


class Scorer(Protocol):
    """Scores texts for a question within a time, or without a limit."""

    @property
    def name(self) -> str:
        """The name to show."""

    def score(self, question: str, texts: Sequence[str], contexts: Sequence[Context] = ()) -> Floats:
        """One logit for each text."""

    def score_within(
        self, seconds: float, question: str, texts: Sequence[str], contexts: Sequence[Context] = ()
    ) -> Floats:
        """The same, or TimeoutError."""


class CandidateReranker(Protocol):
    """Anything that orders the best candidates of a query again."""

    @property
    def name(self) -> str:
        """The name to show."""

    @property
    def depth(self) -> int:
        """How many candidates it reads."""

    def review(self, question: str, memories: Mapping[int, Memory]) -> Reranking:
        """Order memories, given by row and best first."""


class Rewriter(Protocol):
    """Writes other wordings of a question."""

    def wordings(self, question: str) -> tuple[list[str], str]:
        """Other wordings, or an empty list with the reason."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The store, corpus and models of a recall; without an embedder only the lexical leg runs.

    `open_corpus` and `hosted`, which opens the cosines of a hosted model, are called inside a snapshot of the store.
    """

    store: OwnerStore
    open_corpus: Callable[[Scope], Corpus]
    analyzer: Analyzer
    embedder: Embedder | None = None
    hosted: Callable[[], Vectors] | None = None
    cross_encoder: CandidateReranker | None = None
    scorer: Scorer | None = None
    rewriter: Rewriter | None = None
    missing: tuple[str, ...] = ()
    half_life_days: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """A query with its plan, its terms and, if a model reads it, its encoding and the weight of each token.

    `terms` leave out stop words, `rarity` has these too. `unknown` are identifiers that no memory of the scope holds in
    any spelling. `hosted` are the cosines of a hosted model. `reach` is how many turns on either side count for a
    candidate. `rule_tokens` are the vectors of the words of rules, for a request. `missing` says why the model was not
    used.
    """

    query: Query
    plan: Plan
    terms: tuple[str, ...] = ()
    rarity: Mapping[str, float] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()
    encoding: Encoding | None = None
    token_weights: Floats = field(default_factory=np.empty(0, dtype=np.float32).copy)
    hosted: Vectors | None = None
    reach: int = REACH
    form: TextForm = TextForm()
    rule_tokens: Floats = field(default_factory=np.empty((0, 0), dtype=np.float32).copy)
    missing: tuple[str, ...] = ()

    @property
    def depth(self) -> int:
        """The number of rows that a leg returns."""
        return self.query.depth

    @property
    def vector(self) -> Floats | None:
        """The sentence vector; None if no model reads the question."""
        return None if self.encoding is None else self.encoding.sentence

    @property
    def is_hybrid(self) -> bool:
        """Whether words and vectors both rank."""
        return {LEXICAL, DENSE} <= self.plan.legs

    @property
    def ceiling(self) -> float:
        """The sum of the rarities: what a memory with every term could reach."""
        return sum(self.rarity[term] for term in self.terms)

    def weight_between(self, start: int, stop: int) -> float:
        """The weight of the tokens between two positions in the text."""
        return float(self.token_weights[self._is_between(start, stop)].sum())

    def reweighted(self, spans: Iterable[tuple[int, int]], factor: float) -> Floats:
        """The token weights with those in some spans multiplied; unchanged if nothing would be left."""
        weights = self.token_weights.copy()
        for start, stop in spans:
            weights[self._is_between(start, stop)] *= factor
        total = float(weights.sum())
        return weights / np.float32(total) if total > _LEAST_WEIGHT else self.token_weights

    def _is_between(self, start: int, stop: int) -> Bools:
        assert self.encoding is not None
        spans = self.encoding.spans
        return (spans[:, 0] >= start) & (spans[:, 1] <= stop)


@step
def read(query: Query, plan: Plan, corpus: Corpus, sources: Sources) -> Question:
    """Read a query: its identifiers as memories spell them, its terms, the time it names, its encoding."""
    text, unknown, form = query.text, frozenset[str](), form_of(query.text)
    # A date in a request or remark does not say when memories were made.
    if TIME_HINT.search(text) and not form.is_request:
        query = replace(query, period=question_period(text, query.scope.as_of))
    if _HAS_IDENTIFIER(text):
        text, unknown = respelled(text, corpus)
    return read_wording(replace(query, text=text), plan, corpus, sources, form, unknown)


def read_wording(
    query: Query, plan: Plan, corpus: Corpus, sources: Sources, form: TextForm, unknown: frozenset[str] = frozenset()
) -> Question:
    """Read a query as it is spelled."""
    text, analyzer = query.text, sources.analyzer
    has_letters = any(map(str.isalnum, text))
    terms = analyzer.query_terms(text) if has_letters else ()
    # The weights of tokens need the rarity of words that the terms leave out.
    words = analyzer.terms(text) if sources.embedder is not None else ()
    rarity = corpus.rarity(dict.fromkeys([*terms, *words]))
    # The turns around a rule say little about what it applies to.
    reach = REACH if plan.context and not form.is_request else 0
    question = Question(query, plan, tuple(terms), rarity, unknown, reach=reach, form=form)
    # Sources have no embedder if the plan needs no model.
    if sources.embedder is None or query.sort is not Sort.RELEVANCE or not has_letters:
        return question
    try:
        encoding = sources.embedder.encode_query(text)
        rules = _encoded_rule_words(sources.embedder) if form.is_request else question.rule_tokens
    except ModelUnavailable as error:
        return replace(question, missing=(f"{LEXICAL_ONLY}: {error}",))
    weights = token_weights(text, encoding, analyzer, rarity)
    hosted = sources.hosted() if sources.hosted is not None else None
    question = replace(question, encoding=encoding, token_weights=weights, hosted=hosted)
    if not form.is_request:
        return question
    start = max((match.end() for match in _SENTENCE_END.finditer(text)), default=0)
    weights = question.reweighted([(start, len(text))], LAST_SENTENCE) if start else weights
    return replace(question, token_weights=weights, rule_tokens=rules)


def _encoded_rule_words(embedder: Embedder) -> Floats:
    """The token vectors of the words that rules are written with."""
    if embedder.fingerprint not in _rule_tokens:
        vectors = [embedder.encode_query(word).tokens for word in RULE_WORDS]
        _rule_tokens[embedder.fingerprint] = np.concatenate(vectors)
    return _rule_tokens[embedder.fingerprint]


def form_of(text: str) -> TextForm:
    """What a text wants: the answer to a question, rules that apply to a request, or what it searches for."""
    if _ASKS.search(text):
        is_advice = _ASKS_ADVICE.search(text) is not None and _ASKS_FACT.search(text) is None
        return TextForm(asks=True, is_request=is_advice)
    words = _WORD.findall(text.lower())
    is_bare = 0 < len(words) <= _BARE_WORDS and STOP_WORDS.isdisjoint(words) and "?" not in text
    return TextForm(is_search=is_bare, is_request=len(words) >= _LEAST_REQUEST)


def respelled(text: str, corpus: Words) -> tuple[str, frozenset[str]]:
    """A text with its identifiers as the memories of the scope write them, and those that none of them holds."""
    unknown = set()
    for word in reversed(identifiers(text)):
        if _is_held(word.text, corpus):
            continue
        known = _in_any_text(spellings(word.text), corpus)
        spelling = next((spelling for spelling in known if _is_held(spelling, corpus)), None)
        if spelling is None:
            unknown.add(word.text)
        else:
            text = text[: word.start] + spelling + text[word.end :]
    return text, frozenset(unknown)


def _in_any_text(terms: Sequence[str], corpus: Words) -> list[str]:
    """The terms that any memory contains, inside the scope or not."""
    rarity = corpus.rarity([*terms, _IN_NO_TEXT])
    return [term for term in terms if rarity[term] < rarity[_IN_NO_TEXT]]


def _is_held(term: str, corpus: Words) -> bool:
    return bool(corpus.search((term,), limit=1))


def token_weights(text: str, encoding: Encoding, analyzer: Analyzer, rarity: Mapping[str, float]) -> Floats:
    """The weight of each token: by the rarity of its word, 0 for stop words and punctuation; they sum to 1."""
    words = _words(text, encoding.spans)
    pairs = zip(words, [analyzer.terms(word) for word in words], strict=True)
    weights = np.array([_weight(word, terms, rarity) for word, terms in pairs], dtype=np.float32)
    total = float(weights.sum())
    if total <= 0:
        return np.full(len(weights), 1 / max(1, len(weights)), dtype=np.float32)
    return weights / total


def _weight(word: str, terms: Sequence[str], rarity: Mapping[str, float]) -> float:
    if word.lower() in STOP_WORDS:
        return 0.0
    rarest = max((rarity.get(term, 0.0) for term in terms), default=0.0)
    return float(rarest**_RARITY_POWER)


def _words(text: str, spans: NDArray[np.int32]) -> list[str]:
    """The whole word that each token is part of; empty for punctuation."""
    runs = [match.span() for match in _RUNS(text)]
    words, at = [], 0
    for start, stop in spans.tolist():
        while at < len(runs) and runs[at][1] <= start:
            at += 1
        first, last = runs[at] if at < len(runs) else (len(text), 0)
        # Nearly every token is a piece of such a run.
        if first <= start < stop <= last <= first + _LONGEST_WORD and text[start:stop].isalnum():
            words.append(text[first:last])
        else:
            words.append(_word(text, start, stop))
    return words


def _word(text: str, start: int, stop: int) -> str:
    if not _HAS_LETTER(text, start, stop):
        return ""
    # Read backwards from the token: a search from the left would try every position.
    before = _run(text[max(0, start - _LONGEST_WORD) : start][::-1])[::-1]
    return before + text[start:stop] + _run(text[stop : stop + _LONGEST_WORD])


def _run(text: str) -> str:
    """The letters that a text begins with."""
    letters = _LETTERS.match(text)
    return letters.group() if letters else ""


def titles(text: str, corpus: Corpus) -> list[Title]:
    """The memories whose subject occurs in a query."""
    listed = parts(text)
    words = " ".join([part.text for part in listed])
    ends = list(accumulate([len(part.text) + 1 for part in listed], initial=0))
    count = len(listed)
    runs = [
        [words[begin : end - 1] for end in ends[at + 1 : at + 1 + MAX_PARTS]] for at, begin in enumerate(ends[:count])
    ]
    names = corpus.names.find({run for each in runs for run in each if len(run) >= _SHORTEST_TITLE} - COMMON_WORDS)
    # The longest from each place: they come in order of length.
    longest = {at: at + size for at, each in enumerate(runs) for size, run in enumerate(each, 1) if run in names}
    spans, at = list[tuple[int, int, int]](), 0
    while longest and at < count:
        if (end := longest.get(at)) is not None:
            start, stop = listed[at].start, listed[end - 1].end
            name = names[runs[at][end - at - 1]]
            # The query may write a common word alike.
            if name.any_case or not all(word[0].islower() for word in text[start:stop].split()):
                spans.append((name.concept, start, stop))
        at = end or at + 1
    owners = _owners(corpus, [concept for concept, _, _ in spans]) if spans else ()
    return [(row, *spans[position][1:]) for row, position in owners]


def _owners(corpus: Corpus, concepts: Sequence[int]) -> Iterable[tuple[int, int]]:
    """The visible memories that concepts of few owners are the subject of, each with the place of the concept."""
    position, rows, is_subject = corpus.holders(np.array(concepts, dtype=np.int64))
    is_wanted = is_subject & (np.bincount(position, is_subject, len(concepts)) <= MAX_OWNERS)[position]
    is_wanted[is_wanted] = corpus.facts(rows[is_wanted]).is_visible
    return zip(rows[is_wanted].tolist(), position[is_wanted].tolist(), strict=True)
