"""How long warm commands take, in multiples of `python -c pass`: run with the data folder of a throw-away store."""

from __future__ import annotations

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


def main() -> None:
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
