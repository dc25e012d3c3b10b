"""Recall over a real Postgres: quality and speed of both corpora, compared with SQLite and the usual recipe.

    TRISKELE_BENCH_DATA=folder python benchmarks/postgres.py quality STORES RESULT [SET ...]
    TRISKELE_BENCH_DATA=folder python benchmarks/postgres.py speed STORES RESULT ROWS

STORES has an embedded store of each data set: `TRISKELE_BENCH_CACHE=STORES/SET triskele bench SET --arms default
--max-queries 1` makes one. `quality` moves rows and vectors of each into Postgres and asks the same questions of every
arm. `speed` makes a store of ROWS memories of one owner and a hundredth as many of another: texts are cut from the data
sets, vectors are those of the stores with noise.

One question is, for every arm of `speed`: encode it in this process by the bundled model, take a connection of a pool,
begin a transaction and set what it needs there, ask, and return ten hits with texts and labels. Processor time is that
of this process and of the server's processes behind its connections. Server and client share the machine; `fsync` is
off. Every question is asked of all arms in turn; the ratios to each form of the recipe, by the clock and of processor
time, are medians over the questions. “Not slower than the recipe” means the clock: that is what a client waits for.

`recipe.py` has the usual recipe.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import apsw
import numpy as np
import psycopg
import texts
from recipe import DEPTH, FORMS, Recipe

from triskele import config
from triskele.bench.datasets import BenchQuery, Dataset, windows
from triskele.bench.harness import BenchHarness, PrecomputedQueries, best_documents
from triskele.bench.loaders import load_dataset
from triskele.bench.measure import RankedDocument
from triskele.bench.metrics import evaluate
from triskele.engine.local import LocalEngine
from triskele.engine.models import Models
from triskele.index.token_vectors import packed, to_row
from triskele.models.bundled import bundled
from triskele.models.embedder import Embedder
from triskele.recall.plan import Plan
from triskele.server.corpus import DatabaseIndexes
from triskele.server.postgres import vector_extension
from triskele.store.rows import VERSION_COLUMNS, from_memory, version_hash
from triskele.store.vector_bytes import restored, row_of, sound_rows
from triskele.text.ids import content_hash
from triskele.types import Sort

ASKED = 200
HITS = 10
_WARM_UP = 10
# Columns that both stores have; rows keep their numbers.
TABLES = {
    "versions": f"row, {VERSION_COLUMNS}, row_hash",
    "names": "owner, name, key, block, text, any_case, spread, concept",
    "mentions": "owner, row, name, kind",
    "merges": "owner, merge, name, before, after, reason, at",
    "marks": "owner, name, value",
}


def server_module() -> Any:
    """The server of the tests, with memory for more rows."""
    path = Path(__file__).parent.parent / "tests" / "postgres.py"
    spec = importlib.util.spec_from_file_location("postgres_server", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kept = [setting for setting in module._QUICK if not setting.startswith("shared_buffers")]
    module._QUICK = (*kept, "shared_buffers=768MB", "maintenance_work_mem=512MB", "max_wal_size=4GB")
    return module


def open_engine(url: str, home: Path, corpus: str, owner: str = "me") -> LocalEngine:
    """An engine over a store, by one of its corpora."""
    environment = {"TRISKELE_HOME": str(home), "TRISKELE_STORE_CORPUS": corpus, "TRISKELE_MEMORY_OWNER": owner}
    return LocalEngine(config.load({**environment, "TRISKELE_PROJECT": "bench"}, store_url=url), home)


def rehearse(engine: LocalEngine, known: PrecomputedQueries | None = None) -> PrecomputedQueries:
    """Let an engine encode every query once, or read what another has encoded."""
    semantic = engine.semantic()
    assert semantic is not None, "the benchmark needs the bundled model"
    embedder = known or PrecomputedQueries(semantic.embedder)
    engine.models._semantic = replace(semantic, embedder=embedder)
    return embedder


# Quality


def quality(stores: Path, names: Sequence[str]) -> dict[str, Any]:
    """nDCG@10 of every arm on some sets."""
    found: dict[str, Any] = {}
    with server_module().running_server() as server, tempfile.TemporaryDirectory() as scratch:
        for name in names:
            url = server.create()
            sample = Path(str(resources.files("triskele.samples") / name))
            dataset = load_dataset(sample if sample.is_dir() else texts.data_folder() / name)
            found[name] = _quality_of(dataset, stores / name, url, Path(scratch) / name)
            print(json.dumps({name: found[name]}), flush=True)
            server.drop(url)
    return found


def _quality_of(dataset: Dataset, store: Path, url: str, home: Path) -> dict[str, Any]:
    for folder in store.glob("harness-*"):
        shutil.copytree(folder, home / "file")
    harness = BenchHarness(windows(dataset.documents), folder=home / "file")
    source = harness.engine
    source.upkeep.embed()
    asked = dataset.ranked()[:: max(1, len(dataset.ranked()) // ASKED)][:ASKED]
    move(source, url)
    known = rehearse(source)
    arms: dict[str, Callable[[BenchQuery], list[str]]] = {"sqlite": recalled(source, harness)}
    engines = {corpus: open_engine(url, home / corpus, corpus) for corpus in ("local", "database")}
    for corpus, engine in engines.items():
        rehearse(engine, known)
        arms[f"postgres {corpus}"] = recalled(engine, harness)
    documents = {row: harness.document(memory.id) for row, memory in source.store.versions()}
    engines["database"].recall("anything", all_projects=True, logged=False)
    recipe = Recipe(url, known.dimensions)
    for kind in FORMS:
        arms[f"recipe {kind}"] = lambda query, kind=kind: _best(
            documents, recipe.ask(kind, query.text, known.encode_query(query.text).sentence, project=query.scope)
        )
    arms["rrf in sql"] = lambda query: _best(documents, _rrf_in_sql(engines["database"], query))
    result = {name: measured(arm, asked, dataset) for name, arm in arms.items()}
    result["differing lists"] = sum(
        arms["sqlite"](query)[:10] != arms["postgres database"](query)[:10] for query in asked[:50]
    )
    recipe.close()
    for engine in engines.values():
        engine.close()
    harness.close()
    return result


def recalled(engine: LocalEngine, harness: BenchHarness) -> Callable[[BenchQuery], list[str]]:
    """The documents that an engine recalls for a query."""
    moments = harness.moments

    def ask(query: BenchQuery) -> list[str]:
        answer = engine.ask(
            query.text,
            Plan(),
            limit=DEPTH,
            depth=harness.depth,
            project=query.scope,
            all_projects=query.scope is None,
            as_of=moments.get(query.scope),
            local_only=True,
        )
        ranked = [RankedDocument(harness.document(hit.memory.id), hit.score, hit.score) for hit in answer.hits]
        return [document for document, _ in best_documents(ranked, DEPTH)]

    return ask


def _best(documents: dict[int, str], rows: list[Any]) -> list[str]:
    ranked = [RankedDocument(documents[row], float(score), float(score)) for row, score, *_ in rows]
    return [document for document, _ in best_documents(ranked, DEPTH)]


def _rrf_in_sql(engine: LocalEngine, query: BenchQuery) -> list[Any]:
    """Our own two legs, fused by reciprocal ranks inside the database."""
    indexes = _indexes(engine)
    scope = engine.scope(project=query.scope, all_projects=query.scope is None)
    corpus, rows = indexes.open_corpus(scope), engine.store.corpus
    words = corpus._weighted(engine.lexical.analyzer.query_terms(query.text))
    vector = corpus._query(engine.semantic().embedder.encode_query(query.text).sentence, DEPTH)
    lexical, bindings = rows._lexical(words, scope, DEPTH, Sort.RELEVANCE, None)
    dense, more = rows._dense(vector, scope, indexes.fingerprint, DEPTH)
    statement = (
        f"WITH lexical AS MATERIALIZED ({lexical}), near AS MATERIALIZED ({dense}), dense AS"
        " (SELECT row, row_number() OVER (ORDER BY distance, row) AS rank FROM near)"
        " SELECT coalesce(lexical.row, dense.row), coalesce(1.0 / (60 + lexical.rank), 0)"
        " + coalesce(1.0 / (60 + dense.rank), 0) AS score"
        " FROM lexical FULL OUTER JOIN dense ON dense.row = lexical.row ORDER BY score DESC, 1 LIMIT 100"
    )
    return rows._transactions.all(statement, [*bindings, *more])


def measured(arm: Callable[[BenchQuery], list[str]], asked: Sequence[BenchQuery], dataset: Dataset) -> dict[str, Any]:
    """nDCG@10 of an arm, and what a query takes."""
    for query in asked[:5]:
        arm(query)
    run: dict[str, list[str]] = {}
    took = [timed(lambda query=query: run.update({query.id: arm(query)})) for query in asked]
    ids = [query.id for query in asked]
    scores = evaluate(ids, dataset.qrels, run)
    return {
        "queries": len(ids),
        "ndcg@10": round(float(scores["ndcg@10"].mean()) * 100, 2),
        **spent(took),
    }


def spent(took: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Milliseconds of each call by the clock, and of processor time: other work on the machine changes that less."""
    clock, cpu = zip(*took, strict=True)
    cuts = statistics.quantiles(clock, n=20)
    found = {"p50 ms": statistics.median(clock), "p95 ms": cuts[-1], "cpu ms": statistics.median(cpu)}
    return {name: round(seconds * 1000, 1) for name, seconds in found.items()}


