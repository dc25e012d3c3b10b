"""Finished arms of a run that was interrupted: asked again only if anything has changed since."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import resources
from importlib.metadata import version
from importlib.resources.abc import Traversable
from pathlib import Path

from triskele.evaluation.arms import Arm
from triskele.evaluation.measured import Course, Measured
from triskele.evaluation.tally import Given

_PACKAGES = ("numpy", "tantivy", "onnxruntime", "apsw")


class Unfinished:
    """A folder that holds the arms of one run until the whole run is done."""

    def __init__(self, cache_folder: Path, course: Course) -> None:
        shelf = cache_folder / "unfinished" / course.data.sha256[:16]
        asked = [query.id for query in (*course.queries, *course.unanswerable)]
        self._course = course
        self._folder = shelf / _digest([_program(), repr(course.rows), repr(asked), str(course.depth)])
        for other in shelf.glob("*"):
            if other != self._folder:
                shutil.rmtree(other, ignore_errors=True)

    def find(self, arm: Arm) -> Measured | None:
        """What an arm found before the run was interrupted."""
        try:
            kept = json.loads(self._file(arm).read_bytes())
        except (OSError, ValueError):
            return None
        run = {query: [(document, score) for document, score in found] for query, found in kept["run"].items()}
        right = {
            query: {document: {leg: Given(*given) for leg, given in legs.items()} for document, legs in found.items()}
            for query, found in kept["right"].items()
        }
        costs = (kept["latencies_ms"], kept["bytes_per_memory"])
        return Measured(run, self._course.scores(run), *costs, kept["legs"], right, kept["confidence"])

    def keep(self, arm: Arm, one: Measured) -> None:
        """Keep what an arm found; a cache that cannot be written to costs nothing but the way back."""
        values = {
            "run": one.run,
            "latencies_ms": one.latencies_ms,
            "bytes_per_memory": one.bytes_per_memory,
            "legs": one.legs,
            "right": one.right,
            "confidence": one.confidence,
        }
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            part = self._file(arm).with_suffix(".part")
            part.write_text(json.dumps(values), encoding="utf-8")
            part.replace(self._file(arm))

    def forget(self) -> None:
        """The run is done: the next one measures anew."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _file(self, arm: Arm) -> Path:
        return self._folder / f"{_digest([arm.name, json.dumps(arm.to_json())])}.json"


@cache
def _program() -> str:
    """A name for everything that may change what an arm finds: this package and those that it searches with."""
    return _digest([*_sources(resources.files("triskele")), *(version(name) for name in _PACKAGES)])


def _sources(folder: Traversable) -> list[str]:
    found = []
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        if path.is_dir():
            found += _sources(path)
        elif path.name.endswith(".py"):
            found.append(path.read_text(encoding="utf-8"))
    return found


def _digest(parts: Sequence[str]) -> str:
    joined = "\0".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(joined).hexdigest()[:16]
