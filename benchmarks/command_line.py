"""How long warm commands take, in multiples of `python -c pass`, in a throw-away store.

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
from pathlib import Path

RUNS = 20
PROGRAM = str(Path(sys.executable).with_name("triskele"))


def milliseconds(command: list[str], environ: dict[str, str]) -> float:
    """The median wall time of a command."""
    times = []
    for number in range(RUNS):
        # An add of a new text each time.
        arguments = [part.format(number=number) for part in command]
        began = time.perf_counter()
        subprocess.run(arguments, env=environ, check=True, capture_output=True, stdin=subprocess.DEVNULL)
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)


def related(size: int) -> None:
    """Print how long an `add` of a slightly changed memory takes, as a process and within the resident process."""
    import hook
    import texts

    from triskele.serving import hook_client, resident

    with hook.store_of(size, None) as home:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TRISKELE_")}
        environ = {**kept, "TRISKELE_HOME": str(home), "TRISKELE_PROJECT": hook.FOLDER}
        (home / hook.FOLDER).mkdir(exist_ok=True)
        place = hook_client.address(environ)
        try:
            hook_client.start(place, environ)
            while resident.health(place) is None:
                time.sleep(0.05)
            known = [text for text in texts.memories(size)[: hook.ASKED] if text[:1].isalnum()]
            wall, cpu, named = [], [], 0
            clock = hook.cpu_clock(hook.serving(place))
            for number, text in enumerate(known[: RUNS * 6]):
                command = [PROGRAM, "add", f"{text.rstrip('.')} indeed {number}", "--json"]
                began, spent = time.perf_counter(), time.clock_gettime(clock)
                done = subprocess.run(command, env=environ, cwd=home / hook.FOLDER, check=True, capture_output=True)
                if number >= RUNS:
                    wall.append((time.perf_counter() - began) * 1000)
                    cpu.append((time.clock_gettime(clock) - spent) * 1000)
                    named += "similar" in json.loads(done.stdout)
        finally:
            resident.stop(place)
    print(f"{size:,} memories, {len(wall)} times add: {named} named similar memories; load {os.getloadavg()[0]:.1f}")
    for what, times in (("whole process, wall", wall), ("resident process, CPU", cpu)):
        print(f"  {what}: p50 {statistics.median(times):.0f} ms, p95 {statistics.quantiles(times, n=20)[-1]:.0f} ms")


def main() -> None:
    """Run what was asked for."""
    if sys.argv[1:2] == ["related"]:
        related(int(sys.argv[2]) if len(sys.argv) > 2 else 5452)
    else:
        commands_alone()


def commands_alone() -> None:
    """Print the medians with the resident process and without it."""
    with tempfile.TemporaryDirectory() as folder:
        environ = {**os.environ, "TRISKELE_HOME": folder, "TRISKELE_PROJECT": "shop"}
        subprocess.run([PROGRAM, "add", "We deploy with Argo CD"], env=environ, check=True, capture_output=True)
        listed = subprocess.run([PROGRAM, "list"], env=environ, check=True, capture_output=True, text=True).stdout
        id = listed.splitlines()[1].split()[0]
        commands = {
            "recall": [PROGRAM, "recall", "how do we deploy?"],
            "add": [PROGRAM, "add", "fact number {number}"],
            "show": [PROGRAM, "show", id],
        }
        nothing = milliseconds([sys.executable, "-c", "pass"], environ)
        print(f"python -c pass: {nothing:.0f} ms")
        for state in ("resident", "in process"):
            if state == "resident":
                subprocess.run([PROGRAM, "recall", "warm"], env=environ, check=True, capture_output=True)
                time.sleep(3)
            else:
                subprocess.run([PROGRAM, "serve", "--stop"], env=environ, check=False, capture_output=True)
                environ["TRISKELE_AGENTS_BACKGROUND"] = "false"
            for name, command in commands.items():
                took = milliseconds(command, environ)
                print(f"{state}: {name} {took:.0f} ms, {took / nothing:.1f} × python -c pass")


if __name__ == "__main__":
    main()
