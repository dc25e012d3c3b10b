"""Two folders of the same name are two projects, and a project stays itself through remotes, moves and renames."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from triskele import config
from triskele.engine import workplace
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput, NotFound
from triskele.exchange.transfer import export_memories
from triskele.types import Action, Sensitivity

Open = Callable[..., LocalEngine]


@pytest.fixture
def open_in(tmp_path: Path) -> Iterator[Open]:
    """Opens the same store from any folder."""
    opened: list[LocalEngine] = []

    def open_one(folder: Path, owner: str = "me") -> LocalEngine:
        environment = {
            "TRISKELE_HOME": str(tmp_path / "home"),
            "TRISKELE_RECALL_MODEL": "none",
            "TRISKELE_PRIVACY_KEY": "file",
            "TRISKELE_MEMORY_OWNER": owner,
        }
        opened.append(LocalEngine(config.load(environment), folder))
        return opened[-1]

    yield open_one
    for engine in opened:
        engine.close()


def repository(folder: Path, remote: str = "") -> Path:
    (folder / ".git").mkdir(parents=True, exist_ok=True)
    (folder / ".git" / "config").write_text(f'[remote "origin"]\n\turl = {remote}\n' if remote else "[core]\n")
    return folder


def contents(engine: LocalEngine) -> list[str]:
    return sorted(memory.content for memory in engine.browse().memories)


def test_two_repositories_of_the_same_name_never_mix(tmp_path: Path, open_in: Open) -> None:
    one = repository(tmp_path / "one" / "api", "git@github.com:acme/api.git")
    other = repository(tmp_path / "two" / "api", "https://ada:s3cret@github.com/globex/api")
    third = repository(tmp_path / "three" / "api")
    plain = tmp_path / "four" / "api"
    plain.mkdir(parents=True)
    names = ["api", "globex/api", "three/api", "four/api"]
    for folder, name in zip((one, other, third, plain), names, strict=True):
        engine = open_in(folder)
        assert contents(engine) == []
        engine.remember("the port is 8080")
        assert (engine.project, contents(engine)) == (name, ["the port is 8080"])
        assert len(engine.recall("which port").hits) == 1
    for folder, name in zip((one, other, third, plain), names, strict=True):
        deep = folder / "src"
        deep.mkdir()
        # A folder without a repository is a place of its own.
        assert open_in(deep).project == (name if folder is not plain else "src")


def test_reading_registers_no_folder(tmp_path: Path, open_in: Open) -> None:
    engine = open_in(repository(tmp_path / "api"))
    engine.recall("anything")
    engine.browse()
    engine.remember("everywhere", project="")
    engine.remember("elsewhere", project="other")
    assert engine.store.folders() == []
    engine.remember("here")
    assert [place.key for place in engine.store.folders()] == [f"path:{tmp_path / 'api'}"]


def test_clones_of_one_remote_are_one_project(tmp_path: Path, open_in: Open) -> None:
    first = repository(tmp_path / "api", "https://github.com/acme/api.git")
    again = repository(tmp_path / "clone", "ssh://git@github.com/Acme/api")
    open_in(first).remember("the port is 8080")
    assert contents(open_in(again)) == ["the port is 8080"]


def test_a_remote_that_is_added_later_keeps_the_project(tmp_path: Path, open_in: Open) -> None:
    folder = repository(tmp_path / "api")
    open_in(folder).remember("before")
    repository(folder, "https://github.com/acme/api")
    engine = open_in(folder)
    assert contents(engine) == ["before"]
    engine.remember("after")
    shutil.move(folder, tmp_path / "moved")
    assert contents(open_in(tmp_path / "moved")) == ["after", "before"]
    # And without it again.
    repository(tmp_path / "moved")
    open_in(tmp_path / "moved").remember("last")


def test_another_repository_in_the_same_folder_is_another_project(tmp_path: Path, open_in: Open) -> None:
    folder = repository(tmp_path / "api", "https://github.com/acme/api")
    open_in(folder).remember("of acme")
    repository(folder, "https://github.com/globex/api")
    engine = open_in(folder)
    engine.remember("of globex")
    assert (engine.project, contents(engine)) == ("globex/api", ["of globex"])
    repository(folder, "https://github.com/acme/api")
    assert contents(open_in(folder)) == ["of acme"]


def test_a_folder_that_was_moved_keeps_its_project(tmp_path: Path, open_in: Open) -> None:
    repository(tmp_path / "old" / "api")
    open_in(tmp_path / "old" / "api").remember("the port is 8080")
    shutil.move(tmp_path / "old", tmp_path / "new")
    assert contents(open_in(tmp_path / "new" / "api")) == ["the port is 8080"]


def test_memories_from_before_go_to_the_first_folder_of_the_name(tmp_path: Path, open_in: Open) -> None:
    one, other = (repository(tmp_path / name / "api") for name in ("one", "two"))
    engine = open_in(tmp_path)
    engine.remember("from 0.1.0", project="api")
    assert contents(open_in(one)) == ["from 0.1.0"]
    assert workplace.mixed(engine.store) == {}
    open_in(one).remember("since")
    assert contents(open_in(one)) == ["from 0.1.0", "since"]
    open_in(other).remember("of the other")
    assert contents(open_in(other)) == ["of the other"]
    assert engine.upkeep.inspect().mixed == {"api": ("two/api",)}


def test_projects_of_folders_need_no_confirmation(tmp_path: Path, open_in: Open) -> None:
    one, other = (repository(tmp_path / name / "api") for name in ("one", "two"))
    clone = repository(tmp_path / "clone", "https://github.com/acme/api")
    open_in(clone).remember("an older one of another project")
    open_in(one).remember("the first of its folder")
    open_in(one).remember("written down later", session="standup 2020-05-03", created_at="2020-05-03")
    open_in(other).remember("the first of the other folder")
    engine = open_in(tmp_path)
    engine.apply(workplace.merge(engine.store, "clone", "api"))
    assert engine.upkeep.inspect().mixed == {}


def test_a_name_that_was_taken_meanwhile_is_not_shared(tmp_path: Path, open_in: Open) -> None:
    one, other = (open_in(repository(tmp_path / name / "api")) for name in ("one", "two"))
    assert (one.project, other.project) == ("api", "api")
    one.remember("of one")
    outcome = other.remember("of two")
    assert (outcome.project, other.project) == ("two/api", "two/api")
    assert (contents(one), contents(other)) == (["of one"], ["of two"])


def test_neither_paths_nor_remotes_are_exported(tmp_path: Path, open_in: Open) -> None:
    folder = repository(tmp_path / "wombat" / "api", "https://ada:s3cret@github.com/quokka/api")
    engine = open_in(folder)
    engine.remember("the port is 8080")
    engine.apply(workplace.rename(engine.store, "api", "billing"))
    export_memories(engine, tmp_path / "all.jsonl", include_private=True, with_secrets=True)
    export_memories(engine, tmp_path / "notes", format="markdown")
    texts = [path.read_text() for path in (tmp_path / "all.jsonl", *(tmp_path / "notes").rglob("*.md"))]
    journal = "".join(map(str, engine.store.journal()))
    for text in (*texts, journal):
        assert not [word for word in ("wombat", "quokka", "s3cret", "github", str(tmp_path)) if word in text]
    assert "s3cret" not in "".join(place.key for place in engine.store.folders())


def test_a_renamed_project_goes_on_in_its_folder(tmp_path: Path, open_in: Open) -> None:
    folder = repository(tmp_path / "api")
    engine = open_in(folder)
    id = engine.remember("the port is 8080").id
    engine.remember("the password is Kp4#wq9z!Lm2", title="Password of the port")
    engine.forget(engine.remember("gone").id)
    engine.remember("elsewhere", project="other")
    updated = engine.get(id).updated_at
    outcomes = engine.apply(workplace.rename(engine.store, "api", "billing"))
    assert {each.project for each in outcomes} == {"billing"}
    again = open_in(folder)
    assert (again.project, len(contents(again))) == ("billing", 2)
    assert again.get(id).updated_at == updated
    assert again.recall("which port is it, 8080?").hits[0].memory.id == id
    assert again.upkeep.inspect(deep=True).findings == ()
    # Undone, and done again.
    again.undo(outcomes[0].batch)
    assert (open_in(folder).project, len(contents(open_in(folder)))) == ("api", 2)
    assert {each.project for each in again.browse(all_projects=True).memories} == {"api", "other"}


def test_merged_projects_are_one_and_come_apart_again(tmp_path: Path, open_in: Open) -> None:
    one, other = (repository(tmp_path / name / "api") for name in ("one", "two"))
    open_in(one).remember("of one")
    engine = open_in(other)
    engine.remember("of two")
    outcomes = engine.apply(workplace.merge(engine.store, "two/api", "api"))
    assert [each.action for each in outcomes] == [Action.EDITED, Action.BOUND]
    assert contents(open_in(one)) == contents(open_in(other)) == ["of one", "of two"]
    engine.undo(outcomes[0].batch)
    assert (contents(open_in(one)), contents(open_in(other))) == (["of one"], ["of two"])
    engine.undo(engine.store.newest_entries()[0].batch)
    assert contents(open_in(other)) == ["of one", "of two"]


@pytest.mark.parametrize(
    ("move", "source", "target", "error"),
    [
        (workplace.rename, "api", "other", BadInput),
        (workplace.rename, "api", "  ", BadInput),
        (workplace.rename, "nothing", "new", NotFound),
        (workplace.rename, "", "new", NotFound),
        (workplace.merge, "api", "api", BadInput),
        (workplace.merge, "api", "nothing", NotFound),
        (workplace.merge, "nothing", "api", NotFound),
    ],
)
def test_move_refuses_impossible_targets(
    tmp_path: Path, open_in: Open, move: Callable[..., object], source: str, target: str, error: type[Exception]
) -> None:
    engine = open_in(repository(tmp_path / "api"))
    engine.remember("here")
    engine.remember("there", project="other", sensitivity=Sensitivity.PRIVATE)
    with pytest.raises(error):
        move(engine.store, source, target)


def test_places_belong_to_their_owner(tmp_path: Path, open_in: Open) -> None:
    folder = repository(tmp_path / "one" / "api")
    open_in(folder).remember("mine")
    ada = open_in(repository(tmp_path / "two" / "api"), owner="ada")
    ada.remember("hers")
    assert (ada.project, len(ada.store.folders())) == ("api", 1)
    assert [each.name for each in workplace.summaries(ada.store)] == ["api"]


def test_the_settings_name_a_project_whatever_the_folder(tmp_path: Path) -> None:
    environment = {
        "TRISKELE_HOME": str(tmp_path / "home"),
        "TRISKELE_PROJECT": "named",
        "TRISKELE_RECALL_MODEL": "none",
    }
    with LocalEngine(config.load(environment), repository(tmp_path / "api")) as engine:
        engine.remember("here")
        assert (engine.project, engine.store.folders()) == ("named", [])
