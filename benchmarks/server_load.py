"""Concurrent users of one server: errors, latencies, an ingest in which nothing may be lost, and two instances.

    python benchmarks/server_load.py --users 50 --seconds 60 --ingest 10000 --set PATH --out load.json

Starts a throw-away Postgres (extra `demo`) and two server processes on it, on loopback. The instances are compared over
the ingested texts, the sample corpus and the data sets that `--set` names: lists of 50 with their scores.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

import triskele
from triskele.bench.datasets import windows
from triskele.bench.loaders import load_dataset
from triskele.edge.http.client import RemoteEngine
from triskele.errors import TriskeleError
from triskele.index.worker import LEASE_S, QUIET_S
from triskele.server.accounts import Accounts
from triskele.server.demo import running_postgres

WORDS = (
    "argo flux helm redis kafka billing shop cluster release backup cache queue deploy incident metric alert".split()
)
_EMBEDDED_S = 300.0
_SETTLED_S = 3 * (LEASE_S + QUIET_S)


def fact(number: int) -> str:
    """A text that is unique and shares words with others."""
    chosen = random.Random(number).sample(WORDS, 4)
    return f"Note {number}: {chosen[0]} uses {chosen[1]} for {chosen[2]} and {chosen[3]}"


@contextmanager
def instance(url: str) -> Iterator[str]:
    """The address of a server process."""
    with tempfile.TemporaryDirectory() as home:
        environ = {**os.environ, "TRISKELE_HOME": home, "TRISKELE_STORE": url, "TRISKELE_PRIVACY_KEY": "file"}
        environ["TRISKELE_SERVER_REQUESTS_PER_MINUTE"] = "0"
        command = [sys.executable, "-m", "triskele", "serve", "--http", "127.0.0.1:0", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environ) as process:
            try:
                assert process.stdout is not None
                lines = [process.stdout.readline()]
                while lines[-1] not in (b"}\n", b""):
                    lines.append(process.stdout.readline())
                yield json.loads(b"".join(lines))["http"]
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait()


def work(memory: RemoteEngine, until: float, seed: int, times: dict[str, list[float]], errors: Counter[str]) -> None:
    """One user: four recalls for each memory stored."""
    draw = random.Random(seed)
    number = seed * 1_000_000
    while time.monotonic() < until:
        number += 1
        kind = "store" if number % 5 == 0 else "recall"
        started = time.perf_counter()
        try:
            if kind == "store":
                memory.remember(fact(number))
            else:
                memory.recall(f"what uses {draw.choice(WORDS)} for {draw.choice(WORDS)}?", limit=5)
            times[kind].append((time.perf_counter() - started) * 1000)
        except TriskeleError as error:
            errors[type(error).__name__] += 1


def load(address: str, keys: list[str], seconds: float) -> dict[str, Any]:
    """All users at once."""
    times: dict[str, list[float]] = {"store": [], "recall": []}
    errors: Counter[str] = Counter()
    until = time.monotonic() + seconds
    memories = [triskele.connect(address, key) for key in keys]
    threads = [
        threading.Thread(target=work, args=(memory, until, seed, times, errors)) for seed, memory in enumerate(memories)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stored = sum(memory.stats().memories for memory in memories)
    return {
        "users": len(keys),
        "seconds": seconds,
        "errors": dict(errors),
        "lost": len(times["store"]) - stored,
        **{kind: _latency(values) for kind, values in times.items()},
    }


def _latency(values: list[float]) -> dict[str, float]:
    if len(values) < 2:
        return {"n": len(values)}
    cuts = statistics.quantiles(values, n=100)
    return {"n": len(values), "p50_ms": round(cuts[49], 1), "p95_ms": round(cuts[94], 1), "p99_ms": round(cuts[98], 1)}


def ingest(address: str, key: str, texts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Store memories through the API in batches, and compare what an export holds with what was sent."""
    started = time.perf_counter()
    with triskele.connect(address, key) as memory, tempfile.TemporaryDirectory() as folder:
        # A request has at most 64 KB.
        size = 100 if max(len(each["content"]) for each in texts) < 400 else 30
        for start in range(0, len(texts), size):
            memory.remember_all(texts[start : start + size])
        took_s = time.perf_counter() - started
        target = Path(folder) / "all.jsonl"
        memory.export_memories(target, private=True)
        records = map(json.loads, target.read_text(encoding="utf-8").splitlines())
        kept = [each["memory"]["content"] for each in records if "memory" in each]
        return {
            "sent": len(texts),
            "stored": memory.stats().memories,
            "seconds": round(took_s, 1),
            "hash_of_sent": _digest(each["content"] for each in texts),
            "hash_of_stored": _digest(kept),
        }


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(sorted(texts)).encode()).hexdigest()[:16]


