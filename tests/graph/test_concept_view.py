"""What a reader means and may see: any spelling is understood, a near miss is answered with names that can be seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from triskele.errors import BadInput, NotFound


@pytest.mark.parametrize("spelling", ["Argo CD", "argo cd", "the Argo-CD", "ArgoCD", "Argo CD's"])
def test_a_concept_is_found_in_any_spelling(team: Any, spelling: str) -> None:
    team.add("Argo CD is the tool that rolls out Heron")
    view = team.view()
    assert view.name_of(view.find(spelling).concept) == "Argo CD"


def test_a_near_miss_is_answered_with_what_was_probably_meant(team: Any) -> None:
    team.add("Zanzibar is the staging cluster")
    team.add("Kestrel Reports are due on Friday")
    view = team.view()
    with pytest.raises(NotFound, match="did you mean “Zanzibar”"):
        view.find("Zanzibr")
    with pytest.raises(NotFound, match="did you mean “Kestrel Reports”"):
        view.find("kestrel")


def test_nothing_is_suggested_that_cannot_be_seen(team: Any) -> None:
    team.add("Zanzibar is the staging cluster", project="elsewhere")
    team.add("Kestrel is the report")
    with pytest.raises(NotFound, match=r"is called “Zanzibr”$"):
        team.view().find("Zanzibr")
    with pytest.raises(NotFound, match="“Zanzibar”"):
        team.view(all_projects=True).find("Zanzibr")


def test_an_empty_store_and_a_name_without_letters_are_told(team: Any) -> None:
    with pytest.raises(NotFound, match="nothing has been remembered yet"):
        team.view().find("Argo")
    with pytest.raises(BadInput, match="not the name of anything"):
        team.view().find("?!")


def test_forgotten_memories_and_those_of_others_are_not_seen(team: Any) -> None:
    kept, gone = team.add("Zanzibar is the cluster"), team.add("we restart Zanzibar on Sundays")
    team.add("Zanzibar is warm", project="travel")
    team.engine.forget(gone)
    view = team.view()
    concept = np.array([view.find("zanzibar").concept])
    _, rows, _ = view.holders(concept)
    assert [memory.id for memory in team.engine.store.rows(rows.tolist()).values()] == [kept]
    assert len(team.view(all_projects=True).holders(concept)[1]) == 2
