"""What warm commands cost in processor time, in multiples of `python -c pass`, in a throw-away store.

python benchmarks/command_line.py
TRISKELE_BENCH_DATA=folder python benchmarks/command_line.py related [SIZE]
    how long `add` takes through the resident process until it names what the new memory repeats
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RUNS = 20
PROGRAM = str(Path(sys.executable).with_name("triskele"))


def milliseconds(commands: dict[str, list[str]], environ: dict[str, str]) -> dict[str, float]:
    """The median processor time of each command, run in turns."""
    times: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(RUNS):
        for name, command in commands.items():
            # An add of a new text each time.
            arguments = [part.format(number=number) for part in command]
            times[name].append(_processor_ms(arguments, environ))
    return {name: statistics.median(values) for name, values in times.items()}


def _processor_ms(command: list[str], environ: dict[str, str]) -> float:
    nothing = subprocess.DEVNULL
    with subprocess.Popen(command, env=environ, stdin=nothing, stdout=subprocess.PIPE, stderr=nothing) as child:
        assert child.stdout is not None
        child.stdout.read()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, command
    return (used.ru_utime + used.ru_stime) * 1000


def related(size: int) -> None:
    """Print how long an `add` through the resident takes that repeats or contradicts a memory."""
    import hook

    from triskele.bench.curation_pairs import load_pairs
    from triskele.edge.hook import client
    from triskele.edge.process import resident
    from triskele.types import Add

    pairs = [pair for pair in load_pairs() if pair.label != "add"][: RUNS * 10]
    with hook.store_of(size, None) as home:
        with hook.stores.open_engine(home) as engine:
            engine.apply([Add(engine.draft(pair.old, project=hook.FOLDER)) for pair in pairs])
            engine.upkeep.embed()
            _print_cpu(engine, [engine.draft(pair.new, project=hook.FOLDER) for pair in pairs[: RUNS * 4]])
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TRISKELE_")}
        os.environ.clear()
        os.environ.update(kept | {"TRISKELE_HOME": str(home), "TRISKELE_PROJECT": hook.FOLDER})
        place = client.Address(os.environ)
        try:
            client.start(place, os.environ)
            while resident.health(place) is None:
                time.sleep(0.05)
            subprocess.run([PROGRAM, "recall", "what is known"], check=True, capture_output=True)
            times: list[float] = []
            named = 0
            for number, pair in enumerate(pairs):
                began = time.perf_counter()
                output = subprocess.run([PROGRAM, "add", pair.new, "--json"], check=True, capture_output=True).stdout
                if number >= RUNS:
                    times.append((time.perf_counter() - began) * 1000)
                    named += "similar" in json.loads(output)
        finally:
            resident.stop(place)
    print(f"{size:,} memories, {len(times)} times add, {named} named similar memories; load {os.getloadavg()[0]:.1f}")
    late = sum(each > 150 for each in times)
    spread = f"p50 {statistics.median(times):.0f} ms, p95 {statistics.quantiles(times, n=20)[-1]:.0f} ms"
    print(f"  {spread}, {late} of {len(times)} over 150 ms")


def _print_cpu(engine: Any, drafts: Sequence[Any]) -> None:
    """Processor time of the search itself, which the load of the machine hardly changes."""
    from triskele.curation.curator import Curator

    curator = Curator(engine)
    for what, search in (("by the indexes", curator.related), ("by words", curator.related_by_words)):
        search(drafts[0])
        spent = []
        for draft in drafts:
            began = time.process_time()
            search(draft)
            spent.append((time.process_time() - began) * 1000)
        spread = f"p50 {statistics.median(spent):.0f} ms, p95 {statistics.quantiles(spent, n=20)[-1]:.0f} ms"
        print(f"CPU of the search {what}: {spread}", flush=True)


def main() -> None:
    """Run what was asked for."""
    if sys.argv[1:2] == ["related"]:
        related(int(sys.argv[2]) if len(sys.argv) > 2 else 5452)
    else:
        commands_alone()


def commands_alone() -> None:
    """Print the medians with the resident process and without it."""
    with tempfile.TemporaryDirectory() as folder:
        # Commands that cannot keep compiled modules start slower than those of users.
        usual = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TRISKELE_"))}
        environ = {**usual, "TRISKELE_HOME": folder, "TRISKELE_PROJECT": "shop"}
        subprocess.run([PROGRAM, "add", "We deploy with Argo CD"], env=environ, check=True, capture_output=True)
        listed = subprocess.run([PROGRAM, "list"], env=environ, check=True, capture_output=True, text=True).stdout
        id = listed.splitlines()[1].split()[0]
        lines = {
            "recall": ["recall", "how do we deploy?"],
            "add": ["add", "fact number {number}"],
            "show": ["show", id],
            "list": ["list"],
            "history": ["history"],
            "stats": ["stats"],
        }
        commands = {name: [PROGRAM, *words] for name, words in lines.items()}
        commands |= {f"{name} --json": [*command, "--json"] for name, command in commands.items() if name != "add"}
        commands |= {"--version": [PROGRAM, "--version"], "pass": [sys.executable, "-c", "pass"]}
        for state in ("resident", "in process"):
            if state == "resident":
                subprocess.run([PROGRAM, "recall", "warm"], env=environ, check=True, capture_output=True)
                time.sleep(3)
            else:
                subprocess.run([PROGRAM, "serve", "--stop"], env=environ, check=False, capture_output=True)
                environ["TRISKELE_AGENTS_BACKGROUND"] = "false"
            medians = milliseconds(commands, environ)
            for name, spent in medians.items():
                print(f"{state}: {name} {spent:.0f} ms, {spent / medians['pass']:.1f} × python -c pass", flush=True)


if __name__ == "__main__":
    main()