def timed(call: Callable[[], object]) -> tuple[float, float]:
    """Seconds of a call by the clock, and of processor time: of this process and of the connections of its servers."""
    servers_s, own_s, started = _servers_s(), time.process_time(), time.perf_counter()
    call()
    elapsed, own_s = time.perf_counter() - started, time.process_time() - own_s
    return elapsed, own_s + _servers_s() - servers_s


def _servers_s() -> float:
    """The processor time of every connection of this process's servers; one that ends takes its time along."""
    own, stats = str(os.getpid()), {path.parent: _words(path) for path in Path("/proc").glob("[0-9]*/stat")}
    servers = {path.name for path, fields in stats.items() if fields and fields[1] == own}
    backends = [path for path, fields in stats.items() if fields and fields[1] in servers]
    return sum(int(words[0]) for words in (_words(path / "schedstat") for path in backends) if words) / 1e9


def _words(path: Path) -> list[str]:
    """The words of a file about a process, behind its name."""
    try:
        return path.read_text().rpartition(")")[2].split()
    except OSError:
        return []


def move(source: LocalEngine, url: str) -> None:
    """Copy rows, names and vectors of a file to Postgres; nothing is embedded or read again."""
    open_engine(url, Path(tempfile.mkdtemp()), "local").close()
    semantic = source.semantic()
    assert semantic is not None
    file = apsw.Connection(str(config.sqlite_path(source.settings.store.url)))
    with psycopg.connect(url) as connection:
        connection.execute("SET search_path = triskele, public; SET triskele.owner = 'me'")
        connection.execute("INSERT INTO owners VALUES ('me')")
        for table, columns in TABLES.items():
            with connection.cursor().copy(f"COPY {table} ({columns}) FROM STDIN") as copy:
                at = [name.strip() for name in columns.split(",")].index("any_case") if "any_case" in columns else -1
                for row in file.execute(f"SELECT {columns} FROM {table}"):
                    copy.write_row([bool(value) if place == at else value for place, value in enumerate(row)])
        rows = list(file.execute("SELECT slot, content_hash, fingerprint, vector FROM vectors"))
        tokens = semantic.tokens.view()
        with connection.cursor().copy(
            "COPY vectors (owner, slot, content_hash, fingerprint, vector, tokens) FROM STDIN"
        ) as copy:
            for slot, digest, fingerprint, vector in rows:
                made, _ = tokens.gather(np.array([slot]))
                copy.write_row(["me", slot, digest, fingerprint, vector, to_row(made)])
        connection.commit()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


