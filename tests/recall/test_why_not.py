"""Why a memory was not found: the right stage stops it, and the change that is named really surfaces it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from triskele.config import load
from triskele.edge.cli.documents import shown
from triskele.engine.local import LocalEngine
from triskele.recall.why_not import LegRanks
from triskele.types import Add, WhyNot

FILLERS = tuple(f"kiwi number {number} hangs on a trellis in the garden" for number in range(30))
TOPICS = (
    "Releases reach the cluster through Argo CD",
    "Ingrid waters the plants on the fourth floor",
    "Customers may cancel within thirty days",
    "The nightly backup takes forty minutes",
    "Never restart the payment gateway during office hours",
)


def _open(folder: Path, model: str) -> LocalEngine:
    environment = {"TRISKELE_HOME": str(folder), "TRISKELE_PROJECT": "garden", "TRISKELE_RECALL_MODEL": model}
    engine = LocalEngine(load(environment), folder)
    engine.embed_first = 0
    return engine


@pytest.fixture(params=["none", "bundled"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalEngine]:
    """A few memories, found by words alone, or by meaning too."""
    with _open(tmp_path, request.param) as opened:
        opened.apply([Add(opened.draft(text)) for text in TOPICS])
        yield opened


def _ask_why(engine: LocalEngine, id: str, text: str, **options: Any) -> WhyNot:
    engine.upkeep.embed()
    return engine.why_not(id, text, **options)


_WAYS: tuple[tuple[str, str], ...] = (
    (r"--project ''", "project"),
    (r"--project (\S+)", "project"),
    (r"leave out --category", "category"),
    (r"leave out --tag", "tags"),
    (r"--as-of (\S+)", "as_of"),
    (r"--known-at (\S+)", "known_at"),
    (r"leave out --known-at", "known_at"),
    (r"--superseded", "show_superseded"),
    (r"--limit (\d+)", "limit"),
)


def _applied(engine: LocalEngine, text: str, change: str, options: dict[str, Any]) -> list[str]:
    """What recall finds when a reader does what the change says, word by word."""
    options = dict(options)
    words = re.search(r"ask also for “(.+?)”", change)
    rest = change.replace(words.group(), "") if words else change
    while rest.strip():
        pattern, name = next((p, n) for p, n in _WAYS if re.match(p, rest.strip()))
        match = re.match(pattern, rest.strip())
        assert match is not None
        given = match.group(1) if match.groups() else {"project": "", "tags": (), "show_superseded": True}.get(name)
        options[name] = int(given) if name == "limit" else given
        rest = rest.strip()[match.end() :]
    question = f"{text} {words.group(1)}" if words else text
    return [hit.memory.id for hit in engine.recall(question, **options).hits]


def _check(engine: LocalEngine, id: str, text: str, stage: str, change: str | None, **options: Any) -> WhyNot:
    """The stage that stopped it, and that the named change, of the expected kind, surfaces it."""
    found = _ask_why(engine, id, text, **options)
    assert found.verdict.startswith(f"{stage}: "), found
    assert next(each for each in found.stages if not each.passed and each.name != "words").name == stage
    if change is None:
        assert found.smallest_change is None
        return found
    said = shown(found)["smallest_change"]
    assert said is not None and re.fullmatch(change, said), found
    assert id not in [hit.memory.id for hit in engine.recall(text, **options).hits]
    assert id in _applied(engine, text, said, options)
    return found


def test_a_memory_that_is_found_is_told_its_place(engine: LocalEngine) -> None:
    ids = [engine.remember(f"kiwi and again kiwi {'x' * count}").id for count in (1, 9)]
    engine.upkeep.embed()
    answer = [hit.memory.id for hit in engine.recall("kiwi").hits]
    for id in ids:
        found = _ask_why(engine, id, "kiwi")
        assert found.verdict == f"it is hit number {answer.index(id) + 1}"
        assert found.smallest_change is None


def test_forgotten(engine: LocalEngine) -> None:
    kept = engine.remember("kiwi in the cellar")
    engine.forget(kept.id)
    _check(engine, kept.id, "kiwi", "known", r"--known-at \S+")


def test_not_known_yet_at_the_moment_asked_for(engine: LocalEngine) -> None:
    kept = engine.remember("kiwi in the cellar")
    _check(engine, kept.id, "kiwi", "known", r"leave out --known-at", known_at="2020-01-01")


def test_forgotten_before_the_moment_asked_for(engine: LocalEngine) -> None:
    kept = engine.remember("kiwi in the cellar")
    engine.forget(kept.id)
    _check(engine, kept.id, "kiwi", "known", r"--known-at \S+", known_at="2100-01-01")


def test_another_project(engine: LocalEngine) -> None:
    kept = engine.remember("kiwi in the cellar", project="billing")
    found = _check(engine, kept.id, "kiwi", "project", r"--project billing")
    assert "billing" in found.verdict


def test_another_category(engine: LocalEngine) -> None:
    kept = engine.remember("kiwi in the cellar", category="people")
    found = _check(engine, kept.id, "kiwi", "category", r"leave out --category", category="facts")
    assert "people" in found.verdict


def test_another_tag(engine: LocalEngine) -> None:
    kept = engine.remember("kiwi in the cellar", tags=["fruit"])
    found = _check(engine, kept.id, "kiwi", "tags", r"leave out --tag", tags=["fruit", "winter"])
    assert "fruit" in found.verdict
    plain = engine.remember("kiwi without tags")
    assert "none" in _check(engine, plain.id, "kiwi", "tags", r"leave out --tag", tags=["fruit"]).verdict


@pytest.mark.parametrize("period", [{"valid_to": "2024-01-01"}, {"valid_from": "2100-01-01"}])
def test_another_time(engine: LocalEngine, period: dict[str, str]) -> None:
    kept = engine.remember("kiwi in the cellar", **period)
    _check(engine, kept.id, "kiwi", "time", r"--as-of \S+")


def test_several_filters_at_once_are_all_opened(engine: LocalEngine) -> None:
    kept = engine.remember("kiwi in the cellar", project="billing", category="people", valid_to="2024-01-01")
    found = _check(engine, kept.id, "kiwi", "project", r"--project billing .*", category="facts")
    assert [stage.name for stage in found.stages if not stage.passed] == ["project", "category", "time"]
    assert found.smallest_change is not None
    assert {"category", "as_of"} <= found.smallest_change.options.keys()


def test_succeeded_by_another_that_did_not_match(engine: LocalEngine) -> None:
    old = engine.remember("kiwi in the cellar")
    new = engine.remember("all fruit now lies in the attic", supersedes=old.id)
    found = _check(engine, old.id, "kiwi", "succession", r"--superseded")
    assert new.id in found.verdict


def test_succeeded_by_another_that_matches_too(engine: LocalEngine) -> None:
    old = engine.remember("the kiwi lies in the cellar")
    new = engine.remember("the kiwi lies in the attic", supersedes=old.id)
    found = _check(engine, old.id, "is the kiwi in the attic?", "succession", r"--superseded")
    # The successor came by its own words.
    assert engine.recall("is the kiwi in the attic?").hits[0].stands_for is None
    assert new.id in found.verdict


def test_an_edited_memory_is_judged_as_it_was_known_then(engine: LocalEngine) -> None:
    kept = engine.remember("kiwi in the cellar", category="people")
    engine.edit(kept.id, category="facts")
    then = engine.store.history(kept.id)[0].known_from
    _check(engine, kept.id, "kiwi", "category", r"leave out --category", category="facts", known_at=then)


def test_below_the_cut(engine: LocalEngine) -> None:
    ids = [outcome.id for outcome in engine.apply([Add(engine.draft(text)) for text in FILLERS])]
    engine.upkeep.embed()
    shown = [hit.memory.id for hit in engine.recall("kiwi on a trellis", limit=200).hits]
    last = shown[-1] if shown[-1] in ids else ids[-1]
    found = _check(engine, last, "kiwi on a trellis", "cut", r"--limit \d+", limit=3)
    assert found.smallest_change is not None
    # Not longer than needed.
    limit = found.smallest_change.options["limit"]
    assert last not in [hit.memory.id for hit in engine.recall("kiwi on a trellis", limit=limit - 1).hits]


def test_below_the_cut_even_where_the_depth_moves_the_ranks(engine: LocalEngine) -> None:
    engine.apply([Add(engine.draft(text)) for text in FILLERS])
    kept = engine.remember("a single kiwi amid many other words about nothing in particular, as it were")
    _check(engine, kept.id, "kiwi on a trellis", "cut", r"--limit \d+", limit=1)


def test_no_leg_brings_it_up(engine: LocalEngine) -> None:
    kept = engine.remember("zygote morphology lecture, room twelve")
    found = _check(engine, kept.id, "cancel within thirty days", "candidates", r"ask also for “.+”")
    words = next(stage for stage in found.stages if stage.name == "words")
    assert words.detail == "matches 0 of 3 rare query terms"
    candidates = next(stage for stage in found.stages if stage.name == "candidates")
    assert candidates.detail.startswith("not retrieved: no lexical match")


def test_no_leg_and_another_project(engine: LocalEngine) -> None:
    kept = engine.remember("zygote morphology lecture, room twelve", project="billing")
    change = r"ask also for “.+” --project billing"
    _check(engine, kept.id, "cancel within thirty days", "project", change)


def test_where_no_change_helps_none_is_named(engine: LocalEngine) -> None:
    # A memory of signs alone has no word to ask for.
    kept = engine.remember("?!")
    found = _ask_why(engine, kept.id, "zygote", legs=("lexical",))
    assert found.verdict.startswith("candidates: ")
    assert found.smallest_change is None


def test_the_way_of_ranking_is_kept_while_changes_are_tried(engine: LocalEngine) -> None:
    kept = engine.remember("Ingrid looks after the greenery")
    engine.upkeep.embed()
    found = _ask_why(engine, kept.id, "who waters plants?", legs=("lexical",))
    assert found.verdict.startswith("candidates: ")
    said = shown(found)["smallest_change"]
    assert said is not None
    assert kept.id in _applied(engine, "who waters plants?", said, {"legs": ("lexical",)})


def test_ranks_beyond_the_depth_are_told(tmp_path: Path) -> None:
    with _open(tmp_path, "none") as engine:
        engine.apply([Add(engine.draft(f"kiwi kiwi kiwi number {number}")) for number in range(130)])
        kept = engine.remember("a kiwi amid very many other words, about nothing in particular and about nobody either")
        found = engine.why_not(kept.id, "kiwi", limit=3)
    assert found.verdict == "candidates: not retrieved: rank 131 lexical (cut at 100)"
    assert found.smallest_change is not None and found.smallest_change.options == {"limit": 131}


def test_ranks_in_words() -> None:
    assert str(LegRanks({"lexical": 131, "dense": 240}, 50)) == "rank 131 lexical, 240 dense (cut at 50)"
    assert str(LegRanks({"lexical": None, "dense": 240}, 50)) == "no lexical match, rank 240 dense (cut at 50)"
    assert not LegRanks({"lexical": None, "dense": None}, 50).is_retrieved and LegRanks({"dense": 50}, 50).is_retrieved
