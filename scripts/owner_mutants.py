"""Take one owner condition out of the SQL of the store at a time, and see whether the contract of owners fails.

    python scripts/owner_mutants.py [--list] [--only owner.py:168 sqlite/store.py]

Every `owner = ?` and every join over owners in `store` is a mutant, except in the schema. A mutant that
passes every test is a survivor: the contract of owners has a gap there, unless EQUIVALENT says why the statement gives
the same without the condition. It takes about half an hour on one core, less with TMPDIR in memory; the exit status is
1 if a gap is found.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
SQL = Path("src", "triskele", "store")
# Tests that name owners, in their file or in their own name; the first file has what only SQLite can show. Those over
# Postgres run none of these statements.
CONTRACT = ["tests/store/test_sqlite_owners.py", "tests/contract", "-k", "owner and not postgres"]
CONDITION = re.compile(r"\+?(?:\w+\.)?\bowner = (?P<value>\?\d*|\w+\.owner\b)")
# An index that begins with the owner cannot serve a statement without that condition.
INDEXED = re.compile(r"INDEXED BY \w+ ")
# By file and the text before the condition: why no test can notice that it is gone. The condition stays: it
# lets an index serve the statement, or saves a reader this thought.
EQUIVALENT = {
    ("derived_rows.py", "(SELECT content FROM versions WHERE "): "equal hashes are equal texts; a vector has a version",
    ("derived_rows.py", "DELETE FROM merges WHERE "): "what deletes a name deletes its merges",
    ("name_rows.py", "before, after FROM merges WHERE "): "the number of a name is one owner's; names go by owner",
    ("sqlite/store.py", "({holders} WHERE "): "the number of a name is one owner's",
    ("sqlite/database.py", "SELECT 1 FROM links WHERE "): "it only decides whether the links are looked for",
    ("sqlite/database.py", "SELECT 1 FROM documents WHERE "): "it only decides whether the documents are looked for",
    (
        "sqlite/truth_rows.py",
        "SELECT row FROM readings WHERE ",
    ): "an erasure leaves no mention of a version that is gone",
    ("sqlite/truth_rows.py", "(SELECT name FROM mentions WHERE "): "the number of a name is one owner's",
    ("sqlite/truth_rows.py", "(SELECT row, name FROM mentions WHERE "): "the number of a name is one owner's",
    ("sqlite/truth_rows.py", "NULL)) < ? FROM conversations WHERE "): "it only decides whether the deletion is asked",
}


@dataclass(frozen=True)
class Mutant:
    """One owner condition in one file."""

    file: str
    line: int
    start: int
    end: int
    always: str
    before: str

    @property
    def name(self) -> str:
        """File, line and column."""
        return f"{self.file}:{self.line}:{self.start}"

    @property
    def is_equivalent(self) -> bool:
        """Whether the condition is known to change nothing."""
        return any(self.file == file and self.before.endswith(text) for file, text in EQUIVALENT)

    def applied(self, source: Path) -> str:
        """The text of the file without the condition; a bound value stays bound."""
        lines = (source / self.file).read_text().splitlines(keepends=True)
        line = lines[self.line - 1]
        lines[self.line - 1] = INDEXED.sub("", line[: self.start] + self.always + line[self.end :])
        return "".join(lines)


def main() -> int:
    """Run the contract of owners over every mutant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], help="mutants whose names begin so")
    parser.add_argument("--list", action="store_true", help="name the mutants and leave")
    given = parser.parse_args()
    chosen = [mutant for mutant in mutants() if mutant.name.startswith(tuple(given.only))]
    if given.list:
        print("\n".join(mutant.name for mutant in chosen))
        return 0
    survivors = []
    with tempfile.TemporaryDirectory(prefix="triskele-") as folder:
        tree = Path(folder) / "tree"
        for part in ("src", "tests"):
            shutil.copytree(ROOT / part, tree / part)
        shutil.copy(ROOT / "pyproject.toml", tree)
        if not passes(tree):
            print("the contract of owners fails without any mutant", file=sys.stderr)
            return 2
        for mutant in chosen:
            target = tree / SQL / mutant.file
            target.write_text(mutant.applied(ROOT / SQL))
            result = "killed" if not passes(tree) else "equivalent" if mutant.is_equivalent else "SURVIVED"
            shutil.copy(ROOT / SQL / mutant.file, target)
            survivors += [mutant.name] if result == "SURVIVED" else []
            print(f"{result:10} {mutant.name}", flush=True)
    print(f"{len(chosen)} mutants, {len(survivors)} survived", *survivors)
    return int(bool(survivors))


def mutants() -> Iterator[Mutant]:
    """Every owner condition in the SQL of the store."""
    for path in sorted((ROOT / SQL).rglob("*.py")):
        if path.name in ("schema.py", "archive.py"):
            continue
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            for found in CONDITION.finditer(line):
                value = found["value"]
                always = f"{value} IS NOT NULL" if value.startswith("?") else "1"
                yield Mutant(
                    str(path.relative_to(ROOT / SQL)), number, found.start(), found.end(), always, line[: found.start()]
                )


def passes(tree: Path) -> bool:
    """Whether the contract of owners passes in a tree; in a fork, which has the libraries loaded already."""
    import apsw  # noqa: F401
    import numpy  # noqa: F401 - loaded once for all forks
    import pytest

    child = os.fork()
    if child == 0:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        os.chdir(tree)
        sys.path.insert(0, str(tree / "src"))
        sys.dont_write_bytecode = True
        # A mutant is killed by the first test that fails.
        os._exit(pytest.main([*CONTRACT, "-x", "-q", "-p", "no:cacheprovider"]))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


if __name__ == "__main__":
    sys.exit(main())
