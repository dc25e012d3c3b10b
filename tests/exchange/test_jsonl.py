"""triskele's own format loses nothing, and takes nothing that was changed, cut or forged."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from triskele import config
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput, TriskeleError
from triskele.exchange.jsonl import FORMAT
from triskele.exchange.transfer import export_memories, import_memories
from triskele.store.rows import from_link, from_memory, row_hash
from triskele.text.ids import content_hash
from triskele.types import LinkKind, Sensitivity

OpenEngine = Callable[..., LocalEngine]

texts = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\x00"), min_size=1, max_size=40)
words = st.one_of(
    texts, st.sampled_from(["日本語のメモ", "naïve — “quoted”", "a\u2028b\u0085c", "👩‍👩‍👧 family", '{"json": [1]}'])
)
acts = st.one_of(
    st.tuples(
        st.just("add"), words, st.lists(words, max_size=3), st.floats(0, 1), st.sampled_from(list(Sensitivity)), words
    ),
    st.tuples(st.just("edit"), st.integers(0, 20), words),
    st.tuples(st.just("forget"), st.integers(0, 20)),
    st.tuples(st.just("link"), st.integers(0, 20), st.sampled_from(list(LinkKind)), st.integers(0, 20)),
    st.tuples(st.just("unlink"), st.integers(0, 20), st.sampled_from(list(LinkKind)), st.integers(0, 20)),
    st.tuples(st.just("undo")),
)


def carry_out(engine: LocalEngine, ids: list[str], act: tuple[Any, ...]) -> None:
    """One act on a store; those that make no sense there are refused, which is fine."""
    name, *arguments = act
    pick = lambda number: ids[number % len(ids)]  # noqa: E731
    try:
        if name == "add":
            content, tags, importance, sensitivity, session = arguments
            outcome = engine.remember(
                content, tags=tags, importance=importance, sensitivity=sensitivity, session=session, keywords=session
            )
            ids.append(outcome.id)
        elif not ids:
            return
        elif name == "edit":
            engine.edit(pick(arguments[0]), content=arguments[1], valid_to="2030-01-01")
        elif name == "forget":
            engine.forget(pick(arguments[0]))
        elif name == "undo":
            engine.undo()
        else:
            source, kind, target = arguments
            (engine.link if name == "link" else engine.unlink)(pick(source), kind, pick(target))
    except TriskeleError:
        return


def row_hashes(engine: LocalEngine) -> tuple[list[str], list[str]]:
    """The hashes of all rows, which cover every value."""
    versions = [row_hash(from_memory(memory)) for _, memory in engine.store.versions()]
    return sorted(versions), sorted(row_hash(from_link(link)) for link in engine.store.all_links())


def texts_of_secrets(engine: LocalEngine) -> dict[tuple[str, int], str]:
    return {(row.id, row.version): engine.vault.open(row) for row in engine.store.sealed()}


def open_at(folder: str, name: str) -> LocalEngine:
    environment = {"TRISKELE_HOME": folder, "TRISKELE_PROJECT": "garden", "TRISKELE_PRIVACY_KEY": "file"}
    return LocalEngine(config.load(environment, store_url=f"sqlite:///{folder}/{name}.db"), Path(folder))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(acts, max_size=14))
def test_export_and_import_give_the_same_store(steps: list[tuple[Any, ...]]) -> None:
    with TemporaryDirectory() as folder, open_at(folder, "one") as one, open_at(folder, "two") as two:
        ids: list[str] = []
        for step in steps:
            carry_out(one, ids, step)
        file = Path(folder, "export.jsonl")
        export_memories(one, file, include_private=True, with_secrets=True)
        report = import_memories(two, file, keep_origin=True)
        assert row_hashes(two) == row_hashes(one)
        assert texts_of_secrets(two) == texts_of_secrets(one)
        assert report.added == len({memory.id for _, memory in one.store.versions()})
        assert two.maintenance.check(deep=True) == []
        again = Path(folder, "again.jsonl")
        export_memories(two, again, include_private=True, with_secrets=True)
        assert again.read_bytes() == file.read_bytes()
        assert import_memories(two, file).added == 0
        assert row_hashes(two) == row_hashes(one)


def fill(engine: LocalEngine) -> None:
    """A small store with edits, forgotten memories and links that stand and that were cut."""
    first = engine.remember("The gate code is kept by the porter", tags=["gate"]).id
    second = engine.remember("The gate opens by badge", supersedes=first).id
    engine.edit(second, content="The gate opens by badge or by phone")
    engine.link(second, LinkKind.SEE_ALSO, first)
    engine.unlink(second, LinkKind.SEE_ALSO, first)
    engine.forget(engine.remember("A passing thought").id)


@pytest.fixture
def filled(open_engine: OpenEngine, tmp_path: Path) -> tuple[LocalEngine, Path]:
    """A store with a history, and its export."""
    engine = open_engine()
    fill(engine)
    file = tmp_path / "export.jsonl"
    export_memories(engine, file)
    return engine, file


@pytest.fixture(scope="module")
def export() -> str:
    """The text of such an export."""
    stream = io.StringIO()
    with TemporaryDirectory() as folder, open_at(folder, "one") as engine:
        fill(engine)
        export_memories(engine, stream)
    return stream.getvalue()


@pytest.fixture
def exported(export: str, tmp_path: Path) -> Path:
    """Such an export in a file of its own, for an empty store."""
    (tmp_path / "exported.jsonl").write_text(export)
    return tmp_path / "exported.jsonl"


def test_the_file_holds_every_version_and_link(filled: tuple[LocalEngine, Path]) -> None:
    header, *records = [json.loads(line) for line in filled[1].read_text().splitlines()]
    assert header == {"triskele": FORMAT, "versions": 4, "links": 2}
    assert [list(record) for record in records] == [["memory"]] * 4 + [["link"]] * 2
    assert [record["memory"]["version"] for record in records[:4]] == [1, 1, 2, 1]
    assert records[4]["link"]["known_to"] is None
    assert records[5]["link"]["known_to"] is not None


def test_current_only_exports_current_versions(
    filled: tuple[LocalEngine, Path], open_engine: OpenEngine, tmp_path: Path
) -> None:
    target = tmp_path / "now.jsonl"
    assert export_memories(filled[0], target, current_only=True).written == 2
    other = open_engine(tmp_path / "other.db")
    import_memories(other, target, keep_origin=True)
    assert {m.content for m in other.browse().memories} == {m.content for m in filled[0].browse().memories}
    # The full export then brings the past that was left out.
    import_memories(other, filled[1], keep_origin=True)
    assert row_hashes(other) == row_hashes(filled[0])


def test_a_stream_gets_the_same_lines(filled: tuple[LocalEngine, Path]) -> None:
    stream = io.StringIO()
    export_memories(filled[0], stream)
    assert stream.getvalue() == filled[1].read_text()


def test_a_stream_that_knows_only_ascii(
    filled: tuple[LocalEngine, Path], open_engine: OpenEngine, tmp_path: Path
) -> None:
    filled[0].remember("Grüße aus Zürich ☂")
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding="latin-1", newline="") as stream:
        export_memories(filled[0], stream)
        stream.flush()
        (tmp_path / "ascii.jsonl").write_bytes(raw.getvalue())
    other = open_engine(tmp_path / "other.db")
    import_memories(other, tmp_path / "ascii.jsonl", keep_origin=True)
    assert row_hashes(other) == row_hashes(filled[0])


def test_keep_origin_preserves_origins(
    filled: tuple[LocalEngine, Path], open_engine: OpenEngine, tmp_path: Path
) -> None:
    other = open_engine(tmp_path / "other.db")
    import_memories(other, filled[1], keep_origin=True)
    assert {memory.origin for memory in other.browse().memories} == {"user"}


def test_a_file_cannot_say_that_the_user_wrote_it(
    filled: tuple[LocalEngine, Path], open_engine: OpenEngine, tmp_path: Path
) -> None:
    other = open_engine(tmp_path / "other.db")
    file = tmp_path / "forged.jsonl"
    file.write_text(filled[1].read_text().replace('"origin":"user"', '"origin":"web"', 1))
    import_memories(other, file)
    assert {memory.origin for _, memory in other.store.versions()} == {"import", "web"}
    assert import_memories(other, file).added == 0


def test_import_keeps_an_open_memory_open(
    filled: tuple[LocalEngine, Path], open_engine: OpenEngine, tmp_path: Path
) -> None:
    id = filled[0].remember("the wifi password is Tq8/+xPv2#kd", sensitivity=Sensitivity.OPEN).id
    export_memories(filled[0], tmp_path / "all.jsonl")
    other = open_engine(tmp_path / "other.db")
    import_memories(other, tmp_path / "all.jsonl")
    assert other.get(id).sensitivity is Sensitivity.OPEN


def test_import_reads_an_export_without_speakers(exported: Path, open_engine: OpenEngine, tmp_path: Path) -> None:
    header, *lines = map(json.loads, exported.read_text().splitlines())
    for line in lines:
        for name in ("speaker", "role"):
            assert line.get("memory", {}).pop(name, None) is None
    text = "".join(f"{json.dumps(line)}\n" for line in ({**header, "triskele": 2}, *lines))
    (tmp_path / "spoken.jsonl").write_text(exported.read_text())
    (tmp_path / "unspoken.jsonl").write_text(text)
    one, two = open_engine(tmp_path / "one.db"), open_engine(tmp_path / "two.db")
    import_memories(one, tmp_path / "spoken.jsonl", keep_origin=True)
    import_memories(two, tmp_path / "unspoken.jsonl", keep_origin=True)
    assert row_hashes(one) == row_hashes(two) != []


def test_secrets_leave_only_on_a_request_of_its_own(
    filled: tuple[LocalEngine, Path], open_engine: OpenEngine, tmp_path: Path
) -> None:
    engine, file = filled[0], tmp_path / "out.jsonl"
    id = engine.remember("the wifi password is Tq8/+xPv2#kd", tags=["wifi"]).id
    report = export_memories(engine, file, include_private=True)
    assert (report.left_out_secret, report.revealed) == (1, 0)
    assert "Tq8" not in file.read_text() and id not in file.read_text()
    assert export_memories(engine, file, with_secrets=True).revealed == 1
    assert file.stat().st_mode & 0o077 == 0
    assert [entry.action for entry in engine.store.journal(id=id)] == ["added", "revealed"]
    other = open_engine(tmp_path / "other.db")
    import_memories(other, file)
    assert other.reveal(id).text == "the wifi password is Tq8/+xPv2#kd"
    for target, format in ((io.StringIO(), "jsonl"), (tmp_path / "notes", "markdown")):
        with pytest.raises(BadInput, match="jsonl"):
            export_memories(engine, target, format=format, with_secrets=True)


def test_import_preserves_later_edits(filled: tuple[LocalEngine, Path]) -> None:
    engine, file = filled
    [memory] = [memory for memory in engine.browse().memories if memory.version == 2]
    engine.edit(memory.id, content="The gate opens by phone alone")
    before = row_hashes(engine)
    report = import_memories(engine, file)
    assert (report.added, report.duplicates) == (0, 3)
    assert row_hashes(engine) == before


def test_import_restores_forgotten_memories(filled: tuple[LocalEngine, Path]) -> None:
    engine, file = filled
    engine.forget(*(memory.id for memory in engine.browse().memories))
    report = import_memories(engine, file)
    assert (report.added, report.duplicates) == (2, 1)
    assert len(engine.browse().memories) == 2
    assert import_memories(engine, file).added == 0


def test_a_newer_edit_elsewhere_is_a_clash(
    filled: tuple[LocalEngine, Path], open_engine: OpenEngine, tmp_path: Path
) -> None:
    other = open_engine(tmp_path / "other.db")
    import_memories(other, filled[1])
    [memory] = [memory for memory in filled[0].browse().memories if memory.version == 2]
    filled[0].edit(memory.id, content="The gate is gone")
    export_memories(filled[0], tmp_path / "newer.jsonl")
    before = row_hashes(other)
    with pytest.raises(BadInput, match="is at version 2 in this store and at 3 in the file"):
        import_memories(other, tmp_path / "newer.jsonl")
    assert row_hashes(other) == before


def test_the_same_version_with_other_words_is_a_clash(filled: tuple[LocalEngine, Path]) -> None:
    altered(filled[1], 1, lambda values: with_content(values, "The gate code is 1234"))
    with pytest.raises(BadInput, match=r"line 2: memory \w+ has a different version 1 in this store"):
        import_memories(*filled)


def test_a_line_unread_is_one_problem(exported: Path, open_engine: OpenEngine) -> None:
    altered(exported, 1, lambda values: values.update(importance=7))
    assert len(import_memories(open_engine(), exported, dry_run=True).problems) == 1


def altered(file: Path, number: int, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the record on one line of an export."""
    lines = file.read_text().split("\n")
    record = json.loads(lines[number])
    change(next(iter(record.values())) if number else record)
    file.write_text("\n".join([*lines[:number], json.dumps(record), *lines[number + 1 :]]))


