"""recall, show, list, history, stats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from triskele.edge.wording import visible

Run = Callable[..., Any]
Add = Callable[..., str]


def test_recall_has_the_fields_of_the_contract(run: Run, add: Add) -> None:
    id = add("We deploy with Argo CD, not Helm hooks", "--category", "decisions", "--tags", "release")
    document = run("recall", "argo release", "--json").json
    names = {"hits", "resolutions", "confidence", "project", "took_ms", "waiting", "missing", "agreement", "wordings"}
    names |= {"fit", "period", "within", "times"}
    assert set(document) == names
    assert document["project"] == "shop"
    assert 0 < document["confidence"] <= 1
    [hit] = document["hits"]
    assert set(hit) >= {"id", "content", "score", "reason", "evidence", "category", "tags", "importance", "project"}
    assert set(hit) >= {"created_at", "superseded", "stands_for"}
    assert hit["id"] == id
    assert set(hit["evidence"]) == {"lexical", "dense", "late", "prior"}
    lexical = hit["evidence"]["lexical"]
    assert set(lexical) == {"rank", "score", "normalised", "contribution", "terms"}
    assert lexical["rank"] == 1
    assert {"text": "Argo", "start": 15, "end": 19} in lexical["terms"]
    assert [term["start"] for term in lexical["terms"] if term["text"] == "release"] == [-1]
    added = sum(leg["contribution"] for name, leg in hit["evidence"].items() if name != "prior")
    assert hit["score"] == pytest.approx(added * hit["evidence"]["prior"])


def test_recall_filters(run: Run, add: Add) -> None:
    wanted = add("port 8420 for ledgerline", "--category", "facts", "--tags", "ports,prod")
    add("port 9090 for metrics", "--category", "lessons", "--tags", "ports,prod")
    add("port 7000 for staging", "--category", "facts", "--tags", "ports")
    other = add("port 1234 elsewhere", "--project", "other")
    everywhere = add("port numbers are lucky", "--everywhere")

    def found(*options: str) -> set[str]:
        return {hit["id"] for hit in run("recall", "port", *options, "--json").json["hits"]}

    assert found("--category", "facts", "--tag", "ports", "--tag", "prod") == {wanted}
    assert found("--project", "other") == {other, everywhere}
    assert len(found("--all-projects")) == 5
    assert len(found("--all-projects", "--limit", "2")) == 2
    assert run("recall", "port", "--all-projects", "--json").json["project"] is None


def test_recall_sorts(run: Run, add: Add) -> None:
    low = add("port port port", "--importance", "0.1")
    high = add("a port among many other words here", "--importance", "1")

    def order(sort: str) -> list[str]:
        return [hit["id"] for hit in run("recall", "port", "--sort", sort, "--json").json["hits"]]

    assert order("importance") == [high, low]
    assert order("recency") == [high, low]
    assert set(order("relevance")) == {low, high}


def test_recall_serves_the_successor_and_shows_the_superseded_on_request(run: Run, add: Add) -> None:
    older = add("SMS go out through Textmarlin")
    newer = add("Messages run over Pingwell", "--supersedes", older)
    [served] = run("recall", "sms textmarlin", "--json").json["hits"]
    assert (served["id"], served["stands_for"], served["superseded"]) == (newer, older, False)
    assert all(term["start"] == -1 for term in served["evidence"]["lexical"]["terms"])
    shown = run("recall", "sms textmarlin", "--superseded", "--json").json["hits"][0]
    assert (shown["id"], shown["superseded"]) == (older, True)
    assert shown["content"] == "[SUPERSEDED] SMS go out through Textmarlin"
    for term in shown["evidence"]["lexical"]["terms"]:
        assert shown["content"][term["start"] : term["end"]] == term["text"]


def test_recall_is_as_confident_in_a_successor(run: Run, add: Add) -> None:
    older = add("SMS go out through Textmarlin")
    add("Messages run over Pingwell", "--supersedes", older)
    alone = run("recall", "sms textmarlin", "--legs", "lexical", "--json").json
    assert alone["confidence"] == 1.0


def test_recall_as_of_and_known_at(run: Run, add: Add) -> None:
    older = add("Postgres 14 runs in production", "--valid-from", "2025-01-01")
    newer = add("Postgres 16 runs in production", "--valid-from", "2025-09-28", "--supersedes", older)

    def found(*options: str) -> list[str]:
        return [hit["id"] for hit in run("recall", "postgres production", *options, "--json").json["hits"]]

    assert found() == [newer]
    assert found("--as-of", "2025-05-01") == [older]
    assert found("--known-at", "2020-01-01") == []


def test_recall_attaches_resolutions(run: Run, add: Add) -> None:
    problem = add("The disk of heron was full")
    cure = add("Old logs are deleted nightly")
    run("link", problem, "resolved-by", cure)
    document = run("recall", "heron disk", "--limit", "1", "--json").json
    assert [memory["id"] for memory in document["resolutions"]] == [cure]
    assert "Resolved by" in run("recall", "heron disk", "--limit", "1").out


def test_recall_shows_reasons_and_numbers(run: Run, add: Add) -> None:
    id = add("We deploy with [bold]Argo CD[/bold] :smile:", "--tags", "cd")
    plain = run("recall", "argo").out
    assert "We deploy with [bold]Argo CD[/bold] :smile:" in plain
    assert "facts · #cd · shop" in plain
    assert "shares the word “Argo”" in plain
    assert "1 memory · project shop · confidence 0." in plain
    assert id[:6] in plain and id not in plain
    assert "lexical rank" not in plain
    explained = run("recall", "argo", "--explain").out
    assert "lexical rank 1, score" in explained and "importance ×0.85" in explained


def test_recall_reason_names_an_identifier_once(run: Run, add: Add) -> None:
    add("heron-01 is the primary")
    reason = run("recall", "heron-01", "--json").json["hits"][0]["reason"]
    assert reason.startswith("shares the word “heron-01” and is")


def test_recall_without_hits_exits_with_0_and_gives_advice(run: Run) -> None:
    ran = run("recall", "unicorn")
    assert ran.code == 0
    assert ran.out.startswith("Nothing found in project shop.\n")
    assert "--all-projects" in ran.out


def test_output_fits_the_width_and_has_no_colour(run: Run, add: Add, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    id = add("word " * 200, "--tags", ",".join(f"tag{number}" for number in range(30)))
    for command in (["recall", "word", "--explain"], ["list"], ["show", id], ["history", id], ["stats"], ["config"]):
        out = run(*command).out
        assert "\x1b" not in out
        assert all(len(line) <= 60 and line == line.rstrip() for line in out.splitlines()), command


def test_visible_replaces_control_characters() -> None:
    assert visible("a\x1b[31mb\x9bc\nd") == "a�[31mb�c\nd"


def test_show_has_every_detail(run: Run, add: Add) -> None:
    older = add("SMS go out through Textmarlin", "--tags", "sms", "--session", "standup", "--valid-from", "2025-01-01")
    add("Messages run over Pingwell", "--supersedes", older)
    out = run("show", older).out
    for words in ("[SUPERSEDED] SMS go out", older, "from 2025-01-01", "standup", "superseded by", "run over Pingwell"):
        assert words in out


def test_show_of_an_unknown_id_exits_with_1(run: Run) -> None:
    assert run("show", "zzzzzz").is_refused(1, "no memory starts with zzzzzz")


def test_list_pages_in_order(run: Run, add: Add) -> None:
    ids = [add(f"fact number {number}", "--importance", str(number / 10)) for number in range(5)]
    document = run("list", "--limit", "2", "--offset", "1", "--json").json
    assert [memory["id"] for memory in document["memories"]] == [ids[3], ids[2]]
    assert document["project"] == "shop"
    best = run("list", "--sort", "importance", "--limit", "1", "--json").json["memories"]
    assert [memory["importance"] for memory in best] == [0.4]
    assert "more with --offset 2" in run("list", "--limit", "2").out


def test_list_marks_superseded_memories(run: Run, add: Add) -> None:
    older = add("SMS go out through Textmarlin")
    add("Messages run over Pingwell", "--supersedes", older)
    listed = {memory["id"]: memory for memory in run("list", "--json").json["memories"]}
    assert listed[older]["superseded"] is True
    assert "[SUPERSEDED] SMS go out" in run("list").out


def test_empty_list_shows_how_to_add(run: Run) -> None:
    assert "triskele add" in run("list").out


def test_history_of_a_memory_and_of_the_store(run: Run, add: Add) -> None:
    id = add("Deploys happen on Tuesday")
    run("edit", id, "Deploys happen daily")
    run("forget", id)
    document = run("history", id, "--json").json
    assert document["id"] == id
    assert [entry["action"] for entry in document["entries"]] == ["added", "edited", "forgotten"]
    assert [version["content"] for version in document["versions"]] == [
        "Deploys happen on Tuesday",
        "Deploys happen daily",
    ]
    add("Another fact")
    assert [entry["action"] for entry in run("history", "--limit", "2", "--json").json["entries"]] == [
        "forgotten",
        "added",
    ]
    output = run("history", id).out
    assert "version 2: Deploys happen daily" in output
    assert document["entries"][0]["batch"] in output


def test_stats_count(run: Run, add: Add) -> None:
    older = add("SMS go out through Textmarlin", "--category", "decisions")
    add("Messages run over Pingwell", "--supersedes", older)
    run("forget", add("A passing thought", "--project", "other"))
    document = run("stats", "--json").json
    assert {name: document[name] for name in ("memories", "superseded", "forgotten", "links")} == {
        "memories": 2,
        "superseded": 1,
        "forgotten": 1,
        "links": 1,
    }
    assert document["by_category"] == {"decisions": 1, "facts": 1}
    assert document["project"] == "shop"
    assert document["graph"]["waiting"] == 3
    assert "By category" in run("stats").out
    assert "0 concepts, 0 mentions, 3 memories to read" in run("stats").out


def test_stats_and_show_count_uses(run: Run, add: Add) -> None:
    id, other = add("The kettle is red"), add("Roses want sun")
    assert run("stats", "--json").json["uses"] == {"memories": [], "days": []}
    assert "Used" not in run("stats").out
    assert run("show", id, "--json").json["uses"] == {"recalled": 0, "injected": 0, "tokens": 0, "last": None}
    assert "recalled" not in run("show", id).out
    run("recall", "kettle", "--limit", "1")
    run("recall", "kettle", "--limit", "1", "--json")
    used = run("stats", "--json").json["uses"]
    assert [(each["id"], each["recalled"], each["injected"], each["tokens"]) for each in used["memories"]] == [
        (id, 2, 0, 0)
    ]
    [day] = used["days"]
    assert (day["recalled"], day["injected"], day["tokens"]) == (2, 0, 0)
    assert used["memories"][0]["last"].startswith(day["day"])
    shown = run("show", id, "--json").json["uses"]
    assert shown == {name: value for name, value in used["memories"][0].items() if name != "id"}
    assert "recalled 2 times, injected 0 times" in run("show", id).out
    assert "used" not in run("show", other).out
    out = run("stats").out
    assert "Most used" in out and "The kettle is red" in out and "Roses" not in out
    assert "Used by day" in out and day["day"] in out


def test_stats_hide_used_memories_that_are_forgotten_or_secret(run: Run, add: Add) -> None:
    forgotten, erased, secret = add("The kettle is red"), add("Roses want sun"), add("the door opens with sesame9")
    for words in ("kettle", "roses", "door opens"):
        run("recall", words)
    run("forget", forgotten)
    run("forget", "--hard", erased, "--yes")
    run("edit", secret, "--secret", "--title", "the door")
    run("recall", "door")
    out = run("stats").out
    assert "(forgotten)" in out and "[SECRET] the door" in out
    assert "sesame9" not in out and "Roses" not in out
    assert {each["id"] for each in run("stats", "--json").json["uses"]["memories"]} == {forgotten, secret}


def test_history_shows_texts_and_actors(run: Run, add: Add) -> None:
    id = add("The first text")
    run("edit", id, "The second text")
    run("forget", id)
    for lines in (run("history").out, run("history", id).out):
        assert lines.count("The first text") == 1 and lines.count("The second text") == 2
        assert " you " in lines and lines.count("project shop") == 3
    entries = run("history", "--json").json["entries"]
    assert [entry["content"] for entry in entries] == ["The first text", "The second text", "The second text"]
    assert {entry["project"] for entry in entries} == {"shop"}


def test_list_in_a_pipe_has_whole_texts(run: Run, add: Add, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS")
    text = " ".join(f"word{number}" for number in range(60))
    add(text)
    for command in ("history", "list"):
        assert any(line.endswith(text) for line in run(command).out.splitlines()), command


def test_time_options_show_how_they_were_read(run: Run, add: Add) -> None:
    id = add("We deploy with Flux")
    words = {"--as-of": "May 2026", "--known-at": "2027-02", "--since": "2026-04", "--until": "July 2031"}
    options = [word for option in words.items() for word in option]
    days = {"as_of": "1 May 2026", "known_at": "1 February 2027", "since": "1 April 2026", "until": "31 July 2031"}
    for command in (["recall", "deploy"], ["why-not", id, "deploy"]):
        times = run(*command, *options, "--json").json["times"]
        assert {name: time["day"] for name, time in times.items()} == days
        assert times["as_of"]["words"] == "May 2026" and times["as_of"]["moment"].startswith("2026-0")
        output = run(*command, *options).out
        assert "As of 1 May 2026" in output and "As recorded on 1 February 2027" in output
    for period in (["--since", "2026-04"], ["--until", "July 2031"]):
        name = period[0].removeprefix("--")
        assert run("list", *period, "--json").json["times"][name]["day"] == days[name]
        assert f"{name.capitalize()} {days[name]}" in run("list", *period).out
    valid = ["--valid-from", "2026-05", "--valid-to", "2030"]
    for command in (["add", "Another fact"], ["edit", id]):
        output = run(*command, *valid).out
        assert "Valid from 1 May 2026." in output and "No longer valid from 1 January 2030." in output
        assert set(run(*command, *valid, "--json").json["times"]) == {"valid_from", "valid_to"}
    assert run("recall", "deploy", "--json").json["times"] == {}


def test_recall_shows_the_time_in_a_question(run: Run, add: Add) -> None:
    add("We moved the office")
    for question, days in {"What did we do in February 2026?": "1–28 February 2026", "and last week?": "20"}.items():
        assert days in run("recall", question, "--json").json["period"]["days"]
        assert "Time in the question: " in run("recall", question).out


def test_rerank_cross_without_a_model_names_the_command(run: Run, add: Add) -> None:
    id = add("We deploy with Argo CD")
    for command in (["recall", "deploy"], ["why-not", id, "deploy"]):
        refused = run(*command, "--rerank", "cross")
        assert refused.is_refused(2, "`triskele config set rerank.model bundled`")


@pytest.mark.parametrize(
    ("good", "unlikely", "fit", "line"),
    [
        (0.0, 0.0, "good", ""),
        (2.0, 0.0, "weak", "Weak match. Closest:"),
        (2.0, 2.0, "none", "No good match. Closest:"),
    ],
)
def test_recall_says_how_well_the_best_hit_matches(
    run: Run, add: Add, monkeypatch: pytest.MonkeyPatch, good: float, unlikely: float, fit: str, line: str
) -> None:
    add("We deploy with Argo CD")
    monkeypatch.setattr("triskele.types.GOOD_MATCH", good)
    monkeypatch.setattr("triskele.types.UNLIKELY_MATCH", unlikely)
    output = run("recall", "deploy").out
    assert "Argo CD" in output and output.startswith(line) and output.count("Closest:") == bool(line)
    assert run("recall", "deploy", "--json").json["fit"] == fit


def test_recall_names_an_unknown_project(run: Run, add: Add) -> None:
    add("We deploy with Argo CD")
    assert "No memory belongs to a project called shpo" in run("recall", "deploy", "--project", "shpo").out
    assert "No memory belongs" not in run("recall", "zebra", "--project", "shop").out


@pytest.mark.parametrize("query", ["", " \t\n"])
def test_recall_of_an_empty_question_says_so(run: Run, add: Add, query: str) -> None:
    add("one fact")
    assert run("recall", query).out.startswith("The question is empty")
    assert run("recall", query, "--json").json["hits"] == []
