"""The commands about what connects memories: graph show, path, stats, rebuild, merge, split, extract, relations."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from triskele.engine import concepts

Run = Callable[..., Any]
Add = Callable[..., str]
STEPS = ["show", "path", "stats", "rebuild", "merge", "split", "extract", "relations"]
# A model that reads one relation out of the first note, and takes every relation for its own.
MODEL = """
import json, re, sys
prompt = sys.stdin.read()
count = len(re.findall(r"^(?:Note|Relation) [0-9]+", prompt, re.M))
rows = []
for number in range(1, count + 1):
    if "<note>" in prompt:
        triples = [["Juno Temple", "looks after", "Heron"]] if number == 1 else []
        rows.append({"note": number, "triples": triples})
    else:
        rows.append({"relation": number, "same_as": number, "single": False})
print(json.dumps({"notes" if "<note>" in prompt else "relations": rows}))
"""


@pytest.fixture
def ids(add: Add) -> list[str]:
    """Three memories in a chain, and one of another project."""
    return [
        add("Argo CD is what rolls out the Heron service"),
        add("Juno Temple looks after the Heron service"),
        add("every week Juno Temple waters the plants", "--tags", "office"),
        add("Argo CD was too slow for us", "--project", "other"),
    ]


@pytest.mark.parametrize("step", STEPS)
def test_graph_commands_have_help_with_examples(run: Run, step: str) -> None:
    out = run("graph", step, "--help").out
    assert f"Usage: triskele graph {step} " in out
    assert "Examples:\n    triskele graph " in out
    assert "--json" in out and "--store" in out


def test_graph_lists_commands_in_order(run: Run) -> None:
    out = run("graph").out
    steps = [line.split()[0] for line in out.split("Commands:\n")[1].split("\n\n")[0].splitlines()]
    assert steps == STEPS


def test_graph_show_includes_new_memories(run: Run, ids: list[str]) -> None:
    shown = run("graph", "show", "argo-cd", "--json").json
    assert (shown["concept"], shown["memories"], shown["subjects"]) == ("Argo CD", 1, 1)
    assert [memory["id"] for memory in shown["subject_of"]] == [ids[0]]
    assert shown["mentioned_in"] == []
    assert "Heron" in {near["concept"] for near in shown["neighbours"]}
    [edge] = [edge for edge in shown["edges"] if edge["target"] == "Heron"]
    assert (edge["source"], edge["kind"], edge["evidence"], edge["known_to"]) == ("Argo CD", "mentions", ids[0], None)
    assert (shown["project"], shown["waiting"]) == ("shop", 0)
    output = run("graph", "show", "argo-cd").out
    assert "“Argo CD”  in 1 memory, subject of 1 · project shop" in output
    assert "rolls out the Heron service" in output
    assert "“Argo CD” mentions “Heron”" in output


def test_graph_show_reads_other_projects_on_request(run: Run, ids: list[str]) -> None:
    assert run("graph", "show", "Argo CD", "--all-projects", "--json").json["memories"] == 2
    other = run("graph", "show", "Argo CD", "--project", "other", "--json").json
    assert [memory["id"] for memory in other["subject_of"]] == [ids[3]]
    assert other["project"] == "other"
    assert run("graph", "show", "Argo CD", "--project", "x", "--all-projects").is_refused(2, "exclude each other")


def test_graph_show_marks_superseded_memories_and_closed_edges(run: Run, add: Add, ids: list[str]) -> None:
    run("graph", "stats")
    add("Argo CD is what rolls out the Osprey service", "--supersedes", ids[0])
    shown = run("graph", "show", "Argo CD", "--json").json
    assert {memory["id"]: memory["superseded"] for memory in shown["subject_of"]}[ids[0]]
    assert "Heron" not in {edge["target"] for edge in shown["edges"]}
    closed = run("graph", "show", "Argo CD", "--closed", "--json").json["edges"]
    assert [edge["evidence"] for edge in closed if edge["target"] == "Heron" and edge["known_to"]] == [ids[0]]
    output = run("graph", "show", "Argo CD", "--closed").out
    assert "[SUPERSEDED] Argo CD is what rolls out" in output
    assert " until " in output


def test_graph_path_in_words(run: Run, ids: list[str]) -> None:
    way = run("graph", "path", "Argo CD", "office", "--json").json
    assert way["found"]
    assert [hop["id"] for hop in way["hops"]] == ids[:3]
    assert [hop["concept"] for hop in way["hops"]] == ["Heron", "Juno Temple", "office"]
    output = run("graph", "path", "Argo CD", "office").out
    assert output.startswith("“Argo CD”\n  — in ")
    assert "“every week Juno Temple waters the plants” —\n“office”\n3 memories apart" in output


def test_graph_path_exits_with_1_without_a_path(run: Run, add: Add, ids: list[str]) -> None:
    add("nothing to see", "--tags", "island")
    ran = run("graph", "path", "Argo CD", "island")
    assert ran.code == 1
    words = " ".join(ran.out.split())
    assert "No chain of at most 6 memories connects “Argo CD” and “island” in project shop." in words
    ran = run("graph", "path", "Argo CD", "island", "--json")
    assert ran.code == 1
    assert '"found": false' in ran.out


def test_graph_stats(run: Run, ids: list[str]) -> None:
    document = run("graph", "stats", "--json").json
    assert document["names"] >= document["concepts"] > 0
    assert (document["memories"], document["read"], document["waiting"]) == (4, 4, 0)
    assert (document["connected"], document["connected_share"]) == (4, 1.0)
    assert {hub["name"]: hub["memories"] for hub in document["hubs"]}["Argo CD"] == 2
    assert document["bytes"] > 0
    output = run("graph", "stats").out
    assert "connected  4 of 4 memories (100%)" in output
    assert "Mentioned most" in output


def test_graph_merge_split_and_rebuild(run: Run, ids: list[str]) -> None:
    done = run("graph", "merge", "office", "argo cd", "--json").json
    assert (done["action"], done["names"], done["concept"]) == ("merged", ["office"], "Argo CD")
    assert run("graph", "merge", "office", "argo cd", "--json").json["action"] == "unchanged"
    rebuilt = run("graph", "rebuild", "--json").json
    assert (rebuilt["read"], rebuilt["by_hand"]) == (4, 1)
    [other] = run("graph", "show", "Argo CD", "--json").json["other_names"]
    assert (other["name"], other["reason"]) == ("office", "user")
    assert "also “office” (by hand)" in run("graph", "show", "office").out
    assert "Both are names of the concept “Argo CD”" in run("graph", "path", "office", "Argo CD").out
    assert run("graph", "split", "office", "--json").json["action"] == "split"
    assert run("graph", "show", "Argo CD", "--json").json["other_names"] == []
    assert "Nothing to change: “office” has no other name." in run("graph", "split", "office").out
    assert 'graph split "office"' in run("graph", "merge", "office", "argo cd").out
    assert 'graph merge "office" "Argo CD"' in run("graph", "split", "office").out
    assert "Read 4 versions" in run("graph", "rebuild").out


@pytest.mark.parametrize("command", [["show", "Agro CD"], ["path", "Agro CD", "Heron"], ["merge", "Heron", "Agro CD"]])
def test_graph_show_suggests_similar_concepts(run: Run, ids: list[str], command: list[str]) -> None:
    assert run("graph", *command).is_refused(1, "no concept is called “Agro CD”", "did you mean “Argo CD”?")


def test_graph_refuses_bad_input_in_one_line(run: Run) -> None:
    assert run("graph", "show", "Argo").is_refused(1, "nothing has been remembered yet")
    assert run("graph", "show", "...").is_refused(2, "not the name of anything")
    assert run("graph", "show", "x", "--limit", "0").is_refused(2, "limit")
    assert run("graph", "path", "x").is_refused(2, "missing argument")
    assert run("graph", "shwo", "x").is_refused(2, "shwo")
    assert run("graph", "stats", "--json").json["concepts"] == 0
    assert run("graph", "rebuild", "--json").json["read"] == 0


def test_graph_show_accepts_a_name_after_dashes(run: Run) -> None:
    assert run("graph", "show", "--", "-x").is_refused(1, "no concept is called “-x”")


def test_graph_counts_unread_memories(run: Run, ids: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concepts, "_READ_FIRST", 1)
    assert run("graph", "show", "Argo CD", "--json").json["waiting"] == 3
    assert "2 memories not searched for names yet; `triskele reindex` does it." in run("graph", "stats").out
    assert run("graph", "show", "plants").is_refused(1, "1 still to be read")


@pytest.mark.slow
def test_graph_extract_reads_relations(run: Run, add: Add, home: Path) -> None:
    id = add("Juno Temple looks after the Heron service")
    program = home / "model.py"
    program.write_text(MODEL)
    (home / "config.toml").write_text(
        f"[llm]\nservice = 'command'\ncommand = [{sys.executable!r}, {str(program)!r}]\n[curation]\nllm_calls = 50\n"
    )
    assert run("graph", "extract", "--dry-run", "--json").json["memories"] == 1
    assert "No relations yet" in run("graph", "relations").out
    done = run("graph", "extract", "--json").json
    assert (done["memories"], done["triples"], done["left"], done["problem"]) == (1, 1, 0, "")
    [edge] = run("graph", "relations", "Heron", "--json").json["relations"]
    assert (edge["subject"], edge["relation"], edge["object"]) == ("juno temple", "looks after", "heron")
    assert (edge["evidence"], edge["valid_to"]) == (id, None)
    assert "looks after" in run("graph", "relations").out
    assert "Nothing is left to read." in run("graph", "extract", "--dry-run").out


def test_graph_extract_without_a_model_names_the_settings(run: Run, add: Add) -> None:
    add("Juno Temple looks after the Heron service")
    assert run("graph", "extract").is_refused(2, "no language model is set")
