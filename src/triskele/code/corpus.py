"""A tree of code as a corpus: rows are files, words are weighted by field, and a file counts by its best chunks."""

from __future__ import annotations

import math
import sys
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from triskele.code import words
from triskele.code.parsing import Definition
from triskele.code.paths import PathFacts
from triskele.code.secrets import UNKNOWN, Span, detector
from triskele.code.segment import LANGUAGES, CodeSegment, build
from triskele.code.tree_index import TreeManifest

LEAST_PREFIX = 3

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FieldWeights:
    """The weight of a word in each field, and the constants of BM25F; the order of fields is that of `parsing`."""

    chunk: tuple[float, ...] = (1.0, 4.0, 0.5, 0.5, 0.0)
    file: tuple[float, ...] = (1.0, 1.0, 0.3, 0.75, 0.5)
    path: tuple[float, ...] = (20.0, 2.0, 1.0)
    chunk_k1: float = 6.0
    chunk_b: float = 0.6
    file_k1: float = 3.0
    file_b: float = 0.8
    best: tuple[float, ...] = (1.0, 0.3, 0.1)
    of_file: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class LexicalScores:
    """The scores of all files and of all chunks for some terms, and the rarity of each term over the files."""

    files: Floats
    chunks: Floats
    rarity: dict[str, float]


