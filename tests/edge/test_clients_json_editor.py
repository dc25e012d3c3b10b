"""Changes to JSON text: the value is what was asked for, and every other byte stays."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triskele.edge.install import json_editor
from triskele.errors import BadInput

KEYS = st.text(max_size=6) | st.sampled_from(["mcpServers", "hooks", "a"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=5)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """An object as one of many programs would write it."""
    indent = draw(st.sampled_from([None, 1, 2, 4, "\t"]))
    separators = draw(st.sampled_from([(",", ":"), (", ", ": ")])) if indent is None else None
    text = json.dumps(draw(OBJECTS), indent=indent, separators=separators, ensure_ascii=draw(st.booleans()))
    text = text.replace("\n", draw(st.sampled_from(["\n", "\r\n"])))
    return draw(st.sampled_from(["", " ", "\n"])) + text + draw(st.sampled_from(["", "\n", "  \n\n"]))


@given(text=documents(), name=KEYS, value=VALUES)
def test_put_appends_a_member_and_drop_removes_it(text: str, name: str, value: Any) -> None:
    document = json.loads(text)
    if name in document:
        return
    changed = json_editor.put(text, (name,), value)
    assert list(json.loads(changed).items()) == [*document.items(), (name, value)]
    dropped = json_editor.drop(changed, (name,))
    assert json.loads(dropped) == document
    # Of an empty document only the blanks inside its braces are lost.
    assert dropped == (text if document else text.replace(text.strip(), "{}"))


@given(text=documents(), outer=KEYS, inner=KEYS, value=VALUES)
def test_put_adds_missing_objects(text: str, outer: str, inner: str, value: Any) -> None:
    document = json.loads(text)
    if not isinstance(document.get(outer, {}), dict):
        with pytest.raises(BadInput, match="is not an object"):
            json_editor.put(text, (outer, inner), value)
        return
    expected = {**document, outer: {**document.get(outer, {}), inner: value}}
    assert json.loads(json_editor.put(text, (outer, inner), value)) == expected


@given(text=documents(), name=KEYS, value=VALUES)
def test_append_adds_the_last_element(text: str, name: str, value: Any) -> None:
    document = json.loads(text)
    if not isinstance(document.get(name, []), list):
        with pytest.raises(BadInput, match="is not a list"):
            json_editor.append(text, (name,), value)
        return
    changed = json_editor.append(text, (name,), value)
    assert json.loads(changed) == {**document, name: [*document.get(name, []), value]}
    if name in document:
        assert json.loads(json_editor.drop(changed, (name, len(document[name])))) == document


@given(text=documents(), data=st.data())
def test_put_replaces_a_value_in_place(text: str, data: st.DataObject) -> None:
    document = json.loads(text)
    if not document:
        return
    name, value = data.draw(st.sampled_from(sorted(document))), data.draw(VALUES)
    changed = json_editor.put(text, (name,), value)
    assert list(json.loads(changed).items()) == list({**document, name: value}.items())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{}", '{\n  "a": {\n    "b": 1\n  }\n}'),
        ('{"x":1}', '{"x":1, "a": {"b": 1}}'),
        ('{\n\t"x": 1\n}\n', '{\n\t"x": 1,\n\t"a": {\n\t\t"b": 1\n\t}\n}\n'),
        ('{\r\n    "x": [1,2]\r\n}', '{\r\n    "x": [1,2],\r\n    "a": {\r\n        "b": 1\r\n    }\r\n}'),
        ('{\n  "a": {},\n  "x": 1e9\n}', '{\n  "a": {\n    "b": 1\n  },\n  "x": 1e9\n}'),
        ('{\n  "a": {"c": 2},\n  "x": 1\n}', '{\n  "a": {"c": 2, "b": 1},\n  "x": 1\n}'),
    ],
)
def test_put_follows_the_layout_of_the_document(before: str, after: str) -> None:
    assert json_editor.put(before, ("a", "b"), 1) == after


def test_put_keeps_every_other_byte() -> None:
    strange = '{ "é": "\\u00e9\\ud800", "n": 1.50E+2, "a" : [ 1,2 , 3 ] ,\n\n  "a": {"q" :[ ]} }'
    changed = json_editor.put(strange, ("a", "b"), 1)
    assert changed == strange.replace('{"q" :[ ]}', '{"q" :[ ], "b": 1}')
    assert json_editor.drop(changed, ("a", "b")) == strange


@pytest.mark.parametrize("text", ["", "{", '{"a": 1,}', '// c\n{"a": 1}', '{"a": NaN}', '{"a": 1} {}', "[" * 100_000])
def test_parse_refuses_other_than_plain_json(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        json_editor.parse(text)
