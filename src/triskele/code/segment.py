"""An immutable part of a code index, in one file of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from triskele.code.languages import BY_EXTENSION
from triskele.code.parsing import FIELDS, Definition, ParsedFile
from triskele.code.secrets import detector
from triskele.errors import IndexUnavailable
from triskele.text.files import disk_errors

Ints = NDArray[np.int64]
Small = NDArray[np.int32]
Frequencies = NDArray[np.float32]
Terms = NDArray[np.uint64]

LANGUAGES = tuple(dict.fromkeys(BY_EXTENSION.values()))
KINDS = ("type", "function", "value", "heading", "module")
DIGEST_BYTES = 16
_SEPARATOR = "\x1f"
_RECORD = "\x1e"


@dataclass(frozen=True, slots=True, eq=False)
class CodeSegment:
    """Contents with chunks, definitions and postings, as arrays in row order.

    `terms` are sorted; the postings of term n lie between `starts[n]` and `starts[n + 1]`. `detectors` has the version
    of detection that each content was searched with, and `secrets` what was found: content, start and end.
    """

    digests: NDArray[np.uint8]
    languages: Small
    lines: Small
    detectors: Terms
    secrets: Small
    chunk_content: Small
    chunk_lines: Small
    chunk_symbol: Small
    chunk_keys: Terms
    chunk_lengths: Frequencies
    definition_content: Small
    definition_numbers: Small
    definition_texts: NDArray[np.uint8]
    terms: Terms
    starts: Ints
    rows: Small
    fields: NDArray[np.uint8]
    frequencies: Frequencies

    def postings(self, term: int) -> slice:
        """Where the postings of a term lie."""
        key = np.uint64(term)
        position = int(np.searchsorted(self.terms, key))
        if position == len(self.terms) or self.terms[position] != key:
            return slice(0, 0)
        return slice(int(self.starts[position]), int(self.starts[position + 1]))

    def definitions(self) -> list[Definition]:
        """The definitions of all contents, in order of contents."""
        text = self.definition_texts.tobytes().decode("utf-8", "surrogatepass")
        definitions = []
        for record, numbers in zip(text.split(_RECORD), self.definition_numbers.tolist(), strict=False):
            name, container, signature = record.split(_SEPARATOR)
            kind, first, last, depth = numbers
            definitions.append(Definition(name, container, KINDS[kind], first, last, depth, signature))
        return definitions if len(self.definition_numbers) else []

    def content_keys(self) -> list[bytes]:
        """The digests of the contents."""
        return [row.tobytes() for row in self.digests]

    def save(self, path: Path) -> None:
        """Write the arrays under a name that is new."""
        part = path.with_suffix(".part")
        with disk_errors("the code index", IndexUnavailable):
            with part.open("wb") as target:
                np.savez(target, allow_pickle=False, **{name: getattr(self, name) for name in self.__slots__})
            part.replace(path)


def load(path: Path) -> CodeSegment:
    """A segment from its file; IndexUnavailable if it is damaged or missing."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return CodeSegment(**{name: arrays[name] for name in CodeSegment.__slots__})
    except (OSError, ValueError, KeyError, BadZipFile, EOFError) as error:
        raise IndexUnavailable(f"a part of the code index cannot be read: {path.name}") from error


def build(parsed: Sequence[ParsedFile]) -> CodeSegment:
    """A segment over parsed contents."""
    chunks = [(content, chunk) for content, file in enumerate(parsed) for chunk in file.chunks]
    firsts = list(accumulate((len(file.definitions) for file in parsed), initial=0))
    symbols = [firsts[content] + chunk.symbol if chunk.symbol >= 0 else -1 for content, chunk in chunks]
    secrets = [(content, *span) for content, file in enumerate(parsed) for span in file.secrets]
    counts = [(row, field, own) for row, (_, chunk) in enumerate(chunks) for field, own in enumerate(chunk.fields)]
    sizes = np.array([len(own) for _, _, own in counts], dtype=np.int64)
    return _assembled(
        digests=np.frombuffer(b"".join(file.digest for file in parsed), dtype=np.uint8).reshape(-1, DIGEST_BYTES),
        languages=np.array([LANGUAGES.index(file.language) for file in parsed], dtype=np.int32),
        lines=np.array([file.lines for file in parsed], dtype=np.int32),
        detectors=np.full(len(parsed), detector(), dtype=np.uint64),
        secrets=np.array(secrets, dtype=np.int32).reshape(-1, 3),
        chunk_content=np.array([content for content, _ in chunks], dtype=np.int32),
        chunk_lines=np.array([(each.start_line, each.end_line) for _, each in chunks], dtype=np.int32).reshape(-1, 2),
        chunk_symbol=np.array(symbols, dtype=np.int32),
        chunk_keys=np.array([chunk.key for _, chunk in chunks], dtype=np.uint64),
        chunk_lengths=np.array([sum(chunk.fields[0].values()) for _, chunk in chunks], dtype=np.float32),
        definition_content=np.repeat(np.arange(len(parsed), dtype=np.int32), np.diff(firsts)),
        definitions=[definition for file in parsed for definition in file.definitions],
        keys=np.array([number for _, _, own in counts for number in own], dtype=np.uint64),
        rows=np.repeat(np.array([row for row, _, _ in counts], dtype=np.int32), sizes),
        fields=np.repeat(np.array([field for _, field, _ in counts], dtype=np.uint8), sizes),
        frequencies=np.array([times for _, _, own in counts for times in own.values()], dtype=np.float32),
    )


