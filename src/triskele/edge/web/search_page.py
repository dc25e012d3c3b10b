"""Search with evidence, ranking options and `why not`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from starlette.responses import Response

from triskele.edge import wording
from triskele.edge.hook.explain import explain
from triskele.edge.web.rendering import PageForm, PageRequest, PageRoute, facets_of, fragment, page, query
from triskele.edge.web.sessions import PREFIX
from triskele.errors import BadInput, NotFound, TriskeleError
from triskele.recall.explain import sentence
from triskele.recall.plan import DEFAULT, EVIDENCE, FUSIONS, LEGS, RERANKS
from triskele.text import timestamps
from triskele.types import Answer, Hit, LegEvidence, Memory, Path

LIMITS = (10, 20, 50)
EVERY_PROJECT = "*"
_RECENT = 5
_LISTED = 4
_MOST_LEARNED = 100
_WEEK = timedelta(days=7)
# However unsure an answer is, the best hit has a bar of this share of the width.
_SHORTEST_BAR = 0.05
_LEG_NAMES = {
    "lexical": "words",
    "dense": "meaning",
    "late": "token match",
    "graph": "connections",
    "cross": "cross-encoder",
    **{name: name for name in EVIDENCE},
}
_LEGEND = [*((leg, _LEG_NAMES[leg]) for leg in ("lexical", "dense", "late", "graph")), ("other", "other")]
# As the fields of this page are called.
_FIELDS = {
    "project": "project:",
    "category": "category:",
    "tags": "tags:",
    "as_of": "valid on",
    "known_at": "recorded on",
    "show_superseded": "show superseded",
    "limit": "hits:",
}

Segment = tuple[str, bool]


@dataclass(frozen=True, slots=True)
class Bar:
    """A leg's part of a score, in percent of the best score."""

    leg: str
    label: str
    start: float
    width: float
    evidence: LegEvidence


@dataclass(frozen=True, slots=True)
class ShownHit:
    """A hit as the page shows it."""

    hit: Hit
    rank: int
    bars: Sequence[Bar]
    segments: Sequence[Segment]
    path: Path | None
    reason: str


@dataclass(frozen=True)
class SearchForm(PageForm):
    """The fields of the page; without any leg all of them are meant."""

    q: str = ""
    project: str = EVERY_PROJECT
    category: str = ""
    tag: str = ""
    fusion: str = DEFAULT
    rerank: str = DEFAULT
    as_of: str = ""
    known_at: str = ""
    superseded: str = ""
    legs: tuple[str, ...] = LEGS
    limit: int = LIMITS[0]

    @classmethod
    def of(cls, request: PageRequest) -> SearchForm:
        """Read an address."""
        legs = tuple(leg for leg in LEGS if leg in request.many("leg")) or LEGS
        return replace(super().of(request), legs=legs, limit=request.number("limit", LIMITS[0]))

    def options(self) -> dict[str, Any]:
        """The options of recall."""
        project = {"all_projects": True} if self.project == EVERY_PROJECT else {"project": self.project}
        return {
            **project,
            "category": self.category or None,
            "tags": [self.tag] if self.tag else (),
            "as_of": self.as_of or None,
            "known_at": self.known_at or None,
            "limit": self.limit,
            "show_superseded": bool(self.superseded),
            "legs": self.legs,
            "fusion": self.fusion,
            "rerank": self.rerank,
        }

    @property
    def has_options(self) -> bool:
        """Whether a field below the fold differs from its default."""
        return bool(self.values().keys() - {"q", "project", "category"})


def show(request: PageRequest) -> Response:
    """The page, with its answer if the address has a query."""
    form, facets = SearchForm.of(request), facets_of(request.engine)
    choices: dict[str, Any] = {
        "projects": sorted(facets.projects),
        "categories": sorted(facets.categories),
        "legs": [(leg, _LEG_NAMES[leg]) for leg in LEGS],
        "fusions": FUSIONS,
        "reranks": RERANKS,
        "limits": LIMITS,
    }
    return page(
        request,
        "search.html",
        "Search",
        form=form,
        total=sum(facets.projects.values()),
        **choices,
        **_answer(request, form),
    )


def hits(request: PageRequest) -> Response:
    """Only the answer, for every change of the form."""
    form = SearchForm.of(request)
    # The address contains the query, so that it can be reloaded and bookmarked.
    headers = {"HX-Replace-Url": f"{PREFIX}{query(request.values)}"}
    total, answer = sum(facets_of(request.engine).projects.values()), _answer(request, form)
    return fragment("_hits.html", headers=headers, form=form, total=total, viewer=request.principal, **answer)


