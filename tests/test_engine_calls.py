"""What a program may hand to a memory: names for kinds, texts for paths; every other type is refused in a sentence."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from triskele.engine.local import LocalEngine
from triskele.errors import BadInput, Conflict, StoreClosed
from triskele.types import LinkKind, Sensitivity, Sort


@pytest.fixture
def engine(open_engine: Callable[..., LocalEngine]) -> LocalEngine:
    return open_engine()


WRONG_DETAILS: list[tuple[dict[str, Any], str]] = [
    ({"tags": "abc"}, "tags must be a list of texts, not a text"),
    ({"tags": None}, "tags must be a list of texts, not None"),
    ({"tags": [1]}, "each of the tags must be a text, not int"),
    ({"keywords": ["a"]}, "the keywords must be a text, not list"),
    ({"category": ["facts"]}, "the category must be a text, not list"),
    ({"importance": "high"}, "importance must be a number, not a text"),
    ({"project": 5}, "the project must be a text, not int"),
    ({"speaker": 5}, "the speaker must be a text, not int"),
    ({"role": 5}, "unknown role '5'"),
    ({"sensitivity": 5}, "unknown sensitivity '5'"),
    ({"title": 5, "sensitivity": "secret"}, "the title must be a text, not int"),
    ({"valid_from": 2026}, "a point in time must be a text or a datetime, not int"),
]


@pytest.mark.parametrize(("details", "said"), WRONG_DETAILS, ids=lambda value: str(value)[:30])
def test_a_detail_of_another_type_is_refused(engine: LocalEngine, details: dict[str, Any], said: str) -> None:
    kept = engine.remember("Herons fish at dawn").id
    for write in (lambda: engine.remember("Otters fish", **details), lambda: engine.edit(kept, **details)):
        with pytest.raises(BadInput, match=said):
            write()
    assert engine.store.census().memories == 1 and len(engine.store.history(kept)) == 1


@pytest.mark.parametrize(
    ("filters", "said"),
    [
        ({"limit": "a"}, "limit must be a whole number, not a text"),
        ({"limit": 2.5}, "limit must be a whole number, not float"),
        ({"budget": "a"}, "budget must be a whole number, not a text"),
        ({"category": ["facts"]}, "the category must be a text, not list"),
        ({"tags": "abc"}, "tags must be a list of texts, not a text"),
        ({"legs": "lexical"}, "legs must be a list of texts, not a text"),
        ({"legs": [1]}, "each of the legs must be a text, not int"),
        ({"fusion": ["rrf"]}, "unknown way to rank"),
        ({"rerank": None}, "unknown way to rank 'None'"),
        ({"sort": "newest"}, "unknown sort 'newest': choose one of relevance, importance, recency"),
        ({"near": 5}, "an id must be a text, not int"),
        ({"since": 5}, "a point in time must be"),
        ({"sensitivities": "open"}, "sensitivities must be a list of texts"),
        ({"origins": ["nobody"]}, "unknown origin 'nobody'"),
    ],
    ids=str,
)
def test_an_option_of_a_recall_of_another_type_is_refused(
    engine: LocalEngine, filters: dict[str, Any], said: str
) -> None:
    engine.remember("Herons fish at dawn")
    with pytest.raises(BadInput, match=said):
        engine.recall("herons", **filters)


def test_what_is_no_text_is_no_memory_question_or_id(engine: LocalEngine) -> None:
    nothing: Any = None
    for call, said in (
        (engine.remember, "the memory must be a text, not None"),
        (engine.recall, "the question must be a text, not None"),
        (engine.get, "an id must be a text, not None"),
        (engine.forget, "an id must be a text, not None"),
    ):
        with pytest.raises(BadInput, match=said):
            call(nothing)
    for texts in ("abc", ["abc"], None):
        with pytest.raises(BadInput, match="each of the memories must be a dictionary"):
            engine.remember_all(texts)  # type: ignore[arg-type]
    for page in ({"limit": "a"}, {"offset": "a"}):
        with pytest.raises(BadInput, match="must be a whole number, not a text"):
            engine.browse(**page)  # type: ignore[arg-type]


def test_kinds_and_orders_are_known_by_their_names(engine: LocalEngine) -> None:
    heron, otter = (engine.remember(text).id for text in ("Herons fish at dawn", "Otters fish at night"))
    engine.link(heron, "see-also", otter)
    assert [link.kind for link in engine.get(heron).links] == [LinkKind.SEE_ALSO]
    engine.unlink(heron, "see-also", otter)
    assert list(engine.get(heron).links) == []
    with pytest.raises(BadInput, match="unknown kind of link 'near': choose one of supersedes"):
        engine.link(heron, "near", otter)
    for sort in Sort:
        named, given = engine.recall("fish", sort=sort.value), engine.recall("fish", sort=sort)
        assert [hit.memory.id for hit in named.hits] == [hit.memory.id for hit in given.hits] != []
    assert list(engine.browse(sort="importance").memories) == list(engine.browse(sort=Sort.IMPORTANCE).memories)
    engine.edit(otter, sensitivity="private")
    assert [memory.id for memory in engine.browse(sensitivities=["private"]).memories] == [otter]
    assert list(engine.browse(sensitivities=[Sensitivity.PRIVATE]).memories) == list(
        engine.browse(sensitivities=["private"]).memories
    )


def test_only_a_restore_brings_a_forgotten_memory_back(engine: LocalEngine) -> None:
    id = engine.remember("Herons fish at dawn").id
    assert engine.edit(id)[0].action == "unchanged"
    with pytest.raises(Conflict, match="is not forgotten"):
        engine.restore(id)
    engine.forget(id)
    for changes in ({}, {"importance": 0.9}):
        with pytest.raises(Conflict, match="is forgotten"):
            engine.edit(id, **changes)
    assert engine.restore(id)[0].action == "restored"
    assert engine.recall("herons").hits[0].memory.id == id


def test_a_backup_and_a_restore_take_a_path_as_text(engine: LocalEngine, tmp_path: Path) -> None:
    engine.remember("Herons fish at dawn")
    engine.upkeep.backup(str(tmp_path / "b.db"))
    engine.remember("Otters fish at night")
    engine.upkeep.restore_backup(str(tmp_path / "b.db"))
    assert [memory.content for memory in engine.browse().memories] == ["Herons fish at dawn"]
    wrong: Any
    for wrong in ("", None, b"b.db", "b\0.db"):
        for call in (engine.upkeep.backup, engine.upkeep.restore_backup):
            with pytest.raises(BadInput, match="not the path of a file"):
                call(wrong)


def test_a_closed_memory_starts_nothing(engine: LocalEngine, tmp_path: Path) -> None:
    engine.remember("Herons fish at dawn")
    engine.upkeep.backup(tmp_path / "b.db")
    engine.close()
    for call in (
        engine.__enter__,
        engine.work_in_background,
        engine.acting_as("client:codex").work_in_background,
        lambda: engine.upkeep.backup(tmp_path / "c.db"),
        lambda: engine.upkeep.restore_backup(str(tmp_path / "b.db")),
    ):
        with pytest.raises(StoreClosed, match="was closed: open it again"):
            call()
    assert not (tmp_path / "c.db").exists() and not engine.models.has_worker
    engine.close()


MISSPELT: list[tuple[str, Callable[[LocalEngine], object], str]] = [
    ("remember", lambda engine: engine.remember("x", tgas=[]), "tags"),  # type: ignore[call-arg]
    ("remember_all", lambda engine: engine.remember_all([{"content": "x", "tgas": []}]), "tags"),  # type: ignore
    ("edit", lambda engine: engine.edit("abcd", contnt="x"), "content"),  # type: ignore[call-arg]
    ("recall", lambda engine: engine.recall("x", limt=3), "limit"),  # type: ignore[call-arg]
    ("why_not", lambda engine: engine.why_not("abcd", "x", lmit=3), "limit"),  # type: ignore[call-arg]
    ("browse", lambda engine: engine.browse(limt=3), "limit"),  # type: ignore[call-arg]
    ("concepts.show", lambda engine: engine.concepts.show("x", al_projects=True), "all_projects"),  # type: ignore
    ("concepts.path", lambda engine: engine.concepts.path("x", "y", projct="z"), "project"),  # type: ignore[call-arg]
]


@pytest.mark.parametrize(("method", "call", "nearest"), MISSPELT, ids=[row[0] for row in MISSPELT])
def test_a_misspelt_keyword_names_the_method_and_the_nearest_keyword(
    engine: LocalEngine, method: str, call: Callable[[LocalEngine], object], nearest: str
) -> None:
    with pytest.raises(TypeError, match=rf"^{method}\(\) has no keyword '\w+'; did you mean '{nearest}'\?$"):
        call(engine)


@pytest.mark.slow
def test_mypy_refuses_a_misspelt_keyword(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import triskele\n"
        "memory = triskele.open()\n"
        "memory.remember('x', tgas=['y'])\n"
        "memory.recall('x', limt=3)\n"
        "def first(engine: triskele.Engine) -> str:\n"
        "    return engine.recall('x', limit=1).hits[0].memory.content\n"
        "first(memory)\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(program)]
    lines = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path).stdout.splitlines()
    errors = [line for line in lines if ": error: " in line]
    assert [line.split(":")[1] for line in errors] == ["3", "4"]
    assert all("[call-arg]" in line for line in errors)