def agree(first: str, second: str, key: str, questions: Sequence[str]) -> dict[str, Any]:
    """Ask two instances the same questions, once no vectors are waiting: how many lists of 50 are equal."""
    with triskele.connect(first, key) as one, triskele.connect(second, key) as other:
        ends = time.monotonic() + _EMBEDDED_S
        # An answer changes while vectors are still made.
        while any(_is_busy(each, questions[0]) for each in (one, other)) and time.monotonic() < ends:
            time.sleep(1)
        # Each instance rewrites its lexical index after a while without writes.
        time.sleep(_SETTLED_S)
        lists, scores, largest = 0, 0, 0.0
        for text in questions:
            left, right = (each.recall(text, limit=50, all_projects=True, logged=False).hits for each in (one, other))
            is_same = [hit.memory.id for hit in left] == [hit.memory.id for hit in right]
            apart = max((abs(a.score - b.score) for a, b in zip(left, right, strict=False)), default=0.0)
            lists, scores, largest = lists + is_same, scores + (is_same and apart == 0), max(largest, apart)
        return {"questions": len(questions), "same": lists, "same_scores": scores, "largest_difference": largest}


def _is_busy(memory: RemoteEngine, question: str) -> bool:
    jobs = memory.stats().jobs
    return bool(memory.recall(question).waiting or jobs.embed or jobs.names)


def sample_corpus() -> tuple[list[dict[str, Any]], list[str]]:
    """Texts and questions of the sample corpus."""
    folder = resources.files("triskele.samples") / "team"

    def lines(name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]

    texts = [{"content": each["text"], "project": each["meta"]["project"]} for each in lines("corpus.jsonl")]
    return texts, [each["text"] for each in lines("queries.jsonl")]


def data_set(path: Path, most: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Texts of a data set with session and speaker, its scopes as projects, and the first of its questions."""
    dataset = load_dataset(path)
    texts = [
        {
            "content": each.text,
            "project": each.scope or "",
            "session": each.session,
            "position": each.position,
            "speaker": each.speaker,
            "created_at": each.created,
        }
        for each in windows(dataset.documents)
    ]
    return texts, [each.text for each in dataset.queries[:most]]


def main() -> None:
    """Measure and write."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--users", type=int, default=50)
    options.add_argument("--seconds", type=float, default=60)
    options.add_argument("--ingest", type=int, default=10_000)
    options.add_argument("--set", type=Path, action="append", default=[], help="a data set to compare instances over")
    options.add_argument("--questions", type=int, default=200, help="how many of its questions")
    options.add_argument("--out", type=Path)
    asked = options.parse_args()
    with running_postgres() as url:
        with closing(Accounts(url, timeout_s=60)) as accounts:
            for number in range(asked.users):
                accounts.create_user(f"user{number}")
            keys = [accounts.create_key(f"user{number}")[0] for number in range(asked.users)]
        with instance(url) as first, instance(url) as second:
            found: dict[str, Any] = {"load": load(first, keys, asked.seconds)} if asked.users else {}
            questions = [f"what uses {word} for {next_word}?" for word, next_word in pairwise(WORDS)]
            corpora = {"bulk": ([{"content": fact(number)} for number in range(asked.ingest)], questions)}
            corpora["sample"] = sample_corpus()
            corpora |= {path.name: data_set(path, asked.questions) for path in asked.set}
            for name, (texts, asked_there) in corpora.items():
                if not texts:
                    continue
                with closing(Accounts(url)) as accounts:
                    accounts.create_user(name)
                    key = accounts.create_key(name)[0]
                stored = ingest(first, key, texts)
                found[name] = {"ingest": stored, "instances": agree(first, second, key, asked_there)}
                _write(found, asked.out)
    sys.stdout.write(json.dumps(found, indent=2) + "\n")


def _write(found: dict[str, Any], target: Path | None) -> None:
    """Write the results so far, because a run takes long."""
    if target is not None:
        target.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
