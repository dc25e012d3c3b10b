"""Concurrent users of one server: errors, latencies, an ingest in which nothing may be lost, and two instances.

    python benchmarks/server_load.py --users 50 --seconds 60 --ingest 10000 --out load.json

Starts a throw-away Postgres (extra `demo`) and two server processes on it, on loopback.
"""

from __future__ import annotations

import argparse
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
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import triskele
from triskele.errors import TriskeleError
from triskele.serving.http.client import RemoteMemory
from triskele.serving.http.demo_server import running_postgres
from triskele.stores.postgres.accounts import Accounts

WORDS = (
    "argo flux helm redis kafka billing shop cluster release backup cache queue deploy incident metric alert".split()
)
_EMBEDDED_S = 300.0


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


def work(memory: RemoteMemory, until: float, seed: int, times: dict[str, list[float]], errors: Counter[str]) -> None:
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
    stored = sum(memory.census().memories for memory in memories)
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


def ingest(address: str, key: str, count: int) -> dict[str, Any]:
    """Store many memories through the API, a hundred at a time, and count what is there."""
    started = time.perf_counter()
    with triskele.connect(address, key) as memory:
        for start in range(0, count, 100):
            memory.remember_all([{"content": fact(number)} for number in range(start, min(start + 100, count))])
        took_s = time.perf_counter() - started
        return {"sent": count, "stored": memory.census().memories, "seconds": round(took_s, 1)}


def agree(first: str, second: str, key: str) -> dict[str, int]:
    """Ask two instances the same questions."""
    with triskele.connect(first, key) as one, triskele.connect(second, key) as other:
        ends = time.monotonic() + _EMBEDDED_S
        # An answer changes while vectors are still made.
        while any(each.recall(WORDS[0]).waiting for each in (one, other)) and time.monotonic() < ends:
            time.sleep(1)
        questions = [f"what uses {word} for {next_word}?" for word, next_word in pairwise(WORDS)]
        answers = [([hit.memory.id for hit in each.recall(text).hits] for each in (one, other)) for text in questions]
        same = sum(left == right for left, right in answers)
        return {"questions": len(questions), "same": same}


def main() -> None:
    """Measure and write."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--users", type=int, default=50)
    options.add_argument("--seconds", type=float, default=60)
    options.add_argument("--ingest", type=int, default=10_000)
    options.add_argument("--out", type=Path)
    asked = options.parse_args()
    with running_postgres() as url:
        with closing(Accounts(url, timeout_s=60)) as accounts:
            for number in range(asked.users):
                accounts.create_user(f"user{number}")
            keys = [accounts.create_key(f"user{number}")[0] for number in range(asked.users)]
        with instance(url) as first, instance(url) as second:
            found = {"load": load(first, keys, asked.seconds)}
            with closing(Accounts(url)) as accounts:
                accounts.create_user("bulk")
                key = accounts.create_key("bulk")[0]
            found["ingest"] = ingest(first, key, asked.ingest)
            found["instances"] = agree(first, second, key)
    text = json.dumps(found, indent=2)
    sys.stdout.write(text + "\n")
    if asked.out is not None:
        asked.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