# Speed


def speed(stores: Path, size: int) -> dict[str, Any]:
    """Percentiles of a recall at one size, by every corpus and by the recipe; recall@50 of the index."""
    with server_module().running_server() as server, tempfile.TemporaryDirectory() as scratch:
        url, home = server.create(), Path(scratch)
        with open_engine(url, home / "database", "database") as engine:
            known = rehearse(engine)
        started = time.perf_counter()
        _fill(url, size, stores, known)
        found: dict[str, Any] = {"rows": size, "load s": round(time.perf_counter() - started, 1)}
        found |= asked_in_turn(url, home, texts.questions(80))
        found["recall@50"] = index_recall(url, home, known, texts.questions(80))
        return found | _sizes(url)


def asked_in_turn(url: str, home: Path, questions: Sequence[str]) -> dict[str, Any]:
    """What a question takes by every corpus and by the recipe, over everything and over one hundredth of the rows."""
    found: dict[str, Any] = {}
    embedder = bundled()
    recipe = Recipe(url, embedder.dimensions)
    for owner, project in (("me", None), ("me", "small"), ("tenant", None)):
        with ExitStack() as stack:
            arms: dict[str, Callable[[str], object]] = {}
            for corpus in ("database", "local"):
                engine = stack.enter_context(open_engine(url, home / f"{corpus}-{owner}", corpus, owner))
                # As in a server: the worker embeds, no recall looks for what waits.
                engine.work_in_background()
                arms[corpus] = partial(engine.recall, logged=False, project=project, all_projects=project is None)
                if corpus == "database" and project is None:
                    arms["the one statement"] = _both_legs(engine)
            for kind in FORMS:
                arms[f"recipe {kind}"] = partial(_ask_recipe, recipe, embedder, kind, owner, project)
            arms["encoding the question"] = embedder.encode_query
            label = f"{owner}{' small project' if project else ''}"
            found[label] = _times(arms, questions)
            print(json.dumps({label: found[label]}), flush=True)
    recipe.close()
    return found


