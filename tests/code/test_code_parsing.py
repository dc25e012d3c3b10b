"""Definitions, comments and chunks of source files."""

from __future__ import annotations

import pytest

from triskele.code.chunking import MAX_CHARACTERS, MAX_LINES, WINDOW_LINES
from triskele.code.languages import grammar, language_of
from triskele.code.parsing import COMMENT, HEAD, NAME, parse
from triskele.code.words import parts, stem, term, terms_of, whole

SAMPLES = {
    "python": ("class A:\n    def f(self): pass\nasync def g(): pass\nX = 1\n", {"A", "A.f", "g", "X"}),
    "javascript": (
        "class A { m() {} }\nconst f = () => 1;\nfunction g() {}\nconst r = require('x');",
        {"A", "A.m", "f", "g"},
    ),
    "typescript": ("export interface I { k(): void }\ntype T = string;\nexport enum E { A }", {"I", "I.k", "T", "E"}),
    "go": ("package p\nfunc F() {}\nfunc (s *S) M() {}\ntype S struct{}\n", {"F", "M", "S"}),
    "rust": ("struct A; impl A { fn f(&self) {} }\ntrait T { fn g(); }\n", {"A", "A.f", "T", "T.g"}),
    "java": ("class A { A() {} void m() {} }\ninterface I {}", {"A", "A.A", "A.m", "I"}),
    "c": ("struct s { int a; };\nint *f(int x) { return 0; }\n#define M(x) x\n", {"s", "f", "M"}),
    "cpp": ("namespace n { class A { }; int A::f() { return 1; } }\n", {"n", "n.A", "n.A.f"}),
    "csharp": ("namespace N { class A { int P {get;set;} void M() {} } }", {"N", "N.A", "N.A.P", "N.A.M"}),
    "ruby": ("module M\n class A\n  def f\n  end\n  def self.g\n  end\n end\nend\n", {"M", "M.A", "M.A.f", "M.A.g"}),
    "php": ("<?php class A { function f() {} } function g() {}", {"A", "A.f", "g"}),
    "kotlin": ("class A { fun f() {} }\nobject O {}\n", {"A", "A.f", "O"}),
    "swift": ("class A { func f() {} }\nprotocol P { func g() }\n", {"A", "A.f", "P", "P.g"}),
    "bash": ("f() { echo; }\nfunction g { echo; }\n", {"f", "g"}),
    "markdown": ("# One\n\ntext\n\n## Two\n", {"One", "Two"}),
    "sql": ("CREATE TABLE a (id int);\nCREATE VIEW v AS SELECT 1;\n", {"a", "v"}),
}


@pytest.mark.parametrize("language", SAMPLES)
def test_definitions_of_every_language(language: str) -> None:
    source, expected = SAMPLES[language]
    parsed = parse(source.encode(), language)
    assert expected <= {each.qualified for each in parsed.definitions}
    assert "r" not in {each.name for each in parsed.definitions}
    assert parsed.chunks


def test_kinds_lines_and_signatures() -> None:
    source = b"\n\nclass Session(Base):\n    def get(self, url: str,\n      timeout: float) -> int:\n        pass\n"
    kinds = {each.qualified: each for each in parse(source, "python").definitions}
    assert (kinds["Session"].kind, kinds["Session"].start_line, kinds["Session"].end_line) == ("type", 3, 6)
    assert kinds["Session.get"].signature == "def get(self, url: str, timeout: float) -> int"
    assert kinds["Session.get"].depth == 1


def test_local_variables_are_no_definitions() -> None:
    names = {
        each.name for each in parse(b"function f() { const inner = 1; }\nconst outer = 2;", "javascript").definitions
    }
    assert names == {"f", "outer"}


@pytest.mark.parametrize(
    "source",
    [
        b"",
        b"\n\n\n",
        b"class A(:\n  def (\n\xff\xfe",
        b"(" * 20_000,
        b"def f():\n" + b"    x = 1\n" * 5000,
        b"x = '" + b"a" * 100_000 + b"'",
        b"\n" * 3000 + b"x = 1\n",
        "ä = 'ü'\n".encode() * 800,
    ],
    ids=["empty", "blank", "broken", "nested", "long", "one line", "blank lines", "umlauts"],
)
def test_any_bytes_give_bounded_chunks_in_order(source: bytes) -> None:
    chunks = parse(source, "python").chunks
    lines = source.count(b"\n") + 1
    assert all(1 <= each.start_line <= each.end_line <= lines for each in chunks)
    assert all(each.end_line - each.start_line <= MAX_LINES for each in chunks)
    assert [each.start_line for each in chunks] == sorted(each.start_line for each in chunks)


def test_small_siblings_share_a_chunk_and_long_ones_are_split() -> None:
    small = b"".join(b"def f%d():\n    return %d\n\n" % (n, n) for n in range(200))
    chunks = parse(small, "python").chunks
    assert 3 <= len(chunks) <= 8
    covered = {line for each in chunks for line in range(each.start_line, each.end_line + 1)}
    assert set(range(1, 600)) <= covered | set(range(3, 601, 3))
    long = b"def f():\n" + b"".join(b"    call_%d(argument)\n" % n for n in range(300))
    assert len(parse(long, "python").chunks) >= len(long) // (MAX_CHARACTERS + 200)


def test_a_language_without_a_grammar_is_cut_by_lines() -> None:
    assert grammar("no such language") is None
    chunks = parse(b"line\n" * 100, "no such language").chunks
    assert [(each.start_line, each.end_line) for each in chunks] == [(1, WINDOW_LINES), (33, 72), (65, 100)]


def test_names_comments_and_the_head_are_fields_of_their_own() -> None:
    source = b'# Copyright someone\n"""Retries of failed payments."""\n\ndef schedule():\n    """Back off slowly."""\n'
    fields = parse(source, "python").chunks[0].fields
    assert term(stem("schedule")) in fields[NAME]
    assert term(stem("slowly")) in fields[COMMENT]
    assert term(stem("payments")) in fields[HEAD] and term(stem("copyright")) not in fields[HEAD]


def test_identifiers_are_terms_whole_and_split() -> None:
    assert parts("getUserById2") == ("get", "user", "by", "id", "2")
    assert parts("HTTPServer_v2") == ("http", "server", "v", "2")
    assert whole("user_id") == whole("userId") == whole("UserID")
    assert [number for number, _ in terms_of("user_id")] == [term("user"), term("id"), term("=userid")]
    assert terms_of("x" * 100) == ()


@pytest.mark.parametrize(
    ("path", "head", "language"),
    [
        ("a.h", b"int f(void);", "c"),
        ("a.h", b"namespace n {", "cpp"),
        ("run", b"#!/bin/sh\n", "bash"),
        ("a.PY", b"", "python"),
        ("a.png", b"", None),
    ],
)
def test_the_language_of_a_file(path: str, head: bytes, language: str | None) -> None:
    assert language_of(path, head) == language


def test_a_signature_hides_long_literals_and_keeps_the_rest() -> None:
    source = b"def dump(key: str = '', path: str = '/', salt='0123456789', size: int = 4093):\n    pass\n"
    [definition] = parse(source, "python").definitions
    assert definition.signature == "def dump(key: str = '', path: str = '/', salt='…', size: int = 4093)"


def test_a_literal_is_hidden_beside_escaped_and_unpaired_quotes() -> None:
    source = b"def f(q='\\'', k='hunter2hunter2hunter2'):\n    pass\n"
    [definition] = parse(source, "python").definitions
    assert definition.signature == "def f(q='\\'', k='\xe2\x80\xa6')".encode("latin-1").decode()
