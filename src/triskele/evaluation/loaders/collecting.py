"""What a loader gathers on its way to a data set."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triskele.errors import BadInput
from triskele.evaluation.datasets import BenchQuery, Dataset, Document
from triskele.evaluation.loaders.fields import Fields
from triskele.evaluation.loaders.reading import Source


@dataclass(frozen=True, slots=True)
class Loaded:
    """A data set, and how much of its labels could not be used, by reason."""

    dataset: Dataset
    skipped: Mapping[str, int]


class Collector:
    """Documents, questions and labels as they come; refuses an id that comes twice."""

    def __init__(self, name: str, path: Path) -> None:
        self._name = name
        self._path = path
        self._documents: dict[str, Document] = {}
        self._queries: dict[str, BenchQuery] = {}
        self._qrels: dict[str, dict[str, int]] = {}
        self._skipped: Counter[str] = Counter()
        self._places: Counter[tuple[str | None, str | None]] = Counter()
        self._texts: dict[str, str] = {}
        self._digest = hashlib.sha256()
        self._files = 0

    def source(self, path: Path) -> Source:
        """A file whose bytes count for the identity of the data set."""
        if self._files:
            self._digest.update(b"\0")
        self._files += 1
        return Source(path, self._digest.update)

    def add(
        self,
        at: Fields,
        id: str,
        text: str,
        *,
        scope: str | None = None,
        session: str | None = None,
        meta: Mapping[str, Any],
    ) -> None:
        """A document, after those of its session that came before."""
        if id in self._documents:
            raise at.wrong(f"repeats the id {id!r}")
        # The same conversation lies in many haystacks: its text is kept once.
        kept = self._texts.setdefault(text, text)
        place = (scope, session)
        self._documents[id] = Document(id, kept, scope, session, self._places[place], meta)
        self._places[place] += 1

    def ask(self, where: str, query: BenchQuery) -> None:
        """A question."""
        if query.id in self._queries:
            raise BadInput(f"{where}: repeats the id {query.id!r}")
        if not query.text:
            raise BadInput(f"{where}: has an empty question")
        self._queries[query.id] = query

    def has(self, document: str) -> bool:
        """Whether a document of this id came."""
        return document in self._documents

    def label(self, query: str, document: str, grade: int = 1) -> None:
        """How well a document answers a question; what was judged to be worse than nothing is nothing."""
        self._qrels.setdefault(query, {})[document] = max(0, grade)

    def skip(self, reason: str, count: int = 1) -> None:
        """Count something of the labels that cannot be used."""
        self._skipped[reason] += count

    def loaded(self) -> Loaded:
        """Everything that came, as a data set."""
        for what, found in (("documents", self._documents), ("questions", self._queries)):
            if not found:
                raise BadInput(f"{self._path}: has no {what}")
        dataset = Dataset(
            name=self._name,
            documents=tuple(self._documents.values()),
            queries=tuple(self._queries.values()),
            qrels=self._qrels,
            sha256=self._digest.hexdigest(),
        )
        return Loaded(dataset, {reason: count for reason, count in self._skipped.items() if count})