def _both_legs(engine: LocalEngine) -> Callable[[str], object]:
    indexes, embedder = _indexes(engine), engine.semantic().embedder

    def ask(text: str) -> None:
        with engine.store.snapshot():
            corpus = indexes.open_corpus(engine.scope(all_projects=True))
            words = corpus._weighted(engine.lexical.analyzer.query_terms(text))
            corpus._asked(words, corpus._query(embedder.encode_query(text).sentence, 110), 110)

    return ask


def _ask_recipe(recipe: Recipe, embedder: Embedder, kind: str, owner: str, project: str | None, text: str) -> None:
    recipe.ask(kind, text, embedder.encode_query(text).sentence, owner=owner, project=project, limit=HITS)


def _times(arms: Mapping[str, Callable[[str], object]], questions: Sequence[str]) -> dict[str, dict[str, float]]:
    """Each question asked of every arm in turn: other work slows all of them alike. The first ones do not count."""
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in arms}
    for number, text in enumerate(questions):
        for name, call in arms.items():
            if number >= _WARM_UP:
                took[name].append(timed(partial(call, text)))
            else:
                call(text)
    found = {name: spent(took[name]) for name in arms}
    for name, figures in found.items():
        for kind in FORMS:
            # Of each question, so that what else the machine does falls out.
            pairs = list(zip(took[name], took[f"recipe {kind}"], strict=True))
            for place, measure in enumerate(("clock", "cpu")):
                ratios = [own[place] / other[place] for own, other in pairs]
                figures[f"{measure} / recipe {kind}"] = round(statistics.median(ratios), 2)
    return found


def _indexes(engine: LocalEngine) -> DatabaseIndexes:
    runtime: Models = engine.models
    found = runtime.database(engine.semantic())
    assert found is not None, engine.models.corpus_notes()
    found.catch_up()
    return found


def index_recall(url: str, home: Path, known: PrecomputedQueries, questions: Sequence[str]) -> dict[str, Any]:
    """The share of the exact 50 nearest that recall finds, in the whole store and in one hundredth of it.

    `index alone` passes over the rule that compares the vectors of a narrow scope one by one.
    """
    found: dict[str, Any] = {}
    with open_engine(url, home / "database-me", "database") as engine:
        rehearse(engine, known)
        indexes, rows = _indexes(engine), engine.store.corpus
        for label, options in {"all": {"all_projects": True}, "small project": {"project": "small"}}.items():
            scope = engine.scope(**options)
            corpus = indexes.open_corpus(scope)

            def nearest(text: str, *, is_exact: bool | None, corpus: Any = corpus, scope: Any = scope) -> set[int]:
                asked = corpus._query(known.encode_query(text).sentence, 110, is_exact=is_exact)
                return {each.row for each in rows.candidates(scope, known.fingerprint, None, asked, limit=110)[:50]}

            exact = {text: nearest(text, is_exact=True) for text in questions}
            for arm, is_exact in {"recall": None, "index alone": False}.items():
                took = [timed(partial(nearest, text, is_exact=is_exact)) for text in questions]
                near = {text: nearest(text, is_exact=is_exact) for text in questions}
                shares = [len(near[text] & exact[text]) / max(1, len(exact[text])) for text in questions]
                found[f"{label}, {arm}"] = {"recall@50": round(statistics.mean(shares), 4), **spent(took)}
    return found


