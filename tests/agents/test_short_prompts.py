"""Short prompts: greetings, numbers and commands get nothing, a bare word gets what holds it, a request its rule."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from desk import Desk

from triskele.edge.hook.explain import explain

DATA = json.loads((Path(__file__).parent.parent / "data" / "short_prompts.json").read_text())
PROMPTS = [prompt for half in DATA["prompts"].values() for prompt in half]


@pytest.fixture(
    scope="module", params=[(name, model) for model in ("none", "bundled") for name in DATA["stores"]], ids="-".join
)
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Desk]]:
    """The name of a store of invented notes full of identifiers, and a client over it."""
    name, model = request.param
    desk = Desk(tmp_path_factory.mktemp(name), model=model)
    desk.engine.remember_all([{"content": note, "project": "garden"} for note in DATA["stores"][name]["notes"]])
    desk.engine.upkeep.embed()
    yield name, desk
    desk.engine.close()


def test_short_prompts_inject_nothing(store: tuple[str, Desk]) -> None:
    _, desk = store
    assert len(set(PROMPTS)) == 60
    assert {prompt: texts for prompt in PROMPTS if (texts := desk.prompt(prompt, session_id=prompt))} == {}


def test_requests_inject_their_rule(store: tuple[str, Desk]) -> None:
    name, desk = store
    requests = DATA["stores"][name]["requests"]
    assert [prompt for prompt, rule in requests if rule not in desk.prompt(prompt, session_id=prompt)] == []


@pytest.mark.parametrize("prompt", ["Wombat", "wombat!", "thanks, wombat"])
def test_bare_word_injects_memories_with_it(desk: Desk, prompt: str) -> None:
    desk.add("Wombat is the level editor")
    desk.add("Scenes of the Wombat are text")
    desk.add("The docs are at https://x.example/Wombat/levels")
    for number in range(9):
        desk.add(f"Room {number} is locked at night")
    assert sorted(desk.prompt(prompt)) == ["Scenes of the Wombat are text", "Wombat is the level editor"]


def test_bare_words_inject_memories_with_all_of_them(desk: Desk) -> None:
    texts = ["A wombat sleeps in the cellar", "The cellar has a wombat door"]
    for text in (*texts, "See src/wombat/cellar for the plans", "Logs are kept for thirty days"):
        desk.add(text)
    assert sorted(desk.prompt("wombat cellar")) == texts


def test_bare_words_inject_other_matches_too(tmp_path: Path) -> None:
    desk = Desk(tmp_path, "least_confidence = 0.0")
    desk.add("See src/wombat/cellar for the plans")
    assert desk.prompt("wombat cellar") == ["See src/wombat/cellar for the plans"]
    assert desk.prompt("wombat", session_id="two") == []
    desk.engine.close()


@pytest.mark.parametrize("prompt", ["build7431", "BUILD-7431", "strong_params", "disable strong_params", "GitHub"])
def test_identifier_injects_memories_with_it(desk: Desk, prompt: str) -> None:
    text = "Turn off strong_params on GitHub for ci/build7431/log"
    desk.add(text)
    assert desk.prompt(prompt) == [text]


def test_successor_of_a_memory_that_holds_the_word_is_injected(desk: Desk) -> None:
    old = desk.add("Releases use Helm")
    desk.add("Releases go out through Argo CD", supersedes=old)
    assert desk.prompt("helm") == ["Releases go out through Argo CD"]


def test_name_of_a_speaker_injects_words_of_that_person(desk: Desk) -> None:
    desk.add("The lease ends in May", speaker="Melanie Ford", session="talk", position=0)
    assert "The lease ends in May" in desk.said("user-prompt-submit", prompt="Melanie")


def test_prompt_without_a_topic_recalls_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.add("Continue only after a review")
    monkeypatch.setattr(desk.engine, "answer", lambda *_, **__: pytest.fail("recalled"))
    injection = desk.respond("user-prompt-submit", {"prompt": "Continue!", "cwd": str(desk.folder / "garden")})
    assert (injection.text, injection.note) == ("", "the prompt has no topic")


def test_prompt_without_a_topic_restores_memories_after_a_compaction(desk: Desk) -> None:
    desk.add("The kettle is red")
    assert desk.prompt("kettle") == ["The kettle is red"]
    desk.said("pre-compact", trigger="auto")
    assert desk.prompt("continue") == ["The kettle is red"]


@pytest.mark.parametrize(
    ("prompt", "verdict", "left_out"),
    [
        ("ok, go on", "silent: the prompt has no topic", []),
        ("levels", "silent: no memory holds a word of the prompt as a word of its own", ["it does not hold the word"]),
    ],
)
def test_explain_says_why_a_short_prompt_injects_nothing(
    tmp_path: Path, prompt: str, verdict: str, left_out: list[str]
) -> None:
    desk = Desk(tmp_path, "least_confidence = 0.0")
    desk.add("The docs are at https://x.example/wombat/levels")
    payload = {"prompt": prompt, "cwd": str(tmp_path / "garden")}
    explanation = explain(desk.engine, "user-prompt-submit", payload)
    assert explanation.verdict == verdict
    assert [each.left_out[: len("it does not hold the word")] for each in explanation.considered] == left_out
    injection = desk.respond("user-prompt-submit", payload)
    assert (injection.text, injection.note) == ("", verdict.removeprefix("silent: "))
    desk.engine.close()
