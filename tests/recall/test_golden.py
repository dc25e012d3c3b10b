"""Frozen answers over the sample corpus, one line for each hit; TRISKELE_WRITE_GOLDEN=1 rewrites them.

`benchmarks/golden.py` compares two checkouts to the bit, with the bundled models and in many more ways.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from triskele.index import local
from triskele.models.embedder import Encoding

# Read before the fixtures clear the environment.
WRITES = bool(os.environ.get("TRISKELE_WRITE_GOLDEN"))
ROOT = Path(__file__).parent.parent.parent
GOLDEN = ROOT / "tests" / "data" / "recall.txt"
QUESTIONS, HITS = 5, 5
SENTENCE, TOKEN = 64, 16
MIDDLE = "2025-07-01T00:00:00Z"
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "dbsf late": {"fusion": "dbsf", "rerank": "late", "legs": ["lexical", "dense"]},
    "graph off": {"legs": ["lexical", "dense"]},
    "as of": {"as_of": MIDDLE},
    "known at": {"known_at": MIDDLE, "as_of": None},
    "superseded": {"show_superseded": True},
    "diverse": {"order": "diverse"},
    "project": {"project": "platform", "all_projects": False},
    "late off": {"rerank": "off"},
    "rrf graph": {"fusion": "rrf", "rerank": "off"},
    "words": {"legs": ["lexical"]},
    "recency": {"sort": "recency"},
}
# Late interaction multiplies matrices in float32, and each kernel of OpenBLAS adds in an order of its own: scores
# differ by up to 1.2e-6 between processors. Everything else is equal to the bit.
EXACT = {"late off", "rrf graph", "words", "recency"}
TOLERANCE = 5e-6
_NUMBER = re.compile(r"-?0x[01]\.[0-9a-f]+p[+-]\d+")


class SignEncoder:
    """Vectors of signs: those of a word follow from its first letters, those of a text from its words."""

    fingerprint, dimensions, token_dimensions = "signs@1", SENTENCE, TOKEN

    def encode_query(self, text: str) -> Encoding:
        spans = [match.span() for match in re.finditer(r"\w+", text)]
        signs = np.array([_signs(text[start:end]) for start, end in spans]).reshape(-1, SENTENCE)
        # Numbers of 1/8 have exact products, whatever the order of the sums.
        sentence = np.where(signs.sum(axis=0) < 0, -1, 1) / np.sqrt(SENTENCE)
        tokens = signs[:, :TOKEN] / np.sqrt(TOKEN)
        ids, places = np.arange(len(spans), dtype=np.int32), np.array(spans, dtype=np.int32).reshape(-1, 2)
        return Encoding(sentence.astype(np.float32), tokens.astype(np.float32), ids, places)

    def encode_documents(self, texts: Sequence[str]) -> list[Encoding]:
        return list(map(self.encode_query, texts))


def _signs(word: str) -> np.ndarray:
    digest = np.frombuffer(hashlib.sha256(word.lower()[:5].encode()).digest(), np.uint8)
    return np.unpackbits(digest)[:SENTENCE].astype(np.int64) * 2 - 1


def _benchmark(name: str) -> Any:
    """A module of the benchmarks; others of their folder have the names of helpers of the tests."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The lines of every variant, which are written first if the environment says so."""
    adapter, inputs = _benchmark("golden_adapter"), _benchmark("golden_inputs")
    data = inputs.golden_set(Path(str(resources.files("triskele.samples"))) / "team", QUESTIONS)
    lines: dict[str, list[str]] = defaultdict(list)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "bundled", SignEncoder)
        with adapter.open_engine(tmp_path_factory.mktemp("golden")) as engine:
            adapter.fill(engine, data.versions, data.links)
            adapter.embed(engine, None)
            for variant, options in VARIANTS.items():
                for question in data.questions:
                    answer = adapter.ask(engine, question.text, {"limit": HITS, **question.options, **options})
                    lines[variant] += _lines(question.text, adapter.flat_answer(answer))
    if WRITES:
        GOLDEN.write_text("".join(f"{variant}: {line}\n" for variant in lines for line in lines[variant]))
    return lines


def _lines(text: str, answer: dict[str, Any]) -> Iterator[str]:
    hits = answer.pop("hits")
    yield json.dumps({"question": text, **answer}, ensure_ascii=False)
    yield from (json.dumps(hit, ensure_ascii=False) for hit in hits)


@pytest.mark.parametrize("variant", VARIANTS)
def test_recall_equals_golden_answers(answers: dict[str, list[str]], variant: str) -> None:
    lines, golden = answers[variant], _golden(variant)
    assert [_NUMBER.sub("number", line) for line in lines] == [_NUMBER.sub("number", line) for line in golden]
    if variant in EXACT:
        assert lines == golden
    assert _numbers(lines) == pytest.approx(_numbers(golden), rel=0, abs=TOLERANCE)


def _golden(variant: str) -> list[str]:
    lines = GOLDEN.read_text(encoding="utf-8").splitlines()
    return [line.removeprefix(f"{variant}: ") for line in lines if line.startswith(f"{variant}: ")]


def _numbers(lines: Sequence[str]) -> list[float]:
    return [float.fromhex(number) for line in lines for number in _NUMBER.findall(line)]
