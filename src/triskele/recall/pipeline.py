"""Recall in ten steps: read this first. The values between the steps are in `scores`."""

from __future__ import annotations

import time
from dataclasses import replace

from triskele.index.corpus import Corpus
from triskele.index.dense import one_blas_thread
from triskele.recall.evidence import evidence, fuse
from triskele.recall.explain import explain
from triskele.recall.graph import graph
from triskele.recall.late import late
from triskele.recall.legs import dense, lexical, pool
from triskele.recall.plan import AGAIN, AS_RANKED, Plan
from triskele.recall.question import Question, Sources, read
from triskele.recall.scores import Candidates
from triskele.recall.supersession import supersede
from triskele.types import Answer, Query


@one_blas_thread()
def recall(query: Query, plan: Plan, sources: Sources) -> Answer:
    """Answer a query; if the answer is unsure and a language model is allowed, in other words too."""
    started = time.perf_counter()
    with sources.store.snapshot():
        corpus = sources.open_corpus(query.scope)
        question = read(query, plan, corpus, sources)  # 1
        candidates = rank(question, corpus, sources)
        answer = serve(question, corpus, candidates, sources, started)
    if sources.rewriter is None:
        return answer
    from triskele.recall.rewording import joined, read_wordings, reword

    # Outside the snapshot: what leaves this machine is written down first.
    wordings, problems = reword(question, answer, sources.rewriter)
    if not wordings:
        return replace(answer, missing=(*answer.missing, *problems))
    with sources.store.snapshot():
        corpus = sources.open_corpus(query.scope)
        others = [rank(other, corpus, sources) for other in read_wordings(question, wordings, corpus, sources)]
        reworded = serve(question, corpus, joined(candidates, others), sources, started)
    # The confidence is that of the question as it was asked.
    return replace(reworded, confidence=answer.confidence, wordings=wordings)


def rank(question: Question, corpus: Corpus, sources: Sources) -> Candidates:
    """Rank the memories of a scope; a step that the plan leaves out returns what it was given."""
    corpus = corpus.asking(question)
    by_words = lexical(question, corpus)  # 2
    by_meaning = dense(question, corpus, by_words)  # 3
    scores = pool(question, corpus, by_words, by_meaning)  # 4
    scores = late(question, corpus, scores)  # 5
    scores = graph(question, corpus, scores)  # 6
    scores = evidence(question, corpus, scores)  # 7
    candidates = fuse(question, corpus, scores)  # 8
    # Few plans rerank or reorder, and what they need takes long to import.
    if question.plan.rerank in AGAIN:
        from triskele.recall.rerank import rerank

        candidates = rerank(question, corpus, candidates, sources)  # 9
    return candidates


def serve(question: Question, corpus: Corpus, candidates: Candidates, sources: Sources, started: float) -> Answer:
    """Serve the newest memory of each chain, each with its reason."""
    if question.plan.order != AS_RANKED:
        from triskele.recall.rerank import reorder

        candidates = reorder(question, corpus, candidates, sources)
    served = supersede(question, corpus, candidates, sources)  # 10
    return explain(question, corpus, candidates, served, sources, started)
