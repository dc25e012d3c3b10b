"""From text to index terms: stems, identifiers whole and split, and pairs where words are not spaced."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

import Stemmer

from triskele.errors import BadInput
from triskele.text.words import MARKS, STOP_WORDS, UNSPACED, fold
from triskele.types import Memory

MAX_TERM_CHARACTERS = 100
MAX_QUERY_CHARACTERS = 40_000
MAX_CACHED_WORDS = 100_000
# BM25's length normalisation (b = 0.75) is too strong for short memories; equal padding weakens it for them alone.
PADDING = 32

_LETTER = rf"(?:[^\W{UNSPACED}]|[{MARKS}])"
# Runs of one class at a time, never given back: much faster than letter by letter.
_LETTERS = rf"(?:[^\W{UNSPACED}]++|[{MARKS}]++)++"
_ASCII_TOKEN = re.compile(r"\w+(?:[+#]+(?!\w)|(?:[.:/@\-+#']+\w+)*)", re.ASCII)
_ASCII_PARTS = re.compile(r"\w+", re.ASCII)
_CAMEL = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_IS_CAMEL = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]")
_IDENTIFIER = re.compile(r"[_/@:.]|-.*[0-9]|[0-9].*-|[a-z][A-Z]|[A-Z]{2}[a-z]|[+#]$")
# A word of letters with digits or underscores: a ticket, a code, a variable. `27th` and `10am` do not count.
_NUMBERED = re.compile(r"(?=[^\W\d_])(?=.*[\d_]).{3,}")
# A run that is one name or number: an assignment, the query of a URL, a path, digits in groups.
_JOINED = re.compile(r"\w(?:[\\=&?~]|->)\w|\w/(?:[\[{<]|\W*$)|\d,\d|^\W*[~/\\]\w")
_DIGITS = re.compile(r"\d+")
_IS_UNSPACED = re.compile(f"[{UNSPACED}]")
_JOINTS = re.compile(r"[-_]")
_LONGEST_RESPELLED = 30
_HALF = re.compile(r"[^']+")
_BETWEEN_UNDERSCORES = re.compile(r"[^_]+")
_CONTRACTIONS = {"s", "t", "d", "ll", "m", "re", "ve"}
_SCRIPTS = (
    ("\u0370", "\u03ff", "greek"),
    ("\u0400", "\u04ff", "russian"),
    ("\u0600", "\u06ff", "arabic"),
    ("\u0900", "\u097f", "hindi"),
    ("\u0b80", "\u0bff", "tamil"),
)


class Token(NamedTuple):
    """An index term with the place in the text that it came from."""

    text: str
    start: int
    end: int


class _Cache(dict[str, tuple[str, ...]]):
    """A cache of the terms of words; emptied when full, which is rare and cheaper than keeping their order."""

    def __init__(self, make: Callable[[str], tuple[str, ...]]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, word: str) -> tuple[str, ...]:
        if len(self) >= MAX_CACHED_WORDS:
            self.clear()
        terms = self[word] = self._make(word)
        return terms


class Analyzer:
    """Turns text into terms, the same way for memories and for questions."""

    def __init__(self, language: str = "english", *, source: str = "") -> None:
        """Load the stemmers of a language; an error says `source`, where the setting was read."""
        self.language = language
        # The stemmers' own caches cost more than a stem; words are cached with all of their terms.
        try:
            self._stemmer = Stemmer.Stemmer(language, 0) if language != "none" else None
        except KeyError:
            problem = f"setting index.language: no stemmer for {language!r} (write none to do without){source}"
            raise BadInput(problem) from None
        self._by_script = {name: Stemmer.Stemmer(name, 0) for _, _, name in _SCRIPTS}
        self._terms_of = _Cache(self._word_terms)
        # Ranking, weighting and explaining a query need its terms many times.
        self._asked = lru_cache(maxsize=16)(self._query_terms)

    def tokens(self, text: str) -> list[Token]:
        """Every term of a text with its span; an identifier gives its whole and its parts."""
        is_mixed = _holds_unspaced(text)
        tokens: list[Token] = []
        for match in _pattern(text).finditer(text):
            word, (start, end) = match.group(), match.span()
            if is_mixed and _IS_UNSPACED.match(word):
                tokens += [Token(t, start + a, start + b) for t, a, b in _grams(word)]
            else:
                tokens += [Token(term, start, end) for term in self._terms_of[word]]
        return tokens

    def terms(self, text: str) -> list[str]:
        """The terms under which a text is indexed."""
        if text.isalnum() and text.isascii():
            return list(self._terms_of[text])
        if _holds_unspaced(text):
            return [token.text for token in self.tokens(text)]
        return [term for word in _pattern(text).findall(text) for term in self._terms_of[word]]

    def plain_terms(self, text: str) -> frozenset[str]:
        """The terms of the words that stand alone in a text, and of its identifiers as a whole."""
        # The text of a Markdown link is no part of its address.
        runs = text.replace("](", " ").split()
        return frozenset(term for run in runs for word in _words(run) for term in self._whole_terms(word))

    def missing_words(self, query: str, text: str) -> frozenset[str]:
        """The terms of the plain words of a query that do not stand alone in a text."""
        words = " ".join(run for run in query.split() if not has_identifier(run))
        return self.plain_terms(words) - self.plain_terms(text)

    def _whole_terms(self, word: str) -> Sequence[str]:
        if _IS_UNSPACED.match(word):
            return [term for term, _, _ in _grams(word)]
        if "'" in word:
            return [term for _, half in _halves(word) for term in self._whole_terms(half)]
        terms = self._terms_of[word]
        return terms[-1:] if _IDENTIFIER.search(word) else terms

    def first_places_of_each(self, texts: Sequence[str], wanted: frozenset[str]) -> list[list[Token]]:
        """The first places of wanted terms in several texts, in the order of each text."""
        return [
            [self._narrowed(token, text) for token in _first(t for t in self.tokens(text) if t.text in wanted)]
            for text in texts
        ]

    def query_terms(self, text: str) -> list[str]:
        """The distinct terms to look for: stop words count only when there is nothing else."""
        return list(self._asked(text[:MAX_QUERY_CHARACTERS]))

    def _query_terms(self, text: str) -> tuple[str, ...]:
        terms = self.terms(text) if text.isascii() else self._unpaired(self.tokens(text))
        stop_terms = _stop_terms(self.language)
        content_terms = [term for term in terms if term not in stop_terms]
        return tuple(dict.fromkeys(content_terms or terms))

    @staticmethod
    def _unpaired(tokens: Sequence[Token]) -> list[str]:
        # A pair of characters says more than either alone, so single ones are asked for only when alone.
        paired = {
            place for t in tokens if _IS_UNSPACED.match(t.text) and len(t.text) == 2 for place in (t.start, t.end - 1)
        }
        return [t.text for t in tokens if not (_is_single(t) and t.start in paired)]

    def _word_terms(self, word: str) -> tuple[str, ...]:
        if _is_plain(word):
            return (self._stem(word.lower())[:MAX_TERM_CHARACTERS],)
        return tuple(token.text for token in self._placed_terms(word))

    def _placed_terms(self, word: str) -> list[Token]:
        """The terms of a word at their places in it: of its parts, then of the whole if it is an identifier."""
        if "'" in word:
            halves = [(at, self._placed_terms(half)) for at, half in _halves(word)]
            return [Token(term, at + start, at + end) for at, tokens in halves for term, start, end in tokens]
        terms = [(self._stem(fold(word[start:end])), start, end) for start, end in _pieces(word)]
        if _IDENTIFIER.search(word):
            terms.append((fold(word), 0, len(word)))
        return _first(Token(term[:MAX_TERM_CHARACTERS], start, end) for term, start, end in terms if term)

    def _narrowed(self, token: Token, text: str) -> Token:
        """A token at the place of its part, if its word has several."""
        parts = self._placed_terms(text[token.start : token.end])
        if len(parts) < 2:
            return token
        start, end = next((part.start, part.end) for part in parts if part.text == token.text)
        return Token(token.text, token.start + start, token.start + end)

    def _stem(self, word: str) -> str:
        if word.isascii():
            return self._stemmer.stemWord(word) if self._stemmer is not None else word
        for first, last, name in _SCRIPTS:
            if first <= word[0] <= last:
                return str(self._by_script[name].stemWord(word))
        return self._stemmer.stemWord(word) if self._stemmer is not None else word


def memory_terms(memory: Memory, analyzer: Analyzer) -> dict[str, list[str]]:
    """The terms of a memory by field; labels are keywords, tags and category together."""
    return {
        "content": [*analyzer.terms(memory.content), *analyzer.terms(_spoken_date(memory))],
        "labels": analyzer.terms(" ".join((memory.keywords, *memory.tags, memory.category))),
    }


def _spoken_date(memory: Memory) -> str:
    """The date of a turn: people search for a turn by its date, so the date is a part of the text."""
    return memory.created_at.strftime("%d %B %Y").lstrip("0") if memory.session is not None else ""


def identifiers(text: str) -> list[Token]:
    """The words of a text that look like identifiers, folded."""
    words = _pattern(text).finditer(text)
    return [Token(fold(word.group()), *word.span()) for word in words if _NUMBERED.fullmatch(word.group())]


def has_identifier(text: str) -> bool:
    """Whether any word of a text looks like an identifier."""
    words = _pattern(text).findall(text)
    return any(_IDENTIFIER.search(word) or _NUMBERED.fullmatch(word) for word in words)


def _words(run: str) -> Iterator[str]:
    """The words of a run without spaces; if it is one name, only words of scripts without spaces."""
    is_name = _JOINED.search(run) is not None
    return (word for word in _pattern(run).findall(run) if not is_name or _IS_UNSPACED.match(word))


def spellings(identifier: str) -> list[str]:
    """Other ways to write an identifier: with other joints, without joints, or with one more."""
    if len(identifier) > _LONGEST_RESPELLED:
        return []
    if _JOINTS.search(identifier):
        candidates = [_JOINTS.sub(joint, identifier) for joint in ("-", "_", "")]
    else:
        cuts = range(1, len(identifier))
        candidates = [f"{identifier[:cut]}{joint}{identifier[cut:]}" for joint in "-_" for cut in cuts]
    return [spelling for spelling in dict.fromkeys(candidates) if spelling != identifier]


def shape(identifier: str) -> str:
    """An identifier without its numbers and joints: `hrn-417` and `hrn_99` have the same shape."""
    return _DIGITS.sub("0", _JOINTS.sub("", identifier))


def _pattern(text: str) -> re.Pattern[str]:
    """The pattern of the words and unspaced runs of a text."""
    return _ASCII_TOKEN if text.isascii() else _token()


def _holds_unspaced(text: str) -> bool:
    return not text.isascii() and _IS_UNSPACED.search(text) is not None


# Compiled when a text needs them: their large classes take longer than all other patterns of a start together.


@cache
def _token() -> re.Pattern[str]:
    return re.compile(rf"[{UNSPACED}]+|{_LETTERS}(?:[+#]+(?!{_LETTER})|(?:[.:/@\-+#']+{_LETTERS})*)")


@cache
def _parts() -> re.Pattern[str]:
    return re.compile(_LETTERS)


@lru_cache(maxsize=16)
def _stop_terms(language: str) -> frozenset[str]:
    if language == "none":
        return STOP_WORDS
    stemmer = Stemmer.Stemmer(language)
    return STOP_WORDS | frozenset(stemmer.stemWords(sorted(STOP_WORDS)))


def _is_plain(word: str) -> bool:
    """Whether a word has neither parts nor accents, like most words."""
    is_one_case = word.islower() or word[1:].islower() or word.isupper() or word.isdigit()
    return is_one_case and word.isascii() and word.isalnum()


def _halves(word: str) -> list[tuple[int, str]]:
    """What stands before and after apostrophes: "Nate's" is Nate; "l'eau" and "O'Brien" keep both halves."""
    first, *rest = ((match.start(), match.group()) for match in _HALF.finditer(word))
    return [first, *(half for half in rest if half[1].lower() not in _CONTRACTIONS)]


def _pieces(word: str) -> Iterator[tuple[int, int]]:
    """Where the words inside an identifier stand: `getUserById` and `user_id` have some, plain words themselves."""
    for part in (_ASCII_PARTS if word.isascii() else _parts()).finditer(word):
        for run in _BETWEEN_UNDERSCORES.finditer(word, *part.span()):
            is_camel = run.group().isascii() and _IS_CAMEL.search(run.group()) is not None
            yield from (piece.span() for piece in _CAMEL.finditer(word, *run.span())) if is_camel else [run.span()]


def _first(tokens: Iterable[Token]) -> list[Token]:
    """The first token of each term."""
    first: dict[str, Token] = {}
    for token in tokens:
        first.setdefault(token.text, token)
    return list(first.values())


def _grams(run: str) -> list[tuple[str, int, int]]:
    """Single characters and pairs of a run without spaces."""
    folded = unicodedata.normalize("NFKC", run)
    if len(folded) != len(run):
        folded = run
    singles = [(folded[i], i, i + 1) for i in range(len(folded))]
    pairs = [(folded[i : i + 2], i, i + 2) for i in range(len(folded) - 1)]
    return singles + pairs


def _is_single(token: Token) -> bool:
    return token.end - token.start == 1 and _IS_UNSPACED.match(token.text) is not None
