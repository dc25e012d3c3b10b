"""How long a page takes: first paint, search round trip and the graph in Chromium, over stores of several sizes.

    TRISKELE_BENCH_DATA=folder python benchmarks/web.py [--sizes 5000,50000] [--keep FOLDER]

The memories are real texts with tags, projects and dates; the oldest have real vectors, all others synthetic ones as in
latency.py. Times are medians of RUNS, in milliseconds, on whatever machine this runs on. `--keep` leaves the stores for
the next run. The graph is drawn around one tag, at 300 nodes: its longest task is that of
the browser's main thread, as PerformanceObserver reports it (tasks below 50 ms are not reported), from the first byte
of the page until the drawing stands, and again while it is moved in time and zoomed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import stores
import texts

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))
from screenshots import browser_at

from triskele.index.name_linking import read_names
from triskele.types import Add

RUNS = 15
# So many memories have real vectors, so that questions find something by meaning.
EMBEDDED = 256
FOCUS = "topic-5"
SETTLE_MS = 3000
PATHS = {
    "search": "",
    "browse": "/browse",
    "timeline": "/browse?view=timeline",
    "forgotten": "/browse?state=forgotten",
    "graph start": "/graph",
    "review": "/review",
    "quality": "/quality",
    "health": "/health",
}
_PAINT = """new Promise(done => new PerformanceObserver(list => {
    const found = list.getEntriesByName("first-contentful-paint")[0];
    if (found) done(found.startTime);
}).observe({type: "paint", buffered: true}))"""
_LONG = "window.longTasks = []; new PerformanceObserver(list => list.getEntries().forEach(each => longTasks.push(each.duration))).observe({type: 'longtask', buffered: true})"  # noqa: E501


@contextmanager
def store_of(size: int, keep: Path | None) -> Iterator[Path]:
    """A data folder with a number of memories, all with vectors and names."""
    with tempfile.TemporaryDirectory(prefix="triskele-web-") as folder:
        home = (keep or Path(folder)) / str(size)
        if not (home / "memories.db").exists():
            fill(home, size)
        yield home


def fill(home: Path, size: int) -> None:
    """Write the store, in batches."""
    kinds = ("facts", "decisions", "lessons", "preferences")
    with stores.open_engine(home) as engine:
        drafts = [
            engine.draft(
                text,
                category=kinds[number % len(kinds)],
                tags=[f"topic-{number % 97}", f"team-{number % 11}"],
                project=f"project-{number % 8}",
                created_at=f"{2023 + number % 3}-{number % 12 + 1:02d}-{number % 28 + 1:02d}",
            )
            for number, text in enumerate(texts.memories(size, characters=220))
        ]
        for start in range(0, size, stores.BATCH):
            engine.apply([Add(draft) for draft in drafts[start : start + stores.BATCH]])
        engine.upkeep.reindex()
        engine.upkeep.embed(limit=EMBEDDED)
        centre = stores.rehearse(engine, texts.questions(50)).centre()
        stores.give_vectors(engine, stores.random_vectors(size, centre))
        read_names(engine.store, engine.lexical)


def measure(page: Any, base: str) -> dict[str, Any]:
    """Medians of first paints and search round trips, the graph's longest task, and the size of its data."""
    figures: dict[str, Any] = {}
    for name, path in PATHS.items():
        figures[f"first paint, {name}"] = _paint(page, base + path)
    page.goto(base)
    trips = []
    for question in texts.questions(RUNS):
        with page.expect_response("**/ui/hits?*") as answer:
            page.fill("#q", question)
        answer.value.finished()
        trips.append(answer.value.request.timing["responseEnd"])
        page.wait_for_timeout(150)
    figures["search round trip"] = round(statistics.median(trips), 1)
    figures["search round trip, slowest"] = round(max(trips), 1)
    page.add_init_script(_LONG)
    graph = f"{base}/graph?focus={FOCUS}&size=300"
    figures["first paint, graph"] = _paint(page, graph)
    return figures | _graph(page, graph)


def _paint(page: Any, address: str) -> float:
    paints = []
    for _ in range(RUNS):
        page.goto(address)
        paints.append(page.evaluate(_PAINT))
    return round(statistics.median(paints), 1)


def _graph(page: Any, address: str) -> dict[str, Any]:
    """The longest tasks; the CPU time of a task is what it takes on a machine that does nothing else."""
    browser = page.context.browser
    # What waits for an element asks the page again and again, in tasks of its own: only time is waited for.
    browser.start_tracing(page=page, categories=["toplevel", "disabled-by-default-devtools.timeline"])
    page.goto(address, wait_until="commit")
    page.wait_for_timeout(SETTLE_MS)
    loaded = _longest_cpu(browser.stop_tracing())
    drawn = page.evaluate("longTasks.splice(0)")
    nodes = int(page.locator("#graph").get_attribute("data-nodes"))
    browser.start_tracing(page=page, categories=["toplevel", "disabled-by-default-devtools.timeline"])
    page.locator("#at").fill("20")
    page.mouse.move(400, 400)
    for _ in range(10):
        page.mouse.wheel(0, -120)
        page.wait_for_timeout(60)
    page.wait_for_timeout(SETTLE_MS)
    moving = _longest_cpu(browser.stop_tracing())
    moved = page.evaluate("longTasks.splice(0)")
    assert page.locator("#graph").get_attribute("data-shown") != "now"
    return {
        "graph nodes": nodes,
        "graph, longest task": round(max(drawn, default=0), 1),
        "graph, longest task, CPU": loaded,
        "graph moved and zoomed, longest task": round(max(moved, default=0), 1),
        "graph moved and zoomed, longest task, CPU": moving,
    }


def _longest_cpu(trace: bytes) -> float:
    """The most CPU time that one task took on the main thread of the page, in milliseconds."""
    events = json.loads(trace)["traceEvents"]
    names = {(each["pid"], each["tid"]): each["args"]["name"] for each in events if each["name"] == "thread_name"}
    tasks = [
        each.get("tdur", 0) / 1000
        for each in events
        if names.get((each["pid"], each["tid"])) == "CrRendererMain" and each["name"].endswith("RunTask")
    ]
    return round(max(tasks, default=0.0), 1)


def main() -> None:
    """Print one JSON line per size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="5000,50000")
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    for size in map(int, given.sizes.split(",")):
        started = time.perf_counter()
        with store_of(size, given.keep) as home:
            filled_s = round(time.perf_counter() - started, 1)
            with browser_at(home) as (page, base):
                page.goto(f"{base}?q=warm+up")
                page.wait_for_selector("#hits")
                print(json.dumps({"memories": size, "filled_s": filled_s, **measure(page, base)}), flush=True)


if __name__ == "__main__":
    main()
