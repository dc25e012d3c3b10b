"""A thousand marked secrets, the shapes in which they could leak, and a search over bytes, files and processes.

kit = Canaries(make(1000))
store(canary.memory for canary in kit.canaries)
assert kit.in_bytes(capture) == [] and kit.in_folder(home) == [] and kit.in_processes(pids) == []
"""

from __future__ import annotations

import base64
import json
import os
import random
import string
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, quote_plus

import numpy as np

LETTERS = string.ascii_letters + string.digits
# Needles are looked up by their first bytes, so none may be shorter.
LEAST = 8
_CHUNK = 8 << 20

# What is written, with # for drawn characters; the marks make URL, JSON and UTF-8 forms differ from the raw one.
FORMS = (
    ("the deploy token of box {n} is ", "ghp_" + "#" * 36),
    ("Anthropic key for runner {n}: ", "sk-ant-api03-" + "#" * 95),
    ("the wifi password at site {n} is ", 'Cn#/+########é"&##########'),
    ("Passwort für Gerät {n} lautet ", "ü#?=########<##########>"),
    ("postgres://app{n}:", "##########-##########"),
    ("api key of service {n}: ", "#" * 40),
    ("what the safe of room {n} holds: ", "heron ########## kelp ########## ß"),
    ("token {n} = ", "npm_" + "#" * 36),
    ("diary of day {n}, not for others: ", "I met ########## at the ##########\\lake"),
    ("stripe {n} ", "sk_live_" + "#" * 32),
)
URL_ENDS = {4: "@db.internal/garden"}


@dataclass(frozen=True, slots=True)
class Canary:
    """One secret; `found_by_rule` says whether detection should see it, the others are marked by hand."""

    number: int
    memory: str
    secret: str
    found_by_rule: bool


@dataclass(frozen=True, slots=True)
class Sighting:
    """A canary where it must not be: in which shape and where."""

    number: int
    shape: str
    place: str


def make(count: int = 1000, seed: int = 20) -> list[Canary]:
    """The same canaries for the same seed, no two alike."""
    draw = random.Random(seed)
    return [_canary(number, draw) for number in range(count)]


def _canary(number: int, draw: random.Random) -> Canary:
    form = number % len(FORMS)
    before, pattern = FORMS[form]
    secret = "".join(draw.choice(LETTERS) if character == "#" else character for character in pattern)
    memory = before.format(n=number) + secret + URL_ENDS.get(form, "")
    return Canary(number, memory, secret, found_by_rule=form not in (6, 8))


def shapes(secret: str) -> Iterator[tuple[str, bytes]]:
    """Every shape of the secret as bytes, by name; a shape equal to another is not repeated."""
    raw = secret.encode()
    seen: set[bytes] = set()
    for name, shape in _shapes(secret, raw):
        if len(shape) >= LEAST and shape not in seen:
            seen.add(shape)
            yield name, shape


def _shapes(secret: str, raw: bytes) -> Iterator[tuple[str, bytes]]:
    yield "raw", raw
    yield from (("split", half.encode()) for half in _halves(secret))
    yield "reversed", secret[::-1].encode()
    yield "hex", raw.hex().encode()
    yield "hex", raw.hex().upper().encode()
    for number in range(3):
        yield "base64", _inner_base64(raw, number)
        yield "base64", _inner_base64(raw, number).replace(b"+", b"-").replace(b"/", b"_")
    yield "url", quote(secret, safe="").encode()
    yield "url", quote(secret).encode()
    yield "url", quote_plus(secret).encode()
    yield "url", quote(secret, safe="").lower().encode() if "%" in quote(secret) else b""
    yield "json", json.dumps(secret)[1:-1].encode()
    yield "json", json.dumps(secret)[1:-1].replace("/", "\\/").encode()
    yield "json", json.dumps(secret, ensure_ascii=False)[1:-1].encode()
    yield "utf-16", secret.encode("utf-16-le")
    yield "utf-16", secret.encode("utf-16-be")


