"""The command that shows what triskele does, without touching anything: demo."""

from __future__ import annotations

import time

import click

from triskele.serving import shapes
from triskele.serving.cli.invocation import Invocation, common, examples, progress_bar


@click.command(epilog=examples("triskele demo", "triskele demo --json"))
@common
def demo(invocation: Invocation) -> None:
    """See recall at work on sample memories, in a throw-away store."""
    # Imported here: the help of all commands must not load the engine.
    from triskele.serving.cli import showcase

    started = time.perf_counter()
    with progress_bar("Embedding") as progress, showcase.throw_away_memory(progress) as engine:
        took_s = time.perf_counter() - started
        answers = [(scene, showcase.answer(engine, scene)) for scene in showcase.SCENES]
        count = engine.census().memories
        if invocation.as_json:
            scenes = [{**shapes.plain(scene), **shapes.answer(found)} for scene, found in answers]
            return invocation.write_json({"memories": count, "scenes": scenes, "project": engine.project})
        from triskele.serving.cli import render, reports

        invocation.write(reports.demo_opening(count, took_s))
        for number, (scene, found) in enumerate(answers, start=1):
            short = engine.store.shorten(render.ids_in(found))
            invocation.write(
                reports.demo_scene(number, scene.shows, scene.command), render.answer(found, short, explain=True)
            )
        return invocation.write(reports.demo_closing())
