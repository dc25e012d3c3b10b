"""A table of our own in TOML text: what others wrote stays, and nothing is written that says something else."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triskele.edge.install.entries import drop_table, put_table
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
def test_the_table_is_added_once_and_taken_out_again(text: str) -> None:
    changed = put_table(text, PATH, ENTRY)
    assert changed.startswith(text)
    assert tomllib.loads(changed)["mcp_servers"]["triskele"] == ENTRY
    assert put_table(changed, PATH, ENTRY) == changed
    assert drop_table(changed, PATH) in (text, f"{text}\n", f"{text}\r\n")


@pytest.mark.parametrize("text", OTHERS)
def test_what_others_write_behind_it_stays(text: str) -> None:
    theirs = '\n# about the next\n[mcp_servers.later]\ncommand = "y"\n\n[projects."/w#]"]\ntrust_level = "trusted"\n'
    changed = put_table(text, PATH, ENTRY) + theirs
    assert drop_table(changed, PATH).endswith(theirs)
    assert tomllib.loads(drop_table(changed, PATH)) == tomllib.loads(f"{text}\n{theirs}")


def test_an_older_entry_is_replaced() -> None:
    older = put_table("a = 1\n", PATH, {"command": "old", "args": []})
    assert put_table(older, PATH, ENTRY) == put_table("a = 1\n", PATH, ENTRY)


def test_values_that_were_added_to_our_table_go_with_it() -> None:
    changed = put_table("a = 1\n", PATH, {"command": "x"}) + "startup_timeout_sec = 9\n# why\n[b]\n"
    assert drop_table(changed, PATH) == "a = 1\n# why\n[b]\n"


@pytest.mark.parametrize(
    "text",
    [
        'mcp_servers = { triskele = { command = "x" } }\n',
        '[mcp_servers]\ntriskele.command = "x"\n',
        '[mcp_servers.triskele]\ncommand = """\n[other]\n"""\n',
    ],
)
def test_a_form_of_its_own_is_left_to_its_owner(text: str) -> None:
    for change in (lambda: put_table(text, PATH, ENTRY), lambda: drop_table(text, PATH)):
        with pytest.raises(BadInput, match="by hand"):
            change()


def test_a_table_that_cannot_be_extended_is_left_alone() -> None:
    with pytest.raises(BadInput, match="by hand"):
        put_table('mcp_servers = { other = { command = "x" } }\n', PATH, ENTRY)


@given(value=st.text(st.characters(codec="utf-8"), max_size=20))
def test_every_text_is_written_as_it_is(value: str) -> None:
    changed = put_table("", PATH, {"command": value, "args": [value]})
    assert tomllib.loads(changed)["mcp_servers"]["triskele"] == {"command": value, "args": [value]}
