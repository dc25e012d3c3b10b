"""code index, search, symbol, status, remove."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from other_weights import other_weights

from triskele.code import search
from triskele.models import bundled

Run = Callable[..., Any]
Add = Callable[..., str]


@pytest.fixture
def tree(home: Path) -> Path:
    root = home.parent / "tree"
    root.mkdir()
    (root / "payment.py").write_text("class PaymentService:\n    def retry(self):\n        return 1\n")
    (root / "mail.py").write_text("from payment import PaymentService\n\nPaymentService().retry()\n")
    return root


def test_code_search_has_the_fields_of_the_contract(run: Run, tree: Path) -> None:
    status = run("code", "index", str(tree), "--json").json
    assert (status["files"], status["waiting"], status["embedding"]) == (2, 0, False)
    document = run("code", "search", "PaymentService", "--path", str(tree), "--json").json
    assert set(document["hits"][0]) >= {"path", "start_line", "end_line", "symbol", "score", "snippet", "evidence"}
    assert document["hits"][0]["path"] == "payment.py"
    shown = run("code", "search", "PaymentService", "--path", str(tree))
    assert "payment.py:1-3" in shown.out and "class PaymentService" in shown.out


def test_code_symbol_shows_uses_and_memories(run: Run, add: Add, tree: Path) -> None:
    id = add("PaymentService.retry must never run twice for one charge")
    add("A memory about payments and service in general")
    run("code", "index", str(tree))
    document = run("code", "symbol", "PaymentService.retry", "--path", str(tree), "--json").json
    assert [(each["path"], each["kind"]) for each in document["definitions"]] == [("payment.py", "function")]
    assert [each["line"] for each in document["references"]] == [3]
    assert [each["id"] for each in document["memories"]] == [id]
    assert id[:8] in run("code", "symbol", "PaymentService.retry", "--path", str(tree)).out
    assert run("code", "symbol", "Nowhere", "--path", str(tree)).code == 1


def test_code_status_and_remove(run: Run, tree: Path) -> None:
    assert "No tree is indexed" in run("code", "status").out
    run("code", "index", str(tree))
    [indexed] = run("code", "status", "--json").json["trees"]
    assert (indexed["root"], indexed["files"]) == (str(tree), 2)
    assert run("code", "remove", str(tree), "--json").json == {"removed": str(tree)}
    assert run("code", "status", "--json").json == {"trees": []}


def test_code_status_names_vectors_of_before_an_update(
    run: Run, home: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRISKELE_RECALL_MODEL", "bundled")
    run("code", "index", str(tree))
    assert "vectors: 0%;" in run("code", "status").out
    search.opened(home, tree, "bundled").embed()
    assert "vectors: 100%;" in run("code", "status").out
    bundled.keep_weights(home)
    update = other_weights(home.parent / "update", name="triskele-minilm-l6-4")
    monkeypatch.setattr(bundled, "_shared", update)
    search.opened.cache_clear()
    assert "vectors: 0% (until then answers use those from before an update: 100%);" in run("code", "status").out


def test_code_search_hit_begins_with_the_matching_definition(run: Run, tree: Path) -> None:
    helpers = "".join(f"def helper_{number}(value):\n    return value + {number}\n\n\n" for number in range(12))
    (tree / "jobs.py").write_text(f"{helpers}def schedule_retries(queue):\n    return queue.later()\n")
    run("code", "index", str(tree))
    [hit, *_] = run("code", "search", "where do we schedule retries of a queue", "--path", str(tree), "--json").json[
        "hits"
    ]
    assert (hit["path"], hit["symbol"], hit["line"]) == ("jobs.py", "schedule_retries", 49)
    shown = run("code", "search", "where do we schedule retries of a queue", "--path", str(tree)).out
    assert "def schedule_retries(queue):" in shown and "helper_0" not in shown


def test_code_search_does_not_wrap_lines(run: Run, tree: Path) -> None:
    line = f"def settle({', '.join(f'argument_{number}' for number in range(20))}):"
    (tree / "long.py").write_text(f"{line}\n    return 1\n")
    run("code", "index", str(tree))
    assert f"  {line}" in run("code", "search", "settle", "--path", str(tree)).out.splitlines()


def test_code_search_names_the_long_definition_around_a_hit(run: Run, tree: Path) -> None:
    steps = "".join(f"    total += quantity * {number}\n" for number in range(90))
    ending = "    return settle_the_ledger(total)\n\n\ndef other(value):\n    return value\n"
    (tree / "ledger.py").write_text(f"def balance(quantity):\n    total = 0\n{steps}{ending}")
    run("code", "index", str(tree))
    [hit, *_] = run("code", "search", "where is the ledger settled", "--path", str(tree), "--json").json["hits"]
    assert (hit["path"], hit["symbol"]) == ("ledger.py", "balance") and 1 < hit["line"] == hit["start_line"]


def test_code_search_reports_missing_vectors(run: Run, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("code", "index", str(tree))
    question = ("code", "search", "who pays again", "--path", str(tree))
    assert "Searched by words only: no vectors yet" in run(*question).err
    run("code", "embed", str(tree))
    assert run(*question).err == ""
    monkeypatch.setenv("TRISKELE_RECALL_MODEL", "none")
    assert run(*question).err == ""


def test_code_search_without_index_names_the_command(run: Run, tree: Path) -> None:
    assert run("code", "search", "mail", "--path", str(tree)).is_refused(1, "not indexed", "triskele code index")
    assert run("code", "index", str(tree / "mail.py")).is_refused(2, "not a folder")


def test_code_index_names_a_missing_extra(run: Run, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tree_sitter_language_pack", None)
    assert run("code", "index", str(tree)).is_refused(3, "triskele[code]")


def test_bench_measures_a_suite_of_code_questions(run: Run, tree: Path) -> None:
    suite = tree.parent / "suite.json"
    case = {"id": "a", "tree": "tree", "question": "PaymentService", "expected": {"payment.py": 3}}
    suite.write_text(json.dumps({"format": "triskele-code-suite-1", "trees": {"tree": {}}, "cases": [case]}))
    report = run("bench", str(suite), "--trees", str(tree.parent), "--json").json
    assert report["arms"]["lexical"]["ndcg@10"] == 1
    assert "lexical" in run("bench", str(suite), "--trees", str(tree.parent), "--arms", "bm25,lexical").out
    assert run("bench", str(suite), "--trees", str(tree)).is_refused(2, "tree")


def test_show_lists_code_that_a_memory_names(run: Run, add: Add, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    id = add("PaymentService.retry must never run twice for one charge")
    assert run("show", id, "--json").json["code"] == []
    run("code", "index", str(tree))
    monkeypatch.chdir(tree)
    [definition] = run("show", id, "--json").json["code"]
    assert (definition["path"], definition["start_line"], definition["symbol"]) == (
        "payment.py",
        2,
        "PaymentService.retry",
    )
    assert "payment.py:2" in run("show", id).out


@pytest.mark.slow
def test_code_embed_imports_no_file_of_the_tree(
    run: Run, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / "types.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    monkeypatch.chdir(tree)
    monkeypatch.setenv("TRISKELE_AGENTS_BACKGROUND", "true")
    monkeypatch.setenv("TRISKELE_RECALL_MODEL", "bundled")
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        started.append(real(command, **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    run("code", "index", str(tree))
    assert [process.wait(timeout=60) for process in started] == [0]
    assert not (tmp_path / "ran").exists()
    # A file that came since is embedded after the search that notices it.
    (tree / "later.py").write_text("def settle_accounts():\n    return 1\n")
    assert 0 < run("code", "search", "settle accounts", "--path", str(tree), "--json").json["embedded"] < 1
    assert [process.wait(timeout=60) for process in started] == [0, 0]
    assert run("code", "search", "settle accounts", "--path", str(tree), "--json").json["embedded"] == 1
