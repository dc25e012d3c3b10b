"""Files of questions and grades: taken over as they are, or refused with the line that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from triskele.bench.own.judge import import_grades, import_questions
from triskele.bench.own.questions import load_labels, questions_of
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput

WriteLines = Callable[..., Path]


def test_imported_questions_keep_what_they_say(engine: LocalEngine, write_lines: WriteLines) -> None:
    id = engine.remember("the kettle is red").id
    path = write_lines(
        {"text": "what colour  is the kettle?", "ids": [id[:8]], "project": "garden"},
        {"text": "kettle", "type": "exact", "generator": "model-x"},
    )
    first, second = import_questions(engine, path)
    assert (first.text, first.type, first.project) == ("what colour is the kettle?", "paraphrase", "garden")
    assert (first.sources, first.about, first.judged, first.generator) == ((id,), (id,), "hand", "user")
    assert (second.type, second.project, second.judged, second.generator) == ("exact", None, None, "model-x")
    assert [(label.question, label.memory, label.grade) for label in load_labels(engine.store).values()] == [
        (first.id, id, 3)
    ]
    assert import_questions(engine, path) == []


def test_scripted_grades_may_name_questions_by_their_words(engine: LocalEngine, write_lines: WriteLines) -> None:
    id = engine.remember("the kettle is red").id
    [question, other] = import_questions(engine, write_lines({"text": "What colour?"}, {"text": "What size?"}))
    import_grades(engine, write_lines({"question": "what  colour?", "memory": id[:8], "grade": 2}))
    assert load_labels(engine.store)[question.id, id].grade == 2
    standing = questions_of(engine)
    assert (standing[question.id].judged, standing[other.id].judged) == ("hand", None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no questions"),
        ("{", "line 1: is not valid JSON"),
        ('{"text": "a"}\n\n[]', "line 3: is not a JSON object"),
        ('{"txt": "a"}', "line 1: has no text"),
        ('{"text": "a", "type": "riddle"}', "unknown type 'riddle'"),
        ('{"text": "a", "ids": "1kpn46"}', "ids is not a list"),
        ('{"text": "a", "ids": ["zzzzzz"]}', "line 1: no memory starts with zzzzzz"),
        ('{"text": "a", "project": 3}', "project and generator must be text"),
    ],
)
def test_a_broken_file_of_questions_is_refused_whole(
    engine: LocalEngine, tmp_path: Path, text: str, words: str
) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text(text)
    with pytest.raises(BadInput, match=words):
        import_questions(engine, path)
    assert questions_of(engine) == {}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"memory": "M", "grade": 1}, "has no question"),
        ({"question": "nobody asked", "memory": "M", "grade": 1}, "no question 'nobody asked'"),
        ({"question": "colour", "memory": "zzzzzz", "grade": 1}, "no memory starts with"),
        ({"question": "colour", "memory": "M", "grade": 7}, "0, 1, 2 or 3, not 7"),
        ({"question": "colour", "memory": "M", "grade": True}, "0, 1, 2 or 3, not True"),
        ({"question": "colour", "memory": "M", "grade": "2"}, "0, 1, 2 or 3, not '2'"),
    ],
)
def test_a_broken_file_of_grades_is_refused_whole(
    engine: LocalEngine, write_lines: WriteLines, row: dict[str, object], words: str
) -> None:
    id = engine.remember("the kettle is red").id
    import_questions(engine, write_lines({"text": "colour"}))
    fine = {"question": "colour", "memory": id, "grade": 1}
    rows = [fine, {name: id if value == "M" else value for name, value in row.items()}]
    with pytest.raises(BadInput, match=f"line 2: .*{words}"):
        import_grades(engine, write_lines(*rows))
    assert load_labels(engine.store) == {}


def test_files_that_are_none(engine: LocalEngine, tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for name, words in (("nowhere", "cannot read"), ("bytes", "not UTF-8"), ("", "cannot read")):
        with pytest.raises(BadInput, match=words):
            import_questions(engine, tmp_path / name)
