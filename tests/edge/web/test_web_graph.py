"""The graph around a focus: capped, with types and validity of edges, and as it was at a time."""

from __future__ import annotations

import numpy as np
import pytest
from page_client import Browser

from triskele.edge.web.graph_page import EDGE_GROUPS, arranged
from triskele.engine.concepts import MAX_NODES
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput
from triskele.index.name_linking import read_names
from triskele.types import LinkKind


@pytest.fixture
def engine(browser: Browser) -> LocalEngine:
    engine = browser.engine
    one = engine.remember("Argo CD deploys the billing service", tags=["billing"], created_at="2025-01-10").id
    two = engine.remember(
        "The billing service is owned by Grace Hopper", tags=["billing", "team"], created_at="2025-06-10"
    ).id
    engine.remember("Grace Hopper is on call in May", tags=["billing", "team"], created_at="2025-09-10")
    engine.remember("The office plant drinks on Mondays", created_at="2025-02-01")
    engine.link(one, LinkKind.SEE_ALSO, two)
    read_names(engine.store, engine.lexical)
    return engine


def test_neighbourhood_of_a_concept_holds_memories_and_concepts(engine: LocalEngine) -> None:
    found = engine.concepts.neighbourhood(concept="argo cd")
    labels = {node.label for node in found.nodes}
    assert {"Argo CD", "Grace Hopper"} <= labels and not any("plant" in label for label in labels)
    assert [node.label for node in found.nodes if node.is_focus] == ["Argo CD"]
    assert "see-also" in {edge.kind for edge in found.edges}
    groups = {(edge.kind, edge.group) for edge in found.edges}
    assert {("see-also", "link"), ("mentions", "mentions")} <= groups
    assert {group for _, group in groups} <= {name for name, _ in EDGE_GROUPS}
    assert {edge.source for edge in found.edges} | {edge.target for edge in found.edges} <= {n.key for n in found.nodes}


def test_neighbourhood_takes_a_memory_as_focus(engine: LocalEngine) -> None:
    plant = next(each for each in engine.browse(all_projects=True).memories if "plant" in each.content)
    found = engine.concepts.neighbourhood(memory=plant.id[:8])
    assert [node.key for node in found.nodes if node.is_focus] == [f"m{plant.id}"]


def test_neighbourhood_of_the_past_has_no_later_memories(engine: LocalEngine, browser: Browser) -> None:
    def kept(at: str) -> int:
        nodes = browser.get("/ui/graph/data", params={"focus": "billing", "at": at}).json()["nodes"]
        return sum(each["kind"] == "memory" for each in nodes)

    assert (kept("2025-03-01"), kept("2025-07-01"), kept("")) == (1, 2, 3)
    assert browser.get("/ui/graph/data", params={"focus": "billing", "at": "2024-01-01"}).status_code == 404


def test_neighbourhood_bounds_its_nodes(browser: Browser) -> None:
    for number in range(40):
        browser.engine.remember(f"Orion Gate {number} is near Vega Station {number % 7}", tags=[f"tag{number % 5}"])
    read_names(browser.engine.store, browser.engine.lexical)
    concepts = browser.engine.concepts
    for most in (5, 20, MAX_NODES):
        assert len(concepts.neighbourhood(concept="tag1", most=most).nodes) <= most
    assert concepts.neighbourhood(concept="tag1", most=5).left_out > 0
    with pytest.raises(BadInput):
        concepts.neighbourhood(concept="tag1", most=MAX_NODES + 1)


def test_graph_page_opens_with_and_without_focus(engine: LocalEngine, browser: Browser) -> None:
    assert ">billing</a>" in browser.get("/ui/graph").text
    assert "Grace Hopper" in browser.get("/ui/graph?focus=argo+cd").text
    unknown = browser.get("/ui/graph?focus=nothing+like+it")
    assert unknown.status_code == 404 and "no concept is called" in unknown.text


def test_graph_starts_with_a_drawing_of_the_most_used_concepts(engine: LocalEngine, browser: Browser) -> None:
    assert 'data-source="/ui/graph/data?size=80"' in browser.get("/ui/graph").text
    drawn = browser.get("/ui/graph/data?size=40").json()
    keys = [node["id"] for node in drawn["nodes"]]
    assert len(keys) == len(set(keys)) <= 40 and not any(node["focus"] for node in drawn["nodes"])
    assert {"billing", "team", "Grace Hopper"} <= {node["label"] for node in drawn["nodes"]}
    ends = [(edge["source"], edge["target"], edge["kind"]) for edge in drawn["edges"]]
    assert ends and len(ends) == len(set(ends)) and {end for pair in ends for end in pair[:2]} <= set(keys)
    early = browser.get("/ui/graph/data?at=2025-07-01").json()["nodes"]
    assert 0 < len(early) < len(keys)
    assert browser.get("/ui/graph/data?at=2020-01-01").status_code == 404


def test_graph_start_follows_new_memories(engine: LocalEngine, browser: Browser) -> None:
    assert "Zephyr" not in browser.get("/ui/graph").text
    for number in range(2):
        engine.remember(f"Zephyr Station has {number} masts", tags=["Zephyr"])
    read_names(engine.store, engine.lexical)
    assert "Zephyr" in browser.get("/ui/graph").text


def test_graph_page_of_an_empty_store_says_so(browser: Browser) -> None:
    assert "The graph is empty" in browser.get("/ui/graph").text


def test_arranged_is_deterministic_and_spreads_nodes() -> None:
    keys = [f"n{number}" for number in range(50)]
    pairs = [(f"n{number}", f"n{number // 3}") for number in range(1, 50)]
    first, second = (arranged(keys, pairs, "n0") for _ in range(2))
    assert np.array_equal(first, second) and np.isfinite(first).all()
    assert np.allclose(first[0], 0)
    apart = np.sqrt(((first[:, None] - first[None]) ** 2).sum(axis=2)) + np.eye(50) * 1000
    assert apart.min() > 5
