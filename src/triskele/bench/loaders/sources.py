"""Read files of any size, gzipped or not, and collect data sets."""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn

from triskele import validation
from triskele.bench.datasets import BenchDocument, BenchQuery, Dataset
from triskele.errors import BadInput

CHUNK_BYTES = 1 << 20
MAX_FILE_BYTES = 8 << 30
MAX_LINE_BYTES = 64 << 20
MAX_ITEM_CHARACTERS = 64 << 20
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()
# A literal or an escape that the end of the buffer cuts is reported at most this far before it.
_CUT_CHARACTERS = 16
_OPEN_STRING = "Unterminated string"
_AFTER_ITEM = frozenset(",]")


@dataclass(frozen=True, slots=True)
class Fields:
    """A JSON object and the place where it was read."""

    values: Mapping[str, Any]
    where: str

    @staticmethod
    def of(value: object, where: str) -> Fields:
        """The value as an object; anything else is refused."""
        if not isinstance(value, dict):
            raise BadInput(f"{where}: is not a JSON object")
        return Fields(value, where)

    def wrong(self, problem: str) -> BadInput:
        """An error that names this place."""
        return BadInput(f"{self.where}: {problem}")

    def text(self, *keys: str) -> str:
        """The text under the first present key; it may be empty."""
        return cleaned(self._typed(str, "text", *keys))

    def strict_text(self, key: str) -> str:
        """The text under a key; invalid text is refused."""
        return validation.clean(self._typed(str, "text", key), f"{self.where}: the {key}")

    def optional_text(self, key: str) -> str:
        """The text under a key, empty if the key is missing."""
        return "" if self.values.get(key) is None else self.text(key)

    def name(self, *keys: str) -> str:
        """An id, written as text or as a whole number."""
        value = self._typed((str, int), "text or a whole number", *keys)
        return validation.clean(str(value), f"{self.where}: the {keys[0]}") or self._missing(keys[0])

    def optional_name(self, key: str) -> str | None:
        """An id, None if the key is missing or empty."""
        return None if self.values.get(key) in (None, "") else self.name(key)

    def whole(self, key: str) -> int:
        """A whole number."""
        return int(self._typed(int, "a whole number", key))

    def object(self, key: str) -> Fields:
        """An object under a key."""
        return Fields.of(self._typed(dict, "an object", key), f"{self.where}, {key}")

    def parts(self, key: str) -> list[Any]:
        """A list of anything."""
        return list(self._typed(list, "a list", key))

    def texts(self, key: str) -> list[str]:
        """A list of texts."""
        return [text_of(part, f"{self.where}, {key} {number}") for number, part in enumerate(self.parts(key), 1)]

    def objects(self, key: str) -> Iterator[Fields]:
        """A list of objects, each with its place."""
        return objects(self.parts(key), f"{self.where}, {key}")

    def _typed(self, kind: type | tuple[type, ...], wanted: str, *keys: str) -> Any:
        key = next((key for key in keys if self.values.get(key) is not None), None)
        if key is None:
            self._missing(keys[0])
        value = self.values[key]
        if isinstance(value, bool) or not isinstance(value, kind):
            raise self.wrong(f"has a {key} that is not {wanted}")
        return value

    def _missing(self, key: str) -> NoReturn:
        raise self.wrong(f"has no {key}")


def objects(parts: list[Any], where: str) -> Iterator[Fields]:
    """Every part of a list as an object with its place."""
    for number, part in enumerate(parts, start=1):
        yield Fields.of(part, f"{where} {number}")


def list_of(value: object, where: str) -> list[Any]:
    """The value as a list; anything else is refused."""
    if not isinstance(value, list):
        raise BadInput(f"{where}: is not a list")
    return value


def text_of(value: object, where: str) -> str:
    """The value as clean text; anything else is refused."""
    if not isinstance(value, str):
        raise BadInput(f"{where}: is not text")
    return cleaned(value)


def cleaned(text: str) -> str:
    """A text without invisible control characters."""
    if text.replace("\n", " ").replace("\t", " ").isprintable():
        return text.strip()
    # Public dumps hold halves of emoji and stray NULs; one of them must not make the whole set unreadable.
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return validation.clean(whole.replace("\x00", ""), "the text")


