"""Sixteen notes, questions about them, and engines that hold them."""

from __future__ import annotations

from pathlib import Path

from triskele.config import load
from triskele.engine.local import LocalEngine
from triskele.recall import legs
from triskele.recall.plan import SHIPPED
from triskele.recall.question import Sources, read
from triskele.types import Add, Answer, Query

NOTES = (
    ("Releases reach the cluster through Argo CD, never by hand", "decisions", ("deploy",)),
    ("The staging database is wiped every Sunday night", "facts", ("database",)),
    ("Ingrid looks after the plants on the fourth floor", "people", ()),
    ("Tomasz signs invoices above 4,000 euros together with the head of finance", "people", ("money",)),
    ("When the build hangs, remove the stale lock in /var/run/build.lock", "procedures", ("build",)),
    ("Customers may cancel within thirty days and get their money back", "facts", ("money",)),
    ("We write commit messages in the imperative mood", "preferences", ()),
    ("The nightly backup takes about forty minutes and ends before dawn", "facts", ("backup",)),
    ("Ravi prefers to be reached by phone rather than by mail", "people", ()),
    ("Never restart the payment gateway during office hours", "lessons", ("payments",)),
    ("The kitchen on the second floor has the better coffee machine", "facts", ()),
    ("Search moved from Elasticsearch to Postgres after the November outage", "decisions", ("search",)),
    ("Feature flags live in flags.toml and are read at startup", "facts", ("config",)),
    ("Our office cat is called Pixel and sleeps in the server room", "facts", ()),
    ("The API rate limit is 600 requests per minute and key", "facts", ("api",)),
    ("Use UTC for every timestamp, in code and in reports", "decisions", ("time",)),
)
# Questions in other words than the notes, with the place of the note that answers.
PARAPHRASES = (
    ("how do we deploy new versions?", 0),
    ("who waters the greenery?", 2),
    ("what to do when a compile job is stuck", 4),
    ("can a client return the product and be refunded?", 5),
    ("name of the pet", 13),
    ("how many calls are allowed?", 14),
)
QUESTIONS = (
    "how do releases reach the cluster?",
    "who waters the greenery on the fourth floor",
    "money back",
    "the of and",
    "which floor has coffee, and who looks after its plants?",
)


def open_engine(folder: Path, *, model: str = "bundled", embed_first: int = 0) -> LocalEngine:
    """An engine that embeds when a test says so, unless told to do it before it answers."""
    environment = {
        "TRISKELE_HOME": str(folder),
        "TRISKELE_PROJECT": "garden",
        "TRISKELE_RECALL_MODEL": model,
    }
    engine = LocalEngine(load(environment), folder)
    engine.embed_first = embed_first
    return engine


def fill(engine: LocalEngine) -> list[str]:
    drafts = [engine.draft(text, category=category, tags=tags) for text, category, tags in NOTES]
    return [outcome.id for outcome in engine.apply([Add(draft) for draft in drafts])]


def by_words(engine: LocalEngine, text: str, **filters: object) -> list[tuple[str, float]]:
    """The lexical leg alone, as (memory, score)."""
    query = Query(text=text, scope=engine.scope(**filters), depth=100)  # type: ignore[arg-type]
    open_corpus = engine.models.indexes(None).open_corpus
    corpus = open_corpus(query.scope)
    question = read(query, SHIPPED, corpus, Sources(engine.store, open_corpus, engine.lexical.analyzer))
    ranking = legs.lexical(question, corpus)
    memories = engine.store.rows(ranking.rows.tolist())
    return [
        (memories[row].id, score) for row, score in zip(ranking.rows.tolist(), ranking.scores.tolist(), strict=True)
    ]


def scored(answer: Answer) -> list[tuple[str, float]]:
    return [(hit.memory.id, hit.score) for hit in answer.hits]


def contents(answer: Answer) -> list[str]:
    return [hit.memory.content for hit in answer.hits]