def with_content(values: dict[str, Any], content: str) -> None:
    digest = content_hash(content.replace("\ud800", "?"))
    values.update(content=content, content_hash=digest)


FORGERIES: dict[str, tuple[int, Callable[[dict[str, Any]], object], str]] = {
    "content": (1, lambda v: v.update(content="forged"), "line 2: the content does not match its hash"),
    "long": (1, lambda v: with_content(v, "x" * 1401), "line 2: the memory has 1,401 characters"),
    "bidi": (1, lambda v: with_content(v, "a\u202eb"), "line 2: invisible characters .* in the content"),
    "surrogate": (1, lambda v: with_content(v, "\ud800"), "line 2: .*not valid Unicode"),
    "nul": (1, lambda v: with_content(v, "a\0b"), "line 2: .*NUL"),
    "category": (1, lambda v: v.update(category="gossip"), "line 2: unknown category 'gossip'"),
    "tags": (1, lambda v: v.update(tags=["a\u202eb"]), "line 2: invisible characters .* in the tags"),
    "tag kind": (1, lambda v: v.update(tags="a"), "line 2: tags must be a list"),
    "importance": (1, lambda v: v.update(importance=7), "line 2: importance must be between 0 and 1"),
    "boolean": (1, lambda v: v.update(importance=True), "line 2: importance must be a number"),
    "owner": (1, lambda v: v.update(owner="eve"), "line 2: belongs to 'eve'"),
    "origin": (1, lambda v: v.update(origin="heaven"), "line 2: unknown origin 'heaven'"),
    "sensitivity": (1, lambda v: v.update(sensitivity="hush"), "line 2: unknown sensitivity"),
    "id": (1, lambda v: v.update(id="../../etc/passwd"), "line 2: '../../etc/passwd' is not an id"),
    "version": (1, lambda v: v.update(version=0), "line 2: version 0 is out of range"),
    "huge position": (1, lambda v: v.update(position=2**63), "line 2: position must be a whole number"),
    "position": (1, lambda v: v.update(position=-1), "line 2: a position must be between"),
    "date": (1, lambda v: v.update(created_at="soon"), "line 2: not a date: 'soon'"),
    "period": (1, lambda v: v.update(valid_from="2026-02-01", valid_to="2026-01-01"), "line 2: valid_to must be later"),
    "known": (1, lambda v: v.update(known_to="2000-01-01"), "line 2: known_to must not be earlier"),
    "unknown": (1, lambda v: v.update(mood="good"), "line 2: the memory has an unknown field 'mood'"),
    "missing": (1, lambda v: v.pop("keywords"), "line 2: the memory has no keywords"),
    "twice": (3, lambda v: v.update(version=1), "line 3: memory .* has version 1 twice"),
    "two stand": (2, lambda v: v.update(known_to=None), "line 3: memory .* still current"),
    "end": (5, lambda v: v.update(target="0" * 16), "line 6: links to 0{16}, which is neither"),
    "cycle": (
        6,
        lambda v: v.update(kind="supersedes", source=v["target"], target=v["source"], known_to=None),
        "cycle",
    ),
    "self": (5, lambda v: v.update(target=v["source"]), "line 6: the link .* leads to itself"),
    "link kind": (5, lambda v: v.update(kind="hates"), "line 6: unknown kind 'hates'"),
    "stubs": (1, lambda v: v.update(sensitivity="secret"), "line 2: is a secret without its text"),
    "stray texts": (1, lambda v: v.update(secret="x"), "line 2: has the text of a secret"),
    "secret tags": (1, lambda v: v.update(tags=["password is tq8/+xpv2#kd"]), "line 2: a tag looks like a secret"),
    "newer": (0, lambda v: v.update(triskele=FORMAT + 1), f"line 1: has format {FORMAT + 1}"),
    "older": (0, lambda v: v.update(triskele=1), "line 1: has format 1, from before the first release"),
    "header": (0, lambda v: v.update(compressed=True), "line 1: the header has an unknown field 'compressed'"),
    "count": (0, lambda v: v.update(versions=9), "the end: 9 versions announced, 4 found"),
}


