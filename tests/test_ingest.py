"""The one way that every new or changed memory takes: checked, classified, and never with a secret in its labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from triskele.config import MemorySettings
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput
from triskele.ingest import Drafter
from triskele.types import Action, Memory, Origin, SecretDraft, Sensitivity

OpenEngine = Callable[..., LocalEngine]
SECRET = "Tq8/+xPv2#kd"
TEXT = f"the wifi password is {SECRET}"
OPEN, PRIVATE, HIDDEN = Sensitivity.OPEN, Sensitivity.PRIVATE, Sensitivity.SECRET
PEM = "-----BEGIN PRIVATE KEY-----\n" + "\n".join("MIIEvQIBADANBgkqhkiG9w0BAQEFAASC" * 2 for _ in range(40))


@pytest.fixture
def drafter() -> Drafter:
    return Drafter(MemorySettings(), "garden")


@pytest.mark.parametrize(
    ("text", "given", "expected"),
    [
        (TEXT, None, HIDDEN),
        (TEXT, PRIVATE, HIDDEN),
        (TEXT, HIDDEN, HIDDEN),
        (TEXT, OPEN, OPEN),
        ("the kettle is red", None, OPEN),
        ("the kettle is red", PRIVATE, PRIVATE),
        ("the kettle is red", HIDDEN, HIDDEN),
    ],
)
def test_the_class_follows_from_the_mark_and_the_text(
    drafter: Drafter, text: str, given: Sensitivity | None, expected: Sensitivity
) -> None:
    memory = drafter.draft(text, sensitivity=given)
    assert memory.sensitivity is expected
    assert isinstance(memory, SecretDraft) == (expected is HIDDEN)
    assert (text in memory.content) == (expected is not HIDDEN)
    if isinstance(memory, SecretDraft):
        assert memory.text == text and text not in repr(memory)


def test_a_sensitivity_and_an_origin_may_be_given_by_name(drafter: Drafter, open_engine: OpenEngine) -> None:
    named: Any = "Private"
    assert drafter.draft("the kettle is red", sensitivity=named).sensitivity is PRIVATE
    named = "secret"
    assert isinstance(drafter.draft("the kettle is red", sensitivity=named), SecretDraft)
    named = "tool"
    assert drafter.draft("the kettle is red", origin=named).origin is Origin.TOOL
    for details in ({"sensitivity": "hidden"}, {"origin": "nobody"}):
        with pytest.raises(BadInput, match="choose one of"):
            drafter.draft("the kettle is red", **details)  # type: ignore[arg-type]
    engine = open_engine()
    id = engine.remember("the kettle is red").id
    assert engine.get(engine.edit(id, sensitivity="private")[0].id).sensitivity is PRIVATE
    for wrong in ("hidden", None, 3):
        with pytest.raises(BadInput, match="choose one of open, private, secret"):
            engine.edit(id, sensitivity=wrong)


def test_a_title_of_the_users_own(drafter: Drafter) -> None:
    assert drafter.draft(TEXT, title="Wifi  at home").content == "Wifi at home"
    assert drafter.draft(TEXT).content == "Password, wifi"
    assert drafter.draft("the kettle is red", sensitivity=HIDDEN).content == "Secret"


@pytest.mark.parametrize("title", [TEXT, SECRET, f"my {SECRET.lower()}", ""])
def test_a_title_that_tells_is_refused(drafter: Drafter, title: str) -> None:
    with pytest.raises(BadInput) as refused:
        drafter.draft(TEXT, title=title)
    assert SECRET.lower() not in str(refused.value).lower()


def test_only_a_secret_has_a_title(drafter: Drafter) -> None:
    with pytest.raises(BadInput, match="title"):
        drafter.draft("the kettle is red", title="Kettle")


LABELS: list[dict[str, Any]] = [
    {"tags": ["home", TEXT]},
    {"keywords": TEXT},
    {"session": TEXT},
    {"project": TEXT},
    {"tags": ["AKIAQ7RTZ3MNPLK5VWXY"]},
]


@pytest.mark.parametrize("labels", LABELS, ids=lambda labels: next(iter(labels)))
def test_secrets_in_labels_are_refused_and_not_repeated(drafter: Drafter, labels: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=r"looks like a secret \((Password|AWS)") as refused:
        drafter.draft("the kettle is red", **labels)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("label", [{"tags": [SECRET]}, {"keywords": f"home {SECRET}"}, {"session": SECRET}])
def test_a_label_that_repeats_the_secret_is_refused(drafter: Drafter, label: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="repeats the secret"):
        drafter.draft(TEXT, **label)
    assert drafter.draft("the kettle is red", **label)


def test_paragraphs_are_pieces_of_their_own(drafter: Drafter) -> None:
    text = "The crane is red.\nIt was blue.\n \nThe quay is long.\n\n\nThat is all."
    assert drafter.pieces(text, None) == [
        ("The crane is red.\nIt was blue.", None),
        ("The quay is long.", None),
        ("That is all.", None),
    ]


def test_a_cut_through_a_secret_makes_every_piece_secret(drafter: Drafter) -> None:
    pieces = drafter.pieces(f"The key of the box.\n{PEM}\nThat was it.", None)
    assert len(pieces) > 1 and {kind for _, kind in pieces} == {HIDDEN}
    assert {kind for _, kind in drafter.pieces(PEM, OPEN)} == {OPEN}
    filler = "The harbour crane was painted in spring. " * 60
    whole = drafter.pieces(f"{filler}\n{TEXT}", None)
    assert len(whole) > 1 and {kind for _, kind in whole} == {None}


@pytest.fixture
def engine(open_engine: OpenEngine) -> LocalEngine:
    return open_engine()


def texts(engine: LocalEngine, id: str) -> list[str]:
    return [engine.vault.open(row) for row in engine.store.sealed([id])]


def test_importance_of_a_secret_changes_without_the_key(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    id = engine.remember(TEXT, tags=["home"]).id
    with monkeypatch.context() as patched:
        patched.setattr(engine.vault, "_open", lambda: pytest.fail("the vault was opened"))
        engine.edit(id, importance=0.9, valid_to="2031-01-01")
        engine.undo()
    assert engine.get(id).importance == 0.5
    assert texts(engine, id) == [TEXT] * 3


@pytest.mark.parametrize("labels", [{"tags": [SECRET]}, {"keywords": f"home {SECRET}"}, {"project": SECRET}])
def test_an_edited_label_that_repeats_the_secret_is_refused(engine: LocalEngine, labels: dict[str, Any]) -> None:
    id = engine.remember(TEXT, tags=["home"]).id
    with pytest.raises(BadInput, match="repeats the secret") as refused:
        engine.edit(id, **labels)
    assert SECRET not in str(refused.value)
    engine.edit(id, tags=["office"])
    assert engine.get(id).tags == ("office",)


@pytest.mark.parametrize("labels", [labels for labels in LABELS if "session" not in labels], ids=str)
def test_an_edited_label_passes_the_check_of_a_new_one(engine: LocalEngine, labels: dict[str, Any]) -> None:
    id = engine.remember("the kettle is red").id
    for given in (labels, {name: iter(value) if name == "tags" else value for name, value in labels.items()}):
        with pytest.raises(BadInput, match=r"looks like a secret \((Password|AWS)"):
            engine.edit(id, **given)
    assert engine.get(id).version == 1


def test_a_secret_stays_secret_with_a_new_text(engine: LocalEngine) -> None:
    id = engine.remember(TEXT).id
    engine.edit(id, content="the kettle is red")
    assert engine.get(id).sensitivity is HIDDEN and engine.reveal(id).text == "the kettle is red"
    engine.undo()
    assert engine.reveal(id).text == TEXT


def test_undo_tells_texts_behind_equal_titles_apart(engine: LocalEngine) -> None:
    id = engine.remember("first words", sensitivity=HIDDEN).id
    engine.edit(id, content="second words")
    batch = engine.store.journal(id=id)[-1].batch
    engine.edit(id, content="third words")
    with pytest.raises(Exception, match="changed later"):
        engine.undo(batch)
    assert engine.reveal(id).text == "third words"


def test_an_innocent_memory_that_gets_a_secret_becomes_one(engine: LocalEngine) -> None:
    id = engine.remember("the kettle is red").id
    engine.edit(id, content=TEXT)
    assert [memory.sensitivity for memory in engine.store.history(id)] == [OPEN, HIDDEN]
    assert engine.reveal(id).text == TEXT


def test_a_false_alarm_is_opened_again(engine: LocalEngine) -> None:
    id = engine.remember(TEXT).id
    engine.edit(id, sensitivity=OPEN)
    assert engine.get(id).content == TEXT
    assert [entry.action for entry in engine.store.journal(id=id)] == ["added", "edited", "revealed"]
    engine.undo()
    assert engine.get(id).sensitivity is HIDDEN and engine.reveal(id).text == TEXT


def test_a_new_title_keeps_the_text(engine: LocalEngine) -> None:
    id = engine.remember(TEXT).id
    engine.edit(id, title="At home")
    assert engine.get(id).content == "At home" and engine.reveal(id).text == TEXT


def test_marking_as_secret_rewrites_the_past(engine: LocalEngine) -> None:
    id = engine.remember("Klingonia met the mayor").id
    engine.edit(id, content="Klingonia met the major", tags=["town"])
    assert engine.edit(id, sensitivity=HIDDEN, title="A meeting")[0].action is Action.SEALED
    assert {memory.content for memory in engine.store.history(id)} == {"A meeting"}
    assert texts(engine, id) == ["Klingonia met the mayor", "Klingonia met the major"]
    assert engine.recall("Klingonia").hits == ()
    assert [hit.memory.id for hit in engine.recall("meeting").hits] == [id]
    assert engine.upkeep.inspect(deep=True).findings == ()


def test_marking_with_further_changes_does_both(engine: LocalEngine) -> None:
    id = engine.remember("Klingonia met the mayor").id
    engine.edit(id, sensitivity=HIDDEN, content="Klingonia met nobody", importance=0.9)
    assert texts(engine, id) == ["Klingonia met the mayor", "Klingonia met nobody"]
    assert engine.get(id).importance == 0.9


def test_marking_as_private_closes_the_past_too(engine: LocalEngine) -> None:
    id = engine.remember("the kettle is red").id
    engine.edit(id, content="the kettle is blue")
    engine.edit(id, sensitivity=PRIVATE)
    assert {memory.sensitivity for memory in engine.store.history(id)} == {PRIVATE}


def test_revealing_is_told_and_passed_over_by_undo(engine: LocalEngine) -> None:
    id = engine.remember(TEXT).id
    engine.edit(id, importance=0.9)
    assert engine.reveal(id).text == TEXT
    batch = engine.store.journal(id=id)[-1].batch
    engine.undo()
    assert engine.get(id).importance == 0.5
    with pytest.raises(BadInput, match="revealed"):
        engine.undo(batch)
    with pytest.raises(BadInput, match="not a secret"):
        engine.reveal(engine.remember("the kettle is red").id)


def test_the_doctor_names_what_should_be_sealed(engine: LocalEngine) -> None:
    id = engine.remember(TEXT, sensitivity=OPEN).id
    assert engine.upkeep.inspect(deep=True).exposed == (id,)
    engine.seal(id)
    assert engine.upkeep.inspect(deep=True).exposed == ()


def test_a_damaged_secret_is_found(engine: LocalEngine) -> None:
    id = engine.remember(TEXT).id
    engine.store.reseal({(id, 1): b"TRSK\x01" + bytes(200)})
    [finding] = engine.upkeep.inspect(deep=True).findings
    assert id in finding.subject


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I prefer tabs over spaces.", "preferences"),
        ("Always ask before you delete a branch.", "preferences"),
        ("Never push to main on a Friday. It broke the release twice.", "preferences"),
        ("Remember that I prefer dark mode everywhere.", "preferences"),
        ("We decided against Kubernetes because two servers are enough.", "decisions"),
        ("My manager is Tom Berger.", "people"),
        ("Marta leads the design team.", "people"),
        ("Redis is our session cache.", "facts"),
        ("Should we never deploy on Fridays?", "facts"),
        ("Our nightly build starts at 02:00.", "facts"),
    ],
)
def test_a_memory_without_a_category_gets_the_one_of_its_words(engine: LocalEngine, text: str, expected: str) -> None:
    assert engine.get(engine.remember(text).id).category == expected
    [outcome] = engine.remember_all([{"content": f"{text} ", "category": "lessons", "project": "other"}])
    assert engine.get(outcome.id).category == "lessons"


def test_the_category_of_words_stays_within_the_settings() -> None:
    drafter = Drafter(MemorySettings(categories=("facts", "people")), "garden")
    assert drafter.draft_as_worded("I prefer tabs over spaces.").category == "facts"


@pytest.mark.parametrize("origin", [Origin.TOOL, Origin.WEB])
def test_words_of_a_tool_or_page_do_not_become_a_preference(drafter: Drafter, origin: Origin) -> None:
    assert drafter.draft_as_worded("Always run the setup script first.", origin=origin).category == "facts"


def test_a_secret_and_a_plain_draft_keep_the_usual_category(drafter: Drafter) -> None:
    assert drafter.draft_as_worded(f"Never tell: {TEXT}").category == "facts"
    assert drafter.draft("I prefer tabs over spaces.").category == "facts"


def test_drafts_are_plain_memories_unless_secret(drafter: Drafter) -> None:
    assert type(drafter.draft("the kettle is red")) is Memory