def _fill(url: str, size: int, stores: Path, known: PrecomputedQueries) -> None:
    """Memories of two owners with vectors, words and the index."""
    contents = texts.memories(size + size // 100, characters=200)
    vectors = _vectors(stores, len(contents), known.dimensions)
    chance = np.random.default_rng(7)
    drawn = [chance.integers(-40, 40, (26, known.token_dimensions), np.int8) for _ in range(256)]
    tokens = [to_row(packed(vectors)) for vectors in drawn]
    with tempfile.TemporaryDirectory() as folder, open_engine(url, Path(folder), "database") as engine:
        # One draft: checking a hundred thousand texts for secrets would take longer than the rest.
        draft = engine.draft(contents[0])
    with psycopg.connect(url) as connection:
        connection.execute("SET search_path = triskele, public")
        for owner, chosen in (("me", range(size)), ("tenant", range(size, len(contents)))):
            connection.execute("SELECT set_config('triskele.owner', %s, false)", [owner])
            connection.execute("INSERT INTO owners VALUES (%s) ON CONFLICT DO NOTHING", [owner])
            marked = "INSERT INTO marks VALUES (%s, 'model', %s) ON CONFLICT DO NOTHING"
            connection.execute(marked, [owner, known.fingerprint])
            with connection.cursor().copy(f"COPY versions ({VERSION_COLUMNS}, row_hash) FROM STDIN") as copy:
                for place in chosen:
                    project = "small" if place % 100 == 0 else "large"
                    made = replace(draft, id=f"{place:016d}", content=contents[place], owner=owner, project=project)
                    values = from_memory(replace(made, content_hash=content_hash(contents[place])))
                    copy.write_row([*values, version_hash(values)])
            with connection.cursor().copy(
                "COPY vectors (owner, content_hash, fingerprint, vector, tokens) FROM STDIN"
            ) as copy:
                for place in chosen:
                    digest = content_hash(contents[place])
                    both = row_of(vectors[place]), tokens[place % len(tokens)]
                    copy.write_row([owner, digest, known.fingerprint, *both])
        connection.commit()
    _index(url, known)


def _index(url: str, known: PrecomputedQueries) -> None:
    """Words and vectors first, then the HNSW index over all of them: as a running store is switched over."""
    made, vector_extension._make_index = vector_extension._make_index, lambda *_: None
    for owner in ("me", "tenant"):
        with tempfile.TemporaryDirectory() as folder, open_engine(url, Path(folder), "database", owner) as engine:
            rehearse(engine, known)
            _indexes(engine)
    vector_extension._make_index = made
    with tempfile.TemporaryDirectory() as folder, open_engine(url, Path(folder), "database") as engine:
        rehearse(engine, known)
        _indexes(engine)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


def _vectors(stores: Path, count: int, size: int) -> Any:
    """Vectors of the stores with noise: as near to each other and to questions as real ones."""
    real = []
    for path in sorted(stores.glob("*/harness-*/memories.db")):
        rows = apsw.Connection(str(path)).execute("SELECT vector FROM vectors")
        real += [*restored(sound_rows([vector for (vector,) in rows], size)[0])]
    chance = np.random.default_rng(7)
    drawn = np.array(real, dtype=np.float32)[chance.integers(0, len(real), count)]
    noise = chance.standard_normal(drawn.shape, dtype=np.float32)
    drawn = drawn + 0.5 * noise / np.linalg.norm(noise, axis=1, keepdims=True)
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype("<f4")


def _sizes(url: str) -> dict[str, int]:
    tables = ("versions", "vectors", "postings", "terms", "embeddings")
    with psycopg.connect(url) as connection:
        sql = "SELECT pg_total_relation_size(%s::regclass)"
        return {f"{table} MB": connection.execute(sql, [f"triskele.{table}"]).fetchone()[0] >> 20 for table in tables}


def main() -> int:
    """Run the verb that was asked for."""
    verb, *rest = sys.argv[1:] or [""]
    if verb == "quality" and len(rest) >= 2:
        sets = rest[2:] or ["2wikimultihopqa", "hotpotqa_dev500", "locomo", "team"]
        Path(rest[1]).write_text(json.dumps(quality(Path(rest[0]), sets), indent=1))
        return 0
    if verb == "speed" and len(rest) == 3:
        Path(rest[1]).write_text(json.dumps(speed(Path(rest[0]), int(rest[2])), indent=1))
        return 0
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main())