def _halves(secret: str) -> tuple[str, str]:
    """Both halves of the drawn part, so that a cut anywhere leaves at least one of them or a longer piece."""
    core = secret.rsplit("_", 1)[-1].removeprefix("sk-ant-api03-")
    middle = len(core) // 2
    return core[:middle], core[middle:]


def _inner_base64(raw: bytes, place: int) -> bytes:
    """What is the same in base64 whatever stands around, when the secret begins at this place modulo three."""
    encoded = base64.b64encode(bytes(place) + raw)
    return encoded[(0, 2, 3)[place] : (place + len(raw)) * 8 // 6]


class Canaries:
    """Looks for every shape of every canary at once."""

    def __init__(self, canaries: Iterable[Canary]) -> None:
        self.canaries = list(canaries)
        self._needles: dict[int, list[tuple[bytes, int, str]]] = {}
        for canary in self.canaries:
            for name, shape in shapes(canary.secret):
                self._needles.setdefault(_start(shape), []).append((shape, canary.number, name))
        self._starts = np.array(sorted(self._needles), dtype=np.uint64)
        self._longest = max(len(shape) for found in self._needles.values() for shape, _, _ in found)

    def in_bytes(self, data: bytes, place: str = "bytes") -> list[Sighting]:
        """Every sighting in the data."""
        sightings: dict[Sighting, None] = {}
        for shift in range(LEAST):
            words = np.frombuffer(data[shift : shift + (len(data) - shift) // LEAST * LEAST], dtype="<u8")
            for index in np.flatnonzero(np.isin(words, self._starts)):
                offset = int(index) * LEAST + shift
                for shape, number, name in self._needles[int(words[index])]:
                    if data.startswith(shape, offset):
                        sightings[Sighting(number, name, f"{place}@{offset}")] = None
        return list(sightings)

    def in_text(self, text: str, place: str = "text") -> list[Sighting]:
        """Every sighting in a text, such as a log."""
        return self.in_bytes(text.encode("utf-8", "surrogateescape"), place)

    def in_folder(self, folder: Path) -> list[Sighting]:
        """Every sighting in the files below a folder and in their names."""
        sightings: list[Sighting] = []
        for path in sorted(folder.rglob("*")):
            sightings += self.in_text(str(path.relative_to(folder)), f"name of {path}")
            if path.is_file() and not path.is_symlink():
                sightings += self.in_file(path)
        return sightings

    def in_file(self, path: Path) -> list[Sighting]:
        """Every sighting in a file, read in pieces that overlap."""
        sightings: dict[Sighting, None] = {}
        with path.open("rb") as file:
            kept, start = b"", 0
            while piece := file.read(_CHUNK):
                data = kept + piece
                for sighting in self.in_bytes(data, str(path)):
                    name, _, offset = sighting.place.rpartition("@")
                    sightings[Sighting(sighting.number, sighting.shape, f"{name}@{start + int(offset)}")] = None
                kept = data[-self._longest :]
                start += len(data) - len(kept)
        return list(sightings)

    def in_processes(self, pids: Iterable[int] = ()) -> list[Sighting]:
        """Every sighting in the arguments and environment of this process and of those with these ids."""
        sightings = self.in_text("\0".join(sys.argv), "own arguments")
        sightings += self.in_text("\0".join(f"{name}={value}" for name, value in os.environ.items()), "own environment")
        for pid in pids:
            for part in ("cmdline", "environ"):
                sightings += self.in_bytes(_of_process(pid, part), f"{part} of {pid}")
        return sightings


def children(pid: int) -> list[int]:
    """The ids of every process that this one started, and those that they started."""
    found = [int(word) for path in Path(f"/proc/{pid}/task").glob("*/children") for word in _read(path).split()]
    return found + [below for child in found for below in children(child)]


def _of_process(pid: int, part: str) -> bytes:
    return _read(Path(f"/proc/{pid}/{part}"))


def _read(path: Path) -> bytes:
    """What is in a file of /proc; nothing when the process has ended."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def _start(shape: bytes) -> int:
    return int.from_bytes(shape[:LEAST], "little")
