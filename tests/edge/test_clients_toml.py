"""A table of our own in TOML text: what others wrote stays, and nothing is written that says something else."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triskele.edge.install.entries import TomlServer
from triskele.errors import BadInput

PATH = ("mcp_servers", "triskele")
ENTRY: dict[str, Any] = {"command": "/opt/py thon", "args": ["-m", 'a "b"\\'], "env": {"TRISKELE_HOME": "/home/ü"}}
OTHERS = [
    "",
    "# only a comment",
    'model = "o3"  # mine\n\n[mcp_servers.other]\ncommand = "x"\n',
    'model = "o3"\r\n[projects."/a]b#c"]\r\ntrust_level = "trusted"\r\n',
    "[mcp_servers]\n# nobody yet\n",
    "text = '''\n[mcp_servers.other]\n'''\nlist = [\n  [1],\n  [2],\n]\n[[things]]\nn = 1",
]


@pytest.mark.parametrize("text", OTHERS)
def test_toml_put_adds_the_table_once_and_drop_removes_it(text: str) -> None:
    changed = TomlServer(PATH, ENTRY).put(text)
    assert changed.startswith(text)
    assert tomllib.loads(changed)["mcp_servers"]["triskele"] == ENTRY
    assert TomlServer(PATH, ENTRY).put(changed) == changed
    assert TomlServer(PATH, ENTRY).drop(changed) in (text, f"{text}\n", f"{text}\r\n")


@pytest.mark.parametrize("text", OTHERS)
def test_toml_drop_keeps_later_tables(text: str) -> None:
    theirs = '\n# about the next\n[mcp_servers.later]\ncommand = "y"\n\n[projects."/w#]"]\ntrust_level = "trusted"\n'
    changed = TomlServer(PATH, ENTRY).put(text) + theirs
    assert TomlServer(PATH, ENTRY).drop(changed).endswith(theirs)
    assert tomllib.loads(TomlServer(PATH, ENTRY).drop(changed)) == tomllib.loads(f"{text}\n{theirs}")


def test_toml_put_replaces_an_older_entry() -> None:
    older = TomlServer(PATH, {"command": "old", "args": []}).put("a = 1\n")
    assert TomlServer(PATH, ENTRY).put(older) == TomlServer(PATH, ENTRY).put("a = 1\n")


def test_toml_drop_removes_values_added_to_the_table() -> None:
    changed = TomlServer(PATH, {"command": "x"}).put("a = 1\n") + "startup_timeout_sec = 9\n# why\n[b]\n"
    assert TomlServer(PATH, ENTRY).drop(changed) == "a = 1\n# why\n[b]\n"


@pytest.mark.parametrize(
    "text",
    [
        'mcp_servers = { triskele = { command = "x" } }\n',
        '[mcp_servers]\ntriskele.command = "x"\n',
        '[mcp_servers.triskele]\ncommand = """\n[other]\n"""\n',
    ],
)
def test_toml_edits_refuse_inline_forms(text: str) -> None:
    for change in (lambda: TomlServer(PATH, ENTRY).put(text), lambda: TomlServer(PATH, ENTRY).drop(text)):
        with pytest.raises(BadInput, match="by hand"):
            change()


def test_toml_put_refuses_inline_parents() -> None:
    with pytest.raises(BadInput, match="by hand"):
        TomlServer(PATH, ENTRY).put('mcp_servers = { other = { command = "x" } }\n')


@given(value=st.text(st.characters(codec="utf-8"), max_size=20))
def test_toml_put_quotes_every_text(value: str) -> None:
    changed = TomlServer(PATH, {"command": value, "args": [value]}).put("")
    assert tomllib.loads(changed)["mcp_servers"]["triskele"] == {"command": value, "args": [value]}
