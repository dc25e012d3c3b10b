"""One side of `benchmarks/golden.py`: reads requests as JSON lines and writes replies that any checkout can write.

A change of triskele's interfaces changes this file; the lines stay the same, or FORMAT goes up. It imports nothing but
triskele, because it may run in the environment of another checkout.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import triskele
from triskele import config
from triskele.code.ranking import CodePlan
from triskele.code.search import CodeHit, CodeSearch
from triskele.engine.local import LocalEngine
from triskele.exchange.transfer import import_memories
from triskele.models.bundled import BundledEmbedder
from triskele.models.local import local_embedder
from triskele.recall.plan import Plan
from triskele.recall.why_not import WhyNot
from triskele.types import Answer, Hit, LegEvidence, Period

FORMAT = 1
# The load of the machine must not decide whether a model is in time.
PATIENCE_S = 60
EXPORT_FORMAT = 3
# Models besides the bundled encoder: the section of the settings and its values.
SERVICES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "embedder": ("hosted", {"service": "compatible"}),
    "reranker": ("rerank", {"service": "voyage"}),
    "language model": ("llm", {"service": "compatible", "expand": True}),
    "cross-encoder": ("rerank", {"model": "bundled"}),
}

Values = dict[str, Any]


def open_engine(
    home: Path,
    *,
    store: str | None = None,
    corpus: str = "local",
    model: str = "bundled",
    half_life_days: float = 0.0,
    services: Sequence[str] = (),
    stub: Mapping[str, Any] | None = None,
) -> LocalEngine:
    """An engine that embeds only on request, with models of SERVICES; `stub` has their address, key and dimensions."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.toml").write_text(_settings(services, stub or {}), encoding="utf-8")
    environment = {
        "TRISKELE_HOME": str(home),
        "TRISKELE_PROJECT": "golden",
        "TRISKELE_PRIVACY_KEY": "file",
        "TRISKELE_RECALL_MODEL": model,
        "TRISKELE_RECALL_HALF_LIFE_DAYS": str(half_life_days),
        "TRISKELE_STORE_CORPUS": corpus,
    }
    engine = LocalEngine(config.load(environment, store_url=store), home)
    engine.embed_first = 0
    return engine