def merge(segments: Sequence[CodeSegment], wanted: Sequence[NDArray[np.bool_]]) -> CodeSegment:
    """One segment with the wanted contents of several."""
    parts: dict[str, list[NDArray[Any]]] = {}
    definitions: list[Definition] = []
    contents = chunks = 0
    for segment, keep in zip(segments, wanted, strict=True):
        keep_chunk, keep_definition = keep[segment.chunk_content], keep[segment.definition_content]
        new_content = contents + np.cumsum(keep) - 1
        new_chunk = chunks + np.cumsum(keep_chunk) - 1
        new_definition = len(definitions) + np.cumsum(keep_definition) - 1
        counts = np.diff(segment.starts)
        keep_posting = keep_chunk[segment.rows]
        symbols = segment.chunk_symbol[keep_chunk]
        selected: dict[str, NDArray[Any]] = {
            "digests": segment.digests[keep],
            "languages": segment.languages[keep],
            "lines": segment.lines[keep],
            "detectors": segment.detectors[keep],
            "secrets": _moved_secrets(segment.secrets, keep, new_content),
            "chunk_content": new_content[segment.chunk_content[keep_chunk]].astype(np.int32),
            "chunk_lines": segment.chunk_lines[keep_chunk],
            "chunk_symbol": np.where(symbols >= 0, new_definition[symbols] if len(new_definition) else -1, -1),
            "chunk_keys": segment.chunk_keys[keep_chunk],
            "chunk_lengths": segment.chunk_lengths[keep_chunk],
            "definition_content": new_content[segment.definition_content[keep_definition]].astype(np.int32),
            "keys": np.repeat(segment.terms, counts)[keep_posting],
            "rows": new_chunk[segment.rows[keep_posting]].astype(np.int32),
            "fields": segment.fields[keep_posting],
            "frequencies": segment.frequencies[keep_posting],
        }
        for name, array in selected.items():
            parts.setdefault(name, []).append(array)
        definitions += [
            each for each, kept in zip(segment.definitions(), keep_definition.tolist(), strict=True) if kept
        ]
        contents += int(keep.sum())
        chunks += int(keep_chunk.sum())
    return _assembled(definitions=definitions, **{name: np.concatenate(arrays) for name, arrays in parts.items()})


def _assembled(
    *,
    definitions: Sequence[Definition],
    keys: Terms,
    rows: Small,
    fields: NDArray[np.uint8],
    frequencies: Frequencies,
    **arrays: NDArray[Any],
) -> CodeSegment:
    """A segment with its postings sorted by term, row and field."""
    order = np.lexsort((rows.astype(np.int64) * FIELDS + fields, keys))
    terms, firsts = np.unique(keys[order], return_index=True)
    texts = _RECORD.join(
        _SEPARATOR.join(_plain(part) for part in (each.name, each.container, each.signature)) for each in definitions
    )
    numbers = [(KINDS.index(each.kind), each.start_line, each.end_line, each.depth) for each in definitions]
    return CodeSegment(
        **arrays,
        definition_numbers=np.array(numbers, dtype=np.int32).reshape(-1, 4),
        definition_texts=np.frombuffer(texts.encode("utf-8", "surrogatepass"), dtype=np.uint8),
        terms=terms,
        starts=np.append(firsts, len(keys)).astype(np.int64),
        rows=rows[order],
        fields=fields[order],
        frequencies=frequencies[order],
    )


def _moved_secrets(secrets: Small, keep: NDArray[np.bool_], new_content: Ints) -> Small:
    spans = secrets[keep[secrets[:, 0]]]
    return np.column_stack((new_content[spans[:, 0]], spans[:, 1:])).astype(np.int32)


def _plain(text: str) -> str:
    return text.replace(_SEPARATOR, " ").replace(_RECORD, " ")
