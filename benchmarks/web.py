"""How long a page takes: first paint and search round trip in Chromium, over stores of several sizes.

Usage: python benchmarks/web.py [MEMORIES ...]

The texts are made of the sample memories with other numbers in them; the bundled model embeds all of them first.
Times are medians of RUNS, in milliseconds, on whatever machine this runs on.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))
from screenshots import browser_at

from triskele import config
from triskele.engine import Engine
from triskele.serving.cli.demo import temporary_memory

RUNS = 15
QUESTIONS = ("when may we deploy", "who owns billing", "restore a backup", "gRPC port", "why was the boat sent away")
PATHS = {
    "search": "",
    "browse": "/browse",
    "timeline": "/browse?view=timeline",
    "graph start": "/graph",
    "health": "/health",
}
_PAINT = """new Promise(done => new PerformanceObserver(list => {
    const found = list.getEntriesByName("first-contentful-paint")[0];
    if (found) done(found.startTime);
}).observe({type: "paint", buffered: true}))"""
_LONG = "window.longTasks = []; new PerformanceObserver(list => list.getEntries().forEach(each => longTasks.push(each.duration))).observe({type: 'longtask', buffered: true})"  # noqa: E501


def fill(home: Path, count: int) -> None:
    """A store of so many memories, all embedded and read."""
    with temporary_memory() as sample:
        texts = [
            (memory.content, memory.tags, memory.project) for memory in sample.browse(all_projects=True, limit=1000)
        ]
    with Engine(config.load({"TRISKELE_HOME": str(home)}), home) as engine:
        made = itertools.islice(((number, *each) for number in itertools.count() for each in texts), count)
        drafts = [
            engine.draft(text if not number else f"{text} (case {number})", tags=list(tags), project=project)
            for number, text, tags, project in made
        ]
        for start in range(0, len(drafts), 2000):
            engine.remember_all(drafts[start : start + 2000])
        engine.reindex()
        engine.embed()


def measure(page: Any, base: str) -> dict[str, Any]:
    """Medians of first paints, of search round trips, and the longest task of the graph at 300 nodes."""
    figures: dict[str, Any] = {}
    for name, path in PATHS.items():
        paints = []
        for _ in range(RUNS):
            page.goto(base + path)
            paints.append(page.evaluate(_PAINT))
        figures[f"first paint, {name}"] = round(statistics.median(paints), 1)
    page.goto(base)
    trips = []
    for number in range(RUNS):
        question = QUESTIONS[number % len(QUESTIONS)]
        with page.expect_response("**/ui/hits?*") as answer:
            page.fill("#q", f"{question} {number}")
        answer.value.finished()
        trips.append(answer.value.request.timing["responseEnd"])
        page.wait_for_timeout(50)
    figures["search round trip"] = round(statistics.median(trips), 1)
    figures["search round trip, slowest"] = round(max(trips), 1)
    page.add_init_script(_LONG)
    page.goto(f"{base}/graph?focus=deploys&size=300")
    page.wait_for_selector("#graph[data-nodes]")
    page.wait_for_timeout(500)
    figures["graph nodes"] = int(page.locator("#graph").get_attribute("data-nodes"))
    figures["graph, longest task"] = round(max(page.evaluate("longTasks"), default=0), 1)
    return figures


def main() -> None:
    """Print one JSON line per size."""
    for count in map(int, sys.argv[1:] or ["5000"]):
        with tempfile.TemporaryDirectory(prefix="triskele-web-") as folder:
            started = time.perf_counter()
            fill(Path(folder), count)
            filled_s = round(time.perf_counter() - started, 1)
            with browser_at(Path(folder)) as (page, base):
                page.goto(f"{base}?q=warm+up")
                page.wait_for_selector("#hits")
                print(json.dumps({"memories": count, "filled_s": filled_s, **measure(page, base)}), flush=True)


if __name__ == "__main__":
    main()
