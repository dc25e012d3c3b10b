"""Pictures of every page in light and dark, from the sample memories, with Debian's Chromium: make screenshots.

Usage: python scripts/screenshots.py FOLDER [NAME ...]
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triskele.bench.own import gate, run
from triskele.bench.own.questions import Label, make_question, save_labels, save_questions
from triskele.code.search import opened
from triskele.curation.decide import PairDecision
from triskele.edge.cli.demo import temporary_memory
from triskele.edge.hook import client
from triskele.edge.process import resident
from triskele.replies.rooms import Rationale
from triskele.server.demo import demo_environment
from triskele.store.values import Use
from triskele.types import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from triskele.engine.local import LocalEngine

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
ARGUMENTS = (
    "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync"
).split()
_SAMPLE = resources.files("triskele.samples") / "team"
_QUESTIONS = 90
SERVER_PAGES = {"sign-in", "admin"}


def furnish(engine: LocalEngine) -> dict[str, str]:
    """Add what the sample corpus lacks: a secret, edits, proposals, usage, judged questions, code; ids by name."""
    engine.remember("The staging database password is hunter2-Correct-Horse-9", tags=["staging"], project="platform")
    found = {each.content: each for each in engine.browse(all_projects=True, limit=1000).memories}
    deploy = next(each for text, each in found.items() if text.startswith("Cluster state is synced by Argo CD"))
    engine.edit(deploy.id, content=deploy.content.replace("three minutes", "five minutes"), tags=["argo-cd", "deploys"])
    memories = list(found.values())
    engine.store.usage.recalled([Use(each.id, 20) for each in memories[:40]])
    for number, project in enumerate(("platform", "berthd", "")):
        given = [Use(each.id, 24 + number, each.content_hash) for each in memories[number : 12 - 3 * number]]
        engine.store.usage.injected(
            f"example-{number}", given, client=("claude-code", "codex", "")[number], project=project
        )
    _propose(engine)
    _judge(engine)
    engine.upkeep.embed()
    opened(engine.settings.home, Path(__file__).parent.parent / "src" / "triskele" / "recall").index()
    return {"memory": deploy.id}


def _propose(engine: LocalEngine) -> None:
    pairs = [
        ("The nightly backup runs at 02:30", "04:00", Verdict.SUPERSEDE, Rationale("changed value", "02:30", "04:00")),
        ("Noor prefers short pull requests", "with tests", Verdict.UPDATE, Rationale("more words", "", "tests")),
    ]  # fmt: skip
    for old, change, verdict, reason in pairs:
        new = old.replace(reason.before, change) if reason.before else f"{old} {change}"
        older, newer = (engine.get(engine.remember(text, project="platform").id) for text in (old, new))
        engine.proposals.offer([PairDecision(verdict, newer, older, 0.78, (reason,))])


def _judge(engine: LocalEngine) -> None:
    """Some of the sample's questions with their labels, two runs over them, and an accepted baseline."""
    texts = {row["id"]: row["text"] for row in map(json.loads, _lines("corpus.jsonl"))}
    ids = {memory.content: memory.id for _, memory in engine.store.versions()}
    rows = [
        row for row in map(json.loads, _lines("queries.jsonl")) if row["type"] in ("exact", "paraphrase", "multi-hop")
    ]
    asked = {
        row["id"]: make_question(row["text"], row["type"], "sample", judged="hand")
        for row in rows[:: len(rows) // _QUESTIONS]
    }
    save_questions(engine.store, asked.values())
    labels = [
        Label(asked[row["qid"]].id, ids[texts[row["docid"]]], int(row["grade"]))
        for row in csv.DictReader(_lines("qrels.tsv"), delimiter="\t")
        if row["qid"] in asked and texts[row["docid"]] in ids
    ]
    save_labels(engine.store, labels, {each.id: each for each in asked.values()})
    for _ in range(2):
        run.run(engine)
    gate.accept(engine)


def _lines(name: str) -> list[str]:
    return (_SAMPLE / name).read_text(encoding="utf-8").splitlines()


def pages(ids: dict[str, str]) -> dict[str, str]:
    """The pages by name."""
    return {
        "search": "?q=When+may+we+deploy+to+production%3F",
        "start": "",
        "browse": "/browse",
        "timeline": "/browse?view=timeline",
        "memory": f"/memory/{ids['memory']}",
        "new": "/new",
        "graph": "/graph?focus=berthd&size=40",
        "concepts": "/graph",
        "code": "/code?q=how+are+legs+fused",
        "review": "/review",
        "conversation": "/conversation/example-0",
        "quality": "/quality",
        "health": "/health",
    }


@contextmanager
def browser_at(home: Path) -> Iterator[tuple[Any, str]]:
    """A signed-in page of Chromium on the resident process of a data folder, and the address of the pages."""
    from playwright.sync_api import sync_playwright

    environ = {name: value for name, value in os.environ.items() if not name.startswith("TRISKELE_")}
    environ["TRISKELE_HOME"] = str(home)
    command = [sys.executable, "-m", "triskele", "ui", "--json"]
    url = json.loads(subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout)["url"]
    try:
        with sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
            page = chromium.new_page()
            page.goto(url)
            page.wait_for_selector("header.bar")
            yield page, url.split("#")[0]
            chromium.close()
    finally:
        resident.stop(client.Address(environ))


@contextmanager
def server() -> Iterator[tuple[str, str]]:
    """The address of a server with users on a throw-away Postgres, and the key of an admin."""
    with demo_environment(lambda _: None) as (environ, keys):
        command = [sys.executable, "-m", "triskele", "serve", "--http", "127.0.0.1:0", "--json"]
        with subprocess.Popen(
            command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdout is not None
            told = "".join(iter(process.stdout.readline, "}\n"))
            try:
                yield json.loads(told + "}")["http"], keys["ada"]
            finally:
                process.terminate()


def picture(page: Any, address: str, path: Path) -> None:
    """Three pictures of one page: light, dark, and as on a phone."""
    for form in ("light", "dark", "phone"):
        page.emulate_media(color_scheme="dark" if form == "dark" else "light")
        page.set_viewport_size({"width": 390 if form == "phone" else 1200, "height": 820})
        page.goto(address)
        page.wait_for_load_state("networkidle")
        page.screenshot(path=path.with_name(f"{path.name}-{form}.png"))
    print(path.name)


def main() -> None:
    """Write NAME-light.png, NAME-dark.png and NAME-phone.png of every page, or of the named ones."""
    folder, wanted = Path(sys.argv[1]), sys.argv[2:]
    folder.mkdir(parents=True, exist_ok=True)
    with temporary_memory() as engine:
        ids = furnish(engine)
        with browser_at(engine.settings.home) as (page, base):
            for name, path in pages(ids).items():
                if not wanted or name in wanted:
                    picture(page, base + path, folder / name)
            if wanted and not SERVER_PAGES & set(wanted):
                return
            with server() as (address, key):
                picture(page, f"{address}/ui", folder / "sign-in")
                page.fill("input[name=key]", key)
                page.click("#sign-in button")
                page.wait_for_selector("header.bar")
                picture(page, f"{address}/ui/admin", folder / "admin")


if __name__ == "__main__":
    main()
