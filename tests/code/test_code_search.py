"""Ranking rules, explanations, secrets in snippets, symbols and vectors."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from other_weights import other_weights

from triskele.code import embedding
from triskele.code.paths import PathFacts
from triskele.code.question import CodeQuestion
from triskele.code.ranking import MOST_PER_FILE, CodePlan
from triskele.code.rules import PENALTY, RULES
from triskele.code.search import CodeSearch
from triskele.errors import BadInput
from triskele.models.embedder import Encoding
from triskele.recall.fusion import METHODS

FILES = {
    "shop/payment_service.py": "# Charges.\n\nclass PaymentService:\n    def retry(self, sum):\n        return sum\n",
    "shop/mail.py": "from shop.payment_service import PaymentService\n\ndef notify():\n    PaymentService().retry(1)\n",
    "shop/notes.py": "# retry is explained elsewhere\nX = 1\n",
    "shop/ledger.py": "def book(entry):\n    '''Write a double entry.'''\n    return entry\n",
    "tests/test_ledger.py": "def test_book():\n    '''Write a double entry.'''\n    assert book(1) == 1\n",
    "docs/ledger.md": "# Ledger\n\nWrite a double entry with book.\n",
    "web/client.js": "function fetchLedger() { return 'PaymentService'; }\n",
}


class CountingEmbedder:
    """Vectors of three words; counts what it embeds."""

    fingerprint, dimensions, token_dimensions = "counting", 3, 0

    def __init__(self) -> None:
        self.texts: list[str] = []

    def encode_query(self, text: str) -> Encoding:
        return self._encoding(text)

    def encode_documents(self, texts: Sequence[str]) -> list[Encoding]:
        self.texts += texts
        return [self._encoding(text) for text in texts]

    def _encoding(self, text: str) -> Encoding:
        counts = np.array([text.count("mail") + text.count("letter"), text.count("entry"), 1], dtype=np.float32)
        none = np.empty((0, 2), dtype=np.int32)
        return Encoding(counts / np.linalg.norm(counts), np.empty((0, 3), np.float32), none[:, 0], none)


@pytest.fixture
def search(tmp_path: Path) -> CodeSearch:
    for name, text in FILES.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    search = CodeSearch(tmp_path / "home", tmp_path / "tree")
    search.index()
    return search


def _paths(search: CodeSearch, question: str, plan: CodePlan | None = None) -> list[str]:
    return list(dict.fromkeys(hit.path for hit in search.search(question, plan=plan).hits))


def test_a_definition_stands_before_its_uses(search: CodeSearch) -> None:
    [first, *_] = search.search("PaymentService.retry").hits
    assert (first.path, first.symbol) == ("shop/payment_service.py", "PaymentService.retry")
    assert first.evidence["definition"] > 0
    assert "defines it" in first.reason
    assert "class PaymentService" in first.snippet


def test_tests_and_documentation_rank_last_by_default(search: CodeSearch) -> None:
    assert _paths(search, "write a double entry")[0] == "shop/ledger.py"
    assert _paths(search, "test that a double entry is written")[0] == "tests/test_ledger.py"
    assert _paths(search, "documentation of the double entry ledger")[0] == "docs/ledger.md"


def test_every_rule_can_be_switched_off(search: CodeSearch) -> None:
    for name in RULES:
        hits = search.search("PaymentService ledger", plan=CodePlan(without=frozenset({name}))).hits
        assert hits and all(name not in hit.evidence for hit in hits)
    assert all(set(RULES) <= set(hit.evidence) for hit in search.search("PaymentService ledger").hits)


def test_the_evidence_makes_up_the_score(search: CodeSearch) -> None:
    best = search.search("double entry ledger").hits[0]
    added = sum(best.evidence[name] for name in ("words", *RULES) if name != PENALTY)
    assert added * best.evidence[PENALTY] == pytest.approx(best.evidence["total"], abs=0.01)
    assert best.score == pytest.approx(best.evidence["total"], abs=0.001)


def test_at_most_two_hits_of_a_file(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    (root / "a.py").write_text("".join(f"def ledger_{n}():\n    '''{'entry ' * 150}'''\n" for n in range(9)))
    search = CodeSearch(tmp_path / "home", root)
    search.index()
    assert len(search.search("ledger entry").hits) == MOST_PER_FILE


def test_a_folder_limits_the_answer(search: CodeSearch) -> None:
    assert {hit.path for hit in search.search("double entry", under="tests/").hits} == {"tests/test_ledger.py"}


@pytest.mark.parametrize("question", ["", "  ", "\n"])
def test_an_empty_question_is_refused(search: CodeSearch, question: str) -> None:
    with pytest.raises(BadInput, match="empty"):
        search.search(question)


@pytest.mark.parametrize("question", ["the", "?!", "a" * 100_000, "🐍", "(((", "\\", "\0"])
def test_odd_questions_are_answered(search: CodeSearch, question: str) -> None:
    assert len(search.search(question).hits) <= 10


def test_symbols_with_their_uses(search: CodeSearch) -> None:
    found = search.symbol("PaymentService")
    [place] = found.definitions
    assert (place.path, place.definition.kind, place.definition.start_line) == ("shop/payment_service.py", "type", 3)
    # Not the string in JavaScript.
    assert [(use.path, use.line) for use in found.references] == [("shop/mail.py", 1), ("shop/mail.py", 4)]
    assert [each.definition.name for each in search.symbol("payment_service").definitions] == ["PaymentService"]
    assert search.symbol("PaymentService.retry").definitions[0].definition.depth == 1
    assert search.symbol("Other.retry").definitions == ()
    # Not the comment.
    assert len(search.symbol("retry").references) == 1


def test_a_text_names_symbols(search: CodeSearch) -> None:
    named = search.mentioned("Never call PaymentService.retry twice, see `book`; other words name nothing.")
    assert [each.definition.qualified for each in named] == ["PaymentService.retry", "book"]


@pytest.mark.parametrize(
    ("text", "is_symbol", "symbols"),
    [
        ("PaymentService.retry", True, (("retry", "PaymentService"),)),
        ("std::vector", True, (("vector", "std"),)),
        ("parse_header()", True, (("parse_header", ""),)),
        ("session", False, ()),
        ("how does getUser work", False, (("getUser", ""),)),
        ("what calls `book` first", False, (("book", ""),)),
    ],
)
def test_the_intent_of_a_question(text: str, is_symbol: bool, symbols: tuple[tuple[str, str], ...]) -> None:
    assert (CodeQuestion(text).is_symbol, CodeQuestion(text).symbols) == (is_symbol, symbols)


@pytest.mark.parametrize(
    ("path", "kind", "stem"),
    [
        ("tests/a.py", "test", "a"),
        ("src/FooTest.java", "test", "footest"),
        ("src/latest.py", "", "latest"),
        ("src/contest/a.py", "", "a"),
        ("a.spec.ts", "test", "a"),
        ("benchmarks/x.py", "benchmark", "x"),
        ("examples/x.py", "example", "x"),
        ("README.md", "documentation", "readme"),
        ("a.d.ts", "stub", "a"),
        ("src/routing/__init__.py", "", "routing"),
    ],
)
def test_paths_give_words_and_kind(path: str, kind: str, stem: str) -> None:
    facts = PathFacts.of(path)
    assert (facts.kind, facts.stem) == (kind, stem)


@pytest.mark.parametrize("fusion", METHODS)
def test_every_fusion_takes_meaning_in(tmp_path: Path, search: CodeSearch, fusion: str) -> None:
    embedder = CountingEmbedder()
    meaning = CodeSearch(tmp_path / "home", search.root, embedder)
    assert meaning.embed() == 0
    answer = meaning.search("letter to a customer", plan=CodePlan(fusion=fusion, dense=0.9))
    assert answer.embedded == 1.0
    assert answer.hits[0].path == "shop/mail.py"
    assert answer.hits[0].evidence["dense_share"] > 0


def test_kept_weights_answer_until_an_update_has_embedded_as_much(tmp_path: Path, search: CodeSearch) -> None:
    home, earlier = tmp_path / "home", other_weights(tmp_path / "package", name="triskele-minilm-l6-2")
    shutil.copytree(earlier._folder, home / "models" / earlier.fingerprint)
    CodeSearch(home, search.root, earlier).embed()
    later = CountingEmbedder()
    updated = CodeSearch(home, search.root, later, earlier=[earlier.fingerprint])
    assert updated.search("letter").embedded == 1 and updated.reads_earlier
    assert (updated.status().embedded, updated.status().by_earlier) == (0, 1), "the progress of the new one"
    assert CodeSearch(home, search.root, later).search("letter").embedded == 0
    updated.embed()
    assert updated.search("letter").embedded == 1 and not updated.reads_earlier
    assert (updated.status().embedded, updated.status().by_earlier) == (1, 0)
    # The earlier file does not grow any more.
    (search.root / "shop" / "letter.py").write_text("def letter():\n    return 'letter'\n")
    assert updated.search("letter").embedded < 1 and not updated.reads_earlier
    shutil.rmtree(home / "models")
    lost = CodeSearch(home, search.root, CountingEmbedder(), earlier=[earlier.fingerprint])
    assert (lost.status().by_earlier, lost.reads_earlier) == (0, False)


def test_a_text_is_embedded_once(tmp_path: Path, search: CodeSearch) -> None:
    embedder = CountingEmbedder()
    meaning = CodeSearch(tmp_path / "home", search.root, embedder)
    meaning.embed()
    count = len(embedder.texts)
    assert count == 2 * len(FILES)
    (search.root / "shop" / "mail.py").write_text("def notify():\n    return 'new'\n")
    meaning.embed()
    # The chunk; the card stays the same.
    assert len(embedder.texts) == count + 1


def test_embedding_stops_when_its_time_is_over_and_goes_on(
    tmp_path: Path, search: CodeSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "BATCH", 1)
    embedder = CountingEmbedder()
    meaning = CodeSearch(tmp_path / "home", search.root, embedder)
    assert meaning.embed(budget_s=0) == 2 * len(FILES)
    assert meaning.search("double entry").hits[0].path == "shop/ledger.py"

    def stop(done: int, _: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        meaning.embed(stop)
    assert 0 < meaning.status().embedded < 1
    meaning.embed()
    assert len(embedder.texts) == 2 * len(FILES)


def test_a_torn_vector_file_is_cut_and_written_again(tmp_path: Path, search: CodeSearch) -> None:
    embedder = CountingEmbedder()
    meaning = CodeSearch(tmp_path / "home", search.root, embedder)
    meaning.embed()
    [keys] = (tmp_path / "home").rglob("*.keys")
    keys.write_bytes(keys.read_bytes()[:-3])
    assert meaning.status().embedded < 1
    meaning.embed()
    assert meaning.status().embedded == 1


def test_a_bare_name_is_ranked_without_meaning(tmp_path: Path, search: CodeSearch) -> None:
    meaning = CodeSearch(tmp_path / "home", search.root, CountingEmbedder())
    meaning.embed()
    assert all("dense_share" not in hit.evidence for hit in meaning.search("PaymentService").hits)


def test_words_of_paths_match_from_three_letters_on(search: CodeSearch) -> None:
    corpus, _ = search._corpus()
    assert corpus.path_words_like("payments") == {"payment"}
    assert corpus.path_words_like("pay") == {"payment"}
    assert corpus.path_words_like("pa") == set()
    assert corpus.path_words_like("shop") == {"shop"}


def test_odd_file_names_are_indexed_and_printable(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    (root / "two\nlines.py").write_text("def ledger_entry():\n    pass\n")
    with open(os.fsencode(root) + b"/\xff.py", "wb") as target:
        target.write(b"def ledger_book():\n    return '\xfe'\n")
    embedder = CountingEmbedder()
    search = CodeSearch(tmp_path / "home", root, embedder)
    search.index()
    search.embed()
    paths = [hit.path for hit in CodeSearch(tmp_path / "home", root).search("ledger").hits]
    assert sorted(paths) == ["two\nlines.py", "\ufffd.py"]
    assert all(text.encode() for text in [*paths, *embedder.texts])
    assert {each.path for each in search.symbol("ledger_book").definitions} == {"\ufffd.py"}


def _functions(tmp_path: Path, embedder: CountingEmbedder | None = None) -> CodeSearch:
    """Four functions in one file, each a chunk of its own, and a test that repeats one of them."""
    padding = "    value = value + 1\n" * 80
    names = ("carry", "deliver", "balance", "settle")
    letters = {"deliver": "    # letter letter letter\n"}
    text = "\n\n".join(f"def {name}(value):\n{letters.get(name, '')}{padding}    return value" for name in names)
    (tmp_path / "tree/tests").mkdir(parents=True)
    (tmp_path / "tree/post.py").write_text(text + "\n")
    (tmp_path / "tree/tests/test_post.py").write_text("def test_balance():\n    assert balance(1)\n")
    search = CodeSearch(tmp_path / "home", tmp_path / "tree", embedder)
    search.index()
    search.embed()
    return search


def test_by_function_every_place_counts_by_itself(tmp_path: Path) -> None:
    search = _functions(tmp_path)
    by_file = search.search("add one to the value and return value").hits
    by_function = search.search("add one to the value and return value", plan=CodePlan(granularity="function")).hits
    assert len([hit for hit in by_file if hit.path == "post.py"]) == MOST_PER_FILE
    assert len([hit for hit in by_function if hit.path == "post.py"]) > MOST_PER_FILE
    assert search.search("balance", plan=CodePlan(granularity="function")).hits[0].symbol == "balance"


def test_by_function_tests_stand_behind(tmp_path: Path) -> None:
    hits = _functions(tmp_path).search("what is the balance of it", plan=CodePlan(granularity="function")).hits
    assert [hit.path for hit in hits[:2]] == ["post.py", "tests/test_post.py"]


@pytest.mark.parametrize("granularity", ["file", "function"])
def test_meaning_chooses_the_place_inside_a_file(tmp_path: Path, granularity: str) -> None:
    search = _functions(tmp_path, CountingEmbedder())
    hits = search.search("mail the value", plan=CodePlan(granularity=granularity)).hits
    assert hits[0].path == "post.py" and "letter" in hits[0].snippet


def test_vectors_are_read_again_only_when_there_are_more(
    tmp_path: Path, search: CodeSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in search.root.rglob("*.*"):
        os.utime(path, (1, 1))  # a file that was just written is read again
    reads: list[int] = []
    load = embedding.VectorFile.load
    monkeypatch.setattr(embedding.VectorFile, "load", lambda self: reads.append(1) or load(self))
    meaning = CodeSearch(tmp_path / "home", search.root, CountingEmbedder())
    assert meaning.search("send a letter").embedded == 0
    meaning.embed()
    assert meaning.search("send a letter").embedded == 1
    before = len(reads)
    meaning.search("write an entry")
    assert len(reads) == before
