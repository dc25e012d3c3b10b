"""The operations on memories: each is a few lines over the engine."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

from triskele import validation
from triskele.curation import echo, undo, usage
from triskele.curation.curator import Curator
from triskele.errors import BadInput
from triskele.serving.graph_view import graph_view
from triskele.serving.http import bodies, leg_times, replies
from triskele.serving.http.bodies import MAX_QUERY_BYTES
from triskele.serving.http.operations import Call, Operation, given
from triskele.serving.http.replies import memory_reply
from triskele.serving.statistics import more_statistics
from triskele.stores.access_keys import REVEAL, WRITE
from triskele.types import JournalEntry, Link, LinkKind, Memory, Outcome, Sort


def remember(call: Call) -> Outcome:
    """Store one memory; an agent may not store text that recall returned to it."""
    if call.client:
        # What was given a moment ago may wait to be noted.
        call.engine.after_answer.flush()
        echo.refuse(call.engine.store, call.body.content, project=call.body.project)
    return call.engine.remember(**given(call.body))


def remember_all(call: Call) -> list[Outcome]:
    """Store several memories in one transaction; an agent may not store text that recall returned to it."""
    if call.client:
        call.engine.after_answer.flush()
        for each in call.body.memories:
            echo.refuse(call.engine.store, each.content, project=each.project)
    drafts = [call.engine.draft(**given(each)) for each in call.body.memories]
    return call.engine.remember_all(drafts)


def get(call: Call) -> replies.MemoryReply:
    """One memory with its links."""
    engine, memory = call.engine, call.engine.get(call.path["id"])
    links = tuple(engine.links(memory.id))
    return memory_reply(memory, superseded=memory.id in engine.superseded([memory.id]), links=links)


def get_all(call: Call) -> list[replies.MemoryReply]:
    """The last versions of several memories; unknown ids are left out."""
    ids = [validation.check_prefix(each) for each in call.body.ids]
    found = [history[-1] for id in ids if (history := call.engine.store.history(id))]
    replaced = call.engine.superseded([memory.id for memory in found])
    return [memory_reply(memory, superseded=memory.id in replaced) for memory in found]


def versions_all(call: Call) -> list[Memory]:
    """Every version of several memories; unknown ids are left out."""
    ids = sorted({validation.check_prefix(each) for each in call.body.ids})
    return [replies.as_owned(memory) for _, memory in call.engine.store.versions(ids)]


def shorten(call: Call) -> dict[str, str]:
    """How much of each id is enough to name it; unknown ids are left out."""
    store, ids = call.engine.store, sorted({validation.check_prefix(each) for each in call.body.ids})
    return store.shorten(sorted({memory.id for _, memory in store.versions(ids)}))


def browse(call: Call) -> replies.PageReply:
    """A page of memories."""
    asked = given(call.query)
    limit, offset = asked["limit"], asked["offset"]
    # A query string has no null: an empty list is no filter.
    asked |= {name: asked[name] or None for name in ("sensitivities", "origins")}
    page = call.engine.browse(**{**asked, "sort": Sort(asked["sort"])})
    replaced = call.engine.superseded([each.id for each in page])
    memories = tuple(memory_reply(each, superseded=each.id in replaced) for each in page)
    return replies.PageReply(memories, offset + limit if len(page) == limit else None)


def edit(call: Call) -> Outcome:
    """Change a memory."""
    # A field that is null is not one that was left out: null removes a date.
    changes = {name: getattr(call.body, name) for name in call.body.model_fields_set}
    kept = {name: value for name, value in changes.items() if value is not None or name in ("valid_from", "valid_to")}
    return call.engine.edit(call.path["id"], **kept)


def forget(call: Call) -> Outcome:
    """Forget one memory, or erase it."""
    change = call.engine.erase if call.query.hard else call.engine.forget
    return change(call.path["id"])[0]


def forget_all(call: Call) -> list[Outcome]:
    """Forget several memories."""
    return call.engine.forget(*call.body.ids)


def restore(call: Call) -> Outcome:
    """Bring a forgotten memory back."""
    return call.engine.restore(call.path["id"])


def reveal(call: Call) -> replies.SecretReply:
    """The text of a secret; the journal notes it."""
    memory = call.engine.get(call.path["id"])
    return replies.SecretReply(memory.id, memory.content, call.engine.reveal(memory.id))


def history(call: Call) -> replies.HistoryReply:
    """Journal and versions of a memory."""
    reference = call.path["id"]
    versions = tuple(map(replies.as_owned, call.engine.versions(reference)))
    return replies.HistoryReply(tuple(call.engine.history(reference)), versions)


def journal(call: Call) -> list[JournalEntry]:
    """The newest changes, newest first."""
    store, asked = call.engine.store, call.query
    if asked.batch is None:
        return store.newest_entries(limit=asked.limit)
    return store.journal(batch=asked.batch, limit=asked.limit)[::-1]


def links(call: Call) -> list[Link]:
    """The links of a memory."""
    return call.engine.links(call.path["id"])


def link(call: Call) -> Outcome:
    """Link two memories."""
    return call.engine.link(call.body.source, LinkKind(call.body.kind), call.body.target)


def unlink(call: Call) -> Outcome:
    """Close a link."""
    return call.engine.unlink(call.query.source, LinkKind(call.query.kind), call.query.target)


def recall(call: Call) -> replies.RecallReply:
    """Answer a question."""
    asked = given(call.body)
    _refuse_long(asked["query"])
    call.context.policy.admit_models(call.principal)
    with leg_times.timed(call.engine) as spent_s:
        answer = call.engine.recall(asked.pop("query"), **asked)
    for leg, seconds in {**spent_s, "all": answer.took_ms / 1000}.items():
        call.context.metrics.observe("triskele_recall_seconds", seconds, leg=leg)
    to_agent = bool(call.client)
    call.engine.after_answer.put(partial(usage.note_recall, call.engine.store, answer, to_agent=to_agent))
    return replies.recall_reply(answer)


def why_not(call: Call) -> replies.WhyNotReply:
    """Explain why a memory was not found."""
    asked = given(call.body)
    _refuse_long(asked["query"])
    call.context.policy.admit_models(call.principal)
    return replies.why_not_reply(call.engine.why_not(asked.pop("id"), asked.pop("query"), **asked))


def undo_plan(call: Call) -> replies.UndoReply:
    """What an undo would take back."""
    asked, engine = call.query, call.engine
    project = engine.project if asked.project is None else asked.project
    wider = {"all_projects": asked.all_projects, "anyone": asked.anyone}
    return replies.undo_reply(undo.plan(engine.store, engine.actor, project, asked.batch, **wider))


def undo_last(call: Call) -> list[Outcome]:
    """Undo a batch, or the last change."""
    asked = call.body
    wider = {"all_projects": asked.all_projects, "anyone": asked.anyone}
    return call.engine.undo(asked.batch, project=asked.project, **wider)


def census(call: Call) -> replies.CensusReply:
    """Count what is stored."""
    counted, waiting = asdict(call.engine.census()), call.engine.store.vectors.count_waiting()
    more = more_statistics(call.engine) if call.query.more else None
    return replies.CensusReply(**counted, waiting=waiting, more=more)


def related(call: Call) -> list[replies.RelatedReply]:
    """What a memory repeats, extends or contradicts, the surest first; nothing where curation proposes nothing."""
    asked, engine = call.body, call.engine
    if (asked.id is None) == (asked.content is None):
        raise BadInput("name a memory by its id, or give the content of one that is not stored yet")
    memory = engine.get(asked.id) if asked.id is not None else engine.draft(asked.content, project=asked.project)
    decisions = Curator(engine).hints(memory) if engine.settings.curation.propose else []
    return [
        replies.RelatedReply(memory_reply(each.old), each.verdict, each.confidence)
        for each in decisions
        if each.old is not None
    ]


def concept(call: Call) -> replies.ConceptReply:
    """A concept and its neighbourhood."""
    from triskele.recall.concepts.lookup import about

    asked = call.query
    view = graph_view(call.engine, project=asked.project, all_projects=asked.all_projects)
    return replies.concept_reply(about(view, asked.concept, limit=asked.limit, closed=asked.closed))


def _refuse_long(query: str) -> None:
    if len(query.encode("utf-8", "surrogatepass")) > MAX_QUERY_BYTES:
        raise BadInput(f"the question is longer than {MAX_QUERY_BYTES:,} bytes: ask in fewer words")


_ONE, _ALL, _ABOUT = "/v1/memories/{id}", "/v1/memories", "memories"

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        name="remember",
        method="POST",
        path=_ALL,
        summary="Store one memory; a text that is already stored returns its memory",
        run=remember,
        reply=Outcome,
        tag=_ABOUT,
        scope=WRITE,
        body=bodies.StoreBody,
        errors=(404, 409),
    ),
    Operation(
        name="remember_all",
        method="POST",
        path="/v1/batch",
        summary="Store up to 100 memories in one transaction",
        run=remember_all,
        reply=list[Outcome],
        tag=_ABOUT,
        scope=WRITE,
        body=bodies.BatchBody,
        errors=(409,),
    ),
    Operation(
        name="forget_all",
        method="POST",
        path="/v1/forget",
        summary="Forget up to 100 memories in one transaction",
        run=forget_all,
        reply=list[Outcome],
        tag=_ABOUT,
        scope=WRITE,
        body=bodies.IdsBody,
        errors=(404, 409),
    ),
    Operation(
        name="get_all",
        method="POST",
        path="/v1/lookup",
        summary="Read up to 100 memories by their whole ids; unknown ones are left out",
        run=get_all,
        reply=list[replies.MemoryReply],
        tag=_ABOUT,
        body=bodies.IdsBody,
    ),
    Operation(
        name="versions",
        method="POST",
        path="/v1/versions",
        summary="Read every version of up to 100 memories by their whole ids; unknown ones are left out",
        run=versions_all,
        reply=list[Memory],
        tag=_ABOUT,
        body=bodies.IdsBody,
    ),
    Operation(
        name="shorten",
        method="POST",
        path="/v1/shorten",
        summary="The shortest unique prefixes of up to 100 ids, for display",
        run=shorten,
        reply=dict[str, str],
        tag=_ABOUT,
        body=bodies.IdsBody,
    ),
    Operation(
        name="browse",
        method="GET",
        path=_ALL,
        summary="List memories by page",
        run=browse,
        reply=replies.PageReply,
        tag=_ABOUT,
        query=bodies.ListQuery,
    ),
    Operation(
        name="get",
        method="GET",
        path=_ONE,
        summary="Read one memory",
        run=get,
        reply=replies.MemoryReply,
        tag=_ABOUT,
        errors=(404,),
    ),
    Operation(
        name="edit",
        method="PATCH",
        path=_ONE,
        summary="Change a memory; older versions stay in its history",
        run=edit,
        reply=Outcome,
        tag=_ABOUT,
        scope=WRITE,
        body=bodies.EditBody,
        errors=(404, 409),
    ),
    Operation(
        name="forget",
        method="DELETE",
        path=_ONE,
        summary="Forget a memory, or erase it for good",
        run=forget,
        reply=Outcome,
        tag=_ABOUT,
        scope=WRITE,
        query=bodies.ForgetQuery,
        errors=(404, 409),
    ),
    Operation(
        name="restore",
        method="POST",
        path=f"{_ONE}/restore",
        summary="Bring a forgotten memory back",
        run=restore,
        reply=Outcome,
        tag=_ABOUT,
        scope=WRITE,
        errors=(404, 409),
    ),
    Operation(
        name="reveal",
        method="POST",
        path=f"{_ONE}/reveal",
        summary="Show the text of a secret; the journal records it",
        run=reveal,
        reply=replies.SecretReply,
        tag=_ABOUT,
        scope=REVEAL,
        errors=(404, 409),
    ),
    Operation(
        name="history",
        method="GET",
        path=f"{_ONE}/history",
        summary="Journal entries and versions of a memory",
        run=history,
        reply=replies.HistoryReply,
        tag=_ABOUT,
        errors=(404,),
    ),
    Operation(
        name="journal",
        method="GET",
        path="/v1/journal",
        summary="The newest changes, or those of a batch",
        run=journal,
        reply=list[JournalEntry],
        tag="undo",
        query=bodies.JournalQuery,
    ),
    Operation(
        name="links",
        method="GET",
        path=f"{_ONE}/links",
        summary="The links of a memory",
        run=links,
        reply=list[Link],
        tag=_ABOUT,
        errors=(404,),
    ),
    Operation(
        name="link",
        method="POST",
        path="/v1/links",
        summary="Link two memories",
        run=link,
        reply=Outcome,
        tag="links",
        scope=WRITE,
        body=bodies.LinkBody,
        errors=(404, 409),
    ),
    Operation(
        name="unlink",
        method="DELETE",
        path="/v1/links",
        summary="Close a link",
        run=unlink,
        reply=Outcome,
        tag="links",
        scope=WRITE,
        query=bodies.LinkBody,
        errors=(404, 409),
    ),
    Operation(
        name="recall",
        method="POST",
        path="/v1/recall",
        summary="Find the memories that answer a question, with reasons and evidence",
        run=recall,
        reply=replies.RecallReply,
        tag="recall",
        body=bodies.RecallBody,
        errors=(404,),
    ),
    Operation(
        name="why_not",
        method="POST",
        path="/v1/why-not",
        summary="Explain why a memory was not found, and what finds it",
        run=why_not,
        reply=replies.WhyNotReply,
        tag="recall",
        body=bodies.WhyNotBody,
        errors=(404,),
    ),
    Operation(
        name="related",
        method="POST",
        path="/v1/related",
        summary="Older memories that a memory repeats, extends or contradicts",
        run=related,
        reply=list[replies.RelatedReply],
        tag="recall",
        body=bodies.RelatedBody,
        errors=(404,),
    ),
    Operation(
        name="concept",
        method="GET",
        path="/v1/graph",
        summary="A concept with its memories, neighbours and edges",
        run=concept,
        reply=replies.ConceptReply,
        tag="recall",
        query=bodies.GraphQuery,
        errors=(404,),
    ),
    Operation(
        name="undo_plan",
        method="GET",
        path="/v1/undo",
        summary="What an undo would take back",
        run=undo_plan,
        reply=replies.UndoReply,
        tag="undo",
        query=bodies.UndoBody,
        errors=(404, 409),
    ),
    Operation(
        name="undo",
        method="POST",
        path="/v1/undo",
        summary="Undo a batch, or the last change",
        run=undo_last,
        reply=list[Outcome],
        tag="undo",
        scope=WRITE,
        body=bodies.UndoBody,
        errors=(404, 409),
    ),
    Operation(
        name="stats",
        method="GET",
        path="/v1/stats",
        summary="Count what is stored",
        run=census,
        reply=replies.CensusReply,
        tag="server",
        query=bodies.StatsQuery,
    ),
)
