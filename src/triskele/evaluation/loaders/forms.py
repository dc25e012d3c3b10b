"""The public forms of data sets, and which of them lies at a path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path

from triskele.errors import BadInput
from triskele.evaluation.loaders import beir, locomo, longmemeval, passages, trec
from triskele.evaluation.loaders.collecting import Loaded
from triskele.evaluation.loaders.listing import items
from triskele.evaluation.loaders.reading import Source, files_at

_MAX_PEEKS = 100


@dataclass(frozen=True, slots=True)
class Form:
    """How a form is found by the names of its files, known by the keys of its first object, and read."""

    about: str
    offers: Callable[[Path], list[Path]]
    load: Callable[[Path], Loaded]
    marks: tuple[frozenset[str], ...] = ()


def _named(*patterns: str) -> Callable[[Path], list[Path]]:
    def offers(path: Path) -> list[Path]:
        names = {file: file.name.removesuffix(".gz") for file in files_at(path)}
        return [file for file, name in names.items() if any(fnmatch(name, pattern) for pattern in patterns)]

    return offers


FORMS = {
    "locomo": Form("locomo10.json", _named("locomo*.json"), locomo.load, (locomo.MARKS,)),
    "longmemeval": Form(
        "longmemeval_s.json",
        _named("longmemeval*.json", "longmemeval_[sm]", "longmemeval_oracle"),
        longmemeval.load,
        (longmemeval.MARKS,),
    ),
    "passages": Form("NAME.json with NAME_corpus.json", passages.offers, passages.load, passages.MARKS),
    "beir": Form("a BEIR folder", beir.offers, beir.load),
    "trec": Form("TREC qrels with corpus.jsonl and queries", trec.offers, trec.load),
}


def load_public(path: Path) -> Loaded | None:
    """The data set at a path, by the names there or else by content; none where a folder has no public form."""
    found = {file: form for form in FORMS.values() for file in form.offers(path)} or _known_by_content(path)
    if len(found) > 1:
        raise BadInput(f"{path} holds several data sets: name one of {', '.join(sorted(map(str, found)))}")
    for file, form in found.items():
        return form.load(file)
    if path.is_file():
        raise BadInput(f"{path}: is none of {', '.join(form.about for form in FORMS.values())}")
    return None


def _known_by_content(path: Path) -> dict[Path, Form]:
    known: dict[Path, Form] = {}
    for file in islice((f for f in files_at(path) if f.name.removesuffix(".gz").endswith(".json")), _MAX_PEEKS):
        try:
            keys = frozenset(key for first in islice(items(Source(file)), 1) for key in first.values)
        except BadInput:
            # Other files may lie in a folder; one that was asked for has to be readable.
            if path.is_file():
                raise
            continue
        fitting = [form for form in FORMS.values() if any(marks <= keys for marks in form.marks)]
        if fitting:
            known[file] = fitting[0]
    return known
