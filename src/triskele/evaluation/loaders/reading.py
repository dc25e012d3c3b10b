"""Files of any size, plain or gzipped, read piece by piece."""

from __future__ import annotations

import codecs
import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from triskele.errors import BadInput
from triskele.evaluation.loaders.fields import Fields

CHUNK_BYTES = 1 << 20
MAX_FILE_BYTES = 8 << 30
MAX_LINE_BYTES = 64 << 20


def _unheard(_chunk: bytes) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Source:
    """A file; `feed` hears every unpacked byte that is read."""

    path: Path
    feed: Callable[[bytes], None] = _unheard

    def wrong(self, problem: str) -> BadInput:
        """An error that names the file."""
        return BadInput(f"{self.path}: {problem}")

    def chunks(self) -> Iterator[bytes]:
        """The unpacked bytes, up to a limit that no known data set reaches."""
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
        """The same as text."""
        decoder = codecs.getincrementaldecoder("utf-8-sig")()
        try:
            for chunk in self.chunks():
                yield decoder.decode(chunk)
            yield decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            raise self.wrong("is not UTF-8") from None

    def lines(self) -> Iterator[tuple[str, str]]:
        """The lines that hold something, each after its place."""
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
            return cast(IO[bytes], gzip.open(self.path, "rb"))
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


def files_at(path: Path) -> list[Path]:
    """The file itself, or the files of a folder by name."""
    try:
        return sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from error


def plain_name(path: Path) -> str:
    """The name of a file without what says how it is packed."""
    return path.name.removesuffix(".gz").removesuffix(".json")
