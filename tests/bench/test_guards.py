"""Guards: what is wrong by construction is found, what is right is not reported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from triskele.bench import guards
from triskele.bench.arms import arm
from triskele.bench.datasets import BenchDocument, BenchQuery
from triskele.bench.guards import GuardFinding, RankFusion, Reach, Severity, alarms_first

FOUNDING = {"lexical": 1.0, "dense": 1.0, "graph": 0.35}
NO_LEGS: Mapping[str, Any] = {"legs": {}}


def document(id: str, text: str = "nothing of note", **meta: Any) -> BenchDocument:
    return BenchDocument(id, text, None, None, 0, meta)


def query(id: str, text: str = "what is it", kind: str = "paraphrase", **meta: Any) -> BenchQuery:
    return BenchQuery(id, text, kind, None, meta)


def severities(found: Iterator[GuardFinding]) -> list[Severity]:
    return [finding.severity for finding in found]


def test_a_leg_that_reaches_nothing_is_flagged() -> None:
    idle = RankFusion(weights=FOUNDING | {"graph": 0.0}, depth=50)
    assert idle.reach("graph") is Reach.NONE
    (found,) = guards.idle_legs("hybrid", {"graph": idle.reach("graph")}, NO_LEGS, 119)
    assert found.severity is Severity.ALARM
    assert "no candidate of the graph leg can reach the first 10" in found.message


def test_the_shared_pool_is_not_flagged() -> None:
    shared = RankFusion(weights=FOUNDING, depth=50)
    assert shared.score("graph", 1) == pytest.approx(0.35 / 61)
    assert shared.score("graph", 1) < shared.score("dense", 50) == pytest.approx(1 / 110)
    assert shared.reach("graph") is Reach.LIFTS
    assert severities(guards.idle_legs("hybrid", {"graph": shared.reach("graph")}, NO_LEGS, 119)) == [Severity.NOTE]


def test_a_swept_weight_lets_the_graph_bring_its_own() -> None:
    reached = {
        weight: RankFusion(weights=FOUNDING | {"graph": weight}).reach("graph")
        for weight in (0.0, 0.35, 0.87, 0.88, 1.0)
    }
    # 61/70 = 0.871: from there on the first of the graph passes the tenth of one other leg.
    assert reached == {0.0: "none", 0.35: "lifts", 0.87: "lifts", 0.88: "brings", 1.0: "brings"}
    assert guards.idle_legs("hybrid", {"graph": Reach.BRINGS}, NO_LEGS, 119) is not None
    assert not list(guards.idle_legs("hybrid", {"graph": Reach.BRINGS}, NO_LEGS, 119))


@pytest.mark.parametrize("top", [1, 5, 10])
def test_reach_agrees_with_fusing_real_lists(top: int) -> None:
    """The worst that others can do to a candidate: the same rows above, different ones at the last place."""
    for weight in (0.2, 0.5, 0.8, 0.86, 0.9, 1.0):
        fusion = RankFusion(weights={"a": 1.0, "b": 0.4, "c": weight}, depth=20)
        scores: dict[str, float] = {"only c": fusion.score("c", 1)}
        for leg in ("a", "b"):
            for rank in range(1, 21):
                row = f"row {rank}" if rank < top else f"{leg} {rank}"
                scores[row] = scores.get(row, 0.0) + fusion.score(leg, rank)
        place = sorted(scores, key=lambda row: -scores[row]).index("only c") + 1
        assert (fusion.reach("c", top) is Reach.BRINGS) == (place <= top)


def test_short_lists_leave_room() -> None:
    assert RankFusion(weights=FOUNDING, depth=5).reach("graph") is Reach.BRINGS


def test_arms_are_checked_by_their_own_plan() -> None:
    assert guards.reaches(arm("rrf"), 100) == {"dense": "brings", "lexical": "brings"}
    assert guards.reaches(arm("rrf:dense=0"), 100)["dense"] is Reach.NONE
    assert guards.reaches(arm("rrf:k=60:dense=0.3"), 100)["dense"] is Reach.LIFTS
    assert guards.reaches(arm("default"), 100) == guards.reaches(arm("fts"), 100) == {}


def test_a_leg_that_changed_nothing_is_flagged_where_scores_are_fused() -> None:
    tally = {"legs": {"lexical": {"changed": 0.4}, "graph": {"changed": 0.0}}}
    (found,) = guards.idle_legs("hybrid", {}, tally, 119)
    assert found.severity is Severity.ALARM and "without the graph leg" in found.message
    assert not list(guards.idle_legs("hybrid", {}, tally, 5))
    assert not list(guards.idle_legs("words", {}, {"legs": {"lexical": {"changed": 0.0}}}, 119))


def runs(**found: str) -> dict[str, dict[str, Sequence[tuple[str, float]]]]:
    return {name: {"q": [(id, 1.0) for id in ids]} for name, ids in found.items()}


def test_arms_that_rank_alike_are_named() -> None:
    (found,) = guards.identical_arms(runs(one="abc", two="acb", three="abc"))
    assert (found.arm, found.severity) == ("three", Severity.NOTE)
    assert "as one does" in found.message
    below = runs(one="abcdefghijk", two="abcdefghijx")
    assert len(list(guards.identical_arms(below))) == 1


def test_unequal_pooling_is_flagged() -> None:
    qrels = {"q": {"a": 3, "b": 0, "c": 1}}
    covered = guards.label_coverage(runs(pooled="abc", strange="axyz"), [query("q")], qrels)
    assert covered["arms"] == {"pooled": 1.0, "strange": 0.25}
    assert (covered["means"], covered["graded"]) == ("judged", True)
    (found,) = guards.pooling(covered)
    assert (found.severity, found.arm) == (Severity.ALARM, "strange")
    equal = guards.label_coverage(runs(one="abc", other="acb"), [query("q")], qrels)
    assert not list(guards.pooling(equal))


def test_labels_of_right_documents_alone_mean_relevant() -> None:
    covered = guards.label_coverage(runs(one="abc", other="axyz"), [query("q")], {"q": {"a": 1, "b": 1}})
    assert (covered["means"], covered["graded"]) == ("relevant", False)
    assert severities(guards.pooling(covered)) == [Severity.NOTE, Severity.NOTE]


def test_an_id_that_holds_the_question_is_caught() -> None:
    documents = [document(f"note-{number}") for number in range(30)] + [document("topic/q-ferry/3")]
    (found,) = guards.shared_ids(documents, {"q-ferry": {"topic/q-ferry/3"}, "q-boat": {"note-1"}})
    assert found.severity is Severity.ALARM
    assert found.examples == ("q-ferry → topic/q-ferry/3",)
    assert not list(guards.shared_ids(documents, {"q-ferry": {"note-4"}, "q-boat": {"note-1"}}))


def test_numbers_that_meet_by_chance_are_no_leak() -> None:
    documents = [document(f"{number}") for number in range(40)]
    assert not list(guards.shared_ids(documents, {"7": {"7"}, "8": {"31"}}))
    assert list(guards.shared_ids(documents, {f"{number}": {f"{number}"} for number in range(20, 40)}))


@pytest.mark.parametrize("name", ["answer_3", "gold-3", "set/golden.7"])
def test_an_id_that_says_answer_is_caught(name: str) -> None:
    documents = [document(f"note-{number}") for number in range(5)] + [document(name)]
    assert severities(guards.telling_names(documents, {name, "note-1"})) == [Severity.ALARM]
    assert not list(guards.telling_names(documents, {"note-1", "note-2"}))
    assert not list(guards.telling_names([document(f"answers/{number}") for number in range(5)], {"answers/1"}))


def test_a_key_that_says_answer_is_caught() -> None:
    documents = [document(f"{number}", has_answer=number == 2) for number in range(5)]
    (found,) = guards.telling_names(documents, {"2"})
    assert "meta.has_answer" in found.message


def test_a_value_that_only_right_documents_share_is_caught() -> None:
    documents = [document(f"{number}", source="b" if number < 6 else "a", kind="x") for number in range(60)]
    (found,) = guards.shared_values(documents, {f"{number}" for number in range(6)})
    assert found.examples == ("meta.source = b",) and "b" not in found.message.split()
    assert not list(guards.shared_values(documents, {f"{number}" for number in range(3, 9)}))
    assert not list(guards.shared_values(documents, {f"{number}" for number in range(60)}))


def test_a_question_inside_the_text_is_caught_unless_its_kind_promises_it() -> None:
    documents = [document("a", "Notes.\nWhen does the ferry, to Skye, leave? At noon."), document("b")]
    asked = [
        query("q1", "when does the ferry to Skye leave"),
        query("q2", "when does the ferry to Skye leave", "exact"),
        query("q3", "when does the ferry to Skye arrive"),
        query("q4", "ferry to Skye"),
    ]
    (found,) = guards.verbatim_queries(documents, asked)
    assert (found.severity, found.stratum, found.examples) == (Severity.ALARM, "paraphrase", ("q1 in a",))
    many = [query(f"n{number}", "something else is asked here") for number in range(40)]
    assert severities(guards.verbatim_queries(documents, [*asked, *many])) == [Severity.NOTE]


def test_whoever_judges_his_own_questions_is_named() -> None:
    assert list(guards.own_judges({"generator": "model-a", "judge": ["model-a", "people"]}, []))
    assert list(guards.own_judges({}, [query("q", generator="model-a", judge="model-a")]))
    assert not list(guards.own_judges({"generator": "model-a", "judge": "people"}, [query("q")]))


@pytest.mark.parametrize("said", ["fts", ["fts", "dense"], {"exact": "fts"}])
def test_a_stratum_made_from_an_arm_under_test_is_flagged(said: Any) -> None:
    asked = [query("q1", kind="exact")]
    found = list(guards.built_from_arms({"built_from": said}, asked, ["fts", "default"]))
    assert [(one.severity, one.arm, one.stratum) for one in found] == [(Severity.ALARM, "fts", "exact")]
    assert not list(guards.built_from_arms({"built_from": said}, asked, ["default"]))


def test_a_question_says_what_it_was_made_from() -> None:
    asked = [query("q1", kind="exact", built_from="rrf"), query("q2")]
    (found,) = guards.built_from_arms({}, asked, ["fts", "rrf:k=10"])
    assert (found.arm, found.stratum) == ("rrf:k=10", "exact")


def test_a_single_arm_that_misses_nothing_is_suspicious() -> None:
    def arms(first: float, second: float) -> dict[str, Any]:
        values = {"fts": first, "default": second}
        return {name: {"strata": {"exact": {"n": 40, "recall@5": value}}} for name, value in values.items()}

    assert severities(guards.too_perfect(arms(1.0, 0.9))) == [Severity.NOTE]
    assert not list(guards.too_perfect(arms(1.0, 1.0)))
    assert not list(guards.too_perfect(arms(0.99, 0.9)))


def test_alarms_come_first_and_examples_stay_private() -> None:
    remark = GuardFinding("leak", Severity.NOTE, "a note")
    alarm = GuardFinding("leak", Severity.ALARM, "an alarm", stratum="exact", examples=tuple("abcdefgh"))
    assert alarms_first([remark, alarm]) == [alarm, remark]
    assert alarm.to_json()["examples"] == list("abcde")
    assert alarm.to_json(public=True) == {
        "guard": "leak",
        "severity": "alarm",
        "said": "an alarm",
        "stratum": "exact",
    }
