"""One's own memories as a place to measure: every arm asks the same store, by the pipeline that recall goes through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from triskele.engine import Engine
from triskele.evaluation.arms import Arm
from triskele.evaluation.baseline import FtsBaseline
from triskele.evaluation.ground import RecitedQuestions
from triskele.evaluation.own.questions import Question
from triskele.evaluation.own.sampling import in_use
from triskele.evaluation.windows import Window
from triskele.index.semantic import SemanticIndex
from triskele.recall.hosted.services import CandidateReranker
from triskele.recall.pipeline import Sources, query_terms, retrieve
from triskele.recall.plan import CROSS, Plan
from triskele.recall.reasons import Coverage
from triskele.recall.supersession import Priors, resolve
from triskele.types import Query, Sort

# As deep as recall@30 looks; deeper lists would make recall itself consider more than it does for a user.
DEPTH = 30

Step = Callable[[str, int, int], None]


def quietly(_what: str, _done: int, _total: int) -> None:
    """A step that tells nobody."""


class OwnGround:
    """The user's store behind every arm; vectors are completed once and every question is encoded once."""

    def __init__(self, engine: Engine, step: Step = quietly, *, rival: SemanticIndex | None = None) -> None:
        self.engine = engine
        waiting = engine.store.vectors.count_waiting()
        engine.embed(progress=lambda done: step("embedding", done, waiting))
        self.memories = in_use(engine)
        meaning = rival or engine.meaning()
        self._meaning = replace(meaning, embedder=RecitedQuestions(meaning.embedder)) if meaning else None
        self._fts: FtsBaseline | None = None
        self._ids = list(self.memories)

    @property
    def fingerprint(self) -> str | None:
        """The model that the vectors are of."""
        return self._meaning.embedder.fingerprint if self._meaning else None

    def ranked(self, arm: Arm, question: Question) -> list[str]:
        """The ids of the memories that an arm finds, best first."""
        if arm.plan is None:
            found = self._baseline().search(question.text, question.project, DEPTH)
            return [self._ids[row] for row, _ in found]
        return self.by_plan(arm.plan, question, arm.sort)

    def by_plan(self, plan: Plan, question: Question, sort: Sort = Sort.RELEVANCE) -> list[str]:
        """The ids of the memories that recall serves by a plan, under the user's own weight of importance."""
        settings = self.engine.settings.recall
        if plan.prior == Plan().prior:
            plan = replace(plan, prior=settings.importance_prior)
        scope = self.engine.scope(project=question.project, all_projects=question.project is None)
        query = Query(text=question.text, scope=scope, limit=DEPTH, depth=max(settings.depth, 2 * DEPTH), sort=sort)
        meaning = self._meaning if plan.asks_meaning and sort is Sort.RELEVANCE else None
        store, analyzer = self.engine.store, self.engine.lexical.analyzer
        embedder = meaning.embedder if meaning is not None else None
        corpora = self.engine.mind.indexes(meaning).corpus
        sources = Sources(store, corpora, analyzer, embedder, reranker=self._reviewer(plan))
        # As recall does it, less the reasons for each hit, which nobody reads here.
        with store.snapshot():
            corpus = sources.corpus(scope)
            terms = query_terms(question.text, corpus, analyzer)
            fused = retrieve(query, plan, terms, corpus, sources).fused
            priors = Priors(plan.prior, plan.exact, Coverage(terms, analyzer).is_whole)
            return [each.memory.id for each in resolve(fused, query, store, priors=priors)]

    def _reviewer(self, plan: Plan) -> CandidateReranker | None:
        return self.engine.mind.reviewer() if plan.rerank == CROSS else None

    def recite(self, questions: Sequence[Question], step: Step = quietly) -> None:
        """Encode questions before any clock runs."""
        if self._meaning is None:
            return
        for done, question in enumerate(questions, start=1):
            self._meaning.embedder.encode_query(question.text)
            step("encoding questions", done, len(questions))

    def bytes_per_memory(self, arm: Arm) -> float:
        """The size of the store and its indexes, or of the baseline's own, for each memory."""
        if arm.plan is None:
            return self._baseline().bytes() / max(1, len(self.memories))
        folder = self.engine.settings.home
        total = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        return total / max(1, len(self.memories))

    def close(self) -> None:
        """Let the baseline's index go."""
        if self._fts is not None:
            self._fts.close()

    def _baseline(self) -> FtsBaseline:
        if self._fts is None:
            self._fts = FtsBaseline(
                Window(each.id, each.content, each.project or None, None, None, each.importance)
                for each in self.memories.values()
            )
        return self._fts