@dataclass(frozen=True, slots=True)
class Source:
    """A file; `feed` receives every unpacked byte that is read."""

    path: Path
    feed: Callable[[bytes], None] = lambda _chunk: None

    def wrong(self, problem: str) -> BadInput:
        """An error that names the file."""
        return BadInput(f"{self.path}: {problem}")

    def chunks(self) -> Iterator[bytes]:
        """The unpacked bytes, up to a limit above all known sets."""
        total = 0
        try:
            with self._opened() as file:
                while chunk := file.read(CHUNK_BYTES):
                    total += len(chunk)
                    if total > MAX_FILE_BYTES:
                        raise self.wrong(f"is larger than {MAX_FILE_BYTES >> 30} GiB")
                    self.feed(chunk)
                    yield chunk
        except (OSError, EOFError, zlib.error) as error:
            raise BadInput(f"cannot read {self.path}: {error}") from error

    def texts(self) -> Iterator[str]:
        """The unpacked bytes decoded as UTF-8."""
        decoder = codecs.getincrementaldecoder("utf-8-sig")()
        try:
            for chunk in self.chunks():
                yield decoder.decode(chunk)
            yield decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            raise self.wrong("is not UTF-8") from None

    def lines(self) -> Iterator[tuple[str, str]]:
        """The lines that are not blank, each with its place."""
        for number, line in enumerate(self._raw_lines(), start=1):
            if not line.strip():
                continue
            where = f"{self.path}, line {number}"
            try:
                yield where, line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r")
            except UnicodeDecodeError:
                raise BadInput(f"{where}: is not UTF-8") from None

    def records(self) -> Iterator[Fields]:
        """The objects of a JSONL file."""
        for where, line in self.lines():
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                raise BadInput(f"{where}: is not valid JSON") from None
            yield Fields.of(value, where)

    def _opened(self) -> IO[bytes]:
        if self.path.suffix == ".gz":
            return io.BufferedReader(gzip.GzipFile(self.path))
        return self.path.open("rb")

    def _raw_lines(self) -> Iterator[bytes]:
        rest = b""
        for chunk in self.chunks():
            *whole, rest = (rest + chunk).split(b"\n")
            yield from whole
            if len(rest) > MAX_LINE_BYTES:
                raise self.wrong(f"has a line of more than {MAX_LINE_BYTES >> 20} MiB")
        yield rest


