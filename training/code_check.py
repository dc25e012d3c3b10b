"""Make an evaluation set of code: the functions of two installed packages, and written questions about them.

python -m training.code_check QUESTIONS.jsonl OUT_FOLDER        needs the versions of httpx and click named below

A document is one function, method or class without its methods, behind the name of its file. A question names the
functions that answer it.
"""

from __future__ import annotations

import ast
import gzip
import importlib.metadata
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path

VERSIONS = {"httpx": "0.28.1", "click": "8.5.1"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def pieces(tree: ast.Module, source: str) -> Iterator[tuple[str, str]]:
    """The qualified name and the text of each function and class."""
    lines = source.splitlines()
    for node in tree.body:
        if isinstance(node, FUNCTIONS):
            yield node.name, text_of(node, lines)
        elif isinstance(node, ast.ClassDef):
            inner = [part for part in node.body if isinstance(part, FUNCTIONS)]
            end = inner[0].lineno - 1 - len(inner[0].decorator_list) if inner else node.end_lineno
            yield node.name, "\n".join(lines[node.lineno - 1 : end])
            for part in inner:
                yield f"{node.name}.{part.name}", text_of(part, lines)


def text_of(node: ast.AST, lines: list[str]) -> str:
    """The lines of a function."""
    return "\n".join(lines[node.lineno - 1 : node.end_lineno])


def documents(package: str) -> dict[str, str]:
    """The functions of a package by their names; overloads of one name are one document."""
    if importlib.metadata.version(package) != VERSIONS[package]:
        raise SystemExit(f"{package} {VERSIONS[package]} is needed")
    found: dict[str, list[str]] = {}
    folder = Path(importlib.util.find_spec(package).origin).parent
    for path in sorted(folder.glob("**/*.py")):
        source = path.read_text()
        name = path.relative_to(folder).as_posix()
        for qualified, text in pieces(ast.parse(source), source):
            found.setdefault(f"{package}:{qualified}", [f"# {package}/{name}"]).append(text)
    return {name: "\n".join(texts) for name, texts in found.items()}


def write(path: Path, rows: list[dict]) -> None:
    """A file of JSON lines, compressed."""
    with gzip.open(path, "wt") as out:
        out.writelines(json.dumps(row) + "\n" for row in rows)


def main() -> None:
    """Write corpus, questions and judgements."""
    questions, out = Path(sys.argv[1]), Path(sys.argv[2])
    corpus = {name: text for package in VERSIONS for name, text in documents(package).items()}
    asked = [json.loads(line) for line in questions.read_text().splitlines()]
    unknown = [name for row in asked for name in row["answers"] if name not in corpus]
    if unknown:
        raise SystemExit(f"no such function: {', '.join(unknown)}")
    out.mkdir(parents=True, exist_ok=True)
    scope = {name: {"scope": name.partition(":")[0]} for name in corpus}
    write(out / "corpus.jsonl.gz", [{"id": name, "text": corpus[name], "meta": scope[name]} for name in corpus])
    rows = [
        {"id": f"code-{number}", "text": row["question"], "meta": scope[row["answers"][0]]}
        for number, row in enumerate(asked)
    ]
    write(out / "queries.jsonl.gz", rows)
    with gzip.open(out / "qrels.tsv.gz", "wt") as lines:
        lines.write("query\tdocument\tgrade\n")
        lines.writelines(f"code-{number}\t{name}\t1\n" for number, row in enumerate(asked) for name in row["answers"])
    print(f"{len(corpus)} documents, {len(rows)} questions")


if __name__ == "__main__":
    main()