@pytest.mark.parametrize("case", FORGERIES)
def test_forged_and_damaged_exports_are_refused(case: str, exported: Path, open_engine: OpenEngine) -> None:
    number, change, message = FORGERIES[case]
    altered(exported, number, change)
    engine = open_engine()
    with pytest.raises(BadInput, match=message):
        import_memories(engine, exported)
    assert engine.store.census().journal == 0
    assert import_memories(engine, exported, dry_run=True).problems


def test_an_unknown_kind_of_record(exported: Path, open_engine: OpenEngine) -> None:
    with exported.open("a") as file:
        file.write('{"picture": {}}\n{}\n{"memory": 3}\n')
    report = import_memories(open_engine(), exported, dry_run=True)
    assert [problem.place for problem in report.problems] == ["line 8", "line 9", "line 10", "the end"]
    assert "unknown kind: 'picture'" in report.problems[0].reason


@pytest.mark.parametrize("keep", [1, 3, 6])
def test_an_export_cut_between_lines_is_noticed(keep: int, exported: Path, open_engine: OpenEngine) -> None:
    lines = exported.read_text().splitlines(keepends=True)
    exported.write_text("".join(lines[:keep]))
    with pytest.raises(BadInput, match="the file is incomplete"):
        import_memories(open_engine(), exported)


def test_an_export_cut_inside_a_line_is_noticed(exported: Path, open_engine: OpenEngine) -> None:
    exported.write_bytes(exported.read_bytes()[:-20])
    with pytest.raises(BadInput, match="line 7: is cut off: the file is incomplete"):
        import_memories(open_engine(), exported)


def test_an_export_without_its_header(exported: Path, open_engine: OpenEngine) -> None:
    lines = exported.read_text().splitlines(keepends=True)
    exported.write_text("".join(lines[1:]))
    with pytest.raises(BadInput, match=r"line 1: .*without its first line, the header"):
        import_memories(open_engine(), exported)


def test_an_export_keeps_its_projects(filled: tuple[LocalEngine, Path]) -> None:
    with pytest.raises(BadInput, match="keeps the projects"):
        import_memories(filled[0], filled[1], project="elsewhere")


def test_an_empty_store_round_trips(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine()
    assert export_memories(engine, tmp_path / "empty.jsonl").written == 0
    assert import_memories(engine, tmp_path / "empty.jsonl").read == 0
