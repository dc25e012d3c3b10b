"""How long a prompt waits: a cold hook process against `python -c pass`, with a resident at two sizes.

    TRISKELE_BENCH_DATA=folder python benchmarks/hook.py [--sizes 5452,50000] [--prompts 200] [--keep FOLDER]

Wall times of whole processes, interleaved in one run. Every prompt holds words of a stored memory, so that there is
something to inject; how many got something is reported. The memories that are asked about have real vectors, all
others synthetic ones as in latency.py. The resident's own part is measured apart, as CPU time of all its threads per
request. `--keep` leaves the stores for the next run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import stores
import texts

from triskele.edge.hook import client
from triskele.edge.process import resident
from triskele.index.name_linking import read_names

RESULTS = Path(__file__).parent / "results" / "hook.json"
WARMING = 30
# So many of the oldest memories may be asked about.
ASKED = 256
PROMPT_WORDS = 14
PROMPTS_PER_SESSION = 20
MOST_RATIO, MOST_CPU_MS, MOST_USS_MB, MOST_COLD_S = 3.0, 15.0, 600.0, 2.0
PATIENCE_S = 60.0
# Where memories of the benchmark's project are asked for, whatever folder this runs in.
FOLDER = "bench"
HOOK = [sys.executable, "-I", "-S", str(Path(client.__file__).with_name("start.py"))]

Environ = Mapping[str, str]


def main() -> None:
    """Run at every size and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="5452,50000")
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    results: dict[str, Any] = {"machine": platform.machine(), "cpus": os.cpu_count(), "prompts": given.prompts}
    for size in (int(part) for part in given.sizes.split(",")):
        with store_of(size, given.keep) as home:
            results[str(size)] = measure(home, size, given.prompts)
            show(size, results[str(size)])
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(f"written to {RESULTS.name}")


@contextmanager
def store_of(size: int, keep: Path | None) -> Iterator[Path]:
    """A data folder with a number of memories, all with vectors and names."""
    with tempfile.TemporaryDirectory(prefix="triskele-") as folder:
        home = (keep or Path(folder)) / str(size)
        if not (home / "memories.db").exists():
            with stores.open_engine(home) as engine:
                stores.fill(engine, texts.memories(size))
                engine.upkeep.embed(limit=ASKED)
                centre = stores.rehearse(engine, texts.questions(50)).centre()
                stores.give_vectors(engine, stores.random_vectors(size, centre))
                read_names(engine.store, engine.lexical)
        yield home


def measure(home: Path, size: int, count: int) -> dict[str, Any]:
    """Every figure at one size."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TRISKELE_")}
    environ |= {"TRISKELE_HOME": str(home), "TRISKELE_HOOK_DEADLINE_MS": str(PATIENCE_S * 1000)}
    place = client.Address(environ)
    events = payloads(home, size, count + WARMING)
    try:
        figures: dict[str, Any] = {"memories": size, **cold_start(place, environ, events[0])}
        for event in events[:WARMING]:
            ask(place, event)
        figures |= race(environ, cpu_clock(serving(place)), events[WARMING:])
        figures |= round_trips(place, events[WARMING:])
        figures |= memory_of(serving(place))
    finally:
        resident.stop(place)
    figures["bars"] = {
        "hook / python -c pass, p50": _held(figures["ratio_p50"], MOST_RATIO),
        "resident, CPU ms p50": _held(figures["resident_cpu_ms_p50"], MOST_CPU_MS),
        "first answer after a cold start, s": _held(figures["cold_start_s"], MOST_COLD_S),
        "private memory, MB": _held(figures["uss_mb"], MOST_USS_MB),
    }
    return figures


def payloads(home: Path, size: int, count: int) -> list[bytes]:
    """Prompts that hold words of stored memories, in conversations of some length."""
    work = home / FOLDER
    (work / ".git").mkdir(parents=True, exist_ok=True)
    chance = random.Random(11)
    contents = chance.choices(texts.memories(size)[:ASKED], k=count)
    events = []
    for number, content in enumerate(contents):
        words = content.split()
        start = chance.randrange(max(1, len(words) - PROMPT_WORDS))
        prompt = "what do we know about " + " ".join(words[start : start + PROMPT_WORDS]) + "?"
        session = f"{os.getpid()}-{time.time_ns()}-{number // PROMPTS_PER_SESSION}"
        events.append(json.dumps({"session_id": session, "cwd": str(work), "prompt": prompt}).encode())
    return events


def cold_start(place: client.Address, environ: Environ, event: bytes) -> dict[str, float]:
    """Seconds from nothing to the first answer of any kind, and to the first text."""
    assert resident.health(place) is None, "another process serves this store already"
    started = time.monotonic()
    client.start(place, environ)
    while resident.health(place) is None:
        time.sleep(0.005)
    listening_s = time.monotonic() - started
    ask(place, event)
    return {"cold_health_s": round(listening_s, 3), "cold_start_s": round(time.monotonic() - started, 3)}


def race(environ: Environ, clock: int, events: Sequence[bytes]) -> dict[str, float]:
    """Whole processes, one after the other; a hook's CPU time is its own and what the resident spent meanwhile."""
    hook = [*HOOK, "user-prompt-submit"]
    racing = {"hook": hook, "pass": [sys.executable, "-c", "pass"]}
    taken: dict[str, list[float]] = {name: [] for name in racing}
    spent: dict[str, list[float]] = {name: [] for name in racing}
    injected = 0
    for event in events:
        for name, command in racing.items():
            started, before = time.perf_counter(), children_s() + time.clock_gettime(clock)
            done = subprocess.run(command, input=event, capture_output=True, env=environ, check=True)
            taken[name].append((time.perf_counter() - started) * 1000)
            spent[name].append((children_s() + time.clock_gettime(clock) - before) * 1000)
            injected += bool(done.stdout)
    assert injected > len(events) / 2, "most prompts are met with silence: this would measure nothing"
    figures = {"injected": round(injected / len(events), 3)}
    for name, times in taken.items():
        figures |= {f"{name}_ms_p50": statistics.median(times), f"{name}_ms_p95": statistics.quantiles(times, n=20)[-1]}
    figures["ratio_p50"] = figures["hook_ms_p50"] / figures["pass_ms_p50"]
    figures["ratio_p95"] = figures["hook_ms_p95"] / figures["pass_ms_p95"]
    figures["cpu_ratio_p50"] = statistics.median(spent["hook"]) / statistics.median(spent["pass"])
    return {name: round(figure, 3) for name, figure in figures.items()}


