"""The composition root: settings in, a memory that remembers, recalls and forgets out."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from triskele import requests, validation
from triskele.agents import echo
from triskele.config import HOSTED, OFF, Settings, source_of
from triskele.curation import measures
from triskele.engine import undo, views
from triskele.engine.background import BackgroundWork, DeferredWrites, Once
from triskele.engine.workplace import ProjectFolder
from triskele.errors import BadInput, NotFound
from triskele.recall import plan as plans
from triskele.recall.plan import AS_RANKED, CROSS, DEFAULT, NEAR, SHIPPED, Adopted, Plan, candidates_per_leg
from triskele.replies import Secret, Undone
from triskele.store import open as stores
from triskele.store.owner import Maintenance, OwnerStore, Store
from triskele.store.writer import revision
from triskele.text import timestamps
from triskele.text.analysis import Analyzer
from triskele.text.ids import new_batch
from triskele.types import (
    EVERYWHERE,
    USER,
    Add,
    Answer,
    Change,
    Connect,
    Disconnect,
    Erasure,
    Forget,
    History,
    LinkKind,
    Memory,
    MemoryDetails,
    MemoryView,
    Origin,
    Outcome,
    Page,
    Query,
    Related,
    Reveal,
    Scope,
    Sort,
    is_client,
    is_secret,
    may_hide,
    written_origin,
)

if TYPE_CHECKING:
    from triskele.agents.respond import LocalAgents
    from triskele.curation.decide import PairDecision
    from triskele.curation.proposals import Proposals
    from triskele.engine.concepts import LocalConcepts
    from triskele.engine.models import Models
    from triskele.engine.review import LocalCuration
    from triskele.engine.sharing import LocalSharing
    from triskele.engine.upkeep import Upkeep
    from triskele.exchange.export import Progress
    from triskele.index.lexical import LexicalIndex
    from triskele.index.local import ModelIndexes
    from triskele.ingest import Drafter
    from triskele.models.embedder import Embedder
    from triskele.models.llm import Llm
    from triskele.recall.hosted.egress_policy import EgressPolicy
    from triskele.recall.question import Sources
    from triskele.replies import Statistics
    from triskele.replies.rooms import ExportReport, ImportReport
    from triskele.requests import AskOptions, Changes, Details, Draft, ListOptions, RecallOptions
    from triskele.store.vault import Ask, StoreVault
    from triskele.types import WhyNot
    from triskele.validation import FilePath

_RECALL_OPTIONS = requests.RecallOptions.__optional_keys__
# Options of recall that its steps read from the query.
_QUERY_OPTIONS = _RECALL_OPTIONS & {field.name for field in fields(Query)} - {"project", "limit"}
_CHECKED = _QUERY_OPTIONS & validation.FIELDS.keys()
_FILTERS = requests.Filters.__optional_keys__
# The recall log keeps plain questions: an evaluation asks them again without filters.
_NOT_LOGGED_WITH = _FILTERS - {"project", "all_projects", "sensitivities", "origins"} | {"as_of", "known_at"}
_WHOLE = 2**31


class LocalEngine:
    """Long-term memory: the one object through which memories are changed and recalled."""

    # The newest memories that a recall embeds itself if no worker does: about 0.1 s.
    embed_first = 16

    def __init__(self, settings: Settings, folder: Path, *, ask: Ask | None = None, store: Store | None = None) -> None:
        """Open the store of the settings, or bind one that engines of other owners share, and leave that open."""
        self.settings = settings
        self.actor = USER
        self.reads_private = True
        self._analyzer = Analyzer(settings.index.language, source=source_of(settings.origins, "index.language"))
        unbound = store or stores.open_store(settings)
        self.store: OwnerStore = unbound.for_owner(settings.memory.owner)
        self.workplace = ProjectFolder(self.store, folder, settings.project)
        self._maintenance = unbound.maintenance
        self._close_store = unbound.close if store is None else lambda: None
        self._index_folder = stores.index_folder(settings)
        self._ask = ask
        self.deferred_writes = DeferredWrites()
        # Shared by those who act as others.
        self._vault, self._models = Once(self._open_vault), Once(self._open_models)
        self.background = BackgroundWork(self._models, self.store, settings)

    def __enter__(self) -> LocalEngine:
        self.deferred_writes.refuse_closed()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close files and connections."""
        self.deferred_writes.close()
        self.background.stop()
        for opened in (self._models.opened, self._vault.opened):
            if opened is not None:
                opened.close()
        self._close_store()

    @property
    def project(self) -> str:
        """The project of the settings, or of the folder."""
        return self.workplace.project

    def acting_as(self, actor: str, *, reads_private: bool = True) -> LocalEngine:
        """The same memory; the journal names this actor instead of the user."""
        other = copy(self)
        other.actor, other.reads_private = actor, reads_private
        return other

    def working_in(self, folder: Path, project: str | None = None) -> LocalEngine:
        """The same memory; its project is the named one, or that of this folder."""
        other = copy(self)
        other.workplace = ProjectFolder(self.store, folder, project)
        other.__dict__.pop("_drafter", None)
        return other

    # Vault and drafter load many rules and ciphers, which reading does not need; models load numpy.

    @property
    def models(self) -> Models:
        """The indexes and models of the store."""
        return self._models.opened or self._models()

    def _open_models(self) -> Models:
        from triskele.engine.models import Models

        return Models(self.settings, self._index_folder, self.store, self._analyzer, self._vault)

    @property
    def lexical(self) -> LexicalIndex:
        """The index of the words."""
        return self.models.lexical

    @property
    def vault(self) -> StoreVault:
        """Where secrets are sealed."""
        return self._vault()

    @property
    def egress_policy(self) -> EgressPolicy:
        """Which texts may leave."""
        return self.models.egress_policy

    @property
    def llm(self) -> Llm | None:
        """The language model that curation may ask, if the settings let it."""
        services = self.models.services() if self.settings.curation.llm_calls else None
        return services.judge if services is not None else None

    @property
    def embedder(self) -> Embedder | None:
        """The local model, if the settings name one."""
        semantic = self.models.semantic()
        return semantic.embedder if semantic is not None else None

    def _open_vault(self) -> StoreVault:
        from triskele.store.vault import StoreVault

        return StoreVault(self.store, self.settings.privacy, self.settings.home, self._ask)

    @property
    def concepts(self) -> LocalConcepts:
        """The concept graph."""
        from triskele.engine.concepts import LocalConcepts

        return LocalConcepts(self)

    @property
    def curation(self) -> LocalCuration:
        """The review queue."""
        from triskele.engine.review import LocalCuration

        return LocalCuration(self)

    @property
    def agents(self) -> LocalAgents:
        """What agents are given."""
        from triskele.agents.respond import LocalAgents

        return LocalAgents(self)

    @property
    def sharing(self) -> LocalSharing:
        """Shares with other users."""
        from triskele.engine.sharing import LocalSharing

        return LocalSharing(self)

    @property
    def upkeep(self) -> Upkeep:
        """What only the owner of the store can do."""
        from triskele.engine.upkeep import Upkeep

        return Upkeep(self, self._maintenance)

    @cached_property
    def _drafter(self) -> Drafter:
        from triskele.ingest import Drafter

        return Drafter(self.settings.memory, self.project)

    # Writing

    def draft(self, content: str, **details: Any) -> Memory:
        """A checked memory that is not stored yet; details go to `Drafter.draft`."""
        return self._drafter.draft(content, **details)

    def remember(self, content: str, *, supersedes: str | None = None, **details: Unpack[Details]) -> Outcome:
        """Store one memory durably; "Since May …" sets its validity, "I prefer …" its category."""
        requests.refuse_unknown("remember", details, requests.Details)
        self._refuse_echoes([(content, details.get("project"))])
        addition = self._addition(content, **details)
        if supersedes is None:
            return self.apply([addition])[0]
        memory = addition.memory
        older = self._replaceable(supersedes, memory.origin)
        link = validation.new_link(memory.id, LinkKind.SUPERSEDES, older, memory.known_from)
        try:
            return self.apply([addition, Connect(link)])[0]
        except NotFound:
            # The text is known already, under another id: that memory is the successor.
            known = self.apply([addition])[0]
            link = validation.new_link(known.id, LinkKind.SUPERSEDES, older, memory.known_from)
            return replace(known, batch=self.apply([Connect(link)])[0].batch)

    def remember_all(self, drafts: Sequence[Draft]) -> list[Outcome]:
        """Store several memories in one transaction."""
        listed = validation.check_drafts(drafts)
        for draft in listed:
            requests.refuse_unknown("remember_all", draft, requests.Draft)
        self._refuse_echoes([(draft["content"], draft.get("project")) for draft in listed])
        return self.apply([self._addition(**draft) for draft in listed])

    def _addition(self, content: str, **details: Any) -> Add:
        memory = self._drafter.draft_as_worded(content, **details)
        memory = replace(memory, origin=written_origin(self.actor, memory.origin))
        return Add(memory, beside_private=not self.reads_private)

    def _refuse_echoes(self, texts: Sequence[tuple[str, str | None]]) -> None:
        """Refuse a text that an agent repeats, which recall gave it."""
        if not is_client(self.actor):
            return
        # What was given a moment ago may not be noted yet.
        self.deferred_writes.flush()
        for content, project in texts:
            target = project if project is not None else self.project or None
            text = validation.check_text(content, "the memory")
            echo.refuse(self.store, text, project=target, private=self.reads_private)

    def edit(self, *ids: str, **changes: Unpack[Changes]) -> list[Outcome]:
        """Change memories in one batch; their older versions stay in the history."""
        requests.refuse_unknown("edit", changes, requests.Changes)
        outcomes: dict[str, Outcome] = {}
        revisions: list[Change] = []
        for memory in self._last_versions(ids):
            revised = self._revised(undo.changeable(memory), changes)
            if "sensitivity" in changes and is_secret(revised) and not is_secret(memory):
                outcomes[memory.id] = self.seal(memory.id, title=changes.get("title")).outcomes[0]
                if not changes.keys() - {"sensitivity", "title"}:
                    continue
            revisions += revision(memory, revised)
        written: dict[str, Outcome] = {}
        for outcome in self.apply(revisions) if revisions else ():
            # What follows the edit of a memory only closes its older versions.
            written.setdefault(outcome.id, outcome)
        return list((outcomes | written).values())

    def _revised(self, memory: Memory, changes: Changes) -> Memory:
        plain: dict[str, Any] = {**changes}
        added, removed = plain.pop("add_tags", None), plain.pop("remove_tags", None)
        if added is not None or removed is not None:
            tags = plain.get("tags", memory.tags)
            gone = set(validation.check_tags(removed or ()))
            plain["tags"] = [*(tag for tag in tags if tag not in gone), *validation.check_texts(added or (), "tags")]
        revised = self._drafter.revised(memory, plain, lambda: self.vault.text_of(memory))
        return replace(revised, origin=written_origin(self.actor, memory.origin)) if "content" in changes else revised

    def restore(self, *ids: str) -> list[Outcome]:
        """Bring forgotten memories back, unchanged."""
        return self.apply([undo.restoration(memory) for memory in self._last_versions(ids)])

    def seal(self, id: str, *, title: str | None = None) -> Erasure:
        """Make a memory secret in all its versions; everything derived from its text is erased."""
        return self.upkeep.seal(self.resolve(id), title)

    def reveal(self, id: str) -> Secret:
        """Read the text of a secret; the journal records it."""
        memory = self._last_version(id)
        text = self.vault.text_of(memory)
        self.apply([Reveal(memory.id)])
        return Secret(memory.id, memory.content, text)

    def forget(self, *ids: str) -> list[Outcome]:
        """Stop recalling these memories; history and undo keep them."""
        return self.apply([Forget(id) for id in self._resolved(ids)])

    def erase(self, *ids: str) -> Erasure:
        """Remove these memories for good from every file of the store; backups made before keep them."""
        return self.upkeep.erase(self._resolved(ids))

    def link(self, source: str, kind: str, target: str) -> Outcome:
        """Link two memories."""
        link = validation.new_link(self.resolve(source), kind, self.resolve(target), timestamps.now())
        if link.kind is LinkKind.SUPERSEDES:
            self._replaceable(link.target, self._last_version(link.source).origin)
        return self.apply([Connect(link)])[0]

    def _replaceable(self, id: str, origin: Origin) -> str:
        """The whole id of a memory, unless an agent may not let a text of this origin replace it."""
        own = self.resolve(id)
        if is_client(self.actor):
            views.refuse_to_replace_the_user(self.store, own, origin)
        return own

    def unlink(self, source: str, kind: str, target: str) -> Outcome:
        """Close a link; the history keeps it."""
        link = validation.new_link(self.resolve(source), kind, self.resolve(target), timestamps.now())
        return self.apply([Disconnect(link)])[0]

    def undo(
        self,
        batch: str | None = None,
        *,
        project: str | None = None,
        all_projects: bool = False,
        anyone: bool = False,
        dry_run: bool = False,
    ) -> Undone:
        """Undo a batch, or this actor's last change to the project; an undo can be undone."""
        undone = undo.undo(self, batch, project, all_projects=all_projects, anyone=anyone, dry_run=dry_run)
        if undone.outcomes:
            self.proposals.undone(undone.batch, undone.outcomes)
        return undone

    def apply(self, changes: Sequence[Change], *, batch: str | None = None, undoes: int | None = None) -> list[Outcome]:
        """Apply changes as one journaled transaction."""
        sealed = [self.vault.sealed(change) for change in self.workplace.placed(changes)]
        outcomes = self.store.apply(sealed, batch=batch or new_batch(), actor=self.actor, undoes=undoes)
        if any(map(may_hide, changes)):
            self._take_back()
        self.background.wake()
        return outcomes

    def _take_back(self) -> None:
        """Delete the files with hosted vectors: the next query builds them from what the model may still read."""
        if (models := self._models.opened) is not None:
            models.close_hosted()
        for path in self._index_folder.glob(f"dense-*-{HOSTED}*"):
            shutil.rmtree(path, ignore_errors=True)

    # Files

    def export_memories(
        self,
        target: FilePath,
        *,
        format: str = "jsonl",
        private: bool = False,
        with_secrets: bool = False,
        current_only: bool = False,
        progress: Progress | None = None,
    ) -> ExportReport:
        """Write memories to a new file."""
        from triskele.exchange import transfer

        return transfer.export_memories(
            self,
            validation.check_path(target),
            format=format,
            include_private=private,
            with_secrets=with_secrets,
            current_only=current_only,
            progress=progress,
        )

    def import_memories(
        self,
        source: FilePath,
        *,
        format: str | None = None,
        dry_run: bool = False,
        project: str | None = None,
        keep_origin: bool = False,
        progress: Progress | None = None,
    ) -> ImportReport:
        """Import the memories of a file, all or none."""
        from triskele.exchange import transfer

        return transfer.import_memories(
            self,
            validation.check_path(source),
            format=format,
            dry_run=dry_run,
            project=project,
            keep_origin=keep_origin and not is_client(self.actor),
            progress=progress,
        )

    # Reading

    def recall(self, text: str, **options: Unpack[RecallOptions]) -> Answer:
        """Find the memories that answer a question, each with its reason.

        The answer counts as use, and may be noted in the recall log, unless `logged` is false.
        """
        if not options.keys() <= _RECALL_OPTIONS:
            requests.refuse_unknown("recall", options, requests.RecallOptions)
        answer = self.answer(text, **options)
        if options.get("logged", True):
            self._note(text, answer, options)
        return answer

    def answer(self, text: str, *, trusted: frozenset[str] | None = None, **options: Unpack[RecallOptions]) -> Answer:
        """Recall without counting it as use; confidence does not rest on what users outside `trusted` share."""
        from triskele.recall.scores import pack

        more = dict[str, Any](options)
        near, limit, budget = (more.pop(name, None) for name in ("near", "limit", "budget"))
        local_only, _ = more.pop("local_only", False), more.pop("logged", True)
        if local_only and self.background.is_loading:
            more["legs"] = ["lexical"]
        # The command line passes None for what was not chosen.
        for name in _CHECKED & {name for name, value in more.items() if value is not None}:
            more[name] = validation.FIELDS[name](more[name], self.settings.memory)
        asked = plans.asked_for(more.pop("legs", None), more.pop("fusion", DEFAULT), more.pop("rerank", DEFAULT))
        order = more.pop("order", AS_RANKED)
        with self.models.snapshot():
            plan = self.plan_in_force(asked, order=NEAR if near else order)
            plan = plan.for_prompt() if local_only else replace(plan, patience_s=self.settings.rerank.timeout_s)
            answer = self.ask(
                validation.check_text(text, "the question"),
                plan,
                limit=self.settings.recall.limit if limit is None else validation.check_limit(limit),
                near=self.resolve(near) if near else "",
                local_only=local_only,
                embed_first=self.embed_first,
                trusted=trusted,
                # What is left is a field of the query or a filter; anything else is a TypeError.
                **more,
            )
        if plan.rerank == CROSS and more.get("sort", Sort.RELEVANCE) is Sort.RELEVANCE:
            self.deferred_writes.put(partial(measures.count_agreement, self.store, answer))
        if budget is None:
            return answer
        return pack(answer, validation.FIELDS["budget"](budget, self.settings.memory))

    def _note(self, text: str, answer: Answer, options: RecallOptions) -> None:
        """Leave to write what an answer used, and the question if the recall log is on."""
        self.deferred_writes.put(partial(echo.note_recall, self.store, answer, to_agent=is_client(self.actor)))
        narrowed = options.get("show_superseded") or any(options.get(name) for name in _NOT_LOGGED_WITH)
        is_plain = self.settings.recall.log and options.get("sort", Sort.RELEVANCE) == Sort.RELEVANCE and not narrowed
        if is_plain and not self.models.egress_policy.quotes_secret(text):
            self.deferred_writes.put(partial(measures.log_query, self.store, text, answer, timestamps.now()))

    def ask(
        self,
        text: str,
        plan: Plan,
        *,
        limit: int = 10,
        depth: int | None = None,
        local_only: bool = False,
        embed_first: int = 0,
        model: ModelIndexes | None = None,
        project: str | None = None,
        all_projects: bool = False,
        **options: Any,
    ) -> Answer:
        """Recall by a plan; with a `depth` the limit changes no candidates, `model` replaces the model in force.

        `embed_first` of the newest memories without vectors are embedded before, where no worker does that. Other
        options are fields of `Query` or filters of the scope.
        """
        from triskele.recall.pipeline import recall

        if depth is None:
            depth = candidates_per_leg(limit)
            plan = plan if plan.rescored >= limit else replace(plan, rescored=limit)
        of_query = {name: options.pop(name) for name in _QUERY_OPTIONS & options.keys()}
        query = Query(
            text=text,
            scope=self.scope(project=project, all_projects=all_projects, **options),
            limit=limit,
            depth=depth,
            is_explained=not local_only,
            project=None if all_projects else project if project is not None else self.project,
            **of_query,
        )
        sources = self.models.sources(query, plan, local_only=local_only, model=model, embed_first=embed_first)
        return recall(query, plan, sources)

    def plan_in_force(self, asked: Plan = SHIPPED, order: str = AS_RANKED, model: ModelIndexes | None = None) -> Plan:
        """The plan of recall: the requested one, else the one adopted for the model, else the default."""
        models, adopted = self.models, self.adopted(model) if asked == SHIPPED else None
        plan = adopted.plan if adopted else asked
        rerank = models.usual_rerank() if plan.rerank == DEFAULT else plan.rerank
        return replace(plan, order=order, rerank=rerank)

    def adopted(self, model: ModelIndexes | None = None) -> Adopted | None:
        """The plan that the user's own questions put in force; None if it was measured with another model."""
        found = plans.adopted(self.store)
        semantic = (model or self.semantic()) if found else None
        return found if found and semantic and semantic.embedder.fingerprint == found.fingerprint else None

    def why_not(self, id: str, text: str, **options: Unpack[AskOptions]) -> WhyNot:
        """Explain why a memory is not among the hits of a recall, and what would bring it there."""
        from triskele.recall.why_not import Recall, why_not

        requests.refuse_unknown("why_not", options, requests.AskOptions)
        plan = self.plan_in_force(plans.asked_for(options.get("legs") or None))
        recall = Recall(self.answer, self.scope, self.models.sources, plan, self.settings.recall.limit)
        return why_not(self._last_version(id), text, options, recall)

    def related(
        self, *, id: str | None = None, content: str | None = None, project: str | None = None
    ) -> list[Related]:
        """List older memories that a memory or a text repeats, extends or contradicts, the surest first."""
        if (id is None) == (content is None):
            raise BadInput("name a memory by its id, or give the content of one that is not stored yet")
        memory = self._last_version(id) if id is not None else self.draft(content or "", project=project)
        if self.settings.curation.mode == OFF:
            return []
        pairs = [(each, each.old) for each in self._pairs(memory) if each.old is not None]
        shown = views.views(self.store, views.shown((old for _, old in pairs), private=self.reads_private))
        return [Related(shown[old.id], each.relation, each.confidence) for each, old in pairs if old.id in shown]

    def _pairs(self, memory: Memory) -> list[PairDecision]:
        """What a memory is to older ones; opening the indexes only for this would take longer than reading words."""
        from triskele.curation.curator import Curator

        curator = Curator(self)
        return curator.related_by_words(memory) if self._models.opened is None else curator.related(memory)

    def open_sources(self) -> Sources:
        """What recall reads, with vectors if the model is open; loads none."""
        return self.models.open_sources()

    def semantic(self) -> ModelIndexes | None:
        """The local model and its indexes, opened when first needed; None if there is no model."""
        return self.models.semantic()

    def work_in_background(self) -> None:
        """Embed what waits, now and after every write, in a thread of this process."""
        self.deferred_writes.start()
        self.background.start()

    def browse(self, **options: Unpack[ListOptions]) -> Page:
        """List memories, a page at a time."""
        from triskele.engine import listing

        requests.refuse_unknown("browse", options, requests.ListOptions)
        return listing.page(self, lambda: self.models.open_indexes().catalog.view(), options)

    def scope(self, *, project: str | None = None, all_projects: bool = False, **filters: Any) -> Scope:
        """What a reader may see: of a project and what belongs everywhere, by the filters of `validation.narrowed`."""
        named = self.project if project is None else validation.check_name(project, "the project")
        projects = None if all_projects else frozenset({named, EVERYWHERE})
        scope = Scope(owner=self.settings.memory.owner, projects=projects, as_of=timestamps.now())
        scope = validation.narrowed(scope, self.settings.memory, **filters) if filters else scope
        return scope if self.reads_private else views.without_private(scope)

    def find(self, prefix: str, *, limit: int = 2) -> list[str]:
        """The ids that start with a prefix."""
        return self.store.find(prefix, limit=limit)

    def resolve(self, reference: str) -> str:
        """The id that starts with a prefix."""
        return views.resolved(self.store, reference, private=self.reads_private)

    def get(self, id: str) -> MemoryDetails:
        """Read the last version of a memory, with its links and its use."""
        return views.details(self.store, self._last_version(id), private=self.reads_private)

    def lookup(self, ids: Iterable[str]) -> dict[str, MemoryView]:
        """Read the last versions of memories by their whole ids; unknown ones are left out."""
        whole = sorted(set(validation.check_texts(ids, "ids")))
        latest = {memory.id: memory for _, memory in self.store.versions(whole)}
        return views.views(self.store, views.shown(latest.values(), private=self.reads_private))

    def _last_version(self, id: str) -> Memory:
        """The current version of a memory, or the last one of a forgotten one."""
        return self.store.history(self.resolve(id))[-1]

    def _last_versions(self, ids: Iterable[str]) -> list[Memory]:
        return [self._last_version(id) for id in self._resolved(ids)]

    def _resolved(self, ids: Iterable[str]) -> list[str]:
        """The whole ids, each once."""
        return list(dict.fromkeys(map(self.resolve, ids)))

    def journal(self, *, id: str | None = None, batch: str | None = None, limit: int = 50) -> History:
        """List changes, newest first, of all or of one memory or batch; with the versions that they name."""
        if id is None and batch is None:
            entries = self.store.newest_entries(limit=limit)
        else:
            own = None if id is None else self.resolve(id)
            entries = self.store.journal(id=own, batch=batch, limit=_WHOLE)[-limit:][::-1]
        return views.history(self.store, entries, private=self.reads_private)

    def shorten(self, ids: Iterable[str]) -> dict[str, str]:
        """Give the shortest unique prefix of each id, for display."""
        return self.store.shorten(ids)

    def stats(self) -> Statistics:
        """Count what is stored, pending and used."""
        from triskele.engine.health import statistics

        return statistics(self, self.adopted())

    def superseded(self, ids: Sequence[str]) -> set[str]:
        """The ids of those memories that another one replaces."""
        return views.superseded_in(self.store, ids)

    # What rooms below the protocol work with

    @property
    def proposals(self) -> Proposals:
        """The review queue: what curation would change, until the user accepts or rejects it."""
        from triskele.curation.proposals import Proposals

        return Proposals(self)

    @property
    def maintenance(self) -> Maintenance:
        """Care for the store's files; raise if it has none."""
        if self._maintenance is None:
            raise BadInput("the store has no files of its own: use the tools of its database")
        return self._maintenance


if TYPE_CHECKING:
    from triskele.engine.protocol import Engine

    _implements: type[Engine] = LocalEngine