def beside(folder: Path, name: str) -> Path | None:
    """The file of this name in a folder, plain or gzipped."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def required(folder: Path, name: str) -> Path:
    """The file of this name in a folder, plain or gzipped; refuse a folder without it."""
    path = beside(folder, name)
    if path is None:
        raise BadInput(f"{folder} has no {name} or {name}.gz")
    return path


def files_at(path: Path) -> list[Path]:
    """The file itself, or the files of a folder sorted by name."""
    try:
        return sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from error


def plain_name(path: Path) -> str:
    """The name of a file without .json and .gz."""
    return path.name.removesuffix(".gz").removesuffix(".json")


def list_items(source: Source) -> Iterator[Fields]:
    """The objects of a JSON list file, one at a time."""
    scanner = _Scanner(source)
    if scanner.mark() != "[":
        raise source.wrong("is not a JSON list")
    number, mark = 0, scanner.skip()
    while mark != "]":
        number += 1
        where = f"{source.path}, item {number}"
        yield Fields.of(scanner.value(where), where)
        mark = scanner.mark()
        if mark not in _AFTER_ITEM:
            raise BadInput(f"{where}: {'a comma is missing after it' if mark else 'the file breaks off after it'}")
        # After a trailing comma the next character is a bracket, which starts no value.
        if mark == "," and scanner.skip() == "]":
            raise BadInput(f"{where}: nothing comes after its comma")
    if scanner.skip():
        raise source.wrong("continues after the end of its list")


class _Scanner:
    """A position in a text that is read as it is needed."""

    def __init__(self, source: Source) -> None:
        self._texts = source.texts()
        self._buffer = ""
        self._position = 0

    def mark(self) -> str:
        """The next character that is not white space; empty at the end."""
        while True:
            space = _SPACE.match(self._buffer, self._position)
            self._position = space.end() if space else self._position
            if self._position < len(self._buffer):
                return self._buffer[self._position]
            if not self._read_on():
                return ""

    def skip(self) -> str:
        """Skip one character and return the next that is not white space."""
        self._position += 1
        return self.mark()

    def value(self, where: str) -> Any:
        """The JSON value that starts here."""
        while True:
            try:
                value, self._position = _DECODER.raw_decode(self._buffer, self._position)
                return value
            except json.JSONDecodeError as error:
                problem = f"is not valid JSON ({error.msg})"
                if not self._is_cut(error):
                    raise BadInput(f"{where}: {problem}") from None
                if error.pos >= len(self._buffer.rstrip()) or error.msg.startswith(_OPEN_STRING):
                    problem = "the file breaks off inside it"
            except (ValueError, RecursionError):
                raise BadInput(f"{where}: is not valid JSON that can be read") from None
            if len(self._buffer) - self._position > MAX_ITEM_CHARACTERS:
                raise BadInput(f"{where}: is longer than {MAX_ITEM_CHARACTERS:,} characters")
            if not self._read_on():
                raise BadInput(f"{where}: {problem}")

    def _is_cut(self, error: json.JSONDecodeError) -> bool:
        return error.msg.startswith(_OPEN_STRING) or error.pos >= len(self._buffer) - _CUT_CHARACTERS

    def _read_on(self) -> bool:
        """Double the buffer, so that long objects are rarely parsed again."""
        held = [self._buffer[self._position :]]
        wanted, got = max(CHUNK_BYTES, len(held[0])), 0
        while got < wanted and (text := next(self._texts, None)) is not None:
            held.append(text)
            got += len(text)
        self._buffer, self._position = "".join(held), 0
        return got > 0


class DatasetBuilder:
    """Collects documents, queries and labels; refuses an id that repeats."""

    def __init__(self, name: str, path: Path) -> None:
        self._name = name
        self._path = path
        self._documents: dict[str, BenchDocument] = {}
        self._queries: dict[str, BenchQuery] = {}
        self._qrels: dict[str, dict[str, int]] = {}
        self._skipped: Counter[str] = Counter()
        self._positions: Counter[tuple[str | None, str | None]] = Counter()
        self._texts: dict[str, str] = {}
        self._sha256 = hashlib.sha256()
        self._last_read: Path | None = None

    def source(self, path: Path) -> Source:
        """A file whose bytes count for the identity of the data set."""
        return Source(path, lambda chunk: self._feed(path, chunk))

    def _feed(self, path: Path, chunk: bytes) -> None:
        """Digest the bytes of the files in order, with a NUL between two files."""
        if self._last_read not in (None, path):
            self._sha256.update(b"\0")
        self._last_read = path
        self._sha256.update(chunk)

    def add(
        self,
        record: Fields,
        id: str,
        text: str,
        *,
        scope: str | None = None,
        session: str | None = None,
        meta: Mapping[str, Any],
    ) -> None:
        """Add a document after the earlier ones of its session."""
        if id in self._documents:
            raise record.wrong(f"repeats the id {id!r}")
        # The same conversation is part of many haystacks: its text is held once.
        shared_text = self._texts.setdefault(text, text)
        conversation = (scope, session)
        self._documents[id] = BenchDocument(id, shared_text, scope, session, self._positions[conversation], meta)
        self._positions[conversation] += 1

    def ask(self, where: str, query: BenchQuery, *, may_be_empty: bool = False) -> None:
        """Add a query."""
        if query.id in self._queries:
            raise BadInput(f"{where}: repeats the id {query.id!r}")
        if not (query.text or may_be_empty):
            raise BadInput(f"{where}: has an empty question")
        self._queries[query.id] = query

    def has(self, document: str) -> bool:
        """Whether a document of this id was added."""
        return document in self._documents

    def label(self, query: str, document: str, grade: int = 1) -> None:
        """Set a document's grade for a query; negative counts as 0."""
        self._qrels.setdefault(query, {})[document] = max(0, grade)

    def skip(self, reason: str, count: int = 1) -> None:
        """Count labels that cannot be used."""
        self._skipped[reason] += count

    def build(self) -> Dataset:
        """Everything that was added, as a data set."""
        for what, rows in (("documents", self._documents), ("questions", self._queries)):
            if not rows:
                raise BadInput(f"{self._path}: has no {what}")
        return Dataset(
            name=self._name,
            documents=tuple(self._documents.values()),
            queries=tuple(self._queries.values()),
            qrels=self._qrels,
            sha256=self._sha256.hexdigest(),
            skipped={reason: count for reason, count in self._skipped.items() if count},
        )