def _settings(services: Sequence[str], stub: Mapping[str, Any]) -> str:
    """The settings file for some services; the gated cross-encoder is bounded by the section of reranking too."""
    sections: dict[str, Values] = {"rerank": {}}
    for name in services:
        section, values = SERVICES[name]
        hosted = {"model": "stub", "url": stub["url"], "key": stub["key"]} if "service" in values else {}
        dimensions = {"dimensions": stub["dimensions"]} if section == "hosted" else {}
        sections[section] = {**values, **hosted, **dimensions}
    lines = []
    for section, values in sections.items():
        lines += [f"[{section}]", f"timeout_s = {PATIENCE_S}"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    return "\n".join(lines)


def fill(engine: LocalEngine, versions: Sequence[Values], links: Sequence[Values]) -> int:
    """Store versions and links with their ids and times; returns how many memories are new."""
    path = engine.settings.home / "golden.jsonl"
    lines: list[Values] = [{"triskele": EXPORT_FORMAT, "versions": len(versions), "links": len(links)}]
    lines += [{"memory": version | _derived(version)} for version in versions]
    lines += [{"link": link | {"known_to": None}} for link in links]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    report = import_memories(engine, path, keep_origin=True)
    path.unlink()
    return report.added


def _derived(version: Values) -> Values:
    digest = hashlib.sha256(version["content"].encode()).hexdigest()
    return {"content_hash": digest, "owner": "me"}


def embed(engine: LocalEngine, limit: int | None) -> Values:
    """Embed some memories or all, also by a hosted model if there is one."""
    done = engine.upkeep.embed(limit=limit)
    model = engine.semantic()
    return {
        "embedded": done,
        "hosted": engine.models.embed_hosted() if limit is None else 0,
        "model": model.embedder.fingerprint if model else "",
    }


def ask(engine: LocalEngine, text: str, options: Values) -> Answer:
    """Ask a question; the option `plan` has values of a plan, which replaces legs, fusion and rerank."""
    if (values := options.get("plan")) is None:
        return engine.answer(text, **options)
    sets = {name: frozenset(values[name]) for name in ("legs", "evidence") if name in values}
    rest = {name: value for name, value in options.items() if name != "plan"}
    return engine.ask(text, Plan(**(values | sets)), **rest)


def flat_answer(answer: Answer) -> Values:
    """Everything of an answer but the time that it took."""
    agreement = answer.agreement
    return {
        "hits": [flat_hit(hit) for hit in answer.hits],
        "confidence": _hex(answer.confidence),
        "resolutions": [memory.id for memory in answer.resolutions],
        "project": answer.project,
        "waiting": answer.waiting,
        "missing": list(answer.missing),
        "wordings": list(answer.wordings),
        "agreement": None if agreement is None else [_hex(agreement.tau), _hex(agreement.kept)],
        "period": _period(answer.period),
        "within": _period(answer.within),
    }


def flat_hit(hit: Hit) -> Values:
    """A hit with the parts of its score, its reason, its links and what it stands for."""
    return {
        "id": hit.memory.id,
        "version": hit.memory.version,
        "score": _hex(hit.score),
        "prior": _hex(hit.prior),
        "decay": _hex(hit.decay),
        "superseded": hit.superseded,
        "stands_for": hit.stands_for,
        "reason": hit.reason,
        "words": list(hit.words),
        "links": [f"{link.source} {link.kind} {link.target}" for link in hit.links],
        "legs": {name: _leg(hit.legs[name]) for name in sorted(hit.legs)},
    }


def _leg(leg: LegEvidence) -> Values:
    path = leg.path
    return {
        "rank": leg.rank,
        "score": _hex(leg.score),
        "normalised": _hex(leg.normalised),
        "contribution": _hex(leg.contribution),
        "terms": [f"{term.text} {term.start} {term.end}" for term in leg.terms],
        "path": None if path is None else [path.name, path.other, path.says],
    }


def _period(period: Period | None) -> list[str] | None:
    return None if period is None else [str(period.start), str(period.end), period.words]


def flat_why_not(verdict: WhyNot) -> Values:
    """Why a memory is not among the hits, and the smallest change that helps."""
    change = verdict.smallest_change
    return {
        "rank": verdict.rank,
        "verdict": verdict.verdict,
        "stages": [[stage.name, stage.passed, stage.detail] for stage in verdict.stages],
        "change": None if change is None else [{name: str(v) for name, v in change.options.items()}, change.words],
    }


def flat_code_hit(hit: CodeHit) -> Values:
    """A place in a tree of code."""
    return {
        "place": f"{hit.path}:{hit.start_line}-{hit.end_line} {hit.line} {hit.symbol}",
        "score": _hex(hit.score),
        "reason": hit.reason,
        "evidence": {name: _hex(value) for name, value in hit.evidence.items()},
    }


def _hex(number: float) -> str:
    return float(number).hex()


class Side:
    """What requests call: the store and the tree of code that are open."""

    def __init__(self) -> None:
        self._engine: LocalEngine | None = None
        self._code: CodeSearch | None = None

    @property
    def engine(self) -> LocalEngine:
        """The engine over the store that is open."""
        assert self._engine is not None, "no store is open"
        return self._engine

    def open(self, home: str, **options: Any) -> Values:
        """Open the store of a folder."""
        self.close()
        self._engine = open_engine(Path(home), **options)
        return {}

    def close(self) -> Values:
        """Close the store that is open, if any."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None
        return {}

    def fill(self, file: str) -> Values:
        """Store the versions and links in a file."""
        return {"memories": fill(self.engine, **json.loads(Path(file).read_text(encoding="utf-8")))}

    def embed(self, limit: int | None = None) -> Values:
        """Embed what waits."""
        return embed(self.engine, limit)

    def recall(self, text: str, options: Values) -> Values:
        """Answer a question."""
        return flat_answer(ask(self.engine, text, options))

    def why_not(self, text: str, options: Values, memory: str) -> Values:
        """Say why a memory is not among the hits."""
        return flat_why_not(self.engine.why_not(memory, text, **options))

    def open_code(self, home: str, tree: str, *, model: bool) -> Values:
        """Index a tree of code, with vectors if meaning counts."""
        self._code = CodeSearch(Path(home), Path(tree), local_embedder("bundled") if model else None)
        files = self._code.index().files
        return {"files": files, "left": self._code.embed()}

    def search_code(self, text: str, limit: int, under: str = "", granularity: str = "file") -> Values:
        """Search the tree."""
        assert self._code is not None, "no tree is open"
        answer = self._code.search(text, limit=limit, under=under, plan=CodePlan(granularity=granularity))
        return {"hits": [flat_code_hit(hit) for hit in answer.hits], "embedded": _hex(answer.embedded)}


def main() -> None:
    """Say which format and package this is, then answer requests; one has a method and a list of arguments for it."""
    # What a library prints must not end up between the replies.
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    print(json.dumps({"format": FORMAT, "package": triskele.__file__}), file=replies, flush=True)
    # Every variant asks the same questions; the encoder reads each once.
    BundledEmbedder.encode_query = cache(BundledEmbedder.encode_query)  # type: ignore[method-assign]
    BundledEmbedder.begin_query = lambda *_: None  # type: ignore[method-assign]
    side = Side()
    for line in sys.stdin:
        request = json.loads(line)
        method = getattr(side, request["do"])
        for arguments in request["with"]:
            print(json.dumps(_reply(method, arguments), ensure_ascii=False), file=replies)
        replies.flush()
    side.close()


def _reply(method: Callable[..., Values], arguments: Values) -> Values:
    try:
        return method(**arguments)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    main()
