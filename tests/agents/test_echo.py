"""Echoes: what recall has given is known again and not stored once more; what is new is left alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from triskele.agents import echo, fence
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput
from triskele.types import LinkKind

KETTLE = "The kettle stands on the red shelf. It whistles at noon, and nobody knows why!"


@pytest.fixture
def engine(open_engine: Callable[..., LocalEngine]) -> LocalEngine:
    return open_engine()


@pytest.fixture
def inject(engine: LocalEngine) -> Callable[..., str]:
    """Keeps a memory and gives it to a conversation."""

    def inject_one(text: str = KETTLE, **details: object) -> str:
        memory = engine.store.history(engine.remember(text, **details).id)[-1]
        echo.note_injection(engine.store, [memory], conversation="talk", tokens={memory.id: 1})
        return memory.id

    return inject_one


@pytest.mark.parametrize(
    "text",
    [
        KETTLE,
        KETTLE.upper(),
        KETTLE.replace(" ", "  ").replace(". ", ".\n"),
        f"- {KETTLE}",
        f"> {KETTLE}\n",
        f'"{KETTLE}"',
        f"**{KETTLE}**",
        KETTLE.removesuffix("!"),
        KETTLE.replace("kettle", "ket\u200btle").replace("red", "ｒｅｄ"),
        "The kettle stands on the red shelf",
        "1. It whistles at noon, and nobody knows why.",
        "It whistles at noon, and nobody knows why. The kettle stands on the red shelf.",
    ],
)
def test_echo_recognises_a_text_whole_and_in_part(engine: LocalEngine, inject: Callable[..., str], text: str) -> None:
    assert echo.recognised(engine.store, text) is None
    id = inject()
    assert echo.recognised(engine.store, text) == id


@pytest.mark.parametrize(
    "text",
    [
        "The kettle stands on the blue shelf.",
        "The kettle stands on the red shelf. It was sold in May of last year.",
        "The kettle stands on the red shelf. Sold.",
        "The kettle stands on the red shelf, it whistles",
        "Nothing of the kind",
        "!!!",
        "",
    ],
)
def test_a_text_that_says_anything_new_is_not_an_echo(
    engine: LocalEngine, inject: Callable[..., str], text: str
) -> None:
    inject()
    assert echo.recognised(engine.store, text) is None


def test_signs_that_carry_meaning_are_not_rubbed_off(engine: LocalEngine, inject: Callable[..., str]) -> None:
    inject("retry while status != 500 and count < 3")
    assert echo.recognised(engine.store, "retry while status == 500 and count > 3") is None
    assert echo.recognised(engine.store, "Retry while status != 500 and count < 3.") is not None


def test_echo_recognises_a_short_memory_only_as_a_whole(engine: LocalEngine, inject: Callable[..., str]) -> None:
    short = inject("Tea at 5.")
    inject("Of course. The kettle stands on the red shelf.")
    assert echo.recognised(engine.store, "tea at 5") == short
    assert echo.recognised(engine.store, "Of course.") is None


def test_parts_of_several_memories_together_are_nothing_new(engine: LocalEngine, inject: Callable[..., str]) -> None:
    first = inject()
    inject("Roses want a lot of sun.")
    assert echo.recognised(engine.store, "- the kettle stands on the red shelf\n- roses want a lot of sun") == first


def test_text_shown_only_to_a_person_is_no_echo(engine: LocalEngine) -> None:
    engine.remember(KETTLE)
    echo.note_recall(engine.store, engine.recall("kettle"))
    assert echo.recognised(engine.store, KETTLE) is None


def test_echo_recognises_a_recalled_text(engine: LocalEngine) -> None:
    id = engine.remember(KETTLE).id
    echo.note_recall(engine.store, engine.recall("kettle"), to_agent=True)
    assert echo.recognised(engine.store, "The kettle stands on the red shelf") == id
    assert engine.store.usage.counts([id])[id].recalled == 1


def test_text_injected_in_another_project_is_no_echo(engine: LocalEngine, inject: Callable[..., str]) -> None:
    theirs = inject(project="kitchen")
    assert echo.recognised(engine.store, KETTLE, project="garden") is None
    assert echo.recognised(engine.store, "The kettle stands on the red shelf", project="garden") is None
    assert echo.recognised(engine.store, KETTLE, project="kitchen") == theirs
    everywhere = inject("Roses want a lot of sun.", project="")
    assert echo.recognised(engine.store, "Roses want a lot of sun.", project="garden") == everywhere


def test_echo_recognises_an_older_version_after_an_edit(engine: LocalEngine, inject: Callable[..., str]) -> None:
    id = inject()
    engine.edit(id, content="The kettle was sold")
    assert echo.recognised(engine.store, KETTLE) == id


def test_an_erased_memory_may_be_stored_again(engine: LocalEngine, inject: Callable[..., str]) -> None:
    engine.erase(inject())
    assert echo.recognised(engine.store, KETTLE) is None


def test_echo_recognises_the_fence(engine: LocalEngine) -> None:
    memory = engine.store.history(engine.remember(KETTLE).id)[-1]
    short = engine.store.shorten([memory.id])
    labels = {memory.id: fence.label(memory, short)}
    line = fence.line(memory, labels[memory.id])
    assert echo.recognised(engine.store, line) is None
    echo.note_injection(engine.store, [memory], conversation="talk", tokens={memory.id: 1}, labels=labels)
    for text in (fence.fenced([line]), line, f"As I was told:\n> {line}\nSo be it.", f"- {line[:70]}"):
        assert echo.recognised(engine.store, text) == memory.id
    engine.erase(memory.id)
    assert echo.recognised(engine.store, line) is None
    assert echo.recognised(engine.store, f"The fence begins with {fence.OPENING}") is None


def test_an_echo_is_refused_in_one_line(engine: LocalEngine, inject: Callable[..., str]) -> None:
    echo.refuse(engine.store, KETTLE)
    id = inject()
    with pytest.raises(BadInput, match=f"repeats memory {id}") as refused:
        echo.refuse(engine.store, KETTLE)
    assert "\n" not in str(refused.value)


def test_a_memory_of_many_sentences_leaves_a_bounded_number_of_fingerprints() -> None:
    text = " ".join(f"Sentence number {number} says something." for number in range(200))
    assert len(echo.fingerprints(text)) == 1 + echo.MOST_FINGERPRINTS
    assert len(echo.fingerprints("one sentence that is long enough")) == 1
    assert echo.fingerprints("!!!") == ()


def test_forgotten_or_replaced_memory_is_no_echo(engine: LocalEngine, inject: Callable[..., str]) -> None:
    text = "the kettle stands on the red shelf"
    id = inject(text)
    assert echo.recognised(engine.store, text) == id
    newer = engine.remember("the kettle stands on the blue shelf now", supersedes=id).id
    assert echo.recognised(engine.store, text) is None
    engine.forget(newer)
    engine.unlink(newer, LinkKind.SUPERSEDES, id)
    assert echo.recognised(engine.store, text) == id
    engine.forget(id)
    assert echo.recognised(engine.store, text) is None