def _answer(request: PageRequest, form: SearchForm) -> dict[str, Any]:
    nothing: dict[str, Any] = {"answer": None, "problem": "", "recent": [], "short": {}}
    if not form.q:
        newest = request.engine.browse(all_projects=True, limit=_MOST_LEARNED).memories
        learned = sum(memory.updated_at > timestamps.now() - _WEEK for memory in newest)
        recent = newest[: min(learned, _RECENT) or _RECENT]
        short = request.engine.shorten([memory.id for memory in recent])
        return {**nothing, "recent": recent, "short": short, "learned": learned, "most_learned": _MOST_LEARNED}
    request.policy.admit_models(request.principal)
    try:
        answer = request.engine.recall(form.q, logged=False, **form.options())
    except BadInput as error:
        # A date that is not finished yet, for example: the page stays unchanged and shows the error.
        return {**nothing, "problem": str(error)}
    ids = {id for hit in answer.hits for id in (hit.memory.id, hit.stands_for or hit.memory.id)}
    ids |= {each.id for each in answer.resolutions}
    short = request.engine.shorten(sorted(ids))
    shown, doubt = shown_hits(answer, short), wording.FITS[answer.fit]
    return {**nothing, "answer": answer, "shown": shown, "doubt": doubt, "short": short, "legend": _LEGEND}


def shown_hits(answer: Answer, short: Mapping[str, str]) -> list[ShownHit]:
    """The hits with matched words, and bars on one scale: the longest is as long as the answer is sure."""
    best = max((_total(hit) for hit in answer.hits), default=0.0) / max(answer.confidence, _SHORTEST_BAR) or 1.0
    return [
        ShownHit(hit, rank, _bars(hit, best), _segments(hit), _path(hit), sentence(hit, lambda id: short.get(id, id)))
        for rank, hit in enumerate(answer.hits, start=1)
    ]


def _total(hit: Hit) -> float:
    return sum(max(leg.contribution, 0.0) for leg in hit.legs.values())


def _bars(hit: Hit, best: float) -> list[Bar]:
    bars: list[Bar] = []
    start = 0.0
    for leg, evidence in hit.legs.items():
        width = round(100 * max(evidence.contribution, 0.0) / best, 2)
        bars.append(Bar(leg if leg in _LEG_NAMES else "other", _LEG_NAMES.get(leg, leg), start, width, evidence))
        start = round(start + width, 2)
    return bars


def _path(hit: Hit) -> Path | None:
    return next((leg.path for leg in hit.legs.values() if leg.path is not None), None)


def _segments(hit: Hit) -> list[Segment]:
    """Split the text of a hit into matched and other pieces."""
    lexical = hit.legs.get("lexical")
    # The words of a superseded memory are not in its successor's text.
    if lexical is None or hit.stands_for is not None:
        return [(hit.memory.content, False)]
    return segments(hit.memory.content, ((term.start, term.end) for term in lexical.terms if term.start >= 0))


def segments(text: str, spans: Iterable[tuple[int, int]]) -> list[Segment]:
    """Split a text into marked and other pieces; overlapping spans merge."""
    pieces: list[Segment] = []
    at = 0
    for start, end in sorted(spans):
        start, end = max(start, at), min(end, len(text))
        if start >= end:
            continue
        if start > at:
            pieces.append((text[at:start], False))
        pieces.append((text[start:end], True))
        at = end
    return [*pieces, (text[at:], False)] if at < len(text) else pieces


def home(request: PageRequest) -> Response:
    """Use by agents, the review queue and health; fetched apart because counting takes longer."""
    engine, stats, first_day = request.engine, request.engine.stats(), f"{timestamps.now() - _WEEK:%Y-%m-%d}"
    return fragment(
        "_home.html",
        stats=stats,
        week=[day for day in stats.days if day.day > first_day],
        conversations=engine.agents.conversations(limit=_LISTED),
        proposals=engine.curation.proposals(),
        verbs=wording.VERBS,
        model=engine.settings.recall.model,
    )


def prompt(request: PageRequest) -> Response:
    """Explain what agents are given for a prompt, and why not more."""
    payload = {"prompt": request.text("prompt")}
    explained = explain(request.engine, "user-prompt-submit", payload, project=request.text("project", most=200))
    short = request.engine.shorten([each.memory.id for each in explained.considered])
    return fragment("_prompt.html", explained=explained, short=short)


def why_not(request: PageRequest) -> Response:
    """Explain why a memory, named by id or words, is no hit."""
    form, expected = SearchForm.of(request), request.text("expected").strip()
    if not form.q or not expected:
        return fragment("_why_not.html", problem="Ask a question above, then name the memory that you expected.")
    request.policy.admit_models(request.principal)
    try:
        memory = _expected(request, expected)
        explained = request.engine.why_not(memory.id, form.q, **form.options())
    except TriskeleError as error:
        return fragment("_why_not.html", problem=str(error))
    change = explained.smallest_change
    advice = "" if change is None else wording.query_change(change, _FIELDS)
    short = request.engine.shorten([memory.id])
    return fragment("_why_not.html", problem="", memory=memory, explained=explained, advice=advice, short=short)


def _expected(request: PageRequest, text: str) -> Memory:
    """The memory of an id, or the best match of some words."""
    if " " not in text:
        try:
            return request.engine.get(text)
        except (NotFound, BadInput):
            pass
    answer = request.engine.recall(text, limit=1, all_projects=True, show_superseded=True, logged=False)
    if not answer.hits:
        raise NotFound("no memory fits these words: give an id, or other words of its text")
    return answer.hits[0].memory


ROUTES: tuple[PageRoute, ...] = (
    PageRoute("GET", "", show, title="Search"),
    PageRoute("GET", "/hits", hits),
    PageRoute("GET", "/home", home),
    PageRoute("GET", "/home/prompt", prompt),
    PageRoute("GET", "/why-not", why_not),
)