class CodeCorpus:
    """The files of one tree at one moment, as the legs of recall read them."""

    def __init__(self, manifest: TreeManifest, segments: Sequence[CodeSegment]) -> None:
        # A tree without files has one segment without contents.
        self._segments = list(segments) or [build([])]
        positions: dict[str, int] = {}
        keys = (key.hex() for segment in self._segments for key in segment.content_keys())
        for position, key in enumerate(keys):
            positions.setdefault(key, position)
        self.paths = [path for path, entry in manifest.entries.items() if entry.digest in positions]
        self.digests = [manifest.entries[path].digest for path in self.paths]
        self.content_of = np.array([positions[digest] for digest in self.digests], dtype=np.int64)
        *self._first_contents, self._contents = _counted(segment.digests for segment in self._segments)

    @property
    def size(self) -> int:
        """The number of files."""
        return len(self.paths)

    @cached_property
    def path_facts(self) -> list[PathFacts]:
        """The facts that follow from each path."""
        return [PathFacts.of(path) for path in self.paths]

    def secrets_of(self, row: int) -> tuple[Span, ...] | None:
        """The positions of the secrets of a file; None if another version of detection searched it."""
        content = int(self.content_of[row])
        if detector() == UNKNOWN or int(self._detectors[content]) != detector():
            return None
        first, last = np.searchsorted(self._secrets[:, 0], [content, content + 1])
        return tuple((start, end) for _, start, end in self._secrets[first:last].tolist())

    @cached_property
    def _detectors(self) -> NDArray[np.uint64]:
        return np.concatenate([segment.detectors for segment in self._segments])

    @cached_property
    def _secrets(self) -> Ints:
        parts = [segment.secrets for segment in self._segments]
        return np.column_stack((self._contents_in(part[:, 0] for part in parts), np.concatenate(parts)[:, 1:]))

    @cached_property
    def kinds(self) -> NDArray[np.str_]:
        """The class of each path."""
        return np.array([facts.kind for facts in self.path_facts], dtype=np.str_)

    @cached_property
    def stem_sizes(self) -> Ints:
        """How many words the name of each file has, at least 1."""
        return np.array([max(len(facts.stem_words), 1) for facts in self.path_facts], dtype=np.int64)

    @cached_property
    def stem_rows(self) -> dict[str, Ints]:
        """The files by each word of their names."""
        return _rows_by_word(facts.stem_words for facts in self.path_facts)

    @cached_property
    def folder_rows(self) -> dict[str, Ints]:
        """The files by each word of their folders."""
        return _rows_by_word(facts.folder_words for facts in self.path_facts)

    @cached_property
    def _path_words(self) -> list[str]:
        return sorted({*self.stem_rows, *self.folder_rows})

    def path_words_like(self, word: str) -> frozenset[str]:
        """The words of file names and folders that begin a word or that it begins, from three letters on."""
        names = self._path_words
        shorter = {word[:size] for size in range(LEAST_PREFIX, len(word))} | {word}
        alike = {each for each in shorter if (at := bisect_left(names, each)) < len(names) and names[at] == each}
        if len(word) >= LEAST_PREFIX:
            first, last = bisect_left(names, word), bisect_left(names, word + chr(sys.maxunicode))
            alike.update(names[first:last])
        return frozenset(alike)

    @cached_property
    def chunk_content(self) -> Ints:
        """The content of each chunk."""
        return self._contents_in(segment.chunk_content for segment in self._segments)

    @cached_property
    def chunk_lines(self) -> Ints:
        """The first and last line of each chunk."""
        return np.concatenate([segment.chunk_lines for segment in self._segments]).astype(np.int64)

    @cached_property
    def chunk_symbol(self) -> Ints:
        """The definition that each chunk shows; −1 for none."""
        firsts = _counted(segment.definition_content for segment in self._segments)
        parts = [segment.chunk_symbol.astype(np.int64) for segment in self._segments]
        return np.concatenate(
            [np.where(part >= 0, part + first, -1) for part, first in zip(parts, firsts[:-1], strict=True)]
        )

    @cached_property
    def chunk_keys(self) -> NDArray[np.uint64]:
        """The names of the chunks' texts."""
        return np.concatenate([segment.chunk_keys for segment in self._segments])

    @cached_property
    def definitions(self) -> list[Definition]:
        """Everything that the tree defines, in the order of contents."""
        return [each for segment in self._segments for each in segment.definitions()]

    @cached_property
    def definition_content(self) -> Ints:
        """The content of each definition."""
        return self._contents_in(segment.definition_content for segment in self._segments)

    @cached_property
    def by_name(self) -> dict[str, list[int]]:
        """The definitions by their names in lower case without underscores."""
        positions: dict[str, list[int]] = {}
        for position, definition in enumerate(self.definitions):
            positions.setdefault(words.whole(definition.name), []).append(position)
        return positions

    @cached_property
    def files_of(self) -> dict[int, list[int]]:
        """The files that have a content: more than one if a file was copied."""
        rows_of: dict[int, list[int]] = {}
        for row, content in enumerate(self.content_of.tolist()):
            rows_of.setdefault(content, []).append(row)
        return rows_of

    @cached_property
    def file_lines(self) -> Ints:
        """The number of lines of each file."""
        return np.concatenate([segment.lines for segment in self._segments])[self.content_of].astype(np.int64)

    @cached_property
    def languages(self) -> list[str]:
        """The language of each file."""
        numbers = np.concatenate([segment.languages for segment in self._segments])[self.content_of]
        return [LANGUAGES[number] for number in numbers.tolist()]

    def rarity(self, terms: Iterable[str]) -> dict[str, float]:
        """The inverse document frequency of each term over the files."""
        return {each: self._rarity(self.contents_with(each)) for each in terms}

    def _rarity(self, contents: Ints) -> float:
        # Postings lie in the order of contents.
        distinct = int(np.count_nonzero(contents[1:] != contents[:-1])) + 1 if len(contents) else 0
        return _idf(self.size, distinct)

    def scores(self, terms: Sequence[str], weights: FieldWeights) -> LexicalScores:
        """BM25F over chunks, BM25F over whole files with their paths, and their sum per file."""
        lengths, file_lengths = self._lengths
        chunk_norm = (
            1 - weights.chunk_b + weights.chunk_b * lengths / max(float(lengths.mean() if len(lengths) else 1), 1e-9)
        )
        file_norm = 1 - weights.file_b + weights.file_b * file_lengths / max(float(file_lengths.mean()), 1e-9)
        chunks, files = np.zeros(len(lengths)), np.zeros(self.size)
        by_field = np.array(weights.chunk), np.array(weights.file)
        rarity: dict[str, float] = {}
        for term in terms:
            rows, fields, frequencies = self._postings(term)
            own = np.bincount(rows, by_field[0][fields] * frequencies, minlength=len(chunks))
            count = int((own > 0).sum())
            if count:
                chunks += _idf(len(chunks), count) * _saturated(own / chunk_norm, weights.chunk_k1)
            contents = self.chunk_content[rows]
            rarity[term] = self._rarity(contents)
            whole = np.bincount(contents, by_field[1][fields] * frequencies, minlength=self._contents)
            total: Floats = whole[self.content_of].astype(np.float64)
            for field, paths in enumerate(self._path_postings.get(term, ())):
                total[paths] += weights.path[field]
            count = int((total > 0).sum())
            if count:
                files += _idf(self.size, count) * _saturated(total / file_norm, weights.file_k1)
        best = self._best_chunks(chunks, weights.best)[self.content_of]
        return LexicalScores(best + weights.of_file * files, chunks, rarity)

    def chunks_of(self, row: int) -> Ints:
        """The chunks of a file, in order."""
        content = int(self.content_of[row])
        return np.arange(self._chunk_starts[content], self._chunk_starts[content + 1])

    def definitions_of(self, content: int) -> range:
        """The definitions of a content, in order."""
        return range(int(self._definition_starts[content]), int(self._definition_starts[content + 1]))

    @cached_property
    def _chunk_starts(self) -> Ints:
        # Chunks and definitions lie in the order of their contents.
        return np.searchsorted(self.chunk_content, np.arange(self._contents + 1))

    @cached_property
    def _definition_starts(self) -> Ints:
        return np.searchsorted(self.definition_content, np.arange(self._contents + 1))

    @cached_property
    def _path_postings(self) -> dict[str, tuple[list[int], list[int], list[int]]]:
        postings: dict[str, tuple[list[int], list[int], list[int]]] = {}
        for row, facts in enumerate(self.path_facts):
            for field, names in enumerate((facts.stem_words, facts.folder_words, facts.outer_words)):
                for name in names:
                    postings.setdefault(words.stem(name), ([], [], []))[field].append(row)
        return postings

    @cached_property
    def _lengths(self) -> tuple[Floats, Floats]:
        lengths = np.concatenate([segment.chunk_lengths for segment in self._segments]).astype(np.float64)
        contents: Floats = np.bincount(self.chunk_content, lengths, minlength=self._contents).astype(np.float64)
        return lengths, contents[self.content_of]

    def _postings(self, term: str) -> tuple[Ints, NDArray[np.uint8], Floats]:
        number, first = words.term(term), 0
        rows, fields, frequencies = [], [], []
        for segment in self._segments:
            span = segment.postings(number)
            rows.append(segment.rows[span].astype(np.int64) + first)
            fields.append(segment.fields[span])
            frequencies.append(segment.frequencies[span])
            first += len(segment.chunk_content)
        return np.concatenate(rows), np.concatenate(fields), np.concatenate(frequencies).astype(np.float64)

    def contents_with(self, term: str) -> Ints:
        """The contents of the chunks that have a term."""
        contents: Ints = self.chunk_content[self._postings(term)[0]]
        return contents

    def _best_chunks(self, chunks: Floats, shares: Sequence[float]) -> Floats:
        """Per content: its best chunk, and a share of the next ones."""
        places = np.flatnonzero(chunks > 0)
        contents = self.chunk_content[places]
        order = np.lexsort((-chunks[places], contents))
        places, contents = places[order], contents[order]
        firsts = np.flatnonzero(np.diff(contents, prepend=-1))
        ranks = np.arange(len(places)) - np.repeat(firsts, np.diff(np.append(firsts, len(places))))
        is_best = ranks < len(shares)
        worth = chunks[places[is_best]] * np.array(shares)[ranks[is_best]]
        return np.bincount(contents[is_best], worth, minlength=self._contents).astype(np.float64)

    def _contents_in(self, columns: Iterable[NDArray[np.int32]]) -> Ints:
        """One column of contents, numbered through all segments."""
        return np.concatenate(
            [column.astype(np.int64) + first for column, first in zip(columns, self._first_contents, strict=True)]
        )


def _counted(columns: Iterable[NDArray[Any]]) -> list[int]:
    """How many rows lie before each of these columns, and how many they have."""
    return list(accumulate(map(len, columns), initial=0))


def _rows_by_word(words_of_files: Iterable[Iterable[str]]) -> dict[str, Ints]:
    rows_of: dict[str, list[int]] = {}
    for row, own in enumerate(words_of_files):
        for word in own:
            rows_of.setdefault(word, []).append(row)
    return {word: np.array(rows, dtype=np.int64) for word, rows in rows_of.items()}


def _idf(total: int, count: int) -> float:
    return math.log(1 + (total - count + 0.5) / (count + 0.5))


def _saturated(frequencies: Floats, k1: float) -> Floats:
    scores: Floats = frequencies * (k1 + 1) / (frequencies + k1)
    return scores