def round_trips(place: client.Address, events: Sequence[bytes]) -> dict[str, float]:
    """Requests from one process that is warm itself: wall time, and CPU time of the resident."""
    clock = cpu_clock(serving(place))
    wall, cpu = [], []
    for event in events:
        began, spent = time.perf_counter(), time.clock_gettime(clock)
        # Asked again in another conversation: nothing was given to that one yet.
        ask(place, event.replace(b'"session_id": "', b'"session_id": "again-'))
        wall.append((time.perf_counter() - began) * 1000)
        cpu.append((time.clock_gettime(clock) - spent) * 1000)
    return {
        "resident_wall_ms_p50": round(statistics.median(wall), 3),
        "resident_cpu_ms_p50": round(statistics.median(cpu), 3),
        "resident_cpu_ms_p95": round(statistics.quantiles(cpu, n=20)[-1], 3),
    }


def ask(place: client.Address, event: bytes) -> bytes:
    """One prompt, answered without a new process."""
    headers = ("Content-Type: application/json", f"X-Triskele-Deadline-Ms: {PATIENCE_S * 1000:.0f}")
    status, _, text = client.exchange(place, "POST /hook/user-prompt-submit", headers, event, PATIENCE_S)
    assert status in (200, 204), status
    return text


def serving(place: client.Address) -> int:
    """The process that serves."""
    found = resident.health(place)
    assert found is not None, "nobody serves"
    return int(found["pid"])


def children_s() -> float:
    """CPU seconds of all processes that this one started and that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cpu_clock(pid: int) -> int:
    """The clock of a process's CPU time, by Linux's way to name it."""
    return (~pid << 3) | 2


def memory_of(pid: int) -> dict[str, float]:
    """The private and the resident memory of a process, in megabytes."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    sizes = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines}
    return {"uss_mb": round(sizes["Private_Clean"] + sizes["Private_Dirty"], 1), "rss_mb": round(sizes["Rss"], 1)}


def _held(figure: float, most: float) -> dict[str, Any]:
    return {"figure": figure, "most": most, "held": figure <= most}


def show(size: int, figures: Mapping[str, Any]) -> None:
    """One size as a table."""
    print(f"\n{size:,} memories, {figures['injected']:.0%} of the prompts got something")
    for name, figure in figures.items():
        if isinstance(figure, float):
            print(f"  {name:24} {figure:9.3f}")
    for name, bar in figures["bars"].items():
        print(f"  {name:36} {bar['figure']:8.3f} of {bar['most']}: {'held' if bar['held'] else 'MISSED'}")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main()
