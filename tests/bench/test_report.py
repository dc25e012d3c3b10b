"""The page of a benchmark, made from a small report with known values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from triskele.bench.bench import run_bench
from triskele.bench.datasets import BenchQuery
from triskele.bench.measure import LegRank, Measured
from triskele.bench.metrics import METRICS
from triskele.bench.report.charts import Scale, apart
from triskele.bench.report.page import explained, page

ATTACK = "<script>alert('x')</script> & \"quotes\""
KINDS = {"exact": 60, "paraphrase": 40}
QUALITY = {"fts": 0.4, "lexical": 0.41, "default": 0.7}


LEGS = {
    "legs": {
        "lexical": {
            "scores": {"n": 3000, "mean": 7.5, "sd": 2.25, "skew": 1.5},
            "changed": 0.25,
            "right": 40,
            "right_alone": 3,
        },
        "dense": {
            "scores": {"n": 3000, "mean": 0.5, "sd": 0.125, "skew": -0.5},
            "changed": 0.5,
            "right": 50,
            "right_alone": 13,
        },
    },
    "overlap": {"dense": 0.25, "lexical+dense": 0.75},
}
FINDINGS = [
    {"guard": "leak", "severity": "alarm", "said": "Ids leak.", "examples": ["id-001 → secret-document"]},
    {"guard": "pooling", "severity": "note", "said": "Labels are binary.", "examples": []},
]


def summary(n: int, quality: float) -> dict[str, Any]:
    return {"n": n, **dict.fromkeys(METRICS, quality)}


def arm(quality: float, kinds: dict[str, int]) -> dict[str, Any]:
    n = sum(kinds.values())
    return {
        "overall": summary(n, quality),
        "strata": {name: summary(count, quality) for name, count in kinds.items()},
        "halves": {"tune": summary(n - 1, quality), "test": summary(1, quality)},
        "latency_ms": {"p50": 1.25, "p95": 4.5, "mean": 2.0, "max": 9.0},
        "bytes_per_memory": 1234.4,
        "legs": LEGS,
    }


def comparison(name: str, stratum: str, delta: float, *, p: float, n: int) -> dict[str, Any]:
    ends = [delta - 0.05, delta + 0.05]
    return {
        "a": name,
        "b": "fts",
        "stratum": stratum,
        "metric": "ndcg@10",
        "n": n,
        "delta": delta,
        "ci95": ends,
        "p": p,
        "p_holm": p,
        "mde": 0.06,
        "underpowered": n < 50,
    }


def make_report(quality: dict[str, float], kinds: dict[str, int]) -> dict[str, Any]:
    n = sum(kinds.values())
    groups = {"overall": n} | (kinds if len(kinds) > 1 else {})
    return {
        "dataset": "harbour",
        "manifest": {"versions": {"triskele": "1.2.3"}, "seed": 7, "run_depth": 100},
        "guards": {"findings": FINDINGS},
        "arms": {name: arm(value, kinds) for name, value in quality.items()},
        "comparisons": [
            comparison(name, stratum, value - 0.4, p=0.0001 if value - 0.4 > 0.05 else 0.6, n=count)
            for name, value in quality.items()
            if name != "fts"
            for stratum, count in groups.items()
        ],
    }


def make_queries(kinds: dict[str, int]) -> list[BenchQuery]:
    types = [kind for kind, count in kinds.items() for _ in range(count)]
    return [BenchQuery(f"id-{place:03}", f"{ATTACK} {place}", kind, None) for place, kind in enumerate(types)]


def make_measured(queries: list[BenchQuery], ranks: Iterable[int | None]) -> Measured:
    reciprocal = np.array([1 / rank if rank else 0.0 for rank in ranks])
    run = {query.id: [("secret-document", 1.0)] for query in queries}
    return Measured(run, dict.fromkeys(METRICS, reciprocal), [1.0] * len(queries), 1234.4)


def make_page(quality: dict[str, float] = QUALITY, kinds: dict[str, int] = KINDS, *, public: bool = False) -> str:
    """Twelve questions gain, number 12 the most; two lose; the others stay."""
    queries = make_queries(kinds)
    before: list[int | None] = [*range(2, 14), 1, 1, *[1] * (len(queries) - 14)]
    after: list[int | None] = [*[1] * 12, 4, None, *[1] * (len(queries) - 14)]
    measured = {name: make_measured(queries, after if name == "default" else before) for name in quality}
    return page(make_report(quality, kinds), queries, measured, public=public)


def body(text: str) -> ElementTree.Element:
    """The page as a tree: only a well-formed one has a tree."""
    return ElementTree.fromstring(text[text.index("<main>") : text.index("</body>")])


def said(found: ElementTree.Element | None) -> str:
    assert found is not None
    return " ".join("".join(found.itertext()).replace("\u00a0", " ").split())


def table(tree: ElementTree.Element, class_: str) -> list[list[str]]:
    return [[said(cell) for cell in row] for row in tree.findall(f".//table[@class='{class_}'][1]//tr")]


def headings(tree: ElementTree.Element) -> list[str]:
    return [said(heading) for heading in tree.iter("h2")]


def test_the_summary_comes_first_and_says_what_is_sure() -> None:
    lead, *_ = body(make_page()).findall(".//p[@class='lead']")
    assert said(lead) == (
        "On 100 questions of harbour, default ranks best: nDCG@10 0.700 against 0.400 of the baseline fts, "
        "a clear difference of +0.300 (95 % interval +0.250 to +0.350, p < 0.001 after Holm)."
    )
    facts = [said(fact) for fact in body(make_page()).findall("./header/ul/li")]
    noticed = "(in brackets the smallest detectable difference)"
    assert f"Not distinguishable from fts overall {noticed}: lexical on nDCG@10 (0.060)." in facts
    kinds = "lexical on exact (0.060) and paraphrase (0.060)"
    assert f"Not distinguishable from fts by kind, on nDCG@10 {noticed}: {kinds}." in facts
    assert "Every test is against fts: the lead of default over lexical, 0.290 on nDCG@10, is not tested." in facts
    assert "Underpowered, with fewer than 50 questions: paraphrase (40) and test half (1)." in facts


def test_a_difference_within_chance_is_called_that() -> None:
    lead = said(body(make_page({"fts": 0.4, "default": 0.41})).find(".//p[@class='lead']"))
    assert "but the difference of +0.010 (95 % interval −0.040 to +0.060, p = 0.600 after Holm)" in lead
    assert lead.endswith("is not distinguishable from chance (detects ≥ 0.060).")


def test_a_baseline_that_nobody_beats_is_named() -> None:
    lead = said(body(make_page({"fts": 0.4, "default": 0.4})).find(".//p[@class='lead']"))
    assert "no arm ranks better than the baseline fts: nDCG@10 0.400, shared with default." in lead


def test_the_table_has_values_intervals_and_marks() -> None:
    head, baseline, lexical, default = table(body(make_page()), "quality")[:4]
    wanted = ["all questionsn = 100", "exactn = 60", "paraphrasen = 40underpowered", "tune halfn = 99"]
    assert head == ["arm", *wanted, "test halfn = 1underpowered"]
    assert baseline[:3] == ["ftsbaseline", "0.400", "0.400"]
    assert lexical[1] == "0.410○ +0.010−0.040 to +0.060detects ≥ 0.060"
    assert default[1] == "0.700▲ +0.300+0.250 to +0.350"


def test_the_forest_stands_where_the_numbers_are() -> None:
    tree = body(make_page())
    rows = tree.findall(".//table[@class='forest']/tbody/tr")
    assert [said(row[0]) for row in rows[:3]] == ["all questions 100 questions", "lexical", "default"]
    assert said(rows[2][2]) == "+0.300 (+0.250 to +0.350)"
    scale = Scale.around([0.0, -0.04, 0.06, 0.25, 0.35])
    dot = rows[2].find(".//circle")
    assert dot is not None and dot.attrib["cx"] == scale.across(0.3) and dot.attrib["class"] == "dot better"
    assert said(rows[3][0]).startswith("exact") and "underpowered" in said(rows[6][0])


def test_curves_have_every_depth_and_every_arm() -> None:
    tree = body(make_page())
    assert table(tree, "legend")[0] == ["arm", "@1", "@5", "@10", "@20", "@30"]
    assert table(tree, "legend")[3] == ["default", *["0.700"] * 5]
    assert len(tree.findall(".//div[@class='curves']//circle")) == 3 * 5


def test_costs_are_shown() -> None:
    row = table(body(make_page()), "costs")[1]
    assert row == ["fts", "1.25", "4.50", "2.00", "9.00", "1.25 to 4.50", "1,234"]


def test_what_speaks_against_the_numbers_comes_before_them() -> None:
    tree = body(make_page())
    assert headings(tree)[0] == "Guards"
    alarm, remark = tree.findall(".//ul[@class='findings']/li")
    assert (alarm.attrib["class"], remark.attrib["class"]) == ("alarm", "note")
    assert said(alarm) == "Ids leak. For example: id-001 → secret-document"


def test_legs_are_told_apart() -> None:
    tree = body(make_page())
    rows = table(tree, "legs")
    assert rows[1] == ["fts", "lexical", "3,000", "7.500", "2.250", "1.500", "25%", "40", "3"]
    assert "top results by the legs that rank them at the top: lexical and dense 75%, dense 25%." in said(tree)


def test_confidence_is_shown_where_questions_have_no_answer() -> None:
    queries = make_queries(KINDS)
    report = make_report({"fts": 0.4}, KINDS)
    found = {"n": 25, "auroc": 0.75, "precision": 0.875, "coverage": 0.5}
    report["abstention"] = {"fts": {"threshold": 0.5, "answerable": 100, "kinds": {"unanswerable": found}}}
    tree = body(page(report, queries, {"fts": make_measured(queries, [1] * 100)}))
    assert table(tree, "confidence")[1] == ["fts", "unanswerable", "100 + 25", "0.750", "0.875", "0.500"]


def test_a_move_is_explained_by_what_the_legs_gave() -> None:
    def standing(places: list[str], legs: dict[str, LegRank]) -> Measured:
        run = {"q": [(id, 1.0) for id in places]}
        return Measured(run, {}, [], 0.0, relevant={"q": {"gold": legs}} if legs else {})

    words = standing(["x", "gold"], {})
    both = standing(["gold", "x"], {"lexical": LegRank(2, 0.1), "dense": LegRank(1, 0.25)})
    assert explained("q", words, both) == "gold: retrieved by words → lexical rank 2 +0.100, dense rank 1 +0.250"
    assert explained("q", both, standing(["x"], {})).endswith("dense rank 1 +0.250 → not retrieved")
    assert explained("q", words, words) == ""


def test_the_questions_that_moved_most_are_listed_both_ways() -> None:
    tree = body(make_page())
    assert "rises for 12 questions, falls for 2 and is unchanged for 86." in said(tree)
    gains, losses = tree.findall(".//table[@class='movers']/tbody")
    assert len(gains) == 10
    assert [said(cell) for cell in gains[0]][1:] == ["13 → 1", "+0.923"]
    assert said(gains[0][0]).endswith("id-011 · exact · rank 1: secret-document → secret-document")
    assert [[said(cell) for cell in row][1:] for row in losses] == [["1 → –", "−1.000"], ["1 → 4", "−0.750"]]


def test_no_text_of_the_data_set_becomes_markup() -> None:
    text = make_page()
    assert "<script" not in text
    assert ATTACK in said(body(text).find(".//bdi"))
    report = make_report({"fts": 0.4, ATTACK: 0.5}, {ATTACK: 60, "plain": 10})
    report |= {"dataset": ATTACK, "manifest": {ATTACK: ATTACK, "run_depth": 100}}
    queries = make_queries({ATTACK: 3})
    measured = {name: make_measured(queries, [1, 2, 3]) for name in report["arms"]}
    hostile = page(report, queries, measured)
    assert "<script" not in hostile and ATTACK in said(body(hostile))


def test_the_page_fetches_and_runs_nothing() -> None:
    text = make_page()
    assert "default-src 'none'" in text
    assert not any(sign in text for sign in ("http://", "https://", "url(", "@import", "src=", "href="))


def test_the_public_form_holds_aggregates_only() -> None:
    text = make_page(public=True)
    assert not any(private in text for private in ("id-0", "alert", "secret-document", 'class="movers"'))
    assert "rises for 12 questions" in text and "public form" in text
    assert headings(body(text)) == headings(body(make_page()))


def test_one_arm_alone_has_nothing_to_be_compared_with() -> None:
    tree = body(make_page({"fts": 0.4}))
    assert headings(tree) == [
        "Guards",
        "Quality by kind of question",
        "Recall by depth",
        "Time and space",
        "What each leg did",
    ]
    assert said(tree.find(".//p[@class='lead']")).endswith("there is no other arm to compare it with.")


def test_an_arm_without_comparisons_keeps_its_values() -> None:
    queries = make_queries(KINDS)
    report = make_report(QUALITY, KINDS)
    report["comparisons"] = [each for each in report["comparisons"] if each["a"] != "default"]
    measured = {name: make_measured(queries, [1] * 100) for name in QUALITY}
    tree = body(page(report, queries, measured))
    assert table(tree, "quality")[3][1] == "0.700"
    assert "which was not tested" in said(tree.find(".//p[@class='lead']"))
    assert [said(each) for each in tree.findall(".//table[@class='movers']")] == []


def test_one_kind_of_question_is_not_said_twice() -> None:
    tree = body(make_page(kinds={"all": 70}))
    assert table(tree, "quality")[0][1:] == ["all questionsn = 70", "tune halfn = 69", "test halfn = 1underpowered"]
    assert "by kind" not in said(tree.find("./header/ul"))


def test_an_empty_half_has_no_value() -> None:
    queries = make_queries({"all": 70})
    report = make_report({"fts": 0.4}, {"all": 70})
    report["arms"]["fts"]["halves"]["test"] = {"n": 0, **dict.fromkeys(METRICS)}
    tree = body(page(report, queries, {"fts": make_measured(queries, [1] * 70)}))
    assert table(tree, "quality")[1] == ["ftsbaseline", "0.400", "0.400", "–"]


def test_the_manifest_is_folded_and_whole() -> None:
    folded = body(make_page()).findall(".//details")[-1]
    assert "open" not in folded.attrib
    assert json.loads(said(folded.find("pre")))["seed"] == 7


@pytest.mark.parametrize(("low", "high"), [(0, 0), (-0.0001, 0.0002), (-0.06, 0.6), (0, 1), (3, 4000)])
def test_a_scale_has_a_few_ticks_inside_its_ends(low: float, high: float) -> None:
    scale = Scale.around([low, high])
    assert 2 <= len(scale.ticks()) <= 6
    assert all(-1e-6 <= scale.share(number) <= 1 + 1e-6 for number in (low, high, *scale.ticks()))
    assert len({f"{tick:.{scale.digits}f}" for tick in scale.ticks()}) == len(scale.ticks())


def test_names_at_the_ends_of_curves_do_not_cover_each_other() -> None:
    placed = apart([20, 21, 22, 250, 260, 262])
    assert all(after - before >= 15 for before, after in pairwise(placed))
    assert placed[0] == 20 and placed[-1] == 262


def test_a_benchmark_leaves_its_page(write_dataset: Callable[..., Path], tmp_path: Path) -> None:
    run_bench(write_dataset(), arms=["lexical"], out=tmp_path / "out")
    text = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert headings(body(text))[-1] == "Per-query changes"
